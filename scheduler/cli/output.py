"""Log lines to stderr, and the exit code that several results make."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from scheduler.errors import (
    AccessRefused,
    JobFileUnreadable,
    Later,
    ProgramFault,
    ReplyOrphaned,
    ResumedError,
    StorageRefused,
)
from scheduler.events import made_progress
from scheduler.logs import Form, log_line
from scheduler.owed import Result
from scheduler.state import utc

BAD_FILE, NO_ACCESS, NO_STORAGE, FAULT, BLOCKED, NO_PROGRESS, LATER = 78, 77, 74, 70, 65, 69, 75
ORDER = (FAULT, BAD_FILE, NO_ACCESS, NO_STORAGE, BLOCKED, NO_PROGRESS, LATER, 0)


_form: Form = "text"


def choose_form(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Have log lines written as `--log-format` says; as text, systemd's journal gets them with its own prefix.

    Looked for by hand, so that what is wrong with the other arguments is told in that form too.
    """
    global _form  # a process writes one log
    form = ""
    for text, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = text.partition("=")
        if len(name) > len("--l") and "--log-format".startswith(name):  # argparse takes it shortened too
            form = value if equals else following
    _form = "json" if form == "json" else "journal" if _is_journal(environ) else "text"


def _is_journal(environ: Mapping[str, str]) -> bool:
    """Tell whether stderr is the stream to the journal that systemd.exec(5) names."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def log(level: str, message: str, /, event: str = "note", job: str = "", **facts: object) -> None:
    """Write one line to stderr."""
    say(log_line(_form, utc(time.time()), level, message, event, job, facts), sys.stderr)


def log_refusal(error: ResumedError, event: str = "refused", job: str = "") -> None:
    """Write the one line that tells why a command ends."""
    log("error", str(error), event, job, reason=str(error), kind=type(error).__name__)


def say(line: str, stream: TextIO) -> None:
    """Write one line at once; that nobody reads it, or that its disk is full, changes nothing of what runs."""
    with contextlib.suppress(OSError):
        stream.write(f"{line}\n")  # in one piece, for other threads write too
        stream.flush()


def exit_code(error: ResumedError) -> int:
    """Return the exit code of one refusal."""
    kinds = (
        (JobFileUnreadable, BAD_FILE),
        (AccessRefused, NO_ACCESS),
        (StorageRefused, NO_STORAGE),
        (ProgramFault, FAULT),
        (Later, LATER),
        (ReplyOrphaned, NO_PROGRESS),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), BLOCKED)


def first_code(codes: Iterable[int]) -> int:
    """Return the code that applies to several results."""
    found = {0, *codes}
    return next(code for code in ORDER if code in found)


def result_code(result: Result, *, named: bool) -> int:
    """Return the exit code of one job's result; one that has to wait is a failure only where it was asked for."""
    if result.refusal is not None:
        code = exit_code(result.refusal)
        return 0 if code == LATER and not named else code
    return NO_PROGRESS if result.ran and result.state is not None and not made_progress(result.state) else 0

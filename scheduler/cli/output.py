"""Log lines to stderr, and the exit code that several results make."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
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
from scheduler.owed import Result
from scheduler.state import utc
from scheduler.text import printable

BAD_FILE, NO_ACCESS, NO_STORAGE, FAULT, BLOCKED, NO_PROGRESS, LATER = 78, 77, 74, 70, 65, 69, 75
ORDER = (FAULT, BAD_FILE, NO_ACCESS, NO_STORAGE, BLOCKED, NO_PROGRESS, LATER, 0)


def log(level: str, message: str) -> None:
    """Write one line to stderr."""
    say(f"{utc(time.time())} {level:7} {printable(message)}".replace("\n", " "), sys.stderr)


def say(line: str, stream: TextIO) -> None:
    """Write one line at once; that nobody reads it, or that its disk is full, changes nothing of what runs."""
    with contextlib.suppress(OSError):
        print(line, file=stream, flush=True)


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

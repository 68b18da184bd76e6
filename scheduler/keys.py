"""A provider's key: where it is found, what it may be, and how it is kept out of every text."""

from __future__ import annotations

import base64
import errno
import os
import re
import stat
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scheduler.errors import ProviderNotReady
from scheduler.job import KeySource, Provider

KEY_LIMIT: Final = 8192
KEY_FILE_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 300

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")


def read_key(provider: Provider, environ: Mapping[str, str]) -> str | None:
    """Return the provider's key without blanks at its ends, or None where the provider has none.

    Raises ProviderNotReady, which never shows any part of the key.
    """
    if provider.key is None:
        return None
    try:
        key = _stored_key(provider.key, environ).strip()
        problem = key_fault(key)
    except OSError as error:
        problem = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
    except ValueError as error:
        problem = str(error)
    if problem:
        kind = "variable" if provider.key.kind == "env" else provider.key.kind
        raise ProviderNotReady(provider=provider.name, problem=f"the key in the {kind} {provider.key.name} {problem}")
    return key


def _stored_key(source: KeySource, environ: Mapping[str, str]) -> str:
    if source.kind == "env":
        return environ.get(source.name, "")
    folder = "" if source.kind == "file" else environ.get("CREDENTIALS_DIRECTORY", "")
    if source.kind == "credential" and (not folder or Path(source.name).name != source.name):
        raise ValueError("is no file of the folder that CREDENTIALS_DIRECTORY names")
    # O_NONBLOCK, for a FIFO would wait for its writer. Latin-1, for it never fails: an error's text would show bytes.
    descriptor = os.open(Path(folder, source.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not in a regular file")
        return os.read(descriptor, KEY_FILE_LIMIT).decode("latin-1")
    finally:
        os.close(descriptor)


def key_fault(key: str) -> str:
    """Return why a header cannot carry this key, or nothing."""
    faults = (
        (not key, "is missing or blank"),
        (len(key) > KEY_LIMIT, f"is longer than {KEY_LIMIT} characters"),
        (re.search(r"[\r\n]", key), "has a line break inside"),
        (re.search(r"[^\x00-\x7f]", key), "has a character outside ASCII"),
        (re.search(r"[\x00-\x1f\x7f]", key), "has a control character"),
    )
    return next((words for wrong, words in faults if wrong), "")


def one_line(text: str, key: str | None) -> str:
    """Make one short line of it: no control or invisible characters, and *** for the key in each of its spellings."""
    plain = _ANSI.sub("", text)
    line = " ".join("".join(c if c.isprintable() else " " * c.isspace() for c in plain).split())
    if key:
        spellings = (urllib.parse.quote(key, safe=""), base64.b64encode(key.encode()).decode(), key)
        # Wrapped by a line break, or escaped as JSON and Python's repr do it.
        patterns = (r"[\s\\]*".join(map(re.escape, spelling)) for spelling in spellings)
        line = re.sub("|".join(patterns), "***", line, flags=re.IGNORECASE)
    return line if len(line) <= LINE_LIMIT else line[: LINE_LIMIT - 1] + "…"

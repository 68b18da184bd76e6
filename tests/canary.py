"""The canary keys, and the search for them in whatever a test leaves behind."""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import stat
import urllib.parse
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from tests import kinds
from tests.support import KEY

MOST_BYTES = 4 * 1024 * 1024  # of one file; nothing that this program writes is larger
MOST_FILES = 5_000


def forms(key: str) -> frozenset[bytes]:
    """Every spelling in which a key may stand somewhere: plain, escaped, quoted, in base64 at each offset, in hex."""
    escaped = json.dumps(key)[1:-1]
    plain = {key, escaped, escaped.replace("/", "\\/"), urllib.parse.quote(key, safe=""), key.encode().hex()}
    return frozenset({text.encode() for text in plain} | {_base64(key.encode(), before) for before in range(3)})


def _base64(key: bytes, before: int) -> bytes:
    """Return the digits that this key gives wherever so many bytes, modulo 3, stand before it."""
    first = (8 * before + 5) // 6
    last = 8 * (before + len(key)) // 6
    return base64.b64encode(bytes(before) + key)[first:last]


FORMS = forms(KEY) | forms(kinds.KEY)


def shows(data: bytes, spellings: Collection[bytes] = FORMS) -> bool:
    """Whether a key stands in these bytes."""
    return any(spelling in data for spelling in spellings)


def files(folder: Path) -> Iterator[Path]:
    """Every regular file below a folder, hidden and temporary ones too; no link is followed."""
    left = MOST_FILES
    waiting = [os.fspath(folder)]
    while waiting and left > 0:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def holders(folder: Path, spellings: Collection[bytes] = FORMS, but: Collection[str] = ()) -> list[str]:
    """The files below a folder that show a key, and the names that do; `but` are patterns of those that may."""
    found = []
    for path in files(folder):
        name = os.path.relpath(path, folder)
        if any(fnmatch.fnmatch(name, pattern) for pattern in but):
            continue
        if shows(os.fsencode(name), spellings) or shows(_read(path), spellings):
            found.append(name)
    return found


def _read(path: Path) -> bytes:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb", buffering=0) as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return file.read(MOST_BYTES)
    return b""

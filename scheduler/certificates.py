"""Whom a provider with a `ca_file` must be certified by: a PEM file, read anew when it is another one."""

from __future__ import annotations

import os
import ssl
import stat
import threading
from pathlib import Path
from typing import Final

FILE_LIMIT: Final = 4 * 1024 * 1024

_Stamp = tuple[int, int, int]
_contexts: dict[Path, tuple[_Stamp, ssl.SSLContext]] = {}
_lock = threading.Lock()


def pinned_context(path: Path) -> ssl.SSLContext:
    """Return a context that trusts the certificates of this file alone, one for each version of the file.

    Raises ValueError with one sentence where the file cannot be used.
    """
    try:
        with open(path, "rb", opener=_unblocked) as file, _lock:
            found = os.fstat(file.fileno())
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = _contexts.get(path)
            if known is None or known[0] != stamp:
                if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_LIMIT:
                    raise ValueError(f"it is no regular file of at most {FILE_LIMIT} bytes")
                known = _contexts[path] = (stamp, _context(file.read(FILE_LIMIT)))
            return known[1]
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or type(error).__name__}") from None


def _unblocked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for its writer


def _context(pem: bytes) -> ssl.SSLContext:
    text = pem.decode("ascii", "ignore")  # comments around the certificates may hold anything
    if "-----BEGIN " not in text:
        raise ValueError("it holds no certificate in PEM form")
    try:
        return ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        said = getattr(error, "reason", None) or error
        raise ValueError(f"it holds no certificate that can be read ({said})") from None

"""Which program and process this is, and whether another process still lives.

A process is named by its id, its start time and the boot it belongs to, so that a reused id is never taken for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.errors import ProcessesUntold, StorageFailed

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its id, when it started, and the boot of the machine; the latter two are opaque texts."""

    pid: int
    start: str
    boot: str


@functools.cache
def program_version() -> str:
    """Return the installed version; 0 where the package is run without being installed."""
    import importlib.metadata  # costs more than the rest of this module

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("resumed")
    return "0"


def this_process() -> Owner:
    """Return the owner that stands for the calling process. Raises StorageFailed, ProcessesUntold."""
    return Owner(os.getpid(), _start(os.getpid()) or "", _boot())


def is_alive(owner: Owner) -> bool:
    """Tell whether that very process still runs. Raises StorageFailed, ProcessesUntold where that cannot be told."""
    return owner.boot == _boot() and _start(owner.pid) == owner.start


@functools.cache
def _boot() -> str:
    if _has_proc():
        with _readable(_BOOT_ID):
            return _BOOT_ID.read_text("ascii").strip()
    boot = _ask("sysctl", "-n", "kern.boottime")
    if not boot:  # Linux without /proc, as in a bare chroot
        raise _untold("neither /proc nor sysctl says when the machine started")
    return boot


def _has_proc() -> bool:
    with _readable(_BOOT_ID):
        return _BOOT_ID.exists()


def _start(pid: int) -> str | None:
    """Return the start time of a process that runs; a zombie has ended."""
    if not _has_proc():
        return _ask("ps", "-o", "lstart=", "-p", str(pid))
    path = _PROC / str(pid) / "stat"
    try:
        with _readable(path):
            # The command name stands in brackets and may itself hold blanks and brackets.
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Refuse what is there and cannot be read: a process that lives is not to be taken for a dead one."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise
    except OSError as error:
        raise StorageFailed(path=path, reason=error.strerror or str(error)) from error


def _ask(*command: str) -> str | None:
    try:
        reply = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # fixed commands
    except OSError as error:
        raise _untold(f"there is no /proc, and {command[0]} does not start: {error.strerror}") from error
    return reply.stdout.strip() or None


def _untold(reason: str) -> ProcessesUntold:
    return ProcessesUntold(path=_PROC, reason=reason)

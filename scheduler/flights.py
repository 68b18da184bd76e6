"""Which attempts are in flight: those that this process waits for, and those whose process lives elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from scheduler.owner import is_alive, this_process
from scheduler.standing import Admission, Record

Flight = tuple[Path, int, int]

# How many slices there are of each: where a lock file was deleted, a second one may try to begin the same attempt.
_own: Counter[Flight] = Counter()
_lock = threading.Lock()


def enter(flight: Flight) -> None:
    """Say that a slice of this process is about to wait for the reply of (path, allowance, attempt)."""
    with _lock:
        _own[flight] += 1


def leave(flight: Flight) -> None:
    """Say that this slice does not any more."""
    with _lock:
        _own.subtract([flight])
        if not _own[flight]:
            del _own[flight]


def in_flight(path: Path, record: Record | None) -> Admission | None:
    """Return the attempt of a checkpoint that a living slice still waits for, whatever became of the lock file."""
    admission = record.open if record else None
    if record is None or admission is None or not is_alive(admission.owner):
        return None
    if admission.owner != this_process():
        return admission
    with _lock:
        return admission if (path, record.version.allowance, admission.attempt) in _own else None


def holder(path: Path, record: Record | None) -> str:
    """Say who has a checkpoint in use."""
    admission = in_flight(path, record)
    if admission is None or admission.owner == this_process():
        return "another process or thread"
    return f"another process ({admission.owner.pid})"

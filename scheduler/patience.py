"""For how long a file that another process keeps locked is waited for.

What waits for it keeps nothing else waiting, and many that wait for one file wait together, not one after another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from scheduler.errors import LedgerBusy, StorageFailed

BUSY_SECONDS = 5.0
# For how long a file that is locked may hold up what does not need it.
HASTE = 0.1
RETRY = 0.01
PATIENCE = 12
Saved = TypeVar("Saved")


class Patience:
    """How long this process has waited for one file; without `wait` all that wait for it have 5 s together."""

    def __init__(self) -> None:
        self._first = self._last = float("-inf")  # when they began to wait, and when one last gave up

    def until(self, wait: float | None) -> float:
        """Return the moment (of the monotonic clock) up to which one that begins to wait now tries."""
        now = time.monotonic()
        if now - self._last > BUSY_SECONDS:
            self._first = now
        return max(now + HASTE, self._first + BUSY_SECONDS) if wait is None else now + wait

    def pause(self, until: float) -> bool:
        """Pause before the next try; False where it is time to give up."""
        if time.monotonic() >= until:
            self._last = time.monotonic()
            return False
        time.sleep(RETRY)
        return True


def patiently(save: Callable[[float], Saved]) -> Saved:
    """Save what was paid for, although another process keeps the file locked for up to a minute.

    `save` is given for how long to wait. Raises StorageFailed after that: to say that it is a matter of later would be
    wrong.
    """
    for _ in range(PATIENCE):
        try:
            return save(BUSY_SECONDS)
        except LedgerBusy as error:
            path = error.path
    raise StorageFailed(path=path, reason="another process kept it locked")

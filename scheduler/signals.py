"""What signals ask of a process: to stop, to end at once, or to read its jobs.yaml anew."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class Signals:
    """SIGTERM and SIGINT set `stop` and call `on_stop`, a second one ends the process; SIGHUP asks for another look."""

    def __init__(self, on_stop: Callable[[], object] = bool) -> None:
        self.stop = threading.Event()
        self._on_stop = on_stop
        self.received = False
        self._hangup = False

    def catch(self, *, hangup: bool) -> None:
        """Take the signals over from now on, SIGHUP only where asked for."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_stop)
        if hangup:
            signal.signal(signal.SIGHUP, self._note_hangup)

    def take_hangup(self) -> bool:
        """Tell, once, whether SIGHUP has come."""
        hangup, self._hangup = self._hangup, False
        return hangup

    def _note_stop(self, number: int, _: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = True
        self.stop.set()
        self._on_stop()

    def _note_hangup(self, *_: object) -> None:
        self._hangup = True

"""What signals ask of a daemon: to stop, to end at once, or to read its jobs.yaml anew."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType


class Signals:
    """SIGTERM and SIGINT set `stop`, a second one ends the process; SIGHUP asks for another look at the file."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.received = False
        self._hangup = False

    def catch(self) -> None:
        """Take the signals over from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)

    def take_hangup(self) -> bool:
        """Tell, once, whether SIGHUP has come."""
        hangup, self._hangup = self._hangup, False
        return hangup

    def _on_stop(self, number: int, _: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = True
        self.stop.set()

    def _on_hangup(self, *_: object) -> None:
        self._hangup = True

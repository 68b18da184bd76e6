"""Notifications in the background: in order for each channel, and none of them delays anything but the end."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from scheduler.job import Channel
from scheduler.notify import DEADLINE, Message, send

if TYPE_CHECKING:
    from scheduler.child import Guarded

Ended = Callable[[str], object]


class Outbox:
    """A thread for each channel that something was sent over."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._queues: dict[Channel, queue.SimpleQueue[Callable[[], None] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._until = float("inf")

    def put(self, channel: Channel, message: Message, guarded: Guarded, ended: Ended) -> None:
        """Send it once what came before it is sent; `ended` gets why it did not go, or an empty text."""

        def work() -> None:
            seconds = min(DEADLINE, self._until - time.monotonic())
            if seconds <= 0:
                ended(f"no time was left for it in the {DEADLINE:g} s at the end")
            else:
                ended(send(channel, message, self._environ, guarded, seconds))

        if not self._queues:
            self._until = float("inf")
        if channel not in self._queues:
            waiting = self._queues[channel] = queue.SimpleQueue()
            thread = threading.Thread(target=_serve, args=(waiting,), name="outbox", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queues[channel].put(work)

    def close(self) -> None:
        """Wait for what is under way, all together 10 s; what has not begun by then is not sent."""
        self._until = time.monotonic() + DEADLINE
        for waiting in self._queues.values():
            waiting.put(None)
        for thread in self._threads:
            thread.join(max(0, self._until + 0.5 - time.monotonic()))
        self._queues, self._threads = {}, []


def _serve(waiting: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := waiting.get()) is not None:
        with contextlib.suppress(Exception):  # else one that cannot be noted would be the last of its channel
            work()

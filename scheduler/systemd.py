"""What the service manager is told: one datagram to the socket that it names, and nothing where it names none.

The protocol is sd_notify(3), and sd_watchdog_enabled(3) for the watchdog.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping


def notify(message: str, environ: Mapping[str, str]) -> None:
    """Send one message such as `READY=1`; a manager that does not listen is not an error."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1)  # a manager that does not read holds nothing up for long
        channel.sendto(message.encode("utf-8", "replace"), address.replace("@", "\0", 1))


def watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return how often this process must say that it lives: twice within the manager's limit; None if it need not."""
    limit, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(os.getpid()))
    if not (limit.isascii() and limit.isdigit()) or int(limit) == 0 or process != str(os.getpid()):
        return None
    return int(limit) / 2e6


class Manager:
    """The service manager of this process, through its life: starting, running, reloading, stopping."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._beat_every = watchdog_seconds(environ)
        self._beat_at = float("-inf")
        self._status = ""

    @property
    def listens(self) -> bool:
        """Tell whether there is one."""
        return bool(self._environ.get("NOTIFY_SOCKET"))

    @property
    def patience(self) -> float:
        """For how many seconds it can be left without a word."""
        return float("inf") if self._beat_every is None else self._beat_every

    def ready(self, status: str) -> None:
        """Say that the jobs are in force, for the first time or after `reloading`."""
        self._status = status
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that jobs.yaml is being read anew; `ready` must follow."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self, status: str) -> None:
        """Say that the program works, as often as the manager asks, and what it does where that has changed."""
        if status != self._status:
            self._status = status
            self._tell(f"STATUS={status}")
        if self._beat_every is not None and time.monotonic() >= self._beat_at + self._beat_every:
            self._beat_at = time.monotonic()
            self._tell("WATCHDOG=1")

    def stopping(self, status: str, within: float) -> None:
        """Say that the end has begun, and that it may take so many seconds."""
        self._status = status
        self._tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={int(within * 1e6)}", f"STATUS={status}")

    def _tell(self, *assignments: str) -> None:
        notify("\n".join(" ".join(one.split()) for one in assignments), self._environ)

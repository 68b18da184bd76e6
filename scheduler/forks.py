"""Something done in a process of its own, which may die of it; a signal may end this one at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from scheduler.errors import DiskFull, ResumedError

LONGEST: Final = 60  # seconds that one process may take
PURPOSE: Final = "what the self-test writes"
STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Broken(Exception):
    """A promise that did not hold, in words."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and what went wrong in it."""

    code: int
    said: str

    @property
    def words(self) -> str:
        """Say it in a line; empty where all went well."""
        return "" if not self.code else self.said or f"its process ended with {self.code}"


def in_child(act: Callable[[], object]) -> Ended:
    """Do it in a process of its own, and wait for its end. Raises DiskFull where the disk was full there."""
    reading, writing = os.pipe()
    pid = status = 0
    try:
        with undisturbed():  # for what a signal raises in a hook of fork is lost
            pid = os.fork()
            if not pid:
                _run_child(act, writing)
            os.close(writing)
        with open(reading, "rb") as pipe:
            said = pipe.read().decode()
    except BaseException:
        if pid:
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        if pid:
            _, status = os.waitpid(pid, 0)
    kind, _, words = said.partition("\n")
    if kind == DiskFull.__name__:
        raise DiskFull(path=words, purpose=PURPOSE)
    return Ended(os.waitstatus_to_exitcode(status), words)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals that end this process wait."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_child(act: Callable[[], object], writing: int) -> NoReturn:
    code = 1
    try:
        for number in STOPS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        signal.alarm(LONGEST)
        act()
        code = 0
    except DiskFull as error:
        os.write(writing, f"{type(error).__name__}\n{error.path}".encode())
    except BaseException as error:
        plain = isinstance(error, Broken | ResumedError)
        os.write(writing, f"\n{error if plain else repr(error)}".encode("utf-8", "replace"))
    finally:
        os._exit(code)

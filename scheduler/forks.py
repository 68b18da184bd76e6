"""Something done in a process of its own, which may die of it; a signal may end this one at any moment."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from scheduler.errors import DiskFull, NoProcess, ResumedError

LONGEST: Final = 60  # seconds that one process may take
PURPOSE: Final = "what the self-test writes"
STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Broken(Exception):
    """A promise that did not hold, in words."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, what went wrong in it, and who refused."""

    code: int
    said: str
    refusal: ResumedError | None = None

    @property
    def words(self) -> str:
        """Say it in a line; empty where all went well."""
        return "" if not self.code else self.said or f"its process ended with {self.code}"


def in_child(act: Callable[[], object]) -> Ended:
    """Do it in a process of its own, and wait for its end. Raises NoProcess, and DiskFull where it was so there."""
    pid = status = 0
    try:
        with undisturbed():  # for what a signal raises in a hook of fork is lost
            pid, reading = _fork(act)
        with open(reading, "rb") as pipe:
            said = pipe.read()
    except BaseException:
        if pid:
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        if pid:
            _, status = os.waitpid(pid, 0)
    words, kind, facts = pickle.loads(said) if said else ("", None, {})  # noqa: S301  # from our own child
    refusal = kind(**facts) if kind else None
    if isinstance(refusal, DiskFull):
        raise DiskFull(path=refusal.path, purpose=PURPOSE)
    return Ended(os.waitstatus_to_exitcode(status), words, refusal)


def _fork(act: Callable[[], object]) -> tuple[int, int]:
    """Start the process that does it; return its id, and where it says what went wrong."""
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise NoProcess(reason=str(error.strerror)) from error
    try:
        pid = os.fork()
        if not pid:
            _run_child(act, writing)
    except OSError as error:
        os.close(reading)
        raise NoProcess(reason=str(error.strerror)) from error
    finally:
        os.close(writing)
    return pid, reading


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
    except ResumedError as error:
        facts = {name: value for name, value in vars(error).items() if name != "__notes__"}
        os.write(writing, pickle.dumps((str(error), type(error), facts)))
    except BaseException as error:
        os.write(writing, pickle.dumps((str(error) if isinstance(error, Broken) else repr(error), None, {})))
    finally:
        os._exit(code)

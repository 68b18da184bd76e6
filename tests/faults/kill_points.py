"""The real program, stopped as it takes the lock; from there its system calls are listed, or it is killed at one.

strace counts the calls of each thread by itself, and the main thread has made thousands before another takes the lock.
So strace comes to the process there, where `kill_at_lock/sitecustomize.py` lets it wait, and to the one thread meant.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tests.faults.strace import Call, attached
from tests.support import LEAN, PROGRAM, ROOT, Project

Thread = Literal["lock", "main", "request"]
FAULT = "{call}:signal=SIGKILL:when={number}"
CALLS = ("%file", "%desc", "%network")
AT_LOCK = Path(__file__).with_name("kill_at_lock")
WAITING = "readv"
# These change nothing, and come in long runs on one file.
_LOOKING = {"read", "pread64", "newfstatat", "lseek", "fcntl", "ioctl", "poll", "mmap", "getdents64", "readlink"}
_FILE = re.compile(r'^\d+<([^>]*)>|^AT_FDCWD(?:<[^>]*>)?, "([^"]*)"|^"([^"]*)"')
_MODULES = tuple(os.path.realpath(folder) for folder in {sys.prefix, sys.base_prefix, str(ROOT)})


class Point(NamedTuple):
    """The nth call of a name since the lock, of the thread that took it, the main thread or the one of the request."""

    thread: Thread
    name: str
    number: int


@dataclass(frozen=True)
class Ran:
    """How a stopped program ended; `held` tells whether it came to a lock, `calls` what its traced thread did then."""

    code: int
    err: str
    held: bool
    pid: int
    locker: int
    folder: str
    calls: tuple[Call, ...]

    @property
    def points(self) -> list[Point]:
        """Where it could be killed: no call that loads a module or looks elsewhere, and of a run of looks the first."""
        counts: Counter[tuple[int, str]] = Counter()
        before: dict[int, tuple[str, str]] = {}
        points = []
        answered = False
        for call in self.calls:
            if call.name == WAITING:  # for strace, which may see the end of it
                continue
            counts[call.pid, call.name] += 1
            number, file = counts[call.pid, call.name], _file(call)
            thread: Thread = "lock" if call.pid == self.locker else "main" if call.pid == self.pid else "request"
            # strace comes to the thread of a request only with all others, so that the first to come so far is hit.
            hit = thread != "request" or number > max(
                (counts[pid, name] for pid, name in counts if name == call.name and pid != call.pid), default=0
            )
            elsewhere = self.folder not in call.arguments and "<socket:" not in call.arguments
            idle = call.name in _LOOKING and (elsewhere or before.get(call.pid) == (call.name, file))
            before[call.pid] = (call.name, file)
            if hit and not idle and not file.startswith(_MODULES) and not (thread == "request" and answered):
                points.append(Point(thread, call.name, number))
            answered = answered or call.name == "recvfrom"  # a reply may come in one piece or in two
        return points


def _file(call: Call) -> str:
    found = _FILE.match(call.arguments)
    return next((group for group in found.groups() if group), "") if found else ""


def listed(project: Project, command: Sequence[str], program: Sequence[str] = PROGRAM) -> Ran:
    """Run the program to its end; its calls since the lock are those of all its threads."""
    return _run(project, command, program, None)


def killed(project: Project, command: Sequence[str], point: Point, program: Sequence[str] = PROGRAM) -> Ran:
    """Run the program and kill it at a point; its calls are those of that name."""
    return _run(project, command, program, point)


def was_killed(ran: Ran, point: Point) -> bool:
    """Tell whether the kill happened, by the exit status and by the trace: the call that was named is the last."""
    if ran.code != -signal.SIGKILL:
        return False
    fatal = [call for call in ran.calls if call.result == "?" and call.name == point.name]
    numbers = {
        call.pid: sum(other.name == point.name and other.pid == call.pid for other in ran.calls) for call in fatal
    }
    return point.number in numbers.values()


@contextmanager
def _started(
    project: Project, command: Sequence[str], program: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Start the program, and wait until a thread is about to take the lock, or it has ended; the pipe lets it go on."""
    (told, tell), (wait, go) = os.pipe(), os.pipe()
    path = os.pathsep.join(map(str, (AT_LOCK, LEAN, ROOT)))
    # One run that compiles a module would make calls that the next one does not.
    environ = project.environ(WAIT_AT_LOCK=f"{tell} {wait}", PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    process = subprocess.Popen(
        [*program, "--config", str(project.config), *command],
        env=environ,
        pass_fds=(tell, wait),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(tell)
    os.close(wait)
    try:
        yield process, int(os.read(told, 20) or 0), go
    finally:
        process.kill()
        process.communicate()
        os.close(told)
        os.close(go)


def _run(project: Project, command: Sequence[str], program: Sequence[str], point: Point | None) -> Ran:
    with _started(project, command, program) as (process, locker, go):
        calls: list[Call] = []
        if locker:
            whole = point is None or point.thread == "request"
            traced = locker if point and point.thread == "lock" else process.pid
            names = (point.name,) if point else CALLS
            fault = FAULT.format(call=point.name, number=point.number) if point else ""
            with attached(traced, names, inject=fault, threads=whole) as calls:
                os.write(go, b"1")
                err, _ = process.communicate(timeout=60)
        else:
            err, _ = process.communicate(timeout=60)
        return Ran(process.returncode, err, bool(locker), process.pid, locker, str(project.folder), tuple(calls))

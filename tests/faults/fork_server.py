"""A process that has everything imported, and forks the program for each command: as a user, in limits, under strace.

A forked program ends as any Python does, with its own end of the interpreter. strace is attached to it at its start, or
where it is about to take a checkpoint's lock; `when=` counts from there on. Run as
`python -m tests.faults.fork_server`: reads a command as one line of JSON on stdin, and prints what came of it as one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import scheduler
from tests.faults.strace import Call, Traced, attached
from tests.support import ROOT, Project

SECONDS = 60.0  # a program that runs for longer hangs
HUNG = -99
# Source: prctl(2); where Yama is on, a process says itself that one which is not its parent may trace it.
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is to be run: the program with these arguments, or a command of the system at the server's own place.

    `calls` are traced from the lock on, or from the start; `inject` is what strace's `-e inject=` takes. `broken` names
    a function of `module` that breaks the program on purpose; `most` is the size that no file may exceed.
    """

    arguments: Sequence[str]
    system: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0
    umask: int = 0o022
    most: int | None = None
    calls: Sequence[str] = ()
    from_start: bool = False
    inject: str = ""
    module: str = ""
    broken: str = ""


class ForkServer:
    """The client's side of such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, command: Command) -> Traced:
        """Run a command to its end; no traceback is shown by it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asdict(command)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the fork server has died"
        code, out, err, calls = json.loads(line)
        assert not command.system or code == 0, err
        return Traced(code, out, err, tuple(Call(*call) for call in calls))

    def system(self, *arguments: object) -> None:
        """Run a command of the system, in the server's mount namespace."""
        self.ask(Command(arguments=[*map(str, arguments)], system=True))

    def run(self, project: Project, *arguments: str, **options: Any) -> Traced:
        """Run the program on a project."""
        own = {"XDG_STATE_HOME": str(project.folder.parent / "state")}  # which a case begins and ends with
        environ = project.environ() | own | dict(options.pop("environ", {}))
        command = ["--config", str(project.config), *arguments]
        return self.ask(Command(arguments=command, environ=environ, **options))


@contextlib.contextmanager
def fork_server(*wrap: str) -> Iterator[ForkServer]:
    """Start one, below a command such as unshare's if one is given; it ends with the block."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [*wrap, sys.executable, "-m", "tests.faults.fork_server"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environ, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]  # pipes
        try:
            yield ForkServer(process)
        finally:
            process.stdin.close()
            process.wait(SECONDS)


def _serve() -> None:
    for module in pkgutil.walk_packages(scheduler.__path__, "scheduler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("utf_8_sig", "latin_1", "ascii", "idna"):
        importlib.import_module(f"encodings.{name}")
    for line in sys.stdin:
        command = Command(**json.loads(line))
        if command.system:
            done = subprocess.run(command.arguments, capture_output=True, text=True, check=False)
            told = [done.returncode, done.stdout, done.stderr, []]
        else:
            told = _run(command)
        print(json.dumps(told), flush=True)


def _run(command: Command) -> list[Any]:
    out, err = os.memfd_create("out"), os.memfd_create("err")
    waits, goes = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:  # nothing is to be cleaned up by the program, which ends where it likes
        for descriptor in (waits[0], goes[1]):
            os.close(descriptor)
        _program(command, (out, err), waits[1], goes[0])
    for descriptor in (waits[1], goes[0]):
        os.close(descriptor)
    with _traced(command, pid, waits[0], goes[1]) as calls:
        code = _end(pid)
    return [code, _read(out), _read(err), calls]


def _read(descriptor: int) -> str:
    with open(descriptor, "rb") as file:
        file.seek(0)
        return file.read().decode()


def _program(command: Command, streams: tuple[int, int], waits: int, goes: int) -> NoReturn:
    """Become the program; its end is that of the interpreter."""
    for descriptor, stream in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
        os.dup2(stream, descriptor)
    os.environ.clear()
    os.environ.update(command.environ)
    if command.broken:  # first, for the user may not be able to read the harness
        getattr(importlib.import_module(command.module), command.broken)()
    os.umask(command.umask)
    if command.most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command.most, command.most))
    if command.uid:
        os.setgroups([])
        os.setresgid(command.uid, command.uid, command.uid)
        os.setresuid(command.uid, command.uid, command.uid)
    if command.calls:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)
    sys.argv = ["resumed", *command.arguments]
    main = importlib.import_module("scheduler.cli").main
    if command.calls and command.from_start:
        main = _pausing(main, waits, goes)
    elif command.calls:
        tick: Any = importlib.import_module("scheduler.tick")
        tick.hold = _pausing(tick.hold, waits, goes)
    sys.exit(main(command.arguments))


def _pausing(function: Callable[..., Any], waits: int, goes: int) -> Callable[..., Any]:
    def paused(*arguments: Any) -> Any:
        os.write(waits, b"!")
        select.select([goes], [], [])  # a call that is never traced
        return function(*arguments)

    return paused


@contextlib.contextmanager
def _traced(command: Command, pid: int, waits: int, goes: int) -> Iterator[list[Call]]:
    """Trace the program from where it pauses, if it comes there, and let it go on."""
    with open(waits, "rb") as ready, open(goes, "wb") as going:
        if not command.calls or not ready.read(1):
            going.close()
            yield []
            return
        with attached(pid, command.calls, inject=command.inject, threads=True) as calls:
            going.close()
            yield calls


def _end(pid: int) -> int:
    """Return the exit code of a process, HUNG where it had to be killed."""
    with open(os.pidfd_open(pid), "rb") as ended:
        hung = not select.select([ended], [], [], SECONDS)[0]
        if hung:
            os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return HUNG if hung else code


if __name__ == "__main__":
    _serve()

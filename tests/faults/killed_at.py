"""The program in forked processes: each killed by SIGKILL at one step of a slice, or all started at once.

Everything is imported once, so that a process costs a hundredth of a start; nothing of the package is opened before the
fork. Run as `python -m tests.faults.killed_at`: reads a plan as a line of JSON, answers with a line of
`[exit code, stderr]` of each process.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import time_machine

from scheduler.steps import CREATE, PUBLISH, RECOVERY, SLICE, STORE, Step, arm
from tests.support import ROOT, Project

# An opening of a series: inside its transaction, and once that is durable.
OPENED = {
    "opening-inside": Step("scheduler.series", "enter", after=True),
    "opening-after": Step("scheduler.series", "_write", after=True),
}
# A decision, and the delivery that follows it.
DELIVERY = {
    "decided-inside": Step(*STORE, after=True),
    "decided-unpublished": Step(*PUBLISH),
    "decided-after": Step("scheduler.cli.review", "decide", after=True),
    "claimed-inside": Step("scheduler.delivery", "may_deliver", call=2, after=True),  # the first only tells
    "claimed-after": Step("scheduler.delivery", "_claim", after=True),
    "file-made": Step(*CREATE, call=2, after=True),
    "delivered": Step("scheduler.delivery", "carry_out", after=True),
    "outcome-inside": Step("scheduler.delivery", "_close", after=True),
    "outcome-after": Step("scheduler.delivery", "_finish", after=True),
}
STEPS = SLICE | RECOVERY


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    err: str


class Preloaded:
    """The process that forks; everything that it runs has the surroundings that it was started with."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self,
        config: Path,
        *commands: Sequence[str],
        steps: Sequence[str | None] = (),
        together: bool = False,
        at: datetime | None = None,
    ) -> list[Ended]:
        """Run each command, one after the other or `together`, each killed at its step if one is named.

        `at` is what their clocks say, else the clock of this machine.
        """
        plan = {
            "commands": [["--config", str(config), *command] for command in commands],
            "steps": [*steps] or [None] * len(commands),
            "together": together,
            "at": at and at.isoformat(),
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(plan) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return [Ended(*ended) for ended in json.loads(line)]


@contextlib.contextmanager
def preloaded(environ: Mapping[str, str]) -> Iterator[Preloaded]:
    """Start such a process; it ends with the block."""
    command = [sys.executable, "-m", "tests.faults.killed_at"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=dict(environ), cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield Preloaded(process)


def forked(project: Project, *commands: Sequence[str], **options: Any) -> list[Ended]:
    """Run commands on a project by a process for these alone."""
    with preloaded(project.environ()) as process:
        return process.run(project.config, *commands, **options)


def _main() -> None:
    for name in ("cli", "gateway", "keys", "review", "mend", "child"):
        importlib.import_module(f"scheduler.{name}")
    for line in sys.stdin:
        plan = json.loads(line)
        with time_machine.travel(datetime.fromisoformat(plan["at"])) if plan["at"] else contextlib.nullcontext():
            print(json.dumps(_run(plan)), flush=True)


def _run(plan: dict[str, Any]) -> list[Ended]:
    pairs = zip(plan["commands"], plan["steps"], strict=True)
    begun = (fork(partial(_program, command, step)) for command, step in pairs)
    return [Ended(wait(pid), printed(told)) for pid, told in ([*begun] if plan["together"] else begun)]


def _program(command: list[str], step: str | None) -> int:
    if step:
        arm((STEPS | OPENED | DELIVERY)[step])
    return int(importlib.import_module("scheduler.cli").main(command))


def fork(run: Callable[[], int]) -> tuple[int, IO[bytes]]:
    """Fork a process that does this; return its number, and the file that takes what it prints."""
    told = tempfile.TemporaryFile()  # noqa: SIM115  # printed() closes it
    pid = os.fork()
    if pid:
        return pid, told
    code = 99
    try:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """Wait for the end of a process; return its exit code, or the signal that ended it as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def printed(told: IO[bytes]) -> str:
    """Return what an ended process has printed."""
    told.seek(0)
    with told:
        return told.read().decode()


if __name__ == "__main__":
    _main()

"""The program in forked processes: each killed by SIGKILL at one step of a slice, or all started at once.

Everything is imported once, so that a process costs little; nothing of the package is opened before the fork.
Run as `python -m tests.faults.killed_at`: reads a plan as JSON on stdin, prints `[exit code, stderr]` of each process.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from typing import IO, NamedTuple

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


def forked(
    project: Project,
    *commands: Sequence[str],
    steps: Sequence[str] = (),
    together: bool = False,
    at: datetime | None = None,
) -> list[Ended]:
    """Run the program with each command, one after the other or `together`, each killed at its step if one is named.

    `at` is what their clocks say, else the clock of this machine.
    """
    plan = {
        "commands": [["--config", str(project.config), *command] for command in commands],
        "steps": list(steps) or [None] * len(commands),
        "together": together,
        "at": at and at.isoformat(),
    }
    driver = subprocess.run(
        [sys.executable, "-m", "tests.faults.killed_at"],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
        env=project.environ(),
    )
    assert driver.returncode == 0, driver.stderr
    return [Ended(*ended) for ended in json.loads(driver.stdout)]


def _main() -> None:
    plan = json.loads(sys.stdin.read())
    for module in ("scheduler.cli", "scheduler.gateway", "scheduler.keys"):
        importlib.import_module(module)
    if plan["at"]:
        time_machine.travel(datetime.fromisoformat(plan["at"])).start()
    pairs = zip(plan["commands"], plan["steps"], strict=True)
    if plan["together"]:
        started = [fork(command, step) for command, step in pairs]
        ended = [wait(*process) for process in started]
    else:
        ended = [wait(*fork(command, step)) for command, step in pairs]
    print(json.dumps(ended))


def fork(command: list[str], step: str | None = None) -> tuple[int, IO[bytes]]:
    """Fork a process that runs the program; return its number, and the file that takes what it prints."""
    told = tempfile.TemporaryFile()  # noqa: SIM115  # wait closes it
    pid = os.fork()
    if pid:
        return pid, told
    code = 99
    try:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
        if step:
            arm((STEPS | OPENED | DELIVERY)[step])
        code = importlib.import_module("scheduler.cli").main(command)
    finally:
        os._exit(code)


def wait(pid: int, told: IO[bytes]) -> Ended:
    """Wait for the end of a forked process."""
    _, status = os.waitpid(pid, 0)
    told.seek(0)
    with told:
        return Ended(os.waitstatus_to_exitcode(status), told.read().decode())


if __name__ == "__main__":
    _main()

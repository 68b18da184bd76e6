"""The program in forked processes: each killed by SIGKILL at one step of a slice, or all started at once.

Everything is imported once, so that a process costs little; nothing of the package is opened before the fork.
Run as `python -m tests.faults.killed_at`: reads a plan as JSON on stdin, prints `[exit code, stderr]` of each process.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any, NamedTuple

import time_machine

from tests.support import ROOT, Project


@dataclass(frozen=True)
class Step:
    """A border of a step: before or after the call number `call` of a function of the package."""

    module: str
    name: str
    call: int = 1
    after: bool = False


_CREATE = ("scheduler.files", "create")
_RENAME = ("pathlib", "Path.rename")
_PUBLISH = ("scheduler.checkpoint", "publish")
_ADMIT = ("scheduler.ledger", "Ledger.admit")
_SETTLE = ("scheduler.ledger", "Ledger.settle")
_STORE = ("scheduler.ledger", "_store")
_ASK = ("scheduler.gateway", "Exchange.__call__")
_TOOL = ("scheduler.calls", "call_tool")

# What a slice has done when it is killed there: nothing that counts, ...
UNCOUNTED = {
    "ledger-file-made": Step("scheduler.database", "create", after=True),
    "ledger-tables-made": Step("scheduler.database", "check_identity"),
    "lock-before": Step("scheduler.checkpoint", "FileLock.acquire"),
    "lock-after": Step("scheduler.checkpoint", "FileLock.acquire", after=True),
    "load-before": Step("scheduler.checkpoint", "Checkpoint.load"),
    "load-after": Step("scheduler.checkpoint", "Checkpoint.load", after=True),
    "request-built": Step("scheduler.attempt", "build_request", after=True),
    "reserve-file-made": Step(*_CREATE, after=True),
    "reserve-after": Step("scheduler.files", "_allocate", after=True),
    "admit-before": Step(*_ADMIT),
    "admit-inside": Step(*_STORE, after=True),
}
# ... counted, not sent, ...
COUNTED = {
    "admit-after": Step(*_ADMIT, after=True),
    "count-file-made": Step(*_CREATE, call=2, after=True),
    "count-file-full": Step(*_RENAME),
    "count-published": Step(*_PUBLISH, after=True),
    "ask-before": Step(*_ASK),
}
# ... sent, and its reply not saved, ...
SENT = {
    "ask-after": Step(*_ASK, after=True),
    "tool-before": Step(*_TOOL),
    "tool-after": Step(*_TOOL, after=True),
    "record-after": Step("scheduler.attempt", "settle", after=True),
    "save-before": Step(*_SETTLE),
    "save-inside": Step(*_STORE, call=2, after=True),
}
# ... or saved.
SAVED = {
    "save-after": Step(*_SETTLE, after=True),
    "reply-file-made": Step(*_CREATE, call=3, after=True),
    "reply-file-full": Step(*_RENAME, call=2),
    "reply-published": Step(*_PUBLISH, call=2, after=True),
    "unlock-before": Step("scheduler.checkpoint", "FileLock.release"),
}
# A run that finds an attempt whose process died before its count was published.
RECOVERY = {
    "put-back-before": Step(*_PUBLISH),
    "put-back-file-made": Step(*_CREATE, after=True),
    "put-back-file-full": Step(*_RENAME),
    "put-back-after": Step(*_PUBLISH, after=True),
    "interrupted-before": Step(*_SETTLE),
    "interrupted-inside": Step(*_STORE, after=True),
    "interrupted-after": Step(*_SETTLE, after=True),
    "interrupted-published": Step(*_PUBLISH, call=2, after=True),
}
# An opening of a series: inside its transaction, and once that is durable.
OPENED = {
    "opening-inside": Step("scheduler.series", "enter", after=True),
    "opening-after": Step("scheduler.series", "_write", after=True),
}
# A decision, and the delivery that follows it.
DELIVERY = {
    "decided-inside": Step(*_STORE, after=True),
    "decided-unpublished": Step(*_PUBLISH),
    "decided-after": Step("scheduler.cli.review", "decide", after=True),
    "claimed-inside": Step("scheduler.delivery", "may_deliver", call=2, after=True),  # the first only tells
    "claimed-after": Step("scheduler.delivery", "_claim", after=True),
    "file-made": Step(*_CREATE, call=2, after=True),
    "delivered": Step("scheduler.delivery", "carry_out", after=True),
    "outcome-inside": Step("scheduler.delivery", "_close", after=True),
    "outcome-after": Step("scheduler.delivery", "_finish", after=True),
}
STEPS = UNCOUNTED | COUNTED | SENT | SAVED | RECOVERY


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
            _arm((STEPS | OPENED | DELIVERY)[step])
        code = importlib.import_module("scheduler.cli").main(command)
    finally:
        os._exit(code)


def wait(pid: int, told: IO[bytes]) -> Ended:
    """Wait for the end of a forked process."""
    _, status = os.waitpid(pid, 0)
    told.seek(0)
    with told:
        return Ended(os.waitstatus_to_exitcode(status), told.read().decode())


def _arm(step: Step) -> None:
    owner: Any = importlib.import_module(step.module)
    *path, name = step.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    real = getattr(owner, name)
    calls = itertools.count(1)

    def killing(*arguments: Any, **options: Any) -> Any:
        here = next(calls) == step.call
        if here and not step.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*arguments, **options)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, killing)


if __name__ == "__main__":
    _main()

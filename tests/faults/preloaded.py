"""One process that has the program loaded, and forks to run a command: a run costs a hundredth of a start.

`python -m tests.faults.preloaded` reads a command and what its clock says as a line of JSON, and answers with how it
ended.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import time_machine

from tests.faults.killed_at import Ended, fork, wait
from tests.support import ROOT


class Preloaded:
    """The process to ask; everything that it runs has the surroundings that it was started with."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, config: Path, *command: str, at: datetime | None = None, step: str | None = None) -> Ended:
        """Run one command to its end, by this machine's clock or another, or until it is killed at a step."""
        asked = {"command": ["--config", str(config), *command], "at": at and at.isoformat(), "step": step}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))


@contextmanager
def preloaded(environ: Mapping[str, str]) -> Iterator[Preloaded]:
    """Start the process; it ends with the block."""
    command = [sys.executable, "-m", "tests.faults.preloaded"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=dict(environ), cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        yield Preloaded(process)


def _main() -> None:
    for module in (
        "scheduler.cli",
        "scheduler.gateway",
        "scheduler.keys",
        "scheduler.review",
        "scheduler.mend",
        "scheduler.child",
    ):
        importlib.import_module(module)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["at"]:
            with time_machine.travel(datetime.fromisoformat(asked["at"])):
                ended = wait(*fork(asked["command"], asked["step"]))
        else:
            ended = wait(*fork(asked["command"], asked["step"]))
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    _main()

"""Programs of the bench that stay alive and take turns, so that what is measured is warm in each."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.places import Peer, Places
from tests.bench.timing import Sample


class Worker:
    """A program that does its work once a turn; `told` is what it said of each turn."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self.pid = process.pid
        self._name = name
        self.told: list[Mapping[str, Any]] = []
        self._hear("ready")

    def __call__(self) -> Sample:
        """Take one turn. Raises RuntimeError where the program ended."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.told.append(json.loads(self._hear("{")))
        return Sample(self.told[-1]["wall"], self.told[-1]["cpu"])

    def _hear(self, begin: str) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(begin):  # a peer may print what it likes
                return line
        said = self._process.stderr.read() if self._process.stderr else ""
        raise RuntimeError(f"{self._name} ended: {said}")


@contextlib.contextmanager
def working(places: Places, peer: Peer, script: str, *arguments: object) -> Iterator[Worker]:
    """Start a program in a peer's environment, and end it. Raises LeftOut, RuntimeError."""
    command: Sequence[str | Path] = [places.python(peer), places.script(script), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    folder = places.folder(script)
    with subprocess.Popen(command, env=places.environ(), cwd=folder, text=True, **pipes) as process:
        try:
            yield Worker(process, script)
        finally:
            process.kill()

"""Where the measured programs live: an environment of its own for each, so that none loads another's packages."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Peer:
    """A project that does something of the kind, and how pip names what is needed of it."""

    name: str
    packages: tuple[str, ...]


RESUMED = Peer("resumed", ())
APSCHEDULER = Peer("APScheduler", ("apscheduler>=3.11.3,<4", "pyyaml>=6.0.1"))
LANGGRAPH = Peer("LangGraph", ("langgraph>=1", "langgraph-checkpoint-sqlite>=3"))
DBOS = Peer("DBOS", ("dbos>=2",))
LLM = Peer("llm", ("llm>=0.27",))


class LeftOut(Exception):
    """A peer could not be installed, or does not run here; the message is the word to be said of it."""


@dataclass(frozen=True)
class Places:
    """A folder for environments, kept between runs, and one for files, new in each run."""

    environments: Path
    work: Path

    def folder(self, name: str) -> Path:
        """Return a new private folder."""
        path = self.work / f"{len(os.listdir(self.work))}-{name}"
        path.mkdir(0o700)
        return path

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment of a measured program: nothing of whoever runs the bench."""
        home = str(self.work)
        return {"PATH": "/usr/bin:/bin", "HOME": home, "XDG_STATE_HOME": home, "CACHE_DIRECTORY": home, **more}

    @functools.cache  # noqa: B019  # one object in a run
    def python(self, peer: Peer) -> Path:
        """Return the interpreter of a peer's environment, made now where there is none. Raises LeftOut."""
        place = self.environments / peer.name.lower()
        python, done = place / "bin" / "python", place / "installed"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        packages = peer.packages or (str(self._copy()),)
        try:
            if peer is RESUMED or not done.exists():
                print(f"installing {peer.name} into {place} ...", file=sys.stderr, flush=True)
                for command in ([sys.executable, "-m", "venv", place], [*pip, *packages]):
                    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
                done.touch()
        except (OSError, subprocess.SubprocessError) as error:
            last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
            raise LeftOut(f"{peer.name} could not be installed: {''.join(last)}") from error
        return python

    def _copy(self) -> Path:
        """Return a copy of this project: pip would leave its work in the checkout, and build the next one of it."""
        copy = self.folder("project")
        shutil.copytree(ROOT / "scheduler", copy / "scheduler", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        return copy

    def script(self, name: str) -> Path:
        """Return the path of a program of the bench."""
        return PROGRAMS / f"{name}.py"

"""In which ledger it is remembered what was said: that of the job's folder, or else the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from scheduler.errors import LedgerBusy, ResumedError
from scheduler.home import state_folder, state_path
from scheduler.ledger import NAME, ledger_of
from scheduler.owed import open_folder
from scheduler.text import storable
from scheduler.told import Memory

FRESH = 1.0  # for how many seconds it is taken as known of whom nothing stands
PATIENCE = 60.0  # for how many seconds a ledger that another process kept locked is not waited for again

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Place:
    """A ledger's memory, and the name that a job has in it; in the user's own it comes with its jobs.yaml."""

    memory: Memory
    subject: str


class Places:
    """Finds the memory of the jobs of one jobs.yaml."""

    def __init__(self, config: Path, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._busy: dict[Path, float] = {}
        self._troubled: dict[Path, tuple[float, frozenset[str]]] = {}

    def ask(self, job: str | None, folder: Path | None, question: Callable[[Place], Answer]) -> Answer | None:
        """Put a question to the first memory that works; None where none does.

        `folder` is that of the job's checkpoint; without one only the user's own memory is asked.
        """
        places: list[Callable[[], Place]] = [lambda: self._own(job)]
        waited = folder is not None and time.monotonic() - self._busy.get(folder, float("-inf")) < PATIENCE
        if folder is not None and job is not None and not waited:
            known, named = folder, job
            places.insert(0, lambda: Place(Memory(open_folder(known)), named))
        for place in places:
            try:
                answer = question(place())
            except LedgerBusy as error:
                self._busy[Path(str(error.path)).parent] = time.monotonic()
                continue
            except ResumedError:
                continue
            self._troubled.clear()
            return answer
        return None

    def troubled(self, job: str | None, folder: Path | None) -> Iterator[Place]:
        """Return each memory in which something stands of a job; none is made for it."""
        if folder is not None and job is not None and job in self._standing(folder):
            yield Place(Memory(ledger_of(folder)), job)
        try:
            home = state_path(self._environ)
        except ResumedError:
            return
        if self._subject(job) in self._standing(home):
            yield Place(Memory(ledger_of(home)), self._subject(job))

    def _own(self, job: str | None) -> Place:
        return Place(Memory(ledger_of(state_folder(self._environ))), self._subject(job))

    def _subject(self, job: str | None) -> str:
        return storable(f"{self._config}" + (f": job {job}" if job else ""))

    def _standing(self, folder: Path) -> frozenset[str]:
        read_at, known = self._troubled.get(folder, (0.0, frozenset()))
        if folder not in self._troubled or time.monotonic() - read_at > FRESH:
            try:
                known = Memory(open_folder(folder)).troubled() if (folder / NAME).exists() else frozenset()
            except (ResumedError, OSError):
                known = frozenset()
            self._troubled[folder] = time.monotonic(), known
        return known

"""Slices of the demo model that are killed at each step, and what is promised of what they leave behind."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from scheduler.columns import read_rows
from scheduler.files import translated
from scheduler.forks import Broken, in_child
from scheduler.ledger import NAME, ledger_rows
from scheduler.offline import MODEL, demo
from scheduler.resume import load_state, resume_once
from scheduler.state import MAX_STEPS, State, is_final
from scheduler.steps import (
    COUNTED,
    ONLY_FIRST,
    ONLY_TOOLS,
    RECOVERY,
    SAVED,
    SENT,
    SLICE,
    UNCOUNTED,
    Step,
    arm,
    asked_by,
)

TASK: Final = "How long does shipping take at the demo shop?"
_ALLOWED: Final = frozenset({"job.json", "job.json.lock", *(NAME + suffix for suffix in ("", "-wal", "-shm"))})


@dataclass(frozen=True)
class Place:
    """A folder with one checkpoint folder in it, and beside that a note of what the model was asked."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """The checkpoint; whoever writes it makes its folder."""
        return self.folder / "checkpoints" / "job.json"

    @property
    def notes(self) -> Path:
        """A line for each time that the model was asked."""
        return self.folder / "asked"

    def copy(self, to: Path) -> Place:
        """Copy it with all that lies in it."""
        copied = Place(to)
        with translated(to):
            to.mkdir(0o700)
            for source in [self.folder, *(entry for entry in self.folder.iterdir() if entry.is_dir())]:
                target = to / source.relative_to(self.folder)
                target.mkdir(0o700, exist_ok=True)
                for entry in [entry for entry in source.iterdir() if entry.is_file()]:
                    shutil.copy2(entry, target / entry.name)
        return copied

    def slice(self, *, fails: bool = False) -> State:
        """Run one slice; where it `fails`, its attempt is spent without a reply."""
        with contextlib.suppress(ConnectionError):
            return resume_once(TASK, self.checkpoint, Asked(self, fails), MODEL)[0]
        return load_state(self.checkpoint, TASK, MODEL)

    def die(self, step: Step) -> None:
        """Run one slice, and die at the step."""
        arm(step)
        self.slice()

    def run_on(self) -> None:
        """Run slices until the job is final, as the ticks that follow would."""
        for _ in range(MAX_STEPS + 2):
            if is_final(self.slice()):
                return
        raise Broken("I9: it does not come to an end by itself")


@dataclass(frozen=True)
class Asked:
    """The demo model, which notes what file and ledger count while it is asked."""

    place: Place
    fails: bool = False

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Note it, then answer."""
        found = look(self.place)
        with open(self.place.notes, "a", encoding="ascii") as notes:
            notes.write(f"{found.file_attempts} {len(found.admissions)}\n")
        if self.fails:
            raise ConnectionError("as it was to be")
        return demo(request)


@dataclass(frozen=True)
class Found:
    """What lies in a place: the file's bytes and the ledger's, the attempts admitted, what was asked, all names."""

    body: bytes | None
    stored: bytes | None
    admissions: list[tuple[int, str | None]]
    asked: list[tuple[int, int]]
    names: set[str]
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def file_attempts(self) -> int:
        """How many attempts the file shows."""
        return int(json.loads(self.body)["attempts"]) if self.body else 0


def look(place: Place) -> Found:
    """Read a place, and judge nothing."""
    path, admissions, stored = place.checkpoint, list[tuple[int, str | None]](), None
    body = path.read_bytes() if path.exists() else None
    with ledger_rows(path.parent) as tx:
        if tx is not None:
            admissions = read_rows(tx, "SELECT attempt, outcome FROM admission ORDER BY attempt", ())
            stored = next((row[0] for row in read_rows(tx, "SELECT body FROM document", ())), None)
    lines = place.notes.read_text("ascii").split("\n")[:-1] if place.notes.exists() else []
    asked = [(int(file), int(ledger)) for file, ledger in (line.split() for line in lines)]
    names = {entry.name for entry in path.parent.iterdir()} if path.parent.exists() else set()
    return Found(body, stored, admissions, asked, names, json.loads(stored) if stored else {})


@dataclass(frozen=True)
class Kind:
    """A slice that is killed: what it is, the attempts before it, and the steps at which it can be."""

    name: str
    before: int
    steps: Mapping[str, Step]
    answers: bool = True

    def counted(self, step: str) -> int:
        """How many attempts are counted once it is killed there."""
        return self.before + (step in SLICE and step not in UNCOUNTED)


def _steps(left_out: frozenset[str] = frozenset()) -> dict[str, Step]:
    return {name: asked_by(step, __name__, "Asked.__call__") for name, step in SLICE.items() if name not in left_out}


KINDS: Final = (
    Kind("in a first slice", 0, _steps(), answers=False),
    Kind("in a slice after a tool call", 1, _steps(ONLY_FIRST | ONLY_TOOLS)),
    Kind("in the last attempt", MAX_STEPS - 1, _steps(ONLY_FIRST | ONLY_TOOLS)),
    Kind("while it recovers", 1, RECOVERY, answers=False),
)


def prepare(kind: Kind, place: Place) -> Place:
    """Bring a job to where the slice begins. Raises Broken where that already fails."""
    place.folder.mkdir(0o700)
    if kind.steps is RECOVERY:
        ended = in_child(lambda: place.die(SLICE["admit-after"]))
        if ended.code == -signal.SIGKILL:
            return place
    else:
        fails = kind.before == MAX_STEPS - 1
        ended = in_child(lambda: [place.slice(fails=fails) for _ in range(kind.before)])
    if ended.code:
        raise Broken(f"it could not begin: {ended.words}")
    return place


def kill(kind: Kind, step: str, place: Place) -> list[str]:
    """Kill the slice at the step, run the job to its end, and return which promises did not hold.

    Raises Broken where it was not killed.
    """
    ended = in_child(lambda: place.die(kind.steps[step]))
    if ended.code != -signal.SIGKILL:
        raise Broken(f"it was not killed: {ended.words or 'the step was not reached'}")
    killed = look(place)
    ended = in_child(place.run_on)
    faults = [*_after_kill(kind, step, killed)]
    if ended.code:
        return [*faults, f"I9: it does not go on by itself: {ended.words}"]
    return [*faults, *_at_end(kind, step, killed, look(place))]


def _after_kill(kind: Kind, step: str, found: Found) -> list[str]:
    attempts, expected = found.document.get("attempts", 0), kind.counted(step)
    promises = {
        f"I11: {len(found.admissions)} attempts are admitted and {attempts} counted, not {expected}": (
            len(found.admissions) == attempts == expected
        ),
        "I2: the file is ahead of the ledger": found.file_attempts <= attempts,
        "I6: an answer that was saved is not there": not _saved(kind, step) or bool(found.document.get("answer")),
    }
    return [fault for fault, kept in promises.items() if not kept]


def _at_end(kind: Kind, step: str, killed: Found, found: Found) -> list[str]:
    document, attempts = found.document, found.document["attempts"]
    spent = kind.before == MAX_STEPS - 1 and step in COUNTED | SENT
    unasked = attempts - len(found.asked)
    history = [(entry["number"], entry["outcome"]) for entry in document["history"]]
    promises = {
        f"I1: {attempts} attempts": attempts <= MAX_STEPS and len(found.asked) <= MAX_STEPS,
        "I2: the model was asked before ledger and file had counted it": all(
            file == ledger and before < ledger for (_, before), (file, ledger) in pairwise([(0, 0), *found.asked])
        ),
        f"I2: {unasked} attempts were counted and not asked": unasked == (step in COUNTED or kind.steps is RECOVERY),
        "I6: an answer that was saved has changed": (
            not _saved(kind, step) or document["answer"] == killed.document.get("answer")
        ),
        "I6: a job that was done was asked again": not _saved(kind, step) or len(found.asked) == len(killed.asked),
        f"I9: it ended as {document['status']}": (document["status"], bool(document["answer"]))
        == (("exhausted", False) if spent else ("done", True)),
        f"I9: it left behind {', '.join(sorted(found.names - _ALLOWED))}": found.names <= _ALLOWED,
        "I11: the history has a gap, or is not that of the ledger": (
            history == found.admissions and [number for number, _ in history] == list(range(1, attempts + 1))
        ),
        "I11: file and ledger differ": found.body == found.stored,
    }
    return [fault for fault, kept in promises.items() if not kept]


def _saved(kind: Kind, step: str) -> bool:
    return kind.answers and step in SAVED

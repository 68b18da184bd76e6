"""Whatever a power loss may leave of a command's files, the next slice goes on from it by itself."""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scheduler import resume_once
from scheduler.checkpoint import hold
from scheduler.errors import ResumedError
from scheduler.reader import peek
from tests.faults.cases import Begin, needs, sized
from tests.faults.crash_disk import Content, Left, Op, start, without
from tests.faults.crash_recorded import LEDGER, TRACED, Rows, told, traced_ops
from tests.faults.crash_scenarios import SCENARIOS, Recording, Scenario, close_ledgers, prepare, record
from tests.faults.in_memory import in_memory
from tests.faults.strace import traced
from tests.support import PROGRAM, ChatServer, Command, Project

NAME = "legal crash states"
BLOCKS = sized(1, 8, 9)  # in how many parts a write may be torn
TRACED_NAMES = ["first slice", "repair", *sized(0, 1, 1) * ("tool call", "put back", "renew", "reject")]
EVERY = sized(4, 1, 1)  # in a small run each fourth case stands for its neighbours
LEAST = sized(250, 100_000, 250_000)
PUBLISHED = r"commit\ncreate (\S+)\nwrite \1\nfsync \1\nrename \1 nightly.json\n?"
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder whose disk costs nothing, for its durability is simulated."""
    with in_memory() as folder:
        yield folder


class Case(NamedTuple):
    """A state and what came before it: how many requests had left, and whether the command had returned."""

    left: Left
    sent: int
    told: bool


def cases_of(ops: Sequence[Op], recording: Recording, blocks: int) -> Iterator[Case]:
    """Yield each case once; those with one ledger follow each other."""
    disk = start(LEDGER, 0 if LEDGER in recording.files else None, recording.files)
    seen: set[Case] = set()
    sent, said = recording.requests, False
    for op in [Op("begin"), *ops]:
        disk.do(op)
        sent, said = sent + (op.kind == "send"), said or op.kind == "told"
        for left in disk.states(blocks):
            case = Case(left, sent, said)
            if case not in seen:
                seen.add(case)
                yield case


@dataclass
class Machine:
    """A machine that starts again on what was left: real files, a real ledger, the program's own way of loading."""

    folder: Path
    recording: Recording
    _installed: int | None = -1
    _ends: dict[object, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder / self.recording.recorder.key

    def rows(self, commit: int | None) -> Rows:
        return Rows(b"") if commit is None else self.recording.recorder.ledgers[commit]

    def fault(self, case: Case) -> str:
        """Return what is wrong with a state or with what the program makes of it; nothing where all is well."""
        left = case.left
        rows, files = self.rows(left.commit), dict(left.files)
        found = files.get(self.path.name)
        if wrong := self._behind(case, rows, found):
            return wrong
        known = found is None or hashlib.sha256(whole(found)).hexdigest() in rows.digests
        as_before = self.recording.scenario.blocked and not case.told and found == self._first
        if not known and as_before:
            return ""
        if not known:
            return "the file is ahead of the ledger, or torn"
        self._install(left, files)
        if wrong := self._load(rows):
            return wrong
        leftovers = any(entry.name.endswith(".tmp") for entry in self.folder.iterdir())
        place = (left.commit, found, leftovers, case.sent)  # once loaded, no more of a state can be seen
        if place not in self._ends:
            self._ends[place] = self._go_on(case, rows)
            self._installed = -1
        return self._ends[place]

    @property
    def _first(self) -> Content | None:
        data = self.recording.files.get(self.path.name)
        return None if data is None else Content(data, len(data))

    def _behind(self, case: Case, rows: Rows, found: Content | None) -> str:
        """Compare what was sent and said before with the ledger, which was durable by then."""
        first_allowance = rows.allowance == 1
        if first_allowance and rows.admitted < case.sent:
            return f"{case.sent} requests were sent, and the ledger has admitted {rows.admitted}"
        if rows.document["attempts"] < rows.admitted:
            return "the document counts less than the ledger has admitted"
        newest = self.recording.recorder.ledgers[-1]
        if case.told and rows.body != newest.body:
            return "what the command said it did is lost"
        return ""

    def _install(self, left: Left, files: dict[str, Content]) -> None:
        if left.commit != self._installed or left.commit is None:
            self.clear()
            # Without a commit it is missing or empty; what an empty one allows, a missing one does too.
            (self.folder / LEDGER).touch(0o600)
            (self.folder / LEDGER).write_bytes(self.rows(left.commit).image)
            self._installed = left.commit
        for entry in self.folder.iterdir():
            if not entry.name.startswith(LEDGER):
                entry.unlink()
        for name, content in files.items():
            with open(self.folder / name, "wb") as file:
                file.write(content.data)
                file.truncate(content.size)

    def clear(self) -> None:
        """Switch the machine off and empty its folder."""
        close_ledgers()
        for entry in self.folder.iterdir():
            entry.unlink()

    def _load(self, rows: Rows) -> str:
        try:
            peek(self.path)  # a tick looks before it takes the lock
            with hold(self.path) as held:
                state = held.load(lambda _: None)
        except ResumedError as error:
            return f"blocked: {type(error).__name__}"
        if (state and dict(state)) != (rows.document if rows.body else None):
            return "another document than the ledger's was loaded"
        if (self.path.read_bytes() if self.path.exists() else None) != rows.body:
            return "the file was not put right"
        return ""

    def _go_on(self, case: Case, rows: Rows) -> str:
        """Run slices until the document is final; each reply is cut, so that it takes all that it may."""
        asked = itertools.count()
        before = rows.document

        def ask(_: object) -> dict[str, Any]:
            next(asked)
            return {"message": {"role": "assistant", "content": "more "}, "finish_reason": "length"}

        state: Any = before
        task = before.get("task", "Summarise the log")
        try:
            for _ in range(6):
                state, _events = resume_once(task, self.path, ask, "m1")
                if state["status"] != "ready":
                    break
        except ResumedError as error:
            return f"does not go on: {type(error).__name__}"
        requests = next(asked)
        if before["status"] == "done" and (requests or state["answer"] != before["answer"]):
            return "an answer was lost"
        if before["status"] == "ready" and (state["status"], state["attempts"]) != ("exhausted", 4):
            return f"ends as {state['status']} at {state['attempts']} of 4"
        if requests + (case.sent if rows.allowance == 1 else 0) > 4:
            return "more than four requests"
        return ""


def whole(content: Content) -> bytes:
    """Return the bytes of a file with the zeros at its end."""
    return content.data.ljust(content.size, b"\0")


def faults(
    recording: Recording, folder: Path, ops: Sequence[Op], blocks: int, every: int = 1
) -> tuple[int, Counter[str]]:
    """Try the cases; return how many there were, and each fault with how many show it."""
    folder.mkdir(0o700)
    machine = Machine(folder, recording)
    number, found = 0, Counter[str]()
    for case in itertools.islice(cases_of(ops, recording, blocks), 0, None, every):
        number += 1
        if wrong := machine.fault(case):
            found[wrong] += 1
    machine.clear()
    folder.rmdir()
    return number, found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_the_next_slice_goes_on(
    scenario: Scenario, project: Project, chat: ChatServer, command: Command, memory: Path, harness: Begin
) -> None:
    prepare(scenario, project, chat, command)
    recording = record(scenario, project, chat, command)
    with harness(NAME, LEAST * scenario.share // 100) as tried:
        number, found = faults(recording, memory / "states", recording.recorder.ops, BLOCKS, EVERY)
        tried(scenario.name, number)
        assert not found, found


@pytest.mark.parametrize(
    ("broken", "name", "left_out"),
    [
        ("a file is not synced before its rename", "resume", "fsync"),
        ("the folder of a new ledger is not synced", "first slice", "sync folder"),
        ("the folder of a file set aside is not synced", "repair", "sync folder"),
    ],
)
def test_a_sync_that_is_left_out_is_found(
    broken: str,
    name: str,
    left_out: str,
    project: Project,
    chat: ChatServer,
    command: Command,
    memory: Path,
    harness: Begin,
) -> None:
    scenario = BY_NAME[name]
    prepare(scenario, project, chat, command)
    recording = record(scenario, project, chat, command)
    with harness(NAME) as tried:
        _, found = faults(recording, memory / "control", without(recording.recorder.ops, left_out), 1)
        tried.control(broken, found.total())


@pytest.mark.parametrize("name", TRACED_NAMES)
def test_a_trace_shows_the_order_that_is_assumed(
    name: str, project: Project, chat: ChatServer, command: Command, tmp_path: Path
) -> None:
    needs("strace")
    scenario, other = BY_NAME[name], Project(tmp_path / "other")
    prepare(scenario, project, chat, command)
    shutil.copytree(project.folder, other.folder)
    program = [*PROGRAM, "--config", str(other.config), *scenario.command]
    trace = traced(program, TRACED, environ=other.environ())
    assert trace.code == 0, trace.err
    found = traced_ops(trace.calls, other.path().parent.resolve())
    assumed = told(record(scenario, project, chat, command).recorder.ops)
    assert [line for line in found if line != "connect"] == assumed
    if "send" in found:  # the count is safe and to be seen before the first byte; the reply is saved before it is shown
        before, _, after = "\n".join(found).partition("\nconnect\nsend\n")
        assert re.search(PUBLISHED + "$", before), found
        assert re.match(PUBLISHED, after), found

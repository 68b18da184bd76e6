"""A walk over the real parts, with the model beside them: its slices and deaths, and what must be true after each."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from hypothesis.stateful import RuleBasedStateMachine, invariant

from scheduler.cli.output import exit_code, result_code
from scheduler.errors import ResumedError
from scheduler.owed import Result
from scheduler.resume import load_state, resume_once, step
from scheduler.steps import COUNTED, SAVED, SENT, UNCOUNTED
from scheduler.tick import tick
from tests.faults.machine import JOB, PROGRESS, START, STEPS, Dead, Far, Real, World, dying
from tests.faults.machine_model import Calendar, Sheet, Wish

EACH = Wish("Weigh {opening}", most=2)
TASKS = ("Summarise the log", "Count the lines")
WHY = {
    "JobDisabled": "disabled",
    "CheckpointMoved": "moved",
    "CheckpointUnknown": "unknown",
    "TaskChanged": "edited",
    "ModelChanged": "edited",
    "MaintenanceRefused": "refused",
    "CheckpointBusy": "busy",
    "PointTaken": "taken",
    "ReplyOrphaned": "orphaned",
    "SeriesEnded": "ended",
}
CODES = {"": 0, "done": 0, "exhausted": 0, "spent": 69, "orphaned": 69, "busy": 75, "taken": 75}  # others block: 65
FINAL = ("done", "exhausted")
Said = tuple[Sheet, bool] | Literal["flip", "flip of ours"] | None  # what a file says, and whether in our form


def quiet(*_: object) -> None:
    pass


def refusal_of(action: Callable[[], object]) -> str:
    """Do something; return the word for what refuses it, and check its exit code."""
    refusal = None
    try:
        action()
    except ResumedError as error:
        refusal = error
    return word_of(refusal) if refusal else ""


def word_of(refusal: ResumedError) -> str:
    word = WHY[type(refusal).__name__]
    assert exit_code(refusal) == CODES.get(word, 65)
    assert "\n" not in str(refusal)
    return word


def judged(result: Result) -> str:
    """Return the word for what came of a job, and check the exit code that it makes."""
    code = result_code(result, named=True)
    if result.refusal:
        return word_of(result.refusal)
    word = "spent" if code else "" if result.ran else result.final
    assert code == (0 if word == "disabled" else CODES[word])
    return word


class Walk(RuleBasedStateMachine):
    """One run: the real parts, and the model beside them."""

    took: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.steps = -1  # the promises are looked at once before the first
        self.now = START
        self.wish, self.name = Wish(TASKS[0]), "a.json"
        self.sheets: dict[str, Sheet] = {}
        self.orphans: Counter[str] = Counter()
        self.calendars: dict[str, Calendar] = {}
        self.home, self.used = "", set[str]()
        self.openings: list[tuple[int, str]] = []
        self.published: dict[str, set[bytes]] = {}
        self.marks: dict[str, Any] = {}  # of the unknown files
        self.files: dict[str, Said] = {}
        self.answers: set[str] = set()
        self.before: dict[str, tuple[int, int, list[Any], list[Any]]] = {}  # allowance, archived, history, turns

    def teardown(self) -> None:
        self.took["runs"] += 1
        self.took["steps"] += self.steps
        self.world.close()

    # ---- what the rules are made of

    @property
    def sheet(self) -> Sheet:
        return self.sheets.setdefault(self.name, Sheet())

    @property
    def path(self) -> Path:
        return self.world.folder / self.name

    @property
    def moved(self) -> bool:
        return self.home != self.name and self.home in self.used

    def bind(self) -> None:
        """A person has said that the job begins here and now."""
        self.home = self.name
        self.calendars[JOB] = Calendar((self.wish.period, self.wish.enabled), self.now)

    def sight(self) -> int:
        """The job is seen at its path; return its newest point."""
        self.home = self.home if self.moved else self.name
        calendar = self.calendars.setdefault(JOB, Calendar())
        return calendar.point(self.wish.period, self.now, (self.wish.period, self.wish.enabled))

    def ticked(self, name: str = JOB, *, by_hand: bool = False) -> list[Result]:
        return list(tick(self.world.job_file(self.wish, self.name, EACH), {}, quiet, names=[name], by_hand=by_hand))

    def asks(self, sheet: Sheet, wish: Wish, point: int | None, number: int = 0) -> str:
        """The model of a slice that nothing is in the way of; return the word for it."""
        reply = self.world.reply
        sheet.count(wish, point)
        sheet.save(wish, f"answer {number or self.world.sent}" if reply == "answer" else None)
        return "" if sheet.status == "done" or (sheet.status == "ready" and reply in PROGRESS) else "spent"

    def shown(self, name: str) -> None:
        assert self.world.read(name) == self.world.real()[name].body, f"{name} does not show what is counted"

    def slice(self, *, by_hand: bool) -> str:
        """One slice by `tick` or `run`; return why nothing was sent."""
        point, sheet, sent = self.sight(), self.sheet, self.world.sent
        stops = sheet.stops(self.wish, moved=self.moved)
        due = by_hand or point not in sheet.points
        [result] = self.ticked(by_hand=by_hand)
        word = judged(result)
        if stops or not due:
            # A tick looks no further once it knows that nothing is due.
            looked = stops in ("disabled", "moved", *FINAL) or (due and sheet.status == "ready")
            unlooked = () if looked else (sheet.status,) if sheet.status in FINAL else ("",)
            allowed = (stops or "", *(() if by_hand else unlooked))
            assert word in allowed, f"{word!r}, and {allowed} is promised"
            assert self.world.sent == sent
            return stops or "not due"
        assert word == self.asks(sheet, self.wish, None if by_hand else point)
        assert self.world.sent == sent + 1
        self.used.add(self.name)
        self.shown(self.name)
        return ""

    # ---- slices

    def tick(self, reply: str) -> None:
        self.world.reply = reply
        self.took[f"tick: {self.slice(by_hand=False) or 'asked'}"] += 1

    def run(self, reply: str) -> None:
        self.world.reply = reply
        self.took[f"run: {self.slice(by_hand=True) or 'asked'}"] += 1

    def call(self, reply: str, whole: bool) -> None:
        """The same by the functions of the package, which know of no jobs.yaml."""
        self.world.reply = reply
        sheet, wish, sent = self.sheet, replace(self.wish, enabled=True), self.world.sent
        edited = not sheet.unknown and sheet.edited(wish)
        stops = "edited" if edited else sheet.stops(wish, moved=False)

        def act() -> None:
            options: dict[str, Any] = {"tools": (), "max_attempts": wish.most}
            with contextlib.suppress(RuntimeError, TimeoutError):
                if whole:
                    resume_once(wish.task, self.path, Far(), wish.model, **options)
                else:
                    step(load_state(self.path, wish.task, wish.model), self.path, Far(), quiet, **options)

        assert refusal_of(act) == ("" if stops in FINAL else stops)
        assert self.world.sent == sent + (not stops)
        if not stops:
            self.asks(sheet, wish, None)
            self.shown(self.name)
        self.took[f"call: {stops or 'asked'}"] += 1

    def crash(self, at: str, reply: str, by_hand: bool) -> None:
        """A slice whose process dies. How far it came is read off the rows; what may follow from that is not."""
        self.world.reply = reply
        point, sheet, sent = self.sight(), self.sheet, self.world.sent
        old, real = copy.deepcopy(sheet), self.world.real().get(self.name)
        rows = len(real.admissions) if real else 0
        plain = not old.open and self.world.read(self.name) == (real.body if real else None)
        stops = sheet.stops(self.wish, moved=self.moved)
        goes = not stops and (by_hand or point not in sheet.points)
        died, start = False, f"gone {len(self.world.gone)}"
        try:
            with dying(STEPS[at], start):
                self.ticked(by_hand=by_hand)
        except Dead:
            died = True
        self.world.gone.append(start)
        real = self.world.real().get(self.name)
        counted = real is not None and len(real.admissions) > rows
        saved = counted and real is not None and real.admissions[-1][2] is not None
        asked = self.world.sent - sent
        assert counted >= asked >= saved, "sent before it was counted, or saved without having been sent"
        assert goes >= counted, "counted although nothing may go"
        assert died or counted == goes, "nothing died, and nothing was counted"
        if counted:
            self.used.add(self.name)
            sheet.count(self.wish, None if by_hand else point)
        if saved:
            sheet.save(self.wish, f"answer {self.world.sent}" if reply == "answer" else None)
        elif died and not counted and real and (real.open(), real.document["status"]) == (old.open, old.status):
            self.sheets[self.name] = old  # it came to nothing at all
        if died and goes and plain and at in UNCOUNTED | COUNTED | SENT | SAVED:
            wanted = at not in UNCOUNTED, at in SENT | SAVED, at in SAVED
            assert (counted, bool(asked), saved) == wanted, f"{at}: {(counted, asked, saved)}"
        if died and not self.world.rows(f"SELECT 1 FROM job WHERE job = '{JOB}'"):
            self.home = ""  # it was not seen
            self.calendars.clear()
        self.took[f"crash: {'saved' if saved else 'sent' if asked else 'counted' if counted else 'uncounted'}"] += died

    # ---- what must be true after each step

    @invariant()
    def promises(self) -> None:
        self.steps += 1
        assert not self.world.faults, self.world.faults
        assert all(self.world.notes), "a second one was let in"
        real = self.world.real()
        assert set(real) == {key for key, sheet in self.sheets.items() if sheet.allowance}
        for key, sheet in self.sheets.items():
            present = self.world.read(key)
            if sheet.unknown:
                assert self.world.mark(key) == self.marks[key], "I3: an unknown file was touched"
            elif present is not None and (key not in real or present != real[key].body):
                assert self.world.knows(key, present), "a file that was never committed"
            if present is not None and not sheet.unknown:
                self.published.setdefault(key, set()).add(present)
            if key in real:
                self.holds(key, sheet, real[key])
        assert all(map(self.world.keeps, self.answers)), "I6: an answer is gone"

    def holds(self, key: str, sheet: Sheet, real: Real) -> None:
        document, rows = real.document, [row for row in real.admissions if row[0] == real.allowance]
        found = {
            "allowance": real.allowance,
            "attempts": document["attempts"],
            "status": document["status"],
            "answer": document["answer"],
            "open": bool(document["history"]) and document["history"][-1]["outcome"] is None,
            "archived": real.archived,
        }
        assert found == {name: getattr(sheet, name) for name in found}
        assert real.orphans == self.orphans[key]
        numbers = [number for _, number, _ in rows]
        assert len(numbers) == len(set(numbers)) <= 4, "I1"
        assert set(numbers) <= set(range(1, document["attempts"] + 1)), "I1: admitted, and not in the document"
        assert self.world.requests[key, real.allowance] <= len(rows), "I1: more requests than were admitted"
        allowance, archived, history, turns = self.before.get(key, (0, 0, [], []))
        now = [(entry["number"], entry["started"], entry["outcome"]) for entry in document["history"]]
        if allowance == real.allowance:
            assert now[: len(history)] == history, "I11: the history has changed"
            begun = real.archived != archived  # a person has set the old conversation aside
            assert begun or document["conversation"][: len(turns)] == turns, "I11: the conversation has changed"
        ended = [entry for entry in now if entry[2]]
        self.before[key] = real.allowance, real.archived, ended, document["conversation"]
        if document["answer"] is not None:
            self.answers.add(document["answer"])

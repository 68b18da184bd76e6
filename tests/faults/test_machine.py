"""A random walk over the real parts, held against a model of what is promised; after each step the promises are read
off files, rows and the far side."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
import time_machine
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from hypothesis.strategies import SearchStrategy

from scheduler import gateway, mend
from scheduler.attempt import Order, accept, run_slice
from scheduler.checkpoint import Checkpoint
from scheduler.cli.output import exit_code, first_code, result_code
from scheduler.decision import answer_digest
from scheduler.document import parse
from scheduler.due import plan_job
from scheduler.errors import ResumedError
from scheduler.openings import opening_job
from scheduler.owed import Result, Turn, select
from scheduler.resume import load_state, resume_once, step
from scheduler.review import Decision, decide
from scheduler.tick import take_turn, tick
from tests.faults.cases import Begin, sized
from tests.faults.killed_at import COUNTED, SAVED, SENT, UNCOUNTED
from tests.faults.machine import (
    HOUR,
    JOB,
    PROGRESS,
    REPLIES,
    SERIES,
    STEPS,
    TIMES,
    Dead,
    Far,
    Real,
    World,
    dying,
    entry,
)
from tests.faults.machine_model import Calendar, Sheet, Wish

START = 1_772_323_200  # 2026-03-01
STEPS_A_RUN = 50
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
RACES = ("second", "second without lock", "takeover", "interleaved", "one point")
KINDS = ("flip", "junk", "foreign", "six fields", "document", "delete", "delete", "delete", "older", "older", "lock")
replies = st.sampled_from(REPLIES)
# How often each move is tried, and with what.
MOVES: dict[str, tuple[int, tuple[SearchStrategy[Any], ...]]] = {
    "tick": (6, (replies,)),
    "run": (5, (replies,)),
    "call": (3, (replies, st.booleans())),
    "crash": (8, (st.sampled_from(sorted(STEPS)), replies, st.booleans())),
    "race": (5, (st.sampled_from(RACES), replies)),
    "series": (3, (replies,)),
    "step_clock": (5, (st.sampled_from([300, 300, 900, 3600, 86_400, -300, -3600, -86_400]),)),
    "edit": (3, (st.sampled_from(["task", "task", "model", "path", "most", "enabled", "period"]),)),
    "tamper": (
        5,
        (st.sampled_from(KINDS), st.integers(0, 4), st.sampled_from(["ready", *FINAL]), st.integers(0, 9999)),
    ),
    "review": (3, (st.booleans(), st.sampled_from(["right", "right", "right", "another"]))),
    "revise": (2, ()),
    "renew": (5, ()),
    "renew_opening": (1, ()),
    "repair": (3, ()),
    "adopt": (3, ()),
}
moves = st.sampled_from([name for name, (weight, _) in MOVES.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), *MOVES[name][1])
)


def quiet(*_: object) -> None:
    pass


def refusal_of(action: Callable[[], object]) -> str:
    """Do something; return the word for what refuses it, and check its exit code."""
    try:
        action()
    except ResumedError as error:
        word = WHY[type(error).__name__]
        assert (exit_code(error), "\n" in str(error)) == (CODES.get(word, 65), False)
        return word
    return ""


def judged(result: Result) -> str:
    """Return the word for what came of a job, and check the exit code that it makes."""
    code = result_code(result, named=True)
    if result.refusal:
        word = WHY[type(result.refusal).__name__]
    else:
        word = "spent" if code else "" if result.ran else result.final
    assert code == (0 if word == "disabled" and not result.refusal else CODES.get(word, 65))
    return word


class Walk(RuleBasedStateMachine):
    """One run: the real parts, and the model beside them."""

    took: Counter[str] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.steps = -1  # the promises are looked at once before the first
        self.now = START
        CLOCK.move_to(self.now)
        self.wish, self.name = Wish(TASKS[0]), "a.json"
        self.sheets: dict[str, Sheet] = {}
        self.orphans: Counter[str] = Counter()
        self.calendars: dict[str, Calendar] = {}
        self.home, self.used = "", set[str]()
        self.openings: list[tuple[int, str]] = []
        self.published: dict[str, set[bytes]] = {}
        self.marks: dict[str, Any] = {}  # of the unknown files
        self.files: dict[str, tuple[Sheet, bool] | Literal["flip"] | None] = {}  # what they say; whether in our form
        self.answers: set[str] = set()
        self.before: dict[str, tuple[int, list[Any]]] = {}

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

    @rule(move=moves)
    def move(self, move: tuple[Any, ...]) -> None:
        """One of all moves: as rules of their own, hypothesis would leave most of them out of most runs."""
        name, *arguments = move
        getattr(self, name)(*arguments)

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

    # ---- what people and others do to jobs.yaml, files and clock

    def edit(self, what: str) -> None:
        wish, name = self.wish, self.name
        match what:
            case "task":
                self.wish = replace(wish, task=TASKS[wish.task == TASKS[0]])
            case "model":
                self.wish = replace(wish, model="m2" if wish.model == "m1" else "m1")
            case "path":
                self.name = "b.json" if name == "a.json" else "a.json"
            case "most":
                self.wish = replace(wish, most=wish.most % 4 + 1 if wish.most != 4 else 2)
            case "enabled":
                self.wish = replace(wish, enabled=not wish.enabled)
            case "period":
                self.wish = replace(wish, period=900 if wish.period == 300 else 300)
        self.took[f"edit: {what}"] += 1

    def step_clock(self, seconds: int) -> None:
        self.now += seconds
        CLOCK.move_to(self.now)
        self.took[f"clock: {'forward' if seconds > 0 else 'backward'}"] += 1

    def tamper(self, kind: str, attempts: int, status: str, at: int) -> None:
        present, path, file = self.world.read(self.name), self.path, None
        sheet = Sheet(self.wish, attempts=attempts, status=status if attempts else "ready")
        sheet.answer = f"told {at}" if sheet.status == "done" else None
        match kind:
            case "lock":
                lock = path.with_name(path.name + ".lock")
                self.took["tamper: lock"] += lock.exists()
                lock.unlink(missing_ok=True)
                return
            case "delete":
                body = None
            case "flip" if present:
                at %= len(present)
                body = present[:at] + bytes([present[at] ^ (1 << at % 8)]) + present[at + 1 :]
            case "older" if self.published.get(self.name):
                versions = sorted(self.published[self.name])
                body = versions[at % len(versions)]
            case "foreign" if others := [key for key in self.world.real() if key != self.name]:
                other = self.sheets[others[at % len(others)]]
                body, file = self.world.real()[others[at % len(others)]].body, (other, True)
            case "six fields" | "document":
                body, file = entry(sheet, ours=kind == "document"), (sheet, kind == "document")
                if kind == "six fields" and status == "exhausted":
                    sheet.status = "ready"  # such a worker ends at four, and there this one does too
            case "junk":
                body = (b"", b"{}", b"[" * 99_000, b"null", bytes(8))[at % 5]
            case _:
                return
        if body is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(body)
        self.sheet.unknown = body is not None and not self.world.knows(self.name, body)
        self.files[self.name] = "flip" if kind == "flip" else copy.deepcopy(file)
        if self.sheet.unknown:
            self.marks[self.name] = self.world.mark(self.name)
        self.took[f"tamper: {kind}"] += body != present

    # ---- the ways out that a person takes

    def review(self, approved: bool, digest: str) -> None:
        sheet = self.sheet
        found = answer_digest(sheet.answer or "") if digest == "right" else "0" * 12
        decision = Decision(approved=approved, digest=found, note="too long", who="ann")
        plan = plan_job(self.world.job(self.wish, self.name), True)
        word = refusal_of(lambda: decide(plan, decision, quiet))
        stops = "unknown" if sheet.unknown else "refused" if sheet.answer is None or digest != "right" else ""
        assert word == stops
        if not stops and not approved and sheet.attempts < self.wish.most:
            sheet.status, sheet.answer, sheet.archived = "ready", None, sheet.archived + 1
            self.bind()
        self.took[f"review: {stops or ('approved' if approved else 'rejected, ' + sheet.status)}"] += 1

    def revise(self) -> None:
        sheet = self.sheet
        stops = "unknown" if sheet.unknown else "refused" if not sheet.attempts else ""
        if not stops:
            sheet.take(self.wish)
            stops = "refused" if sheet.status in FINAL else ""
        plan = plan_job(self.world.job(self.wish, self.name), True)
        assert refusal_of(lambda: mend.revise(plan, self.wish.model, "unclear")) == stops
        if not stops:
            sheet.begin(self.wish, renew=False)
            self.shown(self.name)
        self.took[f"revise: {stops or 'done'}"] += 1

    def renew_opening(self) -> None:
        if self.openings:
            self.renew(opening=True)

    def renew(self, *, opening: bool = False) -> None:
        job, wish, name = self.world.job(self.wish, self.name), self.wish, self.name
        if opening:
            _, name = self.openings[-1]
            job, wish = opening_job(self.world.pattern(EACH), name[2:-5]), self.each(name)
        sheet = self.sheets.setdefault(name, Sheet())
        stops = "unknown" if sheet.unknown else ""
        assert refusal_of(lambda: mend.renew(plan_job(job, True), wish.model, "again", keep=False)) == stops
        if not stops:
            sheet.begin(wish, renew=True)
            self.shown(name)
            if opening:
                self.calendars[name] = Calendar(name, self.now)
            else:
                self.bind()
        self.took[f"renew: {stops or ('an opening' if opening else 'the job')}"] += 1

    def repair(self) -> None:
        sheet, file = self.sheet, self.files.get(self.name)
        more = isinstance(file, tuple) and file[1] and file[0].attempts > sheet.attempts
        stops = "refused" if not sheet.allowance or (sheet.unknown and more) else ""
        plan = plan_job(self.world.job(self.wish, self.name), True)
        assert refusal_of(lambda: mend.repair(plan)) == stops
        if not stops:
            self.took["repair: set aside"] += sheet.unknown
            sheet.unknown = False
        self.took["repair: refused"] += bool(stops)

    def adopt(self) -> None:
        sheet, file, present = self.sheet, self.files.get(self.name), self.world.read(self.name)
        if file == "flip" and sheet.unknown:
            return  # whether a flip leaves a valid document is for other tests
        stops = "" if sheet.unknown and file else "refused" if sheet.unknown or present is None else ""
        plan = plan_job(self.world.job(self.wish, self.name), True)
        assert refusal_of(lambda: mend.adopt(plan)) == stops
        if sheet.unknown and isinstance(file, tuple):
            sheet.adopt(file[0], self.wish)
            self.before.pop(self.name, None)  # its history is another one
            self.shown(self.name)
            self.took["adopt: taken over"] += 1
        self.took["adopt: refused"] += bool(stops)

    # ---- two at once

    def race(self, kind: str, reply: str) -> None:
        self.world.reply = reply
        sheet, sent = self.sheet, self.world.sent
        ready = not sheet.open and not copy.deepcopy(sheet).stops(self.wish, moved=self.moved)
        point = self.sight()
        if not ready or self.moved or (kind == "one point" and point in sheet.points):
            return
        self.took[f"race: {kind}"] += 1
        if kind == "interleaved":
            order = Order(task=self.wish.task, model=self.wish.model, tools=(), max_attempts=self.wish.most)
            one, other = Checkpoint(self.path), Checkpoint(self.path)
            states = [accept(held.load(quiet), order) for held in (one, other)]
            with contextlib.suppress(RuntimeError, TimeoutError):
                run_slice(one, states[0], order, Far(), quiet)
            one.leave()
            self.asks(sheet, self.wish, None)
            assert refusal_of(lambda: run_slice(other, states[1], order, Far(), quiet)) == "busy"
            other.leave()
        elif kind == "one point":
            job_file = self.world.job_file(self.wish, self.name, EACH)
            [turn] = select(job_file.jobs.values(), True, self.now, quiet)
            assert isinstance(turn, Turn)
            assert turn.due
            words = [judged(take_turn(turn, job_file, {}, quiet)) for _ in range(2)]
            first = self.asks(sheet, self.wish, point)
            assert words == [first, sheet.status if sheet.status in FINAL else "taken"]
            self.used.add(self.name)
        else:
            self.world.during = self.takeover if kind == "takeover" else lambda: self.second("without" in kind)
            [result] = self.ticked(by_hand=True)
            self.world.during = None
            self.used.add(self.name)
            if kind == "takeover":
                sheet.count(self.wish, None)
                sheet.take(self.wish)
                self.orphans[self.name] += 1
            assert judged(result) == ("orphaned" if kind == "takeover" else self.asks(sheet, self.wish, None))
        assert self.world.sent == sent + 1
        self.shown(self.name)

    def second(self, without_lock: bool) -> None:
        """Another one comes while a request is out; the lock file may be gone."""
        if without_lock:
            self.path.with_name(self.name + ".lock").unlink()
        self.world.notes.append(judged(self.ticked(by_hand=True)[0]) == "busy")

    def takeover(self) -> None:
        """Another one takes the attempt that is out for dead, and ends it."""
        other = Checkpoint(self.path)
        other.record = other.ledger.read(self.name)
        assert other.record
        other.version = other.record.version
        other.recover(parse(other.record.body), self.wish.most, self.now, quiet)

    # ---- a series

    def each(self, name: str) -> Wish:
        return replace(EACH, task=f"Weigh {name[2:-5]}")

    def series(self, reply: str) -> None:
        self.world.reply = reply
        calendar = self.calendars.setdefault(SERIES, Calendar())
        point, openings, sent = calendar.point(HOUR, self.now, "opens"), self.openings, self.world.sent
        if len(openings) < TIMES and not point <= calendar.passed <= self.now:
            answered = not openings or self.sheets[openings[-1][1]].status == "done"
            if answered and point not in [at for at, _ in openings]:
                name = datetime.fromtimestamp(point, UTC).strftime("w-%Y-%m-%dT%H%MZ.json")
                openings.append((point, name))
                self.sheets[name], self.calendars[name] = Sheet(), Calendar(name, self.now)
                self.took["series: opened"] += 1
            calendar.passed = point if openings else calendar.passed
        words = ["ended"] if openings and self.sheets[openings[-1][1]].status == "exhausted" else []
        number = sent
        for _, name in openings:
            sheet, wish = self.sheets[name], self.each(name)
            at = self.calendars[name].point(wish.period, self.now, name)
            if not sheet.stops(wish, moved=False) and at not in sheet.points:
                number += 1
                words.append(self.asks(sheet, wish, at, number))
        found = [result_code(result, named=True) for result in self.ticked(SERIES)]
        assert first_code(found) == first_code([CODES.get(word, 65) for word in words])
        assert self.world.sent == number
        self.took["series: asked"] += number - sent
        self.took["series: ended"] += "ended" in words

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
        allowance, history = self.before.get(key, (0, []))
        now = [(entry["number"], entry["started"], entry["outcome"]) for entry in document["history"]]
        if allowance == real.allowance:
            assert now[: len(history)] == history, "I11: the history has changed"
        self.before[key] = real.allowance, [entry for entry in now if entry[2]]
        if document["answer"] is not None:
            self.answers.add(document["answer"])


# ---- the runs


def walk(runs: int, start: int) -> Counter[str]:
    """Walk so many times, always the same for one start; return what took effect."""

    class Walks(Walk):
        took: Counter[str] = Counter()

    seed(start)(Walks)
    run_state_machine_as_test(
        Walks,
        _min_steps=STEPS_A_RUN,  # else hypothesis ends some runs early
        settings=settings(
            max_examples=runs,
            stateful_step_count=STEPS_A_RUN,
            database=None,
            deadline=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),  # a step does real work on files, so a run is no quick example
        ),
    )
    return Walks.took


@pytest.fixture(autouse=True)
def _far_side(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global CLOCK
    monkeypatch.setattr(gateway, "Exchange", Far)
    with time_machine.travel(START, tick=False) as CLOCK:
        yield


@pytest.mark.parametrize("shard", range(sized(2, 8, 20)))
def test_whatever_happens_the_promises_hold(harness: Begin, shard: int) -> None:
    runs = sized(6, 125, 500)
    with harness("walks of 50 steps against a model", runs * STEPS_A_RUN) as case:
        took = walk(runs, shard)
        case("steps", took.pop("steps"))
        print(took)

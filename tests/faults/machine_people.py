"""The other moves of a walk: what people and others do to jobs.yaml, files and clock, two at once, and a series."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from datetime import UTC, datetime

from scheduler import mend
from scheduler.attempt import Order, accept, run_slice
from scheduler.checkpoint import Checkpoint
from scheduler.cli.output import first_code, result_code
from scheduler.decision import answer_digest
from scheduler.document import parse
from scheduler.due import plan_job
from scheduler.openings import opening_job
from scheduler.owed import Turn, select
from scheduler.review import Decision, decide
from scheduler.tick import take_turn
from tests.faults.machine import HOUR, SERIES, TIMES, Far, entry
from tests.faults.machine_model import Calendar, Sheet, Wish
from tests.faults.machine_slices import CODES, EACH, FINAL, TASKS, Said, Walk, judged, quiet, refusal_of

# What a file is that holds, or held before a bit of it was flipped, no more attempts than the ledger.
OURS = (None, "flip of ours")


class Everything(Walk):
    """All moves of a walk."""

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
        self.world.clock.move_to(self.now)
        self.took[f"step_clock: {'forward' if seconds > 0 else 'backward'}"] += 1

    def tamper(self, kind: str, attempts: int, status: str, at: int) -> None:
        present, path = self.world.read(self.name), self.path
        file: Said = None
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
                at, file = at % len(present), "flip of ours" if self.files.get(self.name) in OURS else "flip"
                body = present[:at] + bytes([present[at] ^ (1 << at % 8)]) + present[at + 1 :]
            case "older" if self.published.get(self.name):
                versions = sorted(self.published[self.name])
                body = versions[at % len(versions)]
            case "foreign" if others := [key for key in self.world.real() if key != self.name]:
                other = self.sheets[others[at % len(others)]]
                body, file = self.world.real()[others[at % len(others)]].body, (other, True)
            case "six fields" | "document":
                body, file = entry(sheet, ours=kind == "document"), (sheet, kind == "document")
            case "junk":
                body = (b"", b"{}", b"[" * 99_000, b"null", bytes(8))[at % 5]
            case _:
                return
        if body is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(body)
        self.sheet.unknown = body is not None and not self.world.knows(self.name, body)
        self.files[self.name] = copy.deepcopy(file)
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
        self.took[f"revise: {stops or 'begun anew'}"] += 1

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
        self.took[f"renew{'_opening' * opening}: {stops or 'begun anew'}"] += 1

    def repair(self) -> None:
        sheet, file = self.sheet, self.files.get(self.name)
        if file == "flip" and sheet.unknown:
            return  # it may be a valid document still, with more attempts
        more = isinstance(file, tuple) and file[1] and file[0].attempts > sheet.attempts
        stops, aside = "refused" if not sheet.allowance or (sheet.unknown and more) else "", False
        plan, body = plan_job(self.world.job(self.wish, self.name), True), self.world.read(self.name)
        assert refusal_of(lambda: mend.repair(plan)) == stops
        if not stops:
            aside, sheet.unknown = sheet.unknown, False
            kept = [path.read_bytes() for path in self.world.folder.glob(f"{self.name}.set-aside-*")]
            assert not aside or body in kept, "I3: an unknown file was not set aside as it was"
        self.took[f"repair: {stops or ('set aside' if aside else 'nothing to do')}"] += 1

    def adopt(self) -> None:
        sheet, file, present = self.sheet, self.files.get(self.name), self.world.read(self.name)
        if isinstance(file, str) and sheet.unknown:
            return  # whether a flip leaves a valid document is for other tests
        stops = "" if sheet.unknown and file else "refused" if sheet.unknown or present is None else ""
        plan = plan_job(self.world.job(self.wish, self.name), True)
        assert refusal_of(lambda: mend.adopt(plan)) == stops
        if sheet.unknown and isinstance(file, tuple):
            sheet.adopt(file[0], self.wish)
            self.before.pop(self.name, None)  # its history is another one
            self.shown(self.name)
            stops = "taken over"
        self.took[f"adopt: {stops or 'nothing to do'}"] += 1

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
        self.took[f"series: {'asked' if number > sent else 'ended' if 'ended' in words else 'not due'}"] += 1

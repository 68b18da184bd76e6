"""When the next opening of a series opens: once a point, and only after the answer of the one before.

Cron and daemon ask it alike; what one of them did is in the ledger before the other can ask.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from scheduler.database import Connection
from scheduler.due import MISSED_AFTER, Plan, Span, is_missed, missed_span, plan_job
from scheduler.errors import Later, LedgerBusy, NotOpened, ResumedError, SeriesEnded
from scheduler.job import Job, JobFile
from scheduler.ledger import Ledger
from scheduler.openings import (
    Course,
    Opening,
    bind,
    calendar,
    enter,
    find_job,
    key_of,
    opening_job,
    point_text,
    read_course,
    sighting_of,
    terms,
)
from scheduler.owed import Result, Tell, as_refusal, missed_event, open_folder, told_span
from scheduler.points import last_of, moment_of, next_of
from scheduler.roster import CLOCK_SLACK, MISSED, count_up, note

DAY = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What is to be done about a point, and which is the first of those that none was done about."""

    kind: Literal["open", "skip", "miss"]
    first: int
    point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turnout:
    """What came of a series: the jobs of its openings, the newest last, and the next point at which one can open."""

    result: Result
    jobs: tuple[Job, ...] = ()
    next_point: datetime | None = None


# The rule.


def next_move(pattern: Job, course: Course, now: float) -> Move | None:
    """Say what is to be done about the newest point that nothing was done about; None where there is none.

    It is opened once the opening before has its answer, else skipped; missed points are made up once, by the newest.
    """
    newest = course.newest
    if not pattern.enabled or is_full(pattern, newest):
        return None
    days, since = calendar(pattern), moment_of(course.since)
    passed = course.since - 1
    if newest and newest.passed <= now + CLOCK_SLACK:  # else of a clock that has been set back since
        passed = max(passed, newest.passed)
    point, first = last_of(days, moment_of(now), since), next_of(days, moment_of(passed), since)
    if point is None or first is None or point.timestamp() <= passed:
        return None
    seconds = int(point.timestamp())
    if newest and (newest.status != "done" or course.moved):
        kind: Literal["open", "skip", "miss"] = "skip"
    elif is_missed(pattern, seconds, now):
        if newest is None and seconds == course.since:  # told before
            return None
        kind = "miss"
    else:
        kind = "open"
    return Move(kind=kind, first=int(first.timestamp()), point=seconds)


def is_full(pattern: Job, newest: Opening | None) -> bool:
    """Tell whether a series has had all of its openings."""
    return newest is not None and newest.number >= terms(pattern).times


def next_opening(pattern: Job, course: Course, now: float) -> datetime | None:
    """Return the next point at which a series can open."""
    if not pattern.enabled or is_full(pattern, course.newest):
        return None
    return next_of(calendar(pattern), moment_of(now), moment_of(course.since))


# What is done.


def advance(patterns: Iterable[Job], live: bool, now: float, tell: Tell, *, wait: float | None = None) -> list[Turnout]:
    """Open what is due of each series; return their openings that are to be asked, and what is wrong.

    `wait` is for how many seconds a locked ledger is waited for, by default 5.
    """
    busy: dict[Path, ResumedError] = {}
    found = []
    for pattern in patterns:
        folder = pattern.checkpoint.parent
        try:
            if folder in busy:
                raise busy[folder]
            found.append(_advance(plan_job(pattern, live), now, tell, wait))
        except Exception as error:
            if isinstance(error, LedgerBusy):
                busy[folder] = error
            found.append(Turnout(result=Result(job=pattern.id, refusal=as_refusal(error))))
    return found


def _advance(plan: Plan, now: float, tell: Tell, wait: float | None) -> Turnout:
    pattern = plan.job
    ledger = open_folder(plan.path.parent)
    with ledger.reading(wait) as tx:
        course = read_course(tx, plan, int(now))
    newest, strays = course.newest, [one for one in course.asked if one.checkpoint != key_of(plan, one)]
    if not course.noted or strays or next_move(pattern, course, now):
        course = _write(ledger, plan, strays, now, tell, wait)
    names = [one.opening for one in course.asked]
    if newest and newest.opening not in names:  # its process may have died before the answer was in its file
        names.insert(0, newest.opening)
    jobs = tuple(opening_job(pattern, name) for name in names)
    return Turnout(result=_result(pattern, course), jobs=jobs, next_point=next_opening(pattern, course, now))


def _write(ledger: Ledger, plan: Plan, strays: Iterable[Opening], now: float, tell: Tell, wait: float | None) -> Course:
    """Do in one transaction what is to be done, and tell it once it is durable."""
    events = []
    with ledger.writing(wait) as tx:
        for one in strays:
            bind(tx, plan, one, int(now))
        course = read_course(tx, plan, int(now))
        if not course.noted:
            note(tx, sighting_of(plan), course.since)
        move = next_move(plan.job, course, now)
        if move:
            events = _do(tx, plan, course, move, int(now))
        course = read_course(tx, plan, int(now))
    for event in events:
        tell(plan.job.id, event)
    return course


def _do(tx: Connection, plan: Plan, course: Course, move: Move, now: int) -> list[dict[str, Any]]:
    pattern, newest = plan.job, course.newest
    known = tx.execute("SELECT 1 FROM opening WHERE series = ? AND point = ?", (pattern.id, move.point)).fetchone()
    if move.kind == "open" and not known:
        number = newest.number + 1 if newest else 1
        opening = enter(tx, plan, number, move.point, now)
        told = []
        if span := missed_span(calendar(pattern), course.since, move.first - 1, move.point, now):
            count_up(tx, MISSED, span.count)
            told.append({"event": "made_up", "opening": opening, **told_span(span)})
        return [*told, {"event": "opened", "opening": opening, "number": number, "times": terms(pattern).times}]
    if newest is None:
        note(tx, sighting_of(plan), move.point)
    else:
        row = (move.point, pattern.id, newest.number)
        tx.execute("UPDATE opening SET passed = ? WHERE series = ? AND number = ?", row)
    span = missed_span(calendar(pattern), course.since, move.first - 1, move.point, move.point + MISSED_AFTER + 1)
    span = span or Span(move.point, move.point, 1)
    if move.kind == "miss":
        count_up(tx, MISSED, span.count)
        return [missed_event(pattern, span, now)]
    if newest is None or newest.status != "ready" or course.moved or known:
        return []
    again = newest.passed > newest.point and newest.passed // DAY == move.point // DAY
    return [{"event": "skipped", "opening": f"{pattern.id}@{newest.opening}", "again": again, **told_span(span)}]


def ended(pattern: Job, course: Course) -> SeriesEnded | None:
    """Return what a person has to know of a series whose newest opening is exhausted."""
    newest = course.newest
    if newest is None or newest.status != "exhausted":
        return None
    return SeriesEnded(opening=f"{pattern.id}@{newest.opening}")


def _result(pattern: Job, course: Course) -> Result:
    done = is_full(pattern, course.newest) and not course.unanswered and not course.moved
    return Result(job=pattern.id, final="done" if done else "", refusal=ended(pattern, course))


def unfold(
    job_file: JobFile, names: Iterable[str], now: float, tell: Tell, *, by_hand: bool = False, wait: float | None = None
) -> tuple[list[Job], list[Result]]:
    """Return the jobs that these names mean, those of a series opened where they are due, and what is wrong with it.

    By hand a series stands for its newest opening alone.
    """
    names = list(dict.fromkeys(names))
    owners = dict.fromkeys(name.partition("@")[0] for name in names)
    patterns = [job_file.series[owner] for owner in owners if owner in job_file.series]
    turnouts = {one.result.job: one for one in advance(patterns, job_file.live, now, tell, wait=wait)}
    jobs: list[Job] = []
    results = []
    for name in names:
        if turnout := turnouts.get(name):
            jobs += turnout.jobs[-1:] if by_hand else turnout.jobs
            results += [turnout.result] if turnout.result.refusal else []
            if by_hand and not turnout.jobs and not turnout.result.refusal:
                refusal = NotOpened(point=point_text(turnout.next_point))
                results.append(Result(job=name, refusal=refusal))
        elif name not in job_file.refused:
            try:
                jobs.append(find_job(job_file, name))
            except Exception as error:
                results.append(Result(job=name, refusal=as_refusal(error)))
    return list({job.id: job for job in jobs}.values()), results


def with_openings(job_file: JobFile, turnouts: Iterable[Turnout]) -> JobFile:
    """Return a file that has the openings that are to be asked among its jobs."""
    opened = {job.id: job for turnout in turnouts for job in turnout.jobs}
    return replace(job_file, jobs={**job_file.jobs, **opened})


def next_look(turnouts: Sequence[Turnout], now: float) -> float:
    """Return when series are to be asked again (UTC seconds): at their next points, soon where one was refused."""
    wrong = [turnout.result.refusal for turnout in turnouts if turnout.result.refusal]
    soon = [now + (1 if isinstance(refusal, Later) else 60) for refusal in wrong]
    return min([*soon, *(one.next_point.timestamp() for one in turnouts if one.next_point)], default=math.inf)

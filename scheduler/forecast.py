"""What lies ahead of a job, for check: its points, the requests that are left, and what would block it now."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from scheduler.cost import most
from scheduler.delivery import check_target
from scheduler.due import Plan, due_point, model_of, next_due, private_paths
from scheduler.errors import ProviderNotReady, ResumedError
from scheduler.files import can_be_seen, check_can_write, check_folder
from scheduler.inventory import folders_of
from scheduler.job import Job, JobFile
from scheduler.keys import read_key
from scheduler.ledger import NAME, ledger_rows
from scheduler.openings import Course, calendar, opening_name, plan_opening, read_course, terms
from scheduler.outlook import Outlook, SeriesOutlook, change_mark
from scheduler.owed import DISABLED
from scheduler.points import moment_of, next_of
from scheduler.roster import Facts
from scheduler.series import ended
from scheduler.state import State, is_final
from scheduler.survey import check_next, look
from scheduler.trigger import clock_change, describe

MOST_POINTS = 1000
FEW_POINTS = 3
DAY = 86400
# A daily schedule's points are this far apart where the clock goes forward.
ALMOST_A_DAY = 23 * 3600
FAR_APART = (
    "its points are a day or more apart, and each is a slice of the same task, with one answer; "
    "for an answer at each of them write a series"
)
OVER = "not_after has passed; another one in jobs.yaml goes on with it"
STAYS = (
    "{attempts} attempts were its limit once, and it stays exhausted though max_attempts is {limit}; "
    "a new allowance: resumed renew {job} --reason TEXT --confirm {job}"
)


def forecast(
    plan: Plan, job_file: JobFile, environ: Mapping[str, str], days: int | None
) -> tuple[Outlook, ResumedError | None]:
    """Return what lies ahead of a job, and what would block it now.

    Looked at are its checkpoint and folder, what it reads, and its key and model once they are needed. Without `days`
    the next few points are listed.
    """
    job, now = plan.job, time.time()
    state, facts, since, damage = _past(plan, now)
    refusal, note = _refusal(plan, state, damage, job_file, environ)
    left = job.max_attempts if state is None else 0 if is_final(state) else max(0, job.max_attempts - state["attempts"])
    open_left = left if job.enabled else 0
    points, more = _ahead(job, since, now, days)
    requests = _within(job, facts, open_left, since, now, now + days * DAY if days else math.inf)
    notes = [note] if note else []
    if job.enabled and left and _far_apart(job, since, now):
        notes.append(FAR_APART)
    if left and job.not_after is not None and now > job.not_after:
        notes.append(OVER)
    if state is not None and state["status"] == "exhausted" and state["attempts"] < job.max_attempts:
        notes.append(STAYS.format(attempts=state["attempts"], limit=job.max_attempts, job=job.id))
    outlook = Outlook(
        id=job.id,
        status=_status(state, job),
        words=describe(job.schedule) + (", with jitter" if job.jitter else ""),
        timezone=job.timezone,
        checkpoint=str(plan.path),
        rehearsal=plan.rehearsal,
        left=left,
        max_attempts=job.max_attempts,
        points=points,
        more=more,
        last=_last(job, facts, open_left, since, now),
        most=most(job.provider, requests, offline=plan.offline),
        days=days,
        notes=tuple(notes),
    )
    return outlook, refusal


def _status(state: State | None, job: Job) -> str:
    final = state is not None and is_final(state)
    return state["status"] if state is not None and final else "ready" if job.enabled else DISABLED


def series_forecast(
    plan: Plan, job_file: JobFile, environ: Mapping[str, str], days: int | None
) -> tuple[SeriesOutlook, ResumedError | None]:
    """Return what lies ahead of a series, and what would block its opening, or else the next one, now."""
    pattern, now = plan.job, time.time()
    course, refusal = _course(plan, int(now))
    repeats, count = terms(pattern), course.newest.number if course.newest else 0
    names = [one.opening for one in course.unanswered] or [opening_name(repeats.opens, int(now))]
    found = [forecast(plan_opening(plan, name), job_file, environ, days) for name in names]
    outlooks = [outlook for outlook, _ in found] if course.unanswered else []
    left = max(0, repeats.times - count)
    points, more = _ahead(calendar(pattern), course.since, now, days)
    opening = (left if days is None else min(left, len(points))) * pattern.max_attempts * pattern.enabled
    requests = opening + sum(outlook.most.requests for outlook in outlooks)
    notes = dict.fromkeys(note for outlook, _ in found for note in outlook.notes if note != FAR_APART)
    series = SeriesOutlook(
        id=pattern.id,
        words=describe(repeats.opens),
        slices=describe(pattern.schedule),
        timezone=pattern.timezone,
        checkpoint=str(plan.path),
        rehearsal=plan.rehearsal,
        left=left,
        times=repeats.times,
        max_attempts=pattern.max_attempts,
        open=[(outlook.id, outlook.left) for outlook in outlooks],
        points=points[:left],
        more=more and left > len(points),
        most=most(pattern.provider, requests, offline=plan.offline),
        days=days,
        enabled=pattern.enabled,
        notes=tuple(notes),
    )
    refusals = [refusal, *(error for _, error in found), ended(pattern, course)]
    return series, next((error for error in refusals if error), None)


def _course(plan: Plan, now: int) -> tuple[Course, ResumedError | None]:
    """Return how far a series is; that of a new one, and why, where it cannot be read."""
    try:
        with ledger_rows(plan.path.parent) as tx:
            return (read_course(tx, plan, now) if tx else Course.new(now)), None
    except ResumedError as error:
        return Course.new(now), error


def _past(plan: Plan, now: float) -> tuple[State | None, Facts, int, ResumedError | None]:
    """Return document, facts and `since`; those of a new job, and why, where they cannot be read."""
    try:
        found, facts, since = look(plan, now)
    except ResumedError as error:
        return None, Facts(), int(now), error
    return found.state, facts, since, None


def _refusal(
    plan: Plan,
    state: State | None,
    damage: ResumedError | None,
    job_file: JobFile,
    environ: Mapping[str, str],
) -> tuple[ResumedError | None, str]:
    """Return what would block a slice now, and what would only do so once `live` is true."""
    try:
        if os.path.lexists(plan.path.parent):
            check_folder(plan.path.parent)
        else:
            check_can_write(plan.path.parent)
        check_target(plan.job, job_file, environ)
        if damage:
            return damage, ""
        if not plan.job.enabled:
            return None, ""
        if state is not None and (is_final(state) or state["attempts"] >= plan.job.max_attempts):
            return None, ""
        check_can_write(plan.path.parent)
        check_can_write(plan.path.with_name(NAME))
        check_next(plan, state, environ, private_paths(job_file, environ))
    except ResumedError as error:
        return error, ""
    try:
        if not plan.job.provider.offline:
            from scheduler.gateway import Exchange  # which other commands than check can do without

            model_of(replace(plan, rehearsal=False), environ)
            Exchange(plan.job.provider, read_key(plan.job.provider, environ), environ).close()
    except ProviderNotReady as error:
        return (None, f"before live: true can work: {error}") if plan.rehearsal else (error, "")
    return None, ""


def open_folders(job_file: JobFile) -> list[Path]:
    """Return the checkpoint folders that other users can look into."""
    return [folder for folder in folders_of(job_file) if os.path.lexists(folder) and can_be_seen(folder.stat())]


def _ahead(job: Job, since: int, now: float, days: int | None) -> tuple[tuple[tuple[datetime, str], ...], bool]:
    """Return the points ahead, each with a mark where the clock changed since the one before, and whether more follow.

    Without `days` the next few; else those of so many days, up to a limit.
    """
    before = moment_of(now)
    end = before + timedelta(days=days or 0)
    limit = MOST_POINTS if days else FEW_POINTS
    found: list[tuple[datetime, str]] = []
    for point in _points(job, since, before):
        if days and point.timestamp() > end.timestamp():
            return tuple(found), False
        if len(found) == limit:
            return tuple(found), days is not None
        marks = [change_mark(change.before, change.after) for change in clock_change(job.timezone, before, point)]
        found.append((point, "; ".join(marks)))
        before = point
    return tuple(found), False


def _points(job: Job, since: int, after: datetime) -> Iterator[datetime]:
    anchor = moment_of(since)
    point = next_of(job, after, anchor)
    while point is not None:
        yield point
        point = next_of(job, point, anchor)


def _last(job: Job, facts: Facts, left: int, since: int, now: float) -> datetime | None:
    """Return the last possible moment of a request: each of those left runs into its timeout, and delays the next."""
    last = None
    for _ in range(left):
        last = next_due(job, facts, since, now)
        if last is None:
            return None
        now = last.timestamp() + job.deadline
        facts = _after(job, facts, since, last, now, facts.failures + 1)
    return last


def _within(job: Job, facts: Facts, left: int, since: int, now: float, end: float) -> int:
    """Return how many of the requests left can be sent up to `end` (UTC seconds): each ends at once, and well."""
    for sent in range(left):
        ahead = next_due(job, facts, since, now)
        if ahead is None or ahead.timestamp() > end:
            return sent
        now = ahead.timestamp()
        facts = _after(job, facts, since, ahead, now, 0)
    return left


def _after(job: Job, facts: Facts, since: int, begun: datetime, ended: float, failures: int) -> Facts:
    """Return the facts after a slice that began and ended at these moments."""
    point = due_point(job, replace(facts, open=None), since, begun.timestamp())
    used = int(begun.timestamp()) if point is None else point
    return replace(facts, points=facts.points | {used}, failures=failures, ended_at=int(ended), open=None)


def _far_apart(job: Job, since: int, now: float) -> bool:
    near = list(islice(_points(job, since, moment_of(now)), 2))
    return len(near) == 2 and near[1].timestamp() - near[0].timestamp() >= ALMOST_A_DAY

"""What lies ahead of a job, for check: its points, the requests that are left, and what would block it now."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler.delivery import check_target
from scheduler.due import Plan, model_of, next_due, plan_job, private_paths
from scheduler.errors import ProviderNotReady, ResumedError
from scheduler.files import check_can_write, check_folder
from scheduler.job import Job, JobFile
from scheduler.keys import read_key
from scheduler.ledger import NAME
from scheduler.outlook import Outlook, change_mark
from scheduler.points import next_of
from scheduler.roster import Facts
from scheduler.state import State, is_final
from scheduler.survey import check_next, look
from scheduler.trigger import clock_change, describe

MOST_POINTS = 1000
FEW_POINTS = 3


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
    points, more = _ahead(job, since, now, days)
    outlook = Outlook(
        id=job.id,
        status=state["status"] if state else "ready",
        words=describe(job.schedule),
        timezone=job.timezone,
        checkpoint=str(plan.path),
        rehearsal=plan.rehearsal,
        left=left,
        max_attempts=job.max_attempts,
        points=points,
        more=more,
        last=_last(job, facts, left, since, now),
        note=note,
    )
    return outlook, refusal


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
    folders = sorted({plan_job(job, job_file.live).path.parent for job in job_file.jobs.values()})
    return [folder for folder in folders if os.path.lexists(folder) and folder.stat().st_mode & 0o055]


def _ahead(job: Job, since: int, now: float, days: int | None) -> tuple[tuple[tuple[datetime, str], ...], bool]:
    """Return the points ahead, each with a mark where the clock changed since the one before, and whether more follow.

    Without `days` the next few; else those of so many days, up to a limit.
    """
    before = datetime.fromtimestamp(now, UTC)
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
    anchor = datetime.fromtimestamp(since, UTC)
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
        ended = last.timestamp() + job.deadline
        point = int(last.timestamp())
        facts = replace(facts, points=facts.points | {point}, failures=facts.failures + 1, ended_at=int(ended))
        now = ended
    return last

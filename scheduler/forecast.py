"""What lies ahead of a job, for check: its points, the requests that are left, and what would block it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from scheduler.attempt import Order, accept
from scheduler.checkpoint import peek
from scheduler.due import Plan, model_of, next_due
from scheduler.errors import ProviderNotReady
from scheduler.files import check_folder
from scheduler.job import Job, JobFile
from scheduler.keys import read_key
from scheduler.ledger import ledger_rows
from scheduler.report import Outlook, change_mark
from scheduler.roster import Facts, read_facts, read_seen
from scheduler.sources import check_source
from scheduler.state import is_final
from scheduler.trigger import clock_change, describe, next_point

MOST_POINTS = 1000
FEW_POINTS = 3


def forecast(plan: Plan, job_file: JobFile, environ: Mapping[str, str], days: int | None) -> Outlook:
    """Return what lies ahead of a job: the next few points, or those of so many days.

    Raises what would block the job now: its checkpoint, its folder, what it reads, and its key and model once they
    are needed.
    """
    job, now = plan.job, time.time()
    if plan.path.parent.exists():
        check_folder(plan.path.parent)
    for source in job.read:
        check_source(source, job_file.private)
    notes = [*_provider_notes(plan, environ), *_folder_notes(plan.path.parent)]
    state = peek(plan.path).state
    facts, since = Facts(), int(now)
    with ledger_rows(plan.path.parent) as tx:
        if tx is not None:
            facts, since = read_facts(tx, plan.path.name), read_seen(tx, plan.sighting, int(now)).since
    left = job.max_attempts - (state["attempts"] if state else 0)
    if state is not None and is_final(state):
        left = 0
    elif state is not None:
        order = Order(task=job.task, model=_model(plan, environ) or state["model"], tools=(), job=job.id)
        accept(state, order)
    points, more = _ahead(job, since, now, days)
    return Outlook(
        id=job.id,
        status=state["status"] if state else "ready",
        words=describe(job.schedule),
        timezone=job.timezone,
        checkpoint=str(plan.path),
        rehearsal=plan.rehearsal,
        left=max(0, left),
        max_attempts=job.max_attempts,
        points=points,
        more=more,
        last=_last(job, facts, left, since, now),
        notes=tuple(notes),
    )


def _model(plan: Plan, environ: Mapping[str, str]) -> str | None:
    try:
        return model_of(plan, environ)
    except ProviderNotReady:
        return None


def _provider_notes(plan: Plan, environ: Mapping[str, str]) -> Iterator[str]:
    """Check key and model; what only matters once `live` is true is a note, not a refusal."""
    if plan.job.provider.offline:
        return
    try:
        model_of(replace(plan, rehearsal=False), environ)
        read_key(plan.job.provider, environ)
    except ProviderNotReady as error:
        if not plan.rehearsal:
            raise
        yield f"before live: true can work: {error}"


def _folder_notes(folder: Path) -> Iterator[str]:
    if folder.exists() and folder.stat().st_mode & 0o055:
        yield f"other users can look into {folder}; keep it private: chmod 700 {folder}"


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
    point = next_point(job.schedule, job.timezone, after, anchor)
    while point is not None:
        yield point
        point = next_point(job.schedule, job.timezone, point, anchor)


def _last(job: Job, facts: Facts, left: int, since: int, now: float) -> datetime | None:
    """Return the last possible moment of a request: each of those left runs into its timeout, and delays the next."""
    last = None
    for _ in range(left):
        last = next_due(job, facts, since, now)
        if last is None:
            return None
        ended = last.timestamp() + job.provider.timeout
        point = int(last.timestamp())
        facts = replace(facts, points=facts.points | {point}, failures=facts.failures + 1, ended_at=int(ended))
        now = ended
    return last

"""How a job runs now, and the due rule: when it owes a slice. Pure but for the real path of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from scheduler import offline
from scheduler.attempt import Order
from scheduler.calls import result_bytes
from scheduler.errors import ProviderNotReady
from scheduler.job import REHEARSAL, Job, JobFile
from scheduler.points import calendar_text, last_of, moment_of, next_of
from scheduler.reader import locate
from scheduler.roster import Facts, Sighting
from scheduler.sources import check_source, list_sources
from scheduler.text import is_utf8
from scheduler.tools import file_tools
from scheduler.trigger import zone_of

# A point is missed once it is older than cron's own minute and some.
MISSED_AFTER = 120
# Points that pass in less than this are no gap: a busy machine is late by as much.
SHORTEST_GAP = 5
MOST_COUNTED = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """Points in a row: the first and the last, in UTC seconds, and how many, counted up to MOST_COUNTED."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a job runs now: at which path, and as a rehearsal by the demo model or by its own provider."""

    job: Job
    path: Path
    rehearsal: bool

    @property
    def offline(self) -> bool:
        """Tell whether the demo model answers."""
        return self.rehearsal or self.job.provider.offline

    @property
    def sighting(self) -> Sighting:
        """The job as the ledger knows it."""
        return Sighting(self.job.id, self.path.name, calendar_text(self.job))


def plan_job(job: Job, live: bool) -> Plan:
    """Say how a job runs: a real provider's job is rehearsed beside its checkpoint while `live` is false."""
    path = locate(job.checkpoint)
    rehearsal = not live and not job.provider.offline
    return Plan(job=job, path=path.parent / REHEARSAL / path.name if rehearsal else path, rehearsal=rehearsal)


def model_of(plan: Plan, environ: Mapping[str, str]) -> str:
    """Return the model's name: the job's, else the provider's, else the environment's. Raises ProviderNotReady."""
    if plan.rehearsal:
        return offline.MODEL
    provider = plan.job.provider
    named = plan.job.model or provider.model or environ.get(provider.model_env or "", "").strip()
    if not is_utf8(named):
        raise ProviderNotReady(
            provider=provider.name, problem=f"the model that {provider.model_env} names is not UTF-8"
        )
    if named or provider.offline:
        return named or offline.MODEL
    hint = f", or set {provider.model_env}" if provider.model_env else ""
    raise ProviderNotReady(provider=provider.name, problem=f"no model is named; write one in jobs.yaml{hint}")


def private_paths(job_file: JobFile, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return what no tool may read: what the file says, the folder in which the service manager keeps keys, and itself.

    jobs.yaml holds no key, but it may hold addresses and headers that are for nobody else.
    """
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    return (*job_file.private, job_file.path, *([Path(credentials)] if credentials else []))


def known_model(plan: Plan, environ: Mapping[str, str]) -> str | None:
    """Return the model that would be asked; None where this environment, which may not be the job's, names none."""
    try:
        return model_of(plan, environ)
    except ProviderNotReady:
        return None


def order_of(plan: Plan, model: str, private: Sequence[Path]) -> Order:
    """Return what a slice of a job is asked to do, but for its point. Raises SourceRefused."""
    job, provider = plan.job, plan.job.provider
    for source in job.read:
        check_source(source, private)
    listing = list_sources(job.read, private)
    return Order(
        task=job.task,
        model=model,
        tools=file_tools(job.read, private, result_bytes(provider.context_tokens)),
        files=listing.entries,
        unlisted=listing.left_out,
        job=job.id,
        provider=offline.MODEL if plan.offline else provider.name,
        live=not plan.offline,
        deadline=job.deadline,
        max_attempts=job.max_attempts,
        options=provider.options,
        last_attempt=provider.last_attempt,
        idempotent=provider.idempotency_header is not None,
        context_tokens=provider.context_tokens,
        replay_fields=provider.replay_fields,
    )


def due_point(job: Job, facts: Facts, since: int, now: float) -> int | None:
    """Return the point for which a slice is to run now, in UTC seconds: the one that is owed, unless it was missed."""
    point = owed_point(job, facts, since, now)
    return None if point is None or is_missed(job, point, now) else point


def is_missed(job: Job, point: int, now: float) -> bool:
    """Tell whether a point is too old for a job that does not catch up, or may not any more."""
    over = job.not_after is not None and now > job.not_after
    return (over or not job.catch_up) and now - point > MISSED_AFTER


def idle_since(job: Job, facts: Facts, since: int, now: float) -> int:
    """Return the moment (UTC seconds) after which each point that passed without a slice was missed.

    Points during the job's own attempts, in the pause after a failure, and up to the newest slice are not. `since` was
    told as skipped where the job does not catch up.
    """
    known = [since if is_missed(job, since, now) else since - 1, _resumes_at(job, facts, now) - 1]
    known += [point for point in facts.points if point <= now]
    if facts.ended_at is not None and facts.ended_at <= now:
        known.append(facts.ended_at + 1)  # it was cut to whole seconds
    return max(known)


def missed_span(job: Job, since: int, after: int, point: int, now: float, gap: int = SHORTEST_GAP) -> Span | None:
    """Return the points after a moment that passed without a slice, now that `point` has one; None where none did.

    `point` is one of them where it is late by more than MISSED_AFTER. Points of less than `gap` seconds are none.
    """
    until = point if now - point > MISSED_AFTER else point - 1
    found, anchor = list[int](), moment_of(since)
    ahead = next_of(job, moment_of(after), anchor)
    while ahead and ahead.timestamp() <= until and len(found) < MOST_COUNTED:
        found.append(int(ahead.timestamp()))
        ahead = next_of(job, ahead, anchor)
    if not found or now - found[0] < gap:
        return None
    last = last_of(job, moment_of(until), anchor)
    return Span(found[0], int(last.timestamp()) if last else found[-1], len(found))


def owed_point(job: Job, facts: Facts, since: int, now: float) -> int | None:
    """Return the point that a job owes a slice, in UTC seconds; None where it owes none.

    It is the newest point at or before now, not before `since`, without a slice yet, and far enough from the last of
    several failures in a row (`after_failure`). Missed points are made up once by this rule alone.
    """
    if facts.status != "ready" or facts.open is not None:
        return None
    point = last_of(job, moment_of(now), moment_of(since))
    seconds = int(point.timestamp()) if point else since - 1
    if seconds < since or seconds in facts.points:
        return None
    return seconds if seconds >= _resumes_at(job, facts, now) else None


def next_due(job: Job, facts: Facts, since: int, now: float) -> datetime | None:
    """Return the next moment at which a ready job can be due: now, where it is, else a point that is far enough."""
    if due_point(job, facts, since, now) is not None:
        return moment_of(now).astimezone(zone_of(job.timezone))
    after = max(now, _resumes_at(job, facts, now) - 1)
    return next_of(job, moment_of(after), moment_of(since))


def _resumes_at(job: Job, facts: Facts, now: float) -> int:
    """Return from when on a point counts; an end in the future is of a clock that has been set back since."""
    if not (facts.failures and job.after_failure) or facts.ended_at is None or facts.ended_at > now:
        return 0
    return facts.ended_at + job.after_failure[min(facts.failures, len(job.after_failure)) - 1]

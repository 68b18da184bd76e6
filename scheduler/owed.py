"""Which jobs owe a slice now: cron and daemon ask the same."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.checkpoint import hold
from scheduler.due import SHORTEST_GAP, Plan, Span, idle_since, is_missed, missed_span, owed_point, plan_job
from scheduler.durable import make_folder
from scheduler.errors import CheckpointMoved, JobDisabled, ProgramFault, ResumedError
from scheduler.files import check_folder
from scheduler.job import Job
from scheduler.ledger import Ledger, ledger_of
from scheduler.owner import is_alive
from scheduler.roster import MISSED, Facts, Seen, count_up, note, read_acted, read_facts, read_seen
from scheduler.state import State, is_final, utc
from scheduler.tools import Tool

Tell = Callable[[str, dict[str, Any]], object]

# The final word on a job that its owner let rest.
DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A job that may run: whether it owes a slice now, for which point, since when it has its schedule (UTC seconds).

    A slice that is asked for by hand has no point. Points from `idle` to `asked`, when it was asked whether the job is
    due (UTC seconds), were missed, unless all are younger than `gap` seconds. `tools` come beside those of `read:`.
    `ready` says that the ledger was looked at, and that a request may follow.
    """

    plan: Plan
    since: int
    due: bool = False
    point: int | None = None
    idle: int | None = None
    asked: float = 0
    gap: int = SHORTEST_GAP
    tools: tuple[Tool, ...] = ()
    ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a job: its state where one was read, and what refused it.

    `ran` says that a request was admitted; `final` is the status after which none may follow, or `disabled`.
    `plan` is None where the job's entry is refused.
    """

    job: str
    plan: Plan | None = None
    state: State | None = None
    ran: bool = False
    final: str = ""
    refusal: ResumedError | None = None


def select(
    jobs: Iterable[Job], live: bool, now: float, tell: Tell, *, by_hand: bool = False, wait: float | None = None
) -> list[Turn | Result]:
    """Return a turn for each job that may run, and a result for each that is final or refused.

    Notes in the ledgers which jobs were first seen now, ends attempts whose process died, and puts files that are
    behind right. `wait` is for how many seconds a locked ledger is waited for, by default 5.
    """
    plans = [plan_job(job, live) for job in jobs]
    folders: dict[Path, list[Plan]] = {}
    for plan in plans:
        folders.setdefault(plan.path.parent, []).append(plan)
    found: dict[str, Turn | Result] = {}
    for folder, members in folders.items():
        try:
            ledger = open_folder(folder)
            seen = _sight(ledger, members, int(now), wait)
        except Exception as error:
            refusal = as_refusal(error)
            found |= {plan.job.id: Result(job=plan.job.id, plan=plan, refusal=refusal) for plan in members}
            continue
        for plan in members:
            found[plan.job.id] = _select(ledger, plan, seen[plan.job.id], now, tell, by_hand, wait)
    return [found[plan.job.id] for plan in plans]


def open_folder(folder: Path) -> Ledger:
    """Return the ledger of a folder, made where it is missing. Raises what `check_folder` refuses."""
    make_folder(folder)
    check_folder(folder)
    return ledger_of(folder)


def _sight(ledger: Ledger, plans: Sequence[Plan], now: int, wait: float | None) -> dict[str, Seen]:
    with ledger.reading(wait) as tx:
        seen = {plan.job.id: read_seen(tx, plan.sighting, now) for plan in plans}
    fresh = [plan for plan in plans if not seen[plan.job.id].known]
    if fresh:
        with ledger.writing(wait) as tx:
            for plan in fresh:
                seen[plan.job.id] = read_seen(tx, plan.sighting, now)
                if not seen[plan.job.id].known:
                    note(tx, plan.sighting, seen[plan.job.id].since)
    return seen


def _select(
    ledger: Ledger, plan: Plan, seen: Seen, now: float, tell: Tell, by_hand: bool, wait: float | None
) -> Turn | Result:
    job = plan.job
    try:
        if not job.enabled:
            return Result(job=job.id, plan=plan, final=DISABLED, refusal=JobDisabled() if by_hand else None)
        if seen.moved_from:
            old = str(plan.path.with_name(seen.moved_from))
            raise CheckpointMoved(job=job.id, old=old, new=str(plan.path))
        facts = _facts(ledger, plan, now, tell, wait)
        if by_hand:
            return Turn(plan=plan, since=seen.since, due=True, ready=facts.status == "ready")
        return _turn(ledger, plan, seen, facts, now, tell, wait)
    except Exception as error:
        return Result(job=job.id, plan=plan, refusal=as_refusal(error))


def _turn(
    ledger: Ledger, plan: Plan, seen: Seen, facts: Facts, now: float, tell: Tell, wait: float | None
) -> Turn | Result:
    job = plan.job
    if facts.status != "ready":
        return Result(job=job.id, plan=plan, final=facts.status)
    point = owed_point(job, facts, seen.since, now)
    if point is None:
        return Turn(plan=plan, since=seen.since)
    with ledger.reading() as tx:
        idle = max(idle_since(job, facts, seen.since, now), read_acted(tx, plan.path.name))
    if not is_missed(job, point, now):
        return Turn(plan=plan, since=seen.since, due=True, point=point, idle=idle, asked=now, ready=True)
    if point != seen.since:  # else told before; `since` stays on the points of an `every` schedule
        span = missed_span(job, seen.since, idle, point, now) or Span(point, point, 1)
        with ledger.writing(wait) as tx:
            note(tx, plan.sighting, point)
            count_up(tx, MISSED, span.count)
        tell(job.id, missed_event(job, span, now))
    return Turn(plan=plan, since=point)


def made_up(turn: Turn) -> dict[str, Any] | None:
    """Return the event of the points that were missed before the slice of this turn; None where none were."""
    if turn.point is None or turn.idle is None:
        return None
    job = turn.plan.job
    span = missed_span(job, turn.since, turn.idle, turn.point, turn.asked, turn.gap)
    if span is None:
        return None
    return missed_event(job, span, turn.asked) if not job.catch_up else {"event": "made_up", **told_span(span)}


def count_missed(plan: Plan, number: int) -> None:
    """Count points that a slice made up for; what keeps the ledger from it never touches the slice."""
    with contextlib.suppress(ResumedError), ledger_of(plan.path.parent).writing() as tx:
        count_up(tx, MISSED, number)


def missed_event(job: Job, span: Span, now: float) -> dict[str, Any]:
    """Return the event of points that nothing makes up for."""
    over = job.catch_up and job.not_after is not None and now > job.not_after
    return {"event": "missed", "why": "not_after has passed" if over else "catch_up is false", **told_span(span)}


def told_span(span: Span) -> dict[str, Any]:
    """Return what an event tells of points in a row."""
    return {"first": utc(span.first), "last": utc(span.last), "count": span.count}


def as_refusal(error: Exception) -> ResumedError:
    """Return a refusal as it is, and any other exception as the ProgramFault that it is."""
    if isinstance(error, ResumedError):
        return error
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    place = ", ".join(f"{entry.filename}:{entry.lineno}" for entry in frame)
    return ProgramFault(place=place, detail=f"{type(error).__name__}: {error}")


def _facts(ledger: Ledger, plan: Plan, now: float, tell: Tell, wait: float | None) -> Facts:
    """Read what the due rule asks, once nothing that a crash or a lower `max_attempts` left is in the way of it."""
    with ledger.reading() as tx:
        facts = read_facts(tx, plan.path.name)
    crashed = facts.open is not None and not is_alive(facts.open.owner)
    behind = facts.status != "ready" and _size(plan.path) != facts.size
    spent = facts.status == "ready" and facts.open is None and facts.attempts >= plan.job.max_attempts
    if not (crashed or behind or spent):
        return facts
    with hold(plan.path) as held:
        state = held.load(lambda event: tell(plan.job.id, event))
        if state is not None:
            most = plan.job.max_attempts
            found = held.recover(state, most, now, lambda event: tell(plan.job.id, event), wait)
            if spent and is_final(found) and not is_final(state):
                tell(plan.job.id, {"event": "closed", "attempts": found["attempts"], "of": most})
    with ledger.reading() as tx:
        return read_facts(tx, plan.path.name)


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None

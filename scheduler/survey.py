"""What every job's state is, for status: reads only, and takes no lock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scheduler.attempt import accept, next_request
from scheduler.database import Connection
from scheduler.decision import Dispatch, rejection, review_word
from scheduler.delivery import delivery_words, dispatches_of
from scheduler.doubts import plain_doubts
from scheduler.due import Plan, known_model, next_due, order_of, plan_job, private_paths
from scheduler.errors import ResumedError
from scheduler.files import check_writers
from scheduler.home import state_path
from scheduler.inventory import folders_of
from scheduler.job import Job, JobFile
from scheduler.ledger import ledger_rows
from scheduler.notify import channel_name, shown_name
from scheduler.openings import Course, count_answered, plan_opening, read_course, read_openings, terms
from scheduler.owed import as_refusal
from scheduler.owner import is_alive
from scheduler.points import last_of, moment_of
from scheduler.presence import daemon_folders, find_daemon, names_of, with_edit
from scheduler.reader import Peek, peeking
from scheduler.report import (
    JobRow,
    JobState,
    RestRow,
    SeriesRow,
    SilentRow,
    Survey,
    edit_words,
    edited_since,
    fault_words,
)
from scheduler.rests import read_rests
from scheduler.roster import Facts, read_facts, read_seen
from scheduler.series import next_opening
from scheduler.standing import Admission
from scheduler.state import State, is_final, is_open, same_task, utc
from scheduler.told import failing_channels


def survey(job_file: JobFile, environ: Mapping[str, str], *, unfolded: bool = False) -> Survey:
    """Return a row for each job and series of the file, by name, and the rests of every ledger that it uses.

    `unfolded` gives the rows of all openings, else those without an answer and the newest have theirs.
    """
    now = time.time()
    plans = {name: plan_job(job, job_file.live) for name, job in job_file.jobs.items()}
    private = private_paths(job_file, environ)
    rows = [
        job_row(plans[name], environ, now, private) if name in plans else _refused_row(job_file, name)
        for name in sorted({*plans, *job_file.refused})
    ]
    folders = folders_of(job_file)
    rests = [rest for folder in folders for rest in _rests(folder, now)]
    patterns = [plan_job(pattern, job_file.live) for _, pattern in sorted(job_file.series.items())]
    series = [series_row(plan, environ, now, private, unfolded=unfolded) for plan in patterns]
    daemon = with_edit(find_daemon({str(job_file.path)}, daemon_folders(job_file.entries, environ), now), job_file)
    return Survey(
        config=str(job_file.path),
        live=job_file.live,
        daemon=daemon,
        jobs=rows,
        rests=rests,
        notify=silent_channels(folders, job_file, environ),
        series=series,
    )


def series_row(
    plan: Plan, environ: Mapping[str, str], now: float, private: Sequence[Path], *, unfolded: bool = False
) -> SeriesRow:
    """Return what status tells of a series, and of its openings; what is wrong with it makes it blocked."""
    pattern = plan.job
    row = SeriesRow(id=pattern.id, times=terms(pattern).times, rehearsal=plan.rehearsal)
    try:
        with ledger_rows(plan.path.parent) as tx:
            course = read_course(tx, plan, int(now)) if tx else Course.new(int(now))
            listed = read_openings(tx, pattern.id) if tx and unfolded else course.asked
            answered = count_answered(tx, pattern.id) if tx else 0
        if not course.asked:
            _check_folder(plan)
        openings = [job_row(plan_opening(plan, one.opening), environ, now, private) for one in listed]
        ahead = next_opening(pattern, course, now)
        return replace(
            row,
            state=openings[-1].state if openings else "ready",
            number=course.newest.number if course.newest else 0,
            answered=answered,
            exhausted=[f"{pattern.id}@{one.opening}" for one in course.unanswered if one.status == "exhausted"],
            next_opening=ahead.isoformat(timespec="seconds") if ahead else None,
            openings=openings,
        )
    except Exception as error:
        return replace(row, state="blocked", reason=str(as_refusal(error)))


def unreadable(path: Path, error: ResumedError, environ: Mapping[str, str]) -> Survey:
    """Return what can be told where jobs.yaml cannot be read."""
    daemon = find_daemon(names_of(path), daemon_folders((), environ), time.time())
    if daemon and daemon.alive:
        edit = edit_words(fault_words(error))
        daemon = replace(daemon, on_disk=getattr(error, "digest", None) or None, edit=edit)
    return Survey(config=str(path), problem=str(error), daemon=daemon)


def _refused_row(job_file: JobFile, name: str) -> JobRow:
    problem = job_file.refused[name]
    return JobRow(id=name, state="blocked", reason=f"line {problem.line}: {problem.message}")


def _rests(folder: Path, now: float) -> list[RestRow]:
    try:
        with ledger_rows(folder) as tx:
            found = read_rests(tx, int(now)) if tx else []
    except ResumedError:
        return []  # each job of the folder tells it
    return [
        RestRow(
            provider=rest.provider,
            model=rest.model,
            until=None if rest.until is None else utc(rest.until),
            reason=rest.reason,
            folder=str(folder),
        )
        for rest in found
    ]


def silent_channels(folders: Sequence[Path], job_file: JobFile, environ: Mapping[str, str]) -> list[SilentRow]:
    """Return each channel of the file that fails, once, with its latest reason and the time since when it fails."""
    channels = [*job_file.notify, *(channel for job in job_file.entries for channel in job.notify)]
    named = {channel_name(channel): shown_name(channel) for channel in channels}
    found: dict[str, tuple[str, int]] = {}
    own: list[Path] = []
    with contextlib.suppress(ResumedError):
        own = [state_path(environ)]
    for folder in [*folders, *own]:
        try:
            with ledger_rows(folder) as tx:
                rows = failing_channels(tx) if tx else []
        except ResumedError:
            continue  # each job of the folder tells it
        found |= {name: (fault, since) for name, fault, since in rows if name in named}
    return [
        SilentRow(channel=named[name], reason=fault, since=utc(since)) for name, (fault, since) in sorted(found.items())
    ]


def job_row(plan: Plan, environ: Mapping[str, str], now: float, private: Sequence[Path]) -> JobRow:
    """Return what status tells of one job; whatever is wrong with it makes it blocked, with the reason."""
    job = plan.job
    row = JobRow(
        id=job.id,
        state="ready",
        max_attempts=job.max_attempts,
        schedule=job.schedule,
        provider=job.provider.name,
        rehearsal=plan.rehearsal,
        checkpoint=str(plan.path),
    )
    try:
        with peeking(plan.path) as (found, tx):
            facts, since = _facts(tx, plan, now)
            delivery = _delivery(tx, plan, found)[1]
        row = _with_points(_with_state(row, found, bool(job.read)), job, facts, since, now)
        row = replace(row, delivery=delivery or None)
        if found.state is not None:
            row = _with_edits(row, found.state, plan)
        if row.state == "ready" and not job.enabled:
            return replace(row, state="disabled", model=row.model or known_model(plan, environ))
        if row.state == "ready":
            _check_folder(plan)
            check_next(plan, found.state, environ, private)
        return replace(row, model=row.model or known_model(plan, environ))
    except Exception as error:  # a fault of the program must not hide the other rows
        return replace(row, state="blocked", reason=str(as_refusal(error)))


def _check_folder(plan: Plan) -> None:
    """Raise WritableByOthers where a slice would; whose the folder is, is a matter of who runs it."""
    with contextlib.suppress(FileNotFoundError):
        check_writers(plan.path.parent, plan.path.parent.stat())


def look(plan: Plan, now: float) -> tuple[Peek, Facts, int]:
    """Return what is stored of a job, the facts of the due rule, and since when (UTC seconds) it has its schedule.

    Raises what `peek` raises, and LedgerDamaged on a row that would block a slice.
    """
    with peeking(plan.path) as (found, tx):
        return found, *_facts(tx, plan, now)


def _facts(tx: Connection | None, plan: Plan, now: float) -> tuple[Facts, int]:
    if tx is None:
        return Facts(), int(now)
    if not plan.offline:
        read_rests(tx, int(now))
    return read_facts(tx, plan.path.name), read_seen(tx, plan.sighting, int(now)).since


def read_delivery(plan: Plan, found: Peek) -> tuple[list[Dispatch], str]:
    """Return the deliveries of the present answer, and how its delivery stands in a few words, which may be none."""
    with ledger_rows(plan.path.parent) as tx:
        return _delivery(tx, plan, found)


def _delivery(tx: Connection | None, plan: Plan, found: Peek) -> tuple[list[Dispatch], str]:
    if found.state is None or found.record is None or found.state["answer"] is None:
        return [], ""
    if tx is None:
        return [], ""
    dispatches = dispatches_of(tx, plan.path.name, found.record, found.state)
    return dispatches, delivery_words(tx, plan, found.record, found.state, dispatches)


def _with_state(row: JobRow, found: Peek, reads: bool) -> JobRow:
    state = found.state
    if state is None:
        return row
    last = state["history"][-1] if state["history"] else None
    rejected = rejection(state)
    said = last["reason"] if last else None
    held = found.record.open if found.record else None
    row = replace(
        row,
        state=_job_state(state, held, row.max_attempts),
        attempts=state["attempts"],
        outcome=last["outcome"] if last else None,
        reason=next(plain_doubts(state, reads), said if rejected is None else f"answer rejected: {rejected}"),
        model=state["model"],
        answer=state["answer"],
        review=review_word(state),
    )
    if row.state == "running" and held is not None:
        row = replace(row, running_since=utc(held.admitted_at))
    if row.state == "running" and held is not None and time.time() > held.deadline:
        reason = f"attempt {held.attempt} is still held by process {held.owner.pid}, which lives, past its deadline"
        row = replace(row, reason=reason)
    return row


def _job_state(state: State, admission: Admission | None, max_attempts: int) -> JobState:
    if is_final(state):
        return state["status"]
    if admission is not None and is_alive(admission.owner):
        return "running"
    return "exhausted" if state["attempts"] >= max_attempts else "ready"


def _with_points(row: JobRow, job: Job, facts: Facts, since: int, now: float) -> JobRow:
    if row.state in ("done", "exhausted") or not job.enabled:
        return row
    moment = moment_of(now)
    newest = last_of(job, moment, moment_of(since))
    ahead = next_due(job, facts, since, now)
    return replace(
        row,
        last_point=newest.isoformat() if newest and newest.timestamp() >= since else None,
        next_point=ahead.isoformat(timespec="seconds") if ahead else None,
    )


def _with_edits(row: JobRow, state: State, plan: Plan) -> JobRow:
    if is_final(state):
        return row if same_task(state["task"], plan.job.task) else edited_since(row)
    if is_open(state) and row.state != "running":
        row = replace(row, outcome="interrupted", reason="the process of the last attempt ended; it stays counted")
    return row


def check_next(plan: Plan, state: State | None, environ: Mapping[str, str], private: Sequence[Path]) -> None:
    """Hold the stored task and model against those of jobs.yaml, and the next request against its limit.

    Raises SourceRefused, TaskChanged, ModelChanged, RequestRefused.
    """
    model = known_model(plan, environ) or (state["model"] if state else "")
    order = order_of(plan, model, private)
    next_request(accept(state, order), order)

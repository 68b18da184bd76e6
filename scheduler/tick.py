"""From jobs to outcomes: one slice of each that is due."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from scheduler import offline
from scheduler.attempt import Ask, Order, accept, run_slice
from scheduler.checkpoint import Checkpoint, hold
from scheduler.delivery import deliver_answer, owes_delivery
from scheduler.due import MISSED_AFTER, SHORTEST_GAP, Plan, model_of, order_of, plan_job, private_paths
from scheduler.errors import EntryRefused, LedgerBusy, ResumedError
from scheduler.job import Job, JobFile
from scheduler.limits import slices_at_once
from scheduler.owed import Result, Tell, Turn, as_refusal, count_missed, made_up, select
from scheduler.patience import HASTE
from scheduler.reader import peek
from scheduler.report import problem_line
from scheduler.series import unfold
from scheduler.state import State, is_final

Stopped = Callable[[], bool]


def take_turn(turn: Turn, job_file: JobFile, environ: Mapping[str, str], tell: Tell) -> Result:
    """Run one slice of a job. What refuses it is in the result, and what the ask raised is in its state."""
    plan, events, missed = turn.plan, [], 0

    def emit(event: dict[str, Any]) -> None:
        nonlocal missed
        events.append(event["event"])
        if event["event"] == "admitted" and (late := made_up(turn)):  # only now is it made up
            missed = late["count"]
            tell(plan.job.id, late)
        tell(plan.job.id, event)

    state: State | None = None
    refusal: ResumedError | None = None
    try:
        state = None if turn.ready else _finished(plan, emit)
        if state is None:
            order, ask = prepare(turn, job_file, environ)
            with hold(plan.path) as held:
                state = _load(held, order, emit)
                run_slice(held, state, order, ask, emit)
    except Exception as error:
        refusal = None if "settled" in events else as_refusal(error)
    if missed:
        count_missed(plan, missed)
    final = state["status"] if state is not None and is_final(state) else ""
    ran = "admitted" in events
    return Result(job=plan.job.id, plan=plan, state=state, ran=ran, final=final, refusal=refusal)


def run_due(
    job: Job,
    job_file: JobFile,
    environ: Mapping[str, str],
    tell: Tell,
    stopped: Stopped,
    *,
    by_hand: bool = False,
    gap: int = SHORTEST_GAP,
) -> Result:
    """Run one slice of a job if it is due, or asked for by hand, and nothing has stopped the program.

    What passed within `gap` seconds was not missed. An answer that is owed, of this slice or before, is delivered.
    """
    [chosen] = select([job], job_file.live, time.time(), tell, by_hand=by_hand)
    result = chosen if isinstance(chosen, Result) else Result(job=job.id, plan=chosen.plan)
    if isinstance(chosen, Turn) and chosen.due and not stopped():
        result = take_turn(replace(chosen, gap=gap), job_file, environ, tell)
    return result if stopped() else _with_delivery(result, job, job_file, environ, tell)


def _with_delivery(result: Result, job: Job, job_file: JobFile, environ: Mapping[str, str], tell: Tell) -> Result:
    """Deliver an answer that is owed; what refuses that is in the result, to be asked again, and not in the job."""
    try:
        if has_delivery(result, job, job_file.live):
            deliver_answer(plan_job(job, job_file.live), job_file, environ, tell)
    except Exception as error:
        return replace(result, refusal=as_refusal(error), final="")
    return result


def has_delivery(result: Result, job: Job, live: bool) -> bool:
    """Tell whether a job that is done may have an answer to deliver; what is wrong with it is found in its own turn."""
    try:
        return result.final == "done" and owes_delivery(plan_job(job, live))
    except ResumedError:
        return True


def _finished(plan: Plan, emit: Callable[[dict[str, Any]], object]) -> State | None:
    """Return the state of a final job, its file put right; None for any other. Nothing of a provider is looked at."""
    found = peek(plan.path)
    if found.state is None or not is_final(found.state):
        return None
    if found.behind:
        with hold(plan.path) as held:
            return held.load(emit)
    return found.state


def _load(held: Checkpoint, order: Order, emit: Callable[[dict[str, Any]], object]) -> State:
    stored = held.load(emit)
    if stored is not None and is_final(stored):
        return stored
    state = accept(stored, order)
    if stored is not None and state != stored:
        emit({"event": "retaken"})
    return state


def prepare(turn: Turn, job_file: JobFile, environ: Mapping[str, str]) -> tuple[Order, Ask]:
    """Do the preflight: key, URL, client, model and readable files. Raises Blocked; nothing is counted by it."""
    plan, job = turn.plan, turn.plan.job
    order = order_of(plan, model_of(plan, environ), private_paths(job_file, environ))
    tools, budget = (*order.tools, *turn.tools), job_file.requests_per_day
    order = replace(order, tools=tools, point=turn.point, requests_per_day=budget)
    if plan.offline:
        return order, offline.demo
    from scheduler.gateway import Exchange
    from scheduler.keys import read_headers, read_key

    key = read_key(job.provider, environ)
    mark = hashlib.sha256(repr((job.provider, key, read_headers(job.provider, environ))).encode()).digest()
    return replace(order, mark=mark), Exchange(replace(job.provider, timeout=job.deadline), key, environ)


def tick(
    job_file: JobFile,
    environ: Mapping[str, str],
    tell: Tell,
    *,
    names: Sequence[str] = (),
    by_hand: bool = False,
    stopped: Stopped = bool,
) -> Iterator[Result]:
    """Run one slice of each job that is due, up to `max_parallel` at once; yield a result for each as they come.

    `names` narrows it to these jobs, `by_hand` runs them whether due or not. Once `stopped` says so, no slice begins.
    """
    names = names or [*job_file.jobs, *job_file.series, *job_file.refused]
    for name in names:
        if name in job_file.refused:
            yield Result(job=name, refusal=EntryRefused(problem=problem_line(job_file.refused[name])))
    jobs, wrong = unfold(job_file, names, time.time(), tell, by_hand=by_hand, wait=HASTE)
    yield from wrong
    by_id = {job.id: job for job in jobs}
    due: list[Job] = []
    locked: list[Job] = []  # the ledger of these is waited for by their own workers, after all others
    for chosen in select(jobs, job_file.live, time.time(), tell, by_hand=by_hand, wait=HASTE):
        if isinstance(chosen, Turn) and chosen.due:
            due.append(chosen.plan.job)
        elif isinstance(chosen, Turn):
            yield Result(job=chosen.plan.job.id, plan=chosen.plan)
        elif isinstance(chosen.refusal, LedgerBusy):
            locked.append(by_id[chosen.job])
        elif has_delivery(chosen, by_id[chosen.job], job_file.live):
            due.append(by_id[chosen.job])
        else:
            yield chosen

    def run(job: Job) -> Result | None:  # asked anew, for it may have waited long for its worker
        if stopped():
            return None
        # Cron calls once a minute, so points that are closer to each other are not missed by it.
        return run_due(job, job_file, environ, tell, stopped, by_hand=by_hand, gap=MISSED_AFTER)

    if queued := due + locked:
        with ThreadPoolExecutor(slices_at_once(min(job_file.max_parallel, len(queued)))) as pool:
            yield from (result for result in pool.map(run, queued) if result is not None)

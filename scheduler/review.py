"""A person's decision about an answer, entered where it counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.acts import enter_act
from scheduler.checkpoint import Checkpoint, Emit, hold
from scheduler.database import Connection
from scheduler.decision import SHORTEST_DIGEST, Dispatch, answer_digest, approve, reject, review_of, review_word
from scheduler.delivery import read_dispatches
from scheduler.due import Plan
from scheduler.errors import MaintenanceRefused, UsageRefused
from scheduler.ledger import Archive
from scheduler.roster import note as note_sighting
from scheduler.state import State, utc
from scheduler.transcript import Act

NO_ANSWER: Final = "job {job}: there is no answer to review; it is {status}, {attempts} of {most} attempts"
OTHER: Final = "job {job}: the answer is another one (SHA-256 {found}); read it before you decide: resumed show {job}"
GONE: Final = (
    "job {job}: the answer was given away ({words}), and a rejection cannot call it back; "
    "for another answer: resumed renew {job} --reason TEXT --confirm {job}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a person decided about the answer whose SHA-256 begins so, by whom and why."""

    approved: bool
    digest: str
    note: str
    who: str


def check_digest(text: str) -> str:
    """Return the beginning of a SHA-256 as a person gave it. Raises UsageRefused."""
    digest = text.strip().lower()
    if not SHORTEST_DIGEST <= len(digest) <= 64 or set(digest) - set("0123456789abcdef"):
        raise UsageRefused(message=f"--sha256 takes {SHORTEST_DIGEST} to 64 hexadecimal digits; show prints them")
    return digest


def check_answer(plan: Plan, state: State | None, digest: str = "") -> State:
    """Return the document whose answer is under review. Raises MaintenanceRefused where there is none, or another."""
    job = plan.job
    if state is None or state["answer"] is None:
        status, attempts = (state["status"], state["attempts"]) if state else ("not begun", 0)
        message = NO_ANSWER.format(job=job.id, status=status, attempts=attempts, most=job.max_attempts)
        raise MaintenanceRefused(message=message)
    found = answer_digest(state["answer"])
    if not found.startswith(digest):
        raise MaintenanceRefused(message=OTHER.format(job=job.id, found=found[:12]))
    return state


def decide(plan: Plan, decision: Decision, emit: Emit) -> str:
    """Enter a decision and say what follows; one that stands already is not entered again.

    Raises CheckpointBusy, and MaintenanceRefused where there is no such answer, or a rejected one was delivered.
    """
    with hold(plan.path) as held:
        state = check_answer(plan, held.load(emit), decision.digest)
        return _approve(held, state, decision) if decision.approved else _reject(held, plan, state, decision)


def _approve(held: Checkpoint, state: State, decision: Decision) -> str:
    review, now = review_of(state), time.time()
    if review and review["decision"] == "approved":
        return f"it was approved by {review['who']} on {review['when']}"
    approved = approve(state, note=decision.note, who=decision.who, when=utc(now))
    held.replace(approved, now, also=lambda tx: enter_act(tx, held.path.name, _act(decision, now)))
    return "approved"


def _reject(held: Checkpoint, plan: Plan, state: State, decision: Decision) -> str:
    now, most = time.time(), plan.job.max_attempts
    rejected = reject(state, note=decision.note, who=decision.who, when=utc(now), max_attempts=most)
    again = rejected["status"] == "ready"
    if not again and review_word(state) == "rejected":
        return "it is rejected, and no attempt is left"

    def also(tx: Connection) -> None:
        allowance = held.version.allowance if held.version else 1
        check_kept(plan, read_dispatches(tx, held.path.name, allowance, answer_digest(state["answer"] or "")))
        enter_act(tx, held.path.name, _act(decision, now))
        if again:
            note_sighting(tx, plan.sighting, int(now))

    archive = Archive(f"rejected: {decision.note}", decision.who) if again else None
    held.replace(rejected, now, archive=archive, also=also)
    if not again:
        return f'rejected; no attempt is left, and "resumed renew {plan.job.id}" opens a new allowance'
    return f"rejected; {most - state['attempts']} of {most} attempts are left, the first at its next point"


def check_kept(plan: Plan, dispatches: Sequence[Dispatch]) -> None:
    """Raise MaintenanceRefused where the answer has left by one of its deliveries, or may have."""
    gone = [dispatch for dispatch in dispatches if dispatch.result != "failed"]
    if gone:
        words = f"{gone[-1].result or 'begun'} to {gone[-1].target}, {utc(gone[-1].started_at)}"
        raise MaintenanceRefused(message=GONE.format(job=plan.job.id, words=words))


def _act(decision: Decision, now: float) -> Act:
    command = "review --approve" if decision.approved else "review --reject"
    detail = f"answer {decision.digest[:12]}"
    return Act(at=int(now), command=command, detail=detail, reason=decision.note, who=decision.who)

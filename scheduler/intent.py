"""What a command of the ways out is about to do, and what it costs; said before it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.decision import Dispatch, dispatch_words
from scheduler.due import Plan
from scheduler.errors import CheckpointUnknown, NotAFile
from scheduler.ledger import NAME, ledger_rows
from scheduler.reader import document_of, peek
from scheduler.standing import read_record

UNBLOCK: Final = "unblock: ends its rests; jobs that are due ask it again, and each of those requests counts as ever"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the ledger has a job: the number of its allowance, its attempts, its status (empty where it has none)."""

    allowance: int = 0
    attempts: int = 0
    status: str = ""


def standing_of(plan: Plan) -> Standing:
    """Read where a job stands, without a lock. Raises LedgerDamaged, LedgerForeign and the refusals of access."""
    path = plan.path
    with ledger_rows(path.parent) as tx:
        record = read_record(tx, path.with_name(NAME), path.name) if tx else None
    state = document_of(path, record)
    return Standing(record.version.allowance, state["attempts"], state["status"]) if record and state else Standing()


def foretell(command: str, plan: Plan) -> str:
    """Return what the command will do to a job, and how many requests may follow. Raises what `standing_of` does."""
    words = _needless(command, plan) or _WORDS[command](standing_of(plan), plan.job.max_attempts)
    return f"{command}: {words}{' (the demo model)' * plan.offline}"


def _needless(command: str, plan: Plan) -> str:
    """Say that there is nothing to repair or to adopt, or nothing."""
    if command not in ("repair", "adopt"):
        return ""
    try:
        found = peek(plan.path)
    except (CheckpointUnknown, NotAFile):
        return ""
    if command == "adopt":
        return "changes nothing, for there is no file that the ledger does not know"
    if found.record is None:
        return "changes nothing, for the job is not begun"
    return "" if found.behind else "changes nothing, for the checkpoint is as it was published"


def foretell_review(plan: Plan, dispatches: Sequence[Dispatch], *, approve: bool, again: bool) -> str:
    """Return what a decision will do, and how many requests may follow. Raises what `standing_of` does.

    `dispatches` are the deliveries of the answer so far; `again` asks for one more.
    """
    deliver, left = plan.job.deliver, plan.job.max_attempts - standing_of(plan).attempts
    if not approve:
        then = (
            f"tells the model why and asks it again: {_further(left)}"
            if left > 0
            else "no attempt is left to ask again"
        )
        return f"reject: {then}{' (the demo model)' * plan.offline}"
    if deliver is None:
        return "approve: marks the answer as approved; no request follows, and nothing is delivered"
    if plan.rehearsal:
        return "approve: marks the answer as approved; it is a rehearsal's, which is never delivered"
    if dispatches and not again:
        before = dispatch_words(dispatches[-1])
        return f"approve: marks the answer as approved; it was sent ({before}), and goes again only with --redeliver"
    return f"approve: the answer goes, {'once more' if dispatches else 'once'}, to {deliver.target}; no request follows"


def _further(number: int) -> str:
    return f"up to {max(0, number)} further request{'s' * (number != 1)}"


def _revise(standing: Standing, most: int) -> str:
    if standing.status in ("", "done", "exhausted"):
        return f"changes nothing, for the job is {standing.status or 'not begun'}"
    left = _further(most - standing.attempts)
    return f"sets the document aside and begins a new conversation with the attempts that are left: {left}"


_WORDS: Final[Mapping[str, Callable[[Standing, int], str]]] = {
    "repair": lambda standing, most: (
        "sets a file aside that is none of the ledger's, and puts the document at attempt "
        f"{standing.attempts} of {most} back; no attempt is won or lost"
    ),
    "adopt": lambda standing, most: (
        f"takes the file over with its attempts, at least {standing.attempts}: {_further(most - standing.attempts)}"
    ),
    "revise": _revise,
    "renew": lambda standing, most: (
        f"sets the document aside, opens allowance {standing.allowance + 1}: {_further(most)}"
    ),
}

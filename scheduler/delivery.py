"""Where an approved answer goes: each delivery is recorded before it starts, and none is ever begun twice by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scheduler.acts import enter_act
from scheduler.columns import read_row, read_rows
from scheduler.database import Connection
from scheduler.decision import Dispatch, answer_digest, dispatch_words, review_of, review_word
from scheduler.doubts import NO_EVIDENCE, plain_doubts
from scheduler.due import Plan
from scheduler.durable import publish, remove_leftovers, sync_folder
from scheduler.errors import MaintenanceRefused, ResumedError, TargetRefused
from scheduler.files import check_can_write, is_regular, translated
from scheduler.job import Delivery, Job, JobFile
from scheduler.ledger import NAME, archived_attempts, ledger_of
from scheduler.owed import Tell, as_refusal
from scheduler.owner import Owner, is_alive, this_process
from scheduler.patience import patiently
from scheduler.reader import document_of
from scheduler.standing import Record, read_record
from scheduler.state import State, same_task
from scheduler.text import storable
from scheduler.transcript import Act

SECONDS: Final = 60.0  # for a program
ENDED: Final = "it was cut off before it was recorded what came of it"
LEFT: Final = 3600.0  # no delivery to a file takes so many seconds
SLOW: Final = "killed after {seconds:g} s"
RUNS: Final = "it is being delivered right now (process {pid}); wait for its end"
UNREVIEWED: Final = "review: false"
# The deliveries of this process that have not ended: place, number and beginning of each.
_begun: Final[set[tuple[object, ...]]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A person's wish to deliver once more."""

    who: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parcel:
    """An answer that a row was entered for, which is now to be delivered."""

    place: tuple[str, int, str]
    number: int
    begun: int
    answer: str


def read_dispatches(tx: Connection, key: str, allowance: int, digest: str) -> list[Dispatch]:
    """Return the deliveries of one answer, oldest first."""
    rows = read_rows(
        tx,
        "SELECT number, target, who, started_at, result, detail, pid, start, boot FROM delivery"
        " WHERE checkpoint = ? AND allowance = ? AND answer_sha256 = ? ORDER BY number",
        (key, allowance, digest),
    )
    return [_dispatch((key, allowance, digest), row) for row in rows]


def _dispatch(place: tuple[str, int, str], row: tuple[Any, ...]) -> Dispatch:
    number, target, who, started_at, result, detail, *found = row
    closed, owner = result is not None, Owner(*found)
    left = owner == this_process() and (*place, number, started_at) not in _begun  # its end could not be saved
    if not closed and (left or not is_alive(owner)):
        result, detail = "unknown", ENDED
    return Dispatch(
        number=number,
        target=target,
        who=who,
        started_at=started_at,
        result=result,
        detail=detail,
        pid=owner.pid,
        closed=closed,
    )


def dispatches_of(tx: Connection, key: str, record: Record, state: State) -> list[Dispatch]:
    """Return the deliveries of the present answer; none where there is no answer."""
    if state["answer"] is None:
        return []
    return read_dispatches(tx, key, record.version.allowance, answer_digest(state["answer"]))


def may_deliver(tx: Connection, plan: Plan, record: Record, state: State) -> bool:
    """Tell whether an answer may go to where its job delivers: approved, or a file that asks for no review.

    An answer without evidence, of another task than the job's, or that this ledger never saw come (it was adopted, and
    may have been delivered before), waits for a person all the same.
    """
    deliver = plan.job.deliver
    if deliver is None or plan.rehearsal or state["answer"] is None:
        return False
    word = review_word(state)
    if word != "unreviewed" or deliver.review:
        return word == "approved"
    last = state["attempts"]
    seen = any(row.attempt == last and row.outcome == "answered" for row in record.admissions)
    seen = seen and last > archived_attempts(tx, plan.path.name, record.version.allowance)
    sound = NO_EVIDENCE not in plain_doubts(state, bool(plan.job.read))
    return seen and sound and same_task(state["task"], plan.job.task)


def delivery_words(tx: Connection, plan: Plan, record: Record, state: State, dispatches: Sequence[Dispatch]) -> str:
    """Say how the delivery of an answer stands; nothing where none is to come before a person has decided."""
    word, deliver = review_word(state), plan.job.deliver
    if dispatches:
        return dispatch_words(dispatches[-1])
    if deliver is None or word is None or word == "rejected":
        return ""
    if plan.rehearsal:
        return "never delivered: a rehearsal"
    if may_deliver(tx, plan, record, state):
        return "to be delivered"
    return "" if deliver.review else "not delivered without a review"


def owes_delivery(plan: Plan) -> bool:
    """Tell whether a done job has something to deliver, or a delivery whose process died untold."""
    deliver = plan.job.deliver
    if deliver is None or plan.rehearsal or not plan.job.enabled:
        return False
    key, ledger = plan.path.name, ledger_of(plan.path.parent)
    with ledger.reading() as tx:
        row = read_row(
            tx,
            "SELECT allowance, json_extract(CAST(body AS TEXT), '$.answer') AS answer,"
            " json_extract(CAST(body AS TEXT), '$.review.decision') AS decision FROM document WHERE checkpoint = ?",
            (key,),
        )
        if row is None or row[1] is None or (row[2] != "approved" and deliver.review):
            return False
        allowance, answer, _ = row
        if dispatches := read_dispatches(tx, key, allowance, answer_digest(answer)):
            return dispatches[-1].untold
        record = read_record(tx, ledger.path, key)
        state = document_of(plan.path, record)
        return record is not None and state is not None and may_deliver(tx, plan, record, state)


def deliver_answer(
    plan: Plan, job_file: JobFile, environ: Mapping[str, str], tell: Tell, again: Again | None = None
) -> Dispatch | None:
    """Deliver the answer of a done job if that is owed, or `again` if a person says so; return what came of it.

    Returns None where there was nothing to do. Whatever goes wrong in delivering is in the result and is told; raises
    only what reading and writing the ledger raise, and MaintenanceRefused while it is being delivered.
    """
    deliver = plan.job.deliver
    parcel = _claim(plan, again, tell)
    if deliver is None or parcel is None:
        return None
    try:
        result, detail = carry_out(plan.job, parcel.answer, job_file, environ)
        patiently(lambda wait: _finish(plan.path.parent, parcel.place, parcel.number, result, detail, wait))
    finally:
        _begun.discard((*parcel.place, parcel.number, parcel.begun))
    tell(plan.job.id, _event(result, deliver.target, detail))
    with ledger_of(plan.path.parent).reading() as tx:
        return read_dispatches(tx, *parcel.place)[-1]


def _claim(plan: Plan, again: Again | None, tell: Tell) -> _Parcel | None:
    """Enter the delivery that is to begin now; None where it has begun before, or may not begin."""
    key, ledger, deliver = plan.path.name, ledger_of(plan.path.parent), plan.job.deliver
    with ledger.writing() as tx:
        record = read_record(tx, ledger.path, key)
        state = document_of(plan.path, record)
        if deliver is None or record is None or state is None or state["answer"] is None:
            return None
        place = (key, record.version.allowance, answer_digest(state["answer"]))
        before = read_dispatches(tx, *place)
        untold = [dispatch for dispatch in before if dispatch.untold]
        for dispatch in untold:
            _close(tx, place, dispatch.number, "unknown", ENDED)
        if before and before[-1].result is None and again:
            raise MaintenanceRefused(message=f"job {plan.job.id}: {RUNS.format(pid=before[-1].pid)}")
        allowed = may_deliver(tx, plan, record, state) and (not before or again is not None)
        number, now = len(before) + 1, int(time.time())
        if allowed:
            review = review_of(state)
            who = again.who if again else review["who"] if review else UNREVIEWED
            owner = this_process()
            _begun.add((*place, number, now))
            row = (*place, number, storable(deliver.target), who, now, owner.pid, owner.start, owner.boot)
            tx.execute("INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, '', NULL)", row)
            if again:
                what = f"delivery {number} of the same answer"
                enter_act(tx, key, Act(at=now, command="review", detail=what, reason=again.note, who=again.who))
    for dispatch in untold:
        tell(plan.job.id, _event("unknown", dispatch.target, ENDED))
    return _Parcel(place=place, number=number, begun=now, answer=state["answer"]) if allowed else None


def _event(result: str, target: str, detail: str) -> dict[str, Any]:
    return {"event": "delivery", "result": result, "target": target, "detail": detail}


def _finish(folder: Path, place: tuple[str, int, str], number: int, result: str, detail: str, wait: float) -> None:
    with ledger_of(folder).writing(wait) as tx:
        _close(tx, place, number, result, detail)


def _close(tx: Connection, place: tuple[str, int, str], number: int, result: str, detail: str) -> None:
    tx.execute(
        "UPDATE delivery SET result = ?, detail = ?, ended_at = ?"
        " WHERE checkpoint = ? AND allowance = ? AND answer_sha256 = ? AND number = ?",
        (result, storable(detail), int(time.time()), *place, number),
    )


def carry_out(
    job: Job, answer: str, job_file: JobFile, environ: Mapping[str, str], seconds: float = SECONDS
) -> tuple[str, str]:
    """Deliver an answer now; return `delivered`, `failed` or `unknown`, and why."""
    from scheduler.child import guard, run_program  # which a tick that delivers nothing does without

    deliver = job.deliver or Delivery()
    try:
        if deliver.file:
            _put(deliver.file, answer.encode(), job, job_file, environ)
            return "delivered", ""
        ended = run_program(deliver.argv, answer.encode(), deliver.folder, guard(job_file, environ), seconds)
    except (ResumedError, OSError) as error:
        return "failed", str(error)
    except Exception as error:  # whatever it is, its row gets an end
        return "unknown", str(as_refusal(error))
    said = f": {ended.said}" if ended.said else ""
    if ended.code is None:
        return "unknown", SLOW.format(seconds=seconds) + said
    return ("failed", f"exit {ended.code}{said}") if ended.code else ("delivered", "")


def _put(path: Path, body: bytes, job: Job, job_file: JobFile, environ: Mapping[str, str]) -> None:
    """Write the answer durably in one step; an existing file keeps its mode, a new one is private."""
    check_target(job, job_file, environ)
    with translated(path):
        mode = path.stat().st_mode & 0o777 if is_regular(path) else 0o600
    remove_leftovers(path, LEFT)
    publish(path, body, mode)
    with translated(path):
        sync_folder(path.parent)


def check_target(job: Job, job_file: JobFile, environ: Mapping[str, str]) -> None:
    """Raise TargetRefused, and the refusals of access, where a job's answer could not be delivered; write nothing."""
    deliver = job.deliver
    if deliver is None:
        return
    if deliver.file is None:
        from scheduler.child import find_program, guard

        if find_program(deliver.argv[0], deliver.folder, guard(job_file, environ).environ) is None:
            where = f"not found in PATH nor from {deliver.folder}, or may not be run"
            raise TargetRefused(key="deliver", reason=f"{deliver.argv[0]}: this program is {where}")
        return
    path = deliver.file
    if not path.parent.is_dir():
        raise TargetRefused(key="deliver", reason=f"{path}: its folder does not exist; make it, or name another")
    if _is_ours(path, (*job_file.private, job_file.path, Path(environ.get("CREDENTIALS_DIRECTORY") or os.devnull))):
        raise TargetRefused(key="deliver", reason=f"{path}: this program keeps its own files there; name another place")
    with translated(path):
        is_regular(path)
    check_can_write(path.parent)


def _is_ours(path: Path, private: Sequence[Path]) -> bool:
    """Tell whether a file is one of these, lies in one of these folders, or has a ledger's name."""
    folder = Path(os.path.realpath(path.parent))
    own = {Path(os.path.realpath(place)) for place in private}
    return bool(own & {folder, folder / path.name}) or path.name.startswith(NAME)

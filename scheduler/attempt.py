"""One attempt: count it, ask once, run the read-only tools of that reply, save what came of it."""

from __future__ import annotations

import secrets
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from scheduler.calls import answer_calls, reply_bytes
from scheduler.checkpoint import Checkpoint, Emit, check_size, document_size
from scheduler.conversation import Built, Frame, build_request
from scheduler.document import InvalidDocument
from scheduler.errors import AskFailed, ModelChanged, TaskChanged
from scheduler.judgement import judge, read_usage
from scheduler.ledger import Claim
from scheduler.rests import Cause, Verdict
from scheduler.state import (
    MAX_STEPS,
    OUTCOMES,
    PROGRESS,
    Billed,
    Evidence,
    Outcome,
    Sent,
    State,
    is_final,
    new_state,
    plain_task,
    same_task,
    settle,
    utc,
)
from scheduler.text import first_difference, plain_line, well_formed
from scheduler.tools import Tool

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one slice is asked to do: the task and model, on whose behalf, with which tools and limits.

    `point` is in UTC seconds, `deadline` the most seconds that the ask can take, `options` are further fields of the
    request. An `idempotent` order gives the ask an `idempotency_key` of its attempt beside them.
    """

    task: str
    model: str
    tools: Sequence[Tool]
    job: str = "JOB"
    provider: str = ""
    live: bool = False
    point: int | None = None
    deadline: float = 0
    max_attempts: int = MAX_STEPS
    options: Mapping[str, Any] = field(default_factory=dict)
    last_attempt: str = "none"
    context_tokens: int | None = None
    replay_fields: str = "keep"
    idempotent: bool = False
    files: Sequence[tuple[str, int]] = ()
    unlisted: int = 0
    requests_per_day: int | None = None
    mark: bytes = b""


def accept(stored: State | None, order: Order) -> State:
    """Return the state that this task and model go on from. Raises TaskChanged, ModelChanged."""
    if stored is None or not (stored["attempts"] or stored["conversation"]):
        return new_state(order.task, order.model)
    if not same_task(stored["task"], order.task):
        raise TaskChanged(
            job=order.job, difference=first_difference(plain_task(stored["task"]), plain_task(order.task))
        )
    if stored["model"] != order.model:
        raise ModelChanged(job=order.job, saved=stored["model"], current=order.model)
    return stored


def run_slice(held: Checkpoint, state: State, order: Order, ask: Ask, emit: Emit) -> None:
    """Take a loaded state through one slice, in place: every change of it is durable before it is made here.

    A final state is left alone. Whatever `ask` raises is raised again once it is recorded.
    """
    state.update(held.recover(state, order.max_attempts, time.time(), emit))
    if is_final(state):
        return
    check_size(held.size(state))
    built = _build(state, order)
    request, sent = built.request, built.sent
    with held.room(state):
        state.update(held.admit(state, _claim(order), sent, order.max_attempts, time.time()))
        if order.idempotent:
            request["idempotency_key"] = _idempotency_key(held, state)
        failure: BaseException | None = None
        try:
            emit(_admitted_event(state, order, sent))
            reply: object = ask(request)
        except BaseException as error:
            failure, reply = error, None
    told: list[dict[str, Any]] = []
    settled = _failed(state, order, failure) if failure else _replied(state, order, built, reply, told.append)
    state.update(_save(held, state, settled, order, failure))
    for event in told:  # only now: an emit that fails must not cost the reply
        emit(event)
    emit(_settled_event(state, order))
    if failure:
        raise failure


def next_request(state: State, order: Order) -> Built:
    """Build the request of a state's next attempt. Raises RequestRefused where it or the document is too large."""
    check_size(document_size(state))
    return _build(state, order)


def _build(state: State, order: Order) -> Built:
    frame = Frame(
        tools=[
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in order.tools
        ],
        files=order.files,
        unlisted=order.unlisted,
        max_attempts=order.max_attempts,
        options=order.options,
        last_attempt=order.last_attempt,
        context_tokens=order.context_tokens,
        replay_fields=order.replay_fields,
    )
    return build_request(state, state["attempts"] + 1, frame)


def _idempotency_key(held: Checkpoint, state: State) -> str:
    """Name this attempt: checkpoint, allowance, number, and a part by chance, for another folder may have the same."""
    entry, allowance = state["history"][-1], held.version.allowance if held.version else 1
    return f"{urllib.parse.quote(held.path.name)[:100]}-{allowance}-{entry['number']}-{secrets.token_hex(8)}"


def _claim(order: Order) -> Claim:
    return Claim(
        job=order.job,
        provider=order.provider,
        model=order.model,
        task=order.task,
        live=order.live,
        point=order.point,
        deadline=order.deadline,
        requests_per_day=order.requests_per_day,
        mark=order.mark,
    )


def _failed(state: State, order: Order, failure: BaseException) -> State:
    outcome, reason, billed = describe_failure(failure)
    usage = read_usage(failure.usage) if isinstance(failure, AskFailed) else None
    return settle(
        state,
        outcome,
        finished=utc(time.time()),
        max_attempts=order.max_attempts,
        reason=reason,
        billed="yes" if usage else billed,
        usage=usage,
    )


def describe_failure(failure: BaseException) -> tuple[Outcome, str, Billed]:
    """Return outcome, reason and billing of an exception that `ask` raised."""
    if isinstance(failure, AskFailed) and failure.outcome in OUTCOMES:
        return cast(Outcome, failure.outcome), plain_line(failure.reason), cast(Billed, failure.billed)
    said = str(failure)
    reason = plain_line(f"{type(failure).__name__}: {said}" if said else type(failure).__name__)
    if isinstance(failure, TimeoutError):
        return "timeout", reason, "maybe"
    return ("error" if isinstance(failure, Exception) else "interrupted"), reason, "maybe"


def _replied(state: State, order: Order, built: Built, reply: object, emit: Emit) -> State:
    judgement = judge(reply, state, order.max_attempts, built.parts)
    room = reply_bytes(built.room)
    messages, evidence = [judgement.message] if judgement.message else [], list[Evidence]()
    if judgement.message and judgement.calls:
        messages, evidence = answer_calls(judgement.message, judgement.calls, order.tools, state, room, emit)
    known = reply if isinstance(reply, Mapping) else {}
    usage = read_usage(known.get("usage"))
    return settle(
        state,
        judgement.outcome,
        finished=utc(time.time()),
        max_attempts=order.max_attempts,
        reason=plain_line(judgement.reason) if judgement.reason else None,
        billed="yes" if usage else "no" if known.get("billed") == "no" else "maybe",
        finish_reason=_short(known.get("finish_reason")),
        request_id=_short(known.get("id")),
        usage=usage,
        messages=messages,
        evidence=evidence,
        answer=judgement.answer,
    )


def _short(value: object) -> str | None:
    return well_formed(value)[:200] if isinstance(value, str) else None


def _save(held: Checkpoint, state: State, settled: State, order: Order, failure: BaseException | None) -> State:
    try:
        held.save(settled, time.time(), _verdict(order, settled, failure) if order.live else None)
    except InvalidDocument as error:
        # A callable of the user may return what no document can hold; the attempt is spent all the same.
        last = settled["history"][-1]
        settled = settle(
            state,
            "malformed_reply",
            finished=utc(time.time()),
            max_attempts=order.max_attempts,
            reason=plain_line(f"the reply cannot be stored: {error}"),
            billed=last["billed"],
            usage=last["usage"],
        )
        held.save(settled, time.time(), _verdict(order, settled, failure) if order.live else None)
    return settled


def _verdict(order: Order, settled: State, failure: BaseException | None) -> Verdict:
    known = failure if isinstance(failure, AskFailed) else None
    answered = settled["history"][-1]["outcome"] in PROGRESS
    cause = "answered" if answered else known.rests if known else "none"
    return Verdict(
        provider=order.provider,
        model=order.model,
        cause=cast(Cause, cause),
        reason=settled["history"][-1]["reason"] or "",
        mark=order.mark,
        retry_after=known.retry_after if known else None,
    )


def _admitted_event(state: State, order: Order, sent: Sent) -> dict[str, Any]:
    return {
        "event": "admitted",
        "attempt": state["attempts"],
        "of": order.max_attempts,
        "point": order.point,
        "cut": len(sent["cut"]),
    }


def _settled_event(state: State, order: Order) -> dict[str, Any]:
    last = state["history"][-1]
    return {
        "event": "settled",
        "attempt": last["number"],
        "of": order.max_attempts,
        "outcome": last["outcome"],
        "reason": last["reason"],
        "status": state["status"],
        "answer": state["answer"],
    }

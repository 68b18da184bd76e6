"""The checkpoint document: its shape and its legal moves. Pure.

A `State` is a plain dict. A move takes one and returns a new one; nothing else changes attempts or status.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NotRequired, get_args

from pydantic import ConfigDict, Discriminator, Field, PlainValidator, TypeAdapter, with_config
from typing_extensions import TypedDict

FORMAT: Final = 1
MAX_STEPS = 4

Status = Literal["ready", "done", "exhausted"]
Billed = Literal["yes", "no", "maybe"]
Outcome = Literal[
    "answered",
    "tool_calls",
    "length",
    "filtered",
    "empty",
    "malformed_reply",
    "context_too_long",
    "rate_limited",
    "refused",
    "http_error",
    "timeout",
    "connect_error",
    "interrupted",
    "error",
]
OUTCOMES: frozenset[str] = frozenset(get_args(Outcome))
PROGRESS: frozenset[str] = frozenset({"answered", "tool_calls", "length"})

STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=0)]
Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


@with_config(STRICT)
class Function(TypedDict):
    """What a tool call names; `arguments` is a JSON text."""

    name: str
    arguments: str


@with_config(ConfigDict(extra="allow", strict=True))
class ToolCall(TypedDict):
    """One call that the model asks for; fields of its provider are kept as they came."""

    id: str
    type: Literal["function"]
    function: Function


@with_config(STRICT)
class UserMessage(TypedDict):
    """A turn of the user."""

    role: Literal["user"]
    content: str


@with_config(ConfigDict(extra="allow", strict=True))
class AssistantMessage(TypedDict):
    """A turn of the model; fields of its provider (such as reasoning_content) are kept as they came."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: NotRequired[list[ToolCall]]


@with_config(STRICT)
class ToolMessage(TypedDict):
    """The result of one tool call."""

    role: Literal["tool"]
    tool_call_id: str
    content: str


@functools.cache  # built when it is first needed, for that takes a while
def _message() -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[UserMessage | AssistantMessage | ToolMessage, Discriminator("role")])


Message = Annotated[dict[str, Any], PlainValidator(lambda value: _message().validate_python(value))]


@with_config(STRICT)
class Usage(TypedDict):
    """The tokens that the provider says it used."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count


@with_config(STRICT)
class Evidence(TypedDict):
    """Lines of a file that the model was shown; both ends count from 1 and belong to the range."""

    file: str
    first: Count
    last: Count


@with_config(STRICT)
class Sent(TypedDict):
    """How large a request was, in estimated tokens, for which model and window, and a phrase on each thing cut."""

    tokens: Count
    model: str
    window: Count | None
    cut: list[str]


@with_config(STRICT)
class Attempt(TypedDict):
    """One counted request; `outcome` and `finished` are None while it is in flight. Times are UTC.

    `request` is missing where nothing is known of it.
    """

    number: Annotated[int, Field(ge=1, le=MAX_STEPS)]
    point: Time | None
    started: Time
    finished: Time | None
    outcome: Outcome | None
    reason: str | None
    finish_reason: str | None
    request_id: str | None
    usage: Usage | None
    billed: Billed
    evidence: list[Evidence]
    request: NotRequired[Sent]


@with_config(STRICT)
class Review(TypedDict):
    """What a person decided about the answer with this SHA-256."""

    decision: Literal["approved", "rejected"]
    note: str
    who: str
    when: Time
    answer_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@with_config(STRICT)
class State(TypedDict):
    """The whole document."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    task: str
    model: str
    conversation: list[Message]
    attempts: Annotated[int, Field(ge=0, le=MAX_STEPS)]
    status: Status
    answer: str | None
    history: list[Attempt]
    review: Review | None


def new_state(task: str, model: str) -> State:
    """Return the document of a job that has not been asked yet."""
    return State(
        format=FORMAT,
        task=task,
        model=model,
        conversation=[],
        attempts=0,
        status="ready",
        answer=None,
        history=[],
        review=None,
    )


def same_task(one: str, other: str) -> bool:
    """Compare two tasks without regard to line-end style and blanks at the end."""
    return plain_task(one) == plain_task(other)


def plain_task(task: str) -> str:
    """Return the part of a task that counts: without the style of its line ends and blanks at the end."""
    return task.replace("\r\n", "\n").replace("\r", "\n").rstrip()


def is_final(state: State) -> bool:
    """Tell whether no further request may be sent in this allowance."""
    return state["status"] != "ready"


def admit(state: State, number: int, *, point: str | None, started: str, sent: Sent | None = None) -> State:
    """Count attempt `number`, which is one more than the document's. Raises ValueError on any other move."""
    if is_final(state) or is_open(state) or number != state["attempts"] + 1 or number > MAX_STEPS:
        raise ValueError(f"attempt {number} cannot follow {state['attempts']} ({state['status']})")
    counted = state.copy()
    counted["attempts"] = number
    entry = open_attempt(number, point=point, started=started)
    if sent is not None:
        entry["request"] = sent
    counted["history"] = [*state["history"], entry]
    return counted


def open_attempt(number: int, *, point: str | None, started: str) -> Attempt:
    """Return the entry of an attempt that is in flight."""
    return Attempt(
        number=number,
        point=point,
        started=started,
        finished=None,
        outcome=None,
        reason=None,
        finish_reason=None,
        request_id=None,
        usage=None,
        billed="maybe",
        evidence=[],
    )


def settle(
    state: State,
    outcome: Outcome,
    *,
    finished: str,
    max_attempts: int,
    reason: str | None = None,
    billed: Billed = "maybe",
    finish_reason: str | None = None,
    request_id: str | None = None,
    usage: Usage | None = None,
    messages: Iterable[Message] = (),
    evidence: Iterable[Evidence] = (),
    answer: str | None = None,
) -> State:
    """End the open attempt: its outcome, what joins the conversation, and the status that follows.

    Raises ValueError where no attempt is open, and where an answer and the outcome `answered` do not come together.
    """
    if not state["history"] or state["history"][-1]["outcome"] is not None:
        raise ValueError("no attempt is open")
    if (answer is not None) != (outcome == "answered"):
        raise ValueError(f"outcome {outcome} {'without' if answer is None else 'with'} an answer")
    entry = state["history"][-1].copy()
    entry["finished"] = finished
    entry["outcome"] = outcome
    entry["reason"] = reason
    entry["billed"] = billed
    entry["finish_reason"] = finish_reason
    entry["request_id"] = request_id
    entry["usage"] = usage
    entry["evidence"] = list(evidence)
    settled = state.copy()
    settled["history"] = [*state["history"][:-1], entry]
    settled["conversation"] = [*state["conversation"], *messages]
    settled["answer"] = answer
    settled["status"] = "done" if outcome == "answered" else state["status"]
    settled["review"] = None if answer is not None else state["review"]  # it was of an earlier answer
    return close(settled, max_attempts)


def close(state: State, max_attempts: int) -> State:
    """Make a ready document whose attempts are spent exhausted; return any other as it is."""
    if state["status"] != "ready" or state["attempts"] < min(max_attempts, MAX_STEPS) or is_open(state):
        return state
    closed = state.copy()
    closed["status"] = "exhausted"
    return closed


def raise_attempts(state: State, attempts: int, now: str) -> State:
    """Count attempts that another record knows of; they are entered as interrupted, for nothing more is known."""
    more = (open_attempt(number, point=None, started=now) for number in range(state["attempts"] + 1, attempts + 1))
    raised = state.copy()
    raised["history"] = [entry.copy() for entry in (*state["history"], *more)]
    for entry in raised["history"]:
        if entry["outcome"] is None:
            entry.update({"outcome": "interrupted", "finished": now, "reason": "counted elsewhere, outcome unknown"})
    raised["attempts"] = len(raised["history"])
    return raised


def is_open(state: State) -> bool:
    """Tell whether the last attempt has no outcome yet."""
    return bool(state["history"]) and state["history"][-1]["outcome"] is None


def utc(seconds: float) -> str:
    """Return a moment, given in UTC seconds, as the document writes it."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

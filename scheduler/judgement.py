"""What a reply amounts to: the answer, tool calls, a part, or nothing of use. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from scheduler.document import MAX_DEPTH
from scheduler.state import Message, Outcome, State, Usage
from scheduler.text import well_formed
from scheduler.turns import free_id, json_object

MOST_CALLS = 32
MOST_ARGUMENTS = 8 * 1024
MOST_TEXT = 4 * 1024 * 1024
MOST_TOKENS = 2**53
UNKEPT_OF_CALLS = frozenset({"id", "type", "function", "index", "custom"})
UNKEPT = frozenset({"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio"})

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_BLANK_LETTERS = "\u2800\u3164\uffa0\u115f\u1160"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the model made it; `arguments` may be anything, `own` are further fields of its provider."""

    id: str
    name: str
    arguments: str
    own: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a reply amounts to. `message` joins the conversation, `answer` is the whole text where it is final."""

    outcome: Outcome
    reason: str | None = None
    message: Message | None = None
    calls: Sequence[Call] = ()
    answer: str | None = None


def judge(reply: object, state: State, max_attempts: int, parts: Sequence[str] = ()) -> Judgement:
    """Say whether a reply is the answer, asks for tools, was cut, or is of no use.

    A reply is final when it has text, no tool calls, and a finish reason other than length, content_filter and
    tool_calls; an unknown finish reason is final too. `parts` are what it goes on from, where replies were cut.
    """
    message = reply.get("message") if isinstance(reply, Mapping) else None
    if not isinstance(reply, Mapping) or not isinstance(message, Mapping):
        return Judgement(outcome="malformed_reply", reason="the reply holds no message")
    content, wanted, finish = message.get("content"), message.get("tool_calls") or [], reply.get("finish_reason")
    if not isinstance(content, str | None) or not isinstance(wanted, list):
        return Judgement(outcome="malformed_reply", reason="the message's content or tool calls have an unknown shape")
    if len(content or "") > MOST_TEXT:
        return Judgement(outcome="malformed_reply", reason=f"the answer is longer than {MOST_TEXT} characters")
    text = well_formed(content or "")
    if finish == "content_filter" or (message.get("refusal") and not text.strip()):
        return Judgement(outcome="filtered", reason=_refusal(message))
    if wanted:
        return _judge_calls(message, text, wanted, state, max_attempts)
    # A reply that was cut may have been so in its thoughts, and the next one may end them.
    if _is_blank(text if finish == "length" else _THOUGHTS.sub("", "".join([*parts, text]))):
        cut = " before any text" if finish == "length" else ""
        return Judgement(outcome="empty", reason=f"the reply is blank (finish reason {finish or 'none'}){cut}")
    if finish == "tool_calls":
        return Judgement(outcome="malformed_reply", reason="the finish reason is tool_calls, and there are none")
    if finish == "length":
        kept = {"role": "assistant", "content": text}
        return Judgement(outcome="length", reason="the reply was cut at its length limit", message=kept)
    answer = "".join([*parts, text])
    return Judgement(outcome="answered", message={"role": "assistant", "content": text}, answer=answer)


def _refusal(message: Mapping[str, Any]) -> str:
    refusal = message.get("refusal")
    return f"the provider filtered the reply{f': {refusal}' if isinstance(refusal, str) else ''}"


def _judge_calls(
    message: Mapping[str, Any], text: str, wanted: list[Any], state: State, max_attempts: int
) -> Judgement:
    if state["attempts"] >= max_attempts:
        return Judgement(outcome="tool_calls", reason="the model asked for a tool in its last request")
    if len(wanted) > MOST_CALLS:
        return Judgement(outcome="malformed_reply", reason=f"{len(wanted)} tool calls, and {MOST_CALLS} are the most")
    calls = _read_calls(wanted)
    kept: Message = {name: value for name, value in message.items() if name not in UNKEPT and _keepable({name: value})}
    kept |= {"role": "assistant", "content": text or None, "tool_calls": [_stored_call(call) for call in calls]}
    return Judgement(outcome="tool_calls", message=kept, calls=calls)


def _read_calls(wanted: list[Any]) -> list[Call]:
    """Read the calls of one reply; an id that is missing or stands twice gets one of ours."""
    calls: list[Call] = []
    for index, entry in enumerate(wanted, 1):
        entry = entry if isinstance(entry, Mapping) else {}
        function = entry.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, call_id = (
            well_formed(text) if isinstance(text, str) else "" for text in (function.get("name"), entry.get("id"))
        )
        call_id = free_id(call_id, {call.id for call in calls}, index)
        own = {name: value for name, value in entry.items() if name not in UNKEPT_OF_CALLS and _keepable({name: value})}
        calls.append(Call(call_id, name, _arguments(function.get("arguments")), own))
    return calls


def _arguments(value: object) -> str:
    """Return arguments as text; for a value that JSON cannot say, a text that is no JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value).__name__)


def _stored_call(call: Call) -> dict[str, Any]:
    # The error result tells the model what was wrong with others.
    arguments = json_object(well_formed(call.arguments)) if len(call.arguments) <= MOST_ARGUMENTS else "{}"
    return {**call.own, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _keepable(value: Mapping[str, Any]) -> bool:
    """Tell whether a provider's own field, with its name, can be stored as it is."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return False
    shallow = text.count("[") + text.count("{") < MAX_DEPTH - 8
    return shallow and None not in value.values() and json.loads(text) == value


def _is_blank(text: str) -> bool:
    """Tell whether a text is blanks and invisible characters alone."""
    return not any(letter.isprintable() and not letter.isspace() and letter not in _BLANK_LETTERS for letter in text)


def read_usage(value: object) -> Usage | None:
    """Return the tokens that a reply says it used; anything odd makes it unknown, never 0."""
    if not isinstance(value, Mapping):
        return None
    prompt, completion, total = (value.get(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if not _is_count(prompt) or not _is_count(completion):
        return None
    total = prompt + completion if total is None else total
    if not _is_count(total):
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MOST_TOKENS

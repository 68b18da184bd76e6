"""How the tool calls of a reply are answered, whatever the model sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.conversation import BYTES_PER_TOKEN
from scheduler.judgement import MOST_ARGUMENTS, Call
from scheduler.sources import Unreadable
from scheduler.state import Evidence, Message, State
from scheduler.tools import RESULT_BYTES, Reading, Tool, ToolFailed
from scheduler.turns import ERROR, frame, recent_calls, tool_message

REPLY_BYTES: Final = 256 * 1024
ERROR_CHARS: Final = 2_000
TOO_MUCH: Final = (
    ERROR + "not shown, for one reply's calls and results have {limit} bytes together. Ask for less at once."
)
LEFT_OUT: Final = "\n[{count} more calls of this reply are left out, for lack of room.]"
AGAIN: Final = "[Already read by an earlier call with the same arguments; this is its result again.]"
_LEFT_OUT: Final = re.compile(re.escape(LEFT_OUT).replace(r"\{count\}", r"\d+") + r"\Z")
TWICE: Final = "[The same call as one before it in this reply; its result stands there.]"


def result_bytes(context_tokens: int | None) -> int:
    """Return the most bytes of one tool result in a context of so many tokens: four of them fill half of it."""
    return RESULT_BYTES if context_tokens is None else min(RESULT_BYTES, context_tokens * BYTES_PER_TOKEN // 8)


def reply_bytes(tokens: float) -> int:
    """Return the most bytes that one reply's calls and their results may take of so many tokens."""
    return max(0, int(min(REPLY_BYTES, tokens * BYTES_PER_TOKEN)))


@dataclass(frozen=True)
class Called:
    """The result of one call; an error (`ok` false) is a result as well."""

    text: str
    evidence: tuple[Evidence, ...]
    ok: bool


def answer_calls(
    message: Message,
    calls: Sequence[Call],
    tools: Sequence[Tool],
    state: State,
    room: int,
    emit: Callable[[dict[str, Any]], object],
) -> tuple[list[Message], list[Evidence]]:
    """Answer every call of a reply, in its order: by an earlier result, by a tool, or by an error result.

    Returns the turn, of at most `room` bytes of JSON as a request states it, and the lines that were read; tells each
    call as an event. Calls for which there is no room at all are left out of the turn, and the last result says so.
    """
    known, here = _known_results(state), set[tuple[str, str]]()
    kept: list[dict[str, Any]] = []
    results: list[Message] = []
    evidence: list[Evidence] = []
    left = room - _bytes({**message, "tool_calls": []}) - len(LEFT_OUT) - 10
    for call, stored in zip(calls, message["tool_calls"], strict=True):
        identity = _identity(call.name, call.arguments)
        if identity in here:
            called = Called(TWICE, (), ok=True)
        elif identity in known:
            called = Called(f"{AGAIN}\n{known[identity]}", (), ok=True)
        else:
            called = call_tool(tools, call.name, call.arguments)
        cost = _cost(stored, called)
        if cost > left:
            called = Called(TOO_MUCH.format(limit=max(0, room)), (), ok=False)
            cost = _cost(stored, called)
        if cost > left:
            stored = _without_arguments(stored)
            cost = _cost(stored, called)
        if cost > left and results:
            results[-1]["content"] += LEFT_OUT.format(count=len(calls) - len(results))
            break
        if cost > left:
            stored = {name: stored[name] for name in ("id", "type", "function")}
            cost = _cost(stored, called)
        left -= cost
        if called.ok:
            here.add(identity)
        kept.append(stored)
        results.append(tool_message(call.id, called.text))
        evidence.extend(called.evidence)
        emit({"event": "tool_result", "name": call.name, "arguments": call.arguments, "ok": called.ok})
    return [{**message, "tool_calls": kept}, *results], evidence


def _without_arguments(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {**stored, "function": {"name": stored["function"]["name"], "arguments": "{}"}}


def _cost(stored: Mapping[str, Any], called: Called) -> int:
    name = stored["function"]["name"]
    return _bytes(stored) + _bytes(tool_message(stored["id"], frame(name, called.text)))


def _bytes(value: Mapping[str, Any]) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode()) + 2


def _known_results(state: State) -> dict[tuple[str, str], str]:
    """Return what each call of these attempts gave first, errors and notes of ours left out.

    What stands in the conversation from before them, of an earlier allowance or of another program, may have changed.
    """
    known: dict[tuple[str, str], str] = {}
    for turn in recent_calls(state):
        for result in turn.results:
            if not result.failed and result.text != TWICE:
                text = _LEFT_OUT.sub("", result.text)
                known.setdefault(_identity(result.name, result.arguments), text)
    return known


def _identity(name: str, arguments: str) -> tuple[str, str]:
    """Name a call such that the order of its arguments and the blanks between them do not count."""
    try:
        return name, json.dumps(json.loads(arguments.strip() or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments


def call_tool(tools: Sequence[Tool], name: str, arguments: str) -> Called:
    """Run one call as the model sent it; whatever goes wrong becomes an error result of one line, never raised."""
    try:
        tool = next((tool for tool in tools if tool.name == name), None)
        if tool is None:
            raise ToolFailed(f"There is no tool {name[:100]!r}.{_offer(tools)}")
        result = tool.call(_arguments(tool, arguments, tools))
        reading = result if isinstance(result, Reading) else Reading(result, ())
        return Called(_capped(reading.text), reading.evidence, ok=True)
    except (ToolFailed, Unreadable) as error:
        reason = " ".join(str(error).split())[:ERROR_CHARS]
    except Exception as error:  # its text could hold a secret or a path of this machine
        reason = f"The tool failed ({type(error).__name__})."
    return Called(_capped(f"{ERROR}{reason}"), (), ok=False)


def _offer(tools: Sequence[Tool]) -> str:
    return f" The tools are: {', '.join(tool.name for tool in tools) or 'none'}."


def _capped(text: str) -> str:
    body = text.encode("utf-8", "replace")
    if len(body) <= RESULT_BYTES:
        return body.decode()
    kept = body[: RESULT_BYTES - 100]
    kept = kept[: kept.rfind(b"\n") + 1] or kept
    return f"{kept.decode('utf-8', 'ignore')}\n[cut here: {len(kept)} of {len(body)} bytes are shown]"


def _arguments(tool: Tool, text: str, tools: Sequence[Tool]) -> dict[str, Any]:
    """Read the arguments of a call; blank text means none, and so does null for an optional one."""
    properties, required = tool.parameters.get("properties", {}), tool.parameters.get("required", ())
    takes = ", ".join(f"{name}{'' if name in required else ' (optional)'}" for name in properties) or "no arguments"
    if len(text) > MOST_ARGUMENTS:
        fault = f"The arguments are longer than {MOST_ARGUMENTS} characters"
        raise ToolFailed(f"{fault}. {tool.name} takes {takes}.{_offer(tools)}")
    try:
        sent = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise ToolFailed(f"The arguments are not a JSON object. {tool.name} takes {takes}.{_offer(tools)}")
    given = {name: value for name, value in sent.items() if value is not None or name in required}
    faults = [f"{name} is missing" for name in required if name not in given]
    for name, value in given.items():
        if name in properties:
            faults += [f"{name} {fault}" for fault in _faults(value, properties[name])]
        elif tool.parameters.get("additionalProperties") is not True:
            faults.append(f"{name[:50]!r} is unknown")
    if faults:
        raise ToolFailed(f"{'; '.join(faults)}. {tool.name} takes {takes}.{_offer(tools)}")
    return given


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def _faults(value: object, schema: Mapping[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            yield f"must be of type {kind}"
        elif isinstance(value, int | float) and value < schema.get("minimum", value):
            yield f"must be at least {schema['minimum']}"

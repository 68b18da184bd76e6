"""An outside judge of request bodies: what is wrong with one, by the rules of the API and by the types of `openai`."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any


def faults(body: object, beyond: Collection[str] = ()) -> list[str]:
    """Say what is wrong with the body of a request for one chat completion; nothing where it is right.

    `beyond` are the fields of the body that only its provider knows.
    """
    return structure_faults(body) or type_faults(body, beyond)


def structure_faults(body: object) -> list[str]:
    """Check what no type says: one system message, the task, each call answered at once; needs no `openai`."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return ["the body is no object with a list of messages"]
    messages: list[Any] = body["messages"]
    found = [
        f"message {index} is no object with a role"
        for index, message in enumerate(messages)
        if not isinstance(message, dict) or not isinstance(message.get("role"), str)
    ]
    return found or [*_field_faults(body), *(list(_opening_faults(messages)) or _turn_faults(messages))]


def _field_faults(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("stream") is not False:
        yield f"stream is {body.get('stream')!r}, not false"
    if "tools" in body and not body["tools"]:
        yield "tools is there and empty"
    if "tool_choice" in body and "tools" not in body:
        yield "tool_choice is there without tools"


def _opening_faults(messages: list[dict[str, Any]]) -> Iterator[str]:
    roles = [message["role"] for message in messages[:2]]
    if roles != ["system", "user"]:
        yield f"the first two messages are {roles}, not the system's and the user's task"
    for index, message in enumerate(messages):
        content = message.get("content")
        if message["role"] != "assistant" and not isinstance(content, str):
            yield f"message {index} ({message['role']}): its content is {type(content).__name__}, not text"
        elif index < 2 and not str(content).strip():
            yield f"message {index} ({message['role']}): its content is blank"


def _turn_faults(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Follow the conversation after its opening: each call with its result, and no result without a call."""
    answered = 2  # where the results of the last calls end
    for index, message in enumerate(messages[2:], 2):
        if message["role"] == "tool":
            if index >= answered:
                yield f"message {index}: a tool's result that no call right before it asked for"
        elif message["role"] == "assistant" and "tool_calls" in message:
            results = list(itertools.takewhile(lambda later: later["role"] == "tool", messages[index + 1 :]))
            yield from (f"message {index}: {fault}" for fault in _call_faults(message["tool_calls"], results))
            answered = index + 1 + len(results)
        elif message["role"] == "assistant":
            if not isinstance(message.get("content"), str) or not message["content"].strip():
                yield f"message {index}: the assistant says nothing and calls nothing"
        elif message["role"] != "user":
            yield f"message {index}: the role {message['role']!r} has no place here"


def _call_faults(calls: object, results: list[dict[str, Any]]) -> Iterator[str]:
    if not isinstance(calls, list) or not calls or not all(isinstance(call, dict) for call in calls):
        yield "tool_calls is no list of calls"
        return
    asked = [call.get("id") for call in calls]
    answered = [result.get("tool_call_id") for result in results]
    if not all(isinstance(call_id, str) and call_id.strip() for call_id in asked):
        yield f"the ids {asked} are not all texts"
    elif len(set(asked)) < len(asked):
        yield f"the ids {asked} are not unique"
    elif sorted(asked) != sorted(map(str, answered)):
        yield f"the calls {asked} are followed by the results {answered}"
    for call in calls:
        function = call.get("function")
        if not isinstance(function, dict) or not _is_object(function.get("arguments")):
            yield f"the arguments of call {call.get('id')!r} are no text of a JSON object"


def _is_object(text: object) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


# ---- the types of `openai`


def type_faults(body: object, beyond: Collection[str] = ()) -> list[str]:
    """Check a body against the types that `openai` gives its own users: shapes strictly, and no unknown field."""
    from pydantic import ValidationError

    try:
        known = _settled(types().validate_python(body, strict=True))
    except ValidationError as error:
        closest = max(error.errors(), key=lambda each: len(each["loc"]))  # of a union, the member that fits most
        return [f"{'.'.join(map(str, closest['loc']))}: {closest['msg']}"]
    return [f"{place}: unknown to the API" for place in _unknown(body, known) if place not in beyond]


@functools.cache
def types() -> Any:
    """Import `openai` once, and only where bodies are judged: that takes half a second."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
    from pydantic import TypeAdapter

    return TypeAdapter(CompletionCreateParamsNonStreaming)


def _settled(value: Any) -> Any:
    """Read what was validated to its end: lists are checked item by item, as they are read."""
    if isinstance(value, dict):
        return {name: _settled(item) for name, item in value.items()}
    return [_settled(item) for item in value] if hasattr(value, "__iter__") and not isinstance(value, str) else value


def _unknown(given: Any, known: Any, place: str = "", calls: bool = False) -> Iterator[str]:
    """Name the fields that validation left out because no type has them.

    A turn of the assistant and its `calls` may have any: what a provider puts there, it may demand back.
    """
    if isinstance(given, dict) and isinstance(known, dict):
        for name, item in given.items():
            inner = f"{place}.{name}" if place else name
            if name in known:
                yield from _unknown(item, known[name], inner, calls=name == "tool_calls")
            elif not calls and given.get("role") != "assistant":
                yield inner
    elif isinstance(given, list):
        for index, item in enumerate(given):
            yield from _unknown(item, known[index], f"{place}.{index}", calls)

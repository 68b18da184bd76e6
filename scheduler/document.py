"""The document as bytes: written one way, read strictly. Pure."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from typing import Any

from pydantic import TypeAdapter, ValidationError

from scheduler.state import AssistantMessage, State, ToolCall

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64

_HOLDERS = (dict, list, tuple)


class InvalidDocument(ValueError):
    """The bytes are not a valid document; the text says where."""


def digest(body: bytes) -> str:
    """Return the SHA-256 of the exact bytes, so that no change of any bit goes unseen."""
    return hashlib.sha256(body).hexdigest()


def dump(state: State) -> bytes:
    """Return the document's bytes.

    Raises InvalidDocument where the state is none: nothing that could not be read again is ever written.
    """
    check(state)
    try:
        body = json.dumps(state, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        own = json.dumps(_own_fields(state), ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDocument(f"not JSON: {error}") from error
    if len(body) > MAX_BYTES:
        raise InvalidDocument(f"{len(body)} bytes, and {MAX_BYTES} are the most")
    read_object(own)  # these alone may hold what JSON writes and no strict reader takes
    check_depth(state)
    return body


def _own_fields(state: State) -> dict[str, Any]:
    """Return what messages and calls hold beside the texts of the shape: a provider's own fields, of any kind."""
    own = []
    for message in state["conversation"]:
        own.append({name: value for name, value in message.items() if name not in AssistantMessage.__annotations__})
        for call in message.get("tool_calls", ()):
            own.append({name: value for name, value in call.items() if name not in ToolCall.__annotations__})
    return {str(number): fields for number, fields in enumerate(own) if fields}


def parse(body: bytes) -> State:
    """Read a document strictly: UTF-8, one object, no key twice, no NaN, no unknown key, role or status.

    Raises InvalidDocument.
    """
    return check(read_object(body))


def read_object(body: bytes) -> dict[str, Any]:
    """Read one JSON object strictly, whatever its keys. Raises InvalidDocument."""
    if len(body) > MAX_BYTES:
        raise InvalidDocument(f"{len(body)} bytes, and {MAX_BYTES} are the most")
    if not body.strip():
        raise InvalidDocument("the file is empty")
    try:
        text = body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant, parse_float=_finite)
        if "\\u" in text:  # only so can half a character be written
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(f"not strict JSON: {error or type(error).__name__}") from error
    if not isinstance(value, dict):
        raise InvalidDocument(f"expected a JSON object, found {_kind(value)}")
    check_depth(value)
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; a ValueError where a key stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def check_depth(value: object) -> None:
    """Refuse what is nested deeper than a document may be, with InvalidDocument."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        holders = [item for item in level if isinstance(item, _HOLDERS)]
        level = [inner for item in holders for inner in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return
    raise InvalidDocument(f"nested deeper than {MAX_DEPTH}")


def no_constant(name: str) -> None:
    """Refuse NaN and the infinities, which JSON does not have, with a ValueError."""
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is beyond all numbers")
    return number


def _kind(value: object) -> str:
    return {type(None): "null", list: "a list", str: "a text"}.get(type(value), f"a {type(value).__name__}")


@functools.cache  # built when it is first needed, for that takes a while
def _shape() -> TypeAdapter[State]:
    return TypeAdapter(State)


def check(value: object) -> State:
    """Return the value as a State if it is a valid one; the text of InvalidDocument names the first fault."""
    try:
        state = _shape().validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidDocument(f"{where or 'document'}: {first['msg']}") from None
    if fault := _contradiction(state):
        raise InvalidDocument(fault)
    return state


def _contradiction(state: State) -> str | None:
    history = state["history"]
    if [entry["number"] for entry in history] != list(range(1, state["attempts"] + 1)):
        return f"attempts is {state['attempts']}, and history numbers {[entry['number'] for entry in history]}"
    if any(entry["outcome"] is None for entry in history[:-1]):
        return "an attempt before the last has no outcome"
    if any((entry["outcome"] is None) != (entry["finished"] is None) for entry in history):
        return "an attempt has an outcome without an end, or an end without an outcome"
    if (state["answer"] is not None) != (state["status"] == "done"):
        return f"status is {state['status']}, and answer is {'null' if state['answer'] is None else 'a text'}"
    if state["status"] == "exhausted" and not history:
        return "exhausted without an attempt"
    if state["status"] != "ready" and history and history[-1]["outcome"] is None:
        return f"status is {state['status']}, and the last attempt is open"
    return None

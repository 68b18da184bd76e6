"""The document as bytes: what is valid, and that every other thing is refused."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.document import MAX_BYTES, MAX_DEPTH, InvalidDocument, check, digest, dump, parse, read_object
from scheduler.state import MAX_STEPS, State, admit, new_state, settle

NOW = "2026-03-02T09:00:00Z"
CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.md"}'}}


def sample() -> State:
    """A document with one of everything: two attempts, each kind of message, usage, evidence, a review."""
    state = admit(new_state("Summarise the log — é\n", "m1"), 1, point=NOW, started=NOW)
    asked = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "step é\n"}
    told = {"role": "tool", "tool_call_id": "c1", "content": "3 days"}
    evidence = [{"file": "a.md", "first": 1, "last": 2}]
    state = settle(state, "tool_calls", finished=NOW, max_attempts=4, messages=[asked, told], evidence=evidence)  # type: ignore[arg-type]
    state["conversation"].append({"role": "user", "content": "go on"})
    state = admit(state, 2, point=None, started=NOW)
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    message = {"role": "assistant", "content": "fin"}
    state = settle(
        state,
        "answered",
        finished=NOW,
        max_attempts=4,
        billed="yes",
        finish_reason="stop",
        usage=usage,  # type: ignore[arg-type]
        messages=[message],
        answer="fin",
    )
    state["review"] = {"decision": "approved", "note": "ok", "who": "ann", "when": NOW, "answer_sha256": "0" * 64}
    return state


VALID: dict[str, Any] = json.loads(dump(sample()))
GONE = object()


def put(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    """An edit that sets (or, with GONE, removes) what lies at a path."""

    def edit(document: dict[str, Any]) -> None:
        inner: Any = document
        for part in path[:-1]:
            inner = inner[part]
        if to is GONE:
            del inner[path[-1]]
        else:
            inner[path[-1]] = to

    return edit


def raw(document: Any) -> bytes:
    """JSON as anyone might write it."""
    return json.dumps(document).encode()


COUNTS = [
    ("format",),
    ("attempts",),
    ("history", 0, "number"),
    ("history", 1, "usage", "total_tokens"),
    ("history", 0, "evidence", 0, "first"),
]
EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    **{f"unknown key {path}": put(*path, "extra", to=1) for path in [(), ("history", 0), ("review",)]},
    **{f"unknown key {path}": put(*path, "extra", to=1) for path in [("conversation", 1), ("conversation", 2)]},
    **{f"missing {key}": put(key, to=GONE) for key in VALID},
    **{
        f"role {role}": put("conversation", 2, "role", to=role) for role in ("system", "developer", "User", "", None, 1)
    },
    **{f"status {status}": put("status", to=status) for status in ("pending", "Ready", "", None, ["done"])},
    **{f"outcome {outcome}": put("history", 0, "outcome", to=outcome) for outcome in ("ok", "", 1)},
    **{f"format {value}": put("format", to=value) for value in (0, 2, "1", None)},
    **{f"attempts {value}": put("attempts", to=value) for value in (-1, 0, 1, 3, 5, "2", None)},
    **{f"true at {path}": put(*path, to=True) for path in COUNTS},
    **{f"float at {path}": put(*path, to=float(n)) for path, n in zip(COUNTS, (1, 2, 1, 12, 1), strict=True)},
    "negative tokens": put("history", 1, "usage", "prompt_tokens", to=-1),
    "task no text": put("task", to=None),
    "model no text": put("model", to=1),
    "answer gone while done": put("answer", to=None),
    "answer while ready": put("status", to="ready"),
    "answer no text": put("answer", to=["fin"]),
    "last attempt open while done": put("history", 1, "outcome", to=None),
    "first attempt open": put("history", 0, "outcome", to=None),
    "an end without outcome": put("history", 1, to={**VALID["history"][1], "outcome": None}),
    "an outcome without end": put("history", 0, "finished", to=None),
    "history out of order": put("history", to=VALID["history"][::-1]),
    "history short": put("history", to=VALID["history"][:1]),
    "time in words": put("history", 0, "started", to="yesterday"),
    "time with offset": put("history", 0, "started", to="2026-03-02T09:00:00+01:00"),
    "billed": put("history", 0, "billed", to="perhaps"),
    "call type": put("conversation", 0, "tool_calls", 0, "type", to="custom"),
    "call key": put("conversation", 0, "tool_calls", 0, "function", "extra", to=1),
    "arguments no text": put("conversation", 0, "tool_calls", 0, "function", "arguments", to={}),
    "content of a user null": put("conversation", 2, "content", to=None),
    "content in parts": put("conversation", 3, "content", to=[{"type": "text", "text": "fin"}]),
    "review decision": put("review", "decision", to="maybe"),
    "review digest": put("review", "answer_sha256", to="0" * 63),
    "conversation no list": put("conversation", to={}),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_document_with_one_fault_is_refused(name: str) -> None:
    assert parse(raw(VALID)) == VALID
    document = copy.deepcopy(VALID)
    EDITS[name](document)
    with pytest.raises(InvalidDocument):
        parse(raw(document))
    with pytest.raises(InvalidDocument):
        dump(document)  # type: ignore[arg-type]


def nested(depth: int) -> Any:
    """A value of so many lists in one another."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


TEXT = raw(VALID).decode()
BYTES: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t",
    "null": b"null",
    "list": b"[]",
    "number": b"4",
    "text": b'"x"',
    "cut": TEXT[:-1].encode(),
    "twice": TEXT.encode() * 2,
    "rubbish after": TEXT.encode() + b"x",
    "BOM": b"\xef\xbb\xbf" + TEXT.encode(),
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-16 LE": TEXT.encode("utf-16-le"),
    "UTF-32": TEXT.encode("utf-32"),
    "Latin-1": json.dumps(VALID, ensure_ascii=False).encode("latin-1", "replace"),
    "NUL bytes": bytes(100),
    "duplicate key": TEXT.replace('"status"', '"task": "x", "status"', 1).encode(),
    "duplicate key within": TEXT.replace('"total_tokens"', '"total_tokens": 1, "total_tokens"').encode(),
    "duplicate of a provider's field": TEXT.replace(
        '"reasoning_content"', '"y": 1, "y": 1, "reasoning_content"'
    ).encode(),
    **{
        f"{word} in a provider's field": TEXT.replace(
            '"reasoning_content"', f'"y": {word}, "reasoning_content"'
        ).encode()
        for word in ("NaN", "Infinity", "-Infinity", "1e400", "-1e999", "+1", "01", "'a'")
    },
    "lone surrogate in the task": TEXT.replace("Summarise", r"\ud800").encode(),
    "lone surrogate in a provider's field": TEXT.replace("step", r"\udfff").encode(),
    "lone surrogate as a key": TEXT.replace('"reasoning_content"', r'"\udc00": 1, "reasoning_content"').encode(),
    "encoded surrogate": TEXT.replace("Summarise", "\ud800").encode("utf-8", "surrogatepass"),
    "too deep": raw({**VALID, "conversation": [{"role": "assistant", "content": "x", "y": nested(MAX_DEPTH)}]}),
    "far too deep": TEXT.replace('"reasoning_content"', f'"y": {"[" * 90_000}{"]" * 90_000}, "z"').encode(),
    "too long": TEXT.replace("Summarise", "x" * MAX_BYTES).encode(),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_document_are_refused(name: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse(BYTES[name])
    assert 0 < len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "field",
    [{1: "a", "1": "b"}, nested(MAX_DEPTH + 6), float("nan"), float("inf"), {1, 2}, b"x", "\ud800", {"\ud800": 1}],
    ids=["keys that become one", "too deep", "NaN", "Infinity", "set", "bytes", "surrogate", "surrogate key"],
)
def test_nothing_is_written_that_could_not_be_read_again(field: object) -> None:
    state = new_state("task", "m1")
    state["conversation"] = [{"role": "assistant", "content": "x", "own": field}]
    with pytest.raises(InvalidDocument):
        dump(state)


def test_a_document_over_the_limit_is_not_written() -> None:
    with pytest.raises(InvalidDocument, match="bytes"):
        dump(new_state("x" * MAX_BYTES, "m1"))


def test_a_refusal_says_where_and_shows_nothing_of_the_text() -> None:
    state = sample()
    state["conversation"][2] = {"role": "user", "content": "private words", "secret": "x"}
    with pytest.raises(InvalidDocument, match=r"conversation\.2.*secret") as refused:
        check(state)
    assert "private words" not in str(refused.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
RESERVED = st.sampled_from(["role", "content", "tool_calls"])
CALLS = st.builds(
    lambda one, name, text: {"id": one, "type": "function", "function": {"name": name, "arguments": text}},
    TEXTS,
    TEXTS,
    TEXTS,
)
MESSAGES = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXTS),
    st.builds(lambda one, text: {"role": "tool", "tool_call_id": one, "content": text}, TEXTS, TEXTS),
    st.builds(
        lambda own, text, calls: (
            {**own, "role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        ),
        st.dictionaries(TEXTS, JSON, max_size=2),
        st.none() | TEXTS,
        st.lists(CALLS, max_size=2),
    ),
)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any document that moves can lead to."""
    state = new_state(draw(TEXTS), draw(TEXTS))
    for number in range(1, draw(st.integers(0, MAX_STEPS)) + 1):
        state = admit(state, number, point=draw(st.none() | st.just(NOW)), started=NOW)
        messages = draw(st.lists(MESSAGES, max_size=2))
        state = settle(state, "length", finished=NOW, max_attempts=9, reason=draw(TEXTS), messages=messages)
        state["status"] = "ready"
    return state


@settings(derandomize=True, max_examples=150, deadline=None)
@given(states())
def test_what_is_written_is_read_back_the_same(state: State) -> None:
    body = dump(state)
    assert parse(body) == state
    assert parse(dump(parse(body))) == state
    assert body.endswith(b"}\n")
    assert body.count(b"\n") == 1


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.binary(max_size=60) | TEXTS.map(str.encode) | JSON.map(raw))
def test_any_bytes_are_read_or_refused_and_nothing_else(body: bytes) -> None:
    with contextlib.suppress(InvalidDocument):
        assert isinstance(read_object(body), dict)
    with pytest.raises(InvalidDocument):
        parse(body)


def test_every_bit_flip_changes_the_digest() -> None:
    body = dump(sample())
    seen = {digest(body)}
    for index in range(len(body) * 8):
        flipped = bytearray(body)
        flipped[index // 8] ^= 1 << index % 8
        seen.add(digest(bytes(flipped)))
    assert len(seen) == len(body) * 8 + 1


def test_the_digest_is_sha256_of_the_exact_bytes() -> None:
    assert digest(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


OWN: dict[str, Any] = {
    "of a message": {"role": "assistant", "content": "x", "own": "FIELD"},
    "named as a call's": {"role": "assistant", "content": "x", "function": "FIELD"},
    "of a call": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "n", "arguments": "{}"}, "own": "FIELD"}],
    },
    "of a call, named as a message's": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "n", "arguments": "{}"}, "content": "FIELD"}
        ],
    },
}


def planted(value: Any, field: object) -> Any:
    """A copy with a field in the place of its name."""
    if isinstance(value, dict):
        return {name: planted(inner, field) for name, inner in value.items()}
    if isinstance(value, list):
        return [planted(inner, field) for inner in value]
    return field if value == "FIELD" else value


@pytest.mark.parametrize("where", OWN)
@pytest.mark.parametrize(
    "field",
    [{1: "a", "1": "b"}, [{None: 1, "null": 2}], nested(MAX_DEPTH), (nested(MAX_DEPTH - 2),), float("inf")],
    ids=str,
)
def test_a_provider_s_own_field_is_looked_at_wherever_it_stands(where: str, field: object) -> None:
    state = new_state("task", "m1")
    state["conversation"] = [planted(OWN[where], field)]
    with pytest.raises(InvalidDocument):
        dump(state)
    state["conversation"] = [planted(OWN[where], {"a": [1, {"b": None}]})]
    assert parse(dump(state)) == state


@pytest.mark.parametrize("where", OWN)
def test_what_is_as_deep_as_can_be_read_is_written_and_nothing_deeper(where: str) -> None:
    written, readable = [], []
    for depth in range(MAX_DEPTH - 10, MAX_DEPTH + 2):
        state = new_state("task", "m1")
        state["conversation"] = [planted(OWN[where], nested(depth))]
        with contextlib.suppress(InvalidDocument):
            dump(state)
            written.append(depth)
        with contextlib.suppress(InvalidDocument):
            parse(raw(state))
            readable.append(depth)
    assert written == readable
    assert MAX_DEPTH - 10 in written
    assert MAX_DEPTH not in written

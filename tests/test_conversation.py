"""What the model is shown, and what each kind of reply amounts to."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.conversation import SYSTEM, Frame, encode
from scheduler.conversation import build_request as build
from scheduler.document import dump, parse
from scheduler.errors import RequestRefused
from scheduler.judgement import MOST_CALLS, judge, read_usage
from scheduler.state import Message, State, admit, new_state, settle
from scheduler.text import well_formed
from scheduler.turns import GO_ON, frame, tool_message
from tests.test_injection import TEXTS, skeleton

NOW = "2026-03-02T09:00:00Z"
TOOL = {"name": "read_file", "description": "Read.", "parameters": {"type": "object", "properties": {}}}


def build_request(state: State, number: int, frame: Frame) -> dict[str, Any]:
    return build(state, number, frame).request


def counted(attempt: int = 1, conversation: list[Message] | None = None) -> State:
    """A document whose attempt of this number is in flight."""
    state = new_state("Summarise the log", "m1")
    for number in range(1, attempt):
        state = settle(admit(state, number, point=None, started=NOW), "timeout", finished=NOW, max_attempts=9)
    state["conversation"] = conversation or []
    return admit(state, attempt, point=None, started=NOW)


def call(call_id: Any = "c1", name: Any = "read_file", arguments: Any = "{}") -> dict[str, Any]:
    """A tool call as a provider sends it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*calls: Any, **message: Any) -> dict[str, Any]:
    """A reply that calls tools."""
    whole = {"role": "assistant", "content": None, "tool_calls": list(calls), **message}
    return {"message": whole, "finish_reason": "tool_calls"}


def said(content: Any, finish: Any = "stop", **message: Any) -> dict[str, Any]:
    """A reply without tool calls."""
    return {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}


def nested(depth: int) -> list[Any]:
    """Lists within each other."""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


# ---- the request

TALK: list[Message] = [
    {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2")]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "user", "content": "go on"},
]
HOSTILE = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(derandomize=True, max_examples=120, deadline=None)
@given(st.lists(HOSTILE, min_size=6, max_size=6), st.integers(1, 4))
def test_saved_text_never_changes_the_structure_of_a_request_nor_the_status(texts: list[str], number: int) -> None:
    state = counted(number, copy.deepcopy(TALK))
    state["conversation"][0]["content"] = "let me look"
    frame = Frame(tools=[TOOL], max_attempts=4)
    plain = build_request(state, number, frame)
    state["task"], state["model"] = texts[0], texts[1]
    for message, text in zip(state["conversation"], texts[2:], strict=True):
        message["content"] = text
    state["conversation"][-1]["content"] += "."  # a blank turn would be left out
    request = build_request(parse(dump(state)), number, frame)
    assert skeleton(request) == skeleton(plain)
    assert request["messages"][0] == {"role": "system", "content": SYSTEM}
    assert [message["role"] for message in request["messages"]].count("system") == 1
    assert request["messages"][1]["content"].startswith(f"{texts[0]}\n\n[Request {number} of 4.")
    state["attempts"] = min(number, 3)  # the ceiling ends it otherwise
    told = settle(state, "tool_calls", finished=NOW, max_attempts=9, messages=[tool_message("c1", texts[2])])
    assert (told["status"], told["answer"]) == ("ready", None)


def test_system_text_is_the_constant_alone_and_is_never_stored() -> None:
    state = counted(2, copy.deepcopy(TALK))
    assert build_request(state, 2, Frame(max_attempts=4))["messages"][0] == {"role": "system", "content": SYSTEM}
    assert SYSTEM.encode()[:40] not in dump(state)
    for field in (state["task"], state["model"], "go on"):
        assert field not in SYSTEM


def test_a_request_holds_the_task_then_the_conversation_as_it_stands() -> None:
    request = build_request(counted(2, copy.deepcopy(TALK)), 2, Frame(max_attempts=4))
    assert request["model"] == "m1"
    assert request["messages"][1]["role"] == "user"
    framed = [message | {"content": frame("read_file", message["content"])} for message in TALK[1:3]]
    assert request["messages"][2:] == [TALK[0], *framed, TALK[3]]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_each_request_says_which_of_how_many_it_is(number: int, limit: int) -> None:
    request = build_request(new_state("task", "m1"), number, Frame(tools=[TOOL], max_attempts=limit))
    words = request["messages"][1]["content"]
    assert f"[Request {number} of {limit}." in words
    assert ("the last one" in words) is (number >= limit)
    assert request["tool_choice"] == ("none" if number >= limit else "auto")
    assert request["tools"] == [{"type": "function", "function": TOOL}]


@pytest.mark.parametrize("number", [1, 4])
def test_without_tools_neither_tools_nor_a_choice_is_sent(number: int) -> None:
    request = build_request(new_state("task", "m1"), number, Frame(max_attempts=4))
    assert set(request) == {"model", "messages"}


def test_last_attempt_omit_leaves_the_tools_out_of_the_last_request_only() -> None:
    frame = Frame(tools=[TOOL], max_attempts=4, last_attempt="omit")
    assert set(build_request(new_state("task", "m1"), 4, frame)) == {"model", "messages"}
    assert build_request(new_state("task", "m1"), 3, frame)["tool_choice"] == "auto"


def test_the_body_is_utf8_and_never_a_stream() -> None:
    assert encode({"model": "é", "seed": None}) == '{"model": "é", "stream": false}'.encode()


def test_what_is_too_nested_for_json_is_refused() -> None:
    with pytest.raises(RequestRefused, match="it is not JSON"):
        encode({"seed": nested(100_000)})


def test_max_tokens_is_sent_where_it_is_given() -> None:
    assert (
        build_request(new_state("task", "m1"), 1, Frame(max_attempts=4, options={"max_tokens": 64}))["max_tokens"] == 64
    )


def test_the_readable_files_are_listed_with_their_sizes_but_not_in_the_last_request() -> None:
    frame = Frame(tools=[TOOL], files=[("docs/a {x}.md", 12), ("b.md", 0)], unlisted=7, max_attempts=4)
    first = build_request(new_state("task", "m1"), 1, frame)["messages"][1]["content"]
    assert "\n- docs/a {x}.md (12 bytes)\n- b.md (0 bytes)\n- and " in first
    assert "7" in first.rpartition("\n- and ")[2]
    whole = Frame(files=[("b.md", 0)], max_attempts=4)
    assert build_request(new_state("task", "m1"), 1, whole)["messages"][1]["content"].endswith("\n- b.md (0 bytes)")
    last = build_request(new_state("task", "m1"), 4, frame)["messages"][1]["content"]
    assert "a {x}.md" not in last


def test_a_cut_turn_is_followed_by_a_word_to_go_on_with_the_rest() -> None:
    parts: list[Message] = [{"role": "assistant", "content": "one "}, {"role": "assistant", "content": "two "}]
    sent = build_request(counted(3, parts), 3, Frame(max_attempts=4))["messages"][2:]
    assert [(message["role"], message["content"]) for message in sent] == [
        ("assistant", "one "),
        ("user", GO_ON),
        ("assistant", "two "),
        ("user", GO_ON),
    ]


def test_who_changes_a_request_changes_nothing_that_is_stored() -> None:
    state = counted(2, copy.deepcopy(TALK))
    before = copy.deepcopy(state)
    request = build_request(state, 2, Frame(tools=[TOOL], max_attempts=4))
    for message in request["messages"]:
        message["content"] = "changed"
        for wanted in message.get("tool_calls", ()):
            wanted["function"]["arguments"] = "changed"
    assert state == before


# ---- replies


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (said("fin"), "answered"),
        *(
            (said("fin", finish), "answered")
            for finish in ("eos", "end_turn", "", None, "STOP", "max_tokens", "weird", 7)
        ),
        ({"message": {"content": "fin"}}, "answered"),
        (said("fin", tool_calls=None), "answered"),
        (said("fin", tool_calls=[]), "answered"),
        (said("fin", refusal="no"), "answered"),
        (said("fin", reasoning_content="because"), "answered"),
        (said("The answer is 4", "length"), "length"),
        (said("fin", "content_filter"), "filtered"),
        (said("", "content_filter"), "filtered"),
        (said(None, refusal="I cannot"), "filtered"),
        (said(" \n", refusal="I cannot"), "filtered"),
        (said(""), "empty"),
        (said("  \n\u00a0\t"), "empty"),
        (said("\u200b\ufeff\u2060"), "empty"),
        (said("<think>the answer is 4</think>\n"), "empty"),
        (said("<think>a</think> <thinking>b</thinking>\u3164"), "empty"),
        (said("<think>I wonder", "length"), "length"),
        (said(None), "empty"),
        (said(None, reasoning_content="the answer is 4"), "empty"),
        (said("", "length"), "empty"),
        (said(None, "tool_calls", tool_calls=[]), "empty"),
        (said("fin", "tool_calls", tool_calls=[]), "malformed_reply"),
        (said([{"type": "text", "text": "fin"}]), "malformed_reply"),
        (said({"text": "fin"}), "malformed_reply"),
        (said(4), "malformed_reply"),
        (said("fin", tool_calls={"id": "c1"}), "malformed_reply"),
        (said("x" * (4 * 1024 * 1024 + 1)), "malformed_reply"),
        (asked(*[call(f"c{n}") for n in range(MOST_CALLS + 1)]), "malformed_reply"),
        (asked(call()), "tool_calls"),
        (asked(call(), content="let me look"), "tool_calls"),
        (asked(call()) | {"finish_reason": "stop"}, "tool_calls"),
        (asked(call()) | {"finish_reason": "length"}, "tool_calls"),
        (asked(call()) | {"finish_reason": "content_filter"}, "filtered"),
        *((reply, "malformed_reply") for reply in (None, "fin", 4, [], {}, {"message": None}, {"message": "fin"})),
        ({"choices": [{"message": {"content": "fin"}}]}, "malformed_reply"),
    ],
)
def test_what_a_reply_amounts_to(reply: Any, outcome: str) -> None:
    state = counted(1)
    judged = judge(reply, state, 4)
    assert judged.outcome == outcome
    assert (judged.answer == "fin") is (outcome == "answered")
    assert (judged.message is not None) is (outcome in ("answered", "length", "tool_calls"))
    assert bool(judged.calls) is (outcome == "tool_calls")
    assert judged.reason or outcome in ("answered", "tool_calls")
    messages = [judged.message] if judged.message else []
    settled = settle(
        state,
        judged.outcome,
        finished=NOW,
        max_attempts=4,
        reason=judged.reason,
        messages=messages,
        answer=judged.answer,
    )
    assert settled["status"] == ("done" if outcome == "answered" else "ready")
    assert parse(dump(settled)) == settled


def test_a_reply_as_large_as_it_may_be_is_taken() -> None:
    assert judge(said("x" * 4 * 1024 * 1024), counted(), 4).outcome == "answered"
    assert len(judge(asked(*[call(f"c{n}") for n in range(32)]), counted(), 4).calls) == 32
    most = {"prompt_tokens": 0, "completion_tokens": 2**53}
    assert read_usage(most) == {**most, "total_tokens": 2**53}
    assert read_usage({"prompt_tokens": 1, "completion_tokens": 2**53}) is None


def test_a_tool_call_in_the_last_request_is_neither_run_nor_kept() -> None:
    judged = judge(asked(call(), content="fin"), counted(4), 4)
    assert (judged.outcome, judged.message, judged.answer, list(judged.calls)) == ("tool_calls", None, None, [])
    assert judged.reason
    assert "last" in judged.reason


PART_ONE: Message = {"role": "assistant", "content": "The answer "}
PART_TWO: Message = {"role": "assistant", "content": "is "}


@pytest.mark.parametrize(
    ("conversation", "answer"),
    [
        ([PART_ONE, PART_TWO], "The answer is 4"),
        ([PART_TWO], "is 4"),
        ([], "4"),
        (TALK, "4"),
        ([*TALK[:3], PART_ONE, PART_TWO], "The answer is 4"),
        ([PART_ONE, PART_TWO, *TALK[:3]], "4"),  # the request no longer asks to go on from there
        ([PART_ONE, *TALK[:3], PART_TWO], "is 4"),
        ([PART_ONE, {"role": "user", "content": "again, please"}], "4"),
    ],
    ids=[
        "two parts",
        "one part",
        "none",
        "only tools",
        "after tools",
        "before tools",
        "around tools",
        "before a person",
    ],
)
def test_the_answer_is_every_kept_part_and_the_last_one(conversation: list[Message], answer: str) -> None:
    state = counted(3, copy.deepcopy(conversation))
    for entry in state["history"][:2]:
        entry["outcome"] = "length"
    parts = build(state, 3, Frame(max_attempts=4)).parts
    assert judge(said("4"), state, 4, parts).answer == answer


def test_a_tag_that_is_never_closed_is_text() -> None:
    for text in ("<think> is a tag that some models write", "<think>x\n\n**Answer:** 5"):
        assert judge(said(text), counted(1), 4).answer == text


def test_thoughts_that_two_parts_make_together_are_no_answer() -> None:
    assert judge(said(" still thinking</think>"), counted(2), 4, ["<think>let me see"]).outcome == "empty"
    joined = judge(said(" so</think>fin"), counted(2), 4, ["<think>let me see"])
    assert joined.answer == "<think>let me see so</think>fin"


def test_a_part_that_no_longer_fits_into_the_request_is_still_a_part_of_the_answer() -> None:
    state = counted(4, [{"role": "assistant", "content": letter * 4_000} for letter in "ABC"])
    for entry in state["history"][:3]:
        entry["outcome"] = "length"
    made = build(state, 4, Frame(max_attempts=4, context_tokens=4_096))
    assert made.sent["cut"]
    assert "".join(made.parts) == "A" * 4_000 + "B" * 4_000 + "C" * 4_000


def test_a_text_that_was_never_cut_is_no_part_of_the_answer() -> None:
    assert build(counted(3, [PART_ONE, PART_TWO]), 3, Frame(max_attempts=4)).parts == ()
    state = counted(3, [PART_ONE, PART_TWO])
    state["history"][0]["outcome"] = "length"
    assert build(state, 3, Frame(max_attempts=4)).parts == ("is ",)


@pytest.mark.parametrize(
    ("arguments", "meant", "stored"),
    [
        ("", "", "{}"),
        (" ", " ", "{}"),
        (None, "", "{}"),
        ({}, "{}", "{}"),
        ({"path": "a"}, '{"path": "a"}', '{"path": "a"}'),
        ("null", "null", "{}"),
        ("[]", "[]", "{}"),
        ('{"path": "a"}', '{"path": "a"}', '{"path": "a"}'),
        ('{"path": "a"', '{"path": "a"', "{}"),
        ("path=a", "path=a", "{}"),
        ('{"n": NaN}', '{"n": NaN}', "{}"),
        ("[" * 90_000, "[" * 90_000, "{}"),
    ],
)
def test_what_is_sent_again_as_arguments_is_always_json(arguments: Any, meant: str, stored: str) -> None:
    judged = judge(asked(call(arguments=arguments)), counted(), 4)
    assert [one.arguments for one in judged.calls] == [meant]
    assert judged.message is not None
    kept = judged.message["tool_calls"][0]["function"]["arguments"]
    assert kept == stored
    json.loads(kept)


@pytest.mark.parametrize("arguments", [{1, 2}, object(), b"x", {"a": float("inf")}, {("a",): 1}])
def test_arguments_that_are_no_json_at_all_are_stored_as_json(arguments: Any) -> None:
    judged = judge(asked(call(arguments=arguments)), counted(), 4)
    assert judged.outcome == "tool_calls"
    assert judged.message is not None
    json.loads(judged.message["tool_calls"][0]["function"]["arguments"], parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "ids",
    [
        (None, "", 7),
        ("a", "a", "a"),
        ("a", "b", "a"),
        ("call_1_2", "", "b"),
        ("", "call_1_1", "call_1_3"),
        ("call_1_3", "x", "x"),
        ("\ud800", "\ufffd", "\udfff"),
    ],
)
def test_every_call_has_an_id_of_its_own(ids: tuple[Any, ...]) -> None:
    judged = judge(asked(*map(call, ids)), counted(), 4)
    given_ids = [one.id for one in judged.calls]
    assert len(set(given_ids)) == len(ids)
    assert all(given_ids)
    assert judged.message is not None
    assert [one["id"] for one in judged.message["tool_calls"]] == given_ids


@pytest.mark.parametrize(
    "entry",
    [{"id": "c1", "type": "custom"}, {"id": "c1", "function": "x"}, {"id": "c1", "function": {"name": 4}}, "c1", None],
)
def test_a_call_of_an_odd_shape_is_kept_in_the_shape_that_can_be_sent(entry: Any) -> None:
    judged = judge(asked(entry), counted(), 4)
    assert judged.message is not None
    [kept] = judged.message["tool_calls"]
    assert kept["type"] == "function"
    assert kept["function"] == {"name": "", "arguments": "{}"}
    assert [one.name for one in judged.calls] == [""]


def test_fields_of_the_provider_stay_on_a_message_with_calls_byte_for_byte() -> None:
    own = {
        "reasoning_content": "step é\n",
        "reasoning_details": [{"text": "x", "n": 1.5, "none": None}],
        "signed": True,
    }
    unkept = {"refusal": "", "audio": {"id": "a"}, "annotations": [], "function_call": {"name": "f", "arguments": ""}}
    judged = judge(asked(call(), **own, **unkept), counted(), 4)
    assert judged.message is not None
    stored = judged.message
    assert {name: stored[name] for name in own} == own
    assert set(stored) == {"role", "content", "tool_calls", *own}
    state = settle(counted(), "tool_calls", finished=NOW, max_attempts=4, messages=[stored, tool_message("c1", "x")])
    assert build_request(parse(dump(state)), 2, Frame(max_attempts=4))["messages"][2] == stored


def test_fields_of_the_provider_do_not_join_a_plain_answer() -> None:
    judged = judge(said("fin", reasoning_content="because", system="obey"), counted(), 4)
    assert judged.message == {"role": "assistant", "content": "fin"}


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, "\ud800", [[[]] * 90], nested(100_000), ("a",), {1: "a"}, {1: "a", "1": "b"}],
    ids=[
        "NaN",
        "infinity",
        "set",
        "surrogate",
        "too nested",
        "far too nested",
        "tuple",
        "number as key",
        "keys that become one",
    ],
)
def test_a_field_that_would_not_come_back_the_same_is_left_out(value: Any) -> None:
    judged = judge(asked(call(), own=value), counted(), 4)
    assert judged.message is not None
    assert "own" not in judged.message


def test_the_role_of_a_reply_is_ours_whatever_it_says() -> None:
    for reply in (said("fin", role="system"), asked(call(), role="developer"), said("fi", "length", role="tool")):
        judged = judge(reply, counted(), 4)
        assert judged.message is not None
        assert judged.message["role"] == "assistant"


def test_lone_surrogates_become_what_a_file_can_hold() -> None:
    assert well_formed("a\ud800b\udfffc") == "a\ufffdb\ufffdc"
    assert well_formed("\ud83d\ude00 é") == "😀 é"
    assert judge(said("fi\ud800n"), counted(), 4).answer == "fi\ufffdn"
    assert judge(said("fi\ud800n", "length"), counted(), 4).message == {"role": "assistant", "content": "fi\ufffdn"}
    judged = judge(asked(call("\ud800", "\ud801", '{"a": "\ud802"}'), content="\ud803"), counted(), 4)
    tail = tool_message("\ufffd", "\ud804")
    state = settle(counted(), "tool_calls", finished=NOW, max_attempts=4, messages=[judged.message or {}, tail])
    assert parse(dump(state)) == state


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    st.sampled_from(["message", "content", "tool_calls", "call", "function", "arguments", "finish_reason", "refusal"]),
)
def test_whatever_stands_in_a_reply_it_is_judged_and_never_raises(value: Any, place: str) -> None:
    reply: dict[str, Any] = asked(call(arguments=value if place == "arguments" else "{}"))
    if place in ("content", "tool_calls", "refusal"):
        reply["message"][place] = value
    elif place == "call":
        reply["message"]["tool_calls"] = [value]
    elif place == "function":
        reply["message"]["tool_calls"][0]["function"] = value
    elif place in ("message", "finish_reason"):
        reply[place] = value
    judged = judge(reply, counted(), 4)
    assert judged.outcome in ("answered", "tool_calls", "length", "filtered", "empty", "malformed_reply")


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, (9, 3, 12)),
        ({"prompt_tokens": 9, "completion_tokens": 3}, (9, 3, 12)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 15}, (9, 3, 15)),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": "12"}, None),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": None}, (9, 3, 12)),
        ({"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": None}}, (0, 0, 0)),
        *((odd, None) for odd in (None, {}, [], "12", 12)),
        *(({"prompt_tokens": odd, "completion_tokens": 3}, None) for odd in (None, "12", 1e400, -1, True, 1.0)),
        *(({"prompt_tokens": 9, "completion_tokens": odd}, None) for odd in (None, "12", -1, False)),
    ],
)
def test_usage_is_what_was_measured_or_unknown(value: Any, known: tuple[int, int, int] | None) -> None:
    usage = read_usage(value)
    assert (tuple(usage.values()) if usage else None) == known

"""What of a conversation fits into a request: older results shrink first, then older turns go; the last two stay."""

from __future__ import annotations

import copy
import json
import math
import random
import re
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.compaction import fit, shorten
from scheduler.conversation import Frame, build_request, encode
from scheduler.document import dump, parse
from scheduler.errors import RequestRefused
from scheduler.identifiers import find_identifiers
from scheduler.state import Message, Sent, State, admit, new_state, settle
from scheduler.turns import Result, read_turns, render, tool_message, unframe
from tests.test_turns import asks, call, faults, says

NOW = "2026-03-02T09:00:00Z"
LOG = "\n".join(f"2026-03-0{n % 9 + 1} order ORD-{n:05} took {n} ms → see logs/part{n}.log" for n in range(60))


def reading(number: int, text: str = LOG, name: str = "") -> list[Message]:
    """A turn that reads one file."""
    arguments = json.dumps({"path": name or f"logs/{number}.log"})
    return [asks(call(f"c{number}", arguments=arguments)), tool_message(f"c{number}", text)]


def state_of(conversation: list[Message], attempts: int = 1) -> State:
    state = new_state("Which order was slowest?", "m1")
    for number in range(1, attempts + 1):
        sent = Sent(tokens=10, model="m1", window=None, cut=[])
        state = settle(
            admit(state, number, point=None, started=NOW, sent=sent), "timeout", finished=NOW, max_attempts=9
        )
    state["conversation"] = conversation
    return state


def size(messages: list[Message]) -> int:
    return sum(len(json.dumps(message, ensure_ascii=False).encode()) + 2 for message in messages)


FOUR = [message for number in range(4) for message in reading(number)]
WHOLE = size(render(read_turns(FOUR)))


def test_what_fits_is_left_alone() -> None:
    view = fit(read_turns(FOUR), WHOLE)
    assert (render(view.turns), view.cut, view.note) == (render(read_turns(FOUR)), (), "")
    assert fit(read_turns(FOUR), math.inf) == view


def test_the_oldest_result_shrinks_first_and_only_as_many_as_needed() -> None:
    view = fit(read_turns(FOUR), WHOLE - 100)
    texts = [unframe(message["content"]) for message in render(view.turns) if message["role"] == "tool"]
    assert texts[0].startswith(f"[Shortened to save room: {len(LOG)} characters that read_file")
    assert texts[1:] == [LOG] * 3
    assert size(render(view.turns)) <= WHOLE - 100
    assert view.cut == (f'read_file {{"path": "logs/0.log"}} shortened from {len(LOG)} to {len(texts[0])} characters',)
    assert view.note == ""


def stub_of(text: str, share: float = 1) -> Result:
    return shorten(Result("c1", "read_file", '{"path": "a/b.md"}', text), find_identifiers(text), share)


def test_a_stub_names_tool_arguments_size_identifiers_and_how_to_read_it_again() -> None:
    stub = stub_of("ORD-1 on 2026-03-02: 30 ms; docs/x.md\n" + "x " * 900)
    for words in ("read_file", '{"path": "a/b.md"}', "1838 characters", "ORD-1, 2026-03-02, 30 ms, docs/x.md", "again"):
        assert words in stub.text
    assert (stub.call_id, stub.name, stub.arguments) == ("c1", "read_file", '{"path": "a/b.md"}')
    assert "no identifiers" in stub_of("words only " * 99).text
    every, few = stub_of(LOG).text, stub_of(LOG, 1 / 8).text
    assert set(find_identifiers(LOG)) <= set(find_identifiers(every))
    assert len(few) < len(LOG) // 6 + 200
    assert re.search(r", and [1-9]\d* more", few)
    assert " more" not in every
    rare = stub_of(f"{LOG}\nthe reference is REF-77Q at 9.90 EUR", 1 / 8).text  # of each kind the first come first
    assert "REF-77Q" in rare
    assert "9.90 EUR" in rare


def test_a_short_result_is_not_made_longer() -> None:
    talk = [*reading(0, "ok"), *reading(1, LOG), *reading(2, "b"), *reading(3, "c")]
    view = fit(read_turns(talk), size(render(read_turns(talk))) - 1)
    assert [unframe(one["content"])[:10] for one in render(view.turns) if one["role"] == "tool"] == [
        "ok",
        "[Shortened",
        "b",
        "c",
    ]


def test_then_the_oldest_turns_go_as_a_whole_and_the_request_says_so() -> None:
    view = fit(read_turns(FOUR), 2.2 * WHOLE / 4)
    assert render(view.turns) == render(read_turns(FOUR[4:]))
    assert [turn.results[0].arguments for turn in view.left_out] == ['{"path": "logs/0.log"}', '{"path": "logs/1.log"}']
    assert "the first 2 of the earlier turns" in view.note
    assert "read_file (2 times)" in view.note
    assert "logs/0.log" not in view.note  # arguments are the model's words
    assert view.cut[-1] == 'left out: read_file {"path": "logs/1.log"}'


def test_the_last_two_turns_stay_word_for_word_however_little_room_there_is() -> None:
    view = fit(read_turns(FOUR), -math.inf)
    assert render(view.turns) == render(read_turns(FOUR[4:]))
    assert fit(read_turns(FOUR[4:]), -math.inf).cut == ()


def test_what_was_cut_is_told_in_the_order_of_the_turns() -> None:
    names = "\n".join(f"ORD-{n:05}" for n in range(60))  # a stub with all of them would be longer
    turns = read_turns([*reading(0, names), *reading(1), *reading(2), *reading(3)])
    whole = size(render(turns))
    views = [fit(turns, room) for room in range(whole, whole // 2, -50)]
    cut = next(view.cut for view in views if len(view.cut) == 2)
    assert ["logs/0.log" in phrase for phrase in cut] == [True, False]


def test_a_turn_of_text_that_is_left_out_is_named_by_its_role_and_length() -> None:
    view = fit(read_turns([says("x" * 300, "user"), says("y" * 40), *FOUR[4:]]), -math.inf)
    assert view.cut == (
        "left out: a turn of the user, 300 characters",
        "left out: a turn of the assistant, 40 characters",
    )
    assert "Tools that were called in them: none." in view.note


@pytest.mark.parametrize("roles", [("assistant", "user"), ("assistant", "assistant"), ("user", "user")])
def test_so_many_turns_of_text_go_that_the_rest_fits(roles: tuple[str, str]) -> None:
    turns = read_turns([says("word " * 20, roles[number % 2]) for number in range(400)])
    whole = size(render(turns))
    for room in range(3_000, whole, whole // 20):
        view = fit(turns, room)
        assert size(render(view.turns)) + len(view.note) + 50 <= room
        assert size(render(view.turns)) >= room - 2_048 - 400


PARALLEL = [
    *(says(text * 200, role) for text, role in (("ab", "assistant"), ("cd", "user")) for _ in range(15)),
    asks(call("A"), call("B")),
    tool_message("A", LOG),
    tool_message("B", LOG),
    says("go on", "user"),
]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(0, size(render(read_turns(PARALLEL * 2)))))
def test_wherever_the_cut_falls_the_request_stays_valid(room: int) -> None:
    view = fit(read_turns(PARALLEL * 2), room)
    messages = render(view.turns)
    assert faults(messages) == []
    assert messages[:1] != [tool_message("A", LOG)]
    assert size(messages) <= room or len(view.turns) == 2


# ---- requests


def built(state: State, **frame: Any) -> Any:
    return build_request(state, state["attempts"] + 1, Frame(max_attempts=4, **frame))


def test_a_request_keeps_to_the_context_and_nothing_stored_is_lost() -> None:
    state = state_of(copy.deepcopy(FOUR))
    before = dump(state)
    whole = built(state)
    assert whole.sent["tokens"] == math.ceil(len(encode(whole.request)) / 3)
    for tokens in range(whole.sent["tokens"], whole.sent["tokens"] // 2 + 400, -150):
        fitted = built(state, context_tokens=tokens)
        assert fitted.sent["tokens"] == math.ceil(len(encode(fitted.request)) / 3) <= tokens
        assert fitted.request["messages"][0] == whole.request["messages"][0]
        assert fitted.request["messages"][1]["content"].startswith("Which order was slowest?\n\n[Request 2 of 4.]")
        assert fitted.request["messages"][-4:] == whole.request["messages"][-4:]
        assert faults(fitted.request["messages"][2:]) == []
        assert bool(fitted.sent["cut"]) is (tokens < whole.sent["tokens"])
    assert dump(state) == before


def test_a_body_has_at_most_8_mib_and_a_longer_conversation_is_cut_to_fit() -> None:
    room = 8 * 1024 * 1024 - len(encode({"text": ""}))
    assert len(encode({"text": "x" * room})) == 8 * 1024 * 1024
    with pytest.raises(RequestRefused, match=f"{8 * 1024 * 1024 + 1} bytes"):
        encode({"text": "x" * (room + 1)})
    fitted = built(state_of([says("x" * 3 * 1024 * 1024, "user") for _ in range(4)]))
    assert len(fitted.sent["cut"]) == 2


def test_the_longest_reply_counts_too() -> None:
    state = state_of([])
    plain = built(state).sent["tokens"]
    for name in ("max_tokens", "max_completion_tokens"):
        assert built(state, options={name: 500}).sent["tokens"] >= plain + 500
    with pytest.raises(RequestRefused, match="the longest reply"):
        built(state, options={"max_tokens": 5000}, context_tokens=5000)


def test_the_room_of_the_next_turn_leaves_the_last_one_its_place() -> None:
    bare = built(state_of([]), context_tokens=10_000)
    assert bare.room == pytest.approx((10_000 - bare.sent["tokens"]) * 9 / 20)
    big = built(state_of([says("x" * 18_000, "user")]), context_tokens=10_000)
    assert big.room + 6_000 <= 10_000 - bare.sent["tokens"]
    assert built(state_of([])).room == math.inf


def test_turns_that_go_anyway_cost_no_search_for_identifiers() -> None:
    talk = [m for n in range(40) for m in reading(n, "AB-" * 20_000)]
    start = time.process_time()
    view = fit(read_turns(talk), 3_000)
    assert len(view.turns) == 2
    assert time.process_time() - start < 5  # they take half a second each


def test_what_cannot_be_made_small_enough_is_refused_with_both_numbers() -> None:
    state = state_of(copy.deepcopy(FOUR))
    least = built(state, context_tokens=10**6).sent["tokens"] // 2
    with pytest.raises(
        RequestRefused, match=rf"about \d+ tokens .* {least // 2} are the most \(the provider's context_t"
    ):
        built(state, context_tokens=least // 2)


def refused_at(state: State, tokens: int) -> State:
    entry = state["history"][-1]
    entry["outcome"], entry["request"] = "context_too_long", Sent(tokens=tokens, model="m1", window=None, cut=[])
    return parse(dump(state))


@pytest.mark.parametrize("letter", ["\u6f22", "\U0001f600", '"', "\\"])
def test_what_is_said_of_turns_left_out_never_makes_a_request_too_large(letter: str) -> None:
    talk = [m for n in range(30) for m in reading(n, "short", f"{letter * 100}/{n}")]
    state = state_of(talk)
    bare = built(state_of(talk[-4:])).sent["tokens"]
    for tokens in range(bare, bare + 3_000, 37):
        assert built(state, context_tokens=tokens).sent["tokens"] <= tokens


def test_another_context_or_model_in_jobs_yaml_lifts_a_refusal_as_too_long() -> None:
    state = refused_at(state_of(copy.deepcopy(FOUR[4:])), 100)
    with pytest.raises(RequestRefused, match="context_tokens"):
        built(state)
    assert built(state, context_tokens=100_000).sent["cut"] == []
    state["model"] = "m2"
    assert built(state).sent["cut"] == []


def test_the_way_out_names_the_fields_that_weigh() -> None:
    talk = [asks(call("a"), reasoning_content="because " * 2_000), tool_message("a", "x")]
    with pytest.raises(RequestRefused, match="replay_fields: drop"):
        built(state_of(talk), context_tokens=2_000)
    assert built(state_of(talk), context_tokens=2_000, replay_fields="drop").sent["cut"] == []


def test_what_was_cut_is_told_in_few_phrases() -> None:
    cut = built(state_of([says("x " * 50) for _ in range(500)]), context_tokens=3_000).sent["cut"]
    assert len(cut) == 51
    assert re.fullmatch(r"and \d+ more", cut[-1])


def test_after_a_refusal_as_too_long_the_next_request_is_half_as_large() -> None:
    state = state_of(copy.deepcopy(FOUR))
    whole = built(state).sent["tokens"]
    smaller = built(refused_at(state, whole))
    assert smaller.sent["tokens"] <= whole * 0.62  # the last two of four equal turns stay
    assert smaller.sent["cut"]
    assert built(state_of(copy.deepcopy(FOUR))).sent["cut"] == []


def test_a_refusal_of_a_request_whose_size_nobody_stored_changes_nothing() -> None:
    state = state_of(copy.deepcopy(FOUR))
    whole = built(state)
    state["history"][0]["outcome"] = "context_too_long"
    del state["history"][0]["request"]
    assert built(parse(dump(state))) == whole


def test_what_was_refused_as_too_long_is_never_sent_again_as_large() -> None:
    state = state_of(copy.deepcopy(FOUR[4:]))
    whole = built(state).sent["tokens"]
    with pytest.raises(RequestRefused, match=f"refused a request of {whole} as too long"):
        built(refused_at(state, whole))
    assert built(refused_at(state, whole + 50)).sent["tokens"] <= whole + 50


def test_a_request_is_measured_as_it_is_sent() -> None:
    """By its parts, which must come to the same: with stubs, with turns left out, and with any letters."""
    dice = random.Random(11)
    seen = Counter()
    for _ in range(60):
        state = new_state("Zähle „alles“ \n\t auf " * dice.randrange(1, 40), "m1")
        for number in range(dice.randrange(0, 9)):
            text = "".join(dice.choice('aé€𝄞"\\\n\x01 AB-12/x.py') for _ in range(dice.randrange(1, 3000)))
            call = {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "a"}'},
            }
            state["conversation"] += [
                {"role": "assistant", "content": text[:90], "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": text},
            ]
        frame = Frame(max_attempts=4, context_tokens=dice.choice((None, 4_000, 8_000)), options={"max_tokens": 50})
        try:
            built = build_request(state, 1, frame)
        except RequestRefused:
            seen["refused"] += 1
            continue
        assert built.sent["tokens"] == math.ceil(len(encode(built.request)) / 3) + 50
        seen[("left out" if "left out" in str(built.sent["cut"]) else "cut") if built.sent["cut"] else "whole"] += 1
    assert min(seen[kind] for kind in ("whole", "cut", "left out")) >= 3, seen

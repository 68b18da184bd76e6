"""What a reader is told to doubt in an answer."""

from __future__ import annotations

import pytest

from scheduler.doubts import CALL_AS_TEXT, NO_EVIDENCE, PART, THOUGHTS, find_doubts, plain_doubts, read_lines
from scheduler.state import Evidence, Message, State, admit, new_state, settle
from scheduler.turns import INTERRUPTED, tool_message
from tests.test_turns import asks, call, says

NOW = "2026-03-02T09:00:00Z"


def done(answer: str, *conversation: Message, read: tuple[Evidence, ...] = (), finish: str | None = "stop") -> State:
    """A job that was answered; what it read is its first attempt's, and that attempt's turns are the conversation."""
    state = new_state("Which order of C-7 is late?", "m1")
    if any(message["role"] == "tool" for message in conversation):
        counted = admit(state, 1, point=None, started=NOW)
        state = settle(
            counted, "tool_calls", finished=NOW, max_attempts=4, evidence=read, messages=conversation, billed="no"
        )
    else:
        state["conversation"] = [*conversation]
    counted = admit(state, state["attempts"] + 1, point=None, started=NOW)
    messages = [says(answer)]
    return settle(
        counted,
        "answered",
        finished=NOW,
        max_attempts=4,
        answer=answer,
        finish_reason=finish,
        messages=messages,
    )


READ = [asks(call("a")), tool_message("a", "docs/a.md: lines 1-1 of 1 are shown\norder ORD-1 is late by 3 days")]
LINES = Evidence(file="docs/a.md", first=1, last=1)


def test_an_answer_on_what_was_read_raises_no_doubt() -> None:
    assert find_doubts(done("ORD-1 of C-7 is late by 3 days (docs/a.md)", *READ, read=(LINES,)), reads=True) == []


def test_identifiers_that_stand_in_nothing_that_was_read_are_named() -> None:
    state = done("ORD-1 and ORD-22 are late by 4 days, see docs/b.md", *READ, read=(LINES,))
    assert find_doubts(state, reads=True) == [
        "in nothing that was read, nor in the task: ORD-22, 4 days, docs/b.md",
    ]
    many = find_doubts(done(" ".join(f"ORD-{n}" for n in range(100, 150))), reads=False)
    assert many[0].count("ORD-") == 20
    assert "30 more" in many[0]
    assert "more" not in find_doubts(done(" ".join(f"ORD-{n}" for n in range(100, 120))), reads=False)[0]


@pytest.mark.parametrize(
    "ground",
    [
        [says("take ORD-5", "user")],
        [asks(call("a")), tool_message("a", "ORD-5")],
        [asks(call("a", "search_files", '{"query": "x"}')), tool_message("a", "lines found: 1\ndocs/a.md:3: ord-5")],
    ],
)
def test_what_the_user_said_and_what_a_tool_gave_is_a_ground(ground: list[Message]) -> None:
    assert find_doubts(done("It is ORD-5.", *ground), reads=False) == []


@pytest.mark.parametrize(
    "no_ground",
    [
        [says("It may be ORD-5", "assistant")],
        [asks(call("a", arguments='{"path": "ORD-5"}')), tool_message("a", "Error: 'ORD-5' is not readable")],
        [asks(call("a", "search_files", '{"query": "ORD-5"}')), tool_message("a", "no line matches")],
        [asks(call("a", arguments='{"path": "ORD-5"}'))],
    ],
)
def test_what_the_model_itself_said_or_asked_for_is_none(no_ground: list[Message]) -> None:
    assert "in nothing that was read, nor in the task: ORD-5" in find_doubts(
        done("It is ORD-5.", *no_ground), reads=False
    )


def test_an_answer_without_reading_is_told_where_there_was_something_to_read() -> None:
    assert find_doubts(done("fin"), reads=True) == [NO_EVIDENCE]
    assert find_doubts(done("fin"), reads=False) == []
    assert find_doubts(done("fin", *READ, read=(LINES,)), reads=True) == []
    found_nothing = [asks(call("a", "search_files", '{"query": "x"}')), tool_message("a", "no line matches")]
    assert find_doubts(done("fin", *found_nothing), reads=True) == [NO_EVIDENCE]


def test_what_was_read_before_counts_as_long_as_it_stands_in_the_conversation() -> None:
    kept = done("fin", *READ, read=(LINES,))
    kept["history"], kept["attempts"] = [kept["history"][1] | {"number": 1}], 1  # renewed with its conversation
    assert find_doubts(kept, reads=True) == []
    lost = done("fin", *READ, read=(LINES,))
    lost["conversation"] = lost["conversation"][2:]  # revised: a new conversation, the attempts carried over
    assert find_doubts(lost, reads=True) == [NO_EVIDENCE]
    assert read_lines(lost) == []
    asked_only = done("fin", asks(call("a")), tool_message("a", INTERRUPTED))
    asked_only["history"] = asked_only["history"][1:]
    assert find_doubts(asked_only, reads=True) == [NO_EVIDENCE]


def test_a_part_that_is_not_in_the_answer_is_told() -> None:
    state = new_state("t", "m1")
    state = settle(
        admit(state, 1, point=None, started=NOW), "length", finished=NOW, max_attempts=4, messages=[says("half")]
    )
    state = settle(admit(state, 2, point=None, started=NOW), "tool_calls", finished=NOW, max_attempts=4, messages=READ)
    counted = admit(state, 3, point=None, started=NOW)
    for answer, doubts in (("whole", [PART]), ("half and more", [])):
        state = settle(counted, "answered", finished=NOW, max_attempts=4, answer=answer, messages=[says(answer)])
        assert find_doubts(state, reads=False) == doubts


def test_a_text_from_before_these_attempts_is_no_part_and_thoughts_are_told() -> None:
    state = new_state("t", "m1")
    state["conversation"] = [says("the old answer"), says("once more, please", "user")]
    state = settle(
        admit(state, 1, point=None, started=NOW), "length", finished=NOW, max_attempts=4, messages=[says("new half ")]
    )
    counted = admit(state, 2, point=None, started=NOW)
    whole = settle(counted, "answered", finished=NOW, max_attempts=4, answer="new half end", messages=[says("end")])
    assert find_doubts(whole, reads=False) == []
    assert find_doubts(done("<think>hm\nfin"), reads=False) == [THOUGHTS]


def test_the_name_of_a_file_that_was_read_is_a_ground() -> None:
    read = [asks(call("a")), tool_message("a", "text")]
    assert find_doubts(done("It stands in docs/a.md.", *read, read=(LINES,)), reads=True) == []


CALLS_AS_TEXT = [
    # each way of beginning one, alone
    *("<tool_call>", "</tool_call>", "<tool_calls>", "<function=f>", "<function_calls>", "<function f>", "<invoke f>"),
    *(
        "<|python_tag|>f",
        "[TOOL_CALLS]f",
        "<|tool_call",
        "<|tool\u2581call",
        "<\uff5ctool_call",
        "<|channel|>commentary",
    ),
    *("list_files()", "read_file(path=", "search_files( {", "read_reference()"),
    *(f'{{"{key}": "f", "{given}": ' for key in ("name", "function") for given in ("arguments", "parameters", "args")),
    *('"tool_calls": [', '{"type": "function"'),
    # whole ones
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.md"}}\n</tool_call>',
    '{"name": "read_file", "arguments": {"path": "a.md"}}',
    '```json\n{ "name": "lookup", "parameters": {} }\n```',
    '<function=read_file>{"path": "a.md"}</function>',
    '<function_calls><invoke name="read_file">',
    '<|python_tag|>{"name": "read_file"}',
    '[TOOL_CALLS][{"name": "read_file", "arguments": {}}]',
    "<\uff5ctool\u2581calls\u2581begin\uff5c>function",
    "<|tool_calls_section_begin|>",
    "<|channel|>commentary to=functions.read_file",
    'I will call read_file(path="a.md") now.',
    '{"tool_calls": [{"id": "x"}]}',
    '[{"type": "function", "function": {"name": "f"}}]',
    '{"arguments": {"path": "a.md"}, "name": "read_file"}',
    '{"tool": "read_file", "input": {}}',
    "{'name': 'read_file', 'arguments': {}}",
    "Thought: look\nAction: read_file\nAction Input: {}",
]


@pytest.mark.parametrize("answer", CALLS_AS_TEXT)
def test_a_tool_call_written_as_text_is_told(answer: str) -> None:
    assert CALL_AS_TEXT in find_doubts(done(answer), reads=False)
    assert CALL_AS_TEXT in plain_doubts(done(answer), reads=False)


@pytest.mark.parametrize(
    "answer",
    [
        "The name of the function is f.",
        '{"name": "Ann", "age": 3}',
        "I read the files.",
        "a < b",
        "Use read_file (see docs)",
        "my_read_file(1)",
    ],
)
def test_plain_answers_are_no_calls(answer: str) -> None:
    assert CALL_AS_TEXT not in find_doubts(done(answer), reads=False)


def test_an_unknown_finish_reason_is_told_and_a_job_without_an_answer_has_no_doubts() -> None:
    assert find_doubts(done("fin", finish="odd\x1b"), reads=False) == ["finish reason odd\\x1b is unknown"]
    for known in ("stop", "eos", "end_turn", "", None):
        assert find_doubts(done("fin", finish=known), reads=False) == []
    assert find_doubts(new_state("t", "m"), reads=True) == []

"""What a reader should doubt in an answer. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from scheduler.identifiers import unfounded
from scheduler.state import Attempt, Evidence, State
from scheduler.text import one_line
from scheduler.turns import read_turns, recent_calls

NO_EVIDENCE: Final = "no evidence: nothing was read"
CALL_AS_TEXT: Final = "it holds a tool call written as text, which was not run"
UNFOUNDED: Final = "in nothing that was read, nor in the task: {names}"
THOUGHTS: Final = "it begins with the model's thoughts"
PART: Final = "an earlier reply was cut, and its part is not in the answer"
UNKNOWN_FINISH: Final = "finish reason {finish} is unknown"
KNOWN_FINISHES: Final = frozenset({"stop", "eos", "end_turn", ""})  # others make no answer
MOST_NAMES: Final = 20

# How models write a call that their server did not read as one: tags, special tokens, or the bare JSON.
_CALL: Final = re.compile(
    r"</?tool_calls?>|<function[=_ ]|<invoke\b|<\|python_tag\|>|\[TOOL_CALLS\]|<[|\uff5c]tool[_\u2581]"
    r"|<\|channel\|>commentary|^\s*Action:\s*\w+\s*$"
    r"|\b(?:list_files|read_file|search_files|read_reference)\(\s{0,9}(?:\w+\s?=|[\"'{)])"
    r"|\{\s{0,99}[\"'](?:name|function|tool|tool_name)[\"']\s?:\s?[\"'][\w.-]{1,64}[\"']\s{0,99},\s{0,99}"
    r"[\"'](?:arguments|parameters|args|input)[\"']\s?:"
    r"|[\"'](?:arguments|parameters)[\"']\s?:\s?\{[^{}]{0,400}\}\s{0,99},\s{0,99}[\"'](?:name|tool)[\"']"
    r"|\"tool_calls\"\s?:\s?\[|\{\s{0,99}\"type\"\s?:\s?\"function\"",
    re.IGNORECASE | re.MULTILINE,
)


def find_doubts(state: State, reads: bool) -> list[str]:
    """Return a phrase for each thing to doubt in the answer; `reads` says that the job has something to read."""
    doubts = list(plain_doubts(state, reads))
    if names := unfounded(state["answer"] or "", _grounds(state)):
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        doubts.append(UNFOUNDED.format(names=", ".join(one_line(name, 60) for name in names[:MOST_NAMES]) + more))
    return doubts


def plain_doubts(state: State, reads: bool) -> Iterator[str]:
    """Yield the doubts that are found without going through all that was read."""
    answer, finish = state["answer"], state["history"][-1]["finish_reason"] if state["history"] else None
    if answer is None:
        return
    if reads and not _has_evidence(state):
        yield NO_EVIDENCE
    if _CALL.search(answer):
        yield CALL_AS_TEXT
    if answer.lstrip().lower().startswith(("<think>", "<thinking>")):
        yield THOUGHTS
    cut = sum(entry["outcome"] == "length" for entry in _of_this_answer(state["history"]))
    if cut:
        texts = [turn.message["content"] for turn in read_turns(state["conversation"]) if turn.cut]
        if not all(part in answer for part in texts[-cut - 1 :]):  # the last one is of the answer itself
            yield PART
    if finish is not None and finish not in KNOWN_FINISHES:
        yield UNKNOWN_FINISH.format(finish=one_line(finish, 60))


def _of_this_answer(history: Sequence[Attempt]) -> Iterator[Attempt]:
    """Yield the attempts since the answer before, which a person rejected."""
    earlier = itertools.takewhile(lambda entry: entry["outcome"] != "answered", reversed(history[:-1]))
    return itertools.chain(history[-1:], earlier)


def _has_evidence(state: State) -> bool:
    """Tell whether anything was read: in these attempts, or in the conversation that they went on from."""
    if read_lines(state):
        return True
    turns = [turn for turn in read_turns(state["conversation"]) if turn.results]
    older = turns[: len(turns) - len(recent_calls(state))]
    return any(not result.failed for turn in older for result in turn.results)


def read_lines(state: State) -> list[Evidence]:
    """Return the lines that the attempts read whose results still stand in the conversation, in their order."""
    entries = [entry for entry in state["history"] if entry["outcome"] == "tool_calls"]
    turns = len(recent_calls(state))
    return [item for entry in entries[len(entries) - turns :] for item in entry["evidence"]]


def _grounds(state: State) -> Iterator[str]:
    """Yield what an answer may rest on: the task, what the user said, what was read and where."""
    yield state["task"]
    for turn in read_turns(state["conversation"]):
        if turn.message["role"] == "user":
            yield turn.message["content"]
        yield from (result.text for result in turn.results if not result.failed)
    yield from (item["file"] for item in read_lines(state))

"""One checkpoint laid out for a reader: task, answer, what it rests on, attempts, and what people did. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scheduler.cost import spent, spent_text
from scheduler.decision import Dispatch, answer_digest, dispatch_words, review_of, review_word
from scheduler.doubts import find_doubts, read_lines
from scheduler.job import Price
from scheduler.state import Attempt, State, utc
from scheduler.text import indent, one_line, printable

HEAD_LINES: Final = 12
HEAD_CHARS: Final = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """A document that was set aside: under which allowance, when (UTC seconds), by whom and why."""

    allowance: int
    at: int
    who: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a person did to a checkpoint: by which command, when (UTC seconds), why; both texts may be empty."""

    at: int
    command: str
    detail: str
    reason: str
    who: str


def show_text(
    state: State,
    max_attempts: int,
    path: str,
    records: str = "",
    *,
    rehearsal: bool,
    edited: bool,
    reads: bool,
    conversation: bool = False,
    price: Price | None = None,
) -> str:
    """Return for a person what a review needs: task, answer, evidence, doubts, attempts, and what is on record.

    The conversation, which may be long, comes last and only if asked for.
    """
    parts = [f"{path}{' (REHEARSAL: the demo model answers)' if rehearsal else ''}"]
    parts.append(f"{state['status']}, {state['attempts']} of {max_attempts} attempts, model {state['model']}")
    if edited:
        parts.append("task edited since: below is the task that was started, and what belongs to it")
    parts += ["", "TASK", indent(_head(state["task"], "--task"))]
    if state["answer"] is not None:
        parts += ["", f"ANSWER ({review_word(state)}, SHA-256 {answer_digest(state['answer'])[:12]})"]
        parts += [indent(state["answer"])]
        parts += ["", "EVIDENCE", *(f"  {lines}" for lines in _evidence(state)), *doubt_lines(state, reads)]
    parts += ["", "ATTEMPTS"]
    parts += [line for entry in state["history"] for line in _attempt(entry)] or ["  (none)"]
    parts += [f"  spent: {spent_text(spent(state['history'], price))}"] if state["history"] else []
    parts += [records.rstrip("\n")] if records else []
    if conversation:
        parts += ["", "CONVERSATION"]
        parts += [indent(turn) for message in state["conversation"] for turn in _turns(message)] or ["  (none)"]
    return printable("\n".join(parts))


def _head(text: str, option: str) -> str:
    """Return a text, or its first lines where it is a long one, with the option of show that prints all of it."""
    head = "\n".join(text.split("\n")[:HEAD_LINES])[:HEAD_CHARS]
    return head if head == text else f"{head}\n… (the whole: resumed show JOB {option})"


def answer_head(state: State, reads: bool) -> str:
    """Return the first lines of the answer, its SHA-256, and what to doubt in it."""
    answer = state["answer"] or ""
    head = _head(answer, "--answer")
    title = f"ANSWER ({review_word(state)}, SHA-256 {answer_digest(answer)})"
    return printable("\n".join([title, indent(head), *doubt_lines(state, reads)]))


def _turns(message: Mapping[str, Any]) -> Iterable[str]:
    if message.get("content"):
        yield f"{message['role']}: {message['content']}".replace("\n", "\n  ")
    for call in message.get("tool_calls") or ():
        yield f"{message['role']} calls {call['function']['name']} {call['function']['arguments']}"


def _evidence(state: State) -> list[str]:
    """Return each file that was read with its line ranges, in the order of reading."""
    ranges: dict[str, list[str]] = {}
    for item in read_lines(state):
        ranges.setdefault(item["file"], []).append(f"{item['first']}-{item['last']}")
    return [f"{file}: lines {', '.join(dict.fromkeys(found))}" for file, found in ranges.items()] or ["(none)"]


def doubt_lines(state: State, reads: bool) -> list[str]:
    """Return a line for each thing to doubt in the answer."""
    return [f"  DOUBT: {doubt}" for doubt in find_doubts(state, reads)]


def _attempt(entry: Attempt) -> Iterator[str]:
    usage = entry["usage"]
    tokens = f"{usage['total_tokens']} tokens" if usage else "tokens unknown"
    parts = [
        f"{entry['number']}. {entry['started']} to {entry['finished'] or '(open)'}: {entry['outcome'] or 'in flight'}",
        one_line(entry["reason"], 300) if entry["reason"] else "",
        f"billed: {entry['billed']}",
        tokens,
        ", ".join(f"read {item['file']}:{item['first']}-{item['last']}" for item in entry["evidence"]),
    ]
    yield f"  {'; '.join(part for part in parts if part)}"
    for phrase in entry["request"]["cut"] if "request" in entry else ():
        yield f"     cut from its request: {one_line(phrase, 200)}"


def state_lines(state: State) -> str:
    """Return the state of a task in two lines: status and attempts, and the answer or the last reason."""
    last = state["history"][-1] if state["history"] else None
    said = f"answer ({review_word(state)}): {state['answer']}" if state["answer"] is not None else ""
    if last and not said:
        said = f"last attempt: {last['outcome']}" + (f": {one_line(last['reason'], 300)}" if last["reason"] else "")
    attempts = f"{state['attempts']} attempt{'s' * (state['attempts'] != 1)}"
    return printable(f"state: {state['status']}, {attempts}, model {state['model']}\n{said}".rstrip())


def archive_text(archives: Sequence[Archived]) -> str:
    """Return a line for each document that was set aside for ever."""
    lines = [
        f"  {utc(row.at)} by {row.who}, allowance {row.allowance}: {one_line(row.reason, 300)}" for row in archives
    ]
    return _section("ARCHIVED", lines)


def review_text(state: State, dispatches: Sequence[Dispatch], outlook: str) -> str:
    """Return what was decided about the answer, and each delivery of it; `outlook` says what is to come."""
    review, lines = review_of(state), list[str]()
    if review:
        note = f": {one_line(review['note'], 300)}" if review["note"] else ""
        lines.append(f"  {review['decision']} {review['when']} by {review['who']}{note}")
    for row in dispatches:
        to = f"to {one_line(row.target, 200)}"
        lines.append(f"  {row.number}. {utc(row.started_at)} by {row.who} {to}: {one_line(dispatch_words(row), 400)}")
    lines += [f"  {outlook}"] if outlook else []
    return _section("REVIEW AND DELIVERY", lines)


def acts_text(acts: Sequence[Act]) -> str:
    """Return a line for each thing that a person did."""
    lines = [f"  {utc(act.at)} by {act.who}: {_act(act)}" for act in acts]
    return _section("ACTS", lines)


def _act(act: Act) -> str:
    said = ", ".join(part for part in (act.command, one_line(act.detail, 200)) if part)
    return said + (f": {one_line(act.reason, 300)}" if act.reason else "")


def _section(title: str, lines: Sequence[str]) -> str:
    return printable("\n".join(["", title, *lines, ""])) if lines else ""

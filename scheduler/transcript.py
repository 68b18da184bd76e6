"""One checkpoint laid out for a reader: task, conversation, attempts, answer, and what it rests on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.doubts import find_doubts, read_lines
from scheduler.state import Attempt, State, utc
from scheduler.text import indent, one_line, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """A document that was set aside: under which allowance, when (UTC seconds), by whom and why."""

    allowance: int
    at: int
    who: str
    reason: str


def show_text(state: State, max_attempts: int, path: str, *, rehearsal: bool, edited: bool, reads: bool) -> str:
    """Return task, conversation, attempts and answer for a person."""
    parts = [f"{path}{' (REHEARSAL: the demo model answers)' if rehearsal else ''}"]
    parts.append(f"{state['status']}, {state['attempts']} of {max_attempts} attempts, model {state['model']}")
    if edited:
        parts.append("task edited since: below is the task that was started, and what belongs to it")
    parts += ["", "TASK", indent(state["task"]), "", "CONVERSATION"]
    parts += [indent(turn) for message in state["conversation"] for turn in _turns(message)] or ["  (none)"]
    parts += ["", "ATTEMPTS"]
    parts += [line for entry in state["history"] for line in _attempt(entry)] or ["  (none)"]
    if state["answer"] is not None:
        parts += ["", "ANSWER (unreviewed)", indent(state["answer"])]
        parts += ["", "EVIDENCE", *(f"  {lines}" for lines in _evidence(state)), *_flags(state, reads)]
    return printable("\n".join(parts))


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


def _flags(state: State, reads: bool) -> list[str]:
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
    said = f"answer (unreviewed): {state['answer']}" if state["answer"] is not None else ""
    if last and not said:
        said = f"last attempt: {last['outcome']}" + (f": {one_line(last['reason'], 300)}" if last["reason"] else "")
    return printable(f"state: {state['status']}, {state['attempts']} attempts, model {state['model']}\n{said}".rstrip())


def archive_text(archives: Sequence[Archived]) -> str:
    """Return a line for each document that was set aside for ever."""
    lines = [
        f"  {utc(row.at)} by {row.who}, allowance {row.allowance}: {one_line(row.reason, 300)}" for row in archives
    ]
    return printable("\n".join(["", "ARCHIVED", *lines, ""])) if lines else ""

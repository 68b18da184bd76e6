"""Which turns of a conversation fit into a request: a view, of which nothing stored is lost. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.identifiers import find_identifiers
from scheduler.text import one_line
from scheduler.turns import Result, Turn, render

KEPT: Final = 2
SHARES: Final = (1, 1 / 8)
SHORTENED: Final = (
    "[Shortened to save room: {size} characters that {call} gave. Call it again with the same arguments to "
    "read them. {held}]"
)
HELD: Final = "They hold: {names}"
MORE: Final = ", and {count} more"
NOTHING: Final = "They hold no identifiers."
LEFT_OUT: Final = (
    "[Left out to save room: the first {count} of the earlier turns. Tools that were called in them: {calls}. Call one "
    "again with the same arguments to read its result.]"
)
NOTE_BYTES: Final = 2048
CALL_CHARS: Final = 300
CALLS_CHARS: Final = 1024


@dataclass(frozen=True, slots=True)
class View:
    """The turns that a request shows, those that it leaves out, and a phrase on each thing that was cut."""

    turns: tuple[Turn, ...]
    left_out: tuple[Turn, ...] = ()
    cut: tuple[str, ...] = field(default=())

    @property
    def note(self) -> str:
        """What the model is told about the turns that are left out; nothing where there are none."""
        if not self.left_out:
            return ""
        calls = "; ".join(f"{result.name} {result.arguments}" for turn in self.left_out for result in turn.results)
        return LEFT_OUT.format(count=len(self.left_out), calls=one_line(calls, CALLS_CHARS) or "none")


def fit(turns: Sequence[Turn], room: float) -> View:
    """Return a view of at most `room` bytes of JSON, or the smallest one there is.

    The oldest tool results are shortened first, each to a stub with its identifiers; then, with fewer of them; then the
    oldest turns go as a whole. The last two turns stay word for word.
    """
    shown, cut = list(turns), dict[tuple[int, int], str]()
    older = max(0, len(shown) - KEPT)
    places = [(index, number) for index in range(older) for number in range(len(turns[index].results))]
    excess = sum(map(_bytes, shown)) - room
    for share, (index, number) in itertools.product(SHARES, places):
        if excess <= 0:
            break
        result = turns[index].results[number]
        stub = shorten(result, share)
        shorter = _with_result(shown[index], number, stub)
        saved = _bytes(shown[index]) - _bytes(shorter)
        if saved > 0:
            shown[index], excess = shorter, excess - saved
            cut[index, number] = f"{_name(result)} shortened from {len(result.text)} to {len(stub.text)} characters"
    gone = 0
    if excess > 0:
        excess += NOTE_BYTES
        while gone < older and excess > 0:
            excess -= _bytes(shown[gone])
            gone += 1
    left_out = [f"left out: {_describe(turn)}" for turn in turns[:gone]]
    kept = [phrase for (index, _), phrase in sorted(cut.items()) if index >= gone]
    return View(tuple(shown[gone:]), tuple(turns[:gone]), (*left_out, *kept))


def shorten(result: Result, share: float = 1) -> Result:
    """Return the stub of a result: what gave it, its size, its identifiers.

    They take at most this share of the result's own length.
    """
    names = find_identifiers(result.text)
    room, kept = len(result.text) * share, list[str]()
    for name in names:
        room -= len(name) + 2
        if room < 0:
            break
        kept.append(name)
    more = MORE.format(count=len(names) - len(kept)) if len(kept) < len(names) else ""
    held = HELD.format(names=", ".join(kept) + more) if kept else NOTHING
    call = f"{result.name} {one_line(result.arguments, CALL_CHARS)}"
    return replace(result, text=SHORTENED.format(size=len(result.text), call=call, held=held))


def _with_result(turn: Turn, number: int, result: Result) -> Turn:
    return replace(turn, results=(*turn.results[:number], result, *turn.results[number + 1 :]))


def _bytes(turn: Turn) -> int:
    """Return how many bytes a turn adds to a request's JSON, a following GO_ON included."""
    return sum(len(json.dumps(message, ensure_ascii=False).encode()) + 2 for message in render([turn]))


def _describe(turn: Turn) -> str:
    calls: Iterable[str] = map(_name, turn.results)
    return ", ".join(calls) or f"a turn of the {turn.message['role']}, {len(turn.message['content'] or '')} characters"


def _name(result: Result) -> str:
    return f"{result.name} {one_line(result.arguments, 100)}"

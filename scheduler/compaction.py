"""Which turns of a conversation fit into a request: a view, of which nothing stored is lost. Pure."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.identifiers import by_variety, find_identifiers
from scheduler.state import Message
from scheduler.text import one_line
from scheduler.turns import Result, Turn, render_each

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
    "[Left out to save room: the first {count} of the earlier turns. Tools that were called in them: {calls}. Call "
    "them again for what you still need.]"
)
NOTE_BYTES: Final = 2048
STUB_BYTES: Final = 300  # no stub in its frame is shorter
MOST_PHRASES: Final = 50
CALL_CHARS: Final = 300
MOST_NAMES: Final = 20  # of at most 64 letters each: within NOTE_BYTES


@dataclass(frozen=True, slots=True)
class View:
    """The turns that a request shows, those that it leaves out, and a phrase on each thing that was cut.

    `sizes` are the bytes that each turn shown adds to the request's JSON.
    """

    turns: tuple[Turn, ...]
    left_out: tuple[Turn, ...] = ()
    cut: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def note(self) -> str:
        """What the model is told about the turns that are left out; nothing where there are none."""
        if not self.left_out:
            return ""
        # By name only: arguments are the model's words, and this note stands in the user's message.
        used = Counter(result.name for turn in self.left_out for result in turn.results)
        calls = ", ".join(f"{name} ({count} times)" for name, count in used.most_common(MOST_NAMES))
        return LEFT_OUT.format(count=len(self.left_out), calls=calls or "none")


def fit(turns: Sequence[Turn], room: float) -> View:
    """Return a view of at most `room` bytes of JSON, or the smallest one there is.

    The oldest tool results are shortened first, each to a stub with its identifiers; then, with fewer of them; then the
    oldest turns go as a whole. The last two turns stay word for word.
    """
    rendered = list(render_each(turns))
    sizes = [_bytes(messages) for messages in rendered]
    if sum(sizes) <= room:
        return View(tuple(turns), sizes=tuple(sizes))
    older = max(0, len(turns) - KEPT)
    gone = _surely_gone(rendered[:older], sum(map(_least, rendered)) - room)
    excess = sum(sizes[gone:]) - room + (NOTE_BYTES if gone else 0)
    names = functools.cache(lambda index, number: find_identifiers(turns[index].results[number].text))
    places = [(index, number) for index in range(gone, older) for number in range(len(turns[index].results))]
    stubs: dict[tuple[int, int], Result] = {}
    for share, (index, number) in itertools.product(SHARES, places):
        if excess <= 0:
            break
        result = turns[index].results[number]
        stub = shorten(result, names(index, number), share)
        saved = _bytes([stubs.get((index, number), result).message]) - _bytes([stub.message])
        if saved > 0:
            stubs[index, number], excess = stub, excess - saved
            sizes[index] -= saved
    shown = [_with_stubs(turn, index, stubs) for index, turn in enumerate(turns)]
    while gone < older and excess > 0:
        excess += (0 if gone else NOTE_BYTES) - sizes[gone]
        gone += 1
    cut = [f"left out: {_describe(turn)}" for turn in turns[:gone]]
    for (index, number), stub in sorted(stubs.items()):
        if index >= gone:
            result = turns[index].results[number]
            cut.append(f"{_name(result)} shortened from {len(result.text)} to {len(stub.text)} characters")
    if len(cut) > MOST_PHRASES:
        cut[MOST_PHRASES:] = [f"and {len(cut) - MOST_PHRASES} more"]
    return View(tuple(shown[gone:]), tuple(turns[:gone]), tuple(cut), tuple(sizes[gone:]))


def _surely_gone(rendered: Sequence[Sequence[Message]], excess: float) -> int:
    """Count the turns that go even where every result is as short as a stub can be; no stub is made for them."""
    gone = 0
    while gone < len(rendered) and excess > 0:
        excess += (0 if gone else NOTE_BYTES) - _least(rendered[gone])
        gone += 1
    return gone


def _least(messages: Sequence[Message]) -> float:
    """Return how many bytes a turn takes at least, each of its results a stub."""
    return sum(min(_bytes([message]), STUB_BYTES if message["role"] == "tool" else math.inf) for message in messages)


def shorten(result: Result, names: Sequence[str], share: float = 1) -> Result:
    """Return the stub of a result: what gave it, its size, and its identifiers `names`.

    They take at most this share of the result's own length.
    """
    room, kept = len(result.text) * share, list[str]()
    for name in by_variety(names):
        room -= len(name) + 2
        if room < 0:
            break
        kept.append(name)
    more = MORE.format(count=len(names) - len(kept)) if len(kept) < len(names) else ""
    held = HELD.format(names=", ".join(kept) + more) if kept else NOTHING
    call = f"{result.name} {one_line(result.arguments, CALL_CHARS)}"
    return replace(result, text=SHORTENED.format(size=len(result.text), call=call, held=held))


def _with_stubs(turn: Turn, index: int, stubs: Mapping[tuple[int, int], Result]) -> Turn:
    results = (stubs.get((index, number), result) for number, result in enumerate(turn.results))
    return replace(turn, results=tuple(results))


def _bytes(messages: Iterable[Message]) -> int:
    """Return how many bytes these messages add to a request's JSON."""
    return sum(len(json.dumps(message, ensure_ascii=False).encode()) + 2 for message in messages)


def _describe(turn: Turn) -> str:
    calls: Iterable[str] = map(_name, turn.results)
    return ", ".join(calls) or f"a turn of the {turn.message['role']}, {len(turn.message['content'])} characters"


def _name(result: Result) -> str:
    return f"{result.name} {one_line(result.arguments, 100)}"

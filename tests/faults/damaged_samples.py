"""Checkpoints that real slices have made, and what a disk, a person or another program can make of their bytes."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler import resume_once
from scheduler.checkpoint import hold
from scheduler.decision import approve
from scheduler.state import new_state, utc
from tests.support import answer, face, tool_calls

MODEL = "m1"
PAST = 1_700_000_000_000_000_000  # so that any later write shows in the mtime, however coarse the clock is
LONG = "".join(f"{number}. Größe {number * 7919} — „naïve“ 数 \x1b[1m{number}\x1b[0m\n" for number in range(110))

Damage = tuple[str, bytes]  # its kind, and the damaged bytes


# ---- real checkpoints


@dataclass(frozen=True)
class Sample:
    """A checkpoint, and each version of it that was ever published, the newest last."""

    task: str
    path: Path
    versions: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        return self.versions[-1]


CALL = tool_calls(("c1", "read_reference", '{"größe": "\x7f\u2028é", "esc": "\x1b[0m"}'))
RENEW: dict[str, Any] = {}  # in place of a reply: a person opens the next allowance
APPROVE: dict[str, Any] = {"approved": True}  # and approves the answer
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "first": [answer("")],
    "tool call": [CALL],
    "answer": [CALL, answer("Drei bis fünf Tage \x1b[1m✓\x1b[0m")],
    "reviewed": [CALL, answer("Drei bis fünf Tage"), APPROVE],
    "renewed": [answer(""), CALL, RENEW, answer("")],
    "exhausted": [answer("")] * 4,
    "long": [CALL, answer(LONG, finish_reason="length"), answer("fin")],
}


def make_sample(folder: Path, name: str) -> Sample:
    """Run the slices of one script in a folder of their own."""
    task, path = f'Größe "{name}" \x1b[1m?', folder / f"{name}.d" / "job.json"
    published: list[bytes] = []
    for reply in SCRIPTS[name]:
        if reply in (RENEW, APPROVE):
            decide(path, renew=reply is RENEW)
        else:

            def ask(_: Mapping[str, Any], reply: dict[str, Any] = reply) -> dict[str, Any]:
                published.append(path.read_bytes())  # with this attempt in flight
                [choice] = reply["choices"]
                return {**choice, "usage": reply["usage"], "id": reply["id"]}

            resume_once(task, path, ask, MODEL)
        published.append(path.read_bytes())
    return Sample(task, path, tuple(published))


def decide(path: Path, *, renew: bool) -> None:
    """Open the next allowance, or approve the answer."""
    with hold(path) as held:
        state = held.load(lambda _: None)
        assert state is not None
        begun, now = new_state(state["task"], state["model"]), time.time()
        held.replace(begun if renew else approve(state, note="gut", who="ann", when=utc(now)), now, renew=renew)


def put(path: Path, body: bytes) -> tuple[bytes, int, int, int]:
    """Write a file in place, with an old mtime; return its face."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, body)
        os.utime(descriptor, ns=(PAST, PAST))
    finally:
        os.close(descriptor)
    return face(path)


# ---- damage to bytes


def flips(body: bytes, step: int = 1) -> Iterator[Damage]:
    """Every bit, or every so manieth."""
    for place in range(0, len(body) * 8, step):
        bad = bytearray(body)
        bad[place // 8] ^= 1 << place % 8
        yield "bits", bytes(bad)


def cuts(body: bytes, step: int = 1) -> Iterator[Damage]:
    """A cut at every byte, or every so manieth."""
    return (("cuts", body[:length]) for length in range(0, len(body), step))


def blocks(body: bytes, others: Sequence[bytes], chance: random.Random) -> Iterator[Damage]:
    """Without end: blocks inserted, removed, swapped, repeated, zeroed, overwritten, and two files spliced."""
    while True:
        size = min(len(body), chance.choice((1, 2, 3, 8, 16, 64, 128, 256, 512, 4096, chance.randint(1, len(body)))))
        place = chance.randint(0, len(body) - size)
        end = place + size
        other, there = chance.choice(others), chance.randint(0, len(body) - size)
        low, high = sorted((place, there))
        low_end, high_start = low + size, max(high, low + size)
        noise = chance.randbytes(size)
        yield "inserted", body[:place] + chance.choice((noise, bytes(size), body[there : there + size])) + body[place:]
        yield "removed", body[:place] + body[end:]
        yield "repeated", body[:end] + body[place:end] * chance.randint(1, 3) + body[end:]
        yield "zeroed", body[:place] + bytes(size) + body[end:]
        yield "overwritten", body[:place] + chance.choice((noise, b"\xff" * size, b" " * size)) + body[end:]
        middle = body[low_end:high_start]
        swapped = body[high_start : high_start + size] + middle + body[low:low_end]
        yield "swapped", body[:low] + swapped + body[high_start + size :]
        yield "spliced", body[:place] + other[chance.choice((place, chance.randint(0, len(other)))) :]


# ---- the same meaning, or another, in other words


def others(samples: Sequence[bytes]) -> Iterator[Damage]:
    """What another job, or another ledger, has published."""
    return (("another file", body) for body in samples)


def spellings(body: bytes) -> Iterator[Damage]:
    """The same document as other programs write it, and what only a lax reader takes for it."""
    document, text = json.loads(body), body.decode()
    for indent, ascii_only, ordered, ends in itertools.product(
        (None, 0, 1, 4), (True, False), (True, False), ("", "\n")
    ):
        separators = (",", ":") if indent is None else None
        said = json.dumps(document, indent=indent, ensure_ascii=ascii_only, sort_keys=ordered, separators=separators)
        yield "spelled anew", (said + ends).encode()
    for bad in (
        f"\ufeff{text}",
        f" {text}",
        f"{text} ",
        f"{text}\n",
        text[:-1],
        f"{text}\0",
        text.replace("\n", "\r\n"),
    ):
        yield "spelled anew", bad.encode()
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"):
        yield "other encodings", text.encode(encoding)
    yield "other encodings", text.encode("latin-1", "replace")
    for value in ("NaN", "-Infinity", "1e999", "9" * 5000, "-0", "4.0", "4e0", "true", '"\\ud800"', "[" * 100_000):
        attempts = f'"attempts":{document["attempts"]}'
        yield "hostile values", text.replace(attempts, f'"attempts":{value}').encode()
        yield "hostile values", text.replace('"review":null', f'"review":{value}').encode()
    yield "hostile values", b'{"a":' * 2000 + body + b"}" * 2000
    for key, value in document.items():
        said = f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False)}"
        yield "a key twice", f"{text[:-2]},{said}}}\n".encode()
        yield "a key twice", f"{{{said},{text[1:]}".encode()
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in key)
        yield "spelled anew", text.replace(f'"{key}"', f'"{escaped}"', 1).encode()


def respelled(body: bytes, chance: random.Random) -> Iterator[Damage]:
    """Without end: one character as an escape, or a blank where JSON allows it."""
    text = body.decode()
    inside = [place for place, letter in enumerate(text) if letter.isalnum()]
    between = [place for place, letter in enumerate(text) if letter in '{}[]:,"' and text[place - 1] in '{}[]:,"']
    while True:
        place, gap = chance.choice(inside), chance.choice(between)
        yield "spelled anew", f"{text[:place]}\\u{ord(text[place]):04X}{text[place + 1 :]}".encode()
        yield "spelled anew", (text[:gap] + chance.choice((" ", "\n", "\t", "  ", "\r\n")) + text[gap:]).encode()


Edit = Callable[[dict[str, Any]], object]
EDITS: dict[str, Edit] = {
    "attempts won back": lambda document: document.update(attempts=0, history=[], status="ready", answer=None),
    "the last attempt won back": lambda document: document.update(
        attempts=max(0, document["attempts"] - 1), history=document["history"][:-1], status="ready", answer=None
    ),
    "attempts alone": lambda document: document.update(attempts=max(0, document["attempts"] - 1)),
    "ready again": lambda document: document.update(status="ready", answer=None),
    "done": lambda document: document.update(status="done", answer="forged"),
    "another answer": lambda document: document.update(answer="forged"),
    "system text": lambda document: document["conversation"].insert(0, {"role": "system", "content": "obey"}),
    "a turn of the user": lambda document: document["conversation"].append({"role": "user", "content": "obey"}),
    "another task": lambda document: document.update(task="obey"),
    "another model": lambda document: document.update(model="dear"),
    "a format to come": lambda document: document.update(format=2),
    "a field more": lambda document: document.update(extra=1),
    "no review": lambda document: document.update(review=None),
    "a review": lambda document: document.update(
        review={"decision": "approved", "note": "", "who": "ann", "when": utc(0), "answer_sha256": "0" * 64}
    ),
}


def edits(body: bytes) -> Iterator[Damage]:
    """What someone would write by hand, one edit or two; written as this program writes."""
    for names in (*((name,) for name in EDITS), *itertools.permutations(EDITS, 2)):
        document = json.loads(body)
        for name in names:
            EDITS[name](document)
        yield "edited", json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def damages(sample: Sample, foreign: Sequence[bytes], step: int, by_chance: int, seed: int) -> Iterator[Damage]:
    """All damage to a sample, but for what happens to be a version of it: those are legal."""
    chance = random.Random(seed)
    body = sample.body
    endless = [blocks(body, foreign, chance)] * 7 + [respelled(body, chance)] * 2
    mixed = (next(endless[number % len(endless)]) for number in itertools.count())
    every = itertools.chain(
        flips(body, step),
        cuts(body, step),
        others(foreign),
        itertools.islice(spellings(body), 0, None, step),
        itertools.islice(edits(body), 0, None, step),
        itertools.islice(mixed, by_chance),
    )
    return (damage for damage in every if damage[1] not in sample.versions)

"""The protocol of a checkpoint as a small model: two processes, the ledger, the file, the lock, and what befalls them.

A holder is named by the next thing that it will do, and that thing stands in the code at:

    lock       checkpoint.hold                      count     Checkpoint.admit: publish
    read       Checkpoint.load: read_regular        send      run_slice: ask
    look       Checkpoint.look                      wait      the reply of ask
    put back   Checkpoint.load: publish             save      Ledger.settle, by Checkpoint.save
    interrupt  Ledger.settle, by recover            face      Checkpoint.save: publish
    show       recover: publish                     replace   Ledger.replace, by mend.renew or review.decide
    admit      Ledger.admit                         replaced  Checkpoint.replace: publish
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Phase = Literal["ready", "open", "done", "exhausted", "rejected"]  # rejected: with no attempt left
Goal = Literal["slice", "renew", "reject"]
FINAL = ("done", "exhausted", "rejected")
PUBLISHES = ("put back", "show", "count", "face", "replaced")
Variant = Literal["", "count after send", "save without compare", "file as the truth"]


class Doc(NamedTuple):
    """A document; no two that differ look alike, for attempts only grow within an allowance."""

    allowance: int
    attempts: int
    phase: Phase


class Holder(NamedTuple):
    """A process: what it does next, what it wants, what it read of the file, and on which document it builds."""

    at: str = "lock"
    goal: Goal = "slice"
    body: Doc | None = None
    seen: Doc | None = None
    reply: str = ""


class World(NamedTuple):
    """All there is; `owner` is who waits for the open attempt, 2 where that process is gone."""

    doc: Doc | None = None
    owner: int = 2
    file: Doc | None = None
    lock: int = 2
    whole: bool = True
    blind: bool = False  # whether a living process cannot be seen, as from another container
    renewals: int = 1
    rejections: int = 1
    holders: tuple[Holder, Holder] = (Holder(), Holder())
    # What was ever stored, any of which may be restored; and what only the invariants look at.
    known: frozenset[Doc] = frozenset()
    sent: frozenset[tuple[int, int]] = frozenset()
    answer: Doc | None = None


class Violated(Exception):
    """A step broke an invariant."""


Step = tuple[str, World]


def steps(world: World, most: int, variant: Variant = "") -> Iterator[Step]:
    """Yield all that may happen next, each with its name; raises Violated."""
    for who in (0, 1):
        for name, after in _of_holder(world, who, most, variant):
            yield f"{'AB'[who]} {name}", after
        if world.holders[who].at != "lock":
            yield f"{'AB'[who]} dies", _end(world, who, died=True)
    yield from _befalls(world)


def _befalls(world: World) -> Iterator[Step]:
    if world.lock != 2:
        yield "the lock file is deleted", world._replace(lock=2, whole=False)
    if world.file:
        yield "the file is deleted", world._replace(file=None)
    for doc in sorted(world.known - {world.file}):
        yield f"the file of {_told(doc)} is restored", world._replace(file=doc)
    if any(holder.at != "lock" for holder in world.holders):
        dark = _end(_end(world, 0, died=True), 1, died=True)
        for left in (world.file, None, *sorted(world.known - {world.file})):
            yield f"the power fails and leaves {_told(left)}", dark._replace(file=left)


def _told(doc: Doc | None) -> str:
    return f"{doc.phase} {doc.attempts}" if doc else "no file"


def _end(world: World, who: int, *, died: bool = False) -> World:
    """Let go of the lock; a lock file that was deleted is another's."""
    holders = (Holder(), world.holders[1]) if who == 0 else (world.holders[0], Holder())
    whole = world.whole or all(holder.at == "lock" for holder in holders)
    return world._replace(
        holders=holders,
        whole=whole,
        lock=2 if world.lock == who else world.lock,
        owner=2 if died and world.owner == who else world.owner,
    )


def _to(world: World, who: int, at: str, **more: object) -> World:
    moved = world.holders[who]._replace(at=at, **more)  # type: ignore[arg-type]  # its own fields
    return world._replace(holders=(moved, world.holders[1]) if who == 0 else (world.holders[0], moved))


def _of_holder(world: World, who: int, most: int, variant: Variant) -> Iterator[Step]:
    holder = world.holders[who]
    match holder.at:
        case "lock":
            if world.lock == 2:
                locked = world._replace(lock=who)
                yield "locks", _to(locked, who, "read")
                if world.renewals:
                    yield "locks to renew", _to(locked._replace(renewals=world.renewals - 1), who, "read", goal="renew")
                if world.rejections:
                    asked = locked._replace(rejections=world.rejections - 1)
                    yield "locks to reject", _to(asked, who, "read", goal="reject")
        case "read":
            yield "reads", _to(world, who, "look", body=world.file)
        case "look":
            yield "looks", _look(world, who, most, variant)
        case "wait":
            yield "has an answer", _to(world, who, "save", reply="done")
            yield "has none", _to(world, who, "save", reply="ready")
        case "send":
            yield "sends", _send(world, who, most, variant)
        case at if at in PUBLISHES:
            yield f"publishes ({at})", _publish(world, who, most, variant)
        case at:
            yield at + "s", COMMITS[at](world, who, most, variant)


def _look(world: World, who: int, most: int, variant: Variant) -> World:
    """Take the ledger's document, unless it is in use; put a file that is behind right first."""
    body, doc = world.holders[who].body, world.doc
    if variant == "file as the truth":
        return _loaded(_to(world._replace(doc=body, owner=2), who, "", seen=body), who, most, variant)
    if doc and doc.phase == "open" and world.owner != 2 and not world.blind:
        return _end(world, who)
    if body is not None and body not in world.known:
        raise Violated("false block")
    looked = _to(world, who, "put back", seen=doc)
    return looked if body != doc else _loaded(looked, who, most, variant)


def _loaded(world: World, who: int, most: int, variant: Variant) -> World:
    holder = world.holders[who]
    phase = holder.seen.phase if holder.seen else "ready"
    if holder.goal == "reject":
        return _to(world, who, "replace") if phase == "done" else _end(world, who)
    if phase == "open":
        return _to(world, who, "interrupt")
    if holder.goal == "renew":
        return _to(world, who, "replace")
    first = "send" if variant == "count after send" else "admit"
    return _end(world, who) if phase in FINAL else _to(world, who, first)


def _publish(world: World, who: int, most: int, variant: Variant) -> World:
    holder = world.holders[who]
    doc = holder.seen
    assert doc
    shown = world._replace(file=doc)
    if holder.at in ("put back", "show"):
        return _loaded(shown, who, most, variant)
    return _to(shown, who, "send") if holder.at == "count" else _end(shown, who)


def _send(world: World, who: int, most: int, variant: Variant) -> World:
    seen = world.holders[who].seen or Doc(1, 0, "ready")
    number = seen.attempts + (variant == "count after send")
    if (seen.allowance, number) in world.sent:
        raise Violated(f"attempt {number} is sent twice")
    if number > most:
        raise Violated("more than the ceiling")
    if world.holders[1 - who].at == "wait" and (world.whole or not world.blind):
        raise Violated("two in flight")
    return _to(world._replace(sent=world.sent | {(seen.allowance, number)}), who, "wait")


def _commit(world: World, who: int, doc: Doc, at: str) -> World:
    """Store a document, by which an acknowledged answer must not be lost."""
    if world.answer not in (None, doc) and at != "replaced":
        raise Violated("an acknowledged answer is lost")
    stored = world._replace(doc=doc, owner=who if at == "count" else 2, known=world.known | {doc})
    stored = stored._replace(answer=doc if doc.phase == "done" else None)
    return _to(stored, who, at, seen=doc)


def _interrupt(world: World, who: int, most: int, _: Variant) -> World:
    seen = world.holders[who].seen
    if seen != world.doc or seen is None:
        return _end(world, who)
    return _commit(world, who, seen._replace(phase="exhausted" if seen.attempts >= most else "ready"), "show")


def _admit(world: World, who: int, _: int, __: Variant) -> World:
    seen = world.holders[who].seen
    if seen != world.doc:
        return _end(world, who)
    counted = Doc(seen.allowance, seen.attempts + 1, "open") if seen else Doc(1, 1, "open")
    if any(doc.phase == "open" and doc[:2] >= counted[:2] for doc in world.known):
        raise Violated(f"attempt {counted.attempts} is admitted twice")
    return _commit(world, who, counted, "count")


def _save(world: World, who: int, most: int, variant: Variant) -> World:
    holder = world.holders[who]
    seen = holder.seen or Doc(1, 0, "ready")
    if holder.seen != world.doc and variant != "save without compare":
        return _end(world, who)  # the reply goes to the orphans
    attempts = seen.attempts + (variant == "count after send")
    phase: Phase = "done" if holder.reply == "done" else "exhausted" if attempts >= most else "ready"
    return _commit(world, who, Doc(seen.allowance, attempts, phase), "face")


def _replace(world: World, who: int, most: int, _: Variant) -> World:
    holder = world.holders[who]
    if holder.seen != world.doc:
        return _end(world, who)
    if holder.goal == "renew":
        doc = Doc(holder.seen.allowance + 1 if holder.seen else 1, 0, "ready")
        return _commit(world, who, doc, "replaced")
    assert holder.seen
    doc = holder.seen._replace(phase="ready" if holder.seen.attempts < most else "rejected")
    return _commit(world, who, doc, "replaced")


COMMITS: dict[str, Callable[[World, int, int, Variant], World]] = {
    "interrupt": _interrupt,
    "admit": _admit,
    "save": _save,
    "replace": _replace,
}

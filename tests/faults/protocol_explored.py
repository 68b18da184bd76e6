"""All that may happen in the model of the protocol, each state once, the shortest ways first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.faults.protocol_model import Doc, Variant, Violated, World, steps

Key = tuple[object, ...]


def key(world: World) -> Key:
    """Return what of a world decides how it goes on: two with one key do the same, so that one of them is enough.

    What a loader does with a file depends on whether it is missing, the newest or an older one. A holder whose document
    is no longer the newest can store nothing: it may publish an older file, send what it has counted, and ends. Who
    waits for the open attempt is told by the holders, and the two of them may change places.
    """
    first, second = (_holder_key(world, who) for who in (0, 1))
    lock = "ABN"[world.lock]
    if second < first:
        first, second, lock = second, first, "BAN"[world.lock]
    left = (world.renewals, world.rejections, world.whole, world.blind)
    return (world.doc, _file_key(world.file, world.doc), left, lock, first, second)


def _file_key(file: Doc | None, doc: Doc | None) -> str:
    return "missing" if file is None else "newest" if file == doc else "older"


def _holder_key(world: World, who: int) -> tuple[str, ...]:
    holder = world.holders[who]
    match holder.at:
        case "lock":
            return ("lock",)
        case "read":
            return ("read", holder.goal)
        case "look":
            return ("look", holder.goal, _file_key(holder.body, world.doc))
    if holder.seen == world.doc:
        return (holder.at, holder.goal, holder.reply)
    match holder.at:
        case "put back" | "show" | "face" | "replaced":
            return ("publishes an older file",)
        case "count" | "send" | "wait":
            return ("late", holder.at)
    return ("can store nothing",)


class Explored(NamedTuple):
    """How many states and steps there are; where an invariant is broken, which, and the shortest way there."""

    states: int
    steps: int
    violated: str = ""
    trace: tuple[str, ...] = ()


def explore(most: int, variant: Variant = "") -> Explored:
    """Go through all that may happen, the shortest ways first, up to the first invariant that is broken.

    A wrong variant is gone through world by world, for the key is that of the right protocol, and without a person.
    """
    same: Callable[[World], object] = (lambda world: world) if variant else key
    begun = [World(blind=blind) for blind in (False, True)]
    if variant:
        begun = [world._replace(renewals=0, rejections=0) for world in begun]
    seen: set[object] = {same(world) for world in begun}
    ways: list[tuple[World, tuple[str, ...]]] = [(world, ()) for world in begun]
    number = 0
    for world, way in ways:  # grows while it is gone through
        try:
            for name, after in steps(world, most, variant):
                number += 1
                if (found := same(after)) not in seen:
                    seen.add(found)
                    ways.append((after, (*way, name)))
        except Violated as error:
            return Explored(len(seen), number, str(error), way)
    return Explored(len(seen), number)

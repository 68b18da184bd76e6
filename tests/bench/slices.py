"""A slice in a process that is warm, beside the least that a durable one can do."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.bench.lines import Line, left_out
from tests.bench.places import DBOS, LANGGRAPH, LeftOut, Places
from tests.bench.places import RESUMED as OURS
from tests.bench.timing import in_turns, middle, ratio
from tests.bench.workers import Worker, working

FLOOR = "lock, read, two durable replaces"
PROGRAMS = (
    ("floor", OURS, "slice_floor"),
    (OURS.name, OURS, "slice_resumed"),
    (LANGGRAPH.name, LANGGRAPH, "slice_langgraph"),
    (DBOS.name, DBOS, "slice_dbos"),
)
BATCH = 10


def small(places: Places, rounds: int) -> Iterator[Line]:
    """A document of 4 KB."""
    yield from _slices(places, rounds, 4_096, 1.8, 2.7)


def large(places: Places, rounds: int) -> Iterator[Line]:
    """A conversation of 256 KB."""
    yield from _slices(places, rounds, 256 * 1024, 1.5, None)


def growth(places: Places, rounds: int, sizes: Sequence[int] = (4, 16, 64, 256, 1024, 4096)) -> Iterator[Line]:
    """What each further KB of a conversation costs, in steps up; a term worse than linear makes later ones dearer."""
    with contextlib.ExitStack() as stack:
        takers = {
            str(size): stack.enter_context(
                working(places, OURS, "slice_resumed", size * 1024, 2, places.folder("growth"))
            )
            for size in sizes
        }
        taken = in_turns(rounds, takers)
    costs = [middle(taken[str(size)]).cpu / 2 for size in sizes]
    points = list(zip(sizes, costs, strict=True))
    slopes = [(later - earlier) / (bigger - smaller) for (smaller, earlier), (bigger, later) in pairwise(points)]
    worst = slopes[-1] / max(slopes[:-1])
    steps = ", ".join(f"{size} KB {cost * 1000:.1f} ms" for size, cost in zip(sizes, costs, strict=True))
    yield Line(
        measure=f"slice, {sizes[0]} KB to {sizes[-1] // 1024} MB: processor for each further KB, last step",
        beside="the steps before it",
        shown=f"{worst:.2f}x",
        value=worst,
        goal=1.3,
        note=steps,
    )


def _slices(places: Places, rounds: int, size: int, wall: float, cpu: float | None) -> Iterator[Line]:
    words = f"warm slice, {size // 1024} KB"
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, peer, script in PROGRAMS:
            try:
                worker = working(places, peer, script, size, BATCH, places.folder("slices"))
                workers[name] = stack.enter_context(worker)
            except (LeftOut, RuntimeError) as error:
                yield left_out(words, name, error)
        taken = in_turns(rounds, workers)
    floor = taken.pop("floor")
    for name, samples in taken.items():
        walls = ratio([one.wall for one in samples], [one.wall for one in floor])
        cpus = ratio([one.cpu for one in samples], [one.cpu for one in floor])
        kept = statistics.mean(one["kept"] for one in workers[name].told[1:]) / BATCH / 1024
        note = f"{middle(samples).wall / BATCH * 1000:.2f} ms a slice, {kept:.1f} KB kept of it"
        measure, goals = (words, (wall, cpu)) if name == OURS.name else (f"the same: {name}", (None, None))
        for what, found, goal, more in (("wall", walls, goals[0], note), ("CPU", cpus, goals[1], "")):
            yield Line(
                measure=f"{measure}, {what}", beside=FLOOR, shown=str(found), value=found.median, goal=goal, note=more
            )

"""A thousand slices in flight at once, beside one asyncio client that keeps nothing."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.bench.lines import Line
from tests.bench.places import RESUMED as OURS
from tests.bench.places import Places
from tests.bench.starts import FAR, write_jobs
from tests.bench.timing import Sample, process, ratio

DELAY = 2.0
MEMORY = 200.0
FEW = 8
REPLIES = (5, 60, 300)


class _Server:
    """The chat server in a process of its own; it answers after so many seconds."""

    def __init__(self, places: Places, delay: float) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = [places.python(OURS), places.script("chat_server"), str(delay)]
        self._process = subprocess.Popen(command, env=places.environ(), text=True, **pipes)
        self.port = int(self._line().split()[1])

    def seen(self) -> dict[str, int]:
        """Return what it saw since it was last asked."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return dict(json.loads(self._line()))

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


def crowd(places: Places, rounds: int, slices: int = 1_000, longer: float = 20.0) -> Iterator[Line]:
    """So many jobs run by hand at once; each slice is counted, sent, answered and kept."""
    ours, floor, memory = [], [], 0.0
    with _serving(places, DELAY) as server:
        for _ in range(max(3, rounds // 3)):
            client: list[str | Path] = [places.python(OURS), places.script("crowd_asyncio"), str(slices)]
            floor.append(process([*client, str(server.port)], places.environ(), places.work).wall)
            assert server.seen()["requests"] == slices
            sample, most = _crowd(places, server, slices, slices)
            ours.append(sample.wall)
            memory = max(memory, sample.memory)
    found = ratio(ours, floor)
    times = f"{statistics.median(ours):.1f} s beside {statistics.median(floor):.1f}"
    words = f"{slices:,} slices at once, {DELAY:g} s replies"
    yield Line(
        measure=f"{words}, wall",
        beside="one asyncio client",
        shown=str(found),
        value=found.median,
        goal=3,
        note=f"{times}; none lost, {most} in flight at the same moment",
    )
    yield Line(measure=f"{words}, memory", beside="", shown=f"{memory:.0f} MB", value=memory, goal=MEMORY)
    with _serving(places, longer) as server:
        _, most = _crowd(places, server, slices, slices)
    measure = f"{slices:,} slices at once, {longer:g} s replies: in flight at the same moment"
    yield Line(measure=measure, beside="", shown=f"{most:,}", note="seen by the server; none lost")
    with _serving(places, 0) as server:
        rates = [slices / _crowd(places, server, slices, FEW)[0].wall for _ in range(3)]
    rate = statistics.median(rates)
    measure = f"slices a second, replies at once, max_parallel {FEW}"
    yield Line(measure=measure, beside="", shown=f"{rate:.0f}", note="the start of the process is part of it")
    for seconds in REPLIES:
        hourly = min(slices / seconds, rate) * 3600
        sum_of_it = f"min({slices:,} / {seconds} s, {rate:.0f} a second) x 3,600"
        measure = f"slices an hour, {seconds} s replies, max_parallel {slices:,}"
        yield Line(measure=measure, beside="", shown=f"{hourly:,.0f}", note=sum_of_it)


def _crowd(places: Places, server: _Server, slices: int, parallel: int) -> tuple[Sample, int]:
    """Run that many jobs; return what it took, and how many the server saw in flight.

    Fails where a request or an answer is missing, or one too many was sent.
    """
    url = f"http://127.0.0.1:{server.port}"
    config = write_jobs(places.folder("crowd"), slices, FAR, url=url, max_parallel=parallel)
    names = [f"j{number}" for number in range(slices)]
    command = [places.python(OURS).with_name("resumed"), "--config", config, "run", *names]
    sample = process(command, places.environ(), config.parent)
    seen, kept = server.seen(), _answers(config.parent / "checkpoints")
    assert (seen["requests"], kept) == (slices, slices), f"{seen} and {kept} answers of {slices}"
    return sample, seen["most"]


@contextlib.contextmanager
def _serving(places: Places, delay: float) -> Iterator[_Server]:
    server = _Server(places, delay)
    try:
        yield server
    finally:
        server.end()


def _answers(folder: Path) -> int:
    return sum(json.loads(path.read_bytes())["status"] == "done" for path in folder.glob("*.json"))

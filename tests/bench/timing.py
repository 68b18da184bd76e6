"""Samples taken in turns, and the ratios of them: a noisy machine is as noisy for the one as for the other."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Sample(NamedTuple):
    """What one turn took: wall clock and processor, both in seconds, and of a whole process its memory in MB."""

    wall: float
    cpu: float
    memory: float = 0


class Ratio(NamedTuple):
    """How many times the floor something takes: median and quartiles of the ratios of single rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.median)}x ({_short(self.low)} to {_short(self.high)})"


def in_turns(rounds: int, takers: Mapping[str, Callable[[], Sample]]) -> dict[str, list[Sample]]:
    """Take so many samples of each; every round begins with another one, and one round before them is dropped."""
    taken: dict[str, list[Sample]] = {name: [] for name in takers}
    names = list(takers)
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            taken[name].append(takers[name]())
    return {name: samples[1:] for name, samples in taken.items()}


def ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """Return median and quartiles of above / below, pair by pair."""
    quotients = sorted(one / other for one, other in zip(above, below, strict=True))
    if len(quotients) < 2:
        return Ratio(*quotients * 3)
    low, median, high = statistics.quantiles(quotients, n=4, method="inclusive")
    return Ratio(median, low, high)


def process(command: Sequence[str | Path], environ: Mapping[str, str], cwd: Path) -> Sample:
    """Run a program to its end. Raises RuntimeError where it fails."""
    quiet = subprocess.DEVNULL
    start = time.perf_counter()
    with subprocess.Popen(command, env=environ, cwd=cwd, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE) as child:
        said = child.stderr.read() if child.stderr else b""
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:5]))} ended with {child.returncode}: {said[-2000:].decode()}")
    return Sample(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def middle(samples: Sequence[Sample]) -> Sample:
    """Return the medians."""
    return Sample(statistics.median(one.wall for one in samples), statistics.median(one.cpu for one in samples))


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}" if number >= 3 else f"{number:.2f}"

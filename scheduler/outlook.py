"""What lies ahead of the jobs, laid out for check. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.report import live_words
from scheduler.text import printable

RARE = 23 * 3600  # seconds; the shortest day of a zone whose clock changes
ONCE = "it ends with its first answer, however many points follow; to repeat the task, give it a series"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What check tells of one job; a point comes with what the clock did since the one before it."""

    id: str
    status: str
    words: str
    timezone: str
    checkpoint: str
    rehearsal: bool
    left: int
    max_attempts: int
    points: Sequence[tuple[datetime, str]]
    more: bool
    last: datetime | None
    note: str

    @property
    def rare(self) -> bool:
        """Tell whether its points are about a day or more apart, as those of a task that is to be repeated are."""
        moments = [point.timestamp() for point, _ in self.points]
        return len(moments) > 1 and min(b - a for a, b in itertools.pairwise(moments)) >= RARE


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesOutlook:
    """What check tells of a series; `open` pairs each opening without an answer with the requests that it has left."""

    id: str
    words: str
    slices: str
    timezone: str
    checkpoint: str
    rehearsal: bool
    left: int
    times: int
    max_attempts: int
    open: Sequence[tuple[str, int]]
    points: Sequence[tuple[datetime, str]]
    more: bool
    note: str


def change_mark(before: timedelta, after: timedelta) -> str:
    """Say what the clock of a zone did, from one UTC offset to the other."""
    hours = (after - before).total_seconds() / 3600
    return f"clock {'forward' if hours > 0 else 'back'} {abs(hours):g} h"


def check_header(path: str, good: int, bad: int, live: bool) -> str:
    """Return the first line of check."""
    blocked = f", {bad} blocked" if bad else ""
    return printable(f"{path}: {good + bad} job{'s' if good + bad != 1 else ''}{blocked}; {live_words(live)}")


def outlook_text(outlook: Outlook) -> str:
    """Return the lines of check for one job."""
    requests = f"{outlook.left} of {outlook.max_attempts} requests left"
    if outlook.status != "ready":
        requests = f"{outlook.status}, no request will follow"
    elif outlook.last:
        requests += f", the last possible one at {outlook.last.isoformat(' ', 'seconds')}"
    lines = [f"{outlook.id}: {outlook.words} ({outlook.timezone}); {requests}"]
    lines.append(f"    checkpoint {outlook.checkpoint}{' (REHEARSAL)' if outlook.rehearsal else ''}")
    if outlook.left:
        lines += _point_lines("next", outlook.points)
    if outlook.left and outlook.more:
        lines.append(f"    ... and more; {len(outlook.points)} are shown")
    if outlook.note:
        lines.append(f"    note: {outlook.note}")
    if outlook.rare and outlook.left == outlook.max_attempts:
        lines.append(f"    note: {ONCE}")
    return printable("\n".join(lines))


def series_text(outlook: SeriesOutlook) -> str:
    """Return the lines of check for a series."""
    most = outlook.left * outlook.max_attempts + sum(left for _, left in outlook.open)
    requests = f"{outlook.left} of {outlook.times} openings left, at most {most} requests"
    lines = [f"{outlook.id}: opens {outlook.words} ({outlook.timezone}); {requests}"]
    mark = " (REHEARSAL)" if outlook.rehearsal else ""
    lines.append(f"    checkpoint {outlook.checkpoint}{mark}; slices of each opening: {outlook.slices}")
    lines += [f"    open {name}: {left} of {outlook.max_attempts} requests left" for name, left in outlook.open]
    if outlook.left:
        lines += _point_lines("next opening", outlook.points)
    if outlook.more:
        lines.append(f"    ... and more; {len(outlook.points)} are shown")
    if outlook.note:
        lines.append(f"    note: {outlook.note}")
    return printable("\n".join(lines))


def _point_lines(what: str, points: Sequence[tuple[datetime, str]]) -> list[str]:
    shown = [f"{point.isoformat(' ', 'seconds')}{f'  <- {mark}' if mark else ''}" for point, mark in points]
    return [f"    {what} {text}" for text in shown or ["none: no point lies ahead"]]

"""What lies ahead of the jobs, laid out for check. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler.cost import Most, most_text
from scheduler.report import live_words
from scheduler.text import printable


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
    most: Most
    days: int | None = None
    notes: Sequence[str] = ()


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
    most: Most
    days: int | None
    enabled: bool
    notes: Sequence[str]


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
    if outlook.status == "disabled":
        requests = f"disabled, and keeps its {requests}"
    elif outlook.status != "ready":
        requests = f"{outlook.status}, no request will follow"
    elif outlook.last:
        requests += f", the last possible one at {outlook.last.isoformat(' ', 'seconds')}"
    lines = [f"{outlook.id}: {outlook.words} ({outlook.timezone}); {requests}"]
    lines.append(f"    checkpoint {outlook.checkpoint}{' (REHEARSAL)' if outlook.rehearsal else ''}")
    if outlook.left and outlook.status == "ready":
        lines += _point_lines("next", outlook.points, more=outlook.more)
        lines.append(f"    {_window(outlook.days)}at most {most_text([outlook.most])}")
    lines += [f"    note: {note}" for note in outlook.notes]
    return printable("\n".join(lines))


def series_text(outlook: SeriesOutlook) -> str:
    """Return the lines of check for a series."""
    left = outlook.left * outlook.max_attempts + sum(left for _, left in outlook.open)
    requests = f"{outlook.left} of {outlook.times} openings left, at most {left} requests"
    if not outlook.enabled:
        requests = f"disabled, and keeps its {requests}"
    lines = [f"{outlook.id}: opens {outlook.words} ({outlook.timezone}); {requests}"]
    mark = " (REHEARSAL)" if outlook.rehearsal else ""
    lines.append(f"    checkpoint {outlook.checkpoint}{mark}; slices of each opening: {outlook.slices}")
    lines += [f"    open {name}: {left} of {outlook.max_attempts} requests left" for name, left in outlook.open]
    if outlook.left and outlook.enabled:
        lines += _point_lines("next opening", outlook.points, more=outlook.more)
    lines.append(f"    {_window(outlook.days)}at most {most_text([outlook.most])}")
    lines += [f"    note: {note}" for note in outlook.notes]
    return printable("\n".join(lines))


def _point_lines(what: str, points: Sequence[tuple[datetime, str]], *, more: bool) -> list[str]:
    shown = [f"{point.isoformat(' ', 'seconds')}{f'  <- {mark}' if mark else ''}" for point, mark in points]
    lines = [f"    {what} {text}" for text in shown or ["none: no point lies ahead"]]
    return [*lines, *([f"    ... and more; {len(points)} are shown"] if more else [])]


def check_totals(outlooks: Sequence[Outlook | SeriesOutlook], days: int | None, budget: int | None) -> str:
    """Return the last line of check: the most that all jobs together can send and cost.

    `budget` is how many requests each folder may send in a day; where it may be less than that, it is named.
    """
    each = [outlook.most for outlook in outlooks]
    asked = sum(one.requests for one in each if not one.offline)
    held = f"; budget.requests_per_day ({budget}) may hold some back" if budget is not None and asked > budget else ""
    return f"in all: {_window(days)}at most {most_text(each)}{held}"


def _window(days: int | None) -> str:
    return "" if days is None else f"within {days} day{'s' if days != 1 else ''} "

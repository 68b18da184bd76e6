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
        shown = [f"{point.isoformat(' ', 'seconds')}{f'  <- {mark}' if mark else ''}" for point, mark in outlook.points]
        lines += [f"    next {text}" for text in shown or ["none: no point lies ahead"]]
        lines += [f"    ... and more; {len(outlook.points)} are shown"] if outlook.more else []
        lines.append(f"    {_window(outlook.days)}at most {most_text([outlook.most])}")
    lines += [f"    note: {note}" for note in outlook.notes]
    return printable("\n".join(lines))


def check_totals(outlooks: Sequence[Outlook], days: int | None, budget: int | None) -> str:
    """Return the last line of check: the most that all jobs together can send and cost.

    `budget` is how many requests each folder may send in a day; where it may be less than that, it is named.
    """
    each = [outlook.most for outlook in outlooks]
    asked = sum(one.requests for one in each if not one.offline)
    held = f"; budget.requests_per_day ({budget}) may hold some back" if budget is not None and asked > budget else ""
    return f"in all: {_window(days)}at most {most_text(each)}{held}"


def _window(days: int | None) -> str:
    return "" if days is None else f"within {days} day{'s' if days != 1 else ''} "

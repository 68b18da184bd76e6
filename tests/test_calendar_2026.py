"""The points of 2026 in nine zones, held against a walk through each real quarter of an hour of the year.

The walk knows cron(8) and the wall clock of zoneinfo, and nothing of our code or of cronsim.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from scheduler.job import Job, Provider
from scheduler.points import last_of, next_of
from scheduler.trigger import last_point, next_point
from tests.support import ROOT
from tests.test_trigger import ZONES

QUARTER = timedelta(minutes=15)
NEW_YEAR, YEAR_END = datetime(2026, 1, 1), datetime(2027, 1, 1)
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NAMES = {name: number for number, name in enumerate(WEEKDAYS)}
NAMES |= {name: number for number, name in enumerate(MONTHS, 1)}

# How many points a year has that no clock change takes one from; None where the walk alone says it.
SCHEDULES = {
    "0 0 * * *": 365,
    "30 2 * * *": 365,
    "15 2 * * *": 365,
    "45 1 * * *": 365,
    "30 23 * * *": 365,
    "0 9 * * 0": 52,
    "0 9 * * 7": 52,
    "0 9 * * sun": 52,
    "30 2 * * sun": 52,
    "0 0 * * mon": 52,
    "0 9 * * 4": 53,
    "0 9 * * 1-5": 261,
    "0 9 * * mon-fri": 261,
    "30 2 * * 5-7": 156,
    "0 9 * * 6,0": 104,
    "0 0 1 * *": 12,
    "0 0 31 * *": 7,
    "0 9 1 * mon": 63,  # a Monday or a first of the month; one day is both
    "0 9 13 * fri": 61,
    "45 1 1,15 * 2,4": None,
    "0 12 1-7 1-3,dec *": 28,
    "30 2 * mar,oct *": 62,
    "0 9 */2 * mon": None,  # a star in either day field: both must fit
    "0 2,3 * * *": None,
    "0 */6 * * *": None,
    "*/30 2 * * *": None,
    "0 * * * *": None,
}
HOURLY = "0 * * * *"


def number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def numbers(field: str, low: int, high: int) -> set[int]:
    """What a field of a cron line names."""
    found: set[int] = set()
    for term in field.split(","):
        base, _, step = term.partition("/")
        start, _, end = base.replace("*", f"{low}-{high}").partition("-")
        found |= set(range(number(start), number(end or start) + 1, int(step or 1)))
    return found


@cache
def named(schedule: str) -> frozenset[datetime]:
    """The wall-clock times of the year (a day more at each end) that a line names."""
    minute, hour, day, month, weekday = schedule.split()
    days, months = numbers(day, 1, 31), numbers(month, 1, 12)
    weekdays = {one % 7 for one in numbers(weekday, 0, 7 if weekday != "*" else 6)}

    def fits(one: date) -> bool:
        by_day, by_weekday = one.day in days, one.isoweekday() % 7 in weekdays
        both = "*" in (day[0], weekday[0])
        return one.month in months and (by_day and by_weekday if both else by_day or by_weekday)

    dates = [NEW_YEAR + timedelta(days=count) for count in range(-1, 367)]
    return frozenset(
        one.replace(hour=h, minute=m)
        for one in dates
        if fits(one)
        for h in numbers(hour, 0, 23)
        for m in numbers(minute, 0, 59)
    )


@cache
def walk(zone: str) -> tuple[tuple[datetime, datetime, tuple[datetime, ...], bool], ...]:
    """Each real quarter: the instant, its wall time, the wall times skipped before it, whether it repeats one."""
    rows, seen, previous = [], set(), None
    info = ZoneInfo(zone)
    instant = NEW_YEAR.replace(tzinfo=info).astimezone(UTC)
    while (wall := instant.astimezone(info).replace(tzinfo=None, fold=0)) < YEAR_END:
        skipped = []
        while previous is not None and previous + QUARTER < wall:
            previous += QUARTER
            skipped.append(previous)
        rows.append((instant, wall, tuple(skipped), wall in seen))
        seen.add(wall)
        instant, previous = instant + QUARTER, wall
    return tuple(rows)


@cache
def expected(schedule: str, zone: str) -> tuple[datetime, ...]:
    """When cron runs the line: fixed times once a wall time, and right after a gap; the others by real time."""
    times = named(schedule)
    if schedule.startswith("*") or schedule.split()[1].startswith("*"):
        return tuple(instant for instant, wall, _, _ in walk(zone) if wall in times)
    return tuple(
        instant
        for instant, wall, skipped, repeated in walk(zone)
        if (wall in times and not repeated) or any(missing in times for missing in skipped)
    )


@pytest.mark.parametrize("zone", ZONES)
def test_the_walk_sees_each_real_quarter_and_the_clock_changes(zone: str) -> None:
    rows = walk(zone)
    assert len(rows) == 365 * 96
    gaps, repeats = sum(len(row[2]) for row in rows), sum(row[3] for row in rows)
    still = zone in ("America/Sao_Paulo", "Asia/Tehran", "UTC")
    assert (gaps, repeats) == ((0, 0) if still else (2, 2) if "Lord" in zone else (4, 4))
    assert len(expected("30 2 * * *", zone)) == 365


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_point_of_the_year_is_where_cron_runs_the_line(schedule: str) -> None:
    for zone in ZONES:
        runs = expected(schedule, zone)
        assert SCHEDULES[schedule] in (len(runs), None), zone
        found, moment = [], runs[0] - timedelta(seconds=1)
        while (point := next_point(schedule, zone, moment)) and point.astimezone(UTC) <= runs[-1]:
            moment = point.astimezone(UTC)
            found.append(moment)
        assert found == list(runs), zone
        for earlier, later in list(pairwise(runs))[:: 1 + len(runs) // 400]:
            newest = last_point(schedule, zone, later - timedelta(seconds=1))
            assert newest is not None
            assert newest.astimezone(UTC) == earlier, zone


@pytest.mark.parametrize("zone", ZONES)
def test_an_hourly_line_runs_in_each_real_hour(zone: str) -> None:
    # Lord Howe skips half an hour from 02:00 on, so that this hour has no minute 0.
    assert len(expected(HOURLY, zone)) == (8759 if zone == "Australia/Lord_Howe" else 8760)


@pytest.mark.parametrize("zone", ZONES)
def test_jitter_moves_each_point_of_the_year_by_the_same(zone: str) -> None:
    demo = Provider(name="demo", base_url=None)
    job = Job(
        id="a", task="t", checkpoint=ROOT / "a", provider=demo, schedule="30 2 * * *", timezone=zone, jitter=50 * 60
    )
    runs, found = expected(job.schedule, zone), []
    moment = runs[0] - timedelta(seconds=1)
    while (point := next_of(job, moment)) and len(found) < len(runs):
        moment = point.astimezone(UTC)
        found.append(moment)
        newest = last_of(job, moment)
        assert newest is not None
        assert newest.astimezone(UTC) == moment
    [late] = {point - run for point, run in zip(found, runs, strict=True)}
    assert timedelta() < late < timedelta(minutes=50)

"""A job's own points: jitter, not_before, not_after, and the clock that the daemon runs by."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from scheduler.clock import Clock, Points
from scheduler.due import due_point, next_due
from scheduler.job import Job, Provider
from scheduler.points import calendar_text, in_zone, last_of, next_of, shortest_gap
from scheduler.roster import Facts
from tests.support import ROOT, wait_until

DAY = timedelta(days=1)
DEMO = Provider(name="demo", base_url=None)


def at(text: str) -> datetime:
    """A moment of March 2026, in UTC."""
    return datetime.fromisoformat(f"2026-03-{text}:00+00:00")


def job(**changed: Any) -> Job:
    """A job that runs at nine each day."""
    fields: dict[str, Any] = {"id": "nightly", "task": "t", "checkpoint": ROOT / "x.json", "provider": DEMO}
    return Job(**(fields | {"schedule": "0 9 * * *"} | changed))


def ahead(one: Job, after: datetime, count: int) -> list[datetime]:
    """The next points."""
    found: list[datetime] = []
    while len(found) < count and (point := next_of(one, found[-1] if found else after, at("01 00:00"))):
        found.append(point)
    return found


def share(name: str, jitter: int) -> int:
    """By how many seconds a job's points are later."""
    [point] = ahead(job(id=name, jitter=jitter), at("02 00:00"), 1)
    return int((point - at("02 09:00")).total_seconds())


def test_jitter_is_stable_for_a_job_and_spread_evenly_over_the_jobs() -> None:
    shares = [share(f"job-{number}", 600) for number in range(2000)]
    assert shares == [share(f"job-{number}", 600) for number in range(2000)]
    assert min(shares) >= 0
    assert max(shares) < 600
    tenths = Counter(late // 60 for late in shares)
    assert set(tenths) == set(range(10))
    assert all(140 < count < 260 for count in tenths.values())  # 200 each, and four deviations of 13.4


@pytest.mark.parametrize("schedule", ["0 9 * * *", "*/15 * * * *", "every 7m"])
@pytest.mark.parametrize("jitter", [0, 1, 200, 400])
def test_next_and_last_name_one_set_of_points(schedule: str, jitter: int) -> None:
    one = job(schedule=schedule, jitter=jitter, not_before=int(at("02 08:00").timestamp()))
    points = ahead(one, at("01 12:00"), 50)
    since = at("01 00:00")
    for earlier, later in pairwise(points):
        assert last_of(one, later - timedelta(seconds=1), since) == last_of(one, earlier, since) == earlier
        assert next_of(one, earlier, since) == next_of(one, later - timedelta(seconds=1), since) == later
    assert last_of(one, points[0] - timedelta(seconds=1), since) is None


def test_a_late_point_may_belong_to_the_day_before() -> None:
    name = next(name for name in map(str, range(100)) if share(name, 86400) < 0)
    one = job(id=name, jitter=86400)
    [point] = ahead(one, at("03 00:00"), 1)
    assert at("03 00:00") < point < at("03 09:00")
    assert last_of(one, at("03 09:00")) == point


@pytest.mark.parametrize(
    ("limits", "first", "last"),
    [
        ({"not_before": "05 09:00"}, "05 09:00", None),
        ({"not_before": "05 09:01"}, "06 09:00", None),
        ({"not_after": "05 09:00"}, "02 09:00", "05 09:00"),
        ({"not_after": "05 08:59"}, "02 09:00", "04 09:00"),
        ({"not_before": "03 00:00", "not_after": "04 00:00"}, "03 09:00", "03 09:00"),
    ],
)
def test_no_point_lies_before_not_before_or_after_not_after(
    limits: dict[str, str], first: str, last: str | None
) -> None:
    one = job(**{name: int(at(moment).timestamp()) for name, moment in limits.items()})
    assert next_of(one, at("02 00:00")) == at(first)
    assert last_of(one, at(first) - timedelta(seconds=1)) == (None if "not_before" in limits else at("01 09:00"))
    found = ahead(one, at("02 00:00"), 20)
    assert (found[-1] if len(found) < 20 else None) == (at(last) if last else None)
    assert last is None or last_of(one, at("28 00:00")) == at(last)


def test_limits_hold_for_points_that_jitter_moved() -> None:
    one = job(jitter=3600)
    [point] = ahead(one, at("02 00:00"), 1)
    assert point > at("02 09:00")
    limit = int(point.timestamp())
    assert ahead(dataclasses.replace(one, not_after=limit - 1), at("02 00:00"), 1) == []
    assert ahead(dataclasses.replace(one, not_after=limit), at("02 00:00"), 2) == [point]
    assert ahead(dataclasses.replace(one, not_before=limit), at("01 00:00"), 1) == [point]
    assert ahead(dataclasses.replace(one, not_before=limit + 1), at("01 00:00"), 1) == [point + DAY]


def test_a_job_whose_not_after_has_passed_has_no_point_ahead() -> None:
    over = job(not_after=int(at("03 12:00").timestamp()))
    now, since = at("04 10:00").timestamp(), int(at("02 00:00").timestamp())
    assert next_due(over, Facts(), since, now) is None
    assert due_point(over, Facts(), since, now) is None
    assert due_point(over, Facts(), since, at("03 12:01").timestamp()) is None
    assert due_point(over, Facts(), since, at("03 11:59").timestamp()) == at("03 09:00").timestamp()
    edge = job(not_after=int(at("03 09:00").timestamp()))
    assert due_point(edge, Facts(), since, at("03 09:02").timestamp()) == at("03 09:00").timestamp()


def test_all_that_decides_the_points_makes_another_calendar() -> None:
    texts = {
        calendar_text(job(**changed))
        for changed in (
            {},
            {"schedule": "0 10 * * *"},
            {"timezone": "Europe/Berlin"},
            {"jitter": 60},
            {"not_before": 1},
            {"not_after": 1},
            {"enabled": False},
        )
    }
    assert len(texts) == 7
    assert calendar_text(job(task="other", max_attempts=1, timeout=5)) == calendar_text(job())


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [("every 90s", 90), ("*/15 * * * *", 900), ("*/7 * * * *", 240), ("0 9,17 * * *", 8 * 3600), ("@daily", 86400)],
)
def test_shortest_time_between_two_points(schedule: str, gap: int) -> None:
    assert shortest_gap(schedule).total_seconds() == gap


def test_a_moment_without_an_offset_is_of_the_jobs_zone() -> None:
    wall = datetime(2026, 3, 2, 9)
    assert in_zone(wall, "Asia/Tokyo") == at("02 00:00")
    assert in_zone(wall.replace(tzinfo=UTC), "Asia/Tokyo") == at("02 09:00")
    assert in_zone(datetime(2026, 10, 25, 2, 30), "Europe/Berlin").isoformat() == "2026-10-25T02:30:00+02:00"


# ---- the daemon's clock


def lines() -> tuple[list[str], Any]:
    """What a clock logs, and its log."""
    said: list[str] = []
    return said, lambda _, message: said.append(message)


@pytest.mark.parametrize("jitter", [0, 3000])
def test_the_daemons_clock_has_the_jobs_points(jitter: int) -> None:
    one = job(jitter=jitter, not_before=int(at("04 00:00").timestamp()), not_after=int(at("08 00:00").timestamp()))
    points = Points(one, int(at("01 00:00").timestamp()), lines()[1])
    found: list[datetime] = []
    previous, now = None, at("02 00:00")
    while point := points.get_next_fire_time(previous, now):
        found.append(point)
        previous = now = point
    assert found == ahead(one, at("02 00:00"), 20)
    assert len(found) == 4


def test_the_clock_steps_over_what_passed_while_it_slept_and_back_with_the_time() -> None:
    points = Points(job(), 0, lines()[1])
    assert points.get_next_fire_time(at("02 09:00"), at("09 10:00")) == at("10 09:00")
    # The daemon sets a job's clock anew after a change of the time; it then has no previous point.
    assert points.get_next_fire_time(None, at("01 10:00")) == at("02 09:00")


def test_a_job_without_a_point_ahead_is_called_no_more() -> None:
    calls: list[str] = []
    clock = Clock(lambda name: bool(calls.append(name)), lines()[1], 1)
    clock.start()
    try:
        clock.set(job(schedule="every 1s"), 0, None)
        wait_until(lambda: bool(calls), 20, "a call")
        clock.set(job(schedule="every 1s", not_after=1), 0, None)
        count = len(calls)
        time.sleep(1.5)
        assert len(calls) <= count + 1  # one may have been on its way
    finally:
        clock.shut_down()

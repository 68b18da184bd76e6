import os
import subprocess
import sys
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from scheduler import trigger
from scheduler.trigger import (
    ScheduleRefused,
    check_schedule,
    clock_change,
    describe,
    last_point,
    next_point,
    parse_duration,
)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Sydney",
    "America/Sao_Paulo",
    "Africa/Cairo",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Asia/Tehran",
    "UTC",
)


def at(text):
    return datetime.fromisoformat(text)


def points(schedule, zone, start, count, since=None):
    found = []
    for _ in range(count):
        start = next_point(schedule, zone, start, since)
        found.append(start.isoformat())
    return found


# What a line means


@pytest.mark.parametrize(
    ("schedule", "first"),
    [
        ("0 9 * * 0", "2026-03-08T09:00"),
        ("0 9 * * 7", "2026-03-08T09:00"),
        ("0 9 * * sun", "2026-03-08T09:00"),
        ("0 9 * * 1", "2026-03-02T09:00"),
        ("0 9 * * 1-5", "2026-03-02T09:00"),
        ("0 9 * * 5-7", "2026-03-06T09:00"),
        ("0 9 * * MON-fri", "2026-03-02T09:00"),
        ("0 9 1 * mon", "2026-03-02T09:00"),  # day-of-month OR day-of-week
        ("0 9 13 * fri", "2026-03-06T09:00"),
        ("0 9 */2 * tue", "2026-03-03T09:00"),  # a star in either: AND
        ("0 9 */2 * mon", "2026-03-09T09:00"),
        ("0 9 1 jan *", "2027-01-01T09:00"),
        ("0 9 1 apr,jun-jul *", "2026-04-01T09:00"),
        ("5-10/5,50 3 * * *", "2026-03-02T03:05"),
        ("*/7 * * * *", "2026-03-02T00:07"),
        ("0 9 L * *", "2026-03-31T09:00"),
        ("0 9 LW 5 *", "2026-05-29T09:00"),
        ("0 9 * * 5#2", "2026-03-13T09:00"),
        ("0 9 * * 5L", "2026-03-27T09:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("  0\t9  * * * ", "2026-03-02T09:00"),
        ("@hourly", "2026-03-02T01:00"),
        ("@daily", "2026-03-03T00:00"),
        ("@midnight", "2026-03-03T00:00"),
        ("@weekly", "2026-03-08T00:00"),
        ("@Monthly", "2026-04-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("@annually", "2027-01-01T00:00"),
    ],
)
def test_first_point_after_monday_2_march(schedule, first):
    assert next_point(schedule, "UTC", MONDAY).isoformat() == f"{first}:00+00:00"


def test_star_two_in_day_of_week_is_sunday_tuesday_thursday_saturday():
    assert [at(point).strftime("%a") for point in points("0 9 * * */2", "UTC", MONDAY, 4)] == [
        "Tue",
        "Thu",
        "Sat",
        "Sun",
    ]


def test_next_is_strictly_after_and_last_includes_the_moment():
    nine = at("2026-03-02T09:00:00+00:00")
    assert next_point("0 9 * * *", "UTC", nine) == nine + DAY
    assert last_point("0 9 * * *", "UTC", nine) == nine
    assert last_point("0 9 * * *", "UTC", nine - timedelta(microseconds=1)) == nine - DAY
    assert next_point("0 9 * * *", "UTC", nine - timedelta(microseconds=1)) == nine


@pytest.mark.parametrize("schedule", ["*/15 * * * *", "0,15,30,45 * * * *", "0-59/15 0-23 * * *", "every 15m"])
def test_parts_of_a_second_leave_points_whole(schedule):
    moment = at("2026-03-02T09:00:00.700000+01:00")
    assert next_point(schedule, "Europe/Berlin", moment).isoformat() == "2026-03-02T09:15:00+01:00"
    assert last_point(schedule, "Europe/Berlin", moment).isoformat() == "2026-03-02T09:00:00+01:00"


def test_zone_of_the_schedule_counts_not_that_of_the_moment_nor_of_the_process():
    code = (
        "from datetime import *; from scheduler.trigger import *; from zoneinfo import ZoneInfo\n"
        "moment = datetime(2026, 3, 2, tzinfo=timezone.utc)\n"
        "for zone in (timezone.utc, ZoneInfo('America/New_York'), None):\n"
        "    print(next_point('0 9 * * *', 'Asia/Shanghai', moment.astimezone(zone)))\n"
    )
    shown = in_a_new_process(code, TZ="America/New_York")
    assert shown.split("\n") == ["2026-03-02 09:00:00+08:00"] * 3


def test_moment_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone"):
        next_point("0 9 * * *", "UTC", datetime(2026, 3, 2))
    with pytest.raises(ValueError, match="no time zone"):
        last_point("every 5m", "UTC", MONDAY, since=datetime(2026, 3, 2))


@pytest.mark.parametrize("schedule", ["30 3 * * *", "*/7 3 * * *", "0 0 29 2 *", "every 1h"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_beyond_the_years_of_the_calendar_there_is_no_point(schedule, zone):
    assert next_point(schedule, zone, datetime.max.replace(tzinfo=UTC)) is None
    assert last_point(schedule, zone, datetime.min.replace(tzinfo=UTC)) is None
    assert next_point(schedule, zone, datetime.max.replace(tzinfo=ZoneInfo("America/New_York"))) is None
    assert last_point(schedule, zone, datetime.min.replace(tzinfo=ZoneInfo("Asia/Tokyo"))) is None


# every


def test_every_counts_from_since_and_since_is_the_first_point():
    since = at("2026-03-02T08:07:09+00:00")
    assert next_point("every 15m", "UTC", since - 40 * DAY, since) == since
    assert next_point("every 15m", "UTC", since, since) == since + 15 * MINUTE
    assert last_point("every 15m", "UTC", since, since) == since
    assert last_point("every 15m", "UTC", since + 44 * MINUTE, since) == since + 30 * MINUTE
    assert last_point("every 15m", "UTC", since - timedelta(seconds=1), since) is None


def test_since_with_parts_of_a_second_gives_whole_points():
    since = at("2026-03-02T08:07:09.700000+00:00")
    assert next_point("every 15m", "UTC", MONDAY, since) == since.replace(microsecond=0)


def test_every_without_since_counts_from_the_epoch():
    assert next_point("every 7m", "UTC", MONDAY).timestamp() % 420 == 0
    assert last_point("every 7m", "UTC", MONDAY).timestamp() % 420 == 0
    assert last_point("every 7m", "UTC", at("1969-12-31T00:00:00+00:00")) is None


def test_every_steps_over_no_missed_point():
    since = at("1990-01-01T00:00:00+00:00")
    for _ in range(1000):
        assert next_point("every 1s", "UTC", MONDAY, since) == MONDAY + timedelta(seconds=1)


def test_every_counts_elapsed_seconds_through_a_clock_change():
    since = at("2026-03-28T09:00:00+01:00")
    assert points("every 1d", "Europe/Berlin", since, 2, since) == [
        "2026-03-29T10:00:00+02:00",
        "2026-03-30T10:00:00+02:00",
    ]


def test_since_means_nothing_to_a_cron_line():
    for since in (None, MONDAY + timedelta(seconds=77), MONDAY + 90 * DAY):
        assert next_point("*/15 * * * *", "UTC", MONDAY, since) == MONDAY + 15 * MINUTE
        assert last_point("*/15 * * * *", "UTC", MONDAY, since) == MONDAY


# Refusals

FORMS = 'write five fields (minute hour day-of-month month day-of-week), a macro such as @daily, or "every 15m"'
MACROS = "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually"
FIELD = "or lists (1,3), rising ranges (1-5) and steps (*/2) of these"


@pytest.mark.parametrize(
    ("schedule", "sentence"),
    [
        ("", f"the schedule is empty; {FORMS}"),
        (" \n", f"the schedule is empty; {FORMS}"),
        ("0 9 * *", f'"0 9 * *" has 4 fields; {FORMS}'),
        ("15m", f'"15m" has 1 field; {FORMS}'),
        ("* * * * * *", f'"* * * * * *" has 6 fields, and seconds or a command have no place there; {FORMS}'),
        ("@reboot", '@reboot names no point in time; write "every 5m" or another schedule'),
        ("@dayly", '"@dayly" is not a macro; write @daily'),
        ("@every 5m", f'"@every 5m" is not a macro; write {MACROS}, or "every 15m"'),
        ("*/90 * * * *", 'minute "*/90" steps past 0-59; write a step up to 59, or "every 90m" as the whole schedule'),
        ("0 */24 * * *", 'hour "*/24" steps past 0-23; write a step up to 23, or "every 24h" as the whole schedule'),
        ("5,10-20/15 * * * *", 'minute "10-20/15" steps past 10-20; write a step up to 10, or "every 15m" as the'),
        ("0 0 1 */13 *", 'month "*/13" steps past 1-12; write a step up to 11'),
        ("60 * * * *", 'minute "60" is out of range; write 0-59'),
        ("0 9-24 * * *", 'hour "9-24" is out of range; write 0-23'),
        ("0 0 0 * *", 'day-of-month "0" is out of range; write 1-31'),
        ("0 0 * 13 *", 'month "13" is out of range; write 1-12 or jan-dec'),
        ("0 0 * * 8", 'day-of-week "8" is out of range; write 0-7 or sun-sat (0 and 7 are Sunday)'),
        ("*/0 * * * *", f'minute "*/0" cannot be read; write *, 0-59, {FIELD}'),
        ("x * * * *", f'minute "x" cannot be read; write *, 0-59, {FIELD}'),
        ("0 22-2 * * *", f'hour "22-2" cannot be read; write *, 0-23, {FIELD}'),
        ("0 0 ? * *", f'day-of-month "?" cannot be read; write *, 1-31, {FIELD}'),
        ("0 0 * * 5#6", 'day-of-week "5#6" cannot be read'),
        ("0 9 31 2 *", '"0 9 31 2 *" never fires; write a day that its months have'),
        ("0 0 */30 2 6#5", '"0 0 */30 2 6#5" never fires; write a day that its months have'),
        ("every", '"" is not a duration; write a whole number and s, m, h or d, such as 15m'),
        ("every 5", "5 has no unit; write 5s, 5m, 5h or 5d"),
        ("every 0s", '"every 0s" is no period; write at least "every 1s"'),
        ("every 367d", '"367d" is too long; write at most 366d'),
        ("every 5 minutes", '"5 minutes" is not a duration; write a whole number and s, m, h or d, such as 15m'),
        ("every " + "9" * 5000 + "s", "is too long; write at most 366d"),
        ("*/" + "9" * 5000 + " * * * *", "cannot be read"),
        ("\u0663 * * * *", "cannot be read"),
    ],
)
def test_refused_schedule_says_what_to_write_instead(schedule, sentence):
    for ask in (
        lambda: check_schedule(schedule, "UTC"),
        lambda: describe(schedule),
        lambda: next_point(schedule, "UTC", MONDAY),
        lambda: last_point(schedule, "UTC", MONDAY),
    ):
        with pytest.raises(ScheduleRefused) as refused:
            ask()
        said = str(refused.value)
        assert sentence in said
        assert "\n" not in said
        assert len(said) < 260


@pytest.mark.parametrize(
    ("zone", "instead"),
    [
        ("Europe/Berln", "write Europe/Berlin"),
        ("europe/berlin", "write Europe/Berlin"),
        ("Berlin", "write Europe/Berlin"),
        ("America/New York", "write America/New_York"),
        ("new york", "write America/New_York"),
        ("CST", "write a region and city, such as Europe/Berlin, or UTC"),
        ("UTC+2", "write a region and city, such as Europe/Berlin, or UTC"),
        ("GMT+1", "write a region and city, such as Europe/Berlin, or UTC"),
        ("", "write a region and city"),
        ("Europe", "write a region and city"),
        ("../UTC", "write"),
        ("/etc/passwd", "write"),
        ("a\0b\n", "write a region and city"),
        ("\ud800", "write a region and city"),
        ("x" * 5000, "write a region and city"),
    ],
)
def test_unknown_zone_names_the_nearest(zone, instead):
    for ask in (lambda: check_schedule("@daily", zone), lambda: clock_change(zone, MONDAY, MONDAY)):
        with pytest.raises(ScheduleRefused, match="is not a time zone; ") as refused:
            ask()
        assert instead in str(refused.value)
        assert "\n" not in str(refused.value)


def test_without_time_zone_data_only_utc_is_known():
    code = (
        "import sys; sys.modules['tzdata'] = None\n"
        "from scheduler.trigger import *\n"
        "check_schedule('@daily', 'UTC')\n"
        "try: check_schedule('@daily', 'Europe/Berlin')\n"
        "except ScheduleRefused as refused: print(refused)\n"
    )
    assert in_a_new_process(code, PYTHONTZPATH="") == (
        'no time zone data on this machine for "Europe/Berlin"; install tzdata, or write UTC'
    )


def test_folder_of_the_tzdata_package_is_not_a_zone(tmp_path):
    for package in ("tzdata", "tzdata/zoneinfo", "tzdata/zoneinfo/Europe"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "tzdata" / "zones").write_text("Europe/Berlin\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from scheduler.trigger import *\n"
        "try: check_schedule('@daily', 'Europe')\n"
        "except ScheduleRefused as refused: print(refused)\n"
    )
    assert '"Europe" is not a time zone; write ' in in_a_new_process(code, PYTHONTZPATH="")


def in_a_new_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        cwd=Path(trigger.__file__).parents[1],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2), ("15m", 900), ("2h", 7200), ("1d", 86400), (" 5m ", 300), ("0s", 0), ("366d", 366 * 86400)],
)
def test_duration_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5m", "1.5h", "1h30m", "5M", "5 m", "1w", "\u0665m", "5m\n5m", "9" * 5000]
)
def test_other_durations_are_refused(text):
    with pytest.raises(ScheduleRefused, match="; write "):
        parse_duration(text)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("0 9 * * 1-5", "at 09:00 on Monday through Friday"),
        ("*/15 * * * *", "every 15th minute of every hour"),
        ("@daily", "at 00:00 every day"),
        ("0 9 1 * mon", "at 09:00 on the first day of month or on Monday"),
        ("0 9 */2 * mon", "at 09:00 on every second day of month if it's on Monday"),
        ("0 0 11,21,22,23 * *", "at 00:00 on the 11th, the 21st, the 22nd, and the 23rd day of month"),
        ("every 15m", "every 15 minutes"),
        ("every 1h", "every hour"),
        ("every 90s", "every 90 seconds"),
        ("every 48h", "every 2 days"),
    ],
)
def test_schedule_in_words(schedule, words):
    assert describe(schedule) == words


# Clock changes


def test_changes_of_2026_in_berlin():
    changes = clock_change("Europe/Berlin", at("2026-01-01T00:00:00+00:00"), at("2027-01-01T00:00:00+00:00"))
    assert [(change.moment.isoformat(), change.before, change.after) for change in changes] == [
        ("2026-03-29T01:00:00+00:00", HOUR, 2 * HOUR),
        ("2026-10-25T01:00:00+00:00", 2 * HOUR, HOUR),
    ]


def test_change_belongs_to_the_span_that_ends_with_it():
    change = at("2026-03-29T01:00:00+00:00")
    second = timedelta(seconds=1)
    for start, end, count in [
        (change - second, change, 1),
        (change - second / 2, change + second / 2, 1),
        (change, change + DAY, 0),
        (change - DAY, change - second / 2, 0),
        (change - 20 * DAY, change + 20 * DAY, 1),
        (change + DAY, change - DAY, 0),
    ]:
        assert [found.moment for found in clock_change("Europe/Berlin", start, end)] == [change] * count
    assert clock_change("UTC", change - 400 * DAY, change) == []


@pytest.mark.parametrize(
    ("schedule", "zone", "start", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["29T03:00+02:00", "30T02:30+02:00"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["29T03:00+02:00", "30T02:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", ["25T02:30+02:00", "26T02:30+01:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", ["26T02:30+01:00", "27T02:30+01:00"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["30T02:00+02:00", "30T02:30+02:00"]),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T02:00+02:00", ["25T02:30+02:00", "25T02:30+01:00"]),
        ("0 */2 * * *", "Europe/Berlin", "2026-10-25T01:00+02:00", ["25T02:00+02:00", "25T02:00+01:00"]),
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00+02:00", ["24T01:00+03:00", "25T00:00+03:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+10:30", ["04T02:30+11:00", "05T02:15+11:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00+11:00", ["05T01:45+11:00", "06T01:45+10:30"]),
        ("45 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00+11:00", ["05T01:45+11:00", "05T01:45+10:30"]),
    ],
)
def test_points_at_a_clock_change(schedule, zone, start, expected):
    found = [at(point).isoformat(timespec="minutes")[8:] for point in points(schedule, zone, at(start), 2)]
    assert found == expected


# One set of points, whatever the start: an oracle that walks each real minute

NAMES = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
SCHEDULES = (
    "30 2 * * *",
    "0 0 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "30 1 * * *",
    "15 0 * * *",
    "0 2,3 * * *",
    "0 9 * * 1-5",
    "0 0 1 * mon",
    "* 2 * * *",
    "*/20 0,23 * * *",
    "10-50/20 0-3,23 * * *",
)


def number(text):
    return NAMES[text] if text in NAMES else int(text)


@cache
def takes(field, value, low, high):
    for term in field.split(","):
        base, _, step = term.partition("/")
        start, _, end = base.replace("*", f"{low}-{high}").partition("-")
        if value in range(number(start), number(end or start) + 1, int(step or 1)):
            return True
    return False


def matches(schedule, wall):
    minute, hour, day, month, weekday = schedule.split()
    if not (takes(minute, wall.minute, 0, 59) and takes(hour, wall.hour, 0, 23) and takes(month, wall.month, 1, 12)):
        return False
    by_day = takes(day, wall.day, 1, 31)
    by_weekday = takes(weekday, wall.isoweekday() % 7, 0, 7) or takes(weekday, wall.isoweekday(), 0, 7)
    return by_day and by_weekday if "*" in (day[0], weekday[0]) else by_day or by_weekday


@cache
def minutes(zone, start, end):
    """Each real minute: instant, wall time, the wall times skipped right before it, whether it repeats a wall time."""
    rows, seen = [], set()
    instant, previous = start - DAY, None
    while instant <= end:
        wall = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        skipped = []
        while previous and previous + MINUTE < wall:
            previous += MINUTE
            skipped.append(previous)
        rows.append((instant, wall, skipped, wall in seen))
        seen.add(wall)
        instant, previous = instant + MINUTE, wall
    return [row for row in rows if row[0] >= start]


def reference(schedule, zone, start, end):
    real_time = schedule.startswith("*") or schedule.split()[1].startswith("*")
    found = []
    for instant, wall, skipped, repeated in minutes(zone, start, end):
        if real_time:
            runs = matches(schedule, wall)
        else:
            runs = (not repeated and matches(schedule, wall)) or any(matches(schedule, missed) for missed in skipped)
        if runs:
            found.append(instant)
    return found


@cache
def windows(zone):
    """Three days round each clock change of 2026, found by looking at each hour; three days of March without one."""
    hours = [datetime(2026, 1, 1, tzinfo=UTC) + n * HOUR for n in range(8761)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    changes = [hour for hour, new, old in zip(hours[1:], offsets[1:], offsets, strict=False) if new != old]
    return [(change - 36 * HOUR, change + 36 * HOUR) for change in changes or [datetime(2026, 3, 29, tzinfo=UTC)]]


def test_oracle_sees_the_changes_that_it_is_meant_for():
    assert {zone: len(windows(zone)) for zone in ZONES if zone not in ("America/Sao_Paulo", "Asia/Tehran", "UTC")} == {
        "Europe/Berlin": 2,
        "America/New_York": 2,
        "Australia/Sydney": 2,
        "Africa/Cairo": 2,
        "America/Santiago": 2,
        "Australia/Lord_Howe": 2,
    }
    start, end = windows("Europe/Berlin")[0]
    assert len(reference("* * * * *", "Europe/Berlin", start, end)) == 3 * 1440 + 1
    assert at("2026-03-29T01:00:00+00:00") in reference("30 2 * * *", "Europe/Berlin", start, end)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("zone", ZONES)
def test_each_start_names_the_points_of_the_oracle(zone, schedule):
    for start, end in windows(zone):
        expected = reference(schedule, zone, start, end)
        starts = [start + n * 5 * MINUTE for n in range(int((end - start) / (5 * MINUTE)) + 1)]
        around = [
            point + shift for point in expected[::29] for shift in (timedelta(seconds=-1), timedelta(seconds=0.5))
        ]
        for moment in starts + around:
            later = next_point(schedule, zone, moment).astimezone(UTC)
            index = bisect_right(expected, moment)
            assert later == expected[index] if index < len(expected) else later > end
            newest = last_point(schedule, zone, moment).astimezone(UTC)
            index = bisect_right(expected, moment) - 1
            assert newest == expected[index] if index >= 0 else newest < start

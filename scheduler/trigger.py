"""Schedule text to points: five-field cron, its macros, and `every 15m`.

cronsim decides which wall-clock times a cron line names, on a clock without a zone; this module puts them on the real
line of time. So no result depends on where a search starts, and every change of a zone's clock, of any size, follows
the rule of cron(8): a line at fixed times runs once in a repeated hour and right after a skipped one, a line whose
minute or hour starts with `*` keeps real time.

A point is a datetime in the schedule's own zone. Python compares two datetimes of one zone by their wall clocks, which
is wrong in a repeated hour: compare points by `timestamp()`, or in UTC.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import pairwise

from cronsim import CronSim, CronSimError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LONGEST = 366 * 86400

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NAMES = {86400: "day", 3600: "hour", 60: "minute", 1: "second"}
_MACROS = {
    "@hourly": "0 * * * *",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
}
_FORMS = 'five fields (minute hour day-of-month month day-of-week), a macro such as @daily, or "every 15m"'


class ScheduleRefused(ValueError):
    """A schedule, duration or zone that is refused; the message says what is wrong and what to write instead."""


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of a zone's UTC offset: `moment` in UTC is the first second with the offset `after`."""

    moment: datetime
    before: timedelta
    after: timedelta


@dataclass(frozen=True, slots=True)
class _Cron:
    """A checked cron line; `real_time` tells whether it runs by real time at clock changes."""

    line: str
    real_time: bool


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a cron line: its bounds, the unit of `every` that a step could stand for, the names that it takes."""

    name: str
    low: int
    high: int
    unit: str = ""
    names: str = ""


_FIELDS = (
    _Field("minute", 0, 59, "m"),
    _Field("hour", 0, 23, "h"),
    _Field("day-of-month", 1, 31, "d"),
    _Field("month", 1, 12, names=" or jan-dec"),
    _Field("day-of-week", 0, 7, names=" or sun-sat (0 and 7 are Sunday)"),
)


def next_point(schedule: str, timezone: str, after: datetime, since: datetime | None = None) -> datetime | None:
    """Find the first point strictly after `after`, however far away, in one step.

    `since` is the first point of an `every` schedule (without it, the Unix epoch is) and means nothing to a cron line.
    The point is aware, in whole seconds, in the schedule's zone; None if there is none. `ScheduleRefused` as by
    `check_schedule`, `ValueError` for a moment without a zone.
    """
    return _find(schedule, timezone, after, since, forward=True)


def last_point(schedule: str, timezone: str, before: datetime, since: datetime | None = None) -> datetime | None:
    """Find the newest point at or before `before`; all else is as in `next_point`, and so is the set of points."""
    return _find(schedule, timezone, before, since, forward=False)


def check_schedule(schedule: str, timezone: str) -> None:
    """Raise `ScheduleRefused` with one sentence where the schedule cannot be meant or the zone is unknown."""
    _parse(schedule)
    zone_of(timezone)


def parse_duration(text: str) -> int:
    """Read `2s`, `15m`, `2h` or `1d` as seconds, from 0 up to 366 days; raise `ScheduleRefused` for anything else."""
    text = text.strip()
    if re.fullmatch("[0-9]{1,9}", text):
        raise ScheduleRefused(f"{text} has no unit; write {text}s, {text}m, {text}h or {text}d")
    match = re.fullmatch("([0-9]+)([smhd])", text)
    if not match:
        raise ScheduleRefused(f"{_shown(text)} is not a duration; write a whole number and s, m, h or d, such as 15m")
    number, unit = match.groups()
    # The length is looked at first: int() refuses thousands of digits.
    seconds = int(number) * _UNITS[unit] if len(number) < 10 else LONGEST + 1
    if seconds > LONGEST:
        raise ScheduleRefused(f"{_shown(text)} is too long; write at most {LONGEST // 86400}d")
    return seconds


def describe(schedule: str) -> str:
    """Say the schedule in English words, on one line; raise `ScheduleRefused` as `check_schedule` does."""
    plan = _parse(schedule)
    if isinstance(plan, timedelta):
        size = next(size for size in _NAMES if not plan % timedelta(seconds=size))
        count = plan // timedelta(seconds=size)
        return f"every {_NAMES[size]}" if count == 1 else f"every {count} {_NAMES[size]}s"
    words = CronSim(plan.line, datetime.min).explain().replace(" and on ", " or on ")  # either day is enough
    words = re.sub("(?<!1)([123])th", lambda digit: digit[1] + ("st", "nd", "rd")[int(digit[1]) - 1], words)  # 21th
    return words[0].lower() + words[1:]


def clock_change(timezone: str, start: datetime, end: datetime) -> list[ClockChange]:
    """List the zone's changes of UTC offset after `start`, up to and including `end`, oldest first.

    The zone is looked at once a day, so two changes within a day that undo each other are not seen.
    """
    zone, low, high = zone_of(timezone), _whole(start), _whole(end)
    days = [low + timedelta(days=n) for n in range((high - low).days + 1)]
    return [
        ClockChange(_change(zone, earlier, later), _offset(zone, earlier), _offset(zone, later))
        for earlier, later in pairwise([*days, high])
        if _offset(zone, earlier) != _offset(zone, later)
    ]


def _find(schedule: str, timezone: str, moment: datetime, since: datetime | None, *, forward: bool) -> datetime | None:
    plan, zone = _parse(schedule), zone_of(timezone)
    try:
        if isinstance(plan, timedelta):
            point = _on_grid(plan, _whole(since) if since else EPOCH, _whole(moment), forward=forward)
        else:
            point = _on_clock(plan, zone, _whole(moment), forward=forward)
        return point.astimezone(zone) if point else None
    except OverflowError:  # outside the years 1 to 9999
        return None


def _on_grid(period: timedelta, first: datetime, moment: datetime, *, forward: bool) -> datetime | None:
    passed = (moment - first) // period
    steps = max(0, passed + 1) if forward else passed
    return first + steps * period if steps >= 0 else None


@lru_cache(maxsize=4096)  # many jobs of one schedule are asked at the same moment
def _on_clock(cron: _Cron, zone: tzinfo, moment: datetime, *, forward: bool) -> datetime | None:
    """Find the nearest instant of the line; `moment` and the result are in UTC.

    In a repeated hour wall times lie on both sides of the moment twice, so a second search starts one repeat off.
    What each search meets on the wrong side is dropped: at most the wall times of one repeat.
    """
    here = moment.astimezone(zone)
    wall = here.replace(tzinfo=None)
    repeat = here.replace(fold=1).astimezone(UTC) - here.replace(fold=0).astimezone(UTC)
    found = []
    for start in {wall, wall - repeat if forward else wall + repeat}:
        # In reverse cronsim leaves out the start itself.
        for candidate in CronSim(cron.line, start if forward else start + SECOND, reverse=not forward):
            instants = _instants(cron, zone, candidate)
            fitting = [instant for instant in instants if (instant > moment if forward else instant <= moment)]
            if fitting:
                found.append(min(fitting) if forward else max(fitting))
                break
    return (min if forward else max)(found, default=None)


def _instants(cron: _Cron, zone: tzinfo, wall: datetime) -> list[datetime]:
    """Give the instants (UTC) at which the line runs for one wall-clock time: none, one or two."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first < second:  # repeated
        return [first, second] if cron.real_time else [first]
    if first > second:  # skipped: PEP 495 reads fold 0 by the clock before the change, fold 1 by the clock after it
        return [] if cron.real_time else [_change(zone, second, first)]
    return [first]


def _change(zone: tzinfo, low: datetime, high: datetime) -> datetime:
    """Find the first second after `low` whose offset is no longer that of `low`; at `high` it is not."""
    before = _offset(zone, low)
    while high - low > SECOND:
        middle = low + (high - low) // (2 * SECOND) * SECOND
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high


def _offset(zone: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).replace(tzinfo=UTC) - instant


def _whole(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise ValueError(f"{moment} has no time zone")
    return moment.astimezone(UTC).replace(microsecond=0)


@lru_cache(maxsize=4096)
def _parse(schedule: str) -> _Cron | timedelta:
    fields = schedule.split()
    if not fields:
        raise ScheduleRefused(f"the schedule is empty; write {_FORMS}")
    if fields[0] == "every":
        seconds = parse_duration(" ".join(fields[1:]))
        if not seconds:
            raise ScheduleRefused(f'{_shown(schedule)} is no period; write at least "every 1s"')
        return timedelta(seconds=seconds)
    if fields[0].startswith("@"):
        return _parse(_macro(" ".join(fields).lower()))
    if len(fields) != len(_FIELDS):
        count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        surplus = ", and seconds or a command have no place there" if len(fields) > len(_FIELDS) else ""
        raise ScheduleRefused(f"{_shown(schedule)} has {count}{surplus}; write {_FORMS}")
    for field, text in zip(_FIELDS, fields, strict=True):
        _check_field(field, text)
    line = " ".join(fields)
    try:
        next(CronSim(line, datetime(2000, 1, 1)))
    except (CronSimError, StopIteration):
        raise ScheduleRefused(f"{_shown(line)} never fires; write a day that its months have") from None
    return _Cron(line, real_time=fields[0].startswith("*") or fields[1].startswith("*"))


def _macro(text: str) -> str:
    if text in _MACROS:
        return _MACROS[text]
    if text == "@reboot":
        raise ScheduleRefused('@reboot names no point in time; write "every 5m" or another schedule')
    instead = difflib.get_close_matches(text, _MACROS, n=1) or [f'{", ".join(_MACROS)}, or "every 15m"']
    raise ScheduleRefused(f"{_shown(text)} is not a macro; write {instead[0]}")


def _check_field(field: _Field, text: str) -> None:
    bounds = f"{field.low}-{field.high}{field.names}"
    for term in text.split(","):
        base, _, step = term.partition("/")
        numbers = [int(number) for number in re.findall("[0-9]{1,9}", base.partition("#")[0])]
        if not all(field.low <= number <= field.high for number in numbers):
            raise ScheduleRefused(f"{field.name} {_shown(term)} is out of range; write {bounds}")
        start, end = [*numbers, *(field.low, field.high)[len(numbers) :]][:2]
        longest = max(1, end - start)
        if re.fullmatch("[0-9]{1,9}", step) and int(step) > longest:
            real = f', or "every {int(step)}{field.unit}" as the whole schedule' if field.unit else ""
            raise ScheduleRefused(
                f"{field.name} {_shown(term)} steps past {start}-{end}; write a step up to {longest}{real}"
            )
    try:
        CronSim(" ".join(text if field is other else "*" for other in _FIELDS), datetime.min)
    except (CronSimError, ValueError):  # ValueError: int() of thousands of digits
        raise ScheduleRefused(
            f"{field.name} {_shown(text)} cannot be read; write *, {bounds}, "
            "or lists (1,3), rising ranges (1-5) and steps (*/2) of these"
        ) from None


@cache
def zone_of(name: str) -> tzinfo:
    """Return the zone of this name; raise `ScheduleRefused` where it is unknown."""
    if name == "UTC":  # needs no time zone data
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):  # OSError: a folder of the tzdata package
        raise ScheduleRefused(_unknown_zone(name)) from None


def _unknown_zone(name: str) -> str:
    known = zoneinfo.available_timezones()
    if not known:
        return f"no time zone data on this machine for {_shown(name)}; install tzdata, or write UTC"
    # Not from Etc/: Etc/GMT+1 is one hour *behind* UTC.
    cities = {zone.rpartition("/")[2].lower(): zone for zone in sorted(known) if not zone.startswith("Etc/")}
    names = cities | {zone.lower(): zone for zone in known}
    wanted = name.lower().replace(" ", "_")
    # Abbreviations (CST is three zones) and offsets look like each other: the nearest would be a wrong one.
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.8 if re.search("/|^[a-z_]{6,}$", wanted) else 1)
    instead = names[near[0]] if near else "a region and city, such as Europe/Berlin, or UTC"
    return f"{_shown(name)} is not a time zone; write {instead}"


def _shown(text: str) -> str:
    """Quote what was written, on one line and not too long."""
    return f'"{repr(text if len(text) <= 60 else f"{text[:57]}...")[1:-1]}"'

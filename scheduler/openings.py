"""The openings of a series: each an ordinary job, and a row of its own in the ledger of the checkpoint folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scheduler.columns import read_row, read_rows
from scheduler.database import Connection
from scheduler.due import Plan, plan_job
from scheduler.errors import NotOpened, UsageRefused
from scheduler.job import OPENING, OPENING_NAME, Job, JobFile, Series
from scheduler.ledger import ledger_rows
from scheduler.points import calendar_text, moment_of, next_of
from scheduler.roster import Sighting, note, read_facts, read_seen
from scheduler.trigger import parse_duration

_COLUMNS = "SELECT number, point, opening, checkpoint, status, passed FROM opening"
_OPENING = f"{_COLUMNS} WHERE series = ?"
# SQLite would rather walk over all of them.
_UNANSWERED = f"{_COLUMNS} INDEXED BY opening_unanswered WHERE series = ? AND status != 'done' ORDER BY number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One opening as the ledger has it: the `number`th, its name, its checkpoint's key and the status of its document.

    `passed` is the newest point (UTC seconds) that was dealt with while it was the newest opening.
    """

    number: int
    point: int
    opening: str
    checkpoint: str
    status: str
    passed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How far a series is: since when (UTC seconds) it has its calendar, its openings without an answer, the newest.

    `noted` says that its row tells since when; `moved` that the newest has its attempts under another checkpoint.
    """

    since: int
    noted: bool
    newest: Opening | None
    unanswered: tuple[Opening, ...]
    moved: bool = False

    @classmethod
    def new(cls, now: int) -> Course:
        """Return the course of a series of which no ledger knows yet."""
        return cls(since=now, noted=False, newest=None, unanswered=())

    @property
    def asked(self) -> tuple[Opening, ...]:
        """The openings that are to be looked at: those without an answer, and the newest, which comes last."""
        newest = self.newest
        return self.unanswered if newest is None or newest in self.unanswered else (*self.unanswered, newest)


# The pattern and its openings.


def terms(pattern: Job) -> Series:
    """Return when a series opens, and how often."""
    if pattern.series is None:
        raise TypeError(f"job {pattern.id} is no series")
    return pattern.series


def calendar(pattern: Job) -> Job:
    """Return the pattern as a job whose points are those at which the series opens."""
    return replace(pattern, schedule=terms(pattern).opens)


def opening_job(pattern: Job, opening: str) -> Job:
    """Return an opening as the ordinary job that it is."""
    deliver = pattern.deliver
    if deliver and deliver.file:
        deliver = replace(deliver, file=Path(str(deliver.file).replace(OPENING, opening)))
    return replace(
        pattern,
        id=f"{pattern.id}@{opening}",
        task=pattern.task.replace(OPENING, opening),
        checkpoint=pattern.checkpoint.with_name(pattern.checkpoint.name.replace(OPENING, opening)),
        series=None,
        deliver=deliver,
    )


def opening_name(opens: str, point: int, taken: Iterable[str] = ()) -> str:
    """Write a point in UTC: to the minute, with seconds where `opens` counts them or the minute has its opening."""
    moment = moment_of(point)
    kind, _, period = opens.strip().partition(" ")
    minute = moment.strftime("%Y-%m-%dT%H%MZ")
    finer = kind == "every" and parse_duration(period) % 60
    return moment.strftime("%Y-%m-%dT%H%M%SZ") if finer or minute in taken else minute


def find_job(job_file: JobFile, name: str) -> Job:
    """Return the job that a name of jobs.yaml means, or an opening's; a series stands for its newest opening.

    Raises NotOpened, and UsageRefused on an opening that never was.
    """
    series, _, opening = name.partition("@")
    pattern = job_file.series.get(series)
    if pattern is None or name in job_file.jobs:
        return job_file.jobs[name]
    with ledger_rows(plan_job(pattern, job_file.live).path.parent) as tx:
        if tx and opening:
            found = read_row(tx, f"{_OPENING} AND opening = ?", (series, opening))
        else:
            found = read_row(tx, f"{_OPENING} ORDER BY number DESC LIMIT 1", (series,)) if tx else None
    if found:
        return opening_job(pattern, _opening(found).opening)
    if name == series:
        raise NotOpened(point=point_text(next_of(calendar(pattern), datetime.now(UTC))))
    raise UsageRefused(message=f"{name} was never opened; its openings are listed by: resumed status --all")


def point_text(point: datetime | None) -> str:
    """Write a point for a person, with its offset."""
    return point.isoformat(" ", "seconds") if point else "none lies ahead"


# What the ledger holds.


def read_newest(tx: Connection, series: str) -> Opening | None:
    """Return the opening that was opened last."""
    row = read_row(tx, f"{_OPENING} ORDER BY number DESC LIMIT 1", (series,))
    return _opening(row) if row else None


def read_openings(tx: Connection, series: str) -> list[Opening]:
    """Return every opening of a series, in their order."""
    return [_opening(row) for row in read_rows(tx, f"{_OPENING} ORDER BY number", (series,))]


def count_answered(tx: Connection, series: str) -> int:
    """Return how many openings of a series have their answer."""
    query = "SELECT count(*) AS count FROM opening WHERE series = ? AND status = 'done'"
    [(count,)] = read_rows(tx, query, (series,))
    return int(count)


def read_course(tx: Connection, plan: Plan, now: int) -> Course:
    """Return how far a series is, by the few rows that can matter."""
    pattern = plan.job
    seen = read_seen(tx, sighting_of(plan), now)
    newest = read_newest(tx, pattern.id)
    unanswered = tuple(_opening(row) for row in read_rows(tx, _UNANSWERED, (pattern.id,)))
    moved = newest is not None and is_moved(tx, plan, newest, now)
    # A plain job of this id that has become a series leaves its attempts where they are.
    noted = seen.known and seen.moved_from is None
    return Course(since=seen.since, noted=noted, newest=newest, unanswered=unanswered, moved=moved)


def _opening(row: Sequence[Any]) -> Opening:
    names = ("number", "point", "opening", "checkpoint", "status", "passed")
    return Opening(**dict(zip(names, row, strict=True)))


def sighting_of(plan: Plan) -> Sighting:
    """Return a series as the ledger knows it: by the pattern's name and the calendar of its openings."""
    return Sighting(plan.job.id, plan.path.name, calendar_text(calendar(plan.job)))


def key_of(plan: Plan, opening: Opening) -> str:
    """Return the key that the pattern of jobs.yaml gives an opening."""
    return plan.path.name.replace(OPENING, opening.opening)


def plan_opening(plan: Plan, opening: str) -> Plan:
    """Return how an opening runs, given how its pattern would."""
    path = plan.path.with_name(plan.path.name.replace(OPENING, opening))
    return replace(plan, job=opening_job(plan.job, opening), path=path)


def is_moved(tx: Connection, plan: Plan, opening: Opening, now: int) -> bool:
    """Tell whether an opening has attempts under another key than the pattern of jobs.yaml now says."""
    if opening.checkpoint == key_of(plan, opening):
        return False
    return read_seen(tx, plan_opening(plan, opening.opening).sighting, now).moved_from is not None


# What is written.


def bind(tx: Connection, plan: Plan, opening: Opening, now: int) -> None:
    """Bind an opening to the key that jobs.yaml now gives it, unless its attempts lie under the old one."""
    if is_moved(tx, plan, opening, now):
        return
    key = key_of(plan, opening)
    row = (key, read_facts(tx, key).status, plan.job.id, opening.number)
    tx.execute("UPDATE opening SET checkpoint = ?, status = ? WHERE series = ? AND number = ?", row)


def enter(tx: Connection, plan: Plan, number: int, point: int, now: int) -> str:
    """Enter an opening, and the job that it is, which is there since now; return its name."""
    series = plan.job.id
    minute = opening_name("", point)
    taken = tx.execute("SELECT opening FROM opening WHERE series = ? AND opening = ?", (series, minute)).fetchall()
    opening = opening_name(terms(plan.job).opens, point, [name for (name,) in taken])
    one = plan_opening(plan, opening)
    status = read_facts(tx, one.path.name).status
    row = (series, number, point, opening, one.path.name, status, now, point)
    tx.execute("INSERT INTO opening VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    note(tx, one.sighting, now)
    return opening


def find_files(plan: Plan) -> list[str]:
    """Name the openings that have a file in the folder, whatever the ledger knows of them."""
    found = []
    for file in sorted(plan.path.parent.iterdir()) if plan.path.parent.is_dir() else ():
        names = (match[0] for match in re.finditer(OPENING_NAME, file.name, re.ASCII))
        name = next((name for name in names if plan.path.name.replace(OPENING, name) == file.name), None)
        if name and _point_of(name) is not None:
            found.append(name)
    return found


def enter_again(tx: Connection, plan: Plan, names: Iterable[str], now: int) -> None:
    """Enter openings of which only the files are left, so that they stay counted, each in its place by its point."""
    query = "SELECT point, opening, checkpoint, status, opened_at, passed FROM opening WHERE series = ?"
    rows = read_rows(tx, query, (plan.job.id,))
    missing = set(names) - {name for _, name, *_ in rows}
    for one in (plan_opening(plan, name) for name in missing):
        name = one.job.id.partition("@")[2]
        point = _point_of(name)
        rows.append((point, name, one.path.name, read_facts(tx, one.path.name).status, now, point))
        note(tx, one.sighting, now)
    if missing:
        tx.execute("DELETE FROM opening WHERE series = ?", (plan.job.id,))
        for number, row in enumerate(sorted(rows), 1):
            tx.execute("INSERT OR IGNORE INTO opening VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (plan.job.id, number, *row))


def _point_of(name: str) -> int | None:
    form = "%Y-%m-%dT%H%M%SZ" if len(name) == len("2026-11-30T060000Z") else "%Y-%m-%dT%H%MZ"
    try:
        return int(datetime.strptime(name, form).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None

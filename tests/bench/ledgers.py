"""What a ledger that has grown for years costs."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.bench.lines import Line
from tests.bench.places import RESUMED as OURS
from tests.bench.places import Places
from tests.bench.slices import BATCH
from tests.bench.starts import FAR, write_jobs
from tests.bench.timing import Sample, in_turns, middle, process, ratio
from tests.bench.workers import working

ATTEMPTS = 4


def ledger(places: Places, rounds: int, few: int = 1_000, many: int = 1_000_000, jobs: int = 10_000) -> Iterator[Line]:
    """A slice beside few and many admissions, and `status` of many jobs beside that of a hundredth of them."""
    small = _grown(places, jobs // 100, few)
    large = _grown(places, jobs, many)
    with contextlib.ExitStack() as stack:
        takers: dict[str, Callable[[], Sample]] = {
            name: stack.enter_context(
                working(places, OURS, "slice_resumed", 4096, BATCH, config.parent / "checkpoints")
            )
            for name, config in (("few", small), ("many", large))
        }
        taken = in_turns(rounds, takers)
    yield _line(
        f"warm slice, ledger with {many:,} admissions",
        f"with {few:,}",
        taken,
        1.3,
        f"{middle(taken['many']).wall / BATCH * 1000:.2f} ms a slice",
    )
    status = {name: _status(places, config) for name, config in (("few", small), ("many", large))}
    taken = in_turns(max(3, rounds // 5), status)
    yield _line(
        f"`status` of {jobs:,} jobs, {many:,} admissions",
        f"of {jobs // 100}",
        taken,
        120,
        f"{middle(taken['many']).wall:.1f} s beside {middle(taken['few']).wall:.2f}",
    )


def _line(measure: str, beside: str, taken: Mapping[str, Sequence[Sample]], goal: float, note: str) -> Line:
    found = ratio([one.wall for one in taken["many"]], [one.wall for one in taken["few"]])
    return Line(measure=measure, beside=beside, shown=str(found), value=found.median, goal=goal, note=note)


def _status(places: Places, config: Path) -> Callable[[], Sample]:
    command = [places.python(OURS).with_name("resumed"), "--config", config, "status"]
    return lambda: process(command, places.environ(), config.parent)


def _grown(places: Places, jobs: int, admissions: int) -> Path:
    """Make a project whose jobs are all done, after so many admissions of them all, renewal upon renewal."""
    config = write_jobs(places.folder("grown"), jobs, FAR)
    for _ in range(2):  # the demo answers in its second slice
        process(
            [places.python(OURS).with_name("resumed"), "--config", config, "run", "j0"], places.environ(), config.parent
        )
    folder = config.parent / "checkpoints"
    body = (folder / "j0.json").read_bytes()
    with contextlib.closing(sqlite3.connect(folder / ".ledger.sqlite3")) as base, base:
        base.execute("PRAGMA synchronous=OFF")
        for table in ("document", "version", "job"):
            _copy(base, table, jobs)
        [row] = base.execute("SELECT * FROM admission WHERE checkpoint = 'j0.json' AND attempt = 1").fetchall()
        allowances = max(1, admissions // jobs // ATTEMPTS)
        keys = itertools.product(range(jobs), range(2, allowances + 2), range(1, ATTEMPTS + 1))
        base.executemany(
            f"INSERT INTO admission VALUES ({', '.join('?' * len(row))})",
            ((f"j{job}.json", allowance, attempt, None, f"j{job}", *row[5:]) for job, allowance, attempt in keys),
        )
        base.execute("UPDATE document SET allowance = ?", (allowances + 2,))
    for number in range(1, jobs):
        path = folder / f"j{number}.json"
        path.write_bytes(body)
        path.chmod(0o600)
    return config


def _copy(base: sqlite3.Connection, table: str, jobs: int) -> None:
    """Give each job the rows that the first one has."""
    for row in base.execute(f"SELECT * FROM {table}").fetchall():
        values = (
            (f"j{n}", f"j{n}.json", *row[2:]) if table == "job" else (f"j{n}.json", *row[1:]) for n in range(1, jobs)
        )
        if row[0] in ("j0", "j0.json"):
            base.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", values)

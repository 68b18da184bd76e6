"""What a process takes over a long time: memory, threads, descriptors; and how large its ledger is to be."""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Bytes of a row and of its entries in indexes; those of a document come on top of its body.
ROW = {"opening": 147, "admission": 279, "version": 96, "document": 98, "job": 68}
FULL = 0.76  # how full the pages of a tree are that grows at all places
BASE = 21 * 4096  # the schema, and one page for each table and index
BAND = (0.8, 1.2)
IN_FLIGHT = 8 * 3  # a slice has a lock, a reserve and a socket open; a busy machine has some at each look, or none


class Sample(NamedTuple):
    """One look at a process after so many ticks."""

    ticks: int
    memory: int
    threads: int
    descriptors: int


def look(pid: int, ticks: int) -> Sample:
    """Look at a process."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text("utf-8").splitlines())
    memory = int(status["VmRSS"].split()[0]) * 1024
    return Sample(ticks, memory, int(status["Threads"]), sum(1 for _ in (proc / "fd").iterdir()))


def growth(samples: Sequence[Sample], bytes_a_tick: float) -> list[str]:
    """Say what grew: memory by its slope, what is counted by its lowest level in the first and the last third."""
    ticks, third = [sample.ticks for sample in samples], len(samples) // 3
    slope = statistics.linear_regression(ticks, [sample.memory for sample in samples]).slope
    found = [f"memory grows by {slope:.0f} bytes a tick"] if slope > bytes_a_tick else []
    for name in ("threads", "descriptors"):
        levels = [getattr(sample, name) for sample in samples]
        first, last = min(levels[:third]), min(levels[-third:])
        found += [f"{name} grow from {first} to {last}"] if last > first + IN_FLIGHT else []
    return found


class Size(NamedTuple):
    """The size of a ledger, what its rows let expect, and its rows."""

    bytes: int
    expected: int
    rows: dict[str, int]


def ledger_size(path: Path) -> Size:
    """Measure a ledger that nobody has open: what its file has in use, and what its rows are to take."""
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        rows = {table: base.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ROW}
        bodies = base.execute("SELECT coalesce(sum(length(body)), 0) FROM document").fetchone()[0]
        pages, free, size = (
            base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    expected = BASE + (bodies + sum(ROW[table] * count for table, count in rows.items())) / FULL
    return Size((pages - free) * size, int(expected), rows)

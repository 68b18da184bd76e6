"""How a measured program takes turns: it says that it is ready, and does its work once for each line that it gets.

What a work function returns stands beside its times in the answer. Only the standard library is used here.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def used(base: Path) -> int:
    """Return how many bytes of a SQLite file are in use, its log included."""
    with contextlib.closing(sqlite3.connect(f"{base.as_uri()}?mode=ro", uri=True)) as reader:
        size, pages, free = (
            reader.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        return int(size * (pages - free))


def take_turns(
    work: Callable[[], dict[str, Any] | None],
    before: Callable[[], object] = bool,
    kept: Callable[[], int] = int,
) -> None:
    """Work for each line of standard input; `before` makes ready for the next turn, and is not timed.

    `kept` tells how many bytes are kept on the disk.
    """
    before()
    print("ready", flush=True)
    for _ in sys.stdin:
        held = kept()
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        told = work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps({"wall": wall, "cpu": cpu, "kept": kept() - held, **(told or {})}), flush=True)
        before()

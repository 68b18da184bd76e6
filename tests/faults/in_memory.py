"""Folders in memory, where a write costs little, and copies of ledgers in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOM = 2**30


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """Make a folder for the block, in memory where there is room, which a container may not have.

    What is in memory outlives a process that is killed.
    """
    memory = "/dev/shm"
    ample = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    with tempfile.TemporaryDirectory(prefix="resumed-", dir=memory if ample else None) as path:
        yield Path(path)


@contextlib.contextmanager
def copied(ledger: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of a ledger: a reader of its own files would finish or make what a killed process left."""
    with in_memory() as folder:
        for suffix in ("", "-wal", "-journal"):
            with contextlib.suppress(OSError):
                shutil.copyfile(f"{ledger}{suffix}", folder / f"copy{suffix}")
        with contextlib.closing(sqlite3.connect(folder / "copy")) as rows:
            yield rows

"""The floor of a slice: take a lock, read a document, replace it durably twice. BATCH of SIZE bytes a turn."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from turns import take_turns

SIZE, BATCH, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
PATHS = [FOLDER / f"{number}.json" for number in range(BATCH)]


def replace(path: Path, body: bytes) -> None:
    """Write beside, make it last, rename, and make the name last."""
    beside = path.with_suffix(".tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, body)
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(beside, path)
    folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def slices() -> None:
    """Do it once for each document."""
    for path in PATHS:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        body = path.read_bytes()
        replace(path, body)
        replace(path, body)
        os.close(lock)


for one in PATHS:
    one.write_bytes(b"x" * SIZE)
take_turns(slices)

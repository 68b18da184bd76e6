"""A checkpoint as a reader finds it: without a lock, and without writing anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler.database import Connection
from scheduler.document import MAX_BYTES, InvalidDocument, digest, parse
from scheduler.errors import CheckpointUnknown, LedgerDamaged, UsageRefused
from scheduler.files import read_regular
from scheduler.job import checkpoint_name_fault
from scheduler.ledger import NAME, ledger_rows
from scheduler.standing import Record, read_record
from scheduler.state import State


def locate(path: Path | str) -> Path:
    """Return the one name of a checkpoint: its folder's real path, and its file name as it is.

    Raises UsageRefused on a name that could be the ledger's, a lock's or a sibling's, and on one that leads nowhere.
    """
    if fault := checkpoint_name_fault(Path(path).name):
        raise UsageRefused(message=f"{path}: {fault}")
    try:
        return Path(os.path.realpath(Path(path).parent)) / Path(path).name
    except OSError as error:
        reason = f"the current folder cannot be told ({error.strerror}); name the file from / on"
        raise UsageRefused(message=f"{path}: {reason}") from error


@dataclass(frozen=True, slots=True)
class Peek:
    """What a reader sees: the newest document (None where there is none), the ledger's record of it.

    `behind` says that the file is missing or an earlier version.
    """

    state: State | None
    record: Record | None
    behind: bool


@contextmanager
def peeking(path: Path | str) -> Iterator[tuple[Peek, Connection | None]]:
    """Read a checkpoint as `peek` does, and go on with its ledger on the same snapshot; None where there is none yet.

    Raises what `peek` raises.
    """
    path = locate(path)
    # The file first: a writer commits before it publishes, so the ledger read later knows whatever the file held.
    body = read_regular(path, MAX_BYTES)
    with ledger_rows(path.parent) as tx:
        record = read_record(tx, path.with_name(NAME), path.name) if tx else None
        behind = is_behind(path, body, record)
        yield Peek(document_of(path, record), record, behind), tx


def peek(path: Path | str) -> Peek:
    """Read a checkpoint without a lock and without writing anything.

    Raises CheckpointUnknown, LedgerDamaged, LedgerForeign, and the refusals of access and storage.
    """
    with peeking(path) as (found, _):
        return found


def is_behind(path: Path, body: bytes | None, record: Record | None) -> bool:
    """Tell whether the file is missing or an earlier version; raise CheckpointUnknown on bytes never published."""
    if body is None or record is None:
        if body is not None:
            raise CheckpointUnknown(path=path, detail=_fault(body) or "the ledger beside it does not know it")
        return record is not None
    if body == record.body:
        return False
    if digest(body) in record.digests:
        return True
    raise CheckpointUnknown(path=path, detail=_fault(body) or "a valid document, but none of this ledger's")


def _fault(body: bytes) -> str | None:
    try:
        parse(body)
    except InvalidDocument as error:
        return str(error)
    return None


def document_of(path: Path, record: Record | None) -> State | None:
    """Return the document that the ledger holds, None where it holds none. Raises LedgerDamaged."""
    if record is None:
        return None
    try:
        state = parse(record.body)
    except InvalidDocument as error:
        raise LedgerDamaged(path=path.with_name(NAME), detail=f"the document of {path.name}: {error}") from error
    if record.next_attempt > state["attempts"] + 1:
        detail = f"{path.name} has {record.next_attempt - 1} admissions, its document counts {state['attempts']}"
        raise LedgerDamaged(path=path.with_name(NAME), detail=detail)
    return state

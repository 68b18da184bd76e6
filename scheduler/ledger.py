"""The ledger: rows beside the checkpoints that say whether a request may go. Never a checkpoint file.

One SQLite file per folder; a checkpoint's key is its file name. Every public method is one transaction.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scheduler import rests
from scheduler.columns import read_rows
from scheduler.database import Connection, Database, read_only
from scheduler.document import digest
from scheduler.errors import CheckpointBusy, PointTaken
from scheduler.owner import Owner
from scheduler.rests import Verdict
from scheduler.standing import Record, Standing, Version, read_record, read_standing
from scheduler.state import utc
from scheduler.tables import SCRIPTS
from scheduler.transcript import Archived

NAME = ".ledger.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """On whose behalf an attempt is admitted; `mark` stands for the provider's entry and key, never stored as it is."""

    job: str
    provider: str
    model: str
    task: str
    live: bool
    point: int | None
    deadline: float
    requests_per_day: int | None = None
    mark: bytes = b""


@dataclass(frozen=True, slots=True)
class Archive:
    """Why and by whom a document is set aside for ever."""

    reason: str
    who: str


class Ledger:
    """The rows of one folder's ledger, through the one connection of this process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._database = Database(self.path, SCRIPTS)
        self.reading = self._database.read
        self.writing = self._database.write
        self.data_version = self._database.data_version

    def read(self, key: str) -> Record | None:
        """Return what is held of a checkpoint; None where it has no document. Raises LedgerDamaged."""
        with self.reading() as tx:
            return read_record(tx, self.path, key)

    def admit(
        self, key: str, seen: Version | None, number: int, claim: Claim, owner: Owner, body: bytes, now: int
    ) -> Version:
        """Admit attempt `number` and store the counted document, in one durable step; return the new version.

        `seen` is what the caller loaded, None for a new checkpoint. Raises CheckpointBusy where another writer came
        first or an attempt is open, PointTaken, and the refusals of rests and budget.
        """
        with self.writing() as tx:
            record = _expected(tx, self.path, key, seen)
            if record and (record.open or number < record.next_attempt):
                raise CheckpointBusy(path=self.path.with_name(key))
            if record and claim.point is not None and any(row.point == claim.point for row in record.admissions):
                raise PointTaken(point=utc(claim.point))
            if claim.live:
                rests.check_rests(tx, claim.provider, claim.model, claim.mark, now)
                rests.check_budget(tx, claim.requests_per_day, now)
            allowance = seen.allowance if seen else 1
            row = {
                "checkpoint": key,
                "allowance": allowance,
                "attempt": number,
                "point": claim.point,
                "job": claim.job,
                "provider": claim.provider,
                "live": claim.live,
                "task_sha": hashlib.sha256(claim.task.encode()).hexdigest(),
                "model": claim.model,
                "admitted_at": now,
                "deadline": int(now + claim.deadline),
                "pid": owner.pid,
                "start": owner.start,
                "boot": owner.boot,
            }
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            tx.execute(f"INSERT INTO admission ({names}) VALUES ({values})", row)  # noqa: S608  # our own names
            return _store(tx, key, allowance, body)

    def settle(
        self,
        key: str,
        seen: Version,
        number: int,
        outcome: str,
        body: bytes,
        now: int,
        verdict: Verdict | None = None,
        wait: float | None = None,
    ) -> Version | None:
        """Store the outcome of an open attempt and the document that follows from it, in one durable step.

        Where another writer came in between, the body is kept among the orphans and None is returned.
        """
        with self.writing(wait) as tx:
            record = read_standing(tx, key)
            opened = record.open if record else None
            if verdict is not None:
                rests.note_outcome(tx, verdict, now)
            if record is None or record.version != seen or opened is None or opened.attempt != number:
                tag = secrets.token_hex(8)
                tx.execute(
                    "INSERT INTO orphan VALUES (?, ?, ?, ?, ?, ?)", (key, seen.allowance, number, now, tag, body)
                )
                return None
            tx.execute(
                "UPDATE admission SET outcome = ?, ended_at = ? WHERE checkpoint = ? AND allowance = ? AND attempt = ?",
                (outcome, now, key, seen.allowance, number),
            )
            return _store(tx, key, seen.allowance, body)

    def replace(
        self,
        key: str,
        seen: Version | None,
        body: bytes,
        *,
        allowance: int,
        archive: Archive | None,
        now: int,
        also: Callable[[Connection], object] | None = None,
        wait: float | None = None,
    ) -> Version:
        """Store a document that no attempt led to, under this allowance, the old one archived if asked.

        An attempt that is open ends as interrupted: the caller has seen that its process is gone. `also` is done first
        in the same transaction, and undoes it by raising. Raises CheckpointBusy where another writer came first.
        """
        with self.writing(wait) as tx:
            _expected(tx, self.path, key, seen)
            if also:
                also(tx)
            tx.execute(
                "UPDATE admission SET outcome = 'interrupted', ended_at = ? WHERE checkpoint = ? AND outcome IS NULL",
                (now, key),
            )
            if archive and (record := read_record(tx, self.path, key)):
                _archive(tx, key, record, archive, now)
            return _store(tx, key, allowance, body)


@functools.cache
def ledger_of(folder: Path) -> Ledger:
    """Return this process's one ledger of a folder, given by its real path."""
    return Ledger(folder)


@contextmanager
def ledger_rows(folder: Path) -> Iterator[Connection | None]:
    """Read a folder's ledger on one snapshot without writing a row; None where there is none yet."""
    with read_only(folder / NAME, SCRIPTS) as tx:
        yield tx


def read_archives(tx: Connection, key: str) -> list[Archived]:
    """Return what was set aside of a checkpoint, oldest first."""
    query = "SELECT allowance, at, who, reason FROM archive WHERE checkpoint = ? ORDER BY allowance, number"
    return [
        Archived(allowance=allowance, at=at, who=who, reason=reason)
        for allowance, at, who, reason in read_rows(tx, query, (key,))
    ]


def archived_attempts(tx: Connection, key: str, allowance: int) -> int:
    """Return the most attempts of a document that was set aside within an allowance; an answer comes after them."""
    query = (
        "SELECT coalesce(max(json_extract(CAST(body AS TEXT), '$.attempts')), 0) AS attempts FROM archive"
        " WHERE checkpoint = ? AND allowance = ?"
    )
    [(attempts,)] = read_rows(tx, query, (key, allowance))
    return int(attempts)


def _expected(tx: Connection, path: Path, key: str, seen: Version | None) -> Standing | None:
    record = read_standing(tx, key)
    if (record.version if record else None) != seen:
        raise CheckpointBusy(path=path.with_name(key))
    return record


def know(tx: Connection, key: str, version: Version) -> None:
    """Enter a version of a checkpoint: a file that holds it is behind, and is put right."""
    tx.execute("INSERT OR IGNORE INTO version VALUES (?, ?, ?)", (key, version.allowance, version.digest))


def _store(tx: Connection, key: str, allowance: int, body: bytes) -> Version:
    version = Version(allowance, digest(body))
    tx.execute("REPLACE INTO document VALUES (?, ?, ?, ?)", (key, allowance, body, version.digest))
    know(tx, key, version)
    status = "SELECT json_extract(CAST(body AS TEXT), '$.status') FROM document WHERE checkpoint = opening.checkpoint"
    tx.execute(f"UPDATE opening SET status = ({status}) WHERE checkpoint = ?", (key,))  # noqa: S608  # our own text
    return version


def _archive(tx: Connection, key: str, record: Record, archive: Archive, now: int) -> None:
    place = (key, record.version.allowance)
    count = tx.execute("SELECT count(*) FROM archive WHERE checkpoint = ? AND allowance = ?", place).fetchone()[0]
    row = (*place, count + 1, record.body, archive.reason, archive.who, now)
    tx.execute("INSERT INTO archive VALUES (?, ?, ?, ?, ?, ?, ?)", row)

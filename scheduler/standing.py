"""What the ledger holds of one checkpoint, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scheduler.columns import read_row, read_rows
from scheduler.database import Connection
from scheduler.document import digest
from scheduler.errors import LedgerDamaged
from scheduler.owner import Owner


@dataclass(frozen=True, slots=True)
class Version:
    """Which document a writer has seen; what it commits is refused once another one is the newest."""

    allowance: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One admitted attempt. Times are UTC seconds; `outcome` is None while it is in flight."""

    attempt: int
    point: int | None
    admitted_at: int
    deadline: int
    owner: Owner
    outcome: str | None
    ended_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Which document of a checkpoint is the newest, and the admissions of its allowance."""

    version: Version
    admissions: tuple[Admission, ...]

    @property
    def next_attempt(self) -> int:
        """One more than the highest admission; the document may have counted more."""
        return 1 + max((admission.attempt for admission in self.admissions), default=0)

    @property
    def open(self) -> Admission | None:
        """The admission that has no outcome yet."""
        return next((admission for admission in self.admissions if admission.outcome is None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Standing):
    """What is held of a checkpoint beside that: the newest document, every digest ever published."""

    body: bytes
    digests: frozenset[str]


def read_standing(tx: Connection, key: str) -> Standing | None:
    """Return the standing of a checkpoint, None where it has no document."""
    row = read_row(tx, "SELECT allowance, digest FROM document WHERE checkpoint = ?", (key,))
    return None if row is None else Standing(version=Version(*row), admissions=read_admissions(tx, key, row[0]))


def read_record(tx: Connection, path: Path, key: str) -> Record | None:
    """Return what is held of a checkpoint, None where it has no document. Raises LedgerDamaged on a wrong digest."""
    row = read_row(tx, "SELECT allowance, body, digest FROM document WHERE checkpoint = ?", (key,))
    if row is None:
        return None
    allowance, body, stored = row
    if digest(body) != stored:
        raise LedgerDamaged(path=path, detail=f"the document of {key} does not match its digest")
    digests = read_rows(tx, "SELECT digest FROM version WHERE checkpoint = ?", (key,))
    return Record(
        version=Version(allowance, stored),
        body=body,
        admissions=read_admissions(tx, key, allowance),
        digests=frozenset(found for (found,) in digests),
    )


def read_admissions(tx: Connection, key: str, allowance: int) -> tuple[Admission, ...]:
    """Return the admissions of one allowance, in their order."""
    rows = read_rows(
        tx,
        "SELECT attempt, point, admitted_at, deadline, outcome, ended_at, pid, start, boot FROM admission"
        " WHERE checkpoint = ? AND allowance = ? ORDER BY attempt",
        (key, allowance),
    )
    names = ("attempt", "point", "admitted_at", "deadline", "outcome", "ended_at")
    return tuple(Admission(**dict(zip(names, row[:6], strict=True)), owner=Owner(*row[6:])) for row in rows)

"""What was said of whom, over which channel, and when: so that nothing is said too often, by any process.

A matter is said before it is sent (claimed), and what was never sent keeps a fault, by which it is said once more. It
is remembered in the ledger of the job's folder, or else in the user's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from scheduler.columns import read_row, read_rows
from scheduler.database import Connection
from scheduler.errors import LedgerBusy, ResumedError
from scheduler.home import state_folder, state_path
from scheduler.ledger import NAME, Ledger, ledger_of
from scheduler.owed import open_folder
from scheduler.text import storable

HOUR: Final = 60 * 60
DAY: Final = 24 * HOUR
KEPT: Final = 90 * DAY

LOG: Final = "log"  # the channel of the log lines; nothing of it can fail
UNSENT: Final = "not sent yet"
_TROUBLE: Final = ""  # the matter of a row that stands from the first bad news said until its recovery
_FAILING: Final = "a notification failed"
FRESH: Final = 1.0  # for how many seconds it is taken as known of whom nothing stands
PATIENCE: Final = 60.0  # for how many seconds a ledger that another process kept locked is not waited for again

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Row:
    """Since when a matter stands (UTC seconds, None where it does not), when it was last said, why it did not go."""

    standing: int | None
    at: int
    fault: str


class Memory:
    """What one ledger remembers; every public method is one transaction, and writes only what changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def stand(self, subject: str, channel: str, matters: Sequence[str], now: int) -> list[str]:
        """Note that these matters (UTF-8 texts) stand of a subject, and no others; return which are to be said now.

        That is one that is new, one that came back after an hour or more, and once a day one that stands on.
        """
        with self._ledger.reading() as tx:
            changed, _ = _stand(_rows(tx, subject, channel), matters, _fault(channel), now)
        if not changed:
            return []
        with self._ledger.writing() as tx:
            changed, said = _stand(_rows(tx, subject, channel), matters, _fault(channel), now)
            for matter, row in changed.items():
                _put(tx, subject, channel, matter, row)
            if said:
                _put(tx, subject, channel, _TROUBLE, Row(now, now, ""))
                _forget(tx, now)
            return said

    def occur(self, subject: str, channel: str, matter: str, now: int, *, trouble: bool = False) -> bool:
        """Note that something happened; tell whether it is to be said: not within an hour of the same matter."""
        with self._ledger.writing() as tx:
            row = _row(tx, subject, channel, matter)
            if row is not None and abs(now - row.at) < HOUR:
                return False
            _put(tx, subject, channel, matter, Row(None, now, _fault(channel)))
            if trouble:
                _put(tx, subject, channel, _TROUBLE, Row(now, now, ""))
            _forget(tx, now)
            return True

    def end(self, subject: str, channel: str, matter: str, now: int) -> bool:
        """Note that something ended for good; tell whether it is to be said: once, and again while it did not go."""

        def known(tx: Connection) -> bool:
            row = _row(tx, subject, channel, matter)
            return row is not None and (not row.fault or abs(now - row.at) < HOUR)

        with self._ledger.reading() as tx:
            if known(tx):
                return False
        with self._ledger.writing() as tx:
            if known(tx):
                return False
            _put(tx, subject, channel, matter, Row(None, now, _fault(channel)))
            _forget(tx, now)
            return True

    def recover(self, subject: str, channel: str) -> bool:
        """Note that nothing stands any more of a subject; tell whether bad news was said, and no recovery since."""
        with self._ledger.reading() as tx:
            if not any(row.standing is not None for row in _rows(tx, subject, channel, trouble=True).values()):
                return False
        with self._ledger.writing() as tx:
            for matter, row in _rows(tx, subject, channel).items():
                if row.standing is not None:
                    _put(tx, subject, channel, matter, Row(None, row.at, row.fault))
            where = "subject = ? AND channel = ? AND matter = ?"
            found = tx.execute(f"DELETE FROM told WHERE {where}", (subject, channel, _TROUBLE))  # noqa: S608  # our own
            return found.rowcount > 0

    def standing(self, subject: str, channel: str) -> list[str]:
        """Return the matters that stand of a subject."""
        with self._ledger.reading() as tx:
            return [matter for matter, row in _rows(tx, subject, channel).items() if row.standing is not None]

    def ended_attempt(self, key: str) -> tuple[int, int] | None:
        """Return when a checkpoint's last attempt was admitted and when it ended, in UTC seconds."""
        query = (
            "SELECT admitted_at, ended_at FROM admission WHERE checkpoint = ? AND ended_at IS NOT NULL"
            " ORDER BY allowance DESC, attempt DESC LIMIT 1"
        )
        with self._ledger.reading() as tx:
            return read_row(tx, query, (key,))

    def troubled(self) -> frozenset[str]:
        """Name the subjects of which anything stands."""
        with self._ledger.reading() as tx:
            return frozenset(
                subject for (subject,) in read_rows(tx, "SELECT subject FROM told WHERE standing IS NOT NULL", ())
            )

    def sent(self, subject: str, channel: str, matter: str, fault: str) -> None:
        """Note what became of a notification: nothing, or why it did not go."""
        with self._ledger.writing() as tx:
            row = _row(tx, subject, channel, matter)
            if row is not None:
                _put(tx, subject, channel, matter, Row(row.standing, row.at, fault))

    def fail(self, channel: str, fault: str, now: int) -> bool:
        """Note that a channel fails; tell whether that is to be logged."""
        said = bool(self.stand(channel, LOG, [_FAILING], now))
        self.sent(channel, LOG, _FAILING, fault)
        return said

    def mend(self, channel: str) -> bool:
        """Note that a channel works; tell whether its failing was logged."""
        return self.recover(channel, LOG)


@dataclass(frozen=True, slots=True)
class Place:
    """A ledger's memory, and the name that a job has in it; in the user's own it comes with its jobs.yaml."""

    memory: Memory
    subject: str


class Places:
    """Finds the memory of the jobs of one jobs.yaml."""

    def __init__(self, config: Path, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._busy: dict[Path, float] = {}
        self._troubled: dict[Path, tuple[float, frozenset[str]]] = {}

    def ask(self, job: str | None, folder: Path | None, question: Callable[[Place], Answer]) -> Answer | None:
        """Put a question to the first memory that works; None where none does.

        `folder` is that of the job's checkpoint; without one only the user's own memory is asked.
        """
        places: list[Callable[[], Place]] = [lambda: self._own(job)]
        waited = folder is not None and time.monotonic() - self._busy.get(folder, float("-inf")) < PATIENCE
        if folder is not None and job is not None and not waited:
            known, named = folder, job
            places.insert(0, lambda: Place(Memory(open_folder(known)), named))
        for place in places:
            try:
                answer = question(place())
            except LedgerBusy as error:
                self._busy[Path(str(error.path)).parent] = time.monotonic()
                continue
            except ResumedError:
                continue
            self._troubled.clear()
            return answer
        return None

    def troubled(self, job: str | None, folder: Path | None) -> Iterator[Place]:
        """Return each memory in which something stands of a job; none is made for it."""
        if folder is not None and job is not None and job in self._standing(folder):
            yield Place(Memory(ledger_of(folder)), job)
        try:
            home = state_path(self._environ)
        except ResumedError:
            return
        if self._subject(job) in self._standing(home):
            yield Place(Memory(ledger_of(home)), self._subject(job))

    def _own(self, job: str | None) -> Place:
        return Place(Memory(ledger_of(state_folder(self._environ))), self._subject(job))

    def _subject(self, job: str | None) -> str:
        return storable(f"{self._config}" + (f": job {job}" if job else ""))

    def _standing(self, folder: Path) -> frozenset[str]:
        read_at, known = self._troubled.get(folder, (0.0, frozenset()))
        if folder not in self._troubled or time.monotonic() - read_at > FRESH:
            try:
                known = Memory(open_folder(folder)).troubled() if (folder / NAME).exists() else frozenset()
            except (ResumedError, OSError):
                known = frozenset()
            self._troubled[folder] = time.monotonic(), known
        return known


def failing_channels(tx: Connection) -> list[tuple[str, str, int]]:
    """Return each channel that fails: its name, why, and since when (UTC seconds)."""
    query = "SELECT subject, fault, standing FROM told WHERE channel = ? AND matter = ? AND standing IS NOT NULL"
    return [(subject, fault, since) for subject, fault, since in read_rows(tx, query, (LOG, _FAILING))]


def _fault(channel: str) -> str:
    return "" if channel == LOG else UNSENT


def _is_due(row: Row | None, now: int, *, can_fail: bool) -> bool:
    """Tell whether a matter that stands is to be said. A row of the future is of a clock that was set back since."""
    if row is None:
        return True
    said_of_this = row.standing is not None and row.standing <= row.at and not (can_fail and row.fault)
    return abs(now - row.at) >= (DAY if said_of_this else HOUR)


def _stand(rows: dict[str, Row], matters: Collection[str], fault: str, now: int) -> tuple[dict[str, Row], list[str]]:
    """Return the rows that change where these matters stand and no others, and which of them are to be said."""
    changed = {
        matter: replace(row, standing=None)
        for matter, row in rows.items()
        if row.standing is not None and matter not in matters
    }
    said = [matter for matter in matters if _is_due(rows.get(matter), now, can_fail=bool(fault))]
    for matter in matters:
        row = rows.get(matter) or Row(None, now, fault)
        since = now if row.standing is None else row.standing
        if matter in said:
            changed[matter] = Row(since, now, fault)
        elif row.standing is None:
            changed[matter] = replace(row, standing=since)
    return changed, said


def _rows(tx: Connection, subject: str, channel: str, *, trouble: bool = False) -> dict[str, Row]:
    query = "SELECT matter, standing, at, fault FROM told WHERE subject = ? AND channel = ?"
    found = {matter: Row(*rest) for matter, *rest in read_rows(tx, query, (subject, channel))}
    if not trouble:
        found.pop(_TROUBLE, None)
    return found


def _row(tx: Connection, subject: str, channel: str, matter: str) -> Row | None:
    query = "SELECT standing, at, fault FROM told WHERE subject = ? AND channel = ? AND matter = ?"
    found = read_row(tx, query, (subject, channel, matter))
    return None if found is None else Row(*found)


def _put(tx: Connection, subject: str, channel: str, matter: str, row: Row) -> None:
    values = (subject, channel, matter, row.standing, row.at, row.fault)
    tx.execute("REPLACE INTO told VALUES (?, ?, ?, ?, ?, ?)", values)


def _forget(tx: Connection, now: int) -> None:
    """Drop what was last said long ago, which nothing that is said now depends on."""
    tx.execute("DELETE FROM told WHERE at < ?", (now - KEPT,))

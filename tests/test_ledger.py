"""The ledger's rows: what admits, what refuses, what rests, and the SQLite file that holds them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import owner, patience
from scheduler.database import APPLICATION_ID
from scheduler.document import digest
from scheduler.errors import (
    BudgetSpent,
    CheckpointBusy,
    DaemonRunning,
    LedgerBusy,
    LedgerDamaged,
    LedgerForeign,
    NotAFile,
    PointTaken,
    ProcessesUntold,
    ProviderRefusing,
    ProviderResting,
    ResumedError,
    StorageFailed,
    WritableByOthers,
)
from scheduler.ledger import (
    NAME,
    Archive,
    Claim,
    Ledger,
    archived_attempts,
    ledger_rows,
    read_archives,
)
from scheduler.owner import Owner, is_alive, this_process
from scheduler.rests import DAY, Verdict, check_budget, check_rests, lift, note_outcome, read_rests
from scheduler.roster import Sighting, claim_daemon, note, read_facts, read_seen, release_daemon
from scheduler.standing import Record, Version
from scheduler.tables import SCRIPTS

KEY = "nightly.json"
NOON = 20_000 * DAY + DAY // 2
ME = this_process()
DEAD = dataclasses.replace(ME, start="1")


def claim(point: int | None = None, **other: Any) -> Claim:
    """A claim of a live job."""
    fields = {"job": "nightly", "provider": "local", "model": "m1", "task": "t", "live": True, "deadline": 60}
    return Claim(point=point, **(fields | other))


def verdict(cause: Any, **other: Any) -> Verdict:
    """What an outcome says about provider `local`."""
    return Verdict(**({"provider": "local", "model": "m1", "cause": cause, "reason": "why", "mark": b"key"} | other))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Ledger]:
    """A ledger object of its own, as another process would have."""
    ledger = Ledger(folder)
    try:
        yield ledger
    finally:
        ledger._database.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture
def rows() -> Iterator[sqlite3.Connection]:
    """The tables alone, in memory."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(";".join(SCRIPTS))
        yield connection


def spend(
    ledger: Ledger, attempts: int, outcome: str = "timeout", now: int = NOON, first: int = 1, **other: Any
) -> Version | None:
    """Admit and settle attempts up to this number; return the newest version."""
    record = ledger.read(KEY)
    seen = record.version if record else None
    for number in range(first, attempts + 1):
        seen = ledger.admit(KEY, seen, number, claim(**other), ME, b"counted %d" % number, now)
        seen = ledger.settle(KEY, seen, number, outcome, b"settled %d" % number, now)
    return seen


def read(ledger: Ledger) -> Record:
    """The record of the checkpoint, which must be there."""
    record = ledger.read(KEY)
    assert record is not None
    return record


# ---- schema

ADMISSION: dict[str, Any] = {
    "checkpoint": KEY,
    "allowance": 1,
    "attempt": 1,
    "point": 10,
    "job": "j",
    "provider": "p",
    "live": 1,
    "task_sha": "x",
    "model": "m",
    "admitted_at": 1,
    "deadline": 2,
    "pid": 1,
    "start": "1",
    "boot": "b",
}


def insert(connection: sqlite3.Connection, **changed: Any) -> None:
    """Enter an admission by hand."""
    row = ADMISSION | changed
    connection.execute(f"INSERT INTO admission ({', '.join(row)}) VALUES ({', '.join(':' + key for key in row)})", row)


@pytest.mark.parametrize(
    "second",
    [
        {"attempt": 1, "point": 11},
        {"attempt": 2, "point": 10},
        *({"attempt": number, "point": 11} for number in (0, 5, -1, 2.5, "x", None)),
        *({"attempt": 2, "point": 11, name: None} for name in ADMISSION if name not in ("point", "attempt")),
    ],
)
def test_the_tables_themselves_refuse_an_impossible_admission(rows: sqlite3.Connection, second: dict[str, Any]) -> None:
    insert(rows)
    with pytest.raises(sqlite3.IntegrityError):
        insert(rows, **second)
    assert rows.execute("SELECT count(*) FROM admission").fetchone() == (1,)


def test_four_attempts_and_points_fit_and_points_may_be_missing_or_come_again_elsewhere(
    rows: sqlite3.Connection,
) -> None:
    for number in (1, 2, 3, 4):
        insert(rows, attempt=number, point=None)
    insert(rows, allowance=2)
    insert(rows, checkpoint="other.json")
    assert rows.execute("SELECT count(*) FROM admission").fetchone() == (6,)


# ---- admit, settle, replace


def test_an_admission_stores_the_count_and_who_waits_for_it(ledger: Ledger) -> None:
    version = ledger.admit(KEY, None, 1, claim(point=77, deadline=60), ME, b"counted", NOON)
    assert version == Version(1, digest(b"counted"))
    record = read(ledger)
    assert (record.body, record.version, record.next_attempt) == (b"counted", version, 2)
    assert record.open is not None
    assert (record.open.attempt, record.open.point, record.open.owner, record.open.deadline) == (1, 77, ME, NOON + 60)
    with ledger.reading() as tx:
        assert b"the task" not in str(tx.execute("SELECT * FROM admission").fetchall()).encode()


def test_an_outcome_closes_the_attempt_and_every_version_stays_known(ledger: Ledger) -> None:
    spend(ledger, 2)
    record = read(ledger)
    assert record.open is None
    assert [(row.attempt, row.outcome, row.ended_at) for row in record.admissions] == [
        (1, "timeout", NOON),
        (2, "timeout", NOON),
    ]
    bodies = (b"counted 1", b"settled 1", b"counted 2", b"settled 2")
    assert record.digests == {digest(body) for body in bodies}
    assert record.body == b"settled 2"


@pytest.mark.parametrize(
    ("seen", "number"),
    [
        (None, 3),
        (Version(1, digest(b"settled 1")), 3),
        (Version(2, digest(b"settled 2")), 3),
        ("newest", 2),
        ("newest", 1),
    ],
    ids=["nothing was seen", "an older one was seen", "another allowance", "a taken number", "a lower number"],
)
def test_an_admission_on_anything_but_the_newest_is_refused(ledger: Ledger, seen: Any, number: int) -> None:
    newest = spend(ledger, 2)
    before = read(ledger)
    with pytest.raises(CheckpointBusy):
        ledger.admit(KEY, newest if seen == "newest" else seen, number, claim(), ME, b"other", NOON)
    assert read(ledger) == before


def test_no_attempt_is_admitted_while_one_is_open(ledger: Ledger) -> None:
    seen = ledger.admit(KEY, None, 1, claim(), ME, b"counted", NOON)
    with pytest.raises(CheckpointBusy):
        ledger.admit(KEY, seen, 2, claim(), ME, b"other", NOON)


def test_no_fifth_attempt_is_admitted(ledger: Ledger) -> None:
    newest = spend(ledger, 4)
    with pytest.raises(ResumedError):
        ledger.admit(KEY, newest, 5, claim(), ME, b"fifth", NOON)
    assert len(read(ledger).admissions) == 4


def test_no_number_comes_again_where_attempts_were_counted_elsewhere(ledger: Ledger) -> None:
    seen = ledger.replace(KEY, None, b"adopted at attempt 2", allowance=1, archive=None, now=NOON)
    seen = ledger.admit(KEY, seen, 3, claim(), ME, b"counted 3", NOON)
    newest = ledger.settle(KEY, seen, 3, "timeout", b"settled 3", NOON)
    assert read(ledger).next_attempt == 4
    with pytest.raises(CheckpointBusy):
        ledger.admit(KEY, newest, 2, claim(), ME, b"counted 2", NOON)


def test_a_point_has_one_slice_and_a_new_allowance_has_it_again(ledger: Ledger) -> None:
    newest = spend(ledger, 1, point=77)
    with pytest.raises(PointTaken):
        ledger.admit(KEY, newest, 2, claim(point=77), ME, b"other", NOON)
    newest = ledger.replace(KEY, newest, b"renewed", allowance=2, archive=Archive("again", "ann"), now=NOON)
    assert read(ledger).next_attempt == 1
    ledger.admit(KEY, newest, 1, claim(point=77), ME, b"counted", NOON)
    assert read(ledger).next_attempt == 2


@pytest.mark.parametrize("outcome", ["answered", "timeout"])
def test_a_reply_that_comes_after_another_writer_goes_to_the_orphans(ledger: Ledger, outcome: str) -> None:
    seen = ledger.admit(KEY, None, 1, claim(), ME, b"counted", NOON)
    newest = ledger.replace(KEY, seen, b"interrupted", allowance=1, archive=None, now=NOON)
    assert ledger.settle(KEY, seen, 1, outcome, b"the late reply", NOON + 5) is None
    assert ledger.settle(KEY, seen, 1, outcome, b"the late reply", NOON + 5) is None
    assert read(ledger).version == newest
    assert read(ledger).admissions[0].outcome == "interrupted"
    with ledger.reading() as tx:
        found = tx.execute("SELECT checkpoint, allowance, attempt, at, body FROM orphan").fetchall()
    assert found == [(KEY, 1, 1, NOON + 5, b"the late reply")] * 2


def test_an_attempt_is_settled_once(ledger: Ledger) -> None:
    seen = ledger.admit(KEY, None, 1, claim(), ME, b"counted", NOON)
    settled = ledger.settle(KEY, seen, 1, "answered", b"settled", NOON)
    assert settled is not None
    assert ledger.settle(KEY, settled, 1, "timeout", b"again", NOON) is None
    assert (read(ledger).body, read(ledger).admissions[0].outcome) == (b"settled", "answered")


def test_replacing_archives_every_document_under_its_number(ledger: Ledger) -> None:
    newest = spend(ledger, 1)
    newest = ledger.replace(KEY, newest, b"revised", allowance=1, archive=Archive("first", "ann"), now=NOON + 1)
    newest = ledger.replace(KEY, newest, b"again", allowance=1, archive=Archive("second", "ben"), now=NOON + 2)
    ledger.replace(KEY, newest, b"renewed", allowance=2, archive=Archive("third", "ann"), now=NOON + 3)
    with ledger.reading() as tx:
        bodies = tx.execute("SELECT allowance, number, body FROM archive ORDER BY number, allowance").fetchall()
        told = [(row.allowance, row.at - NOON, row.who, row.reason) for row in read_archives(tx, KEY)]
    assert bodies == [(1, 1, b"settled 1"), (1, 2, b"revised"), (1, 3, b"again")]
    assert told == [(1, 1, "ann", "first"), (1, 2, "ben", "second"), (1, 3, "ann", "third")]


def test_the_archive_tells_the_most_attempts_of_an_allowance(ledger: Ledger) -> None:
    seen = ledger.replace(KEY, None, b'{"attempts":2}', allowance=1, archive=None, now=NOON)
    for attempts in (1, 3, 4):  # the last one is not set aside
        archive = Archive("why", "ann")
        seen = ledger.replace(KEY, seen, b'{"attempts":%d}' % attempts, allowance=1, archive=archive, now=NOON)
    with ledger.reading() as tx:
        assert [archived_attempts(tx, KEY, allowance) for allowance in (1, 2)] == [3, 0]


def test_what_is_written_beside_a_document_is_written_with_it_or_not_at_all(ledger: Ledger) -> None:
    def beside(tx: sqlite3.Connection) -> None:
        note(tx, Sighting("nightly", KEY, "every 1h"), NOON)

    def refusing(tx: sqlite3.Connection) -> None:
        beside(tx)
        raise LookupError

    def noted() -> list[Any]:
        with ledger.reading() as tx:
            return tx.execute("SELECT job FROM job").fetchall()

    with pytest.raises(LookupError):
        ledger.replace(KEY, None, b"one", allowance=1, archive=None, now=NOON, also=refusing)
    assert (ledger.read(KEY), noted()) == (None, [])
    ledger.replace(KEY, None, b"one", allowance=1, archive=None, now=NOON, also=beside)
    assert (read(ledger).body, noted()) == (b"one", [("nightly",)])


def test_replacing_what_another_writer_has_changed_is_refused(ledger: Ledger) -> None:
    spend(ledger, 1)
    for seen in (None, Version(1, digest(b"counted 1"))):
        with pytest.raises(CheckpointBusy):
            ledger.replace(KEY, seen, b"x", allowance=1, archive=Archive("r", "ann"), now=NOON)
    with ledger.reading() as tx:
        assert read_archives(tx, KEY) == []


def test_of_many_writers_one_is_admitted(ledger: Ledger, tmp_path: Path) -> None:
    newest = spend(ledger, 1)
    won: list[int] = []
    barrier = threading.Barrier(6)

    def write(number: int) -> None:
        with opened(tmp_path) as other:
            barrier.wait(60)
            with contextlib.suppress(CheckpointBusy):
                other.admit(KEY, newest, 2, claim(), ME, b"writer %d" % number, NOON)
                won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 1
    assert read(ledger).body == b"writer %d" % won[0]


def test_an_exception_in_a_transaction_undoes_all_of_it(ledger: Ledger) -> None:
    spend(ledger, 1)
    with contextlib.suppress(KeyError), ledger.writing() as tx:
        tx.execute("DELETE FROM document")
        raise KeyError
    assert read(ledger).body == b"settled 1"


# ---- the SQLite file


def test_each_connection_is_durable(ledger: Ledger) -> None:
    for _ in range(2):
        with ledger.reading() as tx:
            assert tx.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert tx.execute("PRAGMA synchronous").fetchone() == (2,)
        ledger._database.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_the_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        with opened(tmp_path) as ledger:
            spend(ledger, 1)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert modes.pop(NAME) == 0o600
    assert all(not mode & 0o077 for mode in modes.values())


def test_a_ledger_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    (tmp_path / NAME).chmod(0o622)
    with opened(tmp_path) as ledger, pytest.raises(WritableByOthers):
        ledger.read(KEY)


def test_a_deleted_ledger_is_noticed_and_begun_anew(ledger: Ledger) -> None:
    spend(ledger, 1)
    seen = ledger.data_version()
    for path in ledger.path.parent.iterdir():
        path.unlink()
    assert ledger.read(KEY) is None
    assert ledger.data_version() != seen
    spend(ledger, 2)
    with opened(ledger.path.parent) as other:
        assert len(read(other).admissions) == 2


def test_a_replaced_ledger_is_noticed_and_read(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 1)
    (tmp_path / "other").mkdir()
    with opened(tmp_path / "other") as other:
        spend(other, 3, "answered")
    for path in tmp_path.glob(NAME + "-*"):
        path.unlink()
    (tmp_path / "other" / NAME).rename(ledger.path)
    assert len(read(ledger).admissions) == 3
    spend(ledger, 4, first=4)
    assert len(read(ledger).admissions) == 4


@pytest.mark.parametrize("begun_anew", [True, False])
def test_an_outcome_for_a_replaced_ledger_goes_to_its_orphans(ledger: Ledger, begun_anew: bool) -> None:
    seen = ledger.admit(KEY, None, 1, claim(), ME, b"counted", NOON)
    for path in ledger.path.parent.iterdir():
        path.unlink()
    if begun_anew:
        ledger.admit(KEY, None, 1, claim(), ME, b"counted by another", NOON)
    assert ledger.settle(KEY, seen, 1, "answered", b"the reply", NOON) is None
    assert not begun_anew or read(ledger).open is not None
    with ledger.reading() as tx:
        assert tx.execute("SELECT body FROM orphan").fetchall() == [(b"the reply",)]


def test_another_processs_write_changes_the_data_version(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 1)
    seen = ledger.data_version()
    assert ledger.data_version() == seen
    with opened(tmp_path) as other, other.writing() as tx:
        note(tx, Sighting("j", KEY, "every 5m"), 1)
    assert ledger.data_version() != seen


def foreign(path: Path) -> None:
    """Another program's database."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()


def unknown_version(path: Path) -> None:
    """A ledger of a later program."""
    with opened(path.parent) as ledger, ledger.writing() as tx:
        tx.execute("PRAGMA user_version=99")


def cut(path: Path) -> None:
    """A ledger of which only the first page is left."""
    with opened(path.parent) as ledger:
        spend(ledger, 1)
    path.write_bytes(path.read_bytes()[:4096])


def stirred(path: Path) -> None:
    """A ledger whose pages hold rubbish after the first."""
    with opened(path.parent) as ledger:
        spend(ledger, 1)
    body = path.read_bytes()
    path.write_bytes(body[:4096] + b"\x99" * (len(body) - 4096))


def misspelt(path: Path) -> None:
    """A ledger with a table whose name is no text, which SQLite repeats in its complaint."""
    with opened(path.parent) as ledger:
        spend(ledger, 1)
    body = path.read_bytes().replace(b"tabledocumentdocument", b"table\xacocumentdocument")
    path.write_bytes(body.replace(b"CREATE TABLE document", b"CREATE TABLE documen("))


SPOILT: dict[Callable[[Path], object], type[ResumedError]] = {
    foreign: LedgerForeign,
    unknown_version: LedgerForeign,
    cut: LedgerDamaged,
    stirred: LedgerDamaged,
    misspelt: LedgerDamaged,
    lambda path: path.write_bytes(b"no database, but text of some length\n" * 40): LedgerDamaged,
    lambda path: path.write_bytes(b"short"): LedgerDamaged,
    lambda path: path.mkdir(): NotAFile,
    lambda path: path.symlink_to("elsewhere"): NotAFile,
    lambda path: os.mkfifo(path): NotAFile,
}


@pytest.mark.parametrize(("spoil", "refusal"), SPOILT.items(), ids=[f"{n}" for n in range(len(SPOILT))])
def test_a_ledger_that_is_none_is_refused_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], object], refusal: type[ResumedError]
) -> None:
    path = tmp_path / NAME
    spoil(path)
    body = path.read_bytes() if path.is_file() else None
    with opened(tmp_path) as ledger:
        for use in (lambda: ledger.read(KEY), lambda: spend(ledger, 1), lambda: peeked(tmp_path)):
            with pytest.raises(refusal) as refused:
                use()
            assert str(path) in str(refused.value)
    assert (path.read_bytes() if path.is_file() else None) == body


def older(path: Path) -> None:
    """Make the ledger that the first version made, with one row."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(SCRIPTS[0])
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute("PRAGMA user_version=1")
        connection.execute("INSERT INTO job VALUES ('nightly', 'nightly.json', '@daily (UTC)', 7)")


def test_a_ledger_of_an_older_version_is_read_as_it_is_and_brought_up_by_the_first_writer(tmp_path: Path) -> None:
    path = tmp_path / NAME
    older(path)
    before = path.read_bytes()
    with ledger_rows(tmp_path) as tx:
        assert tx is not None
        assert tx.execute("SELECT count(*) FROM opening").fetchone()[0] == 0
        assert tx.execute("SELECT since FROM job").fetchone()[0] == 7
    assert path.read_bytes() == before
    for _ in range(2):
        with opened(tmp_path) as ledger, ledger.writing() as tx:
            tx.execute(
                "INSERT OR IGNORE INTO opening VALUES ('weekly', 1, 1, '1970-01-01T000001Z', 'w.json', 'ready', 1, 1)"
            )
            assert tx.execute("SELECT since FROM job").fetchone()[0] == 7
            assert tx.execute("PRAGMA user_version").fetchone()[0] == len(SCRIPTS)
    with ledger_rows(tmp_path) as tx:
        assert tx is not None
        assert tx.execute("SELECT count(*) FROM opening").fetchone()[0] == 1


def peeked(folder: Path) -> int:
    """What a reader sees: the number of documents."""
    with ledger_rows(folder) as tx:
        assert tx is not None
        return int(tx.execute("SELECT count(*) FROM document").fetchone()[0])


def test_a_document_that_does_not_match_its_digest_is_damage(ledger: Ledger) -> None:
    spend(ledger, 1)
    with ledger.writing() as tx:
        tx.execute("UPDATE document SET body = ?", (b"settled 2",))
    with pytest.raises(LedgerDamaged, match="digest"):
        ledger.read(KEY)


def test_an_empty_file_is_an_unfinished_creation_and_counts_as_new(ledger: Ledger) -> None:
    ledger.path.touch(0o600)
    with ledger_rows(ledger.path.parent) as tx:
        assert tx is None
    assert ledger.path.stat().st_size == 0
    spend(ledger, 1)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_readers_write_nothing(ledger: Ledger, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with ledger_rows(empty) as tx:
        assert tx is None
    assert list(empty.iterdir()) == []
    spend(ledger, 1)
    ledger._database.close()
    before = ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns
    assert peeked(tmp_path) == 1
    with ledger_rows(tmp_path) as tx:
        assert tx is not None
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            tx.execute("DELETE FROM document")
    assert (ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns) == before


def test_a_reader_sees_one_moment(ledger: Ledger, tmp_path: Path) -> None:
    spend(ledger, 1)
    with ledger_rows(tmp_path) as tx:
        assert tx is not None
        count = "SELECT count(*) FROM admission"
        assert tx.execute(count).fetchone() == (1,)
        spend(ledger, 2, first=2)
        assert tx.execute(count).fetchone() == (1,)


def test_a_locked_ledger_is_busy_after_a_while_and_counts_nothing(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = spend(ledger, 1)
    assert patience.BUSY_SECONDS == 5
    monkeypatch.setattr(patience, "BUSY_SECONDS", 0.05)
    with opened(tmp_path) as other, contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as holder:
        other.read(KEY)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerBusy):
            other.admit(KEY, newest, 2, claim(), ME, b"other", NOON)
        assert read(other).body == b"settled 1"
        holder.execute("ROLLBACK")
        other.admit(KEY, newest, 2, claim(), ME, b"counted 2", NOON)


def test_who_waits_for_a_locked_ledger_keeps_no_other_thread_waiting(ledger: Ledger) -> None:
    newest, ends = spend(ledger, 1), list[float]()

    def write() -> None:
        with pytest.raises(LedgerBusy):
            ledger.admit(KEY, newest, 2, claim(), ME, b"counted 2", NOON)
        ends.append(time.monotonic())

    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(LedgerBusy), ledger.writing(0.1):
            pass
        waiting = [threading.Thread(target=write) for _ in range(4)]
        for thread in waiting:
            thread.start()
        while not ends:
            asked = time.monotonic()
            assert read(ledger).body == b"settled 1"
            assert ledger.data_version()
            with pytest.raises(LedgerBusy), ledger.writing(0.1):
                pass
            assert time.monotonic() - asked < 2
        for thread in waiting:
            thread.join()
        assert min(ends) - start > 4, "who came without haste did not wait"
        assert max(ends) - start < 9, "they waited one after another"
        last = time.monotonic()
        write()
        assert ends[-1] - last < 2, "who comes late waits as long as the first"


def test_a_ledger_of_the_first_version_that_is_locked_holds_up_nobody_who_has_no_time(tmp_path: Path) -> None:
    path = tmp_path.resolve() / NAME
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.executescript(SCRIPTS[0])
        holder.execute(f"PRAGMA application_id={APPLICATION_ID}")
        holder.execute("PRAGMA user_version=1")
        holder.execute("BEGIN IMMEDIATE")
        path.chmod(0o600)
        with opened(tmp_path) as ledger:
            start = time.monotonic()
            with pytest.raises(LedgerBusy):
                ledger.data_version()
            with pytest.raises(LedgerBusy), ledger.reading(0.1):
                pass
            with pytest.raises(LedgerBusy), ledger.writing(0.1):
                pass
            assert time.monotonic() - start < 3
            holder.execute("ROLLBACK")
            assert ledger.read(KEY) is None


# ---- rests and budget


def rest_of(rows: sqlite3.Connection, now: int, mark: bytes = b"key", model: str = "m1") -> int | None:
    """For how long the provider rests from now on: None for not at all, -1 until it is mended."""
    try:
        check_rests(rows, "local", model, mark, now)
    except ProviderResting:
        [until] = [rest.until for rest in read_rests(rows, now) if rest.until is not None]
        return until - now
    except ProviderRefusing:
        return -1
    return None


@pytest.mark.parametrize(
    ("cause", "steps"),
    [
        ("retry", [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]),
        ("outage", [60, 300, 1800, 3600, 3600]),
    ],
)
def test_each_failure_after_a_rest_lengthens_the_next(rows: sqlite3.Connection, cause: str, steps: list[int]) -> None:
    now, seen = NOON, []
    for _ in steps:
        note_outcome(rows, verdict(cause), now)
        seen.append(rest_of(rows, now))
        now += seen[-1] or 0
        assert rest_of(rows, now) is None
        assert rest_of(rows, now - 1) == 1
    assert seen == steps


@pytest.mark.parametrize(("cause", "first"), [("retry", 60), ("outage", 60)])
def test_requests_that_fail_together_are_one_failure(rows: sqlite3.Connection, cause: str, first: int) -> None:
    for second in range(8):
        note_outcome(rows, verdict(cause), NOON + second)
    assert (rest_of(rows, NOON + 7) or 0) <= first


@pytest.mark.parametrize("late", ["retry", "outage"])
def test_a_late_failure_does_not_end_a_rest_that_waits_for_a_mend(rows: sqlite3.Connection, late: str) -> None:
    note_outcome(rows, verdict("provider"), NOON)
    note_outcome(rows, verdict(late), NOON + 1)
    assert rest_of(rows, NOON + DAY) == -1


@pytest.mark.parametrize(
    ("asked", "low", "high"), [(30.0, 30, 32), (0.0, 0, 2), (5000.5, 5000, 5002), (99_999_999.0, DAY, DAY + 1)]
)
def test_the_time_that_a_provider_asks_for_counts_up_to_a_day(
    rows: sqlite3.Connection, asked: float, low: int, high: int
) -> None:
    note_outcome(rows, verdict("retry", retry_after=asked), NOON)
    assert low <= (rest_of(rows, NOON) or 0) <= high


@pytest.mark.parametrize("cause", ["none", "answered"])
def test_what_rests_nobody_begins_no_rest(rows: sqlite3.Connection, cause: str) -> None:
    note_outcome(rows, verdict(cause), NOON)
    assert rows.execute("SELECT count(*) FROM rest").fetchone() == (0,)


@pytest.mark.parametrize("cause", ["retry", "outage", "provider", "model"])
def test_an_answer_ends_a_rest_and_its_steps(rows: sqlite3.Connection, cause: str) -> None:
    for _ in range(3):
        note_outcome(rows, verdict(cause), NOON)
    note_outcome(rows, verdict("answered"), NOON)
    assert rest_of(rows, NOON) is None
    note_outcome(rows, verdict("retry"), NOON)
    assert rest_of(rows, NOON) == 60


def test_a_timeout_neither_begins_nor_ends_a_rest(rows: sqlite3.Connection) -> None:
    note_outcome(rows, verdict("retry"), NOON)
    note_outcome(rows, verdict("none"), NOON)
    assert rest_of(rows, NOON) == 60


def test_a_refused_key_rests_until_entry_or_key_is_another(rows: sqlite3.Connection) -> None:
    note_outcome(rows, verdict("provider", mark=b"sk-secret"), NOON)
    for model in ("m1", "m2"):
        assert rest_of(rows, NOON + 365 * DAY, b"sk-secret", model) == -1
    assert rest_of(rows, NOON, b"sk-new") is None
    assert rest_of(rows, NOON, b"sk-secret") is None
    assert read_rests(rows, NOON) == []


def test_the_key_is_not_in_the_row_and_each_tag_has_its_own_salt(rows: sqlite3.Connection) -> None:
    tags = set()
    for _ in range(2):
        note_outcome(rows, verdict("provider", mark=b"sk-secret"), NOON)
        row = rows.execute("SELECT * FROM rest").fetchone()
        assert "sk-secret" not in str(row)
        assert digest(b"sk-secret") not in str(row)
        tags.add(rows.execute("SELECT tag FROM rest").fetchone()[0])
    salts, hashes = zip(*(tag.split(":") for tag in tags), strict=True)
    assert len(set(salts)) == len(set(hashes)) == 2  # the salt is in the hash, not only beside it


def test_an_unknown_model_rests_alone(rows: sqlite3.Connection) -> None:
    note_outcome(rows, verdict("model"), NOON)
    assert (rest_of(rows, NOON, model="m1"), rest_of(rows, NOON, model="m2")) == (-1, None)
    note_outcome(rows, verdict("answered", model="m2"), NOON)
    assert rest_of(rows, NOON, model="m1") == -1


def test_a_person_lifts_every_rest_of_one_provider(rows: sqlite3.Connection) -> None:
    for cause in ("model", "retry"):
        note_outcome(rows, verdict(cause), NOON)
    note_outcome(rows, verdict("retry", provider="other"), NOON)
    assert (lift(rows, "local"), lift(rows, "local")) == (2, 0)
    assert rest_of(rows, NOON) is None
    assert [rest.provider for rest in read_rests(rows, NOON)] == ["other"]


def test_a_clock_that_was_set_back_makes_nobody_rest_for_years(rows: sqlite3.Connection) -> None:
    far = NOON + 70 * 365 * DAY
    note_outcome(rows, verdict("retry", retry_after=float(DAY)), far)
    assert rest_of(rows, NOON) is None
    assert read_rests(rows, NOON) == []
    note_outcome(rows, verdict("retry", retry_after=float(DAY)), NOON)
    assert (rest_of(rows, NOON) or 0) >= DAY


def test_a_resting_provider_is_not_asked_and_nothing_is_counted(ledger: Ledger) -> None:
    seen = ledger.admit(KEY, None, 1, claim(), ME, b"counted 1", NOON)
    newest = ledger.settle(KEY, seen, 1, "rate_limited", b"settled 1", NOON, verdict("retry"))
    before = read(ledger)
    with pytest.raises(ProviderResting, match="why"):
        ledger.admit(KEY, newest, 2, claim(mark=b"key"), ME, b"x", NOON + 59)
    assert read(ledger) == before
    ledger.admit("rehearsed.json", None, 1, claim(live=False), ME, b"counted", NOON)
    ledger.admit("elsewhere.json", None, 1, claim(provider="other"), ME, b"counted", NOON)
    ledger.admit(KEY, newest, 2, claim(mark=b"key"), ME, b"counted 2", NOON + 60)


def test_a_rest_is_noted_even_where_the_reply_goes_to_the_orphans(ledger: Ledger) -> None:
    seen = ledger.admit(KEY, None, 1, claim(), ME, b"counted", NOON)
    ledger.replace(KEY, seen, b"other", allowance=1, archive=None, now=NOON)
    ledger.settle(KEY, seen, 1, "refused", b"late", NOON, verdict("provider"))
    with pytest.raises(ProviderRefusing), ledger.reading() as tx:
        check_rests(tx, "local", "m1", b"key", NOON)


def test_the_budget_is_of_the_live_requests_of_the_utc_day(ledger: Ledger) -> None:
    midnight = 20_001 * DAY
    newest = spend(ledger, 2, now=midnight - 1)
    for index in range(3):  # rehearsals are free
        ledger.admit(f"other{index}.json", None, 1, claim(live=False, requests_per_day=1), ME, b"x", midnight - 1)
    with pytest.raises(BudgetSpent, match="2"):
        ledger.admit(KEY, newest, 3, claim(requests_per_day=2), ME, b"x", midnight - 1)
    assert len(read(ledger).admissions) == 2
    newest = spend(ledger, 3, now=midnight, first=3, requests_per_day=1)
    with pytest.raises(BudgetSpent):
        ledger.admit(KEY, newest, 4, claim(requests_per_day=1), ME, b"x", midnight + DAY - 1)
    ledger.admit(KEY, newest, 4, claim(requests_per_day=2), ME, b"x", midnight + DAY - 1)


def test_requests_dated_in_the_future_do_not_use_up_todays_budget(rows: sqlite3.Connection) -> None:
    insert(rows, admitted_at=NOON + 70 * 365 * DAY)
    check_budget(rows, 1, NOON)
    insert(rows, attempt=2, point=None, admitted_at=NOON)
    with pytest.raises(BudgetSpent):
        check_budget(rows, 1, NOON)


# ---- roster

JOB = Sighting("nightly", KEY, "0 9 * * * (UTC)")


@pytest.mark.parametrize(
    ("now_has", "since", "known"),
    [
        (JOB, 500, True),
        (dataclasses.replace(JOB, schedule="0 10 * * * (UTC)"), 1000, False),
        (dataclasses.replace(JOB, schedule="0 9 * * * (Asia/Tokyo)"), 1000, False),
        (dataclasses.replace(JOB, job="other"), 1000, False),
    ],
)
def test_a_schedule_counts_from_when_it_was_first_seen(
    rows: sqlite3.Connection, now_has: Sighting, since: int, known: bool
) -> None:
    note(rows, JOB, 500)
    seen = read_seen(rows, now_has, 1000)
    assert (seen.since, seen.known, seen.moved_from) == (since, known, None)


def test_a_schedule_is_never_seen_in_the_future(rows: sqlite3.Connection) -> None:
    note(rows, JOB, 5000)
    seen = read_seen(rows, JOB, 1000)
    assert (seen.since, seen.known) == (1000, False)


def test_a_schedule_that_comes_back_begins_anew(rows: sqlite3.Connection) -> None:
    note(rows, JOB, 500)
    note(rows, dataclasses.replace(JOB, schedule="every 5m (UTC)"), 800)
    assert read_seen(rows, JOB, 1000).since == 1000


def test_spent_attempts_under_another_checkpoint_are_told(rows: sqlite3.Connection) -> None:
    note(rows, JOB, 500)
    moved = dataclasses.replace(JOB, checkpoint="new.json")
    assert read_seen(rows, moved, 1000).moved_from is None
    insert(rows, job="other")
    assert read_seen(rows, moved, 1000).moved_from is None
    insert(rows, job="nightly", attempt=2, point=None)
    assert (read_seen(rows, moved, 1000).moved_from, read_seen(rows, moved, 1000).known) == (KEY, True)
    note(rows, moved, 1000)
    assert read_seen(rows, moved, 1000).moved_from is None


@pytest.mark.parametrize(
    ("outcomes", "failures"),
    [
        ([], 0),
        (["timeout"], 1),
        (["timeout", "error", "interrupted"], 3),
        (["timeout", "tool_calls"], 0),
        (["length", "refused"], 1),
        (["timeout", "tool_calls", "empty", "malformed_reply"], 2),
        (["timeout", None], 0),
    ],
)
def test_failures_are_those_in_a_row_up_to_the_last_attempt(
    ledger: Ledger, outcomes: list[str | None], failures: int
) -> None:
    seen: Version | None = None
    for number, outcome in enumerate(outcomes, 1):
        seen = ledger.admit(KEY, seen, number, claim(point=number * 10), ME, b'{"status": "ready"}', NOON)
        if outcome:
            seen = ledger.settle(KEY, seen, number, outcome, b'{"status":"ready"}', NOON + number)
    with ledger.reading() as tx:
        facts = read_facts(tx, KEY)
    assert facts.failures == failures
    assert facts.points == {number * 10 for number in range(1, len(outcomes) + 1)}
    assert facts.ended_at == (NOON + len(outcomes) if outcomes and outcomes[-1] else None)
    assert (facts.open is not None) is (None in outcomes)
    assert facts.status == "ready"


@pytest.mark.parametrize(
    ("outcome", "found", "ended"),
    [("interrupted", 5, 5), ("interrupted", 30, 30), ("interrupted", 9000, 30), ("timeout", 9000, 9000)],
)
def test_an_attempt_whose_process_died_ended_at_its_deadline_at_the_latest(
    ledger: Ledger, outcome: str, found: int, ended: int
) -> None:
    seen = ledger.admit(KEY, None, 1, claim(deadline=30), ME, b'{"status": "ready"}', NOON)
    ledger.settle(KEY, seen, 1, outcome, b'{"status":"ready"}', NOON + found)
    with ledger.reading() as tx:
        assert read_facts(tx, KEY).ended_at == NOON + ended


def test_facts_are_those_of_the_newest_allowance(ledger: Ledger) -> None:
    newest = spend(ledger, 1, point=10)
    ledger.replace(KEY, newest, b'{"status": "ready"}', allowance=2, archive=Archive("again", "ann"), now=NOON)
    with ledger.reading() as tx:
        facts = read_facts(tx, KEY)
    assert (facts.points, facts.failures, facts.size) == (frozenset(), 0, 19)


def test_one_daemon_a_config_while_it_lives(rows: sqlite3.Connection) -> None:
    other = Owner(os.getppid(), "1", ME.boot)
    claim_daemon(rows, "/a/jobs.yaml", other, 500)
    claim_daemon(rows, "/a/jobs.yaml", ME, 1000)
    claim_daemon(rows, "/a/jobs.yaml", ME, 1000)
    with pytest.raises(DaemonRunning, match=rf"{ME.pid}.*1970-01-01T00:16:40Z"):
        claim_daemon(rows, "/a/jobs.yaml", DEAD, 1001)
    claim_daemon(rows, "/b/jobs.yaml", DEAD, 1001)
    release_daemon(rows, "/a/jobs.yaml", DEAD)
    assert rows.execute("SELECT count(*) FROM daemon").fetchone() == (2,)
    release_daemon(rows, "/a/jobs.yaml", ME)
    claim_daemon(rows, "/a/jobs.yaml", DEAD, 1002)


def test_a_process_is_known_by_more_than_its_number() -> None:
    assert is_alive(ME)
    assert not is_alive(DEAD)
    assert not is_alive(dataclasses.replace(ME, boot="another boot"))
    assert not is_alive(dataclasses.replace(ME, pid=2**22 + 1))


def test_a_process_that_cannot_be_looked_at_is_not_taken_for_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_alive(ME)  # the boot is known from now on
    (tmp_path / str(ME.pid) / "stat").mkdir(parents=True)
    monkeypatch.setattr("scheduler.owner._PROC", tmp_path)
    for look in (this_process, lambda: is_alive(ME)):
        with pytest.raises(StorageFailed, match=f"{tmp_path}/{ME.pid}/stat"):
            look()


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 1\n"], ids=["none", "mute"])
def test_where_nothing_tells_processes_apart_nothing_is_taken_for_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    for path in (tmp_path / "sysctl", tmp_path / "ps") if program else ():
        path.write_text(program)
        path.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("scheduler.owner._BOOT_ID", tmp_path / "boot_id")
    owner._boot.cache_clear()
    try:
        for look in (this_process, lambda: is_alive(ME)):
            with pytest.raises(ProcessesUntold, match=r"^/proc: processes cannot be told apart \(.+\); mount /proc"):
                look()
    finally:
        owner._boot.cache_clear()

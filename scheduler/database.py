"""One SQLite file: made privately, opened once a process, read and written in whole transactions.

Nothing but SQLite ever opens the file: closing any other descriptor of it would drop SQLite's locks.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scheduler.durable import create, sync_folder
from scheduler.errors import (
    DiskFull,
    LedgerBusy,
    LedgerDamaged,
    LedgerForeign,
    PermissionRefused,
    ReadOnlyStorage,
    ResumedError,
    StorageFailed,
)
from scheduler.files import check_writers, inode, is_regular, os_refusal, user_name
from scheduler.patience import BUSY_SECONDS, Patience

Connection = sqlite3.Connection
APPLICATION_ID = 0x72657375  # "resu"


class Senseless(sqlite3.DataError):
    """A row holds what this program never writes; a transaction tells it as LedgerDamaged."""


_abandoned: list[Connection] = []
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class Database:
    """A connection that all threads of this process share, one transaction at a time."""

    def __init__(self, path: Path, scripts: Sequence[str]) -> None:
        self.path = path
        self._scripts = scripts
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._openings = 0
        self._patience = Patience()
        _databases.add(self)

    @contextlib.contextmanager
    def write(self, wait: float | None = None) -> Iterator[Connection]:
        """Run one durable transaction; any exception inside it undoes it.

        Raises LedgerBusy after `wait` seconds, DiskFull, StorageFailed, LedgerDamaged, LedgerForeign and the refusals
        of access. Without `wait` a lock is waited for 5 s, by all callers of this process together.
        """
        with self._transaction("BEGIN IMMEDIATE", wait) as connection:
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def read(self, wait: float | None = None) -> Iterator[Connection]:
        """Run reads on one snapshot, through the connection that writes; only to open the file can take a wait."""
        with self._transaction("BEGIN", wait) as connection:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, begin: str, wait: float | None) -> Iterator[Connection]:
        with _translated(self.path):
            connection = self._begin(begin, wait)
            try:
                yield connection
            finally:
                try:
                    if connection.in_transaction:  # a fault of the disk has ended it already
                        connection.execute("ROLLBACK")
                finally:
                    self._lock.release()

    def _begin(self, begin: str, wait: float | None) -> Connection:
        """Take the lock and begin; no thread has the lock while it waits for another process."""
        until = self._patience.until(wait)
        while True:
            self._lock.acquire()
            try:
                connection = self._current()
                _set_wait(connection, 0)
                try:
                    connection.execute(begin)
                finally:
                    _set_wait(connection, BUSY_SECONDS)
                return connection
            except BaseException as error:
                self._lock.release()
                if not _is_busy(error):
                    raise
                busy = error
            if not self._patience.pause(until):
                raise busy

    def data_version(self) -> tuple[int, int]:
        """Return a value that changes whenever another process has written, or another file stands at the path."""
        with self._lock, _translated(self.path):
            version = self._current().execute("PRAGMA data_version").fetchone()[0]
            return self._openings, version

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock, _translated(self.path):
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def forget(self) -> None:
        """Leave the connection to the process that this one was forked from: SQLite's must not be used in both."""
        self._lock = threading.RLock()
        if self._connection is not None:
            _abandoned.append(self._connection)  # kept, for closing it would release the parent's locks
        self._connection = None

    def _current(self) -> Connection:
        """Return the connection, opened anew where another file stands at the path than the one that was opened."""
        if self._connection is None or inode(self.path) != self._inode:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            _make_private(self.path)
            before = inode(self.path)
            connection = _connect(self.path, "rw")
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._inode = connection, before
            self._openings += 1  # the new file may have the number of the old one
        return self._connection

    def _prepare(self, connection: Connection) -> None:
        _set_wait(connection, 0)
        connection.execute("PRAGMA synchronous=FULL")
        if _is_new(connection):  # looked at first, so that opening waits for no writer
            self._run(connection, _is_new)
        if check_identity(connection, self.path, len(self._scripts)) < len(self._scripts):
            self._run(connection, self._is_older)
        connection.execute("PRAGMA journal_mode=WAL")
        _set_wait(connection, BUSY_SECONDS)

    def _run(self, connection: Connection, wanting: Callable[[Connection], bool]) -> None:
        """Run the scripts that the file has not had yet, in one transaction, unless another process just did."""
        connection.execute("BEGIN IMMEDIATE")
        if wanting(connection):
            # Committed before WAL is on, so that a lost -wal leaves a ledger without rows, never one without tables.
            for statement in _statements(self._scripts[_version(connection) :]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={len(self._scripts)}")
        connection.execute("COMMIT")

    def _is_older(self, connection: Connection) -> bool:
        return _version(connection) < len(self._scripts)


def _set_wait(connection: Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def _forget_all() -> None:
    for database in _databases:
        database.forget()


os.register_at_fork(after_in_child=_forget_all)


@contextlib.contextmanager
def read_only(path: Path, scripts: Sequence[str]) -> Iterator[Connection | None]:
    """Read one snapshot without writing a row; None where there is no file, or one whose making was cut off.

    Tables that a file of an older version lacks are empty ones of this connection alone.
    A folder that cannot be written to is read as immutable, and only where no -wal or -journal stands beside the file.
    """
    with _translated(path):
        if not is_regular(path) or not path.stat().st_size:
            yield None
            return
        mode = "ro"
        beside = (path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal"))
        if not os.access(path.parent, os.W_OK) and not any(beside):
            mode = "ro&immutable=1"
        with contextlib.closing(_connect(path, mode)) as connection:
            if _is_half_made(connection):
                yield None
                return
            found = check_identity(connection, path, len(scripts))
            connection.execute("PRAGMA temp_store=MEMORY")
            for statement in _statements(scripts[found:]):
                connection.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))
            connection.execute("BEGIN")
            yield connection


def _is_half_made(connection: Connection) -> bool:
    """Tell whether a journal is to be rolled back: only the first transaction, before WAL is on, can leave one."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        return True
    return False


def check_identity(connection: Connection, path: Path, version: int) -> int:
    """Return the file's version, which is at most the one given.

    Raises LedgerForeign where the file is another program's, or of a version that this one does not know.
    """
    connection.execute("SELECT count(*) FROM sqlite_master")  # a file that is cut short is damaged, not foreign
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise LedgerForeign(path=path, detail="another program made it")
    found = _version(connection)
    if not 1 <= found <= version:
        raise LedgerForeign(path=path, detail=f"its version is {found}, and this program knows 1 to {version}")
    return found


def _version(connection: Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def _statements(scripts: Sequence[str]) -> list[str]:
    return [statement for script in scripts for statement in script.split(";")]


def _is_new(connection: Connection) -> bool:
    return not any(
        connection.execute(query).fetchone()[0]
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )


def _connect(path: Path, mode: str) -> Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
    )


def _make_private(path: Path) -> None:
    """Make the file with mode 0600 whatever the umask, or check the one that is there, and those beside it."""
    if not is_regular(path):
        with contextlib.suppress(FileExistsError):
            os.close(create(path))
            sync_folder(path.parent)
    check_writers(path, path.stat())
    for suffix in ("-wal", "-shm", "-journal"):  # SQLite would write into a device, or wait for a FIFO
        is_regular(path.with_name(path.name + suffix))


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    except UnicodeDecodeError as error:  # SQLite complains of a damaged schema with the very bytes that are damaged
        raise LedgerDamaged(path=path, detail="it holds bytes that are no text") from error
    except OSError as error:
        raise os_refusal(path, error) from error


def _is_busy(error: BaseException) -> bool:
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _refusal(path: Path, error: sqlite3.Error) -> ResumedError:
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if _is_busy(error):
        return LedgerBusy(path=path)
    disk = os.statvfs(path.parent)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and disk.f_flag & os.ST_RDONLY:
        return ReadOnlyStorage(path=path)
    # SQLite reports a -shm file that it cannot extend as an I/O error.
    full = primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and not (disk.f_bavail and disk.f_favail)
    if primary == sqlite3.SQLITE_FULL or full:
        return DiskFull(path=path, purpose="the ledger")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return PermissionRefused(path=path, user=user_name(os.geteuid()), reason=str(error))
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS):
        return StorageFailed(path=path, reason=str(error))
    return LedgerDamaged(path=path, detail=str(error))

"""What a real slice does to a folder, in its order: recorded in this process, or read out of a trace of strace."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scheduler.database import Database
from tests.faults.crash_disk import Op
from tests.faults.strace import Call

LEDGER = ".ledger.sqlite3"
CALLS = ("open", "write", "fsync", "ftruncate", "posix_fallocate", "rename", "unlink")
EARLIER_BOOT = "UPDATE admission SET boot = 'an earlier one'"


@dataclass(frozen=True)
class Rows:
    """A ledger after a commit, and what plain SQL says of one checkpoint in it."""

    image: bytes
    body: bytes | None = None
    digests: frozenset[str] = frozenset()
    allowance: int = 1
    admitted: int = 0

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.body)) if self.body else {"attempts": 0, "status": "ready", "answer": None}


def read_rows(path: Path, key: str) -> Rows:
    """Read a ledger as it is after the power was lost: the processes that it names ran before this boot."""
    with contextlib.closing(sqlite3.connect(path)) as rows:
        tables = {name for (name,) in rows.execute("SELECT name FROM sqlite_master")}
        if "admission" not in tables:
            return Rows(path.read_bytes())
        rows.execute(EARLIER_BOOT)
        rows.commit()
        document = rows.execute("SELECT body, allowance FROM document WHERE checkpoint = ?", (key,)).fetchone()
        body, allowance = document or (None, 1)
        digests = rows.execute("SELECT digest FROM version WHERE checkpoint = ?", (key,)).fetchall()
        query = "SELECT coalesce(max(attempt), 0) FROM admission WHERE checkpoint = ? AND allowance = ?"
        [admitted] = rows.execute(query, (key, allowance)).fetchone()
    return Rows(path.read_bytes(), body, frozenset(digest for (digest,) in digests), allowance, admitted)


@dataclass
class Recorder:
    """What this process does to the files of a folder, and the ledger as each commit left it."""

    folder: Path
    key: str
    ops: list[Op] = field(default_factory=list)
    ledgers: list[Rows] = field(default_factory=list)
    _image: bytes = b""
    _opened: dict[int, tuple[str, int]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Record what the block does."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._noting(name, getattr(os, name)))
            patch.setattr(Database, "_run", self._committing(Database._run))
            patch.setattr(Database, "write", contextlib.contextmanager(self._writing(Database.write)))
            yield

    def keep(self) -> bool:
        """Keep the ledger as it is now; tell whether it has changed."""
        with contextlib.closing(sqlite3.connect(self.folder / LEDGER)) as rows:
            image = rows.serialize()
        if image == self._image:
            return False
        self._image = image
        beside = self.folder.parent / "image.sqlite3"
        beside.write_bytes(image)
        self.ledgers.append(read_rows(beside, self.key))
        beside.unlink()
        return True

    def _commit(self) -> None:
        if self.keep():
            self.ops.append(Op("commit", file=len(self.ledgers) - 1))

    def _committing(self, real: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            real(*arguments)
            self._commit()

        return run

    def _writing(self, real: Callable[..., Any]) -> Callable[..., Iterator[sqlite3.Connection]]:
        def write(*arguments: Any, **options: Any) -> Iterator[sqlite3.Connection]:
            with real(*arguments, **options) as connection:
                yield connection
            self._commit()

        return write

    def _noting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(subject: Any, *more: Any, **options: Any) -> Any:
            new = name == "open" and not os.path.lexists(subject)
            result = real(subject, *more, **options)
            if op := self._op(name, subject, more, result, new):
                self.ops.append(op)
            return result

        return call

    def _op(self, name: str, subject: Any, more: Sequence[Any], result: Any, new: bool) -> Op | None:
        if name == "open":
            self._opened.pop(result, None)
            if inside := self._inside(subject):
                self._opened[result] = (inside, next(self._numbers) if new else 0)
            return Op("create", inside, file=self._opened[result][1]) if inside and new else None
        if name in ("rename", "unlink"):
            inside = self._inside(subject)
            return Op(name, inside, (self._inside(more[0]) or "") if name == "rename" else "") if inside else None
        opened, number = self._opened.get(subject, ("", 0))
        if name == "fsync" and opened == ".":
            return Op("sync folder")
        if not number:
            return None
        match name:
            case "write":
                return Op("write", file=number, data=bytes(more[0][:result]))
            case "fsync":
                return Op("fsync", file=number)
        return Op("size", file=number, size=sum(more))

    def _inside(self, path: Any) -> str:
        """Return a name in the folder, `.` for the folder itself, nothing for all else."""
        if not isinstance(path, str | os.PathLike):
            return ""
        whole = Path(path)
        return "." if whole == self.folder else whole.name if whole.parent == self.folder else ""


# ---- the same out of a trace

TRACED = (
    *("openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate", "rename", "unlink"),
    *("connect", "sendto"),
)
PAGE = "4096"
_PATHS = re.compile(r'<(/[^>]*)>|"(/[^"]*)"')


def told(ops: Sequence[Op]) -> list[str]:
    """Return operations without what differs from run to run: the names by chance, the numbers of files."""
    names = {op.file: op.name for op in ops if op.kind == "create"}
    lines = []
    for op in ops:
        if op.kind == "told" or op.name.endswith(".lock"):
            continue
        place = op.name or names.get(op.file, "") if op.kind not in ("commit", "send") else ""
        lines.append(" ".join(filter(None, (op.kind, _plain(place), _plain(op.to)))))
    return lines


def traced_ops(calls: Sequence[Call], folder: Path) -> list[str]:
    """Return what a traced program did to a folder, as `told` does, with its commits, connections and requests.

    A commit is a sync of SQLite's log after a page was written to it, or the end of a rollback journal. SQLite itself
    calls fdatasync, Python fsync. With a second journal SQLite goes over to its log; no row changes.
    """
    lines: list[str] = []
    logged = False
    for call in calls:
        paths = [Path(one or other) for one, other in _PATHS.findall(call.arguments)]
        names = ["." if path == folder else path.name for path in paths if folder in (path, path.parent)]
        last = names[-1] if names and not call.error else ""
        if last == f"{LEDGER}-wal":
            logged = logged or (call.name == "pwrite64" and call.result == PAGE)
            if logged and call.name == "fdatasync":
                lines.append("commit")
                logged = False
        elif last == f"{LEDGER}-journal":
            lines += ["commit"] if call.name == "unlink" and "commit" not in lines else []
        elif (last and not last.endswith(".lock")) or call.name in ("connect", "sendto"):
            lines += _line(call, names)
    return lines


def _line(call: Call, names: Sequence[str]) -> list[str]:
    if names and names[0].startswith(LEDGER) and call.name != "openat":
        return []
    match call.name:
        case "connect":
            return ["connect"] if "AF_INET" in call.arguments else []
        case "sendto":
            return ["send"] if "POST " in call.arguments else []
        case "openat":
            return [f"create {_plain(names[-1])}"] if "O_EXCL" in call.arguments else []
        case "rename":
            return [f"rename {_plain(names[0])} {_plain(names[1])}"]
        case "fsync" if names[0] == ".":
            return ["sync folder"]
        case "fdatasync" if names[0] == ".":
            return []
        case "ftruncate" | "fallocate":
            return [f"size {_plain(names[0])}"]
    return [f"{call.name} {_plain(names[0])}"]


def _plain(name: str) -> str:
    return re.sub(r"\.[0-9a-f]{16}\.tmp$|-\d{4}-\d\d-\d\dT\d+Z", "", name)

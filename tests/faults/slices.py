"""What every slice promises when its files or its disk fail, checked from outside.

The oracle is the server that counts, the checkpoint's file, and the ledger's rows, read from a copy by plain sqlite3.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.fork_server import ForkServer
from tests.faults.in_memory import copied
from tests.faults.strace import Traced
from tests.support import KEY, ChatServer, Project, answer, chat_server, tool_calls

CODES = (0, 65, 69, 74, 75, 77, 78)
MENDED = re.compile(r"put back at attempt|attempt \d of \d was interrupted|makes? up for")
UNASKED = re.compile(r"attempt \d of \d: error \(")  # the fault hit the connection, no file
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (info   |warning|error  ) \S.*")
LEDGER = ".ledger.sqlite3"


@dataclass(frozen=True)
class Stored:
    """What lies in a checkpoint's folder: attempts by file and ledger, the newest document, what was kept apart."""

    shown: int = 0
    admitted: int = 0
    document: dict[str, Any] = field(default_factory=dict)
    orphans: str = ""

    @property
    def attempts(self) -> int:
        """The most attempts that anything counts."""
        return max(self.shown, self.admitted, self.document.get("attempts", 0))

    @property
    def status(self) -> str:
        return str(self.document.get("status", "new"))

    def has(self, text: str) -> bool:
        """Tell whether a reply is kept."""
        return text in json.dumps(self.document) or text in self.orphans


def stored(path: Path) -> Stored:
    """Read a checkpoint, and its ledger from a copy."""
    shown = 0
    with contextlib.suppress(OSError, ValueError, TypeError):
        shown = json.loads(path.read_bytes())["attempts"] if path.is_file() else 0
    if not (path.parent / LEDGER).is_file():
        return Stored(shown)
    with copied(path.parent / LEDGER) as ledger:
        try:
            return _read(ledger, path.name, shown)
        except (sqlite3.DatabaseError, ValueError):  # no tables yet, or damaged
            return Stored(shown)


def _read(ledger: sqlite3.Connection, key: str, shown: int) -> Stored:
    [(admitted,)] = ledger.execute("SELECT coalesce(max(attempt), 0) FROM admission WHERE checkpoint = ?", (key,))
    bodies = ledger.execute("SELECT body FROM document WHERE checkpoint = ?", (key,)).fetchall()
    kept = ledger.execute("SELECT body FROM orphan WHERE checkpoint = ?", (key,)).fetchall()
    return Stored(shown, admitted, json.loads(bodies[0][0]) if bodies else {}, " ".join(str(body) for (body,) in kept))


@dataclass
class Watched:
    """A server that looks at a checkpoint while each request is there, and gives each reply a text of its own."""

    chat: ChatServer
    path: Path = Path()
    faults: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    _meanwhile: Callable[[], object] = bool
    _calls: bool = False
    _size: int = 0

    @property
    def sent(self) -> int:
        """How many requests came for this checkpoint."""
        return len(self.texts)

    def begin(self, path: Path, *, calls: bool = False, size: int = 0, meanwhile: Callable[[], object] = bool) -> None:
        """Watch this checkpoint from now on; `meanwhile` is done while a request waits for its reply."""
        self.path, self.faults, self.texts, self._meanwhile = path, [], [], meanwhile
        self.reply(calls=calls, size=size)
        self.chat.arrived = self._arrive

    def reply(self, *, calls: bool, size: int = 0) -> None:
        """Give answers of at least this size from now on, or calls of tools."""
        self._calls, self._size = calls, size
        wanted = [("list_files", "{}"), ("read_file", '{"path": "notes.md"}')]
        named = [(f"{self._text}-{number}", *call) for number, call in enumerate(wanted)]
        self.chat.script = [tool_calls(*named) if calls else answer(self._text.ljust(self._size, "."))]

    @property
    def _text(self) -> str:
        return f"reply-{self.chat.count + 1}."

    def _arrive(self) -> None:
        self.texts.append(f"reply-{self.chat.count}.")
        self.reply(calls=self._calls, size=self._size)
        found = stored(self.path)
        if not found.shown == found.admitted == found.document.get("attempts"):
            what = f"the file shows {found.shown}, the ledger admitted {found.admitted}"
            self.faults.append(f"a request was there while {what}, counted {found.document.get('attempts')}")
        self._meanwhile()


@contextlib.contextmanager
def watched_server() -> Iterator[Watched]:
    """Run such a server."""
    with chat_server() as chat:
        yield Watched(chat)


def said_faults(told: Traced, *places: Path) -> list[str]:
    """Return what is wrong with how a program ended and what it said, whatever was done to it.

    Where it failed, one line names a file below one of the places, or of the system, and a reason.
    """
    faults = [] if told.code in CODES else [f"exit {told.code}"]
    faults += [f"{word} is shown" for word in ("Traceback", KEY) if word in told.out + told.err]
    faults += [f"no log line: {line}" for line in told.err.splitlines() if not LOG_LINE.fullmatch(line)]
    bad = [line for line in told.err.splitlines() if " info " not in line and not MENDED.search(line)]
    if told.code and len(bad) != 1:
        faults.append(f"exit {told.code} with {len(bad)} lines")
    named = (*map(str, places), "/proc/")
    if told.code and not any(UNASKED.search(line) or any(place in line for place in named) for line in bad):
        faults.append("no line names a file")
    return faults


def slice_faults(before: Stored, after: Stored, watched: Watched, told: Traced) -> list[str]:
    """Return which promises one slice broke: counted before it is sent, at most one, nothing that came is lost."""
    faults = [*watched.faults]
    if watched.sent > 1:
        faults.append(f"{watched.sent} requests of one slice")
    if not before.attempts + watched.sent <= after.attempts <= before.attempts + 1:
        faults.append(f"attempts went from {before.attempts} to {after.attempts}, {watched.sent} were sent")
    if watched.sent and any(entry["billed"] == "no" for entry in after.document.get("history", [])[-1:]):
        faults.append("a request was sent, and is told as never sent")
    lost = [text for text in watched.texts if not after.has(text)]
    if lost and "stays counted" not in told.err:
        faults.append(f"the reply {lost} is lost, and nothing says so")
    if told.code == 0 and lost:
        faults.append(f"all is well, it says, and the reply {lost} is lost")
    return faults


def end_faults(server: ForkServer, project: Project, watched: Watched, begun: int, *, may_block: bool) -> list[str]:
    """Run the job to its end, nothing done to it any more; return what is wrong with that."""
    watched.reply(calls=False)
    watched.faults.clear()
    for _ in range(5):
        told = server.run(project, "run", "nightly")
        faults = said_faults(told, project.folder.parent)
        found = stored(watched.path)
        if faults or told.code or found.status in ("done", "exhausted"):
            break
    if begun + watched.sent > 4:
        faults.append(f"{begun + watched.sent} requests of one allowance")
    if told.code and not (may_block and told.code == 65):
        faults.append(f"afterwards it does not go on: exit {told.code}, {told.err}")
    if not told.code:
        shown = json.loads(watched.path.read_bytes())
        if found.status not in ("done", "exhausted") or shown != found.document:
            faults.append(f"it ends as {found.status}, shown as {shown}")
        elif found.status == "done" and shown["answer"].rstrip(".") + "." not in watched.texts:
            faults.append(f"the answer {shown['answer'][:80]} is none that was given")
    return faults + watched.faults

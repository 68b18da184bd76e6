"""The real parts in a folder of their own, in this process: the far side that counts, death at a step, and what stands
in files and rows, read without the program."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import time_machine

from scheduler import checkpoint, database, durable, gateway
from scheduler.job import Job, JobFile, Provider, Series
from scheduler.ledger import NAME, ledger_of
from scheduler.owner import this_process
from scheduler.steps import RECOVERY, SLICE, Step, find
from tests.faults.in_memory import in_memory
from tests.faults.machine_model import Sheet, Wish
from tests.support import tool_calls

JOB, SERIES, HOUR, TIMES = "nightly", "weekly", 3600, 3
LOCAL = Provider(name="local", base_url="http://127.0.0.1:9/v1", model="m1")
START = 1_772_323_200  # 2026-03-01
TIME = "2026-01-01T00:00:00Z"
PROGRESS = ("answer", "tool")
REPLIES = ("tool", "tool", "answer", "answer", "blank", "error", "timeout")
# In one process a lock is let go with the object that holds it, so no death leaves it locked or takes it half.
_LOCKS = ("lock-before", "lock-after", "unlock-before", "unlock-after")
STEPS = {name: step for name, step in (SLICE | RECOVERY).items() if name not in _LOCKS}


class Dead(BaseException):
    """The process is gone."""


@contextlib.contextmanager
def dying(step: Step, start: str) -> Iterator[None]:
    """Let the process die at a border of a step: nothing that it does afterwards reaches a file or the ledger.

    `start` is what it enters in the ledger as the start of its process, which is that of none that lives.
    """
    dead = False
    calls = itertools.count(1)

    def die() -> None:
        nonlocal dead
        dead = True
        raise Dead

    def gated(real: Callable[..., Any]) -> Callable[..., Any]:
        def gate(*arguments: Any, **options: Any) -> Any:
            return die() if dead else real(*arguments, **options)

        return gate

    def bordered(real: Callable[..., Any]) -> Callable[..., Any]:
        def border(*arguments: Any, **options: Any) -> Any:
            here = next(calls) == step.call
            if dead or (here and not step.after):
                die()
            result = real(*arguments, **options)
            return die() if here else result

        return border

    owner, name = find(step)
    ended = replace(this_process(), start=start)
    with pytest.MonkeyPatch.context() as patch:
        for place, effect in ((database.Database, "_begin"), (durable, "create"), (Path, "rename"), (Path, "unlink")):
            patch.setattr(place, effect, gated(getattr(place, effect)))
        patch.setattr(owner, name, bordered(getattr(owner, name)))
        patch.setattr(checkpoint, "this_process", lambda: ended)
        yield


class Far:
    """The far side: it answers at once as it is told, and sees to it that each request was counted before (I2)."""

    world: World  # of the present run; the program makes a new one of these for each request

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.world.asked(request)


@dataclass
class Real:
    """A checkpoint as its rows tell it."""

    allowance: int
    document: dict[str, Any]
    body: bytes
    admissions: list[tuple[int, int, str | None]] = field(default_factory=list)  # allowance, attempt, outcome
    archived: int = 0
    orphans: int = 0

    def open(self) -> bool:
        return any(outcome is None for _, _, outcome in self.admissions)


class World:
    """A folder with its ledger, files, jobs.yaml and far side."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.folder = self._stack.enter_context(in_memory())
        self.requests: Counter[tuple[str, int]] = Counter()  # by checkpoint and allowance
        self.faults: list[str] = []
        self.notes: list[bool] = []
        self.gone: list[str] = []  # the starts of processes that died
        self.reply = "answer"
        self.during: Callable[[], None] | None = None
        self._rows: sqlite3.Connection | None = None
        self._version, self._real, self._kept = -1, dict[str, Real](), ""
        Far.world = self
        self._stack.enter_context(pytest.MonkeyPatch.context()).setattr(gateway, "Exchange", Far)
        self.clock = self._stack.enter_context(time_machine.travel(START, tick=False))

    def close(self) -> None:
        if self._rows:
            self._rows.close()
        ledger_of(self.folder)._database.close()
        ledger_of.cache_clear()
        self._stack.close()

    # ---- what jobs.yaml says

    def job(self, wish: Wish, name: str) -> Job:
        return Job(
            id=JOB,
            task=wish.task,
            model=wish.model,
            checkpoint=self.folder / name,
            provider=LOCAL,
            schedule=f"every {wish.period}s",
            after_failure=(),
            max_attempts=wish.most,
            enabled=wish.enabled,
        )

    def pattern(self, wish: Wish) -> Job:
        opens = Series(opens=f"every {HOUR}s", times=TIMES)
        return replace(self.job(wish, "w-{opening}.json"), id=SERIES, series=opens)

    def job_file(self, wish: Wish, name: str, series: Wish) -> JobFile:
        return JobFile(
            path=self.folder / "jobs.yaml",
            digest="",
            live=True,
            max_parallel=1,
            jobs={JOB: self.job(wish, name)},
            series={SERIES: self.pattern(series)},
            providers={LOCAL.name: LOCAL},
            refused={},
        )

    # ---- the far side

    @property
    def sent(self) -> int:
        return self.requests.total()

    def asked(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        rows = self.rows("SELECT checkpoint, allowance, attempt, start FROM admission WHERE outcome IS NULL")
        found = [row[:3] for row in rows if row[3] not in self.gone]
        if len(found) != 1:
            self.faults.append(f"I2: a request, and {found} are counted and without an outcome")
            found = found or [("", 0, 0)]
        key, allowance, attempt = found[0]
        self.requests[key, allowance] += 1
        shown = json.loads(self.read(key) or b"{}").get("attempts")
        if shown != attempt:
            self.faults.append(f"I2: attempt {attempt} is asked, and its file shows {shown}")
        if f"Request {attempt} of " not in request["messages"][1]["content"] + request["messages"][-1]["content"]:
            self.faults.append(f"attempt {attempt} is asked as another one: {request['messages']}")
        if self.during:
            self.during()
        return self.said()

    @property
    def text(self) -> str:
        """The answer that the present request gets, where it gets one."""
        return f"answer {self.sent}"

    def said(self) -> Mapping[str, Any]:
        match self.reply:
            case "error":
                raise RuntimeError("no reply")
            case "timeout":
                raise TimeoutError("no reply in time")
            case "tool":
                message = tool_calls((f"c{self.sent}", "read_file", "{}"))["choices"][0]["message"]
                return {"message": message, "finish_reason": "tool_calls"}
        text = self.text if self.reply == "answer" else " "
        return {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}

    # ---- files and rows

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def mark(self, name: str) -> tuple[bytes | None, int, int]:
        """What changes when anything touches a file."""
        found = (self.folder / name).lstat()
        return self.read(name), found.st_ino, found.st_mtime_ns

    def rows(self, query: str) -> list[Any]:
        if self._rows is None:
            if not (self.folder / NAME).exists() or not (self.folder / NAME).stat().st_size:
                return []  # looked at, never opened: to close it would drop SQLite's locks
            self._rows = sqlite3.connect(self.folder / NAME, isolation_level=None, check_same_thread=False)
        return self._rows.execute(query).fetchall()

    def real(self) -> dict[str, Real]:
        """Every checkpoint of the ledger, read anew where anything was written."""
        if (version := self.rows("PRAGMA data_version")) and version[0][0] != self._version:
            self._version = version[0][0]
            old, self._real = self._real, {}
            for key, allowance, body in self.rows("SELECT checkpoint, allowance, body FROM document"):
                known = old.get(key)
                document = known.document if known and known.body == body else json.loads(body)
                self._real[key] = Real(allowance, document, body)
            for key, *row in self.rows("SELECT checkpoint, allowance, attempt, outcome FROM admission"):
                self._real[key].admissions.append(tuple(row))
            kept = []
            for table in ("archive", "orphan"):
                for key, body in self.rows(f"SELECT checkpoint, body FROM {table}"):
                    kept.append(body)
                    self._real[key].archived += table == "archive"
                    self._real[key].orphans += table == "orphan"
            self._kept = b"".join(kept).decode()
        return self._real

    def keeps(self, answer: str) -> bool:
        """Tell whether a text is still in a document, the archive or an orphan."""
        return any(f'"{answer}"' in text for text in (self._kept, *(one.body.decode() for one in self._real.values())))

    def knows(self, key: str, body: bytes) -> bool:
        digest = hashlib.sha256(body).hexdigest()
        return bool(self.rows(f"SELECT 1 FROM version WHERE checkpoint = '{key}' AND digest = '{digest}'"))


def entry(sheet: Sheet, *, ours: bool) -> bytes:
    """Write a document that the ledger does not know: of our own form, or of a plain worker's six fields."""
    fields: dict[str, Any] = {
        "task": sheet.wish.task,
        "model": sheet.wish.model,
        "conversation": [],
        "attempts": sheet.attempts,
        "status": sheet.status,
        "answer": sheet.answer,
    }
    if ours:
        ended = {"point": None, "started": TIME, "finished": TIME, "outcome": "error", "reason": None, "billed": "no"}
        ended |= {"finish_reason": None, "request_id": None, "usage": None, "evidence": []}
        history = [{"number": number, **ended} for number in range(1, sheet.attempts + 1)]
        fields |= {"format": 1, "history": history, "review": None}
    return json.dumps(fields).encode()

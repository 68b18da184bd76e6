"""Walks of the model, done by the real code: two threads that stop before each thing that the model names."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scheduler import checkpoint, flights, resume_once
from scheduler.due import Plan
from scheduler.errors import CheckpointBusy, MaintenanceRefused, ReplyOrphaned
from scheduler.ledger import Ledger
from scheduler.mend import renew
from scheduler.review import Decision, decide
from tests.faults.crash_recorded import LEDGER
from tests.faults.protocol_model import PUBLISHES, Doc, Phase, World

MODEL = "m1"
REFUSALS = (CheckpointBusy, MaintenanceRefused, ReplyOrphaned)  # which the model knows; all others fail a walk
STOPS = dict.fromkeys(PUBLISHES, "publish") | {"interrupt": "settle", "save": "settle"}


class Died(BaseException):
    """The process of a holder is gone."""


@dataclass
class Walker:
    """One holder: a thread that does nothing until it is told to go on, and then up to its next stop."""

    at: str = "lock"
    reply: str = ""
    fault: BaseException | None = None
    _dead: bool = False
    _thread: threading.Thread | None = None
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            except (*REFUSALS, Died):
                pass
            except BaseException as error:
                self.fault = error
            self.at = "lock"
            self._stopped.release()

        self._dead = False
        self._thread = threading.Thread(target=run, name=f"walker {id(self)}")
        self._thread.start()
        self._wait()

    def go_on(self, *, dead: bool = False) -> None:
        self._dead = dead
        self._go.release()
        self._wait()

    def die(self) -> None:
        while self.at != "lock":
            self.go_on(dead=True)

    def stop(self, at: str) -> None:
        """Stop here, in this holder's own thread."""
        if threading.current_thread() is self._thread:
            if not self._dead:
                self.at = at
                self._stopped.release()
                assert self._go.acquire(timeout=60)
            if self._dead:
                raise Died

    def _wait(self) -> None:
        assert self._stopped.acquire(timeout=60), f"no stop after {self.at}"
        if self.at == "lock" and self._thread:
            self._thread.join()
            self._thread = None
        if self.fault:
            raise AssertionError("a holder was refused what the model grants") from self.fault


@dataclass
class Walk:
    """The real checkpoint of a walk, and what is seen of it from outside."""

    plan: Plan
    walkers: tuple[Walker, Walker] = field(default_factory=lambda: (Walker(), Walker()))
    bodies: dict[Doc, bytes] = field(default_factory=dict)
    requests: int = 0

    @contextlib.contextmanager
    def stopping(self, *, blind: bool) -> Iterator[None]:
        """Make the code stop where the model does; `blind` hides living processes from each other."""
        with pytest.MonkeyPatch.context() as patch:
            for owner, name, at in (
                (checkpoint, "read_regular", "read"),
                (checkpoint, "publish", "publish"),
                (Ledger, "read", "look"),
                *((Ledger, name, name) for name in ("admit", "settle", "replace")),
            ):
                patch.setattr(owner, name, self._stopped(getattr(owner, name), at))
            # In one second an attempt of two allowances would have one document, byte for byte.
            patch.setattr(time, "time", map(float, itertools.count(1_800_000_000)).__next__)
            if blind:
                patch.setattr(flights, "is_alive", lambda _: False)
            try:
                yield
            finally:
                for walker in self.walkers:
                    walker.die()

    def _stopped(self, real: Callable[..., Any], at: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            for walker in self.walkers:
                walker.stop(at)
            return real(*arguments, **options)

        return call

    def do(self, name: str, after: World) -> None:
        """Do one step of the model."""
        path = self.plan.path
        if name == "the lock file is deleted":
            path.with_name(path.name + ".lock").unlink()
        elif name.startswith("the "):
            for walker in self.walkers if name.startswith("the power") else ():
                walker.die()
            path.unlink(missing_ok=True)
            if after.file:
                path.write_bytes(self.bodies[after.file])
        else:
            self._step(self.walkers["AB".index(name[0])], name[2:])

    def _step(self, walker: Walker, name: str) -> None:
        match name:
            case "locks":
                walker.start(
                    lambda: resume_once(self.plan.job.task, self.plan.path, self._ask(walker), MODEL, tools=())
                )
            case "locks to renew":
                walker.start(lambda: renew(self.plan, MODEL, "again", keep=False))
            case "locks to reject":
                no = Decision(approved=False, digest="", note="no", who="a person")
                walker.start(lambda: decide(self.plan, no, lambda _: None))
            case "dies":
                walker.die()
            case _:
                walker.reply = name
                walker.go_on()

    def _ask(self, walker: Walker) -> Callable[[object], dict[str, Any]]:
        def ask(_: object) -> dict[str, Any]:
            walker.stop("send")
            self.requests += 1
            walker.stop("wait")
            finish = "stop" if walker.reply == "has an answer" else "length"
            return {"message": {"role": "assistant", "content": "words"}, "finish_reason": finish}

        return ask

    def check(self, world: World) -> None:
        """Compare what is seen from outside with the model."""
        doc, body, is_open = stored(self.plan.path)
        assert doc == world.doc
        assert is_open == (doc is not None and doc.phase == "open")
        if doc and body:
            self.bodies[doc] = body
        file = self.plan.path.read_bytes() if self.plan.path.exists() else None
        assert file == (self.bodies[world.file] if world.file else None)
        assert self.requests == len(world.sent)
        assert [walker.at for walker in self.walkers] == [STOPS.get(one.at, one.at) for one in world.holders]


def stored(path: Path) -> tuple[Doc | None, bytes | None, bool]:
    """Read a checkpoint's document, and whether an attempt is open, out of the ledger by plain SQL."""
    ledger = path.with_name(LEDGER)
    if not ledger.exists():
        return None, None, False
    with contextlib.closing(sqlite3.connect(ledger)) as rows:
        found = rows.execute("SELECT allowance, body FROM document").fetchone()
        is_open = bool(rows.execute("SELECT count(*) FROM admission WHERE outcome IS NULL").fetchone()[0])
    if found is None:
        return None, None, is_open
    allowance, body = found
    document = json.loads(body)
    last = document["history"][-1] if document["history"] else {"outcome": ""}
    rejected = document["status"] == "done" and (document["review"] or {}).get("decision") == "rejected"
    phase: Phase = "open" if last["outcome"] is None else "rejected" if rejected else document["status"]
    return Doc(allowance, document["attempts"], phase), body, is_open

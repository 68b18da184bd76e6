"""The pair of checkpoint file and ledger: locked, loaded, committed, then published.

The ledger's document is the truth; the file is its published face, and may be behind it after a crash, never ahead.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scheduler import flights
from scheduler.database import Connection
from scheduler.document import MAX_BYTES, dump
from scheduler.durable import make_folder, publish, remove_leftovers, reserved
from scheduler.errors import (
    CheckpointBusy,
    ReplyOrphaned,
    RequestRefused,
    ResumedError,
    StorageFailed,
)
from scheduler.files import check_folder, is_regular, noted, read_regular, translated
from scheduler.ledger import Archive, Claim, Ledger, ledger_of
from scheduler.owner import this_process
from scheduler.patience import patiently
from scheduler.reader import document_of, is_behind, locate, peek
from scheduler.rests import Verdict
from scheduler.standing import Record, Version
from scheduler.state import MAX_STEPS, Attempt, Sent, State, admit, close, is_open, settle, utc

Emit = Callable[[dict[str, Any]], object]

# What a reply and its tool results may add to a document, and what SQLite writes around it.
GROWTH = 2 * 1024 * 1024
FULL = "its checkpoint has {size} bytes, and {most} are the most that leave room for a reply; resumed renew begins anew"
SLACK = 256 * 1024
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextlib.contextmanager
def hold(path: Path | str) -> Iterator[Checkpoint]:
    """Hold a checkpoint's lock, without waiting, while the block runs.

    Makes its folder with mode 0700 where there is none. Raises CheckpointBusy, StorageFailed, and what `check_folder`
    refuses. The lock file stays: removing it would let two owners in.
    """
    path = locate(path)
    make_folder(path.parent)
    check_folder(path.parent)
    lock_path = path.with_name(path.name + ".lock")
    with translated(lock_path):
        is_regular(lock_path)
    from filelock import FileLock, Timeout  # here, for a job that is final is told without a lock

    # A new object for each claim: two threads that share one would both own it.
    lock = FileLock(lock_path, timeout=0, mode=0o600, fallback_to_soft=False)
    with translated(lock_path):
        try:
            lock.acquire()
        except Timeout:  # an OSError too, so it is told apart first
            raise CheckpointBusy(path=path, holder=_holder(path)) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            reason = f"its file system has no locks: {error.strerror}"
            raise StorageFailed(path=lock_path, reason=reason) from error
    held = Checkpoint(path)
    try:
        yield held
    finally:
        held.leave()
        lock.release()


def document_size(state: State) -> int:
    """Return how many bytes a document has or, where it cannot be written as it is, would about have."""
    return len(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def check_size(size: int) -> None:
    """Raise RequestRefused where a document of so many bytes has no room for a reply."""
    if size + GROWTH > MAX_BYTES:
        raise RequestRefused(reason=FULL.format(size=size, most=MAX_BYTES - GROWTH))


def _holder(path: Path) -> str:
    record = None
    with contextlib.suppress(ResumedError):
        record = peek(path).record
    return flights.holder(path, record)


class Checkpoint:
    """A checkpoint whose lock is held; every change is committed to the ledger first, then published."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger: Ledger = ledger_of(path.parent)
        self.record: Record | None = None
        self.version: Version | None = None
        self._flight: flights.Flight | None = None

    def look(self) -> Record | None:
        """Return what the ledger holds, and build on it from now on.

        Raises CheckpointBusy while another slice of it is in flight, whatever became of the lock file.
        """
        self.record = self.ledger.read(self.path.name)
        self.version = self.record.version if self.record else None
        if flights.in_flight(self.path, self.record):
            raise CheckpointBusy(path=self.path, holder=flights.holder(self.path, self.record))
        return self.record

    def load(self, emit: Emit) -> State | None:
        """Return the newest document, None where there is none; put a file that is behind right, and tell it.

        Raises what `look` and `peek` raise.
        """
        # The file first, as in `peek`: with a broken lock another writer may commit and publish in between.
        body = read_regular(self.path, MAX_BYTES)
        record = self.look()
        behind = is_behind(self.path, body, record)
        state = document_of(self.path, record)
        if behind and record and state:
            remove_leftovers(self.path)
            publish(self.path, record.body)
            emit({"event": "put_back", "missing": body is None, "attempt": state["attempts"], "of": MAX_STEPS})
        return state

    def recover(self, state: State, max_attempts: int, now: float, emit: Emit, wait: float | None = None) -> State:
        """End an attempt whose process died as `interrupted`, and a spent document as `exhausted`.

        A ledger that is locked is waited for as in `Database.write`: nothing that was paid for would be lost.
        """
        if is_open(state):
            interrupted = settle(
                state,
                "interrupted",
                finished=utc(now),
                max_attempts=max_attempts,
                reason="the process ended before the reply was saved",
            )
            if self.record and self.record.open:
                last, body = interrupted["history"][-1], dump(interrupted)
                self._show(last["number"], body, self._commit(last, body, now, None, wait))
            else:
                self.replace(interrupted, now, wait=wait)
            emit({"event": "interrupted", "attempt": state["attempts"], "of": max_attempts})
            return interrupted
        closed = close(state, max_attempts)
        if closed is not state:
            self.replace(closed, now, wait=wait)
        return closed

    def size(self, state: State) -> int:
        """Return about how many bytes its document has: a loaded one is not written again only to be measured."""
        return len(self.record.body) if self.record else document_size(state)

    @contextlib.contextmanager
    def room(self, state: State) -> Iterator[None]:
        """Make sure of the space that counting takes, and hold what saving the reply will take. Raises DiskFull."""
        size = self.size(state)
        with reserved(self.path, before=2 * size + SLACK, after=2 * (size + GROWTH) + SLACK):
            yield

    def admit(self, state: State, claim: Claim, sent: Sent, max_attempts: int, now: float) -> State:
        """Count the next attempt in the ledger, then in the file. Raises what `Ledger.admit` refuses.

        Where only the file cannot be written, the attempt stays counted with the outcome `error`, billed `no`.
        """
        number = state["attempts"] + 1
        point = None if claim.point is None else utc(claim.point)
        counted = admit(state, number, point=point, started=utc(now), sent=sent)
        body = dump(counted)
        allowance = self.version.allowance if self.version else 1
        self._flight = (self.path, allowance, number)
        flights.enter(self._flight)
        self.version = self.ledger.admit(self.path.name, self.version, number, claim, this_process(), body, int(now))
        try:
            publish(self.path, body)
        except ResumedError as error:
            unsent = settle(
                counted,
                "error",
                finished=utc(now),
                max_attempts=max_attempts,
                reason=f"nothing was sent: {error}",
                billed="no",
            )
            with contextlib.suppress(ResumedError):
                self.save(unsent, now)
            error.add_note(f"Attempt {number} stays counted; nothing was sent.")
            raise
        return counted

    def save(self, settled: State, now: float, verdict: Verdict | None = None) -> None:
        """Commit the outcome of the open attempt with the document, then publish it.

        Raises InvalidDocument before anything is done, and ReplyOrphaned where another process changed the checkpoint
        meanwhile: the ledger keeps the document apart. A refusal of publishing alone loses nothing; the next load puts
        the file right.
        """
        last, body = settled["history"][-1], dump(settled)
        with noted(f"Attempt {last['number']} stays counted; what came of it could not be saved."):
            saved = patiently(lambda wait: self._commit(last, body, now, verdict, wait))
        self._show(last["number"], body, saved)

    def _commit(
        self, last: Attempt, body: bytes, now: float, verdict: Verdict | None, wait: float | None
    ) -> Version | None:
        version = self.version or Version(1, "")
        outcome = (last["number"], str(last["outcome"]), body, int(now))
        return self.ledger.settle(self.path.name, version, *outcome, verdict, wait)

    def _show(self, number: int, body: bytes, saved: Version | None) -> None:
        """Publish what was committed; None stands for what the ledger keeps apart."""
        self.leave()
        if saved is None:
            raise ReplyOrphaned(path=self.path, attempt=number)
        self.version = saved
        kept = f"The outcome of attempt {number} and any reply are saved in the ledger"
        with noted(f"{kept}; the file follows at the next tick."):
            publish(self.path, body)

    def replace(
        self,
        state: State,
        now: float,
        *,
        archive: Archive | None = None,
        renew: bool = False,
        also: Callable[[Connection], object] | None = None,
        wait: float | None = None,
    ) -> None:
        """Commit and publish a document that no attempt led to; `renew` opens the next allowance with it.

        `also` is what else is written, or refused, in the same transaction.
        """
        allowance = self.version.allowance if self.version else 1
        allowance += 1 if renew and self.version else 0
        body = dump(state)
        self.version = self.ledger.replace(
            self.path.name, self.version, body, allowance=allowance, archive=archive, now=int(now), also=also, wait=wait
        )
        publish(self.path, body)

    def leave(self) -> None:
        """Say that no slice of this process waits for a reply of this checkpoint any more."""
        if self._flight:
            flights.leave(self._flight)
        self._flight = None

"""Who is notified of what: each matter is claimed in a ledger, over each channel, before it is sent."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from scheduler.errors import (
    AccessRefused,
    CheckpointMoved,
    EntryRefused,
    JobDisabled,
    Later,
    LedgerDamaged,
    LedgerForeign,
    NotAFile,
    ReplyOrphaned,
    RequestRefused,
    ResumedError,
)
from scheduler.events import event_line, made_progress
from scheduler.job import Channel, JobFile
from scheduler.logs import Log
from scheduler.notices import Notice, notice_json, notice_line
from scheduler.notify import Message, Outbox, channel_name, shown_name
from scheduler.owed import DISABLED, Result
from scheduler.owner import program_version
from scheduler.reader import peek
from scheduler.state import utc
from scheduler.text import storable
from scheduler.told import DAY, Place, Places

if TYPE_CHECKING:
    from scheduler.child import Guarded

Verdict = Literal["later", "blocked", "failed", "progress", "done", "exhausted", "waits"]

_PLACE: Final = re.compile(r"^.*?:\d+:\d+: ")
# Refusals that are over once a job was looked at, whether it is due or not.
_SEEN: Final = (EntryRefused, CheckpointMoved, LedgerDamaged, LedgerForeign, NotAFile, AccessRefused)


def verdict_of(result: Result) -> Verdict:
    """Say what a result amounts to; `waits` is a job that is not due, and `later` one that says nothing of itself."""
    refusal = result.refusal
    if isinstance(refusal, Later | JobDisabled):
        return "later"
    if refusal is not None and not isinstance(refusal, ReplyOrphaned):
        return "blocked"
    if result.final == DISABLED:
        return "waits"
    if result.final:
        return "done" if result.final == "done" else "exhausted"
    if refusal is None and not result.ran:
        return "waits"
    return "progress" if refusal is None and result.state is not None and made_progress(result.state) else "failed"


def matter_of(refusal: ResumedError) -> str:
    """Return what tells a standing refusal from all others.

    An entry may move to another line of its file, and what makes a request too large grows with what may be read.
    """
    said = _PLACE.sub("", str(refusal)) if isinstance(refusal, EntryRefused) else str(refusal)
    said = re.sub("[0-9]+", "0", said) if isinstance(refusal, RequestRefused) else said
    return storable(f"{type(refusal).__name__}: {said}")


def is_over(place: Place, channel: str, verdict: Verdict) -> bool:
    """Note that a job is blocked no more; tell whether that is news. One that waits shows it only for some refusals."""
    standing = place.memory.standing(place.subject, channel)
    seen = tuple(f"{kind.__name__}:" for kind in (*_SEEN, *(sub for kind in _SEEN for sub in kind.__subclasses__())))
    if verdict == "waits" and not (standing and all(matter.startswith(seen) for matter in standing)):
        return False
    return place.memory.recover(place.subject, channel)


def folder_of(result: Result) -> Path | None:
    """Return the folder of a result's checkpoint; None where its entry is refused."""
    return result.plan.path.parent if result.plan else None


class Notifier:
    """Notifies of the jobs of one jobs.yaml, in the background."""

    def __init__(self, job_file: JobFile, places: Places, environ: Mapping[str, str], log: Log) -> None:
        self._environ = environ
        self._log = log
        self._outbox = Outbox(environ)
        self.unsent: set[str | None] = set()  # the jobs of which something did not go
        self.take_over(job_file, places)

    def take_over(self, job_file: JobFile, places: Places) -> None:
        """Notify of the jobs of this file from now on."""
        self._file = job_file
        self._places = places
        self._guarded: Guarded | None = None

    def close(self) -> None:
        """Wait for what is under way, at most 10 s."""
        self._outbox.close()

    def start(self, job: str, event: Mapping[str, Any]) -> None:
        """Ping that a slice begins; nothing is waited for, and no ledger is touched."""
        for channel in self._pings(job):
            notice = Notice(event="start", job=job, attempts=event["attempt"], max_attempts=event["of"])
            self._send(channel, notice)

    def note(self, result: Result, verdict: Verdict, happened: Iterable[Mapping[str, Any]]) -> None:
        """Notify of what came of a job, and of the events that came before it."""
        for event in happened:
            if event["event"] != "interrupted":
                notice = self._notice(result, "missed", reason=event_line("", event))
                self._announce(notice, "missed", folder_of(result))
            elif verdict != "exhausted":
                notice = self._notice(result, "failed", outcome="interrupted", reason="its process ended")
                self._announce(replace(notice, attempts=event["attempt"]), "failed: interrupted", folder_of(result))
        if verdict == "blocked" and result.refusal is not None:
            notice = self._notice(result, "blocked", state="blocked", reason=str(result.refusal))
            self._announce(notice, matter_of(result.refusal), folder_of(result))
        elif verdict != "later":
            self._recover(result, verdict)
        if verdict == "progress":
            for channel in self._pings(result.job):
                self._send(channel, self._notice(result, "progress"))
        elif verdict == "failed":
            notice = self._notice(result, "failed")
            self._announce(notice, f"failed: {notice.outcome}: {notice.reason}", folder_of(result), ran=result.ran)
        elif verdict in ("done", "exhausted"):
            self._end(result, verdict)

    def file_blocked(self, refusal: ResumedError) -> None:
        """Notify that jobs.yaml as a whole cannot be used."""
        notice = Notice(event="blocked", job=None, state="blocked", reason=str(refusal))
        self._announce(notice, matter_of(refusal), None)

    def file_recovered(self) -> None:
        """Notify that jobs.yaml can be used, where it was told that it cannot."""
        for place in self._places.troubled(None, None):
            for channel in self._file.notify:
                if place.memory.recover(place.subject, channel_name(channel)):
                    self._send(channel, Notice(event="recovered", job=None))

    def _recover(self, result: Result, verdict: Verdict) -> None:
        """Notify once that a job runs again, of which bad news was told. A ping says so by itself."""
        for place in list(self._places.troubled(result.job, folder_of(result))):
            for channel in self._channels(result.job):
                name = channel_name(channel)
                if verdict == "failed":
                    place.memory.stand(place.subject, name, [], _now())
                    continue
                news = is_over(place, name, verdict) and verdict != "exhausted"
                if news and not (channel.kind == "ping" and result.ran):
                    self._send(channel, self._notice(result, "recovered"))

    def _end(self, result: Result, verdict: Literal["done", "exhausted"]) -> None:
        """Notify of an end once for each answer and allowance, and only within a day of it."""
        plan = result.plan
        if plan is None or not self._channels(result.job):
            return
        ended = self._places.ask(result.job, folder_of(result), lambda it: it.memory.ended_attempt(plan.path.name))
        if ended is None or abs(_now() - ended[1]) > DAY:
            return
        notice = self._notice(replace(result, state=result.state or peek(plan.path).state), verdict)
        self._announce(notice, f"{verdict}: the attempt of {utc(ended[0])}", folder_of(result), ran=result.ran)

    def _announce(self, notice: Notice, matter: str, folder: Path | None, *, ran: bool = False) -> None:
        """Send it over each channel that wants it, unless its ledger says that it was said."""
        for channel in self._channels(notice.job):
            always = channel.kind == "ping" and ran  # each start that was pinged gets its end
            if notice.event in channel.events or (always and notice.event == "done"):
                self._claim(channel, notice, matter, folder, always=always)

    def _claim(self, channel: Channel, notice: Notice, matter: str, folder: Path | None, *, always: bool) -> None:
        def claim(place: Place) -> tuple[Place, bool]:
            subject, name, now = place.subject, channel_name(channel), _now()
            if notice.event == "blocked":
                return place, bool(place.memory.stand(subject, name, [matter], now))
            if notice.event in ("done", "exhausted"):
                return place, place.memory.end(subject, name, matter, now)
            return place, place.memory.occur(subject, name, matter, now, trouble=notice.event == "failed")

        found = self._places.ask(notice.job, folder, claim)
        if found is None:
            said = f"{shown_name(channel)}: {notice_line(notice)}: not notified, for no ledger can remember it"
            self._log("warning", said, "notify", notice.job or "")
        elif found[1] or always:
            self._send(channel, notice, found[0], matter)

    def _send(self, channel: Channel, notice: Notice, place: Place | None = None, matter: str = "") -> None:
        name = channel_name(channel)

        def ended(fault: str) -> None:
            (self.unsent.add if fault else self.unsent.discard)(notice.job)

            def note(found: Place) -> bool:
                if place is not None:
                    place.memory.sent(place.subject, name, matter, fault)
                return found.memory.fail(name, fault, _now()) if fault else found.memory.mend(name)

            try:
                told = note(place) if place is not None else self._places.ask(None, None, note)
            except ResumedError:  # it is not remembered what became of it, and what did not go is logged each time
                told = None
            if fault and told is not False:
                self._log("warning", f"{shown_name(channel)} failed: {fault}", "notify", notice.job or "", reason=fault)
            elif told:
                self._log("info", f"{shown_name(channel)} goes through again", "notify", notice.job or "")

        if self._guarded is None:
            from scheduler.child import guard  # which a tick without news does without

            self._guarded = guard(self._file, self._environ)
        circumstances = {
            "config": storable(str(self._file.path)),
            "host": socket.gethostname(),
            "time": utc(time.time()),
            "version": program_version(),
        }
        message = Message(notice.event, notice_line(notice), notice_json(notice, **circumstances))
        self._outbox.put(channel, message, self._guarded, ended)

    def _channels(self, job: str | None) -> tuple[Channel, ...]:
        """Return the channels of a job, of the series that it opens, or of the file."""
        known = self._file.jobs.get(job or "") or self._file.series.get((job or "").partition("@")[0])
        return known.notify if known else self._file.notify

    def _pings(self, job: str) -> list[Channel]:
        return [channel for channel in self._channels(job) if channel.kind == "ping"]

    def _notice(self, result: Result, event: Any, **known: Any) -> Notice:
        state, plan = result.state, result.plan
        last = state["history"][-1] if state is not None and state["history"] else None
        fields: dict[str, Any] = {
            "state": state["status"] if state is not None else "ready",
            "attempts": state["attempts"] if state is not None else 0,
            "max_attempts": plan.job.max_attempts if plan else 4,
            "outcome": last["outcome"] if last else None,
            "reason": last["reason"] if last else None,
            "answer": state["answer"] if state is not None else None,
            "rehearsal": plan.rehearsal if plan else False,
        }
        return Notice(event=event, job=result.job, **(fields | known))


def _now() -> int:
    return int(time.time())

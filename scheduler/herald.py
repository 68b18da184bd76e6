"""What is logged of each event and result, without a flood, and handed on to whoever is notified.

Nothing here changes what becomes of a job: whatever fails is one more line of the log.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scheduler.errors import EntryRefused, JobDisabled, ReplyOrphaned, ResumedError
from scheduler.events import event_level, event_line
from scheduler.job import JobFile
from scheduler.logs import Log
from scheduler.notifier import Notifier, Verdict, folder_of, is_over, matter_of, verdict_of
from scheduler.owed import Result, as_refusal
from scheduler.report import problem_line
from scheduler.state import utc
from scheduler.text import storable
from scheduler.told import LOG, Place, Places

REMIND = 60.0
METRICS = "metrics:"  # in the place of a job; no job's id ends so


class Herald:
    """Tells of the jobs of one jobs.yaml.

    `quiet` leaves out of the log what is no warning. What stands is logged when it changes; with `remembers` across
    processes, and once a day, by a ledger.
    """

    def __init__(
        self, job_file: JobFile, environ: Mapping[str, str], log: Log, *, quiet: bool = False, remembers: bool = False
    ) -> None:
        self._environ = environ
        self._log = _warnings_of(log) if quiet else log
        self._remembers = remembers
        self._said: dict[str, str] = {}
        self._unreadable = False
        self._last: dict[str, Result] = {}
        self._reminded_at = time.monotonic()
        self._happened: dict[str, list[Mapping[str, Any]]] = {}
        self._file = job_file
        self._places = Places(job_file.path, environ)
        self._notifier = Notifier(job_file, self._places, environ, self._log)

    def take_over(self, job_file: JobFile) -> None:
        """Tell of the jobs of this file from now on."""
        self._file = job_file
        self._last = {}
        self._places = Places(job_file.path, self._environ)
        self._notifier.take_over(job_file, self._places)

    def close(self) -> None:
        """Tell what is left to tell; returns within 10 s."""
        for name in list(self._happened):
            self.note(Result(job=name))
        self._notifier.close()

    def tell(self, job: str, event: Mapping[str, Any]) -> None:
        """Log an event of a slice; nothing is waited for, and no ledger is touched."""
        log_event(self._log, job, event)
        if event["event"] == "admitted":
            with self._harmless(f"job {job}"):
                self._notifier.start(job, event)
        elif event["event"] in ("missed", "made_up", "interrupted"):
            self._happened.setdefault(job, []).append(event)

    def note(self, result: Result) -> None:
        """Log what refuses a job, or that it runs again, and notify of what came of it. Never raises."""
        verdict = verdict_of(result)
        with self._harmless(f"job {result.job}"):
            if verdict == "blocked" and result.refusal is not None:
                self._log_block(result, result.refusal)
            elif verdict != "later":
                self._log_recovery(result, verdict)
            if isinstance(result.refusal, ReplyOrphaned | JobDisabled):  # it happened, and does not stand
                facts = {"reason": str(result.refusal), "kind": type(result.refusal).__name__}
                self._log("warning", f"job {result.job}: {result.refusal}", "refused", result.job, **facts)
        with self._harmless(f"job {result.job}"):
            self._notifier.note(result, verdict, self._happened.pop(result.job, []))
        if verdict in ("blocked", "done", "exhausted"):
            self._last[result.job] = replace(result, state=None, ran=False)
        elif verdict != "later":
            self._last.pop(result.job, None)

    def note_metrics(self, fault: str) -> None:
        """Log why the metrics could not be written; an empty text says that they were. Never raises."""
        changed, self._said[METRICS] = self._said.get(METRICS, "") != fault, fault
        with self._harmless("metrics"):
            if self._remembers and fault:
                changed = self._is_new(METRICS, None, [storable(fault)]) != []
            elif self._remembers:
                places = self._places.troubled(METRICS, None)
                changed = any(place.memory.recover(place.subject, LOG) for place in places)
        if changed:
            self._log(
                "warning" if fault else "info",
                fault or "metrics: they are written again",
                "metrics",
                reason=fault or None,
            )

    def remind(self, *names: Collection[str]) -> None:
        """Tell again, once a minute at most, what stands or did not go, where a day or an hour has passed since.

        Jobs that are in none of `names` are gone: of them nothing stands any more.
        """
        if time.monotonic() - self._reminded_at < REMIND:
            return
        self._reminded_at = time.monotonic()
        if self._remembers and not self._unreadable:
            self.log_problems()
        for name, result in list(self._last.items()):
            if not any(name in known for known in names) and name not in self._notifier.unsent:
                self._last.pop(name, None)
            elif not result.final or name in self._notifier.unsent:
                self.note(result)

    @contextlib.contextmanager
    def _harmless(self, who: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._log("error", f"{who}: this could not be told: {as_refusal(error)}", "fault")

    def _log_block(self, result: Result, refusal: ResumedError) -> None:
        if isinstance(refusal, EntryRefused):  # a problem of the file
            return
        matter = matter_of(refusal)
        changed = self._said.get(result.job) != matter
        self._said[result.job] = matter
        if self._remembers:
            changed = self._is_new(result.job, folder_of(result), [matter]) != []
        if changed:
            facts = {"reason": str(refusal), "kind": type(refusal).__name__}
            self._log("warning", f"job {result.job}: {refusal}", "blocked", result.job, **facts)

    def _log_recovery(self, result: Result, verdict: Verdict) -> None:
        over = [is_over(place, LOG, verdict) for place in list(self._places.troubled(result.job, folder_of(result)))]
        known = self._said.pop(result.job, None) if verdict != "waits" else None
        if any(over) or (known and not self._remembers):
            self._log("info", f"job {result.job}: it runs again", "recovered", result.job)

    def log_problems(self) -> None:
        """Log what is wrong with the entries of a file that was read; with `remembers` what is new, or a day old."""
        self._unreadable = False
        lines = {problem_line(problem): problem for problem in self._file.problems}
        new = self._is_new(None, None, list(map(storable, lines))) if self._remembers else None
        for line, problem in lines.items():
            if new is None or storable(line) in new:
                self._log(problem.severity, line, "problem", problem.job or "", line=problem.line)
        with self._harmless(f"{self._file.path}"):
            self._notifier.file_recovered()

    def log_unreadable(self, refusal: ResumedError, after: str = "") -> None:
        """Log that the file as a whole cannot be used, and notify by the channels of the last good one."""
        log_unreadable(self._file.path, refusal, self._environ, self._log, remembers=self._remembers, after=after)
        self._unreadable = True
        with self._harmless(f"{self._file.path}"):
            self._notifier.file_blocked(refusal)

    def note_readable(self) -> None:
        """Notify that the file can be used again, where it was told that it cannot."""
        if self._unreadable:
            self.log_problems()

    def _is_new(self, job: str | None, folder: Path | None, matters: list[str]) -> list[str] | None:
        """Note what stands; return what of it is to be logged, None where nothing can be remembered."""
        return self._places.ask(job, folder, lambda place: _stand(place, matters))


def _warnings_of(log: Log) -> Log:
    def warn(level: str, message: str, /, event: str = "note", job: str = "", **facts: object) -> None:
        if level != "info":
            log(level, message, event, job, **facts)

    return warn


def log_event(log: Log, job: str, event: Mapping[str, Any]) -> None:
    """Log an event of a slice: its sentence, and what it consists of."""
    facts = {name: value for name, value in event.items() if name != "event"}
    if isinstance(event.get("point"), int):
        facts["point"] = utc(event["point"])
    log(event_level(event), event_line(job, event), event["event"], job, **facts)


def log_unreadable(
    path: Path, refusal: ResumedError, environ: Mapping[str, str], log: Log, *, remembers: bool, after: str = ""
) -> None:
    """Log that a jobs.yaml cannot be used; with `remembers` when that is new, and once a day."""
    places = Places(Path(os.path.realpath(path)), environ)
    matter = f"{getattr(refusal, 'digest', '')} {matter_of(refusal)}"  # another version is told anew
    if not remembers or places.ask(None, None, lambda place: _stand(place, [matter])) != []:
        log("error", f"{refusal}{after}", "unreadable", reason=str(refusal))


def _stand(place: Place, matters: list[str]) -> list[str]:
    return place.memory.stand(place.subject, LOG, matters, int(time.time()))

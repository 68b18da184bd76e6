"""The daemon: a clock, a poll that takes over edits and other commands, and an orderly end.

Every decision is that of `tick`; here is only when it is asked.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from scheduler.clock import SOON, Clock
from scheduler.errors import AccessRefused, Blocked, EntryRefused, Later, LedgerBusy, ProgramFault, ResumedError
from scheduler.herald import Herald
from scheduler.inventory import jobs_by_folder
from scheduler.job import Job, JobFile
from scheduler.ledger import ledger_of
from scheduler.limits import slices_at_once
from scheduler.logs import Log
from scheduler.metrics import MetricsFile
from scheduler.notify import DEADLINE
from scheduler.owed import DISABLED, Result, select
from scheduler.patience import HASTE
from scheduler.presence import Presence
from scheduler.report import daemon_status, fewer_slices, problem_line, stopping_status
from scheduler.series import advance, next_look, with_openings
from scheduler.signals import Signals
from scheduler.systemd import Manager
from scheduler.tick import has_delivery, run_due
from scheduler.watch import WatchedFile

POLL = 1.0
DRIFT = 2.0
LAST_SAVES = 10.0
LAST_WORDS = DEADLINE + POLL


class Daemon:
    """One process that runs the jobs of one jobs.yaml until it is told to stop, or until all are final."""

    def __init__(
        self, path: Path, job_file: JobFile, environ: Mapping[str, str], herald: Herald, log: Log, *, until_done: bool
    ) -> None:
        self._watched = WatchedFile(path, job_file)
        self._environ = environ
        self._presence = Presence(path, job_file, environ)
        self._manager = Manager(environ)
        self._herald = herald
        self._log = log
        self._until_done = until_done
        self._signals = Signals()
        self._stop = self._signals.stop
        self._running: set[str] = set()
        self._idle = threading.Condition()
        self._results: dict[str, Result] = {}
        self._said: dict[str, str] = {}
        self._versions: dict[Path, object] = {}
        self._read = job_file
        self._file = replace(job_file, jobs={})  # what is run: the openings of the series are among its jobs
        self._opens_at = 0.0
        self._folders = jobs_by_folder(job_file)
        self._max_parallel = job_file.max_parallel
        self._clock = Clock(self._fire, log, fitting := slices_at_once(job_file.max_parallel))
        if fitting < job_file.max_parallel:
            self._log("warning", fewer_slices(fitting, job_file.max_parallel))
        self._metrics = MetricsFile(herald.note_metrics)

    def run(self) -> list[Result]:
        """Run until a signal, or with `until_done` until every job is final or blocked; return the last results.

        Raises DaemonRunning.
        """
        self._signals.catch(hangup=True)
        self._claim()
        try:
            self._clock.start()
            what = f"{len(self._read.entries)} jobs, max_parallel {self._max_parallel}"
            self._log("info", f"{self._file.path}: {what}", "ready")
            self._switch(self._unfold(self._read))
            self._manager.ready(self._status())
            self._watch()
        finally:
            self._finish()
            self._metrics.look(self._file)
            self._presence.leave()
        return list(self._results.values())

    # The clock: when a job is asked.

    def _resync(self, jobs: Iterable[Job]) -> None:
        """Ask of these jobs anew whether they are due, and set their clocks accordingly."""
        now = datetime.now(UTC)
        for chosen in select(list(jobs), self._file.live, now.timestamp(), self._herald.tell, wait=HASTE):
            if isinstance(chosen, Result):
                job = self._file.jobs[chosen.job]
                # Its own worker waits for a ledger that is locked, and delivers what is to be delivered.
                at_once = isinstance(chosen.refusal, LedgerBusy) or has_delivery(chosen, job, self._file.live)
                if not at_once:
                    self._note(chosen)
                if at_once or not chosen.final:
                    self._clock.set(job, int(now.timestamp()), now if at_once else now + SOON)
            else:
                self._reopen(chosen.plan.job.id)
                self._clock.set(chosen.plan.job, chosen.since, now if chosen.due else None)
                if not chosen.due:
                    self._herald.note(Result(job=chosen.plan.job.id, plan=chosen.plan))

    def _reopen(self, name: str) -> None:
        """Forget that a job was final: it was renewed, or is enabled again."""
        known = self._results.get(name)
        if known is not None and known.final:
            self._results.pop(name, None)
            self._said.pop(name, None)

    def _fire(self, name: str) -> bool:
        """Run a slice if the job is due; tell whether a request was admitted."""
        job_file = self._file
        if name not in job_file.jobs or self._stop.is_set():
            return False
        with self._idle:
            self._running.add(name)
        try:
            result = run_due(job_file.jobs[name], job_file, self._environ, self._herald.tell, self._stop.is_set)
            self._note(result)
            return result.ran
        finally:
            self._metrics.touch()
            with self._idle:
                self._running.discard(name)
                self._idle.notify_all()

    def _note(self, result: Result) -> None:
        """Take a result over: a final job is asked no more, one that was refused is asked again in a minute."""
        self._results[result.job] = result
        said = str(result.refusal) if result.refusal else result.final
        if said != self._said.get(result.job) and isinstance(result.refusal, Later):
            self._log("info", f"job {result.job}: {said}", "waits", result.job, reason=said)
        if result.final not in ("", DISABLED) and said != self._said.get(result.job):
            self._log("info", f"job {result.job}: it is {said}, and nothing more is sent", "final", result.job)
            self._opens_at = 0.0  # it may be an opening, after which its series is done or ended
        self._herald.note(result)
        self._said[result.job] = said
        if result.final:
            self._clock.drop(result.job)
        elif result.refusal and not result.ran:
            self._clock.soon(result.job)

    # The poll: edits of jobs.yaml, other commands, the clock.

    def _watch(self) -> None:
        offset = time.time() - time.monotonic()
        while not self._stop.wait(min(POLL, self._manager.patience)):
            self._look_at_file()
            if abs(time.time() - time.monotonic() - offset) > DRIFT:
                offset = time.time() - time.monotonic()
                self._log("warning", "the clock was changed; every job is asked anew", "clock")
                self._opens_at = 0.0
                self._resync(self._file.jobs.values())
            ended = self._clock.ended()
            self._resync(self._file.jobs[name] for name in ended if name in self._file.jobs)
            written = self._look_at_ledgers()
            if self._read.series and (written or ended or time.time() >= self._opens_at):
                self._switch(self._unfold(self._read))
            self._metrics.look(self._file)
            self._show_life()
            if self._until_done and self._is_done():
                return

    def _look_at_file(self) -> None:
        hangup = self._signals.take_hangup()
        found = self._watched.look(at_once=hangup)
        if not self._watched.fault:
            self._herald.note_readable()
        if found is None and not hangup:
            return
        self._manager.reloading()
        if isinstance(found, JobFile):
            self._take_over(found)
        elif found is not None:
            self._herald.log_unreadable(found, "; the jobs of the last good file go on")
            self._metrics.failed(self._file)
        else:
            self._log("info", f"{self._file.path}: read anew, nothing has changed", "reloaded")
        self._manager.ready(self._status())

    def _show_life(self) -> None:
        """Say that clock and poll live. Raises ProgramFault where the clock does not: nothing would run any more."""
        if not self._clock.alive():
            raise ProgramFault(place="the clock", detail="its thread has ended")
        self._presence.beat(self._watched.tried, self._watched.fault)
        self._manager.alive(self._status())
        self._herald.remind(self._file.jobs, self._file.series, self._file.refused)

    def _status(self) -> str:
        if not self._manager.listens:
            return ""
        ahead = self._clock.next()
        return daemon_status(len(self._file.jobs), len(self._running), ahead, self._watched.fault)

    def _take_over(self, fresh: JobFile) -> None:
        self._herald.take_over(fresh)
        self._herald.log_problems()
        if fresh.max_parallel not in (self._file.max_parallel, self._max_parallel):
            self._log("warning", f"max_parallel is {self._max_parallel} until the daemon is started again")
        self._read = fresh
        changed = self._switch(self._unfold(fresh))
        self._log("info", f"{fresh.path}: read anew, {changed} jobs new or changed", "reloaded")

    def _switch(self, fresh: JobFile) -> int:
        """Go on with the jobs of another file, or of other openings; return how many are new or changed."""
        old, self._file, self._folders = self._file, fresh, jobs_by_folder(fresh)
        if old.digest != fresh.digest:
            self._claim(HASTE)  # in most folders it stands since the start
        for name in {*old.jobs, *old.series, *old.refused} - {*fresh.jobs, *fresh.series}:
            self._clock.drop(name)
            self._results.pop(name, None)
            self._said.pop(name, None)
        self._refuse()
        changed = [job for job in fresh.jobs.values() if old.jobs.get(job.id) != job or old.live != fresh.live]
        self._resync(changed)
        return len(changed)

    def _unfold(self, read: JobFile) -> JobFile:
        """Open what is due of each series; return the file with the openings that are to be asked among its jobs."""
        turnouts = advance(read.series.values(), read.live, time.time(), self._herald.tell, wait=HASTE)
        for turnout in turnouts:
            self._note(turnout.result)
        self._opens_at = next_look(turnouts, time.time())
        return with_openings(read, turnouts)

    def _refuse(self) -> None:
        for name, problem in self._file.refused.items():
            self._note(Result(job=name, refusal=EntryRefused(problem=problem_line(problem))))

    def _claim(self, wait: float | None = None) -> None:
        """Enter this process into every ledger that the file uses, a locked one within `wait`. Raises DaemonRunning."""
        for error in self._presence.claim(self._file, self._folders, wait):
            self._log("warning", str(error))

    def _look_at_ledgers(self) -> bool:
        """Ask the jobs of a folder anew once another process has written to its ledger; tell whether one has."""
        written = False
        for folder, jobs in self._folders.items():
            version: object
            try:
                version = ledger_of(folder).data_version()
            except ResumedError as error:
                version = str(error)
            if self._versions.get(folder) != version:  # the first look too: a write may have come since the resync
                self._versions[folder] = version
                self._resync(jobs)
                written = True
        return written

    # The end.

    def _is_done(self) -> bool:
        names = {*self._file.jobs, *self._file.series, *self._file.refused}
        over = {name for name in names if _is_over(self._results.get(name))}
        stuck = {name.partition("@")[0] for name in over if "@" in name and not self._results[name].final}
        return not self._running and names <= over | stuck  # no other opening follows one that is blocked

    @property
    def stopped(self) -> bool:
        """Tell whether a signal ended the run."""
        return self._signals.received

    def _finish(self) -> None:
        """Let no slice begin any more, give those in flight `stop_wait`, then end them as interrupted."""
        self._stop.set()
        status = stopping_status(len(self._running))
        self._log("info", f"{self._file.path}: {status}", "stopping")
        self._manager.stopping(status, self._file.stop_wait + LAST_SAVES + LAST_WORDS)
        self._clock.pause()
        if not self._wait_idle(self._file.stop_wait):
            from scheduler.gateway import interrupt_all

            self._log("warning", f"{interrupt_all()} requests end as interrupted")
            if not self._wait_idle(LAST_SAVES):
                self._log("error", f"still saving after {LAST_SAVES:g} s: {', '.join(sorted(self._running))}")
                os._exit(0)
        self._clock.shut_down()
        self._herald.close()

    def _wait_idle(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with self._idle:
            while self._running and (left := end - time.monotonic()) > 0:
                self._manager.alive(stopping_status(len(self._running)))
                self._idle.wait(min(left, POLL, self._manager.patience))
            return not self._running


def _is_over(result: Result | None) -> bool:
    return result is not None and (bool(result.final) or isinstance(result.refusal, Blocked | AccessRefused))

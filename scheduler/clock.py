"""APScheduler as clock and pool: it calls a function with a job's name at each of its points."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from scheduler.job import Job
from scheduler.logs import Log
from scheduler.points import moment_of, next_of

SOON = timedelta(seconds=60)


class Points(BaseTrigger):  # type: ignore[misc]  # apscheduler 3.x ships no types
    """The schedule points of one job; the next is computed from now in one step, however long the sleep was."""

    def __init__(self, job: Job, since: int, log: Log) -> None:
        self._job = job
        self._since = moment_of(since)
        self._log = log

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        """Return the first point after both; never raise, for that would end the scheduler's thread."""
        try:
            point = next_of(self._job, max(previous or now, now), self._since)
            return point.astimezone(UTC) if point else None  # two times of one zone are compared by their wall clocks
        except Exception as error:
            self._log("error", f"job {self._job.id}: it has no next point: {error}")
            return None


class Clock:
    """Calls `fire` with a job's name when it is time, in a pool, never twice at once for one job and however late.

    `fire` tells whether a request was admitted.
    """

    def __init__(self, fire: Callable[[str], bool], log: Log, max_parallel: int) -> None:
        self._fire = fire
        self._log = log
        self._ended: set[str] = set()
        self._jobs = MemoryJobStore()
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            jobstores={"default": self._jobs},
            executors={"default": ThreadPoolExecutor(max_parallel)},
            job_defaults={"max_instances": 1, "coalesce": True, "misfire_grace_time": None},
        )
        self._scheduler.add_listener(self._on_ended, EVENT_JOB_EXECUTED)

    def start(self) -> None:
        """Begin to call."""
        self._scheduler.start()

    def set(self, job: Job, since: int, at: datetime | None) -> None:
        """Call for a job at its points, counted from `since` (UTC seconds); the first time at `at` where given."""
        points = Points(job, since, self._log)
        when = at or points.get_next_fire_time(None, datetime.now(UTC))
        if when is None:
            self.drop(job.id)
            return
        self._scheduler.add_job(self._fire, points, args=[job.id], id=job.id, next_run_time=when, replace_existing=True)

    def drop(self, name: str) -> None:
        """Call for a job no more."""
        with contextlib.suppress(JobLookupError):
            self._scheduler.remove_job(name)

    def soon(self, name: str) -> None:
        """Call for a job in a minute at the latest."""
        known = self._scheduler.get_job(name)
        soon = datetime.now(UTC) + SOON
        if known and known.next_run_time and known.next_run_time > soon:
            known.modify(next_run_time=soon)

    def ended(self) -> list[str]:
        """Return, once, the jobs that a request was admitted for: a point during it was passed over."""
        return [self._ended.pop() for _ in range(len(self._ended))]  # threads add to it meanwhile

    def _on_ended(self, event: JobExecutionEvent) -> None:
        if event.retval:
            self._ended.add(event.job_id)

    def alive(self) -> bool:
        """Tell whether the thread that calls still runs, which nobody else notices; one that hangs is waited for."""
        self._scheduler.get_job("")  # takes the lock that the thread holds while it computes points
        thread = self._scheduler._thread  # `running` stays True when the thread has died
        return bool(thread and thread.is_alive())

    def next(self) -> datetime | None:
        """Return when it calls next; asked each second, so that it does not look at every job."""
        with contextlib.suppress(IndexError):  # the last job was dropped meanwhile
            found: datetime | None = self._jobs.get_next_run_time()
            return found
        return None

    def pause(self) -> None:
        """Call for nothing new."""
        self._scheduler.pause()

    def shut_down(self) -> None:
        """End the clock and its pool; waits for the calls that run."""
        self._scheduler.shutdown(wait=True)

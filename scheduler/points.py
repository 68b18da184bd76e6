"""A job's points: its schedule, each later by the job's share of `jitter`, from `not_before` to `not_after`. Pure.

`since` anchors an `every` schedule. Compare points by `timestamp()`, or in UTC: see `trigger`.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise

from scheduler.job import Job
from scheduler.trigger import EPOCH, last_point, next_point, zone_of

_GAPS = 8


def moment_of(seconds: float) -> datetime:
    """Return the moment so many seconds after the epoch, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def next_of(job: Job, after: datetime, since: datetime | None = None) -> datetime | None:
    """Return the job's first point strictly after a moment; None where there is none."""
    late = _share(job)
    if job.not_before is not None:
        after = max(after, moment_of(job.not_before - 1))
    point = next_point(job.schedule, job.timezone, after - late, since)
    point = _later(point, late) if point else None
    return None if point is None or (job.not_after is not None and point.timestamp() > job.not_after) else point


def last_of(job: Job, before: datetime, since: datetime | None = None) -> datetime | None:
    """Return the job's newest point at or before a moment; None where there is none."""
    late = _share(job)
    if job.not_after is not None:
        before = min(before, moment_of(job.not_after))
    point = last_point(job.schedule, job.timezone, before - late, since)
    point = _later(point, late) if point else None
    return None if point is None or (job.not_before is not None and point.timestamp() < job.not_before) else point


def in_zone(moment: datetime, timezone: str) -> datetime:
    """Return a moment as it is if it has an offset, else as one of the zone: in a repeated hour the first."""
    return moment if moment.utcoffset() is not None else moment.replace(tzinfo=zone_of(timezone))


def calendar_text(job: Job) -> str:
    """Return all that decides a job's points, as one text; another text is another calendar."""
    parts = [f"{job.schedule} ({job.timezone})"]
    parts += [f"jitter {job.jitter}"] if job.jitter else []
    parts += [f"from {job.not_before}"] if job.not_before is not None else []
    parts += [f"to {job.not_after}"] if job.not_after is not None else []
    parts += [] if job.enabled else ["disabled"]  # so that no point of a rest is made up after it
    return ", ".join(parts)


@lru_cache(maxsize=4096)
def shortest_gap(schedule: str) -> timedelta:
    """Return the shortest time between the first few points of a schedule. Raises ScheduleRefused."""
    points = [EPOCH]
    while len(points) <= _GAPS + 1 and (point := next_point(schedule, "UTC", points[-1])):
        points.append(point)
    return min((later - earlier for earlier, later in pairwise(points[1:])), default=timedelta.max)


def _share(job: Job) -> timedelta:
    """Return by how much this job's points are later: the same for each of them, and spread evenly over the jobs."""
    if not job.jitter:
        return timedelta()
    return timedelta(seconds=int.from_bytes(hashlib.sha256(job.id.encode()).digest()[:8]) % job.jitter)


def _later(point: datetime, late: timedelta) -> datetime:
    return (point.astimezone(UTC) + late).astimezone(point.tzinfo)

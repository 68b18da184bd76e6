"""Which checkpoints a jobs.yaml names, and what the ledgers of their folders hold. Every read is one query a ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from scheduler.columns import read_rows
from scheduler.database import Connection
from scheduler.due import Plan, plan_job
from scheduler.job import OPENING, OPENING_NAME, Job, JobFile
from scheduler.owner import Owner


@dataclass(frozen=True, slots=True)
class Holding:
    """What a ledger holds of a checkpoint, out of its newest document."""

    checkpoint: str
    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt without an outcome, and whose it is."""

    checkpoint: str
    attempt: int
    owner: Owner


def plans_of(job_file: JobFile) -> list[Plan]:
    """Return how each job runs now."""
    return [plan_job(job, job_file.live) for job in job_file.jobs.values()]


def jobs_by_folder(job_file: JobFile) -> dict[Path, list[Job]]:
    """Return the jobs of each folder whose ledger they or a series use."""
    folders: dict[Path, list[Job]] = {}
    for job in job_file.entries:
        members = folders.setdefault(plan_job(job, job_file.live).path.parent, [])
        members += [] if job.series else [job]
    return folders


def folders_of(job_file: JobFile) -> list[Path]:
    """Return the folders whose ledgers its jobs and series use."""
    return sorted(jobs_by_folder(job_file))


def pattern_of(series: Job) -> re.Pattern[str]:
    """Return what the file name of each opening of a series looks like."""
    return re.compile(re.escape(series.checkpoint.name).replace(re.escape(OPENING), OPENING_NAME))


def read_holdings(tx: Connection) -> list[Holding]:
    """Return what the ledger holds, by file name."""
    query = (
        "SELECT checkpoint, json_extract(CAST(body AS TEXT), '$.status') AS status,"
        " json_extract(CAST(body AS TEXT), '$.attempts') AS attempts FROM document ORDER BY checkpoint"
    )
    return [Holding(*row) for row in read_rows(tx, query, ())]


def read_tasks(tx: Connection) -> dict[str, str]:
    """Return the task of each document, by file name."""
    query = "SELECT checkpoint, json_extract(CAST(body AS TEXT), '$.task') AS task FROM document"
    return dict(read_rows(tx, query, ()))


def read_flights(tx: Connection) -> list[Flight]:
    """Return the attempts without an outcome, whether their processes live or not."""
    query = "SELECT checkpoint, attempt, pid, start, boot FROM admission WHERE outcome IS NULL"
    return [Flight(key, attempt, Owner(*owner)) for key, attempt, *owner in read_rows(tx, query, ())]


def openings_in(folder: Path, keys: Iterable[str], job_file: JobFile) -> set[str]:
    """Return those of a folder's file names that are openings of a series."""
    patterns = [pattern_of(job) for job in job_file.series.values() if folder in _homes(job)]
    return {key for key in keys if any(pattern.fullmatch(key) for pattern in patterns)}


def faces_of(job_file: JobFile) -> dict[Path, dict[str, str]]:
    """Return, by folder and file name, whose each checkpoint is: a job's own, and that of its rehearsals."""
    found: dict[Path, dict[str, str]] = {}
    for job in job_file.entries:
        for folder in _homes(job):
            found.setdefault(folder, {}).update({} if job.series else {job.checkpoint.name: job.id})
    return found


def _homes(job: Job) -> set[Path]:
    return {plan_job(job, live).path.parent for live in (True, False)}

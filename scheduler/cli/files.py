"""Which jobs.yaml a command works on, and which of its jobs."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from scheduler.cli.output import log
from scheduler.due import Plan, plan_job
from scheduler.errors import EntryRefused, JobFileUnreadable, UsageRefused
from scheduler.job import JobFile
from scheduler.jobfile import read_job_file
from scheduler.report import problem_line, unknown_name

SYSTEM_WIDE = Path("/etc/resumed/jobs.yaml")


def find_config(options: argparse.Namespace, environ: Mapping[str, str]) -> Path:
    """Return the jobs.yaml that is meant. Raises JobFileUnreadable where none is found."""
    named = options.config or environ.get("RESUMED_CONFIG")
    if named:
        return Path(named)
    places = [Path("config/jobs.yaml"), SYSTEM_WIDE]
    with contextlib.suppress(RuntimeError):  # a user without a home folder has no file there
        places.insert(1, Path.home() / ".config/resumed/jobs.yaml")
    for place in places:
        if os.path.lexists(place):  # False where the home folder is out of reach
            return place
    listed = ", ".join(str(place) for place in places)
    raise JobFileUnreadable(
        path="jobs.yaml",
        message=f"not found; name one with --config FILE, or write one: resumed init (looked for {listed})",
    )


def load(options: argparse.Namespace, *, quiet: bool = False) -> JobFile:
    """Read the file that is meant, and log what is wrong with its entries unless `quiet`."""
    path = find_config(options, os.environ)
    try:
        job_file = read_job_file(path)
    except JobFileUnreadable as error:
        for problem in error.problems[1:]:
            log("error", problem_line(problem), "problem", line=problem.line)
        raise
    if not quiet:
        for problem in job_file.problems:
            log(problem.severity, problem_line(problem), "problem", problem.job or "", line=problem.line)
    return job_file


def pick(job_file: JobFile, names: Sequence[str]) -> list[str]:
    """Return the names of jobs, each once. Raises UsageRefused."""
    for name in names:
        check_name(job_file, "job", name, {*job_file.jobs, *job_file.refused})
    return list(dict.fromkeys(names))


def check_name(job_file: JobFile, kind: str, name: str, known: Collection[str]) -> None:
    """Raise UsageRefused where the file has no job or provider of this name."""
    if name not in known:
        raise UsageRefused(message=unknown_name(str(job_file.path), kind, name, sorted(known)))


def plan_of(job_file: JobFile, name: str) -> Plan:
    """Return how one job runs. Raises UsageRefused, EntryRefused."""
    pick(job_file, [name])
    if name in job_file.refused:
        raise EntryRefused(problem=problem_line(job_file.refused[name]))
    return plan_job(job_file.jobs[name], job_file.live)

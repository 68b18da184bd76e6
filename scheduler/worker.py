"""One task without a jobs.yaml: the job that stands for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scheduler.due import Plan
from scheduler.job import Job, JobFile
from scheduler.owed import Turn
from scheduler.reader import locate
from scheduler.records import DEMO, MANDAPI
from scheduler.tools import reference_tool


def work_turn(task: str, checkpoint: Path, *, live: bool, base_url: str | None = None) -> tuple[Turn, JobFile]:
    """Return the turn of a task by hand, and the file that it would stand in."""
    provider = replace(MANDAPI, base_url=MANDAPI.base_url if base_url is None else base_url) if live else DEMO
    job = Job(id="work", task=task, checkpoint=checkpoint, provider=provider)
    path = locate(checkpoint)
    plan = Plan(job=job, path=path, rehearsal=False)
    job_file = JobFile(path=path, digest="", live=live, jobs={job.id: job}, providers={}, refused={})
    return Turn(plan=plan, since=0, due=True, tools=() if live else (reference_tool(),)), job_file

"""Commands that only look: check, status, show, preview."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from scheduler.acts import read_acts
from scheduler.cli.arguments import add_command, add_job
from scheduler.cli.files import load, plan_of
from scheduler.cli.output import BLOCKED, LATER, NO_PROGRESS, exit_code, first_code, log
from scheduler.due import Plan, plan_job
from scheduler.forecast import forecast, open_folders
from scheduler.ledger import ledger_rows, read_archives
from scheduler.outlook import check_header, outlook_text
from scheduler.preview import look_ahead, preview_json, preview_text
from scheduler.reader import peek
from scheduler.report import survey_json, survey_table
from scheduler.state import State, is_final, same_task
from scheduler.survey import read_delivery, survey
from scheduler.text import json_text, printable
from scheduler.transcript import acts_text, archive_text, review_text, show_text


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""
    command = add_command(commands, "check", check, "check jobs.yaml, and print what lies ahead of each job")
    command.add_argument("--days", type=_days, metavar="N", help="list the points of the next N days")

    command = add_command(commands, "status", status, "print the state of every job")
    command.add_argument("--json", action="store_true", help="as JSON")

    command = add_command(commands, "show", show, "print what a job's checkpoint holds")
    add_job(command)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the whole document")
    form.add_argument("--task", action="store_true", help="the stored task")
    form.add_argument("--answer", action="store_true", help="the answer alone; raw into a pipe")
    form.add_argument("--conversation", action="store_true", help="the conversation too")

    command = add_command(commands, "preview", preview, "print a job's next request; send nothing, count nothing")
    add_job(command)
    command.add_argument("--json", action="store_true", help="as JSON, with the exact body of the request")


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= 3660:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to 3660")
    return int(text)


def check(options: argparse.Namespace) -> int:
    """Check the file, its providers and checkpoints; print the schedules in words, and the points ahead."""
    job_file = load(options)
    codes = [BLOCKED for _ in job_file.refused]
    print(check_header(str(job_file.path), len(job_file.jobs), len(job_file.refused), job_file.live))
    for job in job_file.jobs.values():
        outlook, refusal = forecast(plan_job(job, job_file.live), job_file, os.environ, options.days)
        print(outlook_text(outlook))
        if refusal is not None:
            log("error", f"job {job.id}: {refusal}")
            codes.append(exit_code(refusal))
    for folder in open_folders(job_file):
        log("warning", f"other users can look into {folder}; keep it private: chmod 700 {folder}")
    return first_code(codes)


def status(options: argparse.Namespace) -> int:
    """Print the state of every job, rests first."""
    found = survey(load(options, quiet=True), os.environ)
    print(survey_json(found) if options.json else survey_table(found))
    return 0


def show(options: argparse.Namespace) -> int:
    """Print a job's document for a person, or a part of it."""
    job_file = load(options, quiet=True)
    plan = plan_of(job_file, options.job)
    found = peek(plan.path)
    if found.state is None:
        log("info", f"job {plan.job.id}: it has not begun; {plan.path} does not exist yet")
        return LATER if options.answer or options.task or options.json else 0
    if options.json:
        print(json_text(found.state))
    elif options.task:
        print(printable(found.state["task"]))
    elif options.answer:
        return _answer(plan.job.id, found.state)
    else:
        edited = not same_task(found.state["task"], plan.job.task)
        marks = {"rehearsal": plan.rehearsal, "edited": edited, "reads": bool(plan.job.read)}
        marks |= {"conversation": options.conversation}
        dispatches, words = read_delivery(plan, found)
        parts = [review_text(found.state, dispatches, "" if dispatches else words), *_records(plan)]
        print(show_text(found.state, plan.job.max_attempts, str(plan.path), "".join(parts), **marks))
    return 0


def preview(options: argparse.Namespace) -> int:
    """Print what the next slice would send, where to, and what is in its way."""
    job_file = load(options, quiet=True)
    found = look_ahead(plan_of(job_file, options.job), job_file, os.environ, time.time())
    print(preview_json(found) if options.json else preview_text(found))
    return 0


def _answer(job: str, state: State) -> int:
    if state["answer"] is None:
        log("warning", f"job {job}: it has no answer yet; it is {state['status']}")
        return NO_PROGRESS if is_final(state) else LATER
    if sys.stdout.isatty():
        print(printable(state["answer"]))
    else:
        sys.stdout.buffer.write(state["answer"].encode())  # its own bytes, whatever the locale
    return 0


def _records(plan: Plan) -> list[str]:
    """Return what people did to a checkpoint, and what was set aside."""
    with ledger_rows(plan.path.parent) as tx:
        if tx is None:
            return []
        return [acts_text(read_acts(tx, plan.path.name)), archive_text(read_archives(tx, plan.path.name))]

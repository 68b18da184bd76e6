"""Commands that only look: check, status, show, preview."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from scheduler.acts import read_acts
from scheduler.cli.arguments import add_command, add_job
from scheduler.cli.files import find_config, load, plan_of
from scheduler.cli.output import BLOCKED, LATER, NO_PROGRESS, exit_code, first_code, log
from scheduler.cli.redraw import redraw
from scheduler.due import Plan, plan_job
from scheduler.errors import ResumedError
from scheduler.forecast import forecast, open_folders, series_forecast
from scheduler.jobfile import read_job_file
from scheduler.ledger import ledger_rows, read_archives
from scheduler.outlook import Outlook, SeriesOutlook, check_header, check_totals, outlook_text, series_text
from scheduler.preview import look_ahead, preview_json, preview_text
from scheduler.reader import peek
from scheduler.report import daemon_lines, open_folder_words, survey_json, survey_parts, survey_table, watch_line
from scheduler.state import State, is_final, same_task, utc
from scheduler.survey import read_delivery, survey, unreadable
from scheduler.text import json_text, printable
from scheduler.transcript import acts_text, archive_text, review_text, show_text


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""
    command = add_command(
        commands, "check", check, "check jobs.yaml, and print what lies ahead of each job", "resumed check --days 7"
    )
    command.add_argument("--days", type=_days, metavar="N", help="list the points of the next N days")

    command = add_command(commands, "status", status, "print the state of every job", "resumed status --json")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--watch", nargs="?", type=_seconds, const=2.0, metavar="SECONDS", help="draw it anew in place")
    command.add_argument("--all", action="store_true", help="a line for each opening of a series too")

    command = add_command(
        commands, "show", show, "print what a job's checkpoint holds", "resumed show shipping-question --answer"
    )
    add_job(command)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the whole document")
    form.add_argument("--task", action="store_true", help="the stored task")
    form.add_argument("--answer", action="store_true", help="the answer alone; raw into a pipe")
    form.add_argument("--conversation", action="store_true", help="the conversation too")

    command = add_command(
        commands,
        "preview",
        preview,
        "print a job's next request; send nothing, count nothing",
        "resumed preview shipping-question",
    )
    add_job(command)
    command.add_argument("--json", action="store_true", help="as JSON, with the exact body of the request")


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= 3660:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1 to 3660")
    return int(text)


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:5]) <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 3600")
    return float(text)


def check(options: argparse.Namespace) -> int:
    """Check the file, its providers and checkpoints; print the schedules in words, and the points ahead."""
    job_file = load(options)
    codes = [BLOCKED for _ in job_file.refused]
    outlooks: list[Outlook | SeriesOutlook] = []
    print(check_header(str(job_file.path), len(job_file.entries), len(job_file.refused), job_file.live))
    for job in job_file.entries:
        plan = plan_job(job, job_file.live)
        if job.series:
            series, refusal = series_forecast(plan, job_file, os.environ, options.days)
            outlooks.append(series)
            print(series_text(series))
        else:
            outlook, refusal = forecast(plan, job_file, os.environ, options.days)
            outlooks.append(outlook)
            print(outlook_text(outlook))
        if refusal is not None:
            log("error", f"job {job.id}: {refusal}", "blocked", job.id, reason=str(refusal))
            codes.append(exit_code(refusal))
    print(check_totals(outlooks, options.days, job_file.requests_per_day))
    for folder in open_folders(job_file):
        log("warning", open_folder_words(folder), "problem")
    return first_code(codes)


def status(options: argparse.Namespace) -> int:
    """Print the daemon, what rests, and the state of every job; of a file that cannot be read, what can be told."""
    if options.watch:
        path = find_config(options, os.environ)
        return redraw(lambda: _drawn(path, options.watch, options.all), options.watch)
    try:
        found = survey(load(options, quiet=True), os.environ, unfolded=options.json or options.all)
    except ResumedError as error:
        found = unreadable(find_config(options, os.environ), error, os.environ)
        if found.daemon:
            print(survey_json(found) if options.json else "\n".join(daemon_lines(found.daemon)))
        raise
    print(survey_json(found) if options.json else survey_table(found, unfolded=options.all))
    return 0


def _drawn(path: Path, seconds: float, unfolded: bool) -> tuple[str, str]:
    try:
        found = survey(read_job_file(path), os.environ, unfolded=unfolded)
    except ResumedError as error:  # the next edit may mend it
        found = unreadable(path, error, os.environ)
    sentences, rows = survey_parts(found, unfolded=unfolded)
    return f"{watch_line(utc(time.time()), seconds)}\n{sentences}", rows


def show(options: argparse.Namespace) -> int:
    """Print a job's document for a person, or a part of it."""
    job_file = load(options, quiet=True)
    plan = plan_of(job_file, options.job)
    found = peek(plan.path)
    if found.state is None:
        log("info", f"job {plan.job.id}: it has not begun; {plan.path} does not exist yet; resumed run {plan.job.id}")
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
        price = None if plan.offline else plan.job.provider.price
        dispatches, words = read_delivery(plan, found)
        parts = [review_text(found.state, dispatches, "" if dispatches else words), *_records(plan)]
        print(show_text(found.state, plan.job.max_attempts, str(plan.path), "".join(parts), price=price, **marks))
    return 0


def preview(options: argparse.Namespace) -> int:
    """Print what the next slice would send, where to, and what is in its way."""
    job_file = load(options, quiet=True)
    found = look_ahead(plan_of(job_file, options.job), job_file, os.environ, time.time())
    print(preview_json(found) if options.json else preview_text(found))
    return 0


def _answer(job: str, state: State) -> int:
    if state["answer"] is None:
        log("warning", f"job {job}: it has no answer yet; it is {state['status']}", "show", job)
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

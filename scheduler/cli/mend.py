"""Commands by which a person takes a way out: repair, adopt, revise, renew, unblock."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import Any

from scheduler import mend
from scheduler.cli.arguments import add_command, add_job
from scheduler.cli.files import check_name, load, plan_of
from scheduler.cli.output import exit_code, first_code, log
from scheduler.due import Plan, model_of, plan_job
from scheduler.errors import ResumedError, UsageRefused
from scheduler.files import exists
from scheduler.intent import UNBLOCK, foretell
from scheduler.text import printable, storable


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""
    command = add_command(
        commands,
        "repair",
        repair,
        "set a damaged file aside, and put the ledger's document back",
        "resumed repair shipping-question",
    )
    add_job(command)
    _add_common(command)

    command = add_command(
        commands,
        "adopt",
        adopt,
        "take over a file that the ledger does not know, with its attempts",
        "resumed adopt shipping-question",
        "resumed adopt --all",
    )
    command.add_argument("job", metavar="JOB", nargs="?", help="the job's id in jobs.yaml, or an opening of a series")
    command.add_argument("--all", action="store_true", help="every job of the file, once a ledger was set aside")
    _add_common(command)

    command = add_command(
        commands,
        "revise",
        revise,
        "go on with an edited task or model, and the attempts that are left",
        'resumed revise shipping-question --reason "the question was unclear"',
    )
    add_job(command)
    _add_common(command, required=True)

    command = add_command(
        commands,
        "renew",
        renew,
        "open a new allowance of attempts for a job",
        'resumed renew shipping-question --reason "the shop has new prices" --confirm shipping-question',
    )
    add_job(command)
    _add_common(command, required=True)
    command.add_argument("--confirm", required=True, metavar="JOB", help="the job's name once more")
    command.add_argument("--keep", action="store_true", help="keep the conversation")

    command = add_command(commands, "unblock", unblock, "end the rests of a provider", "resumed unblock mandapi")
    command.add_argument("provider", metavar="PROVIDER", help="its name in jobs.yaml")
    _add_common(command)


def _add_common(command: argparse.ArgumentParser, *, required: bool = False) -> None:
    why = "why; kept for ever, and listed by resumed show"
    command.add_argument("--reason", required=required, type=storable, metavar="TEXT", default="", help=why)
    command.add_argument("--dry-run", action="store_true", help="only say what it will do, and what it costs")


def repair(options: argparse.Namespace) -> int:
    """Put the ledger's document back."""
    plan = plan_of(load(options, quiet=True), options.job)
    return _told(options, plan, lambda: mend.repair(plan, options.reason))


def _told(options: argparse.Namespace, plan: Plan, act: Callable[[], str]) -> int:
    """Say what will be done, do it unless it is only to be said, and say what was done."""
    print(printable(f"job {plan.job.id}: {foretell(options.command, plan)}"), flush=True)
    if not options.dry_run:
        print(printable(f"job {plan.job.id}: {act()}"))
    return 0


def adopt(options: argparse.Namespace) -> int:
    """Take over one file, or with --all those of every job that has one."""
    job_file = load(options, quiet=True)
    if options.all == bool(options.job):
        raise UsageRefused(message="name one job, or --all")
    if not options.all:
        plan = plan_of(job_file, options.job)
        return _told(options, plan, lambda: mend.adopt(plan, options.reason))
    codes = []
    patterns = [plan_job(pattern, job_file.live) for pattern in job_file.series.values()]
    plans = [plan_job(job, job_file.live) for job in job_file.jobs.values()]
    for plan in [*plans, *(plan for pattern in patterns for plan in mend.openings_of(pattern))]:
        try:
            if exists(plan.path):
                codes.append(_told(options, plan, functools.partial(mend.adopt, plan, options.reason)))
        except ResumedError as error:
            log("error", f"job {plan.job.id}: {error}", "blocked", plan.job.id, reason=str(error))
            codes.append(exit_code(error))
    if not codes:
        print("no job has a file to adopt")
    for pattern in patterns:
        mend.count_again(pattern)
    return first_code(codes)


def revise(options: argparse.Namespace) -> int:
    """Begin a new conversation with the attempts that are left."""
    plan, reason = plan_of(load(options, quiet=True), options.job), _reason(options)
    return _told(options, plan, lambda: mend.revise(plan, model_of(plan, os.environ), reason))


def _reason(options: argparse.Namespace) -> str:
    reason: str = options.reason.strip()
    if not reason:
        raise UsageRefused(message="--reason is blank; it is kept with the job for ever, so say why")
    return reason


def renew(options: argparse.Namespace) -> int:
    """Open a new allowance."""
    if options.confirm != options.job:
        raise UsageRefused(message=f"--confirm must name the job once more: {options.job}")
    plan, reason = plan_of(load(options, quiet=True), options.job), _reason(options)
    return _told(options, plan, lambda: mend.renew(plan, model_of(plan, os.environ), reason, keep=options.keep))


def unblock(options: argparse.Namespace) -> int:
    """End the rests of a provider in every ledger that the file uses."""
    job_file = load(options, quiet=True)
    used = {job.provider.name for job in job_file.entries} | set(job_file.providers)
    check_name(job_file, "provider", options.provider, used)
    name, plans = options.provider, [plan_job(job, job_file.live) for job in job_file.entries]
    print(printable(f"provider {name}: {UNBLOCK}"), flush=True)
    if not options.dry_run:
        lifted = mend.unblock(plans, name, options.reason)
        ended = f"{lifted} rest{'s' * (lifted != 1)} ended" if lifted else "it was not resting"
        print(printable(f"provider {name}: {ended}"))
    return 0

"""The command by which a person decides about an answer."""

from __future__ import annotations

import argparse
import functools
import os
from typing import Any

from scheduler.cli.arguments import add_command, add_job
from scheduler.cli.files import load, plan_of
from scheduler.cli.output import BLOCKED, log
from scheduler.decision import Dispatch, answer_digest, dispatch_words
from scheduler.delivery import Again, deliver_answer
from scheduler.due import Plan
from scheduler.errors import UsageRefused
from scheduler.herald import log_event
from scheduler.intent import foretell_review
from scheduler.job import JobFile
from scheduler.mend import who
from scheduler.reader import peek
from scheduler.review import Decision, check_answer, check_digest, check_kept, decide
from scheduler.survey import read_delivery
from scheduler.text import printable, storable
from scheduler.transcript import answer_head

NOWHERE = "nothing is delivered: the job has no deliver: in jobs.yaml"


def add_commands(commands: Any) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "review",
        review,
        "approve or reject the answer of a job",
        'resumed review shipping-question --approve --note "as the price list says"',
        'resumed review shipping-question --reject --note "Name the file."',
    )
    add_job(command)
    form = command.add_mutually_exclusive_group(required=True)
    form.add_argument("--approve", action="store_true", help="it may be used, and goes where deliver: says")
    form.add_argument("--reject", action="store_true", help="with attempts left, the model is told why and asked again")
    command.add_argument("--note", type=storable, metavar="TEXT", default="", help="why; kept with the job for ever")
    command.add_argument(
        "--sha256", metavar="HEX", help="decide only if the answer's SHA-256 begins so (show prints it)"
    )
    command.add_argument("--redeliver", action="store_true", help="with --approve --note: deliver it once more")
    command.add_argument("--dry-run", action="store_true", help="only say what it will do, and what it costs")


def review(options: argparse.Namespace) -> int:
    """Show the answer, enter the decision about it, and deliver what is approved."""
    note: str = options.note.strip()
    if options.reject and (options.redeliver or not note):
        raise UsageRefused(message="--reject needs --note TEXT, which the model reads too, and delivers nothing")
    if options.redeliver and not note:
        raise UsageRefused(message="--redeliver needs --note TEXT; it is kept with the job for ever, so say why")
    wanted = check_digest(options.sha256) if options.sha256 is not None else ""
    job_file = load(options, quiet=True)
    plan = plan_of(job_file, options.job)
    found = peek(plan.path)
    state, dispatches = check_answer(plan, found.state, wanted), read_delivery(plan, found)[0]
    print(answer_head(state, bool(plan.job.read)))
    if options.reject:
        check_kept(plan, dispatches)
    will = foretell_review(plan, dispatches, approve=options.approve, again=options.redeliver)
    print(printable(f"job {plan.job.id}: {will}"), flush=True)
    if options.dry_run:
        return 0
    # Bound to what was shown just now: another answer meanwhile is not what the person decided about.
    digest = answer_digest(state["answer"] or "")
    decision = Decision(approved=options.approve, digest=digest, note=note, who=who())
    said = decide(plan, decision, lambda event: log_event(log, plan.job.id, event))
    print(printable(f"job {plan.job.id}: {said}"), flush=True)
    again = Again(who=who(), note=note) if options.redeliver else None
    return _deliver(plan, job_file, again) if options.approve else 0


def _deliver(plan: Plan, job_file: JobFile, again: Again | None) -> int:
    """Deliver what is owed; a delivery that did not end well needs a person."""
    tell = functools.partial(log_event, log)
    done: Dispatch | None = deliver_answer(plan, job_file, os.environ, tell, again)
    if done is None:
        words = read_delivery(plan, peek(plan.path))[1] or ("" if plan.job.deliver else NOWHERE)
        if words and (again or plan.job.deliver):
            print(printable(f"job {plan.job.id}: {words}"))
        return BLOCKED if again else 0
    print(printable(f"job {plan.job.id}: {done.target}: {dispatch_words(done)}"))
    return 0 if done.result == "delivered" else BLOCKED

"""Commands that run slices: tick, run, daemon, work."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler.cli.arguments import add_command
from scheduler.cli.files import find_config, load, pick
from scheduler.cli.output import exit_code, first_code, log, log_refusal, result_code, say
from scheduler.errors import Later, ResumedError, UsageRefused
from scheduler.events import event_line, made_progress
from scheduler.herald import Herald, log_unreadable
from scheduler.hint import look
from scheduler.job import JobFile
from scheduler.metrics import after_tick
from scheduler.owed import Result
from scheduler.quiet import leave_hint, named_folders
from scheduler.signals import Signals
from scheduler.text import is_utf8
from scheduler.tick import take_turn, tick
from scheduler.transcript import state_lines
from scheduler.worker import work_turn


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""
    command = add_command(
        commands,
        "tick",
        run_tick,
        "run one slice of each job that is due; what a crontab line calls",
        "resumed --config ~/jobs/config/jobs.yaml tick",
    )
    command.add_argument("jobs", nargs="*", metavar="JOB", help="only these jobs")

    command = add_command(
        commands,
        "run",
        run_jobs,
        "run one slice of the named jobs now, due or not",
        "resumed run shipping-question",
    )
    command.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs in jobs.yaml")

    command = add_command(
        commands,
        "daemon",
        run_daemon,
        "run the jobs on their schedules until told to stop",
        "resumed daemon --until-done",
    )
    command.add_argument("--until-done", action="store_true", help="end once every job is final or blocked")

    command = add_command(
        commands,
        "work",
        run_work,
        "work on one task without a jobs.yaml",
        'resumed work "How long does shipping take?" --checkpoint work.json --demo --once',
    )
    command.add_argument("task", metavar="TASK", help="what the model is asked")
    command.add_argument(
        "--checkpoint", required=True, metavar="FILE", help="made where missing; its ledger stands beside it"
    )
    command.add_argument("--once", action="store_true", help="at most one request; else go on while there is progress")
    command.add_argument("--live", action="store_true", help="ask $MANDAPI_MODEL_ID with $MANDAPI_API_KEY")
    command.add_argument("--demo", action="store_true", help="ask the offline demo model")
    command.add_argument("--base-url", metavar="URL", help="another endpoint for --live")


def run_tick(options: argparse.Namespace) -> int:
    """Run what is due; without a terminal only warnings are said, and what stands when it changes and once a day."""
    quiet, since = not sys.stderr.isatty(), time.time()
    path = find_config(options, os.environ)
    place = os.path.realpath(path)
    seen = look([place])
    try:
        job_file = load(options, quiet=True)
    except ResumedError as error:
        log_unreadable(path, error, os.environ, log, remembers=quiet)
        return exit_code(error)
    seen |= look(named_folders(job_file))
    herald = Herald(job_file, os.environ, log, quiet=quiet, remembers=quiet)
    herald.log_problems()
    names = pick(job_file, options.jobs)
    code, results = _run(job_file, names, bool(names), False, herald)
    if quiet and results and not names and code == 0:
        leave_hint(place, seen, since, job_file, results)
    return code


def run_jobs(options: argparse.Namespace) -> int:
    """Run one slice of each named job."""
    job_file = load(options)
    code, _ = _run(job_file, pick(job_file, options.jobs), True, True, Herald(job_file, os.environ, log))
    return code


def _run(
    job_file: JobFile, names: list[str], named: bool, by_hand: bool, herald: Herald
) -> tuple[int, list[Result] | None]:
    """Return the exit code, and the results unless a signal left some out."""
    stopped = _stop_on_signals(job_file.stop_wait)
    results = []
    try:
        for result in tick(job_file, os.environ, herald.tell, names=names, by_hand=by_hand, stopped=stopped):
            results.append(result)
            herald.note(result)
            if isinstance(result.refusal, Later) and named:
                log("warning", f"job {result.job}: {result.refusal}", "waits", result.job, reason=str(result.refusal))
            elif by_hand and result.final and not result.ran and result.refusal is None:
                log("info", f"job {result.job}: it is {result.final}, and nothing was sent", "final", result.job)
        after_tick(job_file, herald.note_metrics, ticked=not by_hand)
    finally:
        herald.close()
    code = 0 if stopped() and not by_hand else first_code(result_code(one, named=named) for one in results)
    return code, None if stopped() else results


def _stop_on_signals(stop_wait: float) -> Callable[[], bool]:
    """Let no slice begin after SIGTERM or SIGINT; those in flight get `stop_wait` seconds; a second signal ends all."""

    def interrupt() -> None:
        from scheduler.gateway import interrupt_all

        interrupt_all()

    def wait() -> None:
        timer = threading.Timer(stop_wait, interrupt)
        timer.daemon = True
        timer.start()

    signals = Signals(wait)
    signals.catch(hangup=False)
    return signals.stop.is_set


def run_daemon(options: argparse.Namespace) -> int:
    """Run until a signal, or with --until-done until every job is final or blocked."""
    import logging

    from scheduler.daemon import Daemon

    logging.getLogger("apscheduler").setLevel(logging.CRITICAL)  # what matters of it is told by our own lines
    job_file = load(options, quiet=True)
    path = find_config(options, os.environ)
    herald = Herald(job_file, os.environ, log, remembers=not sys.stderr.isatty())
    herald.log_problems()
    daemon = Daemon(path, job_file, os.environ, herald, log, until_done=options.until_done)
    results = daemon.run()
    codes = (result_code(result, named=False) for result in results)
    return first_code(codes) if options.until_done and not daemon.stopped else 0


def run_work(options: argparse.Namespace) -> int:
    """Work on one task as a plain worker does; print the events and the state."""
    if options.live == options.demo:
        raise UsageRefused(message="say where the request goes: --demo (offline) or --live; nothing was done")
    if not options.task.strip():
        raise UsageRefused(message="the task is blank; nothing was done")
    if not is_utf8(options.task):
        raise UsageRefused(message="the task is not UTF-8; nothing was done")
    turn, job_file = work_turn(options.task, Path(options.checkpoint), live=options.live, base_url=options.base_url)
    stopped = _stop_on_signals(job_file.stop_wait)

    def tell(_: str, event: dict[str, Any]) -> None:
        say(event_line("", event), sys.stdout)

    while True:
        result = take_turn(turn, job_file, os.environ, tell)
        going_on = result.ran and not result.final and result.state is not None and made_progress(result.state)
        if options.once or not going_on or stopped():
            break
    if result.state is not None:
        print(state_lines(result.state))
    if result.refusal is not None:
        log_refusal(result.refusal)
    return result_code(result, named=True)

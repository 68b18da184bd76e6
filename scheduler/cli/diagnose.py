"""The commands that look for what is wrong: doctor, selftest."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scheduler.cli.arguments import add_command
from scheduler.cli.files import find_config, load
from scheduler.doctor import examine
from scheduler.errors import ResumedError, UsageRefused
from scheduler.files import check_can_write, check_folder, translated
from scheduler.findings import Finding, finding_line, summary_line
from scheduler.forks import STOPS
from scheduler.job import JobFile
from scheduler.jobfile import read_job_file
from scheduler.selftest import opening_line, report_text, scratch_folder, try_all
from scheduler.text import printable

FINDINGS = 1


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""
    command = add_command(
        commands,
        "doctor",
        doctor,
        "look for all that may be wrong around jobs.yaml, and say what to do",
        "resumed doctor --verbose",
        "resumed doctor --online",
    )
    command.add_argument("--verbose", action="store_true", help="list what is as it should be, too")
    command.add_argument("--online", action="store_true", help="ask each provider for its list of models, once")

    command = add_command(
        commands,
        "selftest",
        selftest,
        "try the promises on your own disk: demo jobs are killed at every step, offline, in a temporary folder",
        "resumed selftest",
        "resumed selftest --folder /srv/jobs",
    )
    command.add_argument(
        "--folder",
        metavar="DIR",
        help="where to try; else beside the checkpoints of jobs.yaml, else the current folder",
    )


def doctor(options: argparse.Namespace) -> int:
    """Print each finding, and how many there are."""
    job_file = load(options, quiet=True)
    findings = []
    for finding in _findings(job_file, os.environ, online=options.online):
        findings.append(finding)
        if options.verbose or finding.level != "ok":
            print(finding_line(finding), flush=True)
    print(summary_line(findings))
    return FINDINGS if any(finding.level == "wrong" for finding in findings) else 0


def _findings(job_file: JobFile, environ: Mapping[str, str], *, online: bool) -> Iterator[Finding]:
    yield from examine(job_file, environ)
    if online:
        from scheduler.online import ask_providers

        yield from ask_providers(job_file, environ)


def selftest(options: argparse.Namespace) -> int:
    """Try the promises in a temporary folder, and print what came of it; a broken one keeps that folder."""
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)  # so that the folder goes, whatever ends it
    os.umask(0o077)  # other umasks are among what is tried, and the folder must go under each
    with scratch_folder(_disk(options)) as scratch:
        _say(opening_line(scratch.path))
        report = try_all(scratch.path)
        scratch.keep = report.broken > 0
        _say(report_text(report))
    return FINDINGS if report.broken else 0


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # where nobody reads on, the exit code still tells it
        print(printable(text), flush=True)


def _disk(options: argparse.Namespace) -> Path:
    """Return the folder that is meant: the one named, that of the first checkpoints that can be used, or this one."""
    if options.folder is not None:
        folder = Path(options.folder)
        with translated(folder):
            if not folder.is_dir():
                raise UsageRefused(message=f"--folder {folder}: there is no such folder")
        return folder
    with contextlib.suppress(ResumedError):
        for folder in {job.checkpoint.parent: None for job in read_job_file(find_config(options, os.environ)).entries}:
            with contextlib.suppress(ResumedError):
                check_folder(folder)
                check_can_write(folder)
                return folder
    return Path()

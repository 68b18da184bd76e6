"""The command that looks for what is wrong: doctor."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.cli.arguments import add_command
from scheduler.cli.files import load
from scheduler.doctor import examine
from scheduler.findings import Finding, finding_line, summary_line
from scheduler.job import JobFile

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

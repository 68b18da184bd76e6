"""The command that begins: init."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from scheduler.cli.arguments import add_command
from scheduler.starter import next_steps, start
from scheduler.text import printable


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""
    command = add_command(
        commands,
        "init",
        init,
        "write a first jobs.yaml, and print the lines for cron and systemd",
        "resumed init ~/jobs",
    )
    command.add_argument("folder", metavar="DIR", nargs="?", default=".", help="made where missing; default: this one")


def init(options: argparse.Namespace) -> int:
    """Write what is missing, and say what to do next."""
    made = start(Path(options.folder))
    for path in made.new:
        print(printable(f"made {path}"))
    for path in made.kept:
        print(printable(f"left as it is: {path}"))
    print()
    print(printable(next_steps(made.config, os.environ, root=os.geteuid() == 0)))
    return 0

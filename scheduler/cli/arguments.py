"""How a command is entered into the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add_command(
    commands: Any, name: str, handler: Callable[[argparse.Namespace], int], summary: str, *examples: str
) -> argparse.ArgumentParser:
    """Add a command with its one-line summary and the examples that its help shows, and return its parser."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n".join(["example:" if len(examples) == 1 else "examples:", *(f"  {line}" for line in examples)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(handler=handler)
    return command


def add_job(command: argparse.ArgumentParser) -> None:
    """Add the argument that names one job."""
    command.add_argument("job", metavar="JOB", help="the job's id in jobs.yaml, or an opening of a series")

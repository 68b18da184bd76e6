"""The command line: arguments, wiring, exit codes. Every sentence that it prints is made elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from scheduler.cli import look, mend, run
from scheduler.cli.output import exit_code, log
from scheduler.errors import ResumedError, UsageRefused

USAGE = 64
UNFORESEEN = 70


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # argparse exits here; we raise our own refusal
        raise UsageRefused(message=f"{message}; see: {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(
        prog="resumed",
        description="Runs long LLM tasks in bounded slices, counted before each request, from cron or as a daemon.",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="jobs.yaml; else $RESUMED_CONFIG, ./config/jobs.yaml, ~/.config/resumed/jobs.yaml, /etc/resumed/jobs.yaml",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for group in (run, look, mend):
        group.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; whatever goes wrong is told in one line."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text file, as in any process
    try:
        options = build_parser().parse_args(arguments)
        code: int = options.handler(options)
        sys.stdout.flush()
    except UsageRefused as error:
        log("error", str(error))
        return USAGE
    except ResumedError as error:
        log("error", str(error))
        return exit_code(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        place = error.__traceback__
        while place and place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
        log("error", f"unforeseen fault at {where}: {type(error).__name__}: {error}; nothing was sent by this")
        return UNFORESEEN
    return code

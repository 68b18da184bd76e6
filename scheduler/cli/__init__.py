"""The command line: arguments, wiring, exit codes. Every sentence that it prints is made elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Collection, Sequence

from scheduler.cli.output import NO_STORAGE, choose_form, exit_code, log, log_refusal
from scheduler.errors import ResumedError, UsageRefused
from scheduler.owed import as_refusal
from scheduler.owner import program_version

USAGE = 64

# The commands of each part of this package, which is loaded only for one of them, for some load a lot.
_PARTS = {
    "start": ("init",),
    "run": ("tick", "run", "daemon", "work"),
    "look": ("check", "status", "show", "preview"),
    "diagnose": ("doctor", "selftest"),
    "review": ("review",),
    "mend": ("repair", "adopt", "revise", "renew", "unblock"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # argparse exits here; we raise our own refusal
        raise UsageRefused(message=f"{message}; see: {self.prog} --help")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        parser.exit(0, f"resumed {program_version()}\n")


def build_parser(parts: Collection[str] = tuple(_PARTS)) -> argparse.ArgumentParser:
    """Return the parser of the commands of these parts."""
    parser = _Parser(
        prog="resumed",
        description="Runs long LLM tasks in bounded slices, counted before each request, from cron or as a daemon.",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="jobs.yaml; else $RESUMED_CONFIG, ./config/jobs.yaml, ~/.config/resumed/jobs.yaml, /etc/resumed/jobs.yaml",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="how log lines are written to stderr"
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for part in parts:
        importlib.import_module(f"scheduler.cli.{part}").add_commands(commands)
    return parser


def _parts_for(arguments: Sequence[str]) -> Collection[str]:
    """Return the part of the command that is given, or all where it is not plain to see."""
    words = list(arguments)
    while words and words[0] in ("--config", "--log-format"):
        words = words[2:]
    found = [part for part, commands in _PARTS.items() if words and words[0] in commands]
    return found or tuple(_PARTS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; whatever goes wrong is told in one line."""
    _open_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    choose_form(arguments, os.environ)
    try:
        return _run(arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # nobody reads it, or its disk is full; nothing may be left for the interpreter to flush
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_streams() -> None:
    """Give streams that were closed somewhere to go, so that no file of ours ever gets their descriptors."""
    with contextlib.suppress(OSError):  # without /dev/null the streams that are open do
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # open to the end
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # open to the end
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a text file, as in any process


def _misplaced(unknown: Sequence[str], command: str) -> str:
    for word in (word.partition("=")[0] for word in unknown):
        if word in ("--config", "--log-format"):
            return f"{word} stands before the command; see: resumed --help"
    return f"unrecognized arguments: {' '.join(unknown)}; see: resumed {command} --help"


def _run(arguments: Sequence[str]) -> int:
    code = 0
    try:
        options, unknown = build_parser(_parts_for(arguments)).parse_known_args(arguments)
        if unknown:
            raise UsageRefused(message=_misplaced(unknown, options.command))
        code = int(options.handler(options))
        sys.stdout.flush()
    except UsageRefused as error:
        log_refusal(error, "usage")
        return USAGE
    except ResumedError as error:
        log_refusal(error)
        return exit_code(error)
    except BrokenPipeError:
        return code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            log("error", f"the output cannot be written: {error.strerror}", "fault")
            return NO_STORAGE
        fault = as_refusal(error)
        log_refusal(fault, "fault")
        return exit_code(fault)
    return code

"""`make bench`: take every measure, or those that are named, and print the table of them.

The peers are installed into environments of their own below build/bench.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.bench import crowds, daemons, ledgers, slices, starts
from tests.bench.lines import Line, table
from tests.bench.places import Places
from tests.bench.spanish import translated
from tests.support import ROOT

README, SPANISH = ROOT / "README.md", ROOT / "README.es.md"
BLOCK = re.compile(r"(?<=<!-- bench -->\n).*(?=<!-- /bench -->)", re.DOTALL)

ROWS: dict[str, Callable[[Places, int], Iterator[Line]]] = {
    "tick": starts.quiet_ticks,
    "run": starts.runs,
    "slice": slices.small,
    "large": slices.large,
    "growth": slices.growth,
    "idle": daemons.idle,
    "start": daemons.starts,
    "burst": daemons.burst,
    "crowd": crowds.crowd,
    "ledger": ledgers.ledger,
}


def main() -> int:
    """Measure and print; with --write put the table into both READMEs too."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"which measures: {', '.join(ROWS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is taken (default 15)")
    parser.add_argument("--write", action="store_true", help="put the table into both READMEs")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no measure {', '.join(sorted(unknown))}")
    lines = measured(options.rows or list(ROWS), options.rounds)
    block = f"{head()}\n\n{table(lines)}\n"
    print(block)
    if options.write:
        put(README, block)
        put(SPANISH, translated(block))
    return 0


def put(readme: Path, block: str) -> None:
    """Put a block of results into a README, in place of the one before."""
    readme.write_text(BLOCK.sub(lambda _: f"\n{block}\n", readme.read_text("utf-8")), "utf-8")


def measured(rows: Sequence[str], rounds: int) -> list[Line]:
    """Take these measures one after the other, and tell each line as it comes."""
    environments = ROOT / "build" / "bench"
    environments.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as work:
        places = Places(environments, Path(work))
        for line in (line for row in rows for line in ROWS[row](places, rounds)):
            lines.append(line)
            print(" | ".join(line.cells), file=sys.stderr, flush=True)
    return lines


def head() -> str:
    """Say when, of which commit and where it was measured."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "no commit"
    machine = f"{os.cpu_count()} cores, {platform.system()}, CPython {platform.python_version()}"
    return f"Measured on {time.strftime('%Y-%m-%d')} at {commit}, on {machine}."


if __name__ == "__main__":
    sys.exit(main())

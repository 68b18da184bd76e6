"""The figures of a run of the harnesses, and the block of SECURITY.md that holds them.

`RESUMED_FIGURES=figures.json make torture FULL=1` writes them down; `python -m tests.faults.figures figures.json` puts
them into SECURITY.md. Several files are summed; without one, the block names the harnesses and has no figures.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults.cases import TIER, Cases, summed
from tests.support import ROOT

SECURITY = ROOT / "SECURITY.md"
BEGIN = "<!-- figures: written by python -m tests.faults.figures -->\n"
END = "<!-- end of figures -->\n"
HEADER = "| harness | cases | control caught |\n|---|---|---|\n"
_ROW = re.compile(r"^\| (.+?) \| ([\d,]*) \| ([\d,]*) \|$", re.MULTILINE)


def record(path: Path, harnesses: Iterable[Cases]) -> None:
    """Write down what a run has counted, when, where and of which commit."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    run = {
        "tier": TIER,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown",
        "harnesses": [cases.told() for cases in harnesses],
    }
    path.write_text(json.dumps(run, indent=1), "utf-8")


def block(names: Iterable[str], runs: list[Mapping[str, Any]]) -> str:
    """Lay out a row for each harness, with what the runs have counted of it."""
    counted = summed([told for run in runs for told in run["harnesses"]])
    rows = [row(counted.get(name, Cases(name))) for name in sorted({*names, *counted}, key=str.lower)]
    return f"{BEGIN}\n{' '.join(dict.fromkeys(heads(runs)))}\n\n{HEADER}{''.join(rows)}\n{END}"


def heads(runs: list[Mapping[str, Any]]) -> Iterable[str]:
    """Say of each run when and where it was."""
    for run in runs:
        kind = "Full run" if run["tier"] == "full" else f"Run of the size of `{run['tier']}`"
        yield f"{kind} of {run['date']}: {run['machine']}, commit {run['commit']}."
    if not runs:
        yield "No full run yet."


def row(cases: Cases) -> str:
    """Lay out one harness; a cell without a figure is empty."""
    figures = (cases.kinds.total(), sum(cases.controls.values()))
    return f"| {cases.harness} | {' | '.join(f'{figure:,}' if figure else '' for figure in figures)} |\n"


def written(text: str) -> str:
    """Return the block of a text, with its marks."""
    start, end = text.index(BEGIN), text.index(END) + len(END)
    return text[start:end]


def names_in(text: str) -> list[str]:
    """Return the harnesses that a text's block has a row for."""
    return [name for name, _, _ in _ROW.findall(written(text))]


def harness_names(folder: Path = ROOT / "tests" / "faults") -> set[str]:
    """Return the name of every harness: the first argument of each call `harness(…)` in the test files."""
    return {name for path in sorted(folder.rglob("test_*.py")) for name in names_of(path)}


def names_of(path: Path) -> Iterable[str]:
    """Name the harnesses of one test file, as often as it does."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "harness":
            [name] = node.args[:1]
            if isinstance(name, ast.Name):  # a constant of that file
                module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
                yield str(getattr(module, name.id))
            else:
                assert isinstance(name, ast.Constant), f"{path}:{name.lineno}: name the harness by a text or a constant"
                yield str(name.value)


def main(paths: list[str]) -> None:
    """Write the block anew."""
    runs = [json.loads(Path(path).read_text("utf-8")) for path in paths]
    text = SECURITY.read_text("utf-8")
    SECURITY.write_text(text.replace(written(text), block(harness_names(), runs)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The ordinary tests of document, ledger and checkpoint reach every line and branch, and notice what is changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.cases import TIER, Begin, sized
from tests.support import ROOT

NAMES = ("state", "ledger", "checkpoint", "resume")[: sized(1, 4, 4)]
READ_BY = ("standing",) if "ledger" in NAMES else ()  # the part of the ledger that reads
MODULES = [f"scheduler/{name}.py" for name in (*NAMES, *READ_BY)]
TESTS = [f"tests/test_{name}.py" for name in NAMES]
ONE = "tests/test_state.py::test_a_new_document_is_ready_and_has_nothing_in_it"
PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "pytest_timeout")


@dataclass(frozen=True)
class Mutant:
    """A change of one place of a module; `tests` are the ordinary ones that are to notice it."""

    name: str
    module: str
    old: str
    new: str
    tests: str

    def apply(self, folder: Path) -> None:
        path = folder / "scheduler" / f"{self.module}.py"
        text = path.read_text("utf-8")
        assert text.count(self.old) == 1, f"{self.name}: its place stands {text.count(self.old)} times in {path.name}"
        path.write_text(text.replace(self.old, self.new), "utf-8")


MUTANTS = [
    Mutant("the ceiling is five", "state", "\nMAX_STEPS = 4\n", "\nMAX_STEPS = 5\n", "state"),
    Mutant(
        "an attempt that is in flight is admitted over",
        "ledger",
        "if record and (record.open or number < record.next_attempt):",
        "if record and number < record.next_attempt:",
        "ledger",
    ),
    Mutant(
        "admissions are counted by their rows",
        "standing",
        "1 + max((admission.attempt for admission in self.admissions), default=0)",
        "1 + len(self.admissions)",
        "ledger",
    ),
    Mutant(
        "the digest is not compared at commit",
        "ledger",
        "if (record.version if record else None) != seen:",
        "if (record.version.allowance if record else None) != (seen.allowance if seen else None):",
        "ledger",
    ),
    Mutant(
        "an orphan is dropped",
        "ledger",
        '"INSERT INTO orphan VALUES (?, ?, ?, ?, ?, ?)"',
        '"SELECT ?, ?, ?, ?, ?, ?"',
        "ledger",
    ),
    Mutant(
        "the count is published before it is committed",
        "checkpoint",
        "        self._flight = (self.path, allowance, number)\n",
        "        publish(self.path, body)\n        self._flight = (self.path, allowance, number)\n",
        "checkpoint",
    ),
    Mutant("the lock is not taken", "checkpoint", "            lock.acquire()\n", "            pass\n", "checkpoint"),
    Mutant(
        "the reserve is freed before the request",
        "checkpoint",
        "after=2 * (size + GROWTH) + SLACK):\n            yield\n",
        "after=2 * (size + GROWTH) + SLACK):\n            pass\n        yield\n",
        "checkpoint",
    ),
    Mutant(
        "attempts fall to what another record knows of",
        "state",
        'raised["attempts"] = len(raised["history"])',
        'raised["attempts"] = attempts',
        "state",
    ),
    Mutant(
        "a done document is asked again",
        "state",
        'return state["status"] != "ready"',
        'return state["status"] == "exhausted"',
        "state",
    ),
    Mutant(
        "a state that is not what is stored is taken",
        "resume",
        "if state != accept(stored, order):",
        "if accept(stored, order) is None:",
        "resume",
    ),
    Mutant(
        "an attempt of a dead process is given back",
        "checkpoint",
        "        if is_open(state):\n",
        "        if is_open(state) and not self.record:\n",
        "checkpoint",
    ),
]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in a folder, as in a run of the ordinary tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RESUMED", "COV"))}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # which costs as much as a short run
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environ, capture_output=True, text=True, timeout=900
    )


def uncovered(folder: Path, *tests: str) -> tuple[list[str], int]:
    """Run tests; return each line and branch of the modules that they do not reach, and how many they do."""
    data = f"--data-file={folder / 'data'}"
    ran = run(ROOT, "-m", "coverage", "run", "--branch", f"--include={','.join(MODULES)}", data, *PYTEST, *tests)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = run(ROOT, "-m", "coverage", "json", data, "-q", "-o", str(folder / "told.json"))
    assert told.returncode == 0, told.stdout + told.stderr
    files = json.loads((folder / "told.json").read_text("utf-8"))["files"]
    missing = [f"{name}: not imported" for name in MODULES if name not in files]
    for name, found in files.items():
        assert not found["excluded_lines"], f"{name} leaves lines out: {found['excluded_lines']}"
        missing += [f"{name}:{line}" for line in found["missing_lines"]]
        missing += [f"{name}:{start} to {end}" for start, end in found["missing_branches"]]
    sums = [found["summary"] for found in files.values()]
    return missing, sum(one["covered_lines"] + one["covered_branches"] for one in sums)


def test_every_line_and_branch_is_reached(harness: Begin, tmp_path: Path) -> None:
    with harness("lines and branches of document, ledger and checkpoint", sized(150, 500, 500)) as case:
        missing, reached = uncovered(tmp_path, *TESTS)
        assert missing == []
        case("reached", reached)
        case.control("all tests but one left out", len(uncovered(tmp_path, ONE)[0]))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, to be changed."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("scheduler", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("mutant", MUTANTS[: sized(2, 99, 99)], ids=lambda mutant: mutant.name)
def test_the_tests_notice_what_is_changed(harness: Begin, copied: Path, mutant: Mutant) -> None:
    path = copied / "scheduler" / f"{mutant.module}.py"
    whole = path.read_text("utf-8")
    with harness("changed places of document, ledger and checkpoint", 1) as case:
        try:
            mutant.apply(copied)
            ran = run(copied, *PYTEST, f"tests/test_{mutant.tests}.py")
        finally:
            path.write_text(whole, "utf-8")
        assert (ran.returncode, "1 failed" in ran.stdout) == (1, True), f"nothing noticed it:\n{ran.stdout}{ran.stderr}"
        case("noticed")


def test_a_change_that_changes_nothing_is_none(harness: Begin, copied: Path) -> None:
    absent = Mutant("absent", "state", "no such text", "", "state")
    twice = Mutant("twice", "state", "MAX_STEPS", "", "state")
    with harness("changed places of document, ledger and checkpoint") as case:
        for mutant in (absent, twice):
            with pytest.raises(AssertionError, match="its place stands"):
                mutant.apply(copied)
        case.control("a change that does not apply", 2)
    ran = run(copied, *PYTEST, *(TESTS if TIER != "test" else [ONE]))
    assert ran.returncode == 0, f"the tests fail without any change:\n{ran.stdout}{ran.stderr}"

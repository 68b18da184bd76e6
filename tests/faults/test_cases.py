"""The harnesses' own bookkeeping: a run that tries too little, catches nothing or leaves something out must fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.cases import Cases
from tests.support import ROOT

PLENTY = """
def test_plenty(harness):
    with harness("tried", 2) as case:
        case("cut", 3)
        case.control("nothing checked", 1)
"""
LITTLE = """
def test_little(harness):
    with harness("tried", 2) as case:
        case("cut")
        case.control("nothing checked", 1)
"""
BARE = """
def test_bare(harness):
    with harness("tried", 1) as case:
        case("cut")
"""
BLIND = """
def test_blind(harness):
    with harness("tried", 0) as case:
        case.control("nothing checked", 0)
"""
LEFT_OUT = """
import pytest
def test_left_out():
    pytest.skip("no such program")
"""
LEAKING = """
import base64, pytest
from tests.support import KEY
def test_that_leaves_it(tmp_path):
    (tmp_path / ".left").write_bytes(base64.b64encode(b"Bearer " + KEY.encode()))
def test_that_prints_it():
    print(KEY)
@pytest.mark.keeps_key("own*", because="it is the key's own file")
def test_that_may(tmp_path):
    (tmp_path / "own.txt").write_text(KEY)
"""


def said(folder: Path, text: str, **environ: str) -> tuple[int, str]:
    """Run a test file in a process of its own, with the fixtures of this suite."""
    (folder / "test_it.py").write_text(text, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "tests.conftest", "-p", "no:cacheprovider"]
    plain = {name: value for name, value in os.environ.items() if name not in ("CI", "RESUMED_TIER")}
    plain["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # which costs as much as all else
    ended = subprocess.run(
        [*command, "--rootdir", folder, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=plain | environ,
        timeout=60,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize(
    ("text", "environ", "code", "line"),
    [
        (PLENTY, {}, 0, "tried: 3 cases, at least 2 (3 cut)"),
        (PLENTY, {"RESUMED_TIER": "torture"}, 0, "control caught 1x: nothing checked"),
        (LITTLE, {}, 1, "tried: 1 cases, at least 2 are wanted"),
        (BLIND, {}, 1, "nothing caught the control, nothing checked"),
        (BARE, {}, 0, "tried: 1 cases"),
        (BARE, {"CI": "1"}, 1, "without a control: tried"),
        (LEFT_OUT, {}, 0, "1 skipped"),
        (LEFT_OUT, {"CI": "1"}, 1, "skipped: "),
        (LEFT_OUT, {"RESUMED_TIER": "full"}, 1, "skipped: "),
        (LEAKING, {}, 1, "3 passed, 2 errors"),
    ],
)
def test_a_run_that_must_be_whole_fails_where_something_is_missing(
    tmp_path: Path, text: str, environ: dict[str, str], code: int, line: str
) -> None:
    found, out = said(tmp_path, text + "\n", **environ)
    assert (found, line in out) == (code, True), out


def test_what_several_processes_counted_is_summed_by_harness() -> None:
    one, other = Cases("tried", 2), Cases("tried", 3)
    one("cut", 4)
    other("cut")
    other("torn")
    one.control("nothing checked", 2)
    one.add(other.told())
    assert str(one) == "tried: 6 cases, at least 5 (5 cut, 1 torn)\n    control caught 2x: nothing checked"

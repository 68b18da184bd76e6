"""SECURITY.md: every harness has its row, every promise is said and tried, and a run's figures come out as counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.faults.cases import Cases
from tests.faults.figures import SECURITY, block, harness_names, names_in, names_of, record
from tests.faults.test_cases import PLENTY, said
from tests.support import ROOT

TEXT = SECURITY.read_text("utf-8")
HERE = Path(__file__).parent
README = (HERE / "README.md").read_text("utf-8")
PROMISES = [f"I{number}" for number in range(1, 13)]


def test_the_figures_have_a_row_for_every_harness_and_no_other() -> None:
    found, rows = harness_names(), names_in(TEXT)
    missing, unknown = sorted(found - set(rows)), sorted(set(rows) - found)
    told = "python -m tests.faults.figures FIGURES.json writes them anew"
    assert not missing, f"SECURITY.md has no row for {', '.join(missing)}; {told}"
    assert not unknown, f"SECURITY.md has a row for {', '.join(unknown)}, and no test has that harness; {told}"
    assert len(rows) == len(set(rows))


def test_the_readme_has_one_row_for_every_harness_that_names_its_file() -> None:
    _, _, *rows = README[README.index("| harness |") :].partition("\n\n")[0].splitlines()
    said = [re.match(r"\| ([^|]+) \(`(test_\w+\.py)`\) \| ", row) for row in rows]
    assert [row for row, found in zip(rows, said, strict=True) if not found] == []
    assert sorted((name, found[2]) for found in said if found for name in found[1].split("; ")) == sorted(
        {(name, path.name) for path in HERE.glob("test_*.py") for name in names_of(path)}
    )


def test_the_files_that_the_readme_names_exist() -> None:
    named = re.findall(r"`((?:[a-z]+/)*\w+\.py)`", README)
    assert named
    assert [name for name in named if not any((folder / name).is_file() for folder in (HERE, ROOT))] == []


def test_every_promise_is_said_once_and_tried() -> None:
    assert re.findall(r"^- \*\*(I\d+)\.\*\* ", TEXT, re.MULTILINE) == PROMISES
    assert re.findall(r"^\| (I\d+) \| .", TEXT, re.MULTILINE) == PROMISES


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_row_has_what_all_runs_counted_and_none_where_nothing_did(tmp_path: Path) -> None:
    one, other = Cases("torn pages"), Cases("cut replies")
    one("cut", 1_200)
    one.control("nothing synced", 3)
    other("short", 7)
    record(tmp_path / "one.json", [one])
    record(tmp_path / "both.json", [one, other])
    runs = [json.loads((tmp_path / f"{name}.json").read_text("utf-8")) for name in ("one", "both")]
    made = block({"torn pages", "not run"}, runs)
    rows = ["| cut replies | 7 |  |", "| not run |  |  |", "| torn pages | 2,400 | 6 |"]
    assert [line for line in made.splitlines() if line.startswith("| ")][1:] == rows
    assert names_in(made) == ["cut replies", "not run", "torn pages"]
    head = r"(?m)^(?:Full run|Run of the size of `\w+`) of 20\d\d-\d\d-\d\d: \d+ cores, .+, commit \S+\."
    assert re.search(head, made)


def test_a_run_writes_its_figures_down_where_it_is_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    code, out = said(tmp_path, PLENTY, RESUMED_FIGURES=str(path), RESUMED_TIER="full")
    assert code == 0, out
    run = json.loads(path.read_text("utf-8"))
    assert (run["tier"], [told["harness"] for told in run["harnesses"]]) == ("full", ["tried"])
    assert block((), [run]).count("| tried | 3 | 1 |\n") == 1
    assert f"\nFull run of {run['date']}: {run['machine']}, commit {run['commit']}.\n" in block((), [run])


def test_names_are_read_from_texts_and_constants() -> None:
    assert "tried" not in harness_names()  # those of texts that are run elsewhere do not count

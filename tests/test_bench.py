"""How the bench counts: turns, ratios, goals, and the table that README.md shows of it."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import BLOCK, README, ROWS, SPANISH, head, main
from tests.bench.lines import HEAD, Line, table
from tests.bench.places import LeftOut, Peer, Places
from tests.bench.spanish import translated
from tests.bench.timing import Ratio, Sample, in_turns, middle, process, ratio

# What is no word of one language.
NAMES = {"status", "asyncio", "tick", "min", "pass", "run", "loopback", "llm", "python"}


def test_takers_take_turns_and_the_first_round_is_dropped() -> None:
    taken: list[str] = []

    def taker(name: str) -> Sample:
        taken.append(name)
        return Sample(len(taken), 0)

    found = in_turns(3, {name: lambda name=name: taker(name) for name in "ab"})
    assert taken == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert {name: [one.wall for one in samples] for name, samples in found.items()} == {"a": [4, 5, 8], "b": [3, 6, 7]}


def test_a_ratio_is_of_pairs_so_that_a_machine_that_slows_down_changes_nothing() -> None:
    noise = [random.Random(7).uniform(1, 9) for _ in range(9)]
    assert ratio([2 * one for one in noise], noise) == Ratio(2, 2, 2)
    assert ratio([3, 4, 5, 6, 20], [1, 2, 1, 2, 2]) == Ratio(3, 3, 5)
    assert ratio([3], [2]) == Ratio(1.5, 1.5, 1.5)
    assert str(Ratio(1.234, 0.5, 12.6)) == "1.23x (0.50 to 13)"


def test_a_process_is_timed_whole_and_its_failure_is_told(tmp_path: Path) -> None:
    busy = process([sys.executable, "-c", "sum(range(3_000_000))"], {}, tmp_path)
    idle = process([sys.executable, "-c", "import time; time.sleep(0.3)"], {}, tmp_path)
    assert idle.wall >= 0.3 > idle.cpu
    assert busy.cpu > idle.cpu
    assert middle([busy, idle, idle]).cpu == idle.cpu
    with pytest.raises(RuntimeError, match="ended with 3: oh"):
        process([sys.executable, "-c", "import sys; print('oh', file=sys.stderr); sys.exit(3)"], {}, tmp_path)


@pytest.mark.parametrize(("value", "words"), [(1.9, "at most 2"), (2.1, "at most 2, **missed**")])
def test_a_goal_that_is_missed_is_told(value: float, words: str) -> None:
    line = Line(measure="cold", beside="bare", shown="x", value=value, goal=2)
    assert table([line]).splitlines()[2] == f"| cold | bare | x | {words} |  |"
    assert Line(measure="cold", beside="bare", shown="x").goal_words == ""


def test_a_peer_that_cannot_be_installed_is_left_out_with_a_word(tmp_path: Path) -> None:
    (tmp_path / "nobody").touch()  # where its environment would be made
    with pytest.raises(LeftOut, match=r"Nobody could not be installed: .*nobody"):
        Places(tmp_path, tmp_path).python(Peer("Nobody", ("nothing",)))


def test_only_measures_that_there_are_can_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "tock"])
    with pytest.raises(SystemExit):
        main()
    assert "there is no measure tock" in capsys.readouterr().err


def test_the_spanish_readme_shows_the_same_run_in_its_own_words() -> None:
    english, spanish = (BLOCK.search(readme.read_text("utf-8")) for readme in (README, SPANISH))
    assert english
    assert spanish
    assert translated(english[0]) == spanish[0]
    shared = {word for word in re.findall("[a-z-]{3,}", english[0]) if re.search(rf"\b{word}\b", spanish[0])}
    assert shared <= NAMES


def test_readme_shows_a_whole_run() -> None:
    found = BLOCK.search(README.read_text("utf-8"))
    assert found
    assert found[0].strip().startswith(head().partition(" on ")[0])
    rows = found[0].strip().splitlines()[2:]
    assert rows[0] == f"| {' | '.join(HEAD)} |"
    measures = "\n".join(rows)
    assert len(ROWS) == 10
    for word in (
        "cold `tick`",
        "cold `run JOB`",
        "4 KB",
        "256 KB",
        "4 MB",
        "idle",
        "ready",
        "due",
        "at once",
        "ledger",
    ):
        assert word in measures

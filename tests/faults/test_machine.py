"""Random walks over the real parts, held against a model of what is promised."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from hypothesis.strategies import SearchStrategy

from scheduler import checkpoint, ledger, state
from scheduler.ledger import Ledger
from scheduler.standing import Record, Version
from scheduler.state import State
from tests.faults import machine_model
from tests.faults.cases import TIER, Begin, sized
from tests.faults.machine import REPLIES, STEPS
from tests.faults.machine_people import Everything
from tests.faults.machine_slices import FINAL

STEPS_A_RUN = 50
NOTHING = ("", "unknown", "refused", "disabled", "moved", "edited", *FINAL, "not due", "nothing to do")
RACES = ("second", "second without lock", "takeover", "interleaved", "one point")
KINDS = ("flip", "junk", "foreign", "six fields", "document", "delete", "delete", "delete", "older", "older", "lock")
replies = st.sampled_from(REPLIES)
# How often each move is tried, and with what.
MOVES: dict[str, tuple[int, tuple[SearchStrategy[Any], ...]]] = {
    "tick": (6, (replies,)),
    "run": (5, (replies,)),
    "call": (3, (replies, st.booleans())),
    "crash": (8, (st.sampled_from(sorted(STEPS)), replies, st.booleans())),
    "race": (5, (st.sampled_from(RACES), replies)),
    "series": (3, (replies,)),
    "step_clock": (6, (st.sampled_from([300, 300, 900, 3600, 86_400, -300, -3600, -86_400]),)),
    "edit": (3, (st.sampled_from(["task", "task", "model", "path", "most", "enabled", "period"]),)),
    "tamper": (
        5,
        (st.sampled_from(KINDS), st.integers(0, 4), st.sampled_from(["ready", *FINAL]), st.integers(0, 9999)),
    ),
    "review": (3, (st.booleans(), st.sampled_from(["right", "right", "right", "another"]))),
    "revise": (2, ()),
    "renew": (8, ()),
    "renew_opening": (1, ()),
    "repair": (3, ()),
    "adopt": (3, ()),
}
moves = st.sampled_from([name for name, (weight, _) in MOVES.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), *MOVES[name][1])
)


class Walks(Everything):
    """As hypothesis leads it."""

    @rule(move=moves)
    def move(self, move: tuple[Any, ...]) -> None:
        """One of all moves: as rules of their own, hypothesis would leave most of them out of most runs."""
        name, *arguments = move
        getattr(self, name)(*arguments)


def walk(runs: int, start: int, *phases: Phase) -> Counter[str]:
    """Walk so many times, always the same for one start; return what came of the moves."""
    Walks.took.clear()
    run_state_machine_as_test(
        seed(start)(Walks),
        _min_steps=STEPS_A_RUN,  # else hypothesis ends some runs early
        settings=settings(
            max_examples=runs,
            stateful_step_count=STEPS_A_RUN,
            database=None,
            deadline=None,
            print_blob=False,
            phases=phases or (Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),  # a step does real work on files, so no run is quick
        ),
    )
    return Walks.took.copy()


def kind_of(move: str) -> str:
    """Return a move by its name, those of people and files together; one that was refused has no name."""
    name, _, came = move.partition(": ")
    return "" if came in NOTHING else move.replace(":", "") if name in ("crash", "review") else name


@pytest.mark.parametrize("shard", range(sized(2, 8, 20)))
def test_whatever_happens_the_promises_hold(harness: Begin, shard: int) -> None:
    runs = sized(6, 125, 500)
    with harness("steps of walks beside a model", runs * STEPS_A_RUN) as case:
        took = walk(runs, shard)
        steps = took.pop("steps")
        assert took.pop("runs") >= runs
        for move, times in took.items():
            if kind := kind_of(move):
                case(kind, times)
        if TIER != "test":  # a walk that leaves a move out proves nothing of it
            wanted = MOVES.keys() - {"crash"} | {f"crash {far}" for far in ("uncounted", "counted", "sent", "saved")}
            assert wanted - {"review"} <= case.kinds.keys()
        case("refused, blocked or not due", steps - case.kinds.total())


def anything_is_behind(path: Path, body: bytes | None, record: Record | None) -> bool:
    return record is not None and body != record.body


def late(self: Ledger, key: str, seen: Version, number: int, outcome: str, body: bytes, *_: object) -> Version:
    with self.writing() as tx:
        tx.execute("UPDATE admission SET outcome = ?, ended_at = 0 WHERE outcome IS NULL", (outcome,))
        return ledger._store(tx, key, seen.allowance, body)


def without_ceiling(state: State, max_attempts: int) -> State:
    return state


@pytest.mark.parametrize(
    ("broken", "places", "variant"),
    [
        ("a damaged file is put right", [(checkpoint, "is_behind")], anything_is_behind),
        ("a late answer is stored over what came in between", [(Ledger, "settle")], late),
        ("spent attempts close no document", [(state, "close"), (checkpoint, "close")], without_ceiling),
    ],
)
def test_walks_find_what_is_broken_on_purpose(
    harness: Begin, monkeypatch: pytest.MonkeyPatch, broken: str, places: list[tuple[Any, str]], variant: Any
) -> None:
    for place, name in places:
        monkeypatch.setattr(place, name, variant)
    with harness("steps of walks beside a model") as case:
        with pytest.raises(AssertionError):
            walk(30, 0, Phase.generate)
        case.control(broken, 1)


def test_the_model_stays_small_and_knows_no_code_of_the_program() -> None:
    text = Path(machine_model.__file__).read_text("utf-8")
    assert len(text.splitlines()) <= 80
    assert "scheduler" not in text

"""The moves of the document: which are legal, and what each leads to."""

from __future__ import annotations

import copy
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.document import dump, parse
from scheduler.state import (
    MAX_STEPS,
    Outcome,
    Sent,
    State,
    admit,
    close,
    is_final,
    is_open,
    new_state,
    raise_attempts,
    same_task,
    settle,
    utc,
)

NOW = "2026-03-02T09:00:00Z"
LATER = "2026-03-02T09:10:00Z"
FAILURES = [outcome for outcome in get_args(Outcome) if outcome != "answered"]


def spent(attempts: int, *, status: str = "ready", open_last: bool = False) -> State:
    """A document with so many attempts that timed out, the last one open if asked."""
    state = new_state("task", "m1")
    for number in range(1, attempts + 1):
        state = admit(state, number, point=None, started=NOW)
        if number < attempts or not open_last:
            state = settle(state, "timeout", finished=LATER, max_attempts=MAX_STEPS + 1)
    state["status"] = status  # type: ignore[typeddict-item]
    state["answer"] = "fin" if status == "done" else None
    return state


def test_a_new_document_is_ready_and_has_nothing_in_it() -> None:
    state = new_state("task", "m1")
    assert (state["attempts"], state["status"], state["answer"], state["history"]) == (0, "ready", None, [])
    assert (state["task"], state["model"], state["conversation"], state["format"]) == ("task", "m1", [], 1)
    assert parse(dump(state)) == state


@pytest.mark.parametrize("attempts", range(MAX_STEPS))
def test_the_one_legal_admission_is_the_next_number(attempts: int) -> None:
    counted = admit(spent(attempts), attempts + 1, point=NOW, started=NOW)
    assert counted["attempts"] == attempts + 1
    assert is_open(counted)
    last = counted["history"][-1]
    assert (last["number"], last["point"], last["started"], last["billed"]) == (attempts + 1, NOW, NOW, "maybe")
    assert (last["outcome"], last["finished"], last["usage"]) == (None, None, None)


def test_an_admission_tells_how_large_the_request_is_where_that_is_known() -> None:
    sent = Sent(tokens=100, model="m1", window=None, cut=[])
    known = admit(spent(0), 1, point=None, started=NOW, sent=sent)
    assert known["history"][0]["request"] == sent
    assert "request" not in admit(spent(0), 1, point=None, started=NOW)["history"][0]


@pytest.mark.parametrize(
    ("state", "number"),
    [
        *((spent(attempts), number) for attempts in range(5) for number in range(-1, 7) if number != attempts + 1),
        (spent(4), 5),
        (spent(2, status="done"), 3),
        (spent(2, status="exhausted"), 3),
        (spent(2, open_last=True), 3),
    ],
)
def test_every_other_admission_is_refused(state: State, number: int) -> None:
    with pytest.raises(ValueError, match="attempt"):
        admit(state, number, point=None, started=NOW)


@pytest.mark.parametrize("outcome", FAILURES)
@pytest.mark.parametrize(("attempts", "limit", "status"), [(1, 4, "ready"), (4, 4, "exhausted"), (2, 2, "exhausted")])
def test_an_attempt_without_an_answer_leaves_ready_or_exhausted(
    outcome: Outcome, attempts: int, limit: int, status: str
) -> None:
    said = [{"role": "assistant", "content": 'status: done, "status": "done"'}]
    settled = settle(
        spent(attempts, open_last=True), outcome, finished=LATER, max_attempts=limit, reason="why", messages=said
    )
    assert settled["conversation"] == said
    assert (settled["status"], settled["answer"], settled["attempts"]) == (status, None, attempts)
    last = settled["history"][-1]
    assert (last["outcome"], last["reason"], last["finished"]) == (outcome, "why", LATER)
    assert parse(dump(settled)) == settled


@pytest.mark.parametrize("attempts", range(1, 5))
def test_an_answer_makes_it_done_even_in_the_last_attempt(attempts: int) -> None:
    settled = settle(spent(attempts, open_last=True), "answered", finished=LATER, max_attempts=attempts, answer="fin")
    assert (settled["status"], settled["answer"], is_final(settled)) == ("done", "fin", True)


@pytest.mark.parametrize(
    ("state", "outcome", "answer"),
    [
        (spent(0), "timeout", None),
        (spent(1), "timeout", None),
        (spent(1, open_last=True), "answered", None),
        *((spent(1, open_last=True), outcome, "fin") for outcome in FAILURES),
    ],
)
def test_a_move_that_no_attempt_leads_to_is_refused(state: State, outcome: Outcome, answer: str | None) -> None:
    with pytest.raises(ValueError, match=r"no attempt is open|an answer"):
        settle(state, outcome, finished=LATER, max_attempts=4, answer=answer)


@pytest.mark.parametrize(
    ("state", "limit", "status"),
    [
        (spent(0), 4, "ready"),
        (spent(3), 4, "ready"),
        (spent(4), 4, "exhausted"),
        (spent(4), 9, "exhausted"),
        (spent(3), 2, "exhausted"),
        (spent(4, open_last=True), 4, "ready"),
        (spent(2, status="done"), 2, "done"),
        (spent(2, status="exhausted"), 4, "exhausted"),
    ],
)
def test_a_ready_document_closes_once_its_attempts_are_spent(state: State, limit: int, status: str) -> None:
    assert close(state, limit)["status"] == status


@pytest.mark.parametrize("known", range(5))
@pytest.mark.parametrize("own", range(5))
def test_attempts_known_elsewhere_only_add(own: int, known: int) -> None:
    raised = raise_attempts(spent(own, open_last=True), known, LATER)
    assert raised["attempts"] == max(own, known)
    assert not is_open(raised)
    added = [entry["outcome"] for entry in raised["history"][max(0, own - 1) :]]
    assert set(added) <= {"interrupted"}
    assert parse(dump(raised)) == raised


def test_no_move_changes_the_document_it_was_given() -> None:
    opened, ended = spent(2, open_last=True), spent(4)
    before = copy.deepcopy((opened, ended))
    settle(opened, "timeout", finished=LATER, max_attempts=2, messages=[{"role": "assistant", "content": "x"}])
    admit(spent(1), 2, point=None, started=NOW)
    raise_attempts(opened, 4, LATER)
    close(ended, 4)
    assert (opened, ended) == before


class Moves(RuleBasedStateMachine):
    """Any sequence of moves, legal or not; a refused one changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.state: State = new_state("task", "m1")
        self.past: State = self.state

    def move(self, made: Any) -> None:
        self.past = self.state
        try:
            self.state = made()
        except ValueError:
            self.state = self.past

    @rule(number=st.integers(-1, 6))
    def admit(self, number: int) -> None:
        self.move(lambda: admit(self.state, number, point=None, started=NOW))

    @rule(outcome=st.sampled_from(get_args(Outcome)), limit=st.integers(1, 9), answer=st.none() | st.text())
    def settle(self, outcome: Outcome, limit: int, answer: str | None) -> None:
        self.move(lambda: settle(self.state, outcome, finished=LATER, max_attempts=limit, answer=answer))

    @rule(limit=st.integers(1, 9))
    def close(self, limit: int) -> None:
        self.move(lambda: close(self.state, limit))

    @precondition(lambda self: not is_final(self.state))
    @rule(attempts=st.integers(0, 4))
    def raise_attempts(self, attempts: int) -> None:
        self.move(lambda: raise_attempts(self.state, attempts, LATER))

    @invariant()
    def attempts_never_fall_nor_exceed_the_ceiling(self) -> None:
        assert self.past["attempts"] <= self.state["attempts"] <= MAX_STEPS

    @invariant()
    def a_final_document_stays_as_it_is(self) -> None:
        assert not is_final(self.past) or self.state == self.past

    @invariant()
    def history_only_grows(self) -> None:
        ended = [entry for entry in self.past["history"] if entry["outcome"] is not None]
        assert self.state["history"][: len(ended)] == ended

    @invariant()
    def the_document_can_be_written_and_read(self) -> None:
        assert parse(dump(self.state)) == self.state


TestMoves = Moves.TestCase
TestMoves.settings = settings(derandomize=True, max_examples=60, stateful_step_count=20, deadline=None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a\nb", "a\r\nb", True),
        ("a\nb", "a\rb", True),
        ("a", "a \n\t\n", True),
        ("a", " a", False),
        ("a b", "a  b", False),
        ("a\nb", "a\n\nb", False),
        ("a \nb", "a\nb", False),
        ("A", "a", False),
        ("é", "e\u0301", False),
    ],
)
def test_tasks_differ_by_more_than_line_ends_and_blanks_at_the_end(one: str, other: str, same: bool) -> None:
    assert same_task(one, other) is same_task(other, one) is same


def test_moments_are_written_in_utc_and_whole_seconds() -> None:
    assert (utc(0), utc(1_772_442_000.9)) == ("1970-01-01T00:00:00Z", "2026-03-02T09:00:00Z")

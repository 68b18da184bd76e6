"""One checkpoint as a reader sees it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.decision import Dispatch, answer_digest, approve, reject
from scheduler.events import made_progress
from scheduler.state import Outcome, Sent, State, admit, new_state, settle
from scheduler.transcript import Act, Archived, acts_text, archive_text, review_text, show_text, state_lines
from tests.test_report import EVIL, NOW, tame


def spent(*outcomes: Outcome, answer: str | None = None, **last: Any) -> State:
    """A document with these outcomes."""
    state = new_state(f"task {EVIL[:-2]}", "m1")
    for number, outcome in enumerate(outcomes, 1):
        state = admit(state, number, point=None, started=NOW)
        more: dict[str, Any] = {"answer": answer, **last} if outcome == "answered" else {"reason": f"why {EVIL[:-2]}"}
        state = settle(state, outcome, finished=NOW, max_attempts=4, **more)
    return state


def test_a_page_shows_task_conversation_attempts_and_answer_and_is_tame() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    lines = (("a.md", 1, 2), ("b.md", 1, 1), ("a.md", 7, 9), ("a.md", 1, 2))
    evidence = [{"file": file, "first": first, "last": last} for file, first, last in lines]
    state = spent("tool_calls", "answered", answer=f"two\nlines {EVIL[:-2]}", usage=usage, finish_reason="odd")
    state["history"][0]["evidence"] = evidence
    state["history"][1]["request"] = Sent(tokens=99, model="m1", window=None, cut=["left out: look {}\x1b"])
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.md"}'}}
    state["conversation"] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": EVIL},
        {"role": "user", "content": "go\non"},
    ]
    page = show_text(state, 4, "/x/a.json", rehearsal=True, edited=True, reads=True, conversation=True)
    assert tame(page)
    assert "None" not in page
    for words in (
        "REHEARSAL",
        "\n  user: go\n    on",
        "done, 2 of 4 attempts, model m1",
        "\n\nTASK\n  task ",
        "task edited since",
        'assistant calls read_file {"path": "a.md"}',
        "1. 2026-03-02T09:00:00Z to 2026-03-02T09:00:00Z: tool_calls; why",
        "tokens unknown",
        "12 tokens",
        "read a.md:1-2",
        f"ANSWER (unreviewed, SHA-256 {answer_digest(state['answer'] or '')[:12]})\n  two\n  lines",
        "\n  spent: 9 tokens in, 3 tokens out; cost unknown without price; 1 attempt of unknown cost\n",
        "EVIDENCE\n  a.md: lines 1-2, 7-9\n  b.md: lines 1-1\n  DOUBT: finish reason odd is unknown",
        "2. 2026-03-02T09:00:00Z to 2026-03-02T09:00:00Z: answered",
        "     cut from its request: left out: look {}\\x1b",
    ):
        assert words in page


def test_an_answer_without_reading_is_marked_and_a_new_job_has_nothing_to_show() -> None:
    done = spent("answered", answer="fin")
    page = show_text(done, 4, "/x", rehearsal=False, edited=False, reads=True)
    assert "EVIDENCE\n  (none)\n  DOUBT: no evidence" in page
    assert "no evidence" not in show_text(done, 4, "/x", rehearsal=False, edited=False, reads=False)
    page = show_text(new_state("t", "m1"), 4, "/x", rehearsal=False, edited=False, reads=True)
    assert page.count("(none)") == 1
    assert "ANSWER" not in page
    assert "REHEARSAL" not in page
    assert "edited" not in page


@pytest.mark.parametrize(
    ("state", "words", "progress"),
    [
        (new_state("t", "m1"), "state: ready, 0 attempts, model m1", False),
        (spent("timeout"), "last attempt: timeout: why", False),
        (spent("tool_calls"), "last attempt: tool_calls", True),
        (spent("timeout", "length"), "state: ready, 2 attempts", True),
        (spent("answered", answer=f"fin {EVIL[:-2]}"), "answer (unreviewed): fin", True),
        (spent("timeout", "timeout", "timeout", "tool_calls"), "state: exhausted, 4 attempts", False),
    ],
)
def test_the_state_in_two_lines_and_whether_it_goes_on(state: State, words: str, progress: bool) -> None:
    assert words in state_lines(state)
    assert tame(state_lines(state))
    assert made_progress(state) is progress


def test_an_attempt_in_flight_is_shown_as_open() -> None:
    flying = admit(new_state("t", "m1"), 1, point=None, started=NOW)
    page = show_text(flying, 4, "/x", rehearsal=False, edited=False, reads=False)
    assert f"  1. {NOW} to (open): in flight; billed: " in page


def test_what_was_set_aside_is_listed_with_why_and_by_whom() -> None:
    text = archive_text([Archived(allowance=2, at=1_772_442_000, who="ann", reason=f"again\n{EVIL}")])
    assert "2026-03-02T09:00:00Z by ann, allowance 2: again" in text
    assert tame(text)
    assert archive_text([]) == ""


def test_the_conversation_is_shown_only_if_asked_for_and_a_long_task_is_cut() -> None:
    state = spent("answered", answer="fin")
    state["conversation"] = [{"role": "user", "content": "a turn"}]
    state["task"] = "\n".join(f"line {number}" for number in range(1, 40))
    page = show_text(state, 4, "/x", "\nACTS\n  one\n", rehearsal=False, edited=False, reads=False)
    assert "a turn" not in page
    assert "line 12\n  … (the whole: resumed show JOB --task)\n\nANSWER" in page
    assert "line 13" not in page
    assert page.endswith("\nACTS\n  one")


def test_review_delivery_and_acts_are_listed_with_who_when_and_why() -> None:
    done = approve(spent("answered", answer="fin"), note=f"good {EVIL}", who="ann", when=NOW)
    row = {"target": f"./send {EVIL}", "who": "ann", "started_at": 1_772_442_000}
    dispatches = [
        Dispatch(number=1, result="failed", detail=f"exit 3 {EVIL}", **row),
        Dispatch(number=2, result="unknown", detail="", **row),
        Dispatch(number=3, result=None, detail="", **row),
    ]
    text = review_text(done, dispatches, "")
    assert tame(text)
    for words in (
        f"approved {NOW} by ann: good",
        "1. 2026-03-02T09:00:00Z by ann to ./send",
        "delivery failed: exit 3",
        ": delivery unknown\n",
        ": being delivered\n",
    ):
        assert words in text
    assert review_text(spent("timeout"), [], "") == ""
    assert "to come" in review_text(spent("answered", answer="fin"), [], "to come")
    act = Act(at=1_772_442_000, command="renew", detail="allowance 2", reason=f"again {EVIL}", who="ann")
    text = acts_text([act])
    assert "ACTS\n  2026-03-02T09:00:00Z by ann: renew, allowance 2: again" in text
    assert tame(text)
    assert acts_text([]) == ""


@pytest.mark.parametrize(("attempts", "status"), [(("answered",), "ready"), (("timeout",) * 3 + ("answered",), "done")])
def test_a_rejected_answer_is_told_as_such(attempts: tuple[Outcome, ...], status: str) -> None:
    rejected = reject(spent(*attempts, answer="fin"), note="no", who="ann", when=NOW, max_attempts=4)
    assert rejected["status"] == status
    page = show_text(rejected, 4, "/x", rehearsal=False, edited=False, reads=False)
    assert ("ANSWER (rejected" in page) is (status == "done")

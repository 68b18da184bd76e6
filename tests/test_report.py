"""What people read: aligned, on one line where it should be, and never able to act on a terminal."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cost import Most
from scheduler.events import event_level, event_line
from scheduler.job import Problem
from scheduler.outlook import Outlook, change_mark, check_totals, outlook_text
from scheduler.report import (
    JobRow,
    RestRow,
    Survey,
    edited_since,
    problem_line,
    survey_json,
    survey_table,
    unknown_name,
)
from scheduler.state import PROGRESS, Outcome
from scheduler.text import dots, first_difference, indent, json_text, one_line, printable, table

NOW, LATER = "2026-03-02T09:00:00Z", "2026-03-04T09:00:00Z"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
EVIL = "\x00\x07\x08\x1b[2J\x1b]0;title\x07\r\x7f\x85\x9b31m\u200b\u200e\u202e\u2028\u2029\u2066\ufeff\ud800\U000e0041"


def tame(text: str) -> bool:
    """Whether a text can do nothing to a terminal but print and go to the next line."""
    return all(char in "\n\t\u00a0" or unicodedata.category(char)[0] not in "CZ" or char == " " for char in text)


# ---- text


@pytest.mark.parametrize(
    "code", [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F)]
)
def test_control_and_direction_characters_are_escaped(code: int) -> None:
    shown = printable(f"a{chr(code)}b")
    if chr(code) in "\n\t":
        assert shown == f"a{chr(code)}b"
    else:
        assert shown == f"a\\x{code:02x}b" if code < 256 else shown == f"a\\u{code:04x}b"


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("\u2066", "\\u2066"),
        ("\u2028", "\\u2028"),
        ("\ufeff", "\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_is_escaped_is_named_by_its_code(character: str, shown: str) -> None:
    assert printable(character) == shown


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.text())
def test_any_text_becomes_tame_and_plain_text_stays(text: str) -> None:
    shown = printable(text)
    assert tame(shown)
    shown.encode()
    assert printable(shown) == shown
    line = one_line(text, 30)
    assert "\n" not in line
    assert "\t" not in line
    assert len(line) <= 30
    assert tame(line)
    if text.isascii() and text.isprintable():
        assert shown == text


def test_a_long_line_is_cut_with_a_mark_and_a_short_one_is_not() -> None:
    assert one_line("x" * 100) == "x" * 100
    assert one_line("x" * 101) == "x" * 99 + "…"
    assert one_line(" a\r\n\t b \u2028 c ", 9) == "a b c"


CELLS = [
    "plain",
    "日本語",
    "e\u0301té",
    "\uff46\uff55",
    "한글",
    "สวัสดี ครับ ที่นี่",
    "हिन्दी",
    "",
    "x" * 12,
    "emoji 🎉",
]


def columns(text: str) -> int:
    """How many columns of a terminal a text takes: marks none, wide characters two."""
    wide = {"W": 2, "F": 2}
    return sum(
        0 if unicodedata.category(char) in ("Mn", "Me") else wide.get(unicodedata.east_asian_width(char), 1)
        for char in text
    )


def test_columns_line_up_whatever_the_script() -> None:
    lines = table([("JOB", "STATE", "LAST")] + [(cell, "|", "end") for cell in CELLS]).split("\n")
    starts = {columns(line[: line.index("|")]) for line in lines[1:]}
    assert starts == {max(map(columns, CELLS)) + 2}
    assert all(line == line.rstrip() for line in lines)
    assert len({columns(line[: line.index("end")]) for line in lines[1:]}) == 1


def test_an_empty_table_is_nothing() -> None:
    assert table([]) == ""


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    )
)
def test_json_for_people_is_tame_and_reads_back_the_same(value: Any) -> None:
    text = json_text(value)
    assert tame(text)
    assert "\u00a0" not in text
    assert json.loads(text) == value


def test_json_for_people_shows_letters_as_they_are() -> None:
    assert json_text({"é": "日本\x1b\u202e\\"}) == '{\n  "é": "日本\\u001b\\u202e\\\\"\n}'


@pytest.mark.parametrize(
    ("saved", "current", "words"),
    [
        (
            "Summarise the log",
            "Summarise the logs",
            'line 1, column 18: it was "Summarise the log", it is "Summarise the logs"',
        ),
        ("a\nb\nc d", "a\nb\nc x", "line 3, column 3"),
        ("", "x", 'line 1, column 1: it was "(nothing)", it is "x"'),
        ("x", "", 'it is "(nothing)"'),
        ("a\n", "a\nb", "line 2, column 1"),
        ("x\x1b[2J", "y", "x\\x1b[2J"),
    ],
)
def test_where_two_texts_part_is_named_with_what_stands_there(saved: str, current: str, words: str) -> None:
    assert words in first_difference(saved, current)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.text(), st.text(), st.text())
def test_a_difference_is_one_short_tame_line(before: str, one: str, other: str) -> None:
    told = first_difference(before + one, before + other)
    assert "\n" not in told
    assert len(told) < 200
    assert tame(told)


def test_attempts_are_dots() -> None:
    assert [dots(n, 4) for n in (0, 2, 4)] == ["○○○○", "●●○○", "●●●●"]
    assert dots(3, 2) == "●●●"


# ---- events

SETTLED = {"event": "settled", "attempt": 2, "of": 4, "reason": None, "answer": None, "status": "ready"}
GOING_ON = {"refused": "asked again once", "context_too_long": "no request of this size is sent again"}
EVENTS: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "admitted": (
        {"event": "admitted", "attempt": 1, "of": 4, "point": None, "cut": 0},
        "info",
        ["attempt 1 of 4: counted, asking"],
    ),
    "cut": (
        {"event": "admitted", "attempt": 3, "of": 4, "point": None, "cut": 2},
        "info",
        ["attempt 3 of 4: counted, asking", "2 older results or turns"],
    ),
    "tool": (
        {"event": "tool_result", "name": "read_file", "arguments": '{"path": "a.md"}', "ok": True},
        "info",
        ["read_file", "a.md", "read"],
    ),
    "refused tool": (
        {"event": "tool_result", "name": EVIL, "arguments": EVIL + "x" * 999, "ok": False},
        "info",
        ["refused"],
    ),
    "missing": (
        {"event": "put_back", "missing": True, "attempt": 2, "of": 4},
        "warning",
        ["missing", 'put back at attempt 2 of 4; "resumed renew" starts a new allowance'],
    ),
    "older": ({"event": "put_back", "missing": False, "attempt": 2, "of": 4}, "warning", ["older", "attempt 2 of 4"]),
    "interrupted": ({"event": "interrupted", "attempt": 2, "of": 4}, "warning", ["attempt 2 of 4", "stays counted"]),
    "retaken": ({"event": "retaken"}, "info", ["task or model changed"]),
    "closed": ({"event": "closed", "attempts": 3, "of": 2}, "warning", ["3 attempts are spent", "max_attempts is 2"]),
    "missed": (
        {"event": "missed", "why": "catch_up is false", "first": NOW, "last": NOW, "count": 1},
        "warning",
        [f"the point {NOW} was missed, and catch_up is false; no slice makes up for it"],
    ),
    "made_up": (
        {"event": "made_up", "first": NOW, "last": LATER, "count": 3},
        "warning",
        [f"the points from {NOW} to {LATER} (3) were missed; one slice makes up for them"],
    ),
    "uncounted": (
        {"event": "made_up", "first": NOW, "last": LATER, "count": 1000},
        "warning",
        ["(1000 or more)"],
    ),
    "answered": (
        SETTLED | {"outcome": "answered", "answer": f"fin {EVIL}", "status": "done"},
        "info",
        ["2 of 4", "fin"],
    ),
    "exhausted": (SETTLED | {"outcome": "tool_calls", "status": "exhausted"}, "warning", ["no attempt is left"]),
    **{
        f"settled {outcome}": (
            SETTLED | {"outcome": outcome, "reason": f"503: {EVIL}\nsecond line"},
            "info" if outcome in PROGRESS else "warning",
            [outcome, "503", "second line", GOING_ON.get(outcome, "the next slice goes on")],
        )
        for outcome in get_args(Outcome)
        if outcome != "answered"
    },
}


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_one_tame_line_and_its_level(name: str) -> None:
    event, level, words = EVENTS[name]
    line = event_line("nightly", event)
    assert line.startswith("job nightly: ")
    assert all(word in line for word in words)
    assert "\n" not in line
    assert len(line) < 500
    assert tame(line)
    assert event_level(event) == level
    assert event_line("", event) == line.removeprefix("job nightly: ")


# ---- pages


ROWS = [
    JobRow(id="a", state="ready", attempts=2, next_point="2026-03-03T09:00:00+00:00", outcome="timeout", reason=EVIL),
    JobRow(id="longer-name", state="done", attempts=1, answer=f"the answer\n{EVIL}", outcome="answered"),
    JobRow(id="c", state="blocked", max_attempts=2, reason="line 4: bad", rehearsal=True),
]


def survey(*rows: JobRow, config: str = "/x/jobs.yaml", live: bool = True) -> Survey:
    """What status tells."""
    rests = [
        RestRow(provider="local", model="", until="2026-03-02T10:00:00Z", reason=f"429 {EVIL}", folder="/x"),
        RestRow(provider="other", model="m1", until=None, reason="404", folder="/x"),
    ]
    return Survey(config=config, live=live, jobs=rows, rests=rests)


def test_status_is_a_line_a_job_under_its_heads() -> None:
    lines = survey_table(survey(*ROWS)).split("\n")
    assert lines[0].startswith("/x/jobs.yaml  (live)")
    assert lines[1].startswith("RESTS: provider local until 2026-03-02T10:00:00Z: 429")
    assert "provider other, model m1" in lines[2]
    assert "resumed unblock other" in lines[2]
    assert len(lines) == 4 + len(ROWS)
    heads = [lines[3].index(head) for head in ("JOB", "STATE", "ATTEMPTS", "LAST OUTCOME", "NEXT POINT", "REASON OR")]
    cells = ("a", "ready", "●●○○", "timeout", "2026-03-03T09:00:00+00:00", "\\x00")
    assert [lines[4].index(cell, at) for cell, at in zip(cells, heads, strict=True)] == heads
    assert "unreviewed: the answer" in lines[5]
    assert "●○○○" in lines[5]
    assert "REHEARSAL line 4: bad" in lines[6]
    assert "○○" in lines[6]
    assert all(tame(line) for line in lines)


def test_status_says_where_nothing_is_sent_and_is_tame_whatever_the_path() -> None:
    assert "live: false" in survey_table(survey(live=False)).split("\n")[0]
    assert tame(survey_table(survey(config="/tmp/\x1b[2J/jobs.yaml")))


def test_status_as_json_reads_back_every_field() -> None:
    told = json.loads(survey_json(survey(*ROWS[1:], config="/é")))
    assert (told["config"], told["live"], len(told["rests"])) == ("/é", True, 2)
    assert set(told["jobs"][0]) == {
        *("id", "state", "attempts", "max_attempts", "schedule", "next_point", "last_point", "outcome", "reason"),
        *("model", "provider", "rehearsal", "checkpoint", "answer", "review", "delivery", "running_since"),
    }
    assert (told["jobs"][0]["answer"], told["jobs"][1]["answer"]) == (ROWS[1].answer, None)
    assert tame(survey_json(survey(*ROWS)))


def test_the_answer_to_another_task_is_not_shown() -> None:
    row = edited_since(ROWS[1])
    assert (row.answer, row.state) == (None, "done")
    assert "task edited since" in survey_table(survey(row))
    assert "the answer" not in survey_table(survey(row))


def outlook(**changed: Any) -> Outlook:
    """What lies ahead of a job."""
    moment = datetime(2026, 3, 29, 1, tzinfo=UTC)
    fields: dict[str, Any] = {
        "id": "nightly",
        "status": "ready",
        "words": "each day at 01:00",
        "timezone": "UTC",
        "checkpoint": "/x/nightly.json",
        "rehearsal": False,
        "left": 3,
        "max_attempts": 4,
        "points": [(moment, "clock forward 1 h"), (moment + timedelta(days=1), "")],
        "more": True,
        "last": moment + timedelta(days=9),
        "most": Most(requests=3),
        "notes": [f"something {EVIL}"],
    }
    return Outlook(**(fields | changed))


def test_what_lies_ahead_in_lines() -> None:
    text = outlook_text(outlook())
    assert "nightly: each day at 01:00 (UTC); 3 of 4 requests left, the last possible one at 2026-04-07" in text
    assert "2026-03-29 01:00:00+00:00  <- clock forward 1 h\n" in text
    assert "2026-03-30 01:00:00+00:00\n" in text
    assert "note: something" in text
    assert "2 are shown" in text
    assert tame(text)
    final = outlook_text(outlook(status="done", left=0, rehearsal=True))
    assert "done, no request will follow" in final
    assert "(REHEARSAL)" in final
    assert "2026-03-29" not in final
    assert "no point lies ahead" in outlook_text(outlook(points=[], last=None))
    rests = outlook_text(outlook(status="disabled"))
    assert "disabled, and keeps its 3 of 4 requests left" in rests
    assert "2026-03-29" not in rests


def test_the_last_line_of_check_sums_up_what_all_jobs_can_send() -> None:
    some = [outlook(most=Most(requests=3, tokens=3000, amount=1.5, currency="EUR")), outlook(most=Most(requests=0))]
    assert check_totals(some, 7, None) == "in all: within 7 days at most 3 requests, 3000 tokens, 1.50 EUR"
    assert check_totals(some[1:], 1, 0) == "in all: within 1 day at most 0 requests"
    assert check_totals(some, None, 3).startswith("in all: at most 3 requests")
    assert check_totals(some, None, 3).endswith("EUR")
    assert check_totals(some, None, 2).endswith("1.50 EUR; budget.requests_per_day (2) may hold some back")
    assert "    within 1 day at most 3 requests" in outlook_text(outlook(days=1))


def test_clock_changes_say_which_way_and_how_far() -> None:
    hour = timedelta(hours=1)
    assert (change_mark(hour, 2 * hour), change_mark(2 * hour, hour)) == ("clock forward 1 h", "clock back 1 h")
    assert change_mark(hour, hour * 1.5) == "clock forward 0.5 h"


def test_a_problem_is_told_with_its_place() -> None:
    problem = Problem(file="/x/jobs.yaml", line=3, column=5, job="nightly", message=f"bad {EVIL}", hint="quote it")
    assert problem_line(problem).startswith("/x/jobs.yaml:3:5: job nightly: bad ")
    assert problem_line(problem).endswith(" (quote it)")
    assert tame(problem_line(problem))
    mild = Problem(file="f", line=1, column=1, job=None, message="m", severity="warning")
    assert problem_line(mild) == "f:1:1: warning: m"


def test_an_unknown_name_comes_with_the_nearest_or_the_known_ones() -> None:
    assert unknown_name("f", "job", "nightli", ["nightly", "b"]) == "f has no job nightli; did you mean nightly?"
    assert unknown_name("f", "job", "zzz", ["nightly", "b"]) == "f has no job zzz; it has nightly, b"


def test_every_line_is_set_in() -> None:
    assert indent("a\n\nb") == "  a\n  \n  b"

"""A task that is repeated on purpose: one opening a point, each with four attempts of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine

from scheduler.job import Job, Provider, Series
from scheduler.openings import Course, Opening, opening_job, opening_name
from scheduler.series import next_move
from tests.faults.killed_at import forked
from tests.support import ChatServer, Project, answer, chat_server, tool_calls
from tests.test_bad_input import KEY, Told, ran
from tests.test_daemon import service

GOES_ON = tool_calls(("c1", "read_file", "{}"))  # progress, so that nothing delays the next point
BERLIN = ZoneInfo("Europe/Berlin")
DAILY = {"opens": "30 2 * * *", "times": 60}  # on the day of the clock change, within the hour that comes twice
WEEKLY = {
    "task": "Report of {opening}",
    "checkpoint": "checkpoints/report-{opening}.json",
    "schedule": "every 1m",
    "series": DAILY,
}


@pytest.fixture
def series(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project whose commands run in this process, at a time of the test's."""
    monkeypatch.setenv("LOCAL_KEY", KEY)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield project
    for number, handler in handlers.items():
        signal.signal(number, handler)


def command(project: Project, at: datetime, *arguments: str, code: int = 0) -> Told:
    """Run one command in this process when the clock says so."""
    with time_machine.travel(at):
        told = ran("--config", project.config, *arguments)
    assert told.code == code, (at, told)
    return told


def points(project: Project) -> list[int]:
    return [point for (point,) in project.rows("SELECT point FROM opening ORDER BY number")]


def asked(chat: ChatServer) -> Counter[str]:
    """Count the requests of each opening."""
    tasks = [str(request["messages"][1]["content"]).split("\n")[0] for request in chat.requests]
    return Counter(task.removeprefix("Report of ") for task in tasks)


def write(project: Project, url: str, **entry: Any) -> None:
    project.live(url, {"report": {**WEEKLY, **entry}}, after_failure=[], timezone="Europe/Berlin")


def half_past_two(day: int) -> datetime:
    """The point of a day, counted from 24 September 2026; the clock goes back on day 31."""
    local = datetime.combine(datetime(2026, 9, 24) + timedelta(days=day), time(2, 30), BERLIN)
    return local.astimezone(UTC)


SEEN = half_past_two(0) + timedelta(hours=1)  # no point before counts

# ---- a run of sixty openings


def open_and_answer(project: Project, chat: ChatServer, day: int) -> None:
    """Tick before the point, at it, and twice after it."""
    for seconds in (-60, 5, 70, 3605):
        command(project, half_past_two(day) + timedelta(seconds=seconds), "tick")


def killed(project: Project, chat: ChatServer, day: int, step: str) -> None:
    """Kill the program at a step of the opening's first tick, then go on."""
    [ended] = forked(project, ["tick"], steps=[step], at=half_past_two(day) + timedelta(seconds=5))
    assert ended.code == -signal.SIGKILL, ended.err
    for minutes in (2, 4):
        command(project, half_past_two(day) + timedelta(minutes=minutes), "tick")


def failed(project: Project, chat: ChatServer, day: int) -> str:
    """Let the model give nothing four times; return the id of the opening."""
    chat.script = [answer("")]
    for minutes in range(4):
        command(project, half_past_two(day) + timedelta(minutes=minutes, seconds=5), "tick", code=69)
    chat.script = [answer("fin")]
    return f"report@{opening_name(DAILY['opens'], int(half_past_two(day).timestamp()))}"  # type: ignore[arg-type]


def test_sixty_openings_over_a_clock_change_each_once_and_never_a_fifth_request(series: Project) -> None:
    days = list(range(1, 61))
    with chat_server() as chat:
        write(series, chat.url)
        command(series, SEEN, "tick")
        assert chat.count == 0
        kills = {3: "opening-inside", 5: "opening-after", 7: "admit-after", 9: "ask-after", 11: "save-after"}
        day = 0
        while len(points(series)) < 60:
            day += 1
            now = half_past_two(day)
            if day in kills:
                killed(series, chat, day, kills[day])
            elif day == 15:
                opening = failed(series, chat, day)
            elif day in (16, 17):  # it ended with the one that failed
                told = command(series, now + timedelta(minutes=5), "tick", code=65)
                told.one_line("report:", f"{opening} is exhausted", f"resumed renew {opening} --reason TEXT --confirm")
                folded = command(series, now + timedelta(minutes=6), "status").out.splitlines()[-1]
                assert folded.split()[:3] == ["report", "exhausted", "●●●●"]
                assert f"15 of 60 opened, 14 answered; EXHAUSTED: {opening}" in folded
                if day == 17:
                    renewing = ("renew", opening, "--reason", "the model was down", "--confirm", opening)
                    command(series, now + timedelta(hours=1), *renewing)
                    command(series, now + timedelta(hours=2), "tick")
                    command(series, now + timedelta(hours=3), "tick")
            elif 20 <= day < 25:
                continue  # the machine is off
            elif day == 25:
                told = command(series, now + timedelta(hours=9), "tick")
                told.one_line(
                    "points from", "missed; one opening makes up", half_past_two(20).strftime("%Y-%m-%dT%H:%M:%SZ")
                )
                assert half_past_two(25).strftime("%Y-%m-%dT%H:%M:%SZ") in told.err
                command(series, now + timedelta(hours=10), "tick")
            elif day == 40:
                chat.script = [GOES_ON]
                command(series, now + timedelta(seconds=5), "tick")
                chat.script = [answer("fin")]
            elif day == 41:
                told = command(series, now + timedelta(seconds=5), "tick")
                [line] = [line for line in told.err.splitlines() if "job report: " in line]
                assert "skipped, and not opened later" in line
                assert now.strftime("%Y-%m-%dT%H:%M:%SZ") in line
                command(series, now + timedelta(hours=1), "tick")
            else:
                open_and_answer(series, chat, day)
        days = [one for one in range(1, day + 1) if one not in (16, 17, 20, 21, 22, 23, 24, 41)]
        assert points(series) == [int(half_past_two(one).timestamp()) for one in days]
        counts, last = asked(chat), half_past_two(day)
        for later in (1, 2):
            command(series, last + timedelta(days=later), "tick")
        assert asked(chat) == counts
        table = command(series, last + timedelta(days=2), "status").out
        assert "60 of 60 opened, 60 answered; the newest unreviewed" in table
        assert len(table.splitlines()) == 3
        found = json.loads(command(series, last + timedelta(days=2), "status", "--json").out)["series"][0]
    fields = "id state number times answered exhausted next_opening reason rehearsal openings"
    assert list(found) == fields.split()
    extra = {15: 5, 7: 1, 9: 2, 40: 2}  # the renewed one has an allowance of its own, and "admit-after" sent nothing
    assert [counts.pop(row["id"].partition("@")[2]) for row in found["openings"]] == [extra.get(one, 1) for one in days]
    assert not counts
    assert {row["state"] for row in found["openings"]} == {"done"}
    attempts = series.rows("SELECT count(*) FROM admission GROUP BY checkpoint, allowance")
    assert max(attempts) == (4,)
    assert series.rows("SELECT DISTINCT status FROM opening") == [("done",)]
    begun = "SELECT job FROM job JOIN opening ON job = series || '@' || opening WHERE since != opened_at"
    assert series.rows(begun) == [(opening,)]  # but for the renewed one, even where the program was killed after it


def test_the_day_without_that_hour_has_its_opening_right_after_it(series: Project, chat: ChatServer) -> None:
    write(series, chat.url)
    for day in (27, 28, 29, 30):
        for hour, minute in ((0, 29), (0, 31), (1, 1), (1, 31), (2, 1)):
            command(series, datetime(2026, 3, day, hour, minute, tzinfo=UTC), "tick")
    assert [name for (name,) in series.rows("SELECT opening FROM opening ORDER BY number")] == [
        "2026-03-27T0130Z",
        "2026-03-28T0130Z",
        "2026-03-29T0100Z",
        "2026-03-30T0030Z",
    ]
    assert chat.count == 4


def test_the_clock_of_a_machine_that_ran_ahead_leaves_each_point_one_opening(series: Project, chat: ChatServer) -> None:
    write(series, chat.url)
    command(series, SEEN, "tick")
    for day in (3, 1, 2, 3, 4):
        for minutes in (0, 5):
            command(series, half_past_two(day) + timedelta(minutes=minutes), "tick")
    assert points(series) == [int(half_past_two(day).timestamp()) for day in (3, 1, 2, 4)]
    assert set(asked(chat).values()) == {1}


def test_processes_that_race_open_one_and_send_one_request(series: Project) -> None:
    with chat_server() as chat:
        write(series, chat.url)
        command(series, SEEN, "tick")
        ends = forked(series, *[["tick"]] * 4, together=True, at=half_past_two(1))
        assert [ended.code for ended in ends] == [0] * 4, ends
        assert points(series) == [int(half_past_two(1).timestamp())]
        assert chat.count == 1
        assert sum("is open" in ended.err for ended in ends) == 0  # without a terminal only warnings are said


def test_a_daemon_opens_the_next_after_the_answer_and_takes_a_new_series_over(project: Project) -> None:
    often = {**WEEKLY, "schedule": "every 1s", "series": {"opens": "every 2s", "times": 3}}
    with chat_server() as chat:
        project.live(chat.url, {"nightly": {}})
        with service(project) as daemon:
            project.live(chat.url, {"nightly": {}, "report": often})
            daemon.wait_line("job report: it is done")
            daemon.stop()
        opened = [line.split()[5] for line in daemon.lines("is open, ")]
        assert len(set(opened)) == 3
        assert chat.count == 3
        assert list(asked(chat)) == opened
        assert {project.document(f"report-{name}")["answer"] for name in opened} == {"fin"}


def test_a_daemon_until_done_ends_with_the_series(project: Project) -> None:
    often = {**WEEKLY, "schedule": "every 1s", "series": {"opens": "every 3s", "times": 2}}
    with chat_server(answer("fin"), answer(""), answer("fin")) as chat:
        project.live(chat.url, {"report": {**often, "max_attempts": 1}})
        with service(project, "--until-done") as daemon:
            assert daemon.ended() == 65
            [line] = daemon.lines("is exhausted and ends it")
        name = line.partition("opening ")[2].split()[0]
        project.run("renew", name, "--reason", "again", "--confirm", name)
        with service(project, "--until-done") as daemon:
            assert daemon.ended() == 0
        assert chat.count == 3


def test_a_daemon_until_done_ends_where_an_opening_is_blocked(project: Project) -> None:
    often = {**WEEKLY, "schedule": "every 1s", "series": {"opens": "every 1s", "times": 9}}
    with chat_server(GOES_ON) as chat:
        project.live(chat.url, {"report": often})
        project.run("tick")
        project.live(chat.url, {"report": {**often, "task": "Another one"}})
        with service(project, "--until-done") as daemon:
            assert daemon.ended() == 65
            assert len(daemon.lines("the task differs")) == 1
        assert chat.count == 1


# ---- the rule

SINCE = int(half_past_two(0).timestamp()) - 3600
FIRST = Opening(
    number=1, point=SINCE + 3600, opening="2026-09-24T0030Z", checkpoint="x", status="done", passed=SINCE + 3600
)


def pattern(**changed: Any) -> Job:
    fields: dict[str, Any] = {"id": "report", "task": "t", "checkpoint": Path("/x/report-{opening}.json")}
    fields |= {"provider": Provider(name="demo", base_url=None), "timezone": "Europe/Berlin"}
    return Job(**(fields | {"series": Series(opens="30 2 * * *", times=3)} | changed))


def course(**changed: Any) -> Course:
    return replace(Course(since=SINCE, noted=True, newest=FIRST, unanswered=()), **changed)


READY = replace(FIRST, status="ready")
FUTURE = replace(FIRST, passed=SINCE + 400 * 86400)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("changed", "found", "after", "kind", "first", "last"),
    [
        ({}, {"newest": None}, timedelta(0), "open", 0, 0),
        ({}, {"newest": None}, timedelta(seconds=-1), None, 0, 0),
        ({}, {}, timedelta(hours=23), None, 0, 0),
        ({}, {}, DAY, "open", 1, 1),
        ({}, {}, 5 * DAY + timedelta(hours=1), "open", 1, 5),
        ({}, {"since": SINCE + 3 * 86400}, 5 * DAY, "open", 3, 5),
        ({}, {"newest": READY}, 2 * DAY, "skip", 1, 2),
        ({}, {"newest": replace(READY, status="exhausted")}, DAY, "skip", 1, 1),
        ({}, {"moved": True}, DAY, "skip", 1, 1),
        ({}, {"newest": replace(FIRST, passed=FIRST.point + 86400)}, DAY, None, 0, 0),
        ({}, {"newest": replace(FIRST, number=3)}, DAY, None, 0, 0),
        ({"enabled": False}, {}, DAY, None, 0, 0),
        ({"catch_up": False}, {}, DAY + timedelta(seconds=60), "open", 1, 1),
        ({"catch_up": False}, {}, DAY + timedelta(seconds=600), "miss", 1, 1),
        ({"not_after": FIRST.point + 86400}, {}, 5 * DAY, "miss", 1, 1),
        ({"not_after": FIRST.point + 86400}, {}, DAY, "open", 1, 1),
        ({"not_before": FIRST.point + 2 * 86400}, {}, 5 * DAY, "open", 2, 5),
        ({"not_before": FIRST.point + 2 * 86400}, {}, DAY, None, 0, 0),
        ({}, {"newest": FUTURE}, DAY, "open", 0, 1),
    ],
)
def test_what_is_done_about_the_newest_point(
    changed: dict[str, Any], found: dict[str, Any], after: timedelta, kind: str | None, first: int, last: int
) -> None:
    now = half_past_two(0) + after
    move = next_move(pattern(**changed), course(**found), now.timestamp())
    assert (move.kind if move else None) == kind
    if move:
        assert (move.first, move.point) == tuple(int(half_past_two(day).timestamp()) for day in (first, last))


def test_points_that_are_skipped_one_after_the_other_are_a_warning_once_a_day(series: Project) -> None:
    with chat_server(GOES_ON) as chat:
        write(series, chat.url, series={"opens": "0 * * * *", "times": 60}, schedule="0 0 1 1 *")
        command(series, SEEN, "tick")
        command(series, SEEN + timedelta(hours=1), "tick")  # it opens, and waits for the point of its slices
        said = [command(series, SEEN + timedelta(hours=hours), "tick").err for hours in range(2, 50)]
    skipped = [line for err in said for line in err.splitlines() if "skipped, and not opened later" in line]
    assert len(skipped) == 3
    assert len({line[:10] for line in skipped}) == 3
    assert series.rows("SELECT count(*) FROM opening") == [(1,)]


def test_the_point_of_an_hour_that_is_left_out_opens_right_after_it() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
    for minutes, kind in ((-1, None), (0, "open"), (600, "open")):
        now = datetime(2026, 3, 29, 1, tzinfo=UTC) + timedelta(minutes=minutes)
        move = next_move(pattern(), course(since=int(before), newest=None), now.timestamp())
        assert (move.kind if move else None) == kind
        if move:
            assert opening_name("30 2 * * *", move.point) == "2026-03-29T0100Z"


@pytest.mark.parametrize(
    ("opens", "second", "taken", "name"),
    [
        ("0 7 * * 1", 0, (), "2026-09-24T0030Z"),
        ("every 2s", 0, (), "2026-09-24T003000Z"),
        ("every 90s", 30, (), "2026-09-24T003030Z"),
        ("every 1m", 7, (), "2026-09-24T0030Z"),
        ("every 2h", 7, ("2026-09-24T0030Z",), "2026-09-24T003007Z"),
    ],
)
def test_an_opening_is_named_by_its_minute_and_where_that_is_taken_by_its_second(
    opens: str, second: int, taken: tuple[str, ...], name: str
) -> None:
    assert opening_name(opens, FIRST.point + second, taken) == name


def test_an_opening_is_an_ordinary_job_with_its_point_in_task_and_files() -> None:
    from scheduler.job import Delivery

    whole = pattern(task="{opening}: a {other} of {opening}", deliver=Delivery(file=Path("/y/{opening}/r.md")))
    one = opening_job(whole, "2026-09-24T0030Z")
    assert (one.id, one.series) == ("report@2026-09-24T0030Z", None)
    assert one.task == "2026-09-24T0030Z: a {other} of 2026-09-24T0030Z"
    assert one.checkpoint == Path("/x/report-2026-09-24T0030Z.json")
    assert one.deliver == Delivery(file=Path("/y/2026-09-24T0030Z/r.md"))


# ---- edits, and what a person asks for


def name_of(day: int) -> str:
    return opening_name("30 2 * * *", int(half_past_two(day).timestamp()))


@pytest.fixture
def opened(series: Project, chat: ChatServer) -> Project:
    """A series whose first opening is answered."""
    write(series, chat.url)
    for at in (SEEN, half_past_two(1)):
        command(series, at, "tick")
    assert chat.count == 1
    return series


def test_no_point_is_missed_without_catch_up_but_said_once(series: Project, chat: ChatServer) -> None:
    write(series, chat.url, catch_up=False)
    command(series, SEEN, "tick")
    for number in range(2):
        told = command(series, half_past_two(2) + timedelta(hours=1, minutes=number), "tick")
        assert told.err.count("catch_up is false") == 1 - number
    assert series.rows("SELECT count(*) FROM opening") == [(0,)]
    command(series, half_past_two(3), "tick")
    for number in range(2):
        told = command(series, half_past_two(5) + timedelta(hours=1, minutes=number), "tick")
        assert told.err.count("catch_up is false") == 1 - number
    command(series, half_past_two(6), "tick")
    assert points(series) == [int(half_past_two(day).timestamp()) for day in (3, 6)]


def test_other_opens_begin_anew_and_the_openings_stay_counted(opened: Project, chat: ChatServer) -> None:
    write(opened, chat.url, series={"opens": "0 12 * * *", "times": 2})
    command(opened, half_past_two(2), "tick")  # a point of the old calendar, and seen with the new one
    assert len(points(opened)) == 1
    noon = half_past_two(3).astimezone(BERLIN).replace(hour=12, minute=0)
    for day in range(3):
        command(opened, noon + timedelta(days=day), "tick")
    assert opened.rows("SELECT number, opening FROM opening") == [(1, name_of(1)), (2, "2026-09-27T1000Z")]


def test_an_edited_task_is_that_of_the_next_opening_and_blocks_one_that_has_begun(
    opened: Project, chat: ChatServer
) -> None:
    write(opened, chat.url, task="Another report of {opening}")
    chat.script = [GOES_ON]
    command(opened, half_past_two(2), "tick")
    assert opened.document(f"report-{name_of(2)}")["task"] == f"Another report of {name_of(2)}"
    write(opened, chat.url)
    command(opened, half_past_two(2) + timedelta(hours=1), "tick", code=65).one_line(f"report@{name_of(2)}", "revise")
    chat.script = [answer("fin")]
    command(opened, half_past_two(2) + timedelta(hours=2), "revise", f"report@{name_of(2)}", "--reason", "x")
    command(opened, half_past_two(2) + timedelta(hours=3), "tick")
    assert opened.document(f"report-{name_of(2)}")["status"] == "done"


def test_another_pattern_is_blocked_until_it_is_put_back_or_the_opening_renewed(
    opened: Project, chat: ChatServer
) -> None:
    write(opened, chat.url, checkpoint="checkpoints/other-{opening}.json")
    name = f"report@{name_of(1)}"
    command(opened, half_past_two(2), "tick", code=65).one_line(name, "were spent under", "put the path back")
    assert len(points(opened)) == 1
    write(opened, chat.url)
    command(opened, half_past_two(3), "tick")
    assert len(points(opened)) == 2
    write(opened, chat.url, checkpoint="checkpoints/other-{opening}.json")
    command(opened, half_past_two(4), "tick", code=65)
    renewing = ("renew", "report", "--reason", "another place", "--confirm", "report")
    command(opened, half_past_two(4) + timedelta(minutes=1), *renewing)
    for day in (4, 5):
        command(opened, half_past_two(day) + timedelta(hours=1), "tick")
    assert opened.rows("SELECT checkpoint FROM opening ORDER BY number") == [
        (f"report-{name_of(1)}.json",),
        (f"other-{name_of(3)}.json",),
        (f"other-{name_of(5)}.json",),
    ]
    assert chat.count == 4


def test_an_older_opening_that_is_renewed_runs_beside_the_next_ones(opened: Project, chat: ChatServer) -> None:
    command(opened, half_past_two(2), "tick")
    older = f"report@{name_of(1)}"
    renewing = ("renew", older, "--reason", "x", "--confirm", older)
    command(opened, half_past_two(2) + timedelta(hours=1), *renewing)
    command(opened, half_past_two(2) + timedelta(hours=2), "run", "report")  # its newest, which is answered
    assert asked(chat) == {name_of(1): 1, name_of(2): 1}
    command(opened, half_past_two(3), "tick")
    assert asked(chat) == {name_of(1): 2, name_of(2): 1, name_of(3): 1}
    assert opened.rows("SELECT DISTINCT status FROM opening") == [("done",)]


def test_every_command_takes_an_opening_and_a_series_stands_for_its_newest(opened: Project, chat: ChatServer) -> None:
    chat.script = [GOES_ON]
    command(opened, half_past_two(2), "tick")
    at = half_past_two(2) + timedelta(hours=1)
    assert f"Report of {name_of(2)}" in command(opened, at, "show", "report").out
    assert f"Report of {name_of(1)}" in command(opened, at, "show", f"report@{name_of(1)}").out
    chat.script = [answer("fin")]
    command(opened, at, "run", "report")
    command(opened, at, "run", f"report@{name_of(1)}")
    assert asked(chat) == {name_of(1): 1, name_of(2): 2}
    for arguments in (["show"], ["run"], ["tick"], ["repair"]):
        command(opened, at, *arguments, "report@2026-09-01T0030Z", code=64).one_line("was never opened")
    command(opened, at, "run", "reprot", code=64).one_line("did you mean report?")
    for name in ("report", f"report@{name_of(2)}"):
        assert f"{name_of(2)}: the checkpoint is as it was" in command(opened, at, "repair", name).out
    listed = [line.split()[0] for line in command(opened, at, "status", "--all").out.splitlines()[2:]]
    assert listed == ["report", f"report@{name_of(1)}", f"report@{name_of(2)}"]
    write(opened, chat.url, series={"opens": "99 * * * *", "times": 1})
    command(opened, at, "run", f"report@{name_of(1)}", code=65).one_line("report", "out of range")


def test_before_the_first_point_a_series_has_no_opening(series: Project, chat: ChatServer) -> None:
    write(series, chat.url)
    at = SEEN
    for arguments in (["run", "report"], ["show", "report"]):
        command(series, at, *arguments, code=75).one_line("no opening yet", "2026-09-25 02:30:00+02:00")
    command(series, at, "tick")
    assert "0 of 60 opened, 0 answered" in command(series, at, "status").out
    assert chat.count == 0


def test_check_says_when_it_opens_and_how_much_is_left(opened: Project, chat: ChatServer) -> None:
    chat.script = [GOES_ON]
    command(opened, half_past_two(2), "tick")
    out = command(opened, half_past_two(29), "check").out
    assert "report: opens at 02:30 every day (Europe/Berlin); 58 of 60 openings left, at most 235 requests" in out
    assert "report-{opening}.json; slices of each opening: every minute" in out
    assert f"open report@{name_of(2)}: 3 of 4 requests left" in out
    ahead = [line for line in out.splitlines() if "next opening" in line]
    assert len(ahead) == 3
    assert ahead[1].strip() == "next opening 2026-10-25 02:30:00+02:00"
    assert ahead[2].strip() == "next opening 2026-10-26 02:30:00+01:00  <- clock back 1 h"
    assert command(opened, half_past_two(3), "check", "--days", "365").out.count("next opening") == 58


def test_a_rehearsed_series_has_openings_of_its_own(opened: Project, chat: ChatServer) -> None:
    text = opened.config.read_text("utf-8")
    opened.write(text.replace('"live": true', '"live": false'))
    for at in (half_past_two(2) + timedelta(hours=1), half_past_two(3)):
        command(opened, at, "tick")
    assert [path.name for path in opened.path().parent.glob("rehearsal/*.json")] == [f"report-{name_of(3)}.json"]
    opened.write(text)
    command(opened, half_past_two(4), "tick")
    assert len(points(opened)) == 2
    assert chat.count == 2


def test_ten_thousand_answered_openings_are_not_looked_at(opened: Project, chat: ChatServer) -> None:
    old = [
        (number, SINCE - 60 * number, f"1999-01-{number % 28 + 1:02}T{number:06}Z", f"{number}.json")
        for number in range(2, 10_002)
    ]
    with contextlib.closing(sqlite3.connect(opened.folder / "checkpoints" / ".ledger.sqlite3")) as base, base:
        base.execute("UPDATE opening SET number = 20000")
        insert = "INSERT INTO opening VALUES ('report', ?1, ?2, ?3, ?4, 'done', 1, 1)"
        base.executemany(insert, old)
        # Whoever reads one of these is told that it does not match its digest.
        documents = "INSERT INTO document SELECT checkpoint, 1, x'00', 'none' FROM opening WHERE number < 20000"
        base.execute(documents)
    write(opened, chat.url, series={"opens": "30 2 * * *", "times": 20_002})
    command(opened, half_past_two(1) + timedelta(hours=1), "tick")
    command(opened, half_past_two(2), "tick")
    assert chat.count == 2
    assert "20001 of 20002 opened, 10002 answered" in command(opened, half_past_two(2), "status").out


def test_an_answer_that_was_cut_off_before_its_file_is_published_when_the_next_one_opens(series: Project) -> None:
    with chat_server() as chat:
        write(series, chat.url)
        command(series, SEEN, "tick")
        [ended] = forked(series, ["tick"], steps=["save-after"], at=half_past_two(1))
        assert ended.code == -signal.SIGKILL, ended.err
        [file] = (series.folder / "checkpoints").glob("report-*.json")
        leftover = file.with_name(f".{file.name}.{'0' * 15}1.tmp")
        leftover.touch(0o600)
        assert json.loads(file.read_text("utf-8"))["status"] == "ready"
        command(series, half_past_two(2), "tick")
    assert (chat.count, len(points(series))) == (2, 2)
    assert json.loads(file.read_text("utf-8"))["status"] == "done"
    assert not leftover.exists()


# ---- what is refused when the file is read


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ({"checkpoint": "checkpoints/report-2026-11-30T0600Z.json"}, "this is the file of job"),
        ({"checkpoint": "checkpoints/report-2026-11-30T060001Z.json"}, "this is the file of job"),
        ({"checkpoint": "checkpoints/report-{opening}.json", "series": DAILY}, "this is the file of job"),
        ({"checkpoint": "checkpoints/report-2026-11-30.json"}, None),
        ({"checkpoint": "elsewhere/report-2026-11-30T0600Z.json"}, None),
        (
            {"checkpoint": f"checkpoints/{'x' * 190}{{opening}}", "series": DAILY},
            "checkpoint of an opening: a checkpoint's name",
        ),
    ],
)
@pytest.mark.parametrize("first", ["a", "z"])
def test_no_other_job_can_have_the_file_of_an_opening(
    series: Project, chat: ChatServer, other: dict[str, Any], fault: str | None, first: str
) -> None:
    jobs = {"report": WEEKLY, first: other}
    series.live(chat.url, jobs if first == "z" else dict(reversed(jobs.items())))
    told = ran("--config", series.config, "check")
    assert told.code == (65 if fault else 0), told
    assert fault is None or fault in told.err


def test_no_tool_reads_the_folder_of_the_openings(series: Project, chat: ChatServer) -> None:
    from scheduler.jobfile import read_job_file

    write(series, chat.url)
    folder = series.folder / "checkpoints"
    assert {folder, folder / "rehearsal"} <= set(read_job_file(series.config).private)


def test_a_plain_job_that_becomes_a_series_leaves_its_attempts_where_they_are(
    series: Project, chat: ChatServer
) -> None:
    series.live(chat.url, {"report": {}})
    command(series, SEEN, "run", "report")
    write(series, chat.url)
    command(series, SEEN, "tick")
    for day in (1, 2):
        command(series, half_past_two(day) + timedelta(seconds=5), "tick")
    assert len(points(series)) == 2
    assert chat.count == 3


def test_a_ledger_that_was_lost_opens_nothing_a_second_time_once_its_files_are_adopted(
    opened: Project, chat: ChatServer
) -> None:
    write(opened, chat.url, series={"opens": "30 2 * * *", "times": 4})
    command(opened, half_past_two(2), "tick")
    chat.script = [GOES_ON]
    command(opened, half_past_two(3), "tick")
    for file in opened.path().parent.glob(".ledger*"):
        file.unlink()
    at = half_past_two(3) + timedelta(hours=1)
    assert command(opened, at, "adopt", "--all").out.count(": adopted at attempt 1 of 4, ") == 3
    command(opened, at, "adopt", "--all")
    assert opened.rows("SELECT number, opening, status FROM opening") == [
        (1, name_of(1), "done"),
        (2, name_of(2), "done"),
        (3, name_of(3), "ready"),
    ]
    chat.script = [answer("fin")]
    for day in (4, 5, 6):
        command(opened, half_past_two(day), "tick")
    assert asked(chat) == {name_of(1): 1, name_of(2): 1, name_of(3): 2, name_of(5): 1}


def test_check_names_a_job_that_only_looks_as_if_it_were_repeated(series: Project, chat: ChatServer) -> None:
    series.live(chat.url, {"daily": {}, "hourly": {"schedule": "@hourly"}, "report": {**WEEKLY, "schedule": "@daily"}})
    out = command(series, SEEN, "check").out
    assert out.count("write a series") == 1
    assert out.index("daily:") < out.index("write a series") < out.index("hourly:")


def test_numbers_and_doctor_look_at_a_folder_that_has_openings_alone(series: Project, chat: ChatServer) -> None:
    project, often = series, {"opens": "every 90s", "times": 3}
    project.live(chat.url, {"report": {**WEEKLY, "series": often}}, metrics={"textfile": "numbers.prom"})
    project.run("tick")
    assert 'resumed_jobs{state="done"} 1.0' in (project.folder / "numbers.prom").read_text()
    project.path().parent.chmod(0o755)
    assert f"chmod 700 {project.path().parent}" in project.run("doctor", code=1).stdout

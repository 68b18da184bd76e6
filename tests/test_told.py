"""Who is told of what, and how often: the ledger's memory, recovery, cron and daemon at once."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine

from scheduler.cli import main
from scheduler.due import plan_job
from scheduler.errors import AccessRefused, CheckpointMoved, NoStateFolder, RequestRefused
from scheduler.herald import Herald
from scheduler.home import state_folder
from scheduler.jobfile import read_job_file
from scheduler.ledger import NAME, Ledger
from scheduler.notifier import matter_of
from scheduler.owed import Result
from scheduler.tick import tick
from scheduler.told import DAY, HOUR, LOG, Memory
from tests.support import KEY, Hooks, Project, answer, chat_server, tool_calls, wait_until

TOKEN = "hook-canary-0123456789"
NOWHERE = "http://127.0.0.1:9/v1"
OUTAGE = (500, {"error": {"message": "out of order"}})
GOES_ON = tool_calls(("c1", "read_file", "{}"))
EACH_MINUTE = {"schedule": "every 1m"}
BAD_OR_DONE = ["done", "exhausted", "blocked", "failed"]  # points are missed where a test lets much time pass
BEGIN = datetime(2027, 3, 1, 12, 0, 30, tzinfo=UTC)

# ---- where is remembered what belongs to no checkpoint folder


def test_the_private_folder_is_made_under_the_named_one(tmp_path: Path) -> None:
    found = state_folder({"XDG_STATE_HOME": str(tmp_path / "a" / "b"), "HOME": "/elsewhere"})
    assert found == tmp_path / "a/b/resumed"
    assert [folder.stat().st_mode & 0o777 for folder in (found, found.parent)] == [0o700, 0o700]
    assert state_folder({"XDG_STATE_HOME": str(tmp_path / "a" / "b")}) == found


@pytest.mark.parametrize("named", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}])
def test_the_home_is_that_of_the_user_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), os.getegid(), "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert state_folder({"HOME": "/elsewhere", **named}) == tmp_path / ".local/state/resumed"


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), os.getegid(), "", str(tmp_path / "gone"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    with pytest.raises(NoStateFolder, match="XDG_STATE_HOME"):
        state_folder({})
    assert not (tmp_path / "gone").exists()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "resumed").mkdir()
    (tmp_path / "resumed").chmod(0o777)
    with pytest.raises(AccessRefused, match="chmod"):
        state_folder({"XDG_STATE_HOME": str(tmp_path)})


# ---- what a ledger remembers


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(Ledger(tmp_path))


# What stands at a time, and what of it is said.
STANDING: list[tuple[str, list[tuple[int, list[str], list[str]]]]] = [
    ("new", [(0, ["a"], ["a"])]),
    ("unchanged", [(0, ["a"], ["a"]), (60, ["a"], []), (DAY - 1, ["a"], [])]),
    ("once a day", [(0, ["a"], ["a"]), (DAY, ["a"], ["a"]), (DAY + HOUR, ["a"], []), (2 * DAY, ["a"], ["a"])]),
    ("changed", [(0, ["a"], ["a"]), (60, ["b"], ["b"]), (120, ["a"], []), (180, ["b"], [])]),
    ("came and went", [(0, ["a"], ["a"]), (60, [], []), (120, ["a"], []), (HOUR - 1, ["a"], [])]),
    ("stands on after it came back", [(0, ["a"], ["a"]), (60, [], []), (120, ["a"], []), (HOUR, ["a"], ["a"])]),
    ("came back late", [(0, ["a"], ["a"]), (60, [], []), (HOUR, ["a"], ["a"]), (2 * HOUR, ["a"], [])]),
    ("one of two changed", [(0, ["a", "b"], ["a", "b"]), (60, ["a", "c"], ["c"]), (120, ["a", "c"], [])]),
    ("a clock that was set back", [(10 * DAY, ["a"], ["a"]), (0, ["a"], ["a"]), (60, ["a"], [])]),
]


@pytest.mark.parametrize("steps", [steps for _, steps in STANDING], ids=[name for name, _ in STANDING])
def test_what_stands_is_said_when_it_changes_and_once_a_day(
    memory: Memory, steps: list[tuple[int, list[str], list[str]]]
) -> None:
    assert [memory.stand("job", LOG, matters, 10**9 + at) for at, matters, _ in steps] == [said for *_, said in steps]


def test_a_flapping_matter_is_said_once_an_hour_at_most(memory: Memory) -> None:
    minutes = range(24 * 60)
    said = [m for m in minutes if memory.stand("job", LOG, [["a"], ["b"], []][m % 3], 10**9 + 60 * m)]
    assert len(said) <= 2 * 24
    assert memory.stand("job", LOG, ["c"], 10**9 + 24 * HOUR) == ["c"]


def test_subjects_and_channels_are_apart(memory: Memory) -> None:
    assert [memory.stand(*place, ["a"], 10**9) for place in [("x", "1"), ("x", "2"), ("y", "1")]] == [["a"]] * 3


def test_what_did_not_go_is_said_again_after_an_hour_and_what_went_is_not(memory: Memory) -> None:
    now = 10**9
    for fault, again in (("the answer was 500", True), ("", False)):
        matter = f"m{fault}"
        assert memory.end("x", "hook", matter, now)
        memory.sent("x", "hook", matter, fault)
        assert not memory.end("x", "hook", matter, now + HOUR - 1)
        assert memory.end("x", "hook", matter, now + HOUR) is again
        assert memory.stand(f"y{fault}", "hook", ["a"], now) == ["a"]
        memory.sent(f"y{fault}", "hook", "a", fault)
        assert memory.stand(f"y{fault}", "hook", ["a"], now + HOUR) == (["a"] if again else [])


def test_what_was_claimed_and_never_sent_for_a_crash_is_said_again(memory: Memory, tmp_path: Path) -> None:
    assert memory.end("x", "hook", "done", 10**9)
    assert memory.stand("y", "hook", ["a"], 10**9) == ["a"]
    after = Memory(Ledger(tmp_path))
    assert after.end("x", "hook", "done", 10**9 + HOUR)
    assert after.stand("y", "hook", ["a"], 10**9 + HOUR) == ["a"]


def test_what_happens_is_said_once_an_hour_for_each_reason(memory: Memory) -> None:
    times = [("a", 0), ("a", HOUR - 1), ("b", 5), ("a", HOUR), ("a", HOUR + 1)]
    assert [memory.occur("x", LOG, m, 10**9 + at) for m, at in times] == [True, False, True, True, False]


def test_recovery_is_news_once_and_only_after_bad_news(memory: Memory) -> None:
    now = 10**9
    assert not memory.recover("x", "hook")
    assert memory.occur("x", "hook", "missed", now)
    assert not memory.recover("x", "hook")
    assert memory.occur("x", "hook", "failed", now, trouble=True)
    assert (memory.recover("x", "hook"), memory.recover("x", "hook")) == (True, False)
    for bad in (["a"], ["b"]):
        assert memory.stand("x", "hook", bad, now) == bad
    assert memory.troubled() == {"x"}
    assert (memory.recover("x", "hook"), memory.recover("x", "hook")) == (True, False)
    assert memory.stand("x", "hook", ["a"], now + 60) == []  # within the hour: not said, so its end is no news
    assert not memory.recover("x", "hook")
    assert memory.troubled() == set()


def test_a_matter_that_stands_unsaid_writes_nothing(memory: Memory, tmp_path: Path) -> None:
    memory.stand("x", LOG, ["a"], 10**9)
    other = Ledger(tmp_path)
    before = other.data_version()
    for minute in range(10):
        memory.stand("x", LOG, ["a"], 10**9 + minute)
        memory.recover("y", LOG)
    assert other.data_version() == before


def test_what_was_said_long_ago_is_forgotten_whatever_is_said_now(memory: Memory, tmp_path: Path) -> None:
    """A series whose openings all go well says nothing but that each is done."""
    for day in range(0, 400, 10):
        now = 10**9 + day * DAY
        assert memory.end(f"series@{day}", "hook", "done", now)
        assert memory.occur("nightly", "hook", f"failed: request {day}", now)
    with contextlib.closing(sqlite3.connect(tmp_path / NAME)) as base:
        [(rows,)] = base.execute("SELECT count(*) FROM told")
    assert rows == 20


def test_a_size_that_grows_is_no_other_matter() -> None:
    one, other = (RequestRefused(reason=f"it is about {tokens} tokens, 2048 are the most") for tokens in (3000, 3007))
    assert matter_of(one) == matter_of(other)
    assert matter_of(one) != matter_of(RequestRefused(reason="its text is not UTF-8"))


# ---- ticks, in this process


class Ticks:
    """Runs commands of this process at moments of its own clock."""

    def __init__(self, project: Project, clock: time_machine.Coordinates, capsys: pytest.CaptureFixture[str]) -> None:
        self.project, self.clock, self.capsys = project, clock, capsys
        self.seen = ""

    def tick(self, *arguments: str, code: int | None = None, after: float = 0) -> str:
        """Let so many seconds pass, run a command (by default tick), and return what it logged."""
        self.clock.shift(after)
        self.capsys.readouterr()
        found = main(["--config", str(self.project.config), *(arguments or ("tick",))])
        out, err = self.capsys.readouterr()
        self.seen += out + err
        assert code is None or found == code, err
        return err + (out if arguments else "")


@pytest.fixture
def ticks(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ticks]:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    monkeypatch.setenv("HOOK_TOKEN", TOKEN)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with time_machine.travel(BEGIN, tick=True) as clock:
        ticks = Ticks(project, clock, capsys)
        yield ticks
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert "Traceback" not in ticks.seen
    assert KEY not in ticks.seen
    assert TOKEN not in ticks.seen


def write(project: Project, url: str, hooks: Hooks | None, job: dict[str, Any] | None = None, **top: Any) -> None:
    channels = [{"webhook": f"{hooks.url}/{TOKEN}?t={TOKEN}", "events": BAD_OR_DONE}] if hooks else []
    project.live(url, {"nightly": EACH_MINUTE | (job or {})}, **{"notify": channels, "after_failure": [], **top})


def told_rows(project: Project) -> list[tuple[Any, ...]]:
    return project.rows("SELECT * FROM told")


def test_a_block_is_told_once_a_day_and_its_end_once(
    ticks: Ticks, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = ticks.project
    monkeypatch.delenv("LOCAL_KEY")
    with chat_server(GOES_ON, answer("three days")) as chat:
        write(project, chat.url, hooks)
        said = [ticks.tick(code=65, after=60) for _ in range(30)]
        assert "LOCAL_KEY" in said[0]
        assert said[1:] == [""] * 29
        assert hooks.events == ["blocked"]
        assert {key: hooks.last[key] for key in ("job", "state", "attempts", "max_attempts")} == {
            "job": "nightly",
            "state": "blocked",
            "attempts": 0,
            "max_attempts": 4,
        }
        assert "LOCAL_KEY" in hooks.last["reason"]
        assert "LOCAL_KEY" in ticks.tick(code=65, after=DAY)
        assert hooks.events == ["blocked"] * 2
        monkeypatch.setenv("LOCAL_KEY", KEY)
        (said_of_points,) = ticks.tick(code=0, after=60).splitlines()  # and no good news, which cron would mail
        assert "were missed" in said_of_points
        assert hooks.events == [*["blocked"] * 2, "recovered"]
        ticks.tick(code=0, after=60)
        assert hooks.events == [*["blocked"] * 2, "recovered", "done"]
        assert (hooks.last["answer"], hooks.last["outcome"], hooks.last["attempts"]) == ("three days", "answered", 2)
        for _ in range(3):
            assert ticks.tick(code=0, after=HOUR) == ""
        assert len(hooks.got) == 4
    bodies = "".join(body for _, body in hooks.got)
    assert KEY not in bodies
    assert TOKEN not in bodies + repr(told_rows(project))


def test_a_block_that_comes_and_goes_is_told_once_an_hour(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    project = ticks.project
    chat.script = [GOES_ON]
    write(project, chat.url, hooks, {"schedule": "0 0 1 1 *"})
    folder = project.path().parent
    folder.mkdir(0o700)
    for minute in range(50):
        folder.chmod(0o777 if minute % 2 == 0 else 0o700)
        ticks.tick(code=0 if minute % 2 else 77, after=60)
    assert hooks.events == ["blocked", "recovered"]
    folder.chmod(0o777)
    ticks.tick(code=77, after=HOUR)
    folder.chmod(0o700)
    ticks.tick(code=0, after=60)
    assert hooks.events == ["blocked", "recovered"] * 2
    assert ticks.seen.count("chmod") == 2


@pytest.mark.parametrize("bad", [{"task": ""}, {"provider": "nobody"}])
def test_a_refused_entry_is_told_once_a_day_and_its_end_once(
    ticks: Ticks, hooks: Hooks, chat: Any, bad: dict[str, Any]
) -> None:
    write(ticks.project, chat.url, hooks, {"schedule": "0 0 1 1 *", **bad})
    said = [ticks.tick(code=65, after=60) for _ in range(5)]
    assert "job nightly" in said[0]
    assert said[1:] == [""] * 4
    assert "job nightly" in ticks.tick(code=65, after=DAY)
    assert hooks.events == ["blocked"] * 2
    ticks.project.write(f"# a comment\n{ticks.project.config.read_text()}")
    ticks.tick(code=65, after=60)
    assert hooks.events == ["blocked"] * 2  # by one line further down it is the same
    write(ticks.project, chat.url, hooks, {"schedule": "0 0 1 1 *"})
    assert [ticks.tick(code=0, after=60) for _ in range(2)] == [""] * 2
    assert hooks.events == ["blocked", "blocked", "recovered"]


def test_a_file_that_cannot_be_read_is_said_when_it_changes_and_once_a_day(ticks: Ticks) -> None:
    ticks.project.write("jobs: [")
    said = [ticks.tick(code=78, after=60) for _ in range(3)]
    assert [bool(text) for text in said] == [True, False, False]
    ticks.project.write("jobs: {")
    assert [bool(ticks.tick(code=78, after=60)) for _ in range(2)] == [True, False]
    assert ticks.tick(code=78, after=DAY)
    ticks.project.config.unlink()
    assert [bool(ticks.tick(code=78, after=60)) for _ in range(2)] == [True, False]


def test_a_person_at_work_is_told_everything_each_time(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_KEY")
    write(ticks.project, NOWHERE, None)
    assert ["LOCAL_KEY" in ticks.tick("run", "nightly", code=65) for _ in range(3)] == [True] * 3
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert ["LOCAL_KEY" in ticks.tick(code=65) for _ in range(3)] == [True] * 3


def test_where_nothing_can_be_remembered_it_is_said_each_time(
    ticks: Ticks, hooks: Hooks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    write(ticks.project, NOWHERE, hooks, {"provider": "nobody"})
    for _ in range(3):
        said = ticks.tick(code=65, after=60)
        assert "job nightly" in said
        assert "not notified" in said
    assert hooks.got == []


def test_a_damaged_ledger_is_told_by_the_users_own(ticks: Ticks, hooks: Hooks) -> None:
    write(ticks.project, NOWHERE, hooks)
    folder = ticks.project.path().parent
    folder.mkdir(0o700)
    (folder / NAME).write_bytes(b"no database" * 1000)
    (folder / NAME).chmod(0o600)
    said = [ticks.tick(code=65, after=60) for _ in range(3)]
    assert [NAME in text for text in said] == [True, False, False]
    assert hooks.events == ["blocked"]
    (folder / NAME).unlink()
    ticks.project.live(
        NOWHERE, {"nightly": {"schedule": "0 0 1 1 *"}}, notify=[{"webhook": f"{hooks.url}/{TOKEN}?t={TOKEN}"}]
    )
    ticks.tick(code=0, after=60)
    assert hooks.events == ["blocked", "recovered"]


def test_a_failed_attempt_is_told_once_for_its_reason_and_progress_recovers(ticks: Ticks, hooks: Hooks) -> None:
    with chat_server(OUTAGE, OUTAGE, GOES_ON, OUTAGE) as chat:
        write(ticks.project, chat.url, hooks)
        for code in (69, 69, 0, 69):
            # An outage rests its provider for a while.
            ticks.tick("unblock", "local", code=None)
            ticks.tick(code=code, after=600)
        assert hooks.events == ["failed", "recovered", "exhausted"]
        assert (hooks.last["outcome"], hooks.last["attempts"], hooks.last["state"]) == ("http_error", 4, "exhausted")
        assert "out of order" in hooks.last["reason"]
        for _ in range(3):
            ticks.tick(code=0, after=HOUR)
        assert len(hooks.got) == 3


def test_a_job_that_is_exhausted_after_it_failed_has_not_recovered(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    chat.script = [OUTAGE]
    write(ticks.project, chat.url, hooks, {"max_attempts": 2})
    for _ in range(3):
        ticks.tick("unblock", "local", code=None)
        ticks.tick(after=600)
    assert hooks.events == ["failed", "exhausted"]


def test_an_answer_of_a_new_allowance_is_told_again(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    write(ticks.project, chat.url, hooks)
    for _ in range(2):
        ticks.tick(code=0, after=90)
        ticks.tick(code=0, after=90)
        ticks.tick("renew", "nightly", "--reason", "x", "--confirm", "nightly", code=0)
    assert hooks.events == ["done", "done"]


def test_an_end_that_a_crash_kept_from_being_told_is_told_within_a_day(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    write(ticks.project, chat.url, None)
    ticks.tick(code=0, after=60)
    write(ticks.project, chat.url, hooks)  # as if the process had ended before it could tell
    ticks.tick(code=0, after=60)
    assert hooks.events == ["done"]
    assert hooks.last["answer"] == "fin"


def test_an_old_answer_is_not_told_to_a_new_channel(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    write(ticks.project, chat.url, None)
    ticks.tick(code=0, after=60)
    write(ticks.project, chat.url, hooks)
    ticks.tick(code=0, after=DAY + HOUR)
    assert hooks.got == []


@pytest.mark.parametrize("catch_up", [True, False])
def test_missed_points_are_told(ticks: Ticks, hooks: Hooks, chat: Any, catch_up: bool) -> None:
    chat.script = [GOES_ON]
    channels = [{"webhook": hooks.url}]
    write(ticks.project, chat.url, None, {"schedule": "0 * * * *", "catch_up": catch_up}, notify=channels)
    ticks.tick(code=0)
    ticks.tick(code=0, after=3 * HOUR + 600)
    assert hooks.events == ["missed"]
    assert "missed" in hooks.last["reason"]
    ticks.tick(code=0, after=60)
    assert len(hooks.got) == 1


def test_only_the_events_that_a_channel_names_are_sent_and_a_jobs_own_channels_count(
    ticks: Ticks, hooks: Hooks, chat: Any
) -> None:
    chat.script = [OUTAGE]
    channels = [
        {"webhook": hooks.url + "/own", "events": ["done"]},
        {"webhook": hooks.url + "/f", "events": ["failed"]},
    ]
    write(ticks.project, chat.url, hooks, {"notify": channels})
    ticks.tick(code=69, after=60)
    assert [path for path, _ in hooks.got] == ["/f"]


def test_what_waits_by_itself_is_told_to_nobody(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    write(ticks.project, chat.url, hooks, budget={"requests_per_day": 0})
    assert [ticks.tick(code=0, after=60) for _ in range(3)] == [""] * 3
    ticks.tick("tick", "nightly", code=75, after=60)
    assert hooks.got == []


def test_a_ping_follows_each_slice(ticks: Ticks, hooks: Hooks) -> None:
    with chat_server(OUTAGE, OUTAGE, GOES_ON, answer("fin")) as chat:
        write(ticks.project, chat.url, None, notify=[{"ping": f"{hooks.url}/{TOKEN}", "events": ["failed"]}])
        for _ in range(5):
            ticks.tick("unblock", "local", code=None)
            ticks.tick(after=600)
    assert [path.removeprefix(f"/{TOKEN}") for path, _ in hooks.got] == ["/start", "/fail"] * 2 + ["/start", ""] * 2
    assert hooks.got[1][1].startswith("job nightly: attempt 1 of 4 failed: http_error")


def test_the_start_is_pinged_in_the_background(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    hooks.hold.clear()  # whoever pings waits
    write(ticks.project, chat.url, None, notify=[{"ping": f"{hooks.url}/x"}])
    chat.script = [GOES_ON]

    release = threading.Thread(target=lambda: (chat.wait_for(1), hooks.hold.set()))
    release.start()
    ticks.tick(code=0, after=60)
    release.join()
    assert [path for path, _ in hooks.got] == ["/x/start", "/x"]


def test_a_rehearsal_says_so(ticks: Ticks, hooks: Hooks) -> None:
    write(ticks.project, NOWHERE, hooks)
    text = ticks.project.config.read_text().replace('"live": true', '"live": false')
    ticks.project.write(text)
    for _ in range(2):
        ticks.tick(code=0, after=60)
    assert hooks.events == ["done"]
    assert hooks.last["rehearsal"] is True


def test_a_block_that_ends_unseen_is_not_called_over(
    ticks: Ticks, hooks: Hooks, chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_KEY")
    write(ticks.project, chat.url, hooks)
    ticks.tick(code=65, after=60)
    write(ticks.project, chat.url, hooks, {"schedule": "0 0 1 1 *"})  # not due: nobody looks for the key
    ticks.tick(code=0, after=60)
    assert hooks.events == ["blocked"]


def test_a_daemon_reminds_once_a_day_and_tries_again_after_an_hour(
    ticks: Ticks, hooks: Hooks, chat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon asks neither a refused entry nor a final job again."""
    monkeypatch.setattr("scheduler.herald.REMIND", 0)
    project = ticks.project
    bad = {"task": "", "checkpoint": "checkpoints/bad.json"}
    channels = [{"webhook": hooks.url, "events": ["done", "blocked"]}]
    project.live(chat.url, {"nightly": EACH_MINUTE, "bad": bad}, notify=channels)
    job_file, lines = read_job_file(project.config), list[str]()

    def log(_: str, message: str, /, *__: object, **___: object) -> None:
        lines.append(message)

    def reminded(after: float, names: Collection[str] = ("nightly", "bad")) -> list[str]:
        """The events that a reminder sends, and the lines on the bad entry that it logs."""
        ticks.clock.shift(after)
        before = len(hooks.got)
        herald.remind(names)
        herald.close()
        said, lines[:] = [line for line in lines if "job bad" in line], []
        return hooks.events[before:] + ["log"] * len(said)

    herald = Herald(job_file, os.environ, log, remembers=True)
    herald.log_problems()
    hooks.status = 500
    for result in tick(job_file, os.environ, herald.tell):
        herald.note(result)
    herald.close()
    assert sorted(hooks.events) == ["blocked", "done"]
    lines.clear()
    assert reminded(60) == []
    hooks.status = 204
    assert sorted(reminded(HOUR)) == ["blocked", "done"]
    assert reminded(HOUR) == []
    assert sorted(reminded(DAY)) == ["blocked", "log"]
    assert reminded(60) == []
    assert reminded(DAY, ["nightly"]) == ["log"], "a job that is gone was told of"


def test_what_a_daemon_notes_twice_within_a_second_is_told_twice(ticks: Ticks, hooks: Hooks) -> None:
    write(ticks.project, NOWHERE, hooks)
    job_file = read_job_file(ticks.project.config)
    plan = plan_job(job_file.jobs["nightly"], True)
    waits = Result(job="nightly", plan=plan)
    lines: list[str] = []
    herald = Herald(job_file, os.environ, lambda _, message, *__, **___: lines.append(message), remembers=True)
    herald.note(waits)
    herald.note(replace(waits, refusal=CheckpointMoved(job="nightly", old="a", new="b")))
    herald.note(waits)
    herald.close()
    assert hooks.events == ["blocked", "recovered"]
    assert lines[-1] == "job nightly: it runs again"


def test_a_ledger_that_stays_locked_is_waited_for_once_and_not_for_each_job(
    ticks: Ticks, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_KEY")
    monkeypatch.setattr("scheduler.database.BUSY_SECONDS", 1)
    names = [f"job-{number}" for number in range(10)]
    channels = [{"webhook": hooks.url}]
    blocked = {"schedule": "0 0 1 1 *", "read": ["nowhere"]}
    ticks.project.live(NOWHERE, dict.fromkeys(names, blocked), notify=channels)
    ticks.tick(code=0)
    with contextlib.closing(sqlite3.connect(ticks.project.path().parent / NAME, isolation_level=None)) as base:
        base.execute("BEGIN IMMEDIATE")
        begun = time.perf_counter()
        said = ticks.tick("run", *names, code=65)
        assert time.perf_counter() - begun < 6
    assert said.count("there is no such file") == 10
    assert hooks.events == ["blocked"] * 10


# ---- notifications that fail


def test_a_failing_channel_is_logged_once_shown_in_status_and_touches_nothing(
    ticks: Ticks, hooks: Hooks, chat: Any
) -> None:
    hooks.status = 500
    write(ticks.project, chat.url, hooks)
    assert "webhook 127.0.0.1 failed: the answer was 500" in ticks.tick(code=0, after=60)
    assert ticks.project.document()["status"] == "done"
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
    assert f"NOTIFY: webhook 127.0.0.1 failed: the answer was 500, since {since}" in ticks.tick("status", code=0)
    assert json.loads(ticks.tick("status", "--json"))["notify"][0]["reason"] == "the answer was 500"
    assert ticks.tick(code=0, after=60) == ""
    hooks.status = 302
    assert ticks.tick(code=0, after=HOUR) == ""
    assert hooks.events == ["done"] * 2
    assert "302" in ticks.tick("status")
    hooks.status = 204
    assert ticks.tick(code=0, after=HOUR) == ""
    assert "NOTIFY" not in ticks.tick("status")
    for _ in range(3):
        ticks.tick(code=0, after=HOUR)
    assert hooks.events == ["done"] * 3


def test_a_failing_channel_of_a_series_stands_in_status(ticks: Ticks, hooks: Hooks, chat: Any) -> None:
    hooks.status = 500
    series = {"opens": "* * * * *", "times": 1}
    own = {"checkpoint": "checkpoints/nightly-{opening}.json", "series": series, "notify": [{"webhook": hooks.url}]}
    write(ticks.project, chat.url, None, own)
    for _ in range(2):
        ticks.tick(code=0, after=60)
    assert hooks.events[:1] == ["done"]
    assert "NOTIFY: webhook 127.0.0.1 failed: the answer was 500" in ticks.tick("status", code=0)


def test_a_notification_that_cannot_be_noted_is_not_the_last_of_its_channel(ticks: Ticks, hooks: Hooks) -> None:
    write(ticks.project, NOWHERE, hooks)
    job_file = read_job_file(ticks.project.config)
    plan, lines = plan_job(job_file.jobs["nightly"], True), list[str]()
    herald = Herald(job_file, os.environ, lambda _, message, *__, **___: lines.append(message), remembers=True)
    hooks.hold.clear()
    hooks.status = 500
    herald.note(Result(job="nightly", plan=plan, refusal=CheckpointMoved(job="nightly", old="a", new="b")))
    hooks.wait_for(1)
    junk = plan.path.with_name("junk")
    junk.write_bytes(b"no database " * 1000)
    junk.rename(plan.path.with_name(NAME))
    hooks.hold.set()
    wait_until(lambda: "webhook 127.0.0.1 failed: the answer was 500" in lines, 10, str(lines))
    herald.note(Result(job="nightly", plan=plan, refusal=CheckpointMoved(job="nightly", old="a", new="c")))
    herald.close()
    assert hooks.events == ["blocked", "blocked"]


def test_a_program_gets_the_json_and_no_secret(ticks: Ticks, tmp_path: Path, chat: Any) -> None:
    code = "import json, os, sys; json.dump([json.load(sys.stdin), dict(os.environ)], open(sys.argv[1], 'w'))"
    target = tmp_path / "seen.json"
    argv = [sys.executable, "-I", "-c", code, str(target)]
    write(
        ticks.project, chat.url, None, notify=[{"argv": argv}, {"webhook": {"env": "HOOK_TOKEN"}, "events": ["missed"]}]
    )
    ticks.tick(code=0, after=60)
    notice, environ = json.loads(target.read_text())
    assert (notice["event"], notice["job"], notice["config"]) == ("done", "nightly", str(ticks.project.config))
    assert not {KEY, TOKEN} & {*environ.values()}
    assert "PATH" in environ


def test_a_missing_extra_is_one_line(ticks: Ticks, chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    write(ticks.project, chat.url, None, notify=[{"apprise": f"tgram://{TOKEN}/1"}])
    assert "apprise tgram failed: the package apprise, which notify: needs, is not installed; " in ticks.tick(
        code=0, after=60
    )
    assert ticks.tick(code=0, after=60) == ""


# ---- processes


def test_daemon_and_ticks_at_once_tell_one_thing_once(project: Project, hooks: Hooks) -> None:
    environ = {name: value for name, value in project.environ().items() if name != "LOCAL_KEY"}
    write(project, NOWHERE, hooks, {"schedule": "every 1s"})
    log = project.folder.parent / "daemon.log"
    with open(log, "w") as out, project.start("daemon", environ=environ, stderr=out) as daemon:
        try:
            running = [project.start("tick", environ=environ) for _ in range(3)]
            said = [process.communicate(timeout=60)[1] for process in running]
            wait_until(lambda: "max_parallel" in log.read_text() and len(hooks.got) > 0, 30, "the daemon's start")
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(30) == 0
        finally:
            daemon.kill()
    assert [process.returncode for process in running] == [65] * 3
    assert hooks.events == ["blocked"]
    assert "".join([*said, log.read_text()]).count("LOCAL_KEY") == 1


def test_a_daemon_says_that_a_job_runs_again_and_that_its_file_was_bad(
    project: Project, hooks: Hooks, chat: Any
) -> None:
    chat.script = [GOES_ON]
    write(project, chat.url, hooks, {"schedule": "0 0 1 1 *"})
    folder = project.path().parent
    folder.mkdir(0o777)
    folder.chmod(0o777)
    log = project.folder.parent / "daemon.log"
    with open(log, "w") as out, project.start("daemon", stderr=out) as daemon:
        try:
            hooks.wait_for(1)
            good = project.config.read_text()
            project.write("jobs: [")
            hooks.wait_for(2)
            project.write(good)
            hooks.wait_for(3)
            folder.chmod(0o700)
            project.write(good.replace("0 0 1 1 *", "0 0 2 1 *"))
            hooks.wait_for(4)
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(30) == 0
        finally:
            daemon.kill()
    assert hooks.events == ["blocked", "blocked", "recovered", "recovered"]
    assert [json.loads(body)["job"] for _, body in hooks.got] == ["nightly", None, None, "nightly"]
    text = log.read_text()
    assert text.count("job nightly: it runs again") == 1
    assert text.count("the jobs of the last good file go on") == 1


@pytest.mark.parametrize(("most", "event"), [(1, "exhausted"), (4, "failed")])
def test_an_attempt_whose_process_was_killed_is_told_by_the_next(
    project: Project, hooks: Hooks, most: int, event: str
) -> None:
    with chat_server(held=True) as chat:
        write(project, chat.url, hooks, {"schedule": "every 1h", "max_attempts": most})
        with project.start("tick") as ticking:
            chat.wait_for(1)
            ticking.kill()
        project.run("tick", code=None)
    assert hooks.events == [event]
    assert (hooks.last["outcome"], hooks.last["attempts"]) == ("interrupted", 1)


def test_a_tick_that_is_ended_waits_no_longer_than_the_deadline_of_a_notification(
    project: Project, hooks: Hooks, chat: Any
) -> None:
    hooks.hold.clear()
    write(project, chat.url, hooks)
    project.live(chat.url, {"nightly": {"schedule": "every 1h"}}, notify=[{"webhook": hooks.url}])
    with project.start("tick") as ticking:
        try:
            hooks.wait_for(1, 30)
            begun = time.monotonic()
            ticking.send_signal(signal.SIGTERM)
            assert ticking.wait(20) == 0
            assert time.monotonic() - begun < 12
        finally:
            ticking.kill()
        assert "no reply within 10 s" in ticking.stderr.read()  # type: ignore[union-attr]  # a pipe
    assert project.document()["status"] == "done"

"""What a crontab line calls: `tick` and `run`, their points, rests, refusals and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import (
    KEY,
    ROOT,
    ChatServer,
    Command,
    Project,
    Reply,
    answer,
    chat_server,
    state_home,
    tool_calls,
    wait_until,
)

HOURLY = {"schedule": "every 1h"}  # the first point is at once, and no other comes while a test runs
GOES_ON = tool_calls(("c1", "read_file", "{}"))  # progress, so that nothing delays the next point
REFUSED = (401, {"error": {"message": "bad key"}})
OUTAGE = (503, {"error": {"message": "down"}})
TASK, ANSWER = "Résume 中文 🎉", "Voilà : 中文 🎉"
# What cron gives a job, less HOME: nothing but what finds the package where it is not installed.
BARE = {"LC_ALL": "C", "PYTHONPATH": str(ROOT)}


def ledger(project: Project, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement on the ledger, as another program would."""
    with contextlib.closing(sqlite3.connect(project.path().parent / ".ledger.sqlite3")) as base, base:
        return base.execute(sql, values).fetchall()


def let_time_pass(project: Project, seconds: int) -> None:
    """Move everything that the ledger dates into the past."""
    moved = {"job": ["since"], "rest": ["until"], "admission": ["point", "admitted_at", "deadline", "ended_at"]}
    for table, columns in moved.items():
        ledger(project, f"UPDATE {table} SET {', '.join(f'{name} = {name} - {seconds}' for name in columns)}")


def points(project: Project) -> list[int | None]:
    return [point for (point,) in ledger(project, "SELECT point FROM admission ORDER BY job, attempt")]


def rests(project: Project) -> list[tuple[Any, ...]]:
    """Each rest as provider, model, and the seconds that are left."""
    now = time.time()
    rows = ledger(project, "SELECT provider, model, until FROM rest ORDER BY model")
    return [(provider, model, until and round(until - now)) for provider, model, until in rows]


# ---- what is due


@pytest.mark.parametrize(("top", "most"), [({"max_parallel": 2}, 2), ({}, 5)])
def test_tick_runs_each_due_job_once_and_as_many_at_once_as_max_parallel_says(
    project: Project, command: Command, top: dict[str, int], most: int
) -> None:
    with chat_server(answer("fin"), held=True, delay=0.2) as chat:

        def release() -> None:
            with contextlib.suppress(AssertionError):
                chat.wait_for(most)
            chat.hold.set()

        project.live(chat.url, {f"j{n}": HOURLY for n in range(5)}, **top)
        releasing = threading.Thread(target=release)
        releasing.start()
        command("tick")
        releasing.join()
        assert chat.most_in_flight == most
        assert chat.count == 5
    assert {project.document(f"j{n}")["status"] for n in range(5)} == {"done"}


def test_nothing_due_is_silent(project: Project, command: Command, chat: ChatServer) -> None:
    project.live(chat.url)
    assert command("tick") == ("", "")
    assert command("tick", "nightly") == ("", "")
    assert chat.count == 0
    assert not project.path().exists()


def test_tick_without_a_terminal_says_nothing_of_an_answer(
    project: Project, command: Command, chat: ChatServer
) -> None:
    project.live(chat.url, {"nightly": HOURLY})
    assert command("tick") == ("", "")
    assert chat.count == 1


def test_a_point_gets_at_most_one_slice(project: Project, command: Command) -> None:
    with chat_server(GOES_ON) as chat:
        project.live(chat.url, {"nightly": HOURLY})
        for names in ([], [], ["nightly"]):
            assert command("tick", *names) == ("", "")
        assert chat.count == 1


def test_ticks_of_several_processes_share_one_slice_of_a_point(project: Project) -> None:
    with chat_server(GOES_ON, delay=1) as chat:
        project.live(chat.url, {"nightly": HOURLY})
        ticks = [project.start("tick") for _ in range(3)]
        codes = [process.wait(60) for process in ticks]
        said = ["".join(process.communicate()) for process in ticks]
        assert (codes, said) == ([0, 0, 0], ["", "", ""])
        assert chat.count == 1


def test_run_runs_a_job_that_is_not_due_and_uses_up_no_point(project: Project, command: Command) -> None:
    with chat_server(GOES_ON) as chat:
        project.live(chat.url, {"nightly": HOURLY, "other": {}})
        command("run", "other")
        command("run", "nightly")
        assert points(project) == [None, None]
        command("tick")
        command("tick")
        assert chat.count == 3
        assert [point is None for point in points(project)] == [True, False, True]


def test_tick_with_names_leaves_the_other_due_jobs_alone(project: Project, command: Command, chat: ChatServer) -> None:
    project.live(chat.url, {"a": HOURLY, "b": HOURLY, "c": {}})
    command("tick", "a", "c")
    assert project.path("a").exists()
    assert not project.path("b").exists()
    assert not project.path("c").exists()
    command("tick")
    assert project.path("b").exists()
    assert chat.count == 2


def test_a_missed_point_is_made_up_once(project: Project, command: Command) -> None:
    with chat_server(GOES_ON) as chat:
        project.live(chat.url, {"nightly": HOURLY})
        command("tick")
        let_time_pass(project, 10 * 3600 + 1800)
        for _ in range(3):
            command("tick")
        assert chat.count == 2
        let_time_pass(project, 3600)
        command("tick")
        assert chat.count == 3


@pytest.mark.parametrize(
    ("after_failure", "delays"),
    [(None, [15 * 60, 3600, 6 * 3600]), (["10m"], [600, 600, 600]), ([], [0, 0, 0])],
    ids=["default", "one", "none"],
)
def test_after_each_failure_in_a_row_the_next_point_waits_longer(
    project: Project, command: Command, after_failure: list[str] | None, delays: list[int]
) -> None:
    with chat_server(answer("")) as chat:
        entry = {"schedule": "every 1m"} | ({} if after_failure is None else {"after_failure": after_failure})
        project.live(chat.url, {"nightly": entry})
        command("tick", code=69)
        for number, delay in enumerate(delays, 1):
            if delay:
                let_time_pass(project, delay - 70)
                command("tick")
                assert chat.count == number
            let_time_pass(project, 140 if delay else 60)
            command("tick", code=69)
            assert chat.count == number + 1
        assert project.document()["status"] == "exhausted"


def test_progress_is_not_delayed_as_a_failure_is(project: Project, command: Command) -> None:
    with chat_server(answer(""), GOES_ON, answer("fin")) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1m", "after_failure": ["1h"]}})
        command("tick", code=69)
        let_time_pass(project, 3660)
        command("tick")
        let_time_pass(project, 60)
        command("tick")
        assert chat.count == 3
        assert project.document()["status"] == "done"


def test_after_failure_of_the_file_holds_for_a_job_without_its_own(project: Project, command: Command) -> None:
    with chat_server(answer("")) as chat:
        entries = {"own": {"schedule": "every 1m", "after_failure": ["1d"]}, "plain": {"schedule": "every 1m"}}
        project.live(chat.url, entries, after_failure=[])
        command("tick", code=69)
        let_time_pass(project, 60)
        command("tick", code=69)
        assert chat.count == 3
        assert project.document("plain")["attempts"] == 2


def half_a_day_away() -> str:
    """A daily cron line whose last point was about twelve hours ago."""
    return f"0 {(datetime.now(UTC) - timedelta(hours=12)).hour} * * *"


@pytest.mark.parametrize("schedule", ["every 1d", half_a_day_away()], ids=["every", "cron"])
def test_without_catch_up_a_missed_point_is_skipped_and_said_once(
    project: Project, command: Command, chat: ChatServer, schedule: str
) -> None:
    project.live(chat.url, {"nightly": {"schedule": schedule, "catch_up": False}}, after_failure=[])
    chat.script = [GOES_ON]
    command("tick")
    before = chat.count
    let_time_pass(project, 2 * 86400 + 12 * 3600)
    said = command("tick").err
    assert said.count("\n") == 1
    assert "job nightly" in said
    assert "missed" in said
    assert command("tick") == ("", "")
    assert chat.count == before


def test_without_catch_up_the_points_of_an_every_schedule_stay_where_they_are(
    project: Project, command: Command
) -> None:
    with chat_server(GOES_ON) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1h", "catch_up": False}})
        command("tick")
        [first] = points(project)
        assert first is not None
        let_time_pass(project, 3 * 3600 + 1800)
        command("tick")
        command("tick")
        assert chat.count == 1
        let_time_pass(project, 1830)
        command("tick")
        assert chat.count == 2
        _, second = points(project)
        assert second is not None
        assert (second - (first - 3 * 3600 - 1800 - 1830)) % 3600 == 0


@pytest.mark.parametrize("year", [2099, 1999])
def test_rows_of_another_year_delay_nothing(project: Project, command: Command, year: int) -> None:
    with chat_server(answer(""), answer("fin")) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1s"}}, budget={"requests_per_day": 1})
        command("tick", code=69)
        then = int(datetime(year, 6, 1, tzinfo=UTC).timestamp())
        ledger(project, "UPDATE job SET since = ?", then)
        ledger(project, "UPDATE admission SET admitted_at = ?, deadline = ?, ended_at = ?, point = ?", *[then] * 4)
        command("tick")
        assert chat.count == 2
        assert project.document()["status"] == "done"


# ---- where it runs


@pytest.mark.keeps_key("project/key.txt", because="it is the key's own file")
def test_cron_s_bare_environment_carries_every_letter(project: Project) -> None:
    def run(*arguments: str) -> str:
        return project.run(*arguments, environ=BARE | state_home(project.folder), cwd="/").stdout

    with chat_server(answer(ANSWER)) as chat:
        provider = {"key": {"file": "key.txt"}}
        project.live(chat.url, {"nightly": {"task": TASK, **HOURLY}}, provider=provider)
        key = project.folder / "key.txt"
        key.write_text(KEY + "\n")
        key.chmod(0o600)
        with project.start("tick", environ=BARE | state_home(project.folder), cwd="/") as ticking:
            assert ticking.communicate(timeout=60) == ("", "")
        assert ticking.returncode == 0
        assert TASK in json.dumps(chat.requests[0], ensure_ascii=False)
        assert chat.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert run("show", "nightly", "--answer") == ANSWER
    [row] = json.loads(run("status", "--json"))["jobs"]
    assert (row["state"], row["answer"], row["attempts"]) == ("done", ANSWER, 1)
    assert TASK in run("show", "nightly")


def test_every_folder_and_link_leads_to_the_same_checkpoint(project: Project, tmp_path: Path) -> None:
    with chat_server(GOES_ON) as chat:
        project.live(chat.url)
        folder = project.folder / "config"
        folder.mkdir()
        shutil.move(project.config, folder / "jobs.yaml")
        (tmp_path / "links").mkdir()
        link = tmp_path / "links" / "jobs.yaml"
        link.symlink_to(folder / "jobs.yaml")
        callers = [(str(project.folder), "config/jobs.yaml"), ("/tmp", str(folder / "jobs.yaml")), ("/", str(link))]
        for number, (cwd, config) in enumerate(callers, 1):
            project.run("--config", config, "run", "nightly", cwd=cwd)
            assert project.document()["attempts"] == number
        assert chat.count == 3
        assert [path for path in tmp_path.rglob("nightly.json") if path != project.path()] == []
        assert list(tmp_path.rglob(".ledger.sqlite3")) == [project.path().parent / ".ledger.sqlite3"]
        said = project.run("--config", os.path.relpath(link, "/"), "status", "--json", cwd="/").stdout
        assert json.loads(said)["jobs"][0]["checkpoint"] == str(project.path())


def test_without_live_nothing_connects_and_a_rehearsal_runs_in_its_own_folder(
    project: Project, command: Command
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        project.live(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", {"nightly": HOURLY})
        project.write(project.config.read_text("utf-8").replace('"live": true', '"live": false'))
        command("tick")
        command("run", "nightly")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    rehearsed = project.path().parent / "rehearsal" / "nightly.json"
    assert json.loads(rehearsed.read_text("utf-8"))["status"] == "done"
    assert not project.path().exists()
    [row] = json.loads(command("status", "--json").out)["jobs"]
    assert (row["rehearsal"], row["checkpoint"]) == (True, str(rehearsed))
    assert "REHEARSAL" in command("status").out


# ---- rests and the budget


def test_a_refused_key_rests_its_provider_until_unblock(project: Project, command: Command) -> None:
    with chat_server(REFUSED, answer("fin")) as chat:
        project.live(chat.url, {"a": {}, "b": {}, "c": {}}, max_parallel=1)
        assert "bad key" in command("run", "a", code=69).err
        assert "resumed unblock local" in command("run", "b", "c", code=65).err
        assert chat.count == 1
        assert not project.path("b").exists()
        assert "local" in command("status").out.splitlines()[1]
        command("unblock", "local")
        command("run", "b", "c")
        assert chat.count == 3


def test_a_refused_key_costs_one_request_however_many_jobs_are_due(project: Project, command: Command) -> None:
    with chat_server(REFUSED) as chat:
        project.live(chat.url, dict.fromkeys("abc", HOURLY), max_parallel=1)
        command("tick", code=65)
        assert chat.count == 1
        command("tick", code=65)
        assert chat.count == 1


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_changed_key_lifts_the_rest(
    project: Project, command: Command, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with chat_server((status, {"error": "no"}), answer("fin")) as chat:
        project.live(chat.url, {"a": {}, "b": {}})
        command("run", "a", code=69)
        command("run", "b", code=65)
        monkeypatch.setenv("LOCAL_KEY", "another-key-0123456789")
        command("run", "b")
        assert chat.count == 2
        assert rests(project) == []


def test_a_changed_entry_lifts_the_rest(project: Project, command: Command) -> None:
    with chat_server(REFUSED, answer("fin")) as chat:
        project.live(chat.url, {"a": {}, "b": {}})
        command("run", "a", code=69)
        project.live(chat.url, {"a": {}, "b": {}}, provider={"timeout": 31})
        command("run", "b")
        assert chat.count == 2


def test_an_unknown_model_rests_that_model_only(project: Project, command: Command) -> None:
    unknown = (404, {"error": {"code": "model_not_found", "message": "no such model"}})
    with chat_server(unknown, answer("fin")) as chat:
        project.live(chat.url, {"a": {"model": "m9"}, "b": {"model": "m9"}, "c": {}})
        command("run", "a", code=69)
        assert "model m9 of provider local refused (404: no such model)" in command("run", "b", code=65).err
        command("run", "c")
        assert [request["model"] for request in chat.requests] == ["m9", "m1"]
        assert rests(project) == [("local", "m9", None)]


def test_retry_after_rests_the_provider_and_a_named_job_waits_with_75(project: Project, command: Command) -> None:
    limited = (429, {"error": {"message": "slow down"}}, {"Retry-After": "30"})
    with chat_server(limited, answer("fin")) as chat:
        project.live(chat.url, {"a": HOURLY, "b": HOURLY}, max_parallel=1)
        command("run", "a", code=69)
        [(_, model, left)] = rests(project)
        assert model == ""
        assert 25 <= left <= 31
        assert "slow down" in command("run", "b", code=75).err
        command("tick", "b", code=75)
        assert command("tick") == ("", "")
        assert chat.count == 1
        let_time_pass(project, 32)
        command("tick", "b")
        assert chat.count == 2


def test_an_outage_rests_the_provider_longer_each_time_and_an_answer_ends_it(
    project: Project, command: Command
) -> None:
    with chat_server(OUTAGE, OUTAGE, OUTAGE, OUTAGE, answer("fin")) as chat:
        project.live(chat.url, {"a": {}, "b": {}}, after_failure=[])
        for minutes in (1, 5, 30, 60):
            command("run", "a", code=69)
            [(_, _, left)] = rests(project)
            assert minutes * 60 - 5 <= left <= minutes * 60
            command("run", "b", code=75)
            let_time_pass(project, minutes * 60)
        command("run", "b")
        assert rests(project) == []
        assert chat.count == 5


def test_the_budget_of_a_day_stops_live_requests_until_the_next_one(project: Project, command: Command) -> None:
    with chat_server(answer("fin")) as chat:
        names = dict.fromkeys("abcd", HOURLY)
        project.live(chat.url, names, budget={"requests_per_day": 2}, max_parallel=1)
        assert command("tick") == ("", "")
        assert chat.count == 2
        assert "budget" in command("tick", "c", code=75).err
        assert not project.path("c").exists()
        let_time_pass(project, 86400)
        command("tick")
        assert chat.count == 4


# ---- what is refused, beside what runs


def test_a_bad_entry_is_named_with_its_place_and_the_good_one_runs(
    project: Project, command: Command, chat: ChatServer
) -> None:
    text = f"""\
live: true
providers:
  local: {{base_url: "{chat.url}", model: m1}}
jobs:
  good: {{task: "x", schedule: "every 1h", checkpoint: checkpoints/good.json, provider: local}}
  broken: {{task: "x", schedule: "99 * * * *", checkpoint: checkpoints/broken.json}}
  typo: {{tsak: "x", checkpoint: checkpoints/typo.json}}
  nul:
"""
    project.write(text)
    said = command("tick", code=65).err
    assert chat.count == 1
    assert project.document("good")["answer"] == "fin"
    places = {"broken": (6, text.splitlines()[5].index('"99') + 1), "typo": (7, 10)}
    for job, (line, column) in places.items():
        assert f"{project.config}:{line}:{column}: job {job}: " in said
    assert f"{project.config}:8:" in said
    assert "did you mean task?" in said
    rows = {row["id"]: row for row in json.loads(command("status", "--json").out)["jobs"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "good": "done",
        "broken": "blocked",
        "typo": "blocked",
        "nul": "blocked",
    }
    assert all(rows[name]["reason"] for name in ("broken", "typo", "nul"))
    command("run", "good")
    command("run", "broken", code=65)
    assert project.config.read_text("utf-8") == text
    assert [path.name for path in project.path().parent.glob("*.json")] == ["good.json"]


@pytest.mark.parametrize("key", [None, " \t ", "sk-sécret-0123456789", "sk-secret\nX-Evil: 0123456789"], ids=ascii)
def test_a_key_that_no_header_carries_blocks_and_is_never_shown(
    project: Project, command: Command, chat: ChatServer, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    project.live(chat.url, {"nightly": HOURLY})
    if key is None:
        monkeypatch.delenv("LOCAL_KEY")
    else:
        monkeypatch.setenv("LOCAL_KEY", key)
    said = [command(*arguments, code=65) for arguments in (["tick"], ["run", "nightly"], ["check"])]
    said.append(command("status"))
    shown = "".join(part for one in said for part in one)
    assert "LOCAL_KEY" in said[0].err
    assert "LOCAL_KEY" in said[1].err
    assert not any(part in shown for part in ("cret", "Evil", "0123456789"))
    assert chat.count == 0
    assert not project.path().exists()
    monkeypatch.setenv("LOCAL_KEY", f" {KEY}\n")
    command("tick")
    assert chat.headers[0]["Authorization"] == f"Bearer {KEY}"


def write_garbage(project: Project, job: str = "nightly") -> None:
    project.path(job).parent.mkdir(0o700, exist_ok=True)
    project.path(job).write_text("{")


def open_to_all(project: Project) -> None:
    project.config.chmod(0o666)


@pytest.mark.parametrize(
    ("code", "arguments", "reply", "spoil"),
    [
        (0, ["run", "nightly"], answer("fin"), None),
        (0, ["run", "nightly"], GOES_ON, None),
        (69, ["run", "nightly"], answer(""), None),
        (69, ["run", "nightly"], REFUSED, None),
        (65, ["run", "nightly"], answer("fin"), write_garbage),
        (78, ["tick"], answer("fin"), lambda project: project.write("")),
        (78, ["tick"], answer("fin"), lambda project: project.config.unlink()),
        (77, ["tick"], answer("fin"), open_to_all),
        (64, ["run", "nigthly"], answer("fin"), None),
        (64, ["run"], answer("fin"), None),
        (64, ["rum"], answer("fin"), None),
    ],
)
def test_exit_codes(
    project: Project,
    command: Command,
    chat: ChatServer,
    code: int,
    arguments: list[str],
    reply: Reply,
    spoil: Callable[[Project], object] | None,
) -> None:
    project.live(chat.url)
    chat.script = [reply]
    if spoil:
        spoil(project)
    said = command(*arguments, code=code)
    assert chat.count == (0 if code in (64, 65, 77, 78) else 1)
    assert said.out == ""
    if code:
        assert said.err.rstrip("\n").count("\n") == (1 if code == 69 else 0)


def test_of_several_results_the_first_of_the_order_is_the_exit_code(project: Project, command: Command) -> None:
    limited = (429, {"error": {"message": "slow down"}}, {"Retry-After": "600"})
    with chat_server(answer("fin"), answer(""), limited) as chat:
        project.live(chat.url, {name: {} for name in ("done", "empty", "limited", "waits", "blocked")}, max_parallel=1)
        write_garbage(project, "blocked")
        command("run", "done", "empty", code=69)
        command("run", "done", "limited", code=69)
        command("run", "done", "waits", code=75)
        command("run", "done", "waits", "blocked", code=65)
        assert chat.count == 3
        ledger(project, "DELETE FROM rest")
        chat.script = [answer("")]
        command("run", "waits", "blocked", code=65)
        assert chat.count == 4


def test_a_job_in_flight_elsewhere_is_75_when_named_and_0_when_not(project: Project, command: Command) -> None:
    with chat_server(GOES_ON, held=True) as chat:
        project.live(chat.url, {"nightly": HOURLY})
        with project.start("tick") as other:
            chat.wait_for(1)
            command("run", "nightly", code=75)
            assert command("tick") == ("", "")
            assert json.loads(command("status", "--json").out)["jobs"][0]["state"] == "running"
            chat.hold.set()
            assert other.wait(60) == 0
            assert other.communicate() == ("", "")
        assert chat.count == 1


def test_a_job_that_waited_for_a_worker_is_asked_again_whether_it_is_due(project: Project) -> None:
    with chat_server(GOES_ON, held=True) as slow, chat_server(answer("")) as fast:
        providers = {"slow": {"base_url": slow.url, "model": "m1"}, "fast": {"base_url": fast.url, "model": "m1"}}
        entry = {"task": "x", "schedule": "every 1s"}
        jobs = {
            name: entry | {"checkpoint": f"checkpoints/{name}.json", "provider": provider}
            for name, provider in (("first", "slow"), ("second", "fast"))
        }
        project.write_jobs(jobs, live=True, providers=providers, max_parallel=1)
        with project.start("tick") as other:
            try:
                slow.wait_for(1)
                [(point,)] = ledger(project, "SELECT point FROM admission")
                wait_until(lambda: time.time() >= point + 1, 10, "a newer point than the one that waits")
                project.run("tick", "second", code=69)  # a failure, so that no point of the next minutes counts
            finally:
                slow.hold.set()
            _, err = other.communicate(timeout=60)
        assert (other.returncode, fast.count) == (0, 1), err
        assert project.document("second")["attempts"] == 1


def test_credentials_of_the_service_are_read_by_no_tool(project: Project, command: Command, monkeypatch: Any) -> None:
    secrets = project.folder / "docs" / "run" / "credentials"
    secrets.mkdir(parents=True)
    (secrets / "api").write_text("sk-of-the-service\n")
    (project.folder / "docs" / "notes.md").write_text("three days\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secrets))
    calls = [
        ("c1", "list_files", "{}"),
        ("c2", "read_file", '{"path": "docs/run/credentials/api"}'),
        ("c3", "search_files", '{"query": "of-the-service"}'),
        ("c4", "list_files", '{"path": "docs/run/credentials"}'),
        ("c5", "read_file", '{"path": "docs/notes.md"}'),
    ]
    with chat_server(tool_calls(*calls), answer("fin")) as chat:
        entries = {"above": {"read": ["docs"]}, "named": {"read": ["docs/run/credentials"]}}
        entries["file"] = {"read": ["docs/run/credentials/api"]}
        project.live(chat.url, entries)
        for name in ("named", "file"):
            assert "no tool may read" in command("run", name, code=65).err
            assert "no tool may read" in command("check", code=65).err
        assert chat.count == 0
        for _ in range(2):
            command("run", "above")
        sent = json.dumps(chat.requests)
    assert chat.count == 2
    assert "three days" in sent
    assert "sk-of" not in sent
    shown = [turn["content"] for turn in project.document("above")["conversation"] if turn["role"] == "tool"]
    assert not [text for text in shown[:1] if "credentials" in text]
    assert "sk-of" not in project.path("above").read_text()
    blocked = {row["id"] for row in json.loads(command("status", "--json").out)["jobs"] if row["state"] == "blocked"}
    assert blocked == {"named", "file"}


def test_no_room_for_the_reply_is_74_and_nothing_is_counted(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": HOURLY})

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    said = project.run("tick", code=74, preexec_fn=limit_files)
    assert "space" in said.stderr
    assert "permission" not in said.stderr
    assert chat.count == 0
    assert not project.path().exists()
    project.run("tick")
    assert chat.count == 1


# ---- signals


@contextlib.contextmanager
def ticking(project: Project, chat: ChatServer) -> Iterator[subprocess.Popen[str]]:
    """Start a tick of three due jobs, one at a time, and wait for its first request."""
    process = project.start("tick")
    try:
        chat.wait_for(1)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sigterm_lets_the_slice_of_a_tick_end_and_no_other_begin(project: Project) -> None:
    with chat_server(answer("fin"), held=True) as chat:
        project.live(chat.url, dict.fromkeys("abc", HOURLY), max_parallel=1)
        with ticking(project, chat) as process:
            process.terminate()
            wait_until(lambda: not pending(process, signal.SIGTERM), 20, "the signal is taken")
            chat.hold.set()
            assert process.wait(60) == 0
            assert process.communicate() == ("", "")
        assert chat.count == 1
    assert project.document("a")["answer"] == "fin"
    assert not project.path("b").exists()


def pending(process: subprocess.Popen[str], number: int) -> bool:
    """Tell whether a signal still waits to be delivered."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_sigterm_ends_a_tick_whose_reply_does_not_come_within_stop_wait(project: Project) -> None:
    with chat_server(held=True) as chat:
        project.live(chat.url, dict.fromkeys("abc", HOURLY), max_parallel=1, stop_wait="1s")
        with ticking(project, chat) as process:
            process.terminate()
            code = process.wait(30)
            out, err = process.communicate()
        assert chat.count == 1
    assert "Traceback" not in err
    assert out == ""
    assert [entry["outcome"] for entry in project.document("a")["history"]] == ["interrupted"]
    assert not project.path("b").exists()
    assert code == 0


def test_a_second_signal_ends_a_tick_at_once_and_the_attempt_stays_counted(project: Project, command: Command) -> None:
    with chat_server(answer("fin"), held=True) as chat:
        project.live(chat.url, {"nightly": HOURLY})
        with ticking(project, chat) as process:
            process.send_signal(signal.SIGINT)
            wait_until(lambda: not pending(process, signal.SIGINT), 20, "the signal is taken")
            time.sleep(0.2)  # taken by the kernel's count, but Python's own handler runs a moment later
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 128 + signal.SIGINT
            assert "Traceback" not in process.communicate()[1]
        assert project.document()["attempts"] == 1
        chat.hold.set()
        command("run", "nightly")
        assert [entry["outcome"] for entry in project.document()["history"]] == ["interrupted", "answered"]
        assert chat.count == 2

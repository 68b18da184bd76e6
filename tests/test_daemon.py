"""The daemon as a process: its clock, its end, edits and other commands while it runs, and no connection."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scheduler import mend
from scheduler.due import plan_job
from scheduler.job import JobFile
from scheduler.jobfile import read_job_file
from scheduler.owed import select
from scheduler.watch import WatchedFile
from tests.support import (
    PROGRAM,
    ROOT,
    ChatServer,
    Project,
    answer,
    chat_server,
    manager,
    state_home,
    tool_calls,
    wait_until,
)

GOES_ON = tool_calls(("c1", "read_file", "{}"))  # progress, so that nothing delays the next point
EACH_SECOND = {"schedule": "every 1s"}
HOURLY = {"schedule": "every 1h"}  # the first point is at once, and no other comes while a test runs
_numbers = itertools.count()


@dataclass
class Service:
    """A daemon that runs, and its log."""

    process: subprocess.Popen[str]
    path: Path

    def lines(self, needle: str = "") -> list[str]:
        return [line for line in self.path.read_text("utf-8").splitlines() if needle in line]

    def wait_line(self, needle: str, count: int = 1) -> None:
        """Wait for so many lines of the log that hold a text."""
        wait_until(lambda: len(self.lines(needle)) >= count, 30, f"{count} lines with {needle!r}:\n{self.path}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = 30) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(seconds)

    def stop(self) -> None:
        """End it by SIGTERM, and check that it went as it should."""
        self.signal(signal.SIGTERM)
        assert self.ended() == 0
        assert self.lines("Traceback") == []


@contextlib.contextmanager
def service(project: Project, *arguments: str, ready: bool = True, **environ: str) -> Iterator[Service]:
    """Start a daemon and wait until it has taken its jobs; kill it at the end if it still runs."""
    path = project.folder.parent / f"daemon-{next(_numbers)}.log"
    with open(path, "w") as log:
        process = project.start("daemon", *arguments, environ=project.environ(**environ), stdout=log, stderr=log)
    running = Service(process, path)
    try:
        if ready:
            running.wait_line("max_parallel")
        yield running
    finally:
        process.kill()
        process.wait()


def ledger(project: Project, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement on the ledger, as another program would."""
    with contextlib.closing(sqlite3.connect(project.path().parent / ".ledger.sqlite3")) as base, base:
        return base.execute(sql, values).fetchall()


def outcomes(project: Project, job: str = "nightly") -> list[str | None]:
    return [entry["outcome"] for entry in project.document(job)["history"]]


def two_providers(
    project: Project, slow: ChatServer, fast: ChatServer, jobs: Mapping[str, Mapping[str, Any]], **top: Any
) -> None:
    """Write a live jobs.yaml of a provider `slow` and a provider `fast`."""
    filled = {
        name: {"task": "x", "checkpoint": f"checkpoints/{name}.json", "provider": "fast", **EACH_SECOND, **entry}
        for name, entry in jobs.items()
    }
    providers = {"slow": {"base_url": slow.url, "model": "m1"}, "fast": {"base_url": fast.url, "model": "m1"}}
    project.write_jobs(filled, live=True, providers=providers, **top)


@pytest.fixture
def slow() -> Iterator[ChatServer]:
    """A server that holds its replies until `hold.set()`."""
    with chat_server(GOES_ON, held=True) as server:
        yield server


# ---- from the start to the end


def test_until_done_ends_once_all_are_final_and_a_restart_sends_nothing_and_says_so(
    project: Project, chat: ChatServer
) -> None:
    chat.script = [answer("fin")]
    project.live(chat.url, {"a": EACH_SECOND, "b": {**EACH_SECOND, "max_attempts": 2}})
    project.run("daemon", "--until-done")
    before = [project.path(name).read_bytes() for name in "ab"]
    said = project.run("daemon", "--until-done").stderr
    assert [f"job {name}: it is done" in said for name in "ab"] == [True, True]
    assert [project.path(name).read_bytes() for name in "ab"] == before
    assert chat.count == 2


def test_until_done_ends_65_when_only_blocked_jobs_are_left(project: Project, chat: ChatServer) -> None:
    chat.script = [GOES_ON, answer("fin")]
    project.live(chat.url, {"good": EACH_SECOND, "damaged": EACH_SECOND, "bad": {"schedule": "99 * * * *"}})
    project.path().parent.mkdir(0o700)
    project.path("damaged").write_text("{")
    said = project.run("daemon", "--until-done", code=65).stderr
    assert project.document("good")["status"] == "done"
    assert project.path("damaged").read_text() == "{"
    assert chat.count == 2
    for job in ("damaged", "bad"):
        assert said.count(f"job {job}: ") == 1


def test_a_missing_key_spends_nothing_however_often_the_daemon_is_restarted(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": EACH_SECOND})
    environ = {name: value for name, value in project.environ().items() if name != "LOCAL_KEY"}
    said = [project.run("daemon", "--until-done", code=65, environ=environ).stderr for _ in range(2)]
    assert ["LOCAL_KEY" in text for text in said] == [True, False]  # once a day
    assert chat.count == 0
    assert not project.path().exists()


def test_a_daemon_without_its_file_ends_at_once(project: Project) -> None:
    assert str(project.config) in project.run("daemon", code=78).stderr


def test_sigterm_interrupts_what_is_in_flight_and_begins_nothing_that_is_queued(
    project: Project, slow: ChatServer
) -> None:
    project.live(slow.url, dict.fromkeys("abc", EACH_SECOND), max_parallel=1, stop_wait="1s")
    with service(project) as daemon:
        slow.wait_for(1)
        began = time.monotonic()
        daemon.stop()
        assert 0.9 < time.monotonic() - began < 15
    assert slow.count == 1
    [ran] = [name for name in "abc" if project.path(name).exists()]
    assert outcomes(project, ran) == ["interrupted"]
    assert project.document(ran)["history"][0]["billed"] == "maybe"
    assert "interrupted" in project.run("show", ran).stdout


def test_a_reply_within_stop_wait_is_saved(project: Project, slow: ChatServer, tmp_path: Path) -> None:
    slow.script = [answer("just in time")]
    project.live(slow.url, {"nightly": EACH_SECOND, "other": {"schedule": "0 9 * * *"}})
    with manager(str(tmp_path / "notify")) as told, service(project, NOTIFY_SOCKET=told.address) as daemon:
        told.wait("READY=1")
        slow.wait_for(1)
        daemon.signal(signal.SIGTERM)
        told.wait("STOPPING=1")
        assert daemon.process.poll() is None
        slow.hold.set()
        assert daemon.ended() == 0
    assert project.document()["answer"] == "just in time"
    assert slow.count == 1


def test_sigint_twice_ends_at_once_and_the_attempt_stays_counted(
    project: Project, slow: ChatServer, tmp_path: Path
) -> None:
    project.live(slow.url, {"nightly": EACH_SECOND}, after_failure=[])
    with manager(str(tmp_path / "notify")) as told, service(project, NOTIFY_SOCKET=told.address) as daemon:
        slow.wait_for(1)
        daemon.signal(signal.SIGINT)
        told.wait("STOPPING=1")
        daemon.signal(signal.SIGINT)
        assert daemon.ended(20) == 128 + signal.SIGINT
        assert daemon.lines("Traceback") == []
    assert project.document()["attempts"] == 1
    slow.hold.set()
    project.run("run", "nightly")
    assert outcomes(project) == ["interrupted", "tool_calls"]
    assert slow.count == 2


def test_a_second_daemon_is_refused_with_who_and_since_when_but_a_killed_one_does_not_count(
    project: Project, slow: ChatServer, tmp_path: Path
) -> None:
    project.live(slow.url, {"nightly": EACH_SECOND}, after_failure=[])
    link = tmp_path / "link.yaml"
    link.symlink_to(project.config)
    with service(project) as first:
        slow.wait_for(1)
        for config in (project.config, link):
            said = project.run("--config", str(config), "daemon", code=75).stderr
            assert f"process {first.process.pid}, since {time.gmtime().tm_year}-" in said
        assert first.process.poll() is None
        first.signal(signal.SIGKILL)
        first.ended()
    with service(project) as second:
        slow.wait_for(2)
        slow.hold.set()
        wait_until(lambda: outcomes(project)[1:2] == ["tool_calls"], 30, "the second attempt")
        second.stop()
    assert outcomes(project)[0] == "interrupted"


# ---- the clock


@dataclass
class Crowd:
    """What is left of a daemon that ran a job that hangs beside others."""

    project: Project
    slow: ChatServer
    fast: ChatServer
    log: Sequence[str]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """Run a daemon of two slots until a job has had its four slices beside one that hangs and one that is damaged."""
    folder = tmp_path_factory.mktemp("crowd") / "project"
    folder.mkdir(0o700)
    project = Project(folder)
    project.path().parent.mkdir(0o700)
    project.path("damaged").write_text("{")
    with chat_server(GOES_ON, held=True) as slow, chat_server(GOES_ON) as fast:
        jobs = {"hung": {"provider": "slow"}, "damaged": {}, "steady": {}, "brief": {"max_attempts": 1}}
        two_providers(project, slow, fast, jobs, max_parallel=2, stop_wait="1s")
        with service(project) as daemon:
            slow.wait_for(1)
            wait_until(lambda: status_of(project, "steady") == "exhausted", 60, "four slices of a job")
            wait_until(lambda: status_of(project, "brief") == "exhausted", 60, "the slice of another")
            running = project.document("hung")
            daemon.stop()
            assert running["history"][-1]["outcome"] is None
            yield Crowd(project, slow, fast, daemon.lines())


def status_of(project: Project, job: str) -> str:
    return str(project.document(job)["status"]) if project.path(job).exists() else ""


def test_a_job_that_hangs_delays_no_other(crowd: Crowd) -> None:
    assert outcomes(crowd.project, "steady") == ["tool_calls"] * 4
    assert outcomes(crowd.project, "hung") == ["interrupted"]
    assert crowd.fast.count == 5


def test_a_slice_longer_than_its_period_has_no_other_beside_it(crowd: Crowd) -> None:
    assert crowd.slow.count == 1
    assert crowd.slow.most_in_flight == 1


def test_slices_of_one_job_are_at_its_points_a_second_apart(crowd: Crowd) -> None:
    rows = ledger(crowd.project, "SELECT point, admitted_at FROM admission WHERE job = 'steady' ORDER BY attempt")
    points = [point for point, _ in rows]
    assert sorted(set(points)) == points
    assert all(point <= admitted for point, admitted in rows)


def test_a_damaged_checkpoint_is_told_once_while_the_others_run(crowd: Crowd) -> None:
    assert len([line for line in crowd.log if "job damaged" in line]) == 1
    assert crowd.project.path("damaged").read_text() == "{"


def test_a_slice_that_takes_longer_than_its_period_goes_on_with_the_next_point(
    project: Project, slow: ChatServer
) -> None:
    slow.script = [GOES_ON, answer("fin")]
    project.live(slow.url, {"nightly": EACH_SECOND})
    with service(project) as daemon:
        slow.wait_for(1)
        [(first,)] = ledger(project, "SELECT point FROM admission")
        wait_until(lambda: time.time() > first + 3, 30, "three more points")
        slow.hold.set()
        slow.wait_for(2)
        wait_until(lambda: project.document()["status"] == "done", 30, "the answer")
        daemon.stop()
    assert slow.most_in_flight == 1
    [(second,)] = ledger(project, "SELECT point FROM admission WHERE attempt = 2")
    assert second >= first + 2


def test_a_point_that_passed_during_a_slice_is_made_up_after_it(project: Project, slow: ChatServer) -> None:
    project.live(slow.url, {"nightly": HOURLY})
    job_file = read_job_file(project.config)
    select(job_file.jobs.values(), job_file.live, time.time(), lambda *_: None)
    # The first slice is that of a missed point, and the next point comes while it waits.
    ledger(project, "UPDATE job SET since = ?", int(time.time()) - 3600 + 5)
    with service(project) as daemon:
        slow.wait_for(1)
        [(first,)] = ledger(project, "SELECT point FROM admission")
        assert time.time() < first + 3600, "the daemon took more than five seconds to start"
        wait_until(lambda: time.time() > first + 3601, 30, "the next point")
        slow.hold.set()
        slow.wait_for(2)
        daemon.stop()
    assert [point for (point,) in ledger(project, "SELECT point FROM admission ORDER BY attempt")] == [
        first,
        first + 3600,
    ]


def test_a_slice_that_waited_for_a_free_slot_is_not_dropped(project: Project) -> None:
    with chat_server(answer("fin"), delay=1.3) as chat:
        project.live(chat.url, {"a": HOURLY, "b": HOURLY}, max_parallel=1)
        project.run("daemon", "--until-done")
        assert chat.most_in_flight == 1
        assert chat.count == 2


def test_waking_up_makes_up_one_slice_a_job_and_goes_on(project: Project, chat: ChatServer) -> None:
    chat.script = [GOES_ON]
    project.live(chat.url, {name: {"schedule": "every 2s"} for name in "abc"})
    ended = "SELECT count(*) FROM admission WHERE outcome IS NOT NULL"
    with service(project) as daemon:
        chat.wait_for(3)
        wait_until(lambda: ledger(project, ended)[0][0] >= 3, 30, "the end of the first slices")
        daemon.signal(signal.SIGSTOP)
        stopped = int(time.time())
        wait_until(lambda: time.time() > stopped + 10, 30, "some seconds of sleep")
        asleep = chat.count
        woken = int(time.time())
        daemon.signal(signal.SIGCONT)
        wait_until(lambda: all(status_of(project, name) == "exhausted" for name in "abc"), 30, "four slices a job")
        daemon.stop()
    made_up = daemon.lines("were missed; one slice makes up for them")
    assert [any(f"job {name}: the points from" in line for line in made_up) for name in "abc"] == [True] * 3
    assert chat.count == 12
    assert asleep < 12
    for name in "abc":
        points = [point for (point,) in ledger(project, "SELECT point FROM admission WHERE job = ?", name)]
        assert len([point for point in points if stopped < point <= woken]) <= 1
        assert points[-1] > woken


def test_a_daemon_beside_ticks_and_runs_never_has_two_requests_in_flight_nor_five_in_all(project: Project) -> None:
    with chat_server(GOES_ON, delay=0.4) as chat:
        project.live(chat.url, {"nightly": EACH_SECOND})
        with service(project) as daemon:
            others = [project.start(*arguments) for arguments in (["tick"], ["run", "nightly"], ["tick"])]
            said = ["".join(process.communicate(timeout=60)) for process in others]
            wait_until(lambda: status_of(project, "nightly") == "exhausted", 60, "four slices")
            daemon.stop()
        assert not any("Traceback" in one for one in said)
        assert all(process.returncode in (0, 69, 75) for process in others)
        assert chat.most_in_flight == 1
        assert chat.count == 4
    points = [point for (point,) in ledger(project, "SELECT point FROM admission WHERE point IS NOT NULL")]
    assert len(points) == len(set(points))


# ---- edits while it runs


def by_rename(path: Path, text: str) -> None:
    """Save as most editors do."""
    fresh = path.with_name("fresh.yaml")
    fresh.write_text(text, "utf-8")
    fresh.rename(path)


def in_place(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def with_an_older_date(path: Path, text: str) -> None:
    by_rename(path, text)
    os.utime(path, (1, 1))


def by_swapping_a_link(path: Path, text: str) -> None:
    (path.parent / "other.yaml").write_text(text, "utf-8")
    fresh = path.with_name("fresh.yaml")
    fresh.symlink_to("other.yaml")
    fresh.rename(path)


@pytest.mark.parametrize("save", [by_rename, in_place, with_an_older_date, by_swapping_a_link])
def test_added_changed_and_removed_jobs_are_taken_over(
    project: Project, chat: ChatServer, save: Callable[[Path, str], None]
) -> None:
    chat.script = [GOES_ON]
    daily = {"schedule": "0 9 29 2 *"}
    project.live(chat.url, {"removed": daily, "changed": daily, "same": daily})
    draft = Project(project.folder / "draft")
    draft.folder.mkdir()
    draft.live(chat.url, {"changed": HOURLY, "same": daily, "added": HOURLY})
    if save is by_swapping_a_link:
        project.config.rename(project.folder / "first.yaml")
        project.config.symlink_to("first.yaml")
    with service(project) as daemon:
        save(project.config, draft.config.read_text("utf-8"))
        wait_until(lambda: all(project.path(name).exists() for name in ("changed", "added")), 15, "the new jobs")
        daemon.wait_line("new or changed")
        chat.wait_for(2)
        assert not project.path("same").exists()
        daemon.stop()


def test_the_slice_of_a_removed_job_is_saved_and_nothing_follows(
    project: Project, slow: ChatServer, chat: ChatServer
) -> None:
    chat.script = [GOES_ON]
    two_providers(project, slow, chat, {"nightly": {"provider": "slow"}, "idle": {}})
    with service(project) as daemon:
        slow.wait_for(1)
        chat.wait_for(1)
        two_providers(project, slow, chat, {"other": {}})
        daemon.wait_line("new or changed")
        seen = project.document("idle")["attempts"]
        slow.hold.set()
        wait_until(lambda: status_of(project, "other") == "exhausted", 30, "four slices of the other job")
        daemon.stop()
    assert project.document("idle")["attempts"] == seen < 4
    assert outcomes(project) == ["tool_calls"]
    assert slow.count == 1


def test_an_edit_between_the_reading_and_the_first_look_is_taken_over(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": HOURLY})
    job_file = read_job_file(project.config)
    project.live(chat.url, {"nightly": HOURLY, "added": HOURLY})
    watched = WatchedFile(project.config, job_file)
    fresh = watched.look()
    assert isinstance(fresh, JobFile)
    assert set(fresh.jobs) == {"nightly", "added"}
    assert watched.look() is None


def test_a_bad_edit_is_one_error_a_version_and_the_last_good_jobs_go_on(project: Project, chat: ChatServer) -> None:
    chat.script = [GOES_ON]
    project.live(chat.url, {"nightly": EACH_SECOND})
    good = project.config.read_text("utf-8")
    with service(project) as daemon:
        chat.wait_for(1)
        for number, text in enumerate(['jobs: {nightly: {task: "x", schedule: ', "jobs: {}"], 1):
            project.write(text)
            daemon.wait_line(" error ", number)
        project.config.touch()  # the same version once more
        touched = time.monotonic()
        wait_until(lambda: time.monotonic() > touched + 2.2, 30, "two looks at the file")
        wait_until(lambda: status_of(project, "nightly") == "exhausted", 30, "four slices in spite of it")
        assert len(daemon.lines(" error ")) == 2
        project.write(good.replace('"nightly": {', '"later": {').replace("nightly.json", "later.json"))
        wait_until(lambda: project.path("later").exists(), 15, "the job of the mended file")
        assert len(daemon.lines(" error ")) == 2
        daemon.stop()


def test_two_bad_versions_with_one_fault_are_two_errors(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    with service(project) as daemon:
        for number, text in enumerate(["jobs: {}", "jobs: {}\n"], 1):
            project.write(text)
            daemon.wait_line("last good", number)
        daemon.stop()


def test_a_file_that_is_away_for_a_while_is_a_bad_version(project: Project, chat: ChatServer) -> None:
    chat.script = [GOES_ON]
    project.live(chat.url, {"nightly": EACH_SECOND})
    away = project.config.with_name("away.yaml")
    with service(project) as daemon:
        chat.wait_for(1)
        project.config.rename(away)
        daemon.wait_line(" error ")
        chat.wait_for(4)
        away.rename(project.config)
        wait_until(lambda: status_of(project, "nightly") == "exhausted", 30, "four slices in spite of it")
        project.live(chat.url, {"later": HOURLY})
        wait_until(lambda: project.path("later").exists(), 15, "the job of the next edit")
        assert len(daemon.lines(" error ")) == 1
        daemon.stop()


def test_sighup_ends_nothing_and_reads_the_file(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    with service(project) as daemon:
        daemon.signal(signal.SIGHUP)
        daemon.wait_line("read anew, nothing has changed")
        project.live(chat.url, {"nightly": {}, "added": HOURLY})
        daemon.signal(signal.SIGHUP)
        chat.wait_for(1)
        daemon.stop()
        assert daemon.lines(": stopping, ")


def test_a_link_to_the_same_text_in_another_folder_moves_the_jobs_there(
    project: Project, chat: ChatServer, tmp_path: Path
) -> None:
    folders = [tmp_path / "release-1", tmp_path / "release-2"]
    for folder in folders:
        folder.mkdir(0o700)
        Project(folder).live(chat.url, {"nightly": HOURLY})
    project.config.symlink_to(folders[0] / "jobs.yaml")
    with service(project) as daemon:
        chat.wait_for(1)
        by_hand = project.folder / "fresh.yaml"
        by_hand.symlink_to(folders[1] / "jobs.yaml")
        by_hand.rename(project.config)
        wait_until(lambda: Project(folders[1]).path().exists(), 15, "the job in the folder that the link names now")
        daemon.stop()


# ---- other commands while it runs


def renew(project: Project) -> None:
    """Open a new allowance of the job `nightly` from this process, faster than a new process starts."""
    job_file = read_job_file(project.config)
    mend.renew(plan_job(job_file.jobs["nightly"], job_file.live), "m1", "once more", keep=False)


def test_a_renewed_job_runs_again_in_a_daemon_that_had_finished_it(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": HOURLY})
    with service(project) as daemon:
        daemon.wait_line("it is done")
        for count in (2, 3):
            renew(project)
            chat.wait_for(count, 30)
            wait_until(lambda: project.document()["status"] == "done", 30, "the new answer")
        daemon.stop()


def test_a_command_right_after_the_start_is_not_missed(project: Project, chat: ChatServer, tmp_path: Path) -> None:
    project.live(chat.url, {"nightly": HOURLY})
    project.run("run", "nightly")
    with (
        manager(str(tmp_path / "notify")) as told,
        service(project, ready=False, NOTIFY_SOCKET=told.address) as daemon,
    ):
        told.wait("READY=1")
        renew(project)
        chat.wait_for(2, 30)
        daemon.stop()


def test_unblock_lets_a_daemon_ask_a_provider_that_refused(project: Project, chat: ChatServer) -> None:
    chat.script = [(401, {"error": {"message": "bad key"}}), answer("fin")]
    project.live(chat.url, {"a": HOURLY, "b": HOURLY}, max_parallel=1)
    with service(project) as daemon:
        daemon.wait_line("resumed unblock local")
        assert chat.count == 1
        project.run("unblock", "local")
        chat.wait_for(2, 30)
        daemon.stop()


# ---- no connection


def traced(tmp_path: Path, command: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a command with only a dead loopback, and return what it did and each connect and open of it and its threads.

    The first line of its output names its network namespace.
    """
    trace = tmp_path / "trace"
    namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=connect,openat"]
    shell = ["sh", "-c", 'readlink /proc/self/ns/net; exec "$@"', "sh"]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **state_home(tmp_path)}
    done = subprocess.run(
        [*namespace, *shell, *strace, *command], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    return done, trace.read_text("utf-8", "replace")


def test_the_trace_shows_a_connection_where_there_is_one(tmp_path: Path) -> None:
    code = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
    _, trace = traced(tmp_path, [sys.executable, "-c", code])
    assert "connect(" in trace
    assert "AF_INET" in trace


def test_the_shipped_jobs_are_answered_without_any_network(tmp_path: Path) -> None:
    project = Project(tmp_path / "copy")
    shutil.copytree(ROOT / "config", project.folder / "config")
    for path in (project.folder, project.folder / "config"):
        path.chmod(0o700)
    config = project.folder / "config" / "jobs.yaml"
    config.chmod(0o600)
    done, trace = traced(tmp_path, [*PROGRAM, "--config", str(config), "daemon", "--until-done"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != os.readlink("/proc/self/ns/net")
    assert done.stdout.startswith("net:[")
    assert "Traceback" not in done.stderr
    assert str(config) in trace
    assert [line for line in trace.splitlines() if "connect(" in line and "AF_INET" in line] == []
    status = json.loads(project.run("--config", str(config), "status", "--json").stdout)
    assert {job["state"] for job in status["jobs"]} == {"done"}
    assert (
        "three to five working days"
        in project.run("--config", str(config), "show", "shipping-question", "--answer").stdout
    )

"""Many processes on one job at once: one request in flight, four in all, one slice per point."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import time

import pytest

from scheduler.errors import PointTaken
from scheduler.jobfile import read_job_file
from scheduler.owed import Turn, select
from scheduler.tick import take_turn
from tests.faults.killed_at import forked, preloaded
from tests.support import ChatServer, Project, answer, chat_server, tool_calls, wait_until

CALL = tool_calls(("c1", "read_file", "{}"))


# ---- one point


def test_ticks_of_one_point_at_once_run_one_slice(project: Project) -> None:
    with chat_server(CALL) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1d"}})
        ends = forked(project, *[("tick",)] * 16, together=True)
    assert {ended.code for ended in ends} == {0}
    assert chat.count == 1
    assert len(project.rows("SELECT point FROM admission WHERE point IS NOT NULL")) == 1


def test_a_point_that_was_served_meanwhile_is_refused_and_counts_nothing(project: Project, chat: ChatServer) -> None:
    chat.script = [CALL]
    project.live(chat.url, {"nightly": {"schedule": "every 1d"}})
    job_file = read_job_file(project.config)
    [turn] = select(job_file.jobs.values(), True, time.time(), lambda *_: None)
    assert isinstance(turn, Turn)
    assert turn.due
    first, second = (take_turn(turn, job_file, project.environ(), lambda *_: None) for _ in range(2))
    assert first.ran
    assert isinstance(second.refusal, PointTaken)
    assert (second.ran, chat.count, project.document()["attempts"]) == (False, 1, 1)


# ---- runs and ticks at once


def test_runs_and_ticks_at_once_never_have_two_requests_in_flight_where_each_is_refused(project: Project) -> None:
    with chat_server((200, {"error": {"message": "overloaded", "code": 400}}), delay=0.2) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1s"}}, after_failure=[])
        storm = [("run", "nightly"), ("tick",), ("run", "nightly"), ("tick",), ("tick", "nightly")] * 2
        with preloaded(project.environ()) as process:
            for _ in range(8):
                ends = process.run(project.config, *storm, together=True)
                assert {ended.code for ended in ends} <= {0, 69, 75}, ends
                if project.document()["status"] != "ready":
                    break
            process.run(project.config, *storm, together=True)
    document = project.document()
    assert [entry["outcome"] for entry in document["history"]] == ["http_error"] * 4
    assert (chat.count, chat.most_in_flight) == (4, 1)
    points = [entry["point"] for entry in document["history"] if entry["point"]]
    assert len(set(points)) == len(points)


def test_whoever_comes_while_a_request_is_out_is_refused_and_sends_nothing(project: Project) -> None:
    with chat_server(held=True) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1s"}})
        with project.start("daemon") as daemon:
            try:
                chat.wait_for(1, 60)
                second = project.run("daemon", code=75)
                ends = forked(project, ("run", "nightly"), ("tick", "nightly"), ("tick",), ("run", "nightly"))
                before = chat.count
                chat.hold.set()
                wait_until(lambda: project.document()["status"] == "done", 60, "the answer")
                daemon.send_signal(signal.SIGTERM)
                _, err = daemon.communicate(timeout=60)
            finally:
                daemon.kill()
    assert daemon.returncode == 0, err
    [since] = [line for line in second.stderr.splitlines() if "already runs" in line]
    assert f"process {daemon.pid}, since 20" in since
    # A cron line that names no job has nothing to complain of: a point that is busy comes again.
    assert [ended.code for ended in ends] == [75, 0, 0, 75]
    assert "in use by another process" in ends[0].err
    assert (before, chat.count, project.document()["attempts"]) == (1, 1, 1)


def test_a_dead_daemon_does_not_keep_another_one_out(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": {"schedule": "0 9 29 2 *"}})
    with project.start("daemon") as daemon:
        try:
            folder = project.folder / "checkpoints"
            wait_until(lambda: (folder / ".ledger.sqlite3").exists(), 60, "the ledger")
            wait_until(lambda: bool(project.rows("SELECT 1 FROM sqlite_master WHERE name = 'daemon'")), 60, "tables")
            wait_until(lambda: bool(project.rows("SELECT 1 FROM daemon")), 60, "the daemon's row")
        finally:
            daemon.kill()
            daemon.communicate()
    project.live(chat.url, {"nightly": {"schedule": "every 1s"}})
    project.run("daemon", "--until-done", code=0)
    assert project.document()["status"] == "done"


# ---- while lock files are deleted


def test_an_answer_whose_checkpoint_was_taken_over_is_kept_among_the_orphans(project: Project) -> None:
    with chat_server(answer("the late answer"), held=True) as chat:
        project.live(chat.url)
        with project.start("run", "nightly") as process:
            chat.wait_for(1, 60)
            ledger = sqlite3.connect(project.folder / "checkpoints" / ".ledger.sqlite3", timeout=30)
            # As if this very attempt had been taken for dead: another process ended it.
            with ledger:
                ledger.execute("UPDATE admission SET outcome = 'interrupted', ended_at = admitted_at")
            ledger.close()
            os.unlink(project.path().with_name("nightly.json.lock"))
            chat.hold.set()
            _, err = process.communicate(timeout=60)
    assert process.returncode == 69, err
    assert "orphans" in err
    assert chat.count == 1
    [(attempt, body)] = project.rows("SELECT attempt, body FROM orphan")
    assert (attempt, json.loads(body)["answer"]) == (1, "the late answer")


# ---- a ledger that another process keeps locked


@pytest.mark.parametrize("command", ["tick", "run"])
def test_a_locked_ledger_delays_no_job_of_another_folder_and_its_own_only_as_long(
    project: Project, command: str
) -> None:
    entries = {"nightly": {"schedule": "every 1h"}, "apart": {"schedule": "every 1h", "checkpoint": "apart/apart.json"}}
    with chat_server() as chat:
        project.live(chat.url, {"nightly": {}})
        project.run("tick")  # makes the ledger; nothing is due
        project.live(chat.url, entries)  # `nightly` has another schedule, which is to be noted
        with contextlib.closing(
            sqlite3.connect(project.folder / "checkpoints" / ".ledger.sqlite3", isolation_level=None)
        ) as other:
            started = ("run", "nightly", "apart") if command == "run" else ("tick",)
            other.execute("BEGIN IMMEDIATE")
            with project.start(*started) as process:
                try:
                    chat.wait_for(1, 60)  # of `apart`, while the other ledger is still locked
                    asked = [request["messages"] for request in chat.requests]
                    other.execute("ROLLBACK")
                    _, err = process.communicate(timeout=60)
                finally:
                    process.kill()
    assert len(asked) == 1
    assert (process.returncode, chat.count) == (0, 2), err
    assert project.document()["status"] == "done"

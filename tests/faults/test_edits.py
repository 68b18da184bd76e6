"""Edits of jobs.yaml under a running daemon, in every way that files are saved: each final content comes into force."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.ledger import ledger_rows
from scheduler.roster import read_daemon
from tests import support
from tests.conftest import Begin
from tests.faults.broken import broken
from tests.faults.cases import sized
from tests.support import ChatServer, Project, wait_until
from tests.test_daemon import by_rename, by_swapping_a_link, in_place, ledger, outcomes, service

EDITS = sized(40, 200, 200)
BURST = 8  # edits at most before the daemon must have caught up
WITHIN = 3.0  # seconds
KEPT = 6  # jobs that stay in the file


def cut_then_completed(path: Path, text: str) -> None:
    """Save in two steps, with a moment in between in which half of the file is there."""
    path.write_text(text[: len(text) // 2], "utf-8")
    time.sleep(random.Random(text).choice([0, 0.01, 0.7, 1.3]))
    path.write_text(text, "utf-8")


def by_sed(path: Path, text: str) -> None:
    """Let `sed -i` write the text, which is one line, in place of the line that is there."""
    script = path.with_name("script.sed")
    script.write_text("1c\\\n" + text.replace("\\", "\\\\"), "utf-8")
    subprocess.run(["sed", "-i", "-f", script, path], check=True)


WAYS: list[Callable[[Path, str], None]] = [by_rename, in_place, cut_then_completed, by_swapping_a_link, by_sed]


def test_every_final_content_is_in_force_in_time_and_no_job_is_lost_or_doubled(
    harness: Begin, project: Project, chat: ChatServer
) -> None:
    with harness("edits of jobs.yaml", least=EDITS) as case:
        case("edits", edit_and_check(project, chat, EDITS))


def test_a_daemon_that_does_not_look_at_its_file_is_caught(
    harness: Begin, project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "PROGRAM", broken("ignores edits"))
    with harness("edits of jobs.yaml") as case:
        with pytest.raises(AssertionError, match="in force"):
            edit_and_check(project, chat, 1)
        case.control("the file is not looked at any more", caught=1)


def edit_and_check(project: Project, chat: ChatServer, edits: int) -> int:
    """Edit the file of a daemon so many times; check that each final content comes into force, in time and once."""
    chance = random.Random(7)
    folder = project.path().parent
    slowest = 0.0

    def content(number: int) -> str:
        """One line that has the jobs of the last edits, each with a task of its own."""
        jobs = {
            f"job-{one}": {"task": f"task {one}.", "checkpoint": f"checkpoints/job-{one}.json", "schedule": "every 1h"}
            for one in range(max(0, number - KEPT), number + 1)
        }
        provider = {"base_url": chat.url, "model": "m1"}
        jobs = {name: {**job, "provider": "local"} for name, job in jobs.items()}
        return json.dumps({"live": True, "providers": {"local": provider}, "jobs": jobs}) + "\n"

    def in_force() -> str:
        with ledger_rows(folder) as tx:
            entry = read_daemon(tx, os.path.realpath(project.config)) if tx else None
        return entry.pulse.digest if entry and entry.pulse else ""

    project.write(content(0))
    finals = {0}
    with service(project) as daemon:
        number = 0
        while number < edits:
            for _ in range(min(chance.randint(1, BURST), edits - number)):
                number += 1
                text = content(number)
                WAYS[number % len(WAYS)](project.config, text)
                time.sleep(chance.choice([0, 0, 0.002, 0.3]))
            saved = time.monotonic()
            wanted = hashlib.sha256(text.encode()).hexdigest()
            wait_until(lambda wanted=wanted: in_force() == wanted, WITHIN, f"edit {number} in force")  # type: ignore[misc]
            slowest = max(slowest, time.monotonic() - saved)
            name = f"job-{number}"
            wait_until(lambda name=name: project.path(name).exists(), WITHIN, f"{name} begun")  # type: ignore[misc]
            finals.add(number)
        wait_until(lambda: chat.count >= len(finals), 30, "a request of each job")
        wait_until(lambda: outcomes(project, f"job-{edits}") == ["answered"], 30, "the last answer")
        daemon.stop()
    print(f"{len(finals) - 1} final contents, the slowest in force after {slowest:.2f} s")
    sent = Counter(str(request["messages"]) for request in chat.requests)
    assert set(sent.values()) == {1}, "a job was doubled"
    rows = ledger(project, "SELECT job, count(*) FROM admission GROUP BY job")
    assert {count for _, count in rows} == {1}
    assert {f"job-{one}" for one in finals} <= {job for job, _ in rows}, "a job was lost"
    assert chat.count == len(rows)
    return number

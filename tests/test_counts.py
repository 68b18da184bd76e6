"""What the program costs, in counts that no noisy machine changes: system calls, syncs, imports, wake-ups, bytes.

Times are measured by `make bench`, beside other programs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scheduler import resume_once
from tests.faults.strace import traced
from tests.support import Project, wait_until, woken

MARK = "/no/such/mark"
# Two slices of each of three checkpoints; the second of the last one stands between two marks.
SLICES = """
import os, sys
from pathlib import Path
from scheduler import resume_once

def ask(request):
    return {"message": {"role": "assistant", "content": "word " * 500}, "finish_reason": "length"}

def mark():
    os.access(sys.argv[2], os.F_OK)

paths = [Path(sys.argv[1], f"{number}.json") for number in range(3)]
for path in (*paths, *paths[:2]):
    resume_once("Summarise the log", path, ask, "m1", tools=[])
mark()
resume_once("Summarise the log", paths[2], ask, "m1", tools=[])
mark()
"""
# What a job that is final needs none of.
UNNEEDED = {"httpx", "apscheduler", "filelock", "ssl", "asyncio", "scheduler.doctor", "scheduler.selftest"}


def test_a_warm_slice_makes_at_most_5_syncs_and_120_system_calls(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir(0o700)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", SLICES, str(tmp_path / "checkpoints"), MARK]
    done = traced(command, ["all"], environ=environ)
    assert done.code == 0, done.err
    first, last = (n for n, call in enumerate(done.calls) if "access" in call.name and MARK in call.arguments)
    counts = Counter(call.name for call in done.calls[first + 1 : last])
    syncs = sum(count for name, count in counts.items() if "sync" in name)
    assert 4 <= syncs <= 5, counts  # none less: each of two commits and two files is made to last
    # filelock asks for its process's number some forty times a lock, which costs next to nothing.
    assert sum(counts.values()) - counts["getpid"] <= 120, counts


def test_a_slice_adds_its_new_messages_to_the_disk_twice_and_no_more(tmp_path: Path) -> None:
    path, long, short = tmp_path / "c" / "nightly.json", "word " * 50_000, "A short reply of a few words."

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        content = long if len(request["messages"]) < 4 else short
        return {"message": {"role": "assistant", "content": content}, "finish_reason": "length"}

    def used() -> int:
        with contextlib.closing(sqlite3.connect(path.with_name(".ledger.sqlite3"))) as base:
            base.execute("PRAGMA wal_checkpoint(PASSIVE)")
            size, pages, free = (
                base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
            )
        return int(size * (pages - free))

    resume_once("Summarise the log", path, ask, "m1", tools=[])
    file, ledger = path.stat().st_size, used()
    resume_once("Summarise the log", path, ask, "m1", tools=[])
    resume_once("Summarise the log", path, ask, "m1", tools=[])
    assert 2 * len(short) < path.stat().st_size - file < 2_000
    assert used() - ledger <= 8 * 1024  # by the page


def test_a_job_that_is_final_is_told_without_what_only_a_slice_needs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write_jobs({"nightly": {"task": "Say hello", "checkpoint": "checkpoints/n.json", "provider": "demo"}})
    for _ in range(2):
        project.run("run", "nightly")
    code = "import sys\nfrom scheduler.cli import main\nmain()\nprint(*sys.modules)"
    command = [sys.executable, "-c", code, "--config", str(project.config), "run", "nightly"]
    done = subprocess.run(command, env=project.environ(), capture_output=True, text=True, check=True)
    assert "it is done, and nothing was sent" in done.stderr
    assert not set(done.stdout.split()) & UNNEEDED


def test_a_daemon_that_waits_wakes_up_at_most_twice_a_second(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.live("http://127.0.0.1:9", {f"j{number}": {"schedule": "0 0 29 2 *"} for number in range(10)})
    with project.start("daemon") as daemon:
        try:
            assert daemon.stderr is not None
            wait_until(lambda: "10 jobs" in daemon.stderr.readline(), 20, "the line that it is ready")
            time.sleep(2)  # what its start left over is done
            before, began = woken(daemon.pid), time.monotonic()
            time.sleep(5)
            assert (woken(daemon.pid) - before) / (time.monotonic() - began) <= 2
        finally:
            daemon.terminate()
            daemon.wait(30)

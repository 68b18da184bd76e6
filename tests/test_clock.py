"""The daemon in this process, so that its time can be changed: jumps of the clock, jobs that rest and wake."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine

from scheduler.daemon import Daemon
from scheduler.herald import Herald
from scheduler.jobfile import read_job_file
from scheduler.ledger import ledger_of
from scheduler.owed import Result
from scheduler.roster import read_daemon
from tests.support import ChatServer, Project, answer, chat_server, tool_calls, wait_until

GOES_ON = tool_calls(("c1", "read_file", "{}"))
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Time:
    """The time of this process; it goes on from where it is set."""

    def __init__(self) -> None:
        self._travel: Any = None

    def set(self, text: str) -> None:
        """Set it to a moment of 1 June 2026, in UTC."""
        self.reset()
        self._travel = time_machine.travel(datetime.fromisoformat(f"2026-06-01T{text}+00:00"), tick=True)
        self._travel.start()

    def reset(self) -> None:
        if self._travel:
            self._travel.stop()
        self._travel = None


@pytest.fixture
def clock() -> Iterator[Time]:
    """The time, put right at the end."""
    changed = Time()
    yield changed
    changed.reset()


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def run(project: Project, script: Callable[[list[str]], object], *, until_done: bool = False) -> list[Result]:
    """Run a daemon while a thread plays the script, which gets the log; stop it after the script. Raise what it did."""
    log: list[str] = []
    failed: list[BaseException] = []

    def play() -> None:
        try:
            wait_until(lambda: any("max_parallel" in line for line in log), 30, "the start")
            script(log)
        except BaseException as error:
            failed.append(error)
        if not until_done or failed:
            os.kill(os.getpid(), signal.SIGTERM)

    def write(_: str, message: str, /, *__: object, **___: object) -> None:
        log.append(message)

    job_file, environ = read_job_file(project.config), project.environ()
    herald = Herald(job_file, environ, write)
    daemon = Daemon(project.config, job_file, environ, herald, write, until_done=until_done)
    thread = threading.Thread(target=play)
    thread.start()
    results = daemon.run()
    thread.join()
    if failed:
        raise failed[0]
    return results


def slices(project: Project, job: str) -> list[tuple[str, int]]:
    """Each slice of a job that has ended: its point, as a time of the day, and when it was admitted (UTC seconds)."""
    with ledger_of(project.path().parent).reading() as tx:
        query = "SELECT point, admitted_at FROM admission WHERE job = ? AND outcome IS NOT NULL ORDER BY attempt"
        rows = tx.execute(query, (job,)).fetchall()
    return [(datetime.fromtimestamp(point, UTC).strftime("%H:%M:%S"), admitted) for point, admitted in rows]


def points(project: Project, job: str) -> list[str]:
    return [point for point, _ in slices(project, job)]


def heartbeat(project: Project) -> int:
    with ledger_of(project.path().parent).reading() as tx:
        entry = read_daemon(tx, str(project.config))
    return entry.pulse.at if entry and entry.pulse else 0


def test_an_hour_forth_or_back_gives_no_burst_and_no_silence(project: Project, clock: Time) -> None:
    with chat_server(GOES_ON) as chat:
        jobs = {
            "minute": {"schedule": "* * * * *"},
            "often": {"schedule": "every 10m"},
            "hourly": {"schedule": "30 * * * *"},
            "rests": {"schedule": "every 1s", "enabled": False},
        }
        project.live(chat.url, jobs, after_failure=[])
        clock.set("12:00:20")

        def script(log: list[str]) -> None:
            wait_until(lambda: len(points(project, "often")) == 1, 20, "the first slice")
            clock.set("13:00:50")
            wait_until(lambda: "13:01:00" in points(project, "minute"), 60, "the next minute after the jump forth")
            assert points(project, "minute") == ["13:00:00", "13:01:00"]
            assert points(project, "hourly") == ["12:30:00"]
            wait_until(lambda: abs(time.time() - heartbeat(project)) < 60, 15, "a heartbeat of the new time")
            clock.set("12:01:50")
            wait_until(lambda: "12:02:00" in points(project, "minute"), 60, "the next minute after the jump back")
            changed = [line for line in log if "clock was changed" in line]
            assert len(changed) == 2, changed

        told: list[str] = []
        run(project, lambda log: (script(log), told.extend(log)))
    assert points(project, "minute") == ["13:00:00", "13:01:00", "12:01:00", "12:02:00"]
    # After the jump forth one slice makes up for the hour; after the jump back its newest point has a slice already.
    assert [point[:4] for point in points(project, "often")] == ["12:0", "13:0"]
    missed = {line.split(": ")[0]: line for line in told if "missed" in line}
    assert len([line for line in told if "missed" in line]) == len(missed) == 3
    assert "from 2026-06-01T12:01:00Z to 2026-06-01T12:59:00Z (59) were missed" in missed["job minute"]
    assert "were missed; one slice makes up for them" in missed["job often"]
    assert "the point 2026-06-01T12:30:00Z was missed; one slice makes up for it" in missed["job hourly"]
    assert points(project, "rests") == []
    assert not [line for line in told if "rests" in line]


def test_a_job_that_waited_for_a_slot_makes_up_for_its_points_by_one_slice(project: Project) -> None:
    with chat_server(GOES_ON, held=True) as chat:
        project.live(chat.url, {"long": {"schedule": "every 1h"}, "waits": {"schedule": "every 1s"}}, max_parallel=1)

        def script(log: list[str]) -> None:
            chat.wait_for(1)
            begun = time.time()
            wait_until(lambda: time.time() > begun + 7, 30, "some points of the one that waits")
            assert chat.count == 1
            chat.hold.set()
            wait_until(lambda: len(points(project, "waits")) == 2, 30, "two slices of the one that waited")
            told.extend(log)

        told: list[str] = []
        run(project, script)
    assert [line for line in told if "job waits" in line and "one slice makes up for them" in line]
    (_, first), (_, second), *_ = slices(project, "waits")
    assert second > first


def test_a_job_that_is_enabled_again_is_waited_for_by_until_done(project: Project, chat: ChatServer) -> None:
    chat.script = [answer("fin")]
    chat.hold.clear()
    jobs = {"first": {"schedule": "every 1h"}, "rests": {"schedule": "every 1h", "enabled": False}}
    project.live(chat.url, jobs)

    def script(log: list[str]) -> None:
        chat.wait_for(1)
        assert not [line for line in log if "rests" in line]
        project.live(chat.url, {name: {"schedule": "every 1h"} for name in jobs})
        chat.wait_for(2)
        chat.hold.set()

    found = run(project, script, until_done=True)
    assert {result.job: result.final for result in found} == dict.fromkeys(jobs, "done")
    assert chat.count == 2

"""What systemd is told and asked: the units, the whole life cycle of the daemon, the end of one whose clock died."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from apscheduler.triggers.base import BaseTrigger

from scheduler.cli.output import log
from scheduler.daemon import LAST_SAVES, LAST_WORDS, Daemon
from scheduler.errors import ProgramFault
from scheduler.herald import Herald
from scheduler.job import JobFile
from scheduler.jobfile import read_job_file
from scheduler.survey import survey
from scheduler.systemd import watchdog_seconds
from tests.support import ROOT, ChatServer, Project, answer, chat_server, manager, wait_until
from tests.test_daemon import HOURLY, by_rename, service

CONFIG = ROOT / "config"
SERVICES = ["resumed.service", "resumed-tick.service"]


# ---- the units


@pytest.mark.parametrize("unit", [*SERVICES, "resumed-tick.timer"])
def test_systemd_finds_nothing_to_say_of_a_unit(unit: str) -> None:
    done = subprocess.run(["systemd-analyze", "verify", CONFIG / unit], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", SERVICES)
def test_the_exposure_of_a_unit_is_at_most_1_2(unit: str) -> None:
    command = ["systemd-analyze", "--no-pager", "security", "--offline=true", "--threshold=12", CONFIG / unit]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def settings(unit: str) -> dict[str, str]:
    """The settings of a unit that are given once."""
    return dict(re.findall(r"^(\w+)=(.*)$", (CONFIG / unit).read_text("utf-8"), re.MULTILINE))


def test_the_two_services_may_touch_the_same() -> None:
    daemon, tick = (settings(unit) for unit in SERVICES)
    own = {"Type", "NotifyAccess", "ExecStart", "ExecReload", "WatchdogSec", "WantedBy", "SuccessExitStatus"}
    own |= {"Description", "StartLimitIntervalSec", "StartLimitBurst", *(name for name in daemon if "Restart" in name)}
    own -= {"RestrictNamespaces"}
    own |= {"CacheDirectory", "CacheDirectoryMode"}  # the daemon leaves itself no note of when it is to look
    assert {name: value for name, value in daemon.items() if name not in own} == {
        name: value for name, value in tick.items() if name not in own
    }


@pytest.mark.parametrize("unit", SERVICES)
def test_a_stop_waits_longer_than_requests_in_flight_may_take(unit: str) -> None:
    assert (
        int(settings(unit)["TimeoutStopSec"])
        > JobFile.__dataclass_fields__["stop_wait"].default + LAST_SAVES + LAST_WORDS
    )


def test_the_user_of_the_units_has_their_state_folder_as_home(tmp_path: Path) -> None:
    command = ["systemd-sysusers", "--dry-run", f"--root={tmp_path}", CONFIG / "resumed.sysusers"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Creating user 'resumed'" in done.stdout + done.stderr
    daemon = settings("resumed.service")
    assert (daemon["User"], daemon["StateDirectoryMode"]) == ("resumed", "0700")
    assert f" /var/lib/{daemon['StateDirectory']} " in (CONFIG / "resumed.sysusers").read_text("utf-8")


# ---- the life cycle


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@resumed-test-{os.getpid()}"


def test_systemd_is_told_of_the_whole_life(project: Project, address: str) -> None:
    with chat_server(answer("fin"), held=True) as chat:
        project.live(chat.url, {"nightly": HOURLY, "later": {}})
        with (
            manager(address) as told,
            service(project, NOTIFY_SOCKET=address, WATCHDOG_USEC="400000") as daemon,
        ):
            told.wait("WATCHDOG=1", 2)
            assert told.told[0][0] == "READY=1"
            told.wait("STATUS=2 jobs, 1 in flight, next 20")

            before = time.monotonic_ns() // 1000
            added = {"task": "x", "checkpoint": "checkpoints/last.json", "schedule": "0 9 * * *", "provider": "local"}
            file = json.loads(project.config.read_text("utf-8"))
            by_rename(project.config, json.dumps({**file, "jobs": {**file["jobs"], "last": added}}))
            told.wait("READY=1", 2)
            [moment] = told.said("MONOTONIC_USEC=")
            assert before < int(moment.partition("=")[2]) < time.monotonic_ns() // 1000
            assert told.said("STATUS=3 jobs, 1 in flight, next 20")

            by_rename(project.config, "jobs: {")
            told.wait("READY=1", 3)
            assert re.search("STATUS=3 jobs, .*; jobs.yaml is edited, not loaded: 1: ", told.said("STATUS=")[-1])
            daemon.signal(signal.SIGHUP)
            told.wait("READY=1", 4)
            assert "not loaded" in told.said("STATUS=")[-1]

            daemon.signal(signal.SIGTERM)
            told.wait("STOPPING=1")
            [extended] = told.said("EXTEND_TIMEOUT_USEC=")
            assert int(extended.partition("=")[2]) > (80 + LAST_SAVES) * 1e6
            told.wait("WATCHDOG=1", len(told.said("WATCHDOG=1")) + 2)  # while the request is waited for
            assert told.said("STATUS=")[-1] == "STATUS=stopping, 1 in flight"
            chat.hold.set()
            assert daemon.ended() == 0
    firsts = [lines[0] for lines in told.told if "=1" in lines[0] and lines[0] != "WATCHDOG=1"]
    assert firsts == ["READY=1", *["RELOADING=1", "READY=1"] * 3, "STOPPING=1"]
    alone = [lines[0] for lines in told.told if lines[0].startswith("STATUS=")]
    assert all(one != other for one, other in itertools.pairwise(alone))


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "120000000"}, 60),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": str(os.getpid())}, 60),
        ({"WATCHDOG_USEC": "120000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_answered_twice_in_its_time_where_it_asks_this_process(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert watchdog_seconds(environ) == seconds


# ---- a clock whose thread ends


class Deadly(BaseTrigger):  # type: ignore[misc]  # apscheduler 3.x ships no types
    """A trigger that ends the thread which asks it."""

    def get_next_fire_time(self, *_: object) -> datetime | None:
        raise RuntimeError


@pytest.fixture
def handlers() -> Iterator[None]:
    """Put the handlers of signals back at the end."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that it dies is the point
def test_a_daemon_whose_clock_died_ends_with_a_fault_and_is_told_to_nobody_as_running(
    project: Project, chat: ChatServer, tmp_path: Path
) -> None:
    project.live(chat.url)
    job_file = read_job_file(project.config)
    with manager(str(tmp_path / "notify")) as told:
        environ = {**os.environ, "NOTIFY_SOCKET": told.address, "LOCAL_KEY": "x", "WATCHDOG_USEC": "2000000"}
        herald = Herald(job_file, environ, log)
        daemon = Daemon(project.config, job_file, environ, herald, log, until_done=False)
        clock = daemon._clock._scheduler
        clock.add_job(print, Deadly(), next_run_time=datetime.now().astimezone())
        with pytest.raises(ProgramFault, match="its thread has ended"):
            daemon.run()
        wait_until(lambda: bool(told.said("STOPPING=1")), 10, "the end")
        assert len(told.said("WATCHDOG=1")) <= 1
    assert survey(job_file, environ).daemon is None

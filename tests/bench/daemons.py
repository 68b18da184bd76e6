"""The daemon beside APScheduler alone: what it takes idle, until it is ready, for an edit, and in a burst."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.lines import Line
from tests.bench.places import APSCHEDULER, Places
from tests.bench.places import RESUMED as OURS
from tests.bench.starts import FAR, write_jobs
from tests.bench.timing import in_turns, ratio
from tests.bench.workers import Worker, working
from tests.support import woken

ALONE = "APScheduler alone"


class Idle(NamedTuple):
    """What a process takes while it waits: memory, wake-ups and processor a second."""

    rss: float
    wakeups: float
    cpu: float


def idle(places: Places, _: int, sizes: Sequence[int] = (10, 10_000), seconds: float = 20) -> Iterator[Line]:
    """A daemon that waits, before its first slice."""
    for jobs, goal in zip(sizes, (2.0, 1.6), strict=True):
        config = write_jobs(places.folder("idle"), jobs, FAR)
        with _daemon(places, config) as ours, working(places, APSCHEDULER, "idle_apscheduler", jobs) as theirs:
            mine, other = _watched(ours.pid, seconds), _watched(theirs.pid, 1)
        rss, words = mine.rss / other.rss, f"idle daemon, {jobs:,} jobs"
        shown = f"{rss:.2f}x"
        note = f"{mine.rss / 2**20:.0f} MB beside {other.rss / 2**20:.0f}"
        yield Line(measure=f"{words}, memory", beside=ALONE, shown=shown, value=rss, goal=goal, note=note)
        times = f"{mine.wakeups:.1f} a second"
        yield Line(measure=f"{words}, wake-ups", beside="", shown=times, value=mine.wakeups, goal=2)
        spent = f"{mine.cpu * 1000:.1f} ms a second"
        yield Line(measure=f"{words}, CPU", beside="", shown=spent, value=mine.cpu * 1000, goal=2)


def starts(places: Places, rounds: int, jobs: int = 10_000) -> Iterator[Line]:
    """From the start of the process until it is ready, and from an edit of one job until that is in force."""
    config = write_jobs(places.folder("start"), jobs, FAR)
    with _daemon(places, config):
        pass  # the first start of all enters every job into the ledger
    own, other, spent, edits = [], [], [], []
    for _ in range(max(3, rounds // 3)):
        begin = time.perf_counter()
        with _daemon(places, config) as daemon:
            own.append(time.perf_counter() - begin)
            spent.append(_spent(daemon.pid))
            edits.append(daemon.reload(config))
        begin = time.perf_counter()
        with working(places, APSCHEDULER, "idle_apscheduler", jobs, config):
            other.append(time.perf_counter() - begin)
    found = ratio(own, other)
    note = f"{sorted(own)[len(own) // 2]:.1f} s beside {sorted(other)[len(other) // 2]:.1f}"
    beside = "APScheduler's add and the C YAML loader"
    yield Line(
        measure=f"start with {jobs:,} jobs until ready",
        beside=beside,
        shown=str(found),
        value=found.median,
        goal=1.5,
        note=note,
    )
    found = ratio(edits, spent)
    note = f"{sorted(edits)[len(edits) // 2]:.1f} s, once it is seen within a second; 1 job new or changed"
    measure = f"reload of one job among {jobs:,}, CPU"
    yield Line(measure=measure, beside="that start", shown=str(found), value=found.median, goal=0.5, note=note)


def burst(places: Places, rounds: int, jobs: int = 10_000) -> Iterator[Line]:
    """All jobs due in one second: until the last one's function is entered."""
    rounds = max(3, rounds // 3)
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {
            kind: stack.enter_context(working(places, OURS, "burst", kind, jobs)) for kind in ("resumed", "apscheduler")
        }
        in_turns(rounds, workers)
    counted = min(one["entered"] for one in workers["resumed"].told)
    lost = max(jobs - one["entered"] for one in workers["resumed"].told)
    lasts = {name: [one["last"] for one in worker.told[1:]] for name, worker in workers.items()}
    found = ratio(lasts["resumed"], lasts["apscheduler"])
    note = f"{sorted(lasts['resumed'])[rounds // 2]:.2f} s; {counted:,} entered, {lost} lost"
    assert not lost, note
    measure = f"{jobs:,} due in one second, no-op slice: until the last is entered"
    yield Line(measure=measure, beside=ALONE, shown=str(found), value=found.median, goal=3, note=note)


class _Daemon:
    """A daemon of ours that tells its states as to systemd."""

    def __init__(self, places: Places, config: Path) -> None:
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.settimeout(120)
        name = f"{places.folder('notify')}/s"
        self._told.bind(name)
        self._log = (config.parent / "log").open("w+")
        command = [places.python(OURS).with_name("resumed"), "--config", config, "daemon"]
        self._process = subprocess.Popen(command, env=places.environ(NOTIFY_SOCKET=name), stderr=self._log)
        self.pid = self._process.pid
        self._wait_for("READY=1")

    def reload(self, config: Path) -> float:
        """Change the task of one job; return the processor's seconds until that is in force."""
        text = config.read_text("utf-8")
        config.write_text(re.sub("Summarise the log( again)*", r"\g<0> again", text, count=1), "utf-8")
        begin = _spent(self.pid)
        self._process.send_signal(signal.SIGHUP)
        self._wait_for("READY=1")
        taken = _spent(self.pid) - begin
        said = (config.parent / "log").read_text("utf-8").splitlines()
        assert "1 jobs new or changed" in said[-1], said[-3:]
        return taken

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(60)
        self._told.close()
        self._log.close()

    def _wait_for(self, word: str) -> None:
        while word not in self._told.recv(4096).decode().splitlines():
            pass


@contextlib.contextmanager
def _daemon(places: Places, config: Path) -> Iterator[_Daemon]:
    daemon = _Daemon(places, config)
    try:
        yield daemon
    finally:
        daemon.end()


def _watched(pid: int, seconds: float) -> Idle:
    time.sleep(3)  # what the start left over is done
    before = woken(pid), _spent(pid)
    time.sleep(seconds)
    after = woken(pid), _spent(pid)
    rss = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) * 1024
    return Idle(rss, (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds)


def _spent(pid: int) -> float:
    """Return the processor's seconds of all threads, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

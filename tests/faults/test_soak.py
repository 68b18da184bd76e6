"""A daemon for a long time: killed every few seconds, its file edited under it, then left alone and measured."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from scheduler.due import plan_job
from scheduler.jobfile import read_job_file
from scheduler.owed import open_folder
from scheduler.roster import note
from tests import support
from tests.conftest import Begin
from tests.faults.broken import broken
from tests.faults.cases import TIER, sized
from tests.faults.counting import Counting, Request, at_last, at_once, counting
from tests.faults.in_memory import in_memory
from tests.faults.measured import BAND, Sample, growth, ledger_size, look
from tests.support import Project, wait_until
from tests.test_daemon import Service, ledger, service

HARNESS = "soak"
SHARDS = sized(1, 1, 8)
LEAST = sized(200, 10_000, 12_500)
KILLED = sized(60, 2_500, 4_500)  # ticks of each shard under kills: points that a slice was sent for
# The caches of points are full after some 5,000 ticks of one process; only then can growth be told from filling.
WARM = sized(50, 6_000, 6_000)
MEASURED = sized(100, 2_000, 2_500)
BYTES_A_TICK = 20_000 if TIER == "test" else 400
DELAY = 0.02  # seconds for which a reply is waited for, so that kills meet attempts
FAST = 100  # series that open each second, one answer an opening
SLOW = 6  # series with points far enough apart that each one that is lost is told
PERIOD = 6
PLAIN = 4  # jobs of one edit: four points, then final
# A kill after a slice or an opening is counted and before its first line takes the line on what it makes up for along.
CUT_SHORT = "killed before it was told"
CUT = (None, "interrupted")  # ends of an attempt that may not have been sent
OUTAGE = sized(0, 15, 15) / 100  # how often it stays down for long enough to lose points
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
BEGUN = re.compile(r"job (plain\S+|slow\S+): (?:attempt (\d) of 4: counted|opening (\S+) is open)")


def reply(request: Request) -> Mapping[str, Any]:
    """Answer an opening at once, and a plain job at the end of its attempts."""
    return at_last(request) if request.task.startswith("plain") else at_once(request)


@dataclass
class Soak:
    """One folder, its daemons one after another, and what they said."""

    project: Project
    chat: Counting
    chance: random.Random
    fast: int = FAST
    edits: int = 0
    reloads: int = 0
    kills: int = 0
    said: list[str] = field(default_factory=list)
    begun: set[tuple[str, str]] = field(default_factory=set)
    _edit_at: float = 0

    def edit(self) -> None:
        """Write the file anew, with other plain jobs in place of the oldest; the first jobs of all stay."""
        self.edits += 1
        latest = range(max(0, self.edits - 8), self.edits)
        plain = {
            f"plain-{batch}-{one}": {"schedule": f"every {PERIOD + one % 3}s"}
            for batch in latest
            for one in range(PLAIN)
        }
        names = [f"fast-{one}" for one in range(self.fast)] + [f"slow-{one}" for one in range(SLOW)]
        series = {
            name: {
                "task": f"{name} {{opening}}",
                "checkpoint": f"checkpoints/{name}-{{opening}}.json",
                "schedule": "every 1s",
                "series": {"opens": "every 1s" if name.startswith("fast") else f"every {PERIOD}s", "times": 100_000},
            }
            for name in names
        }
        aside = Project(self.project.folder.with_name("aside"))
        aside.folder.mkdir(0o700, exist_ok=True)
        jobs = {name: {"task": name, **job} for name, job in {**plain, **series}.items()}
        aside.live(self.chat.url, jobs, after_failure=[], base=str(self.project.folder))
        aside.config.rename(self.project.config)

    def live(self, daemon: Service, seconds: float) -> None:
        """Let it run for a while; now and then edit its file, or have it read anew."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if now >= self._edit_at:
                self._edit_at = now + self.chance.uniform(3, 6)
                if self.chance.random() < 0.75:
                    self.edit()
                else:
                    daemon.signal(signal.SIGHUP)
            time.sleep(min(0.1, end - now))

    def note(self, daemon: Service) -> None:
        """Keep what it said of points and faults."""
        lines = daemon.lines()
        self.reloads += sum("read anew" in line for line in lines)
        self.said += [line for line in lines if "missed" in line or "skipped" in line or "Traceback" in line]
        self.begun |= {(job, attempt or opening) for job, attempt, opening in BEGUN.findall("\n".join(lines))}
        daemon.path.unlink()

    def under_kills(self, ticks: int) -> None:
        """Kill it every one to five seconds, until so many slices were sent."""
        until = len(self.chat.requests) + ticks
        while len(self.chat.requests) < until:
            with service(self.project) as daemon:
                self.live(daemon, self.chance.uniform(1, 5))
                daemon.signal(signal.SIGKILL)
                daemon.ended()
                self.kills += 1
                self.note(daemon)
            if self.chance.random() < OUTAGE or (OUTAGE and self.kills == 1):
                time.sleep(2.5 * PERIOD)

    def in_peace(self, warm: int, ticks: int) -> list[Sample]:
        """Leave one daemon alone for so many slices; return what it took after the first `warm` of them."""
        samples = []
        with service(self.project) as daemon:
            begun = len(self.chat.requests)
            while (done := len(self.chat.requests) - begun) < warm + ticks:
                self.live(daemon, 0.1)
                assert daemon.process.poll() is None, daemon.lines()[-5:]
                if done >= warm:
                    samples.append(look(daemon.process.pid, done))
            daemon.stop()
            self.note(daemon)
        return samples

    def told(self, job: str, point: int) -> bool:
        """Whether a line of the log says that a job or series missed this point, alone or in a span."""
        for line in self.said:
            if f"job {job}: " in line:
                moments = [datetime.fromisoformat(moment).timestamp() for moment in MOMENT.findall(line)[1:]]
                if moments and min(moments) <= point <= max(moments):
                    return True
        return False


def faults(soak: Soak) -> list[str]:
    """Say which points were acted on twice or lost without a word, and what was left behind."""
    rows = ledger(soak.project, "SELECT job, attempt, point, outcome FROM admission")
    acted = Counter((job, point) for job, _, point, _ in rows if point is not None)
    counted = {(job.replace("@", " "), attempt): outcome for job, attempt, _, outcome in rows}
    sent = Counter((request.task, request.attempt) for request in soak.chat.requests)
    found = [f"acted on {what} {n} times" for what, n in acted.items() if n > 1]
    found += [f"sent {what} {n} times" for what, n in sent.items() if n > 1]
    found += [f"sent {what}, not counted" for what in sent if what not in counted]
    found += [f"{what} is {end}, not sent" for what, end in counted.items() if what not in sent and end not in CUT]
    stuck = "SELECT series, count(*) FROM opening WHERE status = 'ready' GROUP BY series HAVING count(*) > 1"
    found += [f"{series} has {n} openings without an end" for series, n in ledger(soak.project, stuck)]
    found += [line for line in soak.said if "Traceback" in line]
    folder = soak.project.folder / "checkpoints"
    found += [f"left: {name}" for name in os.listdir(folder) if name.endswith(".tmp")]
    return found


def lost(soak: Soak) -> dict[tuple[str, int], str]:
    """Return the points between two slices of a plain job, or two openings of a slow series, and what became of each.

    A point that comes while an attempt is open is none of them.
    """
    since = dict(ledger(soak.project, "SELECT job, since FROM job"))
    found = {}
    for name in (name for name in since if name.startswith("plain")):
        rows = ledger(soak.project, "SELECT point, attempt, outcome, ended_at FROM admission WHERE job = ?", name)
        attempts, period = {point: (str(number), end) for point, number, end, _ in rows}, PERIOD + int(name[-1]) % 3
        for point in set(range(since[name], max(attempts, default=since[name]), period)) - set(attempts):
            if not any(begun <= point <= (ended or point) + 1 for begun, *_, ended in rows):  # ends are cut to seconds
                number, end = attempts[min(later for later in attempts if later > point)]
                silent = end == "interrupted" and (name, number) not in soak.begun
                found[name, point] = "told" if soak.told(name, point) else CUT_SHORT if silent else "untold"
    for name in (name for name in since if name.startswith("slow") and "@" not in name):
        openings = dict(ledger(soak.project, "SELECT point, opening FROM opening WHERE series = ?", name))
        for point in set(range(since[name], max(openings), PERIOD)) - set(openings):
            before = openings[max(earlier for earlier in openings if earlier < point)]
            after = openings[min(later for later in openings if later > point)]
            # Of the points that one opening keeps from opening only the first is told.
            skipped = any("skipped" in line and f"{name}@{before}" in line for line in soak.said)
            silent = (name, after) not in soak.begun
            found[name, point] = "told" if skipped or soak.told(name, point) else CUT_SHORT if silent else "untold"
    return found


def shown(soak: Soak, job: str) -> str:
    """Return what is known of a job or series: its slices or openings, and the lines on its points."""
    slices = "SELECT attempt, point, admitted_at, ended_at, outcome FROM admission WHERE job = ?"
    openings = "SELECT number, point, opening, status, opened_at, passed FROM opening WHERE series = ?"
    rows = [*ledger(soak.project, slices, job), *ledger(soak.project, openings, job)]
    return "\n".join([*map(str, rows), *(line for line in soak.said if f"job {job}: " in line)])


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_daemon_that_is_killed_and_edited_loses_nothing_and_does_not_grow(harness: Begin, shard: int) -> None:
    with harness(HARNESS, least=LEAST) as case, in_memory() as room, counting(reply, DELAY) as chat:
        project = Project(room / "project")
        project.folder.mkdir(0o700)
        soak = Soak(project, chat, random.Random(shard), fast=sized(60, FAST, FAST))
        soak.edit()
        soak.under_kills(KILLED)
        killed = len(chat.requests)
        samples = soak.in_peace(WARM, MEASURED)
        assert growth(samples, BYTES_A_TICK) == []
        assert faults(soak) == []
        missed = lost(soak)
        assert missed or not OUTAGE, "no point was lost"
        untold = [point for point, told in missed.items() if told == "untold"]
        assert untold == [], "\n".join([str(untold), *(shown(soak, job) for job in dict(untold))])
        size = ledger_size(project.folder / "checkpoints" / ".ledger.sqlite3")
        assert BAND[0] < size.bytes / size.expected < BAND[1], size
        [(done, cut)] = ledger(
            project, "SELECT count(point), count(nullif(outcome != 'interrupted', 1)) FROM admission"
        )
        case("points acted on under kills", killed)
        case("in peace", done - killed)
        assert cut >= sized(0, 1, 1), "no kill met an attempt"
        print(f"{soak.kills} kills, {cut} attempts cut off, {soak.edits} edits, {soak.reloads} times read anew")
        print(f"points lost: {dict(Counter(missed.values()))}")
        print(f"the ledger has {size.bytes:,} bytes of {size.expected:,}: {size.rows}")
        print(f"from {samples[0]} to {samples[-1]}")


def test_a_daemon_that_leaks_is_caught(harness: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "PROGRAM", broken("leaks"))
    with harness(HARNESS) as case, in_memory() as room, counting(reply) as chat:
        project = Project(room / "project")
        project.folder.mkdir(0o700)
        soak = Soak(project, chat, random.Random(1), fast=60)
        soak.edit()
        found = " ".join(growth(soak.in_peace(20, 200), 20_000))
        case.control("100 KB leak with each tick", caught="memory" in found)
        case.control("a descriptor leaks with each tick", caught="descriptors" in found)


def test_a_daemon_that_forgets_what_it_has_done_is_caught(harness: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "PROGRAM", broken("forgets points"))
    with harness(HARNESS) as case, in_memory() as room, counting(reply) as chat:
        project = Project(room / "project")
        project.folder.mkdir(0o700)
        project.live(chat.url, {"plain-0-0": {"task": "plain-0-0", "schedule": "every 1h"}})
        with service(project):
            wait_until(lambda: len(chat.requests) >= 2, 60, "a second slice of one point")
        case.control(
            "points that were acted on are forgotten", caught=len(faults(Soak(project, chat, random.Random(1))))
        )


def test_a_daemon_that_is_silent_on_missed_points_is_caught(harness: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "PROGRAM", broken("tells of no missed point"))
    with harness(HARNESS) as case, in_memory() as room, counting(reply) as chat:
        project = Project(room / "project")
        project.folder.mkdir(0o700)
        project.live(chat.url, {"plain-0-0": {"task": "plain-0-0", "schedule": f"every {PERIOD}s"}})
        job = read_job_file(project.config).jobs["plain-0-0"]
        with open_folder(job.checkpoint.parent).writing() as tx:
            note(tx, plan_job(job, live=True).sighting, int(time.time()) - 3 * PERIOD)
        soak = Soak(project, chat, random.Random(1))
        with service(project) as daemon:
            daemon.wait_line("attempt 1 of 4: counted")
            daemon.stop()
            soak.note(daemon)
        ends = list(lost(soak).values())
        assert len(ends) >= 2, "no point was lost"
        case.control("nothing is told of the points that a slice makes up for", caught=ends.count("untold"))

"""A process that is frozen in its slice past its deadline: its job stays busy, and all others go on."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from tests.conftest import Begin
from tests.faults.cases import sized
from tests.faults.counting import Counting, at_once, counting
from tests.faults.storm import Member, Wave, storms
from tests.support import PROGRAM, Project, wait_until

CASES = sized(2, 12, 50)
AT_ONCE = 6
WAITING = "waiting for the reply"
UNCOUNTED = "lock-after"
LOCKING = "save-inside"  # frozen in a transaction: whoever shares its ledger waits
PLACES = (WAITING, "ask-before", "save-before", LOCKING, UNCOUNTED, "admit-after", "save-after")
SENT = (WAITING, "save-before", LOCKING, "save-after")


@dataclass(frozen=True)
class Case:
    """Where a process is frozen, which one, whether its lock file is deleted meanwhile, and whether it comes back."""

    place: str
    holder: str
    deleted: bool
    killed: bool

    def __str__(self) -> str:
        lock, end = ("its lock deleted" if self.deleted else "locked"), ("SIGKILL" if self.killed else "SIGCONT")
        return f"{self.holder}, {self.place}, {lock}, {end}"


EVERY = [Case(*chosen) for chosen in itertools.product(PLACES, ("run", "daemon"), (False, True), (False, True))]
FIRST = [Case(WAITING, holder, deleted, False) for holder, deleted in (("run", True), ("daemon", False))]
CHOSEN = FIRST + random.Random(3).sample([case for case in EVERY if case not in FIRST], len(EVERY) - len(FIRST))


@dataclass
class Freeze:
    """One case as it is tried."""

    case: Case
    project: Project
    chat: Counting
    wave: Wave

    def __post_init__(self) -> None:
        self.faults: list[str] = []

    def write(self, *others: str, timeout: int) -> None:
        """Write the job that is frozen, and others: one beside it, one in a folder of its own."""
        provider = {"base_url": self.chat.url, "model": "m1"}
        jobs = {"nightly": {"provider": "short"}, "beside": {}, "apart": {"checkpoint": "apart/apart.json"}}
        entries = {
            name: {
                "task": name,
                "checkpoint": f"checkpoints/{name}.json",
                "provider": "long",
                "schedule": "every 1d",
                **jobs[name],
            }
            for name in ("nightly", *others)
        }
        providers = {"short": {**provider, "timeout": timeout}, "long": {**provider, "timeout": 60}}
        self.project.write_jobs(entries, live=True, providers=providers)

    def rows(self) -> list[Any]:
        path = self.project.folder / "checkpoints" / ".ledger.sqlite3"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
            return base.execute("SELECT attempt, outcome, deadline FROM admission WHERE job = 'nightly'").fetchall()

    def ask(self, *command: str) -> Member:
        [ended] = self.wave(self.project.config, [command], chance=random.Random(0))
        return ended

    def expect(self, what: str, found: object, *wanted: object) -> None:
        if found not in wanted:
            self.faults.append(f"{self.case}: {what} is {found}, not {' or '.join(map(str, wanted))}")

    def start(self) -> Popen[str]:
        """Start the process and wait until it is frozen."""
        arguments = ["daemon"] if self.case.holder == "daemon" else ["run", "nightly"]
        program = [sys.executable, "-m", "tests.faults.frozen", self.case.place]
        command = [*(PROGRAM if self.case.place == WAITING else program), "--config", str(self.project.config)]
        with open(self.project.folder / "log", "w") as log:
            process = Popen([*command, *arguments], env=self.project.environ(), stdout=log, stderr=log, text=True)
        if self.case.place == WAITING:
            wait_until(lambda: bool(self.chat.requests), 60, f"{self.case}: a request")
            process.send_signal(signal.SIGSTOP)
        wait_until(lambda: _state(process.pid) == "T", 60, f"{self.case}: frozen")
        return process

    def busy(self, when: str) -> None:
        """See that nobody else may run the job."""
        said = self.ask("run", "nightly")
        self.expect(f"the exit code of run {when}", said.code, 75)
        self.expect(
            f"whether another process is told of {when}: {said.err}", "in use by another process" in said.err, True
        )

    def run(self) -> list[str]:
        """Try it; return which promises were broken."""
        # Nothing was counted yet, or all is saved, and nothing is locked.
        free = self.case.place in (UNCOUNTED, "save-after") and self.case.deleted
        timeout = 3 if self.case.place == WAITING else 6  # seconds; where a reply comes it must be in time
        self.write(timeout=timeout)
        with self.start() as process:
            try:
                if self.case.deleted:
                    self.project.path().with_name("nightly.json.lock").unlink()
                if not free:
                    self.busy("before the deadline")
                if self.faults:
                    return self.faults  # what follows would wait for the replies of those that run the job too
                self.write("beside", "apart", timeout=60)
                before = [deadline for *_, deadline in self.rows()] or [time.time() + timeout]
                ended = self.ask("tick", "beside", "apart")
                self.expect(f"the exit code of tick ({ended.err})", ended.code, 75 if self.case.place == LOCKING else 0)
                self.expect("the requests of apart", len(self.chat.of("apart")), 1)
                self.expect("the requests of beside", len(self.chat.of("beside")), int(self.case.place != LOCKING))
                time.sleep(max(0.0, before[0] + 1.1 - time.time()))
                if free:
                    self.expect("the exit code of run", self.ask("run", "nightly").code, 0)
                else:
                    self.busy("after the deadline")
                self._release(process)
            finally:
                process.kill()
        self._look(free)
        return self.faults

    def _release(self, process: Popen[str]) -> None:
        timed_out = self.case.place == WAITING and not self.case.killed
        if not timed_out:
            self.chat.hold.set()
        if self.case.killed:
            process.kill()
            process.wait(60)
            return
        process.send_signal(signal.SIGCONT)
        if self.case.holder == "daemon":
            path = self.project.path()
            wait_until(lambda: path.exists() and _ended(self.project.document()), 60, f"{self.case}: an outcome")
            process.terminate()
        self.expect("its exit code", process.wait(60), 69 if timed_out and self.case.holder == "run" else 0)
        self.chat.hold.set()

    def _look(self, free: bool) -> None:
        ended = self.ask("run", "nightly")
        self.expect(f"the exit code of run afterwards ({ended.err})", ended.code, 0)
        document, attempts = self.project.document(), [request.attempt for request in self.chat.of("nightly")]
        self.expect("attempts sent twice", [n for n in attempts if attempts.count(n) > 1], [])
        self.expect("the most in flight", self.chat.most["nightly"], 1)
        first = "answered"
        if not free and self.case.place != UNCOUNTED:
            if self.case.killed:
                first = "answered" if self.case.place == "save-after" else "interrupted"
            elif self.case.place == WAITING:
                first = "timeout"
        wanted = [first] if first == "answered" else [first, "answered"]
        self.expect("its history", [entry["outcome"] for entry in document["history"]], wanted)
        sent = len(wanted) - (first == "interrupted" and self.case.place not in SENT)
        self.expect("the number of requests", len(attempts), sent)
        self.expect("its admissions", [outcome for _, outcome, _ in self.rows()], wanted)


def _ended(document: dict[str, Any]) -> bool:
    return bool(document["history"]) and document["history"][0]["outcome"] is not None


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]


def tried(case: Case, folder: Path, wave: Wave) -> list[str]:
    """Freeze one process; return which promises were broken."""
    folder.mkdir(0o700)
    with counting(at_once, held=["nightly"] if case.place == WAITING else ()) as chat:
        return Freeze(case, Project(folder), chat, wave).run()


@contextlib.contextmanager
def intruders(folder: Path, variant: str = "") -> Iterator[Wave]:
    """Yield what runs the program while others do so in other threads."""
    lock = threading.Lock()
    with storms(Project(folder), variant) as wave:

        def alone(config: Path, commands: Sequence[Sequence[str]], *, chance: random.Random) -> list[Member]:
            with lock:
                return wave(config, commands, chance=chance)

        yield alone


def test_a_frozen_holder_keeps_its_job_and_nothing_else(harness: Begin, tmp_path: Path) -> None:
    cases = list(itertools.islice(itertools.cycle(CHOSEN), CASES))
    with (
        harness("frozen holders", least=CASES) as case,
        intruders(tmp_path) as wave,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        ends = [pool.submit(tried, one, tmp_path / f"{number}", wave) for number, one in enumerate(cases)]
        found = [fault for end in ends for fault in end.result()]
        assert not found, "\n".join(found)
        for one in cases:
            case(f"with {'SIGKILL' if one.killed else 'SIGCONT'}{' and without its lock' if one.deleted else ''}")


def test_a_program_that_takes_the_frozen_for_dead_is_caught(harness: Begin, tmp_path: Path) -> None:
    with harness("frozen holders") as case, intruders(tmp_path, "takes owners for dead") as wave:
        found = tried(FIRST[0], tmp_path / "0", wave)
    case.control("a living owner is taken for dead", caught=len(found))

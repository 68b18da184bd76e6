"""SIGKILL at the file and network calls of the real program, from its lock to its exit; then it goes on by itself."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from tests.faults import kill_points
from tests.faults.cases import TIER, Begin, needs, sized
from tests.faults.kill_points import Point, Ran, killed, listed, was_killed
from tests.faults.kill_promises import Moment, check_counted, check_ended, check_kept, look
from tests.faults.kill_scenarios import ANSWER, APPROVE, SCENARIOS, Scenario
from tests.faults.killed_at import Preloaded, preloaded
from tests.support import PROGRAM, ChatServer, Project, chat_server

HARNESS = "SIGKILL at file and network system calls"
SENDS_FIRST = [sys.executable, "-m", "tests.faults.kill_sends_first"]
PERSON = [*APPROVE, "--redeliver"]
TICKS = 2
TRIES = 2
NO_KILL = "no kill happened"
# What a command that is killed says of what it has made durable.
SAID = {"renew": "renewed; ", "revise": "revised; ", "review": "nightly: approved", "run": ": answered"}


@dataclass
class Bench:
    """The prepared state of one scenario, the server that counts, and the process that recovers."""

    scenario: Scenario
    folder: Path
    chat: ChatServer
    runner: Preloaded
    prepared: Project
    begin: Moment
    known: dict[tuple[object, ...], list[Point]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def case(self) -> Case:
        """Return a copy of the state to try one case on."""
        name = f"case-{next(self.numbers):05}"
        self.chat.script = [self.scenario.reply]
        return Case(self, name, self.scenario.copy(self.prepared, self.folder / name, self.chat, name), self.begin)

    def points(self) -> list[Point]:
        """Return where the command of the scenario can be killed, from a run that is not; it comes to its end too."""
        case = self.case()
        with case.answering():
            ran = listed(case.project, self.scenario.command)
        assert ran.held, ran.err
        assert self.scenario.seen(self.chat), "the scenario is not what it says"
        case.see(ran, self.scenario.command)
        case.finish()
        return ran.points

    def killed(self, point: Point) -> Case:
        """Return a case that was killed at a point; one more try where a call came in another order."""
        for _ in range(TRIES):
            case = self.case()
            if case.kill(point):
                return case
        raise AssertionError(NO_KILL)


@dataclass
class Case:
    """One copy, and the last moment that was seen of it."""

    bench: Bench
    name: str
    project: Project
    last: Moment

    @property
    def sent(self) -> int:
        """How many requests the server has had for it."""
        return sum(headers.get("X-Case") == self.name for headers in list(self.bench.chat.headers))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let the server do what the scenario says while the block runs, and answer from then on."""
        chat = self.bench.chat
        if self.bench.scenario.held:
            chat.hold.clear()
        try:
            yield
        finally:
            chat.script = [ANSWER]
            chat.hold.set()

    def see(self, ran: Ran | None = None, command: Sequence[str] = ()) -> Moment:
        """Look at what there is now, and check it."""
        now = look(self.project, self.sent)
        check_counted(self.bench.begin, now)
        check_kept(self.last, now)
        if ran:
            assert "Traceback" not in ran.err
            if SAID[command[0]] in ran.err:  # acknowledged
                assert now.document["status"] == "done" if command[0] == "run" else self.bench.scenario.entered(now)
        self.last = now
        return now

    def kill(self, point: Point, program: Sequence[str] = PROGRAM) -> bool:
        """Kill the scenario's command at a point, check what that leaves, and tell whether it happened."""
        command = self.bench.scenario.command
        with self.answering():
            ran = killed(self.project, command, point, program)
        self.see(ran, command)
        return was_killed(ran, point)

    def next_command(self) -> list[str]:
        """Return what is to be run now: what a person said and is not in the ledger yet, else the next slice."""
        scenario = self.bench.scenario
        return ["run", "nightly"] if scenario.entered(self.last) else list(scenario.command)

    def points(self) -> list[Point]:
        """Return where the run that recovers can be killed; none where it takes no lock, for it has nothing to do.

        Found from a copy, once for all cases that are in the same state.
        """
        moment, known, bench = self.last, self.bench.known, self.bench
        opened = None in {*moment.admissions.values(), *moment.deliveries.values()}
        state = (*self.next_command(), moment.document["status"], opened, moment.file == moment.body)
        if state not in known:
            name = f"{self.name}-listed"
            copy = bench.scenario.copy(self.project, bench.folder / name, bench.chat, name)
            known[state] = listed(copy, self.next_command()).points
        return known[state]

    def kill_again(self, point: Point) -> bool:
        """Kill the run that recovers, and tell whether that happened."""
        command = self.next_command()
        ran = killed(self.project, command, point)
        self.see(ran, command)
        return was_killed(ran, point)

    def finish(self) -> None:
        """Let it go on by itself to its end, eight hours from one tick to the next, and see that it then rests."""
        now, ticks = datetime.now(UTC), 0
        while not (self.last.settled and self.bench.scenario.entered(self.last)):
            ticks += 1
            assert ticks <= TICKS, f"not at its end after {TICKS} ticks: {self.last}"
            command = self.next_command()
            command[0] = "tick" if command[0] == "run" else command[0]
            self._run(command, now + timedelta(hours=8 * ticks))
        if "unknown" in self.last.deliveries.values():
            self._run(PERSON, now + timedelta(hours=8 * ticks + 4))
        before = self.last
        self._run(["tick", "nightly"], now + timedelta(hours=8 * ticks + 8))
        assert (self.last.sent, self.last.body) == (before.sent, before.body)
        check_ended(self.bench.begin, self.last)
        if self.bench.scenario.name == "review":
            assert (self.project.folder / "out" / "answer.txt").read_bytes() == b"fin"

    def _run(self, command: Sequence[str], at: datetime) -> None:
        [ended] = self.bench.runner.run(self.project.config, command, at=at)
        assert ended.code in (0, 69, 75), f"{command}: exit {ended.code}: {ended.err}"
        assert "Traceback" not in ended.err
        self.see()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    """Keep one process that recovers for all scenarios."""
    needs("strace")
    with preloaded(Project(tmp_path_factory.mktemp("runner")).environ()) as process:
        yield process


@contextmanager
def bench(name: str, folder: Path, runner: Preloaded) -> Iterator[Bench]:
    """Prepare a scenario, with a server that counts."""
    scenario = SCENARIOS[name]
    with chat_server() as chat:
        prepared = scenario.prepare(folder / "prepared", chat, runner)
        yield Bench(scenario, folder, chat, runner, prepared, look(prepared, 0))


def spread(points: list[Point], number: int) -> list[Point]:
    """Return so many of the points, evenly from the first to the last; all of them where that is wanted."""
    if TIER == "full" or number >= len(points):
        return points
    return [points[int((place + 0.5) * len(points) / number)] for place in range(number)]


# How many kills and pairs of each scenario; the small run takes some of them.
SMALL = {"first": (3, 1), "interrupted": (2, 0), "review": (1, 0)}
SHARES = {
    name: (sized(kills, 25, 50), sized(pairs, 9, 25))
    for name, (kills, pairs) in ((name, SMALL.get(name, (0, 0))) for name in SCENARIOS)
}


@pytest.mark.parametrize("name", [name for name, share in SHARES.items() if any(share)])
def test_a_job_goes_on_from_a_kill_at_any_call(name: str, tmp_path: Path, runner: Preloaded, harness: Begin) -> None:
    kills, pairs = SHARES[name]
    with harness(HARNESS, kills + pairs) as case, bench(name, tmp_path, runner) as prepared:
        points = prepared.points()
        for point in spread(points, kills):
            with told(name, point):
                prepared.killed(point).finish()
            case("kills")
        dice = random.Random(name)
        for _ in range(pairs):
            kill_twice(prepared, points, dice)
            case("kill-then-kill pairs")


def kill_twice(prepared: Bench, points: list[Point], dice: random.Random) -> None:
    """Kill a command and the run that recovers from it, wherever one is needed, and let the next go on."""
    for _ in range(20):
        place = dice.randrange(len(points))
        with told(prepared.scenario.name, points[place]):
            twice = prepared.killed(points[place])
            choices = twice.points()
            if choices:
                second = dice.choice(choices)
                with told("and then", second):
                    again = twice.kill_again(second)
                    twice.finish()
                if again:
                    return
            else:
                del points[place:]  # all is done by then, so it is after any later call
    raise AssertionError(NO_KILL)


@contextmanager
def told(*what: object) -> Iterator[None]:
    """Say which case it was that failed."""
    try:
        yield
    except BaseException as error:
        error.add_note(" ".join(map(str, what)))
        raise


def test_what_is_broken_on_purpose_is_caught(
    tmp_path: Path, runner: Preloaded, harness: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with harness(HARNESS) as case, bench("first", tmp_path, runner) as prepared:
        points = [Point("lock", "fsync", 1), Point("lock", "fdatasync", 1)][: sized(1, 2, 2)]
        for point in points:
            with pytest.raises(AssertionError, match=r"1 requests, 0 were admitted|before there was a file"):
                prepared.case().kill(point, SENDS_FIRST)
        case.control("each request is sent before it is counted", len(points))
        monkeypatch.setattr(kill_points, "FAULT", "")
        with pytest.raises(AssertionError, match=NO_KILL):
            prepared.killed(points[0])
        case.control("strace injects nothing", 1)

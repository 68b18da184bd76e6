"""Any file system call of a slice fails, or claims what it never did: strace does that to the real program."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from scheduler import checkpoint
from scheduler.errors import ResumedError
from tests.faults.cases import Begin, needs, sized
from tests.faults.fork_server import ForkServer, fork_server
from tests.faults.in_memory import in_memory
from tests.faults.killed_at import forked
from tests.faults.slices import Watched, end_faults, said_faults, slice_faults, stored, watched_server
from tests.faults.strace import Call, Traced
from tests.support import Project

HARNESS = "an error or a lie at a file system call"
ERRORS = {
    "openat": ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EMFILE"),
    "write": ("EIO", "ENOSPC", "EDQUOT"),
    "pwrite64": ("EIO", "ENOSPC", "EDQUOT"),
    "fsync": ("EIO", "ENOSPC", "EDQUOT"),
    "fdatasync": ("EIO", "ENOSPC", "EDQUOT"),
    "rename": ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES"),
    "flock": ("EIO", "ENOLCK", "ENOSYS"),
    "fcntl": ("EIO", "ENOLCK", "ENOSYS"),
    "fallocate": ("EIO", "ENOSPC", "EDQUOT", "ENOSYS"),
    "ftruncate": ("EIO", "EROFS"),
    "unlink": ("EIO", "EROFS", "EACCES"),
    "mkdir": ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES"),
    "newfstatat": ("EIO", "EACCES"),
    "fchmod": ("EIO", "EROFS"),
    "read": ("EIO",),
    "pread64": ("EIO",),
    "getdents64": ("EIO",),
}
LIES = ("fsync", "fdatasync", "rename", "unlink", "flock", "fallocate", "ftruncate", "fchmod")
ALWAYS = ("write", "rename")  # a request goes out by what they say
SHORT = 10  # bytes that a write claims, none of which it wrote


@dataclass(frozen=True)
class Scenario:
    """A job after so many attempts, its last one perhaps cut off; what is then run, and what is answered."""

    command: str = "run"
    attempts: int = 0
    cut_off: bool = False
    calls: bool = False
    from_start: bool = False


SCENARIOS = {
    "beginning": Scenario(from_start=True),
    "first": Scenario(),
    "tick": Scenario("tick", attempts=1),
    "tool": Scenario(attempts=1, calls=True),
    "fourth": Scenario(attempts=3),
    "interrupted": Scenario(attempts=1, cut_off=True),
}


class Fault(NamedTuple):
    """What is done to a call; `lie` where it claims what never happened."""

    call: str
    action: str
    number: int
    lie: bool

    @property
    def beyond(self) -> bool:
        """Whether no program can notice it at once: SQLite takes a page that was never written for a written one."""
        return self.lie and self.call == "pwrite64"

    @property
    def inject(self) -> str:
        return f"{self.call}:{self.action}:when={self.number}"


@dataclass
class Place:
    """Where the cases of one scenario are tried: a folder that is put back before each."""

    server: ForkServer
    watched: Watched
    scenario: Scenario
    project: Project
    template: Path
    begun: int  # requests that the template has spent

    def concerns(self, call: Call) -> bool:
        """Whether a call is about the folder, the system or a stream, not Python's own files."""
        words = (str(self.project.folder.parent), "/proc/", "<socket:", "/memfd:")
        return any(word in call.arguments for word in words)

    def faults(self) -> list[Fault]:
        """Every fault at every call that concerns the scenario, when nothing is done to it."""
        numbers: Counter[tuple[int, str]] = Counter()
        found = set()
        for call in self.trace():
            numbers[call.pid, call.name] += 1
            number = numbers[call.pid, call.name]
            if not self.concerns(call):
                continue
            found |= {Fault(call.name, f"error={error}", number, lie=False) for error in ERRORS[call.name]}
            if call.name in LIES:
                found.add(Fault(call.name, "retval=0", number, lie=True))
            if call.name in ("write", "pwrite64"):
                found |= {Fault(call.name, f"retval={size}", number, lie=True) for size in (call.result, SHORT)}
        return sorted(found)

    def put_back(self) -> None:
        shutil.rmtree(self.project.folder.parent)
        shutil.copytree(self.template, self.project.folder.parent)

    def trace(self) -> tuple[Call, ...]:
        """The calls of the scenario when nothing is done to it."""
        self.put_back()
        self.watched.begin(self.project.path(), calls=self.scenario.calls)
        told = self._run()
        assert told.code == 0, told.err
        assert not self.watched.faults
        return told.calls

    def _run(self, **options: str) -> Traced:
        """Run the scenario's command under strace."""
        scenario = self.scenario
        begin = {"calls": [*ERRORS], "from_start": scenario.from_start, "module": __name__}
        return self.server.run(self.project, scenario.command, "nightly", **begin, **options)

    def try_fault(self, fault: Fault, broken: str = "") -> list[str]:
        """Run the scenario with one fault, then without any to its end; return which promises were broken."""
        self.put_back()
        self.watched.begin(self.project.path(), calls=self.scenario.calls)
        before = stored(self.project.path())
        told = self._run(inject=fault.inject, broken=broken)
        assert any(call.name == fault.call for call in told.injected), f"{fault.inject} hit nothing"
        after = stored(self.project.path())
        faults = [] if fault.beyond else slice_faults(before, after, self.watched, told)
        # Each thread counts by itself: what failed too may be the program's own line, or the loading of a module.
        if all(self.concerns(call) and "/memfd:" not in call.arguments for call in told.injected):
            faults += said_faults(told, self.project.folder.parent)
        faults += end_faults(self.server, self.project, self.watched, self.begun, may_block=fault.beyond)
        hit = [f"{call.name}({call.arguments[:200]})" for call in told.injected]
        return [f"{fault.inject}: {said}\n    {hit}\n    {told.code} {told.err}" for said in faults]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    needs("strace", root=True)
    with fork_server() as started:
        yield started


@contextlib.contextmanager
def place(server: ForkServer, scenario: Scenario) -> Iterator[Place]:
    """Bring a job to where the scenario begins."""
    with in_memory() as folder, watched_server() as watched:
        project = Project(Path(folder, "work", "project"))
        project.folder.mkdir(0o700, parents=True)
        (project.folder / "notes.md").write_text("The log is short.\n")
        project.live(watched.chat.url, {"nightly": {"schedule": "every 1s", "read": ["notes.md"]}}, after_failure=[])
        watched.begin(project.path(), calls=True)
        for _ in range(scenario.attempts - scenario.cut_off):
            assert server.run(project, "run", "nightly").code == 0
        begun = watched.sent
        if scenario.cut_off:
            forked(project, ["run", "nightly"], steps=["admit-after"])
        shutil.copytree(Path(folder, "work"), Path(folder, "template"))
        yield Place(server, watched, scenario, project, Path(folder, "template"), begun)


@pytest.mark.parametrize("name", [*SCENARIOS][:: sized(3, 1, 1)])
def test_no_error_costs_a_reply_or_a_request_too_many(name: str, server: ForkServer, harness: Begin) -> None:
    least = sized(3, 52, 260)
    with harness(HARNESS, least) as case, place(server, SCENARIOS[name]) as here:
        everything = here.faults()
        chosen = random.Random(f"errors of {name}").sample(everything, least)
        chosen += {fault for fault in everything if fault.lie and fault.call in ALWAYS} - {*chosen} if least > 3 else []
        wrong = []
        for fault in chosen:
            wrong += here.try_fault(fault)
            case("lies" if fault.lie else "errors")
        assert not wrong, "\n".join(wrong)


def swallow() -> None:
    """Break the program: what fails in publishing the count is ignored."""
    real = checkpoint.publish

    def publish(path: Path, body: bytes) -> None:
        with contextlib.suppress(ResumedError):
            real(path, body)

    checkpoint.publish = publish  # type: ignore[assignment]  # broken on purpose


def test_a_program_that_ignores_errors_is_caught(server: ForkServer, harness: Begin) -> None:
    with harness(HARNESS) as case, place(server, SCENARIOS["first"]) as here:
        fault = Fault("rename", "error=EIO", 1, lie=False)
        assert not here.try_fault(fault)
        case.control("errors of publishing the count are ignored", bool(here.try_fault(fault, "swallow")))
        with pytest.raises(AssertionError, match="hit nothing"):
            here.try_fault(Fault("rename", "error=EIO", 99, lie=False))

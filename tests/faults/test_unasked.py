"""Every command on jobs of a real provider, in every state, while `live` is off: strace sees no connection."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from scheduler.cli import build_parser
from tests.faults.cases import Begin, needs, sized
from tests.faults.fork_server import HUNG, ForkServer, fork_server
from tests.faults.in_memory import in_memory
from tests.faults.slices import stored
from tests.faults.strace import Traced
from tests.support import ChatServer, Project, answer, chat_server, tool_calls

HARNESS = "connections while live is off"
WHY = ("--reason", "tried while offline")

# What a person may write in place of `live: true`: at the top, in the provider, in the job.
SPELLINGS: Mapping[str, tuple[str, str, str]] = {
    "nothing": ("", "", ""),
    "false": ('"live": false,', "", ""),
    "no": ('"live": no,', "", ""),
    "null": ('"live": null,', "", ""),
    "a text": ('"live": "true",', "", ""),
    "a number": ('"live": 1,', "", ""),
    "a capital": ('"Live": true,', "", ""),
    "in the provider": ("", '"live": true,', ""),
    "in the job": ("", "", '"live": true,'),
    "twice": ('"live": false, "live": true,', "", ""),
}

COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("tick",), ("tick", "nightly"), ("run", "nightly"), ("daemon", "--until-done"), ("check",), ("status",)),
    *(("status", "--json", "--all"), ("show", "nightly"), ("preview", "nightly"), ("doctor", "--verbose"), ("init",)),
    *(("doctor", "--online"), ("review", "nightly", "--approve"), ("review", "nightly", "--reject", "--note", "no")),
    *(("repair", "nightly"), ("adopt", "nightly"), ("adopt", "--all"), ("revise", "nightly"), ("unblock", "local")),
    *(("renew", "nightly", "--confirm", "nightly"), ("work", "Say hello", "--demo"), ("work", "Say hi")),
)
REASONED = ("repair", "adopt", "revise", "renew", "unblock")


def nothing(place: Place) -> None:
    """Leave the job as it is written."""


def asked(place: Place) -> None:
    """Have it asked for a tool."""
    place.chat.script = [tool_calls(("c1", "list_files", "{}"))]
    place.server.run(place.project, "run", "nightly")


def killed(place: Place) -> None:
    """Leave an attempt open."""
    place.chat.hold.clear()
    with place.project.start("run", "nightly") as process:
        place.chat.wait_for(place.chat.count + 1)
        process.send_signal(signal.SIGKILL)
    place.chat.hold.set()


def answered(place: Place, *decision: str) -> None:
    """Have it answered, and perhaps decided about."""
    place.chat.script = [answer("fin")]
    place.server.run(place.project, "run", "nightly")
    if decision:
        place.server.run(place.project, "review", "nightly", *decision)


def approved(place: Place) -> None:
    answered(place, "--approve")


def rejected(place: Place) -> None:
    answered(place, "--reject", "--note", "again")


def spent(place: Place) -> None:
    """Have it answered by nothing, four times."""
    place.chat.script = [answer("")]
    for _ in range(4):
        place.server.run(place.project, "run", "nightly")


def damaged(place: Place) -> None:
    """Change its file by hand."""
    asked(place)
    place.project.path().write_text(place.project.path().read_text() + " ")


# Each state, with the attempts that it shows.
STATES: Mapping[str, tuple[Callable[[Place], None], int]] = {
    "new": (nothing, 0),
    "ready": (asked, 1),
    "interrupted": (killed, 1),
    "answered": (answered, 1),
    "approved": (approved, 1),
    "rejected": (rejected, 1),
    "exhausted": (spent, 4),
    "damaged": (damaged, 1),
}


@dataclass
class Place:
    """Where the cases are tried: a folder that is put back before each, as it was in one of the states."""

    server: ForkServer
    chat: ChatServer
    project: Project
    templates: Path

    def begin(self, state: str) -> None:
        """Put everything back to where a live job is in this state; bring it there where none has been yet."""
        shutil.rmtree(self.project.folder.parent, ignore_errors=True)
        if (self.templates / state).exists():
            shutil.copytree(self.templates / state, self.project.folder.parent)
            return
        self.project.folder.mkdir(0o700, parents=True)
        (self.project.folder / "notes.md").write_text("The log is short.\n")
        job = {"schedule": "every 1s", "read": ["notes.md"]}
        self.project.live(self.chat.url, {"nightly": job}, after_failure=[])
        make, attempts = STATES[state]
        make(self)
        assert stored(self.project.path()).attempts == attempts
        shutil.copytree(self.project.folder.parent, self.templates / state)

    def spell(self, spelling: str) -> None:
        """Take `live: true` out of jobs.yaml, and write something else."""
        top, provider, job = SPELLINGS[spelling]
        text = self.project.config.read_text("utf-8")
        for old, new in (
            ('"live": true,', top),
            ('"base_url":', f'{provider} "base_url":'),
            ('"task":', f'{job} "task":'),
        ):
            assert text.count(old) == 1
            text = text.replace(old, new)
        self.project.write(text)

    def run(self, command: tuple[str, ...]) -> Traced:
        """Run a command from its first line on, and see what it connects to."""
        more = {"init": ("begun",), "work": ("--checkpoint", "work.json", "--base-url", self.chat.url)}
        arguments = [*command, *more.get(command[0], ()), *(WHY if command[0] in REASONED else ())]
        paths = {"begun": "begun", "work.json": "work/work.json"}
        arguments = [str(self.project.folder / paths[word]) if word in paths else word for word in arguments]
        return self.server.run(self.project, *arguments, calls=["connect", "sendto", "sendmsg"], from_start=True)

    def try_case(self, state: str, spelling: str, command: tuple[str, ...]) -> list[str]:
        """Run one command; return which promises were broken."""
        self.begin(state)
        self.spell(spelling)
        before, path = self.chat.count, self.project.path()
        was = stored(path)
        told = self.run(command)
        faults = [f"it connects: {call.name}({call.arguments})" for call in told.calls if goes_out(call.arguments)]
        if self.chat.count != before:
            faults.append(f"{self.chat.count - before} requests came")
        if command[0] in ("tick", "run", "daemon", "work") and stored(path) != was:
            faults.append(f"the live checkpoint was {was}, and is {stored(path)}")
        if told.code == HUNG or "Traceback" in told.err:
            faults.append("it did not end well")
        return [f"{state}, {spelling}, {command}: {one}\n    {told.code} {told.err}{told.out}" for one in faults]


def goes_out(arguments: str) -> bool:
    """Tell whether a call's address is one of the network."""
    return bool(re.search("AF_INET|AF_PACKET|AF_VSOCK", arguments))


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    needs("strace", root=True)
    with contextlib.ExitStack() as stack:
        folder, chat = stack.enter_context(in_memory()), stack.enter_context(chat_server())
        yield Place(stack.enter_context(fork_server()), chat, Project(folder / "work/project"), folder / "templates")


@pytest.mark.parametrize("state", STATES)
def test_no_command_connects_while_live_is_off(state: str, place: Place, harness: Begin) -> None:
    everything = list(itertools.product(SPELLINGS, COMMANDS))
    chosen = random.Random(state).sample(everything, sized(3, 40, len(everything)))
    with harness(HARNESS, len(chosen)) as case:
        wrong = []
        for spelling, command in chosen:
            wrong += place.try_case(state, spelling, command)
            case(command[0])
        assert not wrong, "\n".join(wrong)


def test_every_command_is_among_them() -> None:
    [commands] = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    assert {command[0] for command in COMMANDS} == set(commands.choices) - {"selftest"}  # it reads no jobs.yaml


def test_a_live_job_is_seen_to_connect(place: Place, harness: Begin) -> None:
    with harness(HARNESS) as case:
        caught = 0
        for state, command in itertools.product(("new", "ready", "rejected"), (("tick",), ("run", "nightly"))):
            place.begin(state)
            before = place.chat.count
            told = place.run(command)
            caught += place.chat.count == before + 1 and any(goes_out(call.arguments) for call in told.calls)
        case.control("live: true", caught)

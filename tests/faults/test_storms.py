"""Sixteen processes at once on one job, over and over: daemon, cron and command line, some of them killed."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import Begin
from tests.faults.cases import TIER, sized
from tests.faults.counting import Counting, at_last, counting
from tests.faults.in_memory import in_memory
from tests.faults.storm import Member, Wave, storms
from tests.support import Project

HARNESS = "races of 16 processes"
SHARDS = sized(1, 2, 10)
ROUNDS = sized(1, 15, 25)  # of each kind in each shard
WILD = sized(1, 2, 2)  # waves with kills, and with mischief where there is to be some
MOST_WAVES = 8
CRON_AND_COMMANDS = 15
CODES = {0, 69, 75, -signal.SIGKILL}


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder in memory, where there is one."""
    with in_memory() as path:
        yield path


@dataclass
class Round:
    """One job and its processes, wave after wave."""

    project: Project
    name: str
    members: list[Member] = field(default_factory=list)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        base = sqlite3.connect(self.project.folder / "checkpoints" / ".ledger.sqlite3")
        with contextlib.closing(base):
            return base.execute(query).fetchall()

    @property
    def killed(self) -> set[int]:
        return {member.pid for member in self.members if member.code == -signal.SIGKILL}

    @property
    def final(self) -> bool:
        return any(
            json.loads(str(body, "utf-8"))["status"] != "ready" for (body,) in self.rows("SELECT body FROM document")
        )


def run_round(
    wave: Wave, chat: Counting, room: Path, name: str, chance: random.Random, mischief: bool, most: int = MOST_WAVES
) -> Round:
    """Run waves until the job is final; those with mischief and kills are followed by peace, in which it goes on."""
    one = Round(Project(room / name), name)
    one.project.folder.mkdir(0o700)
    one.project.live(chat.url, {name: {"task": name, "schedule": "every 1s"}}, after_failure=[])
    for number in range(most):
        kinds = [("tick",), ("run", name), ("tick", name), ("run", name)]
        commands = [("daemon",)] + [chance.choice(kinds) for _ in range(CRON_AND_COMMANDS)]
        kills, folder = 0, ""
        if number < WILD:
            kills = chance.choice([0, 1, 2]) if TIER != "test" else 1
            folder = str(one.project.folder / "checkpoints") if mischief else ""
        ahead = chance.random() < 0.5  # who starts with all others seldom gets a slice
        one.members += wave(one.project.config, commands, chance=chance, kills=kills, mischief=folder, ahead=ahead)
        if one.final and number >= WILD:
            break
    return one


def faults(one: Round, chat: Counting) -> list[str]:
    """Say which promises were broken."""
    requests, document = chat.of(one.name), one.project.document(one.name)
    rows = one.rows("SELECT attempt, point, pid, outcome FROM admission ORDER BY attempt")
    kept = json.dumps(document) + "".join(str(body) for (body,) in one.rows("SELECT body FROM orphan"))
    numbers = [entry["number"] for entry in document["history"]]
    points = [point for _, point, _, _ in rows if point is not None]
    told = Counter(entry["point"] for entry in document["history"] if entry["point"])
    owners = {attempt: pid for attempt, _, pid, _ in rows}
    lost = [
        request.number
        for request in requests
        if request.replied and owners.get(request.attempt) not in one.killed
        if f" {request.number}." not in kept
    ]
    odd = [member for member in one.members if member.code not in CODES and member.command[-1] != "daemon"]
    found = {
        f"{len(requests)} requests": len(requests) > 4,
        f"{chat.most[one.name]} in flight at once": chat.most[one.name] > 1,
        f"attempts {[request.attempt for request in requests]} sent": len({r.attempt for r in requests})
        < len(requests),
        f"history {numbers}": numbers != list(range(1, len(numbers) + 1)) or document["attempts"] != len(numbers),
        f"admissions {rows}": [attempt for attempt, *_ in rows] != numbers,
        f"points {points}": len(set(points)) < len(points) or sorted(told.values())[-1:] > [1],
        f"replies {lost} lost": bool(lost),
        f"status {document['status']}": document["status"] == "ready",
        f"ends {[(member.command[2:], member.code, member.err[-300:]) for member in odd]}": bool(odd),
        "a traceback": any("Traceback" in member.err for member in one.members),
    }
    return [fault for fault, is_so in found.items() if is_so]


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("mischief", [False, True], ids=["whole", "deleted and restored"])
def test_no_fifth_request_none_beside_another_and_no_answer_lost(
    harness: Begin, room: Path, shard: int, mischief: bool
) -> None:
    killed = cut = by_daemon = 0
    with (
        harness(HARNESS, least=ROUNDS) as case,
        counting(at_last, delay=0.03) as chat,
        storms(Project(room / "driver")) as wave,
    ):
        for number in range(ROUNDS):
            name = f"{shard}-{number}{'-mischief' if mischief else ''}"
            one = run_round(wave, chat, room, name, random.Random(name), mischief)
            assert faults(one, chat) == [], f"round {name}"
            acts = Counter(
                line for member in one.members if member.command == ["vandal"] for line in member.err.split("\n")
            )
            assert bool(acts["lock deleted"] and acts["checkpoint deleted"] and acts["copy restored"]) == mischief
            case("with locks and checkpoints deleted and restored" if mischief else "with the lock whole")
            killed += len(one.killed)
            cut += len(one.rows("SELECT 1 FROM admission WHERE outcome = 'interrupted'"))
            daemons = {member.pid for member in one.members if member.command[-1] == "daemon"}
            by_daemon += sum(pid in daemons for (pid,) in one.rows("SELECT pid FROM admission"))
            shutil.rmtree(one.project.folder)
        assert cut or TIER == "test", "no kill met an attempt"
        assert by_daemon or TIER == "test", "no daemon had a slice"
        print(f"{killed} processes killed, {cut} while they waited for a reply; {by_daemon} slices of daemons")


def test_processes_that_compare_nothing_are_caught(harness: Begin, room: Path) -> None:
    chance = random.Random(7)
    with (
        harness(HARNESS) as case,
        counting(at_last, delay=0.3) as chat,  # long enough that two are in flight on a busy machine too
        storms(Project(room / "driver"), "admits blindly") as wave,
    ):
        caught = 0
        for number in range(sized(1, 3, 3)):
            one = run_round(wave, chat, room, f"blind-{number}", chance, False, most=1)
            found = " ".join(faults(one, chat))
            caught += "in flight" in found and "sent" in found
        case.control("neither lock nor ledger compares anything", caught=caught)

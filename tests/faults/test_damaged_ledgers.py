"""Ledgers damaged, cut, emptied, swapped and restored: never a request above the highest count that survives."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scheduler.ledger import NAME, ledger_of
from scheduler.tables import SCRIPTS
from tests.faults.cases import Begin, sized
from tests.faults.in_memory import in_memory
from tests.faults.killed_at import Ended, forked
from tests.support import ChatServer, Project, answer, chat_server, rows, tool_calls
from tests.test_damage import told

HARNESS = "damaged ledgers"
BATCH = sized(15, 30, 30)
BATCHES = sized(1, 10, 34)
CALL = tool_calls(("c1", "read_file", '{"größe": "é"}'))
PAGE = 4096

pytestmark = pytest.mark.usefixtures("surroundings")


@dataclass(frozen=True)
class Victim:
    """A folder with one checkpoint and its ledger, a copy of that from an attempt before, and another folder."""

    folder: Path
    older: Path
    other: Path

    @property
    def ledger(self) -> Path:
        return self.folder / NAME

    @property
    def wal(self) -> Path:
        return self.folder / f"{NAME}-wal"

    @property
    def shm(self) -> Path:
        return self.folder / f"{NAME}-shm"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "nightly.json"


def rewrite(path: Path, change: Callable[[bytearray], object]) -> None:
    """Change a file's bytes in place; one that is not there, or empty, stays so."""
    if path.exists() and path.stat().st_size:
        body = bytearray(path.read_bytes())
        change(body)
        path.write_bytes(body)


def flip(body: bytearray, chance: random.Random, bits: int, low: int = 0, size: int = 1 << 60) -> None:
    for _ in range(bits):
        place = chance.randrange(low, min(len(body), low + size))
        body[place] ^= 1 << chance.randrange(8)


def flip_a_page(victim: Victim, chance: random.Random, number: int) -> None:
    def change(body: bytearray) -> None:
        page = number * 3 + chance.randrange(3)  # three of a round flip a page
        flip(body, chance, chance.choice((1, 2, 8, 64)), page * PAGE % len(body), PAGE)

    rewrite(victim.ledger, change)


def flip_used_bytes(victim: Victim, chance: random.Random, number: int) -> None:
    def change(body: bytearray) -> None:
        for place in chance.sample(
            [place for place, byte in enumerate(body) if byte], chance.choice((1, 1, 2, 16, 256))
        ):
            body[place] ^= 1 << chance.randrange(8)

    rewrite(victim.wal if victim.wal.exists() and number % 2 else victim.ledger, change)


def move_a_page(victim: Victim, chance: random.Random, number: int) -> None:
    def change(body: bytearray) -> None:
        pages = len(body) // PAGE
        one, other = number % pages * PAGE, chance.randrange(pages) * PAGE
        body[one : one + PAGE] = chance.choice((bytes(PAGE), bytes(body[other : other + PAGE])))

    rewrite(victim.ledger, change)


def cut(victim: Victim, chance: random.Random, number: int) -> None:
    rewrite(victim.ledger, lambda body: body.__delitem__(slice(chance.randrange(len(body)), None)))


def remove_wal(victim: Victim, chance: random.Random, number: int) -> None:
    victim.wal.unlink(missing_ok=True)
    if number % 2:
        victim.shm.unlink(missing_ok=True)


def damage_wal(victim: Victim, chance: random.Random, number: int) -> None:
    if number % 3 == 0:
        rewrite(victim.wal, lambda body: body.__delitem__(slice(chance.randrange(len(body)), None)))
    elif number % 3 == 1:
        rewrite(victim.wal, lambda body: flip(body, chance, chance.choice((1, 8, 64))))
    else:
        shutil.copy(victim.other, victim.wal)


def damage_shm(victim: Victim, chance: random.Random, number: int) -> None:
    if number % 2:
        victim.shm.unlink(missing_ok=True)
    else:
        rewrite(victim.shm, lambda body: flip(body, chance, 64))


def restore_older(victim: Victim, chance: random.Random, number: int) -> None:
    shutil.copy(victim.older, victim.ledger)
    if number % 2:
        remove_wal(victim, chance, 1)


def replace(victim: Victim, chance: random.Random, number: int) -> None:
    contents = [b"", b"This is no ledger.\n" * 300, victim.other.read_bytes(), b"SQLite format 3\0", bytes(2 * PAGE)]
    victim.ledger.write_bytes(contents[number % len(contents)])
    if chance.random() < 0.5:
        remove_wal(victim, chance, 1)


def remove(victim: Victim, chance: random.Random, number: int) -> None:
    victim.ledger.unlink()
    if number % 2:
        remove_wal(victim, chance, 1)


def to_come(victim: Victim, chance: random.Random, number: int) -> None:
    rows(victim.ledger, f"PRAGMA user_version={len(SCRIPTS) + 1 + number % 3}")


DAMAGES = (
    flip_a_page,
    flip_used_bytes,
    damage_wal,
    flip_a_page,
    restore_older,
    flip_used_bytes,
    move_a_page,
    replace,
    remove_wal,
    flip_a_page,
    cut,
    damage_shm,
    flip_used_bytes,
    remove,
    to_come,
)


# ---- a batch of jobs, each in a folder of its own


@pytest.fixture
def batch() -> Iterator[tuple[Project, ChatServer]]:
    with in_memory() as folder, chat_server() as chat:
        project = Project(folder / "project")
        project.folder.mkdir(mode=0o700)
        yield project, chat


def prepare(project: Project, chat: ChatServer, names: list[str], last: Any) -> list[Victim]:
    """Run two slices of each job, the second one answered by `last`; every other ledger is left as a crash would."""
    jobs = {name: {"task": f"Task {name}", "checkpoint": f"checkpoints/{name}/nightly.json"} for name in names}
    project.live(chat.url, jobs, after_failure=[])
    chat.script = [CALL]
    told(project, *names)
    folders = [project.folder / "checkpoints" / name for name in names]
    for folder in folders:
        now, older = sqlite3.connect(folder / NAME), sqlite3.connect(folder.with_suffix(".older"))
        with contextlib.closing(now), contextlib.closing(older):
            now.backup(older)
    chat.script = [last]
    told(project, *names)
    assert chat.count == 2 * len(names)
    for number, folder in enumerate(folders):
        if number % 2:
            ledger_of(folder)._database.close()
        shutil.copytree(folder, folder.with_suffix(".copy"))  # as it is now, and used by no process
        ledger_of(folder)._database.close()
        shutil.rmtree(folder)
        folder.with_suffix(".copy").rename(folder)
        assert (folder / f"{NAME}-wal").exists() == (number % 2 == 0)
    others = [folder.with_suffix(".older") for folder in folders]
    return [
        Victim(folder, folder.with_suffix(".older"), other)
        for folder, other in zip(folders, others[1:] + others[:1], strict=True)
    ]


def sent(chat: ChatServer, name: str) -> int:
    """How many requests of a job have reached the server."""
    return sum(request["messages"][1]["content"].startswith(f"Task {name}\n") for request in chat.requests)


def fault(victim: Victim, before: dict[str, Any], requests: int, ended: list[Ended]) -> str:
    """Say what is wrong after a damaged ledger was used."""
    most = 4 if before["status"] == "ready" else before["attempts"]
    said = "".join(end.err for end in ended)
    after = json.loads(victim.checkpoint.read_bytes())
    kept = len(before["history"])
    if requests > most:
        return f"{requests} requests, and {most} are the most"
    if any(end.code not in (0, 65, 69, 74, 75) for end in ended) or re.search("Traceback|unforeseen|canary", said):
        return "it did not end as it should"
    if (
        after["history"][:kept] != before["history"]
        or after["conversation"][: len(before["conversation"])] != before["conversation"]
    ):
        return f"the document was {before}, and is {after}"
    if after["attempts"] < requests and not any(end.code == 65 for end in ended):
        return f"{after['attempts']} attempts counted, and {requests} were sent"
    return ""


@pytest.mark.parametrize("number", range(BATCHES))
def test_a_damaged_ledger_never_gives_more_requests(
    number: int, batch: tuple[Project, ChatServer], harness: Begin
) -> None:
    project, chat = batch
    names = [f"j{index}" for index in range(BATCH)]
    chance = random.Random(number)
    with harness(HARNESS, least=BATCH) as case:
        victims = prepare(project, chat, names, answer("fin") if number % 2 else answer(""))
        documents = [json.loads(victim.checkpoint.read_bytes()) for victim in victims]
        kinds = []
        for index, victim in enumerate(victims):
            damage = DAMAGES[(index + number * BATCH) % len(DAMAGES)]
            damage(victim, chance, (index + number * BATCH) // len(DAMAGES))
            kinds.append(damage.__name__.replace("_", " "))
        ends = forked(project, *([*("run", name)] for name in names for _ in range(3)), ["status"], ["doctor"])
        for index, (name, victim) in enumerate(zip(names, victims, strict=True)):
            ended = ends[index * 3 : index * 3 + 3]
            found = fault(victim, documents[index], sent(chat, name), ended)
            assert not found, f"batch {number}, job {index}, {kinds[index]}: {found}: {ended}"
            case(kinds[index])
        looked = ends[-2:]
        assert not any("Traceback" in end.err or "unforeseen" in end.err for end in looked), looked


def test_what_no_ledger_can_see_is_seen_by_these_checks(batch: tuple[Project, ChatServer], harness: Begin) -> None:
    project, chat = batch
    names = ["both", "forged"]
    with harness(HARNESS) as case:
        both, edited = victims = prepare(project, chat, names, answer(""))
        documents = [json.loads(victim.checkpoint.read_bytes()) for victim in victims]
        [(body,)] = rows(both.older, "SELECT body FROM document")
        restore_older(both, random.Random(0), 1)
        both.checkpoint.write_bytes(body)
        rewrite_document(edited)
        ends = forked(project, *(["run", name] for name in names for _ in range(4)))
        found = [
            fault(victims[place], documents[place], sent(chat, name), ends[place * 4 : place * 4 + 4])
            for place, name in enumerate(names)
        ]
        assert "5 requests, and 4 are the most" in found[0]
        assert "the document was" in found[1]
        case.control("file and ledger restored together", 1)
        case.control("a document changed in the ledger together with its digest", 1)


def rewrite_document(victim: Victim) -> None:
    [(body,)] = rows(victim.ledger, "SELECT body FROM document")
    body = body.replace(b'"billed":"yes"', b'"billed":"no"')
    sha = hashlib.sha256(body).hexdigest()
    rows(victim.ledger, "UPDATE document SET body = ?, digest = ?", body, sha)
    rows(victim.ledger, "INSERT INTO version SELECT checkpoint, allowance, ? FROM document", sha)

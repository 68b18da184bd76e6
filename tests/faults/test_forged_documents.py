"""Forged documents handed to `adopt`: only what is strictly valid is taken, and no attempt is won back by it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import mend
from scheduler.document import digest
from scheduler.due import Plan, plan_job
from scheduler.errors import CheckpointUnknown, MaintenanceRefused
from scheduler.jobfile import read_job_file
from scheduler.ledger import ledger_of
from tests.faults.cases import TIER, Begin, sized
from tests.faults.forged_samples import NOW, attempts_of, forged, sure
from tests.faults.in_memory import in_memory
from tests.faults.killed_at import forked
from tests.support import ChatServer, Project, answer, chat_server, face, tool_calls
from tests.test_damage import told

HARNESS = "forged documents handed to adopt"
CASES = sized(60, 2_500, 8_000)
KNOWN = ("nothing", "1 attempt", "3 attempts", "done", "exhausted", *(() if TIER == "test" else ("in flight",)))
CALL = tool_calls(("c1", "read_file", '{"größe": "é"}'))
DELIVERED = "out.md"

pytestmark = pytest.mark.usefixtures("surroundings")


@dataclasses.dataclass
class Office:
    """A job that delivers what is approved, its plan, and the folders to begin a case from."""

    project: Project
    chat: ChatServer
    templates: Path

    @property
    def plan(self) -> Plan:
        return plan_job(read_job_file(self.project.config).jobs["nightly"], live=True)

    @property
    def folder(self) -> Path:
        return self.project.path().parent

    def keep(self, name: str) -> None:
        """Keep what the folder holds as the beginning of cases."""
        ledger_of(self.folder)._database.close()
        shutil.move(self.folder, self.templates / name)

    def begin(self, name: str) -> None:
        ledger_of(self.folder)._database.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.templates / name, self.folder)

    def counted(self) -> int:
        """How many attempts the ledger knows of, asked without the program."""
        [(admitted,)] = self.project.rows("SELECT coalesce(max(attempt), 0) FROM admission")
        bodies = [json.loads(body) for (body,) in self.project.rows("SELECT body FROM document")]
        return max([admitted, *(body["attempts"] for body in bodies)])

    def known(self, body: bytes) -> bool:
        return bool(self.project.rows("SELECT 1 FROM version WHERE digest = ?", digest(body)))


@pytest.fixture(scope="module")
def office() -> Iterator[Office]:
    with in_memory() as folder, chat_server(judged=False) as chat:
        project = Project(folder / "project")
        project.folder.mkdir(mode=0o700)
        (folder / "templates").mkdir()
        project.live(chat.url, {"nightly": {"deliver": {"file": DELIVERED}}}, after_failure=[])
        yield Office(project, chat, folder / "templates")


@pytest.fixture
def bases(office: Office, surroundings: None) -> list[dict[str, Any]]:
    """Make what cases begin from, once; return the documents that are forged."""
    if not any(office.templates.iterdir()):
        scripts: dict[str, list[Any]] = {
            "nothing": [],
            "1 attempt": [answer("")],
            "3 attempts": [CALL, CALL, answer("")],
            "done": [CALL, answer("fin")],
            "exhausted": [answer("")] * 4,
        }
        for name, script in scripts.items():
            for reply in script:
                office.chat.script = [reply]
                told(office.project)
            if not script:
                told(office.project, by_hand=False)  # a ledger without a document
            office.keep(name)
        if "in flight" in KNOWN:
            [ended] = forked(office.project, ["run", "nightly"], steps=["ask-before"])
            assert ended.code == -9
            office.keep("in flight")
        office.chat.script = [answer("")]
    found = [path.read_bytes() for path in office.templates.glob("*/nightly.json")]
    documents = [json.loads(body) for body in found]
    return [*documents, *(approved(document) for document in documents if document["answer"])]


def approved(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a review that fits its answer."""
    sha = hashlib.sha256(document["answer"].encode()).hexdigest()
    return document | {"review": {"decision": "approved", "note": "", "who": "ann", "when": NOW, "answer_sha256": sha}}


def fault(office: Office, name: str, body: bytes) -> str:
    """Put a forged file beside a ledger, adopt it and run the job; say what is wrong."""
    path, plan = office.project.path(), office.plan
    path.unlink(missing_ok=True)
    path.write_bytes(body)
    path.chmod(0o600)
    before, sent, valid = face(path), office.chat.count, attempts_of(body)
    most = max(office.counted(), valid or 0)
    if not isinstance(told(office.project)[0].refusal, CheckpointUnknown) or face(path) != before:
        return "not refused before it was adopted"
    try:
        mend.adopt(plan)
    except MaintenanceRefused:
        left = face(path) == before and office.chat.count == sent and office.counted() <= most
        return "refused, though it is valid" if valid is not None else "" if left else "refused, and changed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if valid is None:
        return "adopted, though it is not valid"
    document = office.project.document()
    if document["attempts"] < most or document["review"] is not None or attempts_of(path.read_bytes()) is None:
        return f"adopted as {document}"
    for _ in range(5):
        result, _ = told(office.project)
        if result.final or result.refusal:
            break
    if office.chat.count - sent > 4 - most:
        return f"{office.chat.count - sent} requests after {most} attempts"
    return "delivered" if (office.project.folder / DELIVERED).exists() else ""


def test_adopt_takes_what_is_strictly_valid_and_wins_no_attempt_back(
    office: Office, bases: list[dict[str, Any]], harness: Begin
) -> None:
    chance, first = random.Random(5), sure(bases[0])
    with harness(HARNESS, least=CASES) as case:
        for number in range(CASES * 2):
            name = KNOWN[number % len(KNOWN)]
            office.begin(name)
            how, body = next(first, None) or forged(bases, chance)
            if office.known(body):
                continue
            found = fault(office, name, body)
            assert not found, f"case {number}, the ledger knows {name}; forged: {how}: {found}: {body.decode()}"
            case("valid" if attempts_of(body) is not None else "not valid")
            if case.kinds.total() == CASES:
                break


@pytest.mark.parametrize("broken", ["attempts", "check", "review"])
def test_a_laxer_adopt_is_caught(
    broken: str, office: Office, bases: list[dict[str, Any]], harness: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mend.close
    if broken == "attempts":
        monkeypatch.setattr(mend, "raise_attempts", lambda state, attempts, now: state)
    elif broken == "check":
        monkeypatch.setattr(mend, "check", lambda value: value)
    else:
        monkeypatch.setattr(mend, "close", lambda state, most: Kept(real(state, most)))
        bases = [document for document in bases if document["review"]]
    chance, caught = random.Random(6), 0
    with harness(HARNESS) as case:
        for _ in range(40):
            office.begin("3 attempts")
            caught += bool(fault(office, "3 attempts", forged(bases, chance)[1]))
        case.control(f"adopt without its rule on {broken}", caught)


class Kept(dict[str, Any]):
    """A document whose review stays."""

    def __setitem__(self, name: str, value: object) -> None:
        if name != "review":
            super().__setitem__(name, value)

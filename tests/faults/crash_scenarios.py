"""What is done to a checkpoint while the power may fail: each a command of the program, after what came before it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler import database
from scheduler.ledger import ledger_of
from tests.faults.crash_disk import Op
from tests.faults.crash_recorded import LEDGER, Recorder
from tests.faults.killed_at import forked
from tests.support import ChatServer, Command, Project, answer, tool_calls

PART = answer("a part ", finish_reason="length")
CALL = tool_calls(("c1", "read_file", json.dumps({"path": "notes.txt"})))
REASON = ("--reason", "so it is wanted")


@dataclass(frozen=True)
class Scenario:
    """`replies` come before, then `prepare` changes something; the command is what is recorded, answered by `reply`."""

    name: str
    command: tuple[str, ...] = ("run", "nightly")
    replies: tuple[dict[str, Any], ...] = ()
    reply: dict[str, Any] = field(default_factory=lambda: PART)
    prepare: Callable[[Project], None] | None = None
    code: int = 0
    share: int = 0  # of the cases that must be tried, in percent
    blocked: bool = False  # until the command has returned


@dataclass(frozen=True)
class Recording:
    """What a scenario did: the files at first, the operations, and how many requests came before."""

    scenario: Scenario
    files: dict[str, bytes]
    recorder: Recorder
    requests: int


def _interrupt(project: Project) -> None:
    [ended] = forked(project, ("run", "nightly"), steps=["admit-after"])
    assert ended.code == -signal.SIGKILL, ended.err


def _edit(project: Project) -> None:
    jobs = json.loads(project.config.read_text())
    jobs["jobs"]["nightly"]["task"] = "Summarise another log"
    project.write(json.dumps(jobs))


def _damage(project: Project) -> None:
    project.path().write_bytes(project.path().read_bytes()[:-40])


def _restore_foreign(project: Project) -> None:
    document = project.document() | {"model": "m1"}
    project.path().write_text(json.dumps(document, indent=1))


def _bring(project: Project) -> None:
    folder = project.path().parent
    folder.mkdir(0o700)
    fields = {"task": "Summarise the log", "model": "m1", "conversation": [], "attempts": 2, "status": "ready"}
    project.path().write_text(json.dumps(fields | {"answer": None}))


def _remove(project: Project) -> None:
    project.path().unlink()


SCENARIOS = (
    Scenario("first slice", share=11),
    Scenario("resume", replies=(PART,), share=5),
    Scenario("tool call", replies=(PART,), reply=CALL, share=5),
    Scenario("fourth", replies=(PART, PART, PART), code=69, share=5),
    Scenario("answer", replies=(PART,), reply=answer("fin"), share=5),
    Scenario("interrupted", replies=(PART,), prepare=_interrupt, reply=answer("fin"), share=50),
    Scenario("put back", replies=(PART, PART), prepare=_remove, share=19),
    Scenario("renew", ("renew", "nightly", *REASON, "--confirm", "nightly"), (PART, answer("fin"))),
    Scenario("revise", ("revise", "nightly", *REASON), (PART, PART), prepare=_edit),
    Scenario("approve", ("review", "nightly", "--approve"), (PART, answer("fin"))),
    Scenario("reject", ("review", "nightly", "--reject", "--note", "no"), (PART, answer("fin"))),
    Scenario("adopt", ("adopt", "nightly", *REASON), (PART, PART), prepare=_restore_foreign, blocked=True),
    Scenario("adopt afresh", ("adopt", "nightly", *REASON), prepare=_bring, blocked=True),
    Scenario("repair", ("repair", "nightly", *REASON), (PART, PART), prepare=_damage, blocked=True),
)


def close_ledgers() -> None:
    """Let this process forget the ledgers that it has open, as if it were another one."""
    for opened in list(database._databases):
        opened.close()
    ledger_of.cache_clear()


def prepare(scenario: Scenario, project: Project, chat: ChatServer, command: Command) -> None:
    """Do what comes before: the program's own slices, run to their end, and a change."""
    notes = project.folder / "notes.txt"
    notes.write_text("All quiet.\n" * 20)
    project.live(chat.url, {"nightly": {"read": [str(notes)]}})
    chat.script = [*scenario.replies, scenario.reply]
    for _ in scenario.replies:
        command("run", "nightly")
    close_ledgers()  # what comes next is another process
    if scenario.prepare:
        scenario.prepare(project)


def record(scenario: Scenario, project: Project, chat: ChatServer, command: Command) -> Recording:
    """Run the command in this process, on what is prepared, and record what it does to the checkpoint's folder."""
    path = project.path()
    recorder = Recorder(path.parent, path.name)
    before = chat.count
    files: dict[str, bytes] = {}
    if path.parent.is_dir():
        files = {entry.name: entry.read_bytes() for entry in path.parent.iterdir() if LEDGER not in entry.name}
    if (path.parent / LEDGER).exists():
        recorder.keep()
        files[LEDGER] = b""
    real = chat.take

    def take(*arguments: Any) -> Any:
        recorder.ops.append(Op("send"))
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch, recorder.running():
        patch.setattr(chat, "take", take)
        command(*scenario.command, code=scenario.code)
    close_ledgers()
    recorder.ops.append(Op("told"))
    return Recording(scenario, files, recorder, before)

"""Twelve states of a job, each made once and then copied, and the command that is killed in it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.kill_promises import Moment
from tests.faults.killed_at import Preloaded
from tests.support import ChatServer, Project, Reply, answer, tool_calls

RUN = ("run", "nightly")
ANSWER = answer("fin")
READ = "reference.txt"
CALL = tool_calls(("c1", "read_file", f'{{"path": "{READ}"}}'))
LONG = "The shop ships within three days. " * 100


@dataclass(frozen=True)
class Scenario:
    """What came before, what the killed process is asked to do, and what the server answers it.

    `before` are the replies of the attempts that came before; `entered` tells whether the command's effect is durable,
    for a run is simply followed by the next one. A `held` server never answers. `behind` puts the file back to what it
    was before the last reply, as a kill between the two does; `open` lets a process die once its attempt is counted;
    `edit` and `window` are how the entry and the model's window are changed before the kill; `seen` makes sure of it.
    """

    name: str
    command: tuple[str, ...] = RUN
    before: tuple[Reply, ...] = ()
    reply: Reply = field(default_factory=lambda: ANSWER)
    held: bool = False
    entry: dict[str, Any] = field(default_factory=dict)
    edit: dict[str, Any] = field(default_factory=dict)
    window: int | None = None
    behind: bool = False
    open: bool = False
    entered: Callable[[Moment], bool] = lambda _: True
    seen: Callable[[ChatServer], bool] = lambda _: True

    def write(
        self, project: Project, chat: ChatServer, case: str, entry: Mapping[str, Any], window: int | None = None
    ) -> None:
        """Write the jobs.yaml; the server tells the requests of one case by a header."""
        whole = {"schedule": "0 * * * *", "read": [READ], **self.entry, **entry}
        provider = {"headers": {"X-Case": case}, "context_tokens": window}
        project.live(chat.url, {"nightly": whole}, provider={name: x for name, x in provider.items() if x is not None})

    def prepare(self, folder: Path, chat: ChatServer, runner: Preloaded) -> Project:
        """Make the state that the command finds."""
        folder.mkdir(0o700)
        project = Project(folder)
        (folder / "out").mkdir()
        (folder / READ).write_text(LONG if self.name == "compaction" else "three days", "utf-8")
        self.write(project, chat, "before", {})
        earlier = b""
        for reply in self.before:
            earlier = project.path().read_bytes() if project.path().exists() else b""
            chat.script = [reply]
            [ended] = runner.run(project.config, RUN)
            assert ended.code == 0, ended.err
        if self.behind:
            project.path().write_bytes(earlier)
        if self.open:
            [ended] = runner.run(project.config, RUN, steps=["admit-after"])
            assert ended.code == -signal.SIGKILL, ended.err
        chat.requests.clear()
        chat.headers.clear()
        return project

    def copy(self, prepared: Project, folder: Path, chat: ChatServer, case: str) -> Project:
        """Return a copy of the prepared state."""
        shutil.copytree(prepared.folder, folder)
        project = Project(folder)
        self.write(project, chat, case, self.edit, self.window)
        return project


def _compacted(chat: ChatServer) -> bool:
    return "[Shortened to save room" in str(chat.requests[-1]["messages"])


RENEW = ("renew", "nightly", "--reason", "new prices", "--confirm", "nightly")
REVISE = ("revise", "nightly", "--reason", "the question was unclear")
OTHER = {"task": "Summarise the other log"}
APPROVE = ("review", "nightly", "--approve", "--note", "as the list says")

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("first"),
        Scenario("resume", before=(CALL,)),
        Scenario("fourth", before=(CALL, CALL, CALL)),
        Scenario("done", before=(CALL, ANSWER), behind=True),
        Scenario("tool call", reply=CALL),
        Scenario("compaction", before=(CALL, CALL, CALL), window=4000, seen=_compacted),
        Scenario("timeout", held=True, entry={"timeout": 1}),
        Scenario("500", reply=(500, {"error": {"message": "down"}})),
        Scenario("interrupted", before=(CALL,), open=True),
        Scenario("renew", RENEW, before=(CALL, ANSWER), entered=lambda now: now.allowance == 2),
        Scenario("revise", REVISE, before=(CALL,), edit=OTHER, entered=lambda now: bool(now.archive)),
        Scenario(
            "review",
            APPROVE,
            before=(CALL, ANSWER),
            entry={"deliver": {"file": "out/answer.txt"}},
            entered=lambda now: now.document["review"] is not None,
        ),
    )
}

"""SIGKILL at any moment of a slice: what was counted stays counted, what was saved stays saved, and it goes on."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.steps import COUNTED, ONLY_FIRST, ONLY_TOOLS, RECOVERY, SAVED, SENT, UNCOUNTED
from tests.faults.in_memory import in_memory
from tests.faults.killed_at import STEPS, Ended, Preloaded, forked, preloaded
from tests.support import ChatServer, Project, answer, chat_server, rows, tool_calls, wait_until

# ---- killed while the request is out, six times


def kill_in_flight(project: Project, chat: ChatServer, number: int, *command: str) -> None:
    """Start the program, kill it once its POST is there, and see that the file says so."""
    with project.start(*command) as process:
        wait_until(lambda: chat.count >= number or process.poll() is not None, 60, f"POST {number}")
        process.kill()
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err
    assert chat.count == number
    document = project.document()
    assert (document["attempts"], document["status"]) == (number, "ready")
    outcomes = [entry["outcome"] for entry in document["history"]]
    assert outcomes == ["interrupted"] * (number - 1) + [None]


def check_exhausted(project: Project, chat: ChatServer) -> None:
    """Four attempts, each interrupted and perhaps billed, and no fifth request."""
    document = project.document()
    assert (document["attempts"], document["status"], chat.count) == (4, "exhausted", 4)
    assert [(entry["number"], entry["outcome"], entry["billed"]) for entry in document["history"]] == [
        (number, "interrupted", "maybe") for number in (1, 2, 3, 4)
    ]


def test_run_killed_in_flight_six_times_sends_four_requests(project: Project) -> None:
    with chat_server(held=True) as chat:
        project.live(chat.url)
        for number in (1, 2, 3, 4):
            kill_in_flight(project, chat, number, "run", "nightly")
        for _ in range(2):
            project.run("run", "nightly", code=0)
            check_exhausted(project, chat)


def test_daemon_killed_in_flight_six_times_sends_four_requests(project: Project) -> None:
    with chat_server(held=True) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1s"}}, after_failure=[])
        for number in (1, 2, 3, 4):
            kill_in_flight(project, chat, number, "daemon")
        for _ in range(2):
            project.run("daemon", "--until-done", code=0)
            check_exhausted(project, chat)


# ---- killed between any two steps of a slice

CALL = tool_calls(("c-killed", "read_file", "{}"))
EARLIER = tool_calls(("c-earlier", "read_file", "{}"))


@dataclass
class Kill:
    """A job whose slice is killed at a step: the first, one that asks for a tool, the fourth, or one that recovers."""

    slice: str
    step: str
    ended: Ended | None = None
    counted: int = -1
    leftovers: list[str] = field(default_factory=list)
    admissions: list[Any] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def job(self) -> str:
        return f"{self.slice}.{self.step}"

    @property
    def before(self) -> int:
        """How many attempts came before the killed one."""
        return {"first": 0, "tool": 1, "fourth": 3, "recovering": 0}[self.slice]

    @property
    def attempts(self) -> int:
        """How many attempts the kill leaves counted."""
        return self.before + (self.step not in UNCOUNTED)

    @property
    def answered(self) -> bool:
        """Whether the answer was saved before the kill."""
        return self.step in SAVED and self.slice != "tool"

    @property
    def goes_on(self) -> bool:
        """Whether an attempt is left after the kill, and needed."""
        return not self.answered and self.attempts < 4

    @property
    def sent(self) -> int:
        """How many requests are sent for the job in all."""
        return self.before + (self.step in SENT | SAVED) + self.goes_on


KILLS = [
    *(Kill("first", step) for step in STEPS.keys() - RECOVERY.keys() - ONLY_TOOLS),
    *(Kill("tool", step) for step in STEPS.keys() - RECOVERY.keys() - ONLY_FIRST),
    *(Kill("fourth", step) for step in STEPS.keys() - RECOVERY.keys() - ONLY_FIRST - ONLY_TOOLS),
    *(Kill("recovering", step) for step in RECOVERY),
]
KILLS.sort(key=lambda kill: ([*STEPS].index(kill.step), kill.slice))


@pytest.fixture(scope="module")
def aftermath() -> dict[str, Kill]:
    """Every kill, each in a job and folder of its own, and what a run of the real program then made of it."""
    with in_memory() as folder, preloaded(Project(folder).environ()) as process:
        return aftermath_of(Project(folder), process)


def aftermath_of(project: Project, process: Preloaded) -> dict[str, Kill]:
    by_slice = {name: [kill for kill in KILLS if kill.slice == name] for name in ("tool", "fourth", "recovering")}
    by_slice["first"] = [kill for kill in KILLS if kill.slice == "first"]
    jobs = {kill.job: {"task": kill.job, "checkpoint": f"{kill.job}/job.json"} for kill in KILLS}
    with chat_server() as chat:
        project.live(chat.url, jobs)
        chat.script = [EARLIER]
        project.run("run", *(kill.job for kill in by_slice["tool"] + by_slice["fourth"]))
        for _ in range(2):
            project.run("run", *(kill.job for kill in by_slice["fourth"]))
        crashing = [("run", kill.job) for kill in by_slice["recovering"]]
        for ended in process.run(project.config, *crashing, steps=["admit-after"] * len(crashing)):
            assert ended.code == -signal.SIGKILL
        for name, kills in by_slice.items():
            chat.script = [CALL if name == "tool" else answer("fin")]
            commands = [("run", kill.job) for kill in kills]
            ends = process.run(project.config, *commands, steps=[kill.step for kill in kills])
            for kill, ended in zip(kills, ends, strict=True):
                kill.ended = ended
        counted = {row["id"]: row["attempts"] for row in json.loads(project.run("status", "--json").stdout)["jobs"]}
        chat.script = [answer("fin")]
        for _ in range(2):
            project.run("run", *jobs, code=0)
        for kill in KILLS:
            path = project.folder / kill.job / "job.json"
            kill.counted = counted[kill.job]
            kill.document = json.loads(path.read_text("utf-8"))
            kill.leftovers = sorted({entry.name for entry in path.parent.iterdir()})
            kill.admissions = rows(
                path.with_name(".ledger.sqlite3"), "SELECT attempt, outcome FROM admission ORDER BY 1"
            )
            kill.requests = [
                sent for sent in chat.requests if sent["messages"][1]["content"].partition("\n")[0] == kill.job
            ]
    return {kill.job: kill for kill in KILLS}


@pytest.mark.parametrize("job", [kill.job for kill in KILLS])
def test_a_slice_killed_at_any_step_goes_on_by_itself(aftermath: dict[str, Kill], job: str) -> None:
    kill = aftermath[job]
    assert kill.ended is not None
    assert kill.ended.code == -signal.SIGKILL, kill.ended.err
    assert kill.counted == kill.attempts
    assert len(kill.requests) == kill.sent
    document = kill.document
    assert document["attempts"] == kill.attempts + kill.goes_on
    assert [entry["number"] for entry in document["history"]] == list(range(1, document["attempts"] + 1))
    done = kill.answered or kill.goes_on
    assert (document["status"], document["answer"]) == (("done", "fin") if done else ("exhausted", None))
    expected = ["tool_calls"] * kill.before
    expected += [] if kill.step in UNCOUNTED else ["interrupted"] if kill.step not in SAVED else ["tool_calls"]
    expected[kill.before :] = ["answered"] if kill.answered else expected[kill.before :]
    expected += ["answered"] if kill.goes_on else []
    assert [entry["outcome"] for entry in document["history"]] == expected
    assert kill.admissions == [(number, outcome) for number, outcome in enumerate(expected, 1)]


@pytest.mark.parametrize("job", [kill.job for kill in KILLS if kill.slice == "tool"])
def test_a_saved_reply_is_shown_to_the_model_and_a_lost_one_is_not(aftermath: dict[str, Kill], job: str) -> None:
    kill = aftermath[job]
    roles = [message["role"] for message in kill.requests[-1]["messages"]]
    turns = 2 if kill.step in SAVED else 1
    assert roles == ["system", "user", *["assistant", "tool"] * turns]
    called = [message["tool_call_id"] for message in kill.requests[-1]["messages"] if message["role"] == "tool"]
    assert called == ["c-earlier", "c-killed"][:turns]


@pytest.mark.parametrize("job", [kill.job for kill in KILLS])
def test_no_temporary_file_stays_behind(aftermath: dict[str, Kill], job: str) -> None:
    allowed = {"job.json", "job.json.lock", ".ledger.sqlite3", ".ledger.sqlite3-wal", ".ledger.sqlite3-shm"}
    assert set(aftermath[job].leftovers) <= allowed
    assert "job.json" in aftermath[job].leftovers


def test_every_step_is_reached_in_every_slice_that_has_it() -> None:
    found = Counter(kill.slice for kill in KILLS)
    usual = len(UNCOUNTED | COUNTED | SENT | SAVED)
    assert found == {"first": usual - 2, "tool": usual - 2, "fourth": usual - 4, "recovering": len(RECOVERY)}


@pytest.mark.parametrize("step", ["reserve-file-made", "count-file-full", "reply-file-full"])
def test_temporary_files_do_not_pile_up_over_repeated_kills(project: Project, chat: ChatServer, step: str) -> None:
    chat.script = [tool_calls(("c1", "read_file", "{}"))]
    project.live(chat.url)
    ends = forked(project, *[("run", "nightly")] * 4, steps=[step] * 4)
    assert [ended.code for ended in ends] == [-signal.SIGKILL] * 4
    assert len([name for name in os.listdir(project.path().parent) if name.endswith(".tmp")]) <= 1

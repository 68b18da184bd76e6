"""The offline model: it reads first, answers from what it read, and opens no connection."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from scheduler import demo
from scheduler.conversation import Frame, build_request
from scheduler.job import Job, JobFile, Provider, Source
from scheduler.judgement import judge
from scheduler.state import Message, State, admit, new_state
from scheduler.tick import tick

TASK = "How long does the express shipping take?"


def request(
    files: list[tuple[str, int]], *names: str, number: int = 1, read: tuple[str, ...] = (), task: str = TASK
) -> dict[str, Any]:
    """A request with these readable files, tools and tool results."""
    state = new_state(task, "offline-demo")
    calls = [{"id": text, "type": "function", "function": {"name": "read_file", "arguments": "{}"}} for text in read]
    results: list[Message] = [{"role": "tool", "tool_call_id": text, "content": text} for text in read]
    state["conversation"] = [{"role": "assistant", "content": None, "tool_calls": calls}, *results] if read else []
    tools = [{"name": name, "description": "", "parameters": {}} for name in names]
    return build_request(state, number, Frame(tools=tools, files=files, max_attempts=4)).request


def called(reply: dict[str, Any]) -> tuple[str, Any] | None:
    """The name and arguments of the reply's one call."""
    calls = reply["message"].get("tool_calls")
    return (calls[0]["function"]["name"], json.loads(calls[0]["function"]["arguments"])) if calls else None


@pytest.mark.parametrize(
    ("asked", "call"),
    [
        (request([("a.md", 9), ("docs/shipping.md", 9)], "read_file"), ("read_file", {"path": "docs/shipping.md"})),
        (request([("shop notes (1 bytes).md", 9)], "read_file"), ("read_file", {"path": "shop notes (1 bytes).md"})),
        (request([], "read_reference"), ("read_reference", {})),
        (request([], "read_file"), None),
        (request([("a.md", 9)]), None),
        (request([]), None),
        (request([("a.md", 9)], "read_file", "read_reference", number=4), None),
        (request([("a.md", 9)], "read_file", read=("Express shipping takes 1 day.",)), None),
    ],
)
def test_it_reads_what_fits_the_task_once_and_only_while_it_may(asked: dict[str, Any], call: Any) -> None:
    reply = demo(asked)
    assert called(reply) == call
    assert (reply["finish_reason"], reply["billed"]) == ("tool_calls" if call else "stop", "no")
    assert bool(reply["message"]["content"]) is (call is None)


def test_its_answer_is_the_sentences_that_fit_the_task() -> None:
    text = "# Express shipping\n\n- Gift cards stay. Parcels get a number.\n- Express shipping takes 1 working day.\n"
    answer = demo(request([], read=(text,)))["message"]["content"]
    assert answer.startswith("Express shipping takes 1 working day.")
    assert "Gift cards" not in answer
    assert "#" not in answer


@pytest.mark.parametrize("read", [(), ("",), ("Nothing of the kind here.",), ("# only a heading",), ("\x00\x1b[2J",)])
def test_it_always_has_an_answer(read: tuple[str, ...]) -> None:
    for task in (TASK, "?", "[Request 1 of 4.] - x (1 bytes)", "x" * 100_000):
        state: State = admit(new_state(task, "m"), 1, point=None, started="2026-03-02T09:00:00Z")
        reply = demo(request([], read=read, task=task))
        assert judge(reply, state, 4).outcome == "answered"
        assert len(reply["message"]["content"]) < 1000


def test_a_job_over_files_is_answered_in_two_slices_without_any_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "shipping.md").write_text("Express shipping takes 1 working day. Gifts are wrapped.\n")
    provider = Provider(name="demo", base_url=None)
    source = Source(name="docs", path=tmp_path / "docs")
    job = Job(id="j", task=TASK, checkpoint=tmp_path / "cp" / "j.json", provider=provider, read=(source,))
    job_file = JobFile(
        path=tmp_path / "jobs.yaml", digest="", jobs={"j": job}, providers={"demo": provider}, refused={}
    )
    states = [next(iter(tick(job_file, {}, lambda *_: None, by_hand=True))).state for _ in range(3)]
    assert [(state["status"], state["attempts"]) for state in states if state] == [
        ("ready", 1),
        ("done", 2),
        ("done", 2),
    ]
    assert states[2] is not None
    assert str(states[2]["answer"]).startswith("Express shipping takes 1 working day.")
    assert {entry["billed"] for entry in states[2]["history"]} == {"no"}
    assert states[2]["history"][0]["evidence"][0]["file"] == "docs/shipping.md"


def test_the_same_request_has_the_same_answer() -> None:
    asked = request([("b.md", 1), ("a.md", 1)], "read_file")
    assert demo(asked) == demo(json.loads(json.dumps(asked)))

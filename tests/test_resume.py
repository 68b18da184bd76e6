"""The package's public API: one slice at a time, counted before it is asked."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import scheduler
from scheduler import MAX_STEPS, AskFailed, ResumedError, State, Tool, demo, load_state, resume_once, step
from scheduler.checkpoint import hold
from scheduler.errors import (
    CheckpointBusy,
    ModelChanged,
    PointTaken,
    RequestRefused,
    StateStale,
    TaskChanged,
)
from scheduler.ledger import NAME
from scheduler.tools import ToolFailed
from scheduler.turns import unframe

TASK, MODEL = "How long does shipping take at the demo shop?", "offline-demo"
Slice = Callable[..., tuple[State, list[dict[str, Any]]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a checkpoint will be."""
    return tmp_path / "job.json"


def own_resume_once(
    job: str, checkpoint: str | Path, ask: Any, model: str, **more: Any
) -> tuple[State, list[dict[str, Any]]]:
    """What a user of the package may write over its two halves."""
    state = load_state(checkpoint, job, model)
    events: list[dict[str, Any]] = []
    step(state, checkpoint, ask, events.append, **more)
    return state, events


both = pytest.mark.parametrize("once", [resume_once, own_resume_once])


def said(content: Any, finish: str = "stop", **more: Any) -> Callable[[Any], dict[str, Any]]:
    """An ask that is answered with this text."""
    return lambda _: {"message": {"role": "assistant", "content": content}, "finish_reason": finish, **more}


def wants(*calls: tuple[Any, Any, Any], **message: Any) -> Callable[[Any], dict[str, Any]]:
    """An ask that is answered with tool calls: id, name, arguments of each."""
    entries = [
        {"id": one, "type": "function", "function": {"name": two, "arguments": three}} for one, two, three in calls
    ]
    return lambda _: {"message": {"role": "assistant", "content": None, "tool_calls": entries, **message}}


def never(_: object) -> dict[str, Any]:
    """An ask that must not be called."""
    raise AssertionError("a request was sent")


def stored(path: Path) -> dict[str, Any]:
    """The published document."""
    return dict(json.loads(path.read_text("utf-8")))


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file of a folder with its inode, time and content, but those that SQLite makes beside the ledger."""
    files = [entry for entry in folder.iterdir() if entry.name not in (NAME + "-wal", NAME + "-shm")]
    return {entry.name: (entry.stat().st_ino, entry.stat().st_mtime_ns, entry.read_bytes()) for entry in files}


def test_the_public_names_are_these_and_no_other() -> None:
    assert set(scheduler.__all__) == {
        "MAX_STEPS",
        "AskFailed",
        "ResumedError",
        "State",
        "Tool",
        "demo",
        "load_state",
        "resume_once",
        "step",
    }
    assert set(scheduler.__all__) <= set(dir(scheduler))
    assert all(getattr(scheduler, name) is not None for name in scheduler.__all__)
    assert MAX_STEPS == 4
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = scheduler.nothing_such


@both
def test_the_demo_reads_in_its_first_slice_and_answers_in_its_second(path: Path, once: Slice) -> None:
    first, events = once(TASK, path, demo, MODEL)
    assert (first["attempts"], first["status"], first["answer"]) == (1, "ready", None)
    assert [event["event"] for event in events] == ["admitted", "tool_result", "settled"]
    second, events = once(TASK, path, demo, MODEL)
    assert (second["attempts"], second["status"]) == (2, "done")
    assert [event["event"] for event in events] == ["admitted", "settled"]
    assert "3 to 5 working days" in str(second["answer"])
    assert second["history"][0]["evidence"]
    assert stored(path) == second
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert once(TASK, path, never, MODEL) == (second, [])


@both
def test_each_time_out_is_counted_before_the_request_and_four_are_all(path: Path, once: Slice) -> None:
    calls: list[int] = []

    def ask(_: object) -> dict[str, Any]:
        calls.append(stored(path)["attempts"])
        assert load_state(path, TASK, MODEL)["attempts"] == calls[-1]
        assert stored(path)["history"][-1]["outcome"] is None
        raise TimeoutError("too slow")

    for number in range(1, 5):
        with pytest.raises(TimeoutError, match="too slow"):
            once(TASK, path, ask, MODEL)
        state = load_state(path, TASK, MODEL)
        last = state["history"][-1]
        assert (state["attempts"], last["outcome"], last["billed"]) == (number, "timeout", "maybe")
        assert state["status"] == ("exhausted" if number == 4 else "ready")
    assert calls == [1, 2, 3, 4]
    for _ in range(3):
        assert once(TASK, path, never, MODEL)[1] == []
    assert load_state(path, TASK, MODEL) == state


def test_loading_takes_no_lock_and_writes_nothing(path: Path, tmp_path: Path) -> None:
    assert load_state(tmp_path / "none" / "job.json", TASK, MODEL)["attempts"] == 0
    assert snapshot(tmp_path) == {}
    resume_once(TASK, path, demo, MODEL)
    before = snapshot(tmp_path)
    with hold(path):
        assert load_state(path, TASK, MODEL) == stored(path)
        assert load_state(str(path), TASK + " \r\n", MODEL) == stored(path)
        for task, model in ((TASK + "!", MODEL), (TASK, "other")):
            with pytest.raises(ResumedError):
                load_state(path, task, model)
    assert snapshot(tmp_path) == before


@both
def test_a_checkpoint_that_is_held_is_busy_and_nothing_is_counted(path: Path, once: Slice) -> None:
    once(TASK, path, said("part", "length"), MODEL)
    body = path.read_bytes()
    with hold(path), pytest.raises(CheckpointBusy):
        once(TASK, path, never, MODEL)
    assert path.read_bytes() == body


def test_a_slice_within_a_slice_is_busy(path: Path) -> None:
    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        with pytest.raises(CheckpointBusy):
            resume_once(TASK, path, never, MODEL)
        return said("fin")(request)

    assert resume_once(TASK, path, ask, MODEL)[0]["attempts"] == 1


def test_of_many_threads_one_asks_at_a_time(path: Path) -> None:
    inside, most, made = [0], [0], [0]
    barrier = threading.Barrier(6)

    def ask(request: object) -> dict[str, Any]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        made[0] += 1
        inside[0] -= 1
        return said("part", "length")(request)

    def work() -> None:
        barrier.wait(60)
        for _ in range(20):
            try:
                own_resume_once(TASK, path, ask, MODEL)
            except (CheckpointBusy, StateStale):
                continue

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    while load_state(path, TASK, MODEL)["status"] == "ready":
        resume_once(TASK, path, ask, MODEL)
    assert (most[0], made[0]) == (1, 4)


@pytest.mark.parametrize(
    "edit", [{"attempts": 0, "history": []}, {"conversation": []}, {"status": "done", "answer": "x"}]
)
def test_a_state_that_is_not_the_stored_one_is_stale(path: Path, edit: dict[str, Any]) -> None:
    early = load_state(path, TASK, MODEL)
    state, _ = resume_once(TASK, path, said("part", "length"), MODEL)
    body = path.read_bytes()
    for other in (early, {**state, **edit}):
        with pytest.raises(StateStale):
            step(other, path, never, lambda _: None)  # type: ignore[arg-type]
    assert path.read_bytes() == body


def test_one_state_goes_through_step_after_step(path: Path) -> None:
    state = load_state(path, TASK, MODEL)
    own = {"signature": ("a", "b"), "numbers": {1: "x"}, "reasoning_content": "because"}
    for number in (1, 2, 3):
        step(state, path, wants(("c", "read_reference", "{}"), **own), lambda _: None)
        assert state["attempts"] == number
        assert state == load_state(path, TASK, MODEL)
    step(state, path, said("fin"), lambda _: None)
    assert (state["status"], state["attempts"]) == ("done", 4)


def test_step_goes_on_with_a_new_task_while_no_attempt_was_made(path: Path) -> None:
    resume_once(TASK, path, said("fin"), MODEL)
    with hold(path) as held:
        held.load(lambda _: None)
        from scheduler.state import new_state

        held.replace(new_state(TASK, MODEL), 0, renew=True)
    state, _ = own_resume_once("another task", path, said("fin"), "m2")
    assert (state["task"], state["model"], state["attempts"]) == ("another task", "m2", 1)


@both
@pytest.mark.parametrize("final", [True, False])
def test_another_task_or_model_is_refused_on_every_started_state(path: Path, once: Slice, final: bool) -> None:
    once(TASK, path, said("fin") if final else said("part", "length"), MODEL)
    body = path.read_bytes()
    with pytest.raises(TaskChanged, match="the demo shop!"):
        once(TASK[:-1] + "!", path, never, MODEL)
    with pytest.raises(ModelChanged, match=r"offline-demo.*other"):
        once(TASK, path, never, "other")
    assert path.read_bytes() == body
    assert once(TASK.replace("\n", "\r\n") + "\n", path, said("fin"), MODEL)[0]["status"] == "done"


def test_the_first_difference_is_named_whatever_the_line_ends(path: Path) -> None:
    lines = ["first line of some length", "second line", "third line", "fourth line", "cost: 5 EUR"]
    resume_once("\r\n".join(lines), path, said("part", "length"), MODEL)
    with pytest.raises(TaskChanged) as changed:
        resume_once("\n".join([*lines[:-1], "cost: 7 EUR"]), path, never, MODEL)
    assert "line 5, column 7" in str(changed.value)
    assert "5 EUR" in str(changed.value)
    assert "7 EUR" in str(changed.value)


# ---- tools


def tool(name: str, call: Callable[[Mapping[str, Any]], Any], **properties: Any) -> Tool:
    """A tool with these properties."""
    return Tool(name, "For tests.", {"type": "object", "properties": properties}, call)


@both
def test_without_the_argument_the_model_sees_the_reference_and_with_none_it_sees_nothing(
    path: Path, tmp_path: Path, once: Slice
) -> None:
    seen: list[Mapping[str, Any]] = []

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(request)
        return said("fin")(request)

    once(TASK, path, ask, MODEL)
    once(TASK, tmp_path / "none.json", ask, MODEL, tools=())
    once(TASK, tmp_path / "own.json", ask, MODEL, tools=[tool("mine", lambda _: "x")], max_tokens=64)
    assert [[entry["function"]["name"] for entry in request.get("tools", [])] for request in seen] == [
        ["read_reference"],
        [],
        ["mine"],
    ]
    assert set(seen[1]) == {"model", "messages"}
    assert seen[2]["max_tokens"] == 64


def test_every_call_of_a_reply_is_answered_in_its_order_in_the_same_slice(path: Path) -> None:
    def fail(_: object) -> str:
        raise RuntimeError("secret words /etc/passwd")

    def refuse(_: object) -> str:
        raise ToolFailed("not that one")

    tools = [
        tool("echo", lambda arguments: f"echo {arguments['n']}", n={"type": "integer"}),
        tool("fail", fail),
        tool("refuse", refuse),
        tool("plain", lambda _: "plain \ud800"),
    ]
    calls = [
        ("a", "echo", '{"n": 1}'),
        ("b", "delete_everything", "{}"),
        ("a", "fail", "{}"),
        (None, "echo", '{"n": 2}'),
        ("e", "refuse", ""),
        ("f", "echo ", '{"n": 3}'),
        ("g", "__class__", "{}"),
        ("h", "plain", " "),
        ("i", "plain", None),
        ("j", "plain", {}),
        ("k", "plain", "null"),
        ("l", "plain", "[]"),
        ("m", "plain", "{not json"),
        ("n", "plain", "[" * 100_000),
    ]
    state, events = resume_once(TASK, path, wants(*calls), MODEL, tools=tools)
    assert (state["status"], state["attempts"], state["history"][0]["outcome"]) == ("ready", 1, "tool_calls")
    asked, *results = state["conversation"]
    assert [one["id"] for one in asked["tool_calls"]] == [result["tool_call_id"] for result in results]
    assert len({result["tool_call_id"] for result in results}) == len(calls) == len(results)
    texts = [result["content"] for result in results]
    starts = ["echo 1", "Error:", "Error:", "echo 2", *["Error:"] * 3, "plain ", *["[The s"] * 2, *["Error:"] * 4]
    assert [text[:6] for text in texts] == starts
    for index in (1, 5, 6):
        assert all(name in texts[index] for name in ("echo", "fail", "refuse", "plain"))
    assert "secret words" not in json.dumps(state)
    assert "not that one" in texts[4]
    refused = [event for event in events if event["event"] == "tool_result" and not event["ok"]]
    assert len(refused) == 9
    sent: list[Any] = []
    resume_once(TASK, path, lambda request: sent.append(request) or said("fin")(request), MODEL, tools=tools)
    wanted, *shown = sent[0]["messages"][2:]
    assert [unframe(message["content"]) for message in shown] == texts
    assert [one["function"]["name"] for one in wanted["tool_calls"]][4:7] == ["refuse", "echo_", "__class__"]


def test_a_tool_call_in_the_last_attempt_runs_no_tool(path: Path) -> None:
    def forbidden(_: object) -> str:
        raise AssertionError("a tool was run")

    ask = wants(("a", "mine", "{}"))
    state, events = resume_once(TASK, path, ask, MODEL, tools=[tool("mine", forbidden)], max_attempts=1)
    assert (state["status"], state["attempts"], state["conversation"]) == ("exhausted", 1, [])
    assert [event["event"] for event in events] == ["admitted", "settled"]


def test_the_results_of_one_reply_are_capped_together(path: Path) -> None:
    ask = wants(*((f"c{number}", "big", json.dumps({"n": number})) for number in range(12)))
    big = tool("big", lambda _: "x" * 60_000, n={"type": "integer"})
    state, events = resume_once(TASK, path, ask, MODEL, tools=[big])
    texts = [message["content"] for message in state["conversation"][1:]]
    assert sum(map(len, texts)) < 300_000
    assert [text == "x" * 60_000 for text in texts] == [True] * 4 + [False] * 8
    assert all("not shown" in text for text in texts[4:])
    assert [event["ok"] for event in events if event["event"] == "tool_result"] == [True] * 4 + [False] * 8


# ---- what ask may raise or return


class Own(BaseException):
    """Not an Exception."""


@both
@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (TimeoutError(), "timeout", "TimeoutError"),
        (ConnectionResetError(104, "reset"), "error", "ConnectionResetError: [Errno 104] reset"),
        (ValueError("bad"), "error", "ValueError: bad"),
        (FileNotFoundError("no \udcff"), "error", "FileNotFoundError: no \ufffd"),
        (TimeoutError("\udcff"), "timeout", "TimeoutError: \ufffd"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (SystemExit(3), "interrupted", "SystemExit: 3"),
        (Own("x"), "interrupted", "Own: x"),
        (AskFailed(outcome="rate_limited", reason="429: slow", billed="no"), "rate_limited", "429: slow"),
        (AskFailed(outcome="http_error", reason="401", rests="provider"), "http_error", "401"),  # rests live jobs only
        (AskFailed(outcome="http_error", reason="a\nb\x1b[2Jc"), "http_error", "a bc"),
        (AskFailed(outcome="no such", reason="odd"), "error", "AskFailed: odd"),
    ],
    ids=lambda value: str(value)[:20].encode("ascii", "replace").decode() if not isinstance(value, str) else None,
)
def test_what_ask_raises_is_recorded_and_raised_again(
    path: Path, once: Slice, error: BaseException, outcome: str, reason: str
) -> None:
    def ask(_: object) -> dict[str, Any]:
        raise error

    with pytest.raises(type(error)) as raised:
        once(TASK, path, ask, MODEL)
    assert raised.value is error
    last = stored(path)["history"][-1]
    assert (last["outcome"], last["reason"]) == (outcome, reason)
    assert last["finished"] is not None
    assert once(TASK, path, said("fin"), MODEL)[0]["attempts"] == 2


def test_a_long_reason_is_cut(path: Path) -> None:
    def ask(_: object) -> dict[str, Any]:
        raise ValueError("x" * 100_000)

    with pytest.raises(ValueError, match="xxx"):
        resume_once(TASK, path, ask, MODEL)
    assert len(stored(path)["history"][0]["reason"]) <= 300


@both
@pytest.mark.parametrize(
    "reply",
    [
        None,
        "fin",
        [],
        {},
        {"message": None},
        {"message": {"content": b"fin"}},
        {"message": {"content": [{"type": "text", "text": "fin"}]}},
        {"message": {"content": "é" * 4 * 1024 * 1024 * 3}},
    ],
    ids=["none", "text", "list", "empty", "null", "bytes", "parts", "huge"],
)
def test_a_reply_that_no_document_can_hold_spends_its_attempt(path: Path, once: Slice, reply: Any) -> None:
    state, events = once(TASK, path, lambda _: reply, MODEL)
    last = state["history"][-1]
    assert (state["attempts"], state["status"], last["outcome"]) == (1, "ready", "malformed_reply")
    assert last["reason"]
    assert state["conversation"] == []
    assert stored(path) == state
    assert events[-1]["event"] == "settled"
    assert once(TASK, path, said("fin"), MODEL)[0]["answer"] == "fin"


@pytest.mark.parametrize("name", ["\ud800", None, 4, ("a",)])
def test_a_field_that_no_document_can_hold_is_left_out(path: Path, name: Any) -> None:
    reply = wants(("c", "read_reference", "{}"))(None)
    reply["message"] = {name: 1, "reasoning": "why", **reply["message"]}
    reply["message"]["tool_calls"][0] |= {name: 1, "signature": "s", "index": 0}
    state, _ = resume_once(TASK, path, lambda _: reply, MODEL)
    assert set(state["conversation"][0]) == {"role", "content", "reasoning", "tool_calls"}
    assert set(state["conversation"][0]["tool_calls"][0]) == {"id", "type", "function", "signature"}
    assert stored(path) == state


@pytest.mark.parametrize(
    "arguments", [{1, 2}, object(), float("nan"), {"a": b"x"}], ids=["set", "object", "NaN", "bytes"]
)
def test_arguments_that_are_no_json_are_an_error_result_for_the_model(path: Path, arguments: Any) -> None:
    state, _ = resume_once(TASK, path, wants(("c", "read_reference", arguments)), MODEL)
    assert state["history"][0]["outcome"] == "tool_calls"
    assert state["conversation"][1]["content"].startswith("Error:")
    assert stored(path) == state


def test_what_a_reply_says_of_itself_is_kept(path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    ask = said("fin", "eos", usage=usage, id="r-1")
    state, events = resume_once(TASK, path, ask, MODEL, point=1_772_442_000)
    [last] = state["history"]
    assert (last["finish_reason"], last["request_id"], last["usage"], last["billed"]) == ("eos", "r-1", usage, "yes")
    assert last["point"] == "2026-03-02T09:00:00Z"
    assert events == [
        {"event": "admitted", "attempt": 1, "of": 4, "point": 1_772_442_000, "cut": 0},
        {
            "event": "settled",
            "attempt": 1,
            "of": 4,
            "outcome": "answered",
            "reason": None,
            "status": "done",
            "answer": "fin",
        },
    ]


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": "12"}, {"prompt_tokens": 1e400}]
)
def test_odd_usage_is_unknown_and_the_answer_stands(path: Path, usage: Any) -> None:
    state, _ = resume_once(TASK, path, said("fin", usage=usage, id=["odd"]), MODEL)
    assert (state["answer"], state["history"][0]["usage"], state["history"][0]["request_id"]) == ("fin", None, None)
    assert state["history"][0]["billed"] == "maybe"


def test_a_cut_answer_is_continued_and_joined(path: Path) -> None:
    requests: list[Mapping[str, Any]] = []
    for text, finish in (("The answer ", "length"), ("is ", "length"), ("4", "stop")):

        def ask(request: Mapping[str, Any], text: str = text, finish: str = finish) -> dict[str, Any]:
            requests.append(request)
            return said(text, finish)(request)

        state, _ = resume_once(TASK, path, ask, MODEL)
    assert (state["answer"], state["attempts"]) == ("The answer is 4", 3)
    assert [message["role"] for message in requests[2]["messages"]] == ["system", "user"] + ["assistant", "user"] * 2
    assert [f"[Request {n} of 4." in request["messages"][1]["content"] for n, request in enumerate(requests, 1)] == [
        True
    ] * 3


def test_an_ask_that_changes_its_request_changes_nothing_that_is_stored(path: Path) -> None:
    first, _ = resume_once(TASK, path, wants(("c", "read_reference", "{}"), reasoning_content="because"), MODEL)
    kept = json.loads(json.dumps(first["conversation"]))

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        for message in request["messages"]:
            message["cache_control"] = {"type": "ephemeral"}
            message["content"] = "changed"
        return said("fin")(request)

    state, _ = resume_once(TASK, path, ask, MODEL)
    assert state["history"][1]["outcome"] == "answered"
    assert state["conversation"][:-1] == kept


# ---- limits


@both
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_fewer_attempts_can_be_set_and_the_last_one_is_told(path: Path, once: Slice, limit: int) -> None:
    seen: list[str] = []

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(request["messages"][1]["content"])
        assert request["tool_choice"] == ("none" if len(seen) == limit else "auto")
        return said("part", "length")(request)

    for _ in range(limit):
        state, _ = once(TASK, path, ask, MODEL, max_attempts=limit)
    assert (state["status"], state["attempts"]) == ("exhausted", limit)
    assert [("last" in text, f" of {limit}." in text) for text in seen] == [(False, True)] * (limit - 1) + [
        (True, True)
    ]
    assert once(TASK, path, never, MODEL, max_attempts=4) == (state, [])


@both
def test_a_limit_lowered_later_ends_it_without_a_request(path: Path, once: Slice) -> None:
    for _ in range(2):
        once(TASK, path, said("part", "length"), MODEL)
    state, events = once(TASK, path, never, MODEL, max_attempts=2)
    assert (state["status"], state["attempts"], events) == ("exhausted", 2, [])
    assert stored(path) == state


@both
@pytest.mark.parametrize("limit", [0, 5, -1])
def test_the_ceiling_cannot_be_raised(path: Path, once: Slice, limit: int) -> None:
    with pytest.raises(ValueError, match="1 to 4"):
        once(TASK, path, never, MODEL, max_attempts=limit)


@both
def test_a_point_has_one_slice(path: Path, once: Slice) -> None:
    once(TASK, path, said("part", "length"), MODEL, point=1000)
    body = path.read_bytes()
    with pytest.raises(PointTaken, match="1970-01-01T00:16:40Z"):
        once(TASK, path, never, MODEL, point=1000)
    assert path.read_bytes() == body
    for point in (1001, None, None):
        state, _ = once(TASK, path, said("part", "length"), MODEL, point=point)
    assert [entry["point"] for entry in state["history"]] == [
        "1970-01-01T00:16:40Z",
        "1970-01-01T00:16:41Z",
        None,
        None,
    ]


@both
@pytest.mark.parametrize(
    ("task", "parameters"),
    [("lone \ud800", {}), (TASK, {"a": {1, 2}}), (TASK, {"a": float("nan")}), (TASK, {"a": "\udc00"})],
    ids=["surrogate in the task", "set", "NaN", "surrogate"],
)
def test_a_request_that_is_no_json_is_refused_and_nothing_is_counted(
    path: Path, once: Slice, task: str, parameters: dict[str, Any]
) -> None:
    with pytest.raises(RequestRefused):
        once(task, path, never, MODEL, tools=[Tool("mine", "x", parameters, lambda _: "x")])
    assert not path.exists()
    assert load_state(path, TASK, MODEL)["attempts"] == 0


# ---- emit


@pytest.mark.parametrize("fails_at", ["admitted", "tool_result", "settled"])
def test_an_emit_that_fails_loses_neither_the_reply_nor_the_outcome(path: Path, fails_at: str) -> None:
    def emit(event: dict[str, Any]) -> None:
        if event["event"] == fails_at:
            raise BrokenPipeError(32, "Broken pipe")

    state = load_state(path, TASK, MODEL)
    with pytest.raises(BrokenPipeError):
        step(state, path, wants(("c", "read_reference", "{}")), emit)
    last = stored(path)["history"][-1]
    assert last["outcome"] == ("error" if fails_at == "admitted" else "tool_calls")
    assert len(stored(path)["conversation"]) == (0 if fails_at == "admitted" else 2)
    assert state == stored(path)


def test_relative_paths_are_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    resume_once(TASK, "sub/job.json", demo, MODEL)
    assert (tmp_path / "sub" / "job.json").exists()
    assert os.getcwd() == str(tmp_path)

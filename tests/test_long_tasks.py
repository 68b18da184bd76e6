"""Long tasks, slice by slice: files are read, the conversation outgrows the context, and the answer still holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from scheduler.attempt import Order, accept, run_slice
from scheduler.calls import AGAIN, TWICE, answer_calls, result_bytes
from scheduler.checkpoint import GROWTH, hold
from scheduler.conversation import SYSTEM, encode
from scheduler.document import MAX_BYTES
from scheduler.doubts import find_doubts
from scheduler.errors import AskFailed, RequestRefused
from scheduler.job import Source
from scheduler.judgement import Call
from scheduler.state import State, new_state
from scheduler.tools import Tool, file_tools
from scheduler.transcript import show_text
from scheduler.turns import unframe
from tests.test_turns import faults

TASK = "Which reference number has the order of {customer}, and in which file does it stand?"
CONTEXT = 9_000

Ask = Callable[[Mapping[str, Any]], dict[str, Any]]


def wants(*calls: tuple[str, Mapping[str, Any]], **message: Any) -> dict[str, Any]:
    asked = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for number, (name, arguments) in enumerate(calls)
    ]
    whole = {"role": "assistant", "content": None, "tool_calls": asked, **message}
    return {"message": whole, "finish_reason": "tool_calls"}


def says(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


def read(*names: str) -> dict[str, Any]:
    return wants(*(("read_file", {"path": name}) for name in names))


def slice_of(path: Path, ask: Any, tools: tuple[Tool, ...] = (), **options: Any) -> State:
    order = Order(**{"task": "the task", "model": "m1", "tools": tools, **options})
    with hold(path) as held:
        state = accept(held.load(lambda _: None), order)
        run_slice(held, state, order, ask, lambda _: None)
    return state


def folder_of(tmp_path: Path, files: Mapping[str, str]) -> tuple[Tool, ...]:
    (tmp_path / "docs").mkdir()
    for name, text in files.items():
        (tmp_path / "docs" / name).write_text(text, "utf-8")
    return file_tools([Source(name="docs", path=tmp_path / "docs")], [], result_bytes(CONTEXT))


def noise(seed: int) -> str:
    lines = (
        f"On {n % 28 + 1} May the parcel PX-{seed}{n:03} was moved, as every day, from one hall to another."
        for n in range(34)
    )
    return "\n".join(lines)


@pytest.mark.parametrize("number", range(10))
def test_after_compaction_the_answer_still_rests_on_the_right_reference(number: int, tmp_path: Path) -> None:
    names = [f"f{index}.md" for index in range(8)]
    files = {name: noise(index) for index, name in enumerate(names)}
    right = names[number % 2]
    files[right] += f"\nThe order of customer C-{number} has the reference REF-{number}7Q.\n"
    requests: list[dict[str, Any]] = []

    def model(request: Mapping[str, Any]) -> dict[str, Any]:
        """Knows its request alone: reads two files a time, at last looks which shown result holds a reference."""
        requests.append(json.loads(encode(request)))
        if len(requests) < 4:
            first = (len(requests) - 1) * 2
            return read(*(f"docs/{name}" for name in names[first : first + 3]))
        shown = [unframe(message["content"]) for message in request["messages"] if message["role"] == "tool"]
        found = [(re.search(r"f\d\.md", text), re.search(r"REF-\w+", text)) for text in shown]
        file, reference = next((file, name) for file, name in found if file and name)
        return says(f"{reference[0]}, in docs/{file[0]}")

    tools = folder_of(tmp_path, files)
    order = {"task": TASK.format(customer=f"C-{number}"), "context_tokens": CONTEXT}
    for _ in range(4):
        state = slice_of(tmp_path / "job.json", model, tools, **order)
    assert (state["status"], state["answer"]) == ("done", f"REF-{number}7Q, in docs/{right}")
    assert all(len(encode(request)) <= CONTEXT * 3 for request in requests)
    assert all(faults(request["messages"][2:]) == [] for request in requests)
    assert requests[3]["messages"][0] == {"role": "system", "content": SYSTEM}
    cut = state["history"][3]["request"]["cut"]
    assert any(right in phrase for phrase in cut)
    assert right in {item["file"].removeprefix("docs/") for entry in state["history"] for item in entry["evidence"]}
    assert find_doubts(state, reads=True) == []
    page = show_text(state, 4, "/x", rehearsal=False, edited=False, reads=True)
    assert f"docs/{right}: lines 1-35" in page
    assert all(f"cut from its request: {phrase}" in page for phrase in cut)
    assert files[right].rstrip() in "\n".join(m["content"] for m in state["conversation"] if m["role"] == "tool")


def test_a_result_that_was_cut_can_be_read_again_from_what_is_stored(tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {"a.md": "first version ORD-1", "b.md": "b"})
    path = tmp_path / "job.json"
    state = slice_of(path, lambda _: read("docs/a.md", "docs/a.md", "docs/none.md"), tools)
    first = state["conversation"][1]["content"]
    assert "first version" in first
    assert state["conversation"][2]["content"] == TWICE
    (tmp_path / "docs" / "a.md").write_text("second version")
    (tmp_path / "docs" / "none.md").write_text("it is there now")
    again = {"path": "docs/a.md", "limit": None}
    calls = [("read_file", again), ("read_file", {"path": "docs/none.md"}), ("read_file", {"path": "docs/b.md"})]
    state = slice_of(path, lambda _: wants(*calls), tools)
    *_, repeated, appeared, _ = (message["content"] for message in state["conversation"])
    assert "it is there now" in appeared  # an error is no result: it is tried again
    assert "second version" in repeated  # other arguments are another call
    state = slice_of(path, lambda _: read("docs/a.md", "docs/a.md"), tools)
    assert [message["content"] for message in state["conversation"][-2:]] == [f"{AGAIN}\n{first}", TWICE]
    assert state["history"][2]["evidence"] == []
    state = slice_of(path, lambda _: says("ORD-1, ORD-2"), tools)
    assert find_doubts(state, reads=True) == ["in nothing that was read, nor in the task: ORD-2"]


def test_results_of_two_replies_fit_into_the_context_beside_the_rest(tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {f"f{n}.md": f"{n} {noise(n) * 20}" for n in range(12)})
    path = tmp_path / "job.json"
    for start in (0, 4, 8):
        names = [f"docs/f{n}.md" for n in range(start, start + 4)]
        state = slice_of(path, lambda _, names=names: read(*names), tools, context_tokens=CONTEXT)
        shown = [message["content"] for message in state["conversation"][-4:]]
        assert sum(len(text.encode()) for text in shown) < CONTEXT * 3 // 2
        assert [text.startswith("Error: not shown") for text in shown] == [False, False, False, True]
        read_lines = [item["last"] for item in state["history"][-1]["evidence"]]
        assert all(f"lines 1-{last} of" in text for text, last in zip(shown, read_lines, strict=False))
    assert state["history"][2]["request"]["tokens"] <= CONTEXT


@pytest.mark.parametrize("line", ['{"a": "b\\\\c", "d": ""}', '\tkey:\t"value"', "plain words", "\U0001f600\u00e9"])
@pytest.mark.parametrize("task", ["short", "a long task " * 400])
def test_whatever_is_read_the_next_request_is_not_too_large(line: str, task: str, tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {f"f{n}.md": f"{n}\n" + f"{line}\n" * 4_000 for n in range(12)})
    path = tmp_path / "job.json"
    for start in (0, 4, 8):
        names = [f"docs/f{n}.md" for n in range(start, start + 4)]
        state = slice_of(path, lambda _, names=names: read(*names), tools, task=task, context_tokens=CONTEXT)
    shown = sum(m["role"] == "tool" and not m["content"].startswith("Error") for m in state["conversation"])
    state = slice_of(path, lambda _: says("fin"), tools, task=task, context_tokens=CONTEXT)
    assert (state["status"], state["attempts"]) == ("done", 4)
    assert shown >= 3
    assert all(entry["request"]["tokens"] <= CONTEXT for entry in state["history"])


@pytest.mark.parametrize("context", [2_048, 4_096, 8_192])
def test_however_many_calls_a_reply_makes_the_next_request_fits(context: int, tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {f"f{n}.md": f"{n} short text" for n in range(96)})
    path = tmp_path / "job.json"
    for start in (0, 32, 64):
        names = [f"docs/f{n}.md" for n in range(start, start + 32)]
        state = slice_of(path, lambda _, names=names: read(*names), tools, context_tokens=context)
        last = max(n for n, message in enumerate(state["conversation"]) if message["role"] == "assistant")
        calls, results = state["conversation"][last]["tool_calls"], state["conversation"][last + 1 :]
        assert [call["id"] for call in calls] == [result["tool_call_id"] for result in results]
        missing = 32 - len(calls)
        assert ("more calls of this reply are left out" in results[-1]["content"]) is bool(missing)
        assert f"[{missing} more" in results[-1]["content"] or not missing
    assert slice_of(path, lambda _: says("fin"), tools, context_tokens=context)["status"] == "done"


def test_arguments_that_are_too_long_are_not_kept(tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {"a.md": "x"})
    long = wants(("read_file", {"path": "docs/a.md" + "x" * 60_000}))
    state = slice_of(tmp_path / "job.json", lambda _: long, tools, context_tokens=4_096)
    assert state["conversation"][0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert "longer than 8192 characters" in state["conversation"][1]["content"]
    assert slice_of(tmp_path / "job.json", lambda _: says("fin"), tools, context_tokens=4_096)["status"] == "done"


def test_a_call_that_takes_the_whole_room_is_made_bare(tmp_path: Path) -> None:
    huge = "s" * 7_900
    for number, call in enumerate(({"id": huge}, {"signature": huge}, {"function": {"name": "x", "arguments": ""}})):
        asked = {"id": "c", "type": "function", "function": {"name": "x", "arguments": json.dumps({"a": huge})}} | call
        reply = {"message": {"role": "assistant", "content": None, "tool_calls": [asked]}}
        path = tmp_path / f"{number}.json"
        for _ in range(3):
            state = slice_of(path, lambda _, reply=reply: reply, context_tokens=4_096)
        assert len(json.dumps(state["conversation"])) < 4_000
        assert slice_of(path, lambda _: says("fin"), context_tokens=4_096)["status"] == "done"


def test_notes_of_ours_are_never_taken_for_what_was_read(tmp_path: Path) -> None:
    odd = Tool("odd", "Odd.", {"type": "object", "properties": {}}, lambda _: "Error: is how this text begins")
    path = tmp_path / "job.json"
    slice_of(path, lambda _: wants(("odd", {}), ("odd", {})), (odd,))
    state = slice_of(path, lambda _: wants(("odd", {})), (odd,))
    assert state["conversation"][-1]["content"] == "Error: is how this text begins"
    tools = folder_of(tmp_path, {f"f{n}.md": f"{n} short" for n in range(32)})
    path = tmp_path / "other.json"
    state = slice_of(path, lambda _: read(*(f"docs/f{n}.md" for n in range(32))), tools, context_tokens=2_048)
    [*_, last] = state["conversation"]
    assert "more calls of this reply are left out" in last["content"]
    number = len(state["conversation"]) - 2
    state = slice_of(path, lambda _: read(f"docs/f{number}.md"), tools, context_tokens=2_048)
    assert "left out" not in state["conversation"][-1]["content"]


def test_own_fields_of_a_call_stay_where_its_arguments_can_go(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": json.dumps({"a": "s" * 6_000})}}
    reply = {"message": {"role": "assistant", "content": None, "tool_calls": [call | {"signature": "s" * 600}]}}
    state = slice_of(tmp_path / "job.json", lambda _: reply, context_tokens=4_096)
    [kept] = state["conversation"][0]["tool_calls"]
    assert (len(kept["signature"]), kept["function"]["arguments"]) == (600, "{}")


def test_what_an_earlier_allowance_read_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "job.json").touch()
    tools = folder_of(tmp_path, {"a.md": "the price is 9.90 EUR"})
    first = slice_of(tmp_path / "one.json", lambda _: read("docs/a.md"), tools)
    (tmp_path / "docs" / "a.md").write_text("the price is 12.50 EUR")
    calls = [Call("c", "read_file", '{"path": "docs/a.md"}')]
    message = {"role": "assistant", "content": None, "tool_calls": first["conversation"][0]["tool_calls"]}
    [_, result], evidence = answer_calls(message, calls, tools, first, 10_000, lambda _: None)
    assert result["content"].startswith(AGAIN)
    renewed = new_state("the task", "m1") | {"conversation": first["conversation"]}
    [_, result], evidence = answer_calls(message, calls, tools, renewed, 10_000, lambda _: None)
    assert "12.50 EUR" in result["content"]
    assert evidence == [{"file": "docs/a.md", "first": 1, "last": 1}]


def test_a_document_without_room_for_a_reply_is_refused_before_anything_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    with pytest.raises(TimeoutError):
        slice_of(path, raising(TimeoutError()))
    with hold(path) as held:
        state = held.load(lambda _: None)
        assert state is not None
        full = "x" * (MAX_BYTES - GROWTH)
        turns = [{"role": "user", "content": text} for text in (full, "b", "c")]
        held.replace(state | {"conversation": turns}, 1_772_442_000)
    with pytest.raises(RequestRefused, match="the most that leave room for a reply"):
        slice_of(path, lambda _: says("fin"), context_tokens=10_000)
    assert json.loads(path.read_bytes())["attempts"] == 1


def raising(error: Exception) -> Ask:
    def ask(_: object) -> dict[str, Any]:
        raise error

    return ask


def test_a_context_that_is_too_small_blocks_before_anything_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    for _ in range(2):
        with pytest.raises(RequestRefused, match="context_tokens"):
            slice_of(path, lambda _: says("fin"), task="x " * 9_000, context_tokens=2_000)
    assert not path.exists()
    state = slice_of(path, lambda _: says("fin"), task="x " * 9_000, context_tokens=8_000)
    assert (state["status"], state["attempts"]) == ("done", 1)


def test_a_request_that_was_refused_as_too_long_is_cut_or_blocked_and_never_repeated(tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {f"f{n}.md": noise(n) for n in range(9)})
    path = tmp_path / "job.json"
    for name in ("docs/f0.md", "docs/f1.md"):
        slice_of(path, lambda _, name=name: read(name), tools)

    with pytest.raises(AskFailed):
        slice_of(path, raising(AskFailed(outcome="context_too_long", reason="400: too long", billed="no")), tools)
    before = path.read_bytes()
    with pytest.raises(RequestRefused, match="refused a request of"):
        slice_of(path, lambda _: says("fin"), tools)
    assert path.read_bytes() == before


def test_what_an_order_says_reaches_the_request(tmp_path: Path) -> None:
    sent: list[Mapping[str, Any]] = []
    order = {"files": [("docs/a.md", 7)], "unlisted": 3, "options": {"seed": 5}, "max_attempts": 2}

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        sent.append(request)
        return read("docs/a.md")

    tools = folder_of(tmp_path, {"a.md": "x"})
    for _ in range(2):
        slice_of(tmp_path / "job.json", ask, tools, last_attempt="omit", **order)
    for words in ("[Request 1 of 2.]", "- docs/a.md (7 bytes)", "at least 3;"):
        assert words in sent[0]["messages"][1]["content"]
    assert [request["seed"] for request in sent] == [5, 5]
    assert [tool["function"] for tool in sent[0]["tools"]] == [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools
    ]
    assert "tools" not in sent[1]
    slice_of(tmp_path / "whole.json", ask, tools, files=[("docs/a.md", 7)])
    assert sent[2]["messages"][1]["content"].endswith("- docs/a.md (7 bytes)")


def test_an_idempotent_order_names_each_attempt_and_nothing_of_it_is_in_the_body(tmp_path: Path) -> None:
    keys: list[str] = []

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        keys.append(request["idempotency_key"])
        assert "idempotency_key" not in json.loads(encode(request))
        return read("docs/a.md")

    (tmp_path / "other").mkdir()
    long = "é" * 100
    for folder, name in (
        (tmp_path, "näme.json"),
        (tmp_path, "näme.json"),
        (tmp_path / "other", "näme.json"),
        (tmp_path, long),
    ):
        slice_of(folder / name, ask, idempotent=True)
    assert [key.rpartition("-")[0] for key in keys] == [
        "n%C3%A4me.json-1-1",
        "n%C3%A4me.json-1-2",
        "n%C3%A4me.json-1-1",
        f"{'%C3%A9' * 16}%C3%-1-1",
    ]
    assert len(set(keys)) == 4
    assert all(key.isascii() and key.isprintable() and len(key) <= 200 for key in keys)
    plain: list[Mapping[str, Any]] = []
    slice_of(tmp_path / "plain.json", lambda request: plain.append(request) or says("fin"))
    assert "idempotency_key" not in plain[0]


def test_provider_fields_are_kept_or_dropped_in_the_next_request(tmp_path: Path) -> None:
    tools = folder_of(tmp_path, {"a.md": "x"})
    call = ("read_file", {"path": "docs/a.md"})
    slice_of(tmp_path / "job.json", lambda _: wants(call, reasoning_content="step é\n"), tools)
    sent: list[dict[str, Any]] = []

    def fail(request: Mapping[str, Any]) -> dict[str, Any]:
        sent.append(json.loads(encode(request)))
        raise AskFailed(outcome="http_error", reason="422", billed="no")

    for replay in ("keep", "drop"):
        with pytest.raises(AskFailed):
            slice_of(tmp_path / "job.json", fail, tools, replay_fields=replay)
    assert sent[0]["messages"][2]["reasoning_content"] == "step é\n"
    assert "reasoning_content" not in sent[1]["messages"][2]
    stored = json.loads((tmp_path / "job.json").read_text("utf-8"))
    assert stored["conversation"][0]["reasoning_content"] == "step é\n"

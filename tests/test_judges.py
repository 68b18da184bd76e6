"""The judges of what is sent: that they catch what is broken, and what an outside one says of the program."""

from __future__ import annotations

import copy
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scheduler.conversation import Frame, build_request, encode
from scheduler.state import new_state
from scheduler.tools import reference_tool
from tests.judge import faults, structure_faults, type_faults
from tests.real import Proxy, counting_proxy
from tests.support import Project, chat_server, wait_until

Body = dict[str, Any]
Break = Callable[[Body], object]


def call(call_id: str = "c1", name: str = "read_file", arguments: str = '{"path": "log.txt"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "one line"}


def sound() -> Body:
    """A body with all that a conversation can hold, and a provider's own fields on a turn."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Work."},
        {"role": "user", "content": "Summarise the log."},
        {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2")], "reasoning_content": "first"},
        result("c2"),
        result("c1"),
        {"role": "assistant", "content": "The log says", "reasoning_details": [{"type": "text"}]},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "", "tool_calls": [call("c1") | {"extra_content": {"signature": "x"}}]},
        result("c1"),
    ]
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [{"type": "function", "function": {"name": "read_file", "description": "Read.", "parameters": schema}}]
    return {
        "model": "m1",
        "messages": messages,
        "tools": tools,
        "tool_choice": "auto",
        "max_tokens": 64,
        "temperature": 0,
        "stream": False,
    }


def change(index: int, **fields: Any) -> Break:
    return lambda body: body["messages"][index].update(fields)


def drop(index: int, field: str | None = None) -> Break:
    return lambda body: body["messages"].pop(index) if field is None else body["messages"][index].pop(field)


def insert(index: int, **message: Any) -> Break:
    return lambda body: body["messages"].insert(index, message)


def put(**fields: Any) -> Break:
    return lambda body: body.update(fields)


def calls(*wanted: dict[str, Any]) -> Break:
    return change(7, tool_calls=list(wanted))


def broken(by: Break) -> Body:
    body = copy.deepcopy(sound())
    by(body)
    return body


STRUCTURE = {
    "no system message": (drop(0), "the first two messages are ['user', 'assistant'], not the system's"),
    "the task is not second": (drop(1), "the first two messages are ['system', 'assistant'], not the system's"),
    "a blank task": (change(1, content=" \n"), "message 1 (user): its content is blank"),
    "a second system message": (insert(6, role="system", content="Obey."), "message 6: the role 'system' has no place"),
    "a developer message": (insert(9, role="developer", content="Obey."), "message 9: the role 'developer' has no"),
    "a call without its result": (drop(3), "message 2: the calls ['c1', 'c2'] are followed by the results ['c1']"),
    "no result at the end": (drop(8), "message 7: the calls ['c1'] are followed by the results []"),
    "two results of one call": (insert(9, **result("c1")), "message 7: the calls ['c1'] are followed by the results"),
    "a result under another id": (change(8, tool_call_id="c9"), "message 7: the calls ['c1'] are followed by the"),
    "a result without an id": (drop(8, "tool_call_id"), "message 7: the calls ['c1'] are followed by the results"),
    "a result of no call": (insert(7, **result("c1")), "message 7: a tool's result that no call right before it"),
    "a blank id": (calls(call("")), "message 7: the ids [''] are not all texts"),
    "no id": (calls({"type": "function", "function": call()["function"]}), "message 7: the ids [None] are not all"),
    "one id twice": (calls(call(), call()), "message 7: the ids ['c1', 'c1'] are not unique"),
    "arguments that are cut": (calls(call(arguments='{"path": ')), "message 7: the arguments of call 'c1' are no text"),
    "arguments of another kind": (calls(call(arguments="[1]")), "message 7: the arguments of call 'c1' are no text"),
    "arguments as an object": (calls(call(arguments={})), "message 7: the arguments of call 'c1' are no text"),  # type: ignore[arg-type]
    "an empty list of calls": (
        lambda body: calls()(body) or drop(8)(body),
        "message 7: tool_calls is no list of calls",
    ),
    "a blank turn": (change(5, content=" "), "message 5: the assistant says nothing and calls nothing"),
    "a turn without content": (change(5, content=None), "message 5: the assistant says nothing and calls nothing"),
    "content in parts": (change(6, content=[{"type": "text", "text": "x"}]), "message 6 (user): its content is list"),
    "a result that is no text": (change(8, content=None), "message 8 (tool): its content is NoneType, not text"),
    "a message without a role": (drop(6, "role"), "message 6 is no object with a role"),
    "no messages": (put(messages={}), "the body is no object with a list of messages"),
    "a stream": (put(stream=True), "stream is True, not false"),
    "tools without any": (put(tools=[]), "tools is there and empty"),
    "a choice without tools": (lambda body: body.pop("tools"), "tool_choice is there without tools"),
}
TYPES = {
    "an unknown field": (put(top_k=4), "top_k: unknown to the API"),
    "a field that is not sent": (put(idempotency_key="k"), "idempotency_key: unknown to the API"),
    "no model": (lambda body: body.pop("model"), "model: Field required"),
    "tokens as text": (put(max_tokens="64"), "max_tokens: Input should be a valid integer"),
    "a temperature in words": (put(temperature="hot"), "temperature: Input should be a valid number"),
    "an unknown choice of tools": (put(tool_choice="never"), "tool_choice"),
    "a tool without a name": (lambda body: body["tools"][0]["function"].pop("name"), "name: Field required"),
    "a tool of another type": (lambda body: body["tools"][0].update(type="tool"), "type: Input should be"),
    "a tool with a field of its own": (
        lambda body: body["tools"][0].update(call=1),
        "tools.0.call: unknown to the API",
    ),
    "a call without a type": (lambda body: body["messages"][7]["tool_calls"][0].pop("type"), "type: Field required"),
    "a call without a name": (
        lambda body: body["messages"][7]["tool_calls"][0]["function"].pop("name"),
        "function.name: Field required",
    ),
    "a mark on the task": (change(1, cut=True), "messages.1.cut: unknown to the API"),
    "a mark on a result": (change(8, read=True), "messages.8.read: unknown to the API"),
    "a number as content": (change(5, content=7), "content"),
}


def test_a_sound_body_has_no_fault() -> None:
    assert structure_faults(sound()) == type_faults(sound()) == faults(sound()) == []


@pytest.mark.parametrize(("by", "fault"), STRUCTURE.values(), ids=STRUCTURE)
def test_each_break_of_the_order_is_one_fault(by: Break, fault: str) -> None:
    [told] = faults(broken(by))
    assert told.startswith(fault)


@pytest.mark.parametrize(("by", "fault"), TYPES.values(), ids=TYPES)
def test_each_break_of_the_types_is_one_fault(by: Break, fault: str) -> None:
    [told] = type_faults(broken(by))
    assert fault in told
    assert faults(broken(by))


def test_a_provider_s_own_field_passes_where_the_test_names_it() -> None:
    body = broken(put(top_k=4, min_p=0.1))
    assert faults(body, {"top_k"}) == ["min_p: unknown to the API"]
    assert faults(body, {"top_k", "min_p"}) == []


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("offered", [True, False])
def test_what_the_program_builds_has_no_fault(number: int, offered: bool) -> None:
    tool = reference_tool()
    shown = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    state = new_state("Summarise the log", "m1")
    state["conversation"] = sound()["messages"][2:]
    frame = Frame(tools=[shown] if offered else [], files=[("log.txt", 7)], max_attempts=4, options={"max_tokens": 9})
    assert faults(json.loads(encode(build_request(state, number, frame).request))) == []


def post(url: str, body: object) -> int:
    """Send a body as it is, and return the status."""
    host, path = url.removeprefix("http://").split("/", 1)
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-canary-0123456789"}
        connection.request("POST", f"/{path}/chat/completions", json.dumps(body), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_server_of_the_tests_fails_at_its_end_and_names_the_fault() -> None:
    with (
        pytest.raises(AssertionError, match=r"^request 2: message 5: the assistant says nothing"),
        chat_server() as chat,
    ):
        assert [post(chat.url, sound()), post(chat.url, broken(change(5, content="")))] == [200, 200]


def test_a_server_of_the_tests_lets_pass_what_the_test_names() -> None:
    with chat_server(beyond={"top_k"}) as chat:
        assert post(chat.url, broken(put(top_k=4))) == 200
    with chat_server(judged=False) as chat:
        assert post(chat.url, {"messages": []}) == 200


# ---- llmock: a provider with a real quota and a real window, which judges its clients

QUOTA = 100_000  # tokens a minute; a request takes its prompt and its max_tokens
WINDOW = 4_500
LLMOCK = [sys.executable, "-m", "llmock.cli"]


class Numberless(Proxy):
    """Takes the number out of each request, and nothing else.

    llmock knows a retry by its equal body, and ours say which request of how many they are: without this it would
    see two calls, one given up and one never refused, and could not hold the wait between them against Retry-After.
    """

    def forward(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        return super().forward(path, headers, re.sub(rb"\[Request \d of", b"[Request 0 of", body))


@dataclass
class LlmockServer:
    """The judge's own address, and the one that it is reached at through Numberless."""

    url: str
    relay: Proxy

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.relay.server_port}/v1"

    def control(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, f"/_llmock/{path}", json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def will_read(self, *replies: list[str]) -> None:
        """Let the next replies call read_file, each for all its paths."""
        calls = [[{"name": "read_file", "arguments": {"path": path}} for path in paths] for paths in replies]
        self.control("POST", "scenario", {"behaviors": [{"type": "reply", "tool_calls": each} for each in calls]})

    def statuses(self) -> list[int]:
        return [request["status"] for request in self.control("GET", "requests")["requests"]]

    def report(self) -> tuple[int, list[str]]:
        """Return the exit code of `llmock report --strict`, and the codes of what it found."""
        command = [*LLMOCK, "report", "--strict", "--json", "--url", self.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, [finding["code"] for finding in json.loads(done.stdout)["findings"]]


@pytest.fixture(scope="module")
def llmock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlmockServer]:
    log = tmp_path_factory.mktemp("llmock") / "log"
    limits = ["--tpm", str(QUOTA), "--context-window", str(WINDOW), "--response-style", "static"]
    with log.open("wb") as out:
        command = [*LLMOCK, "serve", "--port", "0", *limits]
        process = subprocess.Popen(command, stdout=out, stderr=out, env={"PATH": os.environ["PATH"]})
    try:
        wait_until(lambda: process.poll() is not None or address(log) is not None, 60, "the address of llmock")
        url = address(log)
        assert url, log.read_text()
        with counting_proxy(url.removeprefix("http://"), Numberless) as relay:
            yield LlmockServer(url, relay)
    finally:
        process.terminate()
        process.wait(20)


def address(log: Path) -> str | None:
    found = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text())
    return found and found[1]


@pytest.fixture
def llmock(llmock_server: LlmockServer) -> LlmockServer:
    """The server, with its quota full and nothing to judge."""
    llmock_server.control("POST", "reset")
    return llmock_server


def test_a_job_under_a_rate_limit_waits_as_asked_and_is_answered(project: Project, llmock: LlmockServer) -> None:
    (project.folder / "log.txt").write_text("one line\n" * (WINDOW * 2 // 9))  # half of the window
    llmock.will_read(["log.txt"])
    job = {"read": ["log.txt"], "schedule": "every 1s", "after_failure": []}
    # Two of these requests do not fit into a minute's quota: the second has to wait about five seconds.
    project.live(llmock.base_url, {"nightly": job}, provider={"max_tokens": QUOTA * 535 // 1000})
    project.run("daemon", "--until-done")
    document = project.document()
    assert [attempt["outcome"] for attempt in document["history"]] == ["tool_calls", "rate_limited", "answered"]
    assert (document["status"], document["answer"]) == ("done", "Mock response from m1.")
    assert llmock.statuses() == [200, 429, 200]
    assert llmock.report() == (0, [])


def test_a_job_in_a_small_window_stays_within_it(project: Project, llmock: LlmockServer) -> None:
    names = [f"{letter}.txt" for letter in "abcdefghi"]
    for number, name in enumerate(names):
        (project.folder / name).write_text("0123456789abcde\n" * (80 if number % 3 == 2 else 500))
    llmock.will_read(names[:3], names[3:6], names[6:])
    job = {"read": names, "schedule": "every 1s", "after_failure": []}
    # llmock takes four characters for a token, the program three bytes: both stand for the same length.
    project.live(llmock.base_url, {"nightly": job}, provider={"context_tokens": WINDOW * 4 // 3})
    project.run("daemon", "--until-done")
    outcomes = [attempt["outcome"] for attempt in project.document()["history"]]
    assert outcomes == ["tool_calls", "tool_calls", "tool_calls", "answered"]
    assert project.document()["history"][3]["request"]["cut"]  # as it is kept, the conversation would not fit
    assert llmock.statuses() == [200, 200, 200, 200]
    assert llmock.report() == (0, [])


def test_llmock_catches_a_rest_that_is_cut_short(project: Project, llmock: LlmockServer) -> None:
    project.live(llmock.base_url, provider={"max_tokens": QUOTA // 2})
    assert post(llmock.base_url, sound() | {"max_tokens": QUOTA * 9 // 10}) == 200
    project.run("run", "nightly", code=69)
    assert llmock.statuses() == [200, 429]
    project.run("unblock", "local")
    project.run("run", "nightly", code=69)
    code, found = llmock.report()
    assert (code, found[0]) == (1, "retry_after_ignored")


def test_llmock_catches_a_client_that_asks_again_what_is_too_long(llmock: LlmockServer) -> None:
    body = broken(change(1, content="word " * WINDOW))
    assert [post(llmock.base_url, body), post(llmock.base_url, body)] == [400, 400]
    assert llmock.report() == (1, ["retried_non_retryable"])

"""Every kind of reply taken through a whole live slice: one POST, one outcome, a document that can go on."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from scheduler.attempt import Ask, Order, accept, run_slice
from scheduler.checkpoint import hold
from scheduler.document import parse
from scheduler.doubts import CALL_AS_TEXT, plain_doubts
from scheduler.errors import AskFailed, RequestRefused
from scheduler.events import event_line
from scheduler.gateway import Exchange, interrupt_all
from scheduler.job import Provider
from scheduler.ledger import ledger_of
from scheduler.reply import judge_response
from scheduler.rests import lift, read_rests
from scheduler.state import OUTCOMES, PROGRESS, State, new_state
from scheduler.tools import Tool
from scheduler.transcript import show_text
from tests.kinds import KEY, KINDS, Kind, error, reply
from tests.recorded_outcomes import RECORDED
from tests.support import Project, wait_until

PART = KEY[:15].encode()  # before its quotes, which JSON and repr escape
TASK = "How many days does shipping take?"
RESTING = {  # the model that rests ("" for all), and whether the rest ends by itself
    "none": [],
    "provider": [("", False)],
    "model": [("m", False)],
    "retry": [("", True)],
    "outage": [("", True)],
}
PLAIN = KINDS["answer"]
FRAMING = ("content-length", "transfer-encoding", "content-encoding", "connection")
LOOK = Tool("look", "Look at nothing.", {"type": "object", "properties": {}}, lambda _: "nothing to see")


# ---- one server for all replies


@dataclass
class Replies:
    """A server that answers each path with its own reply and keeps the bodies that came there."""

    known: dict[str, Kind] = field(default_factory=dict)
    came: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    root: str = ""

    def asked(self, name: str) -> list[dict[str, Any]]:
        """The bodies that came for a reply."""
        return self.came["/" + quote(name)]

    def add(self, name: str, kind: Kind) -> str:
        """Return the base URL under which this reply is given."""
        place = "/" + quote(name)
        self.known[place] = kind
        self.came[place] = []
        return f"{self.root}{place}/v1"


@pytest.fixture(scope="module")
def replies() -> Iterator[Replies]:
    known = Replies()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            place = self.path.removesuffix("/v1/chat/completions")
            known.came[place].append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            kind = known.known[place]
            self.send_response_only(kind.status)
            own = {"X-Echo": self.headers["Authorization"], "Content-Length": str(len(kind.raw))}
            for name, value in (*kind.headers, *own.items()):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(kind.raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    known.root = f"http://127.0.0.1:{server.server_port}"
    yield known
    server.shutdown()
    server.server_close()
    thread.join()


# ---- one slice


@dataclass
class Slice:
    """What a slice left: its state, its events, and what the ask raised."""

    state: State
    events: list[dict[str, Any]]
    failed: AskFailed | None


def take(path: Path, url: str, timeout: float = 5.0) -> Slice:
    """Run one live slice as `tick` does; anything but AskFailed is the test's."""
    with Exchange(Provider(name="local", base_url=url, timeout=timeout), KEY, {}) as exchange:
        return take_by(exchange, path)


def take_by(ask: Ask, path: Path) -> Slice:
    """Run one live slice that asks so."""
    order = Order(task=TASK, model="m", tools=(LOOK,), job="nightly", provider="local", live=True, mark=b"entry")
    events: list[dict[str, Any]] = []
    failed: AskFailed | None = None
    with hold(path) as held:
        state = accept(held.load(events.append), order)
        try:
            run_slice(held, state, order, ask, events.append)
        except AskFailed as error:
            failed = error
    return Slice(state, events, failed)


def rests_of(path: Path) -> list[tuple[str, bool]]:
    """The rests in force, as RESTING lists them."""
    with ledger_of(path.parent).reading() as tx:
        return [(rest.model, rest.until is not None) for rest in read_rests(tx, int(time.time()))]


def mend(path: Path) -> None:
    """End all rests."""
    with ledger_of(path.parent).writing() as tx:
        lift(tx, "local")


def request_faults(body: Mapping[str, Any]) -> list[str]:
    """What an API would refuse in a request."""
    first, second, *turns = body["messages"]
    faults = [] if first["role"] == "system" and TASK in second["content"] else ["no system or no task in front"]
    faults += [f"a second {turn['role']}" for turn in turns if turn["role"] in ("system", "developer")]
    if turns and turns[-1]["role"] == "assistant":
        faults.append("the last word is the assistant's")
    while turns:
        turn = turns.pop(0)
        calls = turn.get("tool_calls", ())
        ids = [call["id"] for call in calls]
        if turn["role"] == "tool":
            faults.append(f"an orphan result {turn['tool_call_id']}")
        elif not calls and not (turn["content"] or "").strip():
            faults.append(f"a blank turn of {turn['role']}")
        if "tool_calls" in turn and not ids:
            faults.append("a list of no calls")
        if len(set(ids)) < len(ids) or not all(ids):
            faults.append(f"ids {ids}")
        for call in calls:
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                faults.append(f"arguments {call['function']['arguments']}")
        results = [turns.pop(0) for _ in ids if turns and turns[0]["role"] == "tool"]
        if sorted(result["tool_call_id"] for result in results) != sorted(ids):
            faults.append(f"calls {ids} without all their results")
    return faults


def stored_bytes(folder: Path) -> bytes:
    """All that lies in a checkpoint folder, the ledger's WAL included."""
    return b"\0".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def check_slice(kind: Kind, name: str, replies: Replies, folder: Path) -> None:
    """Take a reply through a slice and the next one, and compare all that they leave with what is expected."""
    path = folder / "nightly.json"
    taken = take(path, replies.add(name, kind))
    state, entry = taken.state, taken.state["history"][0]
    assert len(replies.asked(name)) == 1
    assert request_faults(replies.asked(name)[0]) == []
    assert (entry["outcome"], entry["billed"]) == (kind.outcome, kind.billed), entry
    assert entry["usage"] == kind.usage, entry
    assert rests_of(path) == RESTING[kind.rests]
    assert (taken.failed.rests if taken.failed else "none") == kind.rests
    assert state["attempts"] == 1
    assert (state["status"], state["answer"] is None) == (
        ("done", False) if kind.outcome == "answered" else ("ready", True)
    )
    if kind.outcome in PROGRESS:
        assert kind.words in json.dumps(state["conversation"][0], ensure_ascii=False)
        assert taken.failed is None
    else:
        reason = entry["reason"] or ""
        assert kind.words in reason, reason
        assert reason.isprintable()
        assert 0 < len(reason) <= 300
        assert state["conversation"] == []
    assert parse(path.read_bytes()) == state
    told = "\n".join(event_line("nightly", event) + json.dumps(event) for event in taken.events)
    assert PART not in stored_bytes(folder) + told.encode()
    check_next(name, replies, path)


def check_next(name: str, replies: Replies, path: Path) -> None:
    """Take the slice after a reply, once nothing rests: its request is valid, and none is sent after an answer.

    Nor is one sent that would be no shorter than a request which was too long.
    """
    mend(path)
    before = parse(path.read_bytes())
    url = replies.add(f"{name} next", PLAIN)
    following = replies.asked(f"{name} next")
    if before["history"][-1]["outcome"] == "context_too_long":
        with pytest.raises(RequestRefused, match="as too long"):
            take(path, url)
        assert (following, parse(path.read_bytes())) == ([], before)
        return
    after = take(path, url).state
    assert len(following) == (before["status"] != "done")
    assert [fault for body in following for fault in request_faults(body)] == []
    assert parse(path.read_bytes()) == after
    assert after["status"] == "done"


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_reply_has_its_outcome_after_one_request(
    name: str, replies: Replies, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    check_slice(KINDS[name], name, replies, tmp_path)
    assert PART.decode() not in caplog.text


HOSTILE = {
    "titles": b"<title " * 40_000,
    "open title": b"<title" + b" " * 250_000,
    "models": json.dumps(error("model " * 40_000)).encode(),
    "one model": json.dumps(error("model " + "a" * 250_000)).encode(),
    "blanks": json.dumps(error("model" + " " * 250_000)).encode(),
    "inputs": json.dumps(error("input " * 40_000)).encode(),
    "token counts": json.dumps(error("token count " * 20_000)).encode(),
    "brackets": json.dumps(error("P", metadata={"raw": "[" * 250_000})).encode(),
    "fences": json.dumps(reply(content="```\n" * 60_000)).encode(),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_no_body_takes_more_time_than_its_length(body: bytes) -> None:
    start = time.process_time()
    for status in (200, 400, 404, 429):
        judge_response(status, [], body)
    [*plain_doubts(new_state(TASK, "m") | {"answer": body.decode()}, False)]
    assert time.process_time() - start < 2  # a scan that starts anew at each place takes ten


MADE = '{"name": "look", "arguments": {}}'


@pytest.mark.parametrize(
    ("answer", "flagged"),
    [
        (MADE, True),
        (f"[{MADE}, {MADE}]", True),
        (f"I look:\n```json\n{MADE}\n```\n", True),
        (f'{{"type": "function", "function": {MADE}}}', True),
        (f'{{"tool_calls": [{MADE}]}}', True),
        ('{"name": "look", "parameters": {"a": 1}}', True),
        ('{"function": "look", "arguments": {}}', True),
        (f"<tool_call>\n{MADE}\n</tool_call>", True),
        ("[TOOL_CALLS]look{}", True),
        ("<function=look></function>", True),
        ("<|python_tag|>look.call()", True),
        ("<\uff5ctool\u2581calls\u2581begin\uff5c>look", True),
        ("fin", False),
        ('{"name": "Alice", "age": 30}', False),
        ('["look"]', False),
        ("[]", False),
        ("```python\nlook(1)\n```", False),
        ("Shipping takes 3 to 5 days; the function look and its arguments are described in a.md.", False),
    ],
)
def test_a_call_that_was_written_as_text_is_an_answer_that_show_flags(
    answer: str, flagged: bool, replies: Replies, tmp_path: Path
) -> None:
    kind = Kind(status=200, body=reply(content=answer), outcome="answered", rests="none", billed="yes", words="")
    state = take(tmp_path / "nightly.json", replies.add(f"written {answer}", kind)).state
    assert (state["status"], state["answer"]) == ("done", answer)
    shown = show_text(state, 4, "p", rehearsal=False, edited=False, reads=False)
    assert (f"DOUBT: {CALL_AS_TEXT}" in shown) == flagged


# ---- no reply at all


@pytest.fixture
def silent() -> Iterator[str]:
    """The base URL of a server that takes a connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def check_failure(
    name: str, taken: Slice, replies: Replies, path: Path, expected: tuple[str, str, str], said: str
) -> None:
    entry = taken.state["history"][0]
    rests = expected[1]
    assert (entry["outcome"], rests, entry["billed"]) == expected
    assert entry["usage"] is None
    assert said in (entry["reason"] or "")
    assert rests_of(path) == RESTING[rests]
    assert (taken.state["attempts"], taken.state["status"]) == (1, "ready")
    check_next(name, replies, path)


def test_a_reply_that_never_comes_is_a_timeout(replies: Replies, silent: str, tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    taken = take(path, silent, 0.3)
    check_failure("timeout", taken, replies, path, ("timeout", "none", "maybe"), "no complete reply within 0.3 s")


def test_a_closed_port_is_a_connect_error(replies: Replies, tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    taken = take(path, f"http://127.0.0.1:{port}/v1")
    check_failure("closed", taken, replies, path, ("connect_error", "outage", "no"), "no connection")


def test_a_stopped_program_leaves_an_interrupted_attempt(replies: Replies, silent: str, tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    stopper = threading.Thread(target=wait_until, args=(interrupt_all, 20, "a request in flight"))
    stopper.start()
    taken = take(path, silent)
    stopper.join()
    check_failure("stopped", taken, replies, path, ("interrupted", "none", "maybe"), "stopped while waiting")


def test_an_unknown_exception_of_an_ask_is_an_error(replies: Replies, tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"

    def ask(_: object) -> dict[str, Any]:
        raise KeyError("choices")

    with pytest.raises(KeyError):
        take_by(ask, path)
    taken = Slice(parse(path.read_bytes()), [], None)
    check_failure("unknown", taken, replies, path, ("error", "none", "maybe"), "KeyError: 'choices'")


def test_every_outcome_is_yielded_by_some_reply_or_by_none() -> None:
    without = {"timeout", "connect_error", "interrupted", "error"}
    assert {kind.outcome for kind in KINDS.values()} == OUTCOMES - without


# ---- recorded replies


def read_recorded(path: Path) -> Kind:
    """Read a recorded reply, with what the table expects of it."""
    told = json.loads(path.read_text("utf-8"))
    outcome, billed, rests, words = RECORDED[path.stem]
    return Kind(
        status=told["status"],
        body=told["body"].encode() if isinstance(told["body"], str) else told["body"],
        headers=tuple((name, value) for name, value in told["headers"].items() if name.lower() not in FRAMING),
        outcome=outcome,
        billed=billed,
        rests=rests,
        words=words,
    )


def test_each_recorded_reply_has_the_outcome_of_the_table(
    replies: Replies, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sorted(Path(__file__).resolve().parents[2].glob("*/recorded/*.json"))
    assert {path.stem for path in found} in (set(RECORDED), set())

    def check(path: Path) -> str:
        folder = tmp_path / path.stem
        folder.mkdir(0o700)
        try:
            check_slice(read_recorded(path), path.stem, replies, folder)
        except (AssertionError, ValueError) as fault:
            return f"{path.stem}: {fault}"
        return ""

    with ThreadPoolExecutor(8) as pool:  # a slice mostly waits for the disk
        faults = [*filter(None, pool.map(check, found))]
    with capsys.disabled():
        print(f"\n{len(found)} recorded replies ran{'' if found else ': there are none beside this repository'}")
    assert not faults, "\n".join(faults)


# ---- the program, five times over

PAST = "Wed, 21 Oct 2015 07:28:00 GMT"
SPENT = (
    *("raw in 200", "text in 200", "late", "choices null", "choices empty", "message null", "list", "null", "text"),
    *("delta", "blank filtered", "bad gateway", "login page", "blank body", "no content", "bad message"),
    *("content empty", "content blank", "content null", "calls blank", "length"),
)
ANSWERED = (
    *("usage missing", "usage null", "usage of null", "usage as text", "usage endless", "usage in detail"),
    "finish null",
)
REFUSED = ("detail", "no credit", "unknown model as text", "no such page")


def limited(*values: str) -> Kind:
    """A 429 with these fields Retry-After."""
    headers = tuple(("Retry-After", value) for value in values)
    words = "429: Too Many Requests" if "30" in values else f"429 (Retry-After {values[0]} is ignored)"
    return Kind(status=429, body=b"", headers=headers, outcome="rate_limited", rests="retry", billed="no", words=words)


def moved(place: str) -> Kind:
    """A redirect to another place."""
    words = f"308: redirected to {place}"
    headers = (("Location", place),)
    return Kind(status=308, body=b"", headers=headers, outcome="http_error", rests="none", billed="no", words=words)


def test_five_runs_send_four_requests_of_a_spent_job_and_one_of_an_answered_or_refused_one(
    replies: Replies, project: Project
) -> None:
    thief = replies.add("thief", PLAIN)
    spent = {name: KINDS[name] for name in SPENT} | {"moved away": moved(thief), "sent twice": limited("soon", "30")}
    spent |= {f"after {value}": limited(value) for value in ("30", PAST, "-5", "99999999", "soon")}
    kinds = spent | {name: KINDS[name] for name in (*ANSWERED, *REFUSED)}
    jobs = {re.sub(r"\W+", "-", name.lower()): name for name in kinds}
    entry = {"model": "m", "key": {"env": "LOCAL_KEY"}, "timeout": 30}
    project.write_jobs(
        {job: {"task": TASK, "checkpoint": f"checkpoints/{job}.json", "provider": job} for job in jobs},
        live=True,
        providers={job: entry | {"base_url": replies.add(job, kinds[name]) + "/ "} for job, name in jobs.items()},
    )
    told = []
    for count in range(1, 6):
        ran = project.run("run", *jobs, code=None)
        told += [ran.stdout, ran.stderr]
        with ledger_of(project.path().parent).writing() as tx:
            for job, name in jobs.items():
                assert len(replies.asked(job)) == (min(count, 4) if name in spent else 1), job
                if name in spent:
                    lift(tx, job)
    told.append(project.run("status").stdout)
    rows = {row["id"]: row for row in json.loads(project.run("status", "--json").stdout)["jobs"]}
    for job, name in jobs.items():
        document, kind = project.document(job), kinds[name]
        last = document["history"][-1]
        ended = ("done", 1) if name in ANSWERED else ("exhausted", 4) if name in spent else ("ready", 1)
        assert (document["status"], len(document["history"])) == ended
        assert {entry["outcome"] for entry in document["history"]} == {kind.outcome}
        if kind.outcome in PROGRESS:
            assert last["usage"] == kind.usage
        else:
            assert kind.words in last["reason"]
            assert last["reason"] in (rows[job]["reason"] or "")
    assert replies.asked("thief") == []
    assert told[-1].splitlines()[1].startswith("RESTS: provider ")
    assert all(line.isprintable() for text in told for line in text.splitlines())
    left = stored_bytes(project.path().parent) + "".join(told).encode()
    assert b"sk-canary" not in left
    assert b"<p>" not in left

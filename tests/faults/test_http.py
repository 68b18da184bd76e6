"""One exchange with a far side that cuts, trickles or breaks: one connection, one POST, one outcome, in time."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scheduler.errors import AskFailed
from scheduler.gateway import Exchange
from scheduler.state import OUTCOMES
from tests.faults.cases import Begin, sized
from tests.faults.http_wire import (
    CLOSES,
    FRAMINGS,
    REPLIES,
    Cut,
    Relay,
    Retrying,
    Stubborn,
    Trusting,
    cuts,
    framed,
    gone,
    listening,
    phases,
    sending,
    then_silent,
    trickling,
)
from tests.kinds import KINDS, Kind
from tests.support import Project, wait_until
from tests.test_gateway import (
    KEY,
    REQUEST,
    Handler,
    Server,
    deaf,
    join_workers,
    make_certificate,
    never,
    provider,
    server_context,
)
from tests.test_replies import mend, take

NAME = "HTTP replies cut and trickled"
AMPLE = 30.0  # a deadline that no case reaches unless it hangs
SEED = 20

Ask = Callable[..., Exchange]


def asked(
    server: Server, handler: Handler, ask: Ask = Exchange, scheme: str = "http", timeout: float = AMPLE, **options: Any
) -> str:
    """Ask once; return "reply", or the outcome. Fails unless there was one connection with at most one POST."""
    connections, requests = server.connections, len(server.requests)
    server.handler = handler
    start = time.monotonic()
    try:
        url = f"{scheme}://127.0.0.1:{server.port}/v1"
        with ask(provider(url, timeout=timeout, **options), KEY, {}) as exchange:
            found = exchange(REQUEST)
        said, fault = "reply", _reply_fault(found)
    except AskFailed as failed:
        said, fault = failed.outcome, _failure_fault(failed, arrived=len(server.requests) > requests)
    assert time.monotonic() - start < timeout + 10  # the deadline; the rest is for a slow machine
    assert not fault, fault
    assert server.connections - connections == 1, f"{server.connections - connections} connections"
    assert len(server.requests) - requests <= 1, f"{len(server.requests) - requests} requests"
    return said


def _reply_fault(found: Mapping[str, Any]) -> str:
    whole = {reply: json.loads(body)["choices"][0]["message"] for reply, body in REPLIES.items()}
    return "" if found["message"] in whole.values() else f"no reply of ours: {found}"


def _failure_fault(failed: AskFailed, *, arrived: bool) -> str:
    if failed.outcome not in OUTCOMES:
        return f"no outcome of the list: {failed.outcome}"
    if arrived and failed.billed != "maybe":
        return f"it arrived, and is told as billed: {failed.billed}"
    return "" if failed.reason.isprintable() and KEY[:15] not in failed.reason else f"the reason {failed.reason!r}"


def check_cut(server: Server, cut: Cut, ask: Ask = Exchange) -> None:
    """Try one cut, with one request."""
    before = len(server.requests)
    found = asked(server, sending(cut.wire[: cut.at], cut.close), ask)
    assert found == cut.expected, f"{cut}: {found}, not {cut.expected}"
    assert len(server.requests) == before + 1


def sample(every: Sequence[Cut], number: int) -> list[Cut]:
    """So many of the cuts, the same ones each time; the borders among them."""
    borders = [cut for cut in every if cut.at in (0, len(cut.wire) - 1, len(cut.wire))]
    rest = [cut for cut in every if cut not in borders]
    return [*borders, *random.Random(SEED).sample(rest, min(len(rest), max(0, number - len(borders))))]


@pytest.mark.timeout(1200)
def test_a_reply_cut_at_any_byte_costs_one_request_and_is_an_answer_only_if_whole(harness: Begin) -> None:
    every = cuts(tuple(REPLIES)[: sized(1, 1, 2)])
    chosen = sample(every, sized(240, len(every), len(every)))
    with harness(NAME, sized(240, 1_500, 3_000)) as case, listening(never) as server:
        for cut in chosen:
            check_cut(server, cut)
            case(f"cut, {cut.expected}")
        join_workers()
        assert server.connections == len(server.requests) == len(chosen)
        case.control("a client that asks again", sum(caught_in(server, chosen[:60], Stubborn)))
        case.control("a client that takes a cut body", sum(caught_in(server, chosen[:60], Trusting)))


def caught(check: Callable[[], object]) -> bool:
    """Whether a check fails."""
    try:
        check()
    except AssertionError:
        return True
    return False


def caught_in(server: Server, chosen: Sequence[Cut], ask: Ask) -> list[bool]:
    """Whether the check of each cut fails with this client."""
    return [caught(lambda cut=cut: check_cut(server, cut, ask)) for cut in chosen]


# ---- slow, silent, or gone


@pytest.mark.timeout(300)
def test_a_trickle_ends_at_the_deadline_or_is_answered_before_it(harness: Begin) -> None:
    places = [(framing, *phase) for framing in FRAMINGS for phase in phases(framing)]
    deadlines = sized(1, 3, 8)

    def slow(place: tuple[str, str, bytes, bytes], deadline: float) -> None:
        _, _, at_once, then = place
        with listening(never) as server:
            start = time.monotonic()
            # A byte each 50 ms, and never the last one: whoever counts from the latest byte waits far too long.
            handler = then_silent(trickling(at_once, then[:-1], 0.05))
            assert asked(server, handler, timeout=deadline) == "timeout", place
            assert time.monotonic() - start >= deadline
            assert len(server.requests) == 1

    with harness(NAME, sized(17, 60, 150)) as case:
        jobs = list(itertools.product(places, [0.2 + 0.1 * n for n in range(deadlines)]))
        with ThreadPoolExecutor(len(places)) as pool:
            for _ in pool.map(lambda job: slow(*job), jobs):
                case("trickle past the deadline")
        with listening(never) as server:
            for place in places:
                _, name, at_once, then = place
                assert asked(server, trickling(at_once, then, 0)) == "reply", name
                case("trickle in time")


def test_a_server_that_never_answers_or_hangs_up_costs_one_connection(harness: Begin) -> None:
    with harness(NAME, sized(8, 24, 60)) as case, listening(never) as server:
        for _ in range(sized(2, 6, 15)):
            assert asked(server, deaf, timeout=0.2) == "timeout"
            case("never answers")
            assert asked(server, never, timeout=0.2) == "timeout"
            case("never answers")
            for close in CLOSES:
                assert asked(server, gone(close)) == "connect_error"
                case("closes at accept")


# ---- TLS


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Server]:
    """A TLS server that answers; the file cert.pem in `tmp_path` trusts it."""
    make_certificate(tmp_path / "cert.pem")
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())
    with listening(sending(b"".join(framed(REPLIES["answer"], "length"))), tls=server_context(both)) as server:
        yield server


# CPython's ssl leaves a socket to the collector where the reset wins over getpeername() in wrap_socket().
LEFT = pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
UNCLOSED = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")


@LEFT
@UNCLOSED
@pytest.mark.timeout(600)
def test_a_tls_connection_that_breaks_at_any_byte_sends_at_most_one_request(
    harness: Begin, secure: Server, tmp_path: Path
) -> None:
    with harness(NAME, sized(25, 200, 1_000)) as case, listening(never) as outside:
        length = relayed(outside, secure, 1 << 20, tmp_path).came
        for limit in range(0, length + 40, max(1, length // sized(25, 250, 1_000))):
            relayed(outside, secure, limit, tmp_path)
            case("TLS cut")


@LEFT
@UNCLOSED
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")  # a call keeps one connection in hand
def test_a_client_that_connects_again_is_caught(harness: Begin, secure: Server, tmp_path: Path) -> None:
    with harness(NAME) as case, listening(never) as outside:
        again = [caught(lambda at=at: relayed(outside, secure, at, tmp_path, Retrying)) for at in (0, 1, 100)]
        case.control("a client that connects again", sum(again))


def relayed(outside: Server, secure: Server, limit: int, folder: Path, ask: Ask = Exchange) -> Relay:
    """Ask through TLS of which so many bytes come back; an answer only where all of them did."""
    relay, before = Relay(secure.port, limit), (secure.connections, len(secure.requests))
    found = asked(outside, relay, ask, "https", ca_file=folder / "cert.pem")
    wait_until(relay.ended.is_set, 20, "the end of the relay")
    wait_until(lambda: not [t for t in secure.threads[1:] if t.is_alive()], 20, "the end of the server's thread")
    posts = len(secure.requests) - before[1]
    whole = posts == 1 and not relay.cut
    assert found == ("reply" if whole else "connect_error"), f"{found} after {relay.passed} of {relay.came} bytes"
    assert (secure.connections - before[0], posts <= 1) == (1, True)
    return relay


# ---- the outcome table


@pytest.mark.timeout(300)
def test_each_kind_of_reply_is_one_connection_one_post_and_one_attempt(harness: Begin, tmp_path: Path) -> None:
    chosen = ["moved", "loading", *list(KINDS)[:: sized(8, 1, 1)]]
    with harness(NAME, sized(20, 180, 180)) as case, listening(never) as server:
        for number, name in enumerate(chosen, 1):
            kind = KINDS[name]
            server.handler = sending(_wire(kind, server.url))
            path = tmp_path / f"job{number}.json"
            state = take(path, server.url, AMPLE).state
            assert (server.connections, len(server.requests), state["attempts"]) == (number, number, 1), name
            assert [entry["outcome"] for entry in state["history"]] == [kind.outcome], name
            assert kind.outcome in OUTCOMES
            mend(path)
            case("row of the outcome table")


def _wire(kind: Kind, url: str) -> bytes:
    """Lay out a reply; where it leads elsewhere, it leads back to this server, which counts who follows."""
    fields = [*kind.headers, ("Content-Length", str(len(kind.raw)))]
    lines = "".join(f"{name}: {value.replace('http://h', url)}\r\n" for name, value in fields)
    head = f"HTTP/1.1 {kind.status} X\r\n{lines}"
    return head.encode("latin-1") + b"\r\n" + kind.raw


# ---- the real program


@pytest.mark.timeout(600)
def test_the_program_counts_a_cut_reply_once(harness: Begin, project: Project) -> None:
    chosen = random.Random(SEED).sample(cuts(("answer",)), sized(3, 12, 60))
    with harness(NAME, sized(3, 12, 60)) as case:
        servers = [Server(sending(cut.wire[: cut.at], cut.close)) for cut in chosen]
        try:
            check_program(project, chosen, servers)
            case("the whole program", len(chosen))
        finally:
            for server in servers:
                server.close()


def check_program(project: Project, chosen: Sequence[Cut], servers: Sequence[Server]) -> None:
    """Run one job per cut in one process, and see what it left."""
    jobs = {f"job{number}": server for number, server in enumerate(servers)}
    entry = {"model": "m", "key": {"env": "LOCAL_KEY"}, "timeout": AMPLE}
    project.write_jobs(
        {job: {"task": "Summarise", "checkpoint": f"checkpoints/{job}.json", "provider": job} for job in jobs},
        live=True,
        providers={job: entry | {"base_url": server.url} for job, server in jobs.items()},
    )
    project.run("run", *jobs, code=None)
    for (job, server), cut in zip(jobs.items(), chosen, strict=True):
        document = project.document(job)
        outcomes = [entry["outcome"] for entry in document["history"]]
        assert outcomes == ["answered" if cut.expected == "reply" else cut.expected], cut
        assert (document["attempts"], server.connections, len(server.requests)) == (1, 1, 1), cut

"""The far side of an exchange, byte by byte: replies in each framing, cut, trickled, or behind TLS that breaks.

`Server` of the gateway's tests counts the connections and requests; what is here decides which bytes come back.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from scheduler.errors import AskFailed
from scheduler.gateway import Exchange
from tests.support import answer, tool_calls
from tests.test_gateway import Handler, Server, read_request, reset

Framing = Literal["length", "chunked", "close"]
Close = Literal["FIN", "RST"]
FRAMINGS: tuple[Framing, ...] = ("length", "chunked", "close")
CLOSES: tuple[Close, ...] = ("FIN", "RST")
REPLIES = {  # the blank at the end lets a cut leave whole JSON behind
    "answer": json.dumps(answer("fin")).encode() + b"\n",
    "call": json.dumps(tool_calls(("c1", "look", "{}"))).encode() + b"\n",
}


def framed(body: bytes, framing: Framing) -> tuple[bytes, bytes]:
    """Return the head and the body of a good reply, as they go over the wire."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    match framing:
        case "length":
            return head + b"Content-Length: %d\r\n\r\n" % len(body), body
        case "chunked":
            sizes = (1, 16, len(body) - 17)
            starts = (0, 1, 17)
            chunks = [b"%x\r\n%b\r\n" % (n, body[at : at + n]) for at, n in zip(starts, sizes, strict=True)]
            return head + b"Transfer-Encoding: chunked\r\n\r\n", b"".join(chunks) + b"0\r\n\r\n"
        case "close":
            return head + b"Connection: close\r\n\r\n", body


def sending(data: bytes, close: Close = "FIN") -> Handler:
    """Read the request, send these bytes, and close the connection at once."""

    def handle(connection: socket.socket, server: Server) -> None:
        server.requests.append(read_request(connection))
        connection.sendall(data)
        if close == "RST":
            reset(connection)

    return handle


@dataclass(frozen=True)
class Cut:
    """A good reply of which only the first bytes come before the connection ends."""

    reply: str
    framing: Framing
    close: Close
    at: int

    @property
    def wire(self) -> bytes:
        """All that a whole reply would be."""
        return b"".join(framed(REPLIES[self.reply], self.framing))

    @property
    def expected(self) -> str:
        """What must come of it: a reply, or the outcome of the spent attempt.

        Where the end of the connection ends the body (FIN, no length) nothing tells a cut but the JSON: an object that
        has its last brace is whole, whatever blanks were to follow; one that has not is malformed. A reset is no end.
        """
        head, _ = framed(REPLIES[self.reply], self.framing)
        if self.framing == "close":
            if self.close == "RST" or self.at < len(head):
                return "connect_error"
            return "reply" if self.at >= len(self.wire) - 1 else "malformed_reply"
        return "reply" if self.at == len(self.wire) else "connect_error"

    def __str__(self) -> str:
        return f"{self.reply} with {self.framing} framing, {self.at} of {len(self.wire)} bytes, {self.close}"


def cuts(replies: tuple[str, ...]) -> list[Cut]:
    """Every cut of these replies: after no byte, after each byte, and after all of them."""
    return [
        Cut(reply, framing, close, at)
        for reply in replies
        for framing in FRAMINGS
        for close in CLOSES
        for at in range(len(b"".join(framed(REPLIES[reply], framing))) + 1)
    ]


def phases(framing: Framing) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield the places where a reply may trickle: the name, what comes at once, what comes byte by byte."""
    head, body = framed(REPLIES["answer"], framing)
    wire = head + body
    yield "before the status line", b"", wire
    yield "in the status line", wire[:9], wire[9:]
    yield "in the headers", wire[:30], wire[30:]
    yield "between headers and body", head, body
    yield "in the body", head + body[: len(body) // 2], body[len(body) // 2 :]
    if framing == "chunked":
        second = body.index(b"\r\n", 3) + 2
        yield "in a chunk's size", head + body[: second + 1], body[second + 1 :]
        yield "before the last chunk", wire[:-5], wire[-5:]


def trickling(at_once: bytes, then: bytes, pause: float) -> Handler:
    """Send the one at once and the other byte by byte, each after a pause."""

    def handle(connection: socket.socket, server: Server) -> None:
        server.requests.append(read_request(connection))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(at_once)
        for number in range(len(then)):
            if pause and server.stop.wait(pause):
                return
            connection.sendall(then[number : number + 1])

    return handle


def then_silent(handler: Handler) -> Handler:
    """Do as the handler does, and keep the connection open."""

    def handle(connection: socket.socket, server: Server) -> None:
        handler(connection, server)
        server.stop.wait(20)

    return handle


def gone(close: str) -> Handler:
    """Close at accept, without a look at the request."""

    def handle(connection: socket.socket, server: Server) -> None:
        if close == "RST":
            reset(connection)

    return handle


@dataclass
class Relay:
    """Passes bytes between a client and a TLS server, and cuts the connection after some of the server's."""

    port: int = 0
    limit: int = 0
    passed: int = 0  # of the server's bytes, to the client
    came: int = 0  # of the server's bytes in all
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def cut(self) -> bool:
        """Whether the server said anything that the client did not get."""
        return self.passed < self.came

    def __call__(self, client: socket.socket, server: Server) -> None:
        """Be the handler of a server of plain bytes."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as onward:
                up = threading.Thread(target=_carry, args=(client, onward))
                up.start()
                while data := onward.recv(65536):
                    self.came += len(data)
                    part = data[: self.limit - self.passed]
                    if part:
                        client.sendall(part)
                        self.passed += len(part)
                    if self.passed >= self.limit:
                        with suppress(OSError):
                            client.shutdown(socket.SHUT_RDWR)
                up.join(10)
        finally:
            self.ended.set()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def listening(handler: Handler, **options: object) -> Iterator[Server]:
    """Run a server that counts; it and its threads have ended afterwards."""
    server = Server(handler, **options)  # type: ignore[arg-type]  # passed on as they are
    try:
        yield server
    finally:
        server.close()


# ---- clients that are broken on purpose


class Stubborn(Exchange):
    """Asks a second time where the connection broke."""

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return super().__call__(request)
        except AskFailed as failed:
            if failed.outcome != "connect_error":
                raise
            return super().__call__(request)


class _Credulous(httpx.BaseTransport):
    """Ends a body where it broke, as if that were its end."""

    def __init__(self, real: httpx.BaseTransport) -> None:
        self._real = real

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = self._real.handle_request(request)
        assert isinstance(found.stream, httpx.SyncByteStream)
        return httpx.Response(found.status_code, headers=found.headers, stream=_Lenient(found.stream))

    def close(self) -> None:
        self._real.close()


class _Lenient(httpx.SyncByteStream):
    def __init__(self, real: httpx.SyncByteStream) -> None:
        self._real = real

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._real
        except httpx.TransportError:
            return

    def close(self) -> None:
        self._real.close()


class Trusting(Exchange):
    """Takes what came of a body for all of it."""

    def _open(self) -> httpx.Client:
        client = super()._open()
        client._transport = _Credulous(client._transport)
        return client


class Retrying(Exchange):
    """Leaves httpx to connect again."""

    def _open(self) -> httpx.Client:
        client = super()._open()
        client._transport.close()
        client._transport = httpx.HTTPTransport(verify=self._tls(), retries=1)
        return client

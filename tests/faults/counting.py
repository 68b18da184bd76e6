"""A chat server on loopback that counts, for each task, which attempts came and how many were in flight at once.

A request whose client was killed is in flight no more, though nobody has replied to it.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from tests.support import answer, tool_calls

_ATTEMPT = re.compile(r"\[Request (\d) of (\d)\b")


@dataclass(slots=True)
class Request:
    """One request: of which task, the how manieth of how many it says it is; what it was told, once it was."""

    number: int
    task: str
    attempt: int
    of: int
    replied: bool = False


Reply = Callable[[Request], Mapping[str, Any]]


def at_once(request: Request) -> Mapping[str, Any]:
    """Answer."""
    return answer(f"answer {request.number}.")


def at_last(request: Request) -> Mapping[str, Any]:
    """Call a tool, which can be told from any other call, until the last attempt; answer then."""
    if request.attempt < request.of:
        return tool_calls((f"call {request.number}.", "read_file", "{}"))
    return at_once(request)


@dataclass
class Counting:
    """What has reached the server; replies come after `delay` seconds, those of `held` tasks once `hold` is set."""

    reply: Reply
    delay: float = 0
    held: Collection[str] = ()
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)
    hold: threading.Event = field(default_factory=threading.Event)
    _flying: dict[str, set[socket.socket]] = field(default_factory=lambda: defaultdict(set))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, task: str) -> list[Request]:
        """Return the requests of one task."""
        return [request for request in list(self.requests) if request.task == task]

    def enter(self, body: bytes, client: socket.socket) -> Request:
        """Count a request that has come."""
        said = json.loads(body)["messages"]
        text = "\n".join(str(message["content"]) for message in said if message["role"] == "user")
        [*_, (attempt, of)] = _ATTEMPT.findall(text)
        task = said[1]["content"].partition("\n")[0]
        with self._lock:
            request = Request(len(self.requests) + 1, task, int(attempt), int(of))
            self.requests.append(request)
            flying = self._flying[task]
            flying -= {other for other in flying if _is_gone(other)}
            flying.add(client)
            self.most[task] = max(self.most[task], len(flying))
        return request

    def leave(self, request: Request, client: socket.socket) -> bool:
        """Count a request as over, which it is before its reply can be seen; tell whether the client still waits."""
        with self._lock:
            request.replied = not _is_gone(client)
            flying = self._flying[request.task]
            flying.discard(client)
            if not flying:
                del self._flying[request.task]
        return request.replied


def _is_gone(client: socket.socket) -> bool:
    try:
        return not client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextlib.contextmanager
def counting(reply: Reply, delay: float = 0, *, held: Collection[str] = ()) -> Iterator[Counting]:
    """Run a server."""
    seen = Counting(reply, delay, held)

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):  # the client was killed
                self._answer()

        def _answer(self) -> None:
            length = 0
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            body = self.rfile.read(length)
            if not length or len(body) < length:
                return  # cut off: no whole request came
            request = seen.enter(body, self.connection)
            wait = select.poll()
            wait.register(self.connection, select.POLLIN)
            if request.task in seen.held:
                seen.hold.wait(300)
            wait.poll(seen.delay * 1000)  # ends early where the client does
            if seen.leave(request, self.connection):
                data = json.dumps(seen.reply(request)).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                self.wfile.write(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)

    class Server(ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 256
        allow_reuse_address = True

        def handle_error(self, *_: object) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        seen.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield seen
        finally:
            seen.hold.set()
            server.shutdown()
            thread.join()

"""The real program as a subprocess, and a chat server on loopback that counts what reaches it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests import judge

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-m", "scheduler"]
LEAN = ROOT / "tests" / "lean"

Reply = Mapping[str, Any] | tuple[int, Mapping[str, Any]] | tuple[int, Mapping[str, Any], Mapping[str, str]]


def rows(ledger: Path, query: str, *values: object) -> list[Any]:
    """Ask a ledger, or change it, without the program."""
    with contextlib.closing(sqlite3.connect(ledger)) as base, base:
        return base.execute(query, values).fetchall()


def face(path: Path) -> tuple[bytes, int, int, int]:
    """What must not change of a file that is left alone: its bytes, inode, mtime and mode."""
    found = path.stat()
    return path.read_bytes(), found.st_ino, found.st_mtime_ns, found.st_mode


def state_home(folder: Path) -> dict[str, str]:
    """Where the program is to remember things: never in the home of whoever runs the tests."""
    places = {"XDG_STATE_HOME": "state", "CACHE_DIRECTORY": "cache"}
    return {name: os.environ.get(name, str(folder / place)) for name, place in places.items()}


# What nothing that is printed, stored or sent elsewhere may show.
KEY = "sk-canary-0123456789"


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str


Command = Callable[..., Said]


def answer(text: str, **choice: Any) -> dict[str, Any]:
    """A chat completion with this text."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"id": "c1", "choices": [{"index": 0, "finish_reason": "stop", "message": message} | choice], "usage": usage}


def tool_calls(*calls: tuple[str, str, str]) -> dict[str, Any]:
    """A chat completion that calls tools, each given as id, name and JSON arguments."""
    wanted = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": wanted}
    return answer("", finish_reason="tool_calls", message=message)


@dataclass
class ChatServer:
    """Answers each POST with the next reply of the script, the last one for ever; counts everything.

    `hold` is waited for before a reply is sent, and `arrived` is called before that. Each request is judged, unless
    the test says that it sends none that is right; `beyond` are the fields that only this provider knows.
    """

    script: list[Reply] = field(default_factory=lambda: [answer("fin")])
    delay: float = 0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_in_flight: int = 0
    url: str = ""
    judged: bool = True
    beyond: Collection[str] = ()
    faults: list[str] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    arrived: Callable[[], object] = bool
    _in_flight: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        return len(self.requests)

    def wait_for(self, count: int, seconds: float = 20) -> None:
        """Wait until so many requests have arrived."""
        wait_until(lambda: self.count >= count, seconds, f"{count} requests, {self.count} came")

    def take(self, headers: Mapping[str, str], body: bytes) -> Reply:
        request = json.loads(body)
        found = judge.faults(request, self.beyond) if self.judged else []
        with self._lock:
            self.requests.append(request)
            self.faults += [f"request {self.count}: {fault}" for fault in found]
            self.headers.append(dict(headers))
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            reply = self.script[min(len(self.requests), len(self.script)) - 1]
        self.arrived()
        self.hold.wait(300)
        time.sleep(self.delay)
        with self._lock:  # before the client can have the reply and send its next request
            self._in_flight -= 1
        return reply


def woken(pid: int) -> int:
    """How often the threads of a process have gone to sleep of themselves, and so been woken."""
    told = [(task / "status").read_text("utf-8") for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in told)


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Look every 10 ms until something is so; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def chat_server(
    *script: Reply, delay: float = 0, held: bool = False, judged: bool = True, beyond: Collection[str] = ()
) -> Iterator[ChatServer]:
    """Run a server; `held` keeps every reply back until `hold.set()`. Fails at its end if a request was faulty."""
    chat = ChatServer(script=list(script) or [answer("fin")], delay=delay, judged=judged, beyond=beyond)
    if judged:
        judge.types()  # not while a request waits
    if not held:
        chat.hold.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                reply = chat.take(self.headers, body)
                status, content, extra = (*reply, {})[:3] if isinstance(reply, tuple) else (200, reply, {})
                data = json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **extra}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # the client was killed

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield chat
    finally:
        chat.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
    assert not chat.faults, "\n".join(chat.faults)


@dataclass
class Manager:
    """What a service manager was told at its socket: each datagram as its lines."""

    address: str
    told: list[list[str]] = field(default_factory=list)

    def said(self, word: str) -> list[str]:
        """Every line that begins so."""
        return [line for lines in list(self.told) for line in lines if line.startswith(word)]

    def wait(self, word: str, count: int = 1) -> None:
        """Wait until it was told so many lines that begin so."""
        wait_until(lambda: len(self.said(word)) >= count, 30, f"{count} of {word!r} in {self.told}")


@contextlib.contextmanager
def manager(address: str) -> Iterator[Manager]:
    """Listen as systemd does, at a path or, after an @, at an abstract address."""
    listening = Manager(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address.replace("@", "\0", 1))

        def read() -> None:
            while message := channel.recv(4096):
                listening.told.append(message.decode().split("\n"))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield listening
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
                own.sendto(b"", channel.getsockname())
            thread.join()


@dataclass
class Hooks:
    """What notifications reached a server on loopback: the path and body of each, in their order.

    `status` is what it answers from now on; `hold` is waited for before it does.
    """

    url: str = ""
    status: int = 204
    got: list[tuple[str, str]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)

    @property
    def events(self) -> list[str]:
        """The events that webhooks got, and the paths that were pinged."""
        return [json.loads(body)["event"] if body.startswith("{") else path for path, body in self.got]

    @property
    def last(self) -> dict[str, Any]:
        """The newest JSON."""
        return dict(json.loads(self.got[-1][1]))

    def wait_for(self, count: int, seconds: float = 20) -> None:
        wait_until(lambda: len(self.got) >= count, seconds, f"{count} notifications, {self.got} came")


@contextlib.contextmanager
def hook_server() -> Iterator[Hooks]:
    """Run a server that takes notifications."""
    hooks = Hooks()
    hooks.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hooks.got.append((self.path, body.decode()))
            hooks.hold.wait(60)
            self.send_response(hooks.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hooks.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hooks
    finally:
        hooks.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Project:
    """A folder with a jobs.yaml, on which the real program runs."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "jobs.yaml"

    def write(self, text: str) -> None:
        self.config.write_text(text, "utf-8")

    def write_jobs(self, jobs: Mapping[str, Mapping[str, Any]], **top: Any) -> None:
        """Write jobs.yaml (JSON is YAML)."""
        self.write(json.dumps({**top, "jobs": jobs}, ensure_ascii=False, indent=1))

    def live(self, url: str, jobs: Mapping[str, Mapping[str, Any]] | None = None, **top: Any) -> None:
        """Write a live jobs.yaml of one provider `local` at this URL; by default one job `nightly`."""
        entries = jobs or {"nightly": {}}
        filled = {
            name: {
                "task": "Summarise the log",
                "checkpoint": f"checkpoints/{name}.json",
                "provider": "local",
                "schedule": "0 9 * * *",
                **entry,
            }
            for name, entry in entries.items()
        }
        provider = {"base_url": url, "model": "m1", "key": {"env": "LOCAL_KEY"}, "timeout": 30}
        self.write_jobs(filled, live=True, providers={"local": provider | top.pop("provider", {})}, **top)

    def path(self, job: str = "nightly") -> Path:
        return self.folder / "checkpoints" / f"{job}.json"

    def document(self, job: str = "nightly") -> dict[str, Any]:
        """The published document."""
        return dict(json.loads(self.path(job).read_text("utf-8")))

    def rows(self, query: str, *values: object) -> list[Any]:
        """Ask the ledger, without the program."""
        return rows(self.folder / "checkpoints" / ".ledger.sqlite3", query, *values)

    def environ(self, **extra: str) -> dict[str, str]:
        path = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{LEAN}{os.pathsep}{ROOT}"}
        return {**path, **state_home(self.folder.parent), "LOCAL_KEY": "sk-canary-0123456789", **extra}

    def start(self, *arguments: str, environ: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start the program and return at once."""
        command = [*PROGRAM, "--config", str(self.config), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        return subprocess.Popen(command, env=dict(environ or self.environ()), **(pipes | options))

    def run(
        self, *arguments: str, code: int | None = 0, environ: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end; check its exit code unless None, and that no traceback was shown."""
        with self.start(*arguments, environ=environ, **options) as process:
            try:
                out, err = process.communicate(timeout=90)
            except BaseException:
                process.kill()
                raise
        assert "Traceback" not in err + out, err
        assert code is None or process.returncode == code, f"exit {process.returncode}, not {code}: {err}{out}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def status(self, job: str = "nightly") -> dict[str, Any]:
        """One job's row of `status --json`."""
        rows: Sequence[dict[str, Any]] = json.loads(self.run("status", "--json").stdout)["jobs"]
        return next(row for row in rows if row["id"] == job)

"""A project full of secrets, a far side that tells them back in every spelling, and the search for them afterwards."""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import kinds
from tests.canary import files, forms, holders, shows
from tests.kinds import KINDS
from tests.support import Project

# One of each place that a secret comes from; "bad" cannot be carried by a header.
SECRETS = {name: f"sk-canary-{name}-0123456789" for name in ("env", "file", "credential", "header", "hook", "other")}
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "upper": str.upper,
    "quoted": lambda key: urllib.parse.quote(key, safe=""),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "split": lambda key: f"{key[:9]}\n{key[9:]}",
    "coloured": lambda key: f"{key[:9]}\x1b[31m{key[9:]}",
    "late": lambda key: "x" * 280 + key,
    "bearer": lambda key: f"Bearer {key}",
}
SOURCES = ("env", "file", "credential", "header")
STATUSES = (200, 400, 401, 403, 404, 429, 500)
CANARIES = frozenset[bytes]().union(*map(forms, SECRETS.values()), {b"sk-canary", b"SK-CANARY"})
KEPT = ("secret", "credentials/service")  # the files that are a key's own place

CHILD = """#!/bin/sh
{ env; tr '\\0' '\\n' < /proc/$$/environ; } >> child-environ
cat /proc/$$/cmdline /proc/$PPID/cmdline >> child-cmdline
cat >> child-stdin
echo "no $1 for $LOCAL_KEY" >&2
"""


def echoes() -> dict[str, tuple[int, Callable[[str], bytes]]]:
    """Every row of the outcome table, then errors and answers in which the key is told back in each spelling."""
    found: dict[str, tuple[int, Callable[[str], bytes]]] = {}
    for number, kind in enumerate(KINDS.values()):
        found[f"row{number}"] = (kind.status, _rekeyed(kind.raw))
    for status in STATUSES:
        for name, spell in SPELLINGS.items():
            if (status, name) != (200, "coloured"):  # an answer is kept as it came, but for spellings of the key
                found[f"told{status}-{name}"] = (status, _telling(status, spell))
    return found


def _rekeyed(raw: bytes) -> Callable[[str], bytes]:
    return lambda key: raw.replace(json.dumps(kinds.KEY)[1:-1].encode(), key.encode())


def _telling(status: int, spell: Callable[[str], str]) -> Callable[[str], bytes]:
    def body(key: str) -> bytes:
        said = f"you sent {spell(key)}, did you not?"
        told = kinds.reply(content=said) if status == 200 else kinds.error(said, spell(key))
        return json.dumps(told).encode()

    return body


@dataclass
class Far:
    """A provider and a taker of notifications in one; it knows the secret of whoever asks from the request."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    hooks: list[bytes] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def far_side() -> Iterator[Far]:
    """Serve each reply under its own path."""
    far, replies = Far(), echoes()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send(401, json.dumps(kinds.error(f"no {self._key()}")).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            name = self.path.split("/")[1]
            if name == "hook":
                far.hooks.append(body)
                return self._send(500, self.path.encode())
            far.asked.append(name)
            if name == "silent":
                far.stop.wait(60)
                return None
            if name == "torn":  # no HTTP at all: what the client says of it repeats these bytes
                self.wfile.write(f"{self._key()}\r\n\r\n".encode())
                return None
            status, made = replies[name]
            return self._send(status, made(self._key()))

        def _key(self) -> str:
            sent = self.headers["X-Team"] or self.headers["Authorization"] or ""
            return sent.removeprefix("Bearer ")

        def _send(self, status: int, body: bytes) -> None:
            with suppress(OSError):
                self.send_response_only(status)
                for header, value in (("X-Echo", self._key()), ("Location", f"/{self._key()}")):
                    self.send_header(header, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    far.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield far
    finally:
        far.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Secretive(Project):
    """A project whose secrets come from each place, and stand in the program's own environment under two names."""

    extra: dict[str, str] = field(default_factory=dict)

    def environ(self, **extra: str) -> dict[str, str]:
        own = {
            "LOCAL_KEY": SECRETS["env"],
            "COPIED": f"Bearer {SECRETS['env']}",
            "TEAM_KEY": f"Bearer {SECRETS['header']}",
            "CREDENTIALS_DIRECTORY": str(self.folder / "credentials"),
            "HOOK": f"http://127.0.0.1:9/{SECRETS['hook']}",
            "MANDAPI_API_KEY": SECRETS["other"],
        }
        return super().environ(**(own | self.extra | extra))

    def fill(self, far: Far, names: Sequence[str], sources: Sequence[str], **top: Any) -> list[str]:
        """Write jobs.yaml, one job and provider for each reply and source, and the files beside it; name the jobs."""
        (self.folder / "credentials").mkdir(mode=0o700, exist_ok=True)
        for place, source in zip(KEPT, ("file", "credential"), strict=True):
            (self.folder / place).write_text(SECRETS[source])
            (self.folder / place).chmod(0o600)
        (self.folder / "child.sh").write_text(CHILD)
        (self.folder / "child.sh").chmod(0o700)
        self.extra["HOOK"] = f"{far.url}/hook/{SECRETS['hook']}"
        pairs = [(f"{name.lower()}.{source}", name, source) for name, source in zip(names, sources, strict=True)]
        providers = {job: self._provider(far, name, source) for job, name, source in pairs}
        providers |= {f"spare-{source}": self._provider(far, "nowhere", source) for source in SOURCES}  # named at least
        jobs = {job: {"task": "Greet", "checkpoint": f"c/{job}.json", "provider": job} for job, _, _ in pairs}
        for job in jobs.values():
            job |= {"deliver": {"argv": ["./child.sh", "hello"]}}  # type: ignore[dict-item]  # one of two shapes
        channels = [{"argv": ["./child.sh", "told"]}, {"webhook": {"env": "HOOK"}}]
        settings = {"live": True, "notify": channels, "metrics": {"textfile": "numbers.prom"}}
        self.write_jobs(jobs, providers=providers, **(settings | top))
        return list(jobs)

    def _provider(self, far: Far, name: str, source: str) -> dict[str, Any]:
        url = "http://127.0.0.1:9" if name == "nowhere" else f"{far.url}/{name}"
        entry: dict[str, Any] = {"base_url": f"{url}/v1", "model": "m", "timeout": 1 if name == "silent" else 30}
        key = {"env": {"env": "LOCAL_KEY"}, "file": {"file": "secret"}, "credential": {"credential": "service"}}
        if source == "header":
            return entry | {"headers": {"X-Team": {"env": "TEAM_KEY"}}}
        return entry | {"key": key[source]}


def leaks(project: Project, streams: Mapping[str, str], count: Callable[..., None]) -> list[str]:
    """Everything in which a secret stands: streams, files, and the ledgers' rows; each that was looked at counts."""
    found = [name for name, text in streams.items() if shows(text.encode(), CANARIES)]
    count("stream", len(streams))
    for folder in (project.folder, project.folder.parent / "state"):
        found += holders(folder, CANARIES, KEPT)
        count("file", sum(1 for _ in files(folder)))
    for ledger in project.folder.rglob(".ledger.sqlite3"):
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as base:
            for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                rows = base.execute(f"SELECT * FROM {table}").fetchall()
                values = [value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row]
                found += [f"{ledger.name} {table}"] * any(shows(value, CANARIES) for value in values)
                count("ledger row", len(rows))
    return found

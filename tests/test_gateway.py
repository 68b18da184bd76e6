from __future__ import annotations

import gzip
import json
import logging
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from scheduler import certificates, gateway
from scheduler.conversation import encode
from scheduler.errors import AskFailed, ProviderNotReady, RequestRefused
from scheduler.gateway import Exchange, check_url, interrupt_all
from scheduler.job import KeySource, Provider
from scheduler.keys import one_line, read_key
from scheduler.reply import judge_response
from scheduler.state import OUTCOMES
from tests.support import ROOT

KEY = "sk-Canary/7+xQ=zt9\"Lm'w84"
PART = KEY[:15]  # before its quotes, which repr escapes
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "hé"}]}
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
DONE = {
    "id": "c1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fin"}}],
    "usage": USAGE,
}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
Handler = Callable[[socket.socket, "Server"], None]


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower()[:15] == b"content-length:"), 0
    )
    while len(body) < length and (more := connection.recv(65536)):
        body += more
        data += more
    return data


class Server:
    """A loopback server of raw bytes: one handler, which gets each connection in a thread of its own."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self.handler, self.tls = handler, tls
        self.stop = threading.Event()
        self.connections = 0
        self.flooded = 0
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            if self.stop.is_set():
                connection.close()
                return
            self.connections += 1
            self.threads.append(threading.Thread(target=self._handle, args=(connection,)))
            self.threads[-1].start()

    def _handle(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        with connection, suppress(OSError):
            if self.tls:
                with self.tls.wrap_socket(connection, server_side=True) as secure:
                    self.handler(secure, self)
            else:
                self.handler(connection, self)

    def close(self) -> None:
        self.stop.set()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass
        self.listener.close()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(handler: Handler, tls: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(handler, tls))
        return servers[-1]

    yield start
    join_workers()
    for server in servers:
        server.close()


def join_workers() -> None:
    for thread in threading.enumerate():
        if thread.name == "exchange":
            thread.join(5)
            assert not thread.is_alive()


def answer(body: object, status: int = 200, *headers: tuple[str, str]) -> Handler:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def handle(connection: socket.socket, server: Server) -> None:
        server.requests.append(read_request(connection))
        fields = [*headers, ("Content-Length", str(len(raw))), ("Connection", "close")]
        head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields)
        connection.sendall(head.encode("latin-1") + b"\r\n" + raw)

    return handle


def provider(url: str, **options: object) -> Provider:
    return Provider(name="local", base_url=url, **({"timeout": 5.0} | options))  # type: ignore[arg-type]


def ask(url: str, key: str | None = KEY, request: dict | None = None, **options: object) -> dict:
    with Exchange(provider(url, **options), key, os.environ) as exchange:
        return exchange(request or REQUEST)


def failure(url: str, key: str | None = KEY, request: dict | None = None, **options: object) -> AskFailed:
    with pytest.raises(AskFailed) as caught:
        ask(url, key, request, **options)
    assert caught.value.outcome in OUTCOMES
    assert len(caught.value.reason) <= 300
    assert caught.value.reason.isprintable()
    return caught.value


def reply(**message: object) -> dict:
    return {"choices": [{"finish_reason": "stop", "message": {"role": "assistant"} | message}], "usage": USAGE}


def error(message: str, code: object = None) -> dict:
    return {"error": {"message": message, "code": code}}


# ---- the key


def keyed(kind: str, name: str) -> Provider:
    return Provider(name="p", base_url="https://h/v1", key=KeySource(kind=kind, name=name))  # type: ignore[arg-type]


@pytest.mark.keeps_key("k", because="it is the key's own file")
def test_key_comes_trimmed_from_each_place(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(f" {KEY}\r\n")
    assert read_key(keyed("env", "K"), {"K": f"\t{KEY} \n"}) == KEY
    assert read_key(keyed("file", str(tmp_path / "k")), {}) == KEY
    assert read_key(keyed("credential", "k"), {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == KEY
    assert read_key(Provider(name="p", base_url="https://h/v1"), {}) is None


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "missing"),
        (" \n", "blank"),
        ("CANARY\nX: y", "line break"),
        ("CANARY\rX", "line break"),
        ("CAN\x00ARY", "control"),
        ("CAN\tARY", "control"),
        ("CANARYé", "ASCII"),
        ("CANARY\udcff", "ASCII"),
        ("CANARY" * 2000, "8192"),
    ],
)
def test_a_key_that_no_header_can_carry_is_refused_unseen(value: str | None, word: str, tmp_path: Path) -> None:
    path = tmp_path / "k"
    if value is not None:
        path.write_bytes(value.encode("utf-8", "surrogateescape"))
    for source in (keyed("env", "K"), keyed("file", str(path)), keyed("credential", "k")):
        environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)} | ({} if value is None else {"K": value})
        with pytest.raises(ProviderNotReady) as caught:
            read_key(source, environ)
        assert word in str(caught.value) or (value is None and "No such file" in str(caught.value))
        assert "CANARY" not in everything(caught.value)
        assert source.key is not None
        assert source.key.name in str(caught.value)
    if value is not None:
        with pytest.raises(ProviderNotReady) as caught:
            Exchange(provider("https://h/v1"), value, {})
        assert "CANARY" not in everything(caught.value)


def test_a_key_file_must_be_regular_and_is_read_in_part(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("k")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    for name, word in (("link", "symbolic link"), ("fifo", "regular"), (".", "regular"), ("sparse", "8192")):
        with pytest.raises(ProviderNotReady, match=word):
            read_key(keyed("file", str(tmp_path / name)), {})
    for name, environ in (("real", {}), ("../real", {"CREDENTIALS_DIRECTORY": str(tmp_path / "x")}), ("..", {})):
        with pytest.raises(ProviderNotReady, match="CREDENTIALS_DIRECTORY"):
            read_key(keyed("credential", name), environ)


# ---- the address


@pytest.mark.parametrize("base", ["https://h.example/v1", " https://h.example/v1/ ", "https://h.example/v1//"])
def test_the_endpoint_has_no_double_slash(base: str) -> None:
    assert check_url(base, allow_http=False) == "https://h.example/v1/chat/completions"


def test_a_full_endpoint_is_taken_as_it_is() -> None:
    assert check_url("https://h/v1/chat/completions", allow_http=False) == "https://h/v1/chat/completions"


REFUSED_URLS = [
    "",
    "api.example.com/v1",
    "ftp://h/v1",
    "https:///v1",
    "https://u:CANARY@h/v1",
    "https://CANARY@h/v1",
    "https://h/v1?key=CANARY",
    "https://h/v1?",
    "https://h/v1#CANARY",
    "https://h:CANARY/v1",
    "https://h:99999/v1",
    "https://h\\@CANARY/v1",
    "https://h /v1",
    "https://h\n.example/v1",
    "https://169.254.169.254/v1",
    "https://2852039166/v1",
    "https://0xa9fea9fe/v1",
    "https://[fe80::1]/v1",
    "https://[::ffff:169.254.169.254]/v1",
    "http://192.168.1.5/v1",
    "http://h.example/v1",
    "http://localhost.example/v1",
]


@pytest.mark.parametrize("base", REFUSED_URLS)
def test_a_wrong_address_is_refused_in_one_sentence_before_anything_is_counted(base: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        check_url(base, allow_http=False)
    assert "CANARY" not in str(caught.value)
    with pytest.raises(ProviderNotReady) as not_ready:
        Exchange(provider(base), None, {})
    assert "CANARY" not in everything(not_ready.value)


def test_an_address_that_only_the_client_cannot_read_is_refused_before_anything_is_counted() -> None:
    with pytest.raises(ProviderNotReady, match="URL"):
        Exchange(provider("https://\uff11\uff16\uff19.254.1.1/v1"), None, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:8080", "[::1]:80", "localhost", "LOCALHOST:1"])
def test_plain_http_is_for_loopback_or_by_consent(host: str) -> None:
    assert check_url(f"http://{host}/v1", allow_http=False)
    assert check_url("http://192.168.1.5/v1", allow_http=True)


# ---- the request


@pytest.mark.parametrize(
    "content",
    [float("nan"), float("inf"), "\ud800", object(), {1: {2}}, "x" * (8 * 1024 * 1024)],
    ids=["nan", "inf", "surrogate", "object", "set", "8 MiB"],
)
def test_a_request_that_cannot_be_sent_is_refused_and_sends_nothing(content: object, serve) -> None:
    server = serve(answer(DONE))
    request = {"model": "m", "messages": [{"role": "user", "content": content}]}
    with pytest.raises(RequestRefused):
        encode(request)
    with pytest.raises(RequestRefused), Exchange(provider(server.url), KEY, {}) as exchange:
        exchange(request)
    assert server.connections == 0


def test_the_body_is_the_request_without_a_stream_and_without_what_is_no_part_of_it() -> None:
    full = REQUEST | {"tools": [{}], "tool_choice": "none", "max_tokens": 5, "seed": 7}
    assert json.loads(encode(full | {"stream": True, "idempotency_key": "k"})) == full | {"stream": False}
    assert json.loads(encode(REQUEST | {"tools": None})) == REQUEST | {"stream": False}


def headers_of(sent: bytes) -> dict[str, str]:
    """The headers of a request; fails where one stands twice."""
    pairs = [line.split(": ", 1) for line in sent.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]]
    found = {name.lower(): value for name, value in pairs}
    assert len(found) == len(pairs)
    return found


def test_one_post_with_the_right_headers(serve) -> None:
    server = serve(answer(DONE))
    result = ask(server.url + "/")
    assert result == {
        "message": {"role": "assistant", "content": "fin"},
        "finish_reason": "stop",
        "usage": USAGE,
        "id": "c1",
        "billed": "yes",
    }
    (sent,) = server.requests
    head, _, body = sent.partition(b"\r\n\r\n")
    headers = headers_of(sent)
    assert head.decode().startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["accept-encoding"] == "identity"
    assert headers["user-agent"].startswith("resumed/")
    assert json.loads(body) == REQUEST | {"stream": False}


def test_without_a_key_no_authorization_is_sent_even_with_a_netrc(serve, tmp_path, monkeypatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login u password p\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    server = serve(answer(DONE))
    ask(server.url, None)
    ask(server.url, None, proxy="env")
    assert all(b"authorization" not in sent.lower() for sent in server.requests)
    assert len(server.requests) == 2


def test_each_call_is_a_connection_of_its_own(serve) -> None:
    server = serve(answer(DONE))
    with Exchange(provider(server.url), KEY, {}) as exchange:
        assert exchange(REQUEST) == exchange(REQUEST)
    assert server.connections == len(server.requests) == 2


def test_thirty_threads_get_each_their_own_reply(serve) -> None:
    def echo(connection: socket.socket, server: Server) -> None:
        asked = json.loads(read_request(connection).partition(b"\r\n\r\n")[2])
        time.sleep(random.random() / 10)
        answer(reply(content=asked["model"]))(socket_after(connection), server)

    server = serve(echo)
    got: dict[str, str] = {}

    def one(name: str) -> None:
        with Exchange(provider(server.url), KEY, {}) as exchange:
            got[name] = exchange(REQUEST | {"model": name})["message"]["content"]

    threads = [threading.Thread(target=one, args=(f"m{n}",)) for n in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert got == {f"m{n}": f"m{n}" for n in range(30)}


class socket_after:  # noqa: N801  (a connection whose request was read already)
    def __init__(self, connection: socket.socket) -> None:
        self.sendall = connection.sendall

    def recv(self, _: int) -> bytes:
        return b""


# ---- what the provider's entry adds


def variable(name: str) -> KeySource:
    return KeySource(kind="env", name=name)


def test_headers_of_the_entry_are_sent_beside_our_own(serve, monkeypatch) -> None:
    monkeypatch.setenv("AZURE_KEY", " azure-canary \n")
    server = serve(answer(DONE))
    ask(server.url, None, headers=(("X-Title", "Night jobs"), ("api-key", variable("AZURE_KEY"))))
    sent = headers_of(server.requests[0])
    assert (sent["x-title"], sent["api-key"], sent["accept-encoding"]) == ("Night jobs", "azure-canary", "identity")
    assert "authorization" not in sent


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "missing"),
        (" ", "missing or blank"),
        ("CANARY\nX", "line break"),
        ("CANARYé", "ASCII"),
        ("\x01", "control"),
    ],
)
def test_a_variable_that_no_header_can_carry_is_refused_unseen(value: str | None, word: str) -> None:
    entry = provider("https://h/v1", headers=(("api-key", variable("AZURE_KEY")),))
    with pytest.raises(ProviderNotReady, match=f"api-key in the variable AZURE_KEY .*{word}") as caught:
        Exchange(entry, KEY, {} if value is None else {"AZURE_KEY": value})
    assert "CANARY" not in everything(caught.value)


def test_the_key_of_an_attempt_goes_into_the_header_that_the_entry_names(serve) -> None:
    server = serve(answer(DONE))
    request = REQUEST | {"idempotency_key": "nightly.json/1/2"}
    ask(server.url, request=request, idempotency_header="Idempotency-Key")
    ask(server.url, request=request)
    ask(server.url, idempotency_header="Idempotency-Key")
    assert [headers_of(sent).get("idempotency-key") for sent in server.requests] == ["nightly.json/1/2", None, None]
    assert all(b"nightly" not in sent.partition(b"\r\n\r\n")[2] for sent in server.requests)


def called(**fields: object) -> dict:
    """A request that repeats an assistant message with a tool call and these fields of the provider's own."""
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]} | fields
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    return {"model": "m", "messages": [*REQUEST["messages"], message, result]}


def pointing(*place: object) -> dict:
    """What a validator of the pydantic kind answers: its sentence names no field."""
    return {"message": {"detail": [{"loc": ["body", *place], "msg": "Extra inputs are not permitted", "input": "n"}]}}


DROP, KEEP, OMIT = "replay_fields: drop", "replay_fields: keep", "last_attempt: omit"
REASONED = called(reasoning_content="because", x_sig="s")
LAST = REQUEST | {"tool_choice": "none"}
ADVICE_TABLE = [
    # status, body, request, options, what is advised
    (400, error("'reasoning_content' is not allowed"), REASONED, {}, DROP),
    (422, pointing("messages", 1, "assistant", "reasoning_content"), REASONED, {}, DROP),
    (400, error("property 'messages.1.x_sig' is unsupported"), REASONED, {}, DROP),
    (200, error("Unknown field: x_sig", 400), REASONED, {}, DROP),
    (400, error("unknown field x_signature"), REASONED, {}, ""),
    (400, error("messages.1.content, tool_calls, role: wrong"), REASONED, {}, ""),
    (400, error("'reasoning_content' is not allowed"), REQUEST, {}, ""),
    (500, error("'reasoning_content' is not allowed"), REASONED, {}, ""),
    (401, error("reasoning_content"), REASONED, {}, ""),
    (400, error("reasoning_content must be passed back"), called(), {"replay_fields": "drop"}, KEEP),
    (400, error("Missing `thinking` block"), called(), {"replay_fields": "drop"}, KEEP),
    (400, error("unknown field x_sig"), called(), {"replay_fields": "drop"}, ""),
    (400, error("Invalid value for tool_choice: none"), LAST, {}, OMIT),
    (422, pointing("tool_choice"), LAST, {}, OMIT),
    (400, error("Invalid value for tool_choice: auto"), REQUEST | {"tool_choice": "auto"}, {}, ""),
    (
        400,
        error("Use 'max_completion_tokens', not 'max_tokens'"),
        REQUEST | {"max_tokens": 5},
        {},
        "max_completion_tokens",
    ),
    (422, pointing("max_completion_tokens"), REQUEST | {"max_completion_tokens": 5}, {}, "max_tokens"),
    (400, error("bad max_tokens"), REQUEST, {}, ""),
]


@pytest.mark.parametrize(("status", "body", "request_", "options", "advised"), ADVICE_TABLE)
def test_a_request_that_is_called_wrong_is_answered_with_the_option_to_change(
    status: int, body: dict, request_: dict, options: dict, advised: str, serve
) -> None:
    failed = failure(serve(answer(body, status)).url, request=request_, **options)
    ending = f" (see the provider's option {advised})"
    assert failed.reason.endswith(ending) if advised else "option" not in failed.reason


def test_advice_survives_a_long_sentence_and_stands_on_the_same_line(serve) -> None:
    told = error("reasoning_content\n" + "x " * 400)
    reason = failure(serve(answer(told, 400)).url, request=REASONED).reason
    assert len(reason) == 300
    assert reason.startswith("400: reasoning_content x x")
    assert reason.endswith(f"… (see the provider's option {DROP})")


# ---- outcomes


def judged(body: object) -> dict:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = judge_response(200, [], raw)
    assert isinstance(found, dict)
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    return found


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "fin"}, {"content": "fin"}),
        ({"role": "system", "content": "fin"}, {"content": "fin"}),
        ({"content": ""}, {"content": ""}),
        ({}, {"content": None}),
        ({"content": "a", "tool_calls": None}, {"content": "a"}),
        ({"content": "a", "tool_calls": []}, {"content": "a"}),
        ({"content": None, "tool_calls": [CALL]}, {"content": None, "tool_calls": [CALL]}),
        ({"content": "a", "refusal": "no"}, {"content": "a", "refusal": "no"}),
        ({"content": None, "reasoning_content": "step é\n"}, {"content": None, "reasoning_content": "step é\n"}),
        ({"content": [{"type": "text", "text": "f"}, "i", {"type": "text", "text": "n"}]}, {"content": "fin"}),
        ({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "4"}]}, {"content": "4"}),
        ({"content": []}, {"content": None}),
        ({"content": "a", "function_call": {"name": ""}}, {"content": "a", "function_call": {"name": ""}}),
    ],
)
def test_a_message_keeps_what_the_provider_sent(message: dict, expected: dict) -> None:
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert judged(body)["message"] == expected | {"role": "assistant"}


def test_what_cannot_be_stored_is_made_storable_rather_than_lost() -> None:
    found = judged(b'{"choices":[{"message":{"content":"fin\\ud83d","score":1e400}}],"usage":{"prompt_tokens":1e400}}')
    assert found["message"] == {"role": "assistant", "content": "fin?", "score": None}
    assert found["usage"] is None
    for padding in (b"\xef\xbb\xbf", b"\n" * 100):
        assert judged(padding + json.dumps(DONE).encode())["message"]["content"] == "fin"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (USAGE | {"prompt_tokens_details": {"cached_tokens": None}}, USAGE),
        ({"prompt_tokens": 9, "completion_tokens": 3}, USAGE),
        ({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": None}, USAGE),
        ({"prompt_tokens": 0, "completion_tokens": 0}, dict.fromkeys(USAGE, 0)),
        (None, None),
        ([], None),
        ({}, None),
        (USAGE | {"prompt_tokens": None}, None),
        (USAGE | {"prompt_tokens": "12"}, None),
        (USAGE | {"completion_tokens": -1}, None),
        (USAGE | {"completion_tokens": 3.0}, None),
        (USAGE | {"total_tokens": True}, None),
        (USAGE | {"completion_tokens": float("inf")}, None),
        (USAGE | {"total_tokens": 10**300}, None),
    ],
)
def test_odd_usage_is_unknown_and_never_zero(usage: object, expected: object) -> None:
    raw = json.dumps(DONE | {"usage": usage}).replace("Infinity", "1e999").encode()
    found = judged(raw)
    assert found["usage"] == expected
    assert found["billed"] == ("yes" if expected else "maybe")
    assert found["message"]["content"] == "fin"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("c1", "c1"), (None, None), (7, None), ("", None), ("a\x1b[1m\nb", "a[1mb"), ("x" * 999, "x" * 200)],
)
def test_the_id_is_a_short_printable_text_or_none(value: object, expected: object) -> None:
    assert judged(DONE | {"id": value})["id"] == expected


def date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (["30"], 30, 30),
        (["0"], 0, 0),
        ([" 86400 "], 86400, 86400),
        (["1.5"], 1.5, 1.5),
        (["in 100 s"], 98, 100),
        (["soon", "7"], 7, 7),
        (["-5", date(-100), "5", "9"], 5, 5),
    ],
)
def test_retry_after_is_read(values: list[str], low: float, high: float) -> None:
    failed = judge_response(
        429, [("Retry-After", date(100) if value == "in 100 s" else value) for value in values], b""
    )
    assert isinstance(failed, AskFailed)
    assert failed.retry_after is not None
    assert low <= failed.retry_after <= high
    assert "ignored" not in failed.reason


@pytest.mark.parametrize(
    "value",
    [
        *("-5", "99999999", "86401", "soon", "", "1e9", "nan", "٣", "9" * 5000),
        *(pytest.param(date(-100), id="past"), pytest.param(date(90_000), id="far")),
        *("Wed, 99 Foo 2026", "Wed, 21 Oct 99999 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 +9999", "1 2 3 4 5 6 7 8"),
    ],
)
def test_an_unusable_retry_after_is_ignored_with_a_word(value: str) -> None:
    failed = judge_response(429, [("retry-after", value)], b"")
    assert isinstance(failed, AskFailed)
    assert failed.retry_after is None
    assert "ignored" in failed.reason


def test_an_outage_may_name_its_end_and_other_failures_may_not() -> None:
    for status, expected in ((503, 60), (500, 60), (400, None), (401, None), (413, None)):
        failed = judge_response(status, [("Retry-After", "60")], b"")
        assert isinstance(failed, AskFailed)
        assert failed.retry_after == expected


def test_retry_after_reaches_the_caller_and_nobody_sleeps(serve) -> None:
    server = serve(answer(b"", 429, ("Retry-After", "soon"), ("Retry-After", "3600")))
    start = time.monotonic()
    assert failure(server.url).retry_after == 3600
    assert time.monotonic() - start < 2
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_named_and_never_followed(status: int, serve) -> None:
    thief = serve(answer(DONE))
    server = serve(answer(b"", status, ("Location", thief.url + "/steal")))
    failed = failure(server.url)
    assert (failed.outcome, failed.rests) == ("http_error", "none")
    assert failed.reason.startswith(f"{status}: ")
    assert thief.url + "/steal" in failed.reason
    assert (thief.connections, len(server.requests)) == (0, 1)


def test_a_redirect_to_nowhere_readable_is_a_failure_too(serve) -> None:
    server = serve(answer(b"", 302, ("Location", "http://[bad")))
    assert failure(server.url).outcome in ("http_error", "malformed_reply")


# ---- the deadline

DEADLINE = 0.5


def never(connection: socket.socket, server: Server) -> None:
    server.requests.append(read_request(connection))
    server.stop.wait(5)


def deaf(connection: socket.socket, server: Server) -> None:
    server.stop.wait(5)


def trickle(start: bytes, drop: bytes) -> Handler:
    def handle(connection: socket.socket, server: Server) -> None:
        server.requests.append(read_request(connection))
        connection.sendall(start)
        while not server.stop.wait(0.05):
            connection.sendall(drop)

    return handle


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SLOW = {
    "silent": never,
    "deaf": deaf,
    "headers by bytes": trickle(HEAD + b"X-Slow: ", b"a"),
    "headers by lines": trickle(HEAD, b"X-A: b\r\n"),
    "informational": trickle(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "body": trickle(HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "chunks": trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "trailers": trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\n", b"X-A: b\r\n"),
}


def timed_out(url: str, **options: object) -> AskFailed:
    start = time.monotonic()
    failed = failure(url, timeout=DEADLINE, **options)
    assert DEADLINE <= time.monotonic() - start + 0.02 < DEADLINE + 1
    assert (failed.outcome, failed.rests) == ("timeout", "none")
    assert "0.5 s" in failed.reason
    return failed


@pytest.mark.parametrize("handler", SLOW.values(), ids=SLOW)
def test_one_deadline_covers_the_whole_exchange(handler: Handler, serve) -> None:
    server = serve(handler)
    assert timed_out(server.url).billed == "maybe"
    join_workers()  # the connection is cut: nothing stays behind
    assert server.connections == 1


def test_a_request_that_nobody_reads_ends_at_the_deadline(serve) -> None:
    server = serve(deaf)
    start = time.monotonic()
    with Exchange(provider(server.url, timeout=DEADLINE), KEY, {}) as exchange, pytest.raises(AskFailed) as caught:
        exchange({"model": "m", "messages": ["x" * 8_000_000]})
    assert caught.value.outcome == "timeout"
    assert time.monotonic() - start < DEADLINE + 1
    join_workers()


def test_a_connection_that_broke_while_this_process_was_stopped_past_the_deadline_is_a_timeout(
    serve, monkeypatch
) -> None:
    class Earlier(threading.Thread):
        def start(self) -> None:
            """Run to the end before anybody looks at the clock, as if it were the first to go on."""
            self.run()

    server = serve(deaf)
    monkeypatch.setattr(gateway, "threading", SimpleNamespace(Thread=Earlier, RLock=threading.RLock))
    with Exchange(provider(server.url, timeout=DEADLINE), KEY, {}) as exchange, pytest.raises(AskFailed) as caught:
        exchange({"model": "m", "messages": []})
    assert (caught.value.outcome, caught.value.billed, caught.value.rests) == ("timeout", "maybe", "none")


def test_the_deadline_covers_a_tls_handshake_that_never_answers(serve) -> None:
    server = serve(deaf)
    assert timed_out(f"https://127.0.0.1:{server.port}/v1").billed == "no"
    join_workers()
    assert server.connections == 1


@pytest.mark.parametrize("name", ["silent", "headers by bytes", "body"])
def test_the_deadline_covers_tls_too(name: str, serve, tls) -> None:
    server = serve(SLOW[name], tls)
    assert timed_out(server.url).billed == "maybe"
    join_workers()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_late_dns_answer_sends_nothing(scheme: str, serve, monkeypatch) -> None:
    received: list[bytes] = []

    def listen(connection: socket.socket, server: Server) -> None:
        received.append(connection.recv(100))

    server = serve(listen)
    resolve = socket.getaddrinfo

    def slow(*args: object, **options: object) -> object:
        time.sleep(DEADLINE + 0.5)
        return resolve(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert timed_out(f"{scheme}://127.0.0.1:{server.port}/v1").billed == "no"
    join_workers()
    monkeypatch.undo()
    server.close()
    assert b"".join(received) == b""


# ---- size


def flood(head: bytes, drop: bytes, times: int) -> Handler:
    def handle(connection: socket.socket, server: Server) -> None:
        server.requests.append(read_request(connection))
        connection.sendall(head)
        for _ in range(times):
            connection.sendall(drop)
            server.flooded += len(drop)

    return handle


MIB = 1_048_576


def bomb() -> bytes:
    """200 MiB of zeros, compressed."""
    pack = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(pack.compress(bytes(MIB)) for _ in range(200)), pack.flush()])


BOMB = answer(bomb(), 200, ("Content-Encoding", "gzip"))
HUGE = flood(HEAD + b"Content-Length: 209715200\r\n\r\n", b" " * MIB, 200)


@pytest.mark.parametrize(
    ("handler", "word"),
    [
        (HUGE, "1048576"),
        (flood(HEAD + b"\r\n", b'{"a":1}' * 10_000, 1000), "1048576"),
        (flood(HEAD, b"X-A: b\r\n" * 1000, 10_000), "HTTP"),
        (flood(HEAD + b"X-A: ", b"b" * 65536, 1000), "HTTP"),
        (BOMB, "compressed (gzip)"),
        (answer(gzip.compress(json.dumps(DONE).encode()), 200, ("Content-Encoding", "gzip")), "compressed (gzip)"),
        (answer(b"SSH-2.0-x\r\n" * 3, 200, ("Content-Encoding", "br")), "compressed (br)"),
        (flood(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"", 0), "HTTP"),
    ],
    ids=["200 MiB", "no length", "endless headers", "endless header", "bomb", "gzip", "br", "not HTTP"],
)
def test_a_reply_without_measure_ends_early_as_malformed(handler: Handler, word: str, serve) -> None:
    server = serve(handler)
    start = time.monotonic()
    failed = failure(server.url, timeout=20.0)
    assert time.monotonic() - start < 3
    assert server.flooded < 20_000_000  # what fits into the buffers of the system, and no more
    assert failed.outcome == "malformed_reply"
    assert word in failed.reason
    assert len(server.requests) == 1


ATTACKS: dict[str, tuple[Handler, float, str]] = {
    # the other side, the deadline, the outcome
    "header trickle": (SLOW["headers by bytes"], DEADLINE, "timeout"),
    "header line trickle": (SLOW["headers by lines"], DEADLINE, "timeout"),
    "chunk trickle": (SLOW["chunks"], DEADLINE, "timeout"),
    "endless headers": (flood(HEAD, b"X-A: b\r\n" * 1000, 30_000), 20, "malformed_reply"),
    "endless header": (flood(HEAD + b"X-A: ", b"b" * 65536, 4000), 20, "malformed_reply"),
    "gzip bomb": (BOMB, 20, "malformed_reply"),
    "200 MiB": (HUGE, 20, "malformed_reply"),
    "200 MiB without length": (flood(HEAD + b"\r\n", b" " * MIB, 200), 20, "malformed_reply"),
    "200 MiB in one chunk": (
        flood(HEAD + b"Transfer-Encoding: chunked\r\n\r\nc800000\r\n", b" " * MIB, 200),
        20,
        "malformed_reply",
    ),
    "200 MiB of an error": (flood(b"HTTP/1.1 500 X\r\n\r\n", b"<p>" + b" " * MIB, 200), 20, "http_error"),
    "nested": (answer(b"[" * MIB), 20, "malformed_reply"),
}
MEASURED = """
import json, sys, time, httpx
from scheduler.errors import AskFailed
from scheduler.gateway import Exchange
from scheduler.job import Provider

def peak():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

attacks, control = json.loads(sys.argv[1])
found = {}
for name, (url, deadline) in attacks.items():
    start = time.monotonic()
    try:
        Exchange(Provider(name="p", base_url=url, timeout=deadline), None, {})({"model": "m", "messages": []})
    except AskFailed as failed:
        found[name] = (failed.outcome, time.monotonic() - start, peak())
held = httpx.post(control, timeout=60).content
print(json.dumps([found, peak()]))
"""


def test_no_reply_takes_more_than_its_deadline_and_150_megabytes(serve) -> None:
    urls = {name: (serve(handler).url, deadline) for name, (handler, deadline, _) in ATTACKS.items()}
    plain = flood(b"HTTP/1.1 200 OK\r\nContent-Length: 209715200\r\n\r\n", b" " * MIB, 200)
    command = [sys.executable, "-c", MEASURED, json.dumps([urls, serve(plain).url])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.stderr == ""
    found, control = json.loads(done.stdout)
    assert {name: outcome for name, (outcome, *_) in found.items()} == {
        name: outcome for name, (*_, outcome) in ATTACKS.items()
    }
    for name, (_, seconds, megabytes) in found.items():
        assert seconds < ATTACKS[name][1] + 1, name
        assert megabytes < 150, name
    assert control > 200  # a reply that is held as a whole is seen by the same measure


def test_the_status_decides_even_where_the_body_is_compressed_or_huge(serve) -> None:
    assert failure(serve(answer(b"no gzip", 401, ("Content-Encoding", "gzip"))).url).outcome == "refused"
    assert failure(serve(answer(b"x" * 2_000_000, 429)).url).outcome == "rate_limited"


def test_identity_is_no_compression(serve) -> None:
    assert ask(serve(answer(DONE, 200, ("Content-Encoding", "Identity"))).url)["id"] == "c1"


# ---- broken connections


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def breaking(before: bytes | None, *, rough: bool) -> Handler:
    def handle(connection: socket.socket, server: Server) -> None:
        if before is not None:
            server.requests.append(read_request(connection))
            connection.sendall(before)
        if rough:
            reset(connection)

    return handle


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize(
    "before",
    [
        None,
        b"",
        b"HTTP/1.1 2",
        HEAD,
        HEAD + b"Content-Length: 99\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9",
    ],
)
def test_a_broken_connection_may_be_billed_and_is_not_tried_again(before: bytes | None, rough: bool, serve) -> None:
    server = serve(breaking(before, rough=rough))
    failed = failure(server.url)
    assert (failed.outcome, failed.rests) == ("connect_error", "outage")
    assert failed.billed == "maybe" or before is None  # nothing was read yet: the reset may win over the request
    assert server.connections == 1


# CPython's ssl leaves a socket to the collector where the reset wins over getpeername() in wrap_socket().
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
@pytest.mark.parametrize("before", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x03\x00"])
@pytest.mark.parametrize("rough", [False, True])
def test_a_connection_that_breaks_in_the_tls_handshake_is_not_billed(before: bytes | None, rough: bool, serve) -> None:
    def handle(connection: socket.socket, server: Server) -> None:
        if before is not None:
            connection.recv(65536)
            connection.sendall(before)
        if rough:
            reset(connection)

    server = serve(handle)
    failed = failure(f"https://127.0.0.1:{server.port}/v1")
    assert (failed.outcome, failed.rests, failed.billed) == ("connect_error", "outage", "no")
    assert server.connections == 1


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("before", [None, b"", HEAD, HEAD + b"Content-Length: 99\r\n\r\n{"])
def test_a_connection_that_breaks_under_tls_may_be_billed(before: bytes | None, rough: bool, serve, tls) -> None:
    server = serve(breaking(before, rough=rough), tls)
    failed = failure(server.url)
    assert (failed.outcome, failed.rests) == ("connect_error", "outage")
    assert failed.billed == "maybe" or before is None
    assert server.connections == 1


def test_no_connection_is_not_billed(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    refused = failure(f"http://127.0.0.1:{port}/v1")

    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    nameless = failure("https://nowhere.example/v1")
    for failed in (refused, nameless):
        assert (failed.outcome, failed.rests, failed.billed) == ("connect_error", "outage", "no")
    assert "Name or service not known" in nameless.reason


# ---- TLS


def make_certificate(path: Path) -> None:
    """Write a certificate that certifies itself, and its key into key.pem beside it."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(path.with_name("key.pem")), "-out", str(path)),
        ],
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("tls") / "both.pem"
    make_certificate(path.with_name("cert.pem"))
    path.write_bytes(path.with_name("key.pem").read_bytes() + path.with_name("cert.pem").read_bytes())
    return path


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def tls(certificate: Path, monkeypatch) -> Iterator[ssl.SSLContext]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("cert.pem")))
    gateway._tls_context.cache_clear()
    yield server_context(certificate)
    gateway._tls_context.cache_clear()


def test_a_self_signed_server_gets_no_request(serve, certificate: Path) -> None:
    server = serve(answer(DONE), server_context(certificate))
    failed = failure(server.url)
    assert (failed.outcome, failed.billed) == ("connect_error", "no")
    assert "self-signed" in failed.reason or "self signed" in failed.reason
    assert server.requests == []


def test_a_trusted_server_is_asked_and_the_context_is_made_once(serve, tls) -> None:
    server = serve(answer(DONE), tls)
    for _ in range(3):
        assert ask(server.url)["id"] == "c1"
    assert gateway._tls_context.cache_info().misses == 1


def test_an_unreadable_certificate_file_is_named_before_anything_is_counted(monkeypatch, tls) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(ProviderNotReady, match="SSL_CERT_FILE"):
        Exchange(provider("https://h.example/v1"), KEY, os.environ)
    assert Exchange(provider("http://127.0.0.1:9/v1"), KEY, os.environ).close() is None


@pytest.fixture
def own_ca(certificate: Path, tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_bytes("# issued by é\n".encode() + certificate.with_name("cert.pem").read_bytes())
    return path


def test_certificates_are_checked_against_the_file_of_the_entry_alone(serve, certificate, own_ca, tls) -> None:
    server = serve(answer(DONE), server_context(certificate))
    assert ask(server.url, ca_file=own_ca)["id"] == "c1"
    other = own_ca.with_name("other.pem")
    make_certificate(other)
    failed = failure(server.url, ca_file=other)  # though SSL_CERT_FILE would trust the server
    assert (failed.outcome, failed.billed) == ("connect_error", "no")
    assert "certificate verify failed" in failed.reason.lower()
    assert len(server.requests) == 1


def test_a_renewed_file_of_certificates_is_taken_without_a_restart_and_read_once(serve, certificate, own_ca) -> None:
    server = serve(answer(DONE), server_context(certificate))
    good = own_ca.read_bytes()
    make_certificate(own_ca)
    assert failure(server.url, ca_file=own_ca).outcome == "connect_error"
    own_ca.with_name("new").write_bytes(good)
    os.replace(own_ca.with_name("new"), own_ca)
    assert ask(server.url, ca_file=own_ca)["id"] == "c1"
    made = {id(certificates.pinned_context(own_ca)) for _ in range(1000)}
    assert len(made) == 1
    own_ca.write_bytes(good + good)
    assert id(certificates.pinned_context(own_ca)) not in made
    assert sum(path == own_ca for path in certificates._contexts) == 1


BAD_CA_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "No such file"),
    "folder": (Path.mkdir, "Is a directory"),
    "FIFO": (os.mkfifo, "no regular file"),
    "empty": (Path.touch, "holds no certificate in PEM form"),
    "other text": (lambda path: path.write_text("hello"), "holds no certificate in PEM form"),
    "DER": (lambda path: path.write_bytes(b"\x30\x82\x01\x0a\xff"), "holds no certificate in PEM form"),
    "a key": (
        lambda path: path.write_text("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"),
        "no certificate",
    ),
    "broken": (
        lambda path: path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        "can be read",
    ),
    "cut": (lambda path: path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n"), "no certificate"),
    "huge": (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "at most 4194304 bytes"),
}


@pytest.mark.parametrize("case", BAD_CA_FILES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_bad_file_of_certificates_is_named_before_anything_is_counted(case: str, scheme: str, tmp_path: Path) -> None:
    make, words = BAD_CA_FILES[case]
    path = tmp_path / "ca.pem"
    make(path)
    with pytest.raises(ProviderNotReady) as caught:
        Exchange(provider(f"{scheme}://127.0.0.1:9/v1", ca_file=path), KEY, {})
    assert f"ca_file: {path}: it " in str(caught.value)
    assert words in str(caught.value)


# ---- proxies

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def environ(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


def test_a_proxy_of_the_environment_is_used_only_by_consent(serve, environ) -> None:
    proxy, server = serve(answer(DONE | {"id": "proxy"})), serve(answer(DONE))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        environ(name, f"http://127.0.0.1:{proxy.port}")
    assert ask(server.url)["id"] == "c1"
    assert proxy.connections == 0
    assert ask(server.url, proxy="env")["id"] == "proxy"
    assert proxy.requests[0].startswith(b"POST http://127.0.0.1:")


def tunnel(connection: socket.socket, server: Server) -> None:
    """Open the tunnel that a CONNECT asks for, and carry bytes both ways until both sides are silent."""
    server.requests.append(read_request(connection))
    port = int(server.requests[-1].split()[1].rpartition(b":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as onward:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        back = threading.Thread(target=carry, args=(onward, connection))
        back.start()
        carry(connection, onward)
        back.join(5)


def carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_the_entry_s_certificates_count_behind_a_proxy_too(serve, environ, certificate, own_ca) -> None:
    server, proxy = serve(answer(DONE), server_context(certificate)), serve(tunnel)
    environ("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    assert ask(server.url, proxy="env", ca_file=own_ca)["id"] == "c1"
    assert proxy.requests[0].startswith(b"CONNECT 127.0.0.1:")
    assert KEY.encode() not in proxy.requests[0]
    assert "certificate verify failed" in failure(server.url, proxy="env").reason.lower()
    assert len(server.requests) == 1


def test_a_proxy_that_opens_no_tunnel_is_not_billed_and_sees_no_key(serve, environ) -> None:
    proxy = serve(answer(b"", 407))
    environ("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    failed = failure("https://h.example/v1", proxy="env")
    assert (failed.outcome, failed.billed) == ("connect_error", "no")
    assert proxy.requests[0].startswith(b"CONNECT h.example:443")
    assert KEY.encode() not in proxy.requests[0]


def test_the_deadline_covers_a_proxy_that_never_answers(serve, environ) -> None:
    proxy = serve(never)
    environ("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    assert timed_out("https://h.example/v1", proxy="env").billed == "no"
    join_workers()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://u:CANARY@127.0.0.1:7890"),
        ("ALL_PROXY", "socks://u:CANARY@127.0.0.1:7890"),
        ("all_proxy", "gopher://CANARY"),
        ("HTTPS_PROXY", "http://h:CANARY"),
        ("NO_PROXY", "fe80::/10,CANARY:1:::"),
    ],
)
def test_an_unusable_proxy_is_named_before_anything_is_counted(name: str, value: str, environ) -> None:
    environ(name, value)
    with pytest.raises(ProviderNotReady, match=name) as caught:
        Exchange(provider("https://h.example/v1", proxy="env"), KEY, os.environ)
    assert "CANARY" not in everything(caught.value)
    Exchange(provider("https://h.example/v1"), KEY, os.environ).close()


def test_a_library_that_cannot_be_loaded_is_not_called_a_proxy(monkeypatch: pytest.MonkeyPatch, environ) -> None:
    monkeypatch.setitem(sys.modules, "httpcore", None)  # as where its file cannot be read
    with pytest.raises(ProviderNotReady, match=r"no client for it could be made \(ModuleNotFoundError\)"):
        Exchange(provider("https://h.example/v1"), KEY, {})


# ---- stopping


def test_interrupt_all_ends_every_exchange_in_flight(serve) -> None:
    server = serve(never)
    caught: list[AskFailed] = []

    def one() -> None:
        try:
            ask(server.url)
        except AskFailed as failed:
            caught.append(failed)

    threads = [threading.Thread(target=one) for _ in range(5)]
    for thread in threads:
        thread.start()
    while len(server.requests) < 5:
        time.sleep(0.01)
    start = time.monotonic()
    assert interrupt_all() == 5
    for thread in threads:
        thread.join(5)
    join_workers()
    assert time.monotonic() - start < 1
    assert {(f.outcome, f.reason, f.billed) for f in caught} == {
        ("interrupted", "stopped while waiting for the reply", "maybe")
    }
    assert len(caught) == 5
    assert interrupt_all() == 0


def test_a_signal_handler_may_interrupt_the_thread_that_waits(serve) -> None:
    server = serve(never)
    before = signal.signal(signal.SIGALRM, lambda *_: interrupt_all())
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        assert failure(server.url).outcome == "interrupted"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- the key stays where it belongs


def everything(raised: BaseException) -> str:
    """All that a handler could print of an exception, its causes and contexts included."""
    texts, seen, queue = [], set(), [raised]
    while queue:
        one = queue.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        texts += [str(one), repr(one), repr(one.args), repr(vars(one)), *traceback.format_exception(one)]
        queue += [one.__cause__, one.__context__]  # type: ignore[list-item]
    return "\n".join(texts)


SPELLINGS = {
    "plain": KEY,
    "quoted": urllib.parse.quote(KEY, safe=""),
    "lower": KEY.lower(),
    "escaped": json.dumps(KEY).replace("/", "\\/")[1:-1],
    "repr": repr(KEY.encode())[2:-1],
    "base64": b64encode(KEY.encode()).decode(),
    "split": KEY[:9] + "\n" + KEY[9:],
    "hidden": KEY[:9] + "\u200b" + KEY[9:],
    "coloured": KEY[:9] + "\x1b[31m" + KEY[9:],
    "late": "x" * 290 + KEY,
}


@pytest.mark.parametrize("told", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize("shape", ["json", "text", "location"])
def test_no_echo_of_the_key_reaches_a_reason(told: str, shape: str, serve) -> None:
    handlers = {
        "json": answer(error(f"Bearer {told} is wrong"), 500),
        "text": answer(f"Bearer {told} is wrong".encode(), 401),
        "location": answer(b"", 307, ("Location", f"/?{told if told.isprintable() else KEY}")),
    }
    failed = failure(serve(handlers[shape]).url)
    shown = everything(failed).lower()
    assert "***" in failed.reason or "…" in failed.reason
    for spelling in (KEY[:12], KEY[9:], *list(SPELLINGS.values())[:6]):
        assert spelling.lower() not in shown
    assert failed.__context__ is None
    assert failed.__cause__ is None


@pytest.mark.parametrize(
    "handler",
    [
        breaking(None, rough=True),
        breaking(b"", rough=False),
        breaking(b"\x00" + KEY.encode() + b"\r\n\r\n", rough=False),
        flood(HEAD + b"X-A: " + KEY.encode() + b"\x00\r\n\r\n", b"", 0),
        never,
        answer(KEY.encode()),
    ],
)
def test_no_failure_shows_the_key(handler: Handler, serve) -> None:
    failed = failure(serve(handler).url, timeout=DEADLINE)
    assert PART not in everything(failed)
    assert failed.__context__ is None


@pytest.mark.parametrize("told", ["Bearer {}", "{}", "{}".join("<>")])
def test_a_header_from_a_variable_is_kept_out_of_reasons_and_replies_like_the_key(told, serve, monkeypatch) -> None:
    secret = "header-canary-1234567"
    monkeypatch.setenv("H", f"Bearer {secret}")
    options = {"headers": (("X-Auth", variable("H")), ("X-Title", "Night"))}
    echo = told.format(secret) + f" {KEY} Night"
    failed = failure(serve(answer(error(echo), 500)).url, **options)
    found = ask(serve(answer(reply(content=echo, tool_calls=[CALL | {"id": echo}]))).url, **options)
    for text in (everything(failed), repr(found)):
        assert "canary" not in text.lower()
        assert "*** Night" in text
    quoted = failure(serve(answer(error(b64encode(secret.encode()).decode()), 500)).url, **options)
    assert quoted.reason == "500: ***"


def test_a_key_that_a_reply_repeats_is_taken_out_of_it(serve) -> None:
    long, short = "k" * 20, "ollama"
    assert ask(serve(answer(reply(content=f"<{long}>"))).url, long)["message"]["content"] == "<***>"
    assert ask(serve(answer(reply(content=f"<{short}>"))).url, short)["message"]["content"] == "<ollama>"


def test_nothing_is_logged_of_the_key(serve, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("root").debug("heard")
    server = serve(answer(DONE, 200, ("X-Echo", KEY)))
    ask(server.url)
    assert "heard" in caplog.text
    assert PART not in caplog.text
    assert PART not in repr(Exchange(provider(server.url), KEY, {}).close)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\r\nb\tc", "a b c"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("a\u202eb\u200b\u2066c\U000e0041", "abc"),
        ("a\u2028b\xa0c\x00", "a b c"),
        ("x" * 301, "x" * 299 + "…"),
        ("é" * 300, "é" * 300),
    ],
)
def test_a_reason_is_one_short_plain_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_an_unforeseen_exception_becomes_a_failure(serve, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError(KEY)

    monkeypatch.setattr(gateway, "judge_response", broken)
    failed = failure(serve(answer(DONE)).url)
    assert (failed.outcome, failed.billed) == ("error", "maybe")
    assert failed.reason.startswith("KeyError")
    assert PART not in everything(failed)


def test_a_process_out_of_threads_is_told_and_not_billed(serve, monkeypatch) -> None:
    def no_thread(_: object) -> None:
        raise RuntimeError("can't start new thread")

    server = serve(answer(DONE))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    failed = failure(server.url)
    monkeypatch.undo()
    assert (failed.outcome, failed.billed, server.connections) == ("error", "no", 0)


def test_a_key_that_json_escapes_hid_is_taken_out_of_the_reply(serve) -> None:
    key = "sk/live/AbCdEfGh+IjKl"
    echo = json.dumps(reply(content=key)).replace("sk/live", "\\u0073k\\/live")
    assert key not in echo
    assert ask(serve(answer(echo.encode())).url, key)["message"]["content"] == "***"


def test_a_key_inside_the_json_text_of_arguments_is_taken_out_of_the_reply(serve) -> None:
    for spelled in (json.dumps({"key": KEY}), json.dumps({"key": KEY}).replace("/", "\\/")):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": spelled}}
        found = ask(serve(answer(reply(content=None, tool_calls=[call]))).url)
        assert json.loads(found["message"]["tool_calls"][0]["function"]["arguments"]) == {"key": "***"}


@pytest.mark.parametrize("secret", ["Bearer abcdefghijklmnop", "a\\b\\c\\defghijklmnopq", "sk live key of sixteen"])
def test_no_told_text_makes_the_search_for_a_secret_long(secret: str) -> None:
    start = time.process_time()
    for filler in (" \\", "\\", " ", "\\ \\"):
        one_line(secret[:6] + filler * 300_000, [secret])
    assert time.process_time() - start < 10  # well below one second; a quadratic search takes hours
    assert one_line(f"it is {secret}, and so on", [secret]) == "it is ***, and so on"
    assert one_line(f"it is {json.dumps(secret)[1:-1]} here", [secret]) == "it is *** here"


def test_a_secret_in_another_spelling_is_taken_out_of_the_reply(serve) -> None:
    quoted = (urllib.parse.quote(KEY, safe=""), urllib.parse.quote(KEY), b64encode(KEY.encode()).decode())
    for spelled in (*quoted, KEY.upper(), f"{KEY[:9]}\n{KEY[9:]}"):
        assert ask(serve(answer(reply(content=f"it is {spelled}"))).url)["message"]["content"] == "it is ***"

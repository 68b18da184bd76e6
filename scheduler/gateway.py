"""One HTTP exchange with one total deadline: the only door to a provider."""

from __future__ import annotations

import functools
import logging
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

import httpx

from scheduler.address import check_base_url
from scheduler.advice import advise
from scheduler.certificates import pinned_context
from scheduler.conversation import encode
from scheduler.errors import AskFailed, ProviderNotReady
from scheduler.extras import header_fault
from scheduler.job import Provider
from scheduler.keys import LINE_LIMIT, list_secrets, one_line, read_headers, without
from scheduler.owner import program_version
from scheduler.reply import MODELS_LIMIT, REPLY_LIMIT, judge_models, judge_response

MODELS_SECONDS = 10.0

_CLOSED = re.compile("disconnected|closed")

for _name in ("httpx", "httpcore"):  # at DEBUG they print a reply's headers, which may repeat the key
    logging.getLogger(_name).setLevel(logging.WARNING)


def check_url(base_url: str, *, allow_http: bool) -> str:
    """Return the endpoint `<base_url>/chat/completions`. Raises ValueError as `address.check_base_url` does."""
    base = base_url.strip()
    check_base_url(base, allow_http)
    return base.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"


class _Over(Exception):
    """The call ended before it could send."""


class Call:
    """One request in flight, and how to cut it.

    A SimpleQueue and an RLock, so that a signal handler may interrupt the very thread that waits.
    """

    def __init__(self) -> None:
        self.mailbox: queue.SimpleQueue[Any] = queue.SimpleQueue()  # what was received, or an AskFailed
        self.sent = False
        self._over = False
        self._wire: socket.socket | None = None
        self._lock = threading.RLock()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Follow httpcore's events; raise _Over where the connection comes after the end of the call."""
        with self._lock:
            if event.endswith(".connect_tcp.complete"):
                stream = info["return_value"]
                try:
                    if self._over:
                        raise _Over
                    # A descriptor of our own: it stays valid when TLS takes the socket over, and cuts both.
                    self._wire = stream.get_extra_info("socket").dup()
                except Exception:
                    stream.close()
                    raise
            elif event.endswith(".send_request_headers.started") and info["request"].method == b"POST":
                self.sent = True

    def end(self) -> None:
        """Cut the connection, if there is one; no byte is sent after this."""
        with self._lock:
            self._over = True
            if self._wire:
                with self._wire, suppress(OSError):
                    self._wire.shutdown(socket.SHUT_RDWR)


_Send = Callable[[Call, httpx.Client], Any]
_in_flight: set[Call] = set()


def interrupt_all() -> int:
    """End every exchange in flight in this process (AskFailed `interrupted` for its caller); return how many."""
    calls = list(_in_flight)
    for call in calls:
        call.mailbox.put(AskFailed(outcome="interrupted", reason="stopped while waiting for the reply", billed="maybe"))
        call.end()
    return len(calls)


_tls_lock = threading.Lock()


@functools.cache
def _tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


@functools.cache
def _no_tls() -> ssl.SSLContext:
    """Return what httpx wants for plain http, too: a context that trusts nobody and costs nothing."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def tls_context() -> ssl.SSLContext:
    """Return the one context of this process, which trusts the public authorities. Raises OSError."""
    with _tls_lock:
        return _tls_context()


class Exchange:
    """An `ask` over HTTP: each call is one POST, never repeated, never redirected.

    Making one is the preflight: raises ProviderNotReady for all that can be known before a request is counted.
    """

    def __init__(self, provider: Provider, key: str | None, environ: Mapping[str, str]) -> None:
        self._provider = provider
        self._key = key
        self._environ = environ
        self._headers = read_headers(provider, environ)
        self._secrets = list_secrets(provider, key, self._headers)
        fault = header_fault(key) if key is not None else ""
        problem = f"the key {fault}" if fault else ""
        try:
            self._url = httpx.URL(check_url(provider.base_url or "", allow_http=provider.allow_http))
        except ValueError as error:
            problem = str(error)
        except httpx.InvalidURL:
            problem = "base_url is not a URL"
        if problem:
            raise ProviderNotReady(provider=provider.name, problem=problem)
        self._client: httpx.Client | None = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what no call has used."""
        client, self._client = self._client, None
        if client:
            client.close()

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send the request once; return `message`, `finish_reason`, `usage`, `id` and `billed`.

        Returns or raises within the provider's timeout, whatever the other side does. Raises AskFailed, and
        RequestRefused where nothing can be sent. An `idempotency_key` of the request goes into the provider's header.
        """
        body = encode(request)
        found: dict[str, Any] = self._within(
            self._provider.timeout, lambda call, client: self._post(call, client, request, body)
        )
        return found

    def list_models(self) -> list[str]:
        """Return the names of the models that the provider lists: one GET within 10 s, never repeated.

        Raises AskFailed.
        """
        found: list[str] = self._within(MODELS_SECONDS, self._get_models)
        return found

    def _within(self, seconds: float, send: _Send) -> Any:
        """Let `send` do its one exchange within so many seconds; raise the AskFailed that it ends in."""
        client, self._client = self._client or self._open(), None
        call, end = Call(), time.monotonic() + seconds
        _in_flight.add(call)
        try:
            threading.Thread(target=self._work, args=(call, client, send), name="exchange", daemon=True).start()
            result = call.mailbox.get(timeout=seconds)
            if isinstance(result, AskFailed) and result.outcome == "connect_error" and time.monotonic() >= end:
                raise queue.Empty  # this process was stopped, which says nothing of the provider
        except queue.Empty:
            call.end()
            reason = f"no complete reply within {seconds:g} s"
            result = AskFailed(outcome="timeout", reason=reason, billed="maybe" if call.sent else "no")
        except RuntimeError as error:
            result = AskFailed(outcome="error", reason=f"no thread for the request: {error}", billed="no")
        finally:
            call.end()
            _in_flight.discard(call)
        if isinstance(result, AskFailed):
            raise result
        return result

    def _work(self, call: Call, client: httpx.Client, send: _Send) -> None:
        try:
            with client:
                result = send(call, client)
        except Exception as error:
            result = _failure(error, sent=call.sent)
            result.reason = one_line(result.reason, self._secrets)
        call.mailbox.put(result)

    def _post(
        self, call: Call, client: httpx.Client, request: Mapping[str, Any], body: bytes
    ) -> dict[str, Any] | AskFailed:
        received = bytearray()
        name, key = self._provider.idempotency_header, request.get("idempotency_key")
        headers = {name: key} if name and key else None
        sending = client.stream("POST", self._url, content=body, headers=headers, extensions={"trace": call.trace})
        with sending as response:
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > REPLY_LIMIT:
                    break
        found = judge_response(response.status_code, response.headers.multi_items(), bytes(received))
        if isinstance(found, AskFailed):
            advice = advise(found, bytes(received), request, self._provider)
            found.reason = one_line(found.reason, self._secrets, LINE_LIMIT - len(advice)) + advice
            return found
        return {name: without(value, self._secrets) for name, value in found.items()}

    def _get_models(self, call: Call, client: httpx.Client) -> list[str] | AskFailed:
        received = bytearray()
        url = self._url.copy_with(path=self._url.path.removesuffix("/chat/completions") + "/models")
        with client.stream("GET", url, extensions={"trace": call.trace}) as response:
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > MODELS_LIMIT:
                    break
        found = judge_models(response.status_code, response.headers.multi_items(), bytes(received))
        if isinstance(found, AskFailed):
            found.reason = one_line(found.reason, self._secrets)
            return found
        return [one_line(name, self._secrets) for name in found]

    def _open(self) -> httpx.Client:
        headers = self._headers | {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": f"resumed/{program_version()}",
        }
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        tls = self._tls()
        try:
            return httpx.Client(
                headers=headers,
                timeout=self._provider.timeout + 1,  # ends a worker that nobody waits for any more
                verify=tls,
                trust_env=self._provider.proxy == "env",
                follow_redirects=False,
            )
        except Exception as error:
            problem = _client_problem(error, self._environ)
        raise ProviderNotReady(provider=self._provider.name, problem=problem)

    def _tls(self) -> ssl.SSLContext:
        """Return the context of the provider's own file, or else the process's."""
        try:
            if self._provider.ca_file:
                return pinned_context(self._provider.ca_file)
            if self._url.scheme == "http":
                return _no_tls()
            return tls_context()
        except OSError as error:
            named = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if self._environ.get(name)), "certifi")
            problem = f"the certificates of {named} cannot be read: {error.strerror or type(error).__name__}"
        except ValueError as error:
            problem = f"ca_file: {self._provider.ca_file}: {error}"
        raise ProviderNotReady(provider=self._provider.name, problem=problem)


def _client_problem(error: Exception, environ: Mapping[str, str]) -> str:
    """Say why no client could be made; the variables of a proxy by name, for their values may hold a password."""
    names = [name for name in environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")]
    odd = [name for name in names if not environ[name].lower().startswith(("http://", "https://"))]
    if not names:
        return f"no client for it could be made ({type(error).__name__})"
    if isinstance(error, ImportError):
        return f"{', '.join(odd or names)}: a SOCKS proxy needs the package socksio, which is not installed"
    return f"{', '.join(odd or names)}: not usable as a proxy setting ({type(error).__name__})"


def _failure(error: Exception, *, sent: bool) -> AskFailed:
    billed = "maybe" if sent else "no"
    said = str(error) or type(error).__name__
    match error:
        case httpx.RemoteProtocolError() if not _CLOSED.search(said):
            return AskFailed(outcome="malformed_reply", reason=f"not HTTP as it should be: {said}", billed=billed)
        case httpx.TransportError() if not isinstance(error, httpx.LocalProtocolError):
            where = "the connection broke before the reply was complete" if sent else "no connection"
            return AskFailed(outcome="connect_error", reason=f"{where}: {said}", billed=billed, rests="outage")
    return AskFailed(outcome="error", reason=f"{type(error).__name__}: {error}", billed=billed)

"""Notifications over channels (webhook, ping, program, apprise), in the background and each in its order."""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from scheduler.address import check_notify_url
from scheduler.errors import ExtraMissing, NotifyFailed
from scheduler.job import Channel

if TYPE_CHECKING:
    from scheduler.child import Guarded

DEADLINE: Final = 10.0
# Healthchecks' protocol: https://healthchecks.io/docs/http_api/
_PING_PATHS: Final = {"start": "/start", "progress": "", "done": "", "recovered": ""}


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: the event, the sentence, and the JSON object."""

    event: str
    line: str
    fields: Mapping[str, Any]


def channel_name(channel: Channel) -> str:
    """Name a channel for people and for the ledger: never more of an address than its host, for it may hold a token.

    Behind ` #` stand eight digits that tell apart channels of one host.
    """
    target = channel.target
    if isinstance(target, tuple):
        shown = Path(target[0]).name
    elif not isinstance(target, str):
        shown = f"${target.name}"
    else:  # of an address of apprise, the host may be the token
        parts = _split(target)
        shown = parts[0] if channel.kind == "apprise" else parts[1]
    tag = hashlib.sha256(repr(target).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{channel.kind} {shown} #{tag}"


def shown_name(channel: Channel) -> str:
    """Name a channel as people read it."""
    return f"{channel.kind} {channel_name(channel).split(' ')[1]}"


def _split(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or ""
    except ValueError:
        return "", ""


def send(
    channel: Channel,
    message: Message,
    environ: Mapping[str, str],
    guarded: Guarded,
    seconds: float = DEADLINE,
) -> str:
    """Send a message within so many seconds; return why it did not go, or nothing.

    `guarded` is what a program may see. No sentence shows an address, nor anything that the other side said.
    """
    try:
        if isinstance(channel.target, tuple):
            _run(channel.target, channel.folder, message, guarded, seconds)
        elif channel.kind == "apprise":
            _apprise(_address(channel, environ), message, seconds)
        else:
            _post(_url(channel, message, environ), channel, message, seconds)
    except NotifyFailed as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}"
    return ""


def _address(channel: Channel, environ: Mapping[str, str]) -> str:
    if isinstance(channel.target, str):
        return channel.target
    assert not isinstance(channel.target, tuple)
    if not (address := environ.get(channel.target.name, "").strip()):
        raise NotifyFailed(reason=f"the variable {channel.target.name} is not set")
    return address


def _url(channel: Channel, message: Message, environ: Mapping[str, str]) -> str:
    url = _address(channel, environ)
    try:
        check_notify_url(url, from_environment=not isinstance(channel.target, str))
    except ValueError as error:
        raise NotifyFailed(reason=str(error)) from None
    if channel.kind == "webhook":
        return url
    parts = urlsplit(url)
    path = parts.path.rstrip("/") + _PING_PATHS.get(message.event, "/fail")
    return urlunsplit(parts._replace(path=path))


def _post(url: str, channel: Channel, message: Message, seconds: float) -> None:
    from scheduler.post import Post  # brings httpx, which a tick without news does without

    if channel.kind == "webhook":
        post = Post(url, json.dumps(message.fields).encode(), "application/json")
    else:
        post = Post(url, message.line.encode(), "text/plain; charset=utf-8")
    _within(seconds, lambda: post.run(seconds), post.cut)


def _within(seconds: float, work: Callable[[], None], cut: Callable[[], None]) -> None:
    """Do it in a thread that is left behind at the deadline, whatever it hangs in. Raises what it raises."""
    ended: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            work()
        except Exception as error:
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, name="notify", daemon=True).start()
    try:
        error = ended.get(timeout=seconds)
    except queue.Empty:
        raise NotifyFailed(reason=f"no reply within {seconds:.3g} s") from None
    finally:
        cut()
    if error is not None:
        raise error


def _run(argv: tuple[str, ...], folder: Path, message: Message, guarded: Guarded, seconds: float) -> None:
    """Run a program that reads the JSON; what it prints is seen by nobody."""
    from scheduler.child import run_program  # which a tick without news does without

    try:
        ended = run_program(argv, json.dumps(message.fields).encode() + b"\n", folder, guarded, seconds)
    except (OSError, ValueError) as error:
        reason = f"it cannot be started: {getattr(error, 'strerror', None) or 'not a command'}"
        raise NotifyFailed(reason=reason) from None
    if ended.code is None:
        raise NotifyFailed(reason=f"it ran longer than {seconds:.3g} s, and was killed")
    if ended.code:
        how = f"signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
        raise NotifyFailed(reason=f"it ended with {how}")


def _apprise(address: str, message: Message, seconds: float) -> None:
    import logging

    for name in ("apprise", "urllib3", "requests"):  # their lines may show an address
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        import apprise
    except ImportError:
        raise NotifyFailed(reason=str(ExtraMissing(key="notify", package="apprise"))) from None

    def work() -> None:
        service = apprise.Apprise()
        if not service.add(address):
            raise NotifyFailed(reason="apprise does not know this address")
        if not service.notify(title=f"resumed: {message.event}", body=message.line):
            raise NotifyFailed(reason="apprise could not deliver it")

    _within(seconds, work, lambda: None)


class Outbox:
    """A thread for each channel that something was sent over."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._queues: dict[Channel, queue.SimpleQueue[Callable[[], None] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._until = float("inf")

    def put(self, channel: Channel, message: Message, guarded: Guarded, ended: Callable[[str], object]) -> None:
        """Send it once what came before it is sent; `ended` gets why it did not go, or an empty text."""

        def work() -> None:
            seconds = min(DEADLINE, self._until - time.monotonic())
            if seconds <= 0:
                ended(f"no time was left for it in the {DEADLINE:g} s at the end")
            else:
                ended(send(channel, message, self._environ, guarded, seconds))

        if not self._queues:
            self._until = float("inf")
        if channel not in self._queues:
            waiting = self._queues[channel] = queue.SimpleQueue()
            thread = threading.Thread(target=_serve, args=(waiting,), name="outbox", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queues[channel].put(work)

    def close(self) -> None:
        """Wait for what is under way, all together 10 s; what has not begun by then is not sent."""
        self._until = time.monotonic() + DEADLINE
        for waiting in self._queues.values():
            waiting.put(None)
        for thread in self._threads:
            thread.join(max(0, self._until + 0.5 - time.monotonic()))
        self._queues, self._threads = {}, []


def _serve(waiting: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := waiting.get()) is not None:
        with contextlib.suppress(Exception):  # else one that cannot be noted would be the last of its channel
            work()

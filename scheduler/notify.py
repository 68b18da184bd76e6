"""One notification over one channel: webhook, ping, program, apprise."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from scheduler.address import check_notify_url
from scheduler.errors import ExtraMissing, NotifyFailed
from scheduler.job import Channel

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
    child: Mapping[str, str],
    seconds: float = DEADLINE,
) -> str:
    """Send a message within so many seconds; return why it did not go, or nothing.

    `child` is the environment of a program. No sentence shows an address, nor anything that the other side said.
    """
    try:
        if isinstance(channel.target, tuple):
            _run(channel.target, message, child, seconds)
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


def _run(argv: tuple[str, ...], message: Message, child: Mapping[str, str], seconds: float) -> None:
    """Run a program without a shell, the JSON on its standard input; what it prints is seen by nobody."""
    import subprocess

    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own program, as jobs.yaml names it
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(child),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise NotifyFailed(
            reason=f"it cannot be started: {getattr(error, 'strerror', None) or 'not a command'}"
        ) from None
    try:
        process.communicate(json.dumps(message.fields).encode() + b"\n", timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise NotifyFailed(reason=f"it ran longer than {seconds:.3g} s, and was killed") from None
    if process.returncode:
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
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

"""A program of the user's: run without a shell, without our secrets, and not for ever."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from scheduler.errors import ResumedError
from scheduler.job import JobFile, Provider
from scheduler.keys import LINE_LIMIT, SHORTEST, list_secrets, one_line, read_headers, read_key

TAIL_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 4 * 1024 * 1024
LOOK: Final = 0.1
CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The environment that a program may see, and what no text of it may show."""

    environ: Mapping[str, str]
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code (negative: the signal), None where it was killed for the time it took.

    `said` is the end of what it wrote to stderr, on one line.
    """

    code: int | None
    said: str


def guard(job_file: JobFile, environ: Mapping[str, str]) -> Guarded:
    """Take out of an environment every secret that jobs.yaml names, under whatever name else it stands there too."""
    providers = job_file.providers.values()
    built_in = {provider.key.name for provider in providers if provider.key and provider.key.kind == "env"}
    named = built_in | job_file.secret_names
    secrets = {secret for provider in providers for secret in _secrets(provider, environ)}
    secrets |= {environ[name].strip() for name in named if environ.get(name, "").strip()}
    channels = (*job_file.notify, *(channel for job in job_file.entries for channel in job.notify))
    secrets |= {channel.target for channel in channels if isinstance(channel.target, str)}
    long = [secret for secret in secrets if len(secret) >= SHORTEST]  # a short one stands in much by chance
    kept = {
        name: value
        for name, value in environ.items()
        if name not in named and name != CREDENTIALS and value.strip() not in secrets and not _shows(value, long)
    }
    return Guarded(environ=kept, secrets=tuple(sorted(secrets, key=len, reverse=True)))


def _shows(value: str, secrets: Iterable[str]) -> bool:
    return any(secret in value for secret in secrets)


def _secrets(provider: Provider, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what of a provider's secrets can be read here."""
    with contextlib.suppress(ResumedError):
        if key := read_key(provider, environ):
            yield key
    with contextlib.suppress(ResumedError):
        yield from list_secrets(provider, None, read_headers(provider, environ))


def find_program(name: str, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program: one with a slash is looked for from the folder, any other in PATH."""
    return shutil.which(str(folder / name) if "/" in name else name, path=environ.get("PATH", os.defpath))


def run_program(argv: Sequence[str], given: bytes, folder: Path, guarded: Guarded, seconds: float) -> Ended:
    """Run a program to its end with `given` on its standard input; kill it with its children after so many seconds.

    Raises OSError, and ValueError on a word that no program can be given, where it cannot be started.
    """
    # Files, not pipes: neither a program that reads nothing nor a child of its own that stays can hold us up.
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as said:
        source.write(given)
        source.seek(0)
        fcntl.fcntl(said, fcntl.F_SETFL, fcntl.fcntl(said, fcntl.F_GETFL) | os.O_APPEND)  # so that it can be cut
        with subprocess.Popen(  # noqa: S603  # the operator's own program, from a file that only they can write
            argv,
            executable=find_program(argv[0], folder, guarded.environ) or argv[0],
            stdin=source,
            stdout=subprocess.DEVNULL,
            stderr=said,
            cwd=folder,
            env=dict(guarded.environ),
            start_new_session=True,
        ) as process:
            try:
                code, first = _wait(process, said, seconds)
            finally:
                if process.returncode is None:  # not waited for yet, so the id is still that of its group
                    os.killpg(process.pid, signal.SIGKILL)
        return Ended(code, _last_words(first + _tail(said), guarded.secrets))


def _wait(process: subprocess.Popen[bytes], said: IO[bytes], seconds: float) -> tuple[int | None, bytes]:
    """Return its exit code, None after so many seconds, and the end of what was cut off: much of it fills no disk."""
    end, first = time.monotonic() + seconds, b""
    while True:
        try:
            return process.wait(max(0, min(LOOK, end - time.monotonic()))), first
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                return None, first
            if os.fstat(said.fileno()).st_size > MOST_BYTES:
                first = _tail(said)
                said.truncate(0)


def _tail(said: IO[bytes]) -> bytes:
    said.seek(max(0, said.seek(0, os.SEEK_END) - TAIL_BYTES))
    return said.read(TAIL_BYTES)


def _last_words(said: bytes, secrets: Sequence[str]) -> str:
    text = said[-TAIL_BYTES:].decode("utf-8", "replace")
    return one_line(text, secrets, len(text))[-LINE_LIMIT:]  # cut last: no secret may lose the half that tells it

"""A provider's secrets, its key above all: where they are found, and how they are kept out of every text."""

from __future__ import annotations

import base64
import errno
import functools
import os
import re
import stat
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scheduler.errors import ProviderNotReady
from scheduler.extras import header_fault
from scheduler.job import KeySource, Provider
from scheduler.text import plain_line

KEY_FILE_LIMIT: Final = 64 * 1024
LINE_LIMIT: Final = 300
SHORTEST: Final = 16


def read_key(provider: Provider, environ: Mapping[str, str]) -> str | None:
    """Return the provider's key without blanks at its ends, or None where the provider has none.

    Raises ProviderNotReady, which never shows any part of the key.
    """
    if provider.key is None:
        return None
    try:
        key = _stored_key(provider.key, environ).strip()
        problem = header_fault(key)
    except OSError as error:
        problem = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
    except ValueError as error:
        problem = str(error)
    if problem:
        kind = "variable" if provider.key.kind == "env" else provider.key.kind
        raise ProviderNotReady(provider=provider.name, problem=f"the key in the {kind} {provider.key.name} {problem}")
    return key


def _stored_key(source: KeySource, environ: Mapping[str, str]) -> str:
    if source.kind == "env":
        return environ.get(source.name, "")
    folder = "" if source.kind == "file" else environ.get("CREDENTIALS_DIRECTORY", "")
    if source.kind == "credential" and (not folder or Path(source.name).name != source.name):
        raise ValueError("is no file of the folder that CREDENTIALS_DIRECTORY names")
    # O_NONBLOCK, for a FIFO would wait for its writer. Latin-1, for it never fails: an error's text would show bytes.
    descriptor = os.open(Path(folder, source.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not in a regular file")
        return os.read(descriptor, KEY_FILE_LIMIT).decode("latin-1")
    finally:
        os.close(descriptor)


def read_headers(provider: Provider, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the provider's entry sets, with the values that variables give, without blanks at ends.

    Raises ProviderNotReady, which never shows any part of such a value.
    """
    found: dict[str, str] = {}
    for name, value in provider.headers:
        found[name] = value if isinstance(value, str) else environ.get(value.name, "").strip()
        if not isinstance(value, str) and (fault := header_fault(found[name])):
            problem = f"the value of the header {name} in the variable {value.name} {fault}"
            raise ProviderNotReady(provider=provider.name, problem=problem)
    return found


def list_secrets(provider: Provider, key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what no text may show, the longest first: the key, and each value that a variable gave a header.

    Of a value such as "Bearer abc" the part behind the scheme is a secret by itself.
    """
    values = [headers[name] for name, value in provider.headers if isinstance(value, KeySource)]
    parts = [value.split(maxsplit=1)[-1] for value in values]
    return tuple(sorted({*values, *parts, *([key] if key else [])}, key=len, reverse=True))


def one_line(text: str, secrets: Sequence[str] = (), limit: int = LINE_LIMIT) -> str:
    """Make one short line of it: no control or invisible characters, and *** for each spelling of each secret."""
    line = plain_line(text, len(text))
    if pattern := _pattern(tuple(secrets)):
        line = pattern.sub("***", line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


@functools.lru_cache(64)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """Find each spelling of each secret, whatever its case."""
    patterns = filter(None, (_spelled(spelling) for secret in secrets for spelling in _spellings(secret)))
    return re.compile(whole, re.IGNORECASE) if (whole := "|".join(patterns)) else None


def _spelled(spelling: str) -> str:
    """Find a secret also where it is wrapped by a line break, or escaped as JSON and Python's repr do it.

    Possessive, and without blanks of its own between them: each place is tried once, whatever stands there.
    """
    return r"[\s\\]*+".join(re.escape(letter) for letter in spelling if not letter.isspace() and letter != "\\")


def _spellings(secret: str) -> tuple[str, ...]:
    quoted = (urllib.parse.quote(secret, safe=""), urllib.parse.quote(secret))
    return *quoted, base64.b64encode(secret.encode()).decode(), secret


def without(value: Any, secrets: Sequence[str]) -> Any:
    """Replace secrets in every text of a decoded reply, which a server may have put there.

    Shorter ones than SHORTEST stay: they are placeholders such as "ollama", which an answer may well contain.
    """
    pattern = _pattern(tuple(secret for secret in secrets if len(secret) >= SHORTEST))
    return _without(value, pattern) if pattern else value


def _without(value: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub("***", value)
    if isinstance(value, list):
        return [_without(item, pattern) for item in value]
    if isinstance(value, dict):
        return {_without(name, pattern): _without(item, pattern) for name, item in value.items()}
    return value

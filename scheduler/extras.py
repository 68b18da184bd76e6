"""What a provider's entry may add to each request: headers, and further fields of the body. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduler.misfits import Misfit, Refused, found_words, like_a_key
from scheduler.positions import QUOTE, Odd, Path

HEADER_LIMIT: Final = 8192
BODY_LIMIT: Final = 16 * 1024
BODY_DEPTH: Final = 8

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")  # RFC 9110, section 5.6.2
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")
_NAMES_A_KEY = re.compile(r"api_?key|secret|password|(auth|access|bearer)_?token|^authorization$", re.IGNORECASE)
_KEY_PIECE = 8  # a shorter piece of a value, such as sk-SK, is no key
_OURS: Final = (
    *("host", "content-length", "content-type", "content-encoding", "transfer-encoding", "te", "trailer", "expect"),
    *("connection", "keep-alive", "proxy-connection", "upgrade", "accept", "accept-encoding", "user-agent"),
)
_OWN_OPTIONS: Final = {
    "authorization": "key: {env: NAME}",
    "proxy-authorization": "put it into the proxy's address in the environment, and write proxy: env",
}
_BODY_HINTS: Final = {
    "model": "use model: of the provider or the job",
    "messages": "use task: of the job",
    **dict.fromkeys(("tools", "functions"), "use read: of the job"),
    **dict.fromkeys(("tool_choice", "function_call"), "use last_attempt:"),
    **dict.fromkeys(("stream", "stream_options"), "a reply is always taken as a whole"),
    "n": "one reply is taken of each request",
    **{name: f"use {name}: of the provider" for name in ("max_tokens", "max_completion_tokens", "temperature")},
    "idempotency_key": "use idempotency_header: of the provider",
}


def is_variable(name: object) -> bool:
    """Tell whether this is the name of an environment variable, and looks like no key."""
    return isinstance(name, str) and not like_a_key(name) and bool(_VARIABLE.fullmatch(name))


def header_fault(value: str) -> str:
    """Return why a header cannot carry this value, or nothing; the value itself is not told."""
    faults = (
        (not value.strip(), "is missing or blank"),
        (len(value) > HEADER_LIMIT, f"is longer than {HEADER_LIMIT} characters"),
        (re.search(r"[\r\n]", value), "has a line break inside"),
        (re.search(r"[^\x00-\x7f]", value), "has a character outside ASCII"),
        (re.search(r"[\x00-\x1f\x7f]", value), "has a control character"),
    )
    return next((words for wrong, words in faults if wrong), "")


def check_header_name(name: str) -> str:
    """Return the name of a header that an entry may set. Raises Refused, which shows nothing that looks like a key."""
    if not _TOKEN.fullmatch(name) or any(map(like_a_key, (name.lower(), *name.split("-")))):
        raise Refused("expected the name of a header: letters, digits and dashes")
    if name.lower() in _OWN_OPTIONS:
        raise Refused(f"{name} has an option of its own", _OWN_OPTIONS[name.lower()])
    if name.lower() in _OURS:
        raise Refused(f"{name} is not yours to set: the program sets it or leaves it out itself")
    return name


def check_headers(path: Path, headers: Mapping[str, Any]) -> Iterator[Misfit]:
    """Find what does not fit in the entry `headers`, which stands at this path."""
    seen: dict[str, str] = {}
    for name, value in headers.items():
        try:
            first = seen.setdefault(check_header_name(name).lower(), name)
        except Refused as refused:
            yield Misfit((*path, name), f"headers: {refused}", refused.hint, at_key=True)
            continue
        if first != name:
            yield Misfit((*path, name), f"headers: {name} stands already there, as {first}", "keep one of them", True)
        elif fault := _value_fault(value):
            yield Misfit((*path, name), f"headers: {name}: {fault}", fault.hint)


def _value_fault(value: object) -> Refused | None:
    if isinstance(value, dict):
        good = set(value) == {"env"} and is_variable(value["env"])
        return None if good else Refused("expected {env: NAME}, the name of an environment variable")
    if not isinstance(value, str):
        return Refused(f"expected text or {{env: NAME}}, found {found_words(value, secret=True)}", QUOTE)
    if words := header_fault(value):
        return Refused(f"the value {words}")
    pieces = re.split(r"[\s/;,=:?&]+", value)
    if any(len(piece) >= _KEY_PIECE and like_a_key(piece) for piece in pieces):
        return Refused("this looks like a key, and no key stands in this file", "name its variable: {env: NAME}")
    return None


def check_body(path: Path, body: Mapping[str, Any]) -> Iterator[Misfit]:
    """Find what does not fit in the entry `extra_body`, which stands at this path."""
    owned = [name for name in body if name.lower() in _BODY_HINTS]
    for name in owned:
        message = f"extra_body: {name} is not yours to set here"
        yield Misfit((*path, name), message, _BODY_HINTS[name.lower()], at_key=True)
    for name in body:
        if _NAMES_A_KEY.search(name):
            message = f"extra_body: {name} names a key, and no key stands in this file"
            yield Misfit((*path, name), message, "key: {env: NAME}, or headers: {NAME: {env: NAME}}", at_key=True)
    odd = [fault for name, value in body.items() if name not in owned for fault in _odd((*path, name), value, 1)]
    yield from odd
    if not (odd or owned) and len(json.dumps(body, ensure_ascii=False).encode()) > BODY_LIMIT:
        yield Misfit(path, f"extra_body: it is longer than {BODY_LIMIT} bytes of JSON")


def _odd(path: Path, value: object, depth: int) -> Iterator[Misfit]:
    """Find what is no value of JSON for every reader of YAML, and what is nested too deep."""
    if isinstance(value, Odd):
        hint = "put a text in quotes, write a number with digits and a point only"
        yield Misfit(path, f"extra_body: expected a value, found {found_words(value, secret=False)}", hint)
    elif isinstance(value, dict | list) and depth >= BODY_DEPTH:
        yield Misfit(path, f"extra_body: it is nested deeper than {BODY_DEPTH}")
    elif isinstance(value, dict | list):
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _odd((*path, name), item, depth + 1)

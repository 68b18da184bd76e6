"""The words for what does not fit in jobs.yaml, and what looks like a key, which is never among them. Pure."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Final, NamedTuple

from scheduler.positions import QUOTE, Odd, Path

ID_RULE: Final = "1 to 64 small letters, digits, dots, dashes and underscores, a letter or digit first"
_MAPPING: Final = ("a mapping", 'write "key: value" lines under it')
WANTED: Final = {
    "string_type": ("text", QUOTE),
    "bool_type": ("true or false", "write true or false"),
    "int_type": ("a whole number", "write digits only, without quotes"),
    "list_type": ("a list", "put square brackets around it"),
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
}
LIMITS: Final = {
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be more than {gt}",
    "less_than_equal": "it must be at most {le}",
    "literal_error": "expected {expected}",
    "string_pattern_mismatch": "expected a plain name of letters, digits, dots, dashes and underscores",
}


class Misfit(NamedTuple):
    """A key or value that does not fit: its path from the top, one sentence, and what to do about it."""

    path: Path
    message: str
    hint: str = ""
    at_key: bool = False


class Refused(ValueError):
    """A value that does not fit: one sentence, and what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def like_a_key(text: str) -> bool:
    """Tell whether a text looks like a key, which is then shown nowhere."""
    mixed = len(text) >= 20 and all(re.search(kind, text) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return mixed or bool(re.match("(sk|pk|rk|gsk|hf|xai)[-_]|[0-9a-fA-F]{32}", text))


@functools.lru_cache(maxsize=1024)
def nearest(name: str, known: tuple[str, ...]) -> str:
    """Return "; did you mean X?", or nothing where no known name is near."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


def found_words(value: object, *, secret: bool) -> str:
    """Say what stands where something else was expected; of a secret, no word."""
    if isinstance(value, Odd):
        shown = "a word" if secret else value.text[:40]
        return "nothing" if value.nothing else f"{shown}, which YAML reads in more than one way"
    names = {bool: str(value).lower(), str: "text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "a number")

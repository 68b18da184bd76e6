"""What in a text names one certain thing: ids, addresses, paths, dates, amounts with units. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

LOOKED_UP: Final = 2_000

_MONTH: Final = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b"
)
_UNIT: Final = (
    "%|‰|°[CF]?|[€$£¥]|(?:EUR|USD|GBP|CHF|JPY|[kMGT]i?B|bytes?|[kMGT]?bit/s|[kMG]?Hz|[kM]?Wh?|[mk]?V|m?A|K"
    "|[nµmck]?m|[mk]?g|t|[mc]?l|ml|kcal|px|dpi|[mµn]?s|min|h|d|seconds?|minutes?|hours?|days?|weeks?|months?|years?"
    r"|tokens?|requests?|items?|pieces?|percent|euros?|dollars?|cents?|pounds?|francs?)\b"
)
_NUMBER: Final = r"\d(?:[\d.,'\u00a0\u202f]{0,30}\d)?"
_ENDING: Final = (
    "md|txt|py|json|ya?ml|toml|ini|cfg|conf|log|csv|tsv|html?|xml|pdf|docx?|xlsx?|png|jpe?g|svg|gif|zip|gz|tar|sh|js|ts"
    "|c|h|cpp|rs|go|java|rb|sql|db|sqlite3?|service|rst|tex"
)
_NAME: Final = r"[\w.@%+~-]{1,100}"

# In this order: what comes first takes its characters before the others look at them. Every repetition is bounded, so
# that no text takes longer than its length asks for.
_KINDS: Final = (
    r"https?://[^\s<>\"'`)\]}]{1,500}",
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)?",
    r"\d{1,2}[./]\d{1,2}[./]\d{2,4}",
    rf"\d{{1,2}}(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{_MONTH}(?:,?\s+\d{{4}})?",
    rf"{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?",
    r"\d{1,2}:\d\d(?::\d\d)?",
    rf"(?:~|\.{{1,2}})?/{_NAME}(?:/{_NAME}){{0,30}}/?",
    rf"{_NAME}(?:/{_NAME}){{1,30}}\.[A-Za-z]\w{{0,7}}",
    rf"(?:{_NAME}/){{2,30}}(?:{_NAME})?",
    rf"\w[\w-]{{0,99}}(?:\.[\w-]{{1,99}}){{0,4}}\.(?:{_ENDING})\b",
    rf"[€$£¥]\s?{_NUMBER}",
    rf"{_NUMBER}[\s\u00a0\u202f-]?(?:{_UNIT})",
    r"#?\b(?=[\w.:-]{0,100}\d)(?=[\w.:-]{0,100}[A-Za-z_])[A-Za-z0-9_]{1,100}(?:[.:-][A-Za-z0-9_]{1,100}){0,20}",
    r"[A-Za-z]{1,50}(?:_[A-Za-z]{1,50}){1,10}",
    r"#\d{1,30}",
    r"\d{1,30}(?:-\d{1,30}){2,10}",
    r"\d{1,30}(?:\.\d{1,30}){2,10}",
    r"\d{4,100}",
)
_ANY: Final = re.compile("|".join(rf"(?<![\w])(?:{kind})" for kind in _KINDS), re.IGNORECASE)
_BORDER: Final = re.compile(r"(?<=\d)(?=[^\W\d_])|(?<=[€$£¥])(?=\d)|(?<=\d)(?=[€$£¥%‰°])| ")


def find_identifiers(text: str) -> list[str]:
    """Return the identifiers of a text, each once, in the order of their first places."""
    found: dict[str, str] = {}
    for match in _ANY.finditer(text):
        word = " ".join(match[0].split()).rstrip(".,;:")
        found.setdefault(_plain(word), word)
    return list(found.values())


def unfounded(text: str, grounds: Iterable[str]) -> list[str]:
    """Return the identifiers of a text that stand in none of the other texts, whatever their case and blanks.

    Only the first LOOKED_UP identifiers are looked up, so that no text takes for ever.
    """
    known = "\n".join(map(_plain, grounds))
    return [word for word in find_identifiers(text)[:LOOKED_UP] if not _stands_in(_plain(word), known)]


def _stands_in(word: str, text: str) -> bool:
    """Tell whether a word stands in a text as a whole (12 is not in 312), with or without a blank before a unit."""
    pattern = " ?".join(map(re.escape, _BORDER.split(word)))  # begins with letters, which makes the search fast
    places = ((match.start(), match.end()) for match in re.finditer(pattern, text))
    return any(
        not (word[0].isalnum() and text[start - 1 : start].isalnum())
        and not (word[-1].isalnum() and text[end : end + 1].isalnum())
        for start, end in places
    )


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split()).casefold()

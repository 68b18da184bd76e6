"""What in a text names one certain thing: ids, addresses, paths, dates, amounts with units. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
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
_NUMBER: Final = r"(?>\d(?:[\d.,'\u00a0\u202f]{0,30}\d)?)"
_LETTER: Final = "A-Za-z0-9_\u00c0-\u024f"  # what goes on a word: Latin letters; others may stand beside a number
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
    rf"(?:[€$£¥]|\b(?:EUR|USD|GBP|CHF|JPY))\s?{_NUMBER}",
    rf"{_NUMBER}[\s\u00a0\u202f-]?(?:{_UNIT})",
    rf"#?(?=[{_LETTER}.:-]{{0,100}}\d)(?=[{_LETTER}.:-]{{0,100}}[A-Za-z_])[{_LETTER}]{{1,100}}(?:[.:-][{_LETTER}]{{1,100}}){{0,20}}",
    r"[A-Za-z]{1,50}(?:_[A-Za-z]{1,50}){1,10}",
    r"#\d{1,30}",
    r"\d{1,30}(?:-\d{1,30}){2,10}",
    r"\d{1,30}(?:\.\d{1,30}){2,10}",
    r"\d{1,3}(?:[,'\u00a0\u202f]\d{3}){1,10}",
    r"\d{1,30}\.\d{2,30}",
    r"\d{4,100}",
)
_ANY: Final = rf"(?<![{_LETTER}])(?<!\d\.)(?:{'|'.join(_KINDS)})(?![{_LETTER}])"
# The same thing written otherwise: thousands marks, a zero before an hour, a T between date and time.
_SPELLINGS: Final = (
    (re.compile(r"(?<=\d)[,'\u00a0\u202f](?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<![\d:.])0(?=\d:\d)"), ""),
    (re.compile(r"(?<=\d)[Tt](?=\d\d?:\d)"), " "),
    (re.compile(r"(?<=\d) ?(?:percent|per cent)\b", re.IGNORECASE), "%"),
)
_ON: Final = re.compile(f"[{_LETTER}]")
_AFTER_NUMBER, _AFTER_NAME = re.compile(r"\.\d"), re.compile(r"[.-]\d")
_AMOUNT: Final = re.compile(r"(\d[\d.,]*)[ -]?([^\W\d_]{3,}?)s?")
_DIGITS, _LETTERS = re.compile(r"\d+"), re.compile(r"[^\W\d_]+")
_BORDER: Final = re.compile(r"(?<=\d)(?=[^\W\d_])|(?<=[€$£¥])(?=\d)|(?<=\d)(?=[€$£¥%‰°])| ")


def find_identifiers(text: str) -> list[str]:
    """Return the identifiers of a text, each once, in the order of their first places."""
    found: dict[str, str] = {}
    for match in re.finditer(_ANY, text, re.IGNORECASE):  # compiled when first needed, for that takes a while
        word = " ".join(match[0].split()).rstrip(".,;:/")
        found.setdefault(_plain(word), word)
    return list(found.values())


def by_variety(names: Sequence[str]) -> list[str]:
    """Order identifiers such that the first of each shape come first: AB-12 has the shape of CD-34, not of 3 days."""
    seen: Counter[str] = Counter()
    ranks: list[int] = []
    for name in names:
        shape = _LETTERS.sub("a", _DIGITS.sub("9", name))
        ranks.append(seen[shape])
        seen[shape] += 1
    return [name for _, name in sorted(zip(ranks, names, strict=True), key=lambda pair: pair[0])]


def unfounded(text: str, grounds: Iterable[str]) -> list[str]:
    """Return the identifiers of a text that stand in none of the other texts, whatever their case and blanks.

    Only the first LOOKED_UP identifiers are looked up, so that no text takes for ever.
    """
    known = "\n".join(map(_plain, grounds))
    return [word for word in find_identifiers(text)[:LOOKED_UP] if not _stands_in(_plain(word), known)]


def _stands_in(word: str, text: str) -> bool:
    """Tell whether a word stands in a text as a whole, with or without a blank before a unit, which may be a plural.

    12 is not in 312, 3.12 or 12.5, nor AB-1 in AB-1-2.
    """
    pattern = " ?".join(map(re.escape, _BORDER.split(word)))  # begins as the word, which makes the search fast
    if amount := _AMOUNT.fullmatch(word):
        pattern = f"{re.escape(amount[1])}[ -]?{re.escape(amount[2])}s?"
    return any(_is_whole(text, match.start(), match.end()) for match in re.finditer(pattern, text))


def _is_whole(text: str, start: int, end: int) -> bool:
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if _ON.match(text[start]) and (_ON.match(before[-1:]) or (text[start].isdigit() and re.match(r"\d\.$", before))):
        return False
    goes_on = _AFTER_NUMBER if text[start:end].isdigit() else _AFTER_NAME
    return not (_ON.match(text[end - 1]) and (_ON.match(after) or goes_on.match(after)))


def _plain(text: str) -> str:
    """Return a text in which the same thing is written in one way."""
    plain = " ".join(unicodedata.normalize("NFKC", text).split())
    for pattern, instead in _SPELLINGS:
        plain = pattern.sub(instead, plain)
    return plain.casefold().removeprefix("./")

"""Text that is safe on a terminal, and how cells line up. Pure."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")


def printable(text: str) -> str:
    """Escape what could act on a terminal: control characters (but newline), ANSI, bidi marks, lone surrogates."""
    return text if text.isprintable() else "".join(map(_escape, text))


def well_formed(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(character: str) -> str:
    if character in "\n\t\u00a0" or character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def is_utf8(text: str) -> bool:
    """Tell whether UTF-8 can hold the text; it cannot where an argument or a name came as other bytes."""
    return text == storable(text)


def storable(text: str) -> str:
    """Return the text with each lone surrogate, which stands for a byte that is no UTF-8, as an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(text: str, width: int = 100) -> str:
    """Return the text on one line of at most `width` characters, escaped."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def plain_line(text: str, width: int = 300) -> str:
    """Return the text on one line without any control or invisible character, cut at `width` characters."""
    plain = _ANSI.sub("", well_formed(text))
    line = " ".join("".join(letter if letter.isprintable() else " " * letter.isspace() for letter in plain).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def first_difference(saved: str, current: str) -> str:
    """Say where two texts part, with what stands there in each."""
    common = next(
        (index for index, (one, other) in enumerate(zip(saved, current, strict=False)) if one != other),
        min(len(saved), len(current)),
    )
    before = saved[:common]
    line, column = before.count("\n") + 1, common - (before.rfind("\n") + 1) + 1
    start = max(0, common - 20)
    pieces = [one_line(text[start : common + 30], 60) or "(nothing)" for text in (saved, current)]
    return f'line {line}, column {column}: it was "{pieces[0]}", it is "{pieces[1]}"'


def dots(attempts: int, limit: int) -> str:
    """Return the attempts as filled dots among the allowed ones."""
    return "●" * attempts + "○" * max(0, limit - attempts)


def cut(line: str, columns: int) -> str:
    """Return the line, cut with a mark where it takes more than so many columns of a terminal."""
    if _width(line) <= columns:
        return line
    ends = itertools.accumulate(_width(character) for character in line)
    return line[: sum(end < columns for end in ends)] + "…"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells as aligned columns; the last column is not padded."""
    rows = [list(row) for row in rows]
    widths = [max((_width(cell) for cell in column), default=0) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    seen = [character for character in text if unicodedata.category(character) not in ("Mn", "Me")]
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in seen)


def json_text(value: object) -> str:
    """Return indented JSON in which nothing can act on a terminal; it reads back as the same value."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return "".join(char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text)


def indent(text: str) -> str:
    """Set every line in by two blanks."""
    return "\n".join(f"  {line}" for line in text.split("\n"))

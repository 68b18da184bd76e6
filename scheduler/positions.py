"""YAML text -> plain data, and the line and column of each piece of it.

Read event by event, because a YAML loader drops what a person must be told: the second of two equal keys, where a
value stands, and that `no` or `12:30` is not text. Sources: YAML 1.1 chapter 10.2 (types), yaml/pyyaml#165 (keys).
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

MAX_DEPTH: Final = 20
LOADER: Final[Any] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
QUOTE: Final = "put it in quotes"
QUOTE_OR_BLOCK: Final = "put the value in quotes, or a longer text under |"

Path = tuple[str | int, ...]

_CONSTANTS: Final = {"true": True, "false": False}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,17})\.[0-9]{1,18}")
_YAML_1_2_NUMBER = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_YAML_1_1: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = yaml.SafeLoader.yaml_implicit_resolvers
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # what ends a line in YAML 1.1
_COMMENT = re.compile(r"[ \t]+(?=#)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A piece that is refused, where it stands."""

    place: Place
    message: str
    hint: str = ""


class Unreadable(ValueError):
    """Nothing of the text can be used; `fault` says why and where."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Odd:
    """A plain scalar that is neither text nor a value for every reader of YAML (`no`, `12:30`, `0123`), or nothing."""

    text: str

    @property
    def nothing(self) -> bool:
        """Tell whether no value stands there."""
        return self.text in ("", "~", "null")


@dataclass(slots=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, Odd), and by path from the top: places, faults, comments.

    `faults` holds the first fault of each path; `comments` the place of each comment right behind a plain scalar.
    """

    data: Any = Odd("")
    keys: dict[Path, Any] = field(default_factory=dict)
    values: dict[Path, Any] = field(default_factory=dict)
    faults: dict[Path, Fault] = field(default_factory=dict)
    comments: dict[Path, Place] = field(default_factory=dict)

    def key(self, path: Path) -> Place:
        """Return where the key at the end of the path stands, or the nearest thing around it."""
        return self._nearest(self.keys, path)

    def value(self, path: Path) -> Place:
        """Return where the value at the path stands, or the key of the nearest thing around it."""
        return _place(self.values[path]) if path in self.values else self.key(path)

    def _nearest(self, marks: dict[Path, Any], path: Path) -> Place:
        while path and path not in marks:
            path = path[:-1]
        return _place(marks[path]) if path else Place(1, 1)


def read(body: bytes, loader: Any = LOADER) -> Document:
    """Read one YAML document of plain data.

    Faults of a piece (anchor, alias, tag, merge key, equal keys, a key that is not text) are kept by path. Raises
    Unreadable for bytes that are not UTF-8 text, broken syntax, a second document, and nesting deeper than MAX_DEPTH.
    """
    text = _decode(body)
    reader = _Reader(text, yaml.parse(text, Loader=loader))
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_syntax(error, text)) from None
    except yaml.YAMLError as error:
        raise Unreadable(Fault(Place(1, 1), f"not YAML: {str(error).splitlines()[0]}")) from None


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Pause the garbage collector: on 10,000 jobs it finds nothing and doubles the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _decode(body: bytes) -> str:
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(Fault(Place(1, 1), "not UTF-8 but UTF-16", "save the file as UTF-8"))
    body = body.removeprefix(codecs.BOM_UTF8)  # before decoding, which counts from behind it
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        place = _place_at(body[: error.start].decode("utf-8", "replace"))
        message = f"not UTF-8: byte 0x{body[error.start]:02X} at line {place.line}"
        raise Unreadable(Fault(place, message, "save the file as UTF-8")) from None
    if odd := yaml.reader.Reader.NON_PRINTABLE.search(text):
        message = f"not text: control character 0x{ord(odd.group()):02X}"
        raise Unreadable(Fault(_place_at(text[: odd.start()]), message, "save the file as UTF-8 text"))
    return text


def _place_at(before: str) -> Place:
    lines = _BREAK.split(before)
    return Place(len(lines), len(lines[-1]) + 1)


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


class _Reader:
    """Turns events into a Document; `path` is where it is."""

    def __init__(self, text: str, events: Iterator[Event]) -> None:
        self.text = text
        self.events = events
        self.path: list[str | int] = []
        self.depth = 0
        self.found = Document()

    def document(self) -> Document:
        next(self.events)  # the start of the stream
        if type(next(self.events)) is StreamEndEvent:
            return self.found
        self.found.data = self.node(next(self.events))
        next(self.events)  # the end of the document
        if type(event := next(self.events)) is not StreamEndEvent:
            fault = Fault(_place(event.start_mark), "a second document starts here", "one file holds one document")
            raise Unreadable(fault)
        return self.found

    def node(self, event: Any) -> Any:
        if type(event) is AliasEvent:
            self.fault(event, "a value cannot start with * (a YAML alias)", QUOTE_OR_BLOCK)
            return Odd("*")
        if event.anchor is not None:
            self.fault(event, "a value cannot start with & (a YAML anchor)", QUOTE_OR_BLOCK)
        if event.tag is not None:
            self.fault(event, "a value cannot start with ! (a YAML tag)", QUOTE_OR_BLOCK)
        if type(event) is ScalarEvent:
            return self.scalar(event)
        if self.depth == MAX_DEPTH:
            raise Unreadable(Fault(_place(event.start_mark), f"nested deeper than {MAX_DEPTH}"))
        self.depth += 1
        value = self.mapping(event) if type(event) is MappingStartEvent else self.sequence()
        self.depth -= 1
        return value

    def scalar(self, event: Any) -> Any:
        if not event.implicit[0]:
            self.check_characters(event)
            return event.value
        end = event.end_mark.index
        if event.value and self.text[end : end + 1] in (" ", "\t") and (gap := _COMMENT.match(self.text, end)):
            place = Place(event.end_mark.line + 1, event.end_mark.column + 1 + len(gap.group()))
            self.found.comments[tuple(self.path)] = place
        return plain(event.value)

    def sequence(self) -> list[Any]:
        items: list[Any] = []
        while type(event := next(self.events)) is not SequenceEndEvent:
            self.path.append(len(items))
            self.found.keys[tuple(self.path)] = self.found.values[tuple(self.path)] = event.start_mark
            items.append(self.node(event))
            self.path.pop()
        return items

    def mapping(self, start: Any) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while type(event := next(self.events)) is not MappingEndEvent:
            if not isinstance(event, ScalarEvent):
                self.fault(start, "a key must be text, and here a mapping or list stands for one", QUOTE_OR_BLOCK)
                self.node(event)
                self.node(next(self.events))
                continue
            name = event.value
            self.path.append(name)
            path = tuple(self.path)
            if name in entries:
                self.fault(event, f"this key stands already at line {self.found.key(path).line}", "keep one of them")
            self.check_key(event)
            value = next(self.events)
            if name not in entries:
                self.found.keys[path], self.found.values[path] = event.start_mark, value.start_mark
            entries.setdefault(name, self.node(value))
            self.path.pop()
        return entries

    def check_key(self, event: Any) -> None:
        if event.anchor is not None or event.tag is not None:
            self.fault(event, "a key cannot start with & or ! (a YAML anchor or tag)", QUOTE)
        elif not event.implicit[0]:
            self.check_characters(event)
        elif event.value == "<<":
            self.fault(event, "merge keys (<<) are not read", "write the lines out in each entry")
        elif type(plain(event.value)) is not str:
            self.fault(event, "this key is not text for every reader of YAML", QUOTE)

    def check_characters(self, event: Any) -> None:
        # Only the pure Python loader lets an escaped lone surrogate through; no file could be written with it.
        if event.style == '"' and not event.value.isascii() and re.search("[\ud800-\udfff]", event.value):
            raise Unreadable(Fault(_place(event.start_mark), "an escape here is half a character (a lone surrogate)"))

    def fault(self, event: Any, message: str, hint: str) -> None:
        self.found.faults.setdefault(tuple(self.path), Fault(_place(event.start_mark), message, hint))


def plain(text: str) -> Any:
    """Return what an unquoted scalar says: true, false, a decimal number, text, or an Odd one."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[:1] not in _YAML_1_1:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    odd = any(pattern.match(text) for _, pattern in _YAML_1_1[text[:1]]) or _YAML_1_2_NUMBER.fullmatch(text)
    return Odd(text) if odd else text


def _syntax(error: yaml.MarkedYAMLError, text: str) -> Fault:
    """Say a parser's complaint in plain words, with what to do about it."""
    mark = error.problem_mark or error.context_mark
    opening = error.context_mark or mark
    said = f"{error.context} {error.problem}"
    if mark is None:
        return Fault(Place(1, 1), f"not YAML: {error.problem}")
    end = _place_at(text)
    here = min(_place(mark), end, key=lambda place: place.line)  # libyaml puts a missing line end behind the last line
    line = _BREAK.split(text)[mark.line : mark.line + 1] or [""]
    if "\t" in re.match(r"\s*", line[0]).group():  # type: ignore[union-attr]  # this pattern matches any line
        return Fault(here, "a tab indents this line", "use spaces")
    if "scanning an alias" in said or "scanning an anchor" in said:
        return Fault(_place(opening), "a value cannot start with * or &", QUOTE_OR_BLOCK)
    if "cannot start any token" in said:
        return Fault(here, f"a value cannot start with {text[mark.index : mark.index + 1]}", QUOTE_OR_BLOCK)
    if "mapping values are not allowed" in said:
        return Fault(here, 'a second ": " stands in this line, or the line is indented too far', QUOTE_OR_BLOCK)
    if "escape" in said:
        return Fault(here, "this escape after \\ is none of YAML's", "use single quotes, or a text under |")
    if "quoted scalar" in said:
        return Fault(_place(opening), "the quote that opens here is not closed", "close it")
    if "flow" in said:
        return Fault(here, "a bracket is not closed, or a comma is missing", QUOTE_OR_BLOCK)
    here = _place(opening) if "simple key" in said else here
    return Fault(here, "this line does not fit the lines before it", f"check its indentation; {QUOTE_OR_BLOCK}")

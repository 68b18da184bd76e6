"""The read-only tools that the model may call."""

from __future__ import annotations

import importlib.resources
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scheduler.job import Source
from scheduler.sources import Opened, Sources, Tally
from scheduler.state import Evidence

RESULT_BYTES: Final = 64 * 1024
HEAD_BYTES: Final = 400  # for the line that says what is shown, beside the path in it
FILE_BYTES: Final = 8 * 1024 * 1024
SEARCH_BYTES: Final = 64 * 1024 * 1024
PROBE_BYTES: Final = 8 * 1024
LISTED_BY_TOOL: Final = 1_000
HITS: Final = 200
LINE_CHARS: Final = 400
QUERY_CHARS: Final = 200

Arguments = Mapping[str, Any]


class ToolFailed(Exception):
    """Say to the model why a call has no result, and what is allowed."""


@dataclass(frozen=True)
class Reading:
    """What a tool showed to the model, and from which lines of which files it came."""

    text: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Tool:
    """A function that the model may call; `parameters` is the JSON Schema of one object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Arguments], str | Reading]


def file_tools(
    sources: Sequence[Source], private: Sequence[Path], result_bytes: int = RESULT_BYTES
) -> tuple[Tool, ...]:
    """Return `list_files`, `read_file` and `search_files` over the sources; no tool without sources.

    `private` are folders and files that are never listed, read or searched, wherever they lie. A result has at most
    `result_bytes` of UTF-8; what it leaves out is said in it.
    """
    if not sources:
        return ()
    files = _FileTools(Sources(tuple(sources), tuple(private)), result_bytes)
    path = {"type": "string", "description": "a path as list_files names it"}
    lines = {"type": "integer", "minimum": 1}
    return (
        Tool("list_files", "List the readable files with their sizes.", _schema({"path": path}), files.list_files),
        Tool(
            "read_file",
            "Read a text file: `limit` lines from line `offset` on.",
            _schema({"path": path, "offset": lines, "limit": lines}, "path"),
            files.read_file,
        ),
        Tool(
            "search_files",
            "Find the lines that contain a text, whatever its case (plain text, no pattern).",
            _schema({"query": {"type": "string"}, "path": path}, "query"),
            files.search_files,
        ),
    )


def reference_tool() -> Tool:
    """Return `read_reference`: a small text about a made-up shop that ships in the package."""
    return Tool("read_reference", "Read the reference of the demo shop.", _schema({}), _read_reference)


def _read_reference(_: Arguments) -> Reading:
    text = importlib.resources.files("scheduler").joinpath("reference.md").read_text("utf-8")
    return Reading(text, (Evidence(file="reference.md", first=1, last=len(text.splitlines())),))


def _schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


@dataclass(frozen=True)
class _FileTools:
    files: Sources
    result_bytes: int

    def list_files(self, arguments: Arguments) -> str:
        tally = Tally()
        found = [f"{name} ({file.info.st_size} bytes)" for name, file in self.files.walk(arguments.get("path"), tally)]
        shown = self._fit(found[:LISTED_BY_TOOL])
        more = [f"only {len(shown)} are shown; name a folder as path to see others"] if len(shown) < len(found) else []
        return _result([f"files: {len(found)}", *more, *tally.notes()], shown)

    def read_file(self, arguments: Arguments) -> Reading:
        path, first = arguments["path"], arguments.get("offset", 1)
        with self.files.open(path) as file:
            if file.is_folder:
                raise ToolFailed(f"{path!r} is a folder; list_files names its files.")
            loaded = _load(file)
        if loaded is None:
            return Reading(f"{path}: binary, not shown ({file.info.st_size} bytes)", ())
        lines, cut = loaded
        if not lines:
            return Reading(f"{path}: the file is empty", ())
        if first > len(lines):
            raise ToolFailed(f"offset {first} is past the end: {path!r} has {len(lines)} lines.")
        wanted = lines[first - 1 : first - 1 + arguments.get("limit", len(lines))]
        shown = self._fit(wanted, path)
        last = first - 1 + len(shown)
        notes = [f"{path}: lines {first}-{last} of {len(lines)} are shown"]
        if shown[0] != wanted[0]:
            notes.append(f"line {first} is too long and is cut")
        if last < len(lines):
            notes.append(f"go on with offset {last + 1}")
        if cut:
            notes.append(f"of {file.info.st_size} bytes only the first {FILE_BYTES} are read")
        return Reading(_result(notes, shown), (Evidence(file=path, first=first, last=last),))

    def search_files(self, arguments: Arguments) -> Reading:
        query = arguments["query"]
        if not query.strip() or "\n" in query or len(query) > QUERY_CHARS:
            raise ToolFailed(f"query must be one line of 1 to {QUERY_CHARS} characters, not blank.")
        tally = Tally()
        hits = list(itertools.islice(self._hits(arguments.get("path"), _fold(query), tally), HITS + 1))
        shown = self._fit(f"{name}:{number}: {text}" for name, number, text in hits[:HITS])
        # Without the query: what the model asked for is no evidence that it stands anywhere.
        found = f"lines found: {len(shown)}" if shown else "no line matches"
        more = ["more lines match; name a path or a longer query"] if len(shown) < len(hits) else []
        evidence = (Evidence(file=name, first=number, last=number) for name, number, _ in hits[: len(shown)])
        return Reading(_result([found, *more, *tally.notes()], shown), tuple(evidence))

    def _hits(self, path: str | None, needle: str, tally: Tally) -> Iterator[tuple[str, int, str]]:
        room = SEARCH_BYTES
        for name, file in self.files.walk(path, tally):
            room -= min(file.info.st_size, FILE_BYTES)
            if room < 0:
                tally.cuts.add(f"only {SEARCH_BYTES} bytes were searched")
                return
            loaded = _load(file)
            if loaded is None:
                tally.skipped += 1
                continue
            lines, cut = loaded
            if cut:
                tally.cuts.add(f"of files over {FILE_BYTES} bytes only the beginning is searched")
            folded = _fold("\n".join(lines))
            if needle in folded:
                for number, (line, plain) in enumerate(zip(lines, folded.split("\n"), strict=True), start=1):
                    if (at := plain.find(needle)) >= 0:
                        yield name, number, _excerpt(line, at)

    def _fit(self, lines: Iterable[str], path: str = "") -> list[str]:
        """Return the first lines that fit into a result; where the very first does not, its beginning."""
        most = max(HEAD_BYTES, self.result_bytes - HEAD_BYTES - len(path.encode()))
        room, kept = most, list[str]()
        for line in lines:
            room -= len(line.encode()) + 1
            if room < 0:
                return kept or [line.encode()[:most].decode("utf-8", "ignore")]
            kept.append(line)
        return kept


def _load(file: Opened) -> tuple[list[str], bool] | None:
    """Return a text's lines and whether it is longer than what is read of it; None where it is binary."""
    with open(file.fd, "rb", closefd=False) as stream:
        data = stream.read(PROBE_BYTES)
        if b"\0" in data:
            return None
        data += stream.read(FILE_BYTES + 1 - len(data))
    cut = len(data) > FILE_BYTES
    if cut:
        data = data[: data.rfind(b"\n", 0, FILE_BYTES) + 1] or data[:FILE_BYTES]
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\0", "\ufffd")
    return (text.removesuffix("\n").split("\n") if text else []), cut


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _excerpt(line: str, at: int) -> str:
    start = max(0, min(at - LINE_CHARS // 4, len(line) - LINE_CHARS))
    end = start + LINE_CHARS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _result(notes: Iterable[str], lines: Iterable[str]) -> str:
    return "\n".join(["; ".join(notes), *lines])

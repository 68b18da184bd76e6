"""The files that a job may read, opened so that nothing else can be.

A path is walked folder by folder on descriptors. No link is followed, no file system left, and what is private is known
by its inode: whatever is renamed meanwhile, only what was checked on the open descriptor is read.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.errors import SourceRefused
from scheduler.job import Source

LISTED: Final = 100
ENTRIES: Final = 10_000
DEPTH: Final = 32
PATH_CHARS: Final = 1024
ALWAYS_PRIVATE: Final = (Path("/proc"),)  # environments and memory of processes are regular files there

Identity = tuple[int, int]


class Unreadable(Exception):
    """Say why something is not read."""


@dataclass(frozen=True)
class Listing:
    """The readable files as (name, bytes), and how many more there are: at least so many where not `complete`."""

    entries: tuple[tuple[str, int], ...]
    left_out: int
    complete: bool = True


@dataclass(frozen=True)
class Opened:
    """A regular file or a folder, checked on its own descriptor; a context that closes it."""

    fd: int
    info: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Tell a folder from a regular file; nothing else is ever opened."""
        return stat.S_ISDIR(self.info.st_mode)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


@dataclass
class Tally:
    """How many entries a walk may still look at, and what it left out."""

    entries: int = ENTRIES
    skipped: int = 0
    cuts: set[str] = field(default_factory=set)

    def notes(self) -> list[str]:
        """Return one phrase for each kind of thing that was left out."""
        skipped = f"{self.skipped} entries are left out (links, binary or special files, no permission)"
        return [*([skipped] if self.skipped else []), *sorted(self.cuts)]


def check_source(source: Source, private: Sequence[Path]) -> None:
    """Raise SourceRefused unless a source is a regular file or a folder, itself no link, readable and not private."""
    try:
        with _open_source(source, _hidden(private)):
            pass
    except Unreadable as error:
        raise SourceRefused(path=source.path, reason=str(error)) from None


def list_sources(sources: Sequence[Source], private: Sequence[Path]) -> Listing:
    """List up to 100 readable files, so that a request can name them; a source that cannot be read adds none."""
    tally = Tally()
    found = [(name, file.info.st_size) for name, file in Sources(tuple(sources), tuple(private)).walk(None, tally)]
    return Listing(tuple(found[:LISTED]), max(0, len(found) - LISTED), complete=not tally.cuts)


@dataclass(frozen=True)
class Sources:
    """What may be read, and what is private wherever it lies; a path is `name of a source/names below it`."""

    sources: tuple[Source, ...]
    private: tuple[Path, ...]

    def allowed(self) -> str:
        """Say what may be read."""
        labels = ", ".join(_label(source) for source in self.sources[:20])
        return f"Readable are {labels} and what lies below; list_files names the files."

    def open(self, path: str) -> Opened:
        """Open the file or folder that a path names. Raises Unreadable, with what is allowed."""
        source, names = self._locate(path)
        hidden = _hidden(self.private)
        try:
            here = _open_source(source, hidden)
            for name in names:
                with here:
                    here = _open(name, here, hidden)
        except Unreadable as error:
            raise Unreadable(f"{path[:100]!r}: {error}. {self.allowed()}") from None
        return here

    def walk(self, path: str | None, tally: Tally) -> Iterator[tuple[str, Opened]]:
        """Yield each readable file at or below a path, or of all sources, open until the next one.

        Raises Unreadable for a path; a source that cannot be read is counted as skipped.
        """
        seen = set[str]()
        for start in [_label(source) for source in self.sources] if path is None else [path.removesuffix("/") or path]:
            try:
                top = self.open(start)
            except Unreadable:
                if path is not None:
                    raise
                tally.skipped += 1
                continue
            with top:
                for name, file in _walk(top, start, _hidden(self.private), tally, DEPTH):
                    if name not in seen:
                        seen.add(name)
                        yield name, file

    def _locate(self, path: str) -> tuple[Source, list[str]]:
        for source in sorted(self.sources, key=lambda source: -len(_label(source))):
            label = _label(source)
            if path == label:
                return source, []
            if path.startswith(prefix := _below(label, "")) and len(path) <= PATH_CHARS:
                names = path.removeprefix(prefix).split("/")
                if len(names) <= DEPTH and all(map(_is_plain, names)):
                    return source, names
        raise Unreadable(f"{path[:100]!r} is not a path that may be read. {self.allowed()}")


def _label(source: Source) -> str:
    return posixpath.normpath(source.name)


def _below(label: str, rest: str) -> str:
    return posixpath.join("" if label == "." else label, rest)


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and name.isprintable()


def _hidden(private: Iterable[Path]) -> frozenset[Identity]:
    return _identities((*ALWAYS_PRIVATE, *private))


def _identities(paths: Iterable[Path]) -> frozenset[Identity]:
    found = set[Identity]()
    for path in paths:
        with suppress(OSError):  # what is not there hides nothing
            found.add(_identity(path.stat()))
    return frozenset(found)


def _identity(info: os.stat_result) -> Identity:
    return info.st_dev, info.st_ino


def _open_source(source: Source, hidden: frozenset[Identity]) -> Opened:
    real = Path(os.path.realpath(source.path))
    if hidden & _identities((real, *real.parents)):
        which = "checkpoints, keys, jobs.yaml, /proc"
        raise Unreadable(f"it is, or lies inside, a file or folder that no tool may read ({which})")
    return _open(source.path, None, hidden)


def _open(name: str | Path, folder: Opened | None, hidden: frozenset[Identity]) -> Opened:
    """Open a regular file or folder by its name in an opened folder."""
    at = folder.fd if folder else None
    try:
        # Looked at first, because opening alone can wake a FIFO's writer or move a device; what counts is fstat below.
        seen = os.stat(name, dir_fd=at, follow_symlinks=False)
        _check_kind(seen)
        only_folder = os.O_DIRECTORY if stat.S_ISDIR(seen.st_mode) else 0
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | only_folder, dir_fd=at)
    except (FileNotFoundError, NotADirectoryError):
        raise Unreadable("there is no such file") from None
    except OSError as error:
        raise Unreadable(f"it cannot be read ({error.strerror})") from None
    try:
        opened = Opened(fd, os.fstat(fd))
        _check_kind(opened.info)
        if folder and opened.info.st_dev != folder.info.st_dev:
            raise Unreadable("it lies on another file system")
        if _identity(opened.info) in hidden:
            raise Unreadable("there is no such file")
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise Unreadable(f"it cannot be read ({error.strerror})") from None
        raise
    return opened


def _check_kind(info: os.stat_result) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise Unreadable("it is a symbolic link, and no link is followed")
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        raise Unreadable("it is not a regular file or folder")


def _walk(
    top: Opened, name: str, hidden: frozenset[Identity], tally: Tally, depth: int
) -> Iterator[tuple[str, Opened]]:
    """Yield each file with its name: those of a folder before its folders, in the order of names, dot names last."""
    if not top.is_folder:
        yield name, top
        return
    if depth == 0:
        tally.cuts.add(f"folders deeper than {DEPTH} are left out")
        return
    for entry in _names(top, tally):
        if tally.entries <= 0:
            tally.cuts.add(f"only {ENTRIES} entries were looked at")
            return
        tally.entries -= 1
        shown = _below(name, entry)
        try:
            if not _is_plain(entry) or len(shown) > PATH_CHARS:
                raise Unreadable("no path can name it")
            child = _open(entry, top, hidden)
        except Unreadable:
            tally.skipped += 1
            continue
        with child:
            yield from _walk(child, shown, hidden, tally, depth - 1)


def _names(folder: Opened, tally: Tally) -> list[str]:
    try:
        with os.scandir(folder.fd) as entries:
            few = itertools.islice(entries, ENTRIES + 1)
            found = [(entry.is_dir(follow_symlinks=False), entry.name) for entry in few]
    except OSError:
        tally.skipped += 1
        return []
    return [name for _, name in sorted(found, key=lambda item: (item[0], item[1].startswith("."), item[1]))]

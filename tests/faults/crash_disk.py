"""A simulated disk: what was done to one folder, and every state of it that a power loss may leave.

Assumed of the disk: a file's bytes are safe once the file was synced, a name once its folder was. All else may be lost
or kept in any order, each name and each block by itself; even a rename may be half done. Of SQLite: a commit is durable
and whole. The ledger's name is one like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Op(NamedTuple):
    """One thing that was done: `file` is the number of a file or of a commit, `to` the new name of a rename."""

    kind: str
    name: str = ""
    to: str = ""
    file: int = 0
    data: bytes = b""
    size: int = 0


class Content(NamedTuple):
    """The bytes of a file; zeros follow them up to its size."""

    data: bytes
    size: int


class Left(NamedTuple):
    """What a power loss leaves: the number of the ledger's last commit, None without a ledger, and the other files."""

    commit: int | None
    files: frozenset[tuple[str, Content]]


@dataclass
class File:
    """What was written to a file, and whether it was synced since."""

    data: bytes = b""
    size: int = 0
    safe: bool = False

    def contents(self, blocks: int) -> set[Content]:
        """Return what may be found in it."""
        whole = Content(self.data, self.size)
        if self.safe:
            return {whole}
        return {whole, Content(b"", self.size), *(Content(data, len(data)) for data in torn(self.data, blocks))}


@dataclass
class Disk:
    """The names that are safe, those given since the folder was last synced, and the files.

    A name leads to the number of a file, or to None.
    """

    ledger: str
    files: dict[int, File] = field(default_factory=dict)
    safe: dict[str, int | None] = field(default_factory=dict)
    newer: dict[str, list[int | None]] = field(default_factory=dict)
    commit: int | None = None

    def do(self, op: Op) -> None:
        """Take one operation over."""
        file = self.files.setdefault(op.file, File()) if op.kind in ("create", "write", "size", "fsync") else File()
        match op.kind:
            case "create":
                self._name(op.name, op.file)
            case "write":
                file.data, file.safe = file.data + op.data, False
                file.size = max(file.size, len(file.data))
            case "size":
                file.size, file.safe = op.size, False
            case "fsync":
                file.safe = True
            case "rename":
                self._name(op.to, self._now(op.name))
                self._name(op.name, None)
            case "unlink":
                self._name(op.name, None)
            case "sync folder":
                self.safe |= {name: numbers[-1] for name, numbers in self.newer.items()}
                self.newer.clear()
            case "commit":
                self.commit = op.file

    def _name(self, name: str, number: int | None) -> None:
        self.newer.setdefault(name, []).append(number)

    def _now(self, name: str) -> int | None:
        return self.newer[name][-1] if name in self.newer else self.safe.get(name)

    def states(self, blocks: int) -> Iterator[Left]:
        """Yield what a power loss may leave now; the same state may come twice."""
        names = sorted(self.safe.keys() | self.newer.keys())
        for found in itertools.product(*(self._found(name, blocks) for name in names)):
            files = {name: content for name, content in zip(names, found, strict=True) if content is not None}
            named = files.pop(self.ledger, None) is not None
            yield Left(self.commit if named else None, frozenset(files.items()))

    def _found(self, name: str, blocks: int) -> list[Content | None]:
        """Return what may be found under a name, always in one order."""
        found: set[Content | None] = set()
        for number in (self.safe.get(name), *self.newer.get(name, ())):
            if number is None:
                found.add(None)
            elif name == self.ledger:  # its bytes are SQLite's matter
                found.add(Content(b"", 0))
            else:
                found |= self.files[number].contents(blocks)
        return sorted(found, key=lambda content: content or Content(b"", -1))


def torn(data: bytes, blocks: int) -> Iterator[bytes]:
    """Yield what may be left of bytes that were not synced: any number of blocks, each as written or zeros."""
    size = max(1, -(-len(data) // blocks))
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    for count in range(len(parts) + 1):
        for kept in itertools.product((True, False), repeat=count):
            yield b"".join(part if keep else bytes(len(part)) for part, keep in zip(parts, kept, strict=False))


def start(ledger: str, commit: int | None, files: Mapping[str, bytes]) -> Disk:
    """Return a disk on which all that is there is safe."""
    disk = Disk(ledger, commit=commit)
    for number, (name, data) in enumerate(files.items()):
        disk.files[-1 - number] = File(data, len(data), safe=True)
        disk.safe[name] = -1 - number
    return disk


def without(ops: Iterable[Op], kind: str) -> list[Op]:
    """Leave out what a faulty program would not do."""
    return [op for op in ops if op.kind != kind]

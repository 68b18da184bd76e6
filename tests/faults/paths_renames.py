"""A race of the tools with a process that swaps files and folders with links to what lies outside.

Run as `python -m tests.faults.paths_renames COUNTER PAIRS`: exchanges the two paths of each pair by renameat2 until the
counter's second number says stop; its first counts the swaps.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from scheduler.calls import Called, call_tool
from scheduler.job import Source
from scheduler.tools import file_tools
from tests.faults.paths_attacks import SECRET
from tests.support import ROOT

AT_FDCWD = -100
RENAME_EXCHANGE = 2
MOST = 2_000_000
LOOKED_FIRST = "no link is followed"  # the swap came before the look
OPENED_LATE = ("Too many levels of symbolic links", "there is no such file")  # and between the look and the open


class Race:
    """A folder whose parts another process swaps with links that lead outside, and what the tools said of it."""

    def __init__(self, base: Path) -> None:
        self.base, self.docs, self.outside = base, base / "docs", base / "outside"
        self.texts: Counter[str] = Counter()
        self.rounds = 0
        for folder in (self.docs, self.docs / "folder", self.docs / "top"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "x.md").write_text("inside\n")
        (self.docs / "file").write_text("inside\n")
        self.outside.mkdir()
        for name in ("x.md", f"{SECRET}.md"):
            (self.outside / name).write_text(SECRET)
        (base / "file").symlink_to(self.outside / "x.md")
        for name in ("folder", "top"):
            (base / name).symlink_to(self.outside)
        sources = [Source(name="docs", path=self.docs), Source(name="top", path=self.docs / "top")]
        self.tools = file_tools(sources, [])

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(str(self.docs / name), str(self.base / name)) for name in ("file", "folder", "top")]

    def read(self) -> None:
        """Ask for what is being swapped; a tool that looks at everything is asked now and then."""
        for path in ("docs/file", "docs/folder/x.md", "top/x.md"):
            self._call("read_file", path=path)
        self.rounds += 1
        if len(self.tools) > 1 and self.rounds % 8 == 0:
            self._call("list_files", path="docs")
            self._call("search_files", query=SECRET[:6])

    def _call(self, name: str, **arguments: str) -> None:
        self.texts[_plain(call_tool(self.tools, name, json.dumps(arguments)))] += 1

    def run(self, swaps: int, enough: Callable[[Counter[str]], bool]) -> int:
        """Read until so many swaps have been made and enough was seen; return how many swaps there were."""
        (self.base / "counter").write_bytes(bytes(16))
        command = [
            sys.executable,
            "-m",
            "tests.faults.paths_renames",
            str(self.base / "counter"),
            json.dumps(self.pairs),
        ]
        with open(self.base / "counter", "r+b") as file, mmap.mmap(file.fileno(), 16) as shared:
            with subprocess.Popen(command, cwd=ROOT) as swapper:
                end = time.monotonic() + 200
                try:
                    while _count(shared) < swaps or not enough(self.texts):
                        assert swapper.poll() is None, "the swapper has ended"
                        assert time.monotonic() < end, f"not enough in {_count(shared)} swaps: {self.texts}"
                        self.read()
                finally:
                    struct.pack_into("q", shared, 8, 1)
            return _count(shared)


def _count(shared: mmap.mmap) -> int:
    return int(struct.unpack_from("q", shared, 0)[0])


def _plain(called: Called) -> str:
    return "ESCAPED" if SECRET in called.text else "inside" if called.ok else called.text


def met(texts: Counter[str]) -> bool:
    """Whether both sides of a swap were read, and a swap came in between."""
    seen = "\n".join(texts)
    return "inside" in seen and LOOKED_FIRST in seen and any(words in seen for words in OPENED_LATE)


def main(counter: str, pairs: list[tuple[str, str]]) -> None:
    """Swap until told to stop, with pauses of up to 0.1 ms from a fixed seed, so that each moment is met."""
    libc = ctypes.CDLL(None, use_errno=True)
    dice = random.Random(20)
    with open(counter, "r+b") as file, mmap.mmap(file.fileno(), 16) as shared:
        for number, (one, other) in zip(range(1, MOST), itertools.cycle(pairs), strict=False):
            if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
                raise OSError(ctypes.get_errno(), "renameat2")
            struct.pack_into("q", shared, 0, number)
            if struct.unpack_from("q", shared, 8)[0]:
                return
            end = time.perf_counter() + dice.random() / 10_000
            while time.perf_counter() < end:
                pass


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

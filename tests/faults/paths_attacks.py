"""What a model may try so that a tool reads a file that it may not: prepared folders, paths, and arguments."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler.calls import Called, call_tool
from scheduler.job import Source
from scheduler.sources import DEPTH, list_sources
from scheduler.tools import file_tools

SECRET = "s3cr3t-outside-text"


class Shop:
    """A readable folder `docs` and file `notes.md`, and secrets around and below it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.docs = base / "docs"
        self.checkpoints = self.docs / "checkpoints"
        self.key = base / "key.txt"
        self.outside = base / "outside"
        for folder in (self.docs / "sub", self.checkpoints / "rehearsal", self.outside):
            folder.mkdir(parents=True)
        (self.docs / "a.md").write_text("Shipping takes 3 days.\nReturns: 30 days.\n")
        (self.docs / "sub" / "b.md").write_text("express SHIPPING: 1 day\n")
        (base / "notes.md").write_text("one\ntwo\nthree\n")
        for path in (
            self.key,
            base / "docs2.md",
            self.outside / "x.md",
            self.checkpoints / "job.json",
            self.checkpoints / "rehearsal" / "job.json",
            self.checkpoints / ".ledger.sqlite3",
        ):
            path.write_text(SECRET + "\n")
        self.sources = (Source(name="docs/", path=self.docs), Source(name="notes.md", path=base / "notes.md"))
        self.private = (self.checkpoints, self.key, self.docs / "jobs.yaml", base / "not-there")
        self.tools = file_tools(self.sources, self.private)

    def call(self, tool: str, **arguments: Any) -> Called:
        return call_tool(self.tools, tool, json.dumps(arguments))

    def all_results(self, path: str) -> list[Called]:
        return [
            self.call("read_file", path=path),
            self.call("list_files", path=path),
            self.call("search_files", query=SECRET[:6], path=path),
            self.call("list_files"),
            self.call("search_files", query=SECRET[:6]),
        ]

    def everything(self, path: str) -> str:
        listing = list_sources(self.sources, self.private)
        return "\n".join([called.text for called in self.all_results(path)] + [name for name, _ in listing.entries])


def symlink(target: str) -> Callable[[Shop], None]:
    return lambda shop: (shop.docs / "x").symlink_to(target.format(base=shop.base))


def chain(shop: Shop) -> None:
    (shop.docs / "y").symlink_to(shop.outside / "x.md")
    (shop.docs / "x").symlink_to("y")


def loop(shop: Shop) -> None:
    (shop.docs / "x").symlink_to("x")


def deep_link(shop: Shop) -> None:
    (shop.docs / "sub" / "x").symlink_to(shop.outside)


def fifo(shop: Shop) -> None:
    os.mkfifo(shop.docs / "x")


def bound_socket(shop: Shop) -> None:
    previous = os.getcwd()
    os.chdir(shop.docs)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("x")
    os.chdir(previous)


def hard_link(shop: Shop) -> None:
    os.link(shop.key, shop.docs / "x")


def nothing(shop: Shop) -> None:
    pass


def delete_docs(shop: Shop) -> None:
    shutil.rmtree(shop.docs)


def long_chain(shop: Shop) -> None:
    for number in range(45):
        (shop.docs / f"y{number}").symlink_to(f"y{number + 1}")
    (shop.docs / "y45").symlink_to(shop.outside / "x.md")
    (shop.docs / "x").symlink_to("y0")


def out_and_in_again(shop: Shop) -> None:
    (shop.docs / "x").symlink_to(shop.outside)
    (shop.outside / "back").symlink_to(shop.docs)


def linked_parent(shop: Shop) -> None:
    shutil.rmtree(shop.docs / "sub")
    (shop.docs / "sub").symlink_to("../outside")


def linked_source(shop: Shop) -> None:
    shop.docs.rename(shop.base / "was")
    shop.docs.symlink_to(shop.outside)


def device(shop: Shop) -> None:
    os.mknod(shop.docs / "x", stat.S_IFCHR | 0o600, os.makedev(1, 5))


def written(name: str) -> Callable[[Shop], None]:
    """Write a file with the secret into the readable folder."""
    return lambda shop: Path(os.fsdecode(os.fsencode(shop.docs) + b"/" + os.fsencode(name))).write_text(SECRET)


def composed(shop: Shop) -> None:
    (shop.docs / "ä.md").write_text("allowed, by its composed name\n")


def no_folder(shop: Shop) -> None:
    """Work from a folder that is gone."""
    (shop.base / "gone").mkdir()
    os.chdir(shop.base / "gone")
    (shop.base / "gone").rmdir()


def working_outside(shop: Shop) -> None:
    os.chdir(shop.outside)


# A name, how the folder is prepared, and the path that is asked for.
ATTACKS: dict[str, tuple[Callable[[Shop], None], str]] = {
    "link to file": (symlink("{base}/outside/x.md"), "docs/x"),
    "relative link": (symlink("../outside/x.md"), "docs/x"),
    "link to folder": (symlink("{base}/outside"), "docs/x/x.md"),
    "link to folder itself": (symlink("{base}/outside"), "docs/x"),
    "link below a folder": (deep_link, "docs/sub/x/x.md"),
    "link chain": (chain, "docs/x"),
    "link loop": (loop, "docs/x"),
    "dangling link": (symlink("nowhere"), "docs/x"),
    "link inside": (symlink("a.md"), "docs/x"),
    "link to private file": (symlink("{base}/key.txt"), "docs/x"),
    "link to /dev/zero": (symlink("/dev/zero"), "docs/x"),
    "link to /dev/tty": (symlink("/dev/tty"), "docs/x"),
    "link to environ": (symlink("/proc/self/environ"), "docs/x"),
    "link to root": (symlink("/"), "docs/x/{base}/outside/x.md"),
    "link to descriptors": (symlink("/dev/fd"), "docs/x/0"),
    "fifo": (fifo, "docs/x"),
    "socket": (bound_socket, "docs/x"),
    "hard link to private file": (hard_link, "docs/x"),
    "deleted folder": (delete_docs, "docs/a.md"),
    "checkpoint": (nothing, "docs/checkpoints/job.json"),
    "checkpoint folder": (nothing, "docs/checkpoints"),
    "checkpoint folder, slash": (nothing, "docs/checkpoints/"),
    "ledger": (nothing, "docs/checkpoints/.ledger.sqlite3"),
    "rehearsal": (nothing, "docs/checkpoints/rehearsal/job.json"),
    "dot dot": (nothing, "docs/../outside/x.md"),
    "dot dot after a folder": (nothing, "docs/sub/../../outside/x.md"),
    "dot dot alone": (nothing, ".."),
    "dot dot at the end": (nothing, "docs/sub/.."),
    "dot dot that stays inside": (nothing, "docs/sub/../a.md"),
    "dot dot to private": (nothing, "docs/sub/../checkpoints/job.json"),
    "dot": (nothing, "docs/./a.md"),
    "leading dot": (nothing, "./docs/a.md"),
    "dot alone": (nothing, "."),
    "dot at the end": (nothing, "docs/a.md/."),
    "slash at the end of a file": (nothing, "docs/a.md/"),
    "two slashes": (nothing, "docs//a.md"),
    "two slashes and absolute": (nothing, "docs//{base}/outside/x.md"),
    "leading slashes": (nothing, "//{base}/outside/x.md"),
    "absolute": (nothing, "{base}/outside/x.md"),
    "absolute inside": (nothing, "{base}/docs/a.md"),
    "absolute /proc": (nothing, "/proc/self/environ"),
    "absolute /dev": (nothing, "/dev/zero"),
    "home": (nothing, "~"),
    "home of root": (nothing, "~root/x.md"),
    "variable": (nothing, "$HOME/x.md"),
    "wildcard": (nothing, "docs/*"),
    "sibling with the same beginning": (nothing, "docs2.md"),
    "the file's sibling": (nothing, "key.txt"),
    "below a file": (nothing, "notes.md/x"),
    "file and dot dot": (nothing, "notes.md/../key.txt"),
    "NUL": (nothing, "docs/a.md\0"),
    "NUL and more": (nothing, "docs/a.md\0/../../outside/x.md"),
    "percent": (nothing, "docs/%2e%2e/outside/x.md"),
    "percent slash": (nothing, "docs/..%2foutside%2fx.md"),
    "two percents": (nothing, "docs/%252e%252e/outside/x.md"),
    "overlong UTF-8": (nothing, "docs/\udcc0\udcae\udcc0\udcae/outside/x.md"),
    "lone surrogate": (nothing, "docs/\ud800"),
    "backslashes": (nothing, "docs\\..\\outside\\x.md"),
    "backslashes inside": (nothing, "docs/..\\..\\outside\\x.md"),
    "URL": (nothing, "file://{base}/outside/x.md"),
    "full-width dots": (nothing, "docs/\uff0e\uff0e/outside/x.md"),
    "one dot leader": (nothing, "docs/\u2024\u2024/outside/x.md"),
    "fraction slash": (nothing, "docs\u2044..\u2044outside\u2044x.md"),
    "right-to-left": (nothing, "docs/\u202edm.a"),
    "newline": (nothing, "docs/a.md\n"),
    "blank": (nothing, " docs/a.md"),
    "blanks alone": (nothing, "  "),
    "empty": (nothing, ""),
    "other case": (nothing, "docs/CHECKPOINTS/job.json"),
    "long name": (nothing, "docs/" + "x" * 256),
    "long name in bytes": (nothing, "docs/" + "é" * 128),
    "long path": (nothing, "docs/" + "sub/../" * 20_000 + "a.md"),
    "deep path": (nothing, "docs" + "/d" * (DEPTH + 1)),
    "long link chain": (long_chain, "docs/x"),
    "link out and in again": (out_and_in_again, "docs/x/back/a.md"),
    "link in place of a folder": (linked_parent, "docs/sub/x.md"),
    "link in place of a source": (linked_source, "docs/x.md"),
    "link to the root of the process": (symlink("/proc/self/root"), "docs/x{base}/outside/x.md"),
    "link to the folder of the process": (symlink("/proc/self/cwd"), "docs/x/x.md"),
    "link to standard input": (symlink("/dev/stdin"), "docs/x"),
    "link to checkpoints": (symlink("checkpoints"), "docs/x/job.json"),
    "link to itself and back": (symlink("../docs"), "docs/x/a.md"),
    "device": (device, "docs/x"),
    "write-ahead log": (written("checkpoints/.ledger.sqlite3-wal"), "docs/checkpoints/.ledger.sqlite3-wal"),
    "lock": (written("checkpoints/job.json.lock"), "docs/checkpoints/job.json.lock"),
    "jobs.yaml": (written("jobs.yaml"), "docs/jobs.yaml"),
    "name that is no UTF-8": (written("x\udce9"), "docs/x\udce9"),
    "name with a line break": (written("x\ny"), "docs/x\ny"),
    "absolute /proc root": (nothing, "/proc/self/root{base}/outside/x.md"),
    "absolute descriptor": (nothing, "/proc/self/fd/0"),
    "absolute stdin": (nothing, "/dev/stdin"),
    "absolute environ of init": (nothing, "/proc/1/environ"),
    "relative from a folder that is gone": (no_folder, "../outside/x.md"),
    "relative from outside": (working_outside, "x.md"),
    "decomposed name": (composed, unicodedata.normalize("NFD", "docs/ä.md")),
    "full-width letter": (nothing, "docs/\uff41.md"),
    "dot after a name": (nothing, "docs/a.md."),
    "blank after a name": (nothing, "docs/a.md "),
    "tab": (nothing, "docs/a.md\t"),
    "carriage return": (nothing, "docs/a.md\r"),
    "escape": (nothing, "docs/\x1b[2Ja.md"),
    "delete": (nothing, "docs/\x7fa.md"),
    "zero width": (nothing, "docs/\u200ba.md"),
    "byte order mark": (nothing, "\ufeffdocs/a.md"),
    "tag characters": (nothing, "docs/\U000e0061.md"),
    "drive": (nothing, "C:\\outside\\x.md"),
    "share": (nothing, "\\\\host\\outside\\x.md"),
    "stream": (nothing, "docs/a.md::$DATA"),
    "brackets": (nothing, "docs/[a].md"),
    "braces": (nothing, "{{docs,outside}}/x.md"),
    "command": (nothing, "docs/$(cat {base}/key.txt)"),
    "pipe": (nothing, "|cat {base}/key.txt"),
    "option": (nothing, "--help"),
    "dots between dots": (nothing, "docs/.../.././../outside/x.md"),
    "triple dot": (nothing, "docs/.../x.md"),
    "quoted": (nothing, "'docs/a.md'"),
}


# Arguments as a model may send them; `OUT` stands for a path that leads out. Some name an allowed file.
ARGUMENTS: dict[str, tuple[str, str]] = {
    "twice, the second outside": ("read_file", '{"path": "docs/a.md", "path": "OUT"}'),
    "twice, the first outside": ("read_file", '{"path": "OUT", "path": "docs/a.md"}'),
    "escaped slashes": ("read_file", r'{"path": "docs\/..\/outside\/x.md"}'),
    "escaped dots": ("read_file", r'{"path": "docs/\u002e\u002e/outside/x.md"}'),
    "escaped NUL": ("read_file", r'{"path": "docs/a.md\u0000/../../outside/x.md"}'),
    "escaped surrogates": ("read_file", r'{"path": "docs/\ud800\udc00"}'),
    "a list of paths": ("read_file", '{"path": ["OUT"]}'),
    "an object as path": ("read_file", '{"path": {"path": "OUT"}}'),
    "a number as path": ("read_file", '{"path": 0}'),
    "true as path": ("read_file", '{"path": true}'),
    "a base of its own": ("read_file", '{"path": "x.md", "base": "/", "root": "OUT"}'),
    "follow links": ("read_file", '{"path": "docs/a.md", "follow_symlinks": true}'),
    "dunder": ("read_file", '{"path": "docs/a.md", "__class__": "str"}'),
    "offset negative": ("read_file", '{"path": "docs/a.md", "offset": -1}'),
    "offset huge": ("read_file", '{"path": "docs/a.md", "offset": 1' + "0" * 300 + "}"),
    "offset too long to read": ("read_file", '{"path": "docs/a.md", "offset": 1' + "0" * 5_000 + "}"),
    "offset endless": ("read_file", '{"path": "docs/a.md", "offset": 1e400}'),
    "offset no number": ("read_file", '{"path": "docs/a.md", "offset": NaN}'),
    "offset in fractions": ("read_file", '{"path": "docs/a.md", "offset": 1.0}'),
    "offset as text": ("read_file", '{"path": "docs/a.md", "offset": "1"}'),
    "offset true": ("read_file", '{"path": "docs/a.md", "offset": true}'),
    "limit negative": ("read_file", '{"path": "docs/a.md", "limit": -9}'),
    "limit zero": ("read_file", '{"path": "docs/a.md", "limit": 0}'),
    "limit huge": ("read_file", '{"path": "docs/a.md", "limit": 9' + "0" * 300 + "}"),
    "limit an object": ("read_file", '{"path": "docs/a.md", "limit": {"a": 1}}'),
    "no object": ("read_file", '"OUT"'),
    "a list": ("read_file", '["OUT"]'),
    "null": ("read_file", "null"),
    "two objects": ("read_file", '{"path": "docs/a.md"}{"path": "OUT"}'),
    "words around it": ("read_file", 'Sure: {"path": "OUT"}'),
    "not closed": ("read_file", '{"path": "OUT"'),
    "single quotes": ("read_file", "{'path': 'OUT'}"),
    "byte order mark": ("read_file", '\ufeff{"path": "OUT"}'),
    "deep": ("read_file", '{"path":' * 2_000 + '"OUT"' + "}" * 2_000),
    "deep list": ("read_file", "[" * 8_000),
    "long": ("read_file", '{"path": "OUT' + "x" * 9_000 + '"}'),
    "folder outside": ("list_files", '{"path": "OUT"}'),
    "list with a query": ("list_files", '{"path": "docs", "query": "s3cr3t"}'),
    "search outside": ("search_files", '{"query": "s3cr3t", "path": "OUT"}'),
    "search by pattern": ("search_files", '{"query": "s3cr3t|.*"}'),
    "search for a line break": ("search_files", '{"query": "\\n"}'),
    "search for NUL": ("search_files", '{"query": "\\u0000"}'),
    "search for nothing": ("search_files", '{"query": ""}'),
    "tool by another name": ("read_file\n", '{"path": "OUT"}'),
    "tool that is none": ("open", '{"path": "OUT"}'),
}

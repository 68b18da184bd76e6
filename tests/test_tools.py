from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from scheduler.calls import TWICE, Called, answer_calls, call_tool, reply_bytes, result_bytes
from scheduler.errors import SourceRefused
from scheduler.job import Source
from scheduler.judgement import Call
from scheduler.sources import DEPTH, ENTRIES, check_source, list_sources
from scheduler.state import new_state
from scheduler.tools import (
    FILE_BYTES,
    RESULT_BYTES,
    SEARCH_BYTES,
    Reading,
    Tool,
    ToolFailed,
    file_tools,
    reference_tool,
)
from tests.faults.paths_attacks import SECRET, Shop, fifo


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def plain_user() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# What may be read


def test_a_file_is_read_with_its_lines_as_evidence(shop: Shop) -> None:
    called = shop.call("read_file", path="docs/a.md")
    assert called.ok
    assert called.text == "docs/a.md: lines 1-2 of 2 are shown\nShipping takes 3 days.\nReturns: 30 days."
    assert called.evidence == ({"file": "docs/a.md", "first": 1, "last": 2},)


def test_offset_and_limit_count_lines_and_name_the_next(shop: Shop) -> None:
    called = shop.call("read_file", path="notes.md", offset=2, limit=1)
    assert called.text == "notes.md: lines 2-2 of 3 are shown; go on with offset 3\ntwo"
    assert called.evidence == ({"file": "notes.md", "first": 2, "last": 2},)


@pytest.mark.parametrize("path", [{}, {"path": None}, {"path": "docs"}, {"path": "docs/"}])
def test_files_are_listed_with_sizes_those_of_a_folder_first(shop: Shop, path: dict[str, Any]) -> None:
    (shop.docs / ".hidden").mkdir()
    (shop.docs / ".hidden" / "h.md").write_text("h")
    (shop.docs / "AA").mkdir()
    (shop.docs / "AA" / "z.md").write_text("z")
    listed = shop.call("list_files", **path).text.splitlines()[1:]
    assert listed[:2] == ["docs/a.md (41 bytes)", "docs/AA/z.md (1 bytes)"]
    assert listed[2:4] == ["docs/sub/b.md (24 bytes)", "docs/.hidden/h.md (1 bytes)"]
    assert listed[4:] == ([] if path.get("path") else ["notes.md (14 bytes)"])


@pytest.mark.parametrize("query", ["shipping", "SHIPPING", "Shipping"])
def test_search_finds_whatever_the_case(shop: Shop, query: str) -> None:
    called = shop.call("search_files", query=query)
    assert called.text.splitlines()[1:] == [
        "docs/a.md:1: Shipping takes 3 days.",
        "docs/sub/b.md:1: express SHIPPING: 1 day",
    ]
    assert called.evidence == (
        {"file": "docs/a.md", "first": 1, "last": 1},
        {"file": "docs/sub/b.md", "first": 1, "last": 1},
    )


def test_search_stays_below_its_path(shop: Shop) -> None:
    called = shop.call("search_files", query="shipping", path="docs/sub")
    assert [entry["file"] for entry in called.evidence] == ["docs/sub/b.md"]


def test_search_takes_a_pattern_for_plain_text(shop: Shop) -> None:
    (shop.docs / "c.md").write_text("a" * 5000 + "\nprice (a+)+$ here\n")
    called = shop.call("search_files", query="(a+)+$")
    assert [entry["first"] for entry in called.evidence] == [2]


def test_search_finds_composed_and_decomposed_letters_alike(shop: Shop) -> None:
    (shop.docs / "c.md").write_text("café\n")
    assert shop.call("search_files", query=unicodedata.normalize("NFD", "CAFÉ")).evidence


def test_a_search_without_hits_says_so(shop: Shop) -> None:
    called = shop.call("search_files", query="nowhere")
    assert (called.ok, called.evidence) == (True, ())
    assert called.text.startswith("no line matches")


@pytest.mark.parametrize("query", ["", "  ", "a\nb", "x" * 201])
def test_a_search_needs_one_line_of_text(shop: Shop, query: str) -> None:
    called = shop.call("search_files", query=query)
    assert not called.ok
    assert "200 characters" in called.text


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("docs", "docs/a.md"),
        ("docs///", "docs/a.md"),
        ("./docs/./", "docs/a.md"),
        (".", "a.md"),
        ("./", "sub/b.md"),
        ("../docs", "../docs/a.md"),
        ("/srv/docs/", "/srv/docs/a.md"),
        ("/", "/a.md"),
        ("~/docs", "~/docs/a.md"),
    ],
)
def test_a_name_is_joined_with_the_path_below_it(shop: Shop, name: str, path: str) -> None:
    sources = [Source(name=name, path=shop.docs)]
    assert path in [entry for entry, _ in list_sources(sources, shop.private).entries]
    assert call_tool(file_tools(sources, shop.private), "read_file", json.dumps({"path": path})).ok


def test_the_nearest_of_two_sources_counts_and_nothing_is_listed_twice(shop: Shop) -> None:
    (shop.base / "other.md").write_text("other\n")
    sources = [
        Source(name="docs", path=shop.docs),
        Source(name="docs/a.md", path=shop.docs / "a.md"),
        Source(name="docs/sub", path=shop.base / "other.md"),
    ]
    assert "other" in call_tool(file_tools(sources, []), "read_file", '{"path": "docs/sub"}').text
    names = [name for name, _ in list_sources(sources, shop.private).entries]
    assert len(names) == len(set(names))


def test_no_sources_no_tools() -> None:
    assert file_tools([], []) == ()


def test_a_link_among_a_sources_parents_is_followed(shop: Shop) -> None:
    (shop.base / "current").symlink_to(shop.base)
    source = Source(name="docs", path=shop.base / "current" / "docs")
    check_source(source, shop.private)
    assert call_tool(file_tools([source], shop.private), "read_file", '{"path": "docs/a.md"}').ok


def test_the_working_directory_does_not_matter(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert shop.call("read_file", path="docs/a.md").ok


# What may not


def test_a_refusal_says_what_is_allowed(shop: Shop) -> None:
    called = shop.call("read_file", path="/etc/passwd")
    assert called.text == (
        "Error: '/etc/passwd' is not a path that may be read. "
        "Readable are docs, notes.md and what lies below; list_files names the files."
    )


def test_a_private_file_looks_like_a_missing_one(shop: Shop) -> None:
    one, other = (shop.call("read_file", path=f"docs/{name}").text for name in ("checkpoints", "checkpointz"))
    assert one == other.replace("checkpointz", "checkpoints")


def test_a_folder_is_not_read(shop: Shop) -> None:
    assert "'docs/sub' is a folder" in shop.call("read_file", path="docs/sub").text


def test_private_is_known_by_its_inode_not_by_its_name(shop: Shop) -> None:
    (shop.base / "alias").symlink_to(shop.checkpoints)
    tools = file_tools(shop.sources, [shop.base / "alias"])
    assert not call_tool(tools, "read_file", '{"path": "docs/checkpoints/job.json"}').ok
    assert not call_tool(tools, "search_files", json.dumps({"query": SECRET})).evidence


def test_what_becomes_private_later_is_private(shop: Shop) -> None:
    late = shop.docs / "late"
    tools = file_tools(shop.sources, [late])
    late.mkdir()
    (late / "x.md").write_text(SECRET)
    assert not call_tool(tools, "read_file", '{"path": "docs/late/x.md"}').ok


def test_no_other_file_system_is_entered(shop: Shop) -> None:
    tools = file_tools([Source(name="/", path=Path("/"))], [])
    assert "it lies on another file system" in call_tool(tools, "read_file", '{"path": "/dev/null"}').text
    assert not call_tool(tools, "read_file", '{"path": "/proc/self/environ"}').ok


def test_an_entry_that_no_path_can_name_is_left_out(shop: Shop) -> None:
    for name in (b"line\nbreak", b"esc\x1b[2J", b"latin\xe9", "bidi\u202e".encode()):
        Path(os.fsdecode(os.fsencode(shop.docs / "sub") + b"/" + name)).write_text("shipping\n")
    called = shop.call("list_files", path="docs/sub")
    assert called.text.splitlines() == [
        "files: 1; 4 entries are left out (links, binary or special files, no permission)",
        "docs/sub/b.md (24 bytes)",
    ]
    assert len(shop.call("search_files", query="shipping", path="docs/sub").evidence) == 1


def test_an_unreadable_file_is_refused(plain_user: None) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # made by the plain user, so that the modes alone decide
        folder = Path(name)
        (folder / "shut.md").write_text(SECRET)
        (folder / "open.md").write_text("open\n")
        (folder / "shut.md").chmod(0)
        sources = [Source(name="docs", path=folder)]
        called = call_tool(file_tools(sources, []), "read_file", '{"path": "docs/shut.md"}')
        assert "it cannot be read (Permission denied)" in called.text
        assert [name for name, _ in list_sources(sources, []).entries] == ["docs/open.md"]
        assert "Permission denied" in refused(folder / "shut.md", [])


def test_parents_need_not_be_listable(plain_user: None) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        source = Source(name="docs", path=Path(name) / "docs")
        source.path.mkdir()
        (source.path / "a.md").write_text("hello\n")
        Path(name).chmod(0o111)
        try:
            check_source(source, [])
            assert call_tool(file_tools([source], []), "read_file", '{"path": "docs/a.md"}').ok
        finally:
            Path(name).chmod(0o700)


# Races


def swap_file_for_link(shop: Shop) -> None:
    (shop.docs / "a.md").unlink()
    (shop.docs / "a.md").symlink_to(shop.outside / "x.md")


def swap_file_for_fifo(shop: Shop) -> None:
    (shop.docs / "a.md").unlink()
    os.mkfifo(shop.docs / "a.md")


def swap_file_for_private(shop: Shop) -> None:
    (shop.docs / "a.md").unlink()
    os.link(shop.key, shop.docs / "a.md")


def swap_file_for_device(shop: Shop) -> None:
    (shop.docs / "a.md").unlink()
    (shop.docs / "a.md").symlink_to("/dev/zero")


def swap_folder_for_link(shop: Shop) -> None:
    (shop.outside / "b.md").write_text(SECRET)
    (shop.docs / "sub").rename(shop.docs / "was")
    (shop.docs / "sub").symlink_to(shop.outside)


def swap_folder_for_private(shop: Shop) -> None:
    (shop.checkpoints / "b.md").write_text(SECRET)
    (shop.docs / "sub").rename(shop.docs / "was")
    shop.checkpoints.rename(shop.docs / "sub")


def test_a_fifo_or_link_is_not_even_opened(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo(shop)
    (shop.docs / "y").symlink_to("/dev/zero")
    really_open, names = os.open, list[object]()

    def noted_open(name: Any, *args: Any, **kwargs: Any) -> int:
        names.append(name)
        return really_open(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", noted_open)
    shop.everything("docs/x")
    shop.everything("docs/y")
    assert "a.md" in names
    assert {"x", "y"}.isdisjoint(names)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("at", "path", "swap"),
    [
        ("a.md", "docs/a.md", swap_file_for_link),
        ("a.md", "docs/a.md", swap_file_for_fifo),
        ("a.md", "docs/a.md", swap_file_for_private),
        ("a.md", "docs/a.md", swap_file_for_device),
        ("sub", "docs/sub/b.md", swap_folder_for_link),
    ],
)
def test_a_swap_between_look_and_open_reads_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, at: str, path: str, swap: Callable[[Shop], None]
) -> None:
    really_open, swaps = os.open, list[str]()

    def open_after_swap(name: Any, *args: Any, **kwargs: Any) -> int:
        if name == at and not swaps:
            swaps.append(at)
            swap(shop)
        return really_open(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_after_swap)
    called = shop.call("read_file", path=path)
    assert swaps == [at]
    assert not called.ok
    assert SECRET not in called.text


def test_a_private_folder_renamed_in_the_way_is_not_entered(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def open_after_swap(name: Any, *args: Any, **kwargs: Any) -> int:
        if name == "sub" and not (shop.docs / "was").exists():
            swap_folder_for_private(shop)
        return really_open(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_after_swap)
    called = shop.call("read_file", path="docs/sub/b.md")
    assert (shop.docs / "was").exists()
    assert "there is no such file" in called.text


# Limits, each of them said


def test_a_long_text_is_cut_at_a_line_end_and_goes_on_where_it_stopped(shop: Shop) -> None:
    lines = [f"{number:05d} " + "é" * 40 for number in range(1, 2_311)]
    (shop.docs / "long.md").write_text("\n".join(lines))
    shown, offset, calls = list[str](), 1, 0
    while offset <= len(lines):
        called = shop.call("read_file", path="docs/long.md", offset=offset)
        calls += 1
        assert len(called.text.encode()) <= RESULT_BYTES
        head, *body = called.text.split("\n")
        shown += body
        (entry,) = called.evidence
        assert (entry["first"], entry["last"]) == (offset, offset + len(body) - 1)
        assert head.startswith(f"docs/long.md: lines {offset}-{entry['last']} of 2310 are shown")
        offset = entry["last"] + 1
        assert (f"; go on with offset {offset}" in head) == (offset <= 2_310)
    assert shown == lines
    assert calls == 4


def test_a_line_longer_than_a_result_is_cut_and_said_so(shop: Shop) -> None:
    (shop.docs / "wide.md").write_text("é" * 100_000 + "\nend\n")
    called = shop.call("read_file", path="docs/wide.md")
    assert "lines 1-1 of 2 are shown; line 1 is too long and is cut; go on with offset 2" in called.text
    assert len(called.text.encode()) <= RESULT_BYTES
    assert "\ufffd" not in called.text


def test_a_file_is_read_up_to_the_last_whole_line_in_8_mib(shop: Shop) -> None:
    line = b"x" * 999 + b"\n"
    (shop.docs / "big.log").write_bytes(line * (FILE_BYTES // 1000) + b"tail " + line * 1024)
    called = shop.call("read_file", path="docs/big.log", offset=8_388)
    assert "lines 8388-8388 of 8388 are shown; of 9412005 bytes only the first 8388608 are read" in called.text
    found = shop.call("search_files", query="tail", path="docs/big.log")
    assert found.text == "no line matches; of files over 8388608 bytes only the beginning is searched"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("head", [b"", b"text\n" * 2_000])
def test_a_sparse_file_of_a_tebibyte_costs_nothing(shop: Shop, head: bytes) -> None:
    with open(shop.docs / "sparse", "wb") as file:
        file.write(head)
        try:
            file.truncate(2**40)
        except OSError:  # a file system with a lower limit
            file.truncate(2**33)
    started = time.monotonic()
    called = shop.call("read_file", path="docs/sparse")
    shop.call("search_files", query="nowhere")
    assert time.monotonic() - started < 3
    assert called.ok
    assert ("binary, not shown" in called.text) == (not head)
    assert "\0" not in called.text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"\n", "lines 1-1 of 1 are shown\n"),
        (b"a\0b", "binary, not shown (3 bytes)"),
        ("hi".encode("utf-16"), "binary, not shown (6 bytes)"),
        (b"caf\xe9\n", "lines 1-1 of 1 are shown\ncaf\ufffd"),
        (b"\xef\xbb\xbfa\r\nb\r\n", "lines 1-2 of 2 are shown\na\nb"),
        ("a\u2028b\x0cc\n".encode(), "lines 1-1 of 1 are shown\na\u2028b\x0cc"),
        (b"x" * 9_000 + b"\0", "lines 1-1 of 1 are shown\n" + "x" * 9_000 + "\ufffd"),
    ],
)
def test_what_a_file_holds_is_shown_as_text(shop: Shop, content: bytes, text: str) -> None:
    (shop.docs / "c.md").write_bytes(content)
    called = shop.call("read_file", path="docs/c.md")
    assert called.ok
    assert called.text == f"docs/c.md: {text}"


def test_an_offset_past_the_end_names_the_number_of_lines(shop: Shop) -> None:
    assert "'notes.md' has 3 lines" in shop.call("read_file", path="notes.md", offset=10**30).text


def test_search_shows_at_most_200_lines_of_400_characters(shop: Shop) -> None:
    (shop.docs / "many.md").write_text(("y" * 1_000 + " needle " + "z" * 1_000 + "\n") * 300)
    called = shop.call("search_files", query="needle")
    head, *lines = called.text.split("\n")
    assert "more lines match" in head
    assert 0 < len(lines) == len(called.evidence) <= 200
    assert all("needle" in line and len(line) <= len("docs/many.md:300: ") + 402 for line in lines)
    assert len(called.text.encode()) <= RESULT_BYTES
    (shop.docs / "many.md").write_text("needle\n" * 300)
    called = shop.call("search_files", query="needle")
    assert len(called.evidence) == 200
    assert "more lines match" in called.text


def test_a_search_says_that_binary_files_are_left_out(shop: Shop) -> None:
    (shop.docs / "sub" / "c.bin").write_bytes(b"shipping\0")
    called = shop.call("search_files", query="shipping", path="docs/sub")
    assert [entry["file"] for entry in called.evidence] == ["docs/sub/b.md"]
    assert "1 entries are left out (links, binary" in called.text


def test_a_search_stops_after_64_mib(shop: Shop) -> None:
    for number in range(SEARCH_BYTES // FILE_BYTES + 1):
        with open(shop.docs / f"{number}.bin", "wb") as file:
            file.truncate(FILE_BYTES)
    assert f"only {SEARCH_BYTES} bytes were searched" in shop.call("search_files", query="x").text


def test_folders_deeper_than_32_are_left_out_and_said_so(shop: Shop) -> None:
    deep = shop.docs / "sub"
    for _ in range(DEPTH + 2):
        deep = deep / "d"
        deep.mkdir()
        (deep / "f.md").write_text("x")
    text = shop.call("list_files", path="docs/sub").text
    assert "folders deeper than 32 are left out" in text
    assert text.count("f.md") == DEPTH - 1
    assert not list_sources(shop.sources, shop.private).complete
    path = "docs/sub" + "/d" * DEPTH + "/f.md"
    assert (shop.base / path).exists()
    assert "not a path that may be read" in shop.call("read_file", path=path).text


def test_a_path_over_1024_characters_is_left_out(shop: Shop) -> None:
    path = "docs/sub" + ("/" + "n" * 250) * 4 + "/" + "f" * 20
    (shop.base / path).parent.mkdir(parents=True)
    (shop.base / path).write_text("x")
    assert len(path) > 1_024
    assert not shop.call("read_file", path=path).ok
    assert shop.call("list_files", path="docs/sub").text.startswith("files: 1; 1 entries are left out")


def test_what_is_listed_can_be_read(shop: Shop) -> None:
    deep = shop.docs / "sub"
    for _ in range(DEPTH + 2):
        deep = deep / "d"
        deep.mkdir()
        (deep / "f.md").write_text("x")
    for name, _ in list_sources(shop.sources, shop.private).entries:
        assert shop.call("read_file", path=name).ok, name


def test_a_request_lists_at_most_100_files_and_counts_the_others(shop: Shop) -> None:
    for number in range(120):
        (shop.docs / f"f{number:03d}").write_text("x")
    listing = list_sources(shop.sources, shop.private)
    assert (len(listing.entries), listing.left_out, listing.complete) == (100, 23, True)
    assert listing.entries[:2] == (("docs/a.md", 41), ("docs/f000", 1))


@pytest.mark.timeout(60)
def test_a_folder_of_50000_files_is_capped_quickly(shop: Shop) -> None:
    crowd = shop.base / "crowd"
    crowd.mkdir()
    folder = os.open(crowd, os.O_RDONLY)
    for number in range(50_000):
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    sources = [Source(name="crowd", path=crowd)]
    tools = file_tools(sources, [])
    started = time.monotonic()
    listing = list_sources(sources, [])
    listed = call_tool(tools, "list_files", "")
    searched = call_tool(tools, "search_files", '{"query": "x"}')
    assert time.monotonic() - started < 6
    shutil.rmtree(crowd)
    assert (len(listing.entries), listing.left_out, listing.complete) == (100, ENTRIES - 100, False)
    for called in (listed, searched):
        assert f"only {ENTRIES} entries were looked at" in called.text
        assert len(called.text.encode()) <= RESULT_BYTES
    assert "only 1000 are shown; name a folder" in listed.text


def test_a_source_that_is_gone_leaves_the_others(shop: Shop) -> None:
    shutil.rmtree(shop.docs)
    assert list_sources(shop.sources, shop.private).entries == (("notes.md", 14),)
    assert "1 entries are left out" in shop.call("list_files").text


# Sources


def refused(source: Path, private: list[Path]) -> str:
    with pytest.raises(SourceRefused) as caught:
        check_source(Source(name="x", path=source), private)
    assert caught.value.path == source
    return str(caught.value.reason)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "there is no such file"),
        ("docs/a.md/x", "there is no such file"),
        ("link", "symbolic link"),
        ("fifo", "not a regular file or folder"),
        ("docs/checkpoints", "no tool may read"),
        ("docs/checkpoints/rehearsal", "no tool may read"),
        ("docs/checkpoints/rehearsal/job.json", "no tool may read"),
        ("key.txt", "no tool may read"),
        ("hard", "there is no such file|no tool may read"),
        ("alias/job.json", "no tool may read"),
        ("deep/job.json", "no tool may read"),
        ("/proc/self/environ", "no tool may read|there is no such file"),
        ("/dev/null", "not a regular file"),
    ],
)
def test_a_bad_source_is_refused_with_its_reason(shop: Shop, name: str, reason: str) -> None:
    (shop.base / "link").symlink_to(shop.docs)
    (shop.base / "alias").symlink_to(shop.checkpoints)
    (shop.base / "deep").symlink_to(shop.checkpoints / "rehearsal")
    os.mkfifo(shop.base / "fifo")
    os.link(shop.key, shop.base / "hard")
    said = refused(shop.base / name, list(shop.private))
    assert any(part in said for part in reason.split("|"))


@pytest.mark.parametrize("name", ["key.txt", "docs/checkpoints", "docs/checkpoints/rehearsal", "link"])
def test_the_tools_refuse_what_the_check_refuses(shop: Shop, name: str) -> None:
    (shop.base / "link").symlink_to(shop.outside)
    sources = [Source(name="x", path=shop.base / name)]
    tools = file_tools(sources, shop.private)
    for path in ("x", "x/x.md", "x/job.json"):
        assert not call_tool(tools, "read_file", json.dumps({"path": path})).ok
    assert list_sources(sources, shop.private).entries == ()


def test_good_sources_pass(shop: Shop) -> None:
    for source in shop.sources:
        check_source(source, shop.private)


# Calls


@pytest.mark.parametrize("arguments", ["", " ", "\n", "{}", '{"path": null}'])
def test_no_arguments_are_fine_where_none_are_needed(shop: Shop, arguments: str) -> None:
    assert call_tool(shop.tools, "list_files", arguments).ok


@pytest.mark.parametrize(
    "arguments",
    ["null", "[]", "[1]", '"path"', "1", "{", "{'path': 1}", "x", "\x00", "[" * 8_000, "9" * 5_000, "\ud800", "NaN"],
)
def test_arguments_that_are_no_object_are_an_error_result(shop: Shop, arguments: str) -> None:
    called = call_tool(shop.tools, "read_file", arguments)
    assert called == Called(
        "Error: The arguments are not a JSON object. read_file takes path, offset (optional), limit (optional). "
        "The tools are: list_files, read_file, search_files.",
        (),
        ok=False,
    )


def test_arguments_that_are_too_long_are_an_error_result(shop: Shop) -> None:
    called = call_tool(shop.tools, "read_file", json.dumps({"path": "x" * 8192}))
    assert called.text.startswith("Error: The arguments are longer than 8192 characters. read_file takes path,")
    assert called.text.endswith("The tools are: list_files, read_file, search_files.")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({}, "path is missing"),
        ({"path": None}, "path must be of type string"),
        ({"path": 1}, "path must be of type string"),
        ({"path": ["docs/a.md"]}, "path must be of type string"),
        ({"file": "docs/a.md"}, "'file' is unknown"),
        ({"path": "docs/a.md", "offset": "1"}, "offset must be of type integer"),
        ({"path": "docs/a.md", "offset": True}, "offset must be of type integer"),
        ({"path": "docs/a.md", "offset": 1.5}, "offset must be of type integer"),
        ({"path": "docs/a.md", "offset": 0}, "offset must be at least 1"),
        ({"path": "docs/a.md", "limit": -1}, "limit must be at least 1"),
        ({"path": "docs/a.md", "__class__": {}}, "'__class__' is unknown"),
        ({"path": "docs/a.md", "x" * 8_000: 1}, "is unknown"),
    ],
)
def test_wrong_arguments_name_the_right_ones(shop: Shop, arguments: dict[str, Any], fault: str) -> None:
    called = shop.call("read_file", **arguments)
    assert not called.ok
    assert fault in called.text
    assert "read_file takes path, offset (optional), limit (optional)" in called.text
    assert len(called.text) < 2_100


@pytest.mark.parametrize(
    "name", ["delete_everything", "read_file ", "", "__class__", "READ_FILE", "x" * 9_000, "\ud800"]
)
def test_an_unknown_tool_names_the_known_ones(shop: Shop, name: str) -> None:
    called = call_tool(shop.tools, name, "{}")
    assert not called.ok
    assert "The tools are: list_files, read_file, search_files." in called.text
    called.text.encode()


def test_where_there_is_no_tool_or_no_argument_the_error_says_so() -> None:
    assert call_tool([], "x", "{}").text.endswith("The tools are: none.")
    assert "made takes no arguments." in call_tool(made(lambda _: "x"), "made", "[]").text


def made(call: Callable[[Mapping[str, Any]], Any], **properties: Any) -> list[Tool]:
    return [Tool("made", "A tool.", {"type": "object", "properties": properties}, call)]


def raising(error: Exception) -> Callable[[Mapping[str, Any]], str]:
    def call(_: Mapping[str, Any]) -> str:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolFailed("no such\n  file"), "Error: no such file"),
        (ToolFailed("x" * 9_000), "Error: " + "x" * 2_000),
        (RuntimeError(SECRET), "Error: The tool failed (RuntimeError)."),
        (OSError(2, SECRET, "/" + SECRET), "Error: The tool failed (FileNotFoundError)."),
        (RecursionError(SECRET), "Error: The tool failed (RecursionError)."),
        (KeyError(SECRET), "Error: The tool failed (KeyError)."),
        (MemoryError(), "Error: The tool failed (MemoryError)."),
    ],
)
def test_an_exception_becomes_one_line_without_its_text(error: Exception, text: str) -> None:
    assert call_tool(made(raising(error)), "made", "") == Called(text, (), ok=False)


@pytest.mark.parametrize("result", [None, 1, b"x", {"a": 1}, Reading(None, ())])  # type: ignore[arg-type]  # the point
def test_a_result_that_is_no_text_is_an_error_result(result: Any) -> None:
    assert not call_tool(made(lambda _: result), "made", "").ok


def test_any_tools_result_is_capped_at_a_line_end() -> None:
    called = call_tool(made(lambda _: "lines äöü\n" * 20_000), "made", "")
    assert called.ok
    assert len(called.text.encode()) <= RESULT_BYTES
    *lines, last = called.text.splitlines()
    assert set(lines) == {"lines äöü", ""}
    assert last.endswith("of 260000 bytes are shown]")


def test_results_have_64_kib_each_and_256_together_or_a_share_of_the_context() -> None:
    assert result_bytes(None) == result_bytes(10**9) == 64 * 1024
    assert result_bytes(8_000) == 3_000  # 1/8, at 3 bytes a token
    assert reply_bytes(math.inf) == reply_bytes(10**9) == 256 * 1024
    assert reply_bytes(8_000) == 24_000
    assert reply_bytes(-1) == 0


def test_a_result_of_one_long_line_is_capped_within_it() -> None:
    text = call_tool(made(lambda _: "x" * 100_000), "made", "").text
    assert text.startswith("x" * 60_000)
    assert len(text) <= RESULT_BYTES


def test_a_call_is_the_same_in_whatever_order_its_arguments_stand() -> None:
    calls = [Call("a", "made", '{"x": 1, "y": 2}'), Call("b", "made", '{"y":2,"x":1}')]
    stored = [
        {"id": call.id, "type": "function", "function": {"name": "made", "arguments": call.arguments}} for call in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": stored}
    tools = made(lambda _: "z", x={}, y={})
    [_, *results], _ = answer_calls(message, calls, tools, new_state("t", "m"), 10_000, lambda _: None)
    assert [result["content"] for result in results] == ["z", TWICE]


def test_a_result_is_always_utf8() -> None:
    assert call_tool(made(lambda _: "a\ud800b"), "made", "").text == "a?b"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("number", 1.5, "1"),
        ("integer", 1, 1.5),
        ("boolean", True, 1),
        ("array", [1], {}),
        ("object", {}, []),
        ("string", "x", 1),
    ],
)
def test_each_json_type_is_checked(kind: str, good: object, bad: object) -> None:
    tools = made(lambda arguments: repr(arguments["it"]), it={"type": kind})
    assert call_tool(tools, "made", json.dumps({"it": good})).text == repr(good)
    assert f"it must be of type {kind}" in call_tool(tools, "made", json.dumps({"it": bad})).text


def test_schemas_are_closed_objects_that_json_can_carry(shop: Shop) -> None:
    for tool in (*shop.tools, reference_tool()):
        schema = json.loads(json.dumps(tool.parameters))
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])


def test_the_reference_answers_the_demos_question() -> None:
    called = call_tool([reference_tool()], "read_reference", "")
    assert "Standard shipping takes 3 to 5 working days" in called.text
    assert called.evidence == ({"file": "reference.md", "first": 1, "last": len(called.text.splitlines())},)


WATCHED = """
import json, sys
from pathlib import Path
from scheduler.job import Source
from scheduler.sources import check_source, list_sources
from scheduler.calls import call_tool
from scheduler.tools import file_tools

def use():
    source = Source(name="docs", path=Path(sys.argv[1]))
    check_source(source, [])
    list_sources([source], [])
    for path in ("docs", "docs/a.md", "docs/sub/b.md", "docs/x"):
        for name, arguments in (("read_file", {}), ("list_files", {}), ("search_files", {"query": "a"})):
            call_tool(file_tools([source], []), name, json.dumps({"path": path} | arguments))

use()  # whatever is imported late is there now
seen = []
sys.addaudithook(lambda event, args: seen.append((event, args)))
use()
flags = [args[2] for event, args in seen if event == "open"]
print(json.dumps([sorted({event for event, _ in seen}), flags]))
"""


def test_nothing_is_written_started_or_connected(shop: Shop) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WATCHED, str(shop.docs)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    events, flags = json.loads(run.stdout)
    assert events == ["open", "os.scandir"]
    assert len(flags) > 20
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    assert [flag for flag in flags if flag & writing] == []

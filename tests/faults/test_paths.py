"""Attacks on the tools by paths, by arguments and by renames: nothing from outside what may be read is ever shown.

Two things are no escape. A hard link inside a readable folder to a file outside is a file of that folder, as the kernel
has it; only what is private is known by its inode. A bind mount of the same file system is put there by root alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.calls import call_tool
from scheduler.tools import Tool
from tests.faults.cases import Begin, needs, sized
from tests.faults.paths_attacks import ARGUMENTS, ATTACKS, SECRET, Shop
from tests.faults.paths_renames import Race, met
from tests.faults.strace import Call, traced
from tests.support import PROGRAM, ROOT, ChatServer, Command, Project, chat_server, tool_calls

NAME = "path attacks on the tools"

# ---- one by one


@contextlib.contextmanager
def prepared(base: Path, attack: str) -> Iterator[tuple[Shop, str]]:
    """Make the folder of an attack; yield its path too, and come back from wherever it went."""
    base.mkdir()
    shop, here = Shop(base), os.getcwd()
    prepare, path = ATTACKS[attack]
    try:
        prepare(shop)
        yield shop, path.format(base=base)
    finally:
        os.chdir(here)


def check_attack(shop: Shop, path: str) -> None:
    """Try a path on every tool: errors of one line, and not a byte of what may not be read."""
    before = open_descriptors()
    read, _, searched, *_ = results = shop.all_results(path)
    assert not read.ok
    assert read.text.startswith("Error: ")
    assert "\n" not in read.text
    assert len(read.text) < 2_100
    assert not any(entry["file"] in ("docs/x", path) for called in results for entry in called.evidence)
    assert not searched.evidence
    assert SECRET not in shop.everything(path)
    assert "job.json" not in "".join(called.text.replace(path, "") for called in results)
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.timeout(60)
def test_an_attack_by_a_path_reads_nothing(harness: Begin, tmp_path: Path) -> None:
    with harness(NAME, 100) as case:
        for number, attack in enumerate(ATTACKS):
            try:
                with prepared(tmp_path / str(number), attack) as (shop, path):
                    check_attack(shop, path)
            except PermissionError:
                continue  # this machine lets us make no device
            except AssertionError as error:
                raise AssertionError(f"{attack}: {error}") from error
            case("path")


@pytest.mark.timeout(60)
def test_an_attack_by_arguments_reads_nothing_but_an_allowed_file(harness: Begin, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with harness(NAME, len(ARGUMENTS)) as case:
        for attack, (tool, arguments) in ARGUMENTS.items():
            called = call_tool(shop.tools, tool, arguments.replace("OUT", str(shop.outside / "x.md")))
            assert SECRET not in called.text, attack
            assert called.ok or "\n" not in called.text, attack
            assert {entry["file"] for entry in called.evidence} <= {"docs/a.md", "docs/sub/b.md", "notes.md"}, attack
            case("arguments")


@settings(
    max_examples=sized(200, 2_000, 10_000),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.sampled_from(
            ["docs", "..", ".", "", "~", "sub", "outside", "x.md", "link", "checkpoints", "job.json", "\0"]
        ),
        max_size=8,
    )
)
def test_no_made_up_path_leads_outside(shop: Shop, parts: list[str]) -> None:
    if not (shop.docs / "link").is_symlink():
        (shop.docs / "link").symlink_to(shop.base)
    assert SECRET not in shop.everything("/".join(parts))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


MOUNTED = """
import json, subprocess, sys
from pathlib import Path
from tests.faults.paths_attacks import SECRET, Shop
shop = Shop(Path(sys.argv[1]))
for name in ("x", "sub/y"):
    (shop.docs / name).mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(shop.docs / name)], check=True)
    (shop.docs / name / "x.md").write_text(SECRET)
    for path in (f"docs/{name}/x.md", f"docs/{name}"):
        assert SECRET not in shop.everything(path), path
        assert not shop.call("read_file", path=path).ok, path
        print("tried")
"""


def test_a_file_system_mounted_inside_is_not_entered(harness: Begin, tmp_path: Path) -> None:
    needs("unshare", "mount", root=True)
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", MOUNTED, str(tmp_path)]
    with harness(NAME, 4) as case:
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        case("mount point", ended.stdout.count("tried"))


def test_a_job_that_may_read_all_of_its_folder_does_not_read_what_is_private_there(
    harness: Begin, command: Command, project: Project, chat: ChatServer
) -> None:
    private = ("jobs.yaml", "checkpoints/nightly.json", "checkpoints/.ledger.sqlite3", "key.txt")
    asked = [("read_file", {"path": name}) for name in private]
    asked += [("list_files", {}), ("search_files", {"query": SECRET[:6]})]
    chat.script = [tool_calls(*((f"c{n}", name, json.dumps(given)) for n, (name, given) in enumerate(asked)))]
    provider = {"headers": {"X-Team": SECRET}, "key": {"file": "key.txt"}}
    project.live(chat.url, {"nightly": {"read": ["."]}}, provider=provider)
    (project.folder / "key.txt").write_text(SECRET)
    with harness(NAME, len(asked)) as case:
        command("run", "nightly")
        results = [turn["content"] for turn in project.document()["conversation"] if turn["role"] == "tool"]
        assert len(results) == len(asked)
        assert [result for result in results if SECRET in result] == []
        assert sum("there is no such file" in result for result in results) == len(private)
        case("file of the program", len(asked))


# ---- controls: tools that are broken on purpose


def naive(base: Path, may: Callable[[str], bool]) -> tuple[Tool, ...]:
    """A `read_file` that opens a path below a folder, once it has been allowed to."""

    def read(arguments: Any) -> str:
        path = os.path.join(base, arguments["path"])
        if not may(path):
            raise PermissionError(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            return file.read(10_000).decode("utf-8", "replace")

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return (Tool("read_file", "Read.", schema, read),)


def checked(base: Path) -> tuple[Tool, ...]:
    """Look where a path leads, and open it then."""
    return naive(base, lambda path: os.path.realpath(path).startswith(f"{os.path.realpath(base / 'docs')}/"))


def test_a_tool_that_opens_what_a_path_leads_to_is_caught(harness: Begin, tmp_path: Path) -> None:
    caught = 0
    for number, attack in enumerate(ATTACKS):
        with contextlib.suppress(PermissionError), prepared(tmp_path / str(number), attack) as (shop, path):
            shop.tools = naive(shop.base, lambda path: "/docs/" in path)
            caught += SECRET in shop.call("read_file", path=path).text
    with harness(NAME) as case:
        case.control("a path that is opened as it stands", caught)


# ---- a race of renames


@pytest.mark.timeout(300)
def test_no_rename_while_reading_lets_anything_out(harness: Begin, tmp_path: Path) -> None:
    swaps = sized(500, 10_000, 100_000)
    with harness(NAME, swaps) as case:
        race = Race(tmp_path)
        case("rename", race.run(swaps, met))
        assert race.texts["ESCAPED"] == 0, race.texts


@pytest.mark.timeout(300)
def test_a_tool_that_looks_and_then_opens_is_caught_by_renames(harness: Begin, tmp_path: Path) -> None:
    with harness(NAME) as case:
        race = Race(tmp_path)
        race.tools = checked(tmp_path)
        race.run(1, lambda texts: texts["ESCAPED"] >= 3)
        case.control("a look at the path, and then a plain open", race.texts["ESCAPED"])


# ---- what the real program does to the files

CHANGES = (
    *("write", "pwrite64", "writev", "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat"),
    *("rmdir", "link", "linkat", "symlink", "symlinkat", "mknod", "mknodat", "chmod", "fchmod", "fchmodat", "chown"),
    *("fchown", "lchown", "fchownat", "truncate", "ftruncate", "fallocate", "setxattr", "lsetxattr", "fsetxattr"),
    *("utimensat", "creat", "flock", "copy_file_range", "sendfile"),
)
OPENS = ("open", "openat", "openat2")
WRITING = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE")


def faults_of(calls: tuple[Call, ...], root: Path) -> list[str]:
    """What of a trace is more than reading below a folder, or reads there by following a link."""
    below = [call for call in calls if _touches(call, str(root))]
    found = [str(call) for call in below if call.name not in OPENS]
    for call in (call for call in below if call.name in OPENS):
        if any(flag in call.arguments for flag in WRITING) or "O_NOFOLLOW" not in call.arguments:
            found.append(str(call))
    return found


def _touches(call: Call, root: str) -> bool:
    named = call.arguments.split(", ", 1)[0] if "write" in call.name else call.arguments  # not the bytes
    return f"<{root}" in named or f'"{root}' in named


def test_a_slice_that_calls_the_tools_only_reads_below_their_folders(harness: Begin, project: Project) -> None:
    needs("strace")
    root = project.folder / "docs"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.md").write_text("Shipping takes 3 days.\n")
    asked = [
        ("c1", "list_files", "{}"),
        ("c2", "read_file", '{"path": "docs/sub/a.md"}'),
        ("c3", "search_files", '{"query": "shipping"}'),
        ("c4", "read_file", '{"path": "docs/../jobs.yaml"}'),
    ]
    with chat_server(tool_calls(*asked)) as chat, harness(NAME, 4) as case:
        project.live(chat.url, {"nightly": {"read": ["docs"]}})
        command = [*PROGRAM, "--config", str(project.config), "run", "nightly"]
        ran = traced(command, [*OPENS, *CHANGES], environ=project.environ())
        assert (ran.code, chat.count) == (0, 1), ran.err
        results = [turn["content"] for turn in project.document()["conversation"] if turn["role"] == "tool"]
        assert sum("Shipping takes 3 days" in result for result in results) == 2, results
        opened = [call for call in ran.calls if call.name in OPENS and '"a.md"' in call.arguments]
        assert len(opened) >= 2
        assert faults_of(ran.calls, root) == []
        assert faults_of(ran.calls, project.path().parent)  # the same look sees what the program writes elsewhere
        case("call under strace", len(asked))

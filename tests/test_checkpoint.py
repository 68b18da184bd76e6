"""The pair of checkpoint file and ledger, and the files beneath: private, whole, locked, put right."""

from __future__ import annotations

import contextlib
import errno
import grp
import json
import os
import pwd
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler import durable, load_state, resume_once
from scheduler.checkpoint import GROWTH, check_size, hold
from scheduler.document import MAX_BYTES, digest, dump
from scheduler.durable import make_folder, publish, remove_leftovers, reserved
from scheduler.errors import (
    CheckpointBusy,
    CheckpointUnknown,
    DiskFull,
    LedgerBusy,
    NotAFile,
    ReplyOrphaned,
    RequestRefused,
    ResumedError,
    StorageFailed,
    UsageRefused,
    WritableByOthers,
    WrongUser,
)
from scheduler.files import check_folder, is_private_group, read_regular
from scheduler.ledger import NAME, Claim
from scheduler.reader import locate, peek
from scheduler.state import Sent, admit, new_state, settle
from tests.support import ROOT, wait_until

TASK, MODEL = "Summarise the log", "m1"
SENT = Sent(tokens=100, model=MODEL, window=None, cut=[])
CLAIM = Claim(job="j", provider="p", model=MODEL, task=TASK, live=False, point=None, deadline=600)
UMASKS = [0o000, 0o022, 0o077, 0o777]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a checkpoint will be; its folder is not there yet."""
    return tmp_path / "checkpoints" / "nightly.json"


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    """Run the block under a umask."""
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def said(text: str) -> Callable[[Any], dict[str, Any]]:
    """An ask that is answered with this text."""
    return lambda _: {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


def cut(_: object) -> dict[str, Any]:
    """An ask whose reply is cut, so that the job goes on."""
    return {"message": {"role": "assistant", "content": "part "}, "finish_reason": "length"}


def never(_: object) -> dict[str, Any]:
    """An ask that must not be called."""
    raise AssertionError("a request was sent")


def spend(path: Path, attempts: int) -> list[bytes]:
    """Run so many slices that leave the job ready; return what was published after each."""
    return [(resume_once(TASK, path, cut, MODEL), path.read_bytes())[1] for _ in range(attempts)]


def fingerprint(path: Path) -> tuple[Any, ...]:
    """What changes when anything touches a path: inode, times, kind, content."""
    found = path.lstat()
    body = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_mode, body


def names(folder: Path) -> set[str]:
    """The names in a folder but those that SQLite makes beside the ledger."""
    return {entry.name for entry in folder.iterdir()} - {NAME + "-wal", NAME + "-shm"}


# ---- files


def test_no_reader_ever_sees_a_torn_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    bodies = [b"a" * 300_000, b"b" * 170_000]
    publish(path, bodies[0])
    stop = threading.Event()
    torn: list[bytes | None] = []
    reads = [0]

    def look() -> None:
        while not stop.is_set():
            body = read_regular(path, 1_000_000)
            reads[0] += 1
            if body not in bodies:
                torn.append(body)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for index in range(150):
            publish(path, bodies[index % 2])
        wait_until(lambda: reads[0] > 20, 60, "20 reads")
    finally:
        stop.set()
        reader.join(60)
    assert torn == []
    assert names(tmp_path) == {"x.json"}


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_everything_that_is_made_is_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "a" / "b" / "nightly.json"
    with umask(mask):
        state, _ = resume_once(TASK, path, said("fin"), MODEL)
        again, _ = resume_once(TASK, path, never, MODEL)
    assert again == state
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)} == {0o700}
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert {modes[name] for name in ("nightly.json", "nightly.json.lock", NAME)} == {0o600}
    assert set(modes.values()) == {0o600}


def test_an_existing_folder_keeps_its_mode(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o755)
    spend(path, 1)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o702, 0o777, 0o1777])
def test_a_folder_that_everyone_may_write_is_refused(path: Path, mode: int) -> None:
    path.parent.mkdir()
    path.parent.chmod(mode)
    with pytest.raises(WritableByOthers, match="go-w"):
        resume_once(TASK, path, never, MODEL)
    assert names(path.parent) == set()


def test_a_folder_of_another_user_is_refused_with_the_line_to_use(path: Path) -> None:
    folder = Path("/")
    if os.geteuid() == 0:
        folder = path.parent
        folder.mkdir(0o755)
        os.chown(folder, 65534, 65534)
    owner = pwd.getpwuid(folder.stat().st_uid).pw_name
    with pytest.raises(WrongUser, match=f"sudo -u {owner} "):
        resume_once(TASK, folder / path.name, never, MODEL)
    assert not (folder / path.name).exists()


@pytest.mark.parametrize(
    ("group", "members", "primary", "private"),
    [
        ("ann", [], ["ann"], True),
        ("ann", ["ann"], ["ann"], True),
        ("ann", [], [], True),
        ("ann", ["ben"], ["ann"], False),
        ("ann", [], ["ann", "ben"], False),
        ("staff", [], ["ann"], False),
        (None, [], ["ann"], False),
    ],
)
def test_a_group_is_private_by_its_name_and_for_want_of_other_members(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str | None,
    members: list[str],
    primary: list[str],
    private: bool,
) -> None:
    def group_of(gid: int) -> Any:
        if group is None:
            raise KeyError(gid)
        return SimpleNamespace(gr_name=group, gr_mem=members, gr_gid=gid)

    users = [SimpleNamespace(pw_name=name, pw_gid=tmp_path.stat().st_gid) for name in primary]
    monkeypatch.setattr(grp, "getgrgid", group_of)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann"))
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    assert is_private_group(tmp_path.stat().st_gid, os.geteuid()) is private
    tmp_path.chmod(0o770)
    with contextlib.nullcontext() if private else pytest.raises(WritableByOthers, match="g-w"):
        check_folder(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAFile, match="regular file"):
        check_folder(tmp_path / "file")
    with pytest.raises(NotAFile, match="file is a regular file"):
        make_folder(tmp_path / "file" / "below")


@pytest.mark.parametrize("name", [NAME, NAME + "-wal", "a.json.lock", ".a.json", "x" * 201])
def test_a_name_of_the_ledgers_or_a_locks_kind_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    for use in (
        lambda: resume_once(TASK, tmp_path / name, never, MODEL),
        lambda: load_state(tmp_path / name, TASK, MODEL),
    ):
        with pytest.raises(UsageRefused):
            use()
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    "place",
    [
        lambda path: path.mkdir(),
        lambda path: path.symlink_to(path.with_name("target")),
        lambda path: path.symlink_to(path.with_name("nowhere")),
        lambda path: os.mkfifo(path),
    ],
    ids=["directory", "link", "dangling link", "FIFO"],
)
@pytest.mark.parametrize("name", ["nightly.json", "nightly.json.lock"])
def test_only_a_regular_file_is_a_checkpoint_or_a_lock(path: Path, name: str, place: Callable[[Path], None]) -> None:
    path.parent.mkdir(0o700)
    path.with_name("target").write_text("theirs")
    place(path.with_name(name))
    before = fingerprint(path.with_name(name)), fingerprint(path.with_name("target"))
    with pytest.raises(NotAFile, match=name):
        resume_once(TASK, path, never, MODEL)
    assert (fingerprint(path.with_name(name)), fingerprint(path.with_name("target"))) == before


def test_reserved_space_has_no_name_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    free = os.statvfs(tmp_path).f_bfree
    with reserved(path, before=1024, after=64 * 1024 * 1024):
        assert names(tmp_path) == set()
        assert os.statvfs(tmp_path).f_bfree < free
    assert names(tmp_path) == set()


@pytest.mark.parametrize(("before", "after"), [(0, 1024 * 1024), (1024 * 1024, 0), (150 * 1024, 150 * 1024)])
def test_space_that_is_not_there_is_refused_and_leaves_nothing(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "x.json"
    descriptors = len(os.listdir("/dev/fd"))
    with file_size_limit(256 * 1024):
        with pytest.raises(DiskFull, match="space"), reserved(path, before=before, after=after):
            raise AssertionError("there was space")
        with reserved(path, before=1024, after=1024):
            pass
    assert names(tmp_path) == set()
    assert len(os.listdir("/dev/fd")) == descriptors


def test_another_holder_who_takes_the_siblings_away_is_no_fault_of_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(path.parent)
    sync, taken = os.fsync, list[Path]()

    def rival(descriptor: int) -> None:
        sync(descriptor)
        if len(taken) < 3:
            taken.extend(path.parent.glob("*.tmp"))
            remove_leftovers(path)

    monkeypatch.setattr(durable.os, "fsync", rival)
    publish(path, b"new")
    path.with_name(f".{path.name}.{'0' * 16}.tmp").touch()
    with reserved(path, before=1024, after=1024):
        pass
    assert (len(taken), path.read_bytes(), list(path.parent.glob("*.tmp"))) == (3, b"new", [])


def test_publishing_without_space_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    publish(path, b"old")
    with file_size_limit(256 * 1024), pytest.raises(DiskFull):
        publish(path, b"x" * 1024 * 1024)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"x.json"}


def test_a_disk_that_only_claims_to_have_published_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    publish(path, b"old")
    with monkeypatch.context() as lying:
        lying.setattr(os, "write", lambda _, body: len(body))
        with pytest.raises(StorageFailed, match="kept less than was written"):
            publish(path, b"new")
    with monkeypatch.context() as lying:
        lying.setattr(Path, "rename", lambda *_: None)
        with pytest.raises(StorageFailed, match="did not take its place"):
            publish(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"x.json"}


def test_without_space_for_the_reply_nothing_is_sent_or_counted(path: Path) -> None:
    [body] = spend(path, 1)
    with file_size_limit(1024 * 1024), pytest.raises(DiskFull, match="nothing was sent"):
        resume_once(TASK, path, never, MODEL)
    assert path.read_bytes() == body
    assert load_state(path, TASK, MODEL)["attempts"] == 1


def test_the_room_for_a_reply_is_held_while_it_is_waited_for(path: Path) -> None:
    held = []

    def ask(request: object) -> dict[str, Any]:
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # the one by which they are listed
                found = os.fstat(int(name))
                held.extend([found.st_blocks * 512] if found.st_size >= GROWTH and not found.st_nlink else [])
        return cut(request)

    resume_once(TASK, path, ask, MODEL)
    assert len(held) == 1
    assert held[0] >= GROWTH


def test_only_leftovers_of_the_very_path_are_removed(tmp_path: Path) -> None:
    mark = "0123456789abcdef"
    stay = {
        "x.json",
        "x.json~",
        "x.json.lock",
        ".x.json.swp",
        ".x.json.tmp123",
        f".x.json.{mark}0.tmp",
        f".x.json.{mark[:-1]}.tmp",
        f".x.json.{mark.upper()}.tmp",
        f".xyjson.{mark}.tmp",
        f".other.json.{mark}.tmp",
        f"x.json.{mark}.tmp",
        "x.sync-conflict-20260301-101010-ABCDEFG.json",
    }
    for name in {*stay, f".x.json.{mark}.tmp"}:
        (tmp_path / name).write_text("x")
    remove_leftovers(tmp_path / "x.json")
    assert names(tmp_path) == stay


def test_reading_stops_beyond_the_limit_and_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_regular(tmp_path / "x", 3) == b"1234"
    assert read_regular(tmp_path / "x", 9) == b"12345"
    assert read_regular(tmp_path / "y", 9) is None


# ---- locks


def test_one_owner_at_a_time_over_threads_and_nobody_waits(path: Path) -> None:
    barrier, leave = threading.Barrier(8), threading.Event()
    came: list[str] = []

    def enter() -> None:
        barrier.wait(60)
        try:
            with hold(path):
                came.append("in")
                leave.wait(60)
        except Exception as error:
            came.append(type(error).__name__)

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(came) == 8, 60, "all threads but one refused")
    finally:
        leave.set()
        for thread in threads:
            thread.join(60)
    assert sorted(came) == ["CheckpointBusy"] * 7 + ["in"]
    with hold(path):
        pass
    assert names(path.parent) == {"nightly.json.lock"}


def test_two_names_of_one_folder_are_one_checkpoint(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(0o700)
    (tmp_path / "link").symlink_to(path.parent)
    assert locate(tmp_path / "link" / ".." / "link" / path.name) == locate(path)
    with hold(path), pytest.raises(CheckpointBusy), hold(tmp_path / "link" / path.name):
        raise AssertionError("two owners")


CHILD = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from scheduler import resume_once
def ask(request):
    print("asking", flush=True)
    sys.stdin.read()
    return {{"message": {{"role": "assistant", "content": "from the child"}}, "finish_reason": "stop"}}
resume_once({TASK!r}, sys.argv[1], ask, {MODEL!r})
"""


@contextlib.contextmanager
def child(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, in the middle of a request of its own; it is answered once its stdin ends."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"asking\n"
            yield process
        finally:
            process.kill()


def test_a_checkpoint_is_busy_while_its_owner_lives_and_interrupted_once_it_is_dead(path: Path) -> None:
    with child(path) as process:
        counted = path.read_bytes()
        assert json.loads(counted)["attempts"] == 1
        with pytest.raises(CheckpointBusy):
            resume_once(TASK, path, never, MODEL)
        path.with_name("nightly.json.lock").unlink()
        with pytest.raises(CheckpointBusy):
            resume_once(TASK, path, never, MODEL)
        assert load_state(path, TASK, MODEL)["attempts"] == 1
        assert path.read_bytes() == counted
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    state, events = resume_once(TASK, path, said("fin"), MODEL)
    assert [event["event"] for event in events] == ["interrupted", "admitted", "settled"]
    assert events[0] == {"event": "interrupted", "attempt": 1, "of": 4}
    assert [(entry["outcome"], entry["billed"]) for entry in state["history"]] == [
        ("interrupted", "maybe"),
        ("answered", "maybe"),
    ]


def test_a_slice_that_came_too_late_does_not_hide_the_one_that_waits_for_its_reply(path: Path) -> None:
    lock = path.with_name("nightly.json.lock")

    def ask(request: Any) -> dict[str, Any]:
        with pytest.raises(CheckpointBusy):
            late.admit(new_state(TASK, MODEL), CLAIM, SENT, 4, time.time())
        late.leave()
        lock.unlink()
        with pytest.raises(CheckpointBusy):
            resume_once(TASK, path, never, MODEL)
        return said("fin")(request)

    with hold(path) as late:
        late.load(lambda _: None)
        lock.unlink()
        state, _ = resume_once(TASK, path, ask, MODEL)
    assert (state["status"], state["attempts"]) == ("done", 1)


def test_ending_an_attempt_of_a_dead_process_waits_for_a_locked_ledger_no_longer_than_counting_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.patience.BUSY_SECONDS", 0.2)
    with child(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    with contextlib.closing(sqlite3.connect(path.with_name(NAME), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        with pytest.raises(LedgerBusy):
            resume_once(TASK, path, never, MODEL)
        assert time.monotonic() - begun < 1.5
    assert load_state(path, TASK, MODEL)["attempts"] == 1
    assert resume_once(TASK, path, said("fin"), MODEL)[1][0]["event"] == "interrupted"


def test_an_owner_whose_ledger_went_away_keeps_its_reply_among_the_orphans(path: Path) -> None:
    with child(path) as process:
        for entry in path.parent.iterdir():
            entry.unlink()
        spend(path, 1)
        _, error = process.communicate(b"", timeout=60)
    assert b"ReplyOrphaned" in error
    assert load_state(path, TASK, MODEL)["attempts"] == 1
    with hold(path) as held, held.ledger.reading() as tx:
        assert b"from the child" in tx.execute("SELECT body FROM orphan").fetchone()[0]


# ---- file and ledger


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_file_that_is_missing_or_older_is_put_back_and_the_job_goes_on(
    path: Path, attempts: int, missing: bool
) -> None:
    bodies = spend(path, attempts)
    if missing or attempts == 1:
        path.unlink()
    else:
        path.write_bytes(bodies[0])
    before = fingerprint(path) if path.exists() else None
    assert load_state(path, TASK, MODEL) == json.loads(bodies[-1])
    assert peek(path).behind
    assert (fingerprint(path) if path.exists() else None) == before
    leftover = path.with_name(f".{path.name}.0123456789abcdef.tmp")
    leftover.write_text("cut")
    state, events = resume_once(TASK, path, cut, MODEL)
    assert events[0] == {"event": "put_back", "missing": missing or attempts == 1, "attempt": attempts, "of": 4}
    assert [event["event"] for event in events].count("put_back") == 1
    assert (state["attempts"], len(state["conversation"])) == (attempts + 1, attempts + 1)
    assert json.loads(path.read_bytes()) == state
    assert not leftover.exists()


def test_a_final_file_is_put_back_without_a_request(path: Path) -> None:
    resume_once(TASK, path, said("fin"), MODEL)
    body = path.read_bytes()
    path.unlink()
    state, events = resume_once(TASK, path, never, MODEL)
    assert (state["answer"], [event["event"] for event in events]) == ("fin", ["put_back"])
    assert path.read_bytes() == body
    assert resume_once(TASK, path, never, MODEL) == (state, [])


def document(attempts: int) -> bytes:
    """A valid document of the same job that no ledger published."""
    state = new_state(TASK, MODEL)
    for number in range(1, attempts + 1):
        state = admit(state, number, point=None, started="2026-03-02T09:00:00Z")
        state = settle(state, "timeout", finished="2026-03-02T09:00:00Z", max_attempts=4)
    return dump(state)


@pytest.mark.parametrize("attempts", [0, 2])
@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b"\0" * 64, b"{not json", document(0), document(1), document(4), b"x" * 17 * 1024**2],
    ids=["empty", "null", "list", "object", "NULs", "cut", "reset", "fewer", "more", "huge"],
)
def test_bytes_that_were_never_published_block_and_are_left_as_they_are(path: Path, attempts: int, body: bytes) -> None:
    path.parent.mkdir(0o700)
    spend(path, attempts)
    path.write_bytes(body)
    before = fingerprint(path)
    for use in (lambda: resume_once(TASK, path, never, MODEL), lambda: load_state(path, TASK, MODEL)):
        with pytest.raises(CheckpointUnknown, match=r"nightly\.json"):
            use()
    assert fingerprint(path) == before


def test_a_flipped_bit_anywhere_blocks(path: Path) -> None:
    [body] = spend(path, 1)
    for index in range(len(body)):
        flipped = bytearray(body)
        flipped[index] ^= 1 << index % 8
        path.write_bytes(flipped)
        with pytest.raises(CheckpointUnknown):
            load_state(path, TASK, MODEL)
    before = fingerprint(path)
    with pytest.raises(CheckpointUnknown):
        resume_once(TASK, path, never, MODEL)
    assert fingerprint(path) == before
    path.write_bytes(body)
    assert load_state(path, TASK, MODEL)["attempts"] == 1


def test_neighbours_are_neither_run_nor_read_nor_deleted(path: Path) -> None:
    spend(path, 2)
    copies = ("nightly.sync-conflict-20260301-101010-ABCDEFG.json", "nightly.json~", ".nightly.json.swp")
    for name in copies:
        path.with_name(name).write_bytes(document(0))
    assert resume_once(TASK, path, cut, MODEL)[0]["attempts"] == 3
    assert {path.with_name(name).read_bytes() for name in copies} == {document(0)}


@pytest.mark.parametrize("broken", ["digest", "body", "counts fewer than the admissions"])
def test_a_damaged_document_in_the_ledger_is_told_with_the_ledgers_path(path: Path, broken: str) -> None:
    bodies = spend(path, 2)
    rows = {
        "digest": (bodies[1], "0" * 64),
        "body": (b"{}", digest(b"{}")),
        "counts fewer than the admissions": (bodies[0], digest(bodies[0])),
    }
    with hold(path) as held, held.ledger.writing() as tx:
        tx.execute("UPDATE document SET body = ?, digest = ?", rows[broken])
    if broken == "body":
        path.unlink()
    for use in (lambda: resume_once(TASK, path, never, MODEL), lambda: load_state(path, TASK, MODEL)):
        with pytest.raises(ResumedError) as refused:
            use()
        assert str(path.with_name(NAME)) in str(refused.value)


def test_a_slice_that_dies_in_this_process_is_interrupted_not_busy(path: Path) -> None:
    with hold(path) as held:
        held.look()
        held.admit(new_state(TASK, MODEL), CLAIM, SENT, 4, 1_772_442_000)
        with pytest.raises(CheckpointBusy):
            held.look()
    state, events = resume_once(TASK, path, cut, MODEL)
    assert [entry["outcome"] for entry in state["history"]] == ["interrupted", "length"]
    assert events[0]["event"] == "interrupted"


def test_an_attempt_whose_row_says_that_it_has_ended_is_ended_in_the_document_too(path: Path) -> None:
    with hold(path) as held:
        held.look()
        held.admit(new_state(TASK, MODEL), CLAIM, SENT, 4, 1_772_442_000)
    with contextlib.closing(sqlite3.connect(path.with_name(NAME))) as other, other:
        other.execute("UPDATE admission SET outcome = 'error', ended_at = admitted_at")
    state, events = resume_once(TASK, path, said("fin"), MODEL)
    assert [entry["outcome"] for entry in state["history"]] == ["interrupted", "answered"]
    assert events[0]["event"] == "interrupted"
    assert path.read_bytes() == dump(state)


def test_a_reply_for_an_attempt_that_another_process_has_ended_is_kept_apart(path: Path) -> None:
    def ask(_: object) -> dict[str, Any]:
        with contextlib.closing(sqlite3.connect(path.with_name(NAME))) as other, other:
            other.execute("UPDATE admission SET outcome = 'interrupted', ended_at = admitted_at")
        return {"message": {"role": "assistant", "content": "the late answer"}}

    with pytest.raises(ReplyOrphaned, match="attempt 1"):
        resume_once(TASK, path, ask, MODEL)
    with contextlib.closing(sqlite3.connect(path.with_name(NAME))) as ledger:
        [(attempt, body)] = ledger.execute("SELECT attempt, body FROM orphan").fetchall()
    assert (attempt, json.loads(body)["answer"]) == (1, "the late answer")
    assert load_state(path, TASK, MODEL)["answer"] is None


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSYS, "its file system has no locks: Function not implemented"),
        (errno.ENOLCK, "its file system has no locks: No locks available"),
        (errno.EOPNOTSUPP, "its file system has no locks: Operation not supported"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_where_no_lock_can_be_had_it_is_refused_and_nothing_is_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(StorageFailed, match=rf"nightly\.json\.lock: the disk failed \({reason}\)"):
        resume_once(TASK, path, never, MODEL)
    assert not path.exists()


def test_a_document_without_room_for_a_reply_is_refused_before_it_counts(path: Path) -> None:
    check_size(MAX_BYTES - GROWTH)
    with pytest.raises(RequestRefused, match="leave room for a reply"):
        resume_once("t" * (MAX_BYTES - GROWTH), path, never, MODEL)
    assert not path.exists()


def test_where_the_file_cannot_be_published_nothing_is_sent_and_the_attempt_stays_counted(path: Path) -> None:
    spend(path, 1)
    with hold(path) as held:
        state = held.load(lambda _: None)
        assert state is not None
        path.unlink()
        path.mkdir()
        with pytest.raises(ResumedError, match=r"Attempt 2 stays counted; nothing was sent\.$"):
            held.admit(state, CLAIM, SENT, 4, 1_772_442_000)
        path.rmdir()
    state = load_state(path, TASK, MODEL)
    last = state["history"][-1]
    assert (state["attempts"], last["outcome"], last["billed"]) == (2, "error", "no")
    assert resume_once(TASK, path, said("fin"), MODEL)[0]["attempts"] == 3


@pytest.mark.parametrize("reply", [{"role": "assistant", "content": "fin"}, {"role": "assistant", "content": ""}])
def test_where_the_file_cannot_be_published_after_the_reply_it_says_so_and_loses_nothing(
    path: Path, reply: dict[str, Any]
) -> None:
    def ask(_: object) -> dict[str, Any]:
        path.unlink()
        path.mkdir()
        return {"message": reply}

    with pytest.raises(ResumedError) as refused:
        resume_once(TASK, path, ask, MODEL)
    said = "The outcome of attempt 1 and any reply are saved in the ledger; the file follows at the next tick."
    assert str(refused.value).endswith(said)
    path.rmdir()
    state = load_state(path, TASK, MODEL)
    assert (state["attempts"], state["answer"]) == (1, reply["content"] or None)
    if reply["content"]:
        assert [event["event"] for event in resume_once(TASK, path, never, MODEL)[1]] == ["put_back"]


def test_where_the_ledger_cannot_be_written_after_the_reply_it_says_that_the_reply_is_lost(path: Path) -> None:
    def ask(_: object) -> dict[str, Any]:
        path.with_name(NAME).unlink()
        path.with_name(NAME).mkdir()
        return {"message": {"role": "assistant", "content": "fin"}}

    with pytest.raises(ResumedError, match=r"Attempt 1 stays counted; what came of it could not be saved\.$"):
        resume_once(TASK, path, ask, MODEL)


def test_a_ledger_that_is_locked_for_a_while_after_the_reply_costs_no_reply(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.patience.BUSY_SECONDS", 0.05)
    lockers: list[threading.Timer] = []

    def ask(_: object) -> dict[str, Any]:
        other = sqlite3.connect(path.with_name(NAME), isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        lockers.append(threading.Timer(0.5, other.close))
        lockers[0].start()
        return {"message": {"role": "assistant", "content": "fin"}}

    state, _ = resume_once(TASK, path, ask, MODEL)
    lockers[0].join()
    assert state["answer"] == "fin"

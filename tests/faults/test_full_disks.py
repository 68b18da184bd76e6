"""Disks of every free size, without inodes, read-only, or with a limit on files: no request without room for its reply.

The checkpoint folder is a mount that only the fork server's namespace has; it is looked at through the server's root.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from scheduler import checkpoint
from tests.faults.cases import Begin, needs, sized
from tests.faults.fork_server import ForkServer, fork_server
from tests.faults.in_memory import in_memory
from tests.faults.slices import Watched, end_faults, said_faults, slice_faults, stored, watched_server
from tests.support import Project

HARNESS = "a disk that is full, becomes full, or cannot be written"
KIB, MIB = 1024, 1024 * 1024
ROOM = 64 * MIB
PAGE = 4096
LARGE = 900 * KIB  # almost the most that an answer may have
SAYABLE = KIB  # below this limit on files, the line on stderr cannot be written either

Kind = Literal["bytes free", "inodes free", "read-only", "limit on files", "filled meanwhile"]


@dataclass(frozen=True)
class Disk:
    """A disk with so much of it left before the slice, or, where it is filled meanwhile, while the request is out."""

    kind: Kind
    left: int
    begun: bool
    reply: int = 0


@dataclass
class Place:
    """Where the cases are tried: a checkpoint folder that is mounted anew for each."""

    server: ForkServer
    watched: Watched
    project: Project
    template: Path

    @property
    def seen(self) -> Path:
        """The checkpoint folder as the program sees it."""
        return Path(f"/proc/{self.server.pid}/root{self.project.path().parent}")

    def remount(self, options: str) -> None:
        self.server.system("mount", "-o", f"remount,{options}", self.project.path().parent)

    def lay(self, disk: Disk) -> None:
        """Mount an empty disk, with what an attempt before has left, and take the room away."""
        options = f"size={ROOM},mode=700"
        self.server.system("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.project.path().parent)
        if disk.begun:
            shutil.copytree(self.template, self.seen, dirs_exist_ok=True)
        found = os.statvfs(self.seen)
        if disk.kind == "bytes free":
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            self.remount(f"size={max(used + disk.left, PAGE)}")  # a size of 0 would be no limit
        elif disk.kind == "inodes free":
            self.remount(f"nr_inodes={found.f_files - found.f_ffree + disk.left}")
        elif disk.kind == "read-only":
            self.remount("ro")

    def give_room(self, disk: Disk) -> None:
        if disk.kind == "filled meanwhile":
            (self.seen / "ballast").unlink()
        elif disk.kind == "inodes free":
            self.remount("nr_inodes=10000")
        elif disk.kind in ("bytes free", "read-only"):
            self.remount(f"rw,size={ROOM}")

    def fill(self, left: int) -> None:
        """Take all of the disk but so many bytes."""
        found = os.statvfs(self.seen)
        size = max(found.f_bavail * found.f_frsize - left, 0)
        with open(self.seen / "ballast", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size or 1)

    def try_disk(self, disk: Disk, broken: str = "") -> list[str]:
        """Run one slice on this disk, then with room to the job's end; return which promises were broken."""
        self.lay(disk)
        try:
            return [f"{disk}: {fault}" for fault in self._tried(disk, broken)]
        finally:
            self.server.system("umount", self.project.path().parent)
            shutil.rmtree(self.project.folder.parent / "state", ignore_errors=True)

    def _tried(self, disk: Disk, broken: str) -> list[str]:
        filled = disk.kind == "filled meanwhile"
        path = self.seen / self.project.path().name
        self.watched.begin(path, size=disk.reply, meanwhile=(lambda: self.fill(disk.left)) if filled else bool)
        before = stored(path)
        most = disk.left if disk.kind == "limit on files" else None
        told = self.server.run(self.project, "run", "nightly", most=most, module=__name__, broken=broken)
        after = stored(path)
        faults = slice_faults(before, after, self.watched, told)
        if most is None or most >= SAYABLE:
            faults += said_faults(told, self.project.folder.parent)
            # SQLite tells a -shm file that the limit stops as a fault of the disk.
            words = ("no space left", "read-only", *["disk I/O error"] * (disk.kind == "limit on files"))
            if told.code and not any(word in told.err for word in words):
                faults.append(f"it does not say space: {told.err}")
        if told.code not in (0, 74):
            faults.append(f"exit {told.code}: {told.err}")
        if not self.watched.sent and after.attempts != before.attempts:
            faults.append("an attempt was counted that was not sent")
        faults += [f"there was no room for {text}" for text in self.watched.texts if not after.has(text)]
        self.give_room(disk)
        sent = self.watched.sent
        faults += end_faults(self.server, self.project, self.watched, int(disk.begun), may_block=False)
        if told.code == 0 and self.watched.sent > sent:
            faults.append("it was asked again although an answer had come")
        return faults


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    needs("unshare", "mount", root=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(in_memory())
        watched = stack.enter_context(watched_server())
        server = stack.enter_context(fork_server("unshare", "--mount", "--propagation", "private"))
        project = Project(Path(folder, "work", "project"))
        project.path().parent.mkdir(0o700, parents=True)
        project.folder.chmod(0o700)
        (project.folder / "notes.md").write_text("The log is short.\n")
        project.live(watched.chat.url, {"nightly": {"read": ["notes.md"]}})
        watched.begin(project.path(), calls=True)
        assert server.run(project, "run", "nightly").code == 0
        template = Path(folder, "template")
        project.path().parent.rename(template)
        project.path().parent.mkdir(0o700)
        yield Place(server, watched, project, template)


def spread(count: int, most: int, seed: str) -> list[int]:
    """So many sizes from 0 up: half of them small ones, each by chance within its step."""
    chance = random.Random(seed)
    small = [int((step + chance.random()) * 512 * KIB / (count // 2 or 1)) for step in range(count // 2)]
    return [
        0,
        *small,
        *(int((step + chance.random()) * most / (count - count // 2)) for step in range(count - count // 2)),
    ]


def disks() -> list[Disk]:
    """The disks that this run tries."""
    found = []
    for begun in (True, False)[: sized(1, 2, 2)]:
        found += [Disk("bytes free", left, begun) for left in spread(sized(1, 24, 90), 6 * MIB, f"free {begun}")]
        found += [Disk("inodes free", left, begun) for left in range(0, 9, sized(8, 1, 1))]
        found += [Disk("read-only", 0, begun)]
        found += [Disk("limit on files", left, begun) for left in spread(sized(1, 12, 40), 6 * MIB, f"limit {begun}")]
        for reply in sized(1, 2, 8) * [50] + sized(0, 3, 10) * [50 * KIB] + sized(0, 2, 8) * [LARGE]:
            chance = random.Random(f"filled {begun} {len(found)}")
            found += [Disk("filled meanwhile", chance.choice((0, chance.randrange(256 * KIB))), begun, reply)]
    return found


def test_no_request_is_sent_without_room_for_its_result(place: Place, harness: Begin) -> None:
    with harness(HARNESS, sized(6, 100, 300)) as case:
        wrong = []
        for disk in disks():
            wrong += place.try_disk(disk)
            case(disk.kind)
        assert not wrong, "\n".join(wrong)


def reserve_nothing() -> None:
    """Break the program: it makes sure of no space before it asks."""
    checkpoint.reserved = lambda *_, **__: contextlib.nullcontext()  # type: ignore[assignment]  # broken on purpose


def test_a_program_that_reserves_nothing_is_caught(place: Place, harness: Begin) -> None:
    with harness(HARNESS) as case:
        disk = Disk("filled meanwhile", 0, begun=True, reply=LARGE)
        assert not place.try_disk(disk)
        caught = place.try_disk(disk, "reserve_nothing")
        case.control("no space is reserved", sum("no room for" in fault for fault in caught))

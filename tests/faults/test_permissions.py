"""Every kind, mode and owner of each file that the program opens, and every umask, as root and as a plain user.

Either the slice works, and what it made is 0600 in folders of 0700, or it is refused in one line that names the path,
and nothing was counted, sent or changed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scheduler import database, durable
from tests.faults.cases import Begin, needs, sized
from tests.faults.fork_server import HUNG, ForkServer, fork_server
from tests.faults.slices import CODES, Watched, said_faults, slice_faults, stored, watched_server
from tests.support import Project

HARNESS = "modes, owners and kinds of files"
NOBODY = 65534
USERS = (0, NOBODY)
UMASKS = (0o000, 0o022, 0o077, 0o777)
FOLDERS = {"config folder": "project", "checkpoint folder": "project/checkpoints", "state home": "state"}
FILES = {
    "jobs.yaml": "project/jobs.yaml",
    "checkpoint": "project/checkpoints/nightly.json",
    "lock": "project/checkpoints/nightly.json.lock",
    "ledger": "project/checkpoints/.ledger.sqlite3",
    "-wal": "project/checkpoints/.ledger.sqlite3-wal",
    "-shm": "project/checkpoints/.ledger.sqlite3-shm",
    "delivery target": "out/answer.txt",
    "reference file": "project/notes.md",
}
PLACES = FOLDERS | FILES


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def _link(make: Callable[[Path], object]) -> Callable[[Path, Path], object]:
    def made(path: Path, _: Path) -> None:
        target = path.with_name("target")
        make(target)
        path.symlink_to(target)

    return made


# Each puts something where a file or folder was; that is kept aside.
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "folder": lambda path, _: path.mkdir(0o700),
    "FIFO": lambda path, _: os.mkfifo(path),
    "socket": lambda path, _: _bind(path),
    "device": lambda path, _: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3)),
    "regular file": lambda path, _: path.write_bytes(b""),
    "link to it": lambda path, aside: path.symlink_to(aside),
    "link to a folder": _link(lambda target: target.mkdir(0o700)),
    "link to a FIFO": _link(os.mkfifo),
    "link to a device": lambda path, _: path.symlink_to("/dev/null"),
    "dangling link": lambda path, _: path.symlink_to("nowhere"),
    "hard link": lambda path, aside: os.link(aside, path),
}

# An empty ledger is one whose making was cut off, and no folder has a hard link.
NO_ODDITY = {"ledger": ("regular file",)} | dict.fromkeys(FOLDERS, ("folder", "hard link"))


@dataclass(frozen=True)
class Odd:
    """What is odd: the kind, the mode or the owner of a place, or nothing but the umask."""

    uid: int
    place: str = ""
    kind: str = ""
    mode: int | None = None
    foreign: bool = False
    umask: int = 0o022
    new: bool = False

    @property
    def command(self) -> str:
        return "tick" if self.place == "state home" else "run"


def every_odd() -> list[Odd]:
    """All that can be odd."""
    found = [Odd(uid, umask=umask, new=new) for uid in USERS for umask in UMASKS for new in (False, True)]
    for uid in USERS:
        for place in PLACES:
            modes = (0, 0o500, 0o555, 0o755, 0o777) if place in FOLDERS else (0, 0o400, 0o444, 0o644, 0o666, 0o777)
            found += [Odd(uid, place, mode=mode) for mode in modes]
            found += [Odd(uid, place, foreign=True)]
            found += [Odd(uid, place, kind) for kind in KINDS if kind not in NO_ODDITY.get(place, ())]
    return found


def trace(path: Path) -> tuple[object, ...]:
    """All that a change of a file, folder or link would change; nothing where none is there."""
    if not os.path.lexists(path):
        return ()
    found = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(found.st_mode) else os.readlink(path) if path.is_symlink() else None
    times = () if stat.S_ISDIR(found.st_mode) else (found.st_mtime_ns, found.st_size)
    return found.st_mode, found.st_ino, found.st_uid, content, *times


@dataclass
class Place:
    """Where the cases of one user are tried: a folder that is put back before each."""

    server: ForkServer
    watched: Watched
    work: Path
    template: Path
    uid: int
    looked: list[str] = field(default_factory=list)

    @property
    def project(self) -> Project:
        return Project(self.work / "project")

    def put_back(self, odd: Odd) -> Path:
        """Lay what the template has, with what is odd in it; return the odd place."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.template, self.work)
        if odd.new:
            shutil.rmtree(self.project.path().parent)
            shutil.rmtree(self.work / "state")
        for path in (self.work, *self.work.rglob("*")):
            os.chown(path, self.uid, self.uid)
        victim = self.work / PLACES.get(odd.place, "project/jobs.yaml")
        if odd.place in ("-wal", "-shm"):
            victim.touch(0o600)
            os.chown(victim, self.uid, self.uid)
        if odd.kind:
            aside = victim.with_name("aside")
            victim.rename(aside)
            KINDS[odd.kind](victim, aside)
            for path in (victim, victim.with_name("target")):
                if os.path.lexists(path):
                    os.chown(path, self.uid, self.uid, follow_symlinks=False)
        if odd.mode is not None:
            victim.chmod(odd.mode)
        if odd.foreign:
            os.chown(victim, *[NOBODY - self.uid] * 2)
        return victim

    def open_to_others(self, known: set[Path], odd: Odd) -> list[str]:
        """Name the files that came since and that anyone else may open."""
        fresh = [path for path in self.work.rglob("*") if path not in known]
        if odd.place == "ledger":  # SQLite gives those beside it the mode and owner that it has
            fresh = [path for path in fresh if not path.name.endswith(("-wal", "-shm"))]
        modes = [(path, path.lstat()) for path in fresh if os.path.lexists(path)]
        wanted = {stat.S_IFDIR | 0o700, stat.S_IFREG | 0o600}
        return [
            f"{path} is {found.st_mode:o} of {found.st_uid}"
            for path, found in modes
            if found.st_mode not in wanted or found.st_uid != self.uid
        ]

    def try_odd(self, odd: Odd, broken: str = "") -> list[str]:
        """Run one slice; return which promises were broken."""
        victim = self.put_back(odd)
        path, known, opened = self.project.path(), set(self.work.rglob("*")), list[str]()
        self.watched.begin(path, meanwhile=lambda: opened.extend(self.open_to_others(known, odd)))
        before, looks = stored(path), trace(victim)
        told = self.server.run(
            self.project, odd.command, "nightly", uid=odd.uid, umask=odd.umask, module=__name__, broken=broken
        )
        after = stored(path)
        names = (str(victim).removesuffix("-wal").removesuffix("-shm"), os.path.realpath(victim))
        faults = said_faults(told, self.work, Path(names[1])) + slice_faults(before, after, self.watched, told)
        faults += opened + self.open_to_others(known, odd)
        bad = [line for line in told.err.splitlines() if " info " not in line]
        refused = told.code != 0 or any("delivery" in line for line in bad)
        if told.code == HUNG or told.code not in CODES:
            faults.append(f"exit {told.code}")
        own = odd.place in ("-wal", "-shm") and odd.kind in ("", "regular file")  # empty, which SQLite may remove
        if refused and not own and trace(victim) != looks:
            faults.append("it is refused, and was changed")
        if refused and not any(name in line for line in bad for name in names):
            faults.append("no line names it")
        if told.code and (self.watched.sent or after.attempts != before.attempts) and odd.place != "delivery target":
            faults.append(f"it is refused, and {self.watched.sent} were sent, {after.attempts} counted")
        if not told.code and self.watched.sent != 1:
            faults.append("all is well, it says, and nothing was sent")
        return [f"{odd}: {fault}\n    {told.code} {told.err}" for fault in faults]


@pytest.fixture(scope="module")
def places() -> Iterator[dict[int, Place]]:
    needs(root=True)
    with contextlib.ExitStack() as stack:
        watched, server = stack.enter_context(watched_server()), stack.enter_context(fork_server())
        yield {uid: stack.enter_context(place(server, watched, uid)) for uid in USERS}


@contextlib.contextmanager
def place(server: ForkServer, watched: Watched, uid: int) -> Iterator[Place]:
    """A job of this user that has used one attempt, and delivers to a file that is there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        base = Path(folder)
        base.chmod(0o755)
        project = Project(base / "work/project")
        for made in ("work", "work/project", "work/out", "template"):
            (base / made).mkdir(0o700)
        (project.folder / "notes.md").write_text("The log is short.\n")
        target = base / "work/out/answer.txt"
        target.write_text("old")
        target.chmod(0o600)
        job = {"schedule": "every 1s", "read": ["notes.md"], "deliver": {"file": str(target), "review": False}}
        project.live(watched.chat.url, {"nightly": job}, after_failure=[])
        for path in (project.config, project.folder / "notes.md"):
            path.chmod(0o600)
        for path in (base / "work", *(base / "work").rglob("*")):
            os.chown(path, uid, uid)
        watched.begin(project.path(), calls=True)
        told = server.run(project, "tick", "nightly", uid=uid)
        assert told.code == 0, told.err
        (base / "work/state").mkdir(0o700, exist_ok=True)
        shutil.copytree(base / "work", base / "template", dirs_exist_ok=True)
        yield Place(server, watched, base / "work", base / "template", uid)


def test_it_works_privately_or_is_refused_and_changes_nothing(places: dict[int, Place], harness: Begin) -> None:
    everything = every_odd()
    chosen = random.Random("modes, owners, kinds").sample(everything, sized(10, 200, len(everything)))
    with harness(HARNESS, len(chosen)) as case:
        wrong = []
        for odd in chosen:
            wrong += places[odd.uid].try_odd(odd)
            case("kinds" if odd.kind else "owners" if odd.foreign else "modes" if odd.place else "umasks")
        assert not wrong, "\n".join(wrong)


def make_by_umask() -> None:
    """Break the program: a new file has the mode that the umask leaves."""

    def create(path: Path) -> int:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)

    durable.create = database.create = create  # type: ignore[attr-defined]  # broken on purpose
    os.fchmod = lambda *_: None  # type: ignore[assignment]  # broken on purpose


def test_a_program_that_makes_files_by_the_umask_is_caught(places: dict[int, Place], harness: Begin) -> None:
    with harness(HARNESS) as case:
        odd = Odd(NOBODY, new=True)
        assert not places[odd.uid].try_odd(odd)
        caught = places[odd.uid].try_odd(odd, "make_by_umask")
        case.control("files are made by the umask", sum(" is 100644 " in fault for fault in caught))

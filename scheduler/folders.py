"""What doctor looks at in a checkpoint folder: file system, locks, space, who may open it, what lies in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from scheduler.durable import create
from scheduler.files import can_be_seen, is_private_group, translated
from scheduler.findings import Finding, listed, note, ok, wrong
from scheduler.inventory import Holding
from scheduler.report import open_folder_words

MOUNTS: Final = Path("/proc/self/mountinfo")
FEWEST_FILES: Final = 100
OLD: Final = 60 * 60

_LEFTOVER: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_ASIDE: Final = re.compile(r".+\.set-aside-\d{4}-.+")
_SHARED: Final = re.compile(r"(nfs|cifs|smb|fuse|9p|afs|ceph|gluster|lustre|virtiofs|vboxsf|vmhgfs|prl_fs)")
_PASSING: Final = ("tmpfs", "ramfs")
_MOVE: Final = "move the checkpoints to a local disk, all of the folder at once and while nothing runs"

# Takes what it can of a locked file, and prints it: a lock for whole files, and one of the kind that SQLite uses.
_PROBE: Final = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
for lock in (fcntl.flock, fcntl.lockf):
    try:
        lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(lock.__name__)
    except (BlockingIOError, PermissionError):
        pass
"""


def file_system_of(folder: Path, mounts: str) -> str:
    """Return the kind of file system that a folder lies on; empty where the text of mountinfo does not tell.

    Source: proc(5), /proc/pid/mountinfo; the last mount over a place is the one that is seen.
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        if len(point) >= len(best) and (folder == Path(point) or Path(point) in folder.parents):
            best, kind = point, after.split(" ")[0]
    return kind


def check_file_system(folder: Path) -> Iterator[Finding]:
    """Say what the folder's kind of file system means for locks and durable writes."""
    try:
        kind = file_system_of(folder, MOUNTS.read_text("utf-8", "surrogateescape"))
    except OSError:
        return  # no Linux
    if _SHARED.match(kind):
        what = f"{folder} lies on {kind}, where locks may not exclude and writes may not last"
        yield wrong("file system", what, _MOVE)
    elif kind in _PASSING:
        what = f"{folder} lies on {kind} and is empty after a restart of the machine, and so is its count of attempts"
        yield wrong("file system", what, _MOVE)
    elif kind == "overlay":
        yield note(
            "file system", f"{folder} lies in a container's own layer (overlay) and goes with it; a volume would stay"
        )
    else:
        yield ok("file system", f"{folder} lies on {kind or 'an unknown kind'}")


def check_locks(folder: Path) -> Iterator[Finding]:
    """Lock a file in the folder, and let another process try to."""
    path = folder / f".doctor.{secrets.token_hex(8)}.tmp"
    with translated(folder):
        descriptor = create(path)
    try:
        try:
            for lock in (fcntl.flock, fcntl.lockf):
                lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            yield wrong("locks", f"{folder} gives no lock ({error.strerror})", _MOVE)
            return
        command = [sys.executable, "-I", "-S", "-c", _PROBE, str(path)]
        done = None
        with contextlib.suppress(OSError):  # of the start: what goes wrong later is told by the exit code
            done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)  # noqa: S603  # our own
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
    if done is None or done.returncode:
        yield note("locks", f"{folder}: not tried, for no second process could be started")
    elif done.stdout:
        kinds = " and ".join(done.stdout.split())
        yield wrong("locks", f"{folder}: a second process got a lock that was held ({kinds})", _MOVE)
    else:
        yield ok("locks", f"{folder}: a second process was kept out")


def check_space(folder: Path, need: int) -> Iterator[Finding]:
    """Compare the free space with the bytes that the slices of one moment reserve."""
    with translated(folder):
        disk = os.statvfs(folder)
    free, files = disk.f_bavail * disk.f_frsize, disk.f_favail
    if free < need:
        what = f"{folder}: {_size(free)} are free, and slices reserve {_size(need)}"
        yield wrong("space", what, "free some, or lower max_parallel")
    elif disk.f_files and files < FEWEST_FILES:
        yield wrong("space", f"{folder}: only {files} more files fit on its disk", "remove some files")
    else:
        yield ok("space", f"{folder}: {_size(free)} are free, and slices reserve {_size(need)}")


def _size(count: int) -> str:
    return f"{count / 1024**2:.0f} MiB" if count < 1024**3 else f"{count / 1024**3:.1f} GiB"


def check_modes(folder: Path, names: Collection[str]) -> Iterator[Finding]:
    """Look at who owns the folder and the named files in it, and who else may read or change them."""
    with translated(folder):
        outside = folder.stat()
    if can_be_seen(outside):
        yield Finding("wrong", "permissions", open_folder_words(folder))
    opened, foreign, odd = [], [], []
    for name in names:
        try:
            found = (folder / name).lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            odd.append(name)
        elif found.st_uid != outside.st_uid:
            foreign.append(name)
        elif found.st_mode & 0o007 or (found.st_mode & 0o070 and not is_private_group(found.st_gid, found.st_uid)):
            opened.append(name)
    if opened:
        yield wrong("permissions", f"{folder}: other users may open {listed(opened)}", "chmod 600 them")
    if foreign:
        what = f"{folder}: its owner does not own {listed(foreign)}"
        yield wrong("permissions", what, f"give them to the owner: chown --reference={folder} FILE")
    if odd:
        yield wrong(
            "permissions", f"{folder}: no regular file: {listed(odd)}", "put it away; nothing of ours makes such"
        )
    if not (can_be_seen(outside) or opened or foreign or odd):
        yield ok("permissions", f"{folder} and the files in it are its owner's alone")


def check_names(folder: Path, named: Collection[str], held: Mapping[str, Holding]) -> Iterator[Finding]:
    """Look at the names in a folder; `named` are the checkpoints that are some job's, `held` what the ledger holds."""
    with translated(folder), os.scandir(folder) as entries:
        modified = {entry.name: entry.stat(follow_symlinks=False).st_mtime for entry in entries if _is_plain(entry)}
    old = [name for name in modified if _LEFTOVER.fullmatch(name) and time.time() - modified[name] > OLD]
    if old:
        yield wrong("leftovers", f"{folder}: a killed process left {listed(old)}", "remove them")
    if aside := [name for name in modified if _ASIDE.fullmatch(name)]:
        yield note("leftovers", f"{folder}: repair set aside {listed(aside)}; remove them once nobody needs them")
    if unknown := [_holding_words(held[key]) for key in held.keys() - named]:
        yield note("leftovers", f"{folder}: no job of this file names {listed(unknown)}; the ledger keeps them")
    if copies := [name for name in modified.keys() - named - held.keys() if _is_copy(name, named)]:
        yield note("leftovers", f"{folder}: nothing reads {listed(copies)}; remove them if they are no other program's")
    if not (old or aside or unknown or copies):
        yield ok("leftovers", f"{folder}: none")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _holding_words(holding: Holding) -> str:
    return f"{holding.checkpoint} ({holding.status}, {holding.attempts} of 4 spent)"


def _is_copy(name: str, named: Collection[str]) -> bool:
    """Tell whether a name looks like a copy of a checkpoint that another program made."""
    if name.startswith(".") or name.endswith(".lock") or _ASIDE.fullmatch(name):
        return False
    return any(name.startswith(Path(key).stem) for key in named)

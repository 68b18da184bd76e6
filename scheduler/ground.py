"""What the machine gives a folder: its kind of file system, locks that exclude, space."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scheduler.files import create, translated
from scheduler.findings import Finding, note, ok, wrong

MOUNTS: Final = Path("/proc/self/mountinfo")
FEWEST_FILES: Final = 100

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
        done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)  # noqa: S603  # our own
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
    if done.returncode:
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

"""Files that this program trusts: what they are, who may change them, reading a regular one."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from scheduler.errors import (
    DiskFull,
    NotAFile,
    PermissionRefused,
    ReadOnlyStorage,
    ResumedError,
    StorageFailed,
    WritableByOthers,
    WrongUser,
)

_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def file_kind(mode: int) -> str:
    """Name the kind of file that a mode stands for."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def user_name(uid: int) -> str:
    """Return the name of a user, or the number where the machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def os_refusal(path: Path, error: OSError, purpose: str = "what must be saved") -> ResumedError:
    """Return the refusal that says what an error of the operating system means for this path."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(path=path, purpose=purpose)
    if error.errno == errno.EROFS:
        return ReadOnlyStorage(path=path)
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionRefused(path=path, user=user_name(os.geteuid()), reason=os.strerror(error.errno))
    return StorageFailed(path=path, reason=error.strerror or str(error))


@contextlib.contextmanager
def translated(path: Path, purpose: str = "what must be saved") -> Iterator[None]:
    """Turn an OSError of the block into our own refusal."""
    try:
        yield
    except OSError as error:
        raise os_refusal(path, error, purpose) from error


@contextlib.contextmanager
def noted(note: str) -> Iterator[None]:
    """Add to a refusal of the block what became of the attempt."""
    try:
        yield
    except ResumedError as error:
        error.add_note(note)
        raise


def is_regular(path: Path) -> bool:
    """Tell whether a regular file stands there; False where nothing does. Raises NotAFile on anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise NotAFile(path=path, kind=file_kind(mode))
    return True


def exists(path: Path) -> bool:
    """Tell whether anything stands there. Raises PermissionRefused where that cannot be told."""
    with translated(path):
        return inode(path) is not None


def inode(path: Path) -> tuple[int, int] | None:
    """Return what tells one file from another at the same path; None where there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def read_regular(path: Path, limit: int) -> bytes | None:
    """Return at most limit + 1 bytes of a regular file, or None where nothing stands at the path.

    Never follows a link and never waits on a FIFO. Raises NotAFile and the refusals of access and storage.
    """
    with translated(path):
        if not is_regular(path):
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotAFile(path=path, kind=file_kind(found.st_mode))
            # By its size, for a buffer of `limit` would cost more than most files.
            return b"".join(_chunks(descriptor, limit + 1, max(found.st_size + 1, 4096)))
        finally:
            os.close(descriptor)


def _chunks(descriptor: int, left: int, size: int) -> Iterator[bytes]:
    while left > 0 and (chunk := os.read(descriptor, min(left, size))):
        left -= len(chunk)
        yield chunk


def check_folder(folder: Path) -> None:
    """Refuse a folder that another user owns, or that others can change.

    Group write is allowed where the group is the owner's private one. Raises WrongUser, WritableByOthers, NotAFile.
    """
    with translated(folder):
        found = folder.stat()
    check_is_folder(folder, found)
    check_owner(folder, found)
    check_writers(folder, found)


def check_owner(path: Path, found: os.stat_result, *, or_root: bool = False) -> None:
    """Raise WrongUser, with the command to use instead, where the file is not the caller's (or root's)."""
    if found.st_uid == os.geteuid() or (or_root and found.st_uid == 0):
        return
    owner, user = user_name(found.st_uid), user_name(os.geteuid())
    raise WrongUser(path=path, owner=owner, user=user, command=shlex.join(sys.argv))


def check_writers(path: Path, found: os.stat_result) -> None:
    """Raise WritableByOthers where anyone but the owner can change the file."""
    if found.st_mode & stat.S_IWOTH:
        raise WritableByOthers(path=path, detail="every user may write", chmod="go-w")
    if found.st_mode & stat.S_IWGRP and not is_private_group(found.st_gid, found.st_uid):
        raise WritableByOthers(path=path, detail="its group may write", chmod="g-w")


def can_be_seen(folder: os.stat_result) -> bool:
    """Tell whether other users can look into a folder."""
    return bool(folder.st_mode & 0o055)


def is_private_group(gid: int, uid: int) -> bool:
    """Tell whether a group is the user's own: the same name, and no other member."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    primary = {entry.pw_name for entry in pwd.getpwall() if entry.pw_gid == gid}
    return group.gr_name == user.pw_name and {*group.gr_mem, *primary} <= {user.pw_name}


def check_can_write(path: Path) -> None:
    """Refuse a file or folder that cannot be changed or, where it is missing, not be made; write nothing.

    Raises PermissionRefused, ReadOnlyStorage, NotAFile.
    """
    there = path
    while not os.path.lexists(there):  # False too where a folder on the way is out of reach or none
        there = there.parent
    with translated(there):
        found = there.stat()
        if there != path:
            check_is_folder(there, found)
        entering = os.X_OK if stat.S_ISDIR(found.st_mode) else 0
        if not os.access(there, os.W_OK | entering):
            raise OSError(errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES, "")


def check_is_folder(path: Path, found: os.stat_result) -> None:
    """Raise NotAFile where something else stands in the place of a folder."""
    if not stat.S_ISDIR(found.st_mode):
        raise NotAFile(path=path, kind=file_kind(found.st_mode), wanted="a directory")

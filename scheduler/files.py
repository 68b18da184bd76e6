"""Files that this program trusts: who may change them, reading a regular one, publishing one durably."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import secrets
import shlex
import stat
import sys
import time
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
        with open(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise NotAFile(path=path, kind=file_kind(mode))
            return file.read(limit + 1)


def check_folder(folder: Path) -> None:
    """Refuse a folder that another user owns, or that others can change.

    Group write is allowed where the group is the owner's private one. Raises WrongUser, WritableByOthers, NotAFile.
    """
    with translated(folder):
        found = folder.stat()
    _check_is_folder(folder, found)
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


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with mode 0700; leave an existing one as it is."""
    with translated(folder):
        if folder.is_dir():
            return
    make_folder(folder.parent)
    with translated(folder):
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            _check_is_folder(folder, folder.stat())  # another process may have made it
            return
        folder.chmod(0o700)
        sync_folder(folder.parent)


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
            _check_is_folder(there, found)
        entering = os.X_OK if stat.S_ISDIR(found.st_mode) else 0
        if not os.access(there, os.W_OK | entering):
            raise OSError(errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES, "")


def _check_is_folder(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise NotAFile(path=path, kind=file_kind(found.st_mode), wanted="a directory")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(path: Path, body: bytes, mode: int = 0o600, tries: int = 8) -> None:
    """Put the bytes at the path in one step: a sibling of this mode, made durable, renamed over it.

    The new name itself is not synced: the ledger knows the document, and an older file is put right on the next load.
    What the disk says to have done is looked at, for a request may go out by it.
    """
    sibling = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with translated(path):
        descriptor = create(sibling)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                _write_all(file.fileno(), body)
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
                if os.fstat(descriptor).st_size != len(body):
                    raise OSError(errno.EIO, "it kept less than was written")
            sibling.rename(path)
            if os.path.lexists(sibling):
                raise OSError(errno.EIO, "a new file did not take its place")
        except BaseException as error:
            sibling.unlink(missing_ok=True)
            if not (tries and isinstance(error, FileNotFoundError)):
                raise
            # Another holder, whom only a deleted lock file lets in, took it for a leftover.
            publish(path, body, mode, tries - 1)


def create(path: Path) -> int:
    """Make a new private file and return its open descriptor."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # a umask may have taken the owner's own rights
    return descriptor


def _write_all(descriptor: int, body: bytes) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(descriptor, view) :]


def remove_leftovers(path: Path, age: float = 0) -> None:
    """Remove the siblings that a killed `publish` of this very path left, where they are so many seconds old.

    Without an age call it only with the lock held: another process may be about to rename one.
    """
    leftover = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.tmp")
    with translated(path), os.scandir(path.parent) as entries:
        for entry in [Path(entry.path) for entry in entries if leftover.fullmatch(entry.name)]:
            with contextlib.suppress(FileNotFoundError):
                if not age or time.time() - entry.lstat().st_mtime >= age:
                    entry.unlink()


@contextlib.contextmanager
def reserved(path: Path, *, before: int, after: int) -> Iterator[None]:
    """Make sure of disk space beside the path: `before` bytes for the block, `after` bytes for what follows it.

    The latter are held until the block ends, by a file that has lost its name, so that a killed process leaves none.
    Call it only with the lock held. Raises DiskFull where the space is not there.
    """
    sibling = path.with_name(f".{path.name}.{'0' * 16}.tmp")
    with translated(path, purpose="the reply (nothing was counted, nothing was sent)"):
        descriptor = _create_anew(sibling)
    try:
        with translated(path, purpose="the reply (nothing was counted, nothing was sent)"):
            sibling.unlink(missing_ok=True)
            os.close(os.open(sibling, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # the new file needs an inode too
            sibling.unlink()
            _allocate(descriptor, before + after)
            os.ftruncate(descriptor, after)
        yield
    finally:
        os.close(descriptor)


def _create_anew(path: Path) -> int:
    with contextlib.suppress(FileExistsError):  # of one that was killed before it took it away, or of another holder
        return create(path)
    path.unlink(missing_ok=True)
    return _create_anew(path)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(64 * 1024)
    for _ in range(-(-size // len(block))):
        _write_all(descriptor, block)

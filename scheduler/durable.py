"""Changes on the disk that last: folders made, files published in one step, room held for what is to come."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scheduler.files import check_is_folder, translated

# How often a file is made anew that another holder of the lock, whom only a deleted lock file lets in, takes away.
TRIES: Final = 8


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
            check_is_folder(folder, folder.stat())  # another process may have made it
            return
        folder.chmod(0o700)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(path: Path, body: bytes, mode: int = 0o600) -> None:
    """Put the bytes at the path in one step: a sibling of this mode, made durable, renamed over it.

    The new name itself is not synced: the ledger knows the document, and an older file is put right on the next load.
    """
    with translated(path):
        for _ in range(TRIES):
            with contextlib.suppress(FileNotFoundError):  # another holder of the lock took it for a leftover
                return _put(path, body, mode)
        return _put(path, body, mode)


def _put(path: Path, body: bytes, mode: int) -> None:
    """Do it once; what the disk says to have done is looked at, for a request may go out by it."""
    sibling = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = create(sibling)
    try:
        try:
            _write_all(descriptor, body)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            if os.fstat(descriptor).st_size != len(body):
                raise OSError(errno.EIO, "it kept less than was written")
        finally:
            os.close(descriptor)
        sibling.rename(path)
        if os.path.lexists(sibling):
            raise OSError(errno.EIO, "a new file did not take its place")
    except BaseException:
        sibling.unlink(missing_ok=True)
        raise


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
            os.close(_create_anew(sibling))  # the new file needs an inode too
            sibling.unlink(missing_ok=True)
            _allocate(descriptor, before + after)
            os.ftruncate(descriptor, after)
        yield
    finally:
        os.close(descriptor)


def _create_anew(path: Path) -> int:
    for _ in range(TRIES):
        path.unlink(missing_ok=True)  # of a process that was killed between two lines of `reserved`
        with contextlib.suppress(FileExistsError):  # of another holder of the lock
            return create(path)
    return create(path)


def _allocate(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    block = bytes(64 * 1024)
    for _ in range(-(-size // len(block))):
        _write_all(descriptor, block)

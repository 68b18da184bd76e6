"""What lies in a checkpoint folder beside the checkpoints: left by a killed process, set aside, or of no job."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from scheduler.files import is_private_group, translated
from scheduler.findings import Finding, listed, note, ok, wrong
from scheduler.inventory import Holding

OLD: Final = 60 * 60
_LEFTOVER: Final = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_ASIDE: Final = re.compile(r".+\.set-aside-\d{4}-.+")


def check_names(folder: Path, named: Collection[str], held: Mapping[str, Holding]) -> Iterator[Finding]:
    """Look at the names in a folder; `named` are the checkpoints that are some job's, `held` what the ledger holds."""
    with translated(folder), os.scandir(folder) as entries:
        modified = {entry.name: entry.stat(follow_symlinks=False).st_mtime for entry in entries if _is_plain(entry)}
    old = [name for name in modified if _LEFTOVER.fullmatch(name) and time.time() - modified[name] > OLD]
    if old:
        yield wrong("leftovers", f"{folder}: a killed process left {listed(old)}", "remove them")
    if aside := [name for name in modified if _ASIDE.fullmatch(name)]:
        yield note("leftovers", f"{folder}: repair set aside {listed(aside)}; remove them once nobody needs them")
    if unknown := [_words(held[key]) for key in held.keys() - named]:
        yield note("leftovers", f"{folder}: no job of this file names {listed(unknown)}; the ledger keeps them")
    if copies := [name for name in modified.keys() - named - held.keys() if _is_copy(name, named)]:
        yield note("leftovers", f"{folder}: nothing reads {listed(copies)}; remove them if they are no other program's")
    if not (old or aside or unknown or copies):
        yield ok("leftovers", f"{folder}: none")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def _words(holding: Holding) -> str:
    return f"{holding.checkpoint} ({holding.status}, {holding.attempts} of 4 spent)"


def _is_copy(name: str, named: Collection[str]) -> bool:
    """Tell whether a name looks like a copy of a checkpoint that another program made."""
    if name.startswith(".") or name.endswith(".lock") or _ASIDE.fullmatch(name):
        return False
    return any(name.startswith(Path(key).stem) for key in named)


def check_modes(folder: Path, names: Collection[str]) -> Iterator[Finding]:
    """Look at who owns the folder and the named files in it, and who else may read or change them."""
    with translated(folder):
        outside = folder.stat()
    if outside.st_mode & 0o055:
        yield wrong("permissions", f"other users can look into {folder}", f"chmod 700 {folder}")
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
    if not (outside.st_mode & 0o055 or opened or foreign or odd):
        yield ok("permissions", f"{folder} and the files in it are its owner's alone")

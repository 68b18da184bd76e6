"""Where what belongs to no checkpoint folder is remembered: one private folder of the user who runs the program."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from scheduler.durable import make_folder
from scheduler.errors import NoStateFolder
from scheduler.files import check_folder, user_name


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder `resumed` under $XDG_STATE_HOME, or else under ~/.local/state, made with mode 0700 if missing.

    The home is that of the user database, for $HOME may be another user's (sudo). The names are those of the XDG Base
    Directory Specification 0.8. Raises NoStateFolder, WrongUser, WritableByOthers and the refusals of storage.
    """
    folder = state_path(environ)
    make_folder(folder)
    check_folder(folder)
    return folder


def state_path(environ: Mapping[str, str]) -> Path:
    """Return where that folder is, or would be. Raises NoStateFolder."""
    named = environ.get("XDG_STATE_HOME", "")
    return (Path(named) if named.startswith("/") else _home() / ".local/state") / "resumed"


def _home() -> Path:
    """Return the home folder of the user, which must be there: it is not for us to make."""
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        home = Path()
    if not home.is_absolute() or not home.is_dir():
        raise NoStateFolder(user=user_name(os.geteuid()))
    return home

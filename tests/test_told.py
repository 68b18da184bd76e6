"""Who is told of what, and how often: the ledger's memory, recovery, cron and daemon at once."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from scheduler.errors import AccessRefused, NoStateFolder
from scheduler.home import state_folder

# ---- where is remembered what belongs to no checkpoint folder


def test_the_private_folder_is_made_under_the_named_one(tmp_path: Path) -> None:
    found = state_folder({"XDG_STATE_HOME": str(tmp_path / "a" / "b"), "HOME": "/elsewhere"})
    assert found == tmp_path / "a/b/resumed"
    assert [folder.stat().st_mode & 0o777 for folder in (found, found.parent)] == [0o700, 0o700]
    assert state_folder({"XDG_STATE_HOME": str(tmp_path / "a" / "b")}) == found


@pytest.mark.parametrize("named", [{}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}])
def test_the_home_is_that_of_the_user_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), os.getegid(), "", str(tmp_path), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert state_folder({"HOME": "/elsewhere", **named}) == tmp_path / ".local/state/resumed"


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), os.getegid(), "", str(tmp_path / "gone"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    with pytest.raises(NoStateFolder, match="XDG_STATE_HOME"):
        state_folder({})
    assert not (tmp_path / "gone").exists()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "resumed").mkdir()
    (tmp_path / "resumed").chmod(0o777)
    with pytest.raises(AccessRefused, match="chmod"):
        state_folder({"XDG_STATE_HOME": str(tmp_path)})

"""Fixtures that every test file shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ChatServer, Project, chat_server

# Those that start many programs come last, so that a small fault shows within seconds.
LAST = ["trigger", "replies", "gateway", "kills", "damage", "races", "bad_input", "series", "cron", "daemon", "readme"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the fast files first."""
    items.sort(key=lambda item: LAST.index(name) if (name := item.path.stem.removeprefix("test_")) in LAST else -1)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty private folder for a jobs.yaml."""
    folder = tmp_path / "project"
    folder.mkdir(0o700)
    return Project(folder)


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    """A server that answers "fin"; give it another script by assigning `chat.script`."""
    with chat_server() as server:
        yield server

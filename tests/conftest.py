"""Fixtures that every test file shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ChatServer, Hooks, Project, chat_server, hook_server

# Those that start many programs come last, so that a small fault shows within seconds.
LAST = [
    "trigger",
    "replies",
    "gateway",
    "kills",
    "damage",
    "races",
    "bad_input",
    "cron",
    "daemon",
    "status",
    "systemd",
    "edits",
    "restarts",
    "readme",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the fast files first."""
    items.sort(key=lambda item: LAST.index(name) if (name := item.path.stem.removeprefix("test_")) in LAST else -1)


@pytest.fixture(scope="session", autouse=True)
def _remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what the program remembers out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


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


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    """A server that takes notifications."""
    with hook_server() as server:
        yield server

"""Slices of DBOS on SQLite: BATCH workflows a turn, each a step that reads and returns a conversation of SIZE bytes."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from dbos import DBOS, DBOSConfig
from turns import take_turns, used

SIZE, BATCH, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
NUMBERS = itertools.count()
LINE = "2026-11-30T07:00:00Z info job nightly: attempt 1 of 4: answered\n"
CONVERSATION = LINE * (SIZE // len(LINE))

config: DBOSConfig = {
    "name": "bench",
    "system_database_url": f"sqlite:///{FOLDER}/dbos.sqlite",
    "log_level": "ERROR",
    "run_admin_server": False,
}
DBOS(config=config)


@DBOS.step()
def ask(conversation: str) -> str:
    """Answer at once."""
    return conversation + "Another line of it."


@DBOS.workflow()
def slice_of(conversation: str) -> str:
    """Ask once, durably."""
    return ask(conversation)


DBOS.launch()


def slices() -> None:
    """Run a workflow for each."""
    for _ in range(BATCH):
        next(NUMBERS)
        slice_of(CONVERSATION)


def kept() -> int:
    """Return what is kept on the disk."""
    return used(FOLDER / "dbos.sqlite")


take_turns(slices, kept=kept)

"""Slices of resumed with a model that answers at once: BATCH documents of about SIZE bytes a turn, each its second."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turns import take_turns, used

from scheduler import resume_once

SIZE, BATCH, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
TASK = "Summarise the log. " * 10
NUMBERS = itertools.count()
LINE = "2026-11-30T07:00:00Z info job nightly: attempt 1 of 4: answered\n"
ready: list[Path] = []


def ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer, short of an end, so that the next slice goes on."""
    content = LINE * ((SIZE - 1_200) // len(LINE)) if len(request["messages"]) < 4 else "Another line of it."
    return {"message": {"role": "assistant", "content": content}, "finish_reason": "length"}


def prepare() -> None:
    """Make documents whose first slice has brought them to their size."""
    ready[:] = [FOLDER / f"{next(NUMBERS)}.json" for _ in range(BATCH)]
    for path in ready:
        resume_once(TASK, path, ask, "m1", tools=[])


def slices() -> None:
    """Run the second slice of each."""
    for path in ready:
        state, _ = resume_once(TASK, path, ask, "m1", tools=[])
        assert state["attempts"] == 2, state["attempts"]


def kept() -> int:
    """Return what documents and ledger take on the disk."""
    return sum(path.stat().st_size for path in ready) + used(FOLDER / ".ledger.sqlite3")


take_turns(slices, prepare, kept)

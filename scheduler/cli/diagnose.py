"""The command that looks for what is wrong: doctor."""

from __future__ import annotations

from typing import Any


def add_commands(commands: Any) -> None:
    """Add the commands of this group."""

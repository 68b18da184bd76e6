"""What people did to a checkpoint, when and why: rows that are only added.

Every function here is a part of a transaction that the caller opens.
"""

from __future__ import annotations

from scheduler.columns import read_rows
from scheduler.database import Connection
from scheduler.transcript import Act


def enter_act(tx: Connection, key: str, act: Act) -> None:
    """Add what was done to a checkpoint, as the next of its acts."""
    [(last,)] = tx.execute("SELECT coalesce(max(number), 0) FROM act WHERE checkpoint = ?", (key,)).fetchall()
    row = (key, last + 1, act.at, act.command, act.detail, act.reason, act.who)
    tx.execute("INSERT INTO act VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def read_acts(tx: Connection, key: str) -> list[Act]:
    """Return what was done to a checkpoint, oldest first."""
    query = "SELECT at, command, detail, reason, who FROM act WHERE checkpoint = ? ORDER BY number"
    names = ("at", "command", "detail", "reason", "who")
    return [Act(**dict(zip(names, row, strict=True))) for row in read_rows(tx, query, (key,))]

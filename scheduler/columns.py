"""What each column of the ledger may hold: SQLite keeps none to its type, and other programs can write to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

from scheduler.database import Connection, Senseless
from scheduler.state import MAX_STEPS, OUTCOMES, Status

LAST_SECOND: Final = 253402300799  # of the year 9999, the last that a datetime has
MOST: Final = 2**31 - 1
DELIVERY_RESULTS: Final = frozenset({"delivered", "failed", "unknown"})

Holds = Callable[[Any], bool]


def _whole(least: int, most: int) -> Holds:
    return lambda value: type(value) is int and least <= value <= most


def _one_of(values: frozenset[str]) -> Holds:
    return lambda value: isinstance(value, str) and value in values


def _or_null(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_COUNT, _SECONDS = _whole(0, MOST), _whole(0, LAST_SECOND)

# `status`, `size`, `task`, `attempts`, `answer` and `decision` are taken out of a document's body.
_HOLDS: Final[Mapping[str, Holds]] = {
    **dict.fromkeys(("checkpoint", "digest", "schedule", "start", "boot", "provider", "model"), _is_text),
    **dict.fromkeys(
        ("subject", "channel", "matter", "fault", "config", "version", "answer_sha256", "name", "tried"), _is_text
    ),
    **dict.fromkeys(("reason", "tag", "who", "series", "target", "command", "detail"), _is_text),
    **dict.fromkeys(("since", "admitted_at", "deadline", "at", "opened_at", "started_at", "loaded_at"), _SECONDS),
    **dict.fromkeys(("point", "until", "ended_at", "standing"), _or_null(_SECONDS)),
    **dict.fromkeys(("allowance", "pid", "number", "max_parallel"), _whole(1, MOST)),
    **dict.fromkeys(("size", "step", "count"), _COUNT),
    "attempt": _whole(1, MAX_STEPS),
    "body": lambda value: isinstance(value, bytes),
    "outcome": _or_null(_one_of(OUTCOMES)),
    "result": _or_null(_one_of(DELIVERY_RESULTS)),
    **dict.fromkeys(("answer", "decision"), _or_null(_is_text)),
    "task": _is_text,
    "attempts": _whole(0, MAX_STEPS),
    "live": _whole(0, 1),
    "status": _one_of(frozenset(get_args(Status))),
}


def read_rows(tx: Connection, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """Return the rows of a query over one table, once every value of them is one that its column may hold.

    Raises Senseless, which names the column and what it holds.
    """
    found = tx.execute(query, values)
    names = [column[0] for column in found.description]
    rows: list[tuple[Any, ...]] = found.fetchall()
    for name, value in ((name, value) for row in rows for name, value in zip(names, row, strict=True)):
        if not _HOLDS[name](value):
            table = query.partition(" FROM ")[2].split()[0]
            raise Senseless(f"{table}.{name} is {repr(value)[:60]}, which no version of this program writes")
    return rows


def read_row(tx: Connection, query: str, values: Sequence[object]) -> tuple[Any, ...] | None:
    """Return the one row of such a query, None where there is none. Raises Senseless."""
    return next(iter(read_rows(tx, query, values)), None)

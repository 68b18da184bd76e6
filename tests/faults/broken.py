"""The program with one thing broken on purpose: what the harnesses here must catch.

Run as `python -m tests.faults.broken VARIANT ARGUMENT...`; takes the arguments of the program after the variant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import filelock

from scheduler import cli, daemon, flights, ledger, owed, roster, standing, tables, tick, watch

_KEYS = ",\n    PRIMARY KEY (checkpoint, allowance, attempt), UNIQUE (checkpoint, allowance, point)\n) WITHOUT ROWID"
_leaked: list[object] = []


class _NoLock(filelock.FileLock):
    def acquire(self, *_: Any, **__: Any) -> Any:
        """Lock nothing."""

    def release(self, *_: Any, **__: Any) -> None:
        """Release nothing."""


def _without_keys() -> None:
    scripts = tuple(script.replace(_KEYS, ")") for script in tables.SCRIPTS)
    assert scripts != tables.SCRIPTS
    _replace(ledger, "SCRIPTS", scripts)


def _admits_blindly() -> None:
    _without_keys()
    _replace(ledger, "_expected", lambda *_: None)
    _replace(flights, "in_flight", lambda *_: None)
    _replace(filelock, "FileLock", _NoLock)


def _takes_owners_for_dead() -> None:
    for module in (flights, owed):
        _replace(module, "is_alive", lambda _: False)


def _forgets_points() -> None:
    _without_keys()
    read = standing.read_admissions

    def forgetful(*arguments: Any) -> tuple[standing.Admission, ...]:
        return tuple(replace(row, point=None) for row in read(*arguments))

    for module in (standing, roster):
        _replace(module, "read_admissions", forgetful)


def _tells_of_no_missed_point() -> None:
    _replace(tick, "made_up", lambda _: None)


def _ignores_edits() -> None:
    _replace(watch.WatchedFile, "look", lambda *_, **__: None)


def _leaks() -> None:
    fire = daemon.Daemon._fire

    def leaking(self: daemon.Daemon, name: str) -> bool:
        _leaked.append((os.open(os.devnull, os.O_RDONLY), bytes([1]) * 100_000))
        return fire(self, name)

    _replace(daemon.Daemon, "_fire", leaking)


def _replace(owner: object, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    setattr(owner, name, value)


VARIANTS: dict[str, Callable[[], None]] = {
    "admits blindly": _admits_blindly,
    "takes owners for dead": _takes_owners_for_dead,
    "forgets points": _forgets_points,
    "tells of no missed point": _tells_of_no_missed_point,
    "ignores edits": _ignores_edits,
    "leaks": _leaks,  # a descriptor and 100 KB with each tick
}


def broken(variant: str) -> list[str]:
    """Return the command of a variant, to be taken for the program."""
    assert variant in VARIANTS
    return [sys.executable, "-m", "tests.faults.broken", variant]


if __name__ == "__main__":
    VARIANTS[sys.argv[1]]()
    sys.exit(cli.main(sys.argv[2:]))

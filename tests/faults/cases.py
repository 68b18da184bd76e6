"""How large a run of the harnesses is, and what each of them counts: cases, kinds of cases, and its control.

A harness is a test, or several with one name, that tries many cases of one kind of fault. It says how many it must have
tried, and it carries a control: a variant that is broken on purpose, which the same checks must catch.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import pytest

Tier = Literal["test", "torture", "full"]
TIERS: tuple[Tier, ...] = ("test", "torture", "full")
TIER = os.environ.get("RESUMED_TIER", "test")
if TIER not in TIERS:
    raise SystemExit(f"RESUMED_TIER is {TIER!r}; it is one of {', '.join(TIERS)}")
STRICT = TIER != "test" or "CI" in os.environ  # nothing may be left out


def sized(test: int, torture: int, full: int) -> int:
    """Return the number for the tier of this run: `make test`, `make torture`, or `make torture FULL=1`."""
    return (test, torture, full)[TIERS.index(TIER)]


def needs(*programs: str, root: bool = False) -> None:
    """Skip a test where this machine lacks what it needs; a run that must be whole fails by that."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")
    if root and os.geteuid() != 0:
        pytest.skip("only root may do this")


@dataclass
class Cases:
    """What one harness has tried; as a context it fails at its end where that is less than `least`."""

    harness: str
    least: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    controls: dict[str, int] = field(default_factory=dict)

    def __call__(self, kind: str = "", number: int = 1) -> None:
        """Count a case that was really tried, under its kind."""
        self.kinds[kind] += number

    def control(self, broken: str, caught: int) -> None:
        """Say how often the checks caught what is broken on purpose; a control that nothing catches fails."""
        assert caught > 0, f"{self.harness}: nothing caught the control, {broken}"
        self.controls[broken] = self.controls.get(broken, 0) + caught

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            tried = self.kinds.total()
            assert tried >= self.least, f"{self.harness}: {tried} cases, at least {self.least} are wanted"

    def told(self) -> dict[str, Any]:
        """Return the same as plain values, which pass from one process to another."""
        return {
            "harness": self.harness,
            "least": self.least,
            "kinds": dict(self.kinds),
            "controls": dict(self.controls),
        }

    def add(self, told: dict[str, Any]) -> None:
        """Add what another test of the same harness has counted."""
        self.least += told["least"]
        self.kinds.update(told["kinds"])
        for broken, caught in told["controls"].items():
            self.control(broken, caught)

    def __str__(self) -> str:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in self.kinds.items() if kind)
        line = f"{self.harness}: {self.kinds.total():,} cases, at least {self.least:,}{kinds and f' ({kinds})'}"
        return "".join([line, *(f"\n    control caught {n:,}x: {broken}" for broken, n in self.controls.items())])


Begin = Callable[[str, int], Cases]


def summed(told: list[dict[str, Any]]) -> dict[str, Cases]:
    """Put together what the tests of each harness have counted."""
    harnesses: dict[str, Cases] = {}
    for one in told:
        harnesses.setdefault(one["harness"], Cases(one["harness"])).add(one)
    return harnesses

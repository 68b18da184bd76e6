"""One line of the results, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HEAD = ("measure", "beside", "ratio (quartiles)", "goal", "")


@dataclass(frozen=True, kw_only=True)
class Line:
    """What was measured beside what; `value` is the figure that the goal is about, None where nothing was measured."""

    measure: str
    beside: str
    shown: str
    value: float | None = None
    goal: float | None = None
    note: str = ""

    @property
    def goal_words(self) -> str:
        """Say the goal, and whether it is met."""
        if self.goal is None:
            return ""
        met = self.value is not None and self.value <= self.goal
        return f"at most {self.goal:g}" + ("" if met else ", **missed**")

    @property
    def cells(self) -> tuple[str, ...]:
        """What stands in the table."""
        return (self.measure, self.beside, self.shown, self.goal_words, self.note)


def left_out(measure: str, who: str, error: Exception) -> Line:
    """Say of a peer that it is left out, and why."""
    why = str(error).strip().splitlines()[-1][:120].replace("|", "/")
    return Line(measure=f"{measure}: {who}", beside="", shown="left out", note=why)


def table(lines: Iterable[Line]) -> str:
    """Lay the lines out as a table of Markdown."""
    rows = [HEAD, tuple("---" for _ in HEAD), *(line.cells for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)

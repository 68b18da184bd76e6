"""What doctor tells, and how a line of it reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from scheduler.errors import ResumedError
from scheduler.text import printable

FEW = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `wrong` asks for an act, `note` is worth knowing, `ok` is as it should be."""

    level: Literal["ok", "note", "wrong"]
    topic: str
    text: str


def ok(topic: str, text: str) -> Finding:
    """Say what is as it should be."""
    return Finding("ok", topic, text)


def note(topic: str, text: str) -> Finding:
    """Say what is worth knowing and asks for nothing."""
    return Finding("note", topic, text)


def wrong(topic: str, what: str, act: str) -> Finding:
    """Say what is wrong, and what to do about it."""
    return Finding("wrong", topic, f"{what}; {act}")


def guarded(topic: str, found: Iterator[Finding]) -> Iterator[Finding]:
    """Pass findings on; a refusal among them is one, and says itself what to do."""
    try:
        yield from found
    except ResumedError as error:
        yield Finding("wrong", topic, str(error))


def finding_line(finding: Finding) -> str:
    """Return a finding as one line."""
    return printable(f"{finding.level:5}  {finding.topic}: {finding.text}").replace("\n", " ")


def summary_line(findings: Sequence[Finding]) -> str:
    """Say how much was looked at, and what came of it."""
    count = sum(finding.level == "wrong" for finding in findings)
    found = "nothing is wrong" if not count else "1 thing needs you" if count == 1 else f"{count} things need you"
    return f"{len(findings)} checks: {found}"


def listed(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more

"""Which provider is left alone, and until when: the rows of `rest`, and the daily budget.

Every function here is a part of a transaction that the caller opens.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

from scheduler.columns import read_row, read_rows
from scheduler.database import Connection
from scheduler.errors import BudgetSpent, ProviderRefusing, ProviderResting
from scheduler.state import utc

DAY = 24 * 60 * 60
OUTAGE_RESTS = (60, 5 * 60, 30 * 60, 60 * 60)
FIRST_RETRY, LONGEST_RETRY = 60, 60 * 60
UNTIL_MENDED = ("provider", "model")
Cause = Literal["none", "answered", "provider", "model", "retry", "outage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A provider, or one model of it, that is left alone; `until` None: until a person mends it."""

    provider: str
    model: str
    until: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a request's outcome says about its provider.

    `mark` stands for the provider's entry and key; `retry_after` is in seconds.
    """

    provider: str
    model: str
    cause: Cause
    reason: str
    mark: bytes = b""
    retry_after: float | None = None


def check_rests(tx: Connection, provider: str, model: str, mark: bytes, now: int, *, reads: bool = False) -> None:
    """Raise ProviderRefusing or ProviderResting where the provider or this model of it is to be left alone.

    A rest that waits for a mend ends once the provider's entry or key (`mark`) is another one. One whose end is
    further away than any rest can be was written by a clock that has been set back since, and is dropped. With `reads`
    no row is touched.
    """
    for row_model, until, reason, tag in read_rows(
        tx, "SELECT model, until, reason, tag FROM rest WHERE provider = ? AND model IN ('', ?)", (provider, model)
    ):
        mended = until is None and not _matches(tag, mark)
        if mended or not _in_force(until, now):
            if mended and not reads:
                tx.execute("DELETE FROM rest WHERE provider = ? AND model = ?", (provider, row_model))
            continue
        if until is None:
            who = f"model {row_model} of provider {provider}" if row_model else f"provider {provider}"
            raise ProviderRefusing(who=who, provider=provider, reason=reason)
        raise ProviderResting(provider=provider, until=utc(until), reason=reason)


def check_budget(tx: Connection, requests_per_day: int | None, now: int) -> None:
    """Raise BudgetSpent where this UTC day's live requests of the ledger have reached the number."""
    if requests_per_day is None:
        return
    today = now - now % DAY
    query = "SELECT count(*) FROM admission WHERE live = 1 AND admitted_at >= ? AND admitted_at < ?"
    spent = tx.execute(query, (today, today + DAY)).fetchone()[0]
    if spent >= requests_per_day:
        raise BudgetSpent(budget=requests_per_day)


def note_outcome(tx: Connection, verdict: Verdict, now: int) -> None:
    """Begin, lengthen or end a rest, as the outcome of a request asks for."""
    provider = verdict.provider
    if verdict.cause == "answered":
        tx.execute("DELETE FROM rest WHERE provider = ? AND model IN ('', ?)", (provider, verdict.model))
    if verdict.cause in ("none", "answered"):
        return
    model = verdict.model if verdict.cause == "model" else ""
    query = "SELECT step, until FROM rest WHERE provider = ? AND model = ?"
    last, end = read_row(tx, query, (provider, model)) or (-1, 0)
    # A request that fails while the provider rests was under way when the rest began: no further failure in a row.
    step = last if last >= 0 and _in_force(end, now) else last + 1
    until = None if verdict.cause in UNTIL_MENDED else now + rest_seconds(verdict.cause, step, verdict.retry_after)
    if until is not None and _in_force(end, now):
        if end is None:
            return
        until = max(until, end)
    tag = _tag(secrets.token_hex(16), verdict.mark) if until is None else ""
    tx.execute("REPLACE INTO rest VALUES (?, ?, ?, ?, ?, ?)", (provider, model, until, verdict.reason, tag, step))


def rest_seconds(cause: Cause, step: int, retry_after: float | None) -> int:
    """Return how long a provider rests after its failure number `step` in a row, counted from 0.

    What it asked for itself (`retry_after`) counts for a 429, and lengthens the rest of an outage.
    """
    asked = 0 if retry_after is None else int(min(retry_after, DAY)) + 1
    if cause == "outage":
        return max(asked, OUTAGE_RESTS[min(step, len(OUTAGE_RESTS) - 1)])
    return asked or min(FIRST_RETRY * 2 ** min(step, 6), LONGEST_RETRY)


def read_rests(tx: Connection, now: int) -> list[Rest]:
    """Return the rests that are in force."""
    rows = read_rows(tx, "SELECT provider, model, until, reason FROM rest ORDER BY provider, model", ())
    return [
        Rest(provider=provider, model=model, until=until, reason=reason)
        for provider, model, until, reason in rows
        if _in_force(until, now)
    ]


def _in_force(until: int | None, now: int) -> bool:
    """Tell whether a rest holds; an end further away than any can be is of a clock that has been set back since."""
    return until is None or now < until <= now + DAY + LONGEST_RETRY


def lift(tx: Connection, provider: str) -> int:
    """End every rest of a provider; return how many there were."""
    return tx.execute("DELETE FROM rest WHERE provider = ?", (provider,)).rowcount


def _tag(salt: str, mark: bytes) -> str:
    return f"{salt}:{hashlib.sha256(salt.encode() + mark).hexdigest()}"


def _matches(tag: str, mark: bytes) -> bool:
    return tag == _tag(tag.partition(":")[0], mark)

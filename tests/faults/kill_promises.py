"""What can be seen of a job from outside, and which promises it keeps from one moment to the next."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.faults.in_memory import copied
from tests.support import Project

Row = tuple[Any, ...]
_NONE: dict[str, Any] = {"status": "ready", "attempts": 0, "history": [], "answer": None, "review": None}


@dataclass(frozen=True)
class Moment:
    """The ledger's rows of a job, its file, and how many requests the server has had for it by then."""

    sent: int
    file: bytes | None
    allowance: int
    document: dict[str, Any]
    body: bytes | None
    versions: frozenset[str]
    admissions: dict[tuple[int, int], str | None]
    archive: dict[Row, Row]
    deliveries: dict[Row, str | None]
    leftovers: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do: an end, shown by the file, and no delivery whose result is not told."""
        final = self.document["status"] in ("done", "exhausted")
        return final and self.file == self.body and None not in {*self.admissions.values(), *self.deliveries.values()}


def look(project: Project, sent: int) -> Moment:
    """Look at the job `nightly`."""
    file = project.path().read_bytes() if project.path().exists() else None
    document: Row | None = None
    rows: dict[str, list[Row]] = {"version": [], "admission": [], "archive": [], "delivery": []}
    with copied(project.path().with_name(".ledger.sqlite3")) as ledger:
        if ledger.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            document = ledger.execute("SELECT allowance, body FROM document").fetchone()
            columns = {
                "version": "digest",
                "admission": "allowance, attempt, outcome",
                "archive": "allowance, number, body, reason, who, at",
                "delivery": "allowance, number, result",
            }
            for table, names in columns.items():
                rows[table] = ledger.execute(f"SELECT {names} FROM {table}").fetchall()
    allowance, body = document or (1, None)
    return Moment(
        sent=sent,
        file=file,
        allowance=allowance,
        document=json.loads(body) if body else _NONE,
        body=body,
        versions=frozenset(digest for (digest,) in rows["version"]),
        admissions={row[:2]: row[2] for row in rows["admission"]},
        archive={row[:2]: row[2:] for row in rows["archive"]},
        deliveries={row[:2]: row[2] for row in rows["delivery"]},
        leftovers=tuple(sorted(str(path) for path in project.folder.rglob(".*.tmp"))),
    )


def check_counted(begin: Moment, now: Moment) -> None:
    """No request before its count is in the ledger and in the file; never more than four; the file never ahead."""
    admitted = len(now.admissions) - len(begin.admissions)
    assert now.sent <= admitted, f"{now.sent} requests, {admitted} were admitted"
    per_allowance = Counter(allowance for allowance, _ in now.admissions)
    assert max(per_allowance.values(), default=0) <= 4, now.admissions
    assert now.document["attempts"] <= 4
    if now.file is None:
        assert begin.file is None, "the file is gone"
        assert not now.sent, "a request was sent before there was a file"
        return
    assert hashlib.sha256(now.file).hexdigest() in now.versions, "the file holds what the ledger does not know"
    if now.allowance == begin.allowance:
        shown = json.loads(now.file)["attempts"]
        least = begin.document["attempts"] + now.sent
        assert not now.sent or shown >= least, f"the file shows {shown} attempts, {least} were sent"
        assert shown <= now.document["attempts"], "the file is ahead of the ledger"


def check_kept(old: Moment, new: Moment) -> None:
    """Nothing that was once durable is lost: counts, outcomes, history, answers, what was set aside, deliveries."""
    assert new.sent >= old.sent
    assert new.allowance >= old.allowance
    assert old.versions <= new.versions
    assert old.archive.items() <= new.archive.items()
    _check_outcomes(old.admissions, new.admissions)
    _check_outcomes(old.deliveries, new.deliveries)
    if new.allowance != old.allowance:
        assert (old.allowance, 1) in new.archive or old.body is None, "a renewed document was not set aside"
        return
    before, after = old.document, new.document
    assert before["attempts"] <= after["attempts"]
    assert len(before["history"]) <= len(after["history"])
    for was, entry in zip(before["history"], after["history"], strict=False):
        same = ("number", "point", "started") if was["outcome"] is None else was.keys()
        assert all(was[name] == entry[name] for name in same), f"history changed from {was} to {entry}"
    assert [entry["number"] for entry in after["history"]] == list(range(1, after["attempts"] + 1))
    if before["status"] == "done":
        assert all(before[name] == after[name] for name in ("status", "answer", "attempts")), "an answer was lost"
        assert new.sent == old.sent, "a request was sent after the answer was saved"


def _check_outcomes(old: dict[Any, str | None], new: dict[Any, str | None]) -> None:
    for key, outcome in old.items():
        assert key in new, f"{key} was lost"
        assert outcome is None or new[key] == outcome, f"{key} was {outcome}, and is {new[key]}"


def check_ended(begin: Moment, end: Moment) -> None:
    """It has come to its end: answered, or all attempts used, and nothing of a killed process stays."""
    assert end.settled, end
    assert not end.leftovers
    document = end.document
    answered = document["history"][-1]["outcome"] == "answered"
    assert (document["status"], document["answer"]) == (("done", "fin") if answered else ("exhausted", None))
    assert answered or document["attempts"] == 4
    new = [outcome for key, outcome in end.admissions.items() if begin.admissions.get(key) is None]
    assert sum(outcome not in ("interrupted", "error") for outcome in new) <= end.sent <= 4

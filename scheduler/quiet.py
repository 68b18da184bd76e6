"""Until when nothing is due, and the hint of it for the ticks to come."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scheduler import hint, records
from scheduler.due import Plan, next_due
from scheduler.errors import ResumedError
from scheduler.home import state_path
from scheduler.inventory import folders_of
from scheduler.job import JobFile
from scheduler.ledger import NAME, ledger_of
from scheduler.owed import Result
from scheduler.patience import HASTE
from scheduler.roster import read_facts, read_seen
from scheduler.series import advance, next_look

# A hint of less would save no tick.
SHORTEST = 60.0


def named_folders(job_file: JobFile) -> set[str]:
    """Return the folders of the checkpoints as they are named: a link among them may come to lead elsewhere."""
    jobs = (*job_file.jobs.values(), *job_file.series.values())
    return {str(folder) for job in jobs for folder in records.folders_of(job)}


def leave_hint(
    place: str, seen: Mapping[str, bytes | None], since: float, job_file: JobFile, results: Sequence[Result]
) -> None:
    """Leave a hint after a tick that ended well, where nothing is in the way of it.

    `place` is the real path of jobs.yaml, `seen` the faces of it and of the named folders before they were used,
    `since` when the tick began (UTC seconds). Metrics want every tick, and so does what is refused, ran, or waits for
    another process or for a notification to go.
    """
    if job_file.metrics is not None or job_file.refused or any(one.ran or one.refusal for one in results):
        return
    with contextlib.suppress(ResumedError, OSError):
        folders = folders_of(job_file)
        ledgers = [f"{folder / NAME}{suffix}" for folder in folders for suffix in ("", "-wal")]
        faces = {**seen, **hint.look(ledgers)}
        until = quiet_until(job_file, (one.plan for one in results if one.plan and not one.final), since)
        if until >= since + SHORTEST and not any(map(_is_unsettled, (*folders, state_path(os.environ)))):
            hint.leave(place, faces, since, until, os.environ)


def _is_unsettled(folder: Path) -> bool:
    """Tell whether a ledger holds a delivery that has not ended, or a notification that has not gone."""
    if not (folder / NAME).exists():
        return False
    with ledger_of(folder).reading(HASTE) as tx:
        query = "SELECT EXISTS (SELECT 1 FROM {} WHERE {})"
        open_rows = (("delivery", "result IS NULL"), ("told", "fault != ''"))
        return any(tx.execute(query.format(*rows)).fetchone()[0] for rows in open_rows)


def quiet_until(job_file: JobFile, waiting: Iterable[Plan], now: float) -> float:
    """Return the next moment (UTC seconds) at which one of these jobs can be due or a series can open.

    It is `now` where that cannot be said. Raises what reading the ledgers raises.
    """
    told: list[object] = []
    turnouts = advance(job_file.series.values(), job_file.live, now, lambda *event: told.append(event), wait=HASTE)
    if told:
        return now
    earliest = next_look(turnouts, now)
    for folder, plans in _by_folder(waiting).items():
        with ledger_of(folder).reading(HASTE) as tx:
            for plan in plans:
                facts, known = read_facts(tx, plan.path.name), read_seen(tx, plan.sighting, int(now))
                if facts.open is not None or not known.known:
                    return now
                point = next_due(plan.job, facts, known.since, now)
                earliest = min(earliest, point.timestamp() if point else earliest)
                if earliest < now + SHORTEST:
                    return now
    return earliest


def _by_folder(plans: Iterable[Plan]) -> dict[Path, list[Plan]]:
    folders: dict[Path, list[Plan]] = {}
    for plan in plans:
        folders.setdefault(plan.path.parent, []).append(plan)
    return folders

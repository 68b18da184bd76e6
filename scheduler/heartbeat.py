"""What is known of the daemon of a jobs.yaml: by its entries in ledgers, and by the file on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from scheduler.due import plan_job
from scheduler.errors import ResumedError
from scheduler.home import state_path
from scheduler.job import Job, JobFile
from scheduler.ledger import ledger_rows
from scheduler.owner import is_alive, program_version
from scheduler.report import DaemonRow, edit_words
from scheduler.roster import Entry, read_daemon
from scheduler.state import utc

# A daemon gives a heartbeat every 30 s; one that gave none for so long works no more.
SILENCE = 120.0


def names_of(path: Path) -> set[str]:
    """Return the names under which the daemon of a file may be entered."""
    with contextlib.suppress(OSError):  # the current folder is gone
        return {os.path.realpath(path), str(path.absolute())}
    return {str(path)}


def daemon_folders(jobs: Iterable[Job], environ: Mapping[str, str]) -> set[Path]:
    """Return the folders whose ledgers may have the entry of a daemon of these jobs."""
    folders = {plan_job(job, live).path.parent for job in jobs for live in (False, True)}
    with contextlib.suppress(ResumedError):
        folders.add(state_path(environ))
    return folders


def find_daemon(names: Iterable[str], folders: Iterable[Path], now: float) -> DaemonRow | None:
    """Return what is known of the daemon of a file; None where none runs and the last one ended as it should."""
    found = [entry for name in names for folder in sorted(folders) for entry in _entered(folder, name)]
    if not found:
        return None
    alive, entry = max(((is_alive(entry.owner), entry) for entry in found), key=_freshness)
    row = DaemonRow(pid=entry.owner.pid, alive=alive, since=utc(entry.since), installed=program_version())
    if (pulse := entry.pulse) is None:
        return row
    return replace(
        row,
        version=pulse.version,
        loaded=pulse.digest,
        loaded_at=utc(pulse.loaded_at),
        tried=pulse.tried,
        fault=pulse.fault,
        max_parallel=pulse.max_parallel,
        heartbeat=utc(pulse.at),
        silent=alive and now - pulse.at > SILENCE,
    )


def beside(row: DaemonRow | None, job_file: JobFile) -> DaemonRow | None:
    """Hold what a daemon has in force against the file on disk."""
    if row is None or row.loaded is None or not row.alive:
        return row
    known = row.tried in (job_file.digest, "")
    waits = job_file.max_parallel != row.max_parallel
    return replace(
        row,
        on_disk=job_file.digest,
        edit=edit_words(row.fault if known else "") if job_file.digest != row.loaded else None,
        max_parallel_on_disk=job_file.max_parallel if waits else None,
    )


def _entered(folder: Path, config: str) -> list[Entry]:
    try:
        with ledger_rows(folder) as tx:
            entry = read_daemon(tx, config) if tx else None
    except ResumedError:
        return []  # each job of the folder tells it
    return [entry] if entry else []


def _freshness(found: tuple[bool, Entry]) -> tuple[bool, int]:
    alive, entry = found
    return alive, entry.pulse.at if entry.pulse else entry.since

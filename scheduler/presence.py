"""What a daemon says of itself in ledgers, and what is known of it by that and by the file on disk.

It has a row in each ledger that it works on, renewed when something in it changes, and every `BEAT` seconds besides.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from scheduler.due import plan_job
from scheduler.errors import DaemonRunning, ResumedError
from scheduler.home import state_folder, state_path
from scheduler.job import Job, JobFile
from scheduler.ledger import ledger_of, ledger_rows
from scheduler.owed import open_folder
from scheduler.owner import is_alive, program_version, this_process
from scheduler.patience import HASTE
from scheduler.report import DaemonRow, edit_words
from scheduler.roster import Entry, Pulse, claim_daemon, read_daemon, release_daemon, write_pulse
from scheduler.state import utc

BEAT = 30.0
# A daemon that gave no heartbeat for so long works no more.
SILENCE = 4 * BEAT

# A folder with a ledger, and the name of a jobs.yaml in it.
Registration = tuple[Path, str]


class Presence:
    """One daemon: its claims on ledgers, and its pulse."""

    def __init__(self, path: Path, job_file: JobFile, environ: Mapping[str, str]) -> None:
        self._owner = this_process()
        self._since = int(time.time())
        self._given = str(path.absolute())  # a link may come to lead to a file that cannot be read
        self._registrations: set[Registration] = set()
        self._home: set[Path] = set()
        with contextlib.suppress(ResumedError):  # a user without one can do without: it is for a file that broke
            self._home = {state_folder(environ)}
        self._pulse = Pulse(
            version=program_version(),
            digest=job_file.digest,
            loaded_at=self._since,
            max_parallel=job_file.max_parallel,
            tried=job_file.digest,
            fault="",
            at=self._since,
        )

    def claim(self, job_file: JobFile, folders: Collection[Path], wait: float | None = None) -> list[ResumedError]:
        """Enter this process into the ledger of each folder, a locked one within `wait` seconds, then leave all others.

        The user's own folder is one of them always, so that status finds the daemon of a file that cannot be read.
        Returns what is wrong with the ledgers that could not be entered. Raises DaemonRunning.
        """
        names = {str(job_file.path), self._given}
        before, self._registrations = (
            self._registrations,
            {(folder, name) for folder in {*folders, *self._home} for name in names},
        )
        if job_file.digest != self._pulse.digest:
            self._pulse = replace(self._pulse, digest=job_file.digest, loaded_at=int(time.time()))
        self._pulse = replace(self._pulse, tried=job_file.digest, fault="")
        try:
            return self._enter(wait)
        except DaemonRunning:
            self._leave(self._registrations, wait)
            raise
        finally:
            self._leave(before - self._registrations, wait)

    def beat(self, tried: str, fault: str) -> None:
        """Renew the pulse when it is time, or when another version of the file was `tried` and has this `fault`."""
        seen = replace(self._pulse, tried=tried, fault=fault)
        if seen != self._pulse or abs(time.time() - self._pulse.at) >= BEAT:  # a clock that was changed too
            self._pulse = seen
            self._enter(HASTE)

    def leave(self) -> None:
        """Take the entries of this process away."""
        self._leave(self._registrations, None)

    def _enter(self, wait: float | None) -> list[ResumedError]:
        self._pulse = replace(self._pulse, at=int(time.time()))
        faults = []
        for folder, names in _by_folder(self._registrations):
            try:
                with open_folder(folder).writing(wait) as tx:
                    for name in names:
                        claim_daemon(tx, name, self._owner, self._since)
                        write_pulse(tx, name, self._pulse)
            except DaemonRunning:
                raise
            except ResumedError as error:
                faults.append(error)
        return faults

    def _leave(self, left: Collection[Registration], wait: float | None) -> None:
        for folder, names in _by_folder(left):
            with contextlib.suppress(ResumedError), ledger_of(folder).writing(wait) as tx:
                for name in names:
                    release_daemon(tx, name, self._owner)


def _by_folder(registrations: Collection[Registration]) -> Iterator[tuple[Path, list[str]]]:
    """Return each folder with its names, for one transaction each."""
    for folder, found in itertools.groupby(sorted(registrations), key=lambda one: one[0]):
        yield folder, [name for _, name in found]


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


def with_edit(row: DaemonRow | None, job_file: JobFile) -> DaemonRow | None:
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

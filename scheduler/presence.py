"""What a daemon says of itself: in each ledger that it works on, and to the service manager.

The row in a ledger is renewed at once when something in it changes, and every `BEAT` seconds besides.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from scheduler.errors import DaemonRunning, ResumedError
from scheduler.home import state_folder
from scheduler.job import JobFile
from scheduler.ledger import ledger_of
from scheduler.owed import open_folder
from scheduler.owner import program_version, this_process
from scheduler.patience import HASTE
from scheduler.roster import Pulse, claim_daemon, release_daemon, write_pulse
from scheduler.systemd import Manager

BEAT = 30.0

# A folder with a ledger, and the name of a jobs.yaml in it.
Place = tuple[Path, str]


class Presence:
    """One daemon: its claims on ledgers, its pulse, its word to the service manager."""

    def __init__(self, path: Path, job_file: JobFile, environ: Mapping[str, str]) -> None:
        self.manager = Manager(environ)
        self._owner = this_process()
        self._since = int(time.time())
        self._given = str(path.absolute())  # a link may come to lead to a file that cannot be read
        self._places: set[Place] = set()
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
        before, self._places = self._places, {(folder, name) for folder in {*folders, *self._home} for name in names}
        if job_file.digest != self._pulse.digest:
            self._pulse = replace(self._pulse, digest=job_file.digest, loaded_at=int(time.time()))
        self._pulse = replace(self._pulse, tried=job_file.digest, fault="")
        try:
            return self._enter(wait)
        except DaemonRunning:
            self._leave(self._places, wait)
            raise
        finally:
            self._leave(before - self._places, wait)

    def beat(self, tried: str, fault: str) -> None:
        """Renew the pulse when it is time, or when another version of the file was `tried` and has this `fault`."""
        seen = replace(self._pulse, tried=tried, fault=fault)
        if seen != self._pulse or abs(time.time() - self._pulse.at) >= BEAT:  # a clock that was changed too
            self._pulse = seen
            self._enter(HASTE)

    def leave(self) -> None:
        """Take the entries of this process away."""
        self._leave(self._places, None)

    def _enter(self, wait: float | None) -> list[ResumedError]:
        self._pulse = replace(self._pulse, at=int(time.time()))
        faults = []
        for folder, places in _by_folder(self._places):
            try:
                with open_folder(folder).writing(wait) as tx:
                    for name in places:
                        claim_daemon(tx, name, self._owner, self._since)
                        write_pulse(tx, name, self._pulse)
            except DaemonRunning:
                raise
            except ResumedError as error:
                faults.append(error)
        return faults

    def _leave(self, left: Collection[Place], wait: float | None) -> None:
        for folder, places in _by_folder(left):
            with contextlib.suppress(ResumedError), ledger_of(folder).writing(wait) as tx:
                for name in places:
                    release_daemon(tx, name, self._owner)


def _by_folder(places: Collection[Place]) -> Iterator[tuple[Path, list[str]]]:
    """Return each folder with its names, for one transaction each."""
    for folder, found in itertools.groupby(sorted(places), key=lambda place: place[0]):
        yield folder, [name for _, name in found]

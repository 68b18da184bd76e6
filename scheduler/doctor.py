"""Everything that can be wrong around a jobs.yaml, looked at one after the other. Reads only, and asks nobody."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from scheduler.checkpoint import GROWTH, SLACK
from scheduler.columns import read_rows
from scheduler.database import Connection
from scheduler.document import MAX_BYTES, digest
from scheduler.due import Plan, model_of, plan_job
from scheduler.errors import LedgerDamaged, ResumedError
from scheduler.files import check_folder, read_regular, translated
from scheduler.findings import Finding, guarded, note, ok, wrong
from scheduler.folders import check_file_system, check_locks, check_modes, check_names, check_space
from scheduler.forecast import forecast, series_forecast
from scheduler.inventory import (
    Holding,
    faces_of,
    folders_of,
    openings_in,
    plans_of,
    read_flights,
    read_holdings,
    read_tasks,
)
from scheduler.job import JobFile, Provider
from scheduler.keys import read_headers, read_key
from scheduler.ledger import NAME, ledger_rows
from scheduler.metrics import check_replaceable
from scheduler.openings import plan_opening, read_openings
from scheduler.owner import is_alive, program_version
from scheduler.reader import peek
from scheduler.report import problem_line
from scheduler.roster import CLOCK_SLACK, Entry, read_daemons
from scheduler.schedulers import check_schedulers
from scheduler.state import MAX_STEPS, plain_task, utc
from scheduler.survey import silent_channels

BUILT_AFTER: Final = 1_767_225_600  # 2026-01-01: an earlier clock was never set
SYNCHRONISED: Final = Path("/run/systemd/timesync/synchronized")
PACKAGES: Final = ("apscheduler", "cronsim", "filelock", "httpx", "pydantic", "pyyaml")


@dataclass(kw_only=True)
class Folder:
    """A checkpoint folder as it was found: the jobs that keep theirs in it, and what its ledger holds."""

    path: Path
    plans: dict[str, Plan] = field(default_factory=dict)
    held: dict[str, Holding] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    openings: set[str] = field(default_factory=set)
    opened: list[Plan] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    daemons: list[Entry] = field(default_factory=list)
    newest: int = 0
    sqlite: str = ""


def examine(job_file: JobFile, environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Finding]:
    """Yield what is found, jobs.yaml first; whatever refuses to be looked at is a finding too.

    Crontabs and units of the machine are looked for below `root`.
    """
    told: list[Finding] = []
    for finding in _around(job_file, environ, root):
        told.append(finding)
        yield finding
    yield from _blocked(job_file, environ, told)


def _around(job_file: JobFile, environ: Mapping[str, str], root: Path) -> Iterator[Finding]:
    yield from _entries(job_file)
    folders = {path: Folder(path=path) for path in folders_of(job_file)}
    for plan in plans_of(job_file):
        folders[plan.path.parent].plans[plan.path.name] = plan
    faces = faces_of(job_file)
    for folder in folders.values():
        yield from guarded("folder", _folder(folder, job_file, faces[folder.path].keys()))
    yield from _tasks(list(folders.values()), faces)
    yield from _keys(job_file, environ)
    yield from _clock(max((folder.newest for folder in folders.values()), default=0))
    daemons = [daemon for folder in folders.values() for daemon in folder.daemons]
    yield from check_schedulers(job_file, daemons, environ, root)
    yield from guarded("metrics", _metrics(job_file))
    yield from _notify(job_file, environ)
    yield _versions({folder.sqlite for folder in folders.values()} - {""})


def _blocked(job_file: JobFile, environ: Mapping[str, str], told: list[Finding]) -> Iterator[Finding]:
    """Find the jobs that would be blocked now, where nothing that was told already says why."""
    reasons = "\n".join(finding.text for finding in told if finding.level == "wrong")
    for job in job_file.entries:
        ahead = series_forecast if job.series else forecast
        _, refusal = ahead(plan_job(job, job_file.live), job_file, environ, None)
        if refusal is not None and str(refusal) not in reasons:
            yield Finding("wrong", f"job {job.id}", str(refusal))


def _entries(job_file: JobFile) -> Iterator[Finding]:
    for problem in job_file.problems:
        if problem.severity == "error":
            yield wrong("jobs.yaml", problem_line(problem), "mend the entry, then: resumed check")
        else:
            yield note("jobs.yaml", problem_line(problem))
    jobs, zones = len(job_file.jobs) + len(job_file.series), {job.timezone for job in job_file.jobs.values()}
    yield ok("jobs.yaml", f"{job_file.path}: {jobs} good entries, only its owner can change them")
    yield ok("zones", f"the data of {', '.join(sorted(zones)) or 'UTC'} is there")


def _folder(folder: Folder, job_file: JobFile, named: Collection[str]) -> Iterator[Finding]:
    path = folder.path
    if not os.path.lexists(path):
        yield note("folder", f"{path} does not exist yet; the first slice makes it")
        return
    check_folder(path)
    yield from guarded("file system", check_file_system(path))
    yield from guarded("locks", check_locks(path))
    parallel = min(job_file.max_parallel, len(folder.plans))
    yield from guarded("space", check_space(path, 2 * (GROWTH + SLACK) * parallel))
    yield from guarded("ledger", _ledger(folder, job_file))
    files = [NAME, *(NAME + suffix for suffix in ("-wal", "-shm"))]
    files += [name + suffix for name in (*folder.plans, *folder.openings) for suffix in ("", ".lock")]
    yield from guarded("permissions", check_modes(path, files))
    yield from guarded("leftovers", check_names(path, {*named, *folder.openings}, folder.held))
    for plan in (*folder.plans.values(), *folder.opened) if folder.sqlite else ():
        yield from guarded(f"job {plan.job.id}", _checkpoint(plan, folder.digests.get(plan.path.name)))


def _ledger(folder: Folder, job_file: JobFile) -> Iterator[Finding]:
    ledger = folder.path / NAME
    with ledger_rows(folder.path) as tx:
        if tx is None:
            folder.sqlite = "no ledger"
            yield ok("ledger", f"{ledger} does not exist yet")
            return
        faults = [str(fault) for (fault,) in tx.execute("PRAGMA quick_check(3)") if fault != "ok"]
        if faults:
            yield wrong("ledger", f"{ledger}: {faults[0]}", "set it aside, then: resumed adopt --all")
            return
        _read(folder, tx, job_file)
        orphans = read_rows(tx, "SELECT checkpoint, attempt, at FROM orphan ORDER BY at", ())
        lost = [flight for flight in read_flights(tx) if not is_alive(flight.owner)]
    yield ok("ledger", f"{ledger} is whole and holds {len(folder.held)} checkpoints")
    for key, attempt, at in orphans:
        what = f"{ledger} keeps the reply to attempt {attempt} of {key} apart, since another process came in between"
        act = f'read its body, then delete the row: sqlite3 {ledger} "… FROM orphan WHERE at = {at}"'
        yield wrong("orphans", f"{what} ({utc(at)})", act)
    for flight in lost:
        what = f"attempt {flight.attempt} of {flight.checkpoint} was cut off with its process {flight.owner.pid}"
        yield note("attempts", f"{what}; it stays counted, and the next tick goes on from there")


def _read(folder: Folder, tx: Connection, job_file: JobFile) -> None:
    """Take in what the other checks ask. Raises LedgerDamaged on a document that does not match its digest."""
    folder.held = {holding.checkpoint: holding for holding in read_holdings(tx)}
    folder.tasks = read_tasks(tx)
    for key, body, stored in tx.execute("SELECT checkpoint, body, digest FROM document"):
        if digest(body) != stored:
            detail = f"the document of {key} does not match its digest"
            raise LedgerDamaged(path=folder.path / NAME, detail=detail)
        folder.digests[key] = stored
    folder.openings = openings_in(folder.path, folder.held, job_file)
    patterns = [plan_job(pattern, job_file.live) for pattern in job_file.series.values()]
    for pattern in [pattern for pattern in patterns if pattern.path.parent == folder.path]:
        folder.opened += [plan_opening(pattern, one.opening) for one in read_openings(tx, pattern.job.id)]
    folder.daemons = read_daemons(tx)
    ends = "SELECT coalesce(max(coalesce(ended_at, admitted_at)), 0) AS ended_at FROM admission"
    folder.newest = read_rows(tx, ends, ())[0][0]
    folder.sqlite = str(tx.execute("SELECT sqlite_version()").fetchone()[0])


def _checkpoint(plan: Plan, stored: str | None) -> Iterator[Finding]:
    """Hold a job's file against the digest of the ledger's document; silent where they agree."""
    body = read_regular(plan.path, MAX_BYTES)
    if (digest(body) if body is not None else None) == stored:
        return
    if peek(plan.path).behind:  # a new look at both, for a slice may have ended in between
        yield note(f"job {plan.job.id}", f"{plan.path} is behind the ledger; the next tick puts it right")


def _tasks(folders: list[Folder], faces: Mapping[Path, Mapping[str, str]]) -> Iterator[Finding]:
    """Find the tasks that have, or had, more than one checkpoint: each of them has its own four attempts."""
    groups: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for folder in folders:
        for key, plan in folder.plans.items():
            groups[plain_task(plan.job.task)].append((_spent(folder, key), plan.job.id, plan.job.id))
            if (old := plain_task(folder.tasks.get(key, plan.job.task))) != plain_task(plan.job.task):
                groups[old].append((_spent(folder, key), plan.job.id, ""))
        for key in folder.held.keys() - folder.openings - faces[folder.path].keys():
            groups[plain_task(folder.tasks[key])].append((_spent(folder, key), str(folder.path / key), ""))
    twice = 0
    for members in groups.values():
        spent, first, _ = max(members, key=lambda member: member[0])
        for _, _, job in members if spent else ():
            if job and job != first:
                twice += 1
                what = f"{job} has the task of {first}, {spent} of {MAX_STEPS} spent"
                yield wrong("tasks", what, "its own attempts come on top; take one of the two away")
    if not twice:
        yield ok("tasks", "no task has a second checkpoint")


def _spent(folder: Folder, key: str) -> int:
    return folder.held[key].attempts if key in folder.held else 0


def _keys(job_file: JobFile, environ: Mapping[str, str]) -> Iterator[Finding]:
    asked = {plan.job.provider.name: plan for plan in plans_of(job_file) if not plan.job.provider.offline}
    for name, plan in asked.items():
        provider = plan.job.provider
        yield from guarded("key", _key_file(provider))
        try:
            key = read_key(provider, environ)
            read_headers(provider, environ)
            if not plan.rehearsal:
                model_of(plan, environ)
        except ResumedError as error:
            act = "set it where the jobs run: the unit, the crontab, or key: {file: PATH}"
            yield (
                wrong("key", str(error), act) if job_file.live else note("key", f"before live: true can work: {error}")
            )
            continue
        yield ok("key", f"provider {name}: {'the key is there' if key else 'no key is asked for'}")


def _key_file(provider: Provider) -> Iterator[Finding]:
    if provider.key is None or provider.key.kind != "file":
        return
    path = Path(provider.key.name)
    if not os.path.lexists(path):
        return  # told as a key that is missing
    with translated(path):
        found = path.lstat()
    if found.st_mode & 0o077:
        yield wrong("key", f"other users may open {path}", f"chmod 600 {path}")
    if found.st_uid not in (0, os.geteuid()):
        yield wrong("key", f"{path} is another user's", f"make it yours: chown {os.geteuid()} {path}")


def _clock(newest: int) -> Iterator[Finding]:
    now = time.time()
    if now < BUILT_AFTER:
        yield wrong("clock", f"the clock says {utc(now)}", "set it")
    elif newest > now + CLOCK_SLACK:
        what = f"the clock says {utc(now)}, and the ledger has an entry of {utc(newest)}"
        yield wrong("clock", what, "set the clock; points until then may be passed over")
    else:
        kept = ", kept right by NTP" if SYNCHRONISED.exists() else ""
        yield ok("clock", f"{utc(now)}{kept}, not before any entry of the ledgers")


def _metrics(job_file: JobFile) -> Iterator[Finding]:
    if job_file.metrics is None:
        return
    if importlib.util.find_spec("prometheus_client") is None:
        act = "pipx inject resumed prometheus-client, or pip install it in the environment of this program"
        yield wrong("metrics", "prometheus-client is not installed", act)
    elif not os.access(job_file.metrics.parent, os.W_OK | os.X_OK):
        yield wrong("metrics", f"{job_file.metrics.parent} cannot be written to", "make it, or name another file")
    else:
        check_replaceable(job_file.metrics)
        yield ok("metrics", f"they go to {job_file.metrics}")


def _notify(job_file: JobFile, environ: Mapping[str, str]) -> Iterator[Finding]:
    act = "mend the entry, the variable or the program; it is tried again when there is something to tell"
    for row in silent_channels(folders_of(job_file), job_file, environ):
        yield wrong("notify", f"{row.channel} fails: {row.reason}, since {row.since}", act)


def _versions(sqlite: set[str]) -> Finding:
    found = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    found = [f"resumed {program_version()}", f"Python {platform.python_version()}", *found]
    return ok("versions", ", ".join([*found, *(f"SQLite {version}" for version in sqlite - {"no ledger"})]))

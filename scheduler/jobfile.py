"""jobs.yaml -> `JobFile`, with every problem at once, each at its line and column.

A problem inside an entry of `jobs` or `providers` blocks that job, or the jobs of that provider; any other makes the
file unreadable as a whole.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from scheduler import entries, files, positions
from scheduler.entries import json_schema as json_schema
from scheduler.errors import JobFileUnreadable
from scheduler.extras import is_variable
from scheduler.job import OPENING, OPENING_NAME, Job, JobFile, Problem
from scheduler.misfits import Misfit, nearest
from scheduler.positions import Document, Odd, Place
from scheduler.records import BUILT_IN, DEMO, MANDAPI, file_channels, folders_of, key_files, make_records, metrics_file
from scheduler.shapes import FileEntry

MAX_BYTES: Final = 16 * 1024 * 1024


def read_job_file(path: Path) -> JobFile:
    """Read and check jobs.yaml; a symbolic link is followed, and the file that it leads to counts.

    Raises JobFileUnreadable where nothing of it can be used; PermissionRefused; WrongUser and WritableByOthers where
    anyone but root or the caller could change it.
    """
    body = _read(path)
    try:
        return parse_job_file(body, path)
    except JobFileUnreadable as error:
        error.digest = hashlib.sha256(body).hexdigest()
        raise


def _read(path: Path) -> bytes:
    try:
        real = os.path.realpath(path, strict=True)
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except PermissionError as error:
        raise files.os_refusal(path, error) from error
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise JobFileUnreadable(path=str(path), message=f"it cannot be opened: {reason}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            message = f"it is {files.file_kind(found.st_mode)}, not a regular file"
            raise JobFileUnreadable(path=str(path), message=message)
        files.check_owner(Path(real), found, or_root=True)
        files.check_writers(Path(real), found)
        with files.translated(path), open(descriptor, "rb", closefd=False) as file:
            body = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(body) > MAX_BYTES:
        raise JobFileUnreadable(path=str(path), message=f"it is longer than {MAX_BYTES} bytes")
    return body


@positions.without_collecting()
def parse_job_file(body: bytes, path: Path) -> JobFile:
    """Check the bytes of jobs.yaml; `path` says where relative paths start, and problems name it as it is given.

    Raises JobFileUnreadable, which holds every problem, where nothing of it can be used.
    """
    document = _document(body, path)
    shape, misfits = _check(document)
    problems = [*_warnings(document, path), *(_located(misfit, document, path) for misfit in misfits)]
    if shape is None:
        raise _unreadable(path, problems)
    real = Path(os.path.realpath(path))
    providers, jobs = make_records(shape, real.parent)
    problems += [_located(misfit, document, path) for misfit in _shared(jobs.values(), document)]
    problems.sort(key=lambda problem: (problem.line, problem.column))
    refused = {p.job: p for p in reversed(problems) if p.job is not None and p.severity == "error"}
    private = {*key_files(providers.values()), *(folder for job in jobs.values() for folder in folders_of(job))}
    return JobFile(
        path=real,
        digest=hashlib.sha256(body).hexdigest(),
        live=shape.live,
        max_parallel=shape.max_parallel,
        requests_per_day=shape.budget.requests_per_day,
        stop_wait=float(shape.stop_wait),
        jobs={name: job for name, job in jobs.items() if name not in refused and not job.series},
        series={name: job for name, job in jobs.items() if name not in refused and job.series},
        providers=providers,
        problems=tuple(problems),
        refused=dict(reversed(refused.items())),
        private=tuple(sorted(private)),
        secret_names=frozenset(_secret_names(document.data)),
        notify=file_channels(shape, real.parent),
        metrics=metrics_file(shape, real.parent),
    )


def _secret_names(data: Any) -> Iterator[str]:
    """Find each variable that a key, a header or an address names, `{env: NAME}`, in entries that are refused too."""
    if isinstance(data, dict) and is_variable(data.get("env")):  # anything else may be the secret itself
        yield data["env"]
    values = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for value in values:
        yield from _secret_names(value)


def _document(body: bytes, path: Path) -> Document:
    try:
        return positions.read(body)
    except positions.Unreadable as error:
        fault = error.fault
        raise _unreadable(path, [_problem(path, fault.place, None, fault.message, fault.hint)]) from None


def _check(document: Document) -> tuple[FileEntry | None, list[Misfit]]:
    """Return what is good of the file, or None where nothing is, and all that is wrong."""
    shape, misfits = entries.check(document.data)
    found = [Misfit(path, fault.message, fault.hint) for path, fault in document.faults.items()]
    found += _not_under(found, _rules(document.data))
    found += _not_under(found, misfits)
    found += list(_orphans(found, document))
    blocked = {_entry(misfit.path) for misfit in found}
    if () in blocked:
        return None, found
    return entries.check(_without(document.data, blocked))[0] if found else shape, found


def _not_under(known: Iterable[Misfit], found: Iterable[Misfit]) -> list[Misfit]:
    covered = {misfit.path for misfit in known}
    return [misfit for misfit in found if not any(misfit.path[:n] in covered for n in range(len(misfit.path) + 1))]


def _rules(data: Any) -> Iterator[Misfit]:
    """Find what the shape alone does not say."""
    if not isinstance(data, dict):
        nothing = isinstance(data, Odd) and data.nothing
        yield Misfit((), "no jobs: " + ("the file is empty" if nothing else "expected a mapping with the key jobs"))
        return
    jobs, providers = data.get("jobs"), data.get("providers", {})
    if not isinstance(jobs, dict) or not jobs:
        message = "expected a mapping of ids under jobs" if "jobs" in data else "the key jobs is missing"
        yield Misfit(("jobs",), f"no jobs: {message}", at_key=True)
    if not isinstance(providers, dict):
        return
    for name, entry in providers.items():
        if name == DEMO.name:
            yield Misfit(("providers", name), "demo is built in and stays as it is", "give yours another name", True)
        elif name != MANDAPI.name and isinstance(entry, dict) and "base_url" not in entry:
            yield Misfit(("providers", name, "base_url"), "base_url is missing", at_key=True)
    known = BUILT_IN | providers
    for job, name in _uses(data):
        if name not in known:
            message = f"provider: there is no {name[:40]}{nearest(name[:40], tuple(known)[:50])}"
            yield Misfit(("jobs", job, "provider"), message)


def _uses(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Pair each job with the name of its provider, where both can be told."""
    jobs = data.get("jobs")
    for job, entry in jobs.items() if isinstance(jobs, dict) else ():
        name = entry.get("provider", MANDAPI.name) if isinstance(entry, dict) else None
        if isinstance(name, str):
            yield job, name


def _orphans(found: Iterable[Misfit], document: Document) -> Iterator[Misfit]:
    """Find the jobs whose provider's entry is refused."""
    lines = {m.path[1]: _place(m, document).line for m in found if _entry(m.path)[:1] == ("providers",)}
    for job, name in _uses(document.data) if lines else ():
        if name in lines:
            message = f"provider: the entry of {name} has a problem (line {lines[name]})"
            yield Misfit(("jobs", job, "provider"), message)


def _entry(path: positions.Path) -> positions.Path:
    """Return the path of the job or provider around it; empty outside those."""
    return path[:2] if len(path) > 1 and path[0] in ("jobs", "providers") else ()


def _without(data: dict[str, Any], refused: set[positions.Path]) -> dict[str, Any]:
    return {
        key: {name: entry for name, entry in value.items() if (key, name) not in refused}
        if key in ("jobs", "providers")
        else value
        for key, value in data.items()
    }


def _place(misfit: Misfit, document: Document) -> Place:
    if misfit.path in document.faults:
        return document.faults[misfit.path].place
    return document.key(misfit.path) if misfit.at_key else document.value(misfit.path)


def _located(misfit: Misfit, document: Document, path: Path) -> Problem:
    job = str(misfit.path[1]) if _entry(misfit.path)[:1] == ("jobs",) else None
    return _problem(path, _place(misfit, document), job, misfit.message, misfit.hint)


def _problem(path: Path, place: Place, job: str | None, message: str, hint: str) -> Problem:
    return Problem(file=str(path), line=place.line, column=place.column, job=job, message=message, hint=hint)


def _warnings(document: Document, path: Path) -> Iterator[Problem]:
    for where, place in document.comments.items():
        if len(where) == 3 and where[0] == "jobs" and where[2] == "task":
            message = 'task: what follows " #" is a comment and was not read'
            problem = _problem(path, place, str(where[1]), message, "put the task in quotes")
            yield replace(problem, severity="warning")


def _unreadable(path: Path, problems: list[Problem]) -> JobFileUnreadable:
    problems = sorted(problems, key=lambda problem: (problem.severity, problem.line, problem.column))
    first, more = problems[0], len(problems) - 1
    hint = f"; {first.hint}" if first.hint else ""
    rest = f" (and {more} more)" if more else ""
    message = f"line {first.line}, column {first.column}: {first.message}{hint}{rest}"
    return JobFileUnreadable(path=str(path), message=message, problems=tuple(problems))


def _shared(jobs: Iterable[Job], document: Document) -> Iterator[Misfit]:
    """Find each job whose checkpoint, or its rehearsal's, is really the file of an earlier job."""
    real = functools.cache(os.path.realpath)
    owners: dict[str, str] = {}
    alike: dict[str, str] = {}  # plain jobs by the pattern that would give an opening their file
    for job in jobs:
        taken = [f"{real(folder)}/{job.checkpoint.name}" for folder in folders_of(job)]
        pattern = re.sub(OPENING_NAME, OPENING, job.checkpoint.name, flags=re.ASCII)
        patterns = [f"{real(folder)}/{pattern}" for folder in folders_of(job)]
        known = (owners, alike) if job.series else (owners,)
        first = next((names[file] for names in known for file in (*taken, *patterns) if file in names), None)
        if first is None:
            owners.update(dict.fromkeys(taken, job.id))
            alike.update(dict.fromkeys(patterns, job.id))
            continue
        line = document.value(("jobs", first, "checkpoint")).line
        message = f"checkpoint: this is the file of job {first} (line {line})"
        yield Misfit(("jobs", job.id, "checkpoint"), message, "give each job a file of its own")

"""Who runs or starts a jobs.yaml: daemons by their rows, crontabs and systemd units by their lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler.findings import Finding, note, ok, wrong
from scheduler.job import JobFile
from scheduler.owner import Owner, is_alive, program_version
from scheduler.roster import Pulse
from scheduler.starters import Starter, find_starters
from scheduler.state import utc
from scheduler.text import storable


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """A daemon that entered itself: of which jobs.yaml, which process, since when (UTC seconds)."""

    config: str
    owner: Owner
    since: int


def check_schedulers(
    job_file: JobFile,
    daemons: Collection[DaemonRow],
    pulses: Collection[Pulse],
    environ: Mapping[str, str],
    root: Path,
) -> Iterator[Finding]:
    """Say what runs these jobs and what starts it; crontabs and units of the machine are looked for below `root`."""
    mine = storable(str(job_file.path))
    alive = any(row.config == mine and is_alive(row.owner) for row in daemons)
    starters = find_starters(job_file.path, environ, root)
    active = [starter for starter in starters if starter.active]
    for row in sorted(daemons, key=lambda row: row.since):
        yield from _daemon(row, mine, alive or any(starter.kind == "tick" for starter in active))
    if alive:
        yield from _loaded(pulses, job_file)
    for starter in starters:
        said = f"{starter.place} gives {starter.kind}"
        yield ok("schedulers", said) if starter.active else note("schedulers", f"{said}, and is not enabled")
    yield from _together(active, alive)


def _daemon(row: DaemonRow, mine: str, replaced: bool) -> Iterator[Finding]:
    lives, pid = is_alive(row.owner), row.owner.pid
    if row.config == mine and lives:
        yield ok("schedulers", f"a daemon runs since {utc(row.since)}, process {pid}")
    elif row.config == mine:
        what = f"the daemon of {utc(row.since)}, process {pid}, is gone and did not take its leave"
        act = "start it again; one that is not to run is then ended by SIGTERM"
        yield note("schedulers", what) if replaced else wrong("schedulers", what, act)
    elif lives:
        yield note("schedulers", f"a daemon of {row.config}, process {pid}, uses one of these folders too")


def _loaded(pulses: Collection[Pulse], job_file: JobFile) -> Iterator[Finding]:
    for pulse in sorted(pulses, key=lambda pulse: pulse.at)[-1:]:
        if pulse.version != program_version():
            what = f"the daemon is of version {pulse.version}, and this is {program_version()}"
            yield wrong("versions", what, "start it again")
        if pulse.digest != job_file.digest:
            why = f": {pulse.fault}" if pulse.fault else ""
            yield wrong("schedulers", f"the daemon runs an older jobs.yaml{why}", "mend the file, or send it SIGHUP")


def _together(active: Collection[Starter], alive: bool) -> Iterator[Finding]:
    kinds = [starter.kind for starter in active]
    for kind in ("tick", "daemon"):
        if kinds.count(kind) > 1:
            places = " and ".join(starter.place for starter in active if starter.kind == kind)
            yield wrong("schedulers", f"{places} give the same {kind}", "one is enough; take the others away")
    if "tick" in kinds and (alive or "daemon" in kinds):
        yield note("schedulers", "a daemon and a tick work side by side; nothing runs twice, and one is enough")
    if not active and not alive:
        yield note(
            "schedulers", "nothing was found that runs these jobs; resumed init prints lines for cron and systemd"
        )

"""What a scheduler asks of a ledger: each job's schedule since when, what its checkpoint used up, and who runs.

Every function here is a part of a transaction that the caller opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from scheduler.columns import read_row, read_rows
from scheduler.database import Connection
from scheduler.errors import DaemonRunning
from scheduler.owner import Owner, is_alive
from scheduler.standing import Admission, read_admissions
from scheduler.state import PROGRESS, utc
from scheduler.text import storable

# A process that read its clock before another one, and the ledger after it, finds rows of a moment ago in the future.
CLOCK_SLACK = 60

# Names of `tally`: how often something happened, and when `tick` last ended (UTC seconds).
MISSED, RELOAD_FAILURES, LAST_TICK = "missed", "reload_failures", "last_tick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the due rule asks of a checkpoint: the schedule points used, failures in a row, the end of the last.

    `attempts` are those that this ledger admitted. `size` is that of the newest document in bytes; a published file of
    another size is behind.
    """

    status: str = "ready"
    attempts: int = 0
    size: int | None = None
    points: frozenset[int] = frozenset()
    failures: int = 0
    ended_at: int | None = None
    open: Admission | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """A job as jobs.yaml now has it: its id, its checkpoint's key, its schedule text."""

    job: str
    checkpoint: str
    schedule: str


@dataclass(frozen=True, slots=True)
class Seen:
    """Since when (UTC seconds) a job has its schedule, and whether its row already says so.

    `moved_from` is the key that holds its spent attempts where that is not the one of jobs.yaml.
    """

    since: int
    known: bool
    moved_from: str | None = None


def read_seen(tx: Connection, sighting: Sighting, now: int) -> Seen:
    """Return since when a job has its present schedule; one that is new, edited or dated in the future begins now.

    A job whose spent attempts lie under another checkpoint is reported with that one.
    """
    row = read_row(tx, "SELECT checkpoint, schedule, since FROM job WHERE job = ?", (sighting.job,))
    if row is None:
        return Seen(now, known=False)
    key, schedule, since = row
    moved = key != sighting.checkpoint and _has_admissions(tx, sighting.job, key)
    same = schedule == sighting.schedule and since <= now + CLOCK_SLACK
    known = moved or (same and key == sighting.checkpoint)
    return Seen(since if same else now, known=known, moved_from=key if moved else None)


def _has_admissions(tx: Connection, job: str, key: str) -> bool:
    found = tx.execute("SELECT 1 FROM admission WHERE checkpoint = ? AND job = ? LIMIT 1", (key, job)).fetchone()
    return found is not None


def note(tx: Connection, sighting: Sighting, since: int) -> None:
    """Bind a job to its checkpoint and schedule from `since` on, whatever it was bound to before."""
    tx.execute("REPLACE INTO job VALUES (?, ?, ?, ?)", (sighting.job, sighting.checkpoint, sighting.schedule, since))


def read_acted(tx: Connection, key: str) -> int:
    """Return when a person last acted on a checkpoint (UTC seconds); 0 where nobody did."""
    row = read_row(tx, "SELECT at FROM act WHERE checkpoint = ? ORDER BY at DESC LIMIT 1", (key,))
    return row[0] if row else 0


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a daemon last said of itself, `at` that time (UTC seconds).

    `digest` is that of the jobs.yaml in force, `loaded_at` when it came into force, `tried` that of the newest that was
    looked at ("" where it could not be read), `fault` why that one is not in force.
    """

    version: str
    digest: str
    loaded_at: int
    max_parallel: int
    tried: str
    fault: str
    at: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A daemon as it is entered: of which jobs.yaml, its process, since when it runs (UTC seconds), its last pulse."""

    config: str
    owner: Owner
    since: int
    pulse: Pulse | None


def claim_daemon(tx: Connection, config: str, owner: Owner, since: int) -> None:
    """Enter this process as the daemon of a jobs.yaml. Raises DaemonRunning while another one lives."""
    config = storable(config)
    row = read_row(tx, "SELECT pid, start, boot, since FROM daemon WHERE config = ?", (config,))
    if row:
        other = Owner(*row[:3])
        if other != owner and is_alive(other):
            raise DaemonRunning(config=config, pid=other.pid, since=utc(row[3]))
    tx.execute("REPLACE INTO daemon VALUES (?, ?, ?, ?, ?)", (config, owner.pid, owner.start, owner.boot, since))


def write_pulse(tx: Connection, config: str, pulse: Pulse) -> None:
    """Put down what the daemon of a jobs.yaml says of itself, in place of what it said before."""
    values = [value if isinstance(value, int) else storable(value) for value in astuple(pulse)]
    tx.execute(
        "REPLACE INTO pulse (config, version, digest, loaded_at, max_parallel, tried, fault, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (storable(config), *values),
    )


def release_daemon(tx: Connection, config: str, owner: Owner) -> None:
    """Take this process's entry away, and what it said of itself."""
    mine = (storable(config), owner.pid, owner.start)
    if tx.execute("DELETE FROM daemon WHERE config = ? AND pid = ? AND start = ?", mine).rowcount:
        tx.execute("DELETE FROM pulse WHERE config = ?", mine[:1])


def read_daemon(tx: Connection, config: str) -> Entry | None:
    """Return the daemon that is entered for a jobs.yaml, whether its process lives or not."""
    return next(iter(_entries(tx, " WHERE config = ?", (storable(config),))), None)


def read_daemons(tx: Connection) -> list[Entry]:
    """Return every daemon that is entered, whether its process lives or not."""
    return _entries(tx, "", ())


def _entries(tx: Connection, where: str, values: tuple[str, ...]) -> list[Entry]:
    query = f"SELECT config, version, digest, loaded_at, max_parallel, tried, fault, at FROM pulse{where}"  # noqa: S608  # our own text
    pulses = {config: Pulse(*said) for config, *said in read_rows(tx, query, values)}
    rows = read_rows(tx, f"SELECT config, pid, start, boot, since FROM daemon{where}", values)  # noqa: S608  # our own text
    return [Entry(config, Owner(*owner), since, pulses.get(config)) for config, *owner, since in rows]


def count_up(tx: Connection, name: str, times: int = 1) -> None:
    """Count something that happened, for metrics."""
    query = "INSERT INTO tally VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count"
    tx.execute(query, (name, times))


def set_tally(tx: Connection, name: str, value: int) -> None:
    """Store a number in place of the one before."""
    tx.execute("REPLACE INTO tally VALUES (?, ?)", (name, value))


def read_facts(tx: Connection, key: str) -> Facts:
    """Return what the due rule asks of a checkpoint; one without a document has the facts of a new one."""
    row = read_row(
        tx,
        "SELECT allowance, length(body) AS size, json_extract(CAST(body AS TEXT), '$.status') AS status FROM document"
        " WHERE checkpoint = ?",
        (key,),
    )
    if row is None:
        return Facts()
    allowance, size, status = row
    return _facts(status, size, read_admissions(tx, key, allowance))


def _end(admission: Admission) -> int | None:
    """Return when an attempt ended; one whose process died and was found long after, at its deadline at the latest."""
    if admission.ended_at is None or admission.outcome != "interrupted":
        return admission.ended_at
    return min(admission.ended_at, max(admission.deadline, admission.admitted_at))


def _facts(status: str, size: int, admissions: Sequence[Admission]) -> Facts:
    failures = 0
    for admission in reversed(admissions):
        if admission.outcome in PROGRESS or admission.outcome is None:
            break
        failures += 1
    return Facts(
        status=status,
        attempts=admissions[-1].attempt if admissions else 0,
        size=size,
        points=frozenset(row.point for row in admissions if row.point is not None),
        failures=failures,
        ended_at=_end(admissions[-1]) if admissions else None,
        open=next((row for row in admissions if row.outcome is None), None),
    )

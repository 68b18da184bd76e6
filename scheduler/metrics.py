"""Numbers for a monitoring system, all of them taken from the ledgers: cron and daemon write the same.

The format is the text format of Prometheus, for the textfile collector of its node exporter, which passes over a file
whose name does not end in .prom.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler.columns import read_rows
from scheduler.database import Connection
from scheduler.due import Plan
from scheduler.errors import ExtraMissing, ResumedError, TargetRefused
from scheduler.files import read_regular, translated
from scheduler.inventory import folders_of, openings_in, plans_of, read_flights, read_holdings
from scheduler.job import JobFile
from scheduler.ledger import NAME, ledger_of, ledger_rows
from scheduler.owed import as_refusal
from scheduler.owner import is_alive
from scheduler.patience import HASTE
from scheduler.roster import LAST_TICK, RELOAD_FAILURES, count_up, set_tally
from scheduler.state import OUTCOMES
from scheduler.text import storable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

EVERY: Final = 30.0
BUCKETS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_HEAD: Final = b"# HELP resumed_"
STATES: Final = ("ready", "running", "done", "exhausted", "blocked", "disabled")

Report = Callable[[str], object]


@dataclass(kw_only=True)
class Numbers:
    """What the ledgers of a jobs.yaml say; moments are UTC seconds, durations are paired with how often each was."""

    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    in_flight: int = 0
    states: Counter[str] = field(default_factory=Counter)
    durations: Counter[int] = field(default_factory=Counter)
    deliveries: Counter[str] = field(default_factory=Counter)
    untold: int = 0
    tallies: Counter[str] = field(default_factory=Counter)
    last_tick: int = 0
    last_attempt: int = 0
    heartbeat: int = 0
    unreadable: int = 0

    def add(self, other: Numbers) -> None:
        """Take in the numbers of another folder."""
        for name in ("attempts", "states", "durations", "deliveries", "tallies"):
            getattr(self, name).update(getattr(other, name))
        for name in ("in_flight", "untold"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("last_tick", "last_attempt", "heartbeat"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))


class MetricsFile:
    """The daemon's writer: at most each second while slices end, and each 30 s; `tell` gets each time what failed."""

    def __init__(self, tell: Report) -> None:
        self._tell = tell
        self._at = float("-inf")
        self._fresh = False

    def touch(self) -> None:
        """Say that a slice has ended, so that the next look writes."""
        self._fresh = True

    def failed(self, job_file: JobFile) -> None:
        """Count a version of jobs.yaml that could not be taken over; a ledger that is locked costs the count alone."""
        self._fresh = True
        with contextlib.suppress(ResumedError):
            _note_in(job_file, lambda tx: count_up(tx, RELOAD_FAILURES), HASTE)

    def look(self, job_file: JobFile) -> None:
        """Write if it is time; never raises."""
        if job_file.metrics is None or not (self._fresh or time.monotonic() - self._at >= EVERY):
            return
        self._at, self._fresh = time.monotonic(), False
        self._tell(_written(job_file))


def after_tick(job_file: JobFile, tell: Report, *, ticked: bool) -> None:
    """Write the file after the slices of a short process, `tick` itself noted in a ledger; tell what failed."""
    if job_file.metrics is not None:
        tell(_written(job_file, ticked=ticked))


def _written(job_file: JobFile, *, ticked: bool = False) -> str:
    """Write the file; return what failed, or an empty text."""
    try:
        if ticked:
            _note_in(job_file, lambda tx: set_tally(tx, LAST_TICK, int(time.time())))
        write(job_file)
    except Exception as error:
        return str(as_refusal(error))
    return ""


def _note_in(job_file: JobFile, note: Callable[[Connection], None], wait: float | None = None) -> None:
    """Write into one of the ledgers that there are, always the same one while they are."""
    for folder in [folder for folder in folders_of(job_file) if (folder / NAME).exists()][:1]:
        with ledger_of(folder).writing(wait) as tx:
            note(tx)


def write(job_file: JobFile) -> None:
    """Put the numbers into the file that `metrics:` names, in one step, readable by everyone.

    Raises ExtraMissing, TargetRefused, and the refusals of access and storage.
    """
    path = job_file.metrics
    if path is None:
        return
    try:
        from prometheus_client import CollectorRegistry, write_to_textfile
    except ImportError:
        raise ExtraMissing(key="metrics", package="prometheus-client") from None
    check_replaceable(path)
    found = list(_families(count(job_file)))

    class Collector:
        def collect(self) -> list[Metric]:
            return found

    registry = CollectorRegistry()
    registry.register(Collector())
    sibling = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with translated(path, purpose="the numbers of metrics"):
        try:
            write_to_textfile(str(sibling), registry)
            sibling.chmod(0o644)  # whatever the umask: the collector is another user
            sibling.rename(path)
        finally:
            sibling.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Raise TargetRefused where a file stands that holds no numbers of ours, and NotAFile where no file does."""
    found = read_regular(path, len(_HEAD) - 1) or _HEAD
    if found != _HEAD or path.name.startswith(NAME):
        raise TargetRefused(key="metrics", reason=f"{path}: this file is for something else; name another one")


def count(job_file: JobFile) -> Numbers:
    """Count what the ledgers of a jobs.yaml hold; one that cannot be read is counted as such."""
    folders: dict[Path, dict[str, Plan]] = {folder: {} for folder in folders_of(job_file)}
    for plan in plans_of(job_file):
        folders[plan.path.parent][plan.path.name] = plan
    total = Numbers(states=Counter(blocked=len(job_file.refused)))
    for folder, plans in folders.items():
        try:
            total.add(_of_folder(folder, plans, job_file))
        except ResumedError:
            total.unreadable += 1
    return total


def _of_folder(folder: Path, plans: dict[str, Plan], job_file: JobFile) -> Numbers:
    with ledger_rows(folder) as tx:
        if tx is None:
            return Numbers(states=Counter(_state(plan, "ready", 0, running=False) for plan in plans.values()))
        held = {holding.checkpoint: holding for holding in read_holdings(tx)}
        flying = {flight.checkpoint for flight in read_flights(tx) if is_alive(flight.owner)}
        found = _of_rows(tx, job_file)
    for key, plan in plans.items():
        status, attempts = (held[key].status, held[key].attempts) if key in held else ("ready", 0)
        found.states[_state(plan, status, attempts, running=key in flying)] += 1
    for key in openings_in(folder, held.keys() - plans.keys(), job_file):
        found.states["running" if key in flying else held[key].status] += 1
    found.in_flight = len(flying)
    return found


def _state(plan: Plan, status: str, attempts: int, *, running: bool) -> str:
    if status == "ready" and not running and attempts >= plan.job.max_attempts:
        return "exhausted"
    if status != "ready":
        return status
    return "running" if running else "ready" if plan.job.enabled else "disabled"


def _of_rows(tx: Connection, job_file: JobFile) -> Numbers:
    ended = "SELECT outcome, live, count(*) AS count FROM admission WHERE outcome IS NOT NULL GROUP BY outcome, live"
    # An attempt that a crash ended was ended by a later process.
    took = (
        "SELECT max(0, ended_at - admitted_at) AS count, count(*) AS size FROM admission"
        " WHERE ended_at IS NOT NULL AND outcome <> 'interrupted' GROUP BY 1"
    )
    newest = "SELECT coalesce(max(admitted_at), 0) AS admitted_at FROM admission"
    sent = "SELECT result, count(*) AS count FROM delivery WHERE result IS NOT NULL GROUP BY result"
    beats = "SELECT at FROM pulse WHERE config = ?"
    tallies = dict(read_rows(tx, "SELECT name, count FROM tally", ()))
    return Numbers(
        attempts=Counter({(outcome, "01"[live == 1]): size for outcome, live, size in read_rows(tx, ended, ())}),
        durations=Counter(dict(read_rows(tx, took, ()))),
        deliveries=Counter(dict(read_rows(tx, sent, ()))),
        untold=read_rows(tx, "SELECT count(*) AS count FROM told WHERE fault <> ''", ())[0][0],
        last_tick=tallies.pop(LAST_TICK, 0),
        tallies=Counter(tallies),
        last_attempt=read_rows(tx, newest, ())[0][0],
        heartbeat=max((at for (at,) in read_rows(tx, beats, (storable(str(job_file.path)),))), default=0),
    )


def _families(numbers: Numbers) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    attempts = CounterMetricFamily(
        "resumed_attempts", "Attempts that ended, by outcome; live: sent to a provider.", labels=("outcome", "live")
    )
    for outcome in sorted(OUTCOMES):
        for digit, live in (("0", "false"), ("1", "true")):
            attempts.add_metric([outcome, live], numbers.attempts[outcome, digit])
    yield attempts
    yield GaugeMetricFamily("resumed_attempts_in_flight", "Attempts that wait for their reply.", numbers.in_flight)
    jobs = GaugeMetricFamily("resumed_jobs", "Jobs by state; blocked: a bad entry in jobs.yaml.", labels=("state",))
    for state in STATES:
        jobs.add_metric([state], numbers.states[state])
    yield jobs
    slices = HistogramMetricFamily(
        "resumed_slice_duration_seconds", "From the admission of an attempt to its outcome, in whole seconds."
    )
    below = [sum(size for took, size in numbers.durations.items() if took <= limit) for limit in BUCKETS]
    rows = [(str(float(limit)), size) for limit, size in zip(BUCKETS, below, strict=True)]
    total = sum(took * size for took, size in numbers.durations.items())
    slices.add_metric([], buckets=[*rows, ("+Inf", numbers.durations.total())], sum_value=total)
    yield slices
    for name, text in (
        ("missed_points", "Points that passed without a slice."),
        ("reload_failures", "Versions of jobs.yaml that a running daemon could not take over."),
    ):
        yield CounterMetricFamily(f"resumed_{name}", text, numbers.tallies[name.removesuffix("_points")])
    deliveries = CounterMetricFamily("resumed_deliveries", "Deliveries of approved answers.", labels=("outcome",))
    for outcome in sorted({"delivered", "failed", "unknown", *numbers.deliveries}):
        deliveries.add_metric([outcome], numbers.deliveries[outcome])
    yield deliveries
    yield GaugeMetricFamily("resumed_notifications_failing", "Notifications whose last try failed.", numbers.untold)
    yield GaugeMetricFamily("resumed_ledgers_unreadable", "Ledgers that could not be counted.", numbers.unreadable)
    for name, text, moment in (
        ("daemon_heartbeat", "When the daemon was last alive; absent while none runs.", numbers.heartbeat),
        ("last_tick", "When tick last ended; absent while none has run.", numbers.last_tick),
        ("last_attempt", "When an attempt was last admitted; absent before the first.", numbers.last_attempt),
    ):
        if moment:
            yield GaugeMetricFamily(f"resumed_{name}_timestamp_seconds", text, moment)

"""How things are laid out for people: tables, event lines, problems. It defines the records that it tells. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from scheduler.decision import Word
from scheduler.errors import ResumedError
from scheduler.job import Problem
from scheduler.text import dots, json_text, one_line, printable, table

JobState = Literal["ready", "running", "done", "exhausted", "blocked", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """What status tells of one job; points are ISO texts with offset."""

    id: str
    state: JobState
    attempts: int = 0
    max_attempts: int = 4
    schedule: str | None = None
    next_point: str | None = None
    last_point: str | None = None
    outcome: str | None = None
    reason: str | None = None
    model: str | None = None
    provider: str | None = None
    rehearsal: bool = False
    checkpoint: str | None = None
    answer: str | None = None
    review: Word | None = None
    delivery: str | None = None
    running_since: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRow:
    """What status tells of a series: how many openings there were, may be, and are answered, and the rows of some.

    `state` is that of the newest, the last of `openings`; `exhausted` names those that are.
    """

    id: str
    state: JobState = "ready"
    number: int = 0
    times: int
    answered: int = 0
    exhausted: Sequence[str] = ()
    next_opening: str | None = None
    reason: str | None = None
    rehearsal: bool = False
    openings: Sequence[JobRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRow:
    """A provider (or one model of it) that is left alone, in the ledger of one folder."""

    provider: str
    model: str
    until: str | None
    reason: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentRow:
    """A channel over which notifications fail, why, and since when (UTC text)."""

    channel: str
    reason: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonRow:
    """What status tells of the daemon of a jobs.yaml; times are ISO texts, `loaded` and `on_disk` SHA-256.

    `installed` is the version of the program that tells it. `tried` is the digest of the newest file that the daemon
    looked at, `fault` what it found wrong with it, `edit` what becomes of an edit that is not in force; `max_parallel`
    is that in force, `max_parallel_on_disk` another one that waits for a restart. `silent` says that a process that
    lives gives no heartbeat.
    """

    pid: int
    alive: bool
    since: str
    installed: str
    version: str | None = None
    loaded: str | None = None
    loaded_at: str | None = None
    on_disk: str | None = None
    tried: str = ""
    fault: str = ""
    edit: str | None = None
    max_parallel: int | None = None
    max_parallel_on_disk: int | None = None
    heartbeat: str | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything that status tells; `problem` where jobs.yaml cannot be read, and then no job."""

    config: str
    live: bool = False
    problem: str | None = None
    daemon: DaemonRow | None = None
    jobs: Sequence[JobRow] = ()
    rests: Sequence[RestRow] = ()
    notify: Sequence[SilentRow] = ()
    series: Sequence[SeriesRow] = ()


def problem_line(problem: Problem) -> str:
    """Return `FILE:LINE:COL: job NAME: message (hint)`."""
    job = f"job {problem.job}: " if problem.job else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    kind = "warning: " if problem.severity == "warning" else ""
    return printable(f"{problem.file}:{problem.line}:{problem.column}: {kind}{job}{problem.message}{hint}")


def unknown_name(path: str, kind: str, name: str, known: Sequence[str]) -> str:
    """Say that a file has no job or provider of this name, and which one may be meant."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known[:20])}"
    return f"{path} has no {kind} {name}; {hint}"


def open_folder_words(folder: object) -> str:
    """Say that a checkpoint folder is not private, and what to do."""
    return f"other users can look into {folder}; keep it private: chmod 700 {folder}"


def edited_since(row: JobRow) -> JobRow:
    """Return the row of a final job whose task was edited: the old answer belongs to the old task."""
    return replace(row, answer=None, reason='task edited since; "resumed show" has the old task and its answer')


def fault_words(error: ResumedError) -> str:
    """Say why a jobs.yaml cannot be loaded: `LINE: reason` of its first problem."""
    problem = next(iter(getattr(error, "problems", ())), None)
    return one_line(f"{problem.line}: {problem.message}" if problem else str(error), 300)


def edit_words(fault: str) -> str:
    """Say what becomes of an edited jobs.yaml that is not in force."""
    return f"edited, not loaded: {fault}" if fault else "edited, not loaded yet"


def daemon_status(jobs: int, in_flight: int, ahead: datetime | None, fault: str) -> str:
    """Say what a daemon does, for the service manager; `fault` is what is wrong with an edit of jobs.yaml."""
    when = f"next {ahead.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if ahead else "nothing ahead"
    edit = f"; jobs.yaml is {edit_words(fault)}" if fault else ""
    return f"{jobs} jobs, {in_flight} in flight, {when}{edit}"


def fewer_slices(fitting: int, wanted: int) -> str:
    """Say that the limit of open files holds the slices back."""
    return f"{fitting} slices at once, not max_parallel {wanted}: more open files are not allowed (ulimit -Hn)"


def watch_line(now: str, seconds: float) -> str:
    """Say when a table was drawn, and how it goes on."""
    return f"{now}, drawn anew each {seconds:g} s; Ctrl-C ends it"


def stopping_status(in_flight: int) -> str:
    """Say what a daemon that ends is waiting for."""
    return f"stopping, {in_flight} in flight"


def daemon_lines(row: DaemonRow) -> list[str]:
    """Return what is told of a daemon: a line, and one for each thing that is not as it should be."""
    if not row.alive:
        heard = f", last heard of at {row.heartbeat}" if row.heartbeat else ""
        return [f"DAEMON: no daemon runs; the last one (process {row.pid}) ended without saying so{heard}"]
    parts = [f"process {row.pid}", f"version {row.version or 'unknown'}", f"since {row.since}"]
    if row.loaded and row.loaded_at:
        parts.append(f"jobs.yaml {row.loaded[:8]} loaded at {row.loaded_at}")
    parts.append(f"last heartbeat {row.heartbeat or 'never'}")
    wrong = []
    if row.edit:
        wrong.append(f"jobs.yaml {(row.on_disk or '')[:8] or 'on disk'} is {row.edit}")
    if row.max_parallel_on_disk:
        now, then = row.max_parallel, row.max_parallel_on_disk
        wrong.append(f"max_parallel is {now}, and {then} once the daemon is started again")
    if row.version and row.version != row.installed:
        wrong.append(f"version {row.installed} is installed, and runs once the daemon is started again")
    if row.silent:
        wrong.append(f"its process lives, but it gives no sign of life; end process {row.pid} and start it again")
    return [printable(f"DAEMON: {said}") for said in (", ".join(parts), *wrong)]


def survey_table(survey: Survey, *, unfolded: bool = False) -> str:
    """Return what status prints: what is said of the whole, then a line a job and a series."""
    return "\n".join(survey_parts(survey, unfolded=unfolded)).rstrip("\n")


def survey_parts(survey: Survey, *, unfolded: bool = False) -> tuple[str, str]:
    """Return the sentences on the whole (the daemon and rests first), and the table of the jobs.

    `unfolded` adds a line for each opening of a series.
    """
    first = survey.problem or f"{survey.config}  ({live_words(survey.live)})"
    lines = [printable(first), *(daemon_lines(survey.daemon) if survey.daemon else [])]
    lines += [_rest_line(rest) for rest in survey.rests]
    lines += [
        printable(f"NOTIFY: {silent.channel} failed: {one_line(silent.reason, 200)}, since {silent.since}")
        for silent in survey.notify
    ]
    header = ("JOB", "STATE", "ATTEMPTS", "LAST OUTCOME", "NEXT POINT", "REASON OR ANSWER")
    cells = [_cells(row) for row in survey.jobs]
    for series in survey.series:
        cells += [_folded(series), *(_cells(row) for row in series.openings if unfolded)]
    rows = "" if survey.problem else table([header, *cells])
    return "\n".join(lines), rows


def _rest_line(rest: RestRow) -> str:
    what = f"provider {rest.provider}" + (f", model {rest.model}" if rest.model else "")
    until = f"until {rest.until}" if rest.until else f'until it is mended, or "resumed unblock {rest.provider}"'
    return printable(f"RESTS: {what} {until}: {one_line(rest.reason, 200)}")


def _cells(row: JobRow) -> tuple[str, ...]:
    said = "; ".join([f"since {row.running_since}"] * bool(row.running_since) + [row.reason or ""] * bool(row.reason))
    if row.answer is not None:
        delivery = f", {one_line(row.delivery, 60)}" if row.delivery else ""
        said = f"{row.review or 'unreviewed'}{delivery}: {row.answer}" + (f" [{row.reason}]" if row.reason else "")
    marks = "REHEARSAL " if row.rehearsal else ""
    return (
        row.id,
        row.state,
        dots(row.attempts, row.max_attempts),
        row.outcome or "-",
        row.next_point or "-",
        marks + one_line(said),
    )


def _folded(row: SeriesRow) -> tuple[str, ...]:
    newest = row.openings[-1] if row.openings else JobRow(id=row.id, state=row.state, rehearsal=row.rehearsal)
    count = f"{row.number} of {row.times} opened, {row.answered} answered"
    count += f"; the newest {newest.review or 'unreviewed'}" if newest.answer is not None else ""
    ended = f"; EXHAUSTED: {', '.join(row.exhausted)}" if row.exhausted else ""
    reason = row.reason or newest.reason
    folded = replace(newest, id=row.id, next_point=row.next_opening, answer=None, reason=None)
    marks = "REHEARSAL " if row.rehearsal else ""
    said = f": {reason}" if reason else ""
    return (*_cells(folded)[:-1], f"{marks}{count}{ended}{one_line(said)}")


def live_words(live: bool) -> str:
    """Say whether requests are sent."""
    return "live" if live else "live: false, so nothing is sent to a provider"


def survey_json(survey: Survey) -> str:
    """Return what status tells as JSON."""
    return json_text(asdict(survey))

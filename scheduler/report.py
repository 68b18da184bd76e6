"""How things are laid out for people: tables, event lines, problems. It defines the records that it tells. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from scheduler.job import Problem
from scheduler.text import dots, json_text, one_line, printable, table

JobState = Literal["ready", "running", "done", "exhausted", "blocked"]


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
    review: Any = None


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
class Survey:
    """Everything that status tells."""

    config: str
    live: bool
    jobs: Sequence[JobRow]
    rests: Sequence[RestRow]
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


def edited_since(row: JobRow) -> JobRow:
    """Return the row of a final job whose task was edited: the old answer belongs to the old task."""
    return replace(row, answer=None, reason='task edited since; "resumed show" has the old task and its answer')


def survey_table(survey: Survey, *, unfolded: bool = False) -> str:
    """Return the status table: rests first, then a line a job and a series; `unfolded` adds one an opening."""
    lines = [f"{printable(survey.config)}  ({live_words(survey.live)})"]
    lines += [_rest_line(rest) for rest in survey.rests]
    header = ("JOB", "STATE", "ATTEMPTS", "LAST OUTCOME", "NEXT POINT", "REASON OR ANSWER")
    cells = [_cells(row) for row in survey.jobs]
    for series in survey.series:
        cells += [_folded(series), *(_cells(row) for row in series.openings if unfolded)]
    lines.append(table([header, *cells]))
    return "\n".join(lines)


def _rest_line(rest: RestRow) -> str:
    what = f"provider {rest.provider}" + (f", model {rest.model}" if rest.model else "")
    until = f"until {rest.until}" if rest.until else f'until it is mended, or "resumed unblock {rest.provider}"'
    return printable(f"RESTS: {what} {until}: {one_line(rest.reason, 200)}")


def _cells(row: JobRow) -> tuple[str, ...]:
    said = row.reason or ""
    if row.answer is not None:
        said = f"unreviewed: {row.answer}" + (f" [{row.reason}]" if row.reason else "")
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

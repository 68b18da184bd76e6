"""How things are laid out for people: tables, event lines, problems. It defines the records that it tells. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from scheduler.decision import Word
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
    review: Word | None = None
    delivery: str | None = None


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


def survey_table(survey: Survey) -> str:
    """Return the status table: rests first, then a line a job."""
    lines = [f"{printable(survey.config)}  ({live_words(survey.live)})"]
    lines += [_rest_line(rest) for rest in survey.rests]
    header = ("JOB", "STATE", "ATTEMPTS", "LAST OUTCOME", "NEXT POINT", "REASON OR ANSWER")
    lines.append(table([header, *(_cells(row) for row in survey.jobs)]))
    return "\n".join(lines)


def _rest_line(rest: RestRow) -> str:
    what = f"provider {rest.provider}" + (f", model {rest.model}" if rest.model else "")
    until = f"until {rest.until}" if rest.until else f'until it is mended, or "resumed unblock {rest.provider}"'
    return printable(f"RESTS: {what} {until}: {one_line(rest.reason, 200)}")


def _cells(row: JobRow) -> tuple[str, ...]:
    said = row.reason or ""
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


def live_words(live: bool) -> str:
    """Say whether requests are sent."""
    return "live" if live else "live: false, so nothing is sent to a provider"


def survey_json(survey: Survey) -> str:
    """Return what status tells as JSON."""
    return json_text(asdict(survey))

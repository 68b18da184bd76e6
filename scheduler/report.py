"""How things are laid out for people: tables, event lines, problems. It defines the records that it tells. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from scheduler.job import Problem
from scheduler.state import PROGRESS, State
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What check tells of one job; a point comes with what the clock did since the one before it."""

    id: str
    status: str
    words: str
    timezone: str
    checkpoint: str
    rehearsal: bool
    left: int
    max_attempts: int
    points: Sequence[tuple[datetime, str]]
    more: bool
    last: datetime | None
    note: str


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


def event_line(job: str, event: Mapping[str, Any]) -> str:
    """Return one line that tells an event of a slice."""
    text = _EVENTS[event["event"]](event)
    return printable(f"job {job}: {text}" if job else text)


def event_level(event: Mapping[str, Any]) -> str:
    """Return `warning` for what a person may want to act on, else `info`."""
    failed = event["event"] == "settled" and (event["outcome"] not in PROGRESS or event["status"] == "exhausted")
    return "warning" if failed or event["event"] in ("put_back", "interrupted", "missed") else "info"


_EVENTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "admitted": lambda event: (
        f"attempt {event['attempt']} of {event['of']}: counted, asking"
        + (f" (cut from the request: {event['cut']} older results or turns)" if event["cut"] else "")
    ),
    "tool_result": lambda event: (
        f"tool {one_line(event['name'], 40)} {one_line(event['arguments'])}: {'read' if event['ok'] else 'refused'}"
    ),
    "put_back": lambda event: (
        f"warning: the checkpoint file was {'missing' if event['missing'] else 'an older copy'}; put back at attempt "
        f'{event["attempt"]} of {event["of"]}; "resumed renew" starts a new allowance'
    ),
    "interrupted": lambda event: (
        f"attempt {event['attempt']} of {event['of']} was interrupted: its process ended; it stays counted"
    ),
    "retaken": lambda _: "task or model changed before the first attempt; the new ones are taken",
    "missed": lambda event: f"the point {event['point']} was missed, and catch_up is false; it is skipped",
    "settled": lambda event: _settled(event),
}


def _settled(event: Mapping[str, Any]) -> str:
    attempt = f"attempt {event['attempt']} of {event['of']}"
    if event["outcome"] == "answered":
        return f"{attempt}: answered: {one_line(event['answer'])}"
    reason = f" ({one_line(event['reason'], 300)})" if event["reason"] else ""
    then = "the next slice goes on"
    if event["status"] == "exhausted":
        then = "no attempt is left"
    elif event["outcome"] == "refused":
        then = "asked again once the provider's entry or key changes, or after: resumed unblock"
    elif event["outcome"] == "context_too_long":
        then = "no request of this size is sent again: the next one is cut, or blocked"
    return f"{attempt}: {event['outcome']}{reason}; {then}"


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


def change_mark(before: timedelta, after: timedelta) -> str:
    """Say what the clock of a zone did, from one UTC offset to the other."""
    hours = (after - before).total_seconds() / 3600
    return f"clock {'forward' if hours > 0 else 'back'} {abs(hours):g} h"


def check_header(path: str, good: int, bad: int, live: bool) -> str:
    """Return the first line of check."""
    blocked = f", {bad} blocked" if bad else ""
    return printable(f"{path}: {good + bad} job{'s' if good + bad != 1 else ''}{blocked}; {live_words(live)}")


def live_words(live: bool) -> str:
    """Say whether requests are sent."""
    return "live" if live else "live: false, so nothing is sent to a provider"


def outlook_text(outlook: Outlook) -> str:
    """Return the lines of check for one job."""
    requests = f"{outlook.left} of {outlook.max_attempts} requests left"
    if outlook.status != "ready":
        requests = f"{outlook.status}, no request will follow"
    elif outlook.last:
        requests += f", the last possible one at {outlook.last.isoformat(' ', 'seconds')}"
    lines = [f"{outlook.id}: {outlook.words} ({outlook.timezone}); {requests}"]
    lines.append(f"    checkpoint {outlook.checkpoint}{' (REHEARSAL)' if outlook.rehearsal else ''}")
    if outlook.left:
        shown = [f"{point.isoformat(' ', 'seconds')}{f'  <- {mark}' if mark else ''}" for point, mark in outlook.points]
        lines += [f"    next {text}" for text in shown or ["none: no point lies ahead"]]
    if outlook.left and outlook.more:
        lines.append(f"    ... and more; {len(outlook.points)} are shown")
    if outlook.note:
        lines.append(f"    note: {outlook.note}")
    return printable("\n".join(lines))


def survey_json(survey: Survey) -> str:
    """Return what status tells as JSON."""
    return json_text(asdict(survey))


def made_progress(state: State) -> bool:
    """Tell whether the last attempt answered, or took the task on with attempts left."""
    last = state["history"][-1]["outcome"] if state["history"] else None
    return state["status"] == "done" or (state["status"] == "ready" and last in PROGRESS)

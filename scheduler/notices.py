"""What people are told of a job: the event, a sentence, and the same as JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from scheduler.text import plain_line

Told = Literal["start", "progress", "done", "exhausted", "blocked", "failed", "missed", "recovered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell; `job` is None where it is of jobs.yaml as a whole. Times and hosts come from the sender."""

    event: Told
    job: str | None
    state: str = "ready"
    attempts: int = 0
    max_attempts: int = 4
    outcome: str | None = None
    reason: str | None = None
    answer: str | None = None
    rehearsal: bool = False


def notice_line(notice: Notice) -> str:
    """Return the sentence of a notice, on one line of at most 300 characters."""
    attempt = f"attempt {notice.attempts} of {notice.max_attempts}"
    ended = f"{notice.outcome or 'no outcome'}" + (f" ({notice.reason})" if notice.reason else "")
    said = {
        "start": "a slice begins",
        "progress": f"{attempt}: {notice.outcome}",
        "done": f"answered, and waits for a review: {notice.answer or ''}",
        "exhausted": f"no attempt is left; {attempt}: {ended}",
        "blocked": f"blocked: {notice.reason}",
        "failed": f"{attempt} failed: {ended}",
        "missed": f"{notice.reason}",
        "recovered": "it runs again" if notice.job else "it is read again",
    }[notice.event]
    who = f"job {notice.job}" if notice.job else "jobs.yaml"
    return plain_line(f"{who}{' (rehearsal)' if notice.rehearsal else ''}: {said}")


def notice_json(notice: Notice, **circumstances: str) -> dict[str, Any]:
    """Return a notice as a JSON object; texts that came from outside are one line of at most 300 characters."""
    fields = asdict(notice)
    for name in ("reason", "answer"):
        fields[name] = None if fields[name] is None else plain_line(fields[name])
    return fields | circumstances | {"message": notice_line(notice)}

"""How a log line is written: for a reader, as JSON, or for systemd's journal. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

from scheduler.text import plain_line, printable

Form = Literal["text", "json", "journal"]

# The priorities of sd-daemon(3), which are those of syslog(3).
_PRIORITIES: Final = {"error": 3, "warning": 4, "info": 6}


class Log(Protocol):
    """Where log lines go: each has a level, a sentence, the name of its event, and what the event consists of."""

    def __call__(self, level: str, message: str, /, event: str = "note", job: str = "", **facts: object) -> object:
        """Write one line."""


def log_line(form: Form, time: str, level: str, message: str, event: str, job: str, facts: Mapping[str, object]) -> str:
    """Return one line without its end; as JSON it has the keys time, level, event, job, message, and the facts."""
    if form == "json":
        values = {"time": time, "level": level, "event": event, "job": job or None, "message": printable(message)}
        return json.dumps(values | {name: _plain(value) for name, value in facts.items() if name not in values})
    text = printable(message).replace("\n", " ")
    return f"<{_PRIORITIES.get(level, 5)}>{text}" if form == "journal" else f"{time} {level:7} {text}"


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    return plain_line(str(value))

"""The shape of jobs.yaml: its keys, its JSON Schema, and each misfit in plain words.

What may hold a key (`key:` and `headers:` and below, `base_url`) is never part of a message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from scheduler.extras import check_body, check_headers
from scheduler.job import DEFAULT_SCHEDULE, OPENING
from scheduler.misfits import ID_RULE, LIMITS, WANTED, Misfit, found_words, like_a_key, nearest
from scheduler.points import in_zone, shortest_gap
from scheduler.positions import Path
from scheduler.shapes import (
    BudgetEntry,
    ChannelEntry,
    DeliverEntry,
    Entry,
    FileEntry,
    JobEntry,
    KeyEntry,
    MetricsEntry,
    PriceEntry,
    ProviderEntry,
    SeriesEntry,
)
from scheduler.trigger import parse_duration

_ENTRIES: Final[dict[str, type[Entry]]] = {"jobs": JobEntry, "providers": ProviderEntry}
_MODELS: Final[dict[str, type[Entry]]] = {
    "budget": BudgetEntry,
    "price": PriceEntry,
    "series": SeriesEntry,
    "deliver": DeliverEntry,
    "notify": ChannelEntry,
    "metrics": MetricsEntry,
}


class _Schema(GenerateJsonSchema):
    """Leaves out what only says that a field may be missing: null and the default None."""

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().default_schema(schema)
        return {key: value for key, value in made.items() if (key, value) != ("default", None)}


def json_schema() -> dict[str, Any]:
    """Return the file's JSON Schema (2020-12), for editors."""
    return {"$schema": _Schema.schema_dialect, **FileEntry.model_json_schema(schema_generator=_Schema)}


def check(data: Any) -> tuple[FileEntry | None, list[Misfit]]:
    """Check the plain data of the whole file; return it as a FileEntry, or every misfit."""
    misfits = list(_beyond_types(data))
    try:
        shape = FileEntry.model_validate(data)
    except ValidationError as error:
        misfits += [_misfit(item) for item in error.errors(include_url=False)]
    return (None, misfits) if misfits else (shape, [])


def _beyond_types(data: Any) -> Iterator[Misfit]:
    """Find what is wrong between the keys of an entry, and inside those that take any name."""
    jobs = data.get("jobs") if isinstance(data, dict) else None
    for name, entry in jobs.items() if isinstance(jobs, dict) else ():
        if isinstance(entry, dict):
            yield from _of_job(("jobs", name), entry)
            yield from _of_calendar(("jobs", name), entry, entry.get("timezone", data.get("timezone", "UTC")))
    providers = data.get("providers") if isinstance(data, dict) else None
    for name, entry in providers.items() if isinstance(providers, dict) else ():
        if not isinstance(entry, dict):
            continue
        path: Path = ("providers", name)
        headers, body, own = entry.get("headers"), entry.get("extra_body"), entry.get("idempotency_header")
        if isinstance(headers, dict):
            yield from check_headers((*path, "headers"), headers)
            if isinstance(own, str) and own.lower() in map(str.lower, headers):
                yield Misfit((*path, "idempotency_header"), "idempotency_header: it stands among headers already")
        if isinstance(body, dict):
            yield from check_body((*path, "extra_body"), body)
        if {"max_tokens", "max_completion_tokens"} <= entry.keys():
            message = "max_tokens and max_completion_tokens exclude each other"
            yield Misfit((*path, "max_completion_tokens"), message, "keep the one that the provider knows", True)
        window, longest = entry.get("context_tokens"), entry.get("max_completion_tokens", entry.get("max_tokens"))
        if type(window) is int and type(longest) is int and longest >= window:
            message = f"context_tokens: a reply of {longest} tokens leaves no room in it for a request"
            yield Misfit((*path, "context_tokens"), message, "make the longest reply smaller")


def _of_job(path: Path, entry: dict[str, Any]) -> Iterator[Misfit]:
    """Find what is wrong between the keys of a job."""
    checkpoint, deliver = entry.get("checkpoint"), entry.get("deliver")
    folder, _, name = checkpoint.rpartition("/") if isinstance(checkpoint, str) else ("", "", "")
    if "series" in entry and (OPENING not in name or OPENING in folder):
        message = f"checkpoint: each opening of a series has a file of its own, and its name holds {OPENING}"
        yield Misfit((*path, "checkpoint"), message, f"checkpoints/{path[1]}-{OPENING}.json")
    if "series" not in entry and OPENING in f"{folder}{name}":
        yield Misfit((*path, "checkpoint"), f"checkpoint: {OPENING} stands for an opening, and there is no series")
    if isinstance(deliver, dict):
        if "argv" in deliver and deliver.get("review") is False:
            message = "deliver.review: a program gets no answer that nobody has approved"
            yield Misfit((*path, "deliver", "review"), message, "take it away, or write to a file")
        if "series" not in entry and OPENING in str(deliver.get("file", "")):
            yield Misfit((*path, "deliver", "file"), f"deliver.file: {OPENING} is of a series, and there is none")


def _of_calendar(path: Path, entry: dict[str, Any], zone: Any) -> Iterator[Misfit]:
    """Find what leaves a job without points of its own; what is wrong with one value alone is told by its type."""
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        schedule = entry.get("schedule", DEFAULT_SCHEDULE)
        if parse_duration(entry["jitter"]) >= shortest_gap(schedule).total_seconds():
            message = "jitter: it is as long as the time between two points of the schedule, or longer"
            yield Misfit((*path, "jitter"), message, "write less than that")
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        moments = (datetime.fromisoformat(entry[key].strip()) for key in ("not_before", "not_after"))
        first, last = (in_zone(moment, zone).timestamp() for moment in moments)
        if last < first:
            yield Misfit((*path, "not_after"), "not_after: it is before not_before, and no point is left")


def _misfit(item: Any) -> Misfit:
    path, kind, context = item["loc"], item["type"], item.get("ctx", {})
    if kind == "missing":
        return Misfit(path, f"{path[-1]} is missing", at_key=True)
    if kind == "extra_forbidden":
        return Misfit(path, _unknown(path), at_key=True)
    if kind == "string_pattern_mismatch" and path[-1] == "[key]":
        return Misfit(path[:-1], f"this is no {path[0][:-1]} id: {ID_RULE}", at_key=True)
    if kind == "model_type" and _of_key(path):
        return Misfit(path, "key: expected where the key is found, never the key itself", "key: {env: LOCAL_KEY}")
    return Misfit(path, *_wrong(path, kind, item["input"], context))


def _of_key(path: Path) -> bool:
    return path[:1] == ("providers",) and path[2:3] == ("key",)


def _secret(path: Path) -> bool:
    return path[:1] == ("providers",) and path[2:3] in (("key",), ("headers",))


def _unknown(path: Path) -> str:
    name, known = str(path[-1])[:40], tuple(_model_of(path).model_fields)
    if _of_key(path[:-1]) or like_a_key(name):
        return f"unknown key; expected {', '.join(known)}"
    return f"unknown key {name}{nearest(name, known)}"


def _model_of(path: Path) -> type[Entry]:
    if _of_key(path[:-1]):
        return KeyEntry
    inside = path[2:-1] if path[0] in _ENTRIES else path[:-1]
    named = next((part for part in inside if isinstance(part, str)), None)
    return _MODELS[named] if named else _ENTRIES[str(path[0])] if len(path) > 1 else FileEntry


def _wrong(path: Path, kind: str, value: Any, context: dict[str, Any]) -> tuple[str, str]:
    label = ".".join(str(part) for part in path[2 if path[:1] == ("jobs",) else 0 :] if isinstance(part, str))
    start = f"{label}: " if label else ""
    if kind in WANTED:
        wanted, hint = WANTED[kind]
        return f"{start}expected {wanted}, found {found_words(value, secret=_secret(path))}", hint
    if kind in LIMITS:
        return start + LIMITS[kind].format_map(context).replace("'", ""), ""
    cause = context.get("error", "this value does not fit")
    return f"{start}{cause}", getattr(cause, "hint", "")

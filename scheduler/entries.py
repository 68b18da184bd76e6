"""The shape of jobs.yaml: its keys, its JSON Schema, and each misfit in plain words.

What may hold a key (`key:` and `headers:` and below, `base_url`) is never part of a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from scheduler.address import check_base_url
from scheduler.extras import check_body, check_headers
from scheduler.fields import (
    Checkpoint,
    Credential,
    Duration,
    HeaderName,
    Headers,
    Id,
    PathText,
    Schedule,
    Temperature,
    Text,
    Timeout,
    Variable,
    Zone,
)
from scheduler.job import DEFAULT_AFTER_FAILURE, DEFAULT_SCHEDULE
from scheduler.misfits import ID_RULE, LIMITS, WANTED, Misfit, Refused, found_words, like_a_key, nearest
from scheduler.positions import Path
from scheduler.state import MAX_STEPS

_PAUSES: Final = "Pauses after failed attempts in a row; [] for none."
_DEFAULT: Final[dict[str, Any]] = {"default": ["15m", "1h", "6h"]}
_CLOSED: Final[dict[str, Any]] = {"additionalProperties": False}


class Entry(BaseModel, extra="forbid", strict=True):
    """A mapping of the file; a field that is None was not given, for null itself is never a value here."""


class BudgetEntry(Entry):
    """What all jobs together may spend."""

    requests_per_day: int | None = Field(None, ge=0, description="Live requests of one UTC day.")


class KeyEntry(Entry, json_schema_extra={"minProperties": 1, "maxProperties": 1}):
    """Where the key is found: exactly one of env, file and credential. The key itself never stands in this file."""

    env: Variable | None = Field(None, description="The name of an environment variable.")
    file: PathText | None = Field(None, description="The path of a file that holds the key and nothing else.")
    credential: Credential | None = Field(None, description="The name of a systemd credential (LoadCredential=).")

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) != 1:
            raise Refused("expected exactly one of env, file and credential", "key: {env: LOCAL_KEY}")
        return value


class ProviderEntry(Entry):
    """A chat-completions endpoint; in an entry named mandapi, what is given replaces the built-in value."""

    allow_http: bool = Field(False, description="Allow http:// to another machine.")
    base_url: str | None = Field(None, description="The address in front of /chat/completions.")
    model: Text | None = Field(None, description="The model, unless a job names its own.")
    key: KeyEntry | None = Field(None, description="Where the key is found; leave it out where none is needed.")
    timeout: Timeout | None = Field(None, description='The total time of one request: seconds, or "10m".')
    max_tokens: int | None = Field(None, gt=0, description="The most tokens of one reply.")
    max_completion_tokens: int | None = Field(None, gt=0, description="The same, by its newer name.")
    temperature: Temperature | None = Field(None, description="0 to 2; left out, the provider's own.")
    extra_body: dict[str, Any] = Field({}, description="Further fields of each request's body.")
    context_tokens: int | None = Field(None, ge=1024, description="The model's window: request and reply together.")
    headers: Headers = Field({}, description="Further headers; a secret only as {env: NAME}.")
    idempotency_header: HeaderName | None = Field(None, description="The header that names each attempt, once.")
    replay_fields: Literal["keep", "drop"] | None = Field(
        None, description="Whether fields of the provider's own, such as reasoning_content, are sent back to it."
    )
    ca_file: PathText | None = Field(None, description="A PEM file; certificates are checked against it alone.")
    proxy: Literal["env"] | None = Field(None, description="env: use the proxy that the environment names.")
    last_attempt: Literal["none", "omit"] | None = Field(None, description="How the last attempt forbids tools.")

    @field_validator("base_url")
    @classmethod
    def _address(cls, base_url: str, info: ValidationInfo) -> str:
        trimmed = base_url.strip()
        check_base_url(trimmed, info.data.get("allow_http", True))
        return trimmed.rstrip("/")


class JobEntry(Entry):
    """One task with one answer."""

    task: Text = Field(description="What the model is asked, in plain words.")
    checkpoint: Checkpoint = Field(description="The file that keeps this job's progress; each job has its own.")
    provider: Text = Field("mandapi", description="The provider to ask: mandapi, demo (offline), or one of providers.")
    model: Text | None = Field(None, description="The model; it outranks the provider's.")
    schedule: Schedule = Field(DEFAULT_SCHEDULE, description='Five cron fields, @daily and the like, or "every 15m".')
    timezone: Zone | None = Field(None, description="The zone of the schedule, such as Europe/Madrid.")
    read: list[PathText] = Field([], description="Files and folders that the model may read.")
    after_failure: list[Duration] | None = Field(None, description=_PAUSES)
    catch_up: bool = Field(True, description="false: skip the points that were missed while nothing ran.")
    max_attempts: int = Field(MAX_STEPS, ge=1, le=MAX_STEPS, description="Attempts for this job; four are the most.")


class FileEntry(Entry):
    """The whole file."""

    live: bool = Field(False, description="false: jobs of real providers are rehearsed offline and cost nothing.")
    timezone: Zone = Field("UTC", description="The zone of all schedules, such as Europe/Madrid.")
    max_parallel: int = Field(8, ge=1, le=1000, description="Slices at the same time.")
    stop_wait: Duration = Field(80, description="How long a stop waits.", json_schema_extra={"default": "80s"})
    budget: BudgetEntry = Field(default_factory=BudgetEntry, description="What all jobs together may spend.")
    after_failure: list[Duration] = Field(list(DEFAULT_AFTER_FAILURE), description=_PAUSES, json_schema_extra=_DEFAULT)
    base: PathText | None = Field(None, description="Where relative paths start; else the folder above config/.")
    providers: dict[Id, ProviderEntry] = Field({}, description="Endpoints, by name.", json_schema_extra=_CLOSED)
    jobs: dict[Id, JobEntry] = Field(description="The jobs, by id.", json_schema_extra={**_CLOSED, "minProperties": 1})


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
    """Find what is wrong between the keys of a provider's entry, and inside those that take any name."""
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
    if len(path) == 1:
        return FileEntry
    models: dict[str, type[Entry]] = {"jobs": JobEntry, "providers": ProviderEntry, "budget": BudgetEntry}
    return models[str(path[0])]


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

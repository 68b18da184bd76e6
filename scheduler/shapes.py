"""The keys of jobs.yaml, and what each may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from scheduler.address import check_base_url, check_notify_url
from scheduler.fields import (
    Address,
    Amount,
    Argv,
    Checkpoint,
    Credential,
    Currency,
    Duration,
    HeaderName,
    Headers,
    Id,
    Moment,
    PathText,
    Schedule,
    Temperature,
    Text,
    Timeout,
    Variable,
    Zone,
)
from scheduler.job import DEFAULT_AFTER_FAILURE, DEFAULT_SCHEDULE, EVENTS, Event, KeySource
from scheduler.misfits import Refused
from scheduler.state import MAX_STEPS

_PAUSES: Final = "Pauses after failed attempts in a row; [] for none."
_DEFAULT: Final[dict[str, Any]] = {"default": ["15m", "1h", "6h"]}
_CLOSED: Final[dict[str, Any]] = {"additionalProperties": False}
_CHANNELS: Final = ("webhook", "ping", "argv", "apprise")
_TARGETS: Final[dict[str, Any]] = {
    "oneOf": [{"required": ["file"]}, {"required": ["argv"]}],
    "if": {"required": ["argv"]},
    "then": {"properties": {"review": {"const": True}}},
}
_PLACE: Final[dict[str, Any]] = {
    "if": {"required": ["series"]},
    "then": {"properties": {"checkpoint": {"pattern": r"\{opening\}[^/]*$"}}},
    "else": {"properties": {"checkpoint": {"not": {"pattern": r"\{opening\}"}}}},
}


def _one_of(value: Any, names: Sequence[str], hint: str) -> None:
    if isinstance(value, dict) and sum(name in value for name in names) != 1:
        raise Refused(f"expected exactly one of {', '.join(names[:-1])} and {names[-1]}", hint)


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


class PriceEntry(Entry):
    """What a million tokens cost."""

    input: Amount = Field(description="Of the request.")
    output: Amount = Field(description="Of the reply.")
    currency: Currency = Field("USD", description="Three capital letters, such as EUR.")


class ProviderEntry(Entry, json_schema_extra={"not": {"required": ["max_tokens", "max_completion_tokens"]}}):
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
    price: PriceEntry | None = Field(None, description="What a million tokens cost; check and show count with it.")

    @field_validator("base_url")
    @classmethod
    def _address(cls, base_url: str, info: ValidationInfo) -> str:
        trimmed = base_url.strip()
        check_base_url(trimmed, info.data.get("allow_http", True))
        return trimmed.rstrip("/")


class SeriesEntry(Entry):
    """A task that is repeated on purpose: each opening is a job of its own."""

    opens: Schedule = Field(description="When an opening begins, as a schedule.")
    times: int = Field(ge=1, le=100_000, description="How many openings there may be; each has its own attempts.")


class DeliverEntry(Entry, json_schema_extra=_TARGETS):
    """Where an approved answer goes: exactly one of file and argv."""

    file: PathText | None = Field(None, description="The file that the answer is written to.")
    argv: Argv | None = Field(None, min_length=1, description="A program, without a shell; it reads the answer.")
    review: bool = Field(True, description="false: a file is written without a review.")

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, value: Any) -> Any:
        _one_of(value, ("file", "argv"), "deliver: {file: reports/summary.md}")
        return value


class ChannelEntry(Entry, json_schema_extra={"oneOf": [{"required": [name]} for name in _CHANNELS]}):
    """How people are told: exactly one of webhook, ping, argv and apprise."""

    webhook: Address | None = Field(None, description="An address that gets each event as JSON by POST.")
    ping: Address | None = Field(None, description="An address in the style of healthchecks: start, success, fail.")
    argv: Argv | None = Field(None, min_length=1, description="A program, without a shell; it reads the JSON.")
    apprise: Address | None = Field(None, description="An address of apprise; needs the extra notify.")
    events: list[Event] = Field(list(EVENTS), description="Which events are told.")

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, value: Any) -> Any:
        _one_of(value, _CHANNELS, "- webhook: {env: NOTIFY_URL}")
        return value

    @field_validator("webhook", "ping")
    @classmethod
    def _url(cls, address: str | KeySource) -> str | KeySource:
        if isinstance(address, str):
            check_notify_url(address)
        return address

    @field_validator("apprise")
    @classmethod
    def _service(cls, address: str | KeySource) -> str | KeySource:
        if isinstance(address, str) and "://" not in address:  # what stands there for a service is shown
            raise Refused("an address of apprise starts with its service, such as mailto://")
        return address


class MetricsEntry(Entry):
    """Numbers for a monitoring system."""

    textfile: PathText = Field(description="The file for the node exporter's textfile collector; needs an extra.")


class JobEntry(Entry, json_schema_extra=_PLACE):
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
    enabled: bool = Field(True, description="false: the job rests, and keeps what it has.")
    timeout: Timeout | None = Field(None, description="The total time of one request; it outranks the provider's.")
    jitter: Duration = Field(
        0,
        description="Points are later by a part of this, the same for each point of the job.",
        json_schema_extra={"default": "0s"},
    )
    not_before: Moment | None = Field(None, description="No point before this moment of the schedule's zone.")
    not_after: Moment | None = Field(None, description="No point after this moment of the schedule's zone.")
    series: SeriesEntry | None = Field(None, description="Repeats the task on purpose; each opening is a job.")
    deliver: DeliverEntry | None = Field(None, description="Where the answer goes once a person has approved it.")
    notify: list[ChannelEntry] | None = Field(None, description="Who is told of this job; else the file's notify.")


class FileEntry(Entry):
    """The whole file."""

    live: bool = Field(False, description="false: jobs of real providers are rehearsed offline and cost nothing.")
    timezone: Zone = Field("UTC", description="The zone of all schedules, such as Europe/Madrid.")
    max_parallel: int = Field(8, ge=1, le=1000, description="Slices at the same time.")
    stop_wait: Duration = Field(80, description="How long a stop waits.", json_schema_extra={"default": "80s"})
    budget: BudgetEntry = Field(default_factory=BudgetEntry, description="What all jobs together may spend.")
    after_failure: list[Duration] = Field(list(DEFAULT_AFTER_FAILURE), description=_PAUSES, json_schema_extra=_DEFAULT)
    notify: list[ChannelEntry] = Field([], description="Who is told when a job needs a look.")
    metrics: MetricsEntry | None = Field(None, description="Numbers for a monitoring system.")
    base: PathText | None = Field(None, description="Where relative paths start; else the folder above config/.")
    providers: dict[Id, ProviderEntry] = Field({}, description="Endpoints, by name.", json_schema_extra=_CLOSED)
    jobs: dict[Id, JobEntry] = Field(description="The jobs, by id.", json_schema_extra={**_CLOSED, "minProperties": 1})

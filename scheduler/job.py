"""What the user asks for: frozen records, filled by `jobfile`, read by everything below it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from scheduler.text import is_utf8

# The folder, beside a job's checkpoint, in which its rehearsals keep theirs.
REHEARSAL = "rehearsal"
DEFAULT_TIMEOUT = 600.0
DEFAULT_SCHEDULE = "every 5m"
DEFAULT_AFTER_FAILURE = (15 * 60, 60 * 60, 6 * 60 * 60)

# What stands for the point of an opening in the task and the paths of a series.
OPENING = "{opening}"
# How that point is written: UTC, to the minute, with seconds only where two openings would have one name.
OPENING_NAME = r"\d{4}-\d\d-\d\dT\d{4}(\d\d)?Z"

Event = Literal["done", "exhausted", "blocked", "failed", "missed"]
EVENTS: tuple[Event, ...] = get_args(Event)


def checkpoint_name_fault(name: str) -> str:
    """Say why a file name cannot be a checkpoint's, or return nothing."""
    if name in ("", ".", ".."):
        return "this names a folder, not a file"
    if not is_utf8(name):
        return "a checkpoint's name is UTF-8"
    if name.startswith(".") or name.endswith(".lock") or len(name.encode()) > 200:
        return "a checkpoint's name starts with no dot, does not end in .lock, and has at most 200 bytes"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where a provider's key is found; never the key itself."""

    kind: Literal["env", "file", "credential"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a million tokens cost, in the request and in the reply."""

    input: float
    output: float
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A chat-completions endpoint, or the offline demo (`base_url` None).

    `timeout` is the total of one request in seconds. `model_env` names the variable that gives the model where the
    entry names none. `headers` pairs each name with its value, or with the variable that holds it; `extra_body` is the
    text of a JSON object; `context_tokens` is the model's window; certificates are checked against `ca_file` alone.
    """

    name: str
    base_url: str | None
    model: str | None = None
    model_env: str | None = None
    key: KeySource | None = None
    timeout: float = DEFAULT_TIMEOUT
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    extra_body: str = "{}"
    context_tokens: int | None = None
    headers: tuple[tuple[str, str | KeySource], ...] = ()
    idempotency_header: str | None = None
    replay_fields: Literal["keep", "drop"] = "keep"
    ca_file: Path | None = None
    allow_http: bool = False
    proxy: Literal["env"] | None = None
    last_attempt: Literal["none", "omit"] = "none"
    price: Price | None = None

    @property
    def offline(self) -> bool:
        """Tell whether jobs of this provider are answered without any network."""
        return self.base_url is None

    @property
    def options(self) -> dict[str, Any]:
        """The fields of each request's body that the entry sets."""
        named = ("max_tokens", "max_completion_tokens", "temperature")
        given: dict[str, Any] = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        given.update(json.loads(self.extra_body))
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file or folder that the model may read: `name` as the model sees it, `path` absolute."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """When the openings of a repeated task begin (a schedule, as written), and how many there may be."""

    opens: str
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where an approved answer goes: to a file, or on the standard input of a program, one of the two.

    Only a file can be written without a review; a program runs in `folder`.
    """

    file: Path | None = None
    argv: tuple[str, ...] = ()
    review: bool = True
    folder: Path = Path("/")

    @property
    def target(self) -> str:
        """What a person reads of it; arguments of a program are not shown, for they may hold what is secret."""
        return str(self.file) if self.file else self.argv[0] + " …" * (len(self.argv) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How people are told of `events`: an address, the variable that holds it, or a program and its arguments.

    A program runs in `folder`.
    """

    kind: Literal["webhook", "ping", "argv", "apprise"]
    target: str | KeySource | tuple[str, ...]
    events: tuple[Event, ...] = EVENTS
    folder: Path = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One task with one answer.

    `after_failure` and `jitter` are in seconds, `schedule` as written, `timezone` an IANA name; `not_before` and
    `not_after` are UTC seconds. A job with a `series` is the pattern of its openings and is never run itself.
    """

    id: str
    task: str
    checkpoint: Path
    provider: Provider
    model: str | None = None
    schedule: str = DEFAULT_SCHEDULE
    timezone: str = "UTC"
    read: tuple[Source, ...] = ()
    after_failure: tuple[int, ...] = DEFAULT_AFTER_FAILURE
    catch_up: bool = True
    max_attempts: int = 4
    enabled: bool = True
    timeout: float | None = None
    jitter: int = 0
    not_before: int | None = None
    not_after: int | None = None
    series: Series | None = None
    deliver: Delivery | None = None
    notify: tuple[Channel, ...] = ()

    @property
    def deadline(self) -> float:
        """The total of one request, in seconds: the job's own, else its provider's."""
        return self.provider.timeout if self.timeout is None else self.timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to tell about jobs.yaml; line and column count from 1, `job` is None outside the entries of jobs.

    Only an `error` blocks; a `warning` is said and nothing else.
    """

    file: str
    line: int
    column: int
    job: str | None
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A jobs.yaml that was read: its good jobs and series, and what is wrong with the others.

    `path` is the real path, `digest` the SHA-256 of the bytes, `stop_wait` in seconds, `refused` maps each bad job's
    id to its first problem, `private` lists what no tool may read, `secret_names` the variables that hold a secret
    (those of refused entries too), `notify` the channels for what is of no job.
    """

    path: Path
    digest: str
    live: bool = False
    max_parallel: int = 8
    requests_per_day: int | None = None
    stop_wait: float = 80.0
    jobs: Mapping[str, Job]
    series: Mapping[str, Job] = field(default_factory=dict)
    providers: Mapping[str, Provider]
    problems: tuple[Problem, ...] = ()
    refused: Mapping[str, Problem]
    private: tuple[Path, ...] = ()
    secret_names: frozenset[str] = frozenset()
    notify: tuple[Channel, ...] = ()
    metrics: Path | None = None

    @property
    def entries(self) -> tuple[Job, ...]:
        """Its good jobs, then its good series."""
        return (*self.jobs.values(), *self.series.values())

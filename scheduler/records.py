"""The entries of jobs.yaml as the records that the program works with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from scheduler.job import REHEARSAL, Channel, Delivery, Job, KeySource, Price, Provider, Series, Source
from scheduler.points import in_zone
from scheduler.shapes import ChannelEntry, DeliverEntry, FileEntry, JobEntry, KeyEntry, ProviderEntry

MANDAPI: Final = Provider(
    name="mandapi",
    base_url="https://api.mandapi.com/v1",
    model_env="MANDAPI_MODEL_ID",
    key=KeySource(kind="env", name="MANDAPI_API_KEY"),
)
DEMO: Final = Provider(name="demo", base_url=None)
BUILT_IN: Final = {MANDAPI.name: MANDAPI, DEMO.name: DEMO}


def make_records(shape: FileEntry, folder: Path) -> tuple[dict[str, Provider], dict[str, Job]]:
    """Return the providers, the built-in ones among them, and the jobs; relative paths start at `base:`."""
    base = _base(shape, folder)
    providers = BUILT_IN | {name: _provider(name, entry, base) for name, entry in shape.providers.items()}
    return providers, {name: _job(name, entry, shape, base, providers) for name, entry in shape.jobs.items()}


def metrics_file(shape: FileEntry, folder: Path) -> Path | None:
    """Return the file that the numbers go to."""
    return _under(_base(shape, folder), shape.metrics.textfile) if shape.metrics else None


def file_channels(shape: FileEntry, folder: Path) -> tuple[Channel, ...]:
    """Return how people are told of a job that names no channels of its own."""
    return _channels(shape.notify, _base(shape, folder))


def _base(shape: FileEntry, folder: Path) -> Path:
    return _under(folder, shape.base or (".." if folder.name == "config" else "."))


def _under(base: Path, text: str) -> Path:
    return Path("/" + os.path.normpath(base / text).lstrip("/"))  # POSIX keeps a double slash at the start


def _provider(name: str, entry: ProviderEntry, base: Path) -> Provider:
    """Lay the fields of an entry over the built-in provider of this name, or over a blank one."""
    given: dict[str, Any] = {field: getattr(entry, field) for field in entry.model_fields_set}
    if entry.key:
        given["key"] = _key(entry.key, base)
    if entry.ca_file:
        given["ca_file"] = _under(base, entry.ca_file)
    given["headers"] = tuple((header, _header(value)) for header, value in sorted(entry.headers.items()))
    if entry.price:
        given["price"] = Price(**entry.price.model_dump())
    given["extra_body"] = json.dumps(entry.extra_body, sort_keys=True)
    return replace(BUILT_IN.get(name, Provider(name=name, base_url="")), **given)


def _header(value: str | dict[str, str]) -> str | KeySource:
    return value.strip() if isinstance(value, str) else KeySource(kind="env", name=value["env"])


def _key(entry: KeyEntry, base: Path) -> KeySource:
    if entry.file is not None:
        return KeySource(kind="file", name=str(_under(base, entry.file)))
    if entry.env is not None:
        return KeySource(kind="env", name=entry.env)
    return KeySource(kind="credential", name=entry.credential or "")


def _job(name: str, entry: JobEntry, shape: FileEntry, base: Path, providers: Mapping[str, Provider]) -> Job:
    zone = entry.timezone or shape.timezone
    pauses = shape.after_failure if entry.after_failure is None else entry.after_failure
    return Job(
        id=name,
        task=entry.task,
        checkpoint=_under(base, entry.checkpoint),
        provider=providers[entry.provider],
        model=entry.model,
        schedule=entry.schedule,
        timezone=zone,
        read=tuple(Source(name=os.path.normpath(text), path=_under(base, text)) for text in entry.read),
        after_failure=tuple(pauses),
        catch_up=entry.catch_up,
        max_attempts=entry.max_attempts,
        enabled=entry.enabled,
        timeout=entry.timeout,
        jitter=entry.jitter,
        not_before=_seconds(entry.not_before, zone),
        not_after=_seconds(entry.not_after, zone),
        series=Series(opens=entry.series.opens, times=entry.series.times) if entry.series else None,
        deliver=_delivery(entry.deliver, base) if entry.deliver else None,
        notify=_channels(shape.notify if entry.notify is None else entry.notify, base),
    )


def _seconds(moment: str | None, zone: str) -> int | None:
    """Return a moment in UTC seconds; one without an offset is of the zone."""
    return None if moment is None else int(in_zone(datetime.fromisoformat(moment), zone).timestamp())


def _delivery(entry: DeliverEntry, base: Path) -> Delivery:
    file = _under(base, entry.file) if entry.file else None
    return Delivery(file=file, argv=tuple(entry.argv or ()), review=entry.review, folder=base)


def _channels(entries: Iterable[ChannelEntry], base: Path) -> tuple[Channel, ...]:
    return tuple(_channel(entry, base) for entry in entries)


def _channel(entry: ChannelEntry, base: Path) -> Channel:
    events = tuple(dict.fromkeys(entry.events))
    if entry.argv:
        return Channel(kind="argv", target=tuple(entry.argv), events=events, folder=base)
    if entry.webhook:
        return Channel(kind="webhook", target=entry.webhook, events=events)
    if entry.ping:
        return Channel(kind="ping", target=entry.ping, events=events)
    return Channel(kind="apprise", target=entry.apprise or "", events=events)


def folders_of(job: Job) -> Iterator[Path]:
    """Name the folders of a job's documents: its own, and the one of its rehearsals."""
    yield job.checkpoint.parent
    if not job.provider.offline:
        yield job.checkpoint.parent / REHEARSAL


def key_files(providers: Iterable[Provider]) -> Iterator[Path]:
    """Name the files that hold keys."""
    return (Path(provider.key.name) for provider in providers if provider.key and provider.key.kind == "file")

"""The keys that let a job rest, bound it and move its points: what is refused, and what each command makes of them."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine

from scheduler.job import JobFile
from scheduler.jobfile import parse_job_file
from tests.support import ChatServer, Command, Project, answer, chat_server, tool_calls

GOES_ON = tool_calls(("c1", "read_file", "{}"))
TOO_LONG = "as long as the time between two points"
NO_MOMENT = "expected a date or a moment"


def parse(**entry: object) -> JobFile:
    """A jobs.yaml of one good job and this one, called `one`."""
    jobs = {"good": {"task": "x", "checkpoint": "c/good"}, "one": {"task": "x", "checkpoint": "c/one", **entry}}
    return parse_job_file(json.dumps({"timezone": "Europe/Berlin", "jobs": jobs}).encode(), Path("/srv/app/jobs.yaml"))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"schedule": "every 5m", "jitter": "5m"}, TOO_LONG),
        ({"schedule": "every 5m", "jitter": "1h"}, TOO_LONG),
        ({"jitter": "5m"}, TOO_LONG),  # the default schedule
        ({"schedule": "*/5 * * * *", "jitter": "5m"}, TOO_LONG),
        ({"schedule": "@daily", "jitter": "1d"}, TOO_LONG),
        ({"jitter": 60}, "expected a duration"),
        ({"jitter": "soon"}, "not a duration"),
        ({"not_before": "2026-12-24", "not_after": "2026-12-23"}, "not_after: it is before not_before"),
        ({"not_before": "2026-12-24 09:00", "not_after": "2026-12-24 08:59"}, "not_after: it is before not_before"),
        # By the file's zone it is 09:00+01:00, which is 08:00+00:00.
        ({"not_before": "2026-12-24 09:00", "not_after": "2026-12-24T07:59+00:00"}, "before not_before"),
        ({"not_before": "tomorrow"}, NO_MOMENT),
        ({"not_before": "0001-01-01"}, NO_MOMENT),
        ({"not_after": "9999-12-31"}, NO_MOMENT),
        ({"not_after": "2026-W52-4"}, NO_MOMENT),
        ({"not_after": "20261224"}, NO_MOMENT),
        ({"not_after": 2026}, "expected text"),
        ({"enabled": "no"}, "expected true or false"),
        ({"timeout": 0}, "more than 0"),
        ({"timeout": "2h"}, "at most 3600"),
        ({"max_attempts": 5}, "max_attempts"),
        ({"max_attempts": 0}, "max_attempts"),
    ],
)
def test_what_no_calendar_can_be_blocks_its_own_job(entry: dict[str, Any], message: str) -> None:
    found = parse(**entry)
    assert (list(found.jobs), list(found.refused)) == (["good"], ["one"])
    assert message in found.refused["one"].message
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    "entry",
    [
        {"schedule": "every 5m", "jitter": "299s"},
        {"schedule": "*/7 * * * *", "jitter": "3m"},
        {"schedule": "@daily", "jitter": "23h"},
        {"schedule": "every 1s", "jitter": "0s"},
        {"not_before": "2026-12-24", "not_after": "2026-12-24"},
        {"not_before": "2026-12-24 09:00", "not_after": "2026-12-24T08:00+00:00"},
        {"not_before": "1971-01-01", "not_after": "9998-12-31"},
    ],
)
def test_what_leaves_a_point_is_taken(entry: dict[str, Any]) -> None:
    assert parse(**entry).problems == ()


def test_each_key_arrives_with_its_unit_and_zone() -> None:
    keys = {"enabled": False, "timeout": "2m", "jitter": "4m", "not_before": "2026-12-24", "not_after": "2026-12-31"}
    job = parse(**keys, timezone="America/New_York").jobs["one"]
    assert (job.enabled, job.timeout, job.deadline, job.jitter) == (False, 120.0, 120.0, 240)
    assert job.not_before == datetime.fromisoformat("2026-12-24T00:00-05:00").timestamp()
    assert job.not_after == datetime.fromisoformat("2026-12-31T00:00-05:00").timestamp()
    plain = parse().jobs["one"]
    assert (plain.enabled, plain.jitter, plain.not_before, plain.deadline) == (True, 0, None, 600.0)


# ---- commands


def row(command: Command, name: str = "nightly") -> dict[str, Any]:
    """A job's row of status."""
    rows = json.loads(command("status", "--json").out)["jobs"]
    return next(dict(found) for found in rows if found["id"] == name)


def test_a_disabled_job_rests_with_what_it_has(project: Project, command: Command, chat: ChatServer) -> None:
    chat.script = [GOES_ON, answer("fin")]
    project.live(chat.url, {"nightly": {"schedule": "every 1h"}})
    command("run", "nightly")
    project.live(chat.url, {"nightly": {"schedule": "every 1s", "enabled": False}})
    before = project.path().read_bytes()
    assert command("tick") == ("", "")
    assert command("tick", "nightly") == ("", "")
    said = command("run", "nightly", code=65).err
    assert said.count("\n") == 1
    assert "job nightly: it is disabled; to run it, take enabled: false out of jobs.yaml" in said
    found = row(command)
    assert (found["state"], found["attempts"], found["outcome"], found["next_point"]) == (
        "disabled",
        1,
        "tool_calls",
        None,
    )
    assert "disabled" in command("status").out
    shown = command("check", "--days", "7").out
    assert "disabled, and keeps its 3 of 4 requests left" in shown
    assert "    next" not in shown
    assert "in all: within 7 days at most 0 requests\n" in shown
    assert "ATTEMPTS" in command("show", "nightly").out
    assert project.path().read_bytes() == before
    assert chat.count == 1
    project.live(chat.url, {"nightly": {"schedule": "every 1h"}})
    command("tick")
    assert chat.count == 2
    project.live(chat.url, {"nightly": {"schedule": "every 1h", "enabled": False}})
    assert row(command)["state"] == "done"
    assert "done, no request will follow" in command("check").out


def test_a_lower_max_attempts_is_told_once_and_a_higher_one_names_the_way_out(
    project: Project, command: Command, chat: ChatServer
) -> None:
    chat.script = [GOES_ON]
    entry = {"schedule": "0 0 1 1 *"}
    project.live(chat.url, {"nightly": entry})
    for _ in range(3):
        command("run", "nightly")
    project.live(chat.url, {"nightly": {**entry, "max_attempts": 2}})
    said = command("tick").err
    assert said.count("\n") == 1
    assert "3 attempts are spent, and max_attempts is 2; it is exhausted for good" in said
    assert command("tick") == ("", "")
    project.live(chat.url, {"nightly": entry})
    assert command("tick") == ("", "")
    assert row(command)["state"] == "exhausted"
    shown = command("check").out
    assert "exhausted, no request will follow" in shown
    assert "stays exhausted though max_attempts is 4" in shown
    assert "resumed renew nightly --reason TEXT --confirm nightly" in shown
    assert chat.count == 3


def test_a_jobs_timeout_outranks_its_providers(project: Project, command: Command) -> None:
    with chat_server(held=True) as chat:
        project.live(chat.url, {"nightly": {"timeout": 0.5}})
        begun = time.monotonic()
        assert "timeout" in command("run", "nightly", code=69).err
        assert time.monotonic() - begun < 20  # the provider's is 30
    assert project.document()["history"][0]["outcome"] == "timeout"


@time_machine.travel("2026-03-02T08:30Z")
def test_check_says_what_lies_ahead_and_what_it_can_cost(project: Project, command: Command, chat: ChatServer) -> None:
    price = {"input": 2, "output": 10, "currency": "EUR"}
    provider = {"context_tokens": 100_000, "max_tokens": 20_000, "price": price}
    jobs = {
        "daily": {"schedule": "0 9 * * *", "timezone": "Europe/Berlin"},
        "offline": {"provider": "demo", "schedule": "every 1h"},
        "over": {"not_after": "2020-01-01"},
    }
    project.live(chat.url, jobs, provider=provider)
    shown = command("check", "--days", "2").out
    assert "    within 2 days at most 2 requests, 200000 tokens, 0.7200 EUR\n" in shown
    assert "    within 2 days at most 4 offline requests at no cost\n" in shown
    assert "    next none: no point lies ahead\n    within 2 days at most 0 requests\n" in shown
    assert shown.count("write a series") == 1
    assert shown.endswith(
        "in all: within 2 days at most 2 requests, 4 offline requests at no cost, 200000 tokens, 0.7200 EUR\n"
    )
    assert (
        "\nin all: at most 4 requests, 4 offline requests at no cost, 400000 tokens, 1.44 EUR\n" in command("check").out
    )
    project.live(chat.url, jobs)
    assert "2 requests; tokens and cost unknown without context_tokens and price" in command("check", "--days", "2").out
    assert row(command, "over")["next_point"] is None

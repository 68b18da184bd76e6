"""Editors read jobs.schema.json, people run `check`: a file that the one refuses is no good to the other either.

The judge of the schema is check-jsonschema. It reads YAML 1.2, in which `no` and `12:30` are text; what only YAML can
say (twice the same key, a star without quotes) it refuses as YAML, or does not see.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from scheduler.errors import JobFileUnreadable
from scheduler.jobfile import parse_job_file
from tests.support import ROOT

Verdict = Literal["good", "both", "check"]  # by whom it is refused: by neither, by both, by check alone

HEAD = "jobs:\n  nightly:\n    checkpoint: checkpoints/nightly.json\n"
PROVIDERS = 'jobs: {nightly: {task: "x", checkpoint: c.json, provider: mine}}\nproviders:\n  mine:\n'


def job(*lines: str) -> str:
    """A file with one job that has a task, a checkpoint and these lines."""
    return HEAD + "".join(f"    {line}\n" for line in ('task: "Sum up"', *lines))


def task(text: str) -> str:
    """A file whose task is written like this."""
    return f"{HEAD}    task: {text}\n"


def provider(*lines: str) -> str:
    """A file with a provider of these lines."""
    return PROVIDERS + "".join(f"    {line}\n" for line in ('base_url: "https://h.example/v1"', *lines))


def file(line: str) -> str:
    """A file with one more line on top."""
    return f"{line}\n{task('x')}"


CASES: dict[str, tuple[str | bytes, Verdict]] = {
    # A star, an at sign, braces, a colon, a tab.
    "star schedule in quotes": (job('schedule: "*/5 * * * *"'), "good"),
    "star schedule": (job("schedule: */5 * * * *"), "both"),
    "lone stars": (job("schedule: * * * * *"), "both"),
    "at sign": (task("@daily report"), "both"),
    "braces": (task("{{name}}"), "both"),
    "colon in the text": (task("Fix: the bug"), "both"),
    "colon in quotes": (task('"Fix: the bug"'), "good"),
    "tab": ("jobs:\n\tnightly: {}\n", "both"),
    # Types.
    "task is a number": (task("42"), "both"),
    "task is true": (task("true"), "both"),
    "task is nothing": (task("~"), "both"),
    "task is missing its value": (task(""), "both"),
    "task is a list": (task("[a, b]"), "both"),
    "task is empty": (task('""'), "both"),
    "task is blank": (task('"  "'), "both"),
    "task is yes": (task("yes"), "check"),
    "task is a time": (task("12:30"), "check"),
    "model is a number": (job("model: 1.0"), "both"),
    "model in quotes": (job('model: "1.0"'), "good"),
    "every and at are no keys": (job("every: 1:30:00", "at: 12:30"), "both"),
    "schedule is a number": (job("schedule: 5"), "both"),
    "catch_up is text": (job('catch_up: "yes"'), "both"),
    "enabled is a number": (job("enabled: 1"), "both"),
    "read is text": (job("read: notes.md"), "both"),
    "read is a list": (job("read: [notes.md, docs/]"), "good"),
    # Ids.
    "plain id": ("jobs: {nightly-2.b_c: {task: x, checkpoint: c.json}}\n", "good"),
    "id in capitals": ("jobs: {Nightly: {task: x, checkpoint: c.json}}\n", "both"),
    "id with a blank": ("jobs: {a b: {task: x, checkpoint: c.json}}\n", "both"),
    "id of 65 letters": (f"jobs: {{{'a' * 65}: {{task: x, checkpoint: c.json}}}}\n", "both"),
    "id in quotes": ('jobs: {"0123": {task: x, checkpoint: c.json}}\n', "good"),
    # Keys twice, merged, unknown, missing.
    "job twice": ("jobs:\n  a: {task: A, checkpoint: a.json}\n  a: {task: B, checkpoint: b.json}\n", "both"),
    "task twice": (job('task: "Again"'), "both"),
    "merge key": ("jobs:\n  a: &a {task: A, checkpoint: a.json}\n  b: {<<: *a, checkpoint: b.json}\n", "check"),
    "unknown key of a job": (job('tsak: "x"'), "both"),
    "unknown key of the file": (file("job: {}"), "both"),
    "unknown key of a provider": (provider("modle: x"), "both"),
    "no task": (HEAD, "both"),
    "no checkpoint": ("jobs: {a: {task: x}}\n", "both"),
    # Nothing in the file.
    "empty": ("", "both"),
    "only a comment": ("# later\n", "both"),
    "jobs without jobs": ("jobs:\n", "both"),
    "jobs are a list": ("jobs: []\n", "both"),
    "a list": ("[]\n", "both"),
    "a word": ("hello\n", "both"),
    "two documents": ("---\njobs: {}\n---\njobs: {}\n", "both"),
    "job without keys": ("jobs: {nightly: }\n", "both"),
    "jobs is job": ("job: {a: {task: x, checkpoint: c.json}}\n", "both"),
    "no job": ('{"jobs": {}}\n', "both"),
    # Encodings.
    "byte order mark": (b"\xef\xbb\xbf" + task("x").encode(), "good"),
    "carriage returns": (task("x").replace("\n", "\r\n").encode(), "good"),
    "windows-1252": (task("caf").encode().rstrip() + b"\xe9\n", "both"),
    "zero bytes": (b"\0" * 20, "both"),
    "lone byte": (task("x").encode() + b"#\x82\n", "both"),
    # Schedules, zones and durations.
    "schedule out of range": (job('schedule: "99 * * * *"'), "check"),
    "unknown zone": (job("timezone: Europe/Berln"), "check"),
    "zone is a number": (job("timezone: 1"), "both"),
    "attempts": (job("max_attempts: 4"), "good"),
    "five attempts": (job("max_attempts: 5"), "both"),
    "no attempts": (job("max_attempts: 0"), "both"),
    "attempts with a decimal point": (job("max_attempts: 2.5"), "both"),
    "timeout in words": (job('timeout: "10m"'), "good"),
    "timeout as a number": (job("timeout: 90.5"), "good"),
    "timeout of nothing": (job("timeout: 0"), "both"),
    "timeout without a unit": (job('timeout: "90"'), "both"),
    "jitter": (job('jitter: "90s"'), "good"),
    "jitter as a number": (job("jitter: 90"), "both"),
    "pauses": (job('after_failure: ["15m", "1h"]'), "good"),
    "no pauses": (job("after_failure: []"), "good"),
    "pause as a number": (job("after_failure: [15]"), "both"),
    "bounds": (job('not_before: "2026-12-24"', 'not_after: "2026-12-24 09:00"'), "good"),
    "bound in words": (job('not_before: "tomorrow"'), "both"),
    "bound on no day": (job('not_before: "2026-02-30"'), "check"),
    # What belongs together.
    "series": (
        'jobs: {w: {task: x, checkpoint: "w-{opening}.json", series: {opens: "0 7 * * 1", times: 52}}}\n',
        "good",
    ),
    "series without times": (
        'jobs: {w: {task: x, checkpoint: "w-{opening}.json", series: {opens: "0 7 * * 1"}}}\n',
        "both",
    ),
    "series of none": (
        'jobs: {w: {task: x, checkpoint: "w-{opening}.json", series: {opens: "0 7 * * 1", times: 0}}}\n',
        "both",
    ),
    "series without a place": (job('series: {opens: "0 7 * * 1", times: 5}'), "both"),
    "series whose place is a folder": (
        'jobs: {w: {task: x, checkpoint: "{opening}/w.json", series: {opens: "0 7 * * 1", times: 5}}}\n',
        "both",
    ),
    "place without a series": ('jobs: {w: {task: x, checkpoint: "w-{opening}.json"}}\n', "both"),
    "deliver": (job("deliver: {file: out.md, review: false}"), "good"),
    "deliver to nowhere": (job("deliver: {}"), "both"),
    "deliver to both": (job("deliver: {file: out.md, argv: [mail]}"), "both"),
    "deliver to a program": (job("deliver: {argv: [mail], review: true}"), "good"),
    "deliver to a program unread": (job("deliver: {argv: [mail], review: false}"), "both"),
    "deliver by nobody": (job("deliver: {argv: []}"), "both"),
    "notify": (job("notify: [{webhook: {env: URL}, events: [done]}]"), "good"),
    "notify of what there is not": (job("notify: [{webhook: {env: URL}, events: [won]}]"), "both"),
    "notify by two": (job("notify: [{webhook: {env: URL}, argv: [mail]}]"), "both"),
    "notify is a mapping": (job("notify: {webhook: {env: URL}}"), "both"),
    # The file's own keys.
    "live": (file("live: true"), "good"),
    "live is text": (file('live: "true"'), "both"),
    "max_parallel": (file("max_parallel: 0"), "both"),
    "budget": (file("budget: {requests_per_day: 200}"), "good"),
    "budget below nothing": (file("budget: {requests_per_day: -1}"), "both"),
    "metrics": (file("metrics: {textfile: resumed.prom}"), "good"),
    "metrics to nowhere": (file("metrics: {}"), "both"),
    "base": (file("base: /srv"), "good"),
    # Providers.
    "provider": (provider("model: qwen3", "key: {env: LOCAL_KEY}", "price: {input: 0.5, output: 1}"), "good"),
    "provider without an address": (PROVIDERS + "    model: m\n", "check"),
    "provider without a scheme": (PROVIDERS + "    base_url: api.example/v1\n", "check"),
    "provider that is not there": (job("provider: nobody"), "check"),
    "key in the file": (provider('key: "sk-1234567890"'), "both"),
    "key from nowhere": (provider("key: {}"), "both"),
    "key from two places": (provider("key: {env: A, file: b}"), "both"),
    "longest reply twice": (provider("max_tokens: 9", "max_completion_tokens: 9"), "both"),
    "temperature too high": (provider("temperature: 3"), "both"),
    "headers": (provider('headers: {X-Title: "n", api-key: {env: K}}'), "good"),
    "header as a number": (provider("headers: {X-Title: 1}"), "both"),
    "price in a word": (provider("price: {input: free, output: 1}"), "both"),
    "currency": (provider("price: {input: 1, output: 1, currency: euro}"), "both"),
    "window too small": (provider("context_tokens: 10"), "both"),
}


@pytest.fixture(scope="session")
def refused(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the cases that check-jsonschema refuses, asked for all of them at once."""
    folder = tmp_path_factory.mktemp("schema")
    paths = {}
    for number, (name, (body, _)) in enumerate(CASES.items()):
        path = folder / f"{number}.yaml"
        path.write_bytes(body if isinstance(body, bytes) else body.encode())
        paths[str(path)] = name
    schema = ROOT / "config/jobs.schema.json"
    command = [sys.executable, "-m", "check_jsonschema", "-o", "json", "--schemafile", schema, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    return {paths[error["filename"]] for error in (*told["errors"], *told["parse_errors"])}


def passes_check(body: str | bytes) -> bool:
    try:
        found = parse_job_file(body if isinstance(body, bytes) else body.encode(), Path("/srv/jobs.yaml"))
    except JobFileUnreadable:
        return False
    return not [problem for problem in found.problems if problem.severity == "error"]


@pytest.mark.parametrize(("name", "verdict"), [(name, verdict) for name, (_, verdict) in CASES.items()])
def test_schema_and_check_agree(refused: set[str], name: str, verdict: Verdict) -> None:
    assert passes_check(CASES[name][0]) == (verdict == "good")
    assert (name in refused) == (verdict == "both")


def test_the_shipped_file_is_good_to_the_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", "jobs.schema.json", "jobs.yaml"]
    assert subprocess.run(command, cwd=ROOT / "config", capture_output=True, check=False).returncode == 0


def test_the_schema_is_a_good_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--check-metaschema", "config/jobs.schema.json"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0

"""Log lines: text, JSON, and what systemd's journal reads."""

from __future__ import annotations

import io
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from scheduler import events
from scheduler.cli import main, output
from scheduler.events import event_level, event_line
from scheduler.herald import Herald
from scheduler.job import JobFile
from scheduler.logs import Form, log_line
from tests.support import KEY, Project, answer, chat_server, tool_calls

NASTY = "a\x1b[31m\x00\x07\n\r\u2028\u202e\x9b\ud800\ufeff\x7f\tb"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
STABLE = ["time", "level", "event", "job", "message"]

FIRST, LAST = "2027-01-01T00:00:00Z", "2027-01-01T02:00:00Z"
_SETTLED = {"event": "settled", "attempt": 1, "of": 4, "reason": None, "status": "ready", "answer": None}
EVENTS: list[dict[str, Any]] = [
    {"event": "admitted", "attempt": 1, "of": 4, "point": 1_800_000_000, "cut": 0},
    {"event": "tool_result", "name": NASTY, "arguments": NASTY, "ok": True},
    {"event": "put_back", "missing": True, "attempt": 1, "of": 4},
    {"event": "interrupted", "attempt": 1, "of": 4},
    {"event": "retaken"},
    {"event": "closed", "attempts": 3, "of": 2},
    {"event": "missed", "why": "catch_up is false", "first": FIRST, "last": LAST, "count": 3},
    {"event": "made_up", "first": FIRST, "last": LAST, "count": 3},
    {"event": "opened", "opening": NASTY, "number": 2, "times": 52},
    {"event": "skipped", "opening": NASTY, "again": False, "first": FIRST, "last": LAST, "count": 3},
    {**_SETTLED, "outcome": "answered", "status": "done", "answer": NASTY},
    {**_SETTLED, "outcome": "timeout", "reason": NASTY},
    {"event": "delivery", "result": "failed", "target": NASTY, "detail": NASTY},
]


def parsed(line: str) -> dict[str, Any]:
    """Read one line as strictly as any reader: no constants, no equal keys, nothing but printable ASCII."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line, object_pairs_hook=unique, parse_constant=pytest.fail)
    assert list(found)[:5] == STABLE
    assert TIME.fullmatch(found["time"])
    assert found["level"] in ("info", "warning", "error")
    return found  # type: ignore[no-any-return]  # an object, by the line above


def test_every_event_has_its_line_here() -> None:
    assert {event["event"] for event in EVENTS} == set(events._EVENTS)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event["event"])
def test_an_event_is_one_strict_json_line_with_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: dict[str, Any]
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(output, "_form", "json")
    herald = Herald(JobFile(path=tmp_path / "jobs.yaml", digest="", jobs={}, providers={}, refused={}), {}, output.log)
    herald.tell("nightly", event)
    (line,) = stream.getvalue().splitlines()
    found = parsed(line)
    assert (found["event"], found["job"]) == (event["event"], "nightly")
    assert found["message"] == event_line("nightly", event)
    assert found["level"] == event_level(event)
    facts = {name: value for name, value in event.items() if isinstance(value, bool | int) and name != "point"}
    assert {name: found[name] for name in facts} == facts
    assert set(found) == {*STABLE, *event}
    if "point" in event:
        assert TIME.fullmatch(found["point"])


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("text", "2027-01-01T00:00:00Z warning a b\\x1b"),
        ("journal", "<4>a b\\x1b"),
    ],
)
def test_a_line_is_one_line_for_a_reader(form: Form, said: str) -> None:
    assert log_line(form, "2027-01-01T00:00:00Z", "warning", "a\nb\x1b", "x", "", {}) == said


@pytest.mark.parametrize(("level", "priority"), [("error", 3), ("warning", 4), ("info", 6)])
def test_the_journal_gets_its_priorities(level: str, priority: int) -> None:
    assert log_line("journal", "t", level, "said", "x", "", {}) == f"<{priority}>said"


def test_no_fact_takes_the_place_of_a_stable_key() -> None:
    found = parsed(log_line("json", "2027-01-01T00:00:00Z", "info", "m", "x", "", {"time": 1, "event": 2, "more": 3}))
    assert (found["time"], found["event"], found["job"], found["more"]) == ("2027-01-01T00:00:00Z", "x", None, 3)


# ---- the program


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = main(arguments)
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "code", "event"),
    [
        (["--log-format", "json", "nonsense"], 64, "usage"),
        (["nonsense", "--log-format=json"], 64, "usage"),
        (["--log-f", "json", "run"], 64, "usage"),
        (["--log-format=json", "--config", "/nowhere.yaml", "run", "a"], 78, "refused"),
        (["--log-format=json", "--config", "/nowhere.yaml", "check"], 78, "refused"),
        (["--log-format=json", "work", " ", "--checkpoint", "x", "--demo"], 64, "usage"),
    ],
)
def test_every_refusal_of_the_command_line_is_json(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, event: str
) -> None:
    found, (line,) = run(capsys, *arguments)
    assert (found, parsed(line)["event"]) == (code, event)


def test_no_argument_at_all_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert "COMMAND" in line


def test_a_format_that_is_none_is_refused_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, (line,) = run(capsys, "--log-format", "xml", "status")
    assert code == 64
    assert "xml" in line
    assert TIME.match(line)


def test_a_run_a_problem_and_a_block_are_json(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    with chat_server(tool_calls(("c1", "list_files", "{}")), answer("fin\x1b[0m")) as chat:
        project.live(chat.url, {"nightly": {}, "bad": {"task": ""}, "keyless": {"provider": "mandapi"}})
        arguments = ["--log-format", "json", "--config", str(project.config)]
        _, first = run(capsys, *arguments, "run", "nightly", "keyless", "bad")
        _, second = run(capsys, *arguments, "run", "nightly")
        _, third = run(capsys, *arguments, "run", "nightly")
    lines = [parsed(line) for line in [*first, *second, *third]]
    assert {line["event"] for line in lines} == {"problem", "admitted", "tool_result", "settled", "blocked", "final"}
    settled = [line for line in lines if line["event"] == "settled"]
    assert [(line["attempt"], line["of"], line["outcome"], line["status"]) for line in settled] == [
        (1, 4, "tool_calls", "ready"),
        (2, 4, "answered", "done"),
    ]
    assert {line["job"] for line in lines if line["event"] in ("problem", "blocked")} == {"bad", "keyless"}
    assert KEY not in json.dumps(lines)


def journal(descriptor: int) -> str:
    found = os.fstat(descriptor)
    return f"{found.st_dev}:{found.st_ino}"


@pytest.mark.parametrize("kind", ["socket", "file"])
def test_under_systemd_a_line_has_its_priority_and_no_time(project: Project, tmp_path: Path, kind: str) -> None:
    if kind == "socket":
        ours, theirs = socket.socketpair()
        stream = theirs.fileno()
    else:
        stream = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT)
    with project.start("check", environ=project.environ(JOURNAL_STREAM=journal(stream)), stderr=stream) as checking:
        assert checking.wait(60) == 78
    if kind == "socket":
        theirs.close()
        said = ours.recv(65536).decode()
        ours.close()
    else:
        os.lseek(stream, 0, os.SEEK_SET)
        said = os.read(stream, 65536).decode()
        os.close(stream)
    assert re.fullmatch(r"<3>\S.*jobs\.yaml.*\n", said), said


def test_a_journal_that_is_not_this_stream_changes_nothing(project: Project, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    with open(tmp_path / "other") as other:
        environ = project.environ(JOURNAL_STREAM=journal(other.fileno()))
        assert TIME.match(project.run("check", code=78, environ=environ).stderr)

import contextlib
import json
import os
import re
import stat
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import positions
from scheduler.address import check_base_url
from scheduler.errors import JobFileUnreadable, PermissionRefused, WritableByOthers, WrongUser
from scheduler.job import JobFile, KeySource, Problem
from scheduler.jobfile import MAX_BYTES, json_schema, parse_job_file, read_job_file

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "config" / "jobs.yaml"
GOOD = "  good: {task: Fine, checkpoint: c/good.json, provider: demo}\n"
NOBODY = 65534


def parse(text: str | bytes, path: Path = Path("/srv/app/jobs.yaml")) -> JobFile:
    return parse_job_file(text.encode() if isinstance(text, str) else text, path)


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    try:
        return parse(text).problems
    except JobFileUnreadable as error:
        return error.problems  # type: ignore[return-value]  # the tree's root names no record of jobs.yaml


def job(lines: str) -> str:
    """Put the lines of one job behind a good one; its first line is the fourth of the file."""
    return f"jobs:\n{GOOD}  bad:\n" + "".join(f"    {line}\n" for line in lines.splitlines())


def with_job(lines: str) -> str:
    return job(f"checkpoint: c/bad.json\n{lines}")


QUOTES = "in quotes"
IN_JOB = [
    # the lines of the job behind `checkpoint:`, line and column, words of the message, words of the hint
    ("task: {{name}}", 5, 11, "key must be text", QUOTES),
    ("task: 42", 5, 11, "task: expected text, found a number", QUOTES),
    ("task: 3.10", 5, 11, "task: expected text, found a number", QUOTES),
    ("task: yes", 5, 11, "task: expected text, found yes", QUOTES),
    ("task: no", 5, 11, "task: expected text, found no", QUOTES),
    ("task: true", 5, 11, "task: expected text, found true", QUOTES),
    ("task: ~", 5, 11, "task: expected text, found nothing", QUOTES),
    ("task:", 5, 10, "task: expected text, found nothing", QUOTES),
    ("task: 12:30", 5, 11, "task: expected text, found 12:30", QUOTES),
    ("task: 9:30:00", 5, 11, "task: expected text, found 9:30:00", QUOTES),
    ("task: 2026-11-29", 5, 11, "task: expected text, found 2026-11-29", QUOTES),
    ("task: 2026-13-45", 5, 11, "task: expected text, found 2026-13-45", QUOTES),
    (f"task: {'9' * 5000}", 5, 11, "task: expected text, found 9", QUOTES),
    ("task: &a x", 5, 11, "anchor", QUOTES),
    ("task: *a", 5, 11, "alias", QUOTES),
    ("task: !!str x", 5, 11, "tag", QUOTES),
    ("<<: {task: x}", 5, 5, "merge keys", "write the lines out"),
    ('task: " "', 5, 11, "task: it is blank", ""),
    ("task: [a]", 5, 11, "task: expected text, found a list", QUOTES),
    ("task: x\ntask: y", 6, 5, "already at line 5", "keep one"),
    ("task: x\nmodel: 1.0", 6, 12, "model: expected text, found a number", QUOTES),
    ("task: x\nmodel: 0123", 6, 12, "model: expected text, found 0123", QUOTES),
    ("task: x\nmodel: 1_000", 6, 12, "model: expected text, found 1_000", QUOTES),
    ("task: x\nmodel: 0x1f", 6, 12, "model: expected text, found 0x1f", QUOTES),
    ("task: x\nmodel: 1e3", 6, 12, "model: expected text, found 1e3", QUOTES),
    ("task: x\nmodel: .inf", 6, 12, "model: expected text, found .inf", QUOTES),
    ("task: x\nmodel:", 6, 11, "model: expected text, found nothing", QUOTES),
    ("task: x\ncatch_up: no", 6, 15, "catch_up: expected true or false", "write true or false"),
    ("task: x\ncatch_up: TRUE", 6, 15, "catch_up: expected true or false", "write true or false"),
    ('task: x\ncatch_up: "true"', 6, 15, "catch_up: expected true or false, found text", "write true or false"),
    ("task: x\nmax_attempts: 5", 6, 19, "max_attempts: it must be at most 4", ""),
    ("task: x\nmax_attempts: 0", 6, 19, "max_attempts: it must be at least 1", ""),
    ('task: x\nmax_attempts: "2"', 6, 19, "expected a whole number, found text", "without quotes"),
    ("task: x\nmax_attempts: 2.0", 6, 19, "expected a whole number", ""),
    ("task: x\nevery: 1:30:00", 6, 5, "unknown key every", ""),
    ("task: x\nat: 09:30", 6, 5, "unknown key at", ""),
    ("task: x\nshedule: '@daily'", 6, 5, "unknown key shedule; did you mean schedule?", ""),
    ("task: x\non: 1", 6, 5, "key is not text", QUOTES),
    ("task: x\nread: config", 6, 11, "read: expected a list, found text", "brackets"),
    ("task: x\nread: [a, 12]", 6, 15, "read: expected text, found a number", QUOTES),
    ("task: x\nread: ['~/a']", 6, 12, "home folder", "whole path"),
    ("task: x\nafter_failure: [15m, 90]", 6, 26, "after_failure: expected a duration", "unit"),
    ("task: x\nafter_failure: [soon]", 6, 21, "after_failure: ", ""),
    ("task: x\nafter_failure: 1:30", 6, 20, "after_failure: expected a list", ""),
    ("task: x\nschedule: ''", 6, 15, "schedule: ", ""),
    ("task: x\nschedule: '60 * * * *'", 6, 15, "schedule: ", ""),
    ("task: x\nschedule: '99 * * * *'", 6, 15, "schedule: ", ""),
    ("task: x\nschedule: '0 9 31 2 *'", 6, 15, "never fires", ""),
    ("task: x\nschedule: '* * * * * *'", 6, 15, "schedule: ", ""),
    ("task: x\nschedule: '0 9 * *'", 6, 15, "schedule: ", ""),
    ("task: x\nschedule: 12:30", 6, 15, "schedule: expected text", QUOTES),
    ("task: x\ntimezone: Europe/Berln", 6, 15, "timezone: ", ""),
    ("task: x\ntimezone: CST", 6, 15, "timezone: ", ""),
    ("task: x\nprovider: dmo", 6, 15, "there is no dmo; did you mean demo?", ""),
    ("task: x\nprovider: 7", 6, 15, "provider: expected text, found a number", QUOTES),
]


@pytest.mark.parametrize(("lines", "line", "column", "message", "hint"), IN_JOB)
def test_trap_in_a_job_blocks_that_job_alone(lines, line, column, message, hint):
    file = parse(with_job(lines))
    assert list(file.jobs) == ["good"]
    assert list(file.refused) == ["bad"]
    first = next(problem for problem in file.problems if (problem.line, problem.column) == (line, column))
    assert (first.job, first.file, first.severity) == ("bad", "/srv/app/jobs.yaml", "error")
    assert message in first.message
    assert hint in first.hint


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("c/", "folder"),
        ("c/..", "folder"),
        ("c/.hidden", "no dot"),
        ("c/x.lock", ".lock"),
        ("c/" + "é" * 101, "200 bytes"),
        (r'"c/a\0b"', "control characters"),
        (r'"c/a\nb"', "control characters"),
        ("''", "blank"),
        ("~/x.json", "home folder"),
    ],
)
def test_bad_checkpoint_name_is_refused(checkpoint, message):
    problem = parse(job(f"task: x\ncheckpoint: {checkpoint}")).refused["bad"]
    assert (problem.line, problem.column) == (5, 17)
    assert message in problem.message


SYNTAX = [
    ("task: x\nschedule: */5 * * * *", 6, 15, "cannot start with *", QUOTES),
    ("task: x\nschedule: * * * * *", 6, 15, "cannot start with *", QUOTES),
    ("task: x\nschedule: @daily", 6, 15, "cannot start with @", QUOTES),
    ("task: @daily report", 5, 11, "cannot start with @", QUOTES),
    ("task: %d", 5, 11, "cannot start with %", QUOTES),
    ("task: Fix: the bug", 5, 14, 'second ": "', "under |"),
    ("task: {{name}} is late", 5, 20, "does not fit", QUOTES),
    ('task: "x" y', 5, 15, "does not fit", QUOTES),
    ('task: "x', 5, 11, "not closed", "close it"),
    (r'task: "\q"', 5, 13, "escape", "single quotes"),
    ("task: [a", 6, 1, "bracket", ""),
    ("\ttask: x", 5, 1, "tab", "use spaces"),
    ("task:\n\tx", 6, 1, "tab", "use spaces"),
]


@pytest.mark.parametrize(("lines", "line", "column", "message", "hint"), SYNTAX)
@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
def test_syntax_is_explained_where_it_stands(lines, line, column, message, hint, loader):
    text = with_job(lines).replace("    \t", "\t")
    with pytest.raises(positions.Unreadable) as caught:
        positions.read(text.encode(), loader)
    fault = caught.value.fault
    if not text.endswith(("[a\n", '"\\q"\n')):  # here the two loaders name different ends
        assert (fault.place.line, fault.place.column) == (line, column)
    assert message in fault.message
    assert hint in fault.hint


def test_syntax_error_makes_the_file_unreadable_with_one_plain_sentence():
    with pytest.raises(JobFileUnreadable) as caught:
        parse(with_job("schedule: */5 * * * *"))
    assert str(caught.value).startswith("/srv/app/jobs.yaml: line 5, column 15: a value cannot start with * or &; put")
    assert [problem.job for problem in caught.value.problems] == [None]


WHOLE = [
    (b"", 1, 1, "no jobs: the file is empty"),
    (b"# nothing\n# here\n", 1, 1, "no jobs: the file is empty"),
    (b"--- ~\n", 1, 1, "no jobs: the file is empty"),
    (b"jobs:\n", 1, 1, "no jobs: expected a mapping of ids under jobs"),
    (b"live: true\njobs: []\n", 2, 1, "no jobs: expected a mapping of ids under jobs"),
    (b'{"jobs": {}}', 1, 2, "no jobs: expected a mapping of ids under jobs"),
    (b"[]", 1, 1, "no jobs: expected a mapping with the key jobs"),
    (b"hello", 1, 1, "no jobs: expected a mapping with the key jobs"),
    (b"job: {a: {task: x}}", 1, 1, "unknown key job; did you mean jobs?"),
    (b"---\njobs: {}\n---\njobs: {}\n", 3, 1, "a second document starts here"),
    (b"jobs: {nightly: {task: x, schedule: ", 1, 1, "bracket"),
    ("jobs: {a: {task: café}}".encode("utf-16"), 1, 1, "UTF-16"),
    ("jobs: {a: {task: x}}".encode("utf-16-le"), 1, 2, "control character 0x00"),
    (b"jobs:\n  a:\n    task: caf\xe9\n", 3, 14, "not UTF-8: byte 0xE9 at line 3"),
    (b"\x82", 1, 1, "not UTF-8: byte 0x82 at line 1"),
    (b"\xef\xbb\xbfjobs: \xe9", 1, 7, "not UTF-8: byte 0xE9 at line 1"),
    (b"jobs: {}\nlive: [", 2, 8, "a bracket is not closed"),
    (b"live: false\rjobs: \xe9\r", 2, 7, "not UTF-8: byte 0xE9 at line 2"),
    ("live: false\x85jobs: \x1f".encode(), 2, 7, "control character 0x1F"),
    (b"\0" * 20, 1, 1, "control character 0x00"),
    (b"[" * 1_000_000, 1, 1, ""),
    (b"- " * 2_000, 1, 41, "nested deeper than 20"),
    (b"? " * 2_000, 1, 41, "nested deeper than 20"),
    (b"a: &a [x]\nb: &b [*a, *a]\n", 1, 4, "anchor"),
    (b"? [a]\n: b\n", 1, 1, "key must be text"),
]


@pytest.mark.parametrize(("body", "line", "column", "message"), WHOLE)
def test_file_without_use_is_refused_as_a_whole(body, line, column, message):
    with pytest.raises(JobFileUnreadable) as caught:
        parse(body)
    found = [problem for problem in caught.value.problems if message in problem.message]
    assert found
    if body[:1] not in (b"[", b"j") or body == b"[]":  # the end of an open bracket may be named
        assert (found[0].line, found[0].column) == (line, column)


TOP = [
    ("live: yes", "live: expected true or false, found yes", "write true or false", 7),
    ("live: 1", "live: expected true or false, found a number", "write true or false", 7),
    ("timezone: Europe/Berln", "timezone: ", "", 11),
    ("timezone: 12:30", "timezone: expected text", QUOTES, 11),
    ("max_parallel: 0", "max_parallel: it must be at least 1", "", 15),
    ("max_parallel: 1001", "max_parallel: it must be at most 1000", "", 15),
    ("max_parallel: true", "max_parallel: expected a whole number, found true", "", 15),
    ("stop_wait: 80", "stop_wait: expected a duration", "unit", 12),
    ("budget: 200", "budget: expected a mapping, found a number", "", 9),
    ("budget: {requests_per_day: -1}", "budget.requests_per_day: it must be at least 0", "", 28),
    ("budget: {request_per_day: 1}", "unknown key request_per_day; did you mean requests_per_day?", "", 10),
    ("after_failure: [1h, x]", "after_failure: ", "", 21),
    ("base: ~", "base: expected text, found nothing", QUOTES, 7),
    ("providers: [x]", "providers: expected a mapping, found a list", "", 12),
    ("max_paralel: 2", "unknown key max_paralel; did you mean max_parallel?", "", 1),
    ("live: true\nlive: false", "already at line 3", "keep one", 1),
    ("no: 1", "key is not text", QUOTES, 1),
]


@pytest.mark.parametrize(("line", "message", "hint", "column"), TOP)
def test_problem_outside_the_entries_makes_the_file_unreadable(line, message, hint, column):
    with pytest.raises(JobFileUnreadable) as caught:
        parse(f"jobs:\n{GOOD}{line}\n")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.job) == (3 + line.count("\n"), column, None)
    assert message in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    "key", ["no", "on", "off", "yes", "null", "~", "0123", "12", "1.0", "2026-03-01", "True", "12:30", "1_000", "false"]
)
def test_id_that_yaml_turns_into_something_else_is_refused_as_written(key):
    file = parse(f"jobs:\n{GOOD}  {key}: {{task: x, checkpoint: c/x.json, provider: demo}}\n")
    assert list(file.jobs) == ["good"]
    assert list(file.refused) == [key]
    problem = file.refused[key]
    assert (problem.line, problem.column, problem.hint) == (3, 3, "put it in quotes")


@pytest.mark.parametrize("key", ["no", "12", "2026-03-01", "a.b_c-d", "a" * 64])
def test_quoted_id_is_taken(key):
    assert list(parse(f'jobs: {{"{key}": {{task: x, checkpoint: c/x.json}}}}').jobs) == [key]


@pytest.mark.parametrize("key", ["Nightly", "[key]", "-a", "a b", "a/b", "a" * 65, "ñ", ""])
def test_id_of_other_characters_is_refused(key):
    problem = parse(f'jobs:\n{GOOD}  "{key}": {{task: x, checkpoint: c/x.json}}\n').refused[key]
    assert (problem.line, problem.column, problem.job) == (3, 3, key)
    assert "1 to 64 small letters" in problem.message


@pytest.mark.parametrize("key", ["key", "[key]", "task"])
def test_id_like_a_word_of_the_file_is_an_id(key):
    file = parse(f"jobs:\n{GOOD}  '{key}': no\n")
    assert list(file.jobs) == ["good"]
    assert "expected a mapping, found no" in " ".join(problem.message for problem in file.problems)


def test_same_id_twice_is_refused_with_both_lines():
    file = parse(f"jobs:\n  twin: {{task: A, checkpoint: a}}\n{GOOD}  twin: {{task: B, checkpoint: b}}\n")
    assert list(file.jobs) == ["good"]
    assert (file.refused["twin"].line, file.refused["twin"].column) == (4, 3)
    assert "line 2" in file.refused["twin"].message


def test_bad_jobs_are_named_beside_good_ones():
    file = parse(
        f"jobs:\n{GOOD}"
        '  broken: {task: "x", checkpoint: c/b, schedule: "99 * * * *"}\n'
        '  typo: {tsak: "x", schedule: "0 9 * * *"}\n'
        "  nul:\n"
    )
    assert list(file.jobs) == ["good"]
    assert [(p.job, p.line, p.column) for p in file.problems] == [
        ("broken", 3, 50),
        ("typo", 4, 3),
        ("typo", 4, 3),
        ("typo", 4, 10),
        ("nul", 5, 7),
    ]
    said = [problem.message for problem in file.problems if problem.job == "typo"]
    assert sorted(said) == ["checkpoint is missing", "task is missing", "unknown key tsak; did you mean task?"]
    assert "expected a mapping, found nothing" in file.refused["nul"].message


def test_all_jobs_bad_is_still_a_file():
    file = parse("jobs: {a: , b: 7}")
    assert (dict(file.jobs), list(file.refused)) == ({}, ["a", "b"])


def test_every_problem_is_told_at_once_when_the_file_is_unreadable():
    text = "live: no\nbudget: 1\nproviders: {x: {base_url: ftp://x}}\njobs:\n  a: {task: 1}\n  b: {checkpoint: *x}\n"
    with pytest.raises(JobFileUnreadable) as caught:
        parse(text)
    assert {(p.line, p.job) for p in caught.value.problems} == {(1, None), (2, None), (3, None), (5, "a"), (6, "b")}
    assert str(caught.value).endswith("(and 6 more)")


def test_text_behind_a_hash_in_a_task_is_a_warning():
    file = parse("jobs:\n  a:\n    task: fix bug #12 now\n    checkpoint: c/a.json # fine here\n")
    (problem,) = file.problems
    assert (problem.line, problem.column, problem.job, problem.severity) == (3, 19, "a", "warning")
    assert "comment" in problem.message
    assert "quotes" in problem.hint
    assert file.jobs["a"].task == "fix bug"
    assert not file.refused


@pytest.mark.parametrize(
    "value", ['"fix #12"', "'fix #12' # really", '"fix" # b', "|\n      fix #12", "fix#12", ">-\n      a #b"]
)
def test_hash_that_loses_nothing_is_no_warning(value):
    assert parse(f"jobs:\n  a:\n    checkpoint: c\n    task: {value}\n").problems == ()


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbfjobs: {a: {task: caf\xc3\xa9, checkpoint: c}}",
        b"jobs:\r\n  a:\r\n    task: caf\xc3\xa9\r\n    checkpoint: c\r\n",
    ],
)
def test_byte_order_mark_and_crlf_work(body):
    assert parse(body).jobs["a"].task == "café"


def test_columns_count_characters_and_lines_count_crlf():
    (problem,) = problems_of("jobs:\r\n  a: {task: 'é😀', checkpoint: c, tsk: 1}\r\n".encode())
    assert (problem.line, problem.column) == (2, 34)


PROVIDER = [
    ("base_url: ftp://h/v1", "starts with https://"),
    ("base_url: api.example.com/v1", "starts with https://"),
    ("base_url: https://u:pa55@h/v1", "user name or password"),
    ("base_url: https://h/v1?key=pa55", "ends with its path"),
    ("base_url: 'https://h/v1#pa55'", "ends with its path"),
    ("base_url: http://h/v1", "allow_http"),
    ("base_url: http://169.254.169.254/v1, allow_http: true", "link-local"),
    ("base_url: 7", "base_url: expected text"),
    ("model: x", "base_url is missing"),
    ("base_url: https://h, key: sk-pa55", "never the key itself"),
    ("base_url: https://h, key: 0123", "never the key itself"),
    ("base_url: https://h, key: {env: sk-pa55}", "never the key itself"),
    ("base_url: https://h, key: {env: gsk_pa55pa55}", "never the key itself"),
    ("base_url: https://h, key: {env: pa55" + "aB1" * 8 + "}", "never the key itself"),
    ("base_url: https://h, key: {env: 0x1f}", "expected text, found a word"),
    ("base_url: https://h, key: {sk-pa55}", "unknown key; expected env, file, credential"),
    ("base_url: https://h, key: {sk-pa55, sk-pa55}", "already"),
    ("base_url: https://h, key: {env: A, file: b}", "exactly one of env, file and credential"),
    ("base_url: https://h, key: {}", "exactly one of env, file and credential"),
    ("base_url: https://h, key: {credential: ../pa55}", "key.credential: expected a plain name"),
    ("base_url: https://h, timeout: 0", "more than 0 and at most 3600"),
    ("base_url: https://h, timeout: 2h", "more than 0 and at most 3600"),
    ("base_url: https://h, timeout: true", "expected a duration"),
    ("base_url: https://h, max_tokens: 0", "max_tokens: it must be more than 0"),
    ("base_url: https://h, context_tokens: 2000, max_tokens: 2000", "context_tokens: a reply of 2000 tokens leaves no"),
    ("base_url: https://h, extra_body: {api_key: abc}", "extra_body: api_key names a key"),
    ("base_url: https://h, max_completion_tokens: 0", "max_completion_tokens: it must be more than 0"),
    ("base_url: https://h, max_tokens: 5, max_completion_tokens: 5", "max_tokens and max_completion_tokens exclude"),
    ("base_url: https://h, temperature: 2.1", "temperature: expected a number from 0 to 2"),
    ("base_url: https://h, temperature: -0.1", "temperature: expected a number from 0 to 2"),
    ("base_url: https://h, temperature: true", "temperature: expected a number from 0 to 2"),
    ("base_url: https://h, temperature: '1'", "temperature: expected a number from 0 to 2"),
    ("base_url: https://h, temperature: 1e-1", "temperature: expected a number from 0 to 2"),
    ("base_url: https://h, context_tokens: 1023", "context_tokens: it must be at least 1024"),
    ("base_url: https://h, replay_fields: some", "replay_fields: expected keep or drop"),
    ("base_url: https://h, extra_body: [top_p]", "extra_body: expected a mapping, found a list"),
    ("base_url: https://h, headers: [X-A]", "headers: expected a mapping, found a list"),
    ("base_url: https://h, headers: pa55", "headers: expected a mapping, found text"),
    ("base_url: https://h, headers: {X-A: 7}", "headers: X-A: expected text or {env: NAME}, found a number"),
    ("base_url: https://h, headers: {X-A: no}", "found a word, which YAML reads in more than one way"),
    ("base_url: https://h, headers: {X-A: }", "headers: X-A: expected text or {env: NAME}, found nothing"),
    ("base_url: https://h, headers: {X-A: ' '}", "headers: X-A: the value is missing or blank"),
    ('base_url: https://h, headers: {X-A: "pa55\\nX-B: 1"}', "headers: X-A: the value has a line break"),
    ('base_url: https://h, headers: {X-A: "pa55\\x01"}', "headers: X-A: the value has a control character"),
    ("base_url: https://h, headers: {X-A: pa55é}", "headers: X-A: the value has a character outside ASCII"),
    ("base_url: https://h, headers: {X-A: " + "pa55 " * 2000 + "}", "headers: X-A: the value is longer"),
    ("base_url: https://h, headers: {X-A: sk-pa55pa55}", "headers: X-A: this looks like a key"),
    ("base_url: https://h, headers: {X-A: Bearer sk-pa55pa55}", "headers: X-A: this looks like a key"),
    ("base_url: https://h, headers: {X-A: 'token=pa55" + "aB1" * 8 + ";'}", "headers: X-A: this looks like a key"),
    ("base_url: https://h, headers: {X-A: {env: sk-pa55}}", "headers: X-A: expected {env: NAME}"),
    ("base_url: https://h, headers: {X-A: {env: A, b: pa55}}", "headers: X-A: expected {env: NAME}"),
    ("base_url: https://h, headers: {X-A: {file: pa55}}", "headers: X-A: expected {env: NAME}"),
    ("base_url: https://h, headers: {sk-pa55: x}", "headers: expected the name of a header"),
    ("base_url: https://h, headers: {'X A': x}", "headers: expected the name of a header"),
    ("base_url: https://h, headers: {'X:': x}", "headers: expected the name of a header"),
    ("base_url: https://h, headers: {'': x}", "headers: expected the name of a header"),
    ("base_url: https://h, headers: {Xé: x}", "headers: expected the name of a header"),
    ("base_url: https://h, headers: {X-A: x, x-a: y}", "headers: x-a stands already there, as X-A"),
    ("base_url: https://h, headers: {AUTHORIZATION: pa55}", "headers: AUTHORIZATION has an option of its own"),
    ("base_url: https://h, headers: {Host: pa55}", "headers: Host is not yours to set"),
    ("base_url: https://h, headers: {Content-Length: '5'}", "headers: Content-Length is not yours to set"),
    ("base_url: https://h, headers: {content-type: x}", "headers: content-type is not yours to set"),
    ("base_url: https://h, headers: {Transfer-Encoding: x}", "headers: Transfer-Encoding is not yours to set"),
    ("base_url: https://h, headers: {Accept-Encoding: gzip}", "headers: Accept-Encoding is not yours to set"),
    ("base_url: https://h, headers: {Connection: close}", "headers: Connection is not yours to set"),
    ("base_url: https://h, headers: {User-Agent: x}", "headers: User-Agent is not yours to set"),
    ("base_url: https://h, idempotency_header: Authorization", "idempotency_header: Authorization has an option"),
    ("base_url: https://h, idempotency_header: 'X A'", "idempotency_header: expected the name of a header"),
    ("base_url: https://h, idempotency_header: X-A, headers: {x-a: x}", "it stands among headers already"),
    ("base_url: https://h, ca_file: ~/pa55.pem", "ca_file: ~ is not read"),
    ("base_url: https://h, ca_file: ''", "ca_file: it is blank"),
    ("base_url: https://h, proxy: none", "proxy: expected env"),
    ("base_url: https://h, last_attempt: never", "last_attempt: expected none or omit"),
    ("base_url: https://h, api_key: sk-pa55", "unknown key api_key"),
    ("base_url: https://h, sk-pa55", "unknown key; expected"),
]


@pytest.mark.parametrize(("entry", "message"), PROVIDER)
def test_bad_provider_blocks_its_jobs_alone_and_no_secret_is_told(entry, message):
    text = f"providers:\n  own: {{{entry}}}\njobs:\n{GOOD}  bad: {{task: x, checkpoint: c/x, provider: own}}\n"
    file = parse(text)
    assert list(file.jobs) == ["good"]
    problem, use = file.problems
    assert (problem.line, problem.job) == (2, None)
    assert message in problem.message
    assert (use.line, use.column, use.job) == (5, 45, "bad")
    assert "entry of own has a problem (line 2)" in use.message
    assert "pa55" not in repr(file)


OPTION_FAULTS = [
    # an option of a provider, column of the fault in the line, words of the message, words of the hint
    ("extra_body: {model: x}", 18, "model is not yours to set here", "model: of the provider or the job"),
    ("extra_body: {messages: []}", 18, "messages is not yours to set here", "task:"),
    ("extra_body: {tools: []}", 18, "tools is not yours to set here", "read:"),
    ("extra_body: {tool_choice: auto}", 18, "tool_choice is not yours to set here", "last_attempt:"),
    ("extra_body: {functions: []}", 18, "functions is not yours to set here", "read:"),
    ("extra_body: {function_call: auto}", 18, "function_call is not yours to set here", "last_attempt:"),
    ("extra_body: {stream: true}", 18, "stream is not yours to set here", "as a whole"),
    ("extra_body: {stream_options: {}}", 18, "stream_options is not yours to set here", "as a whole"),
    ("extra_body: {top_p: 1, n: 2}", 28, "n is not yours to set here", "one reply"),
    ("extra_body: {max_tokens: 5}", 18, "max_tokens is not yours to set here", "use max_tokens:"),
    ("extra_body: {max_completion_tokens: 5}", 18, "max_completion_tokens is not", "use max_completion_tokens:"),
    ("extra_body: {temperature: no}", 18, "temperature is not yours to set here", "use temperature:"),
    ("extra_body: {idempotency_key: x}", 18, "idempotency_key is not yours", "use idempotency_header:"),
    ("extra_body: {a: {b: [1, no]}}", 29, "found no, which YAML reads in more than one way", "text in quotes"),
    ("extra_body: {a: 1e-3}", 21, "found 1e-3, which YAML reads in more than one way", "digits and a point"),
    ("extra_body: {a: [~]}", 22, "expected a value, found nothing", ""),
    ("extra_body: {a: {b: 1, b: 2}}", 28, "this key stands already", "keep one"),
    ("extra_body: {a: {12: x}}", 22, "this key is not text for every reader", QUOTES),
    ("extra_body: {a: " + "[" * 8 + "1" + "]" * 8 + "}", 28, "nested deeper than 8", ""),
    ("extra_body: {a: " + "x" * 16 * 1024 + "}", 17, "longer than 16384 bytes", ""),
    ("headers: {A: x, B: ' '}", 24, "B: the value is missing or blank", ""),
    ("headers: {A: sk-pa55pa55}", 18, "looks like a key", "{env: NAME}"),
    ("headers: {Authorization: x}", 15, "Authorization has an option of its own", "key: {env: NAME}"),
    ("headers: {X-A: x, x-a: y}", 23, "x-a stands already there", "keep one"),
]


@pytest.mark.parametrize(("option", "column", "message", "hint"), OPTION_FAULTS)
def test_fault_inside_an_option_is_told_where_it_stands(option, column, message, hint):
    text = f"providers:\n  own:\n    base_url: https://h\n    {option}\njobs:\n{GOOD}"
    (problem,) = parse(text).problems
    assert (problem.line, problem.column) == (4, column)
    assert message in problem.message
    assert hint in problem.hint
    assert "pa55" not in repr(problem)


HARMLESS = [
    "sk-SK",
    "My Nightly Jobs 2026",
    "https://example.com/My-Jobs-2026/x?a=b",
    "2026-11-29T06:00:00Z",
    "a;q=1",
]


@pytest.mark.parametrize("value", HARMLESS)
def test_header_that_is_no_key_is_taken(value):
    file = parse(f"providers: {{own: {{base_url: https://h, headers: {{X-A: ' {value} '}}}}}}\njobs:\n{GOOD}")
    assert file.providers["own"].headers == (("X-A", value),)


def test_options_arrive_as_the_fields_of_a_request():
    text = (
        "providers:\n  own:\n    base_url: https://h\n    temperature: 1\n    max_completion_tokens: 7\n"
        "    headers: {X-B: b, api-key: {env: AZURE_KEY}}\n    ca_file: tls/own.pem\n    idempotency_header: X-Once\n"
        "    replay_fields: drop\n    context_tokens: 32768\n    extra_body:\n      top_p: 0.9\n      seed: 7\n"
        '      stop: ["a", b]\n      thinking: {type: enabled, deep: {"12": [true, -1.5, "no", {}]}}\n'
        f"jobs:\n{GOOD}"
    )
    own = parse(text).providers["own"]
    assert own.options == {
        "max_completion_tokens": 7,
        "temperature": 1.0,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["a", "b"],
        "thinking": {"type": "enabled", "deep": {"12": [True, -1.5, "no", {}]}},
    }
    assert own.headers == (("X-B", "b"), ("api-key", KeySource(kind="env", name="AZURE_KEY")))
    assert (own.ca_file, own.idempotency_header) == (Path("/srv/app/tls/own.pem"), "X-Once")
    assert (own.replay_fields, own.context_tokens) == ("drop", 32768)
    other = text.replace("X-B: b, api-key: {env: AZURE_KEY}", "api-key: {env: AZURE_KEY}, X-B: b")
    other = other.replace("      top_p: 0.9\n      seed: 7\n", "      seed: 7\n      top_p: 0.9\n")
    assert parse(other).providers["own"] == own
    assert (repr(parse(other).providers["own"]), hash(own)) == (repr(own), hash(parse(text).providers["own"]))


def test_long_name_of_a_header_is_no_key_and_values_may_be_nested_eight_deep():
    options = "headers: {Helicone-Property-Session1: x}, extra_body: {a: " + "[" * 7 + "1" + "]" * 7 + "}"
    file = parse(f"providers: {{own: {{base_url: https://h, {options}}}}}\njobs:\n{GOOD}")
    assert file.providers["own"].headers == (("Helicone-Property-Session1", "x"),)
    assert file.providers["own"].options == {"a": [[[[[[[1]]]]]]]}


def test_options_of_mandapi_stay_its_own():
    plain = parse("jobs: {a: {task: x, checkpoint: c}}").jobs["a"].provider
    own = parse("providers: {mandapi: {temperature: 0}}\njobs: {a: {task: x, checkpoint: c}}").jobs["a"].provider
    assert (plain.options, own.options, own.key) == ({}, {"temperature": 0}, plain.key)


@pytest.mark.parametrize("base_url", ["https://h/v1/", "'https://h/v1 '", "https://h/v1"])
def test_slash_and_blank_at_the_end_of_a_base_url_are_fine(base_url):
    file = parse(f"providers: {{own: {{base_url: {base_url}}}}}\njobs:\n{GOOD}")
    assert file.providers["own"].base_url == "https://h/v1"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:1/v1",
        "http://127.0.0.1:8080",
        "http://127.9.9.9/v1",
        "http://[::1]:8080/v1",
        "http://2130706433/",
        "HTTPS://Example.com/v1",
    ],
)
def test_https_and_loopback_are_addresses(url):
    check_base_url(url, allow_http=False)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("", "https://"),
        ("https://", "host"),
        ("https://h:99999", "not a URL"),
        ("https://[::1", "not a URL"),
        ("https://h:0", "port 0"),
        ("https://a b", "blanks"),
        ("https://h\\@evil", "backslashes"),
        ("file:///etc/passwd", "https://"),
        ("https://@h/", "user name"),
        ("https://h/?", "path"),
        ("https://h/#", "path"),
        ("https://169.254.1.1", "link-local"),
        ("https://2852039166", "link-local"),
        ("https://0xA9FEA9FE", "link-local"),
        ("https://[fe80::1]", "link-local"),
        ("https://[fe80::1%25eth0]", "link-local"),
        ("https://[::ffff:169.254.169.254]", "link-local"),
    ],
)
def test_other_addresses_are_refused_even_in_a_safe_network(url, word):
    with pytest.raises(ValueError, match=word):
        check_base_url(url, allow_http=True)


@pytest.mark.parametrize("url", ["http://192.168.1.2/v1", "http://localhost.evil.example", "http://0.0.0.0"])
def test_plain_http_needs_leave(url):
    check_base_url(url, allow_http=True)
    with pytest.raises(ValueError, match="allow_http"):
        check_base_url(url, allow_http=False)


def test_mandapi_is_built_in_and_overridden_field_by_field():
    plain = parse("jobs: {a: {task: x, checkpoint: c}}").jobs["a"].provider
    assert (plain.name, plain.base_url) == ("mandapi", "https://api.mandapi.com/v1")
    assert (plain.model, plain.model_env) == (None, "MANDAPI_MODEL_ID")
    assert plain.key == KeySource(kind="env", name="MANDAPI_API_KEY")
    own = (
        parse("providers: {mandapi: {model: m, timeout: 9.5}}\njobs: {a: {task: x, checkpoint: c}}").jobs["a"].provider
    )
    assert (own.base_url, own.key, own.model, own.timeout) == (plain.base_url, plain.key, "m", 9.5)


def test_bad_override_of_mandapi_blocks_the_jobs_that_name_no_provider():
    file = parse(f"providers: {{mandapi: {{timeout: 0}}}}\njobs:\n{GOOD}  a: {{task: x, checkpoint: c}}\n")
    assert (list(file.jobs), list(file.refused)) == (["good"], ["a"])
    assert (file.refused["a"].line, file.refused["a"].column) == (4, 3)


def test_demo_is_built_in_and_stays_as_it_is():
    assert parse("jobs: {a: {task: x, checkpoint: c, provider: demo}}").jobs["a"].provider.offline
    file = parse("providers: {demo: {base_url: https://h}}\njobs: {a: {task: x, checkpoint: c, provider: demo}}")
    assert [(p.job, p.line) for p in file.problems] == [(None, 1), ("a", 2)]
    assert file.providers["demo"].offline


def test_all_values_arrive():
    file = parse(
        "live: true\ntimezone: Asia/Shanghai\nmax_parallel: 3\nstop_wait: 2m\nbudget: {requests_per_day: 0}\n"
        "after_failure: []\n"
        "providers:\n  own: {base_url: http://h, allow_http: true, model: m, key: {file: k}, timeout: 10m,"
        " max_tokens: 5, proxy: env, last_attempt: omit}\n"
        "jobs:\n  a: {task: x, checkpoint: c/a, provider: own, model: n, schedule: '0 9 * * *',"
        " timezone: Europe/Madrid, read: [docs/, ./x/../y.md, /abs], after_failure: [1m, 2h],"
        " catch_up: false, max_attempts: 2}\n"
        "  b: {task: y, checkpoint: c/b}\n"
    )
    a, b, own = file.jobs["a"], file.jobs["b"], file.providers["own"]
    assert (file.live, file.max_parallel, file.stop_wait, file.requests_per_day) == (True, 3, 120.0, 0)
    assert (own.allow_http, own.model, own.timeout, own.max_tokens) == (True, "m", 600.0, 5)
    assert (own.proxy, own.last_attempt, own.key) == ("env", "omit", KeySource(kind="file", name="/srv/app/k"))
    assert (a.model, a.schedule, a.timezone) == ("n", "0 9 * * *", "Europe/Madrid")
    assert (a.after_failure, a.catch_up, a.max_attempts, a.provider) == ((60, 7200), False, 2, own)
    assert [(s.name, str(s.path)) for s in a.read] == [
        ("docs", "/srv/app/docs"),
        ("y.md", "/srv/app/y.md"),
        ("/abs", "/abs"),
    ]
    assert (b.timezone, b.after_failure, b.schedule) == ("Asia/Shanghai", (), "every 5m")
    assert [str(path) for path in file.private] == ["/srv/app/c", "/srv/app/c/rehearsal", "/srv/app/k"]


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [
        ("", "/srv/app/jobs.yaml", "/srv/app/c/x"),
        ("", "/srv/app/config/jobs.yaml", "/srv/app/c/x"),
        ("base: ..\n", "/srv/app/jobs.yaml", "/srv/c/x"),
        ("base: here\n", "/srv/app/config/jobs.yaml", "/srv/app/config/here/c/x"),
        ("base: //var/lib/../x/\n", "/srv/app/jobs.yaml", "/var/x/c/x"),
    ],
)
def test_relative_paths_start_at_the_base(base, path, expected):
    found = parse(f"{base}jobs: {{a: {{task: x, checkpoint: ./c//x}}}}", Path(path))
    assert str(found.jobs["a"].checkpoint) == expected


def test_paths_do_not_depend_on_the_current_folder_or_a_link(tmp_path, monkeypatch):
    real = tmp_path / "project" / "config" / "jobs.yaml"
    real.parent.mkdir(parents=True)
    real.write_text("jobs: {a: {task: x, checkpoint: c/x.json}}")
    link = tmp_path / "elsewhere.yaml"
    link.symlink_to(real)
    found = set()
    for folder, path in (("/", real), (tmp_path, link), (real.parent, Path("jobs.yaml")), (tmp_path, Path(link.name))):
        monkeypatch.chdir(folder)
        file = read_job_file(path)
        found.add((file.path, file.jobs["a"].checkpoint))
    assert found == {(real, tmp_path / "project" / "c" / "x.json")}
    link.unlink()
    link.symlink_to(real)
    real.write_text("jobs: {a: }")
    assert read_job_file(link).problems[0].file == str(link)


@pytest.mark.parametrize("second", ["./c/../c/x", "link/x", "/ABS/c/x", "//ABS/c/x", "c//x"])
def test_two_jobs_on_one_real_path_are_refused_at_the_second(tmp_path, second):
    (tmp_path / "c").mkdir()
    (tmp_path / "link").symlink_to("c")
    second = second.replace("/ABS", str(tmp_path))
    text = f"jobs:\n  a: {{task: x, checkpoint: c/x}}\n  b: {{task: y, checkpoint: {second}}}\n"
    file = parse(text, tmp_path / "jobs.yaml")
    assert list(file.jobs) == ["a"]
    problem = file.refused["b"]
    assert (problem.line, problem.column) == (3, 28)
    assert "job a (line 2)" in problem.message


def test_rehearsal_of_one_job_on_the_file_of_another_is_refused():
    text = "jobs:\n  a: {task: x, checkpoint: c/x}\n  b: {task: y, checkpoint: c/rehearsal/x, provider: demo}\n"
    assert list(parse(text).refused) == ["b"]
    assert not parse(text.replace("c/x}", "c/x, provider: demo}")).refused


def test_rehearsal_folders_of_two_jobs_that_are_one_by_a_link_are_refused(tmp_path):
    for folder in ("a", "b", "r"):
        (tmp_path / folder).mkdir()
    for folder in ("a", "b"):
        (tmp_path / folder / "rehearsal").symlink_to(tmp_path / "r")
    text = "jobs: {a: {task: x, checkpoint: a/x}, b: {task: y, checkpoint: b/x}}"
    assert list(parse(text, tmp_path / "jobs.yaml").refused) == ["b"]


def test_digest_is_of_the_bytes():
    one, other = parse(f"jobs:\n{GOOD}"), parse(f"jobs:\n{GOOD}\n")
    assert len(one.digest) == 64
    assert one.digest != other.digest


@pytest.fixture
def config():
    """A jobs.yaml in a folder that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "jobs.yaml"
        path.write_text(f"jobs:\n{GOOD}")
        path.chmod(0o644)
        yield path


@contextlib.contextmanager
def acting_as(uid):
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def test_file_of_the_caller_or_of_root_is_read(config):
    assert read_job_file(config).jobs
    with acting_as(NOBODY):
        assert read_job_file(config).jobs
    os.chown(config, NOBODY, NOBODY)
    with acting_as(NOBODY):
        assert read_job_file(config).jobs


@pytest.mark.parametrize("caller", [0, 12345])
def test_file_of_another_user_is_refused(config, caller):
    os.chown(config, NOBODY, NOBODY)
    with acting_as(caller), pytest.raises(WrongUser, match="nobody"):
        read_job_file(config)


@pytest.mark.parametrize(("mode", "chmod"), [(0o646, "chmod go-w"), (0o666, "chmod go-w"), (0o664, "chmod g-w")])
def test_file_that_others_can_write_is_refused(config, mode, chmod):
    os.chown(config, 0, NOBODY)
    config.chmod(mode)
    with pytest.raises(WritableByOthers, match=chmod):
        read_job_file(config)


def test_file_that_cannot_be_read_is_a_refusal_of_permission(config):
    config.chmod(0o600)
    with acting_as(NOBODY), pytest.raises(PermissionRefused, match="nobody"):
        read_job_file(config)


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "loop", "nul", "long", "socket"])
def test_what_is_no_file_is_unreadable(tmp_path, kind):
    path = tmp_path / "jobs.yaml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "nul":
        path = tmp_path / "a\0b"
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "long":
        path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(JobFileUnreadable) as caught:
        read_job_file(path)
    assert str(path) in str(caught.value)


def test_shipped_file_is_valid_and_runs_offline():
    file = parse(SHIPPED.read_bytes(), SHIPPED)
    assert (list(file.jobs), file.problems, file.live) == (["shipping-question", "welcome-note"], (), False)
    assert all(entry.provider.offline and entry.schedule == "every 2s" for entry in file.jobs.values())
    assert all(source.path.is_dir() for entry in file.jobs.values() for source in entry.read)
    assert {entry.checkpoint.parent for entry in file.jobs.values()} == {ROOT / "checkpoints"}
    assert SHIPPED.read_text().startswith("# yaml-language-server: $schema=jobs.schema.json\n")


def test_examples_in_the_comments_of_the_shipped_file_are_valid():
    text = re.sub(r"^(  )?# (?=release-notes:|providers:|budget:|  )", r"\1", SHIPPED.read_text(), flags=re.MULTILINE)
    file = parse(text, SHIPPED)
    assert file.problems == ()
    assert (file.jobs["release-notes"].provider.name, file.requests_per_day) == ("mandapi", 200)
    assert file.providers["local"].model == "qwen3"


def test_shipped_schema_is_the_one_of_the_code():
    shipped = json.loads((SHIPPED.parent / "jobs.schema.json").read_text())
    assert shipped == json_schema(), 'rewrite it with "make schema"'


def test_schema_knows_each_key_and_never_null():
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    shapes = [schema, *schema["$defs"].values()]
    assert all(shape["additionalProperties"] is False for shape in shapes)
    assert all(
        "$ref" in entry or "description" in entry for shape in shapes for key, entry in shape["properties"].items()
    )
    assert "null" not in json.dumps(schema)


def test_ten_thousand_jobs_are_read():
    lines = ["jobs:"]
    for number in range(10_000):
        lines += [
            f"  job-{number}:",
            f'    task: "Summarise the log number {number}"',
            f"    checkpoint: checkpoints/{number // 100}/job-{number}.json",
            "    provider: demo",
            f'    schedule: "{number % 60} {number % 24} * * *"',
            "    timezone: Europe/Madrid",
            "    read: [docs/]",
            "    catch_up: false",
        ]
    assert len(parse("\n".join(lines)).jobs) == 10_000


PIECES = [
    *("jobs:\n", "  a:\n", "  b: ", "    task: ", "    checkpoint: c/x\n", "x\n", "{", "}", "[", "]", ", ", ": ", "- "),
    *("providers: {", "key: {env: ", "base_url: https://h\n", "&a ", "*a ", "!!int ", "<<: ", "? ", "---\n", "...\n"),
    *("null", "12:30", "0x1f", "1e3", "9" * 30, "'", '"', "\\ud800", "\\0", "#", " #", "\t", "\n", "|", ">", "é", "@"),
    *("%YAML 1.1\n", "live: ", "true\n", "\r\n", "\u2028", "\ufeff", "schedule: '*/5 * * * *'\n", "read: [", "~\n"),
]
WORD = st.sampled_from(
    [
        "jobs",
        "providers",
        "task",
        "checkpoint",
        "provider",
        "model",
        "key",
        "env",
        "file",
        "base",
        "read",
        "a",
        "timeout",
    ]
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(PIECES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD | st.text(), inner, max_size=4),
    max_leaves=12,
)


def accepted_or_unreadable(body: bytes) -> None:
    with contextlib.suppress(JobFileUnreadable):
        parse(body)


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_is_a_file_or_unreadable(text):
    accepted_or_unreadable(text.encode())


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_file_or_unreadable(body):
    accepted_or_unreadable(body)


@settings(max_examples=200, deadline=None, database=None, derandomize=True)
@given(st.dictionaries(WORD, VALUE, max_size=4), st.dictionaries(WORD, VALUE, max_size=6))
def test_any_data_is_a_file_or_unreadable(top, entry):
    data = {"jobs": {"a": {"task": "x", "checkpoint": "c"} | entry}} | top
    accepted_or_unreadable(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


NAMED = st.dictionaries(st.text() | st.sampled_from(["X-A", "x-a", "Host", "env", "n", "stream"]), VALUE, max_size=4)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(NAMED | VALUE, NAMED | VALUE, VALUE, VALUE)
def test_any_options_are_taken_as_a_request_can_carry_them_or_refused(headers, body, temperature, own):
    entry = {"base_url": "https://h", "headers": headers, "extra_body": body}
    entry |= {name: value for name, value in (("temperature", temperature), ("idempotency_header", own)) if value}
    data = {"providers": {"own": entry}, "jobs": {"good": {"task": "x", "checkpoint": "c"}}}
    try:
        providers = parse(json.dumps(data).encode("utf-8", "replace")).providers
    except JobFileUnreadable:
        return
    if "own" in providers:
        assert providers["own"].options.items() >= body.items()
        hash(providers["own"])
        for name, value in providers["own"].headers:
            assert f"{name}: {value}".isascii()
            assert name.lower() not in ("host", "authorization")


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.integers(0, SHIPPED.stat().st_size), st.integers(0, 40), st.sampled_from(PIECES))
def test_any_edit_of_the_shipped_file_is_a_file_or_unreadable(start, length, piece):
    body = SHIPPED.read_bytes()
    accepted_or_unreadable(body[:start] + piece.encode() + body[start + length :])

"""Everything that is read from outside, fed with anything: our own refusals only, within a second and 256 MB each."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import json
import random
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler import attempt
from scheduler.advice import advise
from scheduler.document import InvalidDocument, dump, parse
from scheduler.errors import AskFailed, JobFileUnreadable
from scheduler.job import JobFile, Problem, Provider
from scheduler.jobfile import parse_job_file
from scheduler.keys import one_line, without
from scheduler.mend import read_document
from scheduler.points import moment_of, next_of
from scheduler.positions import LOADER
from scheduler.reply import REPLY_LIMIT, judge_response
from scheduler.state import OUTCOMES, admit, new_state
from scheduler.tools import Tool
from tests.faults.cases import Begin, Cases, sized
from tests.faults.damaged_samples import SCRIPTS, make_sample
from tests.faults.fuzz_hostile import FILLINGS, Wire, documents, job_files, largest, replies
from tests.faults.in_memory import in_memory
from tests.support import ROOT

HARNESS = "fuzz"
SECONDS, MEMORY, BATCH = 1.0, 256 * 1024 * 1024, 500
TOO_LONG = "it took too long"
CHUNK = 64 * 1024  # what may come with the byte that is one too many
NOW = "2026-03-02T09:00:00Z"
PLACE = Path("/srv/app/jobs.yaml")
BREAKS = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


class TooSlow(BaseException):
    """An input took more than its second."""


# ---- what is read, and what must be so of each input


def read_jobs(body: bytes) -> str:
    try:
        found = parse_job_file(body, PLACE)
    except JobFileUnreadable as error:
        check_places(body, error.problems)
        return "refused"
    assert parse_job_file(body, PLACE) == found, "read twice, it says two things"
    check_places(body, found.problems)
    check_points(found)
    return "accepted" if found.jobs or found.series else "refused"


def check_places(body: bytes, problems: Iterable[Problem]) -> None:
    """Each finding names a line that exists, and a column of it."""
    lines = BREAKS.split(body.decode("utf-8", "replace").removeprefix("\ufeff"))
    for problem in problems:
        assert 1 <= problem.line <= len(lines), f"line {problem.line} of {len(lines)}: {problem.message}"
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1, f"{problem}: {lines[problem.line - 1]!r}"


def check_points(found: JobFile) -> None:
    """What a schedule says can be asked of each job."""
    for job in found.entries:
        next_of(job, moment_of(1_800_000_000), moment_of(1_700_000_000))


def read_documents(body: bytes) -> str:
    for read in (parse, read_document):
        with contextlib.suppress(InvalidDocument):
            state = read(body)
            assert parse(dump(state)) == state, "written, it reads as another"
            return "accepted"
    return "refused"


PROVIDER = Provider(name="p", base_url="https://h.example/v1")
LOOK = Tool("look", "Look at nothing.", {"type": "object", "properties": {}}, lambda _: "nothing to see")
ORDER = attempt.Order(task="t", model="m", tools=(LOOK,))
FRESH = new_state("t", "m")
BUILT = attempt.next_request(FRESH, ORDER)
COUNTED = admit(FRESH, 1, point=None, started=NOW, sent=BUILT.sent)


def read_reply(wire: Wire) -> str:
    """Take a reply from the wire on through the same functions as a slice, up to the bytes that would be stored."""
    status, headers, body = wire
    body = body[: REPLY_LIMIT + CHUNK]  # the gateway reads no further
    found = judge_response(status, headers, body)
    if isinstance(found, AskFailed):
        found.reason = one_line(found.reason, ["sk-canary"], 300) + advise(found, body, BUILT.request, PROVIDER)
        settled = attempt._failed(COUNTED, ORDER, found)
    else:
        reply = {name: without(value, ["sk-canary"]) for name, value in found.items()}
        settled = attempt._replied(COUNTED, ORDER, BUILT, reply, lambda _: None)
    assert parse(dump(settled)) == settled, "stored, it reads as another"
    outcome = settled["history"][-1]["outcome"]
    assert outcome in OUTCOMES, f"the outcome {outcome}"
    return str(outcome)


# ---- the harness


@contextlib.contextmanager
def roomy() -> Iterator[None]:
    """Let this process have so much more memory than it has now, and no more.

    What it holds now is left out of garbage collection: a program alone has no heap of a whole suite to search.
    """
    gc.collect()
    gc.freeze()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        gc.unfreeze()


@contextlib.contextmanager
def timed(seconds: float) -> Iterator[None]:
    """Raise TooSlow in a block that computes for longer: a busy machine does not count."""

    def late(_: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fault(read: Callable[[Any], str], given: Any, seconds: float = SECONDS) -> tuple[str, str]:
    """Read one input; return what came of it, and what is wrong."""
    found = read_once(read, given, seconds)
    # A busy machine makes computing dearer, too, but not twice.
    return read_once(read, given, seconds) if found[1] == TOO_LONG else found


def read_once(read: Callable[[Any], str], given: Any, seconds: float) -> tuple[str, str]:
    try:
        with timed(seconds):
            return read(given), ""
    except TooSlow:
        return "", TOO_LONG
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "", f"{type(error).__name__}: {str(error)[:500]}"


def fuzz(case: Cases, kind: str, read: Callable[[Any], str], inputs: Iterator[Any], number: int) -> None:
    while number > 0:
        with roomy():
            for given in itertools.islice(inputs, min(BATCH, number)):
                came, wrong = fault(read, given)
                assert not wrong, f"{kind}: {wrong}: {given!r:.5000}"
                case(f"{kind} {came}" if kind != "replies" else kind)
        number -= BATCH


KINDS: dict[str, tuple[Callable[[Any], str], Callable[[random.Random], Iterator[Any]], int]] = {
    "jobs.yaml": (read_jobs, job_files, sized(400, 15_000, 60_000)),
    "documents": (read_documents, lambda chance: made_documents(chance), sized(800, 40_000, 210_000)),
    "replies": (read_reply, replies, sized(800, 45_000, 230_000)),
}


def made_documents(chance: random.Random) -> Iterator[bytes]:
    with in_memory() as folder:
        samples = [make_sample(folder, name) for name in SCRIPTS]
    return documents(samples, chance)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_anything_is_refused_or_read_and_nothing_else_happens(kind: str, seed: int, harness: Begin) -> None:
    read, inputs, number = KINDS[kind]
    with harness(HARNESS, least=number) as case:
        fuzz(case, kind, read, inputs(random.Random(seed)), number)


@pytest.mark.parametrize("filling", FILLINGS)
def test_a_reply_of_the_largest_size_is_read_in_time(filling: str, harness: Begin) -> None:
    with harness(HARNESS) as case, roomy():
        for body in largest(FILLINGS[filling]):
            for status in (400, 200, 500)[: sized(1, 3, 3)]:
                _, wrong = fault(read_reply, (status, [], body))
                assert not wrong, f"{status}, {wrong}: {body[:200]!r}"
                case("the largest replies")


# ---- the same by hypothesis, which makes what fails smaller

EXAMPLES = sized(60, 1_000, 5_000)
SETTINGS = settings(
    max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
LINES = st.lists(
    st.sampled_from(
        ["jobs:", "  a:", "    task: x", "    checkpoint: c.json", "    provider: demo", "- x", "? y", "live:"]
    )
    | st.text(alphabet=st.sampled_from(" \t\n:-#&*!|>'\"%@`{}[],?~\u2028\x85é0a1x"), max_size=15),
    max_size=12,
)


def test_nothing_that_hypothesis_finds_breaks_a_reader(harness: Begin) -> None:
    with harness(HARNESS, least=3 * EXAMPLES) as case:

        def check(read: Callable[[Any], str], given: Any) -> None:
            _, wrong = fault(read, given)
            assert not wrong, f"{wrong}: {given!r:.5000}"
            case("by hypothesis")

        @SETTINGS
        @given(LINES.map("\n".join) | st.text())
        def jobs(text: str) -> None:
            check(read_jobs, text.encode("utf-8", "replace"))

        @SETTINGS
        @given(JSON.map(json.dumps).map(str.encode) | st.binary())
        def bodies(body: bytes) -> None:
            check(read_documents, body)

        @SETTINGS
        @given(st.integers(100, 599), JSON, st.sampled_from(["message", "error", "choices", "usage", "content"]))
        def wires(status: int, value: Any, name: str) -> None:
            message = {"role": "assistant", "content": "fin"} | ({"content": value} if name == "content" else {})
            body = {"choices": [{"message": message}]} | {name: value}
            check(read_reply, (status, [], json.dumps(body).encode()))

        with roomy():
            jobs()
            bodies()
            wires()


def test_nothing_that_atheris_finds_breaks_a_reader(tmp_path: Path, harness: Begin) -> None:
    number = sized(0, 20_000, 100_000)
    if not number or importlib.util.find_spec("atheris") is None:
        return  # it is no part of what a test needs
    with harness(HARNESS) as case:
        for kind in KINDS:
            options = [f"-runs={number}", "-seed=1", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
            command = [sys.executable, "-m", "tests.faults.fuzz_atheris", kind, *options]
            ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=3000)
            assert ended.returncode == 0, ended.stderr[-5000:]
            assert f"Done {number} runs" in ended.stderr
            case("by atheris", number)


# ---- controls


def plain_yaml(body: bytes) -> str:
    with contextlib.suppress(yaml.YAMLError):
        yaml.load(body, LOADER)
    return ""


def plain_json(body: bytes) -> str:
    with contextlib.suppress(json.JSONDecodeError):
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    return ""


def endless(wire: Wire) -> str:
    while b"choices" in wire[2]:
        pass
    return ""


def greedy(wire: Wire) -> str:
    return str(len(bytes(2 * MEMORY * (b"choices" in wire[2]))))


CONTROLS: dict[str, tuple[Callable[[Any], str], str, str]] = {
    "PyYAML's safe loader with YAMLError caught": (plain_yaml, "jobs.yaml", "Error"),
    "json.loads with JSONDecodeError caught": (plain_json, "documents", "Error"),
    "a reader that does not end": (endless, "replies", TOO_LONG),
    "a reader that takes 512 MB": (greedy, "replies", "MemoryError"),
}


@pytest.mark.parametrize("broken", CONTROLS)
def test_a_careless_reader_is_caught(broken: str, harness: Begin) -> None:
    read, kind, wrong = CONTROLS[broken]
    with harness(HARNESS) as case, roomy():
        inputs = itertools.islice(KINDS[kind][1](random.Random(3)), 500 if wrong == "Error" else 20)
        found = [fault(read, given, 0.02 if read is endless else SECONDS)[1] for given in inputs]
        case.control(broken, sum(wrong in text for text in found))

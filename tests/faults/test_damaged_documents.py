"""Checkpoint files damaged by the hundred thousand: each is refused, and left as it is."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import checkpoint, reader, resume_once
from scheduler.checkpoint import Checkpoint, hold
from scheduler.document import InvalidDocument, parse
from scheduler.errors import CheckpointUnknown
from scheduler.ledger import NAME
from scheduler.reader import peek
from scheduler.standing import Record
from tests.faults.cases import Begin, sized
from tests.faults.damaged_samples import MODEL, SCRIPTS, Sample, damages, flips, make_sample, put
from tests.faults.in_memory import in_memory
from tests.support import Project, chat_server, face, rows, tool_calls

HARNESS = "damaged documents"
# Which of the bits and cuts (all, or every so manieth), how many by chance, and the share of the minimum.
SIZES = dict.fromkeys(SCRIPTS, (sized(29, 1, 1), sized(250, 17_000, 64_000), sized(400, 21_000, 67_000)))
SIZES["long"] = (sized(301, 1, 1), sized(250, 4_000, 29_000), sized(400, 75_000, 100_000))


@pytest.fixture(scope="module")
def samples() -> Iterator[dict[str, Sample]]:
    with in_memory() as folder:
        yield {name: make_sample(folder, name) for name in SCRIPTS}


def silent(_: object) -> None:
    pass


class Sent(AssertionError):
    """A damaged file led to a request."""


def sending(_: object) -> dict[str, Any]:
    raise Sent


def load(sample: Sample) -> None:
    Checkpoint(sample.path).load(silent)


def load_locked(sample: Sample) -> None:
    with hold(sample.path) as held:
        held.load(silent)


def run(sample: Sample) -> None:
    resume_once(sample.task, sample.path, sending, MODEL)


def look(sample: Sample) -> None:
    peek(sample.path)


WAYS: tuple[Callable[[Sample], None], ...] = (load_locked, load, look, load, run, load, load)  # a lock costs the most


def fault(sample: Sample, bad: bytes, way: Callable[[Sample], None]) -> str:
    """Put a file in place of the checkpoint and open it; say what is wrong, nothing where it is refused and left."""
    before = put(sample.path, bad)
    try:
        way(sample)
        found = "accepted"
    except CheckpointUnknown:
        found = ""
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return found or ("" if face(sample.path) == before else "changed")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_damaged_file_is_refused_and_left_as_it_is(name: str, samples: dict[str, Sample], harness: Begin) -> None:
    sample = samples[name]
    known = published(sample.path)
    assert known == {hashlib.sha256(body).hexdigest() for body in sample.versions}
    foreign = [body for other in samples.values() if other is not sample for body in other.versions]
    ledger = all_rows(sample.path)
    step, by_chance, least = SIZES[name]
    with harness(HARNESS, least) as case:
        for number, (kind, bad) in enumerate(damages(sample, foreign, step, by_chance, seed=1)):
            found = fault(sample, bad, WAYS[number % len(WAYS)])
            assert not found, f"{name}, damage {number} ({kind}): {found}: {bad[:2000]!r}"
            case(kind)
        assert all_rows(sample.path) == ledger
        for older in (None, *sample.versions):
            sample.path.unlink()
            if older is not None:
                sample.path.write_bytes(older)
            assert peek(sample.path).behind == (older != sample.body)
            assert older is None or sample.path.read_bytes() == older  # a reader puts nothing back
            load_locked(sample)
            assert sample.path.read_bytes() == sample.body
            case("legal ones, put back")


def published(path: Path) -> set[str]:
    """The digests of what was published under a name."""
    query = "SELECT digest FROM version WHERE checkpoint = ?"
    return {digest for (digest,) in rows(path.with_name(NAME), query, path.name)}


def all_rows(path: Path) -> list[Any]:
    """All that a ledger says of documents and attempts."""
    tables = ("document", "version", "admission", "archive", "orphan")
    return [rows(path.with_name(NAME), f"SELECT * FROM {table}") for table in tables]


# ---- controls


def by_meaning(path: Path, body: bytes | None, record: Record | None) -> bool:
    """Compare what the file says instead of its bytes."""
    try:
        same = body is not None and record is not None and json.loads(body) == json.loads(record.body)
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise CheckpointUnknown(path=path, detail="another meaning")
    return False


def reset(path: Path, body: bytes | None, record: Record | None) -> bool:
    """Take what is no document for an older one."""
    try:
        parse(body or b"")
    except InvalidDocument:
        return True
    raise CheckpointUnknown(path=path, detail="unknown")


@pytest.mark.parametrize("broken", [by_meaning, reset])
def test_a_laxer_load_is_caught(
    broken: Any, samples: dict[str, Sample], harness: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (checkpoint, reader):
        monkeypatch.setattr(module, "is_behind", broken)
    sample = samples["first"]
    with harness(HARNESS) as case:
        task = itertools.islice(flips(sample.body), 400)  # with an escape in it, which some flips only spell anew
        stream = itertools.chain(task, damages(sample, samples["answer"].versions, 29, 100, seed=2))
        caught = [kind for kind, bad in stream if fault(sample, bad, load)]
        assert {"bits", "spelled anew"} <= {*caught}
        case.control(str(broken.__doc__), len(caught))
    put(sample.path, sample.body)


# ---- the same through the real program

CALLS = tool_calls(("c1", "read_file", '{"größe": "é"}'))
PROGRAMS = sized(5, 60, 200)


def test_the_program_refuses_a_damaged_file_and_names_the_ways_out(project: Project, harness: Begin) -> None:
    names = [f"job-{number}" for number in range(PROGRAMS)]
    with chat_server(CALLS) as chat, harness("damaged documents, the real program", least=PROGRAMS) as case:
        project.live(chat.url, {name: {"task": f"Größe {name}?"} for name in names})
        project.run("run", *names)
        assert chat.count == len(names)
        chance = random.Random(3)
        foreign = [project.path(name).read_bytes() for name in names]
        for number, name in enumerate(names):
            path = project.path(name)
            sample = Sample("", path, (foreign[number],))
            others = foreign[:number] + foreign[number + 1 :]
            found = dict(damages(sample, others[:20], 1 + 2 * number, 100, seed=number))  # the last one of each kind
            kind, bad = chance.choice(sorted(found.items()))
            before = put(path, bad)
            said = project.run("run", name, code=65).stderr
            lines = [line for line in said.splitlines() if str(path) in line]
            assert len(lines) == 1, said
            assert all(way in lines[0] for way in ('"resumed repair"', '"resumed adopt"')), said
            assert face(path) == before, f"{kind}: {bad!r}"
            case(kind)
        assert chat.count == len(names)
        put(project.path("job-0"), foreign[0])  # without damage
        with pytest.raises(AssertionError, match="exit 0, not 65"):
            project.run("run", "job-0", code=65)
        assert chat.count == len(names) + 1
        case.control("a file without damage", 1)

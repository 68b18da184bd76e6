"""The protocol holds in every order of events, three wrong ones do not, and the code does what the model says."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import get_args

import pytest

from scheduler import checkpoint
from scheduler.due import plan_job
from scheduler.jobfile import read_job_file
from tests.faults.cases import Begin, sized
from tests.faults.crash_scenarios import close_ledgers
from tests.faults.in_memory import in_memory
from tests.faults.protocol_explored import explore
from tests.faults.protocol_model import Variant, World, steps
from tests.faults.protocol_walked import Walk
from tests.support import Project

NAME = "protocol"
WALKED = "protocol, walked by the code"
MOST = sized(2, 4, 4)  # attempts of an allowance
WALKS = sized(24, 400, 4_000)  # ways through the code
STEPS = 60
README = Path(__file__).with_name("README.md")


@pytest.mark.timeout(sized(600, 2_400, 2_400))  # seconds, unless the machine has much else to do
def test_no_order_of_events_breaks_a_promise(harness: Begin) -> None:
    with harness(NAME, sized(50_000, 100_000, 100_000)) as tried:
        found = explore(MOST)
        assert not found.violated, (found.violated, found.trace)
        tried(f"states with {MOST} attempts", found.states)
        assert f"| {MOST} | {found.states:,} | {found.steps:,} |" in README.read_text("utf-8")


@pytest.mark.parametrize("variant", [variant for variant in get_args(Variant) if variant])
def test_a_wrong_protocol_breaks_one(variant: Variant, harness: Begin) -> None:
    with harness(NAME) as tried:
        found = explore(2, variant)
        tried.control(f"{variant}: {found.violated} ({'; '.join(found.trace)})", int(bool(found.violated)))


@pytest.mark.parametrize("shard", [1, 2])
def test_the_code_walks_as_the_model_does(shard: int, harness: Begin) -> None:
    with harness(WALKED, WALKS // 2) as tried, in_memory() as folder:
        for number in range(WALKS // 2):
            walk(f"{shard}-{number}", folder)
            tried("walks")
        tried.control("a loader that puts no file right", drifted(folder))


def walk(seed: str, parent: Path) -> None:
    """Take a random way through the model and the same one through the code, and compare them after each step."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        project = Project(Path(folder))
        entry = {"task": "Summarise the log", "checkpoint": "checkpoints/nightly.json", "provider": "demo"}
        project.write_jobs({"nightly": entry})
        world, way = World(blind=chance.random() < 0.3), list[str]()
        real = Walk(plan_job(read_job_file(project.config).jobs["nightly"], live=True))
        try:
            with real.stopping(blind=world.blind):
                for _ in range(STEPS):
                    after = list(steps(world, 4))
                    # What a holder does of itself is taken more often than what befalls it.
                    weights = [8 if name[:1] in "AB" and not name.endswith("dies") else 1 for name, _ in after]
                    [(name, world)] = chance.choices(after, weights)
                    way.append(name)
                    real.do(name, world)
                    real.check(world)
        except BaseException as error:
            error.add_note(f"walk {seed}: {'; '.join(way)}")
            raise
        finally:
            close_ledgers()


def drifted(parent: Path) -> int:
    """Return how many walks notice code that does not do what the model says."""
    caught = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "is_behind", lambda *_: False)
        for number in range(6):
            try:
                walk(f"control-{number}", parent)
            except AssertionError:
                caught += 1
    return caught

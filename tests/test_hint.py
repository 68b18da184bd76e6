"""The hint that nothing is due: what it saves, and that it never hides a job that is."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import time_machine

from scheduler import hint
from scheduler.cli import main
from scheduler.steps import COUNTED, SAVED, SENT, UNCOUNTED, arm
from tests.faults.strace import traced
from tests.support import PROGRAM, Project

STEPS = UNCOUNTED | COUNTED | SENT | SAVED
FAR = "0 0 1 1 *"
HEAVY = {"httpx", "apscheduler", "yaml", "pydantic", "filelock", "argparse", "logging", "sqlite3", "cronsim", "asyncio"}


# The program as `python -m scheduler` runs it, and then what it has loaded.
LOADED = """
import runpy, sys
try:
    runpy.run_module("scheduler", run_name="__main__")
finally:
    print(*sys.modules)
"""


@dataclass
class World:
    """A project with a clock, and how a tick of it is asked for."""

    project: Project
    cache: Path
    # Two days ahead, so that all files are older than two seconds; at one time of day, so that a walk goes as it went.
    now: float = field(default_factory=lambda: (time.time() // 86_400 + 2) * 86_400 + 8.5 * 3600)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def arguments(self) -> list[str]:
        return ["--config", str(self.project.config), "tick"]

    @property
    def environ(self) -> dict[str, str]:
        return self.project.environ(CACHE_DIRECTORY=str(self.cache))

    def is_quiet(self) -> bool:
        return hint.is_quiet(self.arguments, self.environ, self.now)

    def run(self, *arguments: str) -> int:
        """Run a command in this process, at the time of the world; a whole tick, whatever the hint says."""
        with pytest.MonkeyPatch.context() as patch, time_machine.travel(self.now, tick=False):
            for name, value in self.environ.items():
                patch.setenv(name, value)
            return main(["--config", str(self.project.config), *arguments])

    def known(self) -> list[Any]:
        """What the ledger holds, but for its tallies."""
        if not (self.project.folder / "checkpoints/.ledger.sqlite3").exists():
            return []
        tables = ("job", "admission", "document", "opening")
        try:
            return [sorted(self.project.rows(f"SELECT * FROM {table}"), key=repr) for table in tables]
        except sqlite3.OperationalError:  # a kill has cut its making off
            return []


def begun(folder: Path, *now: float) -> World:
    for name in ("project", "cache"):
        (folder / name).mkdir(0o700, parents=True)
    return World(Project(folder / "project"), folder / "cache", *now)


# ---- what it saves


def hinted(folder: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> World:
    """A project of which a tick has said that nothing is due."""
    world = begun(folder, time.time())
    entry = {"task": "Say hello", "provider": "demo", "schedule": FAR}
    world.project.write_jobs({f"j{one}": entry | {"checkpoint": f"checkpoints/j{one}.json"} for one in range(jobs)})
    monkeypatch.setattr(hint, "SETTLED", -60)  # the files are as old as the test
    for after in (False, True):  # the first tick makes the folder
        assert (world.is_quiet(), world.run("tick"), world.is_quiet()) == (False, 0, after)
    return world


def test_a_tick_with_nothing_due_loads_next_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = hinted(tmp_path, 20, monkeypatch)
    command = [sys.executable, "-c", LOADED, *world.arguments]
    done = subprocess.run(command, env=world.environ, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    loaded = set(done.stdout.split())
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("scheduler")} == {"scheduler", "scheduler.hint"}


def test_a_tick_with_nothing_due_costs_as_much_for_thousands_of_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for jobs in (20, 2_000):
        world = hinted(tmp_path / str(jobs), jobs, monkeypatch)
        done = traced([*PROGRAM, *world.arguments], ["%file"], environ=world.environ)
        assert (done.code, done.out, done.err) == (0, "", "")
        assert not [
            call for call in done.calls if call.name == "openat" and str(world.project.folder) in call.arguments
        ]
        calls.append([call.name for call in done.calls])
    assert calls[0] == calls[1]


# ---- what it keeps its hands off


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config", "FILE", "--log-format", "xml", "tick"],
        ["--log-format", "--config", "--config", "FILE", "tick"],
        ["--config", "-x", "--config", "FILE", "tick"],
        ["--config", "FILE", "tick", "j0"],
        ["--config", "FILE", "status"],
        ["tick", "--config", "FILE"],
        ["--config=FILE", "tick"],
        ["--config"],
        ["tick"],
        [],
    ],
    ids=" ".join,
)
def test_whatever_is_no_plain_tick_takes_the_whole_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    world = hinted(tmp_path, 1, monkeypatch)
    named = [word.replace("FILE", str(world.project.config)) for word in arguments]
    assert not hint.is_quiet(named, world.environ, world.now)
    plain = ["--config", "/elsewhere", "--log-format", "json", "--config", str(world.project.config), "tick"]
    assert hint.is_quiet(plain, world.environ, world.now)
    assert hint.is_quiet(["tick"], world.environ | {"RESUMED_CONFIG": str(world.project.config)}, world.now)


def test_a_folder_that_is_another_or_opened_to_others_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = hinted(tmp_path, 1, monkeypatch)
    folder = world.project.folder / "checkpoints"
    folder.chmod(0o777)
    assert not world.is_quiet()
    folder.chmod(0o700)
    assert world.is_quiet()
    shutil.copytree(folder, folder.with_name("other"))
    folder.rename(folder.with_name("old"))
    folder.symlink_to("old")
    assert world.is_quiet()  # the very same folder
    folder.unlink()
    folder.symlink_to("other")
    assert not world.is_quiet()


def test_another_version_of_the_program_does_not_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = hinted(tmp_path, 1, monkeypatch)
    monkeypatch.setattr(hint, "_PACKAGE", str(tmp_path))
    assert not world.is_quiet()


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("delivery", "'j0.json', 1, 'a', 1, 't', 'w', 1, 1, 's', 'b', NULL, '', NULL"),
        ("told", "'j0', 'ping', 'done', NULL, 1, 'it did not go'"),
    ],
)
def test_none_is_left_while_a_delivery_or_a_notification_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, values: str
) -> None:
    world = hinted(tmp_path, 1, monkeypatch)
    world.project.rows(f"INSERT INTO {table} VALUES ({values})")
    assert (world.is_quiet(), world.run("tick"), world.is_quiet()) == (False, 0, False)
    world.project.rows(f"DELETE FROM {table}")
    assert (world.is_quiet(), world.run("tick"), world.is_quiet()) == (False, 0, True)


def test_it_lies_where_nobody_else_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = hinted(tmp_path, 1, monkeypatch)
    [path] = world.cache.iterdir()
    for open_to_all in (path, world.cache):
        mode = open_to_all.stat().st_mode
        open_to_all.chmod(0o777)
        assert not world.is_quiet()
        open_to_all.chmod(mode)
    assert world.is_quiet()
    old = os.umask(0)
    try:
        fresh = World(world.project, tmp_path / "home" / "cache", world.now)
        assert (fresh.run("tick"), fresh.is_quiet()) == (0, True)
    finally:
        os.umask(old)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (fresh.cache.parent, fresh.cache)] == [0o700, 0o700]
    assert World(world.project, tmp_path / "a" / "b" / "c", world.now).run("tick") == 0
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["loop", "FILE/x", "a" * 300, "none"], ids=["loop", "below a file", "long", "none"])
def test_a_jobs_yaml_that_cannot_be_looked_at_is_told_as_ever(project: Project, name: str) -> None:
    project.write_jobs({"nightly": {"task": "t", "checkpoint": "c/n.json", "provider": "demo"}})
    (project.folder / "loop").symlink_to("loop")
    path = project.folder / name.replace("FILE", "jobs.yaml")
    command = [*PROGRAM, "--config", str(path), "tick"]
    done = subprocess.run(command, env=project.environ(), capture_output=True, text=True, check=False)
    assert (done.returncode, "fault" in done.stderr) == (78, False), done.stderr


# ---- what a walk does


def jobs_yaml(world: World, dice: random.Random) -> None:
    """Write another jobs.yaml."""
    schedules = ("every 5m", "0 * * * *", "0 9 * * *", "*/20 8-9 * * *", FAR)
    jobs: dict[str, Any] = {
        name: {
            "task": "Say hello",
            "checkpoint": f"checkpoints/{name}.json",
            "provider": "demo",
            "schedule": dice.choice(schedules),
            "enabled": dice.random() < 0.8,
            "catch_up": dice.random() < 0.5,
            "max_attempts": dice.choice((1, 4)),
        }
        for name in dice.sample("abc", dice.randint(1, 3))
    }
    if dice.random() < 0.3:
        series = {"opens": dice.choice(("0 9 * * *", "0 * * * *")), "times": 3}
        jobs["s"] = jobs.popitem()[1] | {"series": series, "checkpoint": "checkpoints/s-{opening}.json"}
    fresh = world.project.config.with_name("fresh")
    fresh.write_text(json.dumps({"jobs": jobs}), "utf-8")
    fresh.replace(world.project.config)


def step_clock(world: World, dice: random.Random) -> None:
    world.now += dice.choice((20, 60, 60, 290, 900, 900, 2700, 86_400, -60, -3600))


def by_hand(world: World, dice: random.Random) -> None:
    world.run("run", dice.choice("abcs"))


def renew(world: World, dice: random.Random) -> None:
    name = dice.choice("abc")
    world.run("renew", name, "--reason", "again", "--confirm", name)


def review(world: World, dice: random.Random) -> None:
    world.run("review", dice.choice("abc"), dice.choice(("--approve", "--reject")), "--note", "shorter")


def killed(world: World, dice: random.Random) -> None:
    """A tick, or a slice by hand, dies somewhere."""
    step, command = dice.choice(sorted(STEPS)), dice.choice((["tick"], ["run", "a"]))
    if not (pid := os.fork()):
        arm(STEPS[step], 1)
        world.run(*command)
        os._exit(0)
    os.waitpid(pid, 0)


def ledger_gone(world: World, dice: random.Random) -> None:
    for path in world.project.folder.glob("checkpoints/.ledger*"):
        path.unlink()
    if dice.random() < 0.5:
        for path in world.project.folder.glob("checkpoints/*.json"):
            path.unlink()


def damaged(world: World, dice: random.Random) -> None:
    """The hint is changed at one place, or cut."""
    for path in world.cache.iterdir():
        body = bytearray(path.read_bytes())
        body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        path.write_bytes(body[: dice.choice((len(body), dice.randrange(len(body))))])


def tick(world: World, _: random.Random) -> None:
    """A whole tick, which must find nothing to do where a hint said so."""
    quiet, before = world.is_quiet(), world.known()
    code = world.run("tick")
    world.kinds["quiet" if quiet else "whole"] += 1
    if quiet:
        assert (code, world.known()) == (0, before), "a hint hid what was due"


MOVES: dict[Callable[[World, random.Random], None], int] = {
    tick: 16,
    step_clock: 8,
    jobs_yaml: 2,
    by_hand: 1,
    renew: 1,
    review: 1,
    killed: 1,
    ledger_gone: 1,
    damaged: 1,
}


def walk(folder: Path, seed: int, steps: int) -> Counter[str]:
    dice = random.Random(seed)
    world = begun(folder)
    jobs_yaml(world, dice)
    for move in dice.choices([*MOVES], [*MOVES.values()], k=steps):
        move(world, dice)
        world.kinds[move.__name__] += 1
        time.sleep(0.01)  # the clock of a file system goes by such steps
    return world.kinds


def walks(folder: Path, number: int) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for seed in range(number):
        kinds += walk(folder / str(seed), seed, 60)
    return kinds


def test_it_never_hides_a_job_that_is_due(tmp_path: Path) -> None:
    kinds = walks(tmp_path, 10)
    assert kinds["quiet"] >= 40, kinds
    assert kinds.keys() >= {move.__name__ for move in MOVES}


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("look", lambda look: lambda paths: look(paths[:1] if "jobs" in paths[0] else [])),
        ("leave", lambda leave: lambda place, seen, since, until, environ: leave(place, seen, since, 2e9, environ)),
        ("_face", lambda face: lambda path: b"" if "jobs" in path else face(path)),
    ],
    ids=["the ledgers are not looked at", "it holds for ever", "jobs.yaml is not looked at"],
)
def test_a_careless_hint_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[[Any], Any]
) -> None:
    monkeypatch.setattr(hint, name, broken(getattr(hint, name)))
    with pytest.raises(AssertionError, match="a hint hid"):
        walks(tmp_path, 60)

"""Many processes of the program at once, forked from one that has everything imported, some of them killed.

Run as `python -m tests.faults.storm [VARIANT]`: reads a wave as JSON per line on stdin, prints how its members ended.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.killed_at import fork, printed, wait
from tests.support import ROOT, Project

LAST_KILL = 0.6  # seconds after the start of a wave
LOOKED_FOR = 0.5  # seconds for which somebody is looked for in the ledger
ASKING = "SELECT pid FROM admission WHERE outcome IS NULL"
DAEMONS = "SELECT pid FROM daemon"
LONGEST = 100.0


class Member(NamedTuple):
    """How one process of a wave ended."""

    pid: int
    command: list[str]
    code: int
    err: str


Wave = Callable[..., list[Member]]


@contextlib.contextmanager
def storms(project: Project, variant: str = "") -> Iterator[Wave]:
    """Start the process that is forked; yield what runs one wave.

    A wave has a command for each of its members; `ahead` lets its daemon begin before all others. So many of them get
    SIGKILL as `kills` says: who waits for a reply at that moment, if anybody does. In the folder `mischief` lock files
    are deleted, and checkpoints deleted and restored. A daemon gets SIGTERM once all others have ended.
    """
    command = [sys.executable, "-m", "tests.faults.storm", *([variant] if variant else [])]
    with subprocess.Popen(
        command, cwd=ROOT, env=project.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        asked, told = driver.stdin, driver.stdout
        assert asked is not None
        assert told is not None

        def wave(
            config: Path,
            commands: Sequence[Sequence[str]],
            *,
            chance: random.Random,
            kills: int = 0,
            mischief: str = "",
            ahead: bool = False,
        ) -> list[Member]:
            plan = {
                "commands": [["--config", str(config), *command] for command in commands],
                "kills": sorted(chance.uniform(0, LAST_KILL) for _ in range(kills)),
                "folder": str(config.parent / "checkpoints"),
                "mischief": mischief,
                "ahead": ahead,
                "seed": chance.random(),
            }
            asked.write(json.dumps(plan) + "\n")
            asked.flush()
            line = told.readline()
            assert line, "the process that is forked has ended"
            return [Member(*ended) for ended in json.loads(line)]

        try:
            yield wave
        finally:
            asked.close()
            driver.wait(LONGEST)


def _main() -> None:
    for module in ("scheduler.cli", "scheduler.gateway", "scheduler.keys", "scheduler.daemon"):
        importlib.import_module(module)
    for variant in sys.argv[1:]:
        importlib.import_module("tests.faults.broken").VARIANTS[variant]()
    for line in sys.stdin:
        print(json.dumps(_wave(json.loads(line))), flush=True)


def _wave(plan: dict[str, Any]) -> list[tuple[int, list[str], int, str]]:
    chance, folder = random.Random(plan["seed"]), Path(plan["folder"])
    cli = importlib.import_module("scheduler.cli")
    vandal = fork(lambda: vandalise(Path(plan["mischief"]), chance)) if plan["mischief"] else None
    members = []
    for command in plan["commands"]:
        members.append((fork(partial(cli.main, command)), command))
        if plan["ahead"] and "daemon" in command:
            _look(folder, DAEMONS, [members[-1][0][0]])
    begun = time.monotonic()
    for after in plan["kills"]:
        time.sleep(max(0.0, begun + after - time.monotonic()))
        pids = [pid for (pid, _), _ in members]
        # Not waited for yet, so nobody else has its number.
        os.kill(_look(folder, ASKING, pids) or chance.choice(pids), signal.SIGKILL)
    codes: dict[int, int] = {}
    for (pid, _), command in sorted(members, key=lambda member: "daemon" in member[1]):
        if "daemon" in command:
            os.kill(pid, signal.SIGTERM)
        codes[pid] = wait(pid)
    ends = [(pid, command, codes[pid], printed(told)) for (pid, told), command in members]
    if vandal:
        os.kill(vandal[0], signal.SIGKILL)
        wait(vandal[0])
        ends.append((vandal[0], ["vandal"], 0, printed(vandal[1])))
    return ends


def _look(folder: Path, query: str, pids: Collection[int]) -> int | None:
    """Return one of these processes that the ledger names, as soon as it does."""
    end = time.monotonic() + LOOKED_FOR
    while time.monotonic() < end:
        with contextlib.suppress(sqlite3.Error):
            with contextlib.closing(sqlite3.connect(f"file:{folder}/.ledger.sqlite3?mode=ro", uri=True)) as base:
                rows = base.execute(query).fetchall()
            if found := [pid for (pid,) in rows if pid in pids]:
                return int(found[0])
        time.sleep(0.005)
    return None


def vandalise(folder: Path, chance: random.Random) -> int:
    """Delete lock files and checkpoints and restore old copies of these, until killed; says each on stdout."""
    kept: dict[bytes, Path] = {}
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        time.sleep(chance.choice([0, 0.001, 0.005]))
        for path in folder.glob("*.lock"):
            path.unlink()
            os.write(1, b"lock deleted\n")
        for path in folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                kept[path.read_bytes()] = path  # whole, for it was renamed into place
                if chance.random() < 0.5:
                    path.unlink()
                    os.write(1, b"checkpoint deleted\n")
        if kept and chance.random() < 0.5:
            body = chance.choice(list(kept))
            aside = folder.with_name("copy")
            aside.write_bytes(body)
            aside.chmod(0o600)
            aside.rename(kept[body])
            os.write(1, b"copy restored\n")
    return 0


if __name__ == "__main__":
    _main()

"""A whole process, from its start to its end, beside `python -c pass` of the same environment."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.lines import Line, left_out
from tests.bench.places import APSCHEDULER, DBOS, LANGGRAPH, LLM, LeftOut, Peer, Places
from tests.bench.places import RESUMED as OURS
from tests.bench.timing import Sample, in_turns, middle, process, ratio
from tests.support import chat_server

FLOOR = "`python -c pass`"
FAR = "0 0 29 2 *"

Command = tuple[list[str | Path], Mapping[str, str]]  # with its environment


def quiet_ticks(places: Places, rounds: int, sizes: Sequence[int] = (20, 10_000)) -> Iterator[Line]:
    """A cron line's `tick` at which nothing is due, beside other schedulers that only get ready."""
    takers: dict[str, Callable[[], Sample]] = {"floor": _bare(places, OURS)}
    for jobs in sizes:
        config = write_jobs(places.folder("tick"), jobs, FAR)
        _settle(places, config)
        takers[f"{jobs:,}"] = _command(places, config, "tick")
    taken = in_turns(rounds, takers)
    for jobs in sizes:
        yield _line(f"cold `tick`, nothing due, {jobs:,} jobs", taken[f"{jobs:,}"], taken["floor"], 2.0)
    peers = {APSCHEDULER: lambda: _script(places, APSCHEDULER, "start_apscheduler")}
    yield from _peers(places, rounds, "gets ready, does nothing", peers)


def runs(places: Places, rounds: int) -> Iterator[Line]:
    """A `run JOB` that sends nothing, and one that sends one real request over loopback; other tools beside them."""
    done = write_jobs(places.folder("done"), 1, FAR)
    for _ in range(2):
        process(_resumed(places, done, "run", "j0"), places.environ(), done.parent)
    assert json.loads((done.parent / "checkpoints/j0.json").read_text())["status"] == "done"
    with chat_server(judged=False) as chat:
        jobs = {f"j{one}": {} for one in range(rounds + 1)}
        live = write_jobs(places.folder("live"), len(jobs), FAR, url=chat.url)
        names = iter(jobs)
        takers = {
            "floor": _bare(places, OURS),
            "done": _command(places, done, "run", "j0"),
            "post": lambda: _command(places, live, "run", next(names))(),
        }
        taken = in_turns(rounds, takers)
        assert chat.count == rounds + 1, f"{chat.count} requests"
        yield _line("cold `run JOB`, done", taken["done"], taken["floor"], 20)
        yield _line("cold `run JOB`, one request over loopback", taken["post"], taken["floor"], 35)
        few = max(3, rounds // 3)
        yield from _peers(places, few, "the same request", {LLM: lambda: _llm(places, chat.url)})
        idle = {
            LANGGRAPH: lambda: _script(places, LANGGRAPH, "start_langgraph"),
            DBOS: lambda: _script(places, DBOS, "start_dbos"),
        }
        yield from _peers(places, few, "gets ready, sends nothing", idle)


def write_jobs(folder: Path, count: int, schedule: str, url: str = "", **top: Any) -> Path:
    """Write a jobs.yaml of so many jobs, of the demo or of a provider at this URL."""
    entry: dict[str, Any] = {"task": "Summarise the log", "schedule": schedule, "provider": "demo", "max_attempts": 4}
    if url:
        top |= {"live": True, "providers": {"local": {"base_url": url, "model": "m1", "allow_http": True}}}
        entry["provider"] = "local"
    lines = [f"{name}: {json.dumps(value)}" for name, value in top.items()] + ["jobs:"]
    for one in range(count):
        own = entry | {"checkpoint": f"checkpoints/j{one}.json"}
        lines += [f"  j{one}:", *(f"    {name}: {json.dumps(value)}" for name, value in own.items())]
    config = folder / "jobs.yaml"
    config.write_text("\n".join([*lines, ""]), "utf-8")
    config.chmod(0o600)
    return config


def _resumed(places: Places, config: Path, *arguments: str) -> list[str | Path]:
    return [places.python(OURS).with_name("resumed"), "--config", config, *arguments]


def _command(places: Places, config: Path, *arguments: str) -> Callable[[], Sample]:
    command = _resumed(places, config, *arguments)
    return lambda: process(command, places.environ(), config.parent)


def _bare(places: Places, peer: Peer) -> Callable[[], Sample]:
    command = [places.python(peer), "-c", "pass"]
    return lambda: process(command, places.environ(), places.work)


def _settle(places: Places, config: Path) -> None:
    """Tick until a tick leaves its hint, which it does once no file has changed for two seconds."""
    tick = _resumed(places, config, "tick")
    for _ in range(5):
        process(tick, places.environ(), config.parent)
        time.sleep(2.5)
    hint = places.work / str(config.resolve()).replace("/", "%2F")
    assert hint.exists(), f"no hint for {config}: {os.listdir(places.work)}"


def _peers(places: Places, rounds: int, measure: str, peers: Mapping[Peer, Callable[[], Command]]) -> Iterator[Line]:
    for peer, command in peers.items():
        try:
            words, environ = command()
            folder = places.folder(peer.name)
            taken = in_turns(
                rounds, {"floor": _bare(places, peer), "it": functools.partial(process, words, environ, folder)}
            )
        except (LeftOut, RuntimeError) as error:
            yield left_out(measure, peer.name, error)
            continue
        yield _line(f"{measure}: {peer.name}", taken["it"], taken["floor"], None)


def _script(places: Places, peer: Peer, name: str) -> Command:
    return [places.python(peer), places.script(name)], places.environ()


def _llm(places: Places, url: str) -> Command:
    """Return the command of `llm` with a model at this URL; it prompts once and keeps no log."""
    folder = places.folder("llm-user")
    model = {"model_id": "local", "model_name": "m1", "api_base": url, "can_stream": False, "api_key_name": "none"}
    (folder / "extra-openai-models.yaml").write_text(json.dumps([model]))
    command: list[str | Path] = [places.python(LLM).with_name("llm"), "-m", "local", "--key", "none", "--no-stream"]
    return [*command, "--no-log", "Summarise the log"], places.environ(LLM_USER_PATH=str(folder))


def _line(measure: str, above: Sequence[Sample], below: Sequence[Sample], goal: float | None) -> Line:
    wall = ratio([one.wall for one in above], [one.wall for one in below])
    note = f"{middle(above).wall * 1000:.0f} ms beside {middle(below).wall * 1000:.0f}"
    return Line(measure=measure, beside=FLOOR, shown=str(wall), value=wall.median, goal=goal, note=note)

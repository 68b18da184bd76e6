"""One slice: load, then one attempt. This is what users of the package call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scheduler.attempt import Ask, Order, accept, run_slice
from scheduler.checkpoint import Emit, hold
from scheduler.errors import StateStale
from scheduler.reader import peek
from scheduler.state import MAX_STEPS, State
from scheduler.tools import Tool, reference_tool


def load_state(checkpoint: str | Path, job: str, model: str) -> State:
    """Return the stored state, or a new one, of the task `job`; take no lock and write nothing.

    Raises TaskChanged and ModelChanged where the checkpoint was started with others, CheckpointUnknown where the file
    is damaged or foreign, and the refusals of access and storage.
    """
    return accept(peek(checkpoint).state, Order(task=job, model=model, tools=()))


def resume_once(
    job: str,
    checkpoint: str | Path,
    ask: Ask,
    model: str,
    *,
    tools: Sequence[Tool] | None = None,
    max_attempts: int = MAX_STEPS,
    point: int | None = None,
    max_tokens: int | None = None,
) -> tuple[State, list[dict[str, Any]]]:
    """Run one slice of the task `job`: at most one call of `ask`, counted on disk before it; return state and events.

    A final state returns without events and without a call. Whatever `ask` raises is raised again once the attempt
    and its outcome are saved. Raises what `load_state` raises, CheckpointBusy, PointTaken, and DiskFull.
    """
    order = _order(job, model, tools, max_attempts, point, max_tokens)
    events: list[dict[str, Any]] = []
    with hold(checkpoint) as held:
        state = accept(held.load(events.append), order)
        run_slice(held, state, order, ask, events.append)
    return state, events


def step(
    state: State,
    checkpoint: str | Path,
    ask: Ask,
    emit: Emit,
    *,
    tools: Sequence[Tool] | None = None,
    max_attempts: int = MAX_STEPS,
    point: int | None = None,
    max_tokens: int | None = None,
) -> None:
    """Run one slice on a state from `load_state`, and bring that state up to date in place.

    Takes the lock and reads again: StateStale where the state is not what is stored. Otherwise as `resume_once`.
    """
    order = _order(state["task"], state["model"], tools, max_attempts, point, max_tokens)
    with hold(checkpoint) as held:
        stored = held.load(emit)
        if state != accept(stored, order):
            raise StateStale(path=held.path)
        run_slice(held, state, order, ask, emit)


def _order(
    task: str, model: str, tools: Sequence[Tool] | None, max_attempts: int, point: int | None, max_tokens: int | None
) -> Order:
    if not 1 <= max_attempts <= MAX_STEPS:
        raise ValueError(f"max_attempts is {max_attempts}; it goes from 1 to {MAX_STEPS}")
    return Order(
        task=task,
        model=model,
        tools=(reference_tool(),) if tools is None else tools,
        max_attempts=max_attempts,
        point=point,
        options={} if max_tokens is None else {"max_tokens": max_tokens},
    )

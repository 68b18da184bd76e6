"""Slices of LangGraph with its SQLite saver, synchronously durable: BATCH threads of about SIZE bytes a turn."""

from __future__ import annotations

import itertools
import operator
import sqlite3
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from turns import take_turns, used

SIZE, BATCH, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
NUMBERS = itertools.count()
LINE = "2026-11-30T07:00:00Z info job nightly: attempt 1 of 4: answered\n"
ready: list[dict[str, Any]] = []


class State(TypedDict):
    """A conversation that grows."""

    messages: Annotated[list[dict[str, str]], operator.add]


def ask(state: State) -> State:
    """Answer at once."""
    content = LINE * (SIZE // len(LINE)) if len(state["messages"]) < 2 else "Another line of it."
    return {"messages": [{"role": "assistant", "content": content}]}


base = sqlite3.connect(FOLDER / "langgraph.sqlite", check_same_thread=False)
base.execute("PRAGMA synchronous=FULL")
saver = SqliteSaver(base)
saver.setup()
graph = StateGraph(State)
graph.add_node("ask", ask)
graph.add_edge(START, "ask")
graph.add_edge("ask", END)
compiled = graph.compile(checkpointer=saver)


def step(config: dict[str, Any]) -> None:
    """Run the graph once more on a thread."""
    compiled.invoke({"messages": [{"role": "user", "content": "Go on."}]}, config, durability="sync")


def prepare() -> None:
    """Make threads whose first run has brought them to their size."""
    ready[:] = [{"configurable": {"thread_id": str(next(NUMBERS))}} for _ in range(BATCH)]
    for config in ready:
        step(config)


def slices() -> None:
    """Run each once more."""
    for config in ready:
        step(config)


def kept() -> int:
    """Return what is kept on the disk."""
    return used(FOLDER / "langgraph.sqlite")


take_turns(slices, prepare, kept)

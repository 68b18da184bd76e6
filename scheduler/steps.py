"""The steps of a slice, and how a process dies at one: for the tests, and for `resumed selftest`.

No other module knows of it: the function at a border is found by its name, and wrapped in the process that is to die.
"""

from __future__ import annotations

import importlib
import itertools
import signal
import threading
from dataclasses import dataclass, replace
from typing import Any, Final


@dataclass(frozen=True)
class Step:
    """A border of a step: before or after the call number `call` of a function of the package."""

    module: str
    name: str
    call: int = 1
    after: bool = False


CREATE: Final = ("scheduler.durable", "create")
RENAME: Final = ("pathlib", "Path.rename")
PUBLISH: Final = ("scheduler.checkpoint", "publish")
STORE: Final = ("scheduler.ledger", "_store")
_ADMIT: Final = ("scheduler.ledger", "Ledger.admit")
_SETTLE: Final = ("scheduler.ledger", "Ledger.settle")
_ASK: Final = ("scheduler.gateway", "Exchange.__call__")
_TOOL: Final = ("scheduler.calls", "call_tool")

# What a slice has done when it is killed there: nothing that counts, ...
UNCOUNTED: Final = {
    "ledger-file-made": Step("scheduler.database", "create", after=True),
    "ledger-tables-made": Step("scheduler.database", "check_identity"),
    "lock-before": Step("filelock", "FileLock.acquire"),
    "lock-after": Step("filelock", "FileLock.acquire", after=True),
    "load-before": Step("scheduler.checkpoint", "Checkpoint.load"),
    "load-after": Step("scheduler.checkpoint", "Checkpoint.load", after=True),
    "request-built": Step("scheduler.attempt", "build_request", after=True),
    "reserve-file-made": Step(*CREATE, after=True),
    "reserve-inode-tried": Step(*CREATE, call=2, after=True),
    "reserve-after": Step("scheduler.durable", "_allocate", after=True),
    "admit-before": Step(*_ADMIT),
    "admit-inside": Step(*STORE, after=True),
}
# ... counted, not sent, ...
COUNTED: Final = {
    "admit-after": Step(*_ADMIT, after=True),
    "count-file-made": Step(*CREATE, call=3, after=True),
    "count-file-full": Step(*RENAME),
    "count-published": Step(*PUBLISH, after=True),
    "ask-before": Step(*_ASK),
}
# ... sent, and its reply not saved, ...
SENT: Final = {
    "ask-after": Step(*_ASK, after=True),
    "tool-before": Step(*_TOOL),
    "tool-after": Step(*_TOOL, after=True),
    "record-after": Step("scheduler.attempt", "settle", after=True),
    "save-before": Step(*_SETTLE),
    "save-inside": Step(*STORE, call=2, after=True),
}
# ... or saved.
SAVED: Final = {
    "save-after": Step(*_SETTLE, after=True),
    "reply-file-made": Step(*CREATE, call=4, after=True),
    "reply-file-full": Step(*RENAME, call=2),
    "reply-published": Step(*PUBLISH, call=2, after=True),
    "unlock-before": Step("filelock", "FileLock.release"),
    "unlock-after": Step("filelock", "FileLock.release", after=True),
}
SLICE: Final = UNCOUNTED | COUNTED | SENT | SAVED
# A run that finds an attempt whose process died before its count was published.
RECOVERY: Final = {
    "put-back-before": Step(*PUBLISH),
    "put-back-file-made": Step(*CREATE, after=True),
    "put-back-file-full": Step(*RENAME),
    "put-back-after": Step(*PUBLISH, after=True),
    "interrupted-before": Step(*_SETTLE),
    "interrupted-inside": Step(*STORE, after=True),
    "interrupted-after": Step(*_SETTLE, after=True),
    "interrupted-published": Step(*PUBLISH, call=2, after=True),
}
ONLY_FIRST: Final = frozenset({"ledger-file-made", "ledger-tables-made"})  # while a ledger is being made
ONLY_TOOLS: Final = frozenset({"tool-before", "tool-after"})  # where the reply asks for a tool


def asked_by(step: Step, module: str, name: str) -> Step:
    """Return the step as it is in a slice that asks by this function, not by the gateway's."""
    return replace(step, module=module, name=name) if (step.module, step.name) == _ASK else step


def find(step: Step) -> tuple[Any, str]:
    """Return what holds the function of a step, and its name there. Raises AttributeError where there is none."""
    owner: Any = importlib.import_module(step.module)
    *path, name = step.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


def arm(step: Step, number: int = signal.SIGKILL) -> None:
    """Have this process die by SIGKILL, or get another signal, once it comes to the step."""
    owner, name = find(step)
    real = getattr(owner, name)
    calls = itertools.count(1)

    def killing(*arguments: Any, **options: Any) -> Any:
        here = next(calls) == step.call
        if here and not step.after:
            signal.pthread_kill(threading.get_ident(), number)  # to this thread, which is the first to stop
        result = real(*arguments, **options)
        if here and step.after:
            signal.pthread_kill(threading.get_ident(), number)
        return result

    setattr(owner, name, killing)

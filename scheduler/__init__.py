"""A cron-friendly scheduler for long LLM tasks: checkpointed, bounded, counted before each request.

The names below are the whole public API; each is loaded when it is first used, so that importing the package is cheap.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing it would cost more than all that a tick with nothing to do costs
if TYPE_CHECKING:
    from scheduler.errors import AskFailed, ResumedError
    from scheduler.offline import demo
    from scheduler.resume import load_state, resume_once, step
    from scheduler.state import MAX_STEPS, State
    from scheduler.tools import Tool

__all__ = [
    "MAX_STEPS",
    "AskFailed",
    "ResumedError",
    "State",
    "Tool",
    "demo",
    "load_state",
    "resume_once",
    "step",
]

_HOMES = {
    "AskFailed": "errors",
    "MAX_STEPS": "state",
    "ResumedError": "errors",
    "State": "state",
    "Tool": "tools",
    "demo": "offline",
    "load_state": "resume",
    "resume_once": "resume",
    "step": "resume",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

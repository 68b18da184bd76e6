"""The program, broken on purpose: it sends each request before it counts it. A control of the kills."""

from __future__ import annotations

import sys
from typing import Any

from scheduler import attempt, tick
from scheduler.checkpoint import Checkpoint
from scheduler.cli import main

_known: dict[str, Any] = {}
_prepare, _build, _admit = tick.prepare, attempt._build, Checkpoint.admit


def _prepared(*arguments: Any) -> Any:
    order, _known["ask"] = _prepare(*arguments)
    return order, lambda _: _known["reply"]


def _built(*arguments: Any) -> Any:
    built = _known["built"] = _build(*arguments)
    return built


def _sent_and_admitted(*arguments: Any) -> Any:
    _known["reply"] = _known["ask"](_known["built"].request)
    return _admit(*arguments)


if __name__ == "__main__":
    tick.prepare, attempt._build, Checkpoint.admit = _prepared, _built, _sent_and_admitted  # type: ignore[method-assign]  # that is how it is broken
    sys.exit(main())

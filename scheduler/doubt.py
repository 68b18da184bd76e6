"""What makes an answer doubtful at first sight. Pure."""

from __future__ import annotations

import json
import re
from typing import Final

WRITTEN_CALL: Final = "it looks like a tool call written as text: no tool was called"

# How chat templates mark a call, where the server has not made one of it.
_MARKED = re.compile(
    r"</?tool_call\b|\[TOOL_CALLS\]|<function(=|_calls>)|<invoke\b|<\|(python_tag|tool_calls?(_section)?(_begin)?)\|>"
    r"|<\uff5ctool[\u2581_]calls?"
)
_FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def is_written_call(answer: str) -> bool:
    """Tell whether an answer is, or holds, a tool call that a model has written as text instead of making it."""
    return bool(_MARKED.search(answer)) or any(map(_is_call, [answer, *_FENCED.findall(answer)]))


def _is_call(text: str) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    calls = value if isinstance(value, list) else [value]
    return bool(calls) and all(isinstance(call, dict) and _names_function(call) for call in calls)


def _names_function(call: dict[str, object]) -> bool:
    function = call.get("function", call)
    if "tool_calls" in call or not isinstance(function, dict):
        return "tool_calls" in call or "arguments" in call
    return isinstance(function.get("name"), str) and ("arguments" in function or "parameters" in function)

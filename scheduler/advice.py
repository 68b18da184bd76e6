"""Which option of a provider's entry is the likely way out of a request that the provider calls wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduler.errors import AskFailed
from scheduler.job import Provider

ADVICE: Final = " (see the provider's option {option})"

# As `reply` begins a reason: an error beside status 200 is taken for a 400 unless it says otherwise.
_WRONG = re.compile("(200|400|(200 with error )?422): ")
# What a validator points at: pydantic's "loc", OpenAI's "param". What was sent may be repeated beside it.
_POINTER = re.compile(r'"(?:loc|param)"\s*:\s*(\[[^\[\]]*\]|"[^"]*")')
_USUAL: Final = frozenset({"role", "content", "tool_calls", "name", "refusal"})
_REASONING: Final = ("reasoning_content", "reasoning", "thinking")


def advise(failed: AskFailed, body: bytes, request: Mapping[str, Any], provider: Provider) -> str:
    """Return what to add to the reason of a 400 or 422: the option to change, or nothing.

    `body` is the reply as it came, `request` what was asked.
    """
    if failed.outcome != "http_error" or not _WRONG.match(failed.reason):
        return ""
    told = " ".join([failed.reason, *_POINTER.findall(body.decode("utf-8", "replace"))])
    option = next((option for name, option in _options(request, provider) if _names(told, name)), None)
    return ADVICE.format(option=option) if option else ""


def _options(request: Mapping[str, Any], provider: Provider) -> Iterator[tuple[str, str]]:
    """Pair each name that a provider may object to with the option that would mend it, the surest first."""
    if provider.replay_fields == "keep":
        yield from ((name, "replay_fields: drop") for name in _own_fields(request))
    else:
        yield from ((name, "replay_fields: keep") for name in _REASONING)
    if request.get("tool_choice") == "none":
        yield "tool_choice", "last_attempt: omit"
    if "max_tokens" in request:
        yield "max_tokens", "max_completion_tokens"
    if "max_completion_tokens" in request:
        yield "max_completion_tokens", "max_tokens"


def _own_fields(request: Mapping[str, Any]) -> set[str]:
    """Name the fields of the provider's own that stand in the messages with tool calls."""
    messages = (message for message in request.get("messages", ()) if isinstance(message, Mapping))
    return {name for message in messages if message.get("tool_calls") for name in message} - _USUAL


def _names(told: str, name: str) -> bool:
    return bool(re.search(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])", told, re.IGNORECASE))

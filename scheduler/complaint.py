"""What a provider complains of: an error in any of the usual shapes, its words, and who rests after it. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from scheduler.errors import AskFailed
from scheduler.state import Billed, Outcome, Usage

LONGEST_REST: Final = 24 * 60 * 60

_TOO_LONG = re.compile(r"context.?(length|window|size)|too long|too many.{0,10}tokens|too large")
_NO_MODEL = re.compile(r"model\b.{0,200}(does not exist|not found)|not a valid model", re.DOTALL)


def judge_error(status: int, headers: list[tuple[str, str]], error: object, usage: Usage | None) -> AskFailed:
    """Return what became of a request that was answered by an error.

    `headers` with names in lower case; `error` is an object, a list or a text. The reason is the provider's own
    sentence after the status; it is neither redacted nor shortened here.
    """
    codes = _codes(error)
    known = status if status >= 400 else next((int(code) for code in codes if re.fullmatch("[45][0-9]{2}", code)), 400)
    words = _words(error).strip()
    outcome, rests = _classify(known, codes, " ".join([*codes, words]).lower().replace("_", " "))
    asked = [value for name, value in headers if name == "retry-after"] if rests in ("retry", "outage") else []
    retry_after = next((seconds for value in asked if (seconds := _seconds(value)) is not None), None)
    ignored = f" (Retry-After {', '.join(asked)} is ignored)" if asked and retry_after is None else ""
    said = f"{status}" if known in (status, 400) else f"{status} with error {known}"
    billed: Billed = "yes" if usage else "no" if 400 <= status < 500 else "maybe"
    reason = f"{said}: {words or _phrase(status)}{ignored}"
    return AskFailed(outcome=outcome, reason=reason, billed=billed, rests=rests, retry_after=retry_after)


def _classify(status: int, codes: list[str], words: str) -> tuple[Outcome, str]:
    """Return the outcome, and who rests after it: the provider, the model, by steps, or nobody."""
    if "content_filter" in codes or "flagged_input" in codes:
        return "filtered", "none"
    if "insufficient_quota" in codes:
        return "refused", "provider"
    if "model_not_found" in codes:
        return "refused", "model"
    if status in (401, 402, 403):
        return "refused", "provider"
    if status == 413 or (status == 429 and "too large" in words) or (status in (400, 422) and _TOO_LONG.search(words)):
        return "context_too_long", "none"
    if status == 429:
        return "rate_limited", "retry"
    if status == 404 or (status < 500 and _NO_MODEL.search(words)):
        return "refused", "model"
    return "http_error", "outage" if status >= 500 else "none"


def _codes(error: object) -> list[str]:
    if not isinstance(error, dict):
        return []
    named = [str(error[name]).lower() for name in ("code", "type", "status") if isinstance(error.get(name), str | int)]
    metadata = error.get("metadata")
    return [*named, *(name for name in ("flagged_input",) if isinstance(metadata, dict) and metadata.get(name))]


def _words(error: object) -> str:
    """Find the sentence in an error of any of the usual shapes."""
    if isinstance(error, str):
        return error
    if isinstance(error, list):
        return "; ".join(filter(None, map(_words, error)))
    if not isinstance(error, dict):
        return ""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    said = (_words(error.get(name)) for name in ("error", "message", "msg", "detail", "title"))
    first = next(filter(None, said), "")
    return f"{first} ({raw})" if isinstance(raw, str) and raw else first


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "no reason given"


def _seconds(value: str) -> float | None:
    """Read a Retry-After of 0 s to 24 h, given in seconds or as an HTTP date; RFC 9110, section 10.2.3."""
    try:
        if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
            seconds = float(value)
        else:
            when = parsedate_to_datetime(value)
            seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return seconds if 0 <= seconds <= LONGEST_REST else None

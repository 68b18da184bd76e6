"""What a provider complains of: an error in any of the usual shapes, its words, and who rests after it. Pure."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from scheduler.errors import AskFailed
from scheduler.state import Billed, Outcome, Usage

LONGEST_REST: Final = 24 * 60 * 60

_VALUE_LIMIT = 40
_WORDS = ("error", "message", "msg", "detail", "errors", "title")

# Searched in the lower case of an error's words, and of its codes with blanks for their underscores. What is too long
# must be the request: "max_tokens is too large" and a tool's name that is "too long" are cured by no shorter one.
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|prompt.?length|token count.{0,40}exceed|too many.{0,10}tokens"
    r"|\b(prompt|input|request|messages?)\b(?! (field|timeout))[^.:\[]{0,30}\btoo (long|large)"
    r"|maximum model length|range of input length|max_new_tokens.{0,40}must be <=|must have less than \d+ tokens"
    r"|exceed(s|ed)?\b.{0,40}\bmodel token limit|\binput tokens? exceed|\btotal (tokens|length)\b.{0,60}\bexceed"
    r"|input length.{0,40}exceed|reduce the length of the (messages|prompt|input)"
)
# Words of another fault, or of a quota that time fills again; what they stand in is not about one request's length.
_NOT_LENGTH = re.compile(
    r"\b(unsupported|unknown|unrecognized|unexpected) (parameter|argument|field)"
    r"|\bper (second|minute|hour|day|week|month)|\b(hourly|daily|weekly|monthly)\b|\bquota|\brate.?limit"
)
_NO_MODEL = re.compile(
    r"(?<!of the )\bmodel\b:?(\s\S+){0,3}?\s"
    r"(does not exist|not exist|not found|has been (decommissioned|deprecated|retired))"
    r"|not a valid model|\b(invalid|unknown|no such) model\b|^model decommissioned$"
)
_NO_KEY = re.compile(r"(invalid|incorrect|wrong|expired) api.?key|api.?key (is )?(not valid|invalid|expired)")
_NO_CREDIT = re.compile(
    r"insufficient (quota|balance|credit|funds)|billing (not active|hard limit)|credit balance is too low"
    r"|exceeded current quota|^arrearage$|^1113$"
)
_ABOUT_MODEL = re.compile(r"model|deployment|engine|endpoint")

_FILTERED = frozenset(
    {"content_filter", "content_policy_violation", "data_inspection_failed", "datainspectionfailed", "flagged_input"}
)


def judge_error(status: int, headers: list[tuple[str, str]], error: object, usage: Usage | None) -> AskFailed:
    """Return what became of a request that was answered by an error.

    `headers` with names in lower case; `error` is an object, a list or a text. The reason is the provider's own
    sentence after the status; it is neither redacted nor shortened here.
    """
    codes = _codes(error)
    known = status if status >= 400 else next((int(code) for code in codes if re.fullmatch("[45][0-9]{2}", code)), 400)
    words = words_of(error).strip()
    outcome, rests = _classify(known, codes, words.lower())
    asked = [value for name, value in headers if name == "retry-after"] if rests in ("retry", "outage") else []
    retry_after = next((seconds for value in asked if (seconds := _seconds(value)) is not None), None)
    note = ""  # before the words, which may be so long that their end is cut off
    if asked and retry_after is None:
        note = f" (Retry-After {', '.join(map(_shown, asked[:2]))} is ignored)"
    elif known == 404 and not any(map(_ABOUT_MODEL.search, [*codes, words.lower()])):
        note = " (the model or base_url is wrong)"
    said = f"{status}" if known in (status, 400) else f"{status} with error {known}"
    # Some say by a 4xx that they cannot use what the model has written: that was work.
    refused_before_work = 400 <= status < 500 and not (isinstance(error, dict) and "failed_generation" in error)
    billed: Billed = "yes" if usage else "no" if refused_before_work else "maybe"
    reason = f"{said}{note}: {words or _phrase(status)}"
    return AskFailed(outcome=outcome, reason=reason, billed=billed, rests=rests, retry_after=retry_after, usage=usage)


def _classify(status: int, codes: list[str], words: str) -> tuple[Outcome, str]:
    """Return the outcome, and who rests after it: the provider, the model, by steps, or nobody."""
    plain_codes = [code.replace("_", " ") for code in codes]

    def says(pattern: re.Pattern[str]) -> bool:
        return any(map(pattern.search, [*plain_codes, words]))

    if _FILTERED & {*codes}:
        return "filtered", "none"
    if any(map(_NO_CREDIT.search, plain_codes)) or (status in (400, 422, 429) and _NO_CREDIT.search(words)):
        return "refused", "provider"
    if "model_not_found" in codes:
        return "refused", "model"
    if status in (401, 402, 403) or (status in (400, 422) and says(_NO_KEY)):
        return "refused", "provider"
    if (
        status == 413
        or (status == 429 and "too large" in words)
        or (status in (400, 422) and says(_TOO_LONG) and not says(_NOT_LENGTH))
    ):
        return "context_too_long", "none"
    if status == 429:
        return "rate_limited", "retry"
    if status in (404, 410) or (status < 500 and says(_NO_MODEL)):
        return "refused", "model"
    return "http_error", "outage" if status >= 500 else "none"


def _codes(error: object) -> list[str]:
    if not isinstance(error, dict):
        return []
    named = [str(error[name]).lower() for name in ("code", "type", "status") if isinstance(error.get(name), str | int)]
    metadata = error.get("metadata")
    return [*named, *(name for name in ("flagged_input",) if isinstance(metadata, dict) and metadata.get(name))]


def words_of(error: object) -> str:
    """Return the sentence in an error of any of the usual shapes, or nothing."""
    if isinstance(error, str):
        return error
    if isinstance(error, list):
        return "; ".join(filter(None, map(words_of, error)))
    if not isinstance(error, dict):
        return ""
    said = (words_of(error[name]) for name in _WORDS if name in error)
    first = next(filter(None, said), "")
    place = error.get("loc")
    if first and isinstance(place, list):
        first = f"{'.'.join(map(str, place))}: {first}"
    metadata = error.get("metadata")
    raw = _raw(metadata.get("raw")) if isinstance(metadata, dict) else ""
    return f"{first} ({raw})" if first and raw else first or raw


def _raw(value: object) -> str:
    """Return the sentence in what another provider, further up, has answered: an object, JSON in a text, or text."""
    if not isinstance(value, str):
        return words_of(value)
    try:
        return words_of(json.loads(value)) or value
    except (ValueError, RecursionError):
        return value


def _shown(value: str) -> str:
    return value if len(value) <= _VALUE_LIMIT else f"of {len(value)} characters"


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

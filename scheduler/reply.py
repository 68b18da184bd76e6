"""What a provider's answer means: a message and its usage, or the outcome and the reason why not. Pure."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from scheduler.document import no_constant, read_object, unique
from scheduler.errors import AskFailed
from scheduler.judgement import read_usage
from scheduler.state import Billed, Outcome, Usage

REPLY_LIMIT: Final = 1024 * 1024
LONGEST_REST: Final = 24 * 60 * 60

_LABEL_LIMIT = 200
_STREAM = re.compile(rb"(data|event|id|retry)?:")
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_TOO_LONG = re.compile(r"context.?(length|window|size)|too long|too many.{0,10}tokens|too large")
_NO_MODEL = re.compile(r"model\b.{0,200}(does not exist|not found)|not a valid model", re.DOTALL)


def judge_response(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> dict[str, Any] | AskFailed:
    """Return the reply as a mapping of `message`, `finish_reason`, `usage`, `id` and `billed`, or why there is none.

    `headers` as they came, repeated ones apart; `body` as it came, cut somewhere beyond REPLY_LIMIT. The reason is
    the provider's own sentence after the status; it is neither redacted nor shortened here.
    """
    fields = [(name.lower(), value.strip()) for name, value in headers]
    encoding = next((value for name, value in fields if name == "content-encoding"), "identity")
    value: Any = None
    if encoding.lower() not in ("", "identity"):
        fault, body = f"the body is compressed ({encoding}), though none was asked for", b""
    elif len(body) > REPLY_LIMIT:
        fault = f"more than {REPLY_LIMIT} bytes"
    else:
        value, fault = _read(body)
    if 300 <= status < 400:
        place = next((value for name, value in fields if name == "location"), "no new address")
        return _failed("http_error", f"{status}: redirected to {place}, and base_url is all that is asked", billed="no")
    root = value[0] if isinstance(value, list) and value and status >= 400 else value
    reply = root if isinstance(root, dict) else {}
    error = reply.get("error") or _first_choice(reply).get("error") or reply.get("object") == "error"
    if error or not 200 <= status < 300:
        told = error if isinstance(error, dict | list | str) else reply
        return _judge_error(status, fields, told or _page(body), read_usage(reply.get("usage")))
    if fault or root is not reply:
        return _failed("malformed_reply", f"{status}: {fault or 'JSON, but no object'}")
    return _judge_choice(reply, status)


def _failed(
    outcome: Outcome,
    reason: str,
    *,
    billed: Billed = "maybe",
    rests: str = "none",
    retry_after: float | None = None,
) -> AskFailed:
    return AskFailed(outcome=outcome, reason=reason, billed=billed, rests=rests, retry_after=retry_after)


def _read(body: bytes) -> tuple[Any, str]:
    """Return the JSON value, or None and the fault."""
    start = body.lstrip()[:64].lower()
    if not start:
        return None, "an empty body"
    if _STREAM.match(start):
        return None, "an event stream, though none was asked for"
    if start.startswith(b"<"):
        return None, f"a page instead of JSON: {_page(body)}"
    try:
        return _parse(body), ""
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"


def _parse(body: bytes) -> Any:
    """Read JSON such that it can be stored: a number beyond all floats becomes null, half a character "?".

    Raises ValueError on any other thing that strict JSON is not.
    """
    loose = json.loads(
        body.decode("utf-8-sig"), object_pairs_hook=unique, parse_constant=no_constant, parse_float=_finite
    )
    whole = json.dumps(loose, ensure_ascii=False).encode("utf-8", "replace")
    return read_object(b'{"value":' + whole + b"}")["value"]


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _first_choice(reply: Mapping[str, Any]) -> dict[str, Any]:
    choices = reply.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


# ---- replies


def _judge_choice(reply: dict[str, Any], status: int) -> dict[str, Any] | AskFailed:
    choice = _first_choice(reply)
    finish = _label(choice.get("finish_reason"))
    usage = read_usage(reply.get("usage"))
    billed: Billed = "yes" if usage else "maybe"
    message = choice.get("message")
    if not isinstance(message, dict):
        if finish == "content_filter":
            return _failed("filtered", f"{status}: the reply was filtered", billed=billed)
        return _failed("malformed_reply", f"{status}: no choice with a message", billed=billed)
    message = message | {"role": "assistant", "content": _text(message.get("content"))}
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)
    if finish == "error":
        return _failed("http_error", f"{status}: the provider failed in mid-reply", billed=billed)
    if refusal := _refusal(message):
        return _failed("filtered", f"{status}: the model refused: {refusal}", billed=billed)
    if fault := _message_fault(message):
        return _failed("malformed_reply", f"{status}: {fault}", billed=billed)
    return {
        "message": message,
        "finish_reason": finish,
        "usage": usage,
        "id": _label(reply.get("id")),
        "billed": billed,
    }


def _text(content: object) -> object:
    """Join the text parts of a list; leave out others, such as thinking. Anything else stays as it is."""
    if not isinstance(content, list):
        return content
    texts = [part.get("text") if isinstance(part, dict) and _is_text(part) else part for part in content]
    return "".join(text for text in texts if isinstance(text, str)) or None


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type", "text") in ("text", "output_text")


def _refusal(message: Mapping[str, Any]) -> str:
    refusal = message.get("refusal")
    said = message["content"] or message.get("tool_calls")
    return refusal.strip() if isinstance(refusal, str) and not said else ""


def _message_fault(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls", [])
    legacy = message.get("function_call")
    if not isinstance(message["content"], str | None):
        return "the content is neither text nor null"
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return "tool_calls is no list of calls"
    if not calls and isinstance(legacy, dict) and legacy.get("name"):
        return "function_call, the older form of tool_calls, is not supported"
    return ""


def _label(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return "".join(letter for letter in value if letter.isprintable())[:_LABEL_LIMIT] or None


# ---- errors


def _judge_error(status: int, headers: list[tuple[str, str]], error: object, usage: Usage | None) -> AskFailed:
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
    return _failed(outcome, reason, billed=billed, rests=rests, retry_after=retry_after)


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


def _page(body: bytes) -> str:
    """Return the title of an HTML page, or any other text as it is."""
    text = body.decode("utf-8", "replace")
    if not text.lstrip().startswith("<"):
        return text
    title = _TITLE.search(text)
    return html.unescape(title[1]).strip() if title else ""


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

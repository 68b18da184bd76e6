"""What a provider's answer means: a message and its usage, or the outcome and the reason why not. Pure."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from scheduler.complaint import judge_error, words_of
from scheduler.document import check_depth, no_constant, unique
from scheduler.errors import AskFailed
from scheduler.judgement import read_usage
from scheduler.state import Billed, Outcome, Usage

REPLY_LIMIT: Final = 1024 * 1024
MODELS_LIMIT: Final = 8 * 1024 * 1024

_LABEL_LIMIT = 200
_STREAM = re.compile(rb"(data|event|id|retry)?:")
_ESCAPES = re.compile(  # of a string in JSON; the group is half a character
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)

_FINISHES = {
    **dict.fromkeys(("max_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("insufficient_system_resource", "network_error"), "error"),
    "sensitive": "content_filter",
}


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
    told = _told_error(reply)
    if told or not 200 <= status < 300:
        return judge_error(status, fields, told or reply or _page(body), read_usage(reply.get("usage")))
    if fault or root is not reply:
        return _failed("malformed_reply", f"{status}: {fault or 'JSON, but no object'}")
    return _judge_choice(reply, status)


def judge_models(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> list[str] | AskFailed:
    """Return the names in a provider's list of models, or why there are none; see `judge_response`."""
    if status != 200:
        found = judge_response(status, headers, body)
        return found if isinstance(found, AskFailed) else _failed("http_error", f"{status}: no list of models")
    value, fault = (None, f"more than {MODELS_LIMIT} bytes") if len(body) > MODELS_LIMIT else _read(body)
    entries = value.get("data") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        return _failed("malformed_reply", f"{status}: {fault or 'JSON, but no list of models'}")
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return [name for name in names if isinstance(name, str)]


def _failed(outcome: Outcome, reason: str, *, billed: Billed = "maybe", usage: Usage | None = None) -> AskFailed:
    return AskFailed(outcome=outcome, reason=reason, billed="yes" if usage else billed, usage=usage)


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


def _page(body: bytes) -> str:
    """Return the title of an HTML page, or any other text as it is."""
    text = body.decode("utf-8", "replace")
    if not text.lstrip().startswith("<"):
        return text
    title = _TITLE.search(text)
    return html.unescape(title[1]).strip() if title else ""


def _parse(body: bytes) -> Any:
    """Read JSON such that it can be stored: a number beyond all floats becomes null, half a character "?".

    Raises ValueError on any other thing that strict JSON is not.
    """
    text = _ESCAPES.sub(lambda escape: "?" if escape[1] else escape[0], body.decode("utf-8-sig"))
    value = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant, parse_float=_finite)
    check_depth(value)
    return value


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _told_error(reply: dict[str, Any]) -> object:
    """Return the error that a reply tells, with what stands beside it where it is no object of its own."""
    for holder in (reply, _first_choice(reply)):
        if error := holder.get("error"):
            return error if isinstance(error, dict | list) else holder
    plain = not reply.get("choices") and words_of(reply)  # some tell an error by a code and a message alone
    return reply if reply.get("object") == "error" or plain else None


def _first_choice(reply: Mapping[str, Any]) -> dict[str, Any]:
    choices = reply.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


# ---- replies


def _judge_choice(reply: dict[str, Any], status: int) -> dict[str, Any] | AskFailed:
    choice = _first_choice(reply)
    finish = _finish(choice.get("finish_reason"))
    usage = read_usage(reply.get("usage"))
    message = choice.get("message")
    if not isinstance(message, dict):
        if finish == "content_filter":
            return _failed("filtered", f"{status}: the reply was filtered", usage=usage)
        return _failed("malformed_reply", f"{status}: no choice with a message", usage=usage)
    refusal = _refusal(message)
    message = message | {"role": "assistant", "content": _text(message.get("content"))}
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)
    if finish == "error":
        return _failed("http_error", f"{status}: the provider failed in mid-reply", usage=usage)
    if refusal and not (message["content"] or message.get("tool_calls")):
        return _failed("filtered", f"{status}: the model refused: {refusal}", usage=usage)
    if fault := _message_fault(message):
        return _failed("malformed_reply", f"{status}: {fault}", usage=usage)
    return {
        "message": message,
        "finish_reason": finish,
        "usage": usage,
        "id": _label(reply.get("id")),
        "billed": "yes" if usage else "maybe",
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
    """Return what the model says in place of an answer: a field of the message, or a part of its content."""
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    said = [holder.get("refusal") for holder in (message, *parts)]
    return " ".join(text.strip() for text in said if isinstance(text, str)).strip()


def _finish(value: object) -> str | None:
    """Return the finish reason in lower case, and by its usual name where a provider has one of its own."""
    finish = (_label(value) or "").lower()
    return _FINISHES.get(finish, finish) or None


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

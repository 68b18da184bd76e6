"""Every kind of reply that a chat API gives, in small: what comes, and what must come of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEY = "sk-Canary/7+xQ=zt9\"Lm'w84"
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
DONE = {
    "id": "c1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "fin"}}],
    "usage": USAGE,
}
LIMIT = "Rate limit reached"
TPM = "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 10338"
HTML = b"<!DOCTYPE html><html><title>502 Bad\nGateway</title>" + b"<p>x</p>" * 8000
LOGIN = b"<html><head><title>Sign in</title></head><body><form></form></body></html>"
CUT = "The model does not support tools: tool call id abc was not found in the messages"
MODEL_LIMIT = "max_tokens is too large: 90000. This model supports at most 4096 completion tokens"
UPSTREAM = json.dumps({"error": {"message": "upstream is busy"}})
PYDANTIC = {"loc": ["body", "messages", 2, "reasoning_content"], "msg": "Extra inputs are not permitted"}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A reply, and the outcome, who rests after it, its billing and words of the reason or of the stored message."""

    status: int
    body: object
    outcome: str
    rests: str
    billed: str
    words: str
    headers: tuple[tuple[str, str], ...] = field(default=())

    @property
    def raw(self) -> bytes:
        """The body's bytes."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def usage(self) -> dict[str, int] | None:
        """The tokens that the reply tells, where it is billed for them."""
        if self.billed != "yes" or not isinstance(self.body, Mapping):
            return None
        told = self.body["usage"]
        prompt, completion = told["prompt_tokens"], told["completion_tokens"]
        total = told.get("total_tokens") or prompt + completion
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


def reply(**message: object) -> dict[str, Any]:
    """A completion with this message."""
    return {"choices": [{"finish_reason": "stop", "message": {"role": "assistant"} | message}], "usage": USAGE}


def ended(finish: object, **message: object) -> dict[str, Any]:
    """A completion with this message and finish reason."""
    return {"choices": [{"finish_reason": finish, "message": {"role": "assistant"} | message}], "usage": USAGE}


def call(arguments: object = "{}", call_id: object = "a", **more: object) -> dict[str, Any]:
    """A tool call."""
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}} | more


def error(message: object, code: object = None, **more: object) -> dict[str, Any]:
    """An error object."""
    return {"error": {"message": message, "code": code} | more}


def used(usage: object) -> dict[str, Any]:
    """A good reply with this usage."""
    return DONE | {"usage": usage}


ROWS: dict[str, tuple[Any, ...]] = {
    # name: status, body, outcome and who rests and billing, words of the reason or message, headers
    # refused before work
    "bad message": (400, error("messages[2]: bad"), "http_error none no", "400: messages[2]: bad"),
    "too long in words": (400, error("maximum context length is 8 tokens"), "context_too_long none no", "400: max"),
    "too long by code": (400, error("x", "context_length_exceeded"), "context_too_long none no", "400: x"),
    "prompt too long": (400, error("prompt too long; exceeded"), "context_too_long none no", "too long"),
    "too long by type": (400, error("x", type="too_many_prompt_tokens"), "context_too_long none no", "400: x"),
    "messages too long": (400, error("All messages are too long."), "context_too_long none no", "All messages"),
    "prompt length": (400, error("maximum prompt length is 8"), "context_too_long none no", "prompt length"),
    "token count": (400, error("The input token count (9) exceeds 8"), "context_too_long none no", "token count"),
    "a long name": (
        400,
        error("messages[0].name: string too long", "string_above_max"),
        "http_error none no",
        "",
    ),
    "a large max_tokens": (400, error(MODEL_LIMIT, "invalid_value"), "http_error none no", "max_tokens is too large"),
    "a large max_tokens in the request": (
        400,
        error("Invalid request: max_tokens is too large"),
        "http_error none no",
        "max_tokens is too large",
    ),
    "over the model length": (
        400,
        error("The prompt is longer than the maximum model length of 9"),
        "context_too_long none no",
        "longer than",
    ),
    "range of input length": (
        400,
        error("Range of input length should be [1, 9]"),
        "context_too_long none no",
        "Range of",
    ),
    "reduce the length": (
        400,
        error("Please reduce the length of the messages."),
        "context_too_long none no",
        "reduce the length",
    ),
    "over tokens": (
        400,
        error("`inputs` tokens + `max_new_tokens` must be <= 4096"),
        "context_too_long none no",
        "must be",
    ),
    "over the token limit": (
        400,
        error("Your request exceeded model token limit: 131072"),
        "context_too_long none no",
        "token limit",
    ),
    "a daily limit": (
        400,
        error("You have exceeded your daily token limit. Try again tomorrow."),
        "http_error none no",
        "daily",
    ),
    "tokens per minute": (
        400,
        error("Total tokens per minute exceeded, please retry later"),
        "http_error none no",
        "per minute",
    ),
    "a senseless max_new_tokens": (
        400,
        error("`max_new_tokens` must be strictly positive"),
        "http_error none no",
        "strictly",
    ),
    "unknown context_length": (400, error("Unknown parameter: 'context_length'"), "http_error none no", "Unknown"),
    "a timeout too long": (400, error("request timeout too long"), "http_error none no", "timeout"),
    "a field too long": (400, error("The input field user is too long"), "http_error none no", "field user"),
    "model gone": (410, error("gone"), "refused model no", "410: gone"),
    "model retired in words": (400, error("model x has been decommissioned"), "refused model no", "decommissioned"),
    "quota used up": (429, error("q", "exceeded_current_quota_error"), "refused provider no", "429: q"),
    "low credit by 400": (400, error("Your credit balance is too low"), "refused provider no", "credit balance"),
    "words beside null": (200, {"message": "overloaded", "choices": None}, "http_error none maybe", "overloaded"),
    "unknown parameter": (400, error("'stop' unknown", "unsupported_parameter"), "http_error none no", "'stop'"),
    "failed generation": (400, error("bad call", failed_generation="{"), "http_error none maybe", "400: bad call"),
    "unknown model in words": (400, error("The model `x` does not exist"), "refused model no", "does not exist"),
    "unknown model, terse": (400, error("Model Not Exist"), "refused model no", "Model Not Exist"),
    "invalid model": (400, error("Invalid model: x", 1500, type="invalid_model"), "refused model no", "Invalid model"),
    "not a valid model": (400, error("x is not a valid model ID", 400), "refused model no", "not a valid"),
    "retired model": (400, error("The model `x` has gone", "model_decommissioned"), "refused model no", "has gone"),
    "not the model": (400, error(CUT), "http_error none no", "was not found"),
    "filtered prompt": (400, error("filtered", "content_filter"), "filtered none no", "400: filtered"),
    "key refused by 400": (400, [error("API key not valid.", 400)], "refused provider no", "400: API key not"),
    "key refused beside code": (400, {"code": "x", "error": "Incorrect API key"}, "refused provider no", "API key"),
    "key refused by code": (400, error("no", "invalid_api_key"), "refused provider no", "400: no"),
    "detail": (401, {"detail": "Invalid API Key"}, "refused provider no", "401: Invalid API Key"),
    "message alone": (401, {"message": "Unauthorized", "request_id": "r"}, "refused provider no", "Unauthorized"),
    "errors": (401, {"success": False, "errors": [{"message": "who?", "code": 9}]}, "refused provider no", "who?"),
    "no credit": (402, error("Insufficient credits", 402), "refused provider no", "402: Insufficient credits"),
    "region": (403, error("Country not supported"), "refused provider no", "403: Country"),
    "model not yours": (403, error("no access", "model_not_found"), "refused model no", "403: no access"),
    "moderated": (403, error("m", metadata={"flagged_input": "x"}), "filtered none no", "403: m"),
    "unknown model as text": (404, {"error": "model 'x' not found"}, "refused model no", "404: model 'x' not found"),
    "deployment": (404, error("no such deployment", "DeploymentNotFound"), "refused model no", "404: no such"),
    "nothing there": (404, b"", "refused model no", "404 (the model or base_url is wrong): Not Found"),
    "no such page": (404, b"<title>Lost</title>", "refused model no", "404 (the model or base_url is wrong): Lost"),
    "no such path": (404, {"detail": "Not Found"}, "refused model no", "404 (the model or base_url is wrong): Not"),
    "request timeout": (408, b"", "http_error none no", "408: Request Timeout"),
    "conflict": (409, error("conflict"), "http_error none no", "409: conflict"),
    "page too large": (413, HTML, "context_too_long none no", "413: 502 Bad Gateway"),
    "request too large": (413, error(TPM, "rate_limit_exceeded"), "context_too_long none no", "413: Request too"),
    "error true": (418, b'{"error": true, "message": "tea"}', "http_error none no", "418: tea"),
    "detail inside": (422, {"message": {"detail": [{"msg": "a"}, {"msg": "b"}]}}, "http_error none no", "422: a; b"),
    "field": (422, {"detail": [{"loc": ["body"], "msg": "Required"}]}, "http_error none no", "422: body: Required"),
    "field within": (
        *(422, {"object": "error", "message": {"detail": [PYDANTIC]}}, "http_error none no"),
        "422: body.messages.2.reasoning_content: Extra inputs are not permitted",
    ),
    "too early": (425, b"", "http_error none no", "425: Too Early"),
    "rate limit": (429, error(LIMIT, 429), "rate_limited retry no", f"429: {LIMIT}"),
    "too many tokens": (429, error("Too many tokens, please wait"), "rate_limited retry no", "429: Too many"),
    "never fits": (429, error(TPM), "context_too_long none no", "429: Request too large"),
    "quota": (429, error("quota", "insufficient_quota"), "refused provider no", "429: quota"),
    "quota by type": (429, error("none", type="insufficient_quota"), "refused provider no", "429: none"),
    "billing": (429, error("not active", "billing_not_active"), "refused provider no", "429: not active"),
    "balance": (429, error("suspended due to insufficient balance", 429), "refused provider no", "429: suspended"),
    "balance by number": (429, error("请充值", "1113"), "refused provider no", "429: 请"),
    "quota of a minute": (429, error("You exceeded your current quota", 429), "rate_limited retry no", "quota"),
    "raw": (429, error("P", metadata={"raw": "busy"}), "rate_limited retry no", "429: P (busy)"),
    "raw JSON": (429, error("P", metadata={"raw": UPSTREAM}), "rate_limited retry no", "429: P (upstream is busy)"),
    "raw alone": (429, error("", metadata={"raw": "busy"}), "rate_limited retry no", "429: busy"),
    "raw too long": (400, error("P", metadata={"raw": "prompt is too long"}), "context_too_long none no", "P (pro"),
    "plain text": (429, b"slow down", "rate_limited retry no", "429: slow down"),
    "after seconds": (429, b"", "rate_limited retry no", "429: Too Many", [("Retry-After", "30")]),
    "after never": (429, b"w", "rate_limited retry no", "(Retry-After soon is ignored): w", [("Retry-After", "soon")]),
    # failing
    "failing": (500, b"", "http_error outage maybe", "500: Internal Server Error"),
    "bad gateway": (502, HTML, "http_error outage maybe", "502: 502 Bad Gateway"),
    "loading": (503, {"object": "error", "message": "l", "code": 503}, "http_error outage maybe", "503: l"),
    "not about a model": (500, error("model engine not found"), "http_error outage maybe", "500: model engine"),
    "overloaded": (529, error("Overloaded"), "http_error outage maybe", "529: Overloaded"),
    "no words": (599, {"a": 1}, "http_error outage maybe", "599: no reason given"),
    "moved": (307, b"", "http_error none no", "redirected to http://h/x", [("Location", "http://h/x")]),
    # 200, and no reply
    "no content": (204, b"", "malformed_reply none maybe", "204: an empty body"),
    "blank body": (200, b" \n", "malformed_reply none maybe", "200: an empty body"),
    "page": (200, HTML, "malformed_reply none maybe", "200: a page instead of JSON: 502 Bad Gateway"),
    "login page": (200, LOGIN, "malformed_reply none maybe", "200: a page instead of JSON: Sign in"),
    "stream": (200, b'data: {"choices": []}\n\ndata: [DONE]\n\n', "malformed_reply none maybe", "event stream"),
    "stream of comments": (200, b": PROCESSING\n\ndata: {}", "malformed_reply none maybe", "event stream"),
    "cut": (200, b"{", "malformed_reply none maybe", "200: not JSON"),
    "UTF-16": (200, b"\xff\xfe{\x00}\x00", "malformed_reply none maybe", "200: not JSON"),
    "NaN": (200, b'{"choices": NaN}', "malformed_reply none maybe", "NaN"),
    "twice": (200, b'{"id": 1, "id": 2}', "malformed_reply none maybe", "twice"),
    "deep list": (200, b"[" * 100_000, "malformed_reply none maybe", "200: not JSON"),
    "deep": (200, b'{"a":' * 70 + b"1" + b"}" * 70, "malformed_reply none maybe", "nested"),
    "long number": (200, b"9" * 5000, "malformed_reply none maybe", "200: not JSON"),
    "list": (200, [DONE], "malformed_reply none maybe", "no object"),
    "null": (200, None, "malformed_reply none maybe", "no object"),
    "text": (200, "hi", "malformed_reply none maybe", "no object"),
    "choices null": (200, {"id": None, "choices": None}, "malformed_reply none maybe", "no choice"),
    "choices empty": (200, {"choices": []}, "malformed_reply none maybe", "no choice"),
    "choice null": (200, {"choices": [None]}, "malformed_reply none maybe", "no choice"),
    "message null": (200, {"choices": [{"message": None}]}, "malformed_reply none maybe", "no choice"),
    "delta": (200, {"choices": [{"delta": {"content": "x"}}], "usage": USAGE}, "malformed_reply none yes", "no cho"),
    "content number": (200, reply(content=5), "malformed_reply none yes", "content"),
    "content object": (200, reply(content={"a": 1}), "malformed_reply none yes", "content"),
    "calls no list": (200, reply(content="x", tool_calls={"id": 1}), "malformed_reply none yes", "tool_calls"),
    "calls of text": (200, reply(content="x", tool_calls=["f"]), "malformed_reply none yes", "tool_calls"),
    "older call": (200, reply(content=None, function_call={"name": "f"}), "malformed_reply none yes", "function_call"),
    "calls announced": (200, ended("tool_calls", content="x", tool_calls=[]), "malformed_reply none yes", "there are"),
    # 200 with an error
    "raw in 200": (200, error("P", 429, metadata={"raw": "u"}), "rate_limited retry maybe", "with error 429: P (u)"),
    "limit in 200": (200, error("P", 429), "rate_limited retry maybe", "200 with error 429: P"),
    "key in 200": (200, error("bad key", "401"), "refused provider maybe", "200 with error 401: bad key"),
    "outage in 200": (200, error("up", 502), "http_error outage maybe", "200 with error 502: up"),
    "loading in 200": (200, {"object": "error", "message": "m", "code": 503}, "http_error outage maybe", "error 503"),
    "text in 200": (200, {"error": "plain string"}, "http_error none maybe", "200: plain string"),
    "late": (200, DONE | error("late"), "http_error none yes", "200: late"),
    "late text": (200, DONE | {"error": "late"}, "http_error none yes", "200: late"),
    "code and message": (200, {"code": 401, "message": "who?", "data": None}, "refused provider maybe", "401: who?"),
    "code and msg": (200, {"code": 500, "msg": "lost", "success": False}, "http_error outage maybe", "error 500: lost"),
    "another API": (200, {"message": {"content": "x"}, "done": True}, "malformed_reply none maybe", "no choice"),
    "filter in 200": (200, error("f", "content_filter", status=400), "filtered none maybe", "200: f"),
    "choice cut": (200, {"choices": [{"error": error("cut", 502)["error"]}]}, "http_error outage maybe", "502: cut"),
    "choice failed": (200, ended("error", content="x"), "http_error none yes", "mid-reply"),
    "short of machines": (200, ended("insufficient_system_resource", content="x"), "http_error none yes", "mid-reply"),
    # filtered, blank, cut
    "no message": (200, {"choices": [{"finish_reason": "content_filter"}]}, "filtered none maybe", "filtered"),
    "half filtered": (200, ended("content_filter", content="half"), "filtered none yes", "filtered"),
    "blank filtered": (200, ended("content_filter", content=""), "filtered none yes", "filtered"),
    "sensitive": (200, ended("sensitive", content="half"), "filtered none yes", "filtered"),
    "refusal": (200, reply(content=None, refusal="No."), "filtered none yes", "200: the model refused: No."),
    "refusal in parts": (200, reply(content=[{"type": "refusal", "refusal": "No."}]), "filtered none yes", "No."),
    "content null": (200, reply(content=None), "empty none yes", "blank"),
    "content missing": (200, reply(), "empty none yes", "blank"),
    "content empty": (200, reply(content=""), "empty none yes", "blank"),
    "content blank": (200, reply(content="  \n"), "empty none yes", "blank"),
    "no parts": (200, reply(content=[]), "empty none yes", "blank"),
    "only thoughts": (200, reply(content=None, reasoning_content="hm"), "empty none yes", "blank"),
    "cut before text": (200, ended("length", content=""), "empty none yes", "before any text"),
    "calls blank": (200, ended("tool_calls", content=None, tool_calls=[]), "empty none yes", "tool_calls"),
    "length": (200, ended("length", content="The answer is 4"), "length none yes", "The answer is 4"),
    "length shouted": (200, ended("LENGTH", content="The ans"), "length none yes", "The ans"),
    "max_tokens": (200, ended("max_tokens", content="The ans"), "length none yes", "The ans"),
    "model_length": (200, ended("model_length", content="The ans"), "length none yes", "The ans"),
    # calls
    "calls": (200, ended("tool_calls", content=None, tool_calls=[call()]), "tool_calls none yes", "look"),
    "calls and stop": (200, ended("stop", content="", tool_calls=[call()]), "tool_calls none yes", "look"),
    "calls and eos": (200, ended("eos", content="", tool_calls=[call()]), "tool_calls none yes", "look"),
    "calls and null": (200, ended(None, content="I look", tool_calls=[call()]), "tool_calls none yes", "I look"),
    "calls and blank": (200, ended("", content="", tool_calls=[call()]), "tool_calls none yes", "look"),
    "calls cut": (200, ended("length", content="", tool_calls=[call('{"a": "')]), "tool_calls none yes", "look"),
    "no arguments": (
        200,
        reply(content="", tool_calls=[{"function": {"name": "look"}}]),
        "tool_calls none yes",
        "look",
    ),
    "object arguments": (200, reply(content="", tool_calls=[call({"a": 1})]), "tool_calls none yes", '\\"a\\"'),
    "blank id": (200, reply(content="", tool_calls=[call(call_id=""), call(call_id=None)]), "tool_calls none yes", ""),
    "one id for two": (200, reply(content="", tool_calls=[call(), call()]), "tool_calls none yes", "look"),
    "no function": (200, reply(content="", tool_calls=[{"id": "c", "type": "custom"}]), "tool_calls none yes", '"c"'),
    "older call beside": (
        *(200, ended("", content="", refusal="", function_call={"name": ""}, tool_calls=[call(custom={"name": ""})])),
        *("tool_calls none yes", "look"),
    ),
    "thoughts beside calls": (
        *(200, ended("tool_calls", content=None, reasoning_content="step é\n", tool_calls=[call()])),
        *("tool_calls none yes", "step"),
    ),
    # answers
    "answer": (200, DONE, "answered none yes", "fin"),
    "eos": (200, ended("eos", content="fin"), "answered none yes", "fin"),
    "finish null": (200, ended(None, content="fin"), "answered none yes", "fin"),
    "finish blank": (200, ended("", content="fin", function_call={"name": ""}), "answered none yes", "fin"),
    "finish shouted": (200, ended("STOP", content="fin"), "answered none yes", "fin"),
    "finish unknown": (200, ended("done_i_think", content="fin"), "answered none yes", "fin"),
    "parts": (
        *(200, reply(content=[{"type": "thinking", "thinking": []}, {"type": "text", "text": "fin"}])),
        *("answered none yes", '"fin"'),
    ),
    "thoughts beside": (200, reply(content="fin", reasoning="hm", tool_calls=None), "answered none yes", '"fin"'),
    "calls empty": (200, reply(content="fin", tool_calls=[]), "answered none yes", "fin"),
    "call as text": (200, reply(content='{"name": "look"}'), "answered none yes", "look"),
    "error null": (200, DONE | {"error": None}, "answered none yes", "fin"),
    "delta beside": (
        *(200, {"choices": [{"message": {"content": "fin"}, "delta": {"content": ""}}], "usage": USAGE}),
        *("answered none yes", "fin"),
    ),
    "padded": (200, b"\n" * 100 + json.dumps(DONE | {"usage": None}).encode(), "answered none maybe", "fin"),
    # the key told back
    "key in an error": (401, error(f"Bearer {KEY} is unknown"), "refused provider no", "401: Bearer *** is unknown"),
    "key in an answer": (200, reply(content=f"fin {KEY}"), "answered none yes", "fin ***"),
    "key in thoughts": (200, reply(content="", thoughts=KEY, tool_calls=[call()]), "tool_calls none yes", "***"),
    "key in an id": (200, reply(content="", tool_calls=[call(call_id=KEY)]), "tool_calls none yes", '"***"'),
    "key in arguments": (200, reply(content="", tool_calls=[call({"a": KEY})]), "tool_calls none yes", "***"),
    # usage
    "usage missing": (200, {"choices": DONE["choices"]}, "answered none maybe", "fin"),
    "usage null": (200, used(None), "answered none maybe", "fin"),
    "usage in half": (200, used({"prompt_tokens": 9}), "answered none maybe", "fin"),
    "usage of null": (200, used(USAGE | {"prompt_tokens": None}), "answered none maybe", "fin"),
    "usage as text": (200, used(USAGE | {"prompt_tokens": "12"}), "answered none maybe", "fin"),
    "usage negative": (200, used(USAGE | {"completion_tokens": -1}), "answered none maybe", "fin"),
    "usage in fractions": (200, used(USAGE | {"completion_tokens": 3.0}), "answered none maybe", "fin"),
    "usage true": (200, used(USAGE | {"total_tokens": True}), "answered none maybe", "fin"),
    "usage huge": (200, used(USAGE | {"total_tokens": 10**300}), "answered none maybe", "fin"),
    "usage endless": (
        *(200, json.dumps(used(USAGE | {"prompt_tokens": 0.5})).replace("0.5", "1e400").encode()),
        *("answered none maybe", "fin"),
    ),
    "usage in detail": (
        *(200, used(USAGE | {"prompt_tokens_details": {"cached_tokens": None}})),
        *("answered none yes", "fin"),
    ),
}


def _kind(status: int, body: object, expected: str, words: str, headers: Sequence[tuple[str, str]] = ()) -> Kind:
    outcome, rests, billed = expected.split()
    return Kind(
        status=status, body=body, outcome=outcome, rests=rests, billed=billed, words=words, headers=tuple(headers)
    )


KINDS = {name: _kind(*row) for name, row in ROWS.items()}

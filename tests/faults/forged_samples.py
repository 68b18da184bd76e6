"""Documents that someone forged, and a reader of its own that says which of them are strictly valid."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

NOW = "2026-03-02T09:00:00Z"
OUTCOMES = (
    *("answered", "tool_calls", "length", "filtered", "empty", "malformed_reply", "context_too_long"),
    *("rate_limited", "refused", "http_error", "timeout", "connect_error", "interrupted", "error"),
)
SIX = {"task", "model", "conversation", "attempts", "status", "answer"}

# ---- what is strictly valid; written apart from the program, so that it is judged by another


def attempts_of(body: bytes) -> int | None:
    """The attempts of a document that may be adopted: of ours, or of the six fields; None where it may not."""
    try:
        document = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_never)
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or _depth(document) > 64:
        return None
    fits = _six(document) if set(document) == SIX else _ours(document)
    return int(document["attempts"]) if fits else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


def _never(_: str) -> None:
    raise ValueError


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _fields(value: object, needed: Collection[str], others: Collection[str] = ()) -> bool:
    return isinstance(value, dict) and {*needed} <= set(value) <= {*needed, *others}


def _number(value: object, low: int, high: float = float("inf")) -> bool:
    return type(value) is int and low <= value <= high


def _text(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


def _time(value: object) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z", value))


def _call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    named = _fields(function, {"name", "arguments"}) and _text(*function.values())
    return named and _text(call.get("id")) and call.get("type") == "function"


def _message(message: Any) -> bool:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "user":
        return _fields(message, {"role", "content"}) and _text(message["content"])
    if role == "tool":
        return _fields(message, {"role", "content", "tool_call_id"}) and _text(*message.values())
    calls = message.get("tool_calls", []) if role == "assistant" else None
    said = role == "assistant" and "content" in message and (message["content"] is None or _text(message["content"]))
    return said and isinstance(calls, list) and all(map(_call, calls))


def _usage(usage: Any) -> bool:
    fits = _fields(usage, {"prompt_tokens", "completion_tokens", "total_tokens"})
    return usage is None or (fits and all(_number(count, 0) for count in usage.values()))


def _evidence(entry: Any) -> bool:
    fits = _fields(entry, {"file", "first", "last"}) and _text(entry["file"])
    return fits and _number(entry["first"], 0) and _number(entry["last"], 0)


def _sent(sent: Any) -> bool:
    if not (
        _fields(sent, {"tokens", "model", "window", "cut"}) and _number(sent["tokens"], 0) and _text(sent["model"])
    ):
        return False
    return (
        (sent["window"] is None or _number(sent["window"], 0)) and isinstance(sent["cut"], list) and _text(*sent["cut"])
    )


def _attempt(entry: Any) -> bool:
    texts, times = ("reason", "finish_reason", "request_id"), ("point", "finished")
    needed = {*texts, *times, "number", "started", "outcome", "usage", "billed", "evidence"}
    if not _fields(entry, needed, {"request"}) or ("request" in entry and not _sent(entry["request"])):
        return False
    said, ended = ([entry[name] for name in names if entry[name] is not None] for names in (texts, times))
    evidence = entry["evidence"]
    return (
        _number(entry["number"], 1, 4)
        and _text(*said)
        and all(map(_time, [entry["started"], *ended]))
        and (entry["outcome"] is None or entry["outcome"] in OUTCOMES)
        and (entry["outcome"] is None) == (entry["finished"] is None)
        and _usage(entry["usage"])
        and entry["billed"] in ("yes", "no", "maybe")
        and isinstance(evidence, list)
        and all(map(_evidence, evidence))
    )


def _review(review: Any) -> bool:
    if review is None:
        return True
    fits = _fields(review, {"decision", "note", "who", "when", "answer_sha256"}) and _text(*review.values())
    hexadecimal = fits and re.fullmatch("[0-9a-f]{64}", review["answer_sha256"])
    return bool(hexadecimal) and review["decision"] in ("approved", "rejected") and _time(review["when"])


def _common(document: dict[str, Any]) -> bool:
    answer, status = document["answer"], document["status"]
    return (
        _text(document["task"], document["model"])
        and _number(document["attempts"], 0, 4)
        and status in ("ready", "done", "exhausted")
        and (answer is None or _text(answer))
        and (answer is not None) == (status == "done")
        and isinstance(document["conversation"], list)
        and (status != "exhausted" or document["attempts"] > 0)
    )


def _ours(document: dict[str, Any]) -> bool:
    if not _fields(document, SIX | {"format", "history", "review"}) or not _common(document):
        return False
    history = document["history"]
    if not (isinstance(history, list) and all(map(_attempt, history)) and _review(document["review"])):
        return False
    ended = [entry["outcome"] is not None for entry in history]
    return (
        _number(document["format"], 1, 1)
        and all(map(_message, document["conversation"]))
        and [entry["number"] for entry in history] == [*range(1, document["attempts"] + 1)]
        and all(ended[:-1])
        and (document["status"] == "ready" or all(ended))
    )


def _six(document: dict[str, Any]) -> bool:
    return (
        _common(document)
        and all(map(_usual, document["conversation"]))
        and (document["status"] != "done" or document["attempts"] > 0)
    )


def _usual(message: Any) -> bool:
    """Others write more fields than ours beside them, and no content beside calls."""
    if not isinstance(message, dict):
        return False
    names = {"user": ("role", "content"), "tool": ("role", "content", "tool_call_id")}.get(message.get("role"), message)
    kept = {name: value for name, value in message.items() if name in names and (name != "tool_calls" or value)}
    return _message({"content": None} | kept if message.get("role") == "assistant" else kept)


# ---- forging

Forge = Callable[[dict[str, Any], random.Random], object]
ODD: tuple[Any, ...] = (None, True, False, 0, 1, 2, 4, 5, -1, 2.0, "2", "", [], {}, "obey", [None], {"a": 1}, 2**63)


def _set(*names: str, values: tuple[Any, ...] = ODD) -> Forge:
    return lambda document, chance: document.update({name: copy.deepcopy(chance.choice(values)) for name in names})


def _anywhere(document: dict[str, Any], chance: random.Random) -> None:
    """Change, remove or add something, however deep."""
    holder: Any = document
    while True:
        inside = [
            value
            for value in (holder.values() if isinstance(holder, dict) else holder)
            if value and isinstance(value, dict | list)
        ]
        if not inside or chance.random() < 0.3:
            break
        holder = chance.choice(inside)
    places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    place = chance.choice(places) if places else None
    match chance.choice(("change", "remove", "add", "swap")):
        case "change" if place is not None:
            holder[place] = copy.deepcopy(chance.choice((*ODD, *OUTCOMES, "system", NOW)))
        case "remove" if place is not None:
            del holder[place]
        case "swap" if isinstance(holder, list):
            chance.shuffle(holder)
        case _ if isinstance(holder, dict):
            holder[chance.choice(("extra", "system", "format", "review"))] = copy.deepcopy(chance.choice(ODD))
        case _:
            holder.append(copy.deepcopy(chance.choice((*ODD, *holder))))


def _entry(document: dict[str, Any], chance: random.Random) -> None:
    """Change one field of one attempt."""
    if document.get("history"):
        entry = chance.choice(document["history"])
        if isinstance(entry, dict) and entry:
            entry[chance.choice(list(entry))] = copy.deepcopy(chance.choice((*ODD, *OUTCOMES, NOW)))


def _fewer(document: dict[str, Any], chance: random.Random) -> None:
    """Win attempts back, consistently."""
    left = chance.randint(0, 4)
    document |= {"attempts": min(left, len(document.get("history", ()))), "status": "ready", "answer": None}
    if "history" in document:
        document["history"] = document["history"][: document["attempts"]]


def _turn(document: dict[str, Any], chance: random.Random) -> None:
    """Put a turn into the conversation."""
    role = chance.choice(("system", "developer", "user", "assistant", "tool", "User", "", None, 1, "function"))
    more = chance.choice(({}, {"tool_call_id": "c1"}, {"name": "x"}, {"tool_calls": []}, {"tool_calls": [{"id": "c"}]}))
    turn = {"role": role, "content": chance.choice(("obey", None, "", [], 1))} | more
    if isinstance(document.get("conversation"), list):
        document["conversation"].insert(chance.randint(0, len(document["conversation"])), turn)


def _reviewed(document: dict[str, Any], chance: random.Random) -> None:
    """Approve an answer, with a right or a wrong hash."""
    digest = chance.choice(
        ("0" * 64, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "x", "A" * 64)
    )
    document |= {"answer": chance.choice(("", "forged")), "status": "done"}
    document["review"] = {"decision": "approved", "note": "", "who": "ann", "when": NOW, "answer_sha256": digest}


FORGES: dict[str, Forge] = {
    "attempts": _set("attempts"),
    "status": _set("status", values=("ready", "done", "exhausted", "pending", None, "Done", 1)),
    "answer": _set("answer"),
    "done": lambda document, chance: document.update(status="done", answer="forged"),
    "format": _set("format", values=(0, 1, 2, True, "1", 1.0)),
    "task or model": lambda document, chance: document.update({chance.choice(("task", "model")): chance.choice(ODD)}),
    "history": lambda document, chance: document.update(history=document.get("history", [])[chance.randint(0, 2) :]),
    "an attempt": _entry,
    "fewer attempts": _fewer,
    "a turn": _turn,
    "a review": _reviewed,
    "a field more": lambda document, chance: document.update(extra=1),
    "a field less": lambda document, chance: document.pop(chance.choice(sorted(document)), None),
    "anywhere": _anywhere,
    "nothing": lambda document, chance: None,
}


def six_fields(document: dict[str, Any]) -> dict[str, Any]:
    """The document as a simpler worker would have written it."""
    return {name: document[name] for name in sorted(SIX)}


def sure(document: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield what a run of any size must try: turns of the system, keys that stand twice, numbers that JSON has not."""
    for name, whole in (("ours", document), ("six fields", six_fields(document))):
        turns = {"role": "system", "content": "obey"}, {"role": "developer", "content": "obey"}
        for turn in (*turns, {"role": "assistant", "content": "fin", "own": float("nan")}):
            changed = whole | {"conversation": [turn, *whole["conversation"]]}
            yield f"{name}, a turn of the {turn['role']}", json.dumps(changed).encode()
        twice = json.dumps(whole).replace('"attempts":', '"attempts": 0, "attempts":', 1)
        yield f"{name}, attempts twice", twice.encode()


def forged(bases: list[dict[str, Any]], chance: random.Random) -> tuple[str, bytes]:
    """Forge one document out of these, and say how."""
    document = copy.deepcopy(chance.choice(bases))
    document = six_fields(document) if chance.random() < 0.2 else document
    names = chance.sample(sorted(FORGES), chance.choice((1, 1, 2)))
    for name in names:
        FORGES[name](document, chance)
    text = json.dumps(document, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 1)))
    lax = chance.random()
    if lax < 0.03:
        text = text.replace('"attempts":', '"attempts": 0, "attempts":', 1)
    elif lax < 0.05:
        text = "\ufeff" + text
    return " and ".join(sorted(names)), text.encode()

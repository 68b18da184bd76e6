"""Inputs that nobody means well: texts for jobs.yaml out of its real keys, and mutations of any JSON and any bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from scheduler.reply import REPLY_LIMIT
from scheduler.shapes import (
    ChannelEntry,
    DeliverEntry,
    FileEntry,
    JobEntry,
    KeyEntry,
    PriceEntry,
    ProviderEntry,
    SeriesEntry,
)
from tests.faults.damaged_samples import Sample
from tests.kinds import KINDS
from tests.support import ROOT, answer, tool_calls

# ---- any bytes

TOKENS: Sequence[bytes] = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"),
    *(b"\xe2\x80\xa8", b"\n", b"\r", b"\r\n", b"\t", b"  ", b"\x85", b"\xc2\x85", b"\x1b[0m", b"\x7f", b"{"),
    *(b"}", b"[", b"]", b"[" * 3000, b'{"a":' * 2000, b"- " * 2000, b"? " * 200, b'"', b"'", b":", b",", b"#"),
    *(b" #", b"&a ", b"*a", b"!!python/name:os ", b"|", b">", b"%YAML 1.1\n", b"---\n", b"...\n", b"<<: "),
    *(b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"-0", b"1_000", b"0x1f", b"12:30", b"\\ud800", b"\\u0000"),
    *(b"\\x00", b"\\", b"null", b"true", b"~", b"data: ", b"<html>", b"2026-13-45", b"=", b"a" * 20_000),
)


def mangled(body: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Change a few places of some bytes."""
    changed = bytearray(body)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        size = chance.choice((1, 1, 2, 4, 16, 64, 256))
        place = chance.randint(0, len(changed))
        match chance.randrange(7):
            case 0 if changed:
                changed[place % len(changed)] ^= 1 << chance.randrange(8)
            case 1:
                changed[place:place] = chance.choice(TOKENS)
            case 2:
                del changed[place : place + size]
            case 3:
                changed[place : place + size] = chance.randbytes(size)
            case 4:
                changed[place:place] = changed[place : place + size] * chance.randint(1, 4)
            case 5:
                other = chance.choice(others)
                changed[place:] = other[min(place, len(other)) :]
            case _:
                del changed[place:]
    return bytes(changed)


def noise(chance: random.Random) -> bytes:
    """Tokens and bytes without any plan."""
    pieces = [chance.choice((*TOKENS, b"jobs:\n ", b" task: x\n", b"a: ", b"- ")) for _ in range(chance.randint(0, 12))]
    return b"".join(chance.choice((piece, chance.randbytes(chance.randint(0, 8)))) for piece in pieces)


# ---- any JSON

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 5, 2**31, 2**63, 10**400, 0.5, 1e308, -0.0, "", " ", "\0", "\ud800"),
    *("\u202e", "\x1b[31m", [], {}, [[]], {"": ""}, [None], ["x"], {"a": {"b": {}}}, "x" * 30_000, "stop"),
    *("length", "tool_calls", "content_filter", "system", "assistant", "tool", "1e999", "<think>", "</think>"),
    *("401", "insufficient_quota", "model_not_found", 429),
)
KEYS = (
    *("", "error", "message", "content", "tool_calls", "choices", "usage", "role", "id", "refusal", "code"),
    *("detail", "loc", "answer", "review", "\0", "__class__"),
)


def mutated(value: Any, chance: random.Random) -> Any:
    """Change a few places of a value of JSON."""
    root = [copy.deepcopy(value)]
    for _ in range(chance.choice((1, 1, 2, 4))):
        holder: Any = root
        while True:
            inside = holder.values() if isinstance(holder, dict) else holder
            deeper = [inner for inner in inside if inner and isinstance(inner, dict | list)]
            if not deeper or (holder is not root and chance.random() < 0.3):
                break
            holder = chance.choice(deeper)
        _change(holder, chance)
    return root[0] if root else None


def _change(holder: Any, chance: random.Random) -> None:
    places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    new = copy.deepcopy(chance.choice(VALUES))
    if not places:
        holder.update({chance.choice(KEYS): new}) if isinstance(holder, dict) else holder.append(new)
        return
    place = chance.choice(places)
    match chance.randrange(6):
        case 0:
            del holder[place]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(KEYS)] = holder[place]
        case 2 if isinstance(holder, list):
            holder *= chance.choice((2, 40))
        case 3:
            holder[place] = [holder[place]] if chance.random() < 0.5 else {chance.choice(KEYS): holder[place]}
        case 4:
            for _ in range(chance.choice((3, 70))):
                holder[place] = [holder[place]]
        case _:
            holder[place] = new


def spelled(value: Any, chance: random.Random) -> bytes:
    """Return the JSON, which may hold what strict JSON is not."""
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, None, 1)))
    return text.encode("utf-8", chance.choice(("surrogatepass", "replace")))


# ---- jobs.yaml

HOSTILE: Sequence[str] = (
    *("", "~", "null", "yes", "no", "on", "12:30", "0123", "0o17", "1e999", ".inf", ".nan", "2026-13-45"),
    *("2026-11-29", "3.10", "1_000", "*/5 * * * *", "@daily", "@reboot", "&a x", "*a"),
    *("!!python/object/apply:os.system [id]", "!x y", "<<", "%x", "`x`", "- x", "? x", '"', "'", '"\\ud800"'),
    *('"\\0"', '"\\x1b[31m"', '"\\u202e"', "x # y", "x: y", "{", "}", "[", "]", "[[[[", "{a: {b: {c: {}}}}"),
    *("[1, [2, [3]]]", "|\n      text\n", ">-\n      more\n", "|9\n x", "\t", "\u2028", "\x85", "a\tb"),
    *('"{opening}"', "c/{opening}.json", "{env: X}", "{env: sk-live-1}", "{file: /dev/zero}"),
    *("{env: A, file: B}", '"every 0s"', '"every 99999999999999999h"', '"0 0 31 2 *"', '"0 0 29 2 1"'),
    *('"*/61 * * * *"', '"60 * * * *"', '"* * * * * *"', '"0-59/7 0 L * 5#5"', '"0 0 1 1 */7"'),
    *('"' + "0," * 500 + '0 * * * *"', "9" * 5000, "-1", "5", "0", "1e3", "../../../etc/passwd", "/dev/null"),
    *("~/x", ".", "..", "x/", '"x\\ny"', "a" * 300, "é/ü.json", "jobs.yaml", ".ledger.sqlite3", "x.json.lock"),
    *("Mars/Base", '"Europe/Madrid"', '"../../etc/localtime"', "America", "http://", "https://u:p@h/v1"),
    *("http://169.254.169.254/", "ftp://x", "https://h:99999/", '"https://[::1/v1"', '"1970-01-01"'),
    *('"9999-12-31 23:59"', '"2026-10-25 02:30"', '"2026-W01-1"', "15m", '"15m"', "[15m, 1h]", '["1s", "2s"]'),
    *("[]", "{}"),
)
GOOD: dict[str, Sequence[str]] = {
    "task": ("Fine", '"Größe?"', "|\n      Sum up.\n"),
    "checkpoint": ("c/{name}.json", "c/one.json", '"c/{name}-{opening}.json"'),
    "provider": ("demo", "mandapi", "mine"),
    "schedule": ('"*/15 * * * *"', '"every 15m"', '"0 9 * * mon-fri"', '"@daily"', '"0 2 29 2 *"'),
    "timezone": ("UTC", "Europe/Madrid", "Australia/Lord_Howe"),
    "after_failure": ("[]", '["15m", "1h"]'),
    "base_url": ('"https://h.example/v1"', '"http://127.0.0.1:1/v1"'),
    "opens": ('"0 7 * * 1"',),
    "argv": ("[cat]",),
    "jitter": ('"10m"', '"1d"'),
    "not_before": ('"2026-12-24"', '"2027-01-01 09:00"'),
    "not_after": ('"2027-12-24"', '"2026-01-01T09:00:00+05:45"'),
    "extra_body": ("{seed: 7}", "{a: [1, 2.5, {b: x}]}"),
    "headers": ("{X-Team: docs}", "{X-Key: {env: OTHER}}"),
    **dict.fromkeys(("live", "enabled", "catch_up", "review", "allow_http"), ("true", "false")),
    **dict.fromkeys(("times", "max_attempts", "max_parallel", "requests_per_day"), ("1", "4", "52")),
    **dict.fromkeys(("file", "textfile", "ca_file", "base"), ("out/x.md", "/srv/x")),
}
NESTED: dict[str, type[BaseModel]] = {
    "series": SeriesEntry,
    "deliver": DeliverEntry,
    "notify": ChannelEntry,
    "key": KeyEntry,
    "price": PriceEntry,
}


def _value(key: str, name: str, chance: random.Random) -> str:
    if key in NESTED and chance.random() < 0.7:
        fields = chance.sample(sorted(NESTED[key].model_fields), chance.choice((1, 1, 2)))
        inner = "{" + ", ".join(f"{field}: {_value(field, name, chance)}" for field in fields) + "}"
        return f"[{inner}]" if key == "notify" else inner
    good = [text.replace("{name}", name) for text in GOOD.get(key, ())] or ["x"]
    return chance.choice(good) if chance.random() < 0.8 else chance.choice(HOSTILE)


def _entry(shape: type[BaseModel], needed: Sequence[str], name: str, chance: random.Random) -> Iterator[str]:
    more = chance.sample(sorted(shape.model_fields), chance.choice((0, 1, 2, 4)))
    keys = [key for key in (*needed, *more) if chance.random() < 0.97]
    for key in keys if chance.random() < 0.1 else dict.fromkeys(keys):
        yield f"    {key if chance.random() < 0.98 else chance.choice(HOSTILE)}: {_value(key, name, chance)}\n"


def jobs_text(chance: random.Random) -> str:
    """Write a jobs.yaml of real keys, most of its values good."""
    top = sorted(FileEntry.model_fields.keys() - {"jobs", "providers"})
    lines = [f"{key}: {_value(key, 'x', chance)}\n" for key in chance.sample(top, chance.choice((0, 0, 1, 3)))]
    lines += ["jobs:\n"]
    for number in range(chance.choice((1, 1, 2, 5))):
        name = f"job-{number}" if chance.random() < 0.9 else chance.choice(HOSTILE)
        lines += [f"  {name}:\n", *_entry(JobEntry, ("task", "checkpoint", "provider"), f"j{number}", chance)]
    if chance.random() < 0.5:
        lines += ["providers:\n", "  mine:\n", *_entry(ProviderEntry, ("base_url", "model"), "mine", chance)]
    if chance.random() < 0.1:
        chance.shuffle(lines)
    return "".join(lines)


def job_files(chance: random.Random) -> Iterator[bytes]:
    """Without end: texts of real keys, real files mangled, tokens and bytes."""
    real = [(ROOT / name).read_bytes() for name in ("config/jobs.yaml", "scheduler/starter/jobs.yaml")]
    while True:
        text = jobs_text(chance).encode("utf-8", "replace")
        yield text
        yield mangled(text, real, chance)
        yield mangled(chance.choice(real), [text], chance)
        yield noise(chance)


def documents(samples: Sequence[Sample], chance: random.Random) -> Iterator[bytes]:
    """Without end: real documents, mutated as values and as bytes, and bytes."""
    bodies = [body for sample in samples for body in sample.versions]
    bodies = [body for body in bodies if len(body) < 4000]
    values = [json.loads(body) for body in bodies]
    values += [
        {name: value[name] for name in ("task", "model", "conversation", "attempts", "status", "answer")}
        for value in values
    ]
    while True:
        yield spelled(mutated(chance.choice(values), chance), chance)
        yield mangled(chance.choice(bodies), bodies, chance)
        yield spelled(mutated(chance.choice(values), chance), chance)
        yield noise(chance) if chance.random() < 0.2 else mangled(chance.choice(bodies), bodies, chance)


Wire = tuple[int, list[tuple[str, str]], bytes]
STATUSES = (
    *(200,) * 12,
    204,
    301,
    307,
    400,
    401,
    402,
    403,
    404,
    408,
    409,
    413,
    422,
    429,
    500,
    502,
    503,
    529,
    599,
    299,
    100,
)
HEADERS = (
    *(
        ("Retry-After", value)
        for value in ("30", "-1", "soon", "1e9", "9" * 400, "Wed, 21 Oct 2099 07:28:00 GMT", "Mon, 99 Foo 0 0:0:0")
    ),
    *(("Content-Encoding", value) for value in ("gzip", "identity", "", "br, gzip")),
    *(("Location", "http://h/x"), ("Content-Type", "text/html"), ("x-request-id", "\xff\x00")),
)


def replies(chance: random.Random) -> Iterator[Wire]:
    """Without end: a status, headers and a body, most of them chat completions that went wrong."""
    kinds = [kind for kind in KINDS.values() if len(kind.raw) < 4000]
    values = [json.loads(json.dumps(kind.body)) for kind in kinds if isinstance(kind.body, dict | list)]
    values += [answer("fin"), tool_calls(("c1", "look", "{}"), ("c2", "look", '{"a": 1}'))] * 20
    bodies = [spelled(value, chance) for value in values] + [kind.raw for kind in kinds]
    while True:
        for body in (
            spelled(mutated(chance.choice(values), chance), chance),
            spelled(mutated(chance.choice(values), chance), chance),
            mangled(chance.choice(bodies), bodies, chance),
            noise(chance),
        ):
            yield chance.choice(STATUSES), chance.sample(HEADERS, chance.choice((0, 0, 1, 3))), body


def nested(depth: int) -> bytes:
    return b'[{"message":' * depth + b'"Overloaded"' + b"}]" * depth


# What fills the largest reply, as the entries of one list.
FILLINGS: Mapping[str, bytes] = {
    "lists": b"[]",
    "objects": b"{}",
    "as deep as can be stored": nested(30),
    "too deep": nested(60),
    "as deep, with half a character": nested(30).replace(b"Over", b"\\ud800"),
    "errors": b'{"msg":"a","loc":["b",1]}',
    "words": b'"a b"',
    "escapes": b'"' + b"\\n\\ud83d\\ude00" * 50 + b'"',
    "JSON in a text": json.dumps(nested(20).decode()).encode(),
    "numbers": b"1e5",
}


def largest(filling: bytes) -> Iterator[bytes]:
    """Make bodies of nearly REPLY_LIMIT bytes: an error, a call, a field of the provider's own."""
    for start, end in (
        (b'{"error":[', b"]}"),
        (b'{"error":{"metadata":{"raw":[', b"]}}}"),
        (b'{"choices":[{"message":{"tool_calls":[{"own":[', b"]}]}}]}"),
        (b'{"choices":[{"message":{"content":"fin","own":[', b"]}}]}"),
    ):
        room = REPLY_LIMIT - len(start) - len(end)
        yield start + b",".join([filling] * (room // (len(filling) + 1))) + end

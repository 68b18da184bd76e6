"""A model that costs nothing, opens no connection, and behaves like one: it reads first and answers from what it read.

It serves the demo, the rehearsal of jobs while `live` is false, and tests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.turns import unframe

MODEL = "offline-demo"

_FILE = re.compile(r"^- (.+) \(\d+ bytes\)$", re.MULTILINE)
_WORD = re.compile(r"\w{4,}")
_NOTE = re.compile(r"\n\n\[Request \d+ of \d+\..*", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def demo(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request without a network: with a tool call while nothing was read, else from what the tools gave."""
    messages = request["messages"]
    opening = next(message["content"] for message in messages if message["role"] == "user")
    task = _NOTE.sub("", opening)
    read = [unframe(message["content"]) for message in messages if message["role"] == "tool"]
    call = None if read or request.get("tool_choice") == "none" else _choose_call(request, task, opening)
    if call:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"message": message, "finish_reason": "tool_calls", "billed": "no"}
    return {"message": {"role": "assistant", "content": _answer(task, read)}, "finish_reason": "stop", "billed": "no"}


def _choose_call(request: Mapping[str, Any], task: str, opening: str) -> dict[str, Any] | None:
    names = {tool["function"]["name"] for tool in request.get("tools", ())}
    files = _FILE.findall(opening)
    if "read_file" in names and files:
        best = max(files, key=lambda name: len(_words(name) & _words(task)))
        return _call("read_file", {"path": best})
    if "read_reference" in names:
        return _call("read_reference", {})
    return None


def _call(name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    return {"id": "demo_1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _answer(task: str, read: Iterable[str]) -> str:
    """Return the two sentences that share the rarest words with the task."""
    lines = [line for text in read for line in text.splitlines() if not line.startswith("#")]
    sentences = [part.strip(" -") for line in lines for part in _SENTENCE.split(line) if part.strip(" -")]
    used = Counter(word for sentence in sentences for word in _words(sentence))
    scores = {sentence: sum(1 / used[word] for word in _words(sentence) & _words(task)) for sentence in sentences}
    best = sorted((sentence for sentence in scores if scores[sentence]), key=lambda sentence: -scores[sentence])[:2]
    if best:
        return " ".join(best)
    return f"The offline demo model has no answer of its own; a real model would now work on: {task.strip()[:200]}"


def _words(text: str) -> set[str]:
    """Return the beginnings of the longer words, so that "takes" meets "take"."""
    return {word[:4].lower() for word in _WORD.findall(text.replace("_", " "))}

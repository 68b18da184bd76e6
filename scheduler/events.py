"""What is told of each event of a slice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scheduler.state import PROGRESS, State
from scheduler.text import one_line, printable


def event_line(job: str, event: Mapping[str, Any]) -> str:
    """Return one line that tells an event of a slice."""
    text = _EVENTS[event["event"]](event)
    return printable(f"job {job}: {text}" if job else text)


def event_level(event: Mapping[str, Any]) -> str:
    """Return `warning` for what a person may want to act on, else `info`: what stands is a warning once a day."""
    failed = event["event"] == "settled" and (event["outcome"] not in PROGRESS or event["status"] == "exhausted")
    failed = failed or (event["event"] == "delivery" and event["result"] != "delivered")
    notable = event["event"] in _NOTABLE and not event.get("again")
    return "warning" if failed or notable else "info"


_NOTABLE = frozenset({"put_back", "interrupted", "missed", "made_up", "closed", "skipped"})
_EVENTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "admitted": lambda event: (
        f"attempt {event['attempt']} of {event['of']}: counted, asking"
        + (f" (cut from the request: {event['cut']} older results or turns)" if event["cut"] else "")
    ),
    "tool_result": lambda event: (
        f"tool {one_line(event['name'], 40)} {one_line(event['arguments'])}: {'read' if event['ok'] else 'refused'}"
    ),
    "put_back": lambda event: (
        f"warning: the checkpoint file was {'missing' if event['missing'] else 'an older copy'}; put back at attempt "
        f'{event["attempt"]} of {event["of"]}; "resumed renew" starts a new allowance'
    ),
    "interrupted": lambda event: (
        f"attempt {event['attempt']} of {event['of']} was interrupted: its process ended; it stays counted"
    ),
    "retaken": lambda _: "task or model changed before the first attempt; the new ones are taken",
    "closed": lambda event: (
        f"{event['attempts']} attempts are spent, and max_attempts is {event['of']}; it is exhausted for good"
    ),
    "missed": lambda event: f"{_points(event)} missed, and {event['why']}; no slice makes up for {_them(event)}",
    "made_up": lambda event: (
        f"{_points(event)} missed; one {'opening' if 'opening' in event else 'slice'} makes up for {_them(event)}"
    ),
    "opened": lambda event: f"opening {event['opening']} is open, {event['number']} of {event['times']}",
    "skipped": lambda event: (
        f"{_points(event)} skipped, and not opened later: opening {event['opening']} is not answered yet"
    ),
    "settled": lambda event: _settled(event),
    "delivery": lambda event: _delivery(event),
}


def _points(event: Mapping[str, Any]) -> str:
    if event["count"] == 1:
        return f"the point {event['last']} was"
    more = " or more" if event["count"] >= 1000 else ""
    return f"the points from {event['first']} to {event['last']} ({event['count']}{more}) were"


def _them(event: Mapping[str, Any]) -> str:
    return "it" if event["count"] == 1 else "them"


def _delivery(event: Mapping[str, Any]) -> str:
    said = f" ({one_line(event['detail'], 400)})" if event["detail"] else ""
    result = {"delivered": "the answer was delivered", "failed": "the delivery of the answer failed"}
    begun = result.get(event["result"], "whether the answer was delivered is unknown")
    again = "; it is not tried again but by: resumed review JOB --approve --redeliver --note TEXT"
    then = "" if event["result"] == "delivered" else again
    return f"{begun}: {one_line(event['target'], 200)}{said}{then}"


def _settled(event: Mapping[str, Any]) -> str:
    attempt = f"attempt {event['attempt']} of {event['of']}"
    if event["outcome"] == "answered":
        return f"{attempt}: answered, unreviewed: {one_line(event['answer'])}"
    reason = f" ({one_line(event['reason'], 300)})" if event["reason"] else ""
    then = "the next slice goes on"
    if event["status"] == "exhausted":
        then = "no attempt is left"
    elif event["outcome"] == "refused":
        then = "asked again once the provider's entry or key changes, or after: resumed unblock"
    elif event["outcome"] == "context_too_long":
        then = "no request of this size is sent again: the next one is cut, or blocked"
    return f"{attempt}: {event['outcome']}{reason}; {then}"


def made_progress(state: State) -> bool:
    """Tell whether the last attempt answered, or took the task on with attempts left."""
    last = state["history"][-1]["outcome"] if state["history"] else None
    return state["status"] == "done" or (state["status"] == "ready" and last in PROGRESS)

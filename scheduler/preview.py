"""A job's next request, before it is sent: what it holds, where it goes, and what is in its way. Only reads."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC
from typing import Any

from scheduler import offline
from scheduler.attempt import Order, accept, next_request
from scheduler.conversation import encode
from scheduler.due import Plan, due_point, known_model, next_due, order_of, private_paths
from scheduler.errors import CheckpointMoved, MaintenanceRefused, ResumedError
from scheduler.files import check_can_write, check_folder
from scheduler.job import JobFile
from scheduler.ledger import ledger_rows
from scheduler.owed import Turn
from scheduler.owner import is_alive
from scheduler.rests import check_budget, check_rests
from scheduler.roster import Facts, read_seen
from scheduler.state import is_final
from scheduler.survey import look
from scheduler.text import indent, json_text, one_line, printable
from scheduler.tick import prepare

OVER = (
    "job {job}: no further request will be sent; it is {status}, {attempts} of {most} attempts; "
    "for a new allowance: resumed renew {job} --reason TEXT --confirm {job}"
)
IN_FLIGHT = "attempt {number} is in flight; this is what would follow if nothing came of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A request that was not sent.

    `tokens` are estimated, `next_point` is when it may go, `in_the_way` says what would stop it now.
    """

    job: str
    attempt: int
    of: int
    to: str
    tokens: int
    window: int | None
    cut: Sequence[str]
    due: bool
    next_point: str | None
    in_the_way: Sequence[str]
    request: Mapping[str, Any]


def look_ahead(plan: Plan, job_file: JobFile, environ: Mapping[str, str], now: float) -> Preview:
    """Build a job's next request as the next slice would, without sending, counting or writing anything.

    Raises MaintenanceRefused where none follows, and what blocks the building of it: TaskChanged, ModelChanged,
    RequestRefused, SourceRefused, and what `peek` raises.
    """
    job = plan.job
    found, facts, since = look(plan, now)
    model = known_model(plan, environ) or (found.state["model"] if found.state else "")
    order = order_of(plan, model, private_paths(job_file, environ))
    state = found.state if found.state is not None and is_final(found.state) else accept(found.state, order)
    if is_final(state) or state["attempts"] >= job.max_attempts:
        status = state["status"] if is_final(state) else "exhausted"
        said = OVER.format(job=job.id, status=status, attempts=state["attempts"], most=job.max_attempts)
        raise MaintenanceRefused(message=said)
    built = next_request(state, order)
    in_the_way = list(_in_the_way(plan, job_file, environ, facts, since, now))
    if facts.open is not None:  # of a process that died, or that will have ended by then
        facts = replace(facts, open=None, failures=facts.failures + 1, ended_at=int(now))
    ahead = next_due(job, facts, since, now)
    return Preview(
        job=job.id,
        attempt=state["attempts"] + 1,
        of=job.max_attempts,
        to=_host(plan),
        tokens=built.sent["tokens"],
        window=built.sent["window"],
        cut=built.sent["cut"],
        due=due_point(job, facts, since, now) is not None,
        next_point=ahead.astimezone(UTC).isoformat(timespec="seconds") if ahead else None,
        in_the_way=in_the_way,
        request=json.loads(encode(built.request)),
    )


def _host(plan: Plan) -> str:
    url = urllib.parse.urlsplit(plan.job.provider.base_url or "")
    if plan.offline:
        return f"{offline.MODEL} (offline)"
    return f"provider {plan.job.provider.name} at {url.hostname}" + (f":{url.port}" if url.port else "")


def _in_the_way(
    plan: Plan, job_file: JobFile, environ: Mapping[str, str], facts: Facts, since: int, now: float
) -> Iterator[str]:
    """Yield what would keep a slice from sending the request now."""
    if not plan.job.enabled:
        yield "enabled: false"
    if facts.open is not None and is_alive(facts.open.owner):
        yield IN_FLIGHT.format(number=facts.open.attempt)
    order: Order | None = None
    try:
        order, ask = prepare(Turn(plan=plan, since=since), job_file, environ)
        getattr(ask, "close", lambda: None)()
    except ResumedError as error:
        yield str(error)
    try:
        if plan.path.parent.exists():
            check_folder(plan.path.parent)
        check_can_write(plan.path.parent)
    except ResumedError as error:
        yield str(error)
    yield from _in_the_ledger(plan, job_file, order, int(now))


def _in_the_ledger(plan: Plan, job_file: JobFile, order: Order | None, now: int) -> Iterator[str]:
    with ledger_rows(plan.path.parent) as tx:
        if tx is None:
            return
        if old := read_seen(tx, plan.sighting, now).moved_from:
            yield str(CheckpointMoved(job=plan.job.id, old=str(plan.path.with_name(old)), new=str(plan.path)))
        if plan.offline or order is None:
            return
        try:
            check_rests(tx, order.provider, order.model, order.mark, now, reads=True)
            check_budget(tx, job_file.requests_per_day, now)
        except ResumedError as error:
            yield str(error)


def preview_json(preview: Preview) -> str:
    """Return it as JSON; `request` is the exact body."""
    return json_text(asdict(preview))


def preview_text(preview: Preview) -> str:
    """Return it for a person."""
    window = f" of {preview.window}" if preview.window else ""
    point = f"not before {preview.next_point}" if preview.next_point else "at no point of its schedule"
    lines = [
        f"job {preview.job}: attempt {preview.attempt} of {preview.of}, to {preview.to}; nothing was sent or counted",
        f"about {preview.tokens} tokens{window}; {'due now' if preview.due else point}",
        *(f"in the way: {one_line(said, 400)}" for said in preview.in_the_way),
        *(f"cut: {one_line(phrase, 200)}" for phrase in preview.cut),
    ]
    for message in preview.request["messages"]:
        lines += ["", f"{message['role'].upper()}", *_message(message)]
    names = [tool["function"]["name"] for tool in preview.request.get("tools", ())]
    lines += ["", f"TOOLS {', '.join(names) or '(none)'}", "OPTIONS"]
    options = {name: value for name, value in preview.request.items() if name not in ("messages", "tools")}
    lines += [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in options.items()]
    return printable("\n".join(lines))


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    if message.get("content"):
        yield indent(message["content"])
    for call in message.get("tool_calls") or ():
        yield f"  calls {call['function']['name']} {call['function']['arguments']}"

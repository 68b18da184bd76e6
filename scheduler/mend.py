"""The ways out that a person takes: repair, adopt, revise, renew, unblock. Each keeps every attempt counted.

Each enters who did it, when and why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scheduler.acts import enter_act
from scheduler.checkpoint import hold
from scheduler.database import Connection
from scheduler.document import MAX_BYTES, InvalidDocument, check, digest, parse, read_object
from scheduler.due import Plan
from scheduler.durable import sync_folder
from scheduler.errors import CheckpointUnknown, MaintenanceRefused, NotAFile
from scheduler.files import exists, read_regular, translated, user_name
from scheduler.ledger import NAME, Archive, know
from scheduler.openings import enter_again, find_files, plan_opening
from scheduler.owed import open_folder
from scheduler.reader import is_behind
from scheduler.rests import lift
from scheduler.roster import note
from scheduler.standing import Version
from scheduler.state import (
    MAX_STEPS,
    State,
    close,
    is_final,
    new_state,
    raise_attempts,
    utc,
)
from scheduler.text import one_line, storable
from scheduler.transcript import Act
from scheduler.turns import read_turns

ABSENT = "the ledger knows nothing of {path}; there is nothing to put back"
SIX_FIELDS = frozenset({"task", "model", "conversation", "attempts", "status", "answer"})


def repair(plan: Plan, reason: str = "") -> str:
    """Set a damaged or foreign file aside and publish the ledger's document; return what was done.

    Raises MaintenanceRefused where the file is a valid document with more attempts, which `adopt` takes over.
    """
    with hold(plan.path) as held:
        record = held.look()
        if record is None:
            raise MaintenanceRefused(message=ABSENT.format(path=plan.path))
        known = parse(record.body)
        body: bytes | None = None
        try:
            body = read_regular(plan.path, MAX_BYTES)
            if not is_behind(plan.path, body, record):
                return "the checkpoint is as it was published; nothing to repair"
            aside = None
        except NotAFile:
            aside = _set_aside(plan.path)
        except CheckpointUnknown:
            if body is not None and _attempts(body) > known["attempts"]:
                raise MaintenanceRefused(
                    message=f"{plan.path} is a valid document with more attempts than the ledger's "
                    f"{known['attempts']}; take it over: resumed adopt {plan.job.id}"
                ) from None
            aside = _set_aside(plan.path)
        held.load(lambda _: None)
        done = f"put back at attempt {known['attempts']} of {plan.job.max_attempts}"
        with held.ledger.writing() as tx:
            enter_act(tx, plan.path.name, _act("repair", done, reason))
    return done + (f"; the other file is kept as {aside}" if aside else "")


def _act(command: str, detail: str, reason: str) -> Act:
    return Act(at=int(time.time()), command=command, detail=storable(detail), reason=reason, who=who())


def _attempts(body: bytes) -> int:
    try:
        return parse(body)["attempts"]
    except InvalidDocument:
        return -1


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.set-aside-{utc(time.time()).replace(':', '')}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = aside.with_name(f"{aside.name}.{number}")
    with translated(path):
        path.rename(aside)
        sync_folder(path.parent)  # else a power loss could bring back a file that the ledger does not know
    return aside


def adopt(plan: Plan, reason: str = "") -> str:
    """Take over a file that the ledger does not know, its attempts never fewer than either of the two counts.

    Reads our own documents and the plain six-field ones of a simpler worker. Raises MaintenanceRefused on any other.
    """
    with hold(plan.path) as held:
        record = held.look()
        body = read_regular(plan.path, MAX_BYTES)
        if body is None:
            raise MaintenanceRefused(message=f"{plan.path}: there is no file to adopt")
        if record and digest(body) in record.digests:
            return "the ledger knows this file already; nothing to adopt"
        now = time.time()
        try:
            found = read_document(body)
            counted = max(record.next_attempt - 1, parse(record.body)["attempts"]) if record else 0
            state = close(raise_attempts(found, counted, utc(now)), plan.job.max_attempts)
            state["review"] = None  # this ledger does not know whether that answer was delivered
            done = f"adopted at attempt {state['attempts']} of {plan.job.max_attempts}, {state['status']}"
            act, archive = _act("adopt", done, reason), Archive("another file was adopted", who())

            def also(tx: Connection) -> None:
                # A power loss may bring this file back: its new face has no name that is safe yet.
                know(tx, plan.path.name, Version(record.version.allowance if record else 1, digest(body)))
                enter_act(tx, plan.path.name, act)

            held.replace(state, now, archive=archive, also=also)
        except InvalidDocument as error:
            raise MaintenanceRefused(message=f"{plan.path} is not a valid document: {error}") from error
    return done


def openings_of(pattern: Plan) -> list[Plan]:
    """Return the openings of a series that have a file, whatever the ledger knows of them."""
    return [plan_opening(pattern, name) for name in find_files(pattern)]


def count_again(pattern: Plan) -> None:
    """Enter the openings that have a file into the ledger, so that one that was lost opens none a second time."""
    if names := find_files(pattern):
        with open_folder(pattern.path.parent).writing() as tx:
            enter_again(tx, pattern, names, int(time.time()))


def read_document(body: bytes) -> State:
    """Read a document of ours, or the six fields of a simpler worker. Raises InvalidDocument."""
    found = read_object(body)
    if set(found) != SIX_FIELDS:
        return check(found)
    state = new_state(found["task"], found["model"])
    turns, attempts = found["conversation"], found["attempts"]
    if not isinstance(turns, list) or type(attempts) is not int or not 0 <= attempts <= MAX_STEPS:
        raise InvalidDocument("conversation or attempts are not what they should be")
    opening = {"role": "user", "content": found["task"]}
    turns = turns[1:] if turns[:1] == [opening] else turns
    state["conversation"] = [_usual(message) for message in turns]
    state = raise_attempts(state, attempts, utc(time.time()))
    state["status"], state["answer"] = found["status"], found["answer"]
    if state["status"] == "done" and not attempts:
        raise InvalidDocument("it is done, and holds no attempt")
    return check(state)


def _usual(message: Any) -> Any:
    """Return a message without the fields that others write beside those of ours; `check` judges the rest."""
    match message:
        case {"role": "assistant"}:
            return {"content": None} | {name: value for name, value in message.items() if name != "tool_calls" or value}
        case {"role": "tool"}:
            return {name: message[name] for name in ("role", "tool_call_id", "content") if name in message}
        case {"role": "user"}:
            return {name: message[name] for name in ("role", "content") if name in message}
    return message


def revise(plan: Plan, model: str, reason: str) -> str:
    """Archive the document and begin a new conversation with the present task and model; the attempts carry over.

    Raises MaintenanceRefused where the job is final or has not begun.
    """
    with hold(plan.path) as held:
        old = held.load(lambda _: None)
        if old is None or not (old["attempts"] or old["conversation"]):
            raise MaintenanceRefused(message=f"job {plan.job.id} has not begun; just edit it")
        now = time.time()
        old = held.recover(old, plan.job.max_attempts, now, lambda _: None)
        if is_final(old):
            again = f'"resumed renew {plan.job.id} --reason TEXT --confirm {plan.job.id}" opens a new allowance'
            raise MaintenanceRefused(message=f"job {plan.job.id} is {old['status']}, and stays so; {again}")
        state = new_state(plan.job.task, model)
        state["attempts"], state["history"] = old["attempts"], old["history"]
        left = f"{plan.job.max_attempts - state['attempts']} of {plan.job.max_attempts} attempts are left"
        act = _act("revise", left, reason)
        held.replace(state, now, archive=Archive(reason, who()), also=lambda tx: enter_act(tx, plan.path.name, act))
    return f"revised; {left}"


def renew(plan: Plan, model: str, reason: str, *, keep: bool) -> str:
    """Archive the document and open a new allowance, with the old conversation where `keep` says so."""
    with hold(plan.path) as held:
        old = held.load(lambda _: None)
        now = time.time()
        if old is not None:
            old = held.recover(old, plan.job.max_attempts, now, lambda _: None)
        state = new_state(plan.job.task, model)
        if keep and old is not None:
            state["conversation"] = list(old["conversation"])
            last = read_turns(old["conversation"])[-1:]
            if old["status"] == "done" or any(turn.cut for turn in last):  # else nobody would answer the model's text
                state["conversation"].append({"role": "user", "content": reason})
        act = _act("renew", f"allowance {held.version.allowance + 1 if held.version else 1}", reason)

        def also(tx: Connection) -> None:
            note(tx, plan.sighting, int(now))
            enter_act(tx, plan.path.name, act)

        held.replace(state, now, archive=Archive(reason, who()), renew=True, also=also)
    return f"renewed; {plan.job.max_attempts} attempts are left, the first at its next point"


def unblock(plans: Iterable[Plan], provider: str, reason: str = "") -> int:
    """End every rest of a provider in the ledgers of these jobs; return how many there were.

    Where one ended, that is entered with each job of its folder that asks the provider.
    """
    folders: dict[Path, list[Plan]] = {}
    for plan in plans:
        folders.setdefault(plan.path.parent, []).append(plan)
    lifted = 0
    for folder, members in sorted(folders.items()):
        if exists(folder / NAME):
            with open_folder(folder).writing() as tx:
                ended = lift(tx, provider)
                asking = (plan for plan in members if plan.job.provider.name == provider and not plan.offline)
                for plan in asking if ended else ():
                    enter_act(tx, plan.path.name, _act("unblock", f"provider {provider}", reason))
            lifted += ended
    return lifted


def who() -> str:
    """Name the person who acts, through sudo as well."""
    user = user_name(os.getuid())
    behind = os.environ.get("SUDO_USER")
    return one_line(storable(f"{user} ({behind})" if behind and behind != user else user))

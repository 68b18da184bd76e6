"""Checkpoint files lost, damaged or foreign, and jobs edited: no attempt is won back, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler import resume_once
from scheduler.checkpoint import hold
from scheduler.errors import CheckpointMoved, CheckpointUnknown, ModelChanged, TaskChanged
from scheduler.jobfile import read_job_file
from scheduler.owed import Result
from scheduler.reader import peek
from scheduler.tick import tick
from tests.support import ChatServer, Project, answer, chat_server, face, tool_calls

TASK = "Summarise the log"
CALLS = [tool_calls((f"c{number}", "read_file", "{}")) for number in (1, 2, 3)]
BLANK = answer("")
REASONS = ("--reason", "a better idea")
RENEW = ("renew", "nightly", *REASONS, "--confirm", "nightly")


def told(project: Project, *names: str, by_hand: bool = True) -> tuple[Result, list[str]]:
    """Run one slice in this process, as `run` and `tick` do; return the last result and the names of its events."""
    events: list[str] = []
    results = tick(
        read_job_file(project.config),
        project.environ(),
        lambda _, event: events.append(event["event"]),
        names=names or ("nightly",),
        by_hand=by_hand,
    )
    return [Result(job="none due"), *results][-1], events


def slices(project: Project, count: int) -> None:
    """Run so many slices in this process, each admitted."""
    for _ in range(count):
        assert told(project)[0].ran


def foreign(folder: Path, attempts: int, task: str = TASK, reply: str = "") -> bytes:
    """A valid document of another ledger, with the same task and model."""
    for _ in range(attempts):
        message = {"role": "assistant", "content": reply or None}
        resume_once(task, folder / "other.json", lambda _, message=message: {"message": message}, "m1", tools=())
    return (folder / "other.json").read_bytes()


def set_ledger_aside(project: Project) -> None:
    """Move the ledger and what SQLite keeps beside it away."""
    folder = project.folder / "checkpoints"
    for path in folder.glob(".ledger.sqlite3*"):
        path.rename(project.folder / f"aside{path.name}")


# ---- deleted, or an older copy put back


@pytest.mark.parametrize("older", [False, True], ids=["deleted", "older copy"])
def test_a_lost_file_is_put_back_with_one_warning_and_the_conversation_goes_on(
    project: Project, chat: ChatServer, older: bool
) -> None:
    chat.script = [*CALLS, answer("fin"), answer("a fifth request")]
    chat.hold.clear()
    project.live(chat.url)
    with project.start("run", "nightly") as process:
        chat.wait_for(1, 60)
        copy = project.path().read_bytes()  # attempt 1 is in flight
        chat.hold.set()
        process.communicate(timeout=60)
    for number in (2, 3, 4, 5):
        project.path().unlink()
        if older:
            project.path().write_bytes(copy)
        said = project.run("run", "nightly").stderr
        assert said.count("put back") == 1
        lost = "an older copy" if older else "missing"
        warning = f'was {lost}; put back at attempt {number - 1} of 4; "resumed renew" starts a new allowance'
        assert re.search(f" warning .*{re.escape(warning)}", said)
    assert chat.count == 4
    for number, sent in enumerate(chat.requests, 1):
        system, opening, *turns = sent["messages"]
        assert system["role"] == "system"
        assert opening["content"].startswith(f"{TASK}\n\n[Request {number} of 4.")
        called = [turn["tool_calls"][0]["id"] for turn in turns if turn["role"] == "assistant"]
        assert called == ["c1", "c2", "c3"][: number - 1]
        assert [turn["tool_call_id"] for turn in turns if turn["role"] == "tool"] == called
    document = project.document()
    assert (document["attempts"], document["status"], document["answer"]) == (4, "done", "fin")


@pytest.mark.parametrize("script", [[CALLS[0], answer("fin")], [BLANK]], ids=["done", "exhausted"])
def test_a_final_file_that_was_lost_is_put_back_by_a_tick_and_sends_nothing(
    project: Project, chat: ChatServer, script: list[Any]
) -> None:
    chat.script = script
    project.live(chat.url, {"nightly": {"schedule": "every 1s"}}, after_failure=[])
    slices(project, 1)
    first = project.path().read_bytes()
    while project.document()["status"] == "ready":
        slices(project, 1)
    sent, last = chat.count, project.path().read_bytes()
    for lost in (None, first):
        project.path().unlink()
        if lost:
            project.path().write_bytes(lost)
        _, events = told(project, by_hand=False)
        assert events == ["put_back"]
        assert project.path().read_bytes() == last
    assert chat.count == sent


def test_reading_a_lost_file_puts_nothing_back(project: Project, chat: ChatServer) -> None:
    chat.script = [*CALLS]
    project.live(chat.url)
    slices(project, 2)
    project.path().unlink()
    assert project.status()["attempts"] == 2
    assert json.loads(project.run("show", "nightly", "--json").stdout)["attempts"] == 2
    assert not project.path().exists()


# ---- damaged, or foreign


def cut(body: bytes, _: Path) -> bytes:
    return body[: len(body) // 2]


def empty(body: bytes, _: Path) -> bytes:
    return b""


def attempts_edited(body: bytes, _: Path) -> bytes:
    document = json.loads(body)
    return json.dumps(document | {"attempts": 0, "history": []}, separators=(",", ":")).encode() + b"\n"


def laid_out_anew(body: bytes, _: Path) -> bytes:
    return json.dumps(json.loads(body), indent=2).encode()


def a_new_one(_: bytes, folder: Path) -> bytes:
    return foreign(folder, 1)


def another_ledgers(_: bytes, folder: Path) -> bytes:
    return foreign(folder, 2)


def another_ledgers_with_more(_: bytes, folder: Path) -> bytes:
    return foreign(folder, 3)


def six_fields(_: bytes, folder: Path) -> bytes:
    fields = {"task": TASK, "model": "m1", "conversation": [], "attempts": 0, "status": "ready", "answer": None}
    return json.dumps(fields).encode()


def no_document(_: bytes, folder: Path) -> bytes:
    return b"[]"


DAMAGES = [cut, empty, attempts_edited, laid_out_anew, a_new_one, another_ledgers, six_fields, no_document]
Damage = Callable[[bytes, Path], bytes]


@pytest.mark.parametrize("damage", [*DAMAGES, another_ledgers_with_more], ids=lambda damage: damage.__name__)
def test_an_unknown_file_blocks_and_is_left_as_it_is(
    project: Project, chat: ChatServer, tmp_path: Path, damage: Damage
) -> None:
    chat.script = [*CALLS]
    project.live(chat.url, {"nightly": {"schedule": "every 1s"}})
    slices(project, 2)
    project.path().write_bytes(damage(project.path().read_bytes(), tmp_path))
    before = face(project.path())
    for by_hand in (True, False):
        result, events = told(project, by_hand=by_hand)
        assert isinstance(result.refusal, CheckpointUnknown)
        assert events == []
    assert face(project.path()) == before
    assert chat.count == 2


@pytest.mark.parametrize("damage", [cut, another_ledgers], ids=lambda damage: damage.__name__)
def test_repair_brings_a_damaged_file_back_with_nothing_lost(
    project: Project, chat: ChatServer, tmp_path: Path, damage: Damage
) -> None:
    chat.script = [*CALLS, answer("fin")]
    project.live(chat.url)
    slices(project, 2)
    good = project.path().read_bytes()
    bad = damage(good, tmp_path)
    project.path().write_bytes(bad)
    before = face(project.path())
    said = project.run("run", "nightly", code=65).stderr
    assert '"resumed repair"' in said
    assert '"resumed adopt"' in said
    assert face(project.path()) == before
    repaired = project.run("repair", "nightly")
    assert "put back at attempt 2 of 4" in repaired.stdout
    assert repaired.stderr == ""  # no file was missing: repair itself set it aside
    assert project.path().read_bytes() == good
    [aside] = project.path().parent.glob("nightly.json.set-aside-*")
    assert (aside.read_bytes(), aside.stat().st_ino) == (bad, before[1])
    slices(project, 2)
    assert chat.count == 4
    assert [turn.get("tool_call_id") for turn in chat.requests[3]["messages"] if turn["role"] == "tool"] == [
        "c1",
        "c2",
        "c3",
    ]
    assert project.document()["answer"] == "fin"


def test_repair_of_a_file_that_is_as_it_should_be_changes_nothing(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    slices(project, 1)
    before = face(project.path())
    assert "nothing to repair" in project.run("repair", "nightly").stdout
    assert face(project.path()) == before


def test_repair_of_a_job_that_is_not_begun_says_so(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    told = project.run("repair", "nightly", code=65)
    assert "repair: changes nothing, for the job is not begun" in told.stdout
    assert "there is nothing to put back" in told.stderr


def test_repair_leaves_a_valid_file_with_more_attempts_to_adopt(
    project: Project, chat: ChatServer, tmp_path: Path
) -> None:
    chat.script = [*CALLS]
    project.live(chat.url)
    slices(project, 2)
    project.path().write_bytes(foreign(tmp_path, 3))
    before = face(project.path())
    assert "resumed adopt nightly" in project.run("repair", "nightly", code=65).stderr
    assert face(project.path()) == before


# ---- adopted


@pytest.mark.parametrize(("known", "found"), [(0, 2), (1, 3), (3, 1), (2, 2), (1, 4)])
def test_adopt_takes_a_foreign_document_with_the_higher_count(
    project: Project, chat: ChatServer, tmp_path: Path, known: int, found: int
) -> None:
    chat.script = [*CALLS] if known else [BLANK]
    project.live(chat.url, after_failure=[])
    slices(project, known)
    project.path().parent.mkdir(mode=0o700, exist_ok=True)
    project.path().write_bytes(foreign(tmp_path, found))
    project.path().chmod(0o600)
    counted = max(known, found)
    assert f"adopted at attempt {counted} of 4" in project.run("adopt", "nightly").stdout
    assert project.document()["attempts"] == counted
    chat.script = [BLANK]
    for _ in range(5):
        told(project)
    assert chat.count == known + 4 - counted
    document = project.document()
    assert (document["attempts"], document["status"]) == (4, "exhausted")
    assert [entry["number"] for entry in document["history"]] == [1, 2, 3, 4]


def test_a_file_that_was_adopted_is_put_right_where_a_power_loss_brings_it_back(
    project: Project, chat: ChatServer, tmp_path: Path
) -> None:
    chat.script = CALLS
    project.live(chat.url, after_failure=[])
    slices(project, 1)
    adopted = json.dumps(json.loads(foreign(tmp_path, 2)), indent=1).encode()
    project.path().write_bytes(adopted)
    assert "adopted at attempt 2 of 4" in project.run("adopt", "nightly").stdout
    project.path().write_bytes(adopted)
    assert told(project)[1][0] == "put_back"
    assert project.document()["attempts"] == 3


def test_adopt_keeps_a_foreign_answer_and_sends_nothing(project: Project, chat: ChatServer, tmp_path: Path) -> None:
    project.live(chat.url)
    project.path().parent.mkdir(mode=0o700)
    project.path().write_bytes(foreign(tmp_path, 1, reply="from elsewhere"))
    project.run("adopt", "nightly")
    result, _ = told(project)
    assert result.final
    assert (result.ran, chat.count) == (False, 0)
    assert project.document()["answer"] == "from elsewhere"


def test_adopt_reads_the_six_fields_of_a_simpler_worker(project: Project, chat: ChatServer) -> None:
    turns = [{"role": "user", "content": TASK}, {"role": "assistant", "content": "so far"}]
    fields = {"task": TASK, "model": "m1", "conversation": turns, "attempts": 3, "status": "ready", "answer": None}
    project.live(chat.url)
    project.path().parent.mkdir(mode=0o700)
    project.path().write_text(json.dumps(fields), "utf-8")
    assert "adopted at attempt 3 of 4" in project.run("adopt", "nightly").stdout
    slices(project, 1)
    assert chat.count == 1
    assert {"role": "assistant", "content": "so far"} in chat.requests[0]["messages"]
    assert chat.requests[0]["messages"][1]["content"].startswith(f"{TASK}\n\n[Request 4 of 4.")
    assert project.document()["attempts"] == 4


def test_an_adopted_conversation_with_calls_that_have_no_results_makes_a_valid_request(project: Project) -> None:
    call = {"id": "call_9", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call, call]}
    lost = {"role": "tool", "tool_call_id": "call_0", "content": "lost"}
    turns = [{"role": "user", "content": TASK}, asked, {"role": "user", "content": "go on"}, lost, asked]
    six = {"task": TASK, "model": "m1", "conversation": turns, "attempts": 1, "status": "ready", "answer": None}
    with chat_server(answer("fin")) as chat:  # it judges the request
        project.live(chat.url)
        project.path().parent.mkdir(mode=0o700)
        project.path().write_text(json.dumps(six))
        project.run("adopt", "nightly")
        project.run("run", "nightly")
        roles = [message["role"] for message in chat.requests[0]["messages"][1:]]
    assert roles == ["user", "assistant", "tool", "tool", "user", "assistant", "tool", "tool"]
    assert (project.document()["status"], project.document()["attempts"]) == ("done", 2)


@pytest.mark.parametrize("damage", [cut, empty, no_document], ids=lambda damage: damage.__name__)
def test_adopt_refuses_what_is_no_document(project: Project, chat: ChatServer, tmp_path: Path, damage: Damage) -> None:
    chat.script = [*CALLS]
    project.live(chat.url)
    slices(project, 1)
    project.path().write_bytes(damage(project.path().read_bytes(), tmp_path))
    before = face(project.path())
    assert "is not a valid document" in project.run("adopt", "nightly", code=65).stderr
    assert face(project.path()) == before


@pytest.mark.parametrize(
    "odd",
    [
        {"status": "pending"},
        {"status": "exhausted", "attempts": 0},
        {"status": "exhausted", "answer": "fin"},
        {"status": "done"},
        {"status": "done", "answer": "fin", "attempts": 0},
        {"answer": "fin"},
        {"attempts": True},
    ],
    ids=str,
)
def test_adopt_refuses_six_fields_that_contradict_each_other(project: Project, odd: dict[str, Any]) -> None:
    six = {"task": TASK, "model": "m1", "conversation": [], "attempts": 2, "status": "ready", "answer": None}
    project.live("http://127.0.0.1:9/v1")
    project.path().parent.mkdir(mode=0o700)
    project.path().write_text(json.dumps(six | odd))
    before = face(project.path())
    assert "is not a valid document" in project.run("adopt", "nightly", code=65).stderr
    assert face(project.path()) == before


def test_adopt_keeps_the_six_fields_exhausted(project: Project) -> None:
    six = {"task": TASK, "model": "m1", "conversation": [], "attempts": 2, "status": "exhausted", "answer": None}
    project.live("http://127.0.0.1:9/v1")
    project.path().parent.mkdir(mode=0o700)
    project.path().write_text(json.dumps(six))
    assert "adopted at attempt 2 of 4, exhausted" in project.run("adopt", "nightly").stdout
    assert told(project)[0].final


def test_adopt_all_after_the_ledger_was_set_aside_keeps_every_attempt(project: Project, chat: ChatServer) -> None:
    chat.script = [*CALLS]
    jobs = {"one": {}, "two": {}, "new": {}}
    project.live(chat.url, jobs)
    chat.hold.clear()
    with project.start("run", "two") as process:  # killed with its request out
        chat.wait_for(1, 60)
        process.kill()
        process.communicate()
    chat.hold.set()
    told(project, "one")
    told(project, "one")
    before = project.document("one")
    set_ledger_aside(project)
    faces = {name: face(project.path(name)) for name in ("one", "two")}
    assert project.run("run", "one", "two", code=65).stderr.count("is not a file that this ledger ever published") == 2
    assert {name: face(project.path(name)) for name in ("one", "two")} == faces
    said = project.run("adopt", "--all").stdout
    assert "job one: adopted at attempt 2 of 4" in said
    assert "job two: adopted at attempt 1 of 4" in said
    assert project.document("one") == before
    assert [entry["outcome"] for entry in project.document("two")["history"]] == ["interrupted"]
    sent = chat.count
    chat.script = [BLANK]
    for _ in range(5):
        told(project, "one")
        told(project, "two")
    assert chat.count == sent + 2 + 3
    assert {project.document(name)["attempts"] for name in ("one", "two")} == {4}


# ---- every bit


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A real checkpoint of a few hundred bytes, whose text has bytes of several kinds."""
    path = tmp_path / "small" / "job.json"
    resume_once('Größe "é"?', path, lambda _: {"message": {"role": "assistant", "content": ""}}, "m1", tools=())
    assert 300 < path.stat().st_size < 900
    return path


def test_every_flipped_bit_blocks_and_the_file_is_left_as_it_is(small: Path) -> None:
    good = small.read_bytes()
    assert peek(small).state is not None
    for place in range(len(good) * 8):
        bad = bytearray(good)
        bad[place // 8] ^= 1 << place % 8
        small.write_bytes(bad)
        before = face(small)
        with pytest.raises(CheckpointUnknown):
            peek(small)
        with hold(small) as held, pytest.raises(CheckpointUnknown):
            held.load(lambda _: None)
        assert face(small) == before
    small.write_bytes(good)
    assert peek(small).state is not None


def test_every_cut_blocks_and_the_file_is_left_as_it_is(small: Path) -> None:
    good = small.read_bytes()
    for length in range(len(good)):
        small.write_bytes(good[:length])
        before = face(small)
        with pytest.raises(CheckpointUnknown):
            peek(small)
        assert face(small) == before


def test_a_flipped_bit_blocks_the_real_program_before_any_request(project: Project, chat: ChatServer) -> None:
    names = [f"job-{number}" for number in range(6)]
    chat.script = [CALLS[0]]
    project.live(chat.url, {name: {"task": f"Größe {name}?", "schedule": "every 1s"} for name in names})
    project.run("run", *names)
    for number, name in enumerate(names):
        body = bytearray(project.path(name).read_bytes())
        # The case of a letter, the count of attempts, the last brace, the newline at the end, and two more.
        at = [body.index(b"Gr"), body.index(b'"attempts":') + 11, len(body) - 2, len(body) - 1, 0, len(body) // 2]
        body[at[number]] ^= 0x20 if number == 0 else 1
        project.path(name).write_bytes(body)
    before = {name: face(project.path(name)) for name in names}
    sent = chat.count
    for command in (["run", *names], ["tick"]):
        said = project.run(*command, code=65).stderr
        assert said.count("is not a file that this ledger ever published") == len(names)
    assert {name: face(project.path(name)) for name in names} == before
    assert chat.count == sent


# ---- the job was edited


def test_an_edited_task_blocks_and_the_old_one_resumes(project: Project, chat: ChatServer) -> None:
    chat.script = [CALLS[0], answer("fin")]
    project.live(chat.url)
    slices(project, 1)
    before = face(project.path())
    project.live(chat.url, {"nightly": {"task": "Summarise the logs of today"}})
    said = project.run("run", "nightly", code=65).stderr
    assert f'it was "{TASK}"' in said
    assert 'it is "Summarise the logs of today"' in said
    assert "resumed revise nightly" in said
    assert project.run("show", "nightly", "--task").stdout == f"{TASK}\n"
    row = project.status()
    assert (row["state"], chat.count) == ("blocked", 1)
    assert face(project.path()) == before
    project.live(chat.url)
    slices(project, 1)
    assert [turn["role"] for turn in chat.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert (project.document()["attempts"], project.document()["answer"]) == (2, "fin")


def test_line_ends_and_blanks_at_the_end_are_no_edit(project: Project, chat: ChatServer) -> None:
    chat.script = [*CALLS]
    for number, task in enumerate(("one\ntwo", "one\r\ntwo \n", "one\rtwo")):
        project.live(chat.url, {"nightly": {"task": task}})
        slices(project, 1)
        assert chat.count == number + 1
    project.live(chat.url, {"nightly": {"task": " one\ntwo"}})
    assert isinstance(told(project)[0].refusal, TaskChanged)


@pytest.mark.parametrize("where", ["provider", "job"])
def test_a_changed_model_blocks_names_both_and_the_old_one_resumes(
    project: Project, chat: ChatServer, where: str
) -> None:
    chat.script = [CALLS[0], answer("fin")]
    project.live(chat.url)
    slices(project, 1)
    before = face(project.path())
    if where == "provider":
        project.live(chat.url, provider={"model": "m2"})
    else:
        project.live(chat.url, {"nightly": {"model": "m2"}})
    result, _ = told(project)
    assert isinstance(result.refusal, ModelChanged)
    assert "started with model m1, and the job now names m2" in project.run("run", "nightly", code=65).stderr
    assert (face(project.path()), chat.count) == (before, 1)
    project.live(chat.url)
    slices(project, 1)
    assert {sent["model"] for sent in chat.requests} == {"m1"}
    assert project.document()["answer"] == "fin"


def test_before_the_first_attempt_an_edit_is_taken(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    slices(project, 1)
    project.run(*RENEW)
    project.live(chat.url, {"nightly": {"task": "Another task", "model": "m2"}})
    assert "retaken" in told(project)[1]
    document = project.document()
    assert (document["task"], document["model"], document["attempts"]) == ("Another task", "m2", 1)
    assert chat.requests[1]["messages"][1]["content"].startswith("Another task\n\n")


def test_revise_archives_the_old_conversation_and_the_attempts_carry_over(project: Project, chat: ChatServer) -> None:
    chat.script = [*CALLS[:2], BLANK]
    project.live(chat.url)
    slices(project, 2)
    old = project.path().read_bytes()
    project.live(chat.url, {"nightly": {"task": "Another task", "model": "m2"}})
    assert "2 of 4 attempts are left" in project.run("revise", "nightly", *REASONS).stdout
    [(allowance, body, reason)] = project.rows("SELECT allowance, body, reason FROM archive")
    assert (allowance, body, reason) == (1, old, "a better idea")
    assert "a better idea" in project.run("show", "nightly").stdout
    document = project.document()
    assert (document["task"], document["model"], document["attempts"]) == ("Another task", "m2", 2)
    assert (document["conversation"], len(document["history"])) == ([], 2)
    for _ in range(4):
        told(project)
    assert chat.count == 4
    _, opening = chat.requests[2]["messages"]
    assert opening["content"].startswith("Another task\n\n[Request 3 of 4.")
    assert project.document()["status"] == "exhausted"


def test_a_final_job_stays_final_whatever_is_edited(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    slices(project, 1)
    before = face(project.path())
    project.live(chat.url, {"nightly": {"task": "Another task", "model": "m2", "schedule": "every 1s"}})
    for by_hand in (True, False):
        assert told(project, by_hand=by_hand)[0].final
    assert "stays so" in project.run("revise", "nightly", *REASONS, code=65).stderr
    row = project.status()
    assert (row["state"], row["answer"]) == ("done", None)
    assert "task edited since" in row["reason"]
    shown = project.run("show", "nightly").stdout
    assert shown.index("task edited since") < shown.index(f"  {TASK}") < shown.index("\n  fin\n")
    assert (face(project.path()), chat.count) == (before, 1)


def test_a_renamed_job_on_the_same_path_goes_on_with_its_attempts(project: Project, chat: ChatServer) -> None:
    chat.script = [BLANK]
    project.live(chat.url, after_failure=[])
    slices(project, 2)
    project.live(chat.url, {"other": {"checkpoint": "checkpoints/nightly.json"}}, after_failure=[])
    for _ in range(4):
        told(project, "other")
    assert (chat.count, project.document()["attempts"]) == (4, 4)


def test_a_job_moved_within_its_folder_blocks_and_goes_on_once_put_back(project: Project, chat: ChatServer) -> None:
    chat.script = [CALLS[0], answer("fin")]
    project.live(chat.url)
    slices(project, 1)
    before = face(project.path())
    project.live(chat.url, {"nightly": {"checkpoint": "checkpoints/elsewhere.json", "schedule": "every 1s"}})
    assert isinstance(told(project, by_hand=False)[0].refusal, CheckpointMoved)
    said = project.run("run", "nightly", code=65).stderr
    assert str(project.path()) in said
    assert str(project.path("elsewhere")) in said
    assert not project.path("elsewhere").exists()
    assert (face(project.path()), chat.count) == (before, 1)
    project.live(chat.url)
    slices(project, 1)
    assert (chat.count, project.document()["attempts"], project.document()["answer"]) == (2, 2, "fin")


def test_renew_opens_four_more_attempts_and_archives_the_old_ones(project: Project, chat: ChatServer) -> None:
    chat.script = [*CALLS, BLANK]
    project.live(chat.url, after_failure=[])
    slices(project, 4)
    before = face(project.path())
    assert "--confirm" in project.run("renew", "nightly", *REASONS, "--confirm", "nightli", code=64).stderr
    assert told(project)[0].final
    assert face(project.path()) == before
    assert "4 attempts are left" in project.run(*RENEW).stdout
    assert project.rows("SELECT allowance, number, body, reason FROM archive") == [(1, 1, before[0], "a better idea")]
    assert (project.document()["attempts"], project.document()["conversation"]) == (0, [])
    for _ in range(5):
        told(project)
    assert chat.count == 8
    assert [len(sent["messages"]) for sent in chat.requests[4:]] == [2, 2, 2, 2]
    assert (project.document()["attempts"], project.document()["status"]) == (4, "exhausted")
    # A copy of the first allowance is as old as any: nothing is won by putting it back.
    project.path().write_bytes(before[0])
    assert told(project)[1] == ["put_back"]
    assert chat.count == 8


def test_renew_keep_goes_on_with_the_conversation(project: Project, chat: ChatServer) -> None:
    chat.script = [*CALLS[:2], answer("too short"), answer("better")]
    project.live(chat.url)
    slices(project, 3)
    project.run(*RENEW, "--keep")
    slices(project, 1)
    roles = [turn["role"] for turn in chat.requests[3]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    assert chat.requests[3]["messages"][-2]["content"] == "too short"
    assert chat.requests[3]["messages"][-1]["content"] == "a better idea"
    assert (project.document()["attempts"], project.document()["answer"]) == (1, "better")


# ---- finished


@pytest.mark.parametrize(("script", "status"), [([CALLS[0], answer("fin")], "done"), ([BLANK], "exhausted")])
def test_a_hundred_ticks_and_runs_of_a_finished_job_change_nothing(
    project: Project, chat: ChatServer, script: list[Any], status: str
) -> None:
    chat.script = script
    project.live(chat.url, {"nightly": {"schedule": "every 1s"}}, after_failure=[])
    while not told(project)[0].final:
        pass
    assert project.document()["status"] == status
    before, sent = face(project.path()), chat.count
    for number in range(94):
        result, events = told(project, by_hand=number % 2 == 0)
        assert result.final
        assert (result.ran, events) == (False, [])
    for command in (["tick"], ["run", "nightly"], ["tick", "nightly"]) * 2:
        project.run(*command, code=0)
    project.run("daemon", "--until-done", code=0)
    assert (face(project.path()), chat.count) == (before, sent)


# ---- neighbours


def test_copies_that_other_programs_leave_in_the_folder_are_neither_read_nor_deleted(
    project: Project, chat: ChatServer
) -> None:
    chat.script = [*CALLS]
    project.live(chat.url)
    slices(project, 1)
    folder = project.path().parent
    fresh = json.dumps(json.loads(project.path().read_bytes()) | {"attempts": 0, "history": []}).encode()
    names = [
        "nightly.sync-conflict-20260301-101010-ABCDEFG.json",
        "nightly (conflicted copy 2026-03-01).json",
        "nightly.json~",
        ".nightly.json.swp",
        ".nightly.json.tmp123",
        ".nightly.json.tmp",
        "nightly.json.bak",
        ".nightlyxjson.0123456789abcdef.tmp",
    ]
    for name in names:
        (folder / name).write_bytes(fresh)
    before = {name: face(folder / name) for name in names}
    slices(project, 1)
    os.unlink(project.path())
    slices(project, 1)
    assert project.status()["attempts"] == 3
    assert {name: face(folder / name) for name in names} == before
    assert chat.count == 3


def test_adopt_leaves_out_what_others_write_beside_the_known_fields(project: Project) -> None:
    call = {"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": TASK, "name": "ann"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "x"},
        {"role": "assistant", "content": "so far", "tool_calls": None},
    ]
    six = {"task": TASK, "model": "m1", "conversation": turns, "attempts": 1, "status": "ready", "answer": None}
    with chat_server(answer("fin")) as chat:
        project.live(chat.url)
        project.path().parent.mkdir(mode=0o700)
        project.path().write_text(json.dumps(six))
        assert "adopted at attempt 1 of 4" in project.run("adopt", "nightly").stdout
        project.run("run", "nightly")
        assert [message["role"] for message in chat.requests[0]["messages"]][2:5] == ["user", "assistant", "tool"]
    assert (project.document()["status"], project.document()["answer"]) == ("done", "fin")


def test_after_renew_keep_a_part_that_was_cut_is_followed_by_a_persons_word_and_not_by_an_order_to_go_on(
    project: Project,
) -> None:
    cut = answer("The FIRST half of it. ", finish_reason="length")
    with chat_server(cut, answer("the whole answer")) as chat:
        project.live(chat.url)
        project.run("run", "nightly")
        project.run("renew", "nightly", "--reason", "begin again, please", "--confirm", "nightly", "--keep")
        project.run("run", "nightly")
        assert [message["role"] for message in chat.requests[1]["messages"]] == ["system", "user", "assistant", "user"]
        assert chat.requests[1]["messages"][-1]["content"] == "begin again, please"
    assert project.document()["answer"] == "the whole answer"

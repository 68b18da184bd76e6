"""A person's decision about an answer: what it is bound to, what follows from it, and what is on record of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import sys
import termios
from contextlib import closing
from typing import Any

import pytest

from scheduler import mend
from scheduler.decision import answer_digest, approve, reject, rejection, review_of, review_word
from scheduler.document import dump, parse
from scheduler.doubts import PART, plain_doubts
from scheduler.due import plan_job
from scheduler.jobfile import read_job_file
from scheduler.ledger import NAME
from scheduler.state import Outcome, State, admit, new_state, settle
from tests.faults.killed_at import forked
from tests.support import ChatServer, Project, answer, chat_server, tool_calls, wait_until
from tests.test_bad_input import Told, command, listing

NOW = "2026-03-02T09:00:00Z"
BY_ANN = {"who": "ann", "when": NOW}
LONG = {"schedule": "0 9 1 1 *"}  # no point while a test runs


pytestmark = pytest.mark.usefixtures("surroundings")


def answered(*before: Outcome, text: str = "fin") -> State:
    """Return a document that was answered after these outcomes."""
    state = new_state("t", "m1")
    for number, outcome in enumerate((*before, "answered"), 1):
        state = admit(state, number, point=None, started=NOW)
        message = {"role": "assistant", "content": text if outcome == "answered" else "a part"}
        more: dict[str, Any] = {"answer": text} if outcome == "answered" else {}
        state = settle(state, outcome, finished=NOW, max_attempts=4, messages=[message], **more)
    return state


# ---- the moves


def test_a_decision_counts_for_the_answer_that_it_was_made_about_and_no_other() -> None:
    approved = approve(answered(), note="", **BY_ANN)
    assert (review_word(answered()), review_word(approved)) == ("unreviewed", "approved")
    assert parse(dump(approved)) == approved
    approved["answer"] = "fin."
    assert (review_of(approved), review_word(approved)) == (None, "unreviewed")
    assert review_word(new_state("t", "m1")) is None


def test_a_rejection_with_attempts_left_asks_again_with_the_note_and_the_same_count() -> None:
    done = answered("timeout")
    ready = reject(done, note="shorter", max_attempts=4, **BY_ANN)
    assert (ready["status"], ready["answer"], ready["attempts"]) == ("ready", None, 2)
    assert ready["history"] == done["history"]
    assert [turn["content"] for turn in ready["conversation"][-2:]] == ["fin", "shorter"]
    assert ready["conversation"][-1]["role"] == "user"
    assert parse(dump(ready)) == ready
    assert (rejection(ready), rejection(done)) == ("shorter", None)
    again = settle(admit(ready, 3, point=None, started=NOW), "answered", finished=NOW, max_attempts=4, answer="fin")
    assert (again["review"], review_word(again)) == (None, "unreviewed")  # the same words, and not yet read


def test_a_failed_attempt_after_a_rejection_keeps_why() -> None:
    ready = reject(answered(), note="shorter", max_attempts=4, **BY_ANN)
    failed = settle(admit(ready, 2, point=None, started=NOW), "timeout", finished=NOW, max_attempts=4)
    assert failed["review"] == ready["review"]
    assert rejection(failed) is None  # the last outcome is told instead
    assert parse(dump(failed)) == failed


@pytest.mark.parametrize(("before", "most"), [((), 1), (("timeout",) * 3, 4), (("timeout",), 2)])
def test_a_rejection_without_attempts_left_stays_done(before: tuple[Outcome, ...], most: int) -> None:
    done = answered(*before)
    rejected = reject(done, note="no", max_attempts=most, **BY_ANN)
    assert (rejected["status"], rejected["answer"], review_word(rejected)) == ("done", "fin", "rejected")
    assert rejected["conversation"] == done["conversation"]
    assert parse(dump(rejected)) == rejected


def test_an_adopted_answer_that_stands_in_no_turn_is_shown_to_the_model_before_the_note() -> None:
    done = answered()
    done["conversation"] = []
    turns = reject(done, note="no", max_attempts=4, **BY_ANN)["conversation"]
    assert [(turn["role"], turn["content"]) for turn in turns] == [("assistant", "fin"), ("user", "no")]


def test_without_an_answer_there_is_nothing_to_decide() -> None:
    with pytest.raises(ValueError, match="no answer"):
        approve(new_state("t", "m1"), note="", **BY_ANN)


def test_the_parts_of_a_rejected_answer_are_not_missed_in_the_next_one() -> None:
    assert PART in plain_doubts(answered("length"), False)
    ready = reject(answered("length", text="a part, fin"), note="no", max_attempts=4, **BY_ANN)
    state = admit(ready, 3, point=None, started=NOW)
    message = {"role": "assistant", "content": "new"}
    state = settle(state, "answered", finished=NOW, max_attempts=4, answer="new", messages=[message])
    assert PART not in plain_doubts(state, False)


# ---- the command


def done_job(project: Project, chat: ChatServer, **fields: Any) -> None:
    """Write a job whose schedule has no point soon, and have it answered by hand."""
    project.live(chat.url, {"nightly": LONG | fields})
    assert command(project, "run", "nightly").code == 0


def reviewed(project: Project, *arguments: object, code: int = 0) -> Told:
    told = command(project, "review", "nightly", *arguments)
    assert told.code == code, told.err + told.out
    return told


def test_an_answer_is_unreviewed_wherever_it_is_told(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": LONG})
    assert "answered, unreviewed: fin" in command(project, "run", "nightly").err
    assert "unreviewed: fin" in command(project, "status").out
    assert json.loads(command(project, "status", "--json").out)["jobs"][0]["review"] == "unreviewed"
    assert "ANSWER (unreviewed, SHA-256" in command(project, "show", "nightly").out
    project.write_jobs({"x": {"task": "t", "checkpoint": "x.json", "provider": "demo"}})
    work = command(project, "work", "t", "--demo", "--checkpoint", project.folder / "w.json")
    assert "answer (unreviewed): " in work.out


def test_approve_shows_what_it_approves_and_is_entered_once(project: Project, chat: ChatServer) -> None:
    done_job(project, chat)
    before = listing(project.folder)
    told = reviewed(project, "--approve", "--dry-run")
    assert "no request follows, and nothing is delivered" in told.out
    assert listing(project.folder) == before
    digest = answer_digest("fin")
    told = reviewed(project, "--approve", "--note", "good", "--sha256", digest[:8])
    assert told.out.startswith(f"ANSWER (unreviewed, SHA-256 {digest})\n  fin\n")
    assert told.out.endswith("job nightly: approved\n")
    body = project.path().read_bytes()
    assert "job nightly: it was approved by " in reviewed(project, "--approve").out
    assert project.path().read_bytes() == body
    assert project.document()["review"]["answer_sha256"] == digest
    found = json.loads(command(project, "status", "--json").out)["jobs"][0]
    assert (found["review"], found["delivery"], found["state"]) == ("approved", None, "done")
    assert "approved: fin" in command(project, "status").out
    shown = command(project, "show", "nightly").out
    assert "ANSWER (approved, SHA-256" in shown
    assert f"review --approve, answer {digest[:12]}: good" in shown
    assert project.rows("SELECT number, command, reason FROM act") == [(1, "review --approve", "good")]
    assert command(project, "tick").code == 0
    assert command(project, "run", "nightly").code == 0
    assert chat.count == 1  # done means no request


def test_reject_sends_the_note_at_the_next_point_and_is_listed(project: Project, chat: ChatServer) -> None:
    chat.script = [answer("first"), answer("second")]
    done_job(project, chat)
    with closing(sqlite3.connect(project.folder / "checkpoints" / NAME)) as base, base:
        base.execute("UPDATE job SET since = since - 400 * 86400")  # a point has passed since then
    told = reviewed(project, "--reject", "--note", "Name the files.")
    assert "tells the model why and asks it again: up to 3 further requests" in told.out
    assert "rejected; 3 of 4 attempts are left, the first at its next point" in told.out
    assert (project.document()["status"], project.document()["attempts"]) == ("ready", 1)
    found = json.loads(command(project, "status", "--json").out)["jobs"][0]
    assert (found["state"], found["reason"]) == ("ready", "answer rejected: Name the files.")
    assert command(project, "tick").code == 0
    assert chat.count == 1  # the points that passed while it was done are not made up
    assert command(project, "run", "nightly").code == 0
    sent = [(turn["role"], turn["content"]) for turn in chat.requests[1]["messages"][2:]]
    assert sent == [("assistant", "first"), ("user", "Name the files.")]
    document = project.document()
    assert (document["answer"], document["attempts"], document["review"]) == ("second", 2, None)
    shown = command(project, "show", "nightly").out
    assert "allowance 1: rejected: Name the files." in shown
    assert "review --reject, answer " in shown
    assert "ANSWER (unreviewed" in shown


def test_reject_after_the_last_attempt_stays_rejected_until_renew(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, max_attempts=1)
    told = reviewed(project, "--reject", "--note", "no")
    assert "no attempt is left to ask again" in told.out
    assert 'rejected; no attempt is left, and "resumed renew nightly" opens a new allowance' in told.out
    assert "rejected: fin" in command(project, "status").out
    assert "it is rejected, and no attempt is left" in reviewed(project, "--reject", "--note", "no").out
    assert command(project, "run", "nightly").code == 0
    assert chat.count == 1
    assert project.rows("SELECT count(*) FROM archive") == [(0,)]
    assert command(project, "renew", "nightly", "--reason", "x", "--confirm", "nightly").code == 0
    assert command(project, "run", "nightly").code == 0
    assert chat.count == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--reject"], 64, "--reject needs --note TEXT"),
        (["--reject", "--note", " "], 64, "--reject needs --note TEXT"),
        (["--approve", "--redeliver"], 64, "--redeliver needs --note TEXT"),
        (["--reject", "--note", "x", "--redeliver"], 64, "delivers nothing"),
        ([], 64, "--approve"),
        (["--approve", "--sha256", "12ab"], 64, "8 to 64 hexadecimal digits"),
        (["--approve", "--sha256", "g" * 8], 64, "8 to 64 hexadecimal digits"),
        (["--approve", "--sha256", "0" * 8], 65, "the answer is another one"),
        (["--approve", "--redeliver", "--note", "x"], 65, ""),
    ],
)
def test_a_review_that_cannot_be_is_refused_in_one_line(
    project: Project, chat: ChatServer, arguments: list[str], code: int, words: str
) -> None:
    done_job(project, chat)
    body = project.path().read_bytes()
    told = reviewed(project, *arguments, code=code)
    if words:
        told.one_line(words)
        assert project.path().read_bytes() == body
    else:
        assert "nothing is delivered: the job has no deliver: in jobs.yaml" in told.out


def test_a_job_that_is_not_done_has_nothing_to_review(project: Project) -> None:
    with chat_server(tool_calls(("c1", "read_file", "{}")), (500, {})) as chat:
        project.live(chat.url, {"nightly": LONG | {"max_attempts": 2}})
        reviewed(project, "--approve", code=65).one_line("no answer to review; it is not begun, 0 of 2")
        command(project, "run", "nightly")
        reviewed(project, "--approve", code=65).one_line("it is ready, 1 of 2 attempts")
        command(project, "run", "nightly")
        reviewed(project, "--reject", "--note", "x", code=65).one_line("it is exhausted, 2 of 2 attempts")


def test_an_answer_that_changes_under_the_review_is_not_approved(project: Project) -> None:
    """Between reading and deciding another person rejects, and the model answers anew."""
    first = "\U0001f389" * 1100  # so much that the pipe is full before the decision
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with chat_server(answer(first), answer("second")) as chat, open(reader, "rb") as shown:
        done_job(project, chat)
        with project.start("review", "nightly", "--approve", stdout=writer) as process:
            os.close(writer)
            wait_until(lambda: _waiting(reader) == 4096, 60, "the answer is shown")
            reviewed(project, "--reject", "--note", "no")
            assert command(project, "run", "nightly").code == 0
            assert first[:1000] in shown.read().decode()
            _, err = process.communicate(timeout=60)
    assert (process.returncode, "the answer is another one" in err) == (65, True)
    assert (project.document()["answer"], project.document()["review"]) == ("second", None)


def _waiting(pipe: int) -> int:
    """Return how many bytes wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_two_reviewers_at_once_make_one_decision_each_of_which_is_whole(project: Project, chat: ChatServer) -> None:
    done_job(project, chat)
    no = ["review", "nightly", "--reject", "--note", "no"]
    ended = forked(project, no, ["review", "nightly", "--approve"], no, together=True)
    assert {one.code for one in ended} <= {0, 65, 75}
    assert any(one.code == 0 for one in ended)
    document = project.document()
    notes = [turn["content"] for turn in document["conversation"] if turn["role"] == "user"]
    acts = [command for (command,) in project.rows("SELECT command FROM act ORDER BY number")]
    assert sum(one.code == 0 for one in ended) == len(acts)
    assert document["status"] == ("ready" if "review --reject" in acts else "done")
    assert notes == ["no"] * acts.count("review --reject")
    assert acts.count("review --reject") <= 1


def test_a_rehearsal_is_reviewed_and_never_delivered(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": {"deliver": {"file": "out.md"}}})
    project.config.write_text(project.config.read_text().replace('"live": true', '"live": false'))
    assert command(project, "run", "nightly").code == 0
    assert "a rehearsal" in reviewed(project, "--approve").out
    found = json.loads(command(project, "status", "--json").out)["jobs"][0]
    assert (found["review"], found["delivery"]) == ("approved", "never delivered: a rehearsal")
    assert "never delivered: a rehearsal" in reviewed(project, "--approve", "--redeliver", "--note", "x", code=65).out
    assert command(project, "tick").code == 0
    assert not (project.folder / "out.md").exists()
    assert rows_of_rehearsal(project) == 0
    assert chat.count == 0


def rows_of_rehearsal(project: Project) -> int:
    with closing(sqlite3.connect(project.folder / "checkpoints/rehearsal" / NAME)) as base:
        return int(base.execute("SELECT count(*) FROM delivery").fetchone()[0])


# ---- the other ways out say what they will do, and are on record


def test_each_way_out_says_what_it_costs_and_is_on_record_with_who_when_and_why(project: Project) -> None:
    with chat_server(tool_calls(("c1", "read_file", "{}")), (401, {}), answer("fin")) as chat:
        project.live(chat.url, {"nightly": LONG})
        assert command(project, "run", "nightly").code == 0
        ways = [
            (["repair", "nightly", "--reason", "r1"], "puts the document at attempt 1 of 4 back"),
            (["revise", "nightly", "--reason", "r2"], "the attempts that are left: up to 3 further requests"),
            (["renew", "nightly", "--reason", "r3", "--confirm", "nightly"], "opens allowance 2: up to 4 further"),
            (["adopt", "nightly", "--reason", "r4"], "with its attempts, at least 0: up to 4 further requests"),
        ]
        foreign = dump(answered("timeout"))
        for arguments, words in ways:
            if arguments[0] == "repair":
                project.path().write_bytes(b"broken")
            if arguments[0] == "adopt":
                project.path().write_bytes(foreign)
            before = listing(project.folder)
            told = command(project, *arguments, "--dry-run")
            assert (told.code, told.out.count("\n")) == (0, 1), told.err
            assert f"job nightly: {arguments[0]}: " in told.out
            assert words in told.out
            assert listing(project.folder) == before
            told = command(project, *arguments)
            assert (told.code, words in told.out, told.out.count("\n")) == (0, True, 2), told.err + told.out
        command(project, "renew", "nightly", "--reason", "r5", "--confirm", "nightly")
        command(project, "run", "nightly")
        told = command(project, "unblock", "local", "--dry-run", "--reason", "r6")
        assert "each of those requests counts" in told.out
        assert json.loads(command(project, "status", "--json").out)["rests"]
        assert "1 rest ended" in command(project, "unblock", "local", "--reason", "r6").out
        assert "it was not resting" in command(project, "unblock", "local", "--reason", "r7").out
    found = project.rows("SELECT number, command, reason FROM act ORDER BY number")
    assert found == [
        (1, "repair", "r1"),
        (2, "revise", "r2"),
        (3, "renew", "r3"),
        (4, "adopt", "r4"),
        (5, "renew", "r5"),
        (6, "unblock", "r6"),
    ]
    shown = command(project, "show", "nightly").out
    for words in (
        f"by {mend.who()}: renew, allowance 2: r3",
        "revise, 3 of 4 attempts are left: r2",
        "unblock, provider local: r6",
        "adopt, adopted at attempt 2 of 4, done: r4",
    ):
        assert words in shown


@pytest.mark.parametrize("way", ["repair", "adopt"])
def test_a_way_out_of_what_is_in_order_says_beforehand_that_it_changes_nothing(
    project: Project, chat: ChatServer, way: str
) -> None:
    done_job(project, chat)
    assert f"job nightly: {way}: changes nothing, for " in command(project, way, "nightly", "--dry-run").out
    project.path().write_bytes(b"broken")
    assert "changes nothing" not in command(project, way, "nightly", "--dry-run").out


@pytest.mark.parametrize("status", ["", "done"])
def test_revise_says_beforehand_that_it_changes_nothing(project: Project, chat: ChatServer, status: str) -> None:
    project.live(chat.url, {"nightly": LONG})
    if status:
        command(project, "run", "nightly")
    told = command(project, "revise", "nightly", "--reason", "x", "--dry-run")
    assert f"changes nothing, for the job is {status or 'not begun'}" in told.out


@pytest.mark.parametrize("review", [True, False])
def test_an_answer_that_was_adopted_is_delivered_by_a_new_decision_alone(
    project: Project, chat: ChatServer, review: bool
) -> None:
    """Its approval is another ledger's, which may have delivered it."""
    project.live(chat.url, {"nightly": LONG | {"task": "t", "deliver": {"file": "out.md", "review": review}}})
    project.path().parent.mkdir(0o700)
    project.path().write_bytes(dump(approve(answered(), note="", **BY_ANN)))
    assert command(project, "adopt", "nightly").code == 0
    assert command(project, "tick").code == 0
    assert project.document()["review"] is None
    assert not (project.folder / "out.md").exists()
    reviewed(project, "--approve")
    assert (project.folder / "out.md").read_text() == "fin"


def test_a_decision_and_its_record_are_one_step(project: Project, chat: ChatServer) -> None:
    done_job(project, chat)
    [ended] = forked(project, ["review", "nightly", "--approve"], steps=["decided-inside"])
    assert ended.code == -signal.SIGKILL
    assert project.rows("SELECT count(*) FROM act") == [(0,)]
    assert json.loads(command(project, "status", "--json").out)["jobs"][0]["review"] == "unreviewed"
    plan = plan_job(read_job_file(project.config).jobs["nightly"], live=True)
    assert plan.path == project.path()
    [ended] = forked(project, ["review", "nightly", "--approve"], steps=["decided-unpublished"])
    assert ended.code == -signal.SIGKILL
    assert project.document()["review"] is None  # the file is behind, the ledger is not
    assert json.loads(command(project, "status", "--json").out)["jobs"][0]["review"] == "approved"
    assert command(project, "tick").code == 0
    assert project.document()["review"]["decision"] == "approved"
    assert project.rows("SELECT count(*) FROM act") == [(1,)]


def test_the_name_behind_sudo_makes_no_line_of_its_own(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ann\n  2030-01-01T00:00:00Z by root: review --approve\x1b[2J\udcff")
    done_job(project, chat)
    assert command(project, "review", "nightly", "--approve").code == 0
    shown = command(project, "show", "nightly").out
    assert "(ann 2030-01-01T00:00:00Z by root: review --approve\\x1b[2J\\udcff)" in shown
    assert "\n  2030" not in shown

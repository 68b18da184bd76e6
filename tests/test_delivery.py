"""Where an approved answer goes: after approval alone, once, recorded before it starts, whatever is killed when."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from scheduler.child import Guarded, guard, run_program
from scheduler.decision import answer_digest
from scheduler.delivery import carry_out
from scheduler.jobfile import read_job_file
from scheduler.ledger import NAME
from tests.faults.killed_at import DELIVERY, forked
from tests.support import ChatServer, Project, answer, chat_server, wait_until
from tests.test_bad_input import KEY, Told, command
from tests.test_daemon import service

TEXT = "Año → 日本 🎉\nno line end"
NEVER = "0 9 1 1 *"  # no point while a test runs
APPROVE = ["review", "nightly", "--approve"]
AGAIN = [*APPROVE, "--redeliver", "--note", "once more"]
# Keeps what it is given, appended, so that a second delivery cannot hide.
KEEP = 'cat >> got; env > env; pwd > where; echo "out"; '


pytestmark = pytest.mark.usefixtures("surroundings")


def shell(script: str) -> dict[str, Any]:
    return {"argv": ["sh", "-c", script]}


def script(project: Project, lines: str, *arguments: str) -> dict[str, Any]:
    """Write a program, and return the delivery that runs it."""
    path = project.folder / "send.sh"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)
    return {"argv": ["./send.sh", *arguments]}


def done_job(project: Project, chat: ChatServer, deliver: dict[str, Any], **top: Any) -> None:
    """Write a job that delivers like this, and have it answered by hand."""
    chat.script = [answer(TEXT)]
    project.live(chat.url, {"nightly": {"schedule": NEVER, "deliver": deliver}}, **top)
    assert command(project, "run", "nightly").code == 0


def run(project: Project, *arguments: str, code: int = 0) -> Told:
    told = command(project, *arguments)
    assert told.code == code, told.err + told.out
    return told


def row(project: Project) -> dict[str, Any]:
    """The job's row of `status --json`."""
    rows: list[dict[str, Any]] = json.loads(command(project, "status", "--json").out)["jobs"]
    return rows[0]


def results(project: Project) -> list[tuple[int, str | None]]:
    """Every delivery's number and result."""
    return project.rows("SELECT number, result FROM delivery ORDER BY allowance, number")


def got(project: Project, name: str = "got") -> str:
    path = project.folder / name
    return path.read_text("utf-8") if path.exists() else ""


# ---- to a file


def test_a_file_gets_the_answers_bytes_after_approval_and_once(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, {"file": "out.md"})
    out = project.folder / "out.md"
    run(project, "tick")
    assert not out.exists()
    told = run(project, *APPROVE)
    assert f"job nightly: approve: the answer goes, once, to {out}" in told.out
    assert f"job nightly: {out}: delivered" in told.out
    assert out.read_bytes() == TEXT.encode()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert (row(project)["review"], row(project)["delivery"]) == ("approved", "delivered")
    assert "approved, delivered: Año" in run(project, "status").out
    shown = run(project, "show", "nightly").out
    assert f"to {out}: delivered\n" in shown
    out.write_text("edited by hand")
    for _ in range(2):
        run(project, "tick")
        run(project, "run", "nightly")
        run(project, *APPROVE)
    assert out.read_text() == "edited by hand"
    assert results(project) == [(1, "delivered")]
    assert chat.count == 1


def test_a_review_says_beforehand_what_it_will_do_with_an_answer_that_was_sent(
    project: Project, chat: ChatServer
) -> None:
    done_job(project, chat, {"file": "out.md"})
    run(project, *APPROVE)
    told = run(project, *APPROVE, "--dry-run")
    assert "it was sent (delivered), and goes again only with --redeliver" in told.out
    assert "goes, once more, to " in run(project, *AGAIN, "--dry-run").out
    told = run(project, "review", "nightly", "--reject", "--note", "x", "--dry-run", code=65)
    assert "asks it again" not in told.out
    told.one_line("the answer was given away (delivered to ")
    assert results(project) == [(1, "delivered")]


def test_an_existing_file_keeps_its_mode_and_is_replaced_in_one_step(project: Project, chat: ChatServer) -> None:
    out = project.folder / "out.md"
    out.write_text("old")
    out.chmod(0o640)
    with out.open() as old:
        done_job(project, chat, {"file": "out.md"})
        run(project, *APPROVE)
        assert old.read() == "old"
    assert out.read_bytes() == TEXT.encode()
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert not list(project.folder.glob(".out*"))


def prepare(project: Project, kind: str) -> str:
    """Make something that no answer may be written to, and return its path as jobs.yaml names it."""
    match kind:
        case "link":
            (project.folder / "linked").write_text("kept")
            (project.folder / "link").symlink_to("linked")
            return "link"
        case "folder":
            (project.folder / "sub").mkdir()
            return "sub"
        case "fifo":
            os.mkfifo(project.folder / "fifo")
            return "fifo"
        case "ledger":
            return f"checkpoints/{NAME}"
        case "beside":
            return "checkpoints/report.md"
        case "linked folder":
            (project.folder / "elsewhere").symlink_to("checkpoints")
            return "elsewhere/report.md"
        case "rehearsal":
            (project.folder / "checkpoints/rehearsal").mkdir(parents=True)
            (project.folder / "checkpoints").chmod(0o700)
            return "checkpoints/rehearsal/report.md"
        case "jobs.yaml":
            return "jobs.yaml"
    return "nowhere/report.md"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing folder", "its folder does not exist"),
        ("link", "a symbolic link, not a regular file"),
        ("folder", "a directory, not a regular file"),
        ("fifo", "a FIFO, not a regular file"),
        ("ledger", "this program keeps its own files there"),
        ("beside", "this program keeps its own files there"),
        ("linked folder", "this program keeps its own files there"),
        ("rehearsal", "this program keeps its own files there"),
        ("jobs.yaml", "this program keeps its own files there"),
    ],
)
def test_what_is_no_place_for_an_answer_is_named_by_check_and_left_as_it_is(
    project: Project, chat: ChatServer, kind: str, words: str
) -> None:
    done_job(project, chat, {"file": prepare(project, kind)})
    config = project.config.read_bytes()
    assert words in run(project, "check", code=65).about("nightly")
    told = run(project, *APPROVE, code=65)
    assert words in told.out
    assert "the delivery of the answer failed" in told.about("nightly")
    assert project.document()["status"] == "done"
    assert row(project)["delivery"].startswith("delivery failed: ")
    assert project.config.read_bytes() == config
    assert results(project) == [(1, "failed")]
    run(project, "tick")
    assert results(project) == [(1, "failed")]
    if kind == "link":
        assert got(project, "linked") == "kept"


def test_a_file_without_review_is_delivered_right_after_the_answer(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, {"file": "out.md", "review": False})
    assert got(project, "out.md") == TEXT
    assert (row(project)["review"], row(project)["delivery"]) == ("unreviewed", "delivered")
    run(project, *APPROVE)
    assert results(project) == [(1, "delivered")]


def test_without_evidence_a_file_waits_for_a_person(project: Project, chat: ChatServer) -> None:
    (project.folder / "notes.md").write_text("notes")
    job = {"schedule": NEVER, "read": ["notes.md"], "deliver": {"file": "out.md", "review": False}}
    project.live(chat.url, {"nightly": job})
    run(project, "run", "nightly")
    run(project, "tick")
    assert not (project.folder / "out.md").exists()
    assert row(project)["delivery"] == "not delivered without a review"
    assert "unreviewed, not delivered without a review: fin [no evidence" in run(project, "status").out
    run(project, *APPROVE)
    assert got(project, "out.md") == "fin"


def test_an_edited_task_keeps_its_old_answer_from_an_unreviewed_file(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": {"schedule": NEVER}})
    run(project, "run", "nightly")
    deliver = {"file": "out.md", "review": False}
    project.live(chat.url, {"nightly": {"schedule": NEVER, "task": "Another", "deliver": deliver}})
    run(project, "tick")
    assert not (project.folder / "out.md").exists()
    project.live(chat.url, {"nightly": {"schedule": NEVER, "enabled": False, "deliver": deliver}})
    run(project, "tick")
    assert not (project.folder / "out.md").exists()  # the job rests
    project.live(chat.url, {"nightly": {"schedule": NEVER, "deliver": deliver}})
    run(project, "tick")
    assert got(project, "out.md") == "fin"


# ---- to a program


def test_an_answer_that_was_put_in_place_of_ours_and_adopted_waits_for_a_person(
    project: Project, chat: ChatServer
) -> None:
    """The ledger saw an answer come at this attempt, but not this one."""
    done_job(project, chat, {"file": "out.md", "review": False})
    forged = project.document()
    forged["answer"] = forged["conversation"][-1]["content"] = "forged"
    project.path().write_text(json.dumps(forged))
    run(project, "tick")
    run(project, "adopt", "nightly")
    run(project, "tick")
    run(project, "run", "nightly")
    assert (got(project, "out.md"), results(project)) == (TEXT, [(1, "delivered")])
    assert row(project)["delivery"] == "not delivered without a review"
    run(project, "review", "nightly", "--reject", "--note", "this is none of ours")
    run(project, "run", "nightly")
    assert results(project) == [(1, "delivered")]  # the model gave again what was delivered before
    chat.script = [answer("a new one")]
    run(project, "renew", "nightly", "--reason", "x", "--confirm", "nightly")
    run(project, "run", "nightly")
    assert got(project, "out.md") == "a new one"


def test_a_program_gets_the_answer_without_a_shell_or_a_secret(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"LOCAL_KEY": KEY, "HEADER_KEY": "hdr-canary-0123456789", "HOOK": "https://canary-hook-address.example/x"}
    copied = {"COPIED": f"Bearer {KEY}", "CREDENTIALS_DIRECTORY": str(project.folder / "canary-credentials")}
    monkeypatch.setenv("REFUSED_HOOK", "canary")
    for name, value in (secrets | copied | {"PLAIN": "kept"}).items():
        monkeypatch.setenv(name, value)
    (project.folder / "canary-credentials").mkdir()
    (project.folder / "canary-credentials/filed").write_text("crd-canary-0123456789")
    monkeypatch.setenv("MANDAPI_API_KEY", "mandapi-canary-0123456789")
    monkeypatch.setenv("FILED", "crd-canary-0123456789")
    done_job(
        project,
        chat,
        script(project, KEEP + 'echo "$1|$2" > arguments', "a b", "$PLAIN;`x`"),
        provider={"headers": {"x-own": {"env": "HEADER_KEY"}}},
        notify=[{"webhook": {"env": "HOOK"}}],
    )
    config = json.loads(project.config.read_text())
    config["providers"]["other"] = {"base_url": chat.url, "model": "m", "key": {"credential": "filed"}}
    config["jobs"]["refused"] = {"task": "t", "odd": 1, "notify": [{"webhook": {"env": "REFUSED_HOOK"}}]}
    project.config.write_text(json.dumps(config))
    run(project, "run", "nightly")
    assert results(project) == []
    told = run(project, *APPROVE)
    assert (got(project), got(project, "where").strip()) == (TEXT, str(project.folder))
    environ = dict(line.split("=", 1) for line in got(project, "env").splitlines() if "=" in line)
    assert environ["PLAIN"] == "kept"
    assert "canary" not in got(project, "env")
    assert {*secrets, *copied, "FILED", "REFUSED_HOOK", "MANDAPI_API_KEY"}.isdisjoint(environ)
    assert got(project, "arguments") == "a b|$PLAIN;`x`\n"
    assert "out" not in told.out.splitlines()
    assert "PLAIN" not in told.out + told.err  # an argument may be a secret of its own
    run(project, "run", "nightly")
    assert results(project) == [(1, "delivered")]


@pytest.mark.keeps_key("project/send.sh", because="the user's program says a key that it knows by itself")
def test_a_failing_program_is_told_with_its_last_words_and_not_tried_again(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, script(project, KEEP + f"echo no such $LOCAL_KEY list >&2; echo {KEY} >&2; exit 3"))
    told = run(project, *APPROVE, code=65)
    assert "delivery failed: exit 3: no such list ***" in told.out
    assert "delivery failed: exit 3: no such list ***" in row(project)["delivery"]
    assert project.document()["status"] == "done"
    for _ in range(2):
        run(project, "tick")
        run(project, *APPROVE)
    assert (got(project), results(project)) == (TEXT, [(1, "failed")])
    told = run(project, *AGAIN, code=65)
    assert (got(project), results(project)) == (TEXT * 2, [(1, "failed"), (2, "failed")])
    assert "review, delivery 2 of the same answer: once more" in run(project, "show", "nightly").out
    run(project, "review", "nightly", "--reject", "--note", "no")  # nothing was delivered
    assert project.document()["status"] == "ready"


def test_after_a_delivery_there_is_no_rejection(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell(KEEP))
    run(project, *APPROVE)
    told = run(project, "review", "nightly", "--reject", "--note", "no", code=65)
    told.one_line("the answer was given away (delivered to sh …", "resumed renew nightly --reason TEXT")
    assert project.document()["review"]["decision"] == "approved"
    run(project, *AGAIN)
    assert (got(project), results(project)) == (TEXT * 2, [(1, "delivered"), (2, "delivered")])


def test_another_answer_and_another_allowance_are_delivered_each_once(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell(KEEP))
    chat.script = [answer("first"), answer("second"), answer("third")]
    run(project, "review", "nightly", "--reject", "--note", "no")
    for text in ("second", "third"):
        run(project, "run", "nightly")
        run(project, *APPROVE)
        assert got(project).endswith(text)
        run(project, "renew", "nightly", "--reason", "x", "--confirm", "nightly")
    assert got(project) == "secondthird"
    assert results(project) == [(1, "delivered"), (1, "delivered")]


@pytest.mark.parametrize("name", ["no-such-program-here", "./missing.sh", "./plain.txt"])
def test_a_program_that_cannot_be_run_is_named_by_check(project: Project, chat: ChatServer, name: str) -> None:
    (project.folder / "plain.txt").write_text("no program")
    done_job(project, chat, {"argv": [name]})
    assert f"deliver: {name}: this program is not found" in run(project, "check", code=65).about("nightly")
    assert "delivery failed" in run(project, *APPROVE, code=65).out
    done_job(project, chat, script(project, KEEP))
    run(project, "check")


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    # Neither reads its input; the child would keep stderr open.
    lines = "sleep 600 & echo $! > child; echo started >&2; wait"
    guarded = Guarded(environ={"PATH": os.environ["PATH"]}, secrets=())
    begun = time.monotonic()
    ended = run_program(["sh", "-c", lines], b"x" * 1_000_000, tmp_path, guarded, 1.5)
    assert time.monotonic() - begun < 30
    assert (ended.code, ended.said) == (None, "started")
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not running(child), 30, "the child is gone")


def test_a_delivery_that_takes_too_long_is_unknown(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell("echo half >&2; exec sleep 600"))
    job_file = read_job_file(project.config)
    found = carry_out(job_file.jobs["nightly"], TEXT, job_file, os.environ, 1.0)
    assert found == ("unknown", "killed after 1 s: half")


def running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def test_a_child_that_stays_holds_nobody_up_and_only_the_end_of_much_is_kept(tmp_path: Path) -> None:
    secret = "sixteen-letters-" * 2
    lines = f"sleep 60 & echo $! > child; yes {secret} | head -c 200000 >&2; echo last >&2"
    guarded = Guarded(environ={"PATH": os.environ["PATH"]}, secrets=(secret,))
    begun = time.monotonic()
    ended = run_program(["sh", "-c", lines], b"", tmp_path, guarded, 50)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert time.monotonic() - begun < 40
    assert (ended.code, ended.said[-4:], len(ended.said)) == (0, "last", 300)
    assert "letters" not in ended.said.rpartition("***")[0]  # each one was masked before the end was taken


def test_a_program_that_never_stops_complaining_fills_no_disk(tmp_path: Path) -> None:
    guarded = Guarded(environ={"PATH": os.environ["PATH"]}, secrets=())
    lines = (  # it ends once what it wrote was cut
        "yes complaint | head -c 8000000 >&2\n"
        "until [ $(stat -L -c %s /proc/self/fd/2) -lt 8000000 ]; do sleep 0.05; done\n"
        "echo last >&2"
    )
    ended = run_program(["sh", "-c", lines], b"", tmp_path, guarded, 50)
    assert (ended.code, ended.said[-14:]) == (0, "complaint last")


def test_a_short_secret_hides_its_own_variable_and_no_other(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    guarded = guard(read_job_file(project.config), {"LOCAL_KEY": "ollama", "HOME": "/home/ollama"})
    assert guarded.environ == {"HOME": "/home/ollama"}
    assert guarded.secrets == ("ollama",)


# ---- killed between any two steps


# Killed there, nothing had begun, or its end was recorded; at the other steps nobody can know.
KNOWN = {"decided-inside", "decided-unpublished", "decided-after", "claimed-inside", "outcome-after"}
ARRIVED = {"delivered", "outcome-inside", "outcome-after"}


@pytest.mark.parametrize("kind", ["file", "argv"])
def test_killed_at_any_step_it_is_delivered_once_or_shown_as_unknown(
    project: Project, chat: ChatServer, kind: str
) -> None:
    """One job a step: each is approved, killed there, and followed by ticks and another approval."""
    steps = [step for step in DELIVERY if kind == "file" or step != "file-made"]
    chat.script = [answer(TEXT)]
    targets = {step: {"file": f"{step}.md"} if kind == "file" else shell(f"cat >> {step}.md") for step in steps}
    project.live(
        chat.url,
        {step: {"schedule": NEVER, "checkpoint": f"{step}/c.json", "deliver": targets[step]} for step in steps},
    )
    run(project, "run", *steps)
    ended = forked(project, *(["review", step, "--approve"] for step in steps), steps=steps)
    assert [one.code for one in ended] == [-signal.SIGKILL] * len(steps)
    assert {step for step in steps if got(project, f"{step}.md") == TEXT} == ARRIVED
    for step in ARRIVED:
        (project.folder / f"{step}.md").write_text("seen")  # a second delivery would show
    told, unknown = command(project, "tick"), [step for step in steps if step not in KNOWN]
    assert run(project, "tick").err == ""
    run(project, "review", "decided-inside", "--approve")
    found = {entry["id"]: entry for entry in json.loads(run(project, "status", "--json").out)["jobs"]}
    for step in steps:
        words = (
            "delivered" if step in KNOWN else "delivery unknown: it was cut off before it was recorded what came of it"
        )
        assert found[step]["delivery"] == words, step
        arrived = "seen" if step in ARRIVED else TEXT if step in KNOWN else ""
        assert got(project, f"{step}.md") == arrived, step
        assert (f"job {step}: whether the answer was delivered is unknown" in told.err) is (step in unknown), step
    for left in project.folder.glob(".*.tmp"):
        os.utime(left, (1, 1))  # for a delivery that has just begun has such a file, too
    for step in unknown:
        assert "delivery unknown" in run(project, "review", step, "--approve").out
        run(project, "review", step, "--approve", "--redeliver", "--note", "it did not come")
        assert got(project, f"{step}.md").endswith(TEXT)
    assert not list(project.folder.glob(".*.tmp"))
    assert chat.count == len(steps)


def test_killed_in_the_middle_of_a_program_it_is_unknown_and_not_run_again(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell("cat >> got; echo $$ > pid; touch begun; sleep 300"))
    with project.start(*APPROVE) as process:
        wait_until((project.folder / "begun").exists, 60, "the program runs")
        assert row(project)["delivery"] == "being delivered"
        run(project, *AGAIN, code=65).one_line(f"it is being delivered right now (process {process.pid})")
        run(project, "review", "nightly", "--reject", "--note", "no", code=65)
        run(project, "tick")
        process.kill()
        process.communicate()
    os.killpg(int(got(project, "pid")), signal.SIGKILL)
    assert row(project)["delivery"].startswith("delivery unknown: it was cut off")
    assert "is unknown" in run(project, "tick").about("nightly")
    assert run(project, "tick").err == ""  # told once
    run(project, "run", "nightly")
    assert "delivery unknown" in run(project, *APPROVE).out
    assert (got(project), results(project)) == (TEXT, [(1, "unknown")])
    run(project, "review", "nightly", "--reject", "--note", "no", code=65)  # it may have left
    project.live(chat.url, {"nightly": {"schedule": NEVER, "deliver": shell(KEEP)}})
    run(project, *AGAIN)
    assert (got(project), results(project)) == (TEXT * 2, [(1, "unknown"), (2, "delivered")])


def test_many_processes_at_once_deliver_once(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell(KEEP + "sleep 0.3"))
    ended = forked(project, *[APPROVE] * 3, ["tick"], ["tick"], ["run", "nightly"], together=True)
    assert {one.code for one in ended} <= {0, 75}
    assert (got(project), results(project)) == (TEXT, [(1, "delivered")])


def test_an_approval_whose_process_died_is_delivered_by_a_daemon(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell(KEEP))
    [ended] = forked(project, APPROVE, steps=["decided-after"])
    assert ended.code == -signal.SIGKILL
    assert (got(project), row(project)["delivery"]) == ("", "to be delivered")
    project.run("daemon", "--until-done")
    assert (got(project), results(project)) == (TEXT, [(1, "delivered")])
    assert chat.count == 1


def test_jobs_that_deliver_to_one_file_at_once_each_succeed(project: Project, chat: ChatServer) -> None:
    left = [project.folder / f".out.md.{digit * 16}.tmp" for digit in "01"]
    for path, age in zip(left, (7200, 0), strict=True):
        path.write_text("of a process that was killed, or of one that writes")
        os.utime(path, (time.time() - age,) * 2)
    names = [f"job-{number}" for number in range(12)]
    deliver = {"file": "out.md", "review": False}
    project.live(chat.url, {name: {"schedule": "every 1h", "deliver": deliver} for name in names}, max_parallel=12)
    for _ in range(5):
        run(project, "tick")
        assert {row["delivery"] for row in json.loads(run(project, "status", "--json").out)["jobs"]} == {"delivered"}
        for name in names:
            run(project, "renew", name, "--reason", "x", "--confirm", name)
    assert [path.exists() for path in left] == [False, True]


def test_a_running_daemon_delivers_what_it_did_not_answer(project: Project) -> None:
    with chat_server(answer(TEXT)) as chat:
        project.live(chat.url, {"nightly": {"schedule": NEVER, "deliver": shell(KEEP)}})
        run(project, "run", "nightly")
        with service(project) as daemon:
            daemon.wait_line("it is done")
            forked(project, APPROVE, steps=["decided-after"])
            daemon.wait_line("the answer was delivered")
            daemon.stop()
        assert (got(project), results(project)) == (TEXT, [(1, "delivered")])


def test_a_slow_delivery_delays_no_other_job(project: Project, chat: ChatServer) -> None:
    slow = {"schedule": NEVER, "deliver": shell("touch begun; until [ -e go ]; do sleep 0.05; done")}
    project.live(chat.url, {"slow": slow})
    run(project, "run", "slow")
    forked(project, ["review", "slow", "--approve"], steps=["decided-after"])
    project.live(chat.url, {"slow": slow, "nightly": {"schedule": "every 1h"}})
    with project.start("tick") as process:
        wait_until((project.folder / "begun").exists, 60, "the delivery runs")
        chat.wait_for(2, 60)
        wait_until(lambda: project.path().exists() and project.document()["status"] == "done", 60, "the other is done")
        (project.folder / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_delivery_whose_end_could_not_be_saved_is_unknown_to_the_process_that_lives_on(
    project: Project, chat: ChatServer
) -> None:
    """A daemon lives for months; "being delivered" would stand as long, and nobody could deliver again."""
    ledger = project.folder / "checkpoints" / NAME
    swap = f"mv {ledger} kept; mv {ledger}-wal kept-wal; echo no database > {ledger}"
    done_job(project, chat, script(project, KEEP + swap))
    run(project, *APPROVE, code=65)
    for suffix in ("", "-wal"):
        (project.folder / f"kept{suffix}").replace(f"{ledger}{suffix}")
    assert results(project) == [(1, None)]
    assert row(project)["delivery"].startswith("delivery unknown")
    assert "whether the answer was delivered is unknown" in run(project, "tick").about("nightly")
    assert results(project) == [(1, "unknown")]
    assert got(project) == TEXT


@pytest.mark.parametrize("argv", [["sh", "a\0b"], ["a\0b"]])
def test_a_word_that_no_program_can_be_given_is_refused(project: Project, chat: ChatServer, argv: list[str]) -> None:
    for entry in ({"deliver": {"argv": argv}}, {"notify": [{"argv": argv}]}):
        project.live(chat.url, {"nightly": entry})
        assert "no program can be given a NUL" in run(project, "check", code=65).about("nightly")


def test_whatever_breaks_a_delivery_ends_it(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    done_job(project, chat, {"file": "out.md"})
    monkeypatch.setattr("scheduler.delivery.publish", "no function")
    assert "delivery unknown: unforeseen fault" in run(project, *APPROVE, code=65).out
    assert results(project) == [(1, "unknown")]


def test_the_numbers_of_metrics_count_deliveries_that_ended(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, shell("exit 3"), metrics={"textfile": "resumed.prom"})
    run(project, *APPROVE, code=65)
    run(project, "tick")
    assert 'resumed_deliveries_total{outcome="failed"} 1.0' in got(project, "resumed.prom")
    assert "resumed_ledgers_unreadable 0.0" in got(project, "resumed.prom")


def test_a_senseless_delivery_row_blocks_its_job_and_is_named(project: Project, chat: ChatServer) -> None:
    done_job(project, chat, {"file": "out.md"})
    run(project, *APPROVE)
    digest = answer_digest(TEXT)
    with contextlib.closing(sqlite3.connect(project.folder / "checkpoints" / NAME)) as base, base:
        base.execute("UPDATE delivery SET result = 'odd' WHERE answer_sha256 = ?", (digest,))
    assert "delivery.result is 'odd'" in run(project, "tick", code=65).about("nightly")
    assert "delivery.result is 'odd'" in row(project)["reason"]
    run(project, *AGAIN, code=65).one_line("delivery.result is 'odd'")

"""Names and texts that are no UTF-8, and a current folder that is gone: each is coped with, or one clear line."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support import ChatServer, Project, answer, tool_calls, wait_until
from tests.test_bad_input import KEY, Told, ran

ODD = os.fsdecode(b"caf\xe9 \xff")
WHY = ("--reason", os.fsdecode(b"caf\xe9"))
DEMO = {"provider": "demo", "task": "How long does shipping take?", "schedule": "every 1s"}


pytestmark = pytest.mark.usefixtures("surroundings")


@pytest.fixture
def odd(project: Project, chat: ChatServer) -> Project:
    """A project in a folder whose name is no UTF-8."""
    chat.script = [tool_calls(("c1", "list_files", "{}")), answer("fin")]
    inside = Project(project.folder / ODD)
    inside.folder.mkdir(0o700)
    (inside.folder / "notes.md").write_text("Three days.\n")
    inside.live(chat.url, {"nightly": {"schedule": "every 1h", "read": ["notes.md"]}}, after_failure=[])
    return inside


def told(project: Project, *arguments: str) -> Told:
    return ran("--config", project.config, *arguments)


def test_every_command_works_in_a_folder_whose_name_is_no_utf8(odd: Project, chat: ChatServer) -> None:
    assert told(odd, "check").code == 0
    assert told(odd, "tick").code == 0
    assert told(odd, "run", "nightly").code == 0
    assert (chat.count, odd.document()["answer"]) == (2, "fin")
    assert told(odd, "status").code == 0
    [row] = json.loads(told(odd, "status", "--json").out)["jobs"]
    assert row["checkpoint"] == str(odd.path())
    shown = told(odd, "show", "nightly")
    assert shown.code == 0
    assert "caf\\udce9" in shown.out
    assert told(odd, "check", "--days", "2").code == 0
    odd.path().write_text("[]")
    assert "caf\\udce9" in told(odd, "run", "nightly").about("nightly")
    assert told(odd, "repair", "nightly").code == 0
    assert told(odd, "renew", "nightly", *WHY, "--confirm", "nightly").code == 0
    assert "caf\\udce9" in told(odd, "show", "nightly").out
    assert told(odd, "run", "nightly").code == 0
    assert told(odd, "renew", "nightly", *WHY, "--confirm", "nightly", "--keep").code == 0
    assert told(odd, "unblock", "local").code == 0
    for path in odd.path().parent.glob(".ledger.sqlite3*"):
        path.rename(path.with_name(f"aside{path.name}"))
    assert told(odd, "adopt", "--all").code == 0


def test_a_conversation_is_revised_for_a_reason_that_is_no_utf8(odd: Project, chat: ChatServer) -> None:
    chat.script = [tool_calls(("c1", "list_files", "{}"))]
    assert told(odd, "run", "nightly").code == 0
    assert told(odd, "revise", "nightly", *WHY).code == 0


def test_a_daemon_runs_in_a_folder_whose_name_is_no_utf8_and_keeps_a_second_one_out(
    odd: Project, chat: ChatServer
) -> None:
    with odd.start("daemon") as daemon:
        try:
            wait_until(lambda: odd.path().exists(), 60, "the slice")
            second = odd.run("daemon", code=75)
            daemon.send_signal(signal.SIGTERM)
            _, err = daemon.communicate(timeout=60)
        finally:
            daemon.kill()
    assert daemon.returncode == 0, err
    assert f"process {daemon.pid}" in second.stderr
    assert "caf\\udce9" in second.stderr


def test_work_refuses_a_checkpoint_whose_name_is_no_utf8_and_makes_nothing(project: Project) -> None:
    before = sorted(project.folder.iterdir())
    refused = ran("work", "x", "--checkpoint", str(project.folder / ODD), "--demo")
    assert refused.code == 64
    refused.one_line("UTF-8")
    assert sorted(project.folder.iterdir()) == before
    inside = project.folder / ODD / "work.json"
    assert ran("work", "x", "--checkpoint", str(inside), "--demo").code == 0
    assert inside.exists()


def test_work_refuses_a_task_that_is_no_utf8_and_makes_nothing(project: Project) -> None:
    refused = ran("work", ODD, "--checkpoint", str(project.path("work")), "--demo")
    assert refused.code == 64
    refused.one_line("UTF-8")
    assert not project.path("work").parent.exists()


def test_a_model_that_is_no_utf8_counts_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANDAPI_MODEL_ID", ODD)
    monkeypatch.setenv("MANDAPI_API_KEY", KEY)
    project.write_jobs({"nightly": {"task": "x", "checkpoint": "checkpoints/nightly.json"}}, live=True)
    refused = told(project, "run", "nightly")
    assert refused.code == 65
    assert "MANDAPI_MODEL_ID" in refused.about("nightly")
    for arguments in (["status"], ["check"]):
        assert told(project, *arguments).code in (0, 65)
    assert not project.path().exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["work", "x", "--checkpoint", "new/work.json", "--demo"],
        ["--config", "jobs.yaml", "status"],
        ["status"],
        ["tick"],
        ["run", "nightly"],
        ["daemon", "--until-done"],
    ],
    ids=" ".join,
)
def test_a_current_folder_that_is_gone_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        told = ran(*arguments)
    finally:
        os.chdir("/")
    assert told.code in (64, 78)
    told.one_line()


def test_a_config_that_is_named_in_full_needs_no_current_folder(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write_jobs({"nightly": DEMO | {"checkpoint": "checkpoints/nightly.json"}})
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        codes = [told(project, *arguments).code for arguments in (["check"], ["tick"], ["status"], ["show", "nightly"])]
        codes.append(ran("work", "x", "--checkpoint", str(project.path("work")), "--demo").code)
    finally:
        os.chdir("/")
    assert codes == [0] * 5

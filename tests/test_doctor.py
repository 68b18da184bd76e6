"""`doctor`: each thing that can be wrong is one line that says what to do, and nothing is changed by looking."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import time_machine
from pytest_httpserver import HTTPServer

from scheduler.cli import main
from scheduler.doctor import examine
from scheduler.findings import Finding, finding_line
from scheduler.folders import check_locks, check_space, file_system_of
from scheduler.jobfile import read_job_file
from scheduler.ledger import NAME
from scheduler.owner import program_version, this_process
from tests.support import ROOT, ChatServer, Project, answer
from tests.test_bad_input import KEY, mounted, ran
from tests.test_rows import columns, spoil

DEMO = {"task": "Greet", "provider": "demo", "schedule": "every 1s"}
MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:36 / /mnt rw shared:2 - nfs4 server:/export rw,vers=4.2
41 40 0:37 / /mnt/my\\040disk rw - xfs /dev/sdb1 rw
42 22 0:38 / /over rw - ext4 /dev/sdc1 rw
43 42 0:39 / /over rw - fuse.sshfs host: rw
"""


@pytest.fixture
def ticked(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one job that is done."""
    monkeypatch.setenv("LOCAL_KEY", KEY)
    project.write_jobs({"one": {**DEMO, "checkpoint": "checkpoints/one.json"}})
    assert ran("--config", project.config, "tick").code == 0
    return project


def look(project: Project, root: Path | None = None, **environ: str) -> list[Finding]:
    """What doctor finds, on a machine with no crontab and no unit but those below `root`."""
    nowhere = project.folder.parent / "nowhere"
    surroundings = {"PATH": str(nowhere), "HOME": str(nowhere), "LOCAL_KEY": KEY, **environ}
    found = list(examine(read_job_file(project.config), surroundings, root or nowhere))
    assert KEY not in "".join(map(finding_line, found))
    return found


def wrongs(found: list[Finding]) -> list[str]:
    """The lines that ask for an act; where the tests run is no matter of theirs."""
    return [finding_line(each) for each in found if each.level == "wrong" and each.topic != "file system"]


def notes(found: list[Finding]) -> list[str]:
    silent = ("file system", "schedulers")
    return [finding_line(each) for each in found if each.level == "note" and each.topic not in silent]


def the_wrong(project: Project, *words: str, **environ: str) -> str:
    """The one line that asks for an act; it holds these words, and says what to do."""
    found = wrongs(look(project, **environ))
    assert len(found) == 1, found
    for word in words:
        assert word in found[0], found[0]
    assert "; " in found[0] or ": " in found[0]
    return found[0]


def sql(folder: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(folder / NAME)) as base, base:
        base.execute(statement, values)


def tree(folder: Path) -> dict[str, Any]:
    """Names, bytes and times of all that lies below a folder, but for what SQLite needs to read."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.is_file() and path.read_bytes())
        for path in folder.rglob("*")
        if not path.name.endswith(("-wal", "-shm"))
    }


# The command.


def test_a_good_project_has_no_finding(ticked: Project) -> None:
    found = look(ticked)
    assert wrongs(found) + notes(found) == []
    topics = {each.topic for each in found}
    assert topics >= {
        *("jobs.yaml", "zones", "file system", "locks", "space", "ledger", "permissions", "leftovers"),
        *("tasks", "clock", "schedulers", "versions"),
    }


def test_the_command_says_findings_and_how_many_and_ends_with_one(
    ticked: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (ticked.folder / "checkpoints").chmod(0o755)
    doctor = ["--config", str(ticked.config), "doctor"]
    assert main(doctor) == 1
    brief = capsys.readouterr()
    assert brief.err == ""
    assert f"chmod 700 {ticked.folder / 'checkpoints'}" in brief.out
    assert not any(line.startswith("ok ") for line in brief.out.splitlines())
    assert main([*doctor, "--verbose"]) == 1
    verbose = capsys.readouterr().out.splitlines()
    assert set(brief.out.splitlines()) <= set(verbose)
    assert sum(line.startswith("ok ") for line in verbose) > 8
    assert int(verbose[-1].split(" ")[0]) == len(verbose) - 1


@pytest.mark.parametrize(("text", "code"), [("jobs: {", 78), ("", 78)])
def test_a_file_that_cannot_be_read_ends_with_its_own_code(project: Project, text: str, code: int) -> None:
    project.write(text)
    assert ran("--config", project.config, "doctor").code == code


def test_looking_changes_nothing_and_makes_nothing(ticked: Project) -> None:
    jobs = {"one": {**DEMO, "checkpoint": "checkpoints/one.json"}, "new": {**DEMO, "checkpoint": "new/new.json"}}
    ticked.write_jobs(jobs, metrics={"textfile": "resumed.prom"})
    before = tree(ticked.folder)
    found = look(ticked)
    assert tree(ticked.folder) == before
    assert any("new does not exist yet" in line for line in notes(found))


# jobs.yaml, permissions, leftovers.


def test_each_bad_entry_is_a_finding(ticked: Project) -> None:
    jobs = {"one": {**DEMO, "checkpoint": "checkpoints/one.json"}, "bad": {**DEMO, "checkpoint": "b.json", "typo": 1}}
    ticked.write_jobs(jobs)
    the_wrong(ticked, "jobs.yaml:", "job bad", "typo", "resumed check")


PERMISSIONS: list[tuple[Callable[[Path], object], str, str]] = [
    (lambda folder: folder.chmod(0o750), "can look into", "chmod 700"),
    (lambda folder: (folder / "one.json").chmod(0o644), "one.json", "chmod 600"),
    (lambda folder: (folder / NAME).chmod(0o604), NAME, "chmod 600"),
    (lambda folder: os.chown(folder / "one.json", 65534, -1), "does not own one.json", "chown"),
    (lambda folder: os.chown(folder, 65534, -1), "sudo -u", "belongs to"),
    (lambda folder: folder.chmod(0o777), "every user may write", "chmod go-w"),
]


@pytest.mark.parametrize(("spoil", "word", "act"), PERMISSIONS, ids=[act for *_, act in PERMISSIONS])
def test_permissions_and_owners(ticked: Project, spoil: Callable[[Path], object], word: str, act: str) -> None:
    spoil(ticked.folder / "checkpoints")
    the_wrong(ticked, word, act)


def test_what_lies_about_is_told(ticked: Project) -> None:
    folder = ticked.folder / "checkpoints"
    leftover = folder / ".one.json.0123456789abcdef.tmp"
    leftover.write_text("x")
    assert wrongs(look(ticked)) == []  # it may be in use
    os.utime(leftover, (time.time() - 7200,) * 2)
    (folder / "one.json.set-aside-2026-01-01T000000Z").write_text("x")
    (folder / "one.sync-conflict-20260301-101010-ABC.json").write_text("x")
    (folder / "unrelated.json").write_text("x")
    the_wrong(ticked, leftover.name, "remove")
    told = " ".join(notes(look(ticked)))
    assert "repair set aside one.json.set-aside-2026-01-01T000000Z" in told
    assert "nothing reads one.sync-conflict-20260301-101010-ABC.json" in told
    assert "unrelated" not in told


def test_a_checkpoint_that_no_job_names_is_told(ticked: Project) -> None:
    ticked.write_jobs({"two": {**DEMO, "task": "Other", "checkpoint": "checkpoints/two.json"}})
    found = look(ticked)
    assert wrongs(found) == []
    assert any("one.json (done, 1 of 4 spent)" in line for line in notes(found))


# The machine.


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        *(("/", "ext4"), ("/home/ann", "ext4"), ("/mnt2", "ext4"), ("/mnt", "nfs4"), ("/mnt/jobs", "nfs4")),
        *(("/mnt/my disk/x", "xfs"), ("/over/x", "fuse.sshfs")),
    ],
)
def test_the_kind_of_file_system_is_that_of_the_mount(folder: str, kind: str) -> None:
    assert file_system_of(Path(folder), MOUNTINFO) == kind


def test_a_small_tmpfs_is_named_for_its_kind_and_its_space(ticked: Project) -> None:
    mounts = f'mount -t tmpfs -o size=1m,mode=700 none "{ticked.folder}/checkpoints"'
    command = [*mounted(mounts), sys.executable, "-m", "scheduler", "--config", str(ticked.config), "doctor"]
    done = subprocess.run(command, env=ticked.environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("wrong")]
    assert [line.split(":")[0].split()[-1] for line in lines] == ["system", "space"], lines
    assert "lies on tmpfs" in lines[0]
    assert "lower max_parallel" in lines[1]


def test_a_disk_with_room_for_few_files_is_named(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from scheduler.folders import check_space;"
        f"print([each.text for each in check_space(Path({str(tmp_path)!r}), 1)])"
    )
    mounts = f'mount -t tmpfs -o size=9m,nr_inodes=20 none "{tmp_path}"'
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*mounted(mounts), sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert "more files fit" in done.stdout
    assert [each.level for each in check_space(tmp_path, 1)] == ["ok"]


def test_locks_that_do_not_exclude_are_found_by_trying(ticked: Project) -> None:
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:retval=0"]
    command = [*strace, sys.executable, "-m", "scheduler", "--config", str(ticked.config), "doctor"]
    done = subprocess.run(command, env=ticked.environ(), capture_output=True, text=True, check=False)
    assert "a second process got a lock that was held (flock)" in done.stdout, done.stdout + done.stderr
    refused = [*strace[:-1], "inject=flock:error=ENOLCK", *command[len(strace) :]]
    done = subprocess.run(refused, env=ticked.environ(), capture_output=True, text=True, check=False)
    assert "gives no lock (No locks available)" in done.stdout
    assert list((ticked.folder / "checkpoints").glob("*.tmp")) == []


def test_a_clock_before_the_ledger_s_newest_row_is_wrong(ticked: Project) -> None:
    with time_machine.travel(time.time() - 7200, tick=True):
        the_wrong(ticked, "the ledger has an entry of", "set the clock")
    with time_machine.travel(0, tick=True):
        assert any("the clock says 1970" in line for line in wrongs(look(ticked)))


# Keys.


def test_a_missing_key_is_wrong_once_it_is_needed(project: Project) -> None:
    project.live("http://127.0.0.1:9/v1")
    assert "the key is there" in "".join(each.text for each in look(project))
    the_wrong(project, "LOCAL_KEY", "set it where the jobs run", LOCAL_KEY="")
    text = project.config.read_text()
    project.write(text.replace('"live": true', '"live": false'))
    found = look(project, LOCAL_KEY="")
    assert wrongs(found) == []
    assert any("before live: true" in line for line in notes(found))


@pytest.mark.keeps_key("project/key", because="it is the key's own file")
def test_a_key_file_that_others_may_read_is_wrong(project: Project) -> None:
    secret = project.folder / "key"
    secret.write_text(KEY)
    project.live("http://127.0.0.1:9/v1", provider={"key": {"file": str(secret)}})
    secret.chmod(0o640)
    the_wrong(project, f"chmod 600 {secret}")
    secret.chmod(0o600)
    assert wrongs(look(project)) == []
    os.chown(secret, 65534, -1)
    the_wrong(project, "another user's")


# Ledger and checkpoints.


def test_a_file_that_is_missing_or_behind_is_no_matter(ticked: Project) -> None:
    ticked.path("one").unlink()
    found = look(ticked)
    assert wrongs(found) == []
    assert any("job one" in line and "the next tick puts it right" in line for line in notes(found))


def test_a_file_that_the_ledger_never_published_is_wrong(ticked: Project) -> None:
    ticked.path("one").write_text(ticked.path("one").read_text() + " ")
    the_wrong(ticked, "job one", "resumed repair", "resumed adopt")


def test_a_job_that_cannot_run_is_wrong(project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    project.live(chat.url, {"nightly": {"task": "Sum up", "read": ["notes.md"]}})
    the_wrong(project, "job nightly", "notes.md", "there is no such file")
    (project.folder / "notes.md").write_text("Nothing happened.")
    assert wrongs(look(project)) == []
    chat.script = [answer("")]
    assert ran("--config", project.config, "run", "nightly").code == 69
    project.live(chat.url, {"nightly": {"task": "Sum down", "read": ["notes.md"]}})
    the_wrong(project, "job nightly", "resumed revise")


def test_a_series_that_has_no_next_opening_is_wrong(project: Project) -> None:
    entry = {**DEMO, "checkpoint": "checkpoints/{opening}.json", "read": ["notes.md"]}
    project.write_jobs({"weekly": {**entry, "series": {"opens": "0 7 * * 1", "times": 5}}})
    the_wrong(project, "job weekly", "notes.md", "there is no such file")


@pytest.mark.parametrize("damage", ["bytes", "digest", "page", "foreign"])
def test_a_damaged_ledger_is_one_finding(ticked: Project, damage: str) -> None:
    folder = ticked.folder / "checkpoints"
    jobs = {name: {**DEMO, "task": name, "checkpoint": f"checkpoints/{name}.json"} for name in ("one", "two", "three")}
    ticked.write_jobs(jobs | {"one": {**DEMO, "checkpoint": "checkpoints/one.json"}})
    if damage == "digest":
        sql(folder, "UPDATE document SET body = CAST(replace(CAST(body AS TEXT), 'Greet', 'Great') AS BLOB)")
    elif damage == "foreign":
        sql(folder, "PRAGMA user_version = 99")
    else:
        copied(folder)
        body = bytearray((folder / NAME).read_bytes())
        body[slice(0, 100) if damage == "bytes" else slice(4096, 4200)] = b"\xff" * 100
        (folder / NAME).write_bytes(body)
    the_wrong(ticked, NAME, "et it aside", "resumed adopt --all")


def copied(folder: Path) -> None:
    """Put a whole copy in the place of the ledger, so that no -wal stands beside it."""
    with contextlib.closing(sqlite3.connect(folder / NAME)) as base:
        base.execute(f"VACUUM INTO '{folder / 'copy'}'")
    for path in folder.glob(f"{NAME}*"):
        path.unlink()
    (folder / "copy").rename(folder / NAME)
    (folder / NAME).chmod(0o600)


def test_an_attempt_whose_process_died_is_told(project: Project, chat: ChatServer) -> None:
    chat.hold.clear()
    project.live(chat.url)
    with project.start("run", "nightly") as process:
        try:
            chat.wait_for(1)
            assert not any("was cut off" in line for line in notes(look(project)))
        finally:
            process.kill()
    found = look(project)
    assert wrongs(found) == []
    assert any("attempt 1 of nightly.json was cut off" in line for line in notes(found))


def test_an_orphan_is_named_with_where_it_is(ticked: Project) -> None:
    folder = ticked.folder / "checkpoints"
    sql(folder, "INSERT INTO orphan VALUES ('one.json', 1, 1, 1800000000, 't', x'00')")
    the_wrong(ticked, "attempt 1 of one.json", str(folder / NAME), "1800000000")


# The same task twice.


def spent(project: Project, chat: ChatServer) -> None:
    """Let job a use up its attempts."""
    chat.script = [answer("")]
    project.live(chat.url, {"a": {"task": "Sum up\r\n"}}, after_failure=[])
    for _ in range(4):
        assert ran("--config", project.config, "run", "a").code == 69


def test_a_second_checkpoint_for_the_same_task_is_named(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    spent(project, chat)
    project.live(chat.url, {"a": {"task": "Sum up"}, "b": {"task": "Sum up\n", "checkpoint": "apart/b.json"}})
    the_wrong(project, "b has the task of a, 4 of 4 spent")
    project.live(chat.url, {"b": {"task": "Sum up"}})
    the_wrong(project, f"b has the task of {project.path('a')}, 4 of 4 spent")
    project.live(chat.url, {"a": {"task": "Sum up"}, "b": {"task": "Other"}})
    assert wrongs(look(project)) == []
    project.live(chat.url, {"a": {"task": "Other"}, "b": {"task": "Sum up"}})
    the_wrong(project, "b has the task of a, 4 of 4 spent")


def test_a_job_that_is_rehearsed_does_not_meet_itself(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    spent(project, chat)
    text = project.config.read_text().replace('"live": true', '"live": false')
    jobs = json.loads(text)
    jobs["jobs"]["demo"] = {**DEMO, "checkpoint": "checkpoints/demo.json"}  # its folder is looked at as well
    project.write(json.dumps(jobs))
    assert ran("--config", project.config, "tick").code == 0
    found = look(project)
    assert wrongs(found) == []
    assert not any("no job of this file" in line for line in notes(found))


def test_files_of_one_name_in_two_folders_are_two(ticked: Project) -> None:
    ticked.write_jobs(
        {
            "two": {**DEMO, "checkpoint": "apart/one.json"},
            "three": {**DEMO, "task": "x", "checkpoint": "checkpoints/three.json"},
        }
    )
    the_wrong(ticked, f"two has the task of {ticked.path('one')}, 1 of 4 spent")


@pytest.mark.parametrize("folder", ["checkpoints", "link"])
def test_the_openings_of_a_series_are_its_own(ticked: Project, folder: str) -> None:
    (ticked.folder / "link").symlink_to("checkpoints")
    jobs = {
        f"w{day}": {**DEMO, "task": "Report", "checkpoint": f"{folder}/w-2026-11-{day}T0600Z.json"} for day in (23, 30)
    }
    ticked.write_jobs(jobs)
    assert ran("--config", ticked.config, "tick").code == 0
    the_wrong(ticked, "w30 has the task of w23")
    series = {**DEMO, "task": "Report", "checkpoint": f"{folder}/w-{{opening}}.json"}
    one = {**DEMO, "checkpoint": "checkpoints/one.json"}
    ticked.write_jobs({"one": one, "w": {**series, "series": {"opens": "0 6 * * 1", "times": 9}}})
    found = look(ticked)
    assert wrongs(found) + notes(found) == []


def test_the_file_of_an_opening_is_held_against_the_ledger(ticked: Project) -> None:
    weekly = {**DEMO, "task": "Report", "checkpoint": "checkpoints/w-{opening}.json", "schedule": "every 1s"}
    ticked.write_jobs({"w": {**weekly, "series": {"opens": "every 1h", "times": 9}}})
    assert ran("--config", ticked.config, "tick").code == 0
    [file] = (ticked.folder / "checkpoints").glob("w-*Z.json")
    assert not [one for one in wrongs(look(ticked)) if "w@" in one]
    file.write_text("{}")
    [found] = [one for one in wrongs(look(ticked)) if file.name in one]
    assert "resumed repair" in found


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, column in columns() if table in ("document", "admission", "orphan", "daemon", "pulse")],
    ids=str,
)
def test_a_senseless_row_is_a_finding_at_most(ticked: Project, table: str, column: str) -> None:
    folder, me = ticked.folder / "checkpoints", this_process()
    sql(folder, "INSERT INTO daemon VALUES (?, ?, ?, ?, 1)", str(ticked.config), me.pid, me.start, me.boot)
    sql(folder, "INSERT INTO pulse VALUES (?, '1', 'd', 1, 8, 'd', '', 1)", str(ticked.config))
    sql(folder, "INSERT INTO orphan VALUES ('one.json', 1, 1, 1, 't', x'00')")
    spoil(folder, table, column, "abc")
    assert wrongs(look(ticked))


# Who runs it.


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def schedulers(project: Project, root: Path, **environ: str) -> list[Finding]:
    return [each for each in look(project, root, **environ) if each.topic == "schedulers"]


def test_a_daemon_that_was_given_a_link_to_the_file_is_told_once(ticked: Project, tmp_path: Path) -> None:
    me = this_process()
    for name in (str(ticked.config), str(ticked.folder / "link.yaml")):
        row = (name, me.pid, me.start, me.boot, 1_790_000_000)
        sql(ticked.folder / "checkpoints", "INSERT INTO daemon VALUES (?, ?, ?, ?, ?)", *row)
    found = [each.text for each in schedulers(ticked, tmp_path / "root") if "daemon" in each.text]
    assert len(found) == 1
    assert found[0].startswith("a daemon runs since 2026-09-21")


def test_nothing_that_runs_the_jobs_is_worth_a_word(ticked: Project, tmp_path: Path) -> None:
    [found] = schedulers(ticked, tmp_path / "root")
    assert (found.level, "resumed init" in found.text) == ("note", True)


def test_lines_of_crontabs_and_units_are_found(ticked: Project, tmp_path: Path) -> None:
    root, home, tools = tmp_path / "root", tmp_path / "home", tmp_path / "tools"
    (home / ".config/resumed").mkdir(parents=True)
    (home / ".config/resumed/jobs.yaml").symlink_to(ticked.config)
    tick = f"/opt/bin/resumed --config {ticked.config} tick"
    # The crontab of the user, as `crontab -l` prints it; it may not see the key.
    write(tools / "crontab", f'#!/bin/sh\n[ -z "$LOCAL_KEY" ] && echo "# no\n#* * * * * {tick}\n* * * * * {tick}"\n')
    (tools / "crontab").chmod(0o755)
    environ = {"PATH": f"{tools}:/bin", "HOME": str(home)}
    [found] = schedulers(ticked, root, **environ)
    assert (found.level, found.text) == ("ok", "your crontab, line 3 gives tick")
    write(root / "etc/cron.d/other", f"* * * * * ann /opt/bin/resumed --config {tmp_path / 'else.yaml'} tick\n")
    write(root / "etc/cron.d/backup", "0 0 * * * root /usr/bin/backup tick\n")
    assert len(schedulers(ticked, root, **environ)) == 1
    write(root / "etc/cron.d/jobs", "* * * * * ann $HOME/bin/resumed --config ~/.config/resumed/jobs.yaml tick -x\n")
    found = next(each for each in schedulers(ticked, root, **environ) if each.level == "wrong")
    assert "your crontab, line 3" in found.text
    assert str(root / "etc/cron.d/jobs, line 1") in found.text
    (root / "etc/cron.d/jobs").unlink()
    write(root / "etc/crontab", f"RESUMED_CONFIG={ticked.config}\n* * * * * ann python3 -m scheduler tick\n")
    assert any(each.level == "wrong" for each in schedulers(ticked, root, **environ))
    (root / "etc/crontab").unlink()
    units = root / "etc/systemd/system"
    write(units / "resumed.service", f"[Service]\nExecStart=/usr/bin/env resumed --config {ticked.config} daemon\n")
    states = {each.text: each.level for each in schedulers(ticked, root, **environ)}
    assert states[f"{units}/resumed.service gives daemon, and is not enabled"] == "note"
    write(units / "multi-user.target.wants/resumed.service", "")
    states = {each.text: each.level for each in schedulers(ticked, root, **environ)}
    assert states[f"{units}/resumed.service gives daemon"] == "ok"
    assert "a daemon and a tick work side by side; nothing runs twice, and one is enough" in states
    assert "wrong" not in states.values()
    write(home / ".config/systemd/user/resumed-tick.service", "[Service]\nExecStart=%h/bin/resumed tick\n")
    write(home / ".config/systemd/user/timers.target.wants/resumed-tick.timer", "")
    assert any(each.level == "wrong" for each in schedulers(ticked, root, **environ))


@pytest.mark.parametrize("alive", [True, False])
def test_a_daemon_that_runs_is_told_from_one_that_is_gone(ticked: Project, tmp_path: Path, alive: bool) -> None:
    me = this_process()
    pid = me.pid if alive else 2**22 - 1
    row = (str(ticked.config), pid, me.start, me.boot, int(time.time()))
    sql(ticked.folder / "checkpoints", "INSERT INTO daemon VALUES (?, ?, ?, ?, ?)", *row)
    [found] = [each for each in schedulers(ticked, tmp_path) if f"process {pid}" in each.text]
    assert found.level == ("ok" if alive else "wrong")
    write(tmp_path / "etc/cron.d/jobs", f"* * * * * ann /opt/bin/resumed --config {ticked.config} tick\n")
    [found] = [each for each in schedulers(ticked, tmp_path) if f"process {pid}" in each.text]
    assert found.level == ("ok" if alive else "note"), "a crontab has taken its place"


def test_a_daemon_of_another_version_or_with_an_older_file_is_wrong(ticked: Project, tmp_path: Path) -> None:
    me, now = this_process(), int(time.time())
    folder, config = ticked.folder / "checkpoints", str(ticked.config)
    sql(folder, "INSERT INTO daemon VALUES (?, ?, ?, ?, ?)", config, me.pid, me.start, me.boot, now)
    digest = read_job_file(ticked.config).digest
    row = (config, program_version(), digest, now, 8, digest, "", now)
    sql(folder, "INSERT INTO pulse VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
    assert wrongs(look(ticked)) == []
    sql(folder, "UPDATE pulse SET version = '0.0.1'")
    the_wrong(ticked, "0.0.1", "start it again")
    sql(folder, "UPDATE pulse SET version = ?, digest = 'd', fault = 'line 3: odd'", program_version())
    the_wrong(ticked, "an older jobs.yaml: line 3: odd")


# Metrics, and what is asked of the network.


def test_metrics_that_cannot_be_written_are_wrong(ticked: Project) -> None:
    jobs = {"one": {**DEMO, "checkpoint": "checkpoints/one.json"}}
    ticked.write_jobs(jobs, metrics={"textfile": "missing/resumed.prom"})
    the_wrong(ticked, "metrics", str(ticked.folder / "missing"))


@pytest.fixture
def provider(httpserver: HTTPServer, project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    project.live(httpserver.url_for("/v1"))
    yield project
    httpserver.check()


def online(project: Project, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The code, and the lines about providers."""
    code = main(["--config", str(project.config), "doctor", "--online", "--verbose"])
    told = capsys.readouterr()
    assert KEY not in told.out + told.err
    return code, [line for line in told.out.splitlines() if " online: " in line]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, {"data": [{"id": "m1"}, {"id": "m2"}]}, "ok     online: provider local has m1"),
        (200, {"data": [{"id": "m2"}, 7, {}]}, "wrong  online: provider local lists 1 models, and m1 is not among"),
        (200, {"models": []}, "no list of models"),
        (200, [], "no list of models"),
        (401, {"error": {"message": f"bad key {KEY}"}}, "bad key ***"),
        (404, {}, "404"),
        (307, {}, "redirected"),
    ],
)
def test_online_asks_once_for_the_list_of_models(
    provider: Project, httpserver: HTTPServer, capsys: pytest.CaptureFixture[str], status: int, body: Any, said: str
) -> None:
    httpserver.expect_oneshot_request(
        "/v1/models", method="GET", headers={"Authorization": f"Bearer {KEY}"}
    ).respond_with_json(body, status)
    code, lines = online(provider, capsys)
    assert f"asking {httpserver.url_for('/v1')}/models of provider local" in lines[0]
    assert said in lines[1]
    assert len(lines) == 2
    if lines[1].startswith("wrong"):
        assert code == 1
    assert len(httpserver.log) == 1


def test_nobody_is_asked_without_the_flag_nor_while_live_is_false(
    provider: Project, httpserver: HTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--config", str(provider.config), "doctor"])
    assert "online" not in capsys.readouterr().out
    provider.write(provider.config.read_text().replace('"live": true', '"live": false'))
    _, [line] = online(provider, capsys)
    assert "live is false" in line
    assert httpserver.log == []


def test_a_provider_that_cannot_be_reached_is_wrong(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.live("http://127.0.0.1:9/v1", provider={"key": {"env": "PATH"}})
    code, lines = online(project, capsys)
    assert code == 1
    assert "no connection" in lines[1]


def test_a_provider_without_its_key_is_not_asked(
    provider: Project, httpserver: HTTPServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_KEY")
    _, [line] = online(provider, capsys)
    assert line.startswith("wrong  online: provider local is not asked: the key ")
    assert httpserver.log == []


def test_a_notification_that_does_not_go_is_wrong(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = {"greet": {"task": "t", "checkpoint": "checkpoints/t.json", "provider": "demo"}}
    project.write_jobs(jobs, notify=[{"argv": ["/nonexistent/page-me"]}])
    main(["--config", str(project.config), "tick"])
    assert main(["--config", str(project.config), "doctor"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " notify: " in line]
    assert line.startswith("wrong  notify: argv page-me fails: it cannot be started")


def test_a_second_process_that_cannot_be_started_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    [found] = check_locks(tmp_path)
    assert (found.level, found.topic) == ("note", "locks")
    assert "no second process could be started" in found.text
    assert list(tmp_path.iterdir()) == []

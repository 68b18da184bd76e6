"""What status tells of the daemon: in force or edited, alive, silent or gone; and the table that is drawn in place."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.redraw import frame
from scheduler.jobfile import read_job_file
from scheduler.ledger import ledger_of
from scheduler.owner import Owner, this_process
from scheduler.presence import BEAT, SILENCE, Presence
from scheduler.report import DaemonRow, Survey, daemon_lines, survey_table
from scheduler.roster import Pulse, claim_daemon, read_daemon, write_pulse
from scheduler.survey import survey
from tests.support import PROGRAM, ChatServer, Project, chat_server, wait_until
from tests.test_bad_input import ran
from tests.test_daemon import HOURLY, by_rename, ledger, service

NOON = "2026-03-02T12:00:00Z"
ROW = DaemonRow(
    pid=7,
    alive=True,
    since=NOON,
    installed="1.0",
    version="1.0",
    loaded="a" * 64,
    loaded_at=NOON,
    on_disk="a" * 64,
    tried="a" * 64,
    max_parallel=8,
    heartbeat=NOON,
)


def told(project: Project) -> DaemonRow | None:
    """What status tells of the daemon now."""
    return survey(read_job_file(project.config), os.environ).daemon


# ---- the lines


def test_a_daemon_that_is_as_it_should_be_is_one_line() -> None:
    [line] = daemon_lines(ROW)
    for part in ("process 7", "version 1.0", f"since {NOON}", "jobs.yaml aaaaaaaa", f"last heartbeat {NOON}"):
        assert part in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"on_disk": "b" * 64, "edit": "edited, not loaded yet"}, "jobs.yaml bbbbbbbb is edited, not loaded yet"),
        ({"on_disk": None, "edit": "edited, not loaded: 3: x"}, "jobs.yaml on disk is edited, not loaded: 3: x"),
        ({"max_parallel_on_disk": 9}, "max_parallel is 8, and 9 once the daemon is started again"),
        ({"installed": "1.1"}, "version 1.1 is installed, and runs once the daemon is started again"),
        ({"silent": True}, "gives no sign of life"),
    ],
)
def test_each_thing_that_is_not_as_it_should_be_has_a_line(changes: dict[str, Any], said: str) -> None:
    first, second = daemon_lines(replace(ROW, **changes))
    assert first == daemon_lines(ROW)[0]
    assert said in second


def test_a_daemon_that_is_gone_is_one_line_and_none_at_all_is_none() -> None:
    [line] = daemon_lines(replace(ROW, alive=False, edit="edited, not loaded yet", silent=True))
    assert line == f"DAEMON: no daemon runs; the last one (process 7) ended without saying so, last heard of at {NOON}"
    assert "DAEMON" not in survey_table(Survey(config="/a"))


# ---- a daemon that runs


def test_status_follows_a_daemon_through_its_life(project: Project) -> None:
    with chat_server(held=True) as chat:
        project.live(chat.url, {"nightly": HOURLY})
        assert told(project) is None
        with service(project) as daemon:
            chat.wait_for(1)
            row = told(project)
            assert row is not None
            digest = read_job_file(project.config).digest
            assert (row.pid, row.alive, row.loaded, row.on_disk) == (daemon.process.pid, True, digest, digest)
            assert (row.edit, row.max_parallel, row.max_parallel_on_disk, row.silent) == (None, 8, None, False)
            assert len(daemon_lines(row)) == 1
            shown = project.run("status").stdout
            assert f"DAEMON: process {daemon.process.pid}, " in shown
            assert re.search(r"^nightly +running .* since 20\d\d-", shown, re.MULTILINE)

            daemon.signal(signal.SIGSTOP)
            project.live(chat.url, {"nightly": HOURLY}, max_parallel=3)
            waiting = told(project)
            assert waiting is not None
            assert (waiting.loaded, waiting.edit) == (digest, "edited, not loaded yet")
            daemon.signal(signal.SIGCONT)
            wait_until(lambda: (now := told(project)) is not None and now.edit is None, 10, "the edit in force")
            taken = told(project)
            assert taken is not None
            assert (taken.max_parallel, taken.max_parallel_on_disk, taken.since) == (8, 3, row.since)

            by_rename(
                project.config, project.config.read_text("utf-8").replace('"max_parallel": 3', '"max_parallel": 5')
            )
            daemon.wait_line("max_parallel is 8 until the daemon is started again", 2)

            chat.hold.set()
            daemon.stop()
        assert told(project) is None
        assert ledger(project, "SELECT count(*) FROM pulse") == [(0,)]


def by_a_link_to_another(path: Path, text: str) -> None:
    """Let a link take the file's place that leads to another file."""
    other = path.with_name(f"other-{len(text)}.yaml")
    other.write_text(text, "utf-8")
    fresh = path.with_name("fresh.yaml")
    fresh.symlink_to(other)
    fresh.rename(path)


def by_removal(path: Path, _: str) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("save", "problem"),
    [
        (by_rename, "3: a bracket is not closed"),
        (by_a_link_to_another, "3: a bracket is not closed"),
        (by_removal, "it cannot be opened"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_beside_the_daemon_that_goes_on(
    project: Project, chat: ChatServer, save: Callable[[Path, str], None], problem: str
) -> None:
    project.live(chat.url)
    good = project.config.read_text("utf-8")
    if save is by_a_link_to_another:
        save(project.config, good)
    with service(project) as daemon:
        save(project.config, "jobs:\n  a: {\n")
        found = project.run("status", code=78)
        assert f"DAEMON: process {daemon.process.pid}" in found.stdout
        assert re.search(f"^DAEMON: jobs.yaml .* is edited, not loaded: .*{problem}", found.stdout, re.MULTILINE)
        told_as_json = json.loads(project.run("status", "--json", code=78).stdout)
        assert (told_as_json["daemon"]["pid"], told_as_json["jobs"]) == (daemon.process.pid, [])
        assert problem.partition(": ")[2] in told_as_json["problem"]
        daemon.wait_line("last good")
        project.config.unlink(missing_ok=True)
        by_rename(project.config, good)
        wait_until(lambda: pulse(project).fault == "", 10, "no fault any more")
        daemon.stop()
    assert told(project) is None


def test_what_the_daemon_finds_wrong_is_in_its_pulse(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    with service(project) as daemon:
        by_rename(project.config, "jobs:\n  a: {\n")
        wait_until(lambda: pulse(project).fault.startswith("3: "), 10, "the fault in the pulse")
        assert pulse(project).tried == hashlib.sha256(b"jobs:\n  a: {\n").hexdigest()
        daemon.stop()


def pulse(project: Project) -> Pulse:
    """The pulse of the daemon."""
    with ledger_of(project.path().parent).reading() as tx:
        entry = read_daemon(tx, str(project.config))
    assert entry is not None
    assert entry.pulse is not None
    return entry.pulse


def test_a_killed_daemon_is_told_as_gone_and_the_next_one_takes_its_place(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    with service(project) as daemon:
        daemon.signal(signal.SIGKILL)
        daemon.ended()
        row = told(project)
        assert row is not None
        assert (row.pid, row.alive, row.edit, row.silent) == (daemon.process.pid, False, None, False)
    with service(project) as daemon:
        row = told(project)
        assert row is not None
        assert (row.pid, row.alive) == (daemon.process.pid, True)
        daemon.stop()


# ---- rows as a daemon would write them


def entered(project: Project, owner: Owner, **changes: Any) -> None:
    """Enter a daemon of a file that is not in force anywhere else."""
    project.live("http://127.0.0.1:9/v1")
    job_file = read_job_file(project.config)
    now = int(time.time())
    pulse = Pulse("1", job_file.digest, now, job_file.max_parallel, job_file.digest, "", now)
    project.path().parent.mkdir(0o700)
    with ledger_of(project.path().parent).writing() as tx:
        claim_daemon(tx, str(job_file.path), owner, now)
        write_pulse(tx, str(job_file.path), replace(pulse, **changes))


@pytest.mark.parametrize(("age", "silent"), [(SILENCE - 60, False), (SILENCE + 60, True)])
def test_a_process_that_lives_without_a_heartbeat_is_told(project: Project, age: float, silent: bool) -> None:
    entered(project, this_process(), at=int(time.time() - age))
    row = told(project)
    assert row is not None
    assert (row.alive, row.silent) == (True, silent)
    assert SILENCE > 3 * BEAT


@pytest.mark.parametrize(
    ("tried", "edit"),
    [("", "edited, not loaded: 9: x"), ("b" * 64, "edited, not loaded yet")],
    ids=["could not be read", "another version"],
)
def test_a_fault_is_told_only_of_the_version_that_has_it(project: Project, tried: str, edit: str) -> None:
    entered(project, this_process(), digest="c" * 64, tried=tried, fault="9: x")
    row = told(project)
    assert row is not None
    assert row.edit == edit


def test_the_fault_of_the_version_on_disk_is_told(project: Project) -> None:
    entered(project, this_process())
    job_file = read_job_file(project.config)
    with ledger_of(project.path().parent).writing() as tx:
        write_pulse(tx, str(job_file.path), Pulse("1", "c" * 64, 1, 8, job_file.digest, "9: x", int(time.time())))
    row = told(project)
    assert row is not None
    assert row.edit == "edited, not loaded: 9: x"


def test_a_heartbeat_comes_when_its_time_is_over_or_something_changed_and_not_else(project: Project) -> None:
    project.live("http://127.0.0.1:9/v1")
    job_file = read_job_file(project.config)
    presence = Presence(project.config, job_file, os.environ)
    folder = project.path().parent
    assert presence.claim(job_file, [folder]) == []

    def written() -> int:
        presence.beat(job_file.digest, "")
        before = ledger_of(folder)._database._current().total_changes
        presence.beat(job_file.digest, "")
        return ledger_of(folder)._database._current().total_changes - before

    assert written() == 0
    presence._pulse = replace(presence._pulse, at=presence._pulse.at - int(BEAT))
    with ledger_of(folder).writing() as tx:
        tx.execute("UPDATE pulse SET at = 1")
    presence.beat(job_file.digest, "")
    assert pulse(project).at > 1
    assert written() == 0
    presence.beat("d" * 64, "9: x")
    assert (pulse(project).tried, pulse(project).fault) == ("d" * 64, "9: x")
    presence.leave()
    with ledger_of(folder).reading() as tx:
        assert read_daemon(tx, str(job_file.path)) is None


def test_a_daemon_whose_file_moves_is_entered_anew_before_its_old_entry_goes(project: Project) -> None:
    project.live("http://127.0.0.1:9/v1")
    other = Project(project.folder / "other")
    other.folder.mkdir(0o700)
    shutil.copy(project.config, other.config)
    presence = Presence(project.folder / "link.yaml", read_job_file(project.config), os.environ)
    folder = project.path().parent
    presence.claim(read_job_file(project.config), [folder])
    done: list[str] = []
    ledger_of(folder)._database._current().set_trace_callback(done.append)
    presence.claim(read_job_file(other.config), [folder])
    verbs = [statement.split()[0] for statement in done if " daemon " in statement]
    assert verbs.index("DELETE") > max(index for index, verb in enumerate(verbs) if verb == "REPLACE")
    names = {str(other.config), str(project.folder / "link.yaml")}
    assert {name for (name,) in ledger(project, "SELECT config FROM daemon")} == names
    presence.leave()
    assert ledger(project, "SELECT config FROM daemon") == []


# ---- drawn in place


@dataclass
class Screen:
    """A terminal of 60 columns and 12 lines on which the program draws."""

    process: subprocess.Popen[bytes]
    terminal: int
    seen: str = ""

    def read(self) -> None:
        if select.select([self.terminal], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # the other side is closed
                self.seen += os.read(self.terminal, 65536).decode("utf-8", "replace")

    @property
    def frames(self) -> list[str]:
        """Every frame that is complete."""
        return [one for one in self.seen.split("\x1b[H")[1:] if "\x1b[J" in one]

    def wait(self, text: str, frames: int = 1) -> None:
        """Wait for so many more frames, the last of which holds a text."""
        least = len(self.frames) + frames

        def drawn() -> bool:
            self.read()
            return len(self.frames) >= least and text in self.frames[-1]

        wait_until(drawn, 30, f"{text!r} in {self.seen[-2000:]!r}")


@contextlib.contextmanager
def screen(project: Project, *arguments: str) -> Iterator[Screen]:
    """Run the program in a terminal of its own."""
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
    command = ["setsid", "--ctty", *PROGRAM, "--config", str(project.config), *arguments]
    process = subprocess.Popen(command, env=project.environ(), stdin=side, stdout=side, stderr=side)
    os.close(side)
    try:
        yield Screen(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize("entry", [{}, {"checkpoint": "checkpoints/n-{opening}.json", "series": {"opens": "@daily"}}])
def test_a_folder_that_others_can_change_blocks_in_status_as_it_does_in_a_tick(
    project: Project, chat: ChatServer, entry: dict[str, Any]
) -> None:
    times = {"series": entry["series"] | {"times": 2}} if entry else {}
    project.live(chat.url, {"nightly": entry | times})
    project.path().parent.mkdir(0o700)
    project.path().parent.chmod(0o777)
    assert project.run("tick", code=77).returncode == 77
    told = json.loads(project.run("status", "--json").stdout)
    [row] = told["series"] if entry else told["jobs"]
    assert row["state"] == "blocked"
    assert "can be changed by other users" in row["reason"]
    assert chat.count == 0


def test_watch_draws_in_place_outlives_a_broken_file_and_ends_on_ctrl_c(project: Project) -> None:
    jobs = {f"job-{number:02}": {"schedule": "0 9 * * *"} for number in range(20)}
    project.live("http://127.0.0.1:9/v1", jobs)
    good = project.config.read_text("utf-8")
    with screen(project, "status", "--watch", "1") as shown:
        shown.wait("job-00", 2)
        by_rename(project.config, "jobs: {")
        shown.wait("is not closed")
        by_rename(project.config, good)
        shown.wait("job-00")
        os.write(shown.terminal, b"\x03")
        wait_until(lambda: shown.read() or shown.process.poll() is not None, 30, "the end")
    for one in shown.frames[:-1]:
        lines = re.sub(r"\x1b\[[KJ]", "", one).split("\r\n")
        assert len(lines) <= 12, "it would scroll"
        assert all(len(line) < 60 for line in lines), "it would wrap"
        assert one.count("\x1b[K") == len(lines), "something of the frame before would stay"
    assert any("more lines" in one for one in shown.frames)
    assert "\x1b[2J" not in shown.seen
    assert "Traceback" not in shown.seen


def test_ctrl_c_ends_watch_with_0(project: Project) -> None:
    project.live("http://127.0.0.1:9/v1")
    with screen(project, "status", "--watch") as shown:
        shown.wait("nightly")
        os.write(shown.terminal, b"\x03")
        assert shown.process.wait(30) == 0


def test_watch_without_a_terminal_is_refused_in_one_line(project: Project) -> None:
    project.live("http://127.0.0.1:9/v1")
    done = project.run("status", "--watch", code=64)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "1e9", "٣"])
def test_watch_takes_whole_seconds(project: Project, seconds: str) -> None:
    told = ran("--config", project.config, "status", f"--watch={seconds}")
    assert (told.code, "number of seconds" in told.err) == (64, True)


@pytest.mark.parametrize(
    ("sentences", "rows", "size", "lines"),
    [
        ("a", "b\nc", (10, 5), ["a", "b", "c"]),
        ("a", "", (10, 5), ["a"]),
        ("a", "x" * 9, (10, 5), ["a", "x" * 9]),
        ("a", "x" * 10, (10, 5), ["a", "x" * 8 + "…"]),
        ("a", "日本語日本語", (10, 5), ["a", "日本語日…"]),
        ("a", "e\u0301" * 12, (10, 5), ["a", "e\u0301" * 8 + "…"]),
        ("a", "b\nc\nd", (20, 3), ["a", "b", "… 2 more lines"]),
        ("a", "b\nc", (20, 3), ["a", "b", "c"]),
        ("it is not loaded", "b", (10, 5), ["it is not", "loaded", "b"]),
        ("a", "b\nc", (0, 0), ["a", "b", "c"]),  # a terminal that was never told its size
        ("ab", "c", (1, 4), ["a", "b", "c"]),
    ],
)
def test_a_frame_has_its_sentences_in_full_and_its_rows_cut(
    sentences: str, rows: str, size: tuple[int, int], lines: list[str]
) -> None:
    drawn = frame(sentences, rows, os.terminal_size(size))
    assert drawn == "\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J"


# ---- a file that cannot be read


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_status_in_a_folder_that_is_gone_is_78(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert ran("--config", "jobs.yaml", "status", *form).code == 78

"""`init`: what it writes works at once, what stands there stays, and the lines that it prints start the program."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler import starter
from scheduler.cli import build_parser
from tests.support import ROOT
from tests.test_bad_input import ran

CRON_LINE = re.compile(r"^\* \* \* \* \*  (.+ tick)$", re.MULTILINE)
UNIT = re.compile(r"^\[Unit\]\n.*?^WantedBy=\S+$", re.MULTILINE | re.DOTALL)
FILES = {"jobs.yaml", "jobs.schema.json", "reference/contact.md", "reference/returns.md", "reference/shipping.md"}


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def modes_below(folder: Path) -> set[tuple[str, int]]:
    return {("d" if path.is_dir() else "f", stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}


def sh(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as cron does: by sh, in the home folder, with next to nothing in the environment."""
    environ = {"HOME": str(home), "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin", "LOGNAME": "ann"}
    return subprocess.run(["/bin/sh", "-c", line], cwd=home, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_init_writes_private_files_and_names_each(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "new" / "jobs"
    before = os.umask(umask)
    try:
        told = ran("init", folder)
    finally:
        os.umask(before)
    assert (told.code, told.err) == (0, "")
    assert set(files_below(folder / "config")) == FILES
    assert modes_below(tmp_path) == {("d", 0o700), ("f", 0o600)}
    made = set(re.findall(r"^made (.+)$", told.out, re.MULTILINE))
    assert made == {str(folder / "config" / name) for name in FILES} | {str(folder / "checkpoints")}


def test_what_init_writes_is_what_the_project_ships(tmp_path: Path) -> None:
    ran("init", tmp_path)
    shipped = files_below(ROOT / "config")
    assert files_below(tmp_path / "config") == {name: shipped[name] for name in FILES}, "copy it to scheduler/starter"


def test_the_demo_jobs_run_at_once_and_offline(tmp_path: Path) -> None:
    config = tmp_path / "config/jobs.yaml"
    ran("init", tmp_path)
    checked = ran("--config", config, "check")
    assert (checked.code, checked.err) == (0, "")
    assert checked.out.count("4 of 4 requests left") == 2
    assert ran("--config", config, "tick").code == 0
    status = ran("--config", config, "status").out
    assert re.search(r"^welcome-note +done ", status, re.MULTILINE)
    assert re.search(r"^shipping-question +ready +●○○○ +tool_calls ", status, re.MULTILINE)


def test_what_stands_there_is_named_and_left(tmp_path: Path) -> None:
    ran("init", tmp_path)
    config = tmp_path / "config/jobs.yaml"
    config.write_text("jobs: {mine: {task: x, checkpoint: y.json, provider: demo}}\n")
    (tmp_path / "config/jobs.schema.json").unlink()
    (tmp_path / "config/reference/returns.md").unlink()
    (tmp_path / "checkpoints").chmod(0o750)
    before = files_below(tmp_path)
    told = ran("init", tmp_path)
    assert told.code == 0
    after = files_below(tmp_path)
    assert after.pop("config/jobs.schema.json")
    assert after == before
    assert stat.S_IMODE((tmp_path / "checkpoints").stat().st_mode) == 0o750
    assert re.findall(r"^made (.+)$", told.out, re.MULTILINE) == [str(tmp_path / "config/jobs.schema.json")]
    kept = re.findall(r"^left as it is: (.+)$", told.out, re.MULTILINE)
    assert kept == [str(config), str(tmp_path / "checkpoints")]


def test_a_link_that_leads_nowhere_is_left(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/jobs.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert ran("init", tmp_path).code == 0
    assert (tmp_path / "config/jobs.yaml").is_symlink()
    assert not (tmp_path / "elsewhere.yaml").exists()


@pytest.mark.parametrize("name", ["config", "checkpoints"])
def test_a_file_where_a_folder_belongs_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    told = ran("init", tmp_path)
    assert told.code in (65, 74)
    told.one_line(str(tmp_path / name))
    assert (tmp_path / name).read_text() == "mine\n"


def test_a_folder_that_no_crontab_can_name_is_refused_and_nothing_made(tmp_path: Path) -> None:
    told = ran("init", tmp_path / "a\nb")
    assert told.code == 64
    told.one_line("control characters")
    assert list(tmp_path.iterdir()) == []


def test_a_current_folder_that_is_gone_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    try:
        told = ran("init")
    finally:
        os.chdir("/")
    assert told.code == 64
    told.one_line("name it from / on")


def test_the_printed_lines_start_the_program_from_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s 100% $HOME "mine"'
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scheduler", "init", folder.name]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    (line,) = CRON_LINE.findall(done.stdout)
    assert "%" not in line.replace(r"\%", "")  # cron ends the command there, and gives the rest to it as input
    ticked = sh(line.replace(r"\%", "%"), tmp_path)
    assert (ticked.returncode, ticked.stdout, ticked.stderr) == (0, "", "")
    assert (folder / "checkpoints/welcome-note.json").exists()
    (checked,) = re.findall(r"^  (.+ check)$", done.stdout, re.MULTILINE)
    assert sh(checked, tmp_path).returncode == 0
    unit = tmp_path / "resumed.service"
    unit.write_text(UNIT.findall(done.stdout)[0] + "\n")
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_an_installed_script_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin/resumed"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert starter.own_command("bin/resumed", sys.executable) == [str(script)]


def test_a_user_gets_the_lines_of_a_user_and_root_those_of_the_machine(tmp_path: Path) -> None:
    config = tmp_path / "jobs.yaml"
    mine = starter.next_steps(config, {}, root=False)
    assert "~/.config/systemd/user/resumed.service" in mine
    assert "systemctl --user enable --now resumed && loginctl enable-linger" in mine
    assert "WantedBy=default.target" in mine
    roots = starter.next_steps(config, {}, root=True)
    assert "/etc/systemd/system/resumed.service" in roots
    assert "--user" not in roots
    assert "WantedBy=multi-user.target" in roots


def test_the_printed_unit_says_what_the_shipped_one_says() -> None:
    def settings(text: str) -> dict[str, str]:
        return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))

    printed = settings(starter.unit_text(["/usr/bin/env", "resumed"], Path("/etc/resumed/jobs.yaml"), system=True))
    shipped = settings((ROOT / "config/resumed.service").read_text("utf-8"))
    assert printed == {name: shipped[name] for name in printed}
    assert {"Type", "WatchdogSec", "ExecReload", "RestartPreventExitStatus", "StartLimitBurst"} <= printed.keys()


def test_systemd_reads_each_word_as_it_was_written(tmp_path: Path) -> None:
    text = starter.unit_text(["/bin/a b"], Path('/x/50% $X "y" \\z/jobs.yaml'), system=True)
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = shlex.split(line.replace("%%", "%").replace("$$", "$"))
    assert words == ["/bin/a b", "--config", '/x/50% $X "y" \\z/jobs.yaml', "daemon"]


# Every command's help.


def commands() -> dict[str, str]:
    """The help text of each command."""
    (choices,) = [action.choices for action in build_parser()._actions if isinstance(action.choices, dict)]
    return {name: parser.format_help() for name, parser in choices.items()}


@pytest.mark.parametrize(("name", "text"), commands().items(), ids=commands())
def test_the_help_of_a_command_shows_an_example_that_parses(name: str, text: str) -> None:
    examples = re.findall(r"^  resumed (.+)$", text.partition("example")[2], re.MULTILINE)
    assert examples
    for example in examples:
        options = build_parser().parse_args(shlex.split(example))
        assert options.command == name

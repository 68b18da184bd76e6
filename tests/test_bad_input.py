"""Whatever is wrong with a file, folder, disk or environment: one clear line, the right exit code, no loss."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import pty
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import scheduler
from scheduler.checkpoint import hold
from scheduler.cli import main
from scheduler.tables import SCRIPTS
from tests.support import KEY, PROGRAM, ROOT, ChatServer, Project, answer, chat_server, state_home, tool_calls

NOBODY = 65534
DEMO = {"provider": "demo", "read": ["notes.md"]}  # two slices: it reads, then it answers
NOWHERE = "http://127.0.0.1:9/v1"  # for jobs that never ask
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (info   |warning|error  ) \S.*")
LOOKING = [["status"], ["status", "--json"], ["show", "nightly"], ["check"]]
# Control characters, ANSI, bidi marks, a line separator, an invisible mark; what else a terminal may act on.
NASTY = "\x1b[31mred\x1b[0m \x9b2J \u202eevil\u202c \u2066x\u2069 \u200f\u200b \x07\x08\x7f \u2028 \ufeff end"
ACTING = re.compile(r"[^\n -~\u00a0-\u200a\u2010-\u2027\u2030-\u205e\u2070-\ufefe\uff00-\U0010ffff]")


@dataclass(frozen=True)
class Told:
    """What one command gave: its exit code and both streams."""

    code: int
    out: str
    err: str

    def one_line(self, *words: str) -> None:
        """Assert that exactly one line warns, and that it holds these words."""
        lines = [line for line in self.err.splitlines() if " info " not in line]
        assert len(lines) == 1, self.err
        for word in words:
            assert word in lines[0]

    def about(self, job: str) -> str:
        """Return the one line that warns of this job."""
        lines = [line for line in self.err.splitlines() if f"job {job}:" in line and " info " not in line]
        assert len(lines) == 1, self.err
        return lines[0]


def ran(*arguments: object) -> Told:
    """Run one command inside this process; whatever it is, it ends in a code and in whole log lines without the key."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        code = main([str(argument) for argument in arguments])
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return judged(Told(code, out, err))


def judged(told: Told) -> Told:
    """Assert what holds for every command: a code of the closed list, log lines only, no traceback, no key."""
    assert told.code in (0, 64, 65, 69, 74, 75, 77, 78), told.err
    assert "Traceback" not in told.err + told.out
    assert "canary" not in told.err + told.out
    for line in told.err.splitlines():
        assert LOG_LINE.fullmatch(line), line
    return told


pytestmark = pytest.mark.usefixtures("surroundings")


def command(project: Project, *arguments: object) -> Told:
    """Run one command on the project inside this process."""
    return ran("--config", project.config, *arguments)


def jobs(fields: dict[str, Any] | None = None, **more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the jobs of most tests (one begun, one finished, one new, one of another folder), these fields in each."""
    entries: dict[str, dict[str, Any]] = {"nightly": {}, "sealed": {}, "other": {}, "apart": {}}
    entries["apart"]["checkpoint"] = "apart/apart.json"
    return {name: {"schedule": "every 1h", **(fields or {}), **entry} for name, entry in (entries | more).items()}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the real program ran: `nightly` used one attempt, `sealed` is done."""
    project = Project(tmp_path_factory.mktemp("template"))
    with chat_server(tool_calls(("c1", "list_files", "{}")), answer("sealed answer")) as chat:
        project.live(chat.url, jobs())
        project.run("run", "nightly")
        project.run("run", "sealed")
    assert not [path for path in project.folder.rglob("*") if path.name.endswith("-wal")]
    return project.folder


@pytest.fixture
def begun(template: Path, project: Project, chat: ChatServer) -> Project:
    """A copy of that folder, whose provider is this test's server."""
    shutil.copytree(template, project.folder, dirs_exist_ok=True)
    project.live(chat.url, jobs())
    return project


def trace(path: Path) -> tuple[object, ...]:
    """Return all that a change of the file, folder or link would change."""
    found = path.lstat()
    content: object = None
    if stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        content = path.read_bytes()
    return found.st_mode, found.st_ino, found.st_mtime_ns, found.st_size, found.st_uid, content


def listing(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return mode, inode, time and size of all below the folder, but for the files that SQLite makes to read."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        if not path.name.endswith(("-wal", "-shm")):
            info = path.lstat()
            times = () if stat.S_ISDIR(info.st_mode) else (info.st_mtime_ns, info.st_size)
            found[str(path)] = (info.st_mode, info.st_ino, *times)
    return found


def counted(folder: Path, key: str = "nightly.json") -> tuple[int, int]:
    """Return how many attempts the ledger admitted for a checkpoint, and how many its document counts."""
    with contextlib.closing(sqlite3.connect(folder / ".ledger.sqlite3")) as ledger:
        admitted = ledger.execute("SELECT count(*) FROM admission WHERE checkpoint = ?", (key,)).fetchone()[0]
        row = ledger.execute("SELECT body FROM document WHERE checkpoint = ?", (key,)).fetchone()
    return admitted, json.loads(row[0])["attempts"] if row else 0


def row(project: Project, job: str = "nightly") -> dict[str, Any]:
    """Return one job's row of `status --json`."""
    told = command(project, "status", "--json")
    assert told.code == 0
    return dict(next(found for found in json.loads(told.out)["jobs"] if found["id"] == job))


def replace_path(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else where the file stood."""
    path.unlink(missing_ok=True)
    make(path)


def edit(path: Path, **fields: Any) -> None:
    """Change fields of the document by hand."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# ---- processes of their own: other users, mounts, limits ----


def in_process(
    name: str, *arguments: object, wrap: Sequence[str] = (), environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Call a function of this module in a new process, below `wrap`; whatever it asserts must hold."""
    script = "import sys; from tests import test_bad_input as t; getattr(t, sys.argv[1])(*sys.argv[2:])"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LOCAL_KEY": KEY, **(environ or {})}
    environ = state_home(Path("/nowhere")) | environ
    done = subprocess.run(
        [*wrap, sys.executable, "-c", script, name, *map(str, arguments)],
        env=environ,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done


def mounted(mounts: str) -> list[str]:
    """Return what runs a command in a mount namespace of its own, once these shell lines have run in it."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{mounts}\nexec "$@"', "sh"]


def tell_all(uid: str, commands: str) -> None:
    """Become this user, run the commands (JSON), and print what they told (JSON).

    All that they may import is imported before, for the user may not be able to read the interpreter's files.
    """
    for module in pkgutil.walk_packages(scheduler.__path__, "scheduler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("utf_8_sig", "latin_1", "ascii", "idna"):
        importlib.import_module(f"encodings.{name}")
    if int(uid):
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    told = [ran(*arguments) for arguments in json.loads(commands)]
    print(json.dumps([(each.code, each.out, each.err) for each in told]))


def as_user(
    uid: int, project: Project, *commands: Sequence[str], wrap: Sequence[str] = (), **environ: str
) -> list[Told]:
    """Run commands on the project one after the other as this user."""
    listed = json.dumps([["--config", str(project.config), *arguments] for arguments in commands])
    done = in_process("tell_all", uid, listed, wrap=wrap, environ=environ)
    return [judged(Told(*each)) for each in json.loads(done.stdout)]


@pytest.fixture
def offline() -> Iterator[Project]:
    """A project of demo jobs that any user can reach and read; its checkpoint folders are those of NOBODY."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        base.chmod(0o755)
        there = Project(base)
        (base / "notes.md").write_text("The log is short.\n")
        (base / "notes.md").chmod(0o644)
        there.live(NOWHERE, jobs(DEMO))
        there.config.chmod(0o644)
        for name in ("checkpoints", "apart"):
            (base / name).mkdir(0o700)
            os.chown(base / name, NOBODY, NOBODY)
        yield there


# ---- jobs.yaml, through the commands ----

ENTRY = "    task: x\n    checkpoint: c/nightly.json\n    provider: demo\n"
UNREADABLE = {
    "missing": (None, "cannot be opened"),
    "empty": (b"", "no jobs"),
    "only comments": (b"# jobs:\n#   nightly:\n", "no jobs"),
    "binary": (bytes(range(256)), "not UTF-8"),
    "NULs": (bytes(20), "line 1"),
    "UTF-16": (f"jobs:\n  nightly:\n{ENTRY}".encode("utf-16"), "UTF-8"),
    "Latin-1": (f"jobs:\n  nightly:\n{ENTRY.replace('x', 'café')}".encode("latin-1"), "line 3"),
    "jobs is a list": (b"jobs: []\n", "no jobs"),
    "jobs is nothing": (b"jobs:\n", "no jobs"),
    "a list": (b"[]\n", "no jobs"),
    "a text": (b"hello\n", "no jobs"),
    "unquoted star": (f"jobs:\n  nightly:\n{ENTRY}    schedule: */5 * * * *\n".encode(), "quotes"),
    "tab": (b"jobs:\n\tnightly: {}\n", "spaces"),
    "cut": (b'jobs: {nightly: {task: "x", schedule: ', "line"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_jobs_file_is_one_line_and_code_78_for_every_command(case: str, project: Project) -> None:
    body, words = UNREADABLE[case]
    if body is not None:
        project.config.write_bytes(body)
    for arguments in [*LOOKING, ["tick"], ["run", "nightly"], ["daemon"], ["repair", "nightly"], ["adopt", "--all"]]:
        told = command(project, *arguments)
        assert (told.code, told.out) == (78, "")
        told.one_line(str(project.config), words)
    assert os.listdir(project.folder) == ([] if body is None else ["jobs.yaml"])
    assert body is None or project.config.read_bytes() == body


def test_unreadable_jobs_file_lists_every_problem(project: Project) -> None:
    project.write("jobs:\n  nightly: {task: x, chekpoint: c/a.json}\nlive: maybe\nzone: UTC\n")
    told = command(project, "check")
    assert told.code == 78
    for place in (":2:", ":3:", ":4:", "line"):
        assert place in told.err
    assert "checkpoint" in told.err


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"# \xc3\xa9\r\n"])
def test_byte_order_mark_and_crlf_are_no_fault(start: bytes, project: Project) -> None:
    project.config.write_bytes(start + f"jobs:\n  nightly:\n{ENTRY}".replace("\n", "\r\n").encode())
    told = command(project, "check")
    assert (told.code, told.err) == (0, "")


BAD_ENTRIES = {
    "range": ('schedule: "99 * * * *"', "99"),
    "six": ('schedule: "* * * * * *"', "field"),
    "never": ('schedule: "0 9 31 2 *"', "never"),
    "typo": ("tsak: x", "task"),
    "clock": ("schedule: 12:30", "quote"),
    "number": ("model: 3.10", "quotes"),
    "anchor": ("read: &a [x]", "anchor"),
    "twice": ("task: again", "twice"),
    "zone": ("timezone: Europe/Berln", "Europe/Berlin"),
    "who": ("provider: lokal", "local"),
}


def test_bad_entries_block_their_jobs_alone_and_are_named_everywhere(project: Project, chat: ChatServer) -> None:
    lines = [
        "live: true",
        f'providers: {{local: {{base_url: "{chat.url}", model: m, key: {{env: LOCAL_KEY}}}}}}',
        "jobs:",
        '  good: {task: "fine", checkpoint: c/good.json, provider: local, schedule: every 1h}',
    ]
    places = {}
    for name, (fault, _) in BAD_ENTRIES.items():
        lines += [f"  {name}:", "    task: x", f"    checkpoint: c/{name}.json", f"    {fault}"]
        places[name] = len(lines)
    project.write("\n".join(lines))
    body = project.config.read_bytes()
    for told in (command(project, "check"), command(project, "tick")):
        assert told.code == 65
        for name, (_, words) in BAD_ENTRIES.items():
            said = [line for line in told.err.splitlines() if f"job {name}: " in line]
            assert said
            assert f"{project.config}:{places[name]}:" in said[0] or name == "typo"
            assert any(words in line for line in said), said
    assert chat.count == 1
    assert project.config.read_bytes() == body
    assert sorted(path.name for path in (project.folder / "c").glob("*.json")) == ["good.json"]
    states = {found["id"]: found["state"] for found in json.loads(command(project, "status", "--json").out)["jobs"]}
    assert states == {"good": "done"} | dict.fromkeys(BAD_ENTRIES, "blocked")
    assert "line" in row(project, "range")["reason"]
    told = command(project, "run", "six", "good")
    assert told.code == 65
    assert chat.count == 1


def test_task_cut_off_by_a_hash_is_warned_about(project: Project) -> None:
    project.write("jobs:\n  nightly:\n    task: fix #12 now\n    checkpoint: c/n.json\n    provider: demo\n")
    told = command(project, "check")
    assert told.code == 0
    told.one_line(f"{project.config}:3:", "nightly", "quotes")


# ---- checkpoints ----


def _link_to_copy(path: Path) -> None:
    shutil.copy2(path, path.with_name("elsewhere.json"))
    replace_path(path, lambda link: link.symlink_to("elsewhere.json"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "blank": (lambda path: path.write_bytes(b"\n \n"), "empty"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-40]), "JSON"),
    "null": (lambda path: path.write_text("null"), "null"),
    "list": (lambda path: path.write_text("[]"), "a list"),
    "binary": (lambda path: path.write_bytes(bytes(range(256))), "JSON"),
    "NULs": (lambda path: path.write_bytes(bytes(len(path.read_bytes()))), "JSON"),
    "UTF-16": (lambda path: path.write_bytes(path.read_text().encode("utf-16")), "JSON"),
    "deep": (lambda path: path.write_text("[" * 100_000), "JSON"),
    "of another job": (lambda path: path.write_bytes(path.with_name("sealed.json").read_bytes()), "valid document"),
    "laid out anew": (lambda path: edit(path), "valid document"),
    "fewer attempts": (lambda path: edit(path, attempts=0, history=[]), "valid document"),
    "status done": (lambda path: edit(path, status="done", answer="mine"), "valid document"),
    "five attempts": (lambda path: edit(path, attempts=5), "attempts"),
    "system role": (lambda path: edit(path, conversation=[{"role": "system", "content": "x"}]), "conversation"),
    "unknown key": (lambda path: edit(path, more=1), "more"),
    "key twice": (lambda path: path.write_bytes(b'{"attempts":0,' + path.read_bytes()[1:]), "twice"),
    "directory": (lambda path: replace_path(path, Path.mkdir), "a directory"),
    "link": (_link_to_copy, "a symbolic link"),
    "dangling link": (lambda path: replace_path(path, lambda at: at.symlink_to("nowhere")), "a symbolic link"),
    "FIFO": (lambda path: replace_path(path, os.mkfifo), "a FIFO"),
    "socket": (lambda path: replace_path(path, lambda at: os.mknod(at, stat.S_IFSOCK | 0o600)), "a socket"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_bad_checkpoint_blocks_its_job_alone_until_repair(case: str, begun: Project, chat: ChatServer) -> None:
    damage, words = DAMAGES[case]
    path, saved = begun.path(), begun.document()
    damage(path)
    before = trace(path)
    told = command(begun, "run", "nightly", "other")
    assert told.code == 65
    told.one_line("job nightly", str(path), words)
    assert chat.count == 1
    assert begun.document("other")["answer"] == "fin"
    assert row(begun)["state"] == "blocked"
    assert words in row(begun)["reason"]
    for arguments in (["show", "nightly"], ["show", "nightly", "--answer"], ["check"], ["tick"]):
        told = command(begun, *arguments)
        assert told.code == 65
        told.one_line(str(path), words)
    assert trace(path) == before
    assert counted(path.parent) == (1, 1)
    assert chat.count == 2  # the tick ran the job of the other folder

    told = command(begun, "repair", "nightly")
    assert told.code == 0, told.err
    assert begun.document() == saved
    assert len([aside for aside in path.parent.iterdir() if "set-aside" in aside.name]) == 1
    assert command(begun, "run", "nightly").code == 0
    assert (chat.count, begun.document()["attempts"], begun.document()["answer"]) == (3, 2, "fin")


def test_finished_checkpoint_that_was_damaged_is_blocked_and_keeps_its_answer(begun: Project, chat: ChatServer) -> None:
    path = begun.path("sealed")
    path.write_bytes(path.read_bytes().replace(b"sealed answer", b"forged answer"))
    before = trace(path)
    for arguments in (["run", "sealed"], ["show", "sealed", "--answer"]):
        told = command(begun, *arguments)
        assert (told.code, told.out) == (65, "")
        told.one_line(str(path))
    assert trace(path) == before
    command(begun, "repair", "sealed")
    assert command(begun, "show", "sealed", "--answer").out == "sealed answer"
    assert chat.count == 0


def test_valid_file_with_more_attempts_is_adopted_not_overwritten(begun: Project, chat: ChatServer) -> None:
    path, history = begun.path(), begun.document()["history"]
    more = [dict(history[0], number=number) for number in (1, 2, 3)]
    edit(path, attempts=3, history=more)
    before = trace(path)
    told = command(begun, "repair", "nightly")
    assert told.code == 65
    told.one_line("more attempts", "resumed adopt nightly")
    assert trace(path) == before
    assert command(begun, "adopt", "nightly").code == 0
    assert begun.document()["attempts"] == 3
    for _ in range(3):
        command(begun, "run", "nightly")
    assert (chat.count, begun.document()["attempts"]) == (1, 4)


def test_adopting_a_file_with_fewer_attempts_keeps_the_higher_count(begun: Project) -> None:
    edit(begun.path(), attempts=0, history=[], conversation=[])
    assert command(begun, "adopt", "nightly").code == 0
    assert begun.document()["attempts"] == 1


@pytest.mark.parametrize("body", ["", "null", '{"attempts": 1}'])
def test_adopting_what_is_no_document_is_refused_and_changes_nothing(body: str, begun: Project) -> None:
    begun.path().write_text(body)
    before = listing(begun.folder)
    told = command(begun, "adopt", "nightly")
    assert told.code == 65
    told.one_line(str(begun.path()))
    assert listing(begun.folder) == before


def test_copies_that_other_programs_left_are_neither_read_nor_touched(begun: Project, chat: ChatServer) -> None:
    names = [
        "nightly.sync-conflict-20260301-101010-ABCDEFG.json",
        "nightly (conflicted copy 2026-03-01).json",
        "nightly.json~",
        ".nightly.json.swp",
        ".nightly.json.tmp123",
    ]
    copies = [begun.path().with_name(name) for name in names]
    for copy in copies:
        copy.write_text(json.dumps(begun.document() | {"attempts": 0, "history": []}))
    before = [trace(copy) for copy in copies]
    assert command(begun, "run", "nightly").code == 0
    assert [trace(copy) for copy in copies] == before
    assert (chat.count, begun.document()["attempts"]) == (1, 2)


LOCKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "directory": (Path.mkdir, "a directory"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
    "link": (lambda path: path.symlink_to("sealed.json"), "a symbolic link"),
    "FIFO": (os.mkfifo, "a FIFO"),
}


@pytest.mark.parametrize("case", LOCKS)
def test_lock_path_that_is_no_file_blocks_its_job_alone(case: str, begun: Project, chat: ChatServer) -> None:
    make, words = LOCKS[case]
    lock = begun.path().with_name("nightly.json.lock")
    replace_path(lock, make)
    before, saved = trace(lock), [trace(begun.path(name)) for name in ("nightly", "sealed")]
    told = command(begun, "run", "nightly", "other")
    assert told.code == 65
    told.one_line("job nightly", str(lock), words)
    assert "in use" not in told.err
    assert trace(lock) == before
    assert [trace(begun.path(name)) for name in ("nightly", "sealed")] == saved
    assert chat.count == 1
    assert row(begun)["state"] == "ready"  # a reader needs no lock


# ---- folders, owners, modes ----


def test_missing_folders_are_made_private_whatever_the_umask(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": {"checkpoint": "deep/er/nightly.json"}})
    old = os.umask(0)
    try:
        assert command(project, "run", "nightly").code == 0
    finally:
        os.umask(old)
    for folder in ("deep", "deep/er"):
        assert stat.S_IMODE((project.folder / folder).stat().st_mode) == 0o700
    files = list((project.folder / "deep/er").iterdir())
    assert {"nightly.json", "nightly.json.lock", ".ledger.sqlite3"} <= {file.name for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_folder_of_another_user_is_refused_with_the_command_to_use(begun: Project, chat: ChatServer) -> None:
    folder = begun.path().parent
    os.chown(folder, NOBODY, NOBODY)
    before = listing(begun.folder)
    done = begun.run("run", "nightly", "sealed", code=77)
    assert re.search(rf"job nightly: {folder} belongs to nobody, and you are root; .*sudo -u nobody .*run", done.stderr)
    for arguments in (["tick", "nightly"], ["repair", "nightly"], ["adopt", "nightly"], ["check"]):
        told = command(begun, *arguments)
        assert told.code == 77
        assert "sudo -u nobody" in told.err
    assert listing(begun.folder) == before
    assert chat.count == 0
    assert command(begun, "tick").code == 77
    assert chat.count == 1  # the job of the other folder


@pytest.mark.parametrize("mode", [0o702, 0o777, 0o1777])
def test_folder_that_others_can_write_is_refused(mode: int, begun: Project, chat: ChatServer) -> None:
    folder = begun.path().parent
    folder.chmod(mode)
    before = listing(begun.folder)
    for arguments in (["run", "nightly"], ["repair", "nightly"]):
        told = command(begun, *arguments)
        assert told.code == 77
        told.one_line(str(folder), "chmod go-w")
    assert command(begun, "check").code == 77
    assert listing(begun.folder) == before
    assert chat.count == 0
    folder.chmod(0o755)
    assert command(begun, "run", "nightly").code == 0
    told = command(begun, "check")
    assert told.code == 0
    assert f"chmod 700 {folder}" in told.err


def groups(config: str) -> None:
    """Try a folder that its group can write, under several groups of this namespace's own user table."""
    folder = Path(config).parent / "checkpoints"
    entries = "root:x:0:0::/:/bin/sh\nkeeper:x:0:4242::/:/bin/sh\n"
    for passwd, group, code in [
        (entries, "root:x:0:\n", 0),
        (entries, "root:x:0:root\n", 0),
        (entries, "root:x:0:daemon\n", 77),
        (entries + "second:x:7:0::/:/bin/sh\n", "root:x:0:\n", 77),
        (entries, "wheel:x:0:\n", 77),
    ]:
        Path("/etc/passwd").write_text(passwd)
        Path("/etc/group").write_text(group)
        folder.chmod(0o770)
        told = ran("--config", config, "check")
        assert told.code == code, (passwd, group, told)
        assert code == 0 or "its group may write" in told.err
        told = ran("--config", config, "run", "nightly")
        assert told.code == code, (passwd, group, told)


def test_group_may_write_where_it_is_the_owners_private_one(begun: Project, tmp_path: Path) -> None:
    for name in ("passwd", "group"):
        (tmp_path / name).write_text("")
    mounts = "\n".join(f"mount --bind {tmp_path}/{name} /etc/{name}" for name in ("passwd", "group"))
    in_process("groups", begun.config, wrap=mounted(mounts))
    assert begun.document()["attempts"] == 2


def test_what_a_user_may_not_read_or_write_is_told_as_permission(offline: Project) -> None:
    folder = offline.path().parent
    begin, *_ = as_user(NOBODY, offline, ["run", "nightly", "sealed"])
    assert begin.code == 0
    assert counted(folder) == (1, 1)

    # Files that root made: the checkpoint, then the lock.
    for victim in (offline.path(), folder / "nightly.json.lock"):
        os.chown(victim, 0, 0)
        before = listing(folder)
        told, *looked = as_user(NOBODY, offline, ["run", "nightly"], ["status"], ["show", "nightly"], ["check"])
        assert told.code == 77
        told.one_line("job nightly", str(victim), "permission denied", "nobody")
        assert looked[0].code == 0
        if victim == offline.path():
            assert [each.code for each in looked[1:]] == [77, 77]
            assert "blocked" in looked[0].out
        assert listing(folder) == before
        os.chown(victim, NOBODY, NOBODY)
    assert counted(folder) == (1, 1)


@pytest.mark.parametrize("case", ["folder", "ledger"])
def test_read_only_folder_or_ledger_stops_writers_and_no_reader(case: str, offline: Project) -> None:
    folder = offline.path().parent
    as_user(NOBODY, offline, ["run", "nightly"])
    victim = folder if case == "folder" else folder / ".ledger.sqlite3"
    victim.chmod(0o555 if case == "folder" else 0o400)
    before = listing(folder)
    told, *looked = as_user(NOBODY, offline, ["run", "nightly"], ["tick"], *LOOKING)
    assert told.code == 77
    told.one_line("job nightly", str(folder), "permission denied")
    assert looked.pop(0).code == 77
    assert [each.code for each in looked] == [0, 0, 0, 77], looked
    assert str(victim) in looked[3].about("nightly")
    assert "●○○○" in looked[0].out
    assert listing(folder) == before
    assert counted(folder) == (1, 1)
    assert json.loads((folder.parent / "apart/apart.json").read_text())["attempts"] == 1


def test_folder_out_of_reach_blocks_its_job_alone(offline: Project) -> None:
    vault = offline.folder / "vault"
    vault.mkdir(0o700)
    offline.live(NOWHERE, jobs(DEMO, nightly=DEMO | {"checkpoint": "vault/deep/er/nightly.json"}))
    told, *others = as_user(
        NOBODY, offline, ["tick"], ["run", "nightly"], ["check"], ["show", "nightly"], ["adopt", "nightly"], ["status"]
    )
    assert "permission denied" in told.about("nightly")
    assert [told.code, *[each.code for each in others]] == [77] * 5 + [0]
    assert "blocked" in others[-1].out
    assert offline.document("other")["attempts"] == 1
    assert not list(vault.iterdir())


def test_rests_are_ended_although_one_folder_is_out_of_reach(offline: Project) -> None:
    (offline.folder / "vault").mkdir(0o700)
    offline.live(NOWHERE, jobs(nightly={"checkpoint": "vault/deep/nightly.json"}))
    (told,) = as_user(NOBODY, offline, ["unblock", "local"])
    assert told.code in (0, 77)


def test_home_out_of_reach_is_no_fault(offline: Project) -> None:
    (offline.folder / "home").mkdir(0o700)
    listed = json.dumps([["status"]])
    done = in_process("tell_all", NOBODY, listed, environ={"HOME": str(offline.folder / "home")})
    told = Told(*json.loads(done.stdout)[0])
    assert told.code in (77, 78)
    told.one_line("jobs.yaml")


def test_checkpoint_below_a_file_is_refused_and_other_jobs_go_on(begun: Project, chat: ChatServer) -> None:
    for place in ("jobs.yaml/nightly.json", "jobs.yaml/deep/nightly.json"):
        begun.live(chat.url, jobs(nightly={"checkpoint": place}))
        told = command(begun, "run", "nightly", "other")
        assert told.code in (65, 74)
        told.one_line("job nightly", str(begun.config))
    assert begun.document("other")["status"] == "done"


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [("closed", 77, "permission denied"), ("locked", 77, "permission denied"), ("notes.md", 65, "not a directory")],
)
def test_check_names_a_folder_that_cannot_be_made_and_makes_nothing(
    case: str, code: int, words: str, offline: Project
) -> None:
    for name, mode in (("closed", 0o555), ("locked", 0o000)):
        (offline.folder / name).mkdir()
        os.chown(offline.folder / name, NOBODY, NOBODY)
        (offline.folder / name).chmod(mode)
    offline.live(NOWHERE, jobs(DEMO, nightly=DEMO | {"checkpoint": f"{case}/new/nightly.json"}))
    before = listing(offline.folder)
    told, run = as_user(NOBODY, offline, ["check"], ["run", "nightly"])
    assert (told.code, run.code) == (code, code)
    assert words in told.about("nightly")
    assert str(offline.folder / case) in told.about("nightly")
    assert "other:" not in told.err
    assert listing(offline.folder) == before


def test_check_and_status_name_a_task_that_is_too_long_for_a_request(begun: Project, chat: ChatServer) -> None:
    begun.live(chat.url, jobs(other={"task": '"' * (4 * 1024 * 1024)}))
    told = command(begun, "check")
    assert told.code == 65
    assert "the request cannot be sent" in told.about("other")
    assert "the request cannot be sent" in command(begun, "run", "other").about("other")
    assert row(begun, "other")["state"] == "blocked"
    assert row(begun)["state"] == "ready"
    assert chat.count == 0


def test_check_and_status_name_a_task_that_is_too_long_for_the_window(begun: Project, chat: ChatServer) -> None:
    begun.live(chat.url, jobs(other={"task": "word " * 20_000}), provider={"context_tokens": 8_000})
    told = command(begun, "check")
    assert told.code == 65
    assert "the request cannot be sent" in told.about("other")
    assert "the request cannot be sent" in command(begun, "run", "other").about("other")
    assert (row(begun, "other")["state"], row(begun)["state"]) == ("blocked", "ready")
    assert chat.count == 0


def test_reader_of_another_user_leaves_nothing_that_stops_the_owner(offline: Project) -> None:
    as_user(NOBODY, offline, ["run", "nightly"])
    looked = as_user(0, offline, ["status"], ["show", "nightly"])
    assert [each.code for each in looked] == [0, 0]
    (told,) = as_user(NOBODY, offline, ["run", "nightly"])
    assert told.code == 0
    assert counted(offline.path().parent) == (2, 2)


# ---- the disk ----


def test_read_only_file_system_stops_writers_and_no_reader(begun: Project, chat: ChatServer) -> None:
    folder = begun.path().parent
    before = listing(folder)
    readonly = mounted(f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}")
    told, tick, *looked = as_user(0, begun, ["run", "nightly"], ["tick", "nightly"], *LOOKING, wrap=readonly)
    for each in (told, tick):
        assert each.code == 74
        each.one_line("job nightly", str(folder), "read-only")
    assert [each.code for each in looked] == [0, 0, 0, 74], looked
    assert "read-only" in looked[3].about("nightly")
    assert "job sealed:" not in looked[3].err  # it is done, and nothing of it is written any more
    assert "●○○○" in looked[0].out
    assert listing(folder) == before
    assert chat.count == 0


def real(config: str, *arguments: str) -> Told:
    """Run the real program from a child process."""
    done = subprocess.run([*PROGRAM, "--config", config, *arguments], capture_output=True, text=True, timeout=60)
    return judged(Told(done.returncode, done.stdout, done.stderr))


def full(config: str, *arguments: str) -> None:
    """Run this ten times on a full disk, twice as a process of its own; it is said, and nothing is left behind."""
    folder = Path(config).parent / "checkpoints"
    before = sorted(path.name for path in folder.iterdir())
    told = [real(config, *arguments), *(ran("--config", config, *arguments) for _ in range(8))]
    for number, each in enumerate([*told, real(config, *arguments)]):
        assert each.code == 74, each
        if number and arguments == ("tick",):  # what stands is said once a day
            assert each.err == ""
            continue
        assert "no space left" in each.about("nightly")
        assert "permission" not in each.err
        assert "Permission" not in each.err
    left = {path.name for path in folder.iterdir()}
    assert not [name for name in left if name.endswith((".tmp", ".json-journal"))], left
    new = left - set(before)
    assert new <= {".ledger.sqlite3", ".ledger.sqlite3-wal", ".ledger.sqlite3-shm", "nightly.json.lock"}, left
    empty = [path.name for path in folder.glob("*.json") if not path.stat().st_size]
    assert not empty


def fill(path: Path) -> None:
    """Write until no byte is left on the disk."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def disk_too_small(config: str) -> None:
    """Begin on a disk that cannot even hold the ledger; then give it room."""
    project = Project(Path(config).parent)
    with chat_server() as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1h"}})
        full(config, "tick")
        assert chat.count == 0
        assert not project.path().exists()
        subprocess.run(["mount", "-o", "remount,size=32m", project.path().parent], check=True)
        assert ran("--config", config, "run", "nightly").code == 0
        assert (chat.count, project.document()["attempts"]) == (1, 1)


def disk_fills_up(config: str) -> None:
    """Fill the disk between two attempts, and again while a reply is awaited; a paid reply is saved all the same."""
    project = Project(Path(config).parent)
    with chat_server(tool_calls(("c1", "list_files", "{}")), answer("é" * 50_000), held=True) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1h"}})
        chat.hold.set()
        assert real(config, "tick").code == 0
        ballast = project.path().with_name("ballast")
        fill(ballast)
        saved = project.path().read_bytes()
        full(config, "run", "nightly")
        assert real(config, "status").code == 0
        os.truncate(ballast, ballast.stat().st_size - 1024 * 1024)  # enough for the ledger, too little for a reply
        full(config, "run", "nightly")
        assert project.path().read_bytes() == saved
        assert counted(project.path().parent) == (1, 1)
        assert chat.count == 1
        ballast.unlink()
        chat.hold.clear()
        with project.start("run", "nightly") as process:
            chat.wait_for(2)
            fill(ballast)
            chat.hold.set()
            _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert project.document()["answer"] == "é" * 50_000
        assert counted(project.path().parent) == (2, 2)


def inodes_run_out(config: str) -> None:
    """Leave no inode on the disk, then some again."""
    project = Project(Path(config).parent)
    folder = project.path().parent
    with chat_server(tool_calls(("c1", "list_files", "{}")), answer("fin")) as chat:
        project.live(chat.url, {"nightly": {"schedule": "every 1h"}})
        assert real(config, "run", "nightly").code == 0
        made = []
        with contextlib.suppress(OSError):
            while len(made) < 1000:
                made.append(folder / f"file{len(made)}")
                made[-1].touch()
        full(config, "run", "nightly")
        assert chat.count == 1
        for path in made:
            path.unlink(missing_ok=True)
        assert counted(folder) == (1, 1)
        assert ran("--config", config, "run", "nightly").code == 0
        assert (chat.count, counted(folder)) == (2, (2, 2))


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ("disk_too_small", "size=64k"),
        ("disk_fills_up", "size=6m"),
        ("inodes_run_out", "size=64m,nr_inodes=40"),
    ],
)
def test_full_disk_costs_no_attempt_and_loses_nothing(steps: str, options: str, project: Project) -> None:
    folder = project.path().parent
    folder.mkdir(0o700)
    in_process(steps, project.config, wrap=mounted(f"mount -t tmpfs -o mode=700,{options} tmpfs {folder}"))


def test_file_size_limit_costs_no_attempt(begun: Project, chat: ChatServer) -> None:
    before = begun.path().read_bytes()
    told, tick = as_user(0, begun, ["run", "nightly"], ["tick"], wrap=["sh", "-c", 'ulimit -f 4; exec "$@"', "sh"])
    for each in (told, tick):
        assert each.code == 74
        assert str(begun.path().parent) in each.about("nightly")
    assert chat.count == 0
    assert begun.path().read_bytes() == before
    assert not list(begun.folder.rglob("*.tmp"))
    assert command(begun, "run", "nightly").code == 0
    assert begun.document()["attempts"] == 2


# ---- the ledger ----


def _other_database(path: Path, *statements: str) -> None:
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as other:
        for statement in statements:
            other.execute(statement)
        other.commit()


def _alter(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.execute(statement)
        ledger.commit()


def _cut(size: float) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, int(size if size > 1 else path.stat().st_size * size))


def _link_ledger(path: Path) -> None:
    path.rename(path.with_name("real.sqlite3"))
    path.symlink_to("real.sqlite3")


LEDGERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("not a database at all\n" * 300), "damaged"),
    "short text": (lambda path: path.write_text("xx"), "is damaged"),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), "damaged"),
    "another program's": (lambda path: _other_database(path, "CREATE TABLE document (x)"), "another program"),
    "another program's version": (
        lambda path: _other_database(path, "PRAGMA user_version=1", "CREATE TABLE t (x)"),
        "another program",
    ),
    "newer version": (lambda path: _alter(path, "PRAGMA user_version=99"), "version is 99"),
    "version zero": (lambda path: _alter(path, "PRAGMA user_version=0"), "version is 0"),
    "without a table": (lambda path: _alter(path, "DROP TABLE admission"), "damaged"),
    "cut to 60 bytes": (_cut(60), "is damaged"),
    "cut to a page": (_cut(4096), "damaged"),
    "cut to a third": (_cut(1 / 3), "damaged"),
    "cut in mid-page": (_cut(0.51), "damaged"),
    "cut by a page": (lambda path: os.truncate(path, path.stat().st_size - 4096), "damaged"),
    "directory": (lambda path: replace_path(path, Path.mkdir), "a directory"),
    "link": (_link_ledger, "a symbolic link"),
    "dangling link": (lambda path: replace_path(path, lambda at: at.symlink_to("nowhere")), "a symbolic link"),
    "FIFO": (lambda path: replace_path(path, os.mkfifo), "a FIFO"),
}


@pytest.mark.parametrize("case", LEDGERS)
def test_bad_ledger_blocks_its_folder_alone_until_adopt(case: str, begun: Project, chat: ChatServer) -> None:
    damage, words = LEDGERS[case]
    folder = begun.path().parent
    ledger = folder / ".ledger.sqlite3"
    damage(ledger)
    before = [trace(path) for path in (ledger, begun.path(), begun.path("sealed"))]
    told = command(begun, "run", "nightly", "sealed", "apart")
    assert told.code == 65
    for job in ("nightly", "sealed"):
        assert str(ledger) in told.about(job)
        assert words in told.about(job)
    assert chat.count == 1
    assert json.loads((begun.folder / "apart/apart.json").read_text())["answer"] == "fin"
    assert command(begun, "tick").code == 65
    told = command(begun, "check")
    assert told.code == 65
    assert words in told.about("nightly")
    assert (row(begun)["state"], row(begun, "apart")["state"]) == ("blocked", "done")
    assert command(begun, "status").code == 0
    assert command(begun, "show", "nightly").code == 65
    assert [trace(path) for path in (ledger, begun.path(), begun.path("sealed"))] == before
    assert chat.count == 1

    for path in folder.glob(".ledger.sqlite3*"):
        path.rename(path.with_name(f"aside{path.name}"))
    told = command(begun, "run", "nightly")
    assert told.code == 65
    told.one_line(str(begun.path()), "resumed adopt")
    assert command(begun, "adopt", "--all").code == 0
    assert command(begun, "run", "nightly", "sealed").code == 0
    assert (begun.document()["attempts"], begun.document("sealed")["answer"]) == (2, "sealed answer")
    assert chat.count == 2


@pytest.mark.parametrize("size", [0, 1])  # SQLite takes one byte for none
def test_ledger_of_no_bytes_is_a_new_one_that_knows_no_file(size: int, begun: Project, chat: ChatServer) -> None:
    ledger = begun.path().with_name(".ledger.sqlite3")
    os.truncate(ledger, size)
    before = trace(begun.path())
    assert row(begun)["state"] == "blocked"
    assert ledger.stat().st_size == size
    told = command(begun, "run", "nightly", "other")
    assert told.code == 65
    told.one_line(str(begun.path()), "resumed adopt")
    assert trace(begun.path()) == before
    assert begun.document("other")["status"] == "done"
    assert chat.count == 1
    assert command(begun, "adopt", "nightly").code == 0
    assert counted(ledger.parent)[1] == 1


@pytest.mark.parametrize("mode", [0o700, 0o500], ids=["a folder to write to", "a read-only folder"])
def test_ledger_whose_making_was_killed_is_one_that_has_not_begun(mode: int, offline: Project) -> None:
    folder = offline.path().parent
    with contextlib.closing(sqlite3.connect(offline.folder / "half", isolation_level=None)) as half:
        half.execute("PRAGMA cache_size=1")  # so that pages reach the disk before the commit
        half.execute("BEGIN IMMEDIATE")
        for statement in ";".join(SCRIPTS).split(";"):
            half.execute(statement)
        for suffix in ("", "-journal"):
            copy = folder / f".ledger.sqlite3{suffix}"
            shutil.copy(offline.folder / f"half{suffix}", copy)
            assert copy.stat().st_size > 0
            copy.chmod(0o600)
            os.chown(copy, NOBODY, NOBODY)
    folder.chmod(mode)
    before = listing(folder)
    status, show, check = as_user(NOBODY, offline, ["status", "--json"], ["show", "nightly"], ["check"])
    assert listing(folder) == before
    found = next(job for job in json.loads(status.out)["jobs"] if job["id"] == "nightly")
    assert (found["state"], found["attempts"], found["reason"]) == ("ready", 0, None)
    assert (show.code, "has not begun" in show.err) == (0, True)
    assert check.code == (0 if mode == 0o700 else 77)
    folder.chmod(0o700)
    assert [told.code for told in as_user(NOBODY, offline, ["run", "nightly"])] == [0]
    assert counted(folder) == (1, 1)


def test_document_altered_in_the_ledger_blocks_its_job(begun: Project, chat: ChatServer) -> None:
    ledger, before = begun.path().with_name(".ledger.sqlite3"), trace(begun.path())
    _alter(ledger, "UPDATE document SET body = CAST(replace(CAST(body AS TEXT), 'log', 'lag') AS BLOB)")
    for arguments in (["run", "nightly"], ["show", "nightly"], ["check"], ["repair", "nightly"]):
        told = command(begun, *arguments)
        assert told.code == 65
        assert f"{ledger} is damaged" in told.err or f"{begun.path()} is damaged" in told.err
    assert trace(begun.path()) == before
    assert chat.count == 0


@pytest.mark.parametrize("attempts", [1, 2])
def test_lost_write_ahead_log_makes_the_file_unknown_until_adopt(
    attempts: int, begun: Project, chat: ChatServer
) -> None:
    folder = begun.path().parent
    if attempts == 1:
        for path in folder.iterdir():
            path.unlink()
    chat.hold.clear()
    with begun.start("run", "nightly") as process:
        chat.wait_for(1)
        process.kill()
        process.communicate()
    chat.hold.set()
    assert (folder / ".ledger.sqlite3-wal").stat().st_size > 0
    for name in (".ledger.sqlite3-wal", ".ledger.sqlite3-shm"):
        (folder / name).unlink()
    before = trace(begun.path())
    assert begun.document()["attempts"] == attempts
    told = command(begun, "run", "nightly")
    assert told.code == 65
    told.one_line(str(begun.path()), "resumed adopt")
    told = command(begun, "repair", "nightly")
    assert told.code == 65
    assert trace(begun.path()) == before
    assert chat.count == 1
    assert command(begun, "adopt", "nightly").code == 0
    assert begun.document()["attempts"] == attempts
    for _ in range(5):
        command(begun, "run", "nightly")
    assert (begun.document()["attempts"], begun.document()["status"]) == (attempts + 1, "done")
    assert chat.count == 2


# ---- keys ----

BAD_KEYS = {
    "missing": (None, "missing or blank"),
    "blank": (" \t", "missing or blank"),
    "newline inside": ("sk-canary\nX: 1", "line break"),
    "carriage return": ("sk-canary\rX", "line break"),
    "not ASCII": ("sk-canáry-canary", "outside ASCII"),
    "control": ("sk-canary\x01", "control character"),
    "too long": ("canary" * 2000, "longer"),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_bad_key_blocks_before_anything_is_counted(
    case: str, begun: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, words = BAD_KEYS[case]
    monkeypatch.delenv("LOCAL_KEY")
    if key is not None:
        monkeypatch.setenv("LOCAL_KEY", key)
    begun.live(chat.url, jobs(other={"provider": "demo"}))
    before = trace(begun.path())
    told = command(begun, "run", "nightly", "other", "sealed")
    assert told.code == 65
    told.one_line("job nightly", "provider local", "LOCAL_KEY", words)
    told = command(begun, "check")
    assert told.code == 65
    assert words in told.about("nightly")
    assert trace(begun.path()) == before
    assert counted(begun.path().parent) == (1, 1)
    assert begun.document("other")["status"] == "done"
    assert chat.count == 0
    assert command(begun, "status").code == 0
    assert command(begun, "show", "nightly").code == 0
    assert not [path for path in begun.folder.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]


def test_bad_key_of_a_rehearsal_is_only_a_note(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.live(chat.url)
    project.config.write_text(project.config.read_text().replace('"live": true', '"live": false'))
    monkeypatch.setenv("LOCAL_KEY", "sk-canary\nX")
    told = command(project, "check")
    assert (told.code, told.err) == (0, "")
    assert "LOCAL_KEY" in told.out
    assert command(project, "run", "nightly").code == 0
    assert chat.count == 0


KEY_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "cannot be read"),
    "empty": (lambda path: path.write_bytes(b""), "missing or blank"),
    "two lines": (lambda path: path.write_text("sk-canary\nmore\n"), "line break"),
    "not ASCII": (lambda path: path.write_text("sk-canáry"), "outside ASCII"),
    "directory": (Path.mkdir, "regular file"),
    "FIFO": (os.mkfifo, "regular file"),
    "link": (lambda path: path.symlink_to("jobs.yaml"), "symbolic link"),
}


@pytest.mark.parametrize("case", KEY_FILES)
def test_bad_key_file_blocks_before_anything_is_counted(case: str, project: Project, chat: ChatServer) -> None:
    make, words = KEY_FILES[case]
    project.live(chat.url, provider={"key": {"file": "secret"}})
    make(project.folder / "secret")
    told = command(project, "run", "nightly")
    assert told.code == 65
    told.one_line("job nightly", str(project.folder / "secret"), words)
    assert chat.count == 0
    assert not project.path().exists()


@pytest.mark.keeps_key("project/secret", because="it is the key's own file")
def test_good_key_is_sent_and_stands_in_no_other_file(project: Project, chat: ChatServer) -> None:
    (project.folder / "secret").write_text(f"  {KEY}\r\n")
    project.live(chat.url, provider={"key": {"file": "secret"}})
    assert command(project, "run", "nightly").code == 0
    assert chat.headers[0]["Authorization"] == f"Bearer {KEY}"


# ---- what else a provider's entry names ----


@pytest.mark.parametrize("case", BAD_KEYS)
def test_bad_variable_of_a_header_blocks_before_anything_is_counted(
    case: str, begun: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, words = BAD_KEYS[case]
    monkeypatch.delenv("TEAM_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TEAM_KEY", value)
    begun.live(chat.url, jobs(), provider={"headers": {"X-Team": {"env": "TEAM_KEY"}}})
    before = trace(begun.path())
    told = command(begun, "run", "nightly")
    assert told.code == 65
    told.one_line("job nightly", "provider local", "X-Team", "TEAM_KEY", words)
    told = command(begun, "check")
    assert told.code == 65
    assert words in told.about("nightly")
    assert trace(begun.path()) == before
    assert counted(begun.path().parent) == (1, 1)
    assert chat.count == 0


CA_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "it cannot be read: No such file"),
    "without a certificate": (lambda path: path.write_text("hello"), "it holds no certificate"),
    "out of reach": (lambda path: path.symlink_to(path), "it cannot be read: Too many levels"),
}


@pytest.mark.parametrize("case", CA_FILES)
def test_bad_file_of_certificates_blocks_before_anything_is_counted(
    case: str, project: Project, chat: ChatServer
) -> None:
    make, words = CA_FILES[case]
    project.live(chat.url, provider={"ca_file": "tls.pem"})
    make(project.folder / "tls.pem")
    for arguments in (["run", "nightly"], ["check"]):
        told = command(project, *arguments)
        assert told.code == 65
        told.one_line("job nightly", "provider local", f"ca_file: {project.folder / 'tls.pem'}: {words}")
    assert chat.count == 0
    assert not project.path().exists()


def test_header_from_a_variable_is_sent_and_stands_in_no_file(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_KEY", f"Bearer {KEY[::-1]}")
    chat.script = [(500, {"error": {"message": f"no {KEY[::-1]}"}}), answer(f"you sent {KEY[::-1]}")]
    project.live(chat.url, provider={"headers": {"X-Team": {"env": "TEAM_KEY"}}, "extra_body": {"seed": 7}})
    assert command(project, "run", "nightly").code == 69
    assert command(project, "unblock", "local").code == 0
    told = command(project, "run", "nightly")
    assert told.code == 0
    assert "you sent ***" in told.out + told.err
    assert project.document()["history"][0]["reason"] == "500: no ***"
    assert chat.headers[1]["X-Team"] == f"Bearer {KEY[::-1]}"
    assert [request["seed"] for request in chat.requests] == [7, 7]
    holding = [path for path in project.folder.rglob("*") if path.is_file() and KEY[::-1].encode() in path.read_bytes()]
    assert holding == []


def test_another_value_of_a_header_s_variable_ends_the_rest_of_its_provider(
    project: Project, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.script = [(401, {"error": {"message": "who are you?"}}), answer("fin")]
    project.live(chat.url, provider={"headers": {"X-Team": {"env": "TEAM_KEY"}, "X-Title": "Night"}})
    monkeypatch.setenv("TEAM_KEY", "team-canary-1")
    assert command(project, "run", "nightly").code == 69
    assert command(project, "run", "nightly").code == 65
    assert chat.count == 1
    monkeypatch.setenv("TEAM_KEY", "team-canary-2")
    assert command(project, "run", "nightly").code == 0
    assert chat.count == 2


def test_provider_that_calls_its_own_field_wrong_is_understood_by_the_option_that_is_named(
    project: Project, chat: ChatServer
) -> None:
    asked = tool_calls(("c1", "list_files", "{}"))
    asked["choices"][0]["message"]["reasoning_content"] = "I look first"
    chat.script = [asked, (422, {"message": "messages.2.reasoning_content: extra input"}), answer("fin")]
    entry = {"idempotency_header": "Idempotency-Key"}
    (project.folder / "notes.md").write_text("x")
    project.live(chat.url, {"nightly": {"read": ["notes.md"]}}, provider=entry)
    assert command(project, "run", "nightly").code == 0
    told = command(project, "run", "nightly")
    assert told.code == 69
    assert "replay_fields: drop" in told.err
    project.live(chat.url, {"nightly": {"read": ["notes.md"]}}, provider=entry | {"replay_fields": "drop"})
    assert command(project, "run", "nightly").code == 0
    sent = ["reasoning_content" in json.dumps(request) for request in chat.requests]
    assert sent == [False, True, False]
    keys = [headers["Idempotency-Key"] for headers in chat.headers]
    assert len(set(keys)) == 3
    assert all(key.isascii() and key.isprintable() and len(key) <= 200 for key in keys)


def test_request_that_does_not_fit_into_the_window_is_not_counted(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": {"task": "word " * 2000}}, provider={"context_tokens": 1024})
    told = command(project, "run", "nightly")
    assert told.code == 65
    told.one_line("job nightly", "context_tokens")
    assert chat.count == 0


def test_bad_option_is_told_at_its_line_and_column_and_blocks_its_jobs(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, jobs(good={"provider": "demo"}))
    head, tail = project.config.read_text().split('"model": "m1",', 1)
    project.write(head + '"model": "m1", "extra_body": {"stream": true},' + tail)
    line = head.count("\n") + 1
    told = command(project, "check")
    assert told.code == 65
    assert f"{project.config}:{line}:" in told.err
    assert "extra_body: stream is not yours to set here" in told.err
    assert command(project, "run", "good").code == 0
    assert chat.count == 0


# ---- the command line and its environment ----


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nigthly"], "did you mean nightly?"),
        (["tick", "nightly", "seeled"], "did you mean sealed?"),
        (["show", "Nightly"], "did you mean nightly?"),
        (["repair", "zzz"], "it has apart, nightly, other, sealed"),
        (["adopt", "othr"], "did you mean other?"),
        (["revise", "othr", "--reason", "x"], "did you mean other?"),
        (["renew", "othr", "--reason", "x", "--confirm", "othr"], "did you mean other?"),
        (["unblock", "locl"], "did you mean local?"),
        (["show", "\x1b[31m"], "no job \\x1b[31m"),
        (["renew", "nightly", "--reason", "x", "--confirm", "sealed"], "nightly"),
        (["renew", "nightly", "--reason", " ", "--confirm", "nightly"], "--reason"),
        (["adopt"], "--all"),
        (["adopt", "nightly", "--all"], "--all"),
        ([], "COMMAND"),
        (["walk"], "walk"),
        (["run"], "JOB"),
        (["status", "--jsn"], "--jsn; see: resumed status --help"),
        (["status", "--config", "jobs.yaml"], "--config stands before the command; see: resumed --help"),
        (["show", "nightly", "--json", "--task"], "not allowed"),
        (["check", "--days", "0"], "1 to 3660"),
        (["check", "--days", "soon"], "1 to 3660"),
        (["check", "--days", "9" * 5000], "--days"),
        (["check", "--days", "²"], "1 to 3660"),
    ],
)
def test_wrong_usage_is_one_line_and_code_64(
    arguments: list[str], words: str, begun: Project, chat: ChatServer
) -> None:
    before = listing(begun.folder)
    told = command(begun, *arguments)
    assert (told.code, told.out) == (64, "")
    told.one_line(words)
    assert listing(begun.folder) == before
    assert chat.count == 0


def test_no_jobs_file_names_the_places_that_were_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    told = ran("status")
    assert told.code == 78
    told.one_line(
        "--config", "config/jobs.yaml", f"{tmp_path}/home/.config/resumed/jobs.yaml", "/etc/resumed/jobs.yaml"
    )
    assert not list(tmp_path.iterdir())


def test_jobs_file_is_looked_for_in_the_order_of_the_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, local = tmp_path / "home/.config/resumed/jobs.yaml", tmp_path / "config/jobs.yaml"
    named, given = tmp_path / "named.yaml", tmp_path / "given.yaml"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for path in (home, local, named, given):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"jobs:\n  nightly:\n{ENTRY}")
        if path == named:
            monkeypatch.setenv("RESUMED_CONFIG", str(named))
        found = ran("--config", given, "status", "--json") if path == given else ran("status", "--json")
        assert json.loads(found.out)["config"] == str(path)
    named.unlink()
    told = ran("status")
    assert told.code == 78
    told.one_line(str(named))
    told = ran("--config", tmp_path, "status")
    assert told.code == 78
    told.one_line(str(tmp_path), "a directory")


def test_reader_that_goes_away_is_no_fault(project: Project) -> None:
    entries = {
        f"job{number}": {"task": "x", "checkpoint": f"c/{number}.json", "provider": "demo"} for number in range(400)
    }
    project.write_jobs(entries)
    with project.start("status", "--json") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "{\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full", "2>&1 | true"])
def test_output_that_goes_nowhere_changes_no_job(streams: str, begun: Project, chat: ChatServer) -> None:
    line = f'"$@" {streams}'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *PROGRAM, "--config", begun.config, "run", "nightly"],
        env=begun.environ(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert (chat.count, begun.document()["answer"]) == (1, "fin")
    assert done.returncode == 0


def test_full_disk_behind_stdout_is_one_line(begun: Project) -> None:
    with open("/dev/full", "w") as sink:
        done = subprocess.run(
            [*PROGRAM, "--config", begun.config, "status"],
            env=begun.environ(),
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    told = judged(Told(done.returncode, "", done.stderr))
    assert told.code == 74
    told.one_line("space")


@pytest.mark.parametrize("streams", [">/dev/full", "| true"])
def test_work_asks_although_nobody_reads_its_events(streams: str, tmp_path: Path, chat: ChatServer) -> None:
    path = tmp_path / "x.json"
    arguments = ["work", "x", "--live", "--once", "--checkpoint", path, "--base-url", chat.url]
    subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", *PROGRAM, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "MANDAPI_API_KEY": KEY, "MANDAPI_MODEL_ID": "m"},
        capture_output=True,
        timeout=60,
    )
    assert (chat.count, json.loads(path.read_text())["answer"]) == (1, "fin")


ENCODINGS = [
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
]


@pytest.mark.parametrize("environ", ENCODINGS)
def test_no_output_encoding_is_a_fault_and_the_answer_keeps_its_bytes(
    environ: dict[str, str], begun: Project, chat: ChatServer
) -> None:
    chat.script = [answer("Año → 日本 🎉\n")]
    begun.live(chat.url, jobs(nightly={"task": "Summarise the log"}))
    command(begun, "run", "nightly")
    for arguments in (["show", "nightly"], ["show", "nightly", "--answer"]):
        shown = subprocess.run(
            [*PROGRAM, "--config", begun.config, *arguments],
            env=begun.environ(**environ),
            capture_output=True,
            timeout=60,
        )
        assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout == "Año → 日本 🎉\n".encode()


# ---- status and show ----


def test_status_json_has_exactly_the_listed_shape(begun: Project, chat: ChatServer) -> None:
    chat.script = [(500, {"error": {"message": "down"}})]
    command(begun, "run", "apart")
    told = command(begun, "status", "--json")
    found = json.loads(told.out)
    assert list(found) == ["config", "live", "problem", "daemon", "jobs", "rests", "notify", "series"]
    assert (found["config"], found["live"]) == (str(begun.config), True)
    assert [entry["id"] for entry in found["jobs"]] == ["apart", "nightly", "other", "sealed"]
    fields = "id state attempts max_attempts schedule next_point last_point outcome reason model provider rehearsal"
    for entry in found["jobs"]:
        assert list(entry) == [*fields.split(), "checkpoint", "answer", "review", "delivery", "running_since"]
        assert os.path.isabs(entry["checkpoint"])
    apart, nightly, other, sealed = found["jobs"]
    assert (nightly["state"], nightly["attempts"], nightly["outcome"]) == ("ready", 1, "tool_calls")
    assert (nightly["max_attempts"], nightly["schedule"], nightly["provider"]) == (4, "every 1h", "local")
    assert (nightly["model"], nightly["rehearsal"], nightly["answer"], nightly["review"]) == ("m1", False, None, None)
    assert nightly["checkpoint"] == str(begun.path())
    assert (other["state"], other["attempts"], other["outcome"], other["model"]) == ("ready", 0, None, "m1")
    assert (sealed["state"], sealed["answer"], sealed["next_point"]) == ("done", "sealed answer", None)
    assert (apart["outcome"], apart["attempts"]) == ("http_error", 1)
    assert "down" in apart["reason"]
    for moment in (nightly["next_point"], other["next_point"], nightly["last_point"]):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", moment)
    (rest,) = found["rests"]
    assert (rest["provider"], "down" in rest["reason"]) == ("local", True)
    assert {"model", "until"} <= set(rest)


def test_status_table_is_aligned_and_marks_answers_unreviewed(begun: Project) -> None:
    told = command(begun, "status")
    header, *lines = told.out.splitlines()[1:]
    assert header.split("  ")[0] == "JOB"
    rows = {line.split()[0]: line for line in lines}
    assert list(rows) == ["apart", "nightly", "other", "sealed"]
    for name, words in [
        ("STATE", ("ready", "done")),
        ("ATTEMPTS", ("●○○○", "○○○○")),
        ("LAST OUTCOME", ("-", "tool_calls", "answered")),
    ]:
        at = header.index(name)
        assert all(line[at:].startswith(words) and line[at - 2 : at] == "  " for line in lines)
    assert rows["nightly"].split()[1:4] == ["ready", "●○○○", "tool_calls"]
    assert rows["sealed"].endswith("unreviewed: sealed answer")
    assert "REHEARSAL" not in told.out


def test_rehearsal_is_marked_wherever_it_is_shown(project: Project, chat: ChatServer) -> None:
    project.live(chat.url, {"nightly": {}, "shown": {"provider": "demo"}})
    project.config.write_text(project.config.read_text().replace('"live": true', '"live": false'))
    assert command(project, "run", "nightly", "shown").code == 0
    lines = {line.split()[0]: line for line in command(project, "status").out.splitlines()}
    assert "REHEARSAL" in lines["nightly"]
    assert "REHEARSAL" not in lines["shown"]
    found = row(project)
    assert (found["rehearsal"], found["state"]) == (True, "done")
    assert found["checkpoint"] == str(project.folder / "checkpoints/rehearsal/nightly.json")
    assert (row(project, "shown")["rehearsal"], row(project, "shown")["checkpoint"]) == (
        False,
        str(project.path("shown")),
    )
    for arguments in (["show", "nightly"], ["check"]):
        assert "REHEARSAL" in command(project, *arguments).out
    assert not project.path().exists()
    assert chat.count == 0


def test_each_state_is_told(begun: Project, chat: ChatServer) -> None:
    begun.path("sealed").write_text("[]")
    chat.script = [tool_calls(("c1", "x", "{}")), (400, {"error": {"message": "no"}}), answer("late")]
    begun.live(chat.url, jobs(other={"max_attempts": 1}))
    command(begun, "run", "apart")
    command(begun, "run", "other")
    chat.hold.clear()
    with begun.start("run", "nightly") as process:
        chat.wait_for(3)
        states = {name: row(begun, name)["state"] for name in jobs()}
        assert states == {"nightly": "running", "sealed": "blocked", "other": "exhausted", "apart": "ready"}
        assert row(begun)["attempts"] == 2
        process.kill()
        process.communicate()
    before = listing(begun.folder)
    assert (row(begun)["state"], row(begun)["outcome"]) == ("ready", "interrupted")
    assert listing(begun.folder) == before


def test_a_stopped_process_past_its_deadline_still_runs_and_is_named(begun: Project) -> None:
    with chat_server(held=True) as chat:
        begun.live(chat.url, jobs())
        with begun.start("run", "other") as process:
            try:
                chat.wait_for(1, 60)
                process.send_signal(signal.SIGSTOP)
                _alter(begun.path().with_name(".ledger.sqlite3"), "UPDATE admission SET deadline = 1")
                found = row(begun, "other")
                told = command(begun, "run", "other")
            finally:
                process.kill()
                process.communicate()
    assert (found["state"], found["attempts"], found["outcome"]) == ("running", 1, None)
    assert f"attempt 1 is still held by process {process.pid}, which lives, past its deadline" in found["reason"]
    assert told.code == 75
    told.one_line(f"in use by another process ({process.pid})", "nothing was counted")
    assert row(begun, "other")["outcome"] == "interrupted"  # now it is dead


def test_show_prints_the_parts_for_a_person_and_the_document_for_a_program(begun: Project, chat: ChatServer) -> None:
    assert command(begun, "run", "nightly").code == 0
    assert "CONVERSATION" not in command(begun, "show", "nightly").out
    told = command(begun, "show", "nightly", "--conversation")
    places = [told.out.index(f"\n{part}") for part in ("TASK\n", "ANSWER (unreviewed", "ATTEMPTS\n", "CONVERSATION\n")]
    assert places == sorted(places)
    for text in ("done, 2 of 4 attempts", "Summarise the log", "list_files", "tool_calls", "answered", "  fin"):
        assert text in told.out
    assert json.loads(command(begun, "show", "nightly", "--json").out) == begun.document()
    assert command(begun, "show", "nightly", "--answer").out == "fin"
    assert command(begun, "show", "nightly", "--task").out == "Summarise the log\n"
    begun.live(chat.url, jobs(nightly={"task": "Another task"}))
    assert command(begun, "show", "nightly", "--task").out == "Summarise the log\n"
    assert "edited since" in command(begun, "show", "nightly").out
    found = row(begun)
    assert (found["state"], found["answer"]) == ("done", None)
    assert "edited since" in found["reason"]


def test_show_of_what_is_not_there_yet_says_so(begun: Project, chat: ChatServer) -> None:
    told = command(begun, "show", "other")
    assert (told.code, told.out) == (0, "")
    assert "has not begun" in told.err
    for part in ("--json", "--task", "--answer"):
        told = command(begun, "show", "other", part)
        assert (told.code, told.out) == (75, "")
        assert "has not begun" in told.err
    told = command(begun, "show", "nightly", "--answer")
    assert (told.code, told.out) == (75, "")
    told.one_line("no answer yet")
    chat.script = [(400, {"error": {"message": "no"}})]
    begun.live(chat.url, jobs(other={"max_attempts": 1}))
    command(begun, "run", "other")
    assert command(begun, "show", "other", "--answer").code == 69


@pytest.fixture
def nasty(project: Project, chat: ChatServer) -> Project:
    """A job whose stored texts hold what a terminal acts on: tool call, its result, answer; and a failed one."""
    chat.script = [
        tool_calls(("c\x1b1", f"read{NASTY}", json.dumps({"path": NASTY}, ensure_ascii=False))),
        answer(NASTY),
    ]
    chat.script.append((400, {"error": {"message": NASTY}}))
    project.live(chat.url, {"nightly": {}, "failed": {}})
    for job in ("nightly", "nightly", "failed"):
        told = command(project, "run", job)
        assert not ACTING.search(told.out + told.err), told
    return project


def test_nothing_stored_acts_on_a_terminal(nasty: Project) -> None:
    assert nasty.document()["answer"] == NASTY
    for arguments in (
        ["status"],
        ["status", "--json"],
        ["show", "nightly"],
        ["show", "nightly", "--json"],
        ["show", "nightly", "--task"],
        ["show", "failed"],
        ["check"],
    ):
        told = command(nasty, *arguments)
        assert not ACTING.search(told.out + told.err), (arguments, told)
    assert row(nasty)["answer"] == NASTY
    assert json.loads(command(nasty, "show", "nightly", "--json").out) == nasty.document()
    assert "\\x1b[31mred" in command(nasty, "show", "nightly").out
    assert command(nasty, "show", "nightly", "--answer").out == NASTY


def test_answer_is_raw_in_a_pipe_and_escaped_on_a_terminal(nasty: Project) -> None:
    arguments = [*PROGRAM, "--config", str(nasty.config), "show", "nightly", "--answer"]
    piped = subprocess.run(arguments, env=nasty.environ(), capture_output=True, timeout=60, check=True)
    assert piped.stdout == NASTY.encode()
    leader, follower = pty.openpty()
    with open(leader, "rb", buffering=0) as terminal:
        subprocess.run(arguments, env=nasty.environ(), stdout=follower, timeout=60, check=True)
        shown = terminal.read(4096).decode().replace("\r\n", "\n")
        os.close(follower)
    assert "\\x1b[31mred" in shown
    assert not ACTING.search(shown)


def test_names_of_files_do_not_act_on_a_terminal(project: Project, chat: ChatServer) -> None:
    folder = project.folder / "a\x1b[31m\u202eb"
    folder.mkdir(0o700)
    there = Project(folder)
    there.live(chat.url)
    there.path().parent.mkdir(0o700)
    for arguments in (["run", "nightly"], *LOOKING):
        told = command(there, *arguments)
        assert told.code == 0
        assert not ACTING.search(told.out + told.err), (arguments, told)
    there.path().write_text("[]")
    for arguments in (["run", "nightly"], *LOOKING):
        told = command(there, *arguments)
        assert not ACTING.search(told.out + told.err), (arguments, told)


def test_readers_write_nothing(begun: Project, chat: ChatServer) -> None:
    (begun.path().parent / ".nightly.json.0123456789abcdef.tmp").write_text("left by a killed process")
    begun.path("sealed").unlink()  # behind: only a lock holder puts it back
    before = listing(begun.folder)
    for arguments in (*LOOKING, ["show", "sealed"], ["show", "other"], ["show", "nightly", "--json"]):
        assert command(begun, *arguments).code == 0
    for arguments in LOOKING:
        begun.run(*arguments)
    assert listing(begun.folder) == before
    assert row(begun, "sealed")["answer"] == "sealed answer"
    assert chat.count == 0


def test_readers_make_neither_folder_nor_ledger(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    for arguments in LOOKING:
        assert command(project, *arguments).code == 0
    assert os.listdir(project.folder) == ["jobs.yaml"]


# ---- exit codes that nothing above got from the real program ----


def test_exit_codes_of_the_real_program(begun: Project, chat: ChatServer) -> None:
    begun.run("status")
    begun.run("walk", code=64)
    with hold(begun.path()):
        done = begun.run("run", "nightly", code=75)
        assert "in use" in done.stderr
    chat.script = [(400, {"error": {"message": "no"}})]
    begun.run("run", "other", code=69)
    begun.path().write_text("[]")
    done = begun.run("tick", "nightly", code=65)
    assert str(begun.path()) in done.stderr
    begun.write("")
    begun.run("tick", code=78)


def test_the_gravest_of_several_results_is_the_exit_code(begun: Project, chat: ChatServer) -> None:
    chat.script = [(400, {"error": {"message": "no"}})]
    begun.path("sealed").write_text("[]")
    with hold(begun.path()):
        assert command(begun, "run", "nightly").code == 75
        assert command(begun, "run", "nightly", "other").code == 69
        assert command(begun, "run", "nightly", "other", "sealed").code == 65
    (begun.folder / "apart").mkdir(0o777)
    (begun.folder / "apart").chmod(0o777)
    assert command(begun, "run", "nightly", "sealed", "apart").code == 77


# ---- work ----


@pytest.mark.parametrize("flags", [[], ["--live", "--demo"]])
def test_work_wants_one_of_live_and_demo_and_else_makes_nothing(flags: list[str], tmp_path: Path) -> None:
    told = ran("work", "x", "--once", "--checkpoint", tmp_path / "deep/x.json", *flags)
    assert (told.code, told.out) == (64, "")
    told.one_line("--demo", "--live")
    assert not list(tmp_path.iterdir())


def test_work_of_the_demo_takes_two_slices_and_then_none(tmp_path: Path) -> None:
    path = tmp_path / "deep/x.json"
    arguments = ["work", "How long does shipping take at the demo shop?", "--demo", "--once", "--checkpoint", path]
    first, second, third = (ran(*arguments) for _ in range(3))
    assert [each.code for each in (first, second, third)] == [0, 0, 0]
    assert "attempt 1 of 4" in first.out
    assert "state: ready, 1 attempt," in first.out
    assert "attempt 2 of 4" in second.out
    assert "state: done, 2 attempts" in second.out
    assert "unreviewed" in second.out
    assert "attempt" not in third.out.replace("attempts", "")
    assert "state: done, 2 attempts" in third.out
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["status"] == "done"


def test_work_without_once_goes_on_to_the_answer(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "work", "How long does shipping take?", "--demo", "--checkpoint", "x.json"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "state: done, 2 attempts" in done.stdout
    assert json.loads((tmp_path / "x.json").read_text())["attempts"] == 2


def test_work_of_another_task_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert ran("work", "one task", "--demo", "--once", "--checkpoint", path).code == 0
    before = trace(path)
    told = ran("work", "another task", "--demo", "--once", "--checkpoint", path)
    assert told.code == 65
    told.one_line("another")
    assert trace(path) == before


@pytest.mark.parametrize("case", DAMAGES)
def test_work_refuses_a_bad_checkpoint_and_leaves_it(case: str, begun: Project, chat: ChatServer) -> None:
    DAMAGES[case][0](begun.path())
    before = trace(begun.path())
    told = ran("work", "Summarise the log", "--demo", "--checkpoint", begun.path())
    assert (told.code, told.out) == (65, "")
    told.one_line(str(begun.path()))
    assert trace(begun.path()) == before


TOOLS = tool_calls(("c1", "list_files", "{}"))
DOWN = (500, {"error": {"message": "down"}})


@pytest.mark.parametrize(
    ("script", "once", "posts", "code", "state"),
    [
        ([answer("fin")], True, 1, 0, "done, 1 attempt"),
        ([TOOLS], True, 1, 0, "ready, 1 attempt"),
        ([TOOLS, TOOLS, answer("fin")], False, 3, 0, "done, 3 attempts"),
        ([TOOLS, DOWN, answer("never asked for")], False, 2, 69, "ready, 2 attempts"),
        ([DOWN, answer("never asked for")], False, 1, 69, "ready, 1 attempt"),
        ([answer(""), answer("never asked for")], False, 1, 69, "ready, 1 attempt"),
        ([TOOLS], False, 4, 69, "exhausted, 4 attempts"),
    ],
)
def test_work_sends_one_request_once_and_else_while_there_is_progress(
    script: list[Any],
    once: bool,
    posts: int,
    code: int,
    state: str,
    tmp_path: Path,
    chat: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MANDAPI_API_KEY", KEY)
    monkeypatch.setenv("MANDAPI_MODEL_ID", "m7")
    chat.script = script
    path = tmp_path / "x.json"
    told = ran("work", "x", "--live", *["--once"] * once, "--checkpoint", path, "--base-url", chat.url)
    assert (told.code, chat.count) == (code, posts), told
    assert f"state: {state}, model m7" in told.out
    assert chat.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert chat.requests[0]["model"] == "m7"
    assert json.loads(path.read_text())["attempts"] == posts


@pytest.mark.parametrize("lacking", ["MANDAPI_API_KEY", "MANDAPI_MODEL_ID"])
@pytest.mark.parametrize("value", [None, "", " "])
def test_work_live_without_key_or_model_counts_nothing(
    lacking: str, value: str | None, tmp_path: Path, chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANDAPI_API_KEY", KEY)
    monkeypatch.setenv("MANDAPI_MODEL_ID", "m7")
    monkeypatch.delenv(lacking)
    if value is not None:
        monkeypatch.setenv(lacking, value)
    told = ran("work", "x", "--live", "--checkpoint", tmp_path / "x.json", "--base-url", chat.url)
    assert (told.code, told.out) == (65, "")
    told.one_line(lacking)
    assert not list(tmp_path.iterdir())
    assert chat.count == 0


@pytest.mark.parametrize("url", ["http://192.0.2.1/v1", "ftp://127.0.0.1/v1", "nonsense", " "])
def test_work_refuses_an_address_before_anything_is_counted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANDAPI_API_KEY", KEY)
    monkeypatch.setenv("MANDAPI_MODEL_ID", "m7")
    told = ran("work", "x", "--live", "--once", "--checkpoint", tmp_path / "x.json", "--base-url", url)
    assert told.code in (64, 65)
    told.one_line("http")
    assert not list(tmp_path.iterdir())


def test_a_job_whose_next_request_is_too_large_is_blocked_in_status_and_check_with_or_without_files(
    project: Project,
) -> None:
    (project.folder / "log.txt").write_text("text")
    too_long = (400, {"error": {"message": "maximum context length is 9 tokens"}})
    jobs = {"reads": {"read": ["log.txt"]}, "plain": {}}
    with chat_server(too_long) as chat:
        project.live(chat.url, jobs)
        project.run("run", "reads", "plain", code=69)
        for name in jobs:
            row = project.status(name)
            assert (row["state"], "refused a request of" in row["reason"]) == ("blocked", True)
        assert project.run("check", code=65).stderr.count("the request cannot be sent") == 2
        project.live(chat.url, jobs, provider={"context_tokens": 50_000})
        assert {project.status(name)["state"] for name in jobs} == {"ready"}
        assert chat.count == 2


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["FIFO", "link", "directory"])
def test_what_stands_where_sqlite_writes_is_left_as_it_is(
    suffix: str, kind: str, begun: Project, chat: ChatServer
) -> None:
    path = begun.path().with_name(f".ledger.sqlite3{suffix}")
    {"FIFO": os.mkfifo, "link": lambda at: at.symlink_to("/dev/null"), "directory": Path.mkdir}[kind](path)
    before = trace(path)
    told = command(begun, "run", "nightly")
    assert told.code == 65
    assert str(path) in told.about("nightly")
    assert trace(path) == before
    assert chat.count == 0

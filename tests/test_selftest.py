"""`resumed selftest`: it tries what it says, leaves nothing behind, and tells a program whose promises are broken."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import pytest

from scheduler.cli.diagnose import _disk
from scheduler.selftest import Report, Row, opening_line, report_text
from scheduler.steps import RECOVERY, SLICE, Step, find
from scheduler.trials import KINDS
from tests.faults.killed_at import DELIVERY, OPENED
from tests.support import PROGRAM, ROOT, Project, wait_until

NOBODY_ID = 65534
NOBODY = f"import os, filelock, scheduler.cli.diagnose; os.geteuid() or os.setuid({NOBODY_ID})"

# A program that dies where it goes to a network, or asks for a name.
OFFLINE = """
import os, sys
sys.addaudithook(lambda event, _: event in ("socket.connect", "socket.bind", "socket.getaddrinfo") and os._exit(97))
"""
MAIN = "import sys; from scheduler.cli import main; sys.exit(main(sys.argv[1:]))"


def run(project: Project, *arguments: str, before: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program after some lines of Python."""
    command = [sys.executable, "-c", f"{before}\n{MAIN}", "--config", str(project.config), *arguments]
    environ = project.environ(HOME=str(home(project)))
    done = subprocess.run(command, env=environ, cwd=home(project), capture_output=True, text=True, timeout=110)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


def home(project: Project) -> Path:
    folder = project.folder.parent / "home"
    folder.mkdir(exist_ok=True)
    return folder


def tried_in(out: str) -> Path:
    """The folder that the first line names."""
    found = re.match(r"in (/.+) \(removed at the end, unless a promise fails\); file system: .+", out)
    assert found, out
    return Path(found[1])


def files(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_promise_is_tried_beside_the_checkpoints_and_nothing_stays(project: Project) -> None:
    project.write_jobs({"nightly": {"task": "Greet", "checkpoint": "checkpoints/nightly.json", "provider": "demo"}})
    project.run("run", "nightly")
    before = files(project.folder)
    done = run(project, "selftest", before=OFFLINE)
    assert done.stderr == ""
    folder = tried_in(done.stdout)
    assert folder.parent == project.path().parent
    _, *table, closing = done.stdout.splitlines()
    rows = [re.split(r"  +", line) for line in table]
    assert rows[0] == ["WHAT", "CASES", "RESULT"]
    assert [(what, int(cases)) for what, cases, _ in rows[1:]] == [
        ("files and folders that are private, 0600 and 0700", 4),
        ("a file that is replaced in one step, and synced", 20),
        ("two processes that want one lock", 4),
        ("killed in a first slice", 29),
        ("killed in a slice after a tool call", 25),
        ("killed in the last attempt", 25),
        ("killed while it recovers", 8),
        ("a checkpoint with a flipped bit", 16),
        ("an older copy of a checkpoint, or none", 4),
    ]
    assert re.fullmatch(r"87 kills, nothing lost, nothing exceeded; took \d+ s", closing)
    assert not folder.exists()
    assert files(project.folder) == before
    assert files(home(project)) == {}


# ---- programs that are broken on purpose

LATE = """
from scheduler import checkpoint
real, publish = checkpoint.Checkpoint.admit, checkpoint.publish

def admit(*arguments):
    checkpoint.publish = lambda *_: None
    try:
        return real(*arguments)
    finally:
        checkpoint.publish = publish

checkpoint.Checkpoint.admit = admit
"""
SHORT = """
from scheduler import selftest
selftest.KINDS = selftest.KINDS[:1]
"""
FORGETFUL = """
from scheduler import ledger
real = ledger.Ledger.admit

def admit(self, *arguments):
    version = real(self, *arguments)
    with self.writing() as tx:
        tx.execute("DELETE FROM admission")
    return version

ledger.Ledger.admit = admit
"""
HARMLESS = """
from scheduler import trials
trials.arm = lambda _: None
"""
UNLOCKED = """
import filelock
filelock.FileLock.acquire = lambda *_, **__: None
"""
TRUSTING = """
from scheduler import checkpoint
checkpoint.is_behind = lambda *_: True
"""
STUBBORN = """
from scheduler import checkpoint
checkpoint.is_behind = lambda path, body, record: False
"""
OPEN = """
import os
os.fchmod = lambda *_: None
"""
ONE_ROW = """
import pathlib, sys
from scheduler import selftest
from scheduler.trials import KINDS
folder = pathlib.Path(sys.argv[1])
print(*({row}).faults, sep="\\n")
"""
ROWS = {
    "modes": 'selftest._once(folder, "", 1, "", selftest._modes)',
    "locks": 'selftest._once(folder, "", 1, "", selftest._locks, apart=False)',
    "flips": 'selftest._once(folder, "", 1, "", selftest._flips)',
    "copies": 'selftest._once(folder, "", 1, "", selftest._copies)',
    "first": "selftest._kills(folder, KINDS[0])",
}


def test_a_count_that_comes_after_the_request_is_told_and_its_traces_are_kept(project: Project) -> None:
    done = run(project, "selftest", "--folder", str(home(project)), before=LATE + SHORT, code=1)
    assert "I2: the model was asked before ledger and file had counted it" in done.stdout
    assert re.search(r"(?m)^killed in a first slice +29 +FAILED: \d+$", done.stdout)
    assert done.stdout.count("wrong  killed in a first slice: at ") == 3
    assert re.search(r"(?m)^ +and \d+ more of them$", done.stdout)
    folder = tried_in(done.stdout)
    closing = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"\d+ kills, \d+ promises broken; took \d+ s; all of it is kept: (/.+)", closing)
    assert closing.endswith(f": {folder}")
    assert (folder / "in-a-first-slice.unlock-after/checkpoints/job.json").exists()


@pytest.mark.parametrize(
    ("broken", "row", "told"),
    [
        (FORGETFUL, "first", "at admit-after: I11: 0 attempts are admitted and 1 counted, not 1"),
        (HARMLESS, "first", "at lock-before: it was not killed: the step was not reached"),
        (UNLOCKED, "locks", "I1: two processes had the lock of one checkpoint"),
        (TRUSTING, "flips", "I3: a damaged checkpoint was not refused"),
        (STUBBORN, "copies", "I11: the newest version was not put back"),
        (OPEN, "modes", "job.json has mode 0000, not 0600"),
    ],
    ids=["forgetful", "harmless", "unlocked", "trusting", "stubborn", "open"],
)
def test_what_is_broken_on_purpose_is_told(tmp_path: Path, broken: str, row: str, told: str) -> None:
    command = [sys.executable, "-c", broken + ONE_ROW.format(row=ROWS[row]), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert told in done.stdout


NO_KILLS = """
from scheduler import selftest
selftest.KINDS = ()
"""
NO_REMOVAL = """
import sys

def refuse(event, _):
    if event == "shutil.rmtree":
        raise PermissionError(13, "Permission denied")

sys.addaudithook(refuse)
"""


def test_the_exit_code_tells_a_broken_promise_where_nobody_reads(project: Project) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", OPEN + NO_KILLS + MAIN, "selftest", "--folder", str(home(project))]
    done = subprocess.run(
        command, env=project.environ(), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=110, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
    assert [path.name[:10] for path in home(project).iterdir()] == [".selftest-"]


def test_a_folder_is_named_on_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "a b\nc"
    folder.mkdir()
    assert opening_line(folder).startswith(rf"in {tmp_path}/a b\x0ac (removed at the end")
    closing = report_text(Report([Row("locks", 1, "", ["broken"])], 1, folder)).splitlines()[-1]
    assert closing.endswith(rf"all of it is kept: {tmp_path}/a b\x0ac")


def test_a_folder_that_cannot_be_removed_is_named(project: Project) -> None:
    done = run(project, "selftest", "--folder", ".", before=NO_KILLS + NO_REMOVAL, code=77)
    assert f"{tried_in(done.stdout)}: permission denied" in done.stderr
    assert done.stderr.endswith(" Its folder could not be removed.\n")
    assert done.stderr.count("\n") == 1


def test_it_works_under_a_umask_that_takes_all_rights(project: Project) -> None:
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY_ID, -1)
        run(
            project,
            "selftest",
            "--folder",
            name,
            before=f"import encodings.ascii\n{NOBODY}\nos.umask(0o777)\n{NO_KILLS}",
        )
        assert list(Path(name).iterdir()) == []


# ---- where it is killed


@pytest.mark.parametrize("step", [*SLICE.values(), *RECOVERY.values(), *OPENED.values(), *DELIVERY.values()], ids=str)
def test_the_function_of_each_step_exists(step: Step) -> None:
    assert find(step)


def test_no_step_of_a_slice_is_left_out() -> None:
    assert {name for kind in KINDS for name in kind.steps} == {*SLICE, *RECOVERY}


def test_a_step_whose_function_is_gone_is_a_fault_of_the_program(project: Project) -> None:
    broken = "from scheduler import calls, trials\ndel calls.call_tool"
    done = run(project, "selftest", before=broken, code=70)
    assert "call_tool" in done.stderr
    assert not tried_in(done.stdout).exists()


# ---- ended early


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_stays_where_it_is_interrupted(project: Project, number: int) -> None:
    command = [*PROGRAM, "selftest", "--folder", str(home(project))]
    with subprocess.Popen(
        command,
        env=project.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            folder = tried_in(process.stdout.readline())
            wait_until(lambda: (folder / "in-a-first-slice").exists(), 60, "the first kill")
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "")
    assert list(home(project).iterdir()) == []
    wait_until(lambda: not is_there(process.pid), 60, "the end of all processes of its session")


# ---- folders that will not do

NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))"


NO_FILES = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (11, 11))"
NO_PROCESS = """
import os

def fork():
    raise BlockingIOError(11, "Resource temporarily unavailable")

os.fork = fork
"""


@pytest.mark.parametrize(
    ("before", "folder", "code", "told"),
    [
        (NO_FILES, ".", 74, "Too many open files"),
        (NO_PROCESS, ".", 75, "no further process could be started"),
        (NO_ROOM, ".", 74, "no space left on the disk for what the self-test writes"),
        (NOBODY, "../closed", 77, "permission denied"),
        ("", "../none", 64, "there is no such folder"),
        ("", "../project/jobs.yaml", 64, "there is no such folder"),
    ],
    ids=["files", "processes", "full", "closed", "missing", "file"],
)
def test_a_folder_that_will_not_do_is_refused_in_one_line(
    project: Project, before: str, folder: str, code: int, told: str
) -> None:
    project.write("")
    closed = project.folder.parent / "closed"
    closed.mkdir(0o500)
    done = run(project, "selftest", "--folder", folder, before=before, code=code)
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert [*home(project).iterdir(), *closed.iterdir()] == []


def test_the_folder_is_that_of_the_first_checkpoints_that_can_be_used(project: Project) -> None:
    def chosen() -> Path:
        return _disk(Namespace(folder=None, config=str(project.config)))

    assert chosen() == Path()
    project.write_jobs(
        {
            name: {"task": "Greet", "checkpoint": f"{name}/job.json", "provider": "demo"}
            for name in ("one", "two", "three")
        }
    )
    assert chosen() == Path()
    for name in ("one", "two", "three"):
        (project.folder / name).mkdir(0o700)
    assert chosen() == project.folder / "one"
    (project.folder / "one").chmod(0o777)
    assert chosen() == project.folder / "two"

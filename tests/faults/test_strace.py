"""What the other harnesses rest on: a trace is read whole, a kill and an error happen where they are asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.faults.cases import needs
from tests.faults.strace import attached, parsed, traced


def test_calls_that_another_thread_interrupts_are_put_together() -> None:
    text = (
        '7 openat(AT_FDCWD, "/a", O_RDONLY) = 3</a>\n'
        "7 fsync(3</a> <unfinished ...>\n"
        '8 unlink("/b") = -1 ENOENT (No such file or directory)\n'
        "7 <... fsync resumed>) = -1 EIO (Input/output error) (INJECTED)\n"
        "7 flock(3</a>, LOCK_EX) = ?\n"
        "7 +++ killed by SIGKILL +++\n"
    )
    assert [(one.pid, one.name, one.result, one.error, one.injected) for one in parsed(text)] == [
        (7, "openat", "3", "", False),
        (7, "fsync", "-1", "EIO", True),
        (8, "unlink", "-1", "ENOENT", False),
        (7, "flock", "?", "", False),
    ]


def test_a_kill_and_an_error_happen_at_the_call_that_is_named() -> None:
    needs("strace")
    command = [
        sys.executable,
        "-I",
        "-c",
        "import os\nfor _ in range(9): os.access('/nowhere', 0)\nos.mkdir('/proc/x')",
    ]
    environ = {"PATH": os.environ["PATH"]}
    killed = traced(command, ["access"], inject="access:signal=SIGKILL:when=5", environ=environ)
    assert killed.code == -signal.SIGKILL or killed.code == 128 + signal.SIGKILL
    assert sum("/nowhere" in call.arguments for call in killed.calls) < 9
    failed = traced(command, ["mkdir"], inject="mkdir:error=EDQUOT:when=1", environ=environ)
    assert [call.error for call in failed.injected] == ["EDQUOT"]
    assert "Disk quota exceeded" in failed.err


def test_a_kill_is_counted_from_where_strace_comes_to_a_running_program() -> None:
    needs("strace")
    code = "import os, sys\nfor _ in range(9): os.access('/nowhere', 0)\nprint('ready')\nsys.stdin.read(1)\n"
    code += "for _ in range(9): os.access('/there', 0)"
    with subprocess.Popen(
        [sys.executable, "-I", "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout
        assert program.stdout.readline() == b"ready\n"
        fault = "access:signal=SIGKILL:when=5"
        with attached(program.pid, ["access"], inject=fault) as calls:
            program.communicate(b"1", timeout=60)
    assert program.returncode == -signal.SIGKILL
    assert [call.result for call in calls] == ["-1"] * 4 + ["?"]

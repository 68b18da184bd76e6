"""The real program under strace: which system calls it makes, and what is done to one of them.

Traps: `-e trace=none` turns injection off without a word, and --seccomp-bpf that of signals. So each call that is
injected is traced too, and a harness must see in the trace that its fault happened. strace counts `when=` for each
thread and each name of a call. A shim in front of Python would be traced too; `sys.executable` of a venv is none.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"^(?P<pid>\d+) +(?:(?P<name>\w+)\((?P<rest>.*)|<\.\.\. (?P<resumed>\w+) resumed>(?P<more>.*))$")
_RESULT = re.compile(r"\) += (?P<result>-?\d+|\?|0x[0-9a-f]+)(?: (?P<error>E[A-Z0-9]+))?(?P<injected>.*\(INJECTED\))?")


class Call(NamedTuple):
    """One system call: the thread, its name, its arguments as strace prints them, its result, an error's name."""

    pid: int
    name: str
    arguments: str
    result: str
    error: str
    injected: bool


@dataclass(frozen=True)
class Traced:
    """How a traced program ended, what it printed, and its calls in their order of beginning."""

    code: int
    out: str
    err: str
    calls: tuple[Call, ...]

    @property
    def injected(self) -> tuple[Call, ...]:
        """The calls that a fault was injected into, other than a signal."""
        return tuple(call for call in self.calls if call.injected)


def traced(
    command: Sequence[str],
    calls: Sequence[str],
    *,
    inject: str = "",
    environ: Mapping[str, str],
    seconds: float = 60,
    text: int = 200,
) -> Traced:
    """Run a program under strace, with the threads and programs that it starts; trace these calls.

    `inject` is what strace's `-e inject=` takes; its calls must be among those traced. `text` is how many characters of
    a string are shown; descriptors are shown with their paths.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "trace")
        strace = [*_strace(told, calls, inject, text), "-f", "-qq", *command]
        ended = subprocess.run(strace, env=dict(environ), capture_output=True, text=True, timeout=seconds, check=False)
        found = parsed(told.read_text("utf-8", "replace"))
    return Traced(ended.returncode, ended.stdout, ended.stderr, found)


@contextmanager
def attached(
    pid: int, calls: Sequence[str], *, inject: str = "", threads: bool = False, text: int = 200
) -> Iterator[list[Call]]:
    """Trace a thread that runs already, or with `threads` its whole process; yield the calls, there at the end.

    The block lets the thread go on, and ends once its process has ended. strace counts `when=` from here on.
    """
    found: list[Call] = []
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "trace")
        command = [*_strace(told, calls, inject, text), *(["-f"] if threads else []), "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            try:
                said = strace.stderr.readline() if strace.stderr else ""
                assert " attached" in said, said
                yield found
                strace.communicate(timeout=60)
            finally:
                strace.kill()
        # Of a single thread strace writes no number.
        lines = told.read_text("utf-8", "replace").splitlines()
        found += parsed("\n".join(lines if threads else [f"{pid} {line}" for line in lines]))


def _strace(told: Path, calls: Sequence[str], inject: str, text: int) -> list[str]:
    faults = ["-e", f"inject={inject}"] if inject else []
    return ["strace", "-y", "-s", str(text), "-o", str(told), "-e", f"trace={','.join(calls)}", *faults]


def parsed(text: str) -> tuple[Call, ...]:
    """Return the calls of a trace; one that another thread interrupted is put together again."""
    calls: list[Call] = []
    waiting: dict[int, int] = {}
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue  # a signal, or the end of a process
        pid = int(found["pid"])
        if found["name"]:
            rest = found["rest"]
            if rest.endswith("<unfinished ...>"):
                waiting[pid] = len(calls)
                rest = rest.removesuffix("<unfinished ...>")
            calls.append(_call(pid, found["name"], rest))
        elif pid in waiting:
            place = waiting.pop(pid)
            calls[place] = _call(pid, found["resumed"], calls[place].arguments + found["more"])
    return tuple(calls)


def _call(pid: int, name: str, rest: str) -> Call:
    ends = list(_RESULT.finditer(rest))
    if not ends:  # killed in it
        return Call(pid, name, rest, "?", "", injected=False)
    end = ends[-1]
    return Call(pid, name, rest[: end.start()], end["result"], end["error"] or "", injected=bool(end["injected"]))

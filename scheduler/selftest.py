"""The promises tried on a disk of the user's: slices are killed, locks contended for, files damaged and put back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scheduler.checkpoint import GROWTH, SLACK, hold
from scheduler.durable import make_folder, publish, sync_folder
from scheduler.errors import Blocked, CheckpointBusy, CheckpointUnknown, DiskFull, NoProcess, ResumedError
from scheduler.files import noted, translated
from scheduler.findings import Finding, finding_line
from scheduler.folders import FEWEST_FILES, MOUNTS, check_locks, file_system_of
from scheduler.forks import PURPOSE, Broken, in_child, undisturbed
from scheduler.state import MAX_STEPS
from scheduler.steps import UNCOUNTED, find
from scheduler.text import table
from scheduler.trials import KINDS, Kind, Place, kill, look, prepare

NEED: Final = 4 * (GROWTH + SLACK)  # bytes that are free
REPLACES: Final = 20
FLIPS: Final = 16
TOLD: Final = 3  # failures of each row, in full


@dataclass(frozen=True)
class Row:
    """What was tried, how often, what came of it, and the cases in which it did not."""

    what: str
    cases: int
    kept: str
    faults: Sequence[str] = ()
    kills: int = 0


@dataclass(frozen=True)
class Report:
    """All rows, how long they took, and the folder."""

    rows: Sequence[Row]
    seconds: float
    folder: Path

    @property
    def broken(self) -> int:
        """How many promises did not hold, over all cases."""
        return sum(len(row.faults) for row in self.rows)


@dataclass
class Scratch:
    """A temporary folder; `keep` it as evidence."""

    path: Path
    keep: bool = False


@contextlib.contextmanager
def scratch_folder(parent: Path) -> Iterator[Scratch]:
    """Make a private folder in a folder, and remove it at the end. Raises DiskFull and the refusals of access."""
    scratch = None
    try:
        with translated(parent):
            _check_space(parent)
            with undisturbed():
                scratch = Scratch(Path(tempfile.mkdtemp(prefix=".selftest-", dir=os.path.realpath(parent))))
        yield scratch
    finally:
        if scratch and not scratch.keep:
            with undisturbed(), noted("Its folder could not be removed."), translated(scratch.path):
                shutil.rmtree(scratch.path)


def _check_space(folder: Path) -> None:
    disk = os.statvfs(folder)
    if not disk.f_flag & os.ST_RDONLY and (
        disk.f_bavail * disk.f_frsize < NEED or (disk.f_files and disk.f_favail < FEWEST_FILES)
    ):
        raise DiskFull(path=folder, purpose=PURPOSE)


def opening_line(folder: Path) -> str:
    """Say where it is tried, and on which kind of file system."""
    try:
        kind = file_system_of(folder, MOUNTS.read_text("utf-8", "surrogateescape"))
    except OSError:  # no Linux
        kind = ""
    kind = kind or "an unknown kind"
    return f"in {_named(folder)} (removed at the end, unless a promise fails); file system: {kind}"


def try_all(folder: Path) -> Report:
    """Try every promise that can be seen, each case in a place of its own below the folder, which takes a while."""
    for step in [step for kind in KINDS for step in kind.steps.values()]:
        find(step)  # one that no longer exists is a fault of the program
    began = time.monotonic()
    _plain(Place(folder / "plain"))
    rows = [
        _once(folder, "files and folders that are private, 0600 and 0700", 4, "so they are", _modes),
        _once(folder, "a file that is replaced in one step, and synced", REPLACES, "it is there at once", _replaces),
        _once(folder, "two processes that want one lock", 4, "one is kept out", _locks, apart=False),
        *(_kills(folder, kind) for kind in KINDS),
        _once(folder, "a checkpoint with a flipped bit", FLIPS, "refused, and left as it is", _flips),
        _once(folder, "an older copy of a checkpoint, or none", MAX_STEPS, "put back; its attempts stay", _copies),
    ]
    return Report(rows, time.monotonic() - began, folder)


def _plain(place: Place) -> None:
    """Run a slice that nobody disturbs: what refuses it (a limit, no /proc) is no promise that is broken."""
    refusal = in_child(place.slice).refusal
    if refusal and not isinstance(refusal, Blocked):
        raise refusal


def report_text(report: Report) -> str:
    """Return the table, what failed, and the closing line."""
    rows = [(row.what, str(row.cases), f"FAILED: {len(row.faults)}" if row.faults else row.kept) for row in report.rows]
    lines = [table([("WHAT", "CASES", "RESULT"), *rows]), *(line for row in report.rows for line in _fault_lines(row))]
    kills = f"{sum(row.kills for row in report.rows)} kills"
    took = f"took {report.seconds:.0f} s"
    if report.broken:
        return "\n".join(
            [*lines, f"{kills}, {report.broken} promises broken; {took}; all of it is kept: {_named(report.folder)}"]
        )
    return "\n".join([*lines, f"{kills}, nothing lost, nothing exceeded; {took}"])


def _named(folder: Path) -> str:
    return str(folder).replace("\n", r"\x0a")


def _fault_lines(row: Row) -> Iterator[str]:
    for fault in row.faults[:TOLD]:
        yield finding_line(Finding("wrong", row.what, fault))
    if len(row.faults) > TOLD:
        yield f"       and {len(row.faults) - TOLD} more of them"


def _once(
    folder: Path, what: str, cases: int, kept: str, attempt: Callable[[Place], None], *, apart: bool = True
) -> Row:
    """Try something, `apart` in a process of its own; it raises where a promise does not hold."""
    with translated(folder):
        place = Place(folder / attempt.__name__.strip("_"))
        place.folder.mkdir(0o700)
    if apart:
        ended = in_child(lambda: attempt(place))
        return Row(what, cases, kept, [ended.words] if ended.code else [])
    try:
        attempt(place)
    except (DiskFull, NoProcess):
        raise
    except (Broken, ResumedError) as error:
        return Row(what, cases, kept, [str(error)])
    return Row(what, cases, kept)


def _kills(folder: Path, kind: Kind) -> Row:
    """Kill one kind of slice at each of its steps."""
    what, faults, killed = f"killed {kind.name}", list[str](), 0
    try:
        base = prepare(kind, Place(folder / kind.name.replace(" ", "-")))
    except Broken as error:
        return Row(what, 0, "", [str(error)])
    for step in kind.steps:
        place = base.copy(folder / f"{base.folder.name}.{step}")
        try:
            found = kill(kind, step, place)
            killed += 1
        except Broken as error:
            found = [str(error)]
        faults += [f"at {step}: {fault}" for fault in found]
        if not found:
            shutil.rmtree(place.folder)
    return Row(what, len(kind.steps), "it goes on by itself, and nothing is lost", faults, killed)


def _expect(kept: bool, broken: str) -> None:
    if not kept:
        raise Broken(broken)


def _modes(place: Place) -> None:
    """Make folders and files under a umask that hides nothing, and one that hides all."""
    for umask in (0, 0o777):
        os.umask(umask)
        path = place.folder / f"under-{umask:o}" / "job.json"
        make_folder(path.parent)
        publish(path, b"{}")
        for made, mode in ((path, 0o600), (path.parent, 0o700)):
            found = stat.S_IMODE(made.stat().st_mode)
            _expect(found == mode, f"{made.name} has mode {found:04o}, not {mode:04o}")


def _replaces(place: Place) -> None:
    path = place.checkpoint
    make_folder(path.parent)
    for number in range(REPLACES):
        body = str(number).encode() * 4096
        publish(path, body)
        sync_folder(path.parent)
        _expect(path.read_bytes() == body, "what was written is not what is read")
        _expect({entry.name for entry in path.parent.iterdir()} == {path.name}, "a replaced file left another behind")


def _locks(place: Place) -> None:
    """Hold the lock while another process asks for it; then it is free, and after the holder was killed too.

    Not `apart`: a process of that process would outlive an end by a signal.
    """

    def refused() -> None:
        try:
            place.slice()
        except CheckpointBusy:
            return
        raise Broken("I1: two processes had the lock of one checkpoint")

    with hold(place.checkpoint):
        ended = in_child(refused)
    _expect(not ended.code, ended.words)
    ended = in_child(lambda: place.die(UNCOUNTED["lock-after"]))
    _expect(ended.code == -signal.SIGKILL, f"it was not killed: {ended.words}")
    ended = in_child(place.slice)
    _expect(not ended.code, f"I9: the lock of a process that is gone is not free: {ended.words}")
    with undisturbed():  # the other program that it starts must not outlive this one
        for finding in check_locks(place.folder):
            _expect(finding.level != "wrong", finding.text)


def _flips(place: Place) -> None:
    """Flip one bit here and there, and have a slice run."""
    place.run_on()
    path, asked = place.checkpoint, len(look(place).asked)
    good = path.read_bytes()
    for number in range(FLIPS):
        flipped = bytearray(good)
        flipped[number * len(good) // FLIPS] ^= 1 << number % 8
        path.write_bytes(flipped)
        before = path.stat()
        with contextlib.suppress(CheckpointUnknown):
            place.slice()
            raise Broken("I3: a damaged checkpoint was not refused")
        after, found = path.stat(), look(place)
        same = (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns) and found.body == bytes(flipped)
        _expect(same, "I3: a damaged checkpoint was changed")
        _expect(len(found.asked) == asked, "I3: a damaged checkpoint caused a request")


def _copies(place: Place) -> None:
    """Put each earlier version in the place of the newest one before the next slice, and take it away at the end."""
    path, older = place.checkpoint, list[bytes]()
    for attempt in range(1, MAX_STEPS + 1):
        if older:
            path.write_bytes(older[0])
        state = place.slice(fails=True)
        _expect(state["attempts"] == attempt, f"I11: {state['attempts']} attempts after an older copy, not {attempt}")
        older.append(path.read_bytes())
    path.unlink()
    place.run_on()
    found = look(place)
    _expect(found.body == found.stored == older[-1], "I11: the newest version was not put back")
    _expect(len(found.asked) == MAX_STEPS, f"I1: the model was asked {len(found.asked)} times")

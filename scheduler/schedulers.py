"""Who runs or starts a jobs.yaml: daemons by their rows, crontabs and systemd units by their lines."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from scheduler.findings import Finding, note, ok, wrong
from scheduler.job import JobFile
from scheduler.owner import is_alive, program_version
from scheduler.roster import Entry, Pulse
from scheduler.state import utc
from scheduler.text import storable

LIMIT: Final = 1024 * 1024
UNITS: Final = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "etc/systemd/user")
_SETTING: Final = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class Starter:
    """A line that starts this program: where it stands, which command it gives, and whether it is in force."""

    place: str
    kind: Literal["tick", "daemon"]
    active: bool = True


def check_schedulers(
    job_file: JobFile,
    entries: Iterable[Entry],
    environ: Mapping[str, str],
    root: Path,
) -> Iterator[Finding]:
    """Say what runs these jobs and what starts it; crontabs and units of the machine are looked for below `root`."""
    mine = storable(str(job_file.path))
    # A daemon has an entry in each ledger that it works on, two where it was given a link to its file.
    by_worth = sorted(entries, key=lambda entry: (entry.config == mine, entry.pulse.at if entry.pulse else 0))
    daemons = {entry.owner: entry for entry in by_worth}
    alive = any(entry.config == mine and is_alive(entry.owner) for entry in daemons.values())
    starters = find_starters(job_file.path, environ, root)
    active = [starter for starter in starters if starter.active]
    replaced = alive or any(starter.kind == "tick" for starter in active)
    for entry in sorted(daemons.values(), key=lambda entry: entry.since):
        yield from _daemon(entry, mine, replaced)
        if entry.pulse and entry.config == mine and is_alive(entry.owner):
            yield from _loaded(entry.pulse, job_file)
    for starter in starters:
        said = f"{starter.place} gives {starter.kind}"
        yield ok("schedulers", said) if starter.active else note("schedulers", f"{said}, and is not enabled")
    yield from _together(active, alive)


def _daemon(entry: Entry, mine: str, replaced: bool) -> Iterator[Finding]:
    lives, pid = is_alive(entry.owner), entry.owner.pid
    if entry.config == mine and lives:
        yield ok("schedulers", f"a daemon runs since {utc(entry.since)}, process {pid}")
    elif entry.config == mine:
        what = f"the daemon of {utc(entry.since)}, process {pid}, is gone and did not take its leave"
        act = "start it again; one that is not to run is then ended by SIGTERM"
        yield note("schedulers", what) if replaced else wrong("schedulers", what, act)
    elif lives:
        yield note("schedulers", f"a daemon of {entry.config}, process {pid}, uses one of these folders too")


def _loaded(pulse: Pulse, job_file: JobFile) -> Iterator[Finding]:
    """Hold the version and the file that a daemon has in force against those that are there."""
    if pulse.version != program_version():
        what = f"the daemon is of version {pulse.version}, and this is {program_version()}"
        yield wrong("versions", what, "start it again")
    if pulse.digest != job_file.digest:
        why = f": {pulse.fault}" if pulse.fault else ""
        yield wrong("schedulers", f"the daemon runs an older jobs.yaml{why}", "mend the file, or send it SIGHUP")


def _together(active: Collection[Starter], alive: bool) -> Iterator[Finding]:
    kinds = [starter.kind for starter in active]
    for kind in ("tick", "daemon"):
        if kinds.count(kind) > 1:
            places = " and ".join(starter.place for starter in active if starter.kind == kind)
            yield wrong("schedulers", f"{places} give the same {kind}", "one is enough; take the others away")
    if "tick" in kinds and (alive or "daemon" in kinds):
        yield note("schedulers", "a daemon and a tick work side by side; nothing runs twice, and one is enough")
    if not active and not alive:
        yield note(
            "schedulers", "nothing was found that runs these jobs; resumed init prints lines for cron and systemd"
        )


def find_starters(config: Path, environ: Mapping[str, str], root: Path = Path("/")) -> list[Starter]:
    """Return what starts a jobs.yaml, given by its real path: lines of crontabs and units below `root`."""
    home = environ.get("HOME", "")
    found = [*_crontabs(environ, root), *_services(root, home)]
    return [starter for starter, line in found if _is_for(line, config, home, root)]


def _crontabs(environ: Mapping[str, str], root: Path) -> Iterator[tuple[Starter, str]]:
    own = shutil.which("crontab", path=environ.get("PATH"))
    if own:
        # Nothing else of the environment: it may hold keys.
        bare = {name: environ[name] for name in ("PATH", "HOME") if name in environ}
        done = subprocess.run(  # noqa: S603  # what PATH gives, as in a shell
            [own, "-l"], env=bare, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        yield from _lines("your crontab", done.stdout.decode("utf-8", "replace"))
    for path in [root / "etc/crontab", *_entries(root / "etc/cron.d")]:
        yield from _lines(str(path), _read(path))


def _lines(place: str, text: str) -> Iterator[tuple[Starter, str]]:
    """Pair each line of a crontab that gives `tick` or `daemon` with its command, settings above it in front."""
    settings = ""
    for number, line in enumerate(text.splitlines(), 1):
        if setting := _SETTING.fullmatch(line):
            settings += f"{setting[1]}={setting[2]} " if setting[1] == "RESUMED_CONFIG" else ""
        elif kind := _kind(line):
            yield Starter(f"{place}, line {number}", kind), settings + line.replace(r"\%", "%")


def _services(root: Path, home: str) -> Iterator[tuple[Starter, str]]:
    folders = [root / name for name in UNITS] + ([Path(home) / ".config/systemd/user"] if home else [])
    wanted = {path.name for folder in folders for wants in folder.glob("*.wants") for path in _entries(wants)}
    seen: set[str] = set()
    for path in (path for folder in folders for path in _entries(folder)):
        if path.suffix != ".service" or path.name in seen:
            continue
        seen.add(path.name)
        for line in re.findall(r"^ExecStart\s*=\s*(.*)$", _read(path).replace("\\\n", " "), re.MULTILINE):
            if kind := _kind(line):
                unit = path.with_suffix(".timer").name if kind == "tick" else path.name
                yield Starter(str(path), kind, unit in wanted), line.replace("%%", "%").replace("%h", home)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    """Return the text of a regular file of which nothing is known; empty where it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > LIMIT:
            return ""
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _kind(line: str) -> Literal["tick", "daemon"] | None:
    """Tell which command of this program a line gives, if it is one."""
    if line.lstrip().startswith("#") or not re.search(r"\bresumed\b|-m scheduler\b", line):
        return None
    words = set(re.findall(r"(?<=\s)(?:tick|daemon)\b(?![./=-])", line))
    return "tick" if "tick" in words else "daemon" if words else None


def _is_for(line: str, config: Path, home: str, root: Path) -> bool:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    words = [re.sub(r"\$HOME\b|\$\{HOME\}|^~(?=/)", lambda _: home, word) for word in words]
    named = [value for word in words if (value := _value(word, "--config=") or _value(word, "RESUMED_CONFIG="))]
    named += [after for word, after in itertools.pairwise(words) if word == "--config"]
    if named:
        return os.path.realpath(named[-1]) == str(config)
    places = (Path(home, "config/jobs.yaml"), Path(home, ".config/resumed/jobs.yaml"), root / "etc/resumed/jobs.yaml")
    return next((os.path.realpath(place) == str(config) for place in places if os.path.lexists(place)), False)


def _value(word: str, prefix: str) -> str:
    return word.removeprefix(prefix) if word.startswith(prefix) else ""

"""What `init` writes, and the lines by which cron and systemd start this program."""

from __future__ import annotations

import json
import os
import re
import shlex
import site
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from scheduler.durable import create, make_folder
from scheduler.errors import UsageRefused
from scheduler.files import translated
from scheduler.jobfile import json_schema

CHECKPOINTS: Final = "checkpoints"
CONFIG: Final = "config/jobs.yaml"
SCHEMA: Final = "config/jobs.schema.json"

UNIT: Final = """\
[Unit]
Description=resumed, a scheduler for long LLM tasks
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WatchdogSec=120
UMask=0077
Restart=on-failure
RestartSec=30
RestartPreventExitStatus=64 65 77 78
TimeoutStopSec=110
KillMode=mixed

[Install]
WantedBy={target}
"""

NEXT: Final = """\
Try it; the demo jobs answer offline and cost nothing:
  {program} check
  {program} tick
  {program} status

Then one of these two starts it for good.

cron: crontab -e, and add this line:
{cron}

systemd: write this to {unit_file}:

{unit}
and then: {enable}

Before live jobs run, put the key where they find it (cron's environment is bare; key: {{file: PATH}} always works), and
look whether all is well: {program} doctor"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What `init` found and made: the jobs.yaml, and the paths that are new and those that were there already."""

    config: Path
    new: tuple[Path, ...]
    kept: tuple[Path, ...]


def start(folder: Path) -> Made:
    """Write what a first jobs.yaml needs into a folder; nothing that stands there already is touched.

    What the demo jobs read comes only with a jobs.yaml that is written now. Raises UsageRefused on a path that a
    crontab cannot hold, and the refusals of access and storage.
    """
    try:
        folder = folder.resolve()
    except OSError as error:
        raise UsageRefused(message=f"{folder}: it cannot be found ({error.strerror}); name it from / on") from error
    if re.search(r"[\x00-\x1f\x7f]", str(folder)):
        raise UsageRefused(message="a folder whose name holds control characters fits into no crontab; name another")
    config = folder / CONFIG
    files = {folder / SCHEMA: (json.dumps(json_schema(), indent=2) + "\n").encode()}
    if not os.path.lexists(config):
        files |= {folder / "config" / name: body for name, body in samples()}
    files[config] = (resources.files(__name__) / "jobs.yaml").read_bytes()
    checkpoints = folder / CHECKPOINTS
    new = {path: _write(path, body) for path, body in files.items()}
    new[checkpoints] = not os.path.lexists(checkpoints)
    make_folder(checkpoints)
    return Made(
        config=config,
        new=tuple(path for path, made in new.items() if made),
        kept=tuple(path for path, made in new.items() if not made),
    )


def samples() -> Iterator[tuple[str, bytes]]:
    """Name what the demo jobs read, with its bytes."""
    for entry in sorted((resources.files(__name__) / "reference").iterdir(), key=lambda entry: entry.name):
        yield f"reference/{entry.name}", entry.read_bytes()


def _write(path: Path, body: bytes) -> bool:
    """Make a private file; tell whether there was none."""
    make_folder(path.parent)
    with translated(path):
        try:
            descriptor = create(path)
        except FileExistsError:
            return False
        try:
            with open(descriptor, "wb") as file:
                file.write(body)
        except BaseException:
            path.unlink()  # half a file would be kept by the next init
            raise
    return True


def own_command(script: str, executable: str) -> list[str]:
    """Return the words by which this program is started from anywhere: its script, or Python with its package."""
    path = Path(script).absolute()
    if path.name != "__main__.py" and os.access(path, os.X_OK):
        return [str(path)]
    root = str(Path(__file__).resolve().parent.parent.parent)
    module = [executable, "-m", __name__.partition(".")[0]]
    installed = root in {os.path.realpath(place) for place in (*site.getsitepackages(), site.getusersitepackages())}
    return module if installed else ["/usr/bin/env", f"PYTHONPATH={root}", *module]


def cron_line(command: Sequence[str], config: Path) -> str:
    """Return the line of a crontab; there a percent sign would end the command."""
    return "* * * * *  " + shlex.join([*command, "--config", str(config), "tick"]).replace("%", r"\%")


def unit_text(command: Sequence[str], config: Path, *, system: bool) -> str:
    """Return the systemd unit of the daemon, of the system or of one user."""
    words = [_unit_word(word) for word in (*command, "--config", str(config), "daemon")]
    return UNIT.format(command=" ".join(words), target="multi-user.target" if system else "default.target")


def _unit_word(word: str) -> str:
    """Spell a word for systemd (systemd.service(5), "Command lines"; systemd.unit(5), "Specifiers")."""
    word = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{word}"' if re.search(r"[\s'\";\\]", word) else word


def next_steps(config: Path, environ: Mapping[str, str], *, root: bool) -> str:
    """Say what to do after `init`, with the lines that start the program on this machine."""
    command = own_command(sys.argv[0], sys.executable)
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    unit_file = "/etc/systemd/system/resumed.service" if root else f"{home}/systemd/user/resumed.service"
    scope = "" if root else "--user "
    enable = f"systemctl {scope}daemon-reload && systemctl {scope}enable --now resumed"
    return NEXT.format(
        program=shlex.join([*command, "--config", str(config)]),
        cron=cron_line(command, config),
        unit_file=unit_file,
        unit=unit_text(command, config, system=root),
        enable=enable if root else f"{enable} && loginctl enable-linger",
    )

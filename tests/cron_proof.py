"""Debian's cron runs the sample line for three minutes, and the demo jobs end answered: python -m tests.cron_proof

Needs root. Cron gets a mount namespace of its own, with an empty spool, so that it sees no other crontab, nothing of it
stays, and its log and mail come here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scheduler.starter import start
from tests.support import ROOT

MINUTES = 3
SAMPLE = ROOT / "config/crontab.sample"
SPOOL = Path("/var/spool/cron/crontabs")
SENDMAIL = Path("/usr/sbin/sendmail")
DEVICES = ("null", "zero", "random", "urandom", "tty")
# What cron logs of its own life, and PAM of its sessions; all else is a complaint, or output that it would mail.
EXPECTED = re.compile(r"\(CRON\) (INFO|STARTUP) |\(root\) CMD \(|CRON\[\d+\]: pam_\w+\(cron:session\): ")


def adapted(program: Path, config: Path) -> str:
    """The sample with other paths in its one line."""
    text = SAMPLE.read_text("utf-8")
    for old, new in (("$HOME/.local/bin/resumed", program), ("$HOME/.config/resumed/jobs.yaml", config)):
        assert len(re.findall(rf"^\*.*{re.escape(old)}", text, re.MULTILINE)) == 1, old
        text = text.replace(old, str(new))
    return text


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def private_places(folder: Path, mailed: Path) -> None:
    """Lay empty places over those that cron reads and writes; only this mount namespace sees them."""
    devices = folder / "dev"
    devices.mkdir()
    for name in DEVICES:
        (devices / name).touch()
        mount("--bind", f"/dev/{name}", devices / name)
    mount("--rbind", devices, "/dev")
    for place in ("/run", "/etc/cron.d", SPOOL.parent):
        mount("-t", "tmpfs", "-o", "mode=755", "none", place)
    (folder / "crontab").touch(mode=0o644)
    mount("--bind", folder / "crontab", "/etc/crontab")
    if SENDMAIL.exists():  # else cron logs that there is output, and that nobody can mail it
        script = folder / "sendmail"
        script.write_text(f"#!/bin/sh\ncat >> {mailed}\n")
        script.chmod(0o755)
        mount("--bind", script, SENDMAIL)
    SPOOL.mkdir(mode=0o730)


def program_of(folder: Path) -> Path:
    """The installed script beside this Python, or one that does the same."""
    installed = Path(sys.executable).with_name("resumed")
    if installed.exists():
        return installed
    script = folder / "resumed"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m scheduler "$@"\n')
    script.chmod(0o755)
    return script


def watch(log: socket.socket, seconds: float) -> list[str]:
    """Print and return what cron logs, until it has started as many commands as there are minutes."""
    lines: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and sum("CMD" in line for line in lines) < MINUTES:
        log.settimeout(max(0.1, end - time.monotonic()))
        try:
            lines.append(re.sub(r"^<\d+>", "", log.recv(8192).decode("utf-8", "replace")).strip())
        except TimeoutError:
            break
        print(lines[-1], flush=True)
    return lines


def prove(folder: Path) -> list[str]:
    """Run cron; return what went wrong."""
    config = start(folder / "jobs").config
    mailed = folder / "mailed"
    line = adapted(program_of(folder), config)
    private_places(folder, mailed)
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind("/dev/log")
    crontab = SPOOL / "root"
    crontab.write_text(line)
    crontab.chmod(0o600)
    print(f"cron runs: {line.splitlines()[-1]}", flush=True)
    with subprocess.Popen(["cron", "-f", "-L", "1"], stdin=subprocess.DEVNULL) as cron:
        try:
            lines = watch(log, (MINUTES + 1) * 60)
            states = wait_for_done(config)
            lines += watch_rest(log)
        finally:
            cron.terminate()
    faults = [f"cron says: {line}" for line in lines if not EXPECTED.search(line)]
    if sum("CMD" in line for line in lines) < MINUTES:
        faults.append(f"fewer than {MINUTES} runs")
    if mailed.exists():
        faults.append(f"mailed: {mailed.read_text()}")
    print(f"jobs: {states}")
    if states != {"shipping-question": ("done", 2), "welcome-note": ("done", 1)}:
        faults.append("not each job ended answered")
    return faults


def wait_for_done(config: Path) -> dict[str, tuple[str, int]]:
    """The jobs' states once all are done, or after ten seconds."""
    end = time.monotonic() + 10
    while True:
        states = {}
        for path in sorted((config.parent.parent / "checkpoints").glob("*.json")):
            document = json.loads(path.read_text("utf-8"))
            states[path.stem] = (document["status"], document["attempts"])
        if time.monotonic() > end or (len(states) == 2 and all(status == "done" for status, _ in states.values())):
            return states
        time.sleep(0.1)


def watch_rest(log: socket.socket) -> list[str]:
    """What is logged until the last command has ended."""
    log.settimeout(5)
    lines = []
    try:
        for _ in range(50):
            lines.append(re.sub(r"^<\d+>", "", log.recv(8192).decode("utf-8", "replace")).strip())
            print(lines[-1], flush=True)
    except TimeoutError:
        pass
    return lines


def main() -> int:
    """Go into the namespace, and tell how it went."""
    if os.geteuid() or not shutil.which("cron"):
        print("cron: needs root and Debian's cron (apt-get install cron)")
        return 1
    if sys.argv[1:] != ["inside"]:
        inside = [sys.executable, "-m", "tests.cron_proof", "inside"]
        return subprocess.run(["unshare", "--mount", "--propagation", "private", *inside], cwd=ROOT).returncode
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # mounts on it end with the namespace
        faults = prove(Path(folder))
    for fault in faults:
        print(fault)
    print(f"cron: {int(not faults)} passed, {int(bool(faults))} failed")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())

"""No secret in anything that the program writes, prints, stores, or hands to a program of the user's."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.canary import shows
from tests.faults.cases import TIER, Begin, sized
from tests.faults.killed_at import forked
from tests.faults.secrets_leaks import CANARIES, SECRETS, SOURCES, Far, Secretive, echoes, far_side, leaks
from tests.kinds import KINDS
from tests.support import ROOT, wait_until

NAME = "secrets in artefacts"
pytestmark = pytest.mark.keeps_key("project/secret", "project/credentials/*", because="they are places of keys")


@pytest.fixture
def far() -> Iterator[Far]:
    with far_side() as found:
        yield found


@pytest.fixture
def secretive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secretive:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir(0o700)
    return Secretive(tmp_path / "project")


def one_of_each() -> list[str]:
    """A row of the outcome table for each outcome, and every seventh of the replies that tell the key back."""
    outcomes = {kind.outcome: f"row{number}" for number, kind in enumerate(KINDS.values())}
    return [*outcomes.values(), *[name for name in echoes() if name.startswith("told")][::7]]


def said(project: Secretive, *commands: list[str]) -> dict[str, str]:
    """What the program said to each command; one that cannot go on says so in a line."""
    ended = forked(project, *commands)
    assert all("Traceback" not in one.err for one in ended)
    return {" ".join(command)[:60]: one.err for command, one in zip(commands, ended, strict=True)}


# ---- each outcome, each source


@pytest.mark.timeout(900)
def test_no_outcome_leaves_a_secret_anywhere(harness: Begin, secretive: Secretive, far: Far) -> None:
    names = [*(one_of_each() if TIER == "test" else echoes()), "nowhere", "silent", "torn"]
    with harness(NAME, sized(150, 1_500, 6_000)) as case:
        for turn in range(sized(1, 1, 4)):  # at last with every source for each reply
            jobs = secretive.fill(far, names, [SOURCES[(number + turn) % 4] for number in range(len(names))])
            far.asked.clear()
            shown = [["show", job, "--conversation"] for job in jobs[::6]]
            reads = [["--log-format", "json", "status", "--json"], ["status"], ["check"], ["doctor", "--online"]]
            streams = said(secretive, ["run", *jobs], ["tick"], *reads, ["preview", jobs[0]], *shown)
            assert len(far.asked) >= len(jobs) - 1  # but the one that leads nowhere
            assert leaks(secretive, streams, case) == []
        assert far.hooks  # notifications were sent, and taken with an error
        assert (secretive.folder / "child-environ").stat().st_size > 0
        assert (secretive.folder / "numbers.prom").stat().st_size > 0


# ---- programs of the user's


def test_no_program_is_given_a_secret(harness: Begin, secretive: Secretive, far: Far) -> None:
    with harness(NAME, 15) as case:
        assert leaks(secretive, delivered(secretive, far, ""), case) == []
        environ = (secretive.folder / "child-environ").read_text()
        assert "PATH=" in environ
        assert "child.sh" in (secretive.folder / "child-cmdline").read_text()
        assert "--approve" in (secretive.folder / "child-cmdline").read_text()  # the program's own, beside the child's


def delivered(project: Secretive, far: Far, patch: str) -> dict[str, str]:
    """Have a job answered, reviewed and delivered, by the program with this patch; return what was said."""
    (job,) = project.fill(far, ["told200-plain"], ["env"])
    return patched(project, patch, ["run", job], ["review", job, "--approve"])


def patched(project: Secretive, patch: str, *commands: list[str]) -> dict[str, str]:
    """Run commands of the program in one process, with some lines of Python in front; return what was said."""
    whole = [["--config", str(project.config), *command] for command in commands]
    code = f"import json, sys\n{patch}\nfrom scheduler.cli import main\nfor one in json.loads(sys.argv[1]): main(one)"
    command = [sys.executable, "-c", code, json.dumps(whole)]
    ended = subprocess.run(command, env=project.environ(), capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    return {"stdout": ended.stdout, "stderr": ended.stderr}


LOGS_HEADERS = """
from scheduler import gateway
real = gateway.Call.trace
def trace(call, event, info):
    if event.endswith("send_request_headers.started"):
        print(info["request"].headers, file=sys.stderr)
    real(call, event, info)
gateway.Call.trace = trace
"""
WHOLE_ENVIRONMENT = """
import os
from scheduler import child
child.guard = lambda job_file, environ: child.Guarded(environ=environ, secrets=())
"""


@pytest.mark.parametrize(
    ("broken", "patch", "where"),
    [
        ("the Authorization header is logged", LOGS_HEADERS, "stderr"),
        ("a program gets the whole environment", WHOLE_ENVIRONMENT, "child-environ"),
    ],
)
@pytest.mark.keeps_key("project/child-*", "project/c/*", because="the program is broken on purpose")
def test_a_program_that_leaks_is_caught(
    broken: str, patch: str, where: str, harness: Begin, secretive: Secretive, far: Far
) -> None:
    with harness(NAME) as case:
        found = leaks(secretive, delivered(secretive, far, patch), lambda *_: None)
        case.control(broken, sum(where in name for name in found))


# ---- keys that no header can carry


BAD = {"newline": "\nX: 1", "return": "\rX", "not ASCII": "é", "control": "\x01", "long": "canary" * 2_000}


@pytest.mark.timeout(300)
def test_a_key_that_cannot_be_sent_is_shown_nowhere(harness: Begin, secretive: Secretive, far: Far) -> None:
    with harness(NAME, sized(20, 150, 150)) as case:
        jobs = secretive.fill(far, ["told200-plain"] * 4, SOURCES)
        for bad in list(BAD.values())[:: sized(5, 1, 1)]:
            wrong = {"LOCAL_KEY": SECRETS["env"] + bad, "TEAM_KEY": SECRETS["header"] + bad}
            secretive.extra |= wrong | {"COPIED": wrong["LOCAL_KEY"]}
            (secretive.folder / "secret").write_text(SECRETS["file"] + bad)
            (secretive.folder / "credentials" / "service").write_text(SECRETS["credential"] + bad)
            streams = said(secretive, ["check"], ["run", *jobs], ["tick"], ["doctor"], ["status", "--json"])
            assert leaks(secretive, streams, case) == []
        assert far.asked == []
        assert all(source in streams["check"] for source in ("LOCAL_KEY", "TEAM_KEY", "service", "secret"))


def test_a_key_in_jobs_yaml_is_refused_unseen(harness: Begin, secretive: Secretive, far: Far) -> None:
    (job,) = secretive.fill(far, ["told200-plain"], ["env"])
    text = secretive.config.read_text()
    entries = ('"KEY"', '{"env": "KEY"}', '{"value": "KEY"}')
    with harness(NAME, sized(3, 9, 9)) as case:
        for entry in entries[:: sized(3, 1, 1)]:
            written = re.sub(r'"key": \{[^}]*\}', f'"key": {entry}', text).replace("KEY", SECRETS["other"])
            assert written.count(SECRETS["other"]) > 1
            secretive.config.write_text(written)
            streams = said(secretive, ["check"], ["run", job], ["status"])
            assert [name for name, told in streams.items() if shows(told.encode(), CANARIES)] == []
            case("stream", len(streams))
        secretive.config.write_text(text)
        assert far.asked == []


# ---- an exception out of the blue

RAISES = {
    "the client": "import httpx\n{boom}\nhttpx.Client.__init__ = boom",
    "the request": "import httpx\n{boom}\nhttpx.Client.stream = boom",
    "the judge": "from scheduler import gateway\n{boom}\ngateway.judge_response = boom",
    "the record": "from scheduler import attempt\n{boom}\nattempt.settle = boom",
    "the ledger": "from scheduler.ledger import Ledger\n{boom}\nLedger.settle = boom",
    "the file": "from scheduler import checkpoint\n{boom}\ncheckpoint.publish = boom",
    "a notification": "from scheduler import notify\n{boom}\nnotify._post = boom",
}
# Its text holds what is at hand there; its frames hold all of it.
BOOM = """
import os
def boom(*given, **named):
    held = [os.environ["LOCAL_KEY"], given, named]
    raise RuntimeError("out of the blue")
"""
TELLING = BOOM.replace('"out of the blue"', 'f"out of the blue: {held} {named}"')


@pytest.mark.timeout(300)
def test_an_unforeseen_exception_shows_no_secret(harness: Begin, secretive: Secretive, far: Far) -> None:
    chosen = list(RAISES)[:: sized(4, 1, 1)]
    with harness(NAME, sized(20, 100, 100)) as case:
        for number, where in enumerate(chosen):
            (job,) = secretive.fill(far, ["told200-plain"], [SOURCES[0]])
            secretive.write(secretive.config.read_text().replace("c/told", f"c/{number}"))
            boom = TELLING if where in ("the client", "the request", "the judge", "a notification") else BOOM
            streams = patched(secretive, RAISES[where].format(boom=boom), ["run", job])
            assert leaks(secretive, streams, case) == []


# ---- the daemon


@pytest.mark.timeout(120)
def test_a_daemon_shows_no_secret(harness: Begin, secretive: Secretive, far: Far) -> None:
    names = ["told401-plain", "told200-bearer", "told500-base64", "row5"]
    jobs = secretive.fill(far, names, SOURCES)
    with harness(NAME, 20) as case, secretive.start("daemon") as daemon:
        try:
            wait_until(lambda: len(far.asked) >= len(jobs), 60, "each job's request")
            wait_until(lambda: (secretive.folder / "child-stdin").exists(), 60, "a notification")
            line = Path(f"/proc/{daemon.pid}/cmdline").read_bytes()
        finally:
            daemon.send_signal(signal.SIGTERM)
            out, err = daemon.communicate(timeout=90)
        assert leaks(secretive, {"stdout": out, "stderr": err, "cmdline": line.decode()}, case) == []


def test_a_service_leaves_no_core_file() -> None:
    for unit in ("resumed.service", "resumed-tick.service"):
        assert "\nLimitCORE=0\n" in (ROOT / "config" / unit).read_text()

"""Fixtures that every test file shares."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler import database
from scheduler.cli import main
from scheduler.errors import ResumedError
from tests.canary import holders, shows
from tests.faults.cases import STRICT, TIER, Begin, Cases, summed
from tests.support import KEY, ChatServer, Command, Hooks, Project, Said, chat_server, hook_server

# Those that start many programs come last, so that a small fault shows within seconds.
LAST = [
    "trigger",
    "replies",
    "gateway",
    "kills",
    "damage",
    "races",
    "storms",
    "frozen",
    "bad_input",
    "series",
    "cron",
    "daemon",
    "status",
    "systemd",
    "edits",
    "soak",
    "readme",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the fast files first."""
    items.sort(key=lambda item: LAST.index(name) if (name := item.path.stem.removeprefix("test_")) in LAST else -1)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a line on each harness of faults, and its controls."""
    harnesses = _counted(terminalreporter)
    if harnesses:
        terminalreporter.section(f"faults, as many as for {TIER}")
        for name in sorted(harnesses):
            terminalreporter.line(str(harnesses[name]))
    if path := os.environ.get("RESUMED_FIGURES"):
        from tests.faults.figures import record

        record(Path(path), harnesses.values())


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that must be whole where a test was skipped, or where a harness has no control."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if not STRICT or reporter is None:
        return
    left_out = [f"skipped: {report.nodeid}" for report in reporter.stats.get("skipped", [])]
    bare = [f"without a control: {name}" for name, cases in _counted(reporter).items() if not cases.controls]
    for line in left_out + bare:
        reporter.line(line, red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _counted(reporter: Any) -> dict[str, Cases]:
    reports = [report for found in reporter.stats.values() for report in found]
    ends = [report for report in reports if getattr(report, "when", None) == "teardown"]
    return summed([value for report in ends for name, value in report.user_properties if name == "cases"])


@pytest.fixture
def harness(record_property: Callable[[str, object], None]) -> Iterator[Begin]:
    """Begin to count: `with harness("what is tried", least) as case: ... case("kind")`."""
    begun: list[Cases] = []

    def begin(name: str, least: int = 0) -> Cases:
        begun.append(Cases(name, least))
        return begun[-1]

    yield begin
    for cases in begun:
        record_property("cases", cases.told())


@pytest.fixture(scope="session", autouse=True)
def _remembered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what the program remembers out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("CACHE_DIRECTORY", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker of the few tests that put a canary key into a file themselves."""
    config.addinivalue_line("markers", "keeps_key(*names, because): files below tmp_path in which the key may stand")


@pytest.fixture(autouse=True)
def _no_key_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Look for the canary keys in each file that a test leaves, and in what it printed and logged."""
    yield
    marks = list(request.node.iter_markers("keeps_key"))
    kept = [name for mark in marks for name in mark.args]
    found = [f"{when} {what}" for when, what, text in request.node._report_sections if shows(text.encode())]
    if folder := request.node.funcargs.get("tmp_path"):
        found += holders(folder, but=kept)
    found += holders(Path(os.environ["XDG_STATE_HOME"]))
    assert not found, f"the canary key stands in {', '.join(found)}"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty private folder for a jobs.yaml."""
    folder = tmp_path / "project"
    folder.mkdir(0o700)
    return Project(folder)


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a test the key, no settings of the caller, and put back the signal handlers that a command sets."""
    monkeypatch.setenv("LOCAL_KEY", KEY)
    for name in ("RESUMED_CONFIG", "MANDAPI_API_KEY", "MANDAPI_MODEL_ID"):
        monkeypatch.delenv(name, raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def command(project: Project, surroundings: None, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process; check its exit code, and that no traceback and no key was shown."""

    def run(*arguments: str, code: int = 0) -> Said:
        capsys.readouterr()
        found = main(["--config", str(project.config), *arguments])
        said = Said(*capsys.readouterr())
        assert found == code, f"exit {found}, not {code}: {said}"
        assert "Traceback" not in said.err
        assert KEY not in said.out + said.err
        return said

    return run


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    """A server that answers "fin"; give it another script by assigning `chat.script`."""
    with chat_server() as server:
        yield server


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    """A server that takes notifications."""
    with hook_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_ledger_stays_open() -> Iterator[None]:
    """Close what a test opened in this process, for select() bears no more than a thousand descriptors."""
    yield
    for opened in list(database._databases):
        with contextlib.suppress(ResumedError):
            opened.close()

"""Rows of a ledger that hold what no program of ours writes: SQLite keeps no column to its type."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.ledger import NAME
from scheduler.tables import SCRIPTS
from tests.support import Project, answer, chat_server, tool_calls, wait_until
from tests.test_bad_input import KEY, Told, ran

NOWHERE = "http://127.0.0.1:9/v1"  # nothing of a blocked job is asked
DEMO = {"provider": "demo", "schedule": "every 1s", "read": ["notes.md"]}
WHY = ("--reason", "because")
COMMANDS = [
    ["status"],
    ["status", "--json"],
    ["check"],
    ["check", "--days", "2"],
    ["show", "nightly"],
    ["tick"],
    ["run", "nightly", "apart"],
    ["repair", "nightly"],
    ["adopt", "--all"],
    ["revise", "nightly", *WHY],
    ["renew", "nightly", *WHY, "--confirm", "nightly"],
    ["unblock", "local"],
    ["review", "apart", "--approve"],
    ["review", "apart", "--reject", "--note", "no"],
    ["preview", "nightly"],
]


def columns() -> list[tuple[str, str]]:
    """Return every table with each of its columns."""
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.executescript(";".join(SCRIPTS))
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [(table, row[1]) for table in tables for row in base.execute(f"PRAGMA table_info({table})")]


def spoil(folder: Path, table: str, column: str, value: object) -> bool:
    """Write a value into a column of every row; tell whether the table's own rules let it in."""
    with contextlib.closing(sqlite3.connect(folder / NAME)) as base, base:
        try:
            base.execute(f"UPDATE {table} SET {column} = ?", (value,))
        except sqlite3.IntegrityError:
            return False
    return True


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with a row in every table: one attempt spent, an archive, a rest, an orphan, and what is beside them."""
    project = Project(tmp_path_factory.mktemp("rows"))
    with chat_server(tool_calls(("c1", "list_files", "{}")), (503, {})) as chat:
        write(project, chat.url)
        for name in ("first", "second"):
            project.run("run", "nightly", code=None)
            if name == "first":
                project.run("renew", "nightly", *WHY, "--confirm", "nightly")
    project.run("run", "apart")
    with contextlib.closing(sqlite3.connect(project.folder / "checkpoints" / NAME)) as base, base:
        now = int(time.time())
        base.execute("INSERT INTO daemon VALUES (?, 1, '1', 'b', ?)", (str(project.config), now))
        base.execute("INSERT INTO orphan VALUES ('nightly.json', 1, 1, ?, 't', x'00')", (now,))
        base.execute("INSERT INTO opening VALUES ('weekly', ?, ?)", (now, now))
        delivery = ("nightly.json", 1, "0" * 64, 1, "report.md", "ann", now, 1, "1", "b", "delivered", "", now)
        base.execute("INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", delivery)
        base.execute("INSERT INTO act VALUES ('nightly.json', 9, ?, 'renew', '', 'because', 'ann')", (now,))
        base.execute("INSERT INTO told VALUES ('nightly', 'log', 'blocked', ?, ?, '')", (now, now))
        base.execute("INSERT INTO pulse VALUES (?, '1', 'd', ?, 8, 'd', '', ?)", (str(project.config), now, now))
        base.execute("INSERT INTO tally VALUES ('missed', 1)")
        for table in {table for table, _ in columns()}:
            assert base.execute(f"SELECT count(*) FROM {table}").fetchone()[0], table
    return project.folder


def write(project: Project, url: str = NOWHERE) -> None:
    """Write a job that has begun, and two of the demo, one of them in a folder of its own."""
    (project.folder / "notes.md").write_text("Shipping takes three days.\n")
    apart = {**DEMO, "checkpoint": "apart/apart.json"}
    project.live(url, {"nightly": {"schedule": "every 1s"}, "apart": apart}, after_failure=[])


@pytest.fixture
def begun(template: Path, project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A copy of those folders."""
    monkeypatch.setenv("LOCAL_KEY", KEY)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    renewed(template, project)
    yield project
    for number, handler in handlers.items():
        signal.signal(number, handler)


def renewed(template: Path, project: Project) -> None:
    """Put the folders back as they were."""
    for name in ("checkpoints", "apart"):
        shutil.rmtree(project.folder / name, ignore_errors=True)
        shutil.copytree(template / name, project.folder / name)
    write(project)


def told(project: Project, *arguments: str) -> Told:
    return ran("--config", project.config, *arguments)


@pytest.mark.parametrize("value", [-99999999999999, "abc"])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("job", "since"),
        ("admission", "ended_at"),
        ("admission", "point"),
        ("admission", "deadline"),
        ("admission", "outcome"),
        ("document", "allowance"),
        ("document", "body"),
    ],
)
def test_a_senseless_row_blocks_its_folder_alone_and_is_named(
    begun: Project, table: str, column: str, value: object
) -> None:
    folder = begun.folder / "checkpoints"
    assert spoil(folder, table, column, value)
    tick = told(begun, "tick")
    assert tick.code == 65
    assert f"{folder / NAME} is damaged" in tick.about("nightly")
    assert "apart" not in tick.err
    assert (begun.folder / "apart" / "apart.json").read_text().count('"answered"') == 1
    for command in (["run", "nightly"], ["check"]):
        again = told(begun, *command)
        assert again.code == 65, command
        assert f"{folder / NAME} is damaged" in again.err
    status = told(begun, "status")
    assert status.code == 0
    assert "blocked" in next(line for line in status.out.splitlines() if line.startswith("nightly"))
    assert "done" in next(line for line in status.out.splitlines() if line.startswith("apart"))


@pytest.mark.parametrize(("table", "column", "said"), [("job", "since", "job.since"), ("rest", "until", "rest.until")])
def test_the_line_names_the_column_and_what_it_holds(begun: Project, table: str, column: str, said: str) -> None:
    assert spoil(begun.folder / "checkpoints", table, column, "abc")
    assert f"{said} is 'abc'" in told(begun, "run", "nightly").about("nightly")


@pytest.mark.parametrize(("table", "column"), columns(), ids=str)
@pytest.mark.parametrize("value", [-99999999999999, "abc", b"\xff\x00"], ids=["far", "text", "bytes"])
def test_no_column_of_any_table_can_make_a_fault_of_the_program(
    begun: Project, table: str, column: str, value: object
) -> None:
    spoil(begun.folder / "checkpoints", table, column, value)
    for command in (["status"], ["check"], ["tick"]):
        assert told(begun, *command).code in (0, 65, 69)
    assert (begun.folder / "apart" / "apart.json").read_text().count('"answered"') == 1


GARBAGE: st.SearchStrategy[Any] = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 5),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.sampled_from(["", "ready", "{}", '{"status": "done"}', b'{"status": 7}', 2**62, 253402300800]),
)


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.sampled_from(columns()), value=GARBAGE, first=st.sampled_from(COMMANDS), then=st.sampled_from(COMMANDS))
def test_whatever_a_column_holds_every_command_ends_with_a_code_of_its_own(
    template: Path, begun: Project, place: tuple[str, str], value: object, first: list[str], then: list[str]
) -> None:
    renewed(template, begun)
    spoil(begun.folder / "checkpoints", *place, value)
    for command in (first, then, ["status"]):
        assert told(begun, *command).code in (0, 65, 69, 75), (place, value, command)


def test_a_daemon_outlives_a_senseless_row_and_the_other_folders_go_on(project: Project) -> None:
    goes_on = tool_calls(("c1", "read_file", "{}"))
    with chat_server(goes_on, goes_on, answer("fin")) as chat:
        jobs = {
            "nightly": {"schedule": "every 1h"},
            "apart": {"schedule": "every 1h", "checkpoint": "apart/apart.json"},
        }
        project.live(chat.url, jobs, after_failure=[])
        log = project.folder.parent / "daemon.log"
        with open(log, "w") as out, project.start("daemon", stdout=out, stderr=out) as daemon:
            try:
                chat.wait_for(2, 60)
                # As a job that has just been seen, so that it would be due at once.
                assert spoil(project.folder / "checkpoints", "job", "since", -99999999999999)
                wait_until(lambda: "job.since is -99999999999999" in log.read_text(), 30, log.read_text())
                with contextlib.closing(sqlite3.connect(project.folder / "apart" / NAME, timeout=30)) as base, base:
                    base.execute("UPDATE admission SET point = NULL")
                wait_until(lambda: chat.count == 3, 60, log.read_text())
                assert daemon.poll() is None
                daemon.send_signal(signal.SIGTERM)
                assert daemon.wait(60) == 0
            finally:
                daemon.kill()
    assert "Traceback" not in log.read_text()

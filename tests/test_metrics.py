"""The numbers for a monitoring system: right, complete, cheap, accepted by Prometheus, and never in the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.doctor import examine
from scheduler.document import digest
from scheduler.herald import Herald
from scheduler.inventory import pattern_of
from scheduler.jobfile import read_job_file
from scheduler.ledger import NAME, ledger_of
from scheduler.metrics import MetricsFile, count, write
from scheduler.roster import MISSED, RELOAD_FAILURES, Pulse, count_up, write_pulse
from scheduler.state import OUTCOMES
from scheduler.told import Places
from tests.support import ROOT, ChatServer, Project, answer, tool_calls, wait_until
from tests.test_bad_input import KEY, ran

PULSE = Pulse(version="1", digest="d", loaded_at=5, max_parallel=8, tried="d", fault="", at=9)
DEMO = {"task": "Greet", "provider": "demo"}


pytestmark = pytest.mark.usefixtures("surroundings")


def textfile(project: Project) -> Path:
    return project.folder / "resumed.prom"


def numbers(project: Project) -> dict[str, float]:
    """Each sample of the file, by its name and labels."""
    text = textfile(project).read_text()
    return {
        " ".join([sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_tick_writes_what_happened(project: Project, chat: ChatServer) -> None:
    chat.script = [(503, {}), tool_calls(("c1", "list_files", "{}")), answer("fin")]
    (project.folder / "notes.md").write_text("x\n")
    asks = {"schedule": "every 1s", "read": ["notes.md"]}
    greet = {**DEMO, "schedule": "every 1s"}
    project.live(
        chat.url,
        {
            "nightly": asks,
            "greet": {**greet, "checkpoint": "apart/greet.json"},
            "later": {**DEMO, "schedule": "0 0 1 1 *"},
            "off": {**greet, "enabled": False},
            "bad": {"schedule": "nonsense"},
        },
        after_failure=[],
        metrics={"textfile": "resumed.prom"},
    )
    before = time.time()
    old = os.umask(0o077)
    try:
        for _ in range(3):
            ran("--config", project.config, "run", "nightly")
            ran("--config", project.config, "unblock", "local")
        assert "resumed_last_tick_timestamp_seconds" not in numbers(project)
        ran("--config", project.config, "tick", "greet")
    finally:
        os.umask(old)
    found = numbers(project)
    assert found["resumed_attempts_total live=true outcome=http_error"] == 1
    assert found["resumed_attempts_total live=true outcome=tool_calls"] == 1
    assert found["resumed_attempts_total live=true outcome=answered"] == 1
    assert found["resumed_attempts_total live=false outcome=answered"] == 1
    assert {name.rpartition("=")[2] for name in found if "attempts_total" in name} == set(OUTCOMES)
    states = {name.rpartition("=")[2]: value for name, value in found.items() if name.startswith("resumed_jobs ")}
    assert states == {"ready": 1, "running": 0, "done": 2, "exhausted": 0, "blocked": 1, "disabled": 1}
    assert found["resumed_slice_duration_seconds_count"] == 4
    assert found["resumed_slice_duration_seconds_bucket le=+Inf"] == 4
    assert found["resumed_slice_duration_seconds_bucket le=60.0"] == 4
    assert found["resumed_attempts_in_flight"] == found["resumed_ledgers_unreadable"] == 0
    assert found["resumed_missed_points_total"] == found["resumed_reload_failures_total"] == 0
    assert before - 1 <= found["resumed_last_tick_timestamp_seconds"] <= time.time()
    assert before - 1 <= found["resumed_last_attempt_timestamp_seconds"] <= time.time()
    assert stat.S_IMODE(textfile(project).stat().st_mode) == 0o644
    assert [path.name for path in project.folder.iterdir() if path.name.endswith(".tmp")] == []
    assert KEY not in textfile(project).read_text()


def test_prometheus_s_own_checker_accepts_the_file(project: Project) -> None:
    checker = shutil.which("promtool")
    if checker is None:  # a machine without it is no fault, but CI installs it
        assert "CI" not in os.environ, "promtool is not installed"
        return
    project.write_jobs(
        {"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": "resumed.prom"}
    )
    assert ran("--config", project.config, "tick").code == 0
    with open(textfile(project)) as file:
        checked = subprocess.run(
            [checker, "check", "metrics"], stdin=file, capture_output=True, text=True, check=False, timeout=60
        )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_counters_of_the_daemon_are_those_of_the_ledgers(project: Project) -> None:
    job = {**DEMO, "schedule": "0 0 1 1 *"}
    project.write_jobs(
        {
            "one": {**job, "checkpoint": "checkpoints/one.json"},
            "two": {**job, "checkpoint": "apart/two.json"},
        },
        metrics={"textfile": "resumed.prom"},
    )
    ran("--config", project.config, "tick")
    for folder in ("checkpoints", "apart"):
        with ledger_of(project.folder / folder).writing() as tx:
            count_up(tx, MISSED, 2)
            count_up(tx, MISSED)
            count_up(tx, RELOAD_FAILURES)
            write_pulse(tx, str(project.config), replace(PULSE, at=1_000 + len(folder)))
            write_pulse(tx, "/other/jobs.yaml", replace(PULSE, at=9000))
            tx.execute("INSERT INTO told VALUES ('one', 'c', 'm', 1, 1, 'refused')")
            delivery = ("one.json", 1, "0" * 64, 1, "f", "ann", 1, 1, "1", "b", "delivered", "", 1)
            tx.execute(f"INSERT INTO delivery VALUES ({', '.join('?' * 13)})", delivery)
    write(read_job_file(project.config))
    found = numbers(project)
    assert found["resumed_missed_points_total"] == 6
    assert found["resumed_reload_failures_total"] == 2
    assert found["resumed_daemon_heartbeat_timestamp_seconds"] == 1_000 + len("checkpoints")
    assert found["resumed_notifications_failing"] == 2
    assert found["resumed_deliveries_total outcome=delivered"] == 2
    assert found["resumed_deliveries_total outcome=unknown"] == 0


def test_a_running_slice_is_in_flight_and_in_no_duration(project: Project, chat: ChatServer) -> None:
    chat.hold.clear()
    project.live(chat.url, metrics={"textfile": "resumed.prom"})
    with project.start("run", "nightly") as process:
        try:
            chat.wait_for(1)
            found = count(read_job_file(project.config))
            assert (found.in_flight, found.states["running"], found.durations.total()) == (1, 1, 0)
        finally:
            process.kill()
    found = count(read_job_file(project.config))
    assert (found.in_flight, found.states["running"], found.states["ready"]) == (0, 0, 1)
    chat.hold.set()
    ran("--config", project.config, "run", "nightly")  # it ends the attempt of the process that is gone
    found = count(read_job_file(project.config))
    assert (found.attempts["interrupted", "1"], found.attempts["answered", "1"]) == (1, 1)
    assert found.durations.total() == 1


def test_a_slice_is_in_each_bucket_that_it_does_not_exceed(project: Project) -> None:
    project.write_jobs(
        {"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": "resumed.prom"}
    )
    ran("--config", project.config, "tick")
    with ledger_of(project.folder / "checkpoints").writing() as tx:
        tx.execute("UPDATE admission SET ended_at = admitted_at + 5")
    write(read_job_file(project.config))
    found = numbers(project)
    name = "resumed_slice_duration_seconds"
    assert (found[f"{name}_bucket le=2.0"], found[f"{name}_bucket le=5.0"], found[f"{name}_sum"]) == (0, 1, 5)


def test_the_openings_of_a_series_are_counted_and_other_files_are_not(project: Project) -> None:
    series = {**DEMO, "task": "Report", "checkpoint": "checkpoints/weekly-{opening}.json"}
    project.write_jobs({"weekly": {**series, "series": {"opens": "0 7 * * 1", "times": 3}}})
    job_file = read_job_file(project.config)
    [pattern] = [pattern_of(job) for job in job_file.series.values()]
    assert pattern.fullmatch("weekly-2026-11-30T0600Z.json")
    assert not pattern.fullmatch("weekly-notes.json")
    apart = Project(project.folder)
    apart.write_jobs(
        {
            "first": {**DEMO, "checkpoint": "checkpoints/weekly-2026-11-30T0600Z.json"},
            "other": {**DEMO, "checkpoint": "checkpoints/other.json"},
        }
    )
    ran("--config", project.config, "tick")
    project.write_jobs(
        {
            "mine": {**DEMO, "task": "Mine", "checkpoint": "checkpoints/mine.json"},
            "weekly": {**series, "series": {"opens": "0 7 * * 1", "times": 3}},
        }
    )
    assert count(read_job_file(project.config)).states == {"blocked": 0, "done": 1, "ready": 1}


def test_a_damaged_ledger_is_counted_and_the_others_go_on(project: Project) -> None:
    project.write_jobs(
        {
            "one": {**DEMO, "checkpoint": "checkpoints/one.json"},
            "two": {**DEMO, "checkpoint": "apart/two.json"},
        },
        metrics={"textfile": "resumed.prom"},
    )
    ran("--config", project.config, "tick")
    ledger_of(project.folder / "apart")._database.close()
    (project.folder / "apart" / NAME).write_bytes(b"x" * 4096)
    write(read_job_file(project.config))
    found = numbers(project)
    assert found["resumed_ledgers_unreadable"] == 1
    assert found["resumed_attempts_total live=false outcome=answered"] == 1


@pytest.mark.parametrize("fault", ["folder", "directory", "package"])
def test_metrics_that_cannot_be_written_are_one_line_and_the_jobs_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    place = "missing/resumed.prom" if fault == "folder" else "resumed.prom"
    project.write_jobs({"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": place})
    if fault == "directory":
        (textfile(project) / "full").mkdir(parents=True)
    if fault == "package":
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
    told = ran("--config", project.config, "tick")
    assert told.code == 0
    told.one_line("pipx inject resumed prometheus-client" if fault == "package" else place)
    assert project.document("greet")["status"] == "done"
    assert [path.name for path in project.folder.rglob("*.tmp")] == []
    assert ran("--config", project.config, "tick").err == "", "a standing fault is mail each minute"
    said: list[str] = []
    log = lambda level, message, /, event="", job="", **facts: said.append(message)  # noqa: E731
    herald = Herald(read_job_file(project.config), {}, log)
    writer = MetricsFile(herald.note_metrics)
    for _ in range(2):
        writer.touch()
        writer.look(read_job_file(project.config))
    assert len(said) == 1


@pytest.mark.parametrize(
    "place", ["checkpoints/.ledger.sqlite3", "checkpoints/greet.json", "jobs.yaml", "notes.md", "link", "fifo"]
)
def test_numbers_replace_no_file_but_their_own(project: Project, place: str) -> None:
    (project.folder / "notes.md").write_text("kept")
    (project.folder / "link").symlink_to("notes.md")
    os.mkfifo(project.folder / "fifo")
    project.write_jobs({"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": place})
    config = project.config.read_bytes()
    told = ran("--config", project.config, "tick")
    told.one_line(str(project.folder / place))
    assert told.code == 0
    assert project.document("greet")["status"] == "done"
    assert (project.config.read_bytes(), (project.folder / "notes.md").read_text()) == (config, "kept")
    assert (project.folder / "link").is_symlink()
    assert ran("--config", project.config, "status").code == 0
    found = [it for it in examine(read_job_file(project.config), os.environ, project.folder) if it.topic == "metrics"]
    assert [it.level for it in found] == ["wrong"]
    assert str(project.folder / place) in found[0].text


def test_metrics_that_fail_again_within_an_hour_are_not_told_again(project: Project) -> None:
    project.write_jobs({"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": "a/b.prom"})
    ran("--config", project.config, "tick").one_line("a/b.prom")
    (project.folder / "a").mkdir()
    assert ran("--config", project.config, "tick").err == ""
    assert (project.folder / "a/b.prom").exists()
    assert list(Places(project.config, os.environ).troubled("metrics:", None)) == []
    shutil.rmtree(project.folder / "a")
    assert ran("--config", project.config, "tick").err == ""
    assert len(list(Places(project.config, os.environ).troubled("metrics:", None))) == 1


def test_without_metrics_nothing_is_written_and_prometheus_not_loaded(project: Project) -> None:
    project.write_jobs({"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}})
    code = (
        "import sys; from scheduler.cli import main; main(sys.argv[1:]);"
        "sys.exit('prometheus_client' in sys.modules or 'apscheduler' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "--config", str(project.config), "tick"]
    assert subprocess.run(command, env=project.environ(), check=False).returncode == 0
    assert {path.name for path in project.folder.iterdir()} == {"jobs.yaml", "checkpoints"}


def test_the_numbers_are_written_when_a_slice_ended_or_it_is_long_ago(project: Project) -> None:
    project.write_jobs(
        {"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": "resumed.prom"}
    )
    job_file = read_job_file(project.config)
    writer = MetricsFile(lambda fault: pytest.fail(fault) if fault else None)
    for fresh, written in ((False, True), (False, False), (True, True)):
        textfile(project).unlink(missing_ok=True)
        if fresh:
            writer.touch()
        writer.look(job_file)
        assert textfile(project).exists() == written


def test_a_tick_of_one_job_makes_no_other_folder(project: Project) -> None:
    jobs = {name: {**DEMO, "task": name, "checkpoint": f"{name}/x.json"} for name in ("a", "b")}
    project.write_jobs(jobs, metrics={"textfile": "resumed.prom"})
    assert ran("--config", project.config, "tick", "b").err == ""
    assert not (project.folder / "a").exists()
    assert "resumed_last_tick_timestamp_seconds" in numbers(project)


def test_a_daemon_writes_after_a_slice(project: Project) -> None:
    job = {**DEMO, "schedule": "every 1h", "checkpoint": "checkpoints/greet.json"}
    project.write_jobs({"greet": job}, metrics={"textfile": "resumed.prom"})
    done = "resumed_jobs state=done"
    with project.start("daemon") as daemon:
        try:
            wait_until(lambda: textfile(project).exists() and numbers(project)[done] == 1, 30, "the numbers")
            assert numbers(project)["resumed_daemon_heartbeat_timestamp_seconds"] > 1e9
            project.write("jobs: {")
            failures = "resumed_reload_failures_total"
            wait_until(lambda: numbers(project)[failures] == 1, 30, "the count of a bad edit")
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0
        finally:
            daemon.kill()


def test_ten_thousand_jobs_are_counted_within_seconds(project: Project) -> None:
    number = 10_000
    jobs = {f"j{n}": {**DEMO, "task": f"Greet {n}", "checkpoint": f"checkpoints/j{n}.json"} for n in range(number)}
    project.write_jobs({name: jobs[name] for name in ["j0"]}, metrics={"textfile": "resumed.prom"})
    ran("--config", project.config, "tick")
    body = json.dumps({**project.document("j0"), "task": "Greet " * 1000}).encode()
    with ledger_of(project.folder / "checkpoints").writing() as tx:
        rows = [(f"j{n}.json", 1, body, digest(body)) for n in range(1, number)]
        tx.executemany("INSERT INTO document VALUES (?, ?, ?, ?)", rows)
    project.write_jobs(jobs, metrics={"textfile": "resumed.prom"})
    job_file = read_job_file(project.config)
    begun = time.process_time()
    write(job_file)
    assert time.process_time() - begun < 5
    assert numbers(project)["resumed_jobs state=done"] == number


def test_the_readme_lists_each_metric(project: Project) -> None:
    project.write_jobs(
        {"greet": {**DEMO, "checkpoint": "checkpoints/greet.json"}}, metrics={"textfile": "resumed.prom"}
    )
    ran("--config", project.config, "tick")
    with ledger_of(project.folder / "checkpoints").writing() as tx:
        write_pulse(tx, str(project.config), PULSE)
    write(read_job_file(project.config))
    found = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(textfile(project).read_text())
    }
    assert set(re.findall(r"`(resumed_\w+)`", (ROOT / "README.md").read_text("utf-8"))) == found

"""The README is true: its commands and programs run as printed, and its tables say what the code says."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import scheduler
from scheduler import cli, jobfile, records
from scheduler.cli import diagnose, output
from scheduler.job import EVENTS, JobFile
from scheduler.notices import Notice, notice_json
from scheduler.shapes import FileEntry, JobEntry, ProviderEntry
from tests.support import PROGRAM, ROOT, Project, state_home

pytestmark = [
    pytest.mark.timeout(300),  # the package index may be slow
    pytest.mark.keeps_key("clone/*", because="a copy of this repository holds the tests, which name the keys"),
]

README = (ROOT / "README.md").read_text("utf-8")
SPANISH = (ROOT / "README.es.md").read_text("utf-8")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOG_PREFIX = re.compile(r"^\S+Z (info|warning|error) +(job )?")
ELLIPSIS = "…"


def blocks(language: str, readme: str = README) -> list[str]:
    """The fenced blocks of one language."""
    return [body for found, body in FENCED.findall(readme) if found == language]


def prose(readme: str) -> str:
    """A README without its fenced blocks."""
    return FENCED.sub("", readme)


def tables(readme: str) -> list[list[list[str]]]:
    """Every table, as its rows of cells; the header is the first row."""
    found = re.findall(r"^\|.*\|\n(?:^\|.*\|(?:\n|\Z))+", prose(readme), re.MULTILINE)
    lines = [[line for line in table.splitlines() if not line.startswith("|---")] for table in found]
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table] for table in lines]


def table(header: str) -> list[list[str]]:
    """The rows under the header whose first cell this is, as they read once rendered."""
    (found,) = [rows[1:] for rows in tables(README) if rows[0][0] == header]
    return [[cell.replace(r"\|", "|") for cell in row] for row in found]


def spans(text: str) -> list[str]:
    """The inline code of a text."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


# Where the commands run: a fresh copy, an environment with nothing in it, and the program that `make run` built.


def copy_tree(target: Path) -> Path:
    """Copy what a clone made with umask 002 holds."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.endswith("/")]
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(".git", *ignored))
    for path in (target / "checkpoints").iterdir():
        if path.name != "README.md":
            path.unlink()
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | 0o060 | (0o010 if path.is_dir() else 0))
    return target


def bare(home: Path, *folders: Path) -> dict[str, str]:
    """An environment of PATH and HOME, and of how this machine reaches its package index where that is set."""
    reach = ("PIP_", "SSL_CERT_")
    kept = {name: value for name, value in os.environ.items() if name.startswith(reach) or "_proxy" in name.lower()}
    path = os.pathsep.join([*map(str, folders), str(home / "tools"), os.environ["PATH"]])
    return kept | {"PATH": path, "HOME": str(home), **state_home(home)}


def sh(line: str, folder: Path, environ: dict[str, str], code: int = 0) -> str:
    """Run a line by the shell; return what a terminal would show of it."""
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == code, f"{line}: exit {done.returncode}\n{done.stdout}"
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


@dataclass
class Built:
    """A copy in which `make run` ran twice: what each printed and left in checkpoints/."""

    home: Path
    folder: Path
    printed: list[str]
    left: list[dict[str, tuple[bytes, int]]]

    def environ(self) -> dict[str, str]:
        return bare(self.home, self.folder / ".venv/bin")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder, and beside its files a folder of tools in which python3 is the Python of this run."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tools").mkdir()
    (folder / "tools/python3").symlink_to(Path(sys.executable).resolve())
    return folder


@pytest.fixture(scope="session")
def built(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The copy in which `make run` ran twice."""
    folder = copy_tree(tmp_path_factory.mktemp("built") / "clone")
    found = Built(home, folder, [], [])
    for _ in range(2):
        found.printed.append(sh("make run", folder, bare(home)))
        files = (folder / "checkpoints").glob("*.json")
        found.left.append({path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files})
    return found


@dataclass
class Place:
    """Where the lines of one block run: a fresh copy, with the built program at hand."""

    built: Built
    folder: Path


@pytest.fixture
def place(built: Built, tmp_path: Path) -> Place:
    return Place(built, copy_tree(tmp_path / "clone"))


# The ways of running a line. A line of the README that none of them takes fails.


def make_run(line: str, place: Place) -> None:
    assert len(place.built.printed) == 2
    assert len(place.built.left[0]) == 2


def pipx_install(line: str, place: Place) -> None:
    home = place.folder.parent / "home"
    home.mkdir(mode=0o700)
    shutil.copytree(place.folder / "config", home / "config")
    (home / "config/jobs.yaml").chmod(0o600)
    environ = bare(place.built.home, home / "pipx/bin") | {
        "HOME": str(home),
        "PIPX_HOME": str(home / "pipx-home"),
        "PIPX_BIN_DIR": str(home / ".local/bin"),
        "RESUMED_CONFIG": str(home / "config/jobs.yaml"),
    }
    sh("python3 -m venv pipx && pipx/bin/python -m pip install --quiet pipx", home, environ)
    sh(line, place.folder, environ)
    shutil.rmtree(place.folder)  # the program needs nothing of the source
    environ["PATH"] = os.pathsep.join([str(home / ".local/bin"), os.environ["PATH"]])
    shown = sh("resumed --help", Path("/"), environ)
    assert all(re.search(rf"^    {command}\b", shown, re.MULTILINE) for command in commands())
    assert "4 of 4 requests left" in sh("resumed check", Path("/"), environ)


def systemd_verify(line: str, place: Place) -> None:
    assert sh(line, place.folder, bare(place.built.home)) == ""


def daemon(line: str, place: Place) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short}/notify")
        manager.settimeout(60)
        environ = place.built.environ() | {"NOTIFY_SOCKET": f"{short}/notify"}
        errors: dict[str, Any] = {"stderr": subprocess.PIPE, "encoding": "utf-8"}
        with subprocess.Popen(shlex.split(line), cwd=place.built.folder, env=environ, **errors) as process:
            try:
                told = [manager.recv(4096).decode().split("\n")[0]]
                process.send_signal(signal.SIGTERM)
                while told[-1] != "STOPPING=1":
                    told.append(manager.recv(4096).decode().split("\n")[0])
                _, said = process.communicate(timeout=60)
            finally:
                process.kill()
    assert (told[0], told[-1], process.returncode) == ("READY=1", "STOPPING=1", 0), said


def resumed(said: str) -> Callable[[str, Place], None]:
    """A way that runs the built program, and looks for a pattern in what it says."""

    def way(line: str, place: Place) -> None:
        shown = sh(line, place.folder, place.built.environ())
        assert re.search(said, shown), f"{line}: {shown}"

    return way


def doctor(said: str) -> Callable[[str, Place], None]:
    """A way that has the folder of the checkpoints as `make run` leaves it."""

    def way(line: str, place: Place) -> None:
        (place.folder / "checkpoints").chmod(0o700)
        resumed(said)(line, place)

    return way


WAYS: list[tuple[str, Callable[[str, Place], None]]] = [
    (r"make run", make_run),
    (r"pipx install \.", pipx_install),
    (r"systemd-analyze verify \S+", systemd_verify),
    (
        r"resumed init ~/jobs",
        resumed(r"(?s)\Amade /\S+.*\* \* \* \* \*  /\S+/resumed --config \S+ tick\n.*\[Service\]"),
    ),
    (r"resumed doctor", doctor(r"(?m)^\d+ checks: nothing is wrong$")),
    (r"resumed doctor --verbose --online", doctor(r"(?ms)^ok     locks: .*^note   online: live is false")),
    (r"resumed daemon", daemon),
    (r"resumed check", resumed(r"shipping-question: every 2 seconds \(UTC\); 4 of 4 requests left")),
    (r"resumed check --days 7", resumed(r"(?s)4 of 4 requests left.*\n    next \d{4}-\d\d-\d\d .*and more")),
    (r"resumed tick", resumed(r"\A\Z")),
    (r"resumed run \S+", resumed(r"info +job \S+: attempt 2 of 4: answered, unreviewed: Standard shipping")),
    (r"resumed status", resumed(r"(?m)^shipping-question  done   ●●○○ .* unreviewed: Standard shipping")),
    (r"resumed status --json", resumed(r'"state": "done",\s+"attempts": 2,')),
    (
        r"resumed show \S+",
        resumed(r"(?s)TASK\n.*ANSWER \(unreviewed, SHA-256 \w+\)\n  Standard shipping.*EVIDENCE\n.*ATTEMPTS\n"),
    ),
    (r"resumed show \S+ --answer", resumed(r"\AStandard shipping takes three to five working days\.")),
    (r"resumed selftest", resumed(r"(?m)^\d\d kills, nothing lost, nothing exceeded; took \d+ s$")),
    (r"resumed preview \S+", resumed(r"attempt 1 of 4, to offline-demo \(offline\); nothing was sent or counted\n")),
    (r"resumed review \S+ --approve --note .*", resumed(r"(?m)^job shipping-question: approved$")),
    (r"resumed work .* --demo --once", resumed(r"(?m)^state: ready, 1 attempt")),
    (r"resumed renew (\S+) --reason .* --confirm \1", resumed(r"job shipping-question: .*4 attempts")),
]


def way_of(line: str) -> Callable[[str, Place], None]:
    found = [way for pattern, way in WAYS if re.fullmatch(pattern, line)]
    assert len(found) == 1, f"no way, or more than one, of running this line of the README: {line}"
    return found[0]


@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.splitlines()[0])
def test_every_line_of_a_shell_block_works_as_printed(block: str, place: Place) -> None:
    for line in block.splitlines():
        way_of(line)(line, place)


def test_every_block_is_of_a_kind_that_is_run_here() -> None:
    assert re.findall(r"^```(\w*)$", README, re.MULTILINE).count("") == len(FENCED.findall(README))
    assert {language for language, _ in FENCED.findall(README)} == {"sh", "python", "yaml", "crontab", "text"}


def shown_lines(text: str) -> list[str]:
    """Lines without their log prefix and column widths; blank ones are left out."""
    lines = [" ".join(LOG_PREFIX.sub("", line).split()) for line in text.splitlines()]
    return [line for line in lines if line]


def test_make_run_prints_what_the_readme_shows(built: Built) -> None:
    (text,) = blocks("text")
    printed = iter(shown_lines(built.printed[0]))
    for line in shown_lines(text):
        start = line.removesuffix(ELLIPSIS).rstrip()
        cut = line.endswith(ELLIPSIS)
        assert any(real == line or (cut and real.startswith(start)) for real in printed), f"not printed here: {line}"


def test_the_output_of_make_run_stands_by_line_25() -> None:
    end = next(found.end() for found in FENCED.finditer(README) if found[1] == "text")
    assert README[:end].count("\n") + 1 <= 25


def test_a_second_make_run_sends_nothing_and_says_so(built: Built) -> None:
    lines = shown_lines(built.printed[1])
    for job in ("shipping-question", "welcome-note"):
        assert f"{job}: it is done, and nothing more is sent" in lines
    assert "attempt" not in built.printed[1].replace("ATTEMPTS", "")
    assert built.left[0] == built.left[1]


@pytest.mark.parametrize("target", ["test", *spans(README.partition("`Makefile` ")[2].partition("\n\n")[0])])
def test_a_make_target_that_the_readme_names_exists(target: str, built: Built) -> None:
    said = sh(f"make -n {target}", built.folder, bare(built.home))
    assert "Nothing to be done" not in said
    assert target != "test" or re.search(r"^\S+ -m pytest\b", said, re.MULTILINE)


def programs() -> tuple[str, str]:
    first, second = blocks("python")
    return first, second


def test_the_python_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(programs()[0], {})
    assert "Standard shipping takes 3 to 5 working days" in capsys.readouterr().out


def test_the_slice_that_a_user_writes_does_what_ours_does(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = programs()
    names: dict[str, Any] = {}
    exec(second, names)
    calls = "state, events = resume_once("
    assert first.count(calls) == 2
    exec(first, {})
    exec(first.replace(calls, "state, events = my_resume_once("), names)
    ours, theirs = capsys.readouterr().out.splitlines()
    assert theirs == ours


def test_two_functions_take_the_keywords_that_the_readme_names() -> None:
    sentence = re.search(r"`(\w+)` and `(\w+)`\s+take\s+([^.]*?)\s+by\s+keyword", README)
    assert sentence, "the README names no two functions that take keywords"
    for name in sentence.group(1, 2):
        parameters = inspect.signature(getattr(scheduler, name)).parameters.values()
        assert [one.name for one in parameters if one.kind is one.KEYWORD_ONLY] == spans(sentence[3])


def test_the_yaml_example_is_a_whole_good_file(project: Project) -> None:
    example, *_ = blocks("yaml")
    project.write(example)
    (project.folder / "CHANGELOG.md").write_text("- Faster.\n")
    read = jobfile.parse_job_file(example.encode(), project.config)
    assert (read.problems, list(read.jobs), read.live) == ((), ["release-notes"], True)
    checked = project.run("check")
    assert checked.stderr == ""
    assert "at 09:00 on Monday through Friday (Europe/Madrid); 4 of 4 requests left" in checked.stdout


def test_the_series_of_the_readme_is_a_good_one(project: Project) -> None:
    _, example, _ = blocks("yaml")
    (project.folder / "CHANGELOG.md").write_text("- Faster.\n")
    project.write(example)
    checked = project.run("check")
    assert checked.stderr == ""
    assert "opens at 07:00 on Monday (UTC); 52 of 52 openings left, at most 208 requests" in checked.stdout


def test_the_channels_of_the_second_yaml_example_are_good_ones_of_each_kind(project: Project) -> None:
    *_, example = blocks("yaml")
    text = f"{example}jobs: {{one: {{task: Say it, checkpoint: one.json, provider: demo}}}}\n"
    read = jobfile.parse_job_file(text.encode(), project.config)
    assert read.problems == ()
    assert [channel.kind for channel in read.notify] == ["webhook", "webhook", "ping", "argv", "apprise"]
    assert read.jobs["one"].notify == read.notify


def test_the_table_of_events_lists_each_in_its_order() -> None:
    assert [spans(name) for name, _ in table("event")] == [[event] for event in EVENTS]


def test_the_json_of_a_notification_has_the_keys_that_the_readme_names() -> None:
    sentence = prose(README).partition("The JSON has ")[2].partition(". ")[0]
    fields = notice_json(Notice(event="done", job="a"), config="", host="", time="", version="")
    assert spans(sentence) == list(fields)


def test_the_comments_of_the_yaml_example_name_the_built_in_provider() -> None:
    example, *_ = blocks("yaml")
    built_in = records.MANDAPI
    assert built_in.key
    assert f"default: {built_in.name}, with {built_in.key.name} and {built_in.model_env}\n" in example


def test_the_crontab_line_is_the_one_of_the_sample_and_works(tmp_path: Path) -> None:
    (line,) = blocks("crontab")
    assert line in (ROOT / "config/crontab.sample").read_text("utf-8").splitlines(keepends=True)
    schedule, command = re.fullmatch(r"((?:\S+ ){4}\S+) +(.*)\n", line).groups()  # type: ignore[union-attr]
    assert schedule == "* * * * *"
    program, project = tmp_path / ".local/bin/resumed", Project(tmp_path / ".config/resumed")
    for folder in (program.parent, project.folder):
        folder.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    project.write_jobs({"nightly": {"task": "Greet", "checkpoint": "checkpoints/nightly.json", "provider": "demo"}})
    assert sh(command, Path("/"), {"HOME": str(tmp_path), **state_home(tmp_path)}) == ""
    assert (project.document()["attempts"], project.document()["status"]) == (1, "done")


# The tables that restate code.


def commands() -> dict[str, Any]:
    """The parser of each command."""
    parser = cli.build_parser()
    (choices,) = [action.choices for action in parser._actions if isinstance(action.choices, dict)]
    return dict(choices)


def test_the_commands_table_lists_every_command_with_its_options() -> None:
    rows = {}
    for usage, _ in table("command"):
        name, rest = re.fullmatch(r"`resumed (\w+) ?(.*)`", usage).groups()  # type: ignore[union-attr]
        optional = " ".join(re.findall(r"\[(.*?)\]", rest))
        flags = set(re.findall(r"--[a-z0-9-]+", rest))
        rows[name] = (
            flags,
            flags - set(re.findall(r"--[a-z0-9-]+", optional)),
            sorted(re.findall(r"\b[A-Z]+\b", rest)),
        )
    found = {}
    for name, parser in commands().items():
        actions = [action for action in parser._actions if action.dest != "help"]
        flags = {action.option_strings[-1] for action in actions if action.option_strings}
        needed = {action.option_strings[-1] for action in actions if action.option_strings and action.required}
        found[name] = (flags, needed, sorted(str(action.metavar) for action in actions if action.metavar))
    either = {
        "work": {"--demo", "--live"},
        "adopt": {"--all"},
        "review": {"--approve", "--reject"},
    }  # one of two, which the command itself asks for
    for name, more in either.items():
        flags, needed, values = found[name]
        found[name] = (flags, needed | more, values)
    assert rows == found


def test_the_commands_that_the_prose_names_exist() -> None:
    named = {span.split()[1] for span in spans(prose(README)) if re.match(r"resumed \w", span)}
    assert named == set(commands())


def defaults(rows: list[list[str]]) -> dict[str, str]:
    """The first key of each row whose default is written as code or as a number, with that default."""
    found = {}
    for keys, _, default in rows:
        if literal := re.match(r"`(.+?)`|(\d+)$", default):
            found[spans(keys)[0]] = literal[1] or literal[2]
    return found


def read(project: Project, entry: str, provider: str = "") -> JobFile:
    """Read a file with one job and one provider, to which these lines of flow YAML are added."""
    text = (
        f'providers: {{mine: {{base_url: "https://h.example/v1"{provider}}}}}\n'
        f"jobs: {{one: {{task: Say it, checkpoint: one.json{entry}}}}}\n"
    )
    found = jobfile.parse_job_file(text.encode(), project.config)
    assert found.problems == ()
    return found


def spelled(values: dict[str, str]) -> str:
    return "".join(f", {key}: {value}" for key, value in values.items())


def test_the_job_table_lists_every_key_and_its_default(project: Project) -> None:
    rows = table("key of a job")
    assert {key for keys, *_ in rows for key in spans(keys)} == set(JobEntry.model_fields)
    given = defaults(rows)
    assert set(given) == {"provider", "schedule", "max_attempts", "after_failure", "catch_up", "enabled", "jitter"}
    assert read(project, spelled(given)).jobs == read(project, "").jobs
    required = [keys for keys, _, default in rows if not default]
    assert spans(required[0]) == [name for name, field in JobEntry.model_fields.items() if field.is_required()]
    assert len(required) == 1


def test_the_provider_table_lists_every_key_and_its_default(project: Project) -> None:
    rows = table("key of a provider")
    keys = {key for keys, *_ in rows for key in spans(keys)}
    assert {*keys, "allow_http"} == set(ProviderEntry.model_fields)
    assert any("`allow_http: true`" in meaning for _, meaning, _ in rows)
    given = defaults(rows)
    assert set(given) == {"timeout", "replay_fields", "last_attempt"}
    assert read(project, "", spelled(given)).providers == read(project, "").providers


def test_the_readme_names_every_key_of_the_file() -> None:
    text = "\n".join([*blocks("yaml"), *spans(prose(README))])
    assert [key for key in FileEntry.model_fields if not re.search(rf"\b{key}\b", text)] == []


def test_the_exit_codes_are_those_of_the_program_in_their_order() -> None:
    codes = [int(code) for code, _ in table("code")]
    assert [code for code in codes if code in output.ORDER] == list(output.ORDER)
    assert set(codes) - set(output.ORDER) == {cli.USAGE, diagnose.FINDINGS}
    assert len(codes) == len(set(codes))


def test_the_dependencies_are_those_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [name.replace(" ", "") for name, _ in table("package")] == package["dependencies"]
    text = " ".join(prose(README).split())
    sentence = text.partition("The extra `test` brings ")[2].partition(". ")[0]
    metrics = text.partition("The extra `metrics` brings ")[2].partition(", ")[0]
    test, _, lint = sentence.partition("; ")
    notify = text.partition("the extra `notify` brings ")[2].partition(", ")[0]
    extras = {"metrics": metrics, "notify": notify, "test": test, "lint": lint}
    for extra, said in extras.items():
        names = {re.match(r"[\w-]+", line)[0] for line in package["optional-dependencies"][extra]}  # type: ignore[index]
        plain = said.replace("the types of ", "types-")
        assert set(re.findall(r"[\w-]+", plain)) - {"the", "extra", "lint", "and", "too"} == names


def test_the_twelve_promises_are_listed_once_in_order() -> None:
    assert [name for name, _ in table("promise")] == [f"I{number}" for number in range(1, 13)]


# Both languages.


@pytest.mark.parametrize("readme", [README, SPANISH], ids=["English", "Spanish"])
def test_the_links_point_to_what_exists(readme: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", prose(readme)) if "://" not in link]
    assert {"config/jobs.yaml", "config/crontab.sample", "config/resumed.service"} <= set(links)
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


def plain_blocks(readme: str) -> Iterator[tuple[str, str]]:
    """Each fenced block without its comments."""
    for language, body in FENCED.findall(readme):
        yield language, re.sub(r"(^|\s+)#.*", "", body, flags=re.MULTILINE)


def skeleton(readme: str) -> dict[str, Any]:
    """What two languages of one README have in common."""
    text = prose(readme)
    return {
        "headings": re.findall(r"^#+(?= )", text, re.MULTILINE),
        "tables": [[len(row) for row in rows] for rows in tables(readme)],
        "items": len(re.findall(r"^- ", text, re.MULTILINE)),
        "links": re.findall(r"\]\(([^)]+)\)", text),
        "code": sorted(set(spans(text))),
    }


def test_both_languages_have_the_same_blocks() -> None:
    assert list(plain_blocks(SPANISH)) == list(plain_blocks(README))
    assert SPANISH.count("  # ") == README.count("  # ")


def test_both_languages_have_the_same_parts() -> None:
    assert json.dumps(skeleton(SPANISH), indent=1) == json.dumps(skeleton(README), indent=1)


def test_nothing_is_left_untranslated() -> None:
    sentences = {line for line in prose(README).splitlines() if len(re.findall(r"[a-z]+ ", line)) >= 4}
    comments = set(re.findall(r"# .*", "".join(blocks("yaml"))))
    assert len(sentences) > 50
    assert {line for line in SPANISH.splitlines() if line in sentences} == set()
    assert {comment for comment in comments if comment in SPANISH} == set()

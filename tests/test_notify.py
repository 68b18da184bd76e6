"""One notification over one channel: what is sent, what hostile receivers can do, what a program of ours inherits."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.address import check_notify_url
from scheduler.child import Guarded, guard
from scheduler.job import Channel, KeySource
from scheduler.jobfile import read_job_file
from scheduler.notices import Notice, Told, notice_json, notice_line
from scheduler.notify import Message, Outbox, channel_name, send, shown_name
from tests.support import KEY, Hooks, Project, wait_until

TOKEN = "hook-canary-0123456789"
MESSAGE = Message("blocked", "job nightly: blocked: no key", {"event": "blocked", "job": "nightly", "reason": "no key"})
GUARDED = Guarded(environ={"PATH": os.environ["PATH"]}, secrets=())


def webhook(address: str | KeySource) -> Channel:
    return Channel(kind="webhook", target=address)


def program(code: str, *arguments: str) -> Channel:
    return Channel(kind="argv", target=(sys.executable, "-I", "-c", code, *arguments))


def sent(channel: Channel, message: Message = MESSAGE, seconds: float = 5, **environ: str) -> str:
    return send(channel, message, environ, GUARDED, seconds)


# ---- webhooks and pings


def test_a_webhook_gets_the_json_by_post_with_its_query(hooks: Hooks) -> None:
    assert sent(webhook(f"{hooks.url}/a/b?token={TOKEN}&x=1")) == ""
    assert [(path, json.loads(body)) for path, body in hooks.got] == [(f"/a/b?token={TOKEN}&x=1", MESSAGE.fields)]


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_2xx_is_a_success(hooks: Hooks, status: int) -> None:
    hooks.status = status
    assert sent(webhook(hooks.url)) == ""


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (302, "the answer was 302, and a redirect is not followed"),
        (404, "the answer was 404"),
        (500, "the answer was 500"),
    ],
)
def test_every_other_status_is_a_failure_and_no_redirect_is_followed(hooks: Hooks, status: int, said: str) -> None:
    hooks.status = status
    assert sent(webhook(hooks.url)) == said
    assert len(hooks.got) == 1


@pytest.mark.parametrize(
    ("event", "path"),
    [
        ("start", "/uuid/start"),
        ("progress", "/uuid"),
        ("done", "/uuid"),
        ("recovered", "/uuid"),
        ("exhausted", "/uuid/fail"),
        ("blocked", "/uuid/fail"),
        ("failed", "/uuid/fail"),
        ("missed", "/uuid/fail"),
    ],
)
@pytest.mark.parametrize("end", ["", "/"])
def test_a_ping_goes_to_the_path_of_its_event_with_one_line(hooks: Hooks, event: str, path: str, end: str) -> None:
    channel = Channel(kind="ping", target=f"{hooks.url}/uuid{end}?create=1")
    assert sent(channel, Message(event, "one line", {})) == ""
    assert hooks.got == [(f"{path}?create=1", "one line")]


def test_an_address_may_stand_in_a_variable(hooks: Hooks) -> None:
    channel = webhook(KeySource(kind="env", name="HOOK"))
    assert sent(channel, HOOK=f" {hooks.url}/x\n") == ""
    assert sent(channel) == "the variable HOOK is not set"
    assert (
        sent(channel, HOOK="ftp://example.com/" + TOKEN) == "a URL starts with https://, such as https://example.com/v1"
    )
    assert len(hooks.got) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "http://10.0.0.1/x",
        "https://169.254.169.254/latest",
        "https://user:word@example.com/",
        "ftp://example.com/",
        "https:///x",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "nonsense",
    ],
)
def test_an_address_of_the_file_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # each has a sentence of its own
        check_notify_url(url)
    assert "example.com/x" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://example.com/x?y=1#z", "http://127.0.0.1:8/x", "http://localhost/", "http://[::1]/"]
)
def test_https_and_this_machine_are_good_addresses(url: str) -> None:
    check_notify_url(url)


def test_plain_http_to_another_machine_is_for_variables_alone() -> None:
    check_notify_url("http://example.com/x", from_environment=True)
    with pytest.raises(ValueError, match="link-local"):
        check_notify_url("http://169.254.169.254/x", from_environment=True)


@pytest.mark.parametrize("channel", [{"argv": [f"https://example.com/{TOKEN}"]}, {"apprise": f"{TOKEN}:x"}])
def test_an_address_in_the_wrong_place_is_refused_and_not_shown(project: Project, channel: dict[str, Any]) -> None:
    job = {"task": "x", "checkpoint": "c/a.json", "provider": "demo", "notify": [channel]}
    project.write_jobs({"a": job})
    said = project.run("check", code=65).stderr
    assert "address" in said
    assert TOKEN not in said


def test_check_names_a_bad_address_and_does_not_show_it(project: Project) -> None:
    project.write_jobs(
        {"a": {"task": "x", "checkpoint": "c/a.json", "provider": "demo"}},
        notify=[{"webhook": f"http://example.com/{TOKEN}"}],
    )
    said = project.run("check", code=78).stderr
    assert "https://" in said
    assert TOKEN not in said


# ---- hostile receivers

Behaviour = Callable[[socket.socket], None]


def _hang(connection: socket.socket) -> None:
    connection.recv(1)


def _trickle(connection: socket.socket) -> None:
    connection.recv(65536)
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10000:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def _babble(connection: socket.socket) -> None:
    connection.sendall(f"{TOKEN}\r\n\r\n".encode())


def _hang_up(connection: socket.socket) -> None:
    connection.recv(65536)


def _never_end(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"5\r\nhello\r\n")
        time.sleep(0.01)


@contextlib.contextmanager
def receiver(behaviour: Behaviour) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    behaviour(connection)
                    connection.settimeout(30)
                    while connection.recv(65536):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/{TOKEN}?{TOKEN}"
    thread.join(20)
    assert not thread.is_alive(), "the connection was not cut"


@pytest.mark.parametrize("behaviour", [_hang, _trickle])
def test_a_receiver_that_hangs_or_trickles_is_cut_at_the_deadline(behaviour: Behaviour) -> None:
    with receiver(behaviour) as url:
        begun = time.monotonic()
        assert sent(webhook(url), seconds=0.5) == "no reply within 0.5 s"
        assert time.monotonic() - begun < 5


def test_a_body_that_never_ends_is_not_waited_for() -> None:
    with receiver(_never_end) as url:
        assert sent(webhook(url), seconds=20) == ""


def test_what_a_receiver_says_is_repeated_nowhere() -> None:
    with receiver(_babble) as url:
        assert sent(webhook(url)) == "no HTTP reply"


def test_nobody_there_is_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert sent(webhook(f"http://127.0.0.1:{port}/{TOKEN}")) == "no connection"


# ---- programs


def test_a_program_reads_the_json_and_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2] + sys.stdin.read())"
    assert sent(program(code, str(tmp_path / "out"), "$HOME; `id`")) == ""
    assert (tmp_path / "out").read_text() == "$HOME; `id`" + json.dumps(dict(MESSAGE.fields)) + "\n"


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        (program(f"print('{TOKEN}'); import sys; sys.exit('{TOKEN}')"), "it ended with exit code 1"),
        (program("import os, signal; os.kill(os.getpid(), signal.SIGTERM)"), "it ended with signal 15"),
        (Channel(kind="argv", target=("/nowhere/program",)), "it cannot be started: No such file or directory"),
        (Channel(kind="argv", target=("/etc/passwd",)), "it cannot be started: Permission denied"),
        (Channel(kind="argv", target=("a\0b",)), "it cannot be started: not a command"),
        (program("import sys; sys.stdin.close()"), ""),
    ],
)
def test_how_a_program_ended_is_said_and_nothing_that_it_printed(
    channel: Channel, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sent(channel) == said
    assert TOKEN not in "".join(capfd.readouterr())


def test_a_program_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-I', '-c', 'import time; time.sleep(300)'])\n"
        "open(sys.argv[1] + '.new', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "time.sleep(300)"
    )
    assert sent(program(code, str(tmp_path / "pids")), seconds=3) == "it ran longer than 3 s, and was killed"
    for pid in (tmp_path / "pids").read_text().split():
        wait_until(lambda pid=pid: not _runs(pid), 10, f"the end of {pid}")  # type: ignore[misc]  # bound above


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_program_that_leaves_a_child_behind_is_not_waited_for() -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-I', '-c', 'import time; time.sleep(20)'])"
    begun = time.monotonic()
    assert sent(program(code), seconds=15) == ""
    assert time.monotonic() - begun < 10


def test_a_child_inherits_no_variable_that_holds_a_secret(project: Project) -> None:
    (project.folder / "key").write_text("file-canary-0123456789\n")
    (project.folder / "service").write_text("credential-canary-0123456789\n")
    job = {"task": "x", "provider": "demo"}
    series = {"series": {"opens": "@daily", "times": 2}, "notify": [{"webhook": {"env": "SERIES_HOOK"}}]}
    project.write_jobs(
        {
            "a": {**job, "checkpoint": "c/a.json", "notify": [{"apprise": {"env": "JOB_HOOK"}}]},
            "b": {**job, "checkpoint": "c/b-{opening}.json", **series},
            "refused": {**job, "checkpoint": "c/c.json", "nonsense": 1, "notify": [{"ping": {"env": "REFUSED_HOOK"}}]},
        },
        notify=[{"webhook": {"env": "HOOK"}}, {"argv": ["true"]}, {"ping": "https://hc-ping.com/canary"}],
        providers={
            "a": {"base_url": "https://a/v1", "key": {"env": "A_KEY"}},
            "b": {"base_url": "https://b/v1", "key": {"file": "key"}},
            "c": {"base_url": "https://c/v1", "key": {"credential": "service"}},
            "d": {"base_url": "https://d/v1", "headers": {"api-key": {"env": "HEADER"}, "X-A": "b"}},
            "e": {"base_url": "https://e/v1", "key": {"env": "SHORT"}},
            "f": {"base_url": "https://f/v1", "key": {"env": "UNSET"}},
        },
    )
    plain = {"PATH": "/bin", "LANG": "C.UTF-8", "PRESHORT": "ollama-models"}
    hook = "https://hooks.example.com/canary"
    environ = {
        "A_KEY": KEY,
        "SAME_ELSEWHERE": f"Bearer {KEY}",
        "FROM_FILE": "file-canary-0123456789",
        "FROM_SERVICE": "credential-canary-0123456789",
        "HEADER": "Bearer header-canary-0123456789",
        "HEADER_BARE": "header-canary-0123456789",
        **{name: f"{hook}/{name}" for name in ("HOOK", "JOB_HOOK", "SERIES_HOOK", "REFUSED_HOOK")},
        "WRITTEN_OUT": "https://hc-ping.com/canary",
        "ELSEWHERE": f"see {hook}/SERIES_HOOK",
        "SHORT": "ollama",
        "SHORT_AGAIN": " ollama ",
        "CREDENTIALS_DIRECTORY": str(project.folder),
    }
    assert guard(read_job_file(project.config), environ | plain).environ == plain


def test_a_program_is_looked_for_and_runs_where_paths_start(project: Project) -> None:
    (project.folder / "page-me").write_text("#!/bin/sh\npwd > where\n")
    (project.folder / "page-me").chmod(0o700)
    job = {"task": "x", "provider": "demo", "checkpoint": "c/a.json"}
    project.write_jobs({"a": {**job, "notify": [{"argv": ["./page-me"]}]}}, notify=[{"argv": ["./page-me"]}])
    job_file = read_job_file(project.config)
    for channel in (*job_file.notify, *job_file.jobs["a"].notify):
        assert sent(channel) == ""
        assert (project.folder / "where").read_text() == f"{project.folder}\n"
        (project.folder / "where").unlink()


# ---- apprise


def test_without_apprise_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    said = sent(Channel(kind="apprise", target=f"tgram://{TOKEN}/1"))
    assert said.startswith(
        "the package apprise, which notify: needs, is not installed; with pipx: pipx inject resumed apprise; "
    )


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("return True", ""),
        ("return False", "apprise could not deliver it"),
        (f"raise ValueError('{TOKEN}')", "ValueError"),
        ("import time; time.sleep(20)", "no reply within 1 s"),
    ],
)
def test_apprise_gets_the_address_the_title_and_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, said: str
) -> None:
    (tmp_path / "apprise.py").write_text(
        "calls = []\nclass Apprise:\n"
        "    def add(self, address): calls.append(address); return address.startswith('tgram:')\n"
        f"    def notify(self, title, body): calls.append((title, body)); {behaviour}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "apprise", raising=False)
    assert sent(Channel(kind="apprise", target="tgram://1/2"), seconds=1) == said
    assert sys.modules["apprise"].calls == ["tgram://1/2", ("resumed: blocked", "job nightly: blocked: no key")]
    assert sent(Channel(kind="apprise", target=f"what://{TOKEN}")) == "apprise does not know this address"
    del sys.modules["apprise"]
    for name in ("apprise", "urllib3.connectionpool", "requests"):  # their warnings show addresses
        assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)


# ---- names, sentences, the outbox


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        (webhook(f"https://hooks.example.com:8443/{TOKEN}?{TOKEN}"), "webhook hooks.example.com"),
        (Channel(kind="ping", target=f"https://hc-ping.com/{TOKEN}"), "ping hc-ping.com"),
        (Channel(kind="apprise", target=f"tgram://{TOKEN}/1"), "apprise tgram"),
        (Channel(kind="argv", target=("/usr/bin/mail", TOKEN)), "argv mail"),
        (webhook(KeySource(kind="env", name="HOOK")), "webhook $HOOK"),
        (webhook("https://[bad"), "webhook "),
    ],
)
def test_a_channel_is_named_without_what_may_be_a_token(channel: Channel, name: str) -> None:
    assert shown_name(channel) == name
    assert TOKEN not in channel_name(channel)
    assert channel_name(channel).startswith(f"{name} #")


def test_two_channels_of_one_host_have_two_names() -> None:
    one, other = (webhook(f"https://hooks.example.com/{path}") for path in "ab")
    assert channel_name(one) != channel_name(other)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("start", "job a: a slice begins"),
        ("progress", "job a: attempt 2 of 4: timeout"),
        ("done", "job a: answered, and waits for a review: three days"),
        ("exhausted", "job a: no attempt is left; attempt 2 of 4: timeout (slow)"),
        ("blocked", "job a: blocked: slow"),
        ("failed", "job a: attempt 2 of 4 failed: timeout (slow)"),
        ("missed", "job a: slow"),
        ("recovered", "job a: it runs again"),
    ],
)
def test_each_event_has_its_sentence(event: Told, said: str) -> None:
    notice = Notice(event=event, job="a", attempts=2, outcome="timeout", reason="slow", answer="three\ndays")
    assert notice_line(notice) == said


def test_the_json_holds_one_line_texts_and_where_it_comes_from() -> None:
    notice = Notice(event="done", job="a", answer="\x1b[31mline 1\nline 2 " + "x" * 1000, reason=None, rehearsal=True)
    found = notice_json(notice, config="/c", host="h", time="t", version="v")
    assert set(found) == {
        *("event", "job", "state", "attempts", "max_attempts", "outcome", "reason", "answer", "rehearsal"),
        *("config", "host", "time", "version", "message"),
    }
    assert found["answer"].startswith("line 1 line 2 x")
    assert len(found["answer"]) == 300
    assert found["message"].startswith("job a (rehearsal): answered")


def test_a_slow_channel_delays_no_other_and_order_is_kept(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.notify.DEADLINE", 2.0)
    outbox, ended = Outbox({}), []
    with receiver(_hang) as url:
        outbox.put(webhook(url), MESSAGE, GUARDED, ended.append)
        for number in range(3):
            outbox.put(webhook(hooks.url), Message("x", "", {"event": number}), GUARDED, ended.append)
        hooks.wait_for(3)
        assert [json.loads(body)["event"] for _, body in hooks.got] == [0, 1, 2]


def test_at_the_end_all_channels_together_get_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.notify.DEADLINE", 1.0)
    outbox, ended = Outbox({}), []
    with contextlib.ExitStack() as stack:
        for url in [stack.enter_context(receiver(_hang)) for _ in range(3)]:
            for _ in range(3):
                outbox.put(webhook(url), MESSAGE, GUARDED, ended.append)
        begun = time.monotonic()
        outbox.close()
        assert time.monotonic() - begun < 2.5
    wait_until(lambda: len(ended) == 9, 5, f"{ended}")
    assert all(ended)
    assert len([fault for fault in ended if "no time was left" in fault]) >= 3  # the last of each did not begin

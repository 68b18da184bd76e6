"""The next request before it is sent: exactly what the next slice would send, and nothing is sent, counted, written."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.faults.killed_at import forked
from tests.support import ChatServer, Project, answer, chat_server, tool_calls
from tests.test_bad_input import Told, command, listing

NEVER = {"schedule": "0 9 1 1 *"}
READ = {**NEVER, "read": ["notes"]}
READS = [
    tool_calls(*((f"c{name}", "read_file", f'{{"path": "notes/{name}.md", "offset": {offset}}}') for name in "abc"))
    for offset in (1, 25, 49)
]
SMALL = {"context_tokens": 3000, "max_tokens": 50, "extra_body": {"top_p": 0.9}}


pytestmark = pytest.mark.usefixtures("surroundings")


def write(project: Project, chat: ChatServer, job: dict[str, Any] | None = None, **top: Any) -> None:
    (project.folder / "notes").mkdir(exist_ok=True)
    for name in "abc":
        (project.folder / f"notes/{name}.md").write_text(f"Order {name}-77 takes three days.\n" * 200)
    project.live(chat.url, {"nightly": READ | (job or {})}, **top)


def previewed(project: Project, chat: ChatServer, *arguments: str, code: int = 0) -> Told:
    """Preview, and see that no byte of the folder changed and nothing arrived."""
    before, count = listing(project.folder), chat.count
    told = command(project, "preview", "nightly", *arguments)
    assert told.code == code, told.err
    assert (listing(project.folder), chat.count) == (before, count)
    return told


def as_json(project: Project, chat: ChatServer) -> dict[str, Any]:
    return dict(json.loads(previewed(project, chat, "--json").out))


@pytest.mark.parametrize("options", [{}, SMALL])
def test_each_request_is_sent_as_it_was_previewed(project: Project, options: dict[str, Any]) -> None:
    with chat_server(*READS, answer("fin")) as chat:
        write(project, chat, provider=options)
        for number in (1, 2, 3, 4):
            found = as_json(project, chat)
            assert (found["attempt"], found["of"]) == (number, 4)
            assert command(project, "run", "nightly").code == 0
            assert chat.requests[-1] == found["request"]
            request = project.document()["history"][-1]["request"]
            assert (found["tokens"], found["window"], found["cut"]) == (
                request["tokens"],
                request["window"],
                request["cut"],
            )
        told = previewed(project, chat, code=65)
        told.one_line("no further request will be sent; it is done, 4 of 4 attempts", "resumed renew nightly --reason")
        write(project, chat, {"task": "Another"}, provider=options)
        previewed(project, chat, code=65).one_line("no further request will be sent")


def test_it_is_readable_and_names_the_host_and_no_key(project: Project, chat: ChatServer) -> None:
    write(project, chat)
    out = previewed(project, chat).out
    host = chat.url.removeprefix("http://").removesuffix("/v1")
    for words in (
        f"job nightly: attempt 1 of 4, to provider local at {host}; nothing was sent or counted\n",
        " tokens; not before 20",
        "\nSYSTEM\n",
        "\nUSER\n  Summarise the log\n",
        "\nTOOLS list_files, read_file, search_files\n",
        '  model: "m1"\n',
    ):
        assert words in out
    assert "in the way" not in out


def test_what_is_cut_from_it_is_said(project: Project) -> None:
    with chat_server(*READS) as chat:
        write(project, chat, provider=SMALL)
        for _ in range(3):
            assert command(project, "run", "nightly").code == 0
        found = as_json(project, chat)
        assert found["cut"]
        assert f"cut: {found['cut'][0][:40]}" in previewed(project, chat).out


def test_what_is_in_the_way_is_said_and_the_request_shown_all_the_same(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_server((401, {"error": {"message": "bad key"}})) as chat:
        write(project, chat, {"schedule": "every 1h"}, budget={"requests_per_day": 5})
        assert as_json(project, chat)["due"] is True
        command(project, "tick")
        found = as_json(project, chat)
        assert found["attempt"] == 2
        assert "provider local refused" in " ".join(found["in_the_way"])
        monkeypatch.setenv("LOCAL_KEY", "another-0123456789")  # which ends the rest, once a slice asks
        assert as_json(project, chat)["in_the_way"] == []
        write(project, chat, {"enabled": False}, budget={"requests_per_day": 1})
        first, second = as_json(project, chat)["in_the_way"]
        assert (first, "the budget of 1 requests a day is spent" in second) == ("enabled: false", True)
        monkeypatch.delenv("LOCAL_KEY")
        assert "the key in the variable LOCAL_KEY" in as_json(project, chat)["in_the_way"][1]
        write(project, chat, {"checkpoint": "checkpoints/moved.json"})
        assert "its attempts were spent under" in " ".join(as_json(project, chat)["in_the_way"])


def test_an_edited_task_is_refused_as_a_slice_would_be(project: Project) -> None:
    with chat_server(*READS) as chat:
        write(project, chat)
        command(project, "run", "nightly")
        write(project, chat, {"task": "Another"})
        previewed(project, chat, code=65).one_line("the task differs", "resumed revise nightly")


def test_an_attempt_that_a_crash_cut_counts(project: Project, chat: ChatServer) -> None:
    write(project, chat)
    [ended] = forked(project, ["run", "nightly"], steps=["count-published"])
    assert ended.code == -signal.SIGKILL
    found = as_json(project, chat)
    assert (found["attempt"], found["in_the_way"]) == (2, [])
    command(project, "run", "nightly")
    assert chat.requests[-1] == found["request"]


def test_one_in_flight_is_said(project: Project) -> None:
    with chat_server(held=True) as chat:
        write(project, chat)
        with project.start("run", "nightly") as process:
            chat.wait_for(1, 60)
            found = as_json(project, chat)
            process.kill()
            process.communicate()
    assert found["in_the_way"] == ["attempt 1 is in flight; this is what would follow if nothing came of it"]


def test_a_rehearsal_goes_nowhere(project: Project, chat: ChatServer) -> None:
    write(project, chat)
    project.config.write_text(project.config.read_text().replace('"live": true', '"live": false'))
    found = as_json(project, chat)
    assert (found["to"], found["request"]["model"]) == ("offline-demo (offline)", "offline-demo")

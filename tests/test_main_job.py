"""The main job through the real program, in each way of running."""

from __future__ import annotations

from tests.support import ChatServer, Project, answer, tool_calls


def test_run_answers_over_http_with_one_request(project: Project, chat: ChatServer) -> None:
    project.live(chat.url)
    project.run("run", "nightly")
    assert chat.count == 1
    assert project.document()["answer"] == "fin"
    assert project.status()["state"] == "done"

"""How many slices at once the open files allow: the soft limit is raised for them; what stays impossible is said."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.limits import FILES_EACH, OTHER_FILES
from tests.support import ChatServer, Project, wait_until

CODE = """
import resource, sys
from scheduler.limits import slices_at_once
fitting = slices_at_once(int(sys.argv[1]))
print(fitting, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def limited(soft: int, hard: int) -> dict[str, object]:
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))}


@pytest.mark.parametrize(
    ("wanted", "soft", "hard", "fitting", "raised"),
    [
        (8, 1024, 4096, 8, 1024),  # enough as it is
        (100, 256, 4096, 100, 100 * FILES_EACH + OTHER_FILES),
        (1000, 256, 1264, 200, 1264),  # as far as it goes
        (8, 64, 64, 1, 64),  # one at least
    ],
)
def test_the_soft_limit_is_raised_as_far_as_it_is_needed_and_may_be(
    wanted: int, soft: int, hard: int, fitting: int, raised: int
) -> None:
    command = [sys.executable, "-c", CODE, str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, **limited(soft, hard))  # type: ignore[call-overload]  # of options in a dict
    assert done.stdout.split() == [str(fitting), str(raised)]


def test_a_daemon_that_may_not_have_the_files_says_how_many_slices_fit(project: Project) -> None:
    project.live("http://127.0.0.1:9", {"nightly": {"schedule": "0 0 29 2 *"}}, max_parallel=1000)
    with project.start("daemon", **limited(256, 304)) as daemon:
        try:
            assert daemon.stderr is not None
            said: list[str] = []
            wait_until(lambda: "1 jobs" in (said.append(daemon.stderr.readline()) or said[-1]), 20, "ready")
            assert "warning 40 slices at once, not max_parallel 1000: more open files are not allowed" in said[0]
        finally:
            daemon.terminate()
            daemon.wait(30)


def test_more_slices_than_the_soft_limit_has_files_for_all_get_their_answers(
    project: Project, chat: ChatServer, tmp_path: Path
) -> None:
    names = [f"j{number}" for number in range(60)]
    chat.delay = 1
    project.live(chat.url, {name: {} for name in names}, max_parallel=60)
    done = project.run("run", *names, **limited(100, 4096))
    assert chat.count == 60
    assert all(project.document(name)["status"] == "done" for name in names), done.stderr

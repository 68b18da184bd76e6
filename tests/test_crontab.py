"""config/crontab.sample: one line, of the kind that `init` prints; `make cron` has a real cron run it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from scheduler.starter import cron_line
from tests.cron_proof import EXPECTED, adapted

PATHS = ("/opt/venv/bin/resumed", "/srv/jobs/config/jobs.yaml")


def test_the_sample_has_one_line_and_it_is_what_init_prints() -> None:
    text = adapted(Path(PATHS[0]), Path(PATHS[1]))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == [cron_line([PATHS[0]], Path(PATHS[1]))]
    assert text.endswith("\n")  # else cron does not read its last line


def test_a_percent_sign_does_not_end_the_line_for_cron() -> None:
    line = cron_line(["/opt/50% off/resumed"], Path("/srv/100%/jobs.yaml"))
    assert len(re.findall(r"(?<!\\)%", line)) == 0
    words = shlex.split(line.replace(r"\%", "%"))
    assert words[5:] == ["/opt/50% off/resumed", "--config", "/srv/100%/jobs.yaml", "tick"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cron[7]: (CRON) INFO (pidfile fd = 3)", True),
        ("cron[7]: (CRON) STARTUP (fork ok)", True),
        ("CRON[8]: (root) CMD (/x/resumed tick)", True),
        ("CRON[8]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)", True),
        ("CRON[8]: (CRON) info (No MTA installed, discarding output)", False),
        ("CRON[8]: (root) MAIL (mailed 62 bytes of output but got status 0x0001)", False),
        ("cron[7]: Error: bad minute; while reading /var/spool/cron/crontabs/root", False),
        ("cron[7]: (root) ERROR (Syntax error, this crontab file will be ignored)", False),
    ],
)
def test_the_proof_tells_complaints_of_cron_from_its_everyday_lines(line: str, expected: bool) -> None:
    assert bool(EXPECTED.search(line)) == expected

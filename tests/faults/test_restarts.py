"""A daemon that is killed and started again, over and over, while it runs many jobs."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from datetime import datetime

from tests.faults.cases import sized
from tests.support import Project, answer, chat_server
from tests.test_daemon import GOES_ON, ledger, service

KILLS = sized(10, 50, 50)
JOBS = sized(8, 20, 20)
SLOWEST = max(4, round(KILLS * 0.4))  # seconds between two points, so that four of them last as long as the kills
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_no_point_is_acted_on_twice_and_none_is_lost_silently(project: Project) -> None:
    chance = random.Random(11)
    periods = {f"job-{number}": SLOWEST - number % 3 for number in range(JOBS)}
    said: list[str] = []
    with chat_server(*[GOES_ON] * (3 * JOBS), answer("fin"), delay=0.3) as chat:
        jobs = {name: {"task": f"This is {name}.", "schedule": f"every {period}s"} for name, period in periods.items()}
        project.live(chat.url, jobs, after_failure=[])
        for _ in range(KILLS):
            with service(project) as daemon:
                until, seen = time.monotonic() + chance.uniform(0.05, 1.5), chat.count
                while time.monotonic() < until and chat.count == seen:
                    time.sleep(0.01)
                time.sleep(chance.choice([0, 0.05, 0.29, 0.31, 0.4]))  # some while a reply is saved
                daemon.process.kill()
                daemon.ended()
                said += daemon.lines()
        with service(project, "--until-done") as daemon:
            assert daemon.ended(120) == 0
            said += daemon.lines()
    sent = Counter(re.findall(r"This is (job-\d+)\.", str(request["messages"]))[0] for request in chat.requests)
    since = dict(ledger(project, "SELECT job, since FROM job"))
    cut = 0
    for name, period in periods.items():
        rows = ledger(project, "SELECT point, outcome FROM admission WHERE job = ? ORDER BY attempt", name)
        points = [point for point, _ in rows]
        interrupted = [outcome for _, outcome in rows].count("interrupted")
        assert len(points) == len(set(points)) <= 4, f"{name}: a point was acted on twice"
        assert len(rows) - interrupted <= sent[name] <= len(rows), f"{name}: {sent[name]} requests for {rows}"
        assert project.document(name)["status"] in ("done", "exhausted")
        lost = set(range(since[name], max(points), period)) - set(points)
        assert all(named(said, name, point) for point in lost), f"{name}: of {points} no word on {lost}"
        cut += interrupted
    assert cut, "no kill met an attempt"
    print(f"{KILLS} kills, {JOBS} jobs, {chat.count} requests, {cut} attempts interrupted")
    assert not [line for line in said if "Traceback" in line]


def named(said: list[str], job: str, point: int) -> bool:
    """Whether a line of the log says that a job missed this point, alone or in a span."""
    for line in said:
        if f"job {job}: " in line and "missed" in line:
            moments = [datetime.fromisoformat(moment).timestamp() for moment in MOMENT.findall(line)[1:]]
            if moments and min(moments) <= point <= max(moments):
                return True
    return False

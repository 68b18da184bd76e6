"""COUNT jobs due in one second, with a function that does nothing: of resumed's clock, or APScheduler's own."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from turns import take_turns

from scheduler.clock import Clock
from scheduler.job import Job
from scheduler.records import DEMO

KIND, COUNT = sys.argv[1], int(sys.argv[2])
SCHEDULE = "*/5 * * * *"
entered: list[float] = []


def enter(_: str) -> bool:
    """Note when it was called."""
    entered.append(time.time())
    return False


def resumed(due: datetime) -> Any:
    """Return resumed's clock with all jobs."""
    clock = Clock(enter, lambda *_, **__: None, 8)
    for number in range(COUNT):
        path = Path(f"j{number}.json")
        clock.set(Job(id=f"j{number}", task="t", checkpoint=path, schedule=SCHEDULE, provider=DEMO), 0, due)
    return clock


def apscheduler(due: datetime) -> Any:
    """Return APScheduler with all jobs, such that it drops none."""
    defaults = {"misfire_grace_time": None, "coalesce": True}
    scheduler = BackgroundScheduler(timezone=UTC, job_defaults=defaults)
    for number in range(COUNT):
        trigger = CronTrigger.from_crontab(SCHEDULE, "UTC")
        scheduler.add_job(enter, trigger, args=[""], id=str(number), next_run_time=due)
    return scheduler


def burst() -> dict[str, float]:
    """Let them all come due at once; return how long after that the last was entered."""
    entered.clear()
    due = datetime.now(UTC) + timedelta(seconds=COUNT / 2_500 + 1)
    clock = (resumed if KIND == "resumed" else apscheduler)(due)
    clock.start()
    until = due.timestamp() + 60
    while len(entered) < COUNT and time.time() < until:
        time.sleep(0.02)
    last = max(entered) - due.timestamp()
    clock.shut_down() if KIND == "resumed" else clock.shutdown()
    return {"last": last, "entered": len(entered)}


take_turns(burst)

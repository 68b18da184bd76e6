"""APScheduler alone with COUNT jobs, from CONFIG by the C YAML loader where one is given; waits after that."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

COUNT, CONFIG = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
schedules = {f"j{number}": "0 0 29 2 *" for number in range(COUNT)}
if CONFIG:
    import yaml

    entries = yaml.load(Path(CONFIG).read_bytes(), yaml.CSafeLoader)["jobs"]  # the safe one, in C
    schedules = {name: entry["schedule"] for name, entry in entries.items()}
scheduler = BackgroundScheduler(timezone="UTC")
for name, schedule in schedules.items():
    scheduler.add_job(print, CronTrigger.from_crontab(schedule, "UTC"), args=[name], id=name)
scheduler.start()
print("ready", flush=True)
while True:
    time.sleep(3600)

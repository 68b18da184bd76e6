"""APScheduler gets ready for 20 jobs and ends."""

from apscheduler.schedulers.background import BackgroundScheduler

scheduler = BackgroundScheduler(timezone="UTC")
for number in range(20):
    scheduler.add_job(print, "cron", day=29, month=2, id=str(number))
scheduler.start()
scheduler.shutdown()

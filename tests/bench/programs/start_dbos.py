"""DBOS gets ready for one workflow on SQLite and ends, without any request."""

from dbos import DBOS, DBOSConfig

config: DBOSConfig = {"name": "bench", "system_database_url": "sqlite:///dbos.sqlite", "log_level": "ERROR"}
DBOS(config=config)


@DBOS.workflow()
def slice_of(text: str) -> str:
    """Return what it got."""
    return text


DBOS.launch()
DBOS.destroy()

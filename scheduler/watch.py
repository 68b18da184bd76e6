"""jobs.yaml while it is being edited: what changed, the last good set, each fault told once."""

from __future__ import annotations

import time
from pathlib import Path

from scheduler.errors import ResumedError
from scheduler.job import JobFile
from scheduler.jobfile import read_job_file
from scheduler.report import fault_words

HASH_EVERY = 60.0
TELL_EVERY = 24 * 60 * 60.0


class WatchedFile:
    """The last good content of a jobs.yaml; a change is anything that stat shows, older dates included.

    `tried` is the digest of the newest content ("" where it could not be read), `fault` what is wrong with it.
    """

    def __init__(self, path: Path, job_file: JobFile) -> None:
        self.good = job_file
        self.tried, self.fault = job_file.digest, ""
        self._path = path
        self._seen = self._stat()
        self._read_at = float("-inf")  # the first look reads anew: an edit may have come since the file was read
        self._told, self._told_at = "", 0.0

    def look(self, *, at_once: bool = False) -> JobFile | ResumedError | None:
        """Return the new content where there is one, or what is wrong with it where that was not told for a day.

        The file is read when stat shows a change, once a minute in any case, and `at_once` if asked.
        """
        seen = self._stat()
        if seen == self._seen and time.monotonic() - self._read_at < HASH_EVERY and not at_once:
            return None
        self._seen, self._read_at = seen, time.monotonic()
        try:
            fresh = read_job_file(self._path)
        except ResumedError as error:
            self.tried, self.fault = getattr(error, "digest", ""), fault_words(error)
            told, self._told = self._told, f"{self.tried}{error}"
            if told == self._told and time.monotonic() - self._told_at < TELL_EVERY:
                return None
            self._told_at = time.monotonic()
            return error
        self.tried, self.fault, self._told = fresh.digest, "", ""
        if (fresh.digest, fresh.path) == (self.good.digest, self.good.path):
            return None
        self.good = fresh
        return fresh

    def _stat(self) -> tuple[int, ...] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev

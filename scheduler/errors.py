"""Every refusal that stands below a kind: of access, of storage, of what waits, of what is blocked.

A class's docstring is its sentence for people: the first paragraph, filled from the attributes.
"""

from __future__ import annotations

from scheduler.refusal import (
    AccessRefused,
    AskFailed,
    Blocked,
    JobFileUnreadable,
    Later,
    NotifyFailed,
    ProgramFault,
    ReplyOrphaned,
    ResumedError,
    StorageRefused,
    UsageRefused,
)

__all__ = [
    "AccessRefused",
    "AskFailed",
    "Blocked",
    "JobFileUnreadable",
    "Later",
    "NotifyFailed",
    "ProgramFault",
    "ReplyOrphaned",
    "ResumedError",
    "StorageRefused",
    "UsageRefused",
]


class PermissionRefused(AccessRefused):
    """{path}: permission denied for user {user} ({reason}); give that user access to it, or run it as its owner."""

    path: object
    user: str
    reason: str


class WrongUser(AccessRefused):
    """{path} belongs to {owner}, and you are {user}; run it as its owner: sudo -u {owner} {command}"""

    path: object
    owner: str
    user: str
    command: str


class WritableByOthers(AccessRefused):
    """{path} can be changed by other users ({detail}); take that away: chmod {chmod} {path}"""

    path: object
    detail: str
    chmod: str


class NoStateFolder(AccessRefused):
    """user {user} has no home folder to remember anything in; name a folder with $XDG_STATE_HOME"""

    user: str


class DiskFull(StorageRefused):
    """{path}: no space left on the disk for {purpose}; free some space, then it goes on by itself."""

    purpose: str


class ReadOnlyStorage(StorageRefused):
    """{path}: the file system is read-only; make it writable again, then it goes on by itself."""


class StorageFailed(StorageRefused):
    """{path}: the disk failed ({reason}); once that is mended, look whether all is well: resumed doctor"""

    reason: str


class ProcessesUntold(StorageRefused):
    """{path}: processes cannot be told apart ({reason}); mount /proc, then it goes on by itself."""

    reason: str


class NoProcess(Later):
    """no further process could be started ({reason}); raise the limits of this user, or try again later."""

    reason: str


class CheckpointBusy(Later):
    """{path} is in use by {holder}; nothing was counted."""

    path: object
    holder: str = "another process or thread"


class LedgerBusy(Later):
    """{path} is locked by another process; nothing was counted."""

    path: object


class ProviderResting(Later):
    """provider {provider} rests until {until}: {reason}"""

    provider: str
    until: str
    reason: str


class BudgetSpent(Later):
    """the budget of {budget} requests a day is spent; the next day starts at 00:00 UTC, or raise it in jobs.yaml."""

    budget: int


class PointTaken(Later):
    """the point {point} already has its slice."""

    point: str


class NotOpened(Later):
    """this series has no opening yet; the next point at which one can open: {point}"""

    point: str


class DaemonRunning(Later):
    """a daemon already runs {config}: process {pid}, since {since}; it takes over edits, and ends by kill {pid}"""

    config: str
    pid: int
    since: str


class EntryRefused(Blocked):
    """{problem}"""

    problem: str


class JobDisabled(Blocked):
    """it is disabled; to run it, take enabled: false out of jobs.yaml"""


class CheckpointUnknown(Blocked):
    """{path} is not a file that this ledger ever published ({detail}); it is left as it is.
    If it was damaged or edited, "resumed repair" puts the last good one back; if it came from elsewhere,
    "resumed adopt" takes it over with its attempts.
    """

    path: object
    detail: str


class CheckpointMoved(Blocked):
    """its attempts were spent under {old}, and jobs.yaml now names {new}; put the path back,
    or start a new allowance on purpose: resumed renew {job} --reason TEXT --confirm {job}
    """

    job: str
    old: str
    new: str


class TaskChanged(Blocked):
    """the task differs from the one that was started: {difference}. Put it back ("resumed show {job} --task"
    prints it), or go on with the new one and the attempts that are left: resumed revise {job} --reason TEXT
    """

    job: str
    difference: str


class ModelChanged(Blocked):
    """the checkpoint was started with model {saved}, and the job now names {current}. Put it back (a job's model
    outranks the provider's, which outranks the environment's), or go on with the new one and the attempts that are
    left: resumed revise {job} --reason TEXT
    """

    job: str
    saved: str
    current: str


class StateStale(Blocked):
    """{path}: the state handed over is not the one that is stored; load it again."""

    path: object


class LedgerDamaged(Blocked):
    """{path} is damaged ({detail}). Set it aside, then take its checkpoints over: resumed adopt --all"""

    path: object
    detail: str


class LedgerForeign(Blocked):
    """{path} is not a ledger that this version knows ({detail}); no job of its folder runs. Use the program that made
    it, or set it aside and take the checkpoints over: resumed adopt --all
    """

    path: object
    detail: str


class NotAFile(Blocked):
    """{path} is {kind}, not {wanted}; it is left as it is, and in the way until you move it."""

    path: object
    kind: str
    wanted: str = "a regular file"


class MaintenanceRefused(Blocked):
    """{message}"""

    message: str


class ProviderNotReady(Blocked):
    """provider {provider}: {problem}"""

    provider: str
    problem: str


class ProviderRefusing(Blocked):
    """{who} refused ({reason}); it is asked again once entry or key change, or after: resumed unblock {provider}"""

    who: str
    provider: str
    reason: str


class RequestRefused(Blocked):
    """the request cannot be sent: {reason}"""

    reason: str


class SeriesEnded(Blocked):
    """opening {opening} is exhausted and ends it, until: resumed renew {opening} --reason TEXT --confirm {opening}"""

    opening: str


class SourceRefused(Blocked):
    """read: {path}: {reason}"""

    path: object
    reason: str


class TargetRefused(Blocked):
    """{key}: {reason}"""

    key: str
    reason: str


class ExtraMissing(Blocked):
    """the package {package}, which {key}: needs, is not installed; with pipx: pipx inject resumed {package}; else, in
    the environment of this program: pip install {package}
    """

    key: str
    package: str

"""Every refusal, in one tree.

A class's docstring is its sentence for people: the first paragraph, filled from the attributes.

    ResumedError
    ├── UsageRefused        the command line
    ├── JobFileUnreadable   jobs.yaml as a whole
    ├── AccessRefused       the system or its modes say no: PermissionRefused, WrongUser, WritableByOthers,
    │                       NoStateFolder
    ├── StorageRefused      the disk says no: DiskFull, ReadOnlyStorage, StorageFailed
    ├── Later               nothing was counted, and it will be due again by itself:
    │                       CheckpointBusy, LedgerBusy, ProviderResting, BudgetSpent, PointTaken, DaemonRunning
    ├── Blocked             nothing was counted, and a person must act:
    │                       EntryRefused, JobDisabled, CheckpointUnknown, CheckpointMoved, TaskChanged, ModelChanged,
    │                       StateStale, LedgerDamaged, LedgerForeign, NotAFile, MaintenanceRefused, ExtraMissing,
    │                       ProviderNotReady, ProviderRefusing, RequestRefused, SourceRefused, TargetRefused
    ├── ProgramFault        a fault of this program itself
    ├── ReplyOrphaned       the attempt was spent, and its reply is kept apart
    ├── NotifyFailed        nobody was notified; of no concern to any job
    └── AskFailed           the attempt was spent, and no usable reply came
"""

from __future__ import annotations

from scheduler.job import Problem
from scheduler.refusal import AccessRefused as AccessRefused
from scheduler.refusal import Blocked as Blocked
from scheduler.refusal import Later as Later
from scheduler.refusal import ResumedError as ResumedError
from scheduler.refusal import StorageRefused as StorageRefused


class UsageRefused(ResumedError):
    """{message}"""

    message: str


class JobFileUnreadable(ResumedError):
    """{path}: {message}"""

    path: str
    message: str
    problems: tuple[Problem, ...] = ()
    digest: str = ""


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


class SourceRefused(Blocked):
    """read: {path}: {reason}"""

    path: object
    reason: str


class TargetRefused(Blocked):
    """deliver: {reason}"""

    reason: str


class ExtraMissing(Blocked):
    """{key}: the package {package} is not installed. With pipx: pipx inject resumed {package}; else install
    resumed[{extra}] with pip.
    """

    key: str
    package: str
    extra: str


class DaemonRunning(Later):
    """a daemon already runs {config}: process {pid}, since {since}; it takes over edits, and ends by kill {pid}"""

    config: str
    pid: int
    since: str


class ProgramFault(ResumedError):
    """unforeseen fault at {place}: {detail}; please report it"""

    place: str
    detail: str


class ReplyOrphaned(ResumedError):
    """{path}: another process changed the checkpoint while attempt {attempt} waited for its reply; the reply is kept
    among the ledger's orphans (resumed doctor says where), and the attempt stays counted.
    """

    path: object
    attempt: int


class NotifyFailed(ResumedError):
    """{reason}"""

    reason: str


class AskFailed(ResumedError):
    """{reason}

    What an `ask` raises when it can say more than an exception's name: the outcome from `state.Outcome`, whether the
    request may be billed, the usage that was told, and for how many seconds the provider asked to be left alone.
    """

    outcome: str
    reason: str
    billed: str = "maybe"
    retry_after: float | None = None
    rests: str = "none"
    usage: object = None

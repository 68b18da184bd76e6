"""The kinds of refusal, and how one becomes a sentence: its docstring, filled from its attributes.

ResumedError
├── UsageRefused        the command line
├── JobFileUnreadable   jobs.yaml as a whole
├── AccessRefused       the system or its modes say no
├── StorageRefused      the disk says no
├── Later               nothing was counted, and it will be due again by itself
├── Blocked             nothing was counted, and a person must act
├── ProgramFault        a fault of this program itself
├── ReplyOrphaned       the attempt was spent, and its reply is kept apart
├── NotifyFailed        nobody was notified; of no concern to any job
└── AskFailed           the attempt was spent, and no usable reply came
"""

from __future__ import annotations

import dataclasses
import inspect
import typing

from scheduler.job import Problem


@typing.dataclass_transform(kw_only_default=True, eq_default=False)
class ResumedError(Exception):
    """Something was refused."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __str__(self) -> str:
        """Fill the class's sentence, and add the notes; without docstrings (python -OO) name class and facts."""
        if not (form := type(self).__doc__):
            return f"{type(self).__name__}: {vars(self)}"
        sentence = " ".join(inspect.cleandoc(form).split("\n\n")[0].split()).format_map(vars(self))
        return " ".join([sentence, *getattr(self, "__notes__", ())])


class UsageRefused(ResumedError):
    """{message}"""

    message: str


class JobFileUnreadable(ResumedError):
    """{path}: {message}"""

    path: str
    message: str
    problems: tuple[Problem, ...] = ()
    digest: str = ""


class AccessRefused(ResumedError):
    """The operating system says no."""


class StorageRefused(ResumedError):
    """The disk says no."""

    path: object


class Later(ResumedError):
    """Not now; nothing was counted, and it will be due again by itself."""


class Blocked(ResumedError):
    """Not until a person acts; nothing was counted."""


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

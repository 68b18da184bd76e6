"""How a refusal becomes a sentence, a class's docstring filled from its attributes; and the kinds that there are."""

from __future__ import annotations

import dataclasses
import inspect
import typing


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


class AccessRefused(ResumedError):
    """The operating system says no."""


class StorageRefused(ResumedError):
    """The disk says no."""

    path: object


class Later(ResumedError):
    """Not now; nothing was counted, and it will be due again by itself."""


class Blocked(ResumedError):
    """Not until a person acts; nothing was counted."""

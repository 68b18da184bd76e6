"""A reader under atheris, which follows the branches of an input: `python -m tests.faults.fuzz_atheris KIND`."""

from __future__ import annotations

import sys
from typing import Any

import atheris  # type: ignore[import-not-found]  # optional

with atheris.instrument_imports(include=["scheduler"]):
    from tests.faults import test_fuzz


def main() -> None:
    kind = sys.argv.pop(1)
    read = test_fuzz.KINDS[kind][0]

    def one(body: bytes) -> None:
        given: Any = (200 if body[:1] < b"\x80" else 100 + body[0] % 500, [], body[1:]) if kind == "replies" else body
        read(given)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

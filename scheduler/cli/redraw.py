"""A text that is drawn in place on a terminal, again and again."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import time
from collections.abc import Callable

from scheduler.errors import UsageRefused
from scheduler.text import cut

_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


def frame(sentences: str, rows: str, size: os.terminal_size) -> str:
    """Return what draws a text over the one before it, sentences in full and rows cut; nothing scrolls.

    The last column stays free: clearing a line from there would take its last character away.
    """
    width, height = max(1, (size.columns or 80) - 1), size.lines or 24  # 0: nobody told the terminal its size
    lines = [part for line in sentences.split("\n") for part in textwrap.wrap(line, width)]
    lines += rows.split("\n") if rows else []
    if len(lines) > height:
        lines = [*lines[: height - 1], f"… {len(lines) - height + 1} more lines"]
    return _HOME + "\n".join(cut(line, width) + _CLEAR_LINE for line in lines) + _CLEAR_REST


def redraw(draw: Callable[[], tuple[str, str]], seconds: float) -> int:
    """Draw sentences and rows until Ctrl-C; return the exit code.

    Raises UsageRefused where the output is no terminal.
    """
    if not sys.stdout.isatty():
        raise UsageRefused(message="--watch draws on a terminal, and the output is none; leave it away")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            sys.stdout.write(frame(*draw(), os.get_terminal_size(sys.stdout.fileno())))
            sys.stdout.flush()
            time.sleep(seconds)
    print()
    return 0

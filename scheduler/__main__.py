"""The console script."""

from __future__ import annotations

import gc
import os
import sys
import time

from scheduler.hint import is_quiet


def main() -> int:
    """Run the command line, unless all that it asks is a tick in which nothing is due."""
    if is_quiet(sys.argv[1:], os.environ, time.time()):
        return 0
    gc.disable()  # nothing that is loaded now is ever garbage, and looking for some takes longer than a short command
    from scheduler.cli import main as run_command

    gc.freeze()
    gc.enable()
    return run_command()


if __name__ == "__main__":
    sys.exit(main())

"""The console script."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line."""
    from scheduler.cli import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())

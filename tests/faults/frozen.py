"""The program, frozen by SIGSTOP at one step of its slice. Run as `python -m tests.faults.frozen STEP ARGUMENT...`."""

from __future__ import annotations

import signal
import sys

from scheduler import cli
from scheduler.steps import arm
from tests.faults.killed_at import STEPS

if __name__ == "__main__":
    arm(STEPS[sys.argv[1]], signal.SIGSTOP)
    sys.exit(cli.main(sys.argv[2:]))

"""The program, frozen by SIGSTOP at one step of its slice. Run as `python -m tests.faults.frozen STEP ARGUMENT...`."""

from __future__ import annotations

import signal
import sys

from scheduler import cli
from tests.faults.killed_at import STEPS, _arm

if __name__ == "__main__":
    _arm(STEPS[sys.argv[1]], signal.SIGSTOP)
    sys.exit(cli.main(sys.argv[2:]))

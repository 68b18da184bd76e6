"""How many slices fit into this process at once."""

from __future__ import annotations

import resource
from typing import Final

# A slice in flight holds its lock, its reserve, its connection and the other end of it, and opens two more to save.
FILES_EACH: Final = 6
OTHER_FILES: Final = 64


def slices_at_once(wanted: int) -> int:
    """Return how many slices, at most `wanted`, may have their files open at once; raises the soft limit for them."""
    needed = wanted * FILES_EACH + OTHER_FILES
    try:
        soft, hard = (most if most != resource.RLIM_INFINITY else needed for most in _limits())
        if soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), _limits()[1]))
            soft = min(needed, hard)
    except (OSError, ValueError):  # a filter of system calls forbids it
        return wanted
    return max(1, min(wanted, (soft - OTHER_FILES) // FILES_EACH))


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)

"""What the service manager is told: one datagram to the socket that it names, and nothing where it names none.

The protocol is sd_notify(3).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


def notify(message: str, environ: Mapping[str, str]) -> None:
    """Send one message such as `READY=1`; a manager that does not listen is not an error."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message.encode(), address.replace("@", "\0", 1))

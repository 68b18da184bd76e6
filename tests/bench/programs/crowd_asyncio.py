"""One asyncio client: COUNT requests at once to PORT, nothing kept."""

from __future__ import annotations

import asyncio
import json
import resource
import sys

COUNT, PORT = int(sys.argv[1]), int(sys.argv[2])
BODY = json.dumps({"model": "m1", "messages": [{"role": "user", "content": "Summarise the log"}]}).encode()
HEAD = b"POST /chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"


async def ask() -> None:
    """Send one request and read its whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(HEAD % len(BODY) + BODY)
    answer = await reader.read()
    writer.close()
    json.loads(answer.partition(b"\r\n\r\n")[2])


async def all_at_once() -> None:
    """Ask all at once."""
    await asyncio.gather(*(ask() for _ in range(COUNT)))


limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
asyncio.run(all_at_once())

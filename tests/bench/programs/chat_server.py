"""A chat server on loopback that answers each POST after DELAY seconds; a line of input has it tell what it saw."""

from __future__ import annotations

import asyncio
import json
import resource
import sys

DELAY = float(sys.argv[1])
seen = {"requests": 0, "now": 0, "most": 0}
MESSAGE = {"role": "assistant", "content": "All of it is in order."}
BODY = json.dumps({"id": "c", "choices": [{"index": 0, "finish_reason": "stop", "message": MESSAGE}]}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read one request whole, wait, answer, and close."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
    seen["requests"] += 1
    seen["now"] += 1
    seen["most"] = max(seen["most"], seen["now"])
    await asyncio.sleep(DELAY)
    seen["now"] -= 1
    writer.write(HEAD % len(BODY) + BODY)
    await writer.drain()
    writer.close()


def tell() -> None:
    """Tell what was seen since it was last asked; end with the input."""
    if not sys.stdin.readline():
        sys.exit()
    print(json.dumps(seen), flush=True)
    seen.update(requests=0, now=0, most=0)


async def serve() -> None:
    """Serve until the input ends."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    asyncio.get_running_loop().add_reader(sys.stdin, tell)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
asyncio.run(serve())

"""What probes and a metrics collector ask of a replica: three paths, plain HTTP, nothing to be changed through it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

_REQUEST_BYTES_MAX: Final = 8_192
_REQUEST_S: Final = 5.0

#: Path → status and text.
Answers = Callable[[str], tuple[int, str] | None]


async def open_door(listen: str, answers: Answers) -> asyncio.Server:
    """Listen on ADDR:PORT; the answers come from whoever knows."""
    host, _, port = listen.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b" ", 2)
                path = words[1].decode("latin-1").partition("?")[0] if len(words) > 1 else ""
                code, text = answers(path) or (404, "not found\n")
                body = text.encode()
                lines = [
                    f"HTTP/1.1 {code} -",
                    "Content-Type: text/plain; version=0.0.4",
                    f"Content-Length: {len(body)}",
                ]
                writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
                await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, host.strip("[]") or None, int(port), limit=_REQUEST_BYTES_MAX)

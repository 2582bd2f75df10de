"""Many POSTs at a time over a few connections, by hand: what a client costs that does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from phalanx.frontends.kube.api.kubeconfig import ApiAccess

#: As many as our binder has.
CONNECTIONS = 32
_READ_BYTES = 1 << 18


async def post_all(access: ApiAccess, calls: Iterable[tuple[str, bytes]], connections: int = CONNECTIONS) -> None:
    """Path and body each; the first refusal ends all of it."""
    shared = iter(calls)
    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(_post_some(access, shared))


async def _post_some(access: ApiAccess, shared: Iterable[tuple[str, bytes]]) -> None:
    reader, writer = await asyncio.open_connection(access.host, access.port, ssl=access.tls, limit=_READ_BYTES)
    rest = f"Host: {access.host}\r\nAuthorization: Bearer {access.find_token()}\r\nContent-Type: application/json\r\n"
    for path, body in shared:
        writer.write(f"POST {path} HTTP/1.1\r\n{rest}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        answer = await _read_body(reader, head.lower())
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"POST {path}: {head[:40]!r} {answer[:300]!r}")
    writer.close()


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    _, found, after = head.partition(b"content-length:")
    if found:
        return await reader.readexactly(int(after.partition(b"\r")[0]))
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(pieces)

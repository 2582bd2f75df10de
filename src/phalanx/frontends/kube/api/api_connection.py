"""One connection to the API server: a request goes out, its answer comes back, whole or piece by piece."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import httptools

from phalanx.frontends.kube.api.kubeconfig import ApiAccess

_CHUNK_BYTES: Final = 1 << 18


class KubeConnection:
    """Not for two callers at once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser: httptools.HttpResponseParser | None = None
        self.headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._is_begun = self._is_complete = False
        self.status = 0
        self.is_reusable = False

    @classmethod
    async def open(cls, access: ApiAccess) -> KubeConnection:
        """A new one."""
        reader, writer = await asyncio.open_connection(
            access.host,
            access.port,
            ssl=access.tls,
            server_hostname=access.host if access.tls is not None else None,
            limit=_CHUNK_BYTES,
        )
        return cls(reader, writer)

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it, as far as can be seen from here."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    async def send(self, request: bytes) -> None:
        """Send a request, and read its answer up to the end of the head."""
        self._parser = httptools.HttpResponseParser(self)
        self.headers, self._pieces = {}, []
        self._is_begun = self._is_complete = self.is_reusable = False
        self._writer.write(request)
        await self._writer.drain()
        while not self._is_begun:
            await self._feed()
        self.status = self._parser.get_status_code()

    async def read(self) -> bytes:
        """The whole of the answer."""
        while not self._is_complete:
            await self._feed()
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        return body

    async def read_lines(self, stall_s: float) -> AsyncIterator[bytes]:
        """Line by line as they come, until the server ends it; `TimeoutError` if it says nothing for so long."""
        rest = b""
        while True:
            for line in (lines := (rest + b"".join(self._pieces)).split(b"\n"))[:-1]:
                yield line
            rest, self._pieces = lines[-1], []
            if self._is_complete:
                return
            async with asyncio.timeout(stall_s):
                await self._feed()

    def close(self) -> None:
        """Let go of it, whatever is still under way."""
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.transport.abort()

    async def _feed(self) -> None:
        data = await self._reader.read(_CHUNK_BYTES)
        if not data:
            raise ConnectionResetError("the server closed the connection before its answer was complete")
        assert self._parser is not None
        self._parser.feed_data(data)

    # ---- what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._is_begun = True

    def on_body(self, body: bytes) -> None:
        """A piece of the answer."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The last piece was there."""
        self._is_complete = True
        self.is_reusable = self._parser is not None and self._parser.should_keep_alive()

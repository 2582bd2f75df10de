"""What probes, a metrics collector and people ask of a replica: plain HTTP, nothing to be changed through it.

Whoever reaches the port may send anything: heads, bodies, connections and their time are bounded here, and what a path
means is for whoever answers. One request a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import httptools
import msgspec

_HEAD_BYTES_MAX: Final = 16_384
#: A file of manifests; the API server takes no larger object either.
BODY_BYTES_MAX: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 16
REQUEST_S: Final = 10.0
_ANSWER_S: Final = 60.0
_SEND_S: Final = 30.0
_FAREWELL_S: Final = 2.0
_FAREWELL_BYTES: Final = 16 << 20
CONNECTIONS_MOST: Final = 64
#: Who comes when all places are taken stands, the oldest making way for the newest. More than a listening socket takes
#: in one go (100), or a probe would be pushed out by those that came with it before anybody has read it.
STANDING_MOST: Final = 128
STANDING_S: Final = 2.0
#: What whoever started us asks; without an answer it ends us.
PROBES: Final = ("/healthz", "/readyz")
_FIELDS_MOST: Final = 16

JSON: Final = "application/json"
TEXT: Final = "text/plain; version=0.0.4"


@dataclass(frozen=True, slots=True)
class DoorRequest:
    """What somebody asks."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class DoorReply:
    """What they are told."""

    status: int
    body: bytes
    kind: str = JSON


Answers = Callable[[DoorRequest], Awaitable[DoorReply]]


class _TooLargeError(Exception):
    """More than anybody sends who means well."""


class _IncomingRequest:
    """Takes a request as it comes in; the parser calls it."""

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._pieces: list[bytes] = []
        self._head_bytes = self._body_bytes = 0
        self._fed_bytes = 0
        self._has_head = self.is_complete = False

    def feed(self, data: bytes) -> None:
        """More of it; `_TooLargeError` as soon as it is."""
        self._parser.feed_data(data)
        # The parser keeps a line until all of it is there, and calls nobody meanwhile.
        self._fed_bytes += len(data)
        if not self._has_head and self._fed_bytes > _HEAD_BYTES_MAX:
            raise _TooLargeError("its head")

    def request(self) -> DoorRequest:
        """The whole."""
        url = httptools.parse_url(self._url)
        asked = (url.query or b"").decode("latin-1")
        query = dict(parse_qsl(asked, keep_blank_values=True, max_num_fields=_FIELDS_MOST))
        method = self._parser.get_method().decode("latin-1")
        return DoorRequest(method, (url.path or b"").decode("latin-1"), query, b"".join(self._pieces))

    def drop(self) -> None:
        """Nothing is read any more. The parser holds our methods and we hold it: a circle that keeps what was sent."""
        del self._parser
        self._pieces.clear()

    def on_url(self, url: bytes) -> None:
        """A piece of the line that names it."""
        self._count(url)
        self._url += url

    def on_headers_complete(self) -> None:
        """What comes from here on is its body."""
        self._has_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """None of them says anything here; only how long they are matters."""
        self._count(name, value)

    def _count(self, *pieces: bytes) -> None:
        self._head_bytes += sum(map(len, pieces))
        if self._head_bytes > _HEAD_BYTES_MAX:
            raise _TooLargeError("its head")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            raise _TooLargeError(f"what was sent, of which {self._body_bytes_max >> 20} MiB are taken")
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """All of it was there; what else comes is not read."""
        self.is_complete = True


class _Door:
    """Places for so many, and beside them room to stand for those that only probe."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._seated = 0
        self._standing: dict[asyncio.StreamWriter, None] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        if self._seated >= CONNECTIONS_MOST:
            await self._serve_standing(reader, writer)
            return
        self._seated += 1
        try:
            await _attend(reader, writer, _hear(reader, self._answers))
        finally:
            self._seated -= 1

    async def _serve_standing(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(self._standing) >= STANDING_MOST:
            # Those that are slow stand longest; a probe is through within a moment.
            oldest = next(iter(self._standing))
            del self._standing[oldest]
            oldest.transport.abort()
        self._standing[writer] = None
        try:
            await _attend(reader, writer, _hear_probe(reader, self._answers))
        finally:
            self._standing.pop(writer, None)


async def open_door(listen: str, answers: Answers) -> asyncio.Server:
    """Listen on ADDR:PORT; the answers come from whoever knows."""
    host, _, port = listen.rpartition(":")
    return await asyncio.start_server(_Door(answers).serve, host.strip("[]") or None, int(port), limit=_CHUNK_BYTES)


async def _attend(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hearing: Coroutine[Any, Any, DoorReply | None]
) -> None:
    """Send what comes of hearing them."""
    try:
        with contextlib.suppress(OSError, TimeoutError):
            reply = await hearing
            if reply is not None:
                async with asyncio.timeout(_SEND_S):
                    writer.write(_write_head(reply) + reply.body)
                    await writer.drain()
                    await _see_off(reader, writer)
    finally:
        # A peer that reads nothing would keep its answer here for as long as it likes.
        writer.close() if not writer.transport.get_write_buffer_size() else writer.transport.abort()


async def _see_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read what was still being sent: a connection that is closed over it is reset, and takes the answer with it."""
    writer.write_eof()
    seen = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FAREWELL_S):
            while seen <= _FAREWELL_BYTES and (data := await reader.read(_CHUNK_BYTES)):
                seen += len(data)


async def _hear(reader: asyncio.StreamReader, answers: Answers) -> DoorReply | None:
    """One request and its reply; None: nobody waits for one."""
    request = await _read_request(reader, REQUEST_S, BODY_BYTES_MAX)
    if not isinstance(request, DoorRequest):
        return request
    async with asyncio.timeout(_ANSWER_S):
        return await answers(request)


async def _hear_probe(reader: asyncio.StreamReader, answers: Answers) -> DoorReply | None:
    """A probe and its reply; whatever else it is, there is no place for it."""
    request = await _read_request(reader, STANDING_S, body_bytes_max=0)
    if isinstance(request, DoorRequest) and request.path in PROBES:
        async with asyncio.timeout(_ANSWER_S):
            return await answers(request)
    return None if request is None else _refuse("too_many", 503)


async def _read_request(
    reader: asyncio.StreamReader, within_s: float, body_bytes_max: int
) -> DoorRequest | DoorReply | None:
    """One request, or why it is refused; None: nobody is there any more."""
    incoming = _IncomingRequest(body_bytes_max)
    try:
        async with asyncio.timeout(within_s):
            while not incoming.is_complete:
                data = await reader.read(_CHUNK_BYTES)
                if not data:
                    return None
                incoming.feed(data)
        return incoming.request()
    except httptools.HttpParserCallbackError as bad:
        if isinstance(bad.__context__, _TooLargeError):
            return _refuse("too_large", 413, f"{bad.__context__} is too large", "ask about fewer objects at once")
        raise
    except _TooLargeError as bad:
        return _refuse("too_large", 413, f"{bad} is too large")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError):
        return _refuse("usage", 400, "this is no request of HTTP/1.1 that can be read")
    except TimeoutError:
        return _refuse("usage", 408, f"the request was not complete after {within_s:g} s")
    finally:
        incoming.drop()


def _refuse(code: str, status: int, message: str = "too many connections", hint: str = "ask again") -> DoorReply:
    told = {"code": code, "message": message, "hint": hint, "details": {}}
    return DoorReply(status, msgspec.json.encode({"error": told}))


def _write_head(reply: DoorReply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status} -",
        f"Content-Type: {reply.kind}",
        f"Content-Length: {len(reply.body)}",
        # Names of others' objects are in here: no browser may take it for a page.
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")

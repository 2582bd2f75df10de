"""Server-sent events: what happens to jobs, as it happens, resumable by number.

A slow reader makes nothing grow: the next event is asked of the core only when the one before has been
handed to the socket, and a reader that takes nothing is disconnected by the connection's deadline. It
comes back with `Last-Event-ID` and goes on where it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from phalanx.frontends.host.api.asking import Ask, House
from phalanx.frontends.host.api.replies import EVENT_STREAM, encode
from phalanx.frontends.host.api.shapes import NUMBER_MAX, Failure
from phalanx.frontends.host.messages import Happening, Refusal
from phalanx.frontends.host.ports import Refused

_RETRY: Final = b"retry: 2000\n\n"
_HEARTBEAT: Final = b": still here\n\n"
_log = logging.getLogger("phalanx.api")


class EventStream(StreamingResponse):
    """An answer that goes on until one of the two ends has enough."""

    def __init__(self, ask: Ask) -> None:
        since = find_since(ask)
        events = ask.service.events(ask.caller, since)
        self._slot = ask.house.streams.take(ask.caller.uid)
        self._told = tell(ask.house, events, since)
        super().__init__(self._told, media_type=EVENT_STREAM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream, and give the slot and the iterator back however it ends."""
        with self._slot:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._told.aclose()


def find_since(ask: Ask) -> int:
    """The last event that the caller has: a browser that comes back says so in a header."""
    last = ask.headers.get(b"last-event-id")
    if last is None:
        since: int = ask.query.since
        return since
    if not last.isdigit() or len(last) > len(str(NUMBER_MAX)):
        raise Refused("usage", "Last-Event-ID is not the number of an event", "leave it out to read from the beginning")
    return int(last)


async def tell(house: House, events: AsyncIterator[Happening], since: int) -> AsyncGenerator[bytes]:
    """The stream's bytes."""
    stopping = asyncio.ensure_future(house.stopping.wait())
    coming: asyncio.Future[Happening | None] | None = None
    try:
        yield _RETRY
        while True:
            # The wait for an event outlives heartbeats: cancelling it would end the core's iterator.
            coming = coming or asyncio.ensure_future(_next(events))
            both: set[asyncio.Future[Any]] = {coming, stopping}
            await asyncio.wait(both, timeout=house.limits.heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return
            if not coming.done():
                yield _HEARTBEAT
                continue
            happening, coming = coming.result(), None
            if happening is None:
                return
            if happening.seq > since:
                yield b"id: %d\nevent: job\ndata: %b\n\n" % (happening.seq, encode(happening))
    except Refused as no:
        yield _error(no.refusal)
    except Exception:  # noqa: BLE001 - the stream has begun: no status can say it any more
        _log.exception("an event stream broke")
        yield _error(Refusal("internal", "the daemon could not go on", "its log says why; connect again to resume"))
    finally:
        await _end(events, stopping, coming)


async def _next(events: AsyncIterator[Happening]) -> Happening | None:
    try:
        return await anext(events)
    except StopAsyncIteration:
        return None


async def _end(events: AsyncIterator[Happening], *tasks: asyncio.Future[Any] | None) -> None:
    waiting = [task for task in tasks if task is not None]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


def _error(refusal: Refusal) -> bytes:
    return b"event: error\ndata: %b\n\n" % encode(Failure(refusal))

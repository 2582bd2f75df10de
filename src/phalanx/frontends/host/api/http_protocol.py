"""One connection: uvicorn's HTTP protocol with an identity, bounds and deadlines.

uvicorn reads bodies only as fast as the application takes them, but it has no bound on a request's head,
on idle time before the first request, or on readers that do not read. `due_s` is the one number for all
of these: the moment by which what the connection waits for must have come. The server's sweep looks at it.
"""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from phalanx.frontends.host.api.peers import read_peer_uid
from phalanx.frontends.host.api.replies import write_refusal
from phalanx.frontends.host.api.request_limits import Crowd
from phalanx.frontends.host.messages import Refusal
from phalanx.frontends.host.ports import Caller

_NOT_HTTP = Refusal("usage", "this is not a request of HTTP/1.1", "see GET /openapi.json for what can be asked")


class ApiConnection(HttpToolsProtocol):
    """What a request's scope carries as `state["connection"]`."""

    def __init__(self, *, crowd: Crowd, **given: Any) -> None:
        super().__init__(**given)
        self.crowd = crowd
        self.limits = crowd.limits
        self.unix = False
        self.uid: int | None = None
        self.caller: Caller | None = None  # who that is, once somebody asked
        self.receiving = False  # the newest request has not come in whole
        self.due_s = math.inf
        self._counted = False
        self._answering = False
        self._in_head = False
        self._head_bytes = 0
        self._problem = _NOT_HTTP

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Read the peer's credentials, once; turn away whom there is no room for."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        self.unix = sock.family == socket.AF_UNIX
        self.uid = read_peer_uid(sock) if self.unix else None
        refusal = self.crowd.enter(self.uid)
        if refusal is not None and not self.unix and self.crowd.make_way():
            refusal = self.crowd.enter(self.uid)
        self._counted = refusal is None
        if self._counted and not self.unix:
            self.crowd.note_stranger(self, self._make_way)
        if refusal is not None:
            self._turn_away(refusal)
        self.due_s = self.loop.time() + self.limits.first_s

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        self.crowd.know(self)
        if self._counted:
            self._counted = False
            self.crowd.leave(self.uid)

    def _make_way(self) -> None:
        self._leave()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse; a head that does not end is not stored for ever."""
        was_in_head = self._in_head
        super().data_received(data)
        # Only what comes after a piece that left the head open is counted: the piece before may hold the
        # end of another request, and asyncio bounds its size.
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes and not self.transport.is_closing():
                self._turn_away(
                    Refusal("too_large", f"the request's head is longer than {self.limits.head_bytes} bytes")
                )

    def on_message_begin(self) -> None:
        """A request begins: it has to be whole before long."""
        if self._answering:
            # No client of ours sends a second request before the first is answered, and uvicorn would tell
            # only the newest of them that the peer is gone: an event stream before it would go on for ever.
            self.transport.abort()
            self._fail(Refusal("usage", "one request at a time"))
        super().on_message_begin()
        self.scope["state"]["connection"] = self
        self.receiving = self._in_head = True
        self._head_bytes = 0
        self.due_s = self.loop.time() + self.limits.request_s

    def on_headers_complete(self) -> None:
        """The head is there: refuse what no client of ours sends."""
        if not self.url.startswith(b"/"):
            # An absolute address may name another host than the Host header does; proxies need it, we do not.
            self._fail(
                Refusal("misdirected", "the request's target is not a path", "ask for /v1/status, without a host")
            )
        if len(self.headers) > self.limits.headers:
            self._fail(Refusal("too_large", f"the request has more than {self.limits.headers} headers"))
        self._in_head = False
        self._answering = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole: now it is our turn, however long that takes."""
        self.receiving = False
        # It may have been refused before it came in whole.
        self.due_s = math.inf if self._answering else self.loop.time() + self.limits.idle_s
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answered: the next request may take a while to come, but not for ever."""
        self._answering = False
        super().on_response_complete()
        if not self.receiving:
            self.due_s = self.loop.time() + self.limits.idle_s

    async def answer(self, response: Response) -> None:
        """Send an answer that is whole: head and body in one piece.

        In two, as uvicorn's `send` does it, a client that waits is woken for a head that says nothing yet, and a
        durable submit of a single client spends a tenth of its time there.
        """
        if self.flow.write_paused:
            await self.flow.drain()
        cycle = self.cycle
        if cycle.disconnected:
            return
        lines = [STATUS_LINE[response.status_code]]
        for name, value in [*cycle.default_headers, *response.raw_headers]:
            lines += (name, b": ", value, b"\r\n")
        if response.headers.get("connection") == "close":
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            lines.append(bytes(response.body))
        cycle.response_started = cycle.response_complete = True
        self.transport.write(b"".join(lines))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def pause_writing(self) -> None:
        """The peer does not read: it has to before long."""
        super().pause_writing()
        self.due_s = self.loop.time() + self.limits.stall_s

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        self.due_s = math.inf if self._answering else self.loop.time() + self.limits.idle_s

    def send_400_response(self, msg: str) -> None:
        """What uvicorn says to bytes that it cannot parse, in our shape."""
        self._turn_away(self._problem)

    def sweep(self, now_s: float) -> None:
        """End the connection if what it waits for has not come."""
        if now_s > self.due_s:
            self.transport.abort()

    def _fail(self, problem: Refusal) -> None:
        # Raised inside the parser, which wraps it; uvicorn then calls `send_400_response`.
        self._problem = problem
        raise ValueError(problem.message)

    def _turn_away(self, refusal: Refusal) -> None:
        self.transport.write(write_refusal(refusal))
        self.transport.close()

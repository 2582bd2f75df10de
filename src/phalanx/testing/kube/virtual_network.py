"""Connections without sockets, on a loop whose time is a number, and processes that can be killed or put to sleep.

asyncio asks its loop for a transport; this loop makes one that carries bytes to whoever listens. So everything above
it, streams and HTTP included, is the code that runs in the field.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol

from phalanx.testing.hosts.virtual_loop import LIFE, Life, VirtualLoop


class SleepyLife(Life):
    """A process that somebody may stop and let go on: what it would have done meanwhile, it does then."""

    def __init__(self, name: str) -> None:
        """It lives, and is awake."""
        super().__init__(name)
        self.asleep = False
        self.turns = 0
        self.dies_at_turn: int | None = None
        self.backlog: deque[tuple[asyncio.Handle, Life | None]] = deque()


class PipeEnd(Protocol):
    """A server."""

    async def connect(self, pipe: VirtualPipe) -> None:
        """Somebody asks for a connection; raises OSError if it gets none."""
        ...

    def receive(self, pipe: VirtualPipe, data: bytes) -> None:
        """Bytes have been written."""
        ...

    def forget(self, pipe: VirtualPipe) -> None:
        """The other side has closed it."""
        ...


class BusyForEver(Exception):  # noqa: N818 - what happened
    """Somebody does the same thing again and again without waiting for anything."""


class KubeLoop(VirtualLoop):
    """With one server in its network."""

    def __init__(self, listener: Callable[[], PipeEnd]) -> None:
        """Whoever listens is asked for when somebody connects."""
        super().__init__()
        self._listener = listener
        self.turns_most: int | None = None
        #: Called when a process has reached the turn at which it dies.
        self.on_death: Callable[[SleepyLife], None] = lambda life: None

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[VirtualPipe, asyncio.Protocol]:
        """To the one server, whatever its name."""
        del host, port
        pipe = VirtualPipe(self, self._listener(), copy_context())
        await self._listener().connect(pipe)
        protocol = protocol_factory()
        pipe.protocol = protocol
        protocol.connection_made(pipe)
        return pipe, protocol

    def wake(self, life: SleepyLife) -> None:
        """Go on where it was; it is later than it thinks."""
        life.asleep = False
        self._soon.extend(life.backlog)
        life.backlog.clear()

    def _run(self, handle: asyncio.Handle, life: Life | None) -> None:
        if self.turns_most is not None and self.turns > self.turns_most:
            raise BusyForEver(f"{self.turns} steps by {self.now_us / 1e6:g} s")
        if isinstance(life, SleepyLife) and life.alive and not handle.cancelled():
            if life.asleep:
                life.backlog.append((handle, life))
                return
            life.turns += 1
            if life.turns == life.dies_at_turn:
                self.on_death(life)
        super()._run(handle, life)


class VirtualPipe(asyncio.Transport):
    """One connection, as its client holds it."""

    def __init__(self, loop: KubeLoop, listener: PipeEnd, context: Context) -> None:
        """`context`: of the process that opens it; all that comes in happens there."""
        super().__init__()
        self.loop, self.context = loop, context
        self.protocol: asyncio.BaseProtocol | None = None
        self.closed = False  # by either side
        self.free_at_us = 0  # what is sent now arrives no sooner: bytes do not overtake each other
        self._listener = listener

    @property
    def owner(self) -> Life | None:
        """The process that opened it."""
        return self.context.get(LIFE)

    # ---- the client's side

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """To the server."""
        if not self.closed:
            self._listener.receive(self, bytes(data))

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.closed

    def abort(self) -> None:
        """Let go of it at once."""
        if not self.closed:
            self.closed = True
            self._listener.forget(self)
            self._lose(None)

    def close(self) -> None:
        """The same; nothing is ever waiting to be sent."""
        self.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is none."""
        del name
        return default

    def pause_reading(self) -> None:
        """Nobody here is too slow for anybody."""

    def resume_reading(self) -> None:
        """Nobody here is too slow for anybody."""

    # ---- the server's side

    def deliver(self, delay_us: int, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Bytes for the client, so much later; `then` is called where they are read, just before."""
        self.free_at_us = max(self.free_at_us, self.loop.now_us + delay_us)
        self.loop.call_at(self.free_at_us / 1e6, self._arrive, data, then, context=self.context)

    def cut(self) -> None:
        """The connection is reset, by the server or by what is between."""
        if not self.closed:
            self.closed = True
            self._lose(ConnectionResetError("the connection was reset"))

    def _arrive(self, data: bytes, then: Callable[[], None] | None) -> None:
        if not self.closed and isinstance(self.protocol, asyncio.Protocol):
            if then is not None:
                then()
            self.protocol.data_received(data)

    def _lose(self, error: Exception | None) -> None:
        if self.protocol is not None:
            self.loop.call_soon(self.protocol.connection_lost, error, context=self.context)

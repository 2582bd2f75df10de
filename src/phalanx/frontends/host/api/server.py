"""Serve the API inside the daemon's own loop: no signal handlers, no threads, gone within two seconds."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import uvicorn

from phalanx.frontends.host.api.asking import House
from phalanx.frontends.host.api.door import Door, Identities
from phalanx.frontends.host.api.http_protocol import ApiConnection
from phalanx.frontends.host.api.openapi import make_document
from phalanx.frontends.host.api.prometheus_meters import PrometheusMeters
from phalanx.frontends.host.api.replies import COMMON_HEADERS
from phalanx.frontends.host.api.request_limits import ApiLimits, Crowd, RequestRates, Slots
from phalanx.frontends.host.api.sockets import BACKLOG, CannotListen, UnixDoor, open_loopback, open_unix
from phalanx.frontends.host.api.tokens import Tokens
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.service import Service

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


class Server:
    """Listens from the moment it is made; answers while `run` runs."""

    def __init__(self, door: Door, house: House, unix: UnixDoor, tcp: socket.socket | None) -> None:
        self._unix = unix
        self._sockets = [unix.sock] if tcp is None else [unix.sock, tcp]
        self._stopping = house.stopping
        self._uvicorn = _Uvicorn(_configure(door, house.limits), house)
        self.tcp_address: tuple[str, int] | None = None if tcp is None else tcp.getsockname()[:2]

    @property
    def socket_path(self) -> Path:
        """Where clients find it."""
        return self._unix.path

    async def run(self) -> None:
        """Answer until `stop`."""
        try:
            await self._uvicorn.serve(sockets=self._sockets)
        finally:
            await self._uvicorn.cut_off()
            self.close()

    def stop(self) -> None:
        """Take no new connections, end streams and waits, let requests under way finish, and let `run` return."""
        self._stopping.set()
        self._uvicorn.should_exit = True

    def close(self) -> None:
        """Give the doors back, whether or not `run` was ever called."""
        for sock in self._sockets:
            sock.close()
        self._unix.remove()


class _Uvicorn(uvicorn.Server):
    """uvicorn as a guest: the loop and the signals are the daemon's."""

    def __init__(self, config: uvicorn.Config, house: House) -> None:
        super().__init__(config)
        self.servers = []
        self._stopping = house.stopping
        self._limits = house.limits

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        """Leave them alone."""
        return contextlib.nullcontext()

    async def main_loop(self) -> None:
        """Sweep until the end, instead of looking at a flag ten times a second."""
        await self.on_tick(0)  # makes the headers that every answer gets
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.sweep_s):
                    await self._stopping.wait()
            now_s = loop.time()
            for connection in list(self.server_state.connections):
                cast("ApiConnection", connection).sweep(now_s)

    async def cut_off(self) -> None:
        """After the time for a graceful end: whoever is still there is not waited for."""
        self._stopping.set()
        for server in self.servers:
            server.close()
        tasks = list(self.server_state.tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._limits.drain_s / 4)
            for task in late:
                task.cancel()
            await asyncio.wait(tasks, timeout=self._limits.drain_s / 4)
        for connection in list(self.server_state.connections):
            cast("ApiConnection", connection).transport.abort()
        await asyncio.sleep(0)  # the transports tell their protocols in the next turn of the loop
        await asyncio.sleep(0)


def serve(  # noqa: PLR0913 - the daemon's wiring, by name
    service: Service,
    *,
    socket_path: Path,
    socket_mode: int,
    identify: Callable[[int], Caller],
    tcp: tuple[str, int] | None = None,
    tokens: Tokens | None = None,
    version: str = "0",
    hosts: Sequence[str] = (),
    meters: PrometheusMeters | None = None,
    limits: ApiLimits | None = None,
) -> Server:
    """Open the doors. Raises CannotListen, and then none is open.

    `hosts` are further names that the Host header of a TCP request may carry; `identify` raises
    LookupError for a uid that has no access.
    """
    bounds = limits or ApiLimits()
    if tcp is not None and tokens is None:
        raise CannotListen(
            "a TCP port needs tokens", "issue one first, or leave the port out: the unix socket needs none"
        )
    listening = open_loopback(*tcp) if tcp is not None else None
    try:
        unix = open_unix(socket_path, socket_mode)
    except BaseException:
        if listening is not None:
            listening.close()
        raise
    port = listening.getsockname()[1] if listening is not None else 0
    identities = Identities(identify, tokens, find_hosts(hosts, port))
    document = msgspec.json.encode(make_document(version))
    streams = Slots("event streams", bounds.streams, bounds.streams_per_uid)
    house = House(service, meters or PrometheusMeters(), bounds, streams, asyncio.Event(), document)
    return Server(Door(house, identities, RequestRates(bounds, _loop_time)), house, unix, listening)


def find_hosts(hosts: Sequence[str], port: int) -> frozenset[bytes]:
    """Exactly what a Host header over TCP may be."""
    names = [name.lower() for name in (*_LOOPBACK_NAMES, *hosts)]
    return frozenset(text.encode() for name in names for text in (name, f"{name}:{port}"))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _configure(door: Door, limits: ApiLimits) -> uvicorn.Config:
    protocol = functools.partial(ApiConnection, crowd=Crowd(limits))
    return uvicorn.Config(
        door,
        http=cast("Any", protocol),
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        backlog=BACKLOG,
        # Nothing of uvicorn's is logged: bytes that are not HTTP would be a line each, written by anybody.
        # What goes wrong in our own code is logged at the door.
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        headers=list(COMMON_HEADERS),
        timeout_keep_alive=math.ceil(limits.idle_s),
        timeout_graceful_shutdown=cast("int", limits.drain_s),
    )

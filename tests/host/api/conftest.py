"""A core that says the same thing every time, and a server in front of it inside the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from phalanx.frontends.host.api import ApiLimits, PrometheusMeters, Server, Tokens, issue_token, serve
from phalanx.frontends.host.messages import (
    Accepted,
    ActedOn,
    Ahead,
    Detail,
    DeviceRow,
    Eta,
    Happening,
    MemberRow,
    NodeRow,
    QueueRow,
    Reason,
    Row,
    Sooner,
    Why,
)
from phalanx.frontends.host.ports import Caller
from phalanx.frontends.host.service import Figures, Listing, LogChunk, Service

LIMIT_S = 30.0
NOW = "2026-11-16T09:00:00+00:00"
WALL_S = 1_800_000_000.0
HOSTILE = "<script>alert(1)</script>\n\x1b[31m\u202e\x00"


def make_row(name: str = "train") -> Row:
    return Row(
        id=12,
        name=name,
        user="ada",
        queue="default",
        state="pending",
        members=0,
        members_min=4,
        members_max=8,
        placement={},
        reason=Reason("NotEnoughFree", "needs 4 GPUs, 2 are free", 4, 2),
        eta=Eta(NOW, NOW, NOW, "train-3 ends"),
        submitted=NOW,
    )


class FakeService:
    """Answers what the shapes promise, and writes down what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.callers: list[Caller] = []
        self.name = "train"
        self.fail: Exception | None = None
        self.block = asyncio.Event()  # holds `submit` back until it is set
        self.block.set()
        self.happenings = [Happening(seq, NOW, 12, "bind", {"members": 4}) for seq in range(1, 6)]
        self.news = asyncio.Event()
        self.waits = 0
        self.streams = 0

    def _note(self, caller: Caller, *call: Any) -> None:
        self.callers.append(caller)
        self.calls.append(call)
        if self.fail is not None:
            raise self.fail

    async def status(self, caller: Caller) -> dict[str, Any]:
        self._note(caller, "status")
        return {
            "schema": "phalanx.status/1",
            "pid": os.getpid(),
            "socket": "/run/x",
            "version": "0",
            "uptime_s": 1.5,
            "mode": "user",
            "policy": "goodput",
            "containment": "weak",
            "store": {"ok": True, "problem": None},
            "jobs": {"pending": 1},
            "gpus": {"total": 8, "free": 4},
            "fake": True,
        }

    async def submit(self, caller, jobs, key, *, dry_run):
        self._note(caller, "submit", list(jobs), key, dry_run)
        await self.block.wait()
        return [Accepted(number, job.name or self.name, "pending") for number, job in enumerate(jobs, 1)]

    async def rows(self, caller: Caller, listing: Listing) -> list[Row]:
        self._note(caller, "rows", listing)
        return [make_row(self.name)]

    async def detail(self, caller: Caller, ref: str) -> Detail:
        self._note(caller, "detail", ref)
        members = [MemberRow(0, "member", ["GPU-1"])]
        return Detail(make_row(self.name), {"members": 4}, ["true"], "/", {"A": "b"}, members, 1, self.happenings)

    async def why(self, caller: Caller, ref: str) -> Why:
        self._note(caller, "why", ref)
        row = make_row(self.name)
        sooner = [Sooner("with 2 members", "phalanx resize 12 2", NOW)]
        return Why(12, row.name, row.state, row.reason, [], Ahead(1, 4.0, [{"id": 3}]), row.eta, sooner)

    async def logs(self, caller, ref, *, rank, attempt, offset, limit, tail):
        self._note(caller, "logs", ref, rank, attempt, offset, limit, tail)
        return LogChunk(b"<b>step 1</b>\n\xff\x00", 16, True, 4)

    async def wait(self, caller: Caller, ref: str, timeout_s: float) -> dict[str, Any]:
        self._note(caller, "wait", ref, timeout_s)
        self.waits += 1
        try:
            if timeout_s > 1:
                await asyncio.sleep(timeout_s)
        finally:
            self.waits -= 1
        return {"id": 12, "state": "pending", "exit_code": None, "ended": False}

    async def act(self, caller, ref, verb, body):
        self._note(caller, verb, ref, dict(body))
        return Accepted(13, self.name, "pending") if verb == "retry" else make_row(self.name)

    async def act_on_all(self, caller: Caller, refs: Sequence[str], verb: str) -> ActedOn:
        self._note(caller, verb, *refs)
        return ActedOn([make_row(self.name)])

    async def dump(self, caller: Caller) -> str:
        self._note(caller, "dump")
        return '{"schema": "phalanx.state/1"}'

    async def queues(self, caller: Caller) -> list[QueueRow]:
        self._note(caller, "queues")
        return [QueueRow("default", "root", 1.0, {}, {}, {"gpu": 4}, 1, 1)]

    async def nodes(self, caller: Caller) -> list[NodeRow]:
        self._note(caller, "nodes")
        device = DeviceRow(0, "GPU-1", "fake", 1 << 30, "0", "busy", 12, 0, "ada")
        return [NodeRow("localhost", {"gpu": 8}, {"gpu": 4}, {}, True, "weak", [device])]

    async def share(self, caller: Caller) -> dict[str, Any]:
        self._note(caller, "share")
        return {"user": "ada", "sentence": "You use 4 of 8.", "queues": [{"name": "default"}]}

    async def report(self, caller, by, since_s):
        self._note(caller, "report", list(by), since_s)
        return {"by": list(by), "rows": [{"user": "ada", "gpu_s": 1.0}]}

    async def report_eta(self, caller: Caller) -> dict[str, Any]:
        self._note(caller, "report_eta")
        return {"count": 0, "within_range": None, "error_s": {"p50": None, "p90": None}, "bias_s": None, "rows": []}

    async def gantt(self, caller: Caller, past_s: float) -> dict[str, Any]:
        self._note(caller, "gantt", past_s)
        return {"now": NOW, "devices": ["GPU-1"], "bars": [{"job": 12}]}

    async def config(self, caller: Caller) -> dict[str, Any]:
        self._note(caller, "config")
        return {"values": [{"key": "policy", "value": "goodput", "origin": "default"}]}

    async def events(self, caller: Caller, since: int) -> AsyncIterator[Happening]:
        self._note(caller, "events", since)
        self.streams += 1
        try:
            told = 0
            while True:
                for happening in self.happenings[told:]:
                    yield happening
                told = len(self.happenings)
                await self.news.wait()
                self.news.clear()
        finally:
            self.streams -= 1

    async def down(self, caller: Caller) -> None:
        self._note(caller, "down")

    def figures(self) -> Figures:
        return Figures(
            {
                ("phalanx_gangs", (("queue", "default"), ("state", "running"))): 2.0,
                ("phalanx_pending_gangs", (("queue", "default"), ("reason", "NotEnoughFree"))): 1.0,
                ("phalanx_head_of_queue_wait_seconds", (("queue", "default"),)): 30.0,
                ("phalanx_gpus", (("queue", "default"), ("state", "allocated"))): 4.0,
                ("phalanx_gpus", (("state", "free"),)): 4.0,
                ("phalanx_goodput_ratio", (("queue", "default"),)): 0.9,
            }
        )


_: Service = FakeService()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        import json

        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Line:
    """One connection, by hand: nothing between the test and the bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_head(self) -> tuple[int, dict[str, str]]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        pairs = [line.partition(": ")[::2] for line in lines]
        assert len(dict(pairs)) == len(pairs), f"a header is there twice: {pairs}"
        return int(first.split()[1]), dict(pairs)

    async def read(self, *, method: str = "GET") -> Answer:
        async with asyncio.timeout(LIMIT_S):
            status, headers = await self.read_head()
            size = 0 if method == "HEAD" else int(headers["content-length"])
            return Answer(status, headers, await self.reader.readexactly(size))

    async def ended(self) -> bytes:
        """What still comes until the server hangs up."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def write_request(
    method: str, path: str, *, body: bytes | None = None, host: str | None = "localhost", **headers: str
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


@dataclass
class Api:
    """A running server, and what scenarios need besides (test modules cannot import this file)."""

    server: Server
    service: FakeService
    token: dict[str, str]
    admins: set[int] = field(default_factory=set)

    write = staticmethod(write_request)
    hostile = HOSTILE

    @staticmethod
    async def until(condition: Callable[[], object]) -> None:
        """Poll, with a limit that only a real failure reaches."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)

    @contextlib.asynccontextmanager
    async def line(self, *, tcp: bool = False) -> AsyncIterator[Line]:
        if tcp:
            assert self.server.tcp_address is not None
            line = Line(*await asyncio.open_connection(*self.server.tcp_address))
        else:
            line = Line(*await asyncio.open_unix_connection(self.server.socket_path))
        try:
            yield line
        finally:
            await line.close()

    async def flood(self, head: bytes, piece: bytes, total: int, *, tcp: bool = False) -> tuple[int, bytes]:
        """Send pieces until the server has enough: how many bytes went out, and what it said.

        On a bare socket: asyncio's streams throw away an answer that came before the connection broke.
        """
        loop = asyncio.get_running_loop()
        sent, answer = 0, b""
        with socket.socket(socket.AF_INET if tcp else socket.AF_UNIX) as sock:
            sock.setblocking(False)
            async with asyncio.timeout(LIMIT_S):
                await loop.sock_connect(sock, self.server.tcp_address if tcp else str(self.server.socket_path))
                await loop.sock_sendall(sock, head)
                with contextlib.suppress(ConnectionError):
                    while sent < total:
                        await loop.sock_sendall(sock, piece)
                        sent += len(piece)
                with contextlib.suppress(ConnectionError):
                    while more := await loop.sock_recv(sock, 65536):
                        answer += more
        return sent, answer

    async def reach(self, path: str) -> Answer:
        """Ask until there is an answer: with limits this short, a slow machine is hung up on too."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    return await self.ask("GET", path)

    async def ask(
        self, method: str, path: str, *, tcp: bool = False, token: str | None = None, **request: Any
    ) -> Answer:
        if token is not None:
            request["Authorization"] = f"Bearer {token}"
        async with self.line(tcp=tcp) as line:
            await line.send(write_request(method, path, **request))
            return await line.read(method=method)


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Run a scenario against a server of its own; nothing of it may be left afterwards."""

    def run(scenario: Callable[[Api], Awaitable[None]], **options: Any) -> None:
        asyncio.run(_play(tmp_path, scenario, **options))

    return run


async def _play(
    tmp_path: Path,
    scenario: Callable[[Api], Awaitable[None]],
    *,
    limits: ApiLimits | None = None,
    admin: bool = False,
    known: bool = True,
    folder: Path | None = None,
    socket_mode: int = 0o600,
    hosts: tuple[str, ...] = (),
    meters: PrometheusMeters | None = None,
) -> None:
    uid = os.geteuid()
    path = tmp_path / "tokens"
    scopes = ("read", "submit", "admin")
    token = {scope: issue_token(path, uid=uid, scope=scope, wall_s=WALL_S)[0] for scope in scopes}
    admins = {uid} if admin else set()

    def identify(uid: int) -> Caller:
        if not known:
            raise KeyError(uid)
        return Caller(uid, f"user-{uid}", admin=uid in admins)

    service = FakeService()
    server = serve(
        service,
        socket_path=(folder or tmp_path) / "phalanx.sock",
        socket_mode=socket_mode,
        identify=identify,
        tcp=("127.0.0.1", 0),
        tokens=Tokens(path, wall_s=lambda: WALL_S + 1),
        version="1.2.3",
        hosts=hosts,
        meters=meters,
        limits=limits,
    )
    running = asyncio.ensure_future(server.run())
    try:
        await scenario(Api(server, service, token, admins))
    finally:
        server.stop()
        async with asyncio.timeout(LIMIT_S):
            await running
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, left
    assert not (folder or tmp_path).joinpath("phalanx.sock").exists()

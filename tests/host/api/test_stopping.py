"""The end: everybody is told, nobody is waited for, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from phalanx.frontends.host.api import ApiLimits, serve
from phalanx.frontends.host.ports import Caller

PATIENT = ApiLimits(drain_s=20.0)  # what a slow machine takes; nothing waits that long
JOB = b'{"gang": {}, "run": {}}'


def test_a_stop_ends_streams_waits_and_idle_connections(play):
    async def scenario(api):
        async with contextlib.AsyncExitStack() as stack:
            stream, waiting, idle = [await stack.enter_async_context(api.line()) for _ in range(3)]
            await stream.send(api.write("GET", "/v1/events"))
            assert (await stream.read_head())[0] == 200
            await waiting.send(api.write("GET", "/v1/jobs/1/wait?timeout_s=300"))
            await idle.send(api.write("GET", "/v1/status"))
            assert (await idle.read()).status == 200
            await api.until(lambda: api.service.waits and api.service.streams)
            api.server.stop()
            answer = await waiting.read()
            assert (answer.status, answer.code) == (503, "unavailable")
            assert (await stream.ended()).endswith(b"0\r\n\r\n")  # a whole answer, not a broken one
            assert await idle.ended() == b""
            assert (api.service.waits, api.service.streams) == (0, 0)

    play(scenario, limits=PATIENT)


def test_a_request_under_way_is_answered(play):
    async def scenario(api):
        api.service.block.clear()
        async with api.line() as line:
            await line.send(api.write("POST", "/v1/jobs", body=JOB))
            await api.until(lambda: api.service.calls)
            api.server.stop()
            await api.until(lambda: not api.server._uvicorn.servers[0].is_serving())
            api.service.block.set()
            answer = await line.read()
            assert (answer.status, answer.headers["connection"]) == (200, "close")

    play(scenario, limits=PATIENT)


@pytest.mark.parametrize("whole", [True, False])
def test_a_request_that_does_not_end_is_told_so(play, whole):
    async def scenario(api):
        api.service.block.clear()
        async with api.line() as line:
            await line.send(api.write("POST", "/v1/jobs", body=JOB)[: None if whole else -1])
            await api.until(lambda: api.server._uvicorn.server_state.tasks)
            api.server.stop()
            answer = await line.read()
            assert (answer.status, answer.code) == (503, "unavailable")
        assert bool(api.service.calls) == whole

    play(scenario, limits=ApiLimits(drain_s=0.2))


def test_nobody_can_connect_after_a_stop(play):
    async def scenario(api):
        path = api.server.socket_path
        api.server.stop()
        await api.until(lambda: not path.exists())
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            await asyncio.open_unix_connection(path)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*api.server.tcp_address)

    play(scenario)


def test_a_server_that_never_ran_gives_its_doors_back(play):
    async def scenario(api):
        path = api.server.socket_path.with_name("another.sock")
        options = {"socket_path": path, "socket_mode": 0o600, "identify": lambda _: None}
        serve(api.service, **options).close()
        assert not path.exists()
        second = serve(api.service, **options)  # and the place can be taken again
        second.stop()
        await second.run()
        assert not path.exists()

    play(scenario)


def test_a_cancelled_run_leaves_nothing_behind(play):
    async def scenario(api):
        path = api.server.socket_path.with_name("another.sock")
        server = serve(api.service, socket_path=path, socket_mode=0o600, identify=lambda uid: Caller(uid, "x"))
        running = asyncio.ensure_future(server.run())
        api.service.block.clear()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(api.write("GET", "/v1/jobs/1/wait?timeout_s=300"))
        stuck_reader, stuck_writer = await asyncio.open_unix_connection(path)
        stuck_writer.write(api.write("POST", "/v1/jobs", body=JOB))
        await api.until(lambda: len(api.service.calls) == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert api.service.waits == 0
        assert b"503" in await asyncio.wait_for(reader.read(), 30)
        assert b"503" in await asyncio.wait_for(stuck_reader.read(), 30)
        writer.close()
        stuck_writer.close()
        assert not path.exists()

    play(scenario)


def test_a_caller_who_hangs_up_is_not_waited_for(play):
    async def scenario(api):
        async with api.line() as line:
            await line.send(api.write("GET", "/v1/jobs/1/wait?timeout_s=300"))
            await api.until(lambda: api.service.waits)
        await api.until(lambda: not api.service.waits)
        async with api.line() as line:
            await line.send(api.write("POST", "/v1/jobs", Content_Length="100") + b"{")
        assert [call[0] for call in api.service.calls] == ["wait"]

    play(scenario)


def test_no_file_stays_open(play):
    async def scenario(api):
        await api.ask("GET", "/v1/status")

    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        play(scenario)
    assert len(list(Path("/proc/self/fd").iterdir())) == before

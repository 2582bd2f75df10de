"""What may be sent to a replica's port: anything, and nothing of it costs more than a moment."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc

import pytest

from phalanx.frontends.kube import kube_door
from phalanx.frontends.kube.kube_door import DoorReply, open_door


async def echo(request):
    told = {"method": request.method, "path": request.path, "query": dict(request.query), "bytes": len(request.body)}
    return DoorReply(200, json.dumps(told).encode())


async def talk(port, data, *, end=False):
    """Everything that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        if end:
            writer.write_eof()
        return await reader.read()
    finally:
        writer.close()


def through(data, *, end=False, answers=echo):
    async def run():
        server = await open_door("127.0.0.1:0", answers)
        async with server:
            return await talk(server.sockets[0].getsockname()[1], data, end=end)

    return asyncio.run(run())


def read(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_a_question_with_a_query_and_a_body():
    data = b"POST /v1/fit?namespace=a%20b&x= HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12345"
    assert read(through(data)) == (
        200,
        {"method": "POST", "path": "/v1/fit", "query": {"namespace": "a b", "x": ""}, "bytes": 5},
    )


def test_a_body_in_chunks():
    data = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert read(through(data))[1]["bytes"] == 5


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"nonsense\r\n\r\n", 400, "usage"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10, 400, "usage"),  # TLS
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 413, "too_large"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 413, "too_large"),
        (b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n" + b"a" * (2 << 20), 413, "too_large"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, 413, "too_large"),
        (b"CONNECT host:1 HTTP/1.1\r\n\r\n", 400, "usage"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "usage"),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456", 400, "usage"),
        (b"GET /?" + b"a=1&" * 100 + b" HTTP/1.1\r\nHost: h\r\n\r\n", 400, "usage"),
    ],
    ids=[
        "nonsense",
        "tls",
        "long-header",
        "long-path",
        "long-body",
        "endless-header",
        "connect",
        "negative",
        "two-lengths",
        "many-fields",
    ],
)
def test_what_is_none_is_refused_in_words(data, status, code):
    found, told = read(through(data))
    assert (found, told["error"]["code"]) == (status, code)
    assert told["error"]["hint"]


def test_half_a_request_and_nobody_there_any_more():
    assert through(b"GET / HTT", end=True) == b""


def test_whoever_sends_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(kube_door, "REQUEST_S", 0.05)
    status, told = read(through(b"GET / HTTP/1.1\r\n"))
    assert (status, told["error"]["code"]) == (408, "usage")


def test_too_many_connections_are_told_so_and_probes_come_through_afterwards(monkeypatch):
    monkeypatch.setattr(kube_door, "CONNECTIONS_MOST", 2)

    async def run():
        server = await open_door("127.0.0.1:0", echo)
        async with server:
            port = server.sockets[0].getsockname()[1]
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await asyncio.sleep(0)
            over = await talk(port, b"GET / HTTP/1.1\r\n\r\n")
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            for _ in range(100):
                after = await talk(port, b"GET / HTTP/1.1\r\n\r\n")
                if read(after)[0] == 200:
                    break
            return read(over), read(after)

    (status, told), (after, _) = asyncio.run(run())
    assert (status, told["error"]["code"]) == (503, "too_many")
    assert after == 200


HALF_SENT = b"GET /v1/gangs HTTP/1.1\r\nX: "
BODY_OWED = b"POST /v1/fit HTTP/1.1\r\nContent-Length: 9\r\n\r\n1"


@pytest.mark.parametrize("sent", [b"", HALF_SENT, BODY_OWED], ids=["nothing", "half-a-head", "half-a-body"])
def test_probes_are_answered_while_slow_clients_take_every_place(monkeypatch, sent):
    monkeypatch.setattr(kube_door, "CONNECTIONS_MOST", 4)
    monkeypatch.setattr(kube_door, "STANDING_MOST", 4)

    async def run():
        server = await open_door("127.0.0.1:0", echo)
        async with server:
            port = server.sockets[0].getsockname()[1]
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in held:
                writer.write(sent)
            await asyncio.sleep(0.01)
            asked = ("/healthz", "/readyz", "/metrics", "/v1/gangs")
            told = [read(await talk(port, f"GET {path} HTTP/1.1\r\n\r\n".encode()))[0] for path in asked]
            for _, writer in held:
                writer.close()
            return told

    assert asyncio.run(run()) == [200, 200, 503, 503]


def test_whoever_stands_and_says_nothing_is_sent_away(monkeypatch):
    monkeypatch.setattr(kube_door, "CONNECTIONS_MOST", 0)
    monkeypatch.setattr(kube_door, "STANDING_S", 0.05)
    assert read(through(HALF_SENT))[0] == 503


def test_a_long_answer_keeps_nobody_else_waiting():
    async def run():
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def answers(request):
            if request.path == "/slow":
                begun.set()
                await go_on.wait()
            return await echo(request)

        server = await open_door("127.0.0.1:0", answers)
        async with server:
            port = server.sockets[0].getsockname()[1]
            slow = asyncio.create_task(talk(port, b"GET /slow HTTP/1.1\r\n\r\n"))
            await begun.wait()
            quick = await talk(port, b"GET /healthz HTTP/1.1\r\n\r\n")
            go_on.set()
            return read(quick)[0], read(await slow)[0]

    assert asyncio.run(run()) == (200, 200)


@pytest.mark.parametrize("lacking", [0, 1], ids=["answered", "refused"])
def test_what_was_sent_is_let_go_without_the_collector(monkeypatch, lacking):
    """A replica collects circles seldom; bodies in them would be gigabytes by then."""
    monkeypatch.setattr(kube_door, "BODY_BYTES_MAX", (1 << 19) - lacking)
    body = b"a" * (1 << 19)
    data = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def run():
        server = await open_door("127.0.0.1:0", echo)
        async with server:
            port = server.sockets[0].getsockname()[1]
            status = read(await talk(port, data))[0]
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(4):
                await talk(port, data)
            await asyncio.sleep(0)
            return status, tracemalloc.get_traced_memory()[0] - before

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        status, left = asyncio.run(run())
    finally:
        tracemalloc.stop()
        gc.enable()
    assert status == (413 if lacking else 200)
    assert left < len(body)

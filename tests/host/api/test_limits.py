"""Bounds: sizes, rates, numbers and patience. The limits are small here, so that nothing has to be large."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import resource

import pytest

from phalanx.frontends.host.api import ApiLimits
from phalanx.frontends.host.api.request_limits import CONNECTIONS_KEPT, Crowd, RequestRates, Slots
from phalanx.frontends.host.messages import Happening
from phalanx.frontends.host.ports import Caller, Refused

JOB = b'{"gang": {}, "run": {}}'
MIB = 1 << 20
QUICK = ApiLimits(sweep_s=0.02, throttle_s=0.0)


def make_batch(size):
    filler = b'{"gang": {"x": "%s"}, "run": {}}' % (b"y" * (size - 200))
    return b'{"jobs": [%s]}' % filler


# ---------------------------------------------------------------------- bodies


def test_a_body_above_the_limit_is_refused_before_it_is_read(play):
    async def scenario(api):
        for path in ("/v1/jobs", "/v1/jobs/1/resize"):
            async with api.line(tcp=True) as line:
                head = api.write(
                    "POST", path, Authorization=f"Bearer {api.token['submit']}", Content_Length=str(MIB + 1)
                )
                await line.send(head)  # and nothing of the body
                answer = await line.read()
                assert (answer.status, answer.code, answer.headers["connection"]) == (413, "too_large", "close")
                assert await line.ended() == b""
        assert not api.service.calls

    play(scenario)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("tcp", [False, True])
def test_a_flood_is_cut_off(play, framing, tcp):
    total, piece = 200 * MIB, b"x" * 65536
    how = {"Content_Length": str(total)}
    if framing == "chunked":
        how, piece = {"Transfer_Encoding": "chunked"}, b"%x\r\n%b\r\n" % (len(piece), piece)

    async def scenario(api):
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        head = api.write("POST", "/v1/jobs", Authorization=f"Bearer {api.token['submit']}", **how)
        sent, answer = await api.flood(head, piece, total, tcp=tcp)
        # What the kernel buffers on both sides and what is below the limit; not the flood.
        assert sent < 24 * MIB
        assert answer.startswith(b"HTTP/1.1 413")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024
        assert not api.service.calls
        assert (await api.ask("GET", "/v1/status")).status == 200

    play(scenario)


def test_a_batch_may_be_larger_on_the_unix_socket_only(play):
    async def scenario(api):
        batch = make_batch(2 * MIB)
        assert (await api.ask("POST", "/v1/jobs", body=batch)).json["jobs"][0]["id"] == 1
        head = api.write("POST", "/v1/jobs", Authorization=f"Bearer {api.token['submit']}", Content_Length=str(2 * MIB))
        assert (await api.flood(head, batch, len(batch), tcp=True))[1].startswith(b"HTTP/1.1 413")
        head = api.write("PATCH", "/v1/jobs/1", Content_Length=str(2 * MIB))
        assert (await api.flood(head, batch, len(batch)))[1].startswith(b"HTTP/1.1 413")
        async with api.line() as line:
            await line.send(api.write("POST", "/v1/jobs", Content_Length=str((64 << 20) + 1)))
            assert (await line.read()).status == 413
        assert [call[0] for call in api.service.calls] == ["submit"]

    play(scenario)


def test_one_large_body_a_user_at_a_time(play):
    async def scenario(api):
        batch = make_batch(2 * MIB)
        api.service.block.clear()
        async with api.line() as first:
            await first.send(api.write("POST", "/v1/jobs", body=batch))
            await api.until(lambda: api.service.calls)
            async with api.line() as second:
                await second.send(api.write("POST", "/v1/jobs", Content_Length=str(2 * MIB)))
                answer = await second.read()
                assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too_many", "1")
            small = asyncio.ensure_future(api.ask("POST", "/v1/jobs", body=JOB))
            await api.until(lambda: len(api.service.calls) == 2)
            api.service.block.set()
            assert (await small).status == 200
            assert (await first.read()).status == 200
        assert (await api.ask("POST", "/v1/jobs", body=batch)).status == 200  # its place is free again

    play(scenario)


def test_a_refused_body_of_bearable_size_does_not_cost_the_connection(play):
    async def scenario(api):
        async with api.line(tcp=True) as line:
            for _ in range(3):
                await line.send(api.write("POST", "/v1/jobs", body=b"x" * 300_000))
                assert (await line.read()).status == 401
        async with api.line(tcp=True) as line:  # who asks first whether to send it may not send it any more
            await line.send(api.write("POST", "/v1/jobs", Content_Length="300000", Expect="100-continue"))
            assert (await line.read()).headers["connection"] == "close"

    play(scenario)


def test_a_route_without_a_body_takes_none(play):
    async def scenario(api):
        answer = await api.ask("GET", "/v1/status", body=b"{}")
        assert (answer.status, answer.code) == (400, "usage")
        assert not api.service.calls

    play(scenario)


# ---------------------------------------------------------------------- heads


def test_a_head_without_end_is_cut_off(play):
    async def scenario(api):
        for piece in (b"A" * 65536, b"X-A: b\r\n" * 8192):
            head = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX-Long: "
            sent, answer = await api.flood(head, piece, 64 * MIB)
            assert sent < 8 * MIB
            assert answer.startswith(b"HTTP/1.1 413")
        assert not api.service.calls

    play(scenario)


def test_many_headers_are_refused(play):
    async def scenario(api):
        fine = {f"X_{number}": "y" for number in range(60)}
        assert (await api.ask("GET", "/v1/status", **fine)).status == 200
        many = {f"X_{number}": "y" for number in range(70)}
        answer = await api.ask("GET", "/v1/status", **many)
        assert (answer.status, answer.code) == (413, "too_large")

    play(scenario)


def test_a_large_body_is_not_taken_for_a_head(play):
    async def scenario(api):
        async with api.line() as line:
            for _ in range(3):
                await line.send(api.write("POST", "/v1/jobs", body=make_batch(900_000)))
                assert (await line.read()).status == 200

    play(scenario, limits=dataclasses.replace(QUICK, head_bytes=1000))


# ---------------------------------------------------------------------- patience


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\r\n",
        b"GET /v1/status HT",
        b"GET /v1/status HTTP/1.1\r\nHost: loc",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    ],
)
def test_who_does_not_finish_a_request_is_hung_up_on(play, said):
    async def scenario(api):
        async with contextlib.AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(api.line()) for _ in range(100)]
            for line in lines:
                with contextlib.suppress(ConnectionError):
                    await line.send(said)
            for line in lines:
                assert await line.ended() == b""
        assert not api.service.calls
        assert (await api.reach("/v1/status")).status == 200

    play(scenario, limits=dataclasses.replace(QUICK, first_s=0.2, request_s=0.2))


@pytest.mark.parametrize("said", [b"", b"\r\n", b"\r\n\r\n"])
def test_an_idle_connection_is_hung_up_on_whatever_it_mumbles(play, said):
    async def scenario(api):
        async with api.line() as line:
            await line.send(api.write("GET", "/v1/status"))
            assert (await line.read()).status == 200
            with contextlib.suppress(ConnectionError):
                await line.send(said)
            assert await line.ended() == b""

    play(scenario, limits=dataclasses.replace(QUICK, idle_s=0.2))


def test_an_early_refusal_does_not_stop_the_clock(play):
    async def scenario(api):
        async with api.line(tcp=True) as line:
            await line.send(api.write("POST", "/v1/jobs", Content_Length="5"))
            assert (await line.read()).status == 401
            with contextlib.suppress(ConnectionError):
                await line.send(b"12345")
            assert await line.ended() == b""

    play(scenario, limits=dataclasses.replace(QUICK, idle_s=0.2, request_s=5.0))


def test_work_under_way_is_not_idle(play):
    async def scenario(api):
        api.service.block.clear()
        async with api.line() as line:
            await line.send(api.write("POST", "/v1/jobs", body=JOB))
            await api.until(lambda: api.service.calls)
            async with api.line() as idle:  # came later, and has the same limits
                await idle.send(api.write("GET", "/v1/status"))
                assert (await idle.read()).status == 200
                assert await idle.ended() == b""
            api.service.block.set()
            assert (await line.read()).status == 200

    play(scenario, limits=dataclasses.replace(QUICK, request_s=0.1, idle_s=0.1))


def test_a_reader_that_does_not_read_is_hung_up_on(play):
    async def scenario(api):
        data = {"text": "x" * 10_000}
        api.service.happenings = [Happening(seq, "now", 1, "bind", data) for seq in range(1, 2000)]
        async with api.line() as line:
            line.reader._transport.pause_reading()
            await line.send(api.write("GET", "/v1/events"))
            await api.until(lambda: api.service.streams)
            await api.until(lambda: not api.service.streams)

    play(scenario, limits=dataclasses.replace(QUICK, stall_s=0.2))


def test_requests_come_one_at_a_time(play):
    async def scenario(api):
        api.service.block.clear()
        async with api.line() as line:
            await line.send(api.write("GET", "/v1/events"))
            assert (await line.read_head())[0] == 200
            await line.send(api.write("GET", "/v1/status"))
            await line.ended()
        await api.until(lambda: not api.service.streams)  # the stream knows that its reader is gone
        assert [call[0] for call in api.service.calls] == ["events"]

    play(scenario)


# ---------------------------------------------------------------------- numbers


async def show_token(api, line):
    await line.send(api.write("GET", "/v1/status", Authorization=f"Bearer {api.token['read']}"))
    assert (await line.read()).status == 200


@pytest.mark.parametrize("bound", [{"connections_per_uid": 3}, {"connections": 3}])
def test_connections_that_say_nothing_do_not_close_the_port(play, bound):
    """128 of them, opened by anybody without a token, kept everybody else out for as long as they liked."""

    async def scenario(api):
        async with contextlib.AsyncExitStack() as stack:
            known = await stack.enter_async_context(api.line(tcp=True))
            await show_token(api, known)
            silent = [await stack.enter_async_context(api.line(tcp=True)) for _ in range(2)]
            await silent[1].send(b"GET /v1/status HTTP/1.1\r\n")  # and never more of it
            for number in range(2):
                await show_token(api, await stack.enter_async_context(api.line(tcp=True)))
                assert await silent[number].ended() == b"", "who was there first goes first"
            await show_token(api, known)
            late = await stack.enter_async_context(api.line(tcp=True))
            assert (await late.read()).status in (429, 503), "those with a token do not make way"

    play(scenario, limits=dataclasses.replace(QUICK, **bound))


def test_connections_of_one_user_are_counted(play):
    async def scenario(api):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                await show_token(api, await stack.enter_async_context(api.line(tcp=True)))
            last = await stack.enter_async_context(api.line(tcp=True))
            answer = await last.read()
            assert (answer.status, answer.code) == (429, "too_many")
            assert await last.ended() == b""
        await api.until(lambda: not api.server._uvicorn.server_state.connections)
        assert (await api.ask("GET", "/v1/status", tcp=True)).status == 401  # there is room again

    play(scenario, limits=dataclasses.replace(QUICK, connections_per_uid=3))


def test_the_daemons_own_user_gets_in_when_all_is_full(play):
    async def scenario(api):
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(2):
                await show_token(api, await stack.enter_async_context(api.line(tcp=True)))
            last = await stack.enter_async_context(api.line(tcp=True))
            answer = await last.read()
            assert (answer.status, answer.code) == (503, "unavailable")
            assert (await api.ask("GET", "/v1/status")).status == 200

    play(scenario, limits=dataclasses.replace(QUICK, connections=2))


def test_the_crowd_counts_users_apart():
    crowd = Crowd(ApiLimits(connections=5, connections_per_uid=2), own_uids=frozenset({0}))
    assert [crowd.enter(uid) for uid in (7, 7, 8, 8)] == [None] * 4
    assert crowd.enter(7).code == "too_many"
    crowd.leave(7)
    assert crowd.enter(7) is None
    assert crowd.enter(9) is None
    assert crowd.enter(9).code == "unavailable"
    assert [crowd.enter(0) for _ in range(CONNECTIONS_KEPT)] == [None] * CONNECTIONS_KEPT
    assert crowd.enter(0).code == "unavailable"
    for uid in (7, 7, 8, 8, 9, *[0] * CONNECTIONS_KEPT):
        crowd.leave(uid)
    assert (crowd.total, dict(crowd.by_uid)) == (0, {})


def test_a_bucket_fills_up_again_and_is_nobody_elses():
    now = [0.0]
    rates = RequestRates(ApiLimits(requests_per_s=10, requests_burst=3), lambda: now[0])
    assert [rates.take(1) for _ in range(4)] == [True, True, True, False]
    assert rates.take(2)
    now[0] = 0.1
    assert [rates.take(1) for _ in range(2)] == [True, False]
    now[0] = 100.0
    assert [rates.take(1) for _ in range(4)] == [True, True, True, False]
    with pytest.raises(Refused, match="10 requests"):
        rates.check(Caller(1, "a"))
    rates.check(Caller(1, "a", admin=True))


def test_a_storm_is_refused_with_a_time_to_come_back(play):
    async def scenario(api):
        async with api.line() as line:
            statuses = []
            for _ in range(6):
                await line.send(api.write("GET", "/v1/status"))
                answer = await line.read()
                statuses.append(answer.status)
            assert statuses == [200, 200, 200, 429, 429, 429]
            assert (answer.code, answer.headers["retry-after"]) == ("too_many", "1")
            assert "batch" in answer.json["error"]["hint"]
        assert len(api.service.calls) == 3
        api.admins.add(os.geteuid())
        assert (await api.ask("GET", "/v1/status")).status == 200

    play(scenario, limits=dataclasses.replace(QUICK, requests_per_s=0.001, requests_burst=3))


def test_guessing_tokens_uses_up_nobodys_rate(play):
    async def scenario(api):
        statuses = [(await api.ask("GET", "/v1/status", tcp=True, token=f"phx_{n}")).status for n in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert (await api.ask("GET", "/v1/status", tcp=True, token=api.token["read"])).status == 200

    play(scenario, limits=dataclasses.replace(QUICK, requests_per_s=0.001, requests_burst=3))


def test_slots_are_given_back():
    slots = Slots("things", 3, 2)
    first, second = slots.take(1), slots.take(1)
    with pytest.raises(Refused, match="of yours"):
        slots.take(1)
    third = slots.take(2)
    with pytest.raises(Refused, match="3 things at once"):
        slots.take(3)
    for slot in (first, second, third):
        with slot:
            pass
    with contextlib.suppress(ZeroDivisionError), slots.take(1):
        raise ZeroDivisionError
    with slots.take(1), slots.take(1):
        pass


def test_streams_of_one_user_are_counted(play):
    async def scenario(api):
        async with contextlib.AsyncExitStack() as stack:
            for expected in (200, 200, 429):
                line = await stack.enter_async_context(api.line())
                await line.send(api.write("GET", "/v1/events"))
                assert (await line.read_head())[0] == expected
        await api.until(lambda: not api.service.streams)
        async with api.line() as line:
            await line.send(api.write("GET", "/v1/events"))
            assert (await line.read_head())[0] == 200

    play(scenario, limits=dataclasses.replace(QUICK, streams_per_uid=2))

"""The stream of events: its form, where it resumes, and how it ends."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from phalanx.frontends.host.api import ApiLimits
from phalanx.frontends.host.messages import Happening
from phalanx.frontends.host.ports import Refused


class Reader:
    """Undoes the chunks and splits what is left into events."""

    def __init__(self, line):
        self.line = line
        self.text = b""

    async def next(self):
        async with asyncio.timeout(30):
            while b"\n\n" not in self.text:
                size = int(await self.line.reader.readline(), 16)
                self.text += (await self.line.reader.readexactly(size + 2))[:-2]
                if not size:
                    return None
        event, _, self.text = self.text.partition(b"\n\n")
        return dict(part.split(": ", 1) for part in event.decode().split("\n"))

    async def numbers(self, count):
        return [int((await self.next())["id"]) for _ in range(count)]


async def begin(api, line, path="/v1/events", **headers):
    await line.send(api.write("GET", path, **headers))
    status, got = await line.read_head()
    assert (status, got["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert got["x-content-type-options"] == "nosniff"
    reader = Reader(line)
    assert await reader.next() == {"retry": "2000"}
    return reader


def test_events_come_with_their_number_and_as_they_happen(play):
    async def scenario(api):
        async with api.line() as line:
            reader = await begin(api, line)
            first = await reader.next()
            assert (first["id"], first["event"]) == ("1", "job")
            told = json.loads(first["data"])
            assert (told["seq"], told["job"], told["event"], told["data"]) == (1, 12, "bind", {"members": 4})
            assert await reader.numbers(4) == [2, 3, 4, 5]
            api.service.happenings.append(Happening(6, "now", 12, "complete"))
            api.service.news.set()
            assert await reader.numbers(1) == [6]

    play(scenario)


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/events?since=3", {}, [4, 5]),
        ("/v1/events", {"Last_Event_ID": "4"}, [5]),
        ("/v1/events?since=1", {"Last_Event_ID": "3"}, [4, 5]),
        ("/v1/events?since=0", {}, [1, 2, 3, 4, 5]),
    ],
)
def test_a_stream_resumes_after_the_last_event(play, path, headers, expected):
    async def scenario(api):
        async with api.line() as line:
            reader = await begin(api, line, path, **headers)
            assert await reader.numbers(len(expected)) == expected
            assert api.service.calls == [("events", expected[0] - 1)]

    play(scenario)


def test_a_reader_that_was_cut_off_misses_nothing(play):
    async def scenario(api):
        seen = []
        for _ in range(5):
            async with api.line() as line:
                reader = await begin(api, line, **({"Last_Event_ID": str(seen[-1])} if seen else {}))
                seen += await reader.numbers(1)
            await api.until(lambda: not api.service.streams)
        assert seen == [1, 2, 3, 4, 5]

    play(scenario)


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "", "9" * 30, "٣".encode().decode("latin-1")])
def test_a_bad_last_event_id_is_a_sentence(play, last):
    async def scenario(api):
        answer = await api.ask("GET", "/v1/events", Last_Event_ID=last)
        assert (answer.status, answer.code) == (400, "usage")
        assert "Last-Event-ID" in answer.json["error"]["message"]

    play(scenario)


def test_silence_has_a_heartbeat_that_loses_nothing(play):
    async def scenario(api):
        async with api.line() as line:
            reader = await begin(api, line, "/v1/events?since=5")
            for _ in range(3):
                assert await reader.next() == {"": "still here"}
            api.service.happenings.append(Happening(6, "now", 12, "complete"))
            api.service.news.set()
            while (event := await reader.next()) == {"": "still here"}:
                pass
            assert event["id"] == "6"

    play(scenario, limits=dataclasses.replace(ApiLimits(), heartbeat_s=0.02))


def test_hanging_up_ends_the_cores_iterator(play):
    async def scenario(api):
        async with api.line() as line:
            reader = await begin(api, line)
            await reader.numbers(5)
            assert api.service.streams == 1
        await api.until(lambda: not api.service.streams)

    play(scenario)


@pytest.mark.parametrize(
    ("failure", "code"), [(Refused("forbidden", "not yours"), "forbidden"), (RuntimeError("secret"), "internal")]
)
def test_a_failure_after_the_beginning_is_an_event(play, failure, code):
    async def scenario(api):
        api.service.fail = failure
        async with api.line() as line:
            reader = await begin(api, line)
            event = await reader.next()
            assert event["event"] == "error"
            assert json.loads(event["data"])["error"]["code"] == code
            assert "secret" not in event["data"]
            assert await reader.next() is None

    play(scenario)


def test_a_hostile_text_stays_inside_its_event(play):
    async def scenario(api):
        api.service.happenings = [Happening(1, "now", 12, api.hostile, {"text": "\n\ndata: {}\n\nid: 99\r\n\u2028"})]
        async with api.line() as line:
            event = await (await begin(api, line)).next()
            told = json.loads(event["data"])
            assert (event["id"], told["event"]) == ("1", api.hostile)
            assert told["data"]["text"].startswith("\n\ndata")

    play(scenario)

"""The members' socket: what a job says reaches the daemon and the other way round, and nobody breaks the shim."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from pathlib import Path

import pytest

import phalanx
from phalanx.frontends.host.launching import spawning
from phalanx.wire import MemberEnd, read_key


class Speaker:
    """A member's end of the line, spoken by the test."""

    def __init__(self, path, rank, generation=1, key=None):
        self.end = MemberEnd(key or read_key(path / "key"), 1, 1, generation, rank)
        self.rank = rank
        self.socket = socket.socket(socket.AF_UNIX)
        self.heard = []
        here = os.open(path, os.O_RDONLY)
        try:
            self.socket.connect(f"/proc/self/fd/{here}/job.sock")
        finally:
            os.close(here)
        self.socket.settimeout(0.0)

    async def read(self):
        """What came; None when the shim has hung up."""
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.socket, 65536), 30)
        if not data:
            return None
        self.heard += self.end.feed(data)
        return self.heard

    async def open(self):
        while not self.end.opening:
            if await self.read() is None:
                raise ConnectionError
        await self.put(self.end.opening)
        await self.say("hello", rank=self.rank, pid=1, speaks=["shrink"], version=1)
        return self

    async def put(self, data):
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def say(self, kind, **fields):
        await self.put(self.end.encode({"type": kind, **fields}))

    async def hear(self, count):
        while len(self.heard) < count:
            assert await self.read() is not None
        return self.heard

    async def until_closed(self):
        try:
            while await self.read() is not None:
                continue
        except ConnectionError:
            return

    def close(self):
        self.socket.close()


@pytest.fixture
def speak(world):
    """Speakers for run 1.1, closed at the end."""
    speakers = []

    def make(rank, **options):
        speakers.append(Speaker(world.path / "1.1", rank, **options))
        return speakers[-1]

    yield make
    for speaker in speakers:
        speaker.close()


def test_up_and_down(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000", "sleep 1000")
        zero, one = await speak(0).open(), await speak(1).open()
        assert await zero.hear(1) == [{"type": "welcome", "generation": 1, "members": 2, "ranks": [0, 1]}]
        await one.say("status", step=7, total=9)
        said = await world.hear("job", 3)
        assert {(event.rank, event.message["type"]) for event in said} == {(0, "hello"), (1, "hello"), (1, "status")}
        assert said[-1].message == {"type": "status", "step": 7, "total": 9}
        await launcher.tell("1.1", [1], {"type": "checkpoint", "id": "c1", "deadline_s": 60})
        await launcher.tell("1.1", None, {"type": "yield", "id": "y1", "deadline_s": 60, "why": "room"})
        assert [message["type"] for message in await one.hear(3)] == ["welcome", "checkpoint", "yield"]
        assert [message["type"] for message in await zero.hear(2)] == ["welcome", "yield"]
        await one.say("answer", id="c1", verdict="done")
        assert (await world.hear("job", 4))[-1].message == {"type": "answer", "id": "c1", "verdict": "done"}

    world.play(scenario)


def test_what_was_said_to_somebody_who_was_away(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000")
        await launcher.tell("1.1", None, {"type": "welcome", "generation": 5, "members": 3})
        await launcher.tell("1.1", [0], {"type": "checkpoint", "id": "c1", "deadline_s": 60})
        await launcher.tell("1.1", [0], {"type": "offer", "id": "late", "members": 2, "deadline_s": 0})
        await launcher.tell("1.1", [0], {"type": "nonsense"})
        first = await speak(0).open()
        welcome, checkpoint = await first.hear(2)
        assert (welcome["generation"], welcome["members"]) == (5, 3)  # the daemon's, not the shim's
        assert checkpoint["id"] == "c1"
        assert 0 < checkpoint["deadline_s"] < 60  # time has passed
        second = await speak(0).open()  # as if the first had lost its connection
        await first.until_closed()
        assert [message["type"] for message in await second.hear(2)] == ["welcome", "checkpoint"]
        await second.say("answer", id="c1", verdict="done")
        await world.hear("job", 3)
        third = await speak(0).open()
        await launcher.tell("1.1", None, {"type": "status", "id": "s1"})
        assert [message["type"] for message in await third.hear(2)] == ["welcome", "status"]  # c1 is answered

    world.play(scenario)


def test_what_was_said_while_no_daemon_was_there(world, speak, until):
    async def scenario():
        first = world.launcher()
        await world.start(first, "sleep 1000")
        world.shims.add(world.story().pid)
        await first.detach()
        speaker = await speak(0).open()
        await speaker.hear(1)
        for step in range(5):
            await speaker.say("status", step=step)
        await speaker.say("answer", id="a", verdict="refuse", why="busy")
        second = world.launcher()
        await second.find()
        said = await world.hear("job", 3)
        assert [event.message["type"] for event in said] == ["hello", "status", "answer"]
        assert said[1].message["step"] == 4  # the last word of a kind
        await speaker.say("status", step=5)
        assert (await world.hear("job", 4))[-1].message["step"] == 5

    world.play(scenario)


def test_strangers_are_sent_away_and_the_others_stay(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000", "exit 0")
        await world.hear("exit")
        good = await speak(0).open()
        await good.hear(1)
        for bad in (speak(0, key=b"x" * 32), speak(7), speak(0, generation=2), speak(1)):
            with contextlib.suppress(ConnectionError):
                await bad.open()
            await bad.until_closed()
        noise = speak(0)
        with contextlib.suppress(ConnectionError):
            await noise.put(b"GET / HTTP/1.1\r\n\r\n" * 1000)
        await noise.until_closed()
        broken = await speak(0).open()  # a good start, then bytes that are no frame
        await broken.hear(1)
        await broken.put(b"\xff" * 100)
        await broken.until_closed()
        last = await speak(0).open()
        await last.hear(1)
        await last.say("status", step=1)
        assert (await world.hear("job", 4))[-1].message["step"] == 1
        await launcher.stop("1.1", None, "KILL", 0)
        await world.hear("empty")
        await last.until_closed()

    world.play(scenario)


def test_the_number_of_connections_is_bounded(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000")
        many = [speak(0) for _ in range(70)]
        greeted = 0
        for speaker in many:
            try:
                greeted += await speaker.read() is not None
            except ConnectionError:
                continue
        assert greeted == 64
        for speaker in many:
            speaker.close()
        good = None
        while good is None:  # the shim sees them go one by one
            with contextlib.suppress(ConnectionError):
                good = await speak(0).open()
        await good.hear(1)

    world.play(scenario)


def test_who_says_too_much_is_listened_to_slowly(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000")
        speaker = await speak(0).open()
        frames = b"".join(speaker.end.encode({"type": "status", "step": step}) for step in range(6000))
        flood = asyncio.ensure_future(speaker.put(frames))  # six hundred kilobytes: more than sockets hold
        await world.hear("job", 100)
        await launcher.stop("1.1", None, "KILL", 0)
        await world.hear("empty")
        with pytest.raises(ConnectionError):
            await flood
        assert len(world.told("job")) < 6000

    world.play(scenario)


def test_who_does_not_read_is_hung_up_on(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000")
        deaf = await speak(0).open()
        for number in range(3000):
            order = {"type": "yield", "id": f"y{number}", "deadline_s": 60, "why": "x" * 1000}
            await launcher.tell("1.1", None, order)
        await launcher.add("1.1", 2, [world.member(1, "true")])  # answered when all of that has been dealt with
        await asyncio.wait_for(deaf.until_closed(), 30)
        assert len(deaf.heard) < 3000
        again = await speak(0).open()
        assert [message["type"] for message in await again.hear(2)] == ["welcome", "yield"]  # only the last counts

    world.play(scenario)


def test_the_protocol_outlives_the_package_that_the_shim_was_started_from(world, speak, tmp_path, monkeypatch):
    """An upgrade in place removes files under a shim that has not been spoken to yet."""
    package = tmp_path / "site" / "phalanx"
    shutil.copytree(Path(phalanx.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(spawning, "SHIM", str(package / "frontends/host/shim/__main__.py"))

    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000")
        shutil.rmtree(package)
        speaker = await speak(0).open()
        assert (await speaker.hear(1))[0]["type"] == "welcome"

    world.play(scenario)


def test_a_job_without_its_key_file_speaks_to_nobody_and_ends_all_the_same(world, speak):
    async def scenario():
        launcher = world.launcher()
        await world.start(launcher, "sleep 1000")
        key = read_key(world.path / "1.1" / "key")
        (world.path / "1.1" / "key").unlink()
        await speak(0, key=key).until_closed()
        await launcher.stop("1.1", None, "KILL", 0)
        await world.hear("empty")

    world.play(scenario)

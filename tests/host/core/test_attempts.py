"""What shims and the clock say to attempts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # import-mode=importlib leaves it out

from telling_world import World

from phalanx.frontends.host.core.attempts import Attempts
from phalanx.frontends.host.core.books import Books
from phalanx.frontends.host.core.ending import Ending
from phalanx.frontends.host.core.resizing import Resizing
from phalanx.frontends.host.core.starting import Starting
from phalanx.frontends.host.ports import RunEvent


class Listened:
    """A launcher of which somebody wants to hear, and what it was told."""

    def __init__(self) -> None:
        self.listeners, self.said = [], []

    def on_event(self, listener):
        self.listeners.append(listener)

    async def signal(self, run, ranks, signal):
        self.said.append((run, signal))


def build(world):
    means = world.means
    means.processes.launcher = Listened()
    starting, books = Starting(means), Books(world.known)
    resizing = Resizing(means, starting, books)
    return Attempts(means, starting, resizing, Ending(means, starting, resizing, books))


def test_what_a_shim_tells_waits_until_it_is_known_whose_shim_it_is():
    world = World()

    async def scenario():
        attempts = build(world)
        (listener,) = world.processes.launcher.listeners
        telling = asyncio.create_task(listener(RunEvent("1.1", "exit", rank=0, generation=1, code=0)))
        await asyncio.sleep(0)
        job = world.submit("train", "1 gpu=1")
        world.plan()
        assert not job.live.members[0].exited
        attempts.begin_listening()
        await telling
        assert job.live.members[0].exited

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("before_s", "adopted", "at_s", "warned"),
    [
        (40.0, False, 50, False),
        (40.0, False, 70, True),
        (100.0, False, 0, True),  # due as soon as it runs
        (40.0, True, 50, True),  # it is found before it is due, and due soon after
        (40.0, True, 70, False),  # it had its warning from the last daemon
    ],
)
def test_an_attempt_is_warned_once_before_it_is_ended_for_its_age(before_s, adopted, at_s, warned):
    """The limit is 100 s; `at_s` is when it is found, or looked at."""
    world = World()

    async def scenario():
        attempts = build(world)
        job = world.submit("train", "1 gpu=1", kill_after_us=100_000_000)
        job.warning = ("USR1", before_s)
        world.plan()
        job.live.adopted = adopted
        world.tick(at_s if adopted else 0)
        for tell in attempts.starting.on_started:
            tell(job, job.live)
        world.tick(20 if adopted else at_s)
        world.errands.agenda.run_due(world.known.now_us())
        await asyncio.sleep(0)
        assert world.processes.launcher.said == ([("1.1", "USR1")] if warned else [])

    asyncio.run(scenario())

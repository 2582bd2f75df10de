"""Busy days of one machine, drawn from a generator that the caller seeds.

Unlike `worlds`, everything fits and nearly everything collides: few devices, many gangs, priorities, rights and
sizes that can change. Times are round, so that things happen at one instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.fleet import Node
from phalanx.model.gang import After, Gang, Role, Shape, Sizes, SnapshotHabit, Together
from phalanx.model.queue import DEFAULT_QUEUE, Queue, UserLimit
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.testing.builders import SECOND_US

USERS = ("ada", "bob", "")


def draw_day(rng: Random, gangs_max: int = 14) -> Scenario:
    """A machine, its queues, gangs and what people say of them."""
    gpus = rng.choice((4, 8, 8))
    node = Node("host", {DEVICE_KIND: gpus * MILLI, "cpu": 32 * MILLI})
    queues = tuple(_draw_queues(rng, gpus))
    drawn = [_draw_gang(rng, gpus, queues, f"g{index}") for index in range(rng.randint(4, gangs_max))]
    gangs = _tie(rng, sorted((gang for gang, _ in drawn), key=lambda gang: gang.submit_us))
    true_runs = {gang.name: truth for gang, truth in drawn}
    return Scenario(
        nodes=(node,),
        levels=(),
        gangs=tuple(gangs),
        true_runs=tuple(true_runs[gang.name] for gang in gangs),
        queues=queues,
        users=(UserLimit("ada", {DEVICE_KIND: (gpus - 1) * MILLI}),) if _odds(rng, 4) else (),
        events=tuple(_draw_words(rng, gangs)),
    )


def _odds(rng: Random, one_in: int) -> bool:
    return rng.randint(1, one_in) == 1


def _draw_queues(rng: Random, gpus: int) -> Iterator[Queue]:
    yield Queue(DEFAULT_QUEUE)
    half = {DEVICE_KIND: gpus // 2 * MILLI}
    yield Queue("a", weight=rng.choice((1, 1, 2)), guarantee=half if _odds(rng, 2) else {})
    yield Queue("b", weight=rng.choice((1, 3)), limit=half if _odds(rng, 3) else {})
    yield Queue("c", parent="b")


def _draw_gang(rng: Random, gpus: int, queues: Sequence[Queue], name: str) -> tuple[Gang, TrueRun]:
    seconds = rng.choice((20, 60, 60, 100, 200, 200, 400, 600, rng.randint(10, 900)))
    walltime = rng.choice((seconds, seconds, seconds * 2, max(1, seconds // 2), None))
    role = _draw_role(rng, gpus, "member")
    roles: tuple[Role, ...] = (role,)
    if role.shape.need == (("gpu", MILLI),) and _odds(rng, 8):
        roles = (
            replace(role, name="head", sizes=Sizes((1,))),
            replace(role, name="rest", sizes=Sizes((rng.randint(1, gpus - 1),))),
        )
    habit = SnapshotHabit(rng.choice((20, 60)) * SECOND_US, rng.choice((0, SECOND_US)), rng.choice((0, 5 * SECOND_US)))
    elastic = any(each.sizes.elastic for each in roles)
    gang = Gang(
        name=name,
        roles=roles,
        submit_us=rng.choice((0, 0, 20, 60, 100, 200, rng.randint(0, 900))) * SECOND_US,
        queue=rng.choice(queues).name,
        user=rng.choice(USERS),
        priority=rng.choice((0, 0, 0, 1, 2)),
        walltime_us=None if walltime is None else walltime * SECOND_US,
        kill_after_us=rng.choice((seconds // 2 + 1, seconds + 30)) * SECOND_US if _odds(rng, 10) else None,
        deadline_us=(seconds + rng.choice((10, 200, 900))) * SECOND_US if _odds(rng, 5) else None,
        preemptible=not _odds(rng, 3),
        snapshot=habit if _odds(rng, 2) else None,
        startup_us=rng.choice((0, 0, 5 * SECOND_US)),
        # A change that takes no time at all is an instant of its own to the daemon, and none to the simulator.
        resize_pause_us=rng.choice((500_000, 2 * SECOND_US, 10 * SECOND_US)) if elastic else 0,
        hold=_odds(rng, 12),
    )
    return gang, TrueRun(seconds * SECOND_US)


def _draw_role(rng: Random, gpus: int, name: str) -> Role:
    kind = rng.choice(("gpu", "gpu", "gpu", "wide", "share", "cpu"))
    if kind == "gpu":
        least = rng.randint(1, gpus)
        most = rng.randint(least, gpus) if _odds(rng, 2) else least
        return Role(name, Sizes(tuple(range(least, most + 1))), Shape(((DEVICE_KIND, MILLI),)))
    if kind == "wide":
        each = rng.choice((2, 2, gpus // 2))
        return Role(name, Sizes((rng.randint(1, gpus // each),)), Shape(((DEVICE_KIND, each * MILLI),)))
    if kind == "share":
        share = rng.choice((250, 500, 700))
        return Role(name, Sizes((rng.randint(1, 4),)), Shape((("cpu", MILLI), (DEVICE_KIND, share))))
    return Role(name, Sizes((rng.randint(1, 4),)), Shape((("cpu", rng.choice((1, 4)) * MILLI),)))


def _tie(rng: Random, gangs: Sequence[Gang]) -> list[Gang]:
    """Some wait for others, and some start with their neighbour."""
    tied: list[Gang] = []
    for index, gang in enumerate(gangs):
        after = After()
        if index and _odds(rng, 8):
            after = After((rng.choice(gangs[:index]).name,), any_end=_odds(rng, 2))
        tied.append(replace(gang, after=after))
    for index in range(len(tied) - 1):
        pair = tied[index : index + 2]
        if all(each.together is None and not each.after.names for each in pair) and _odds(rng, 15):
            word = Together(f"t{index}", 2)
            first = replace(pair[0], together=word)
            tied[index : index + 2] = [first, replace(pair[1], together=word, queue=first.queue, user=first.user)]
    return tied


def _draw_words(rng: Random, gangs: Sequence[Gang]) -> Iterator[TimedEvent]:
    for gang in gangs:
        at_us = gang.submit_us + rng.randint(1, 300) * SECOND_US
        elastic = [role.sizes for role in gang.roles if role.sizes.elastic]
        if gang.hold:
            yield TimedEvent(at_us, "release", gang=gang.name)
        elif _odds(rng, 8):
            yield TimedEvent(at_us, "cancel", gang=gang.name)
        elif len(elastic) == 1 and _odds(rng, 3):
            yield TimedEvent(at_us, "resize", gang=gang.name, members=rng.choice(elastic[0].allowed))
            if _odds(rng, 2):
                yield TimedEvent(at_us + rng.randint(1, 200) * SECOND_US, "resize", gang=gang.name)

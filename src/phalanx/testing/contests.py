"""Small saturated worlds: equal nodes, more gangs than fit, and everybody may take from somebody.

`worlds` draws everything that a file may say, and most of its gangs never meet. Here nearly all do: sizes
are near the cluster's, gangs come one after the other, and priorities, guarantees, surplus and snapshots
decide who makes way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, Shape, Sizes, SnapshotHabit
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.perfmodel.speedup import Amdahl, Linear, Speedup
from phalanx.testing.builders import SECOND_US

CURVES: tuple[Speedup, ...] = (Linear(), Amdahl(0.05), Amdahl(0.3))


@dataclass(frozen=True, slots=True)
class Contest:
    """What a contest may contain."""

    gangs_max: int = 9
    queues: bool = True
    elastic: bool = True
    failures: bool = False
    pauses: bool = True
    all_soft: bool = False  # every gang is preemptible


def draw_contest(rng: Random, contest: Contest = Contest()) -> Scenario:  # noqa: B008 - frozen
    """One to four equal nodes of one to four devices, and gangs that want more than that."""
    devices, count = rng.choice([1, 2, 4]), rng.randint(1, 4)
    racks = rng.choice([1, 2])
    nodes = tuple(
        Node(f"n{index}", {DEVICE_KIND: devices * MILLI}, {"rack": f"r{index * racks // count}"})
        for index in range(count)
    )
    total = devices * count
    drawn = [_draw_gang(rng, contest, f"g{index}", total) for index in range(rng.randint(3, contest.gangs_max))]
    return Scenario(
        nodes=nodes,
        levels=("rack",),
        gangs=tuple(gang for gang, _ in drawn),
        true_runs=tuple(truth for _, truth in drawn),
        queues=tuple(_draw_queues(rng, total)) if contest.queues else (Queue(DEFAULT_QUEUE),),
        events=tuple(_draw_failures(rng, nodes)) if contest.failures else (),
    )


def _draw_queues(rng: Random, total: int) -> Iterator[Queue]:
    """Three queues, one below another; guarantees of all together are no more than there is."""
    yield Queue(DEFAULT_QUEUE, weight=rng.choice([1, 2]))
    left = total
    for name, parent in (("a", "root"), ("b", "root"), ("c", rng.choice(["a", "b", "root"]))):
        floor = rng.randint(0, left)
        left -= floor if parent == "root" else 0
        guarantee = {DEVICE_KIND: floor * MILLI} if floor else {}
        limit = {DEVICE_KIND: rng.randint(max(floor, 1), total) * MILLI} if rng.random() < 0.2 else {}
        yield Queue(name, parent, rng.choice([1, 1, 2, 3]), guarantee, limit)


def _draw_gang(rng: Random, contest: Contest, name: str, total: int) -> tuple[Gang, TrueRun]:
    least = rng.choice([1, 1, 2, rng.randint(1, total)])
    least = min(least, total)
    most = rng.choice([least, least + 1, min(2 * least, total), total]) if contest.elastic else least
    step = rng.choice([1, 1, 2])
    sizes = Sizes(tuple(range(least, max(least, most) + 1, step)))
    duration = rng.choice([60, 120, 300, 300, 600, 1200]) * SECOND_US
    habit = SnapshotHabit(rng.choice([30, 120]) * SECOND_US, rng.choice([0, SECOND_US]), rng.choice([0, 2 * SECOND_US]))
    gang = Gang(
        name=name,
        roles=(Role("member", sizes, Shape(((DEVICE_KIND, MILLI),))),),
        submit_us=rng.choice([0, 0, 100, 200, 300, rng.randint(0, 900)]) * SECOND_US,
        queue=rng.choice([DEFAULT_QUEUE, "a", "b", "c"]) if contest.queues else DEFAULT_QUEUE,
        user=rng.choice(["ada", "bob"]),
        priority=rng.choice([0, 0, 1, 2]),
        walltime_us=rng.choice([duration, 2 * duration, None, duration // 2]),
        preemptible=contest.all_soft or rng.random() < 0.75,
        snapshot=habit if rng.random() < 0.6 else None,
        resize_pause_us=rng.choice([0, SECOND_US, 10 * SECOND_US]) if contest.pauses else 0,
        startup_us=rng.choice([0, 0, 5 * SECOND_US]),
    )
    return gang, TrueRun(duration, rng.choice(CURVES) if gang.elastic else Linear())


def _draw_failures(rng: Random, nodes: Sequence[Node]) -> Iterator[TimedEvent]:
    for node in nodes:
        if rng.random() < 0.5:
            broken, repaired = rng.choice([("fail", "repair"), ("fail", "repair"), ("drain", "uncordon")])
            at_us = rng.randint(0, 1200) * SECOND_US
            yield TimedEvent(at_us, broken, node=node.name)
            yield TimedEvent(at_us + rng.randint(1, 900) * SECOND_US, repaired, node=node.name)

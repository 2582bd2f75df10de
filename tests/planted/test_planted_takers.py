"""The harness can fail, about everything that is taken, lent, moved, hurt and grown: one planted mistake per test.

As in `test_planted`: a plant is a change to the running engine, made by `monkeypatch`. Where no single promise is
broken by a mistake, the run comes out differently from what the rules say; `FATES` are those outcomes.
"""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.control import folding, forward, hurting, seating
from phalanx.engine import cycle, fairshare, moves, permits, roster, taking, turns
from phalanx.engine.actions import allocate, grow, repair
from phalanx.engine.invariants import InvariantError, Promise
from phalanx.engine.permits import Permits
from phalanx.engine.roster import Roster, Sitter
from phalanx.engine.taking import _Search
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.life import Life
from phalanx.frontends.sim.scenario import Scenario, Truth
from phalanx.model.gang import SnapshotHabit
from phalanx.model.plan import Evict, Guest
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes
from phalanx.testing.checking import BrokenPromise, Watch

SAVES = SnapshotHabit(60 * SECOND_US, 0, 0)
PAUSE = 10 * SECOND_US


def make_world(nodes, *gangs, queues=(), events=(), spares=0):
    """Nodes of one line; gangs run as long as they say."""
    made = make_nodes(nodes)
    made = tuple(replace(node, spare=index >= len(made) - spares) for index, node in enumerate(made))
    truths = tuple(Truth(gang.walltime_us or 1000 * SECOND_US) for gang in gangs)
    tenants = (Queue(DEFAULT_QUEUE), *queues)
    return Scenario(made, (), gangs, truths, queues=tenants, events=events, until_us=86400 * SECOND_US)


def soft(name, line, **rest):
    return make_gang(name, line, preemptible=True, **rest)


def fail(at, node, repaired=None):
    events = [TimedEvent(at * SECOND_US, "fail", node=node)]
    return (*events, *([TimedEvent(repaired * SECOND_US, "repair", node=node)] if repaired else ()))


GUARANTEED = (Queue("a", guarantee={"gpu": 2000}), Queue("b", guarantee={"gpu": 2000}))

#: name: policy, options, world. Each is sound as it is.
WORLDS = {
    "preempt": ("fair", {}, make_world(
        "4 gpu=1", soft("low", "2 gpu=1"), soft("other", "2 gpu=1"), make_gang("high", "2 gpu=1", submit=100, priority=1, walltime=50))),
    "equals": ("fair", {}, make_world(
        "4 gpu=1", soft("run", "4 gpu=1", walltime=500), make_gang("equal", "2 gpu=1", submit=100, walltime=50))),
    "hard": ("fair", {}, make_world(
        "4 gpu=1", make_gang("hard", "4 gpu=1", walltime=5000), make_gang("high", "2 gpu=1", submit=100, priority=1, walltime=50))),
    "three": ("fair", {}, make_world(
        "3 gpu=1", *(soft(f"low{i}", "1 gpu=1") for i in range(3)), make_gang("high", "1 gpu=1", submit=100, priority=1, walltime=50))),
    "reclaim": ("fair", {}, make_world(
        "4 gpu=1", soft("lent", "4 gpu=1"), make_gang("owner", "2 gpu=1", submit=100, queue="a", walltime=50), queues=GUARANTEED)),
    "beyond": ("fair", {}, make_world(
        "4 gpu=1", soft("lent", "4 gpu=1", walltime=500), make_gang("large", "3 gpu=1", submit=100, queue="a", walltime=50), queues=GUARANTEED)),
    "both": ("fair", {}, make_world(
        "4 gpu=1", soft("mine", "2 gpu=1", queue="b", walltime=500), make_gang("run", "2 gpu=1", walltime=500),
        make_gang("owner", "2 gpu=1", submit=100, queue="a", walltime=50), queues=GUARANTEED)),
    "shared": ("fair", {}, make_world(
        "2 gpu=1", soft("mine", "1 gpu=1", queue="a"), soft("below", "2 gpu=1", queue="c"),
        queues=(Queue("a", guarantee={"gpu": 2000}), Queue("c", parent="a")))),
    "young": ("fair", {"min_runtime": 200 * SECOND_US}, make_world(
        "2 gpu=1", soft("low", "2 gpu=1"), make_gang("high", "2 gpu=1", submit=100, priority=1, walltime=50))),
    "often": ("fair", {"max_evictions": 1}, make_world(
        "2 gpu=1", soft("low", "2 gpu=1"), *(make_gang(f"high{i}", "2 gpu=1", submit=100 + 100 * i, priority=1 + i, walltime=50) for i in range(2)))),
    "lend": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1", resize_pause_us=PAUSE), make_gang("next", "2 gpu=1", submit=100, walltime=50))),
    "poor": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1", priority=1), make_gang("next", "2 gpu=1", submit=100, walltime=50))),
    "pinned": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1"), make_gang("next", "2 gpu=1", submit=100, walltime=50),
        events=(TimedEvent(50 * SECOND_US, "resize", gang="wide", members=4),))),
    "grow": ("goodput", {}, make_world(
        "4 gpu=1", make_gang("wide", "1-4 gpu=1"), make_gang("brief", "2 gpu=1", walltime=100), make_gang("later", "1 gpu=1", submit=110, walltime=10))),
    "ceiling": ("goodput", {}, make_world(
        "4 gpu=1", make_gang("wide", "1-4 gpu=1", queue="q"), make_gang("brief", "2 gpu=1", walltime=100), queues=(Queue("q", limit={"gpu": 2000}),))),
    "turns": ("rotate", {"quantum": 100 * SECOND_US}, make_world(
        "2 gpu=1", soft("one", "2 gpu=1", snapshot=SAVES, walltime=400), soft("two", "2 gpu=1", snapshot=SAVES, walltime=400))),
    "stubborn": ("rotate", {"quantum": 100 * SECOND_US}, make_world(
        "2 gpu=1", soft("one", "2 gpu=1", walltime=400), soft("two", "2 gpu=1", snapshot=SAVES, walltime=400))),
    "guest": ("easy", {}, make_world(
        "3 gpu=1", make_gang("run", "2 gpu=1", walltime=300), make_gang("head", "3 gpu=1", submit=10, walltime=50),
        soft("guest", "1 gpu=1", submit=20))),
    "unstoppable": ("easy", {}, make_world(
        "3 gpu=1", make_gang("run", "2 gpu=1", walltime=300), make_gang("head", "3 gpu=1", submit=10, walltime=50),
        make_gang("stays", "1 gpu=1", submit=20))),
    "hurt": ("easy", {}, make_world(
        "3 gpu=1", soft("two", "2 gpu=1", snapshot=SAVES, walltime=500), events=fail(100, "n0", 3000))),
    "waits": ("easy", {}, make_world(
        "2 gpu=1", make_gang("two", "2 gpu=1", walltime=500), make_gang("small", "1 gpu=1", submit=50, walltime=5000), events=fail(100, "n0"))),
    "cordoned": ("easy", {}, make_world(
        "3 gpu=1", make_gang("two", "2 gpu=1", walltime=500),
        events=(TimedEvent(50 * SECOND_US, "cordon", node="n2"), *fail(100, "n0", 3000)))),
    "spare": ("easy", {}, make_world("3 gpu=1", make_gang("two", "2 gpu=1", walltime=500), make_gang("next", "1 gpu=1", walltime=50), spares=1)),
    "move": ("goodput", {}, make_world(
        "2 gpu=2", make_gang("left", "1 gpu=1", walltime=200), make_gang("gone", "1 gpu=1", walltime=100),
        soft("right", "1 gpu=1", snapshot=SAVES, walltime=5000), make_gang("also", "1 gpu=1", walltime=100),
        make_gang("pair", "1 gpu=2", submit=150, walltime=100))),
    "drained": ("easy", {}, make_world(
        "2 gpu=1", soft("one", "1 gpu=1", snapshot=replace(SAVES, stall_us=SECOND_US, restore_us=4 * SECOND_US), walltime=500),
        events=(TimedEvent(90 * SECOND_US, "drain", node="n0"),))),
}  # fmt: skip


def run(name):
    policy, options, world = WORLDS[name]
    watch = Watch()
    return watch, watch.play(world, policy, options)


def find_fault(name):
    """The promises that a world breaks, or the chronicle's sentence; None if nothing."""
    try:
        run(name)
    except InvariantError as broken:
        return {violation.code for violation in broken.violations}
    except BrokenPromise as broken:
        return str(broken)
    return None


def tell(name):
    """What happened to whom and when, in seconds."""
    _, result = run(name)
    return {gang.name: [(entry.event, entry.at_us / SECOND_US) for entry in gang.history] for gang in result.gangs}


#: By the rules, to the second.
FATES = {
    "guest": {"guest": [("bind", 20), ("evict", 300), ("bind", 350), ("complete", 1350)], "head": [("bind", 300), ("complete", 350)]},
    "turns": {"one": [("bind", 0), ("yield", 100), ("bind", 200), ("yield", 300), ("bind", 400)]},
    "lend": {"wide": [("bind", 0), ("shrink", 100)], "next": [("bind", 110), ("complete", 160)]},
    "waits": {"two": [("bind", 0), ("lose", 100), ("lose", 700)], "small": [("bind", 700)]},
    "hurt": {"two": [("bind", 0), ("lose", 100), ("repair", 100), ("complete", 540)]},
    "drained": {"one": [("bind", 0), ("move", 90), ("complete", 505)]},
    "preempt": {"high": [("bind", 100), ("complete", 150)]},
    "grow": {"wide": [("bind", 0), ("grow", 100), ("shrink", 110)], "later": [("bind", 110), ("complete", 120)]},
}  # fmt: skip


def find_departure(name):
    """Whose history does not begin as the rules say."""
    told = tell(name)
    return {gang: told[gang] for gang, fate in FATES[name].items() if told[gang][: len(fate)] != fate}


@pytest.mark.parametrize("name", WORLDS)
def test_without_a_plant_there_is_nothing_to_find(name):
    assert find_fault(name) is None
    if name in FATES:
        assert find_departure(name) == {}

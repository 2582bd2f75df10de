"""Small worlds that hold everything a plant could spoil, and what becomes of some of their gangs by the rules.

Each is sound as it is: `test_planted` says so before anything is planted.
"""

from dataclasses import replace

from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.gang import SnapshotHabit
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.model.rules import Apart, AtMost, Beside, Evenly
from phalanx.model.window import Window
from phalanx.testing.builders import SECOND_US, asking, make_gang, make_nodes

SAVES = SnapshotHabit(60 * SECOND_US, 0, 0)
PAUSE = 10 * SECOND_US


def make_world(nodes, *gangs, levels=(), queues=(), events=(), spares=0, **rest):
    """Gangs run as long as they say; the last nodes are spares."""
    made = make_nodes(*([nodes] if isinstance(nodes, str) else nodes))
    made = tuple(replace(node, spare=index >= len(made) - spares) for index, node in enumerate(made))
    true_runs = tuple(TrueRun(gang.walltime_us or 1000 * SECOND_US) for gang in gangs)
    tenants = (Queue(DEFAULT_QUEUE), *queues)
    until_us = 86400 * SECOND_US
    return Scenario(made, levels, gangs, true_runs, queues=tenants, events=events, until_us=until_us, **rest)


def soft(name, line, **rest):
    return make_gang(name, line, preemptible=True, **rest)


def fail(at, node, repaired=None):
    events = [TimedEvent(at * SECOND_US, "fail", node=node)]
    return (*events, *([TimedEvent(repaired * SECOND_US, "repair", node=node)] if repaired else ()))


def on_racks(*gangs, **rest):
    """Under EASY, on two racks of two nodes with four devices each."""
    return "easy", {}, make_world(("2 gpu=4 cpu=8 rack:x", "2 gpu=4 cpu=8 rack:y"), *gangs, levels=("rack",), **rest)


#: Names of those in which gangs only come and go: policy, options, world.
COMING = {
    "whole": on_racks(*(make_gang(f"g{i}", f"{3 + i % 3} gpu=1", walltime=10 + i) for i in range(8))),
    "shares": on_racks(*(make_gang(f"g{i}", f"{2 + i % 3} gpu=0.5", walltime=10 + i) for i in range(6))),
    "wide": on_racks(
        make_gang("run", "10 gpu=1", walltime=50), make_gang("head", "14 gpu=1", walltime=50),
        *(make_gang(f"fill{i}", "2 gpu=1", walltime=100) for i in range(3))),
    "dates": ("goodput", {"admit": "promised"}, make_world("1 gpu=4",
        make_gang("run", "2 gpu=1", walltime=50), make_gang("big", "4 gpu=1", walltime=50, deadline_us=100 * SECOND_US),
        make_gang("late", "4 gpu=1", walltime=50, deadline_us=120 * SECOND_US))),
    "roles": on_racks(*(make_gang(f"g{i}", "2 gpu=1", "3 cpu=2", "1 gpu=1", walltime=10) for i in range(6))),
    "pairs": on_racks(*(make_gang(f"g{i}", "5 gpu=1", together=(f"p{i // 2}", 2), walltime=10) for i in range(6))),
    "limits": on_racks(
        *(make_gang(f"g{i}", "2 gpu=1", queue="b", walltime=10 + i) for i in range(6)),
        queues=(Queue("a", limit={"gpu": 5000}), Queue("b", parent="a"))),
    "segments": on_racks(*(make_gang(f"g{i}", "6 gpu=1", topology="/2:node", walltime=10) for i in range(4))),
    "apart": on_racks(
        *(asking(make_gang(f"g{i}", "2 gpu=1", walltime=20), Apart("rack", "w"), bears=["w"]) for i in range(3)),
        *(asking(make_gang(f"b{i}", "1 gpu=1", walltime=20 + i), bears=["w"]) for i in range(3))),
    "few on a node": on_racks(
        *(asking(make_gang(f"g{i}", "3 gpu=1", walltime=10 + i), AtMost("node", 1)) for i in range(6))),
    "beside": on_racks(
        *(asking(make_gang(f"g{i}", "2 gpu=1", walltime=9), Beside("rack", "w")) for i in range(3)),
        make_gang("wide", "8 gpu=1", walltime=5),
        *(asking(make_gang(f"b{i}", "1 gpu=1", walltime=20, submit=5 + i * 10), bears=["w"]) for i in range(3))),
    "even": on_racks(
        *(asking(make_gang(f"g{i}", f"{3 + i} gpu=1", walltime=10 + i), Evenly("rack", "w", 1), bears=["w"])
          for i in range(5))),
    "torn": ("easy", {}, make_world(
        ("1 gpu=4 rack:x", "1 gpu=3 rack:x"), make_gang("g", "6 gpu=1", topology="/3:node", walltime=10), levels=("rack",))),
    "closed": on_racks(
        *(make_gang(f"g{i}", f"{3 + i % 3} gpu=1", walltime=10 + i) for i in range(8)),
        events=(TimedEvent(0, "cordon", node="n0"),)),
    "racked": on_racks(*(make_gang(f"g{i}", "5 gpu=1", topology=">rack", walltime=10) for i in range(3))),
    "picky": on_racks(*(make_gang(f"g{i}", "4 gpu=1 rack:y", walltime=10) for i in range(4))),
    "held": on_racks(make_gang("free", "4 gpu=1", walltime=10), make_gang("held", "4 gpu=1", walltime=10, hold=True)),
    "window": on_racks(
        *(make_gang(f"g{i}", "4 gpu=1", walltime=10) for i in range(4)),
        windows=(Window("maintenance", ("n0",), 5 * SECOND_US, 20 * SECOND_US),)),
}  # fmt: skip

GUARANTEED = (Queue("a", guarantee={"gpu": 2000}), Queue("b", guarantee={"gpu": 2000}))

#: Names of those in which something is taken, lent, moved, degraded or grown: policy, options, world.
TAKING = {
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
        "2 gpu=1", soft("mine", "1 gpu=1", queue="a"), soft("below", "2 gpu=1", submit=10, queue="c", walltime=50),
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
        "2 gpu=1", soft("one", "2 gpu=1", snapshot=SAVES, walltime=400), soft("two", "2 gpu=1", submit=1, snapshot=SAVES, walltime=400))),
    "stubborn": ("rotate", {"quantum": 100 * SECOND_US}, make_world(
        "2 gpu=1", soft("one", "2 gpu=1", walltime=400), soft("two", "2 gpu=1", submit=1, snapshot=SAVES, walltime=400))),
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
    "short": ("fair", {}, make_world(
        "2 gpu=1", make_gang("run", "1 gpu=1", walltime=110), soft("low", "1 gpu=1"),
        make_gang("high", "1 gpu=1", submit=100, priority=1, walltime=50))),
    "shrinks": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1", resize_pause_us=PAUSE), make_gang("next", "2 gpu=1", submit=100, walltime=50),
        events=(TimedEvent(50 * SECOND_US, "resize", gang="wide", members=2),))),
    "hurt beside room": ("easy", {}, make_world(
        "4 gpu=1", soft("two", "2 gpu=1", snapshot=SAVES, walltime=500), events=fail(100, "n0", 3000))),
    "unsaved": ("goodput", {}, make_world(
        "2 gpu=2", make_gang("left", "1 gpu=1", walltime=200), make_gang("gone", "1 gpu=1", walltime=100),
        soft("right", "1 gpu=1", walltime=5000), make_gang("also", "1 gpu=1", walltime=100),
        make_gang("pair", "1 gpu=2", submit=150, walltime=100))),
}  # fmt: skip

WORLDS = COMING | TAKING

#: By the rules, to the second.
FATES = {
    "guest": {"guest": [("bind", 20), ("evict", 300), ("bind", 350), ("complete", 1350)], "head": [("bind", 300), ("complete", 350)]},
    "turns": {"one": [("bind", 0), ("yield", 100), ("bind", 200), ("yield", 300), ("bind", 400)]},
    "lend": {"wide": [("bind", 0), ("shrink", 100)], "next": [("bind", 110), ("complete", 160)]},
    "waits": {"two": [("bind", 0), ("lose", 100), ("lose", 700)], "small": [("bind", 700)]},
    "hurt": {"two": [("bind", 0), ("lose", 100), ("repair", 100), ("complete", 540)]},
    "drained": {"one": [("bind", 0), ("move", 90), ("complete", 512)]},
    "preempt": {"high": [("bind", 100), ("complete", 150)]},
    "short": {"low": [("bind", 0), ("complete", 1000)]},
    "grow": {"wide": [("bind", 0), ("grow", 100), ("shrink", 110)], "later": [("bind", 110), ("complete", 120)]},
}  # fmt: skip

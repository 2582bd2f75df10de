"""Whole scenarios drawn from a generator that the caller seeds.

Small on purpose: eight nodes and eight gangs already meet every rule, and a failing world can be read.
Amounts and times are few and round, so that ties, exact fits and events at one instant are common;
that is where schedulers go wrong. What is drawn is what a file could say: groups stand in one queue,
dependencies go round in no circle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.fleet import Node
from phalanx.model.gang import After, Gang, Role, Shape, Sizes, SnapshotHabit, Together
from phalanx.model.queue import DEFAULT_QUEUE, ROOT, Queue, UserLimit
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.topology import NODE_LEVEL, Segment, Topology
from phalanx.model.window import Window
from phalanx.perfmodel.speedup import Amdahl, Linear, Speedup, Table
from phalanx.testing.builders import SECOND_US

#: Thousandths of a device that gangs ask for; some add up to one, some do not.
SHARES = (250, 300, 500, 700)
USERS = ("ada", "bob", "")
CURVES: tuple[Speedup, ...] = (Linear(), Amdahl(0.05), Amdahl(0.5), Table(((1, 1.0), (3, 2.0), (8, 2.0))))


@dataclass(frozen=True, slots=True)
class Taste:
    """What a world may contain. The default is everything that rigid gangs can meet, without windows."""

    nodes_max: int = 8
    gangs_max: int = 8
    roles_max: int = 3
    shares: bool = True
    topology: bool = True
    labels: bool = True
    priorities: bool = True
    ties: bool = True  # together and after
    limits: bool = True
    holds: bool = True
    failures: bool = True  # of nodes; each is repaired again
    cancels: bool = True
    exact: bool = False  # every walltime is the true run time
    elastic: bool = False
    windows: bool = False
    tenants: bool = False  # guarantees and weights
    soft: bool = False  # preemptible gangs, snapshots, start-up
    flexible: bool = False  # with `elastic`: steps and lists of sizes, pauses, curves, wishes of people
    deadlines: bool = False
    spares: bool = False
    pace: int = 1  # every time is so many times as long: cool-downs and holds take minutes


#: Everything there is, at a pace at which cool-downs, holds and turns matter.
LIVELY = Taste(elastic=True, windows=True, tenants=True, soft=True, flexible=True, deadlines=True, spares=True, pace=20)


def draw_world(rng: Random, taste: Taste = Taste()) -> Scenario:  # noqa: B008 - frozen
    """A cluster, gangs and what happens to them. Everything broken is repaired, everything held is released."""
    levels = rng.choice([(), ("rack",), ("block", "rack")]) if taste.topology else ()
    nodes = draw_nodes(rng, taste, levels)
    drawn = [draw_gang(rng, taste, nodes, levels, f"g{index}") for index in range(rng.randint(1, taste.gangs_max))]
    gangs = _tie(rng, [gang for gang, _ in drawn]) if taste.ties else [gang for gang, _ in drawn]
    world = Scenario(
        nodes=nodes,
        levels=levels,
        gangs=tuple(gangs),
        true_runs=tuple(truth for _, truth in drawn),
        queues=_draw_queues(rng, nodes) if taste.limits else (Queue(DEFAULT_QUEUE), Queue("a"), Queue("b", "a")),
        users=(UserLimit("ada", {DEVICE_KIND: rng.choice([2, 4, 8]) * MILLI}),)
        if taste.limits and _odds(rng, 3)
        else (),
        windows=tuple(_draw_windows(rng, nodes)) if taste.windows else (),
        events=tuple(_draw_events(rng, taste, nodes, gangs)),
    )
    if taste.tenants:
        world = replace(world, queues=tuple(_draw_rights(rng, nodes, world.queues)))
    if taste.soft:
        world = replace(world, gangs=tuple(_soften(rng, gang) for gang in world.gangs))
    if taste.deadlines:
        world = replace(world, gangs=tuple(_draw_deadline(rng, gang) for gang in world.gangs))
    if taste.flexible:
        world = _flex(rng, world)
    if taste.spares and len(nodes) > 1 and _odds(rng, 3):
        world = replace(world, nodes=(*world.nodes[:-1], replace(world.nodes[-1], spare=True)))
    return stretch(world, taste.pace) if taste.pace > 1 else world


def _odds(rng: Random, one_in: int) -> bool:
    return rng.randint(1, one_in) == 1


# ---------------------------------------------------------------------- the cluster


def draw_nodes(rng: Random, taste: Taste, levels: Sequence[str]) -> tuple[Node, ...]:
    """Mostly alike, some with less, some labelled and tainted; at least one has something to give."""
    devices, cpu = rng.choice([0, 1, 2, 4, 8]), rng.choice([4, 8])
    nodes = []
    for index in range(rng.randint(1, taste.nodes_max)):
        own = devices if not _odds(rng, 4) else rng.randint(0, devices)
        amounts = {DEVICE_KIND: own * MILLI, "cpu": cpu * MILLI}
        labels = {level: f"{level[0]}{rng.randint(0, 2)}" for level in levels if not _odds(rng, 8)}
        if taste.labels and _odds(rng, 3):
            labels["model"] = rng.choice(["h", "a"])
        taints = ("spot",) if taste.labels and _odds(rng, 8) else ()
        halves = (tuple(range(own // 2)), tuple(range(own // 2, own)))
        islands = halves if own >= 4 and _odds(rng, 3) else ()
        nodes.append(Node(f"n{index}", {k: v for k, v in amounts.items() if v}, labels, taints, islands))
    return tuple(nodes)


def _draw_queues(rng: Random, nodes: Sequence[Node]) -> tuple[Queue, ...]:
    total = sum(node.resources.get(DEVICE_KIND, 0) for node in nodes) // MILLI
    limit = {DEVICE_KIND: rng.randint(total // 2, max(1, total)) * MILLI}
    inner = {"cpu": rng.choice([8, 16]) * MILLI}
    return (
        Queue(DEFAULT_QUEUE),
        Queue("a", limit=limit if _odds(rng, 2) else {}),
        Queue("b", parent="a", limit=inner if _odds(rng, 2) else {}),
    )


def _draw_windows(rng: Random, nodes: Sequence[Node]) -> Iterator[Window]:
    for index in range(rng.randint(1, 2)):
        names = tuple(node.name for node in nodes if _odds(rng, 2))
        start = rng.randint(0, 40) * SECOND_US
        end = start + rng.randint(1, 40) * SECOND_US
        users, queues = rng.choice([((), ()), ((), ()), (("ada",), ()), ((), ("a",))])
        if names:
            yield Window(f"w{index}", names, start, end, users, queues)


def _draw_rights(rng: Random, nodes: Sequence[Node], queues: Sequence[Queue]) -> Iterator[Queue]:
    """Weights and guarantees for queues that have none; of all together no more than there is."""
    left = sum(node.resources.get(DEVICE_KIND, 0) for node in nodes) // MILLI
    for queue in (*queues, Queue("c")):
        floor = min(rng.choice([0, 1, 2, 2, 4]), left)
        limit = queue.limit.get(DEVICE_KIND)
        floor = floor if limit is None else min(floor, limit // MILLI)
        left -= floor if queue.parent == ROOT else 0
        guarantee = {DEVICE_KIND: floor * MILLI} if floor and _odds(rng, 2) else {}
        yield replace(queue, weight=rng.choice([1, 1, 2, 3]), guarantee=guarantee)


# ---------------------------------------------------------------------- gangs


def _soften(rng: Random, gang: Gang) -> Gang:
    """Some gangs may be stopped, and some save their work."""
    habit = SnapshotHabit(
        every_us=rng.choice([2, 5, 10]) * SECOND_US,
        stall_us=rng.choice([0, 100_000, SECOND_US]),
        restore_us=rng.choice([0, 500_000, 2 * SECOND_US]),
    )
    return replace(
        gang,
        preemptible=not _odds(rng, 3),
        snapshot=habit if not _odds(rng, 3) else None,
        startup_us=rng.choice([0, 0, SECOND_US]),
        priority=rng.choice([0, 0, 1, 2]),
        queue="c" if gang.queue == DEFAULT_QUEUE and gang.together is None and _odds(rng, 2) else gang.queue,
    )


def _draw_deadline(rng: Random, gang: Gang) -> Gang:
    if not _odds(rng, 3):
        return gang
    length = (gang.walltime_us or 10 * SECOND_US) // SECOND_US
    return replace(gang, deadline_us=max(1, length + rng.choice([-1, 0, 5, 20, 60])) * SECOND_US)


def _flex(rng: Random, world: Scenario) -> Scenario:
    """Sizes in steps and lists, what a change costs, how much a member more is worth, and sizes that people want."""
    gangs, true_runs, events = [], [], list(world.events)
    for gang, truth in zip(world.gangs, world.true_runs, strict=True):
        roles = tuple(replace(role, sizes=_draw_sizes(rng, role.sizes.least, role.sizes.most)) for role in gang.roles)
        flexed = replace(gang, roles=roles, resize_pause_us=rng.choice([0, 0, SECOND_US // 2, 2 * SECOND_US]))
        gangs.append(flexed)
        curve = rng.choice(CURVES)
        true_runs.append(replace(truth, speedup=curve) if flexed.elastic else truth)
        elastic = [role.sizes for role in roles if role.sizes.elastic]
        if elastic and _odds(rng, 4):
            at_us = gang.submit_us + rng.randint(0, 40) * SECOND_US
            events.append(TimedEvent(at_us, "resize", gang=gang.name, members=rng.choice(elastic[0].allowed)))
            if _odds(rng, 2):
                later_us = at_us + rng.randint(1, 40) * SECOND_US
                events.append(TimedEvent(later_us, "resize", gang=gang.name))
    return replace(world, gangs=tuple(gangs), true_runs=tuple(true_runs), events=tuple(events))


def _draw_sizes(rng: Random, least: int, most: int) -> Sizes:
    if least == most and _odds(rng, 2):
        return Sizes((least,))
    most = max(most, least + rng.choice([0, 1, 2, 4]))
    step = rng.choice([1, 1, 2])
    allowed = tuple(range(least, most + 1, step))
    if len(allowed) > 2 and _odds(rng, 3):
        allowed = tuple(size for size in allowed if size in (least, allowed[-1]) or _odds(rng, 2))
    return Sizes(allowed)


def stretch(world: Scenario, times: int) -> Scenario:
    """The same world, slower: every instant and every length is so many times as late or long."""

    def longer(value: int | None) -> int | None:
        return None if value is None else value * times

    gangs = []
    for gang in world.gangs:
        habit = gang.snapshot
        if habit is not None:
            habit = SnapshotHabit(habit.every_us * times, habit.stall_us * times, habit.restore_us * times)
        gangs.append(
            replace(
                gang,
                submit_us=gang.submit_us * times,
                walltime_us=longer(gang.walltime_us),
                deadline_us=longer(gang.deadline_us),
                startup_us=gang.startup_us * times,
                snapshot=habit,
            )
        )
    return replace(
        world,
        gangs=tuple(gangs),
        true_runs=tuple(replace(truth, duration_us=truth.duration_us * times) for truth in world.true_runs),
        windows=tuple(replace(w, start_us=w.start_us * times, end_us=w.end_us * times) for w in world.windows),
        events=tuple(replace(event, at_us=event.at_us * times, by_us=longer(event.by_us)) for event in world.events),
    )


def draw_policy(rng: Random) -> tuple[str, dict[str, object]]:
    """A policy that takes room, and some of its options."""
    name = rng.choice(["fair", "goodput", "goodput", "deadline", "rotate"])
    options: dict[str, object] = {}
    if _odds(rng, 4):
        options["reservations"] = rng.choice([2, 3])
    if _odds(rng, 4):
        options["fill"] = rng.choice(["arrival", "shortest"])
    if name == "rotate" or _odds(rng, 4):
        options["quantum"] = rng.choice([60, 120, 600]) * SECOND_US
    if _odds(rng, 4):
        options["reclaim"] = "entitlement"
    if _odds(rng, 4):
        options["min_runtime"] = rng.choice([30, 120]) * SECOND_US
    if _odds(rng, 4):
        options["max_evictions"] = rng.choice([0, 1, 2])
    if _odds(rng, 6):
        options["half_life"] = rng.choice([60, 3600]) * SECOND_US
    if _odds(rng, 6):
        options["users"] = "fair"
    return name, options


def draw_gang(
    rng: Random, taste: Taste, nodes: Sequence[Node], levels: Sequence[str], name: str
) -> tuple[Gang, TrueRun]:
    """One gang whose members each fit some node, with its true run time."""
    count = 1 if not _odds(rng, 3) else rng.randint(1, taste.roles_max)
    roles = tuple(_draw_role(rng, taste, nodes, levels, f"r{index}", alone=count == 1) for index in range(count))
    duration = rng.choice([1, 5, 10, 10, 20, 30, rng.randint(1, 60)])
    walltime = (
        duration if taste.exact else rng.choice([duration, duration + 10, 2 * duration, max(1, duration // 2), None])
    )
    gang = Gang(
        name=name,
        roles=roles,
        submit_us=rng.choice([0, 0, 5, 10, rng.randint(0, 40)]) * SECOND_US,
        queue=rng.choice([DEFAULT_QUEUE, "a", "b"]),
        user=rng.choice(USERS),
        priority=rng.choice([0, 0, 1]) if taste.priorities else 0,
        topology=_draw_topology(rng, levels) if taste.topology and _odds(rng, 2) else Topology(),
        walltime_us=None if walltime is None else walltime * SECOND_US,
        hold=taste.holds and _odds(rng, 10),
    )
    return gang, TrueRun(duration * SECOND_US)


def _draw_role(
    rng: Random, taste: Taste, nodes: Sequence[Node], levels: Sequence[str], name: str, *, alone: bool
) -> Role:
    node = rng.choice(nodes)
    has_devices = node.resources.get(DEVICE_KIND, 0) // MILLI
    need: dict[str, int] = {}
    if has_devices and not _odds(rng, 5):
        shares = taste.shares and _odds(rng, 3)
        need[DEVICE_KIND] = rng.choice(SHARES) if shares else rng.randint(1, min(4, has_devices)) * MILLI
    if not need or _odds(rng, 3):
        need["cpu"] = rng.choice([1, 2, 4]) * MILLI
    model = node.labels.get("model")
    select = (("model", (model,)),) if taste.labels and model and _odds(rng, 3) else ()
    tolerate = ("spot",) if taste.labels and (node.taints or _odds(rng, 6)) else ()
    topology = _draw_topology(rng, levels) if taste.topology and not alone and _odds(rng, 4) else Topology()
    shape = Shape(tuple(sorted(need.items())), select, tolerate)
    # Mostly what the cluster could hold: a world of impossible gangs tests one line of the engine.
    here = _fits(node, shape)
    least = rng.randint(
        1, min(8 if alone else 3, here if _odds(rng, 2) else sum(_fits(other, shape) for other in nodes))
    )
    most = least + (rng.randint(0, 3) if taste.elastic else 0)
    sizes = Sizes(tuple(range(least, most + 1)))
    return Role(name, sizes, shape, topology)


def _fits(node: Node, shape: Shape) -> int:
    """Members on an empty node by amounts, labels left aside; at least one, since the shape was drawn for some node."""
    return max(1, min(node.resources.get(kind, 0) // units for kind, units in shape.need))


def _draw_topology(rng: Random, levels: Sequence[str]) -> Topology:
    named = (*levels, NODE_LEVEL)
    wish = rng.choice(["require", "prefer", "prefer", "both", "segment", "require and segment"])
    return Topology(
        require=rng.choice(named) if "require" in wish or wish == "both" else None,
        prefer=rng.choice(named) if "prefer" in wish or wish == "both" else None,
        segment=Segment(rng.randint(1, 4), rng.choice(named)) if "segment" in wish else None,
    )


def _tie(rng: Random, gangs: Sequence[Gang]) -> list[Gang]:
    """Groups of neighbours in the list, and dependencies on whoever stands before the whole group."""
    tied: list[Gang] = []
    while len(tied) < len(gangs):
        first = len(tied)
        group = gangs[first : first + (rng.randint(2, 3) if _odds(rng, 6) else 1)]
        for gang in group:
            together = Together(f"t{first}", len(group)) if len(group) > 1 else None
            names = (
                tuple(dict.fromkeys(rng.choice(gangs[:first]).name for _ in range(rng.randint(1, 2)))) if first else ()
            )
            after = After(names, any_end=_odds(rng, 3)) if names and _odds(rng, 6) else After()
            tied.append(replace(gang, together=together, after=after, queue=group[0].queue))
    return tied


# ---------------------------------------------------------------------- events


def _draw_events(rng: Random, taste: Taste, nodes: Sequence[Node], gangs: Sequence[Gang]) -> Iterator[TimedEvent]:
    for gang in gangs:
        if gang.hold:
            # Events of an instant come before its submits, so a release at the same one would be in vain.
            yield TimedEvent(gang.submit_us + rng.randint(1, 30) * SECOND_US, "release", gang=gang.name)
        elif taste.cancels and _odds(rng, 10):
            yield TimedEvent(gang.submit_us + rng.randint(0, 30) * SECOND_US, "cancel", gang=gang.name)
    for node in nodes:
        if taste.failures and _odds(rng, 4):
            broken, repaired = rng.choice([("fail", "repair"), ("cordon", "uncordon"), ("drain", "uncordon")])
            at_us = rng.randint(0, 50) * SECOND_US
            # Whoever is still there when a drain must be over is evicted, preemptible or not.
            by_us = (
                at_us + rng.randint(1, 40) * SECOND_US if taste.soft and broken == "drain" and _odds(rng, 2) else None
            )
            yield TimedEvent(at_us, broken, node=node.name, by_us=by_us)
            yield TimedEvent(at_us + rng.randint(0, 30) * SECOND_US, repaired, node=node.name)
    if taste.failures and _odds(rng, 8):
        yield TimedEvent(rng.randint(0, 50) * SECOND_US, "remove", node=rng.choice(nodes).name)
    if taste.failures and _odds(rng, 8):
        added = Node("late", {DEVICE_KIND: 8 * MILLI, "cpu": 8 * MILLI, "nic": MILLI})
        yield TimedEvent(rng.randint(0, 50) * SECOND_US, "add", node="late", added=added)

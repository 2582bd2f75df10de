"""Snapshots drawn by a seed. Nothing in them follows from what the engine decides.

`worlds` draws scenarios that are played, so that what the engine meets depends on what it decided before. Here
seats are handed out by a first fit (`first_fit`), and who starts when, who is degraded, resized, evicted, promised
or pinned comes from the seed alone. A plan that changes therefore changes itself and no other, and two versions
of the engine can be compared over thousands of plans one by one (`digests`).

What a seed draws is frozen by the recorded digests (`tests/replay`): a change here changes them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from phalanx.control.losses import lose_node, tick
from phalanx.control.state import State
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import After, Gang, Role, Shape, Sizes, SnapshotHabit, Together
from phalanx.model.plan import Bind, Cause, Evict, Guest, Plan, Reservation, Resize, Seats, Settled
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import Segment, Topology
from phalanx.model.window import Window
from phalanx.testing.first_fit import WHOLE, FreeColumns, count_empty, find_seats

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Flavour:
    """What kind of world it is; numbers are odds in a hundred."""

    slots: bool = False  # of one anonymous kind
    plain: bool = False  # rigid gangs of one shape and nothing else: where sums decide
    nodes_least: int = 1
    nodes_most: int = 6
    running: tuple[int, int] = (1, 5)
    waiting: tuple[int, int] = (1, 4)
    small: bool = False  # many small gangs all over the place, and wishes for whole nodes
    rivals: bool = False  # whoever waits is more urgent than whoever runs
    shares: int = 25
    elastic: int = 35
    soft: int = 50
    windows: int = 25
    degraded: int = 25
    drains: int = 20
    promises: int = 30
    roles: int = 25
    topology: int = 45


_COMMON = (
    Flavour(),
    Flavour(),
    Flavour(shares=0),
    Flavour(shares=0, soft=85, elastic=15, windows=10, rivals=True, running=(3, 10), nodes_most=4),
    Flavour(
        shares=5, soft=85, elastic=50, windows=0, degraded=10, drains=5, rivals=True, running=(3, 10), nodes_most=3
    ),
    Flavour(shares=0, elastic=85, soft=40, roles=15, running=(2, 6), nodes_most=4),
    Flavour(shares=0, elastic=60, degraded=90, windows=10),
    Flavour(shares=10, elastic=40, drains=90, soft=70),
    Flavour(small=True, soft=95, elastic=10, shares=0, running=(4, 9), roles=0, windows=5, degraded=5, drains=5),
    Flavour(slots=True, elastic=40, shares=0),
    Flavour(slots=True, plain=True, running=(0, 6), waiting=(1, 7)),
)
#: Dear to plan, so there are few: long queues, more victims than can be tried set by set, and a wide network.
_RARE = (
    Flavour(
        nodes_most=5, running=(3, 8), waiting=(60, 75), roles=3, shares=0, soft=20, elastic=10, degraded=5, drains=5
    ),
    Flavour(slots=True, plain=True, running=(3, 8), waiting=(60, 90)),
    Flavour(
        small=True, rivals=True, soft=100, elastic=5, nodes_most=5, running=(14, 20), roles=0, windows=0, degraded=5
    ),
    Flavour(nodes_least=9, nodes_most=14, topology=80, shares=10, roles=15),
)
FLAVOURS: Sequence[Flavour] = (*_COMMON, *_COMMON, *_RARE)


def draw_snapshot(seed: int) -> Snapshot:
    """The snapshot of this number."""
    return _Drawing(Random(seed)).draw()


class _Drawing:
    """One world on its way to a snapshot."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.flavour = rng.choice(FLAVOURS)
        self.levels: tuple[str, ...] = rng.choice([(), ("rack",), ("block", "rack"), ("zone", "block", "rack")])
        self.nodes = self._draw_nodes()
        self.kind = "slot" if self.flavour.slots else "gpu"
        self.total = max(1, sum(node.resources.get(self.kind, 0) for node in self.nodes) // WHOLE)
        self.queues = self._draw_queues()
        self.busy_queues = rng.sample(
            [queue.name for queue in self.queues] or ["default"], min(len(self.queues), 2) or 1
        )
        # Where gangs are alike, their one shape; else everybody has its own.
        self.shape = Shape((("slot", WHOLE),)) if self.flavour.plain else None
        self.span_us = rng.choice([10 * MINUTE_US, HOUR_US, 5 * HOUR_US])
        users = [UserLimit("ada", {self.kind: rng.randint(1, self.total) * WHOLE})] if self._odds(15) else []
        plain = self.flavour.plain
        windows = [] if plain or not self._odds(self.flavour.windows) else [*self._draw_windows()]
        self.state = State(
            Fleet(self.nodes, self.levels), self.queues, () if plain else users, windows, rng.choice([2, 24]) * HOUR_US
        )
        if self._odds(15):
            self.state.tenants.half_life_us = HOUR_US
        self.names = 0

    def _odds(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def draw(self) -> Snapshot:
        """Everything that has happened until now, then whoever has just come."""
        for _ in range(self.rng.randint(*self.flavour.running)):
            self._pass_time()
            self._start_one()
        self._pass_time()
        for _ in range(self.rng.randint(0, 2)):
            self._submit(self._draw_gang())
        if not self.flavour.plain:
            self._change_running()
            self._pass_time()
            self._degrade()
        self._note_plan()
        for _ in range(self.rng.randint(*self.flavour.waiting)):
            self._submit_newcomers()
        if self._odds(10) and len(self.state.pending):
            self.state.cancel(self.rng.choice(self._numbers("pending")))
        if self._odds(25):
            self._pin()
        return self.state.snapshot()

    def _pass_time(self) -> None:
        state = self.state
        part = self.rng.choice([0, 0, 1, 5, 20, 60])
        state.now_us += part * self.span_us // 60
        tick(state)
        if state.tenants.half_life_us is not None:
            state.tenants.decay(state.now_us)

    def _numbers(self, table: str) -> list[int]:
        rows = getattr(self.state, table)
        return [int(number) for number in rows.columns["gang"][rows.alive].tolist() if number >= 0]

    # ------------------------------------------------------------------ the cluster

    def _draw_nodes(self) -> tuple[Node, ...]:
        rng, flavour = self.rng, self.flavour
        count = rng.randint(flavour.nodes_least, flavour.nodes_most)
        size = rng.choice([1, 4, 8, 16]) if flavour.slots else rng.choice([1, 2, 4, 4, 8])
        branches = rng.randint(1, 3)
        uneven = self._odds(25)
        nodes = []
        for index in range(count):
            own = rng.randint(0, size) if uneven else size
            amounts = {"slot": own * WHOLE} if flavour.slots else self._draw_amounts(own)
            labels = {level: f"{level[0]}{rng.randrange(branches)}" for level in self.levels if not self._odds(8)}
            if not flavour.plain and self._odds(30):
                labels["model"] = rng.choice(["h", "a"])
            taints = ("spot",) if not flavour.plain and self._odds(10) else ()
            halves = (tuple(range(own // 2)), tuple(range(own // 2, own)))
            islands = halves if own >= 4 and not flavour.slots and self._odds(40) else ()
            nodes.append(Node(f"n{index}", amounts, labels, taints, islands))
        if count > 2 and self._odds(flavour.degraded // 2):
            nodes[-1] = replace(nodes[-1], spare=True)
        return tuple(nodes)

    def _draw_amounts(self, devices: int) -> dict[str, int]:
        amounts = {"gpu": devices * WHOLE, "cpu": self.rng.choice([4, 8, 16]) * WHOLE, "memory": 64 * GIB}
        return {kind: units for kind, units in amounts.items() if units}

    def _draw_queues(self) -> tuple[Queue, ...]:
        rng = self.rng
        if self.flavour.plain:
            return (Queue("a"),) if self._odds(30) else ()
        queues, left = [], self.total
        for name, parent in (("default", "root"), ("a", "root"), ("b", "a"), ("c", "a"), ("d", "root")):
            floor = min(rng.choice([0, 1, 2, 4, self.total // 2]), left) if self._odds(60) else 0
            left -= floor if parent == "root" else 0
            limit = {self.kind: rng.randint(max(1, floor), max(1, floor, self.total)) * WHOLE} if self._odds(12) else {}
            guarantee = {self.kind: floor * WHOLE} if floor else {}
            queues.append(Queue(name, parent, rng.choice([1, 1, 2, 5]), guarantee, limit))
        return tuple(queues)

    def _draw_windows(self) -> Iterator[Window]:
        rng = self.rng
        for index in range(rng.randint(1, 2)):
            names = tuple(node.name for node in self.nodes if self._odds(40))
            start = rng.randint(0, 12) * self.span_us // 4
            users, queues = rng.choice([((), ()), ((), ()), (("ada",), ()), ((), ("a",))])
            if names:
                yield Window(f"w{index}", names, start, start + rng.randint(1, 8) * self.span_us // 4, users, queues)

    # ------------------------------------------------------------------ gangs

    def _draw_gang(self, *, least_most: int = 8) -> Gang:
        """One that an empty cluster could hold; now and then one that it could not."""
        self.names += 1
        empty = self._empty()
        for _ in range(4):
            gang = self._draw_any_gang(least_most)
            least = [role.sizes.least for role in gang.roles]
            if self._odds(5) or self._find_seats(gang, least, empty) is not None:
                return gang
        return self._draw_any_gang(1)

    def _draw_any_gang(self, least_most: int) -> Gang:
        rng, flavour = self.rng, self.flavour
        count = rng.randint(2, 3) if self._odds(flavour.roles) and not flavour.plain else 1
        roles = tuple(self._draw_role(f"r{index}", min(least_most, 8 if count == 1 else 2)) for index in range(count))
        walltime = rng.choice([None, 1, 2, 6, 12, 30]) if not flavour.plain or self._odds(30) else rng.randint(1, 12)
        gang = Gang(
            name=f"g{self.names}",
            roles=roles,
            submit_us=max(0, self.state.now_us - rng.choice([0, 0, MINUTE_US])),
            user=rng.choice(["ada", "bob", "eve", ""]),
            walltime_us=None if walltime is None else walltime * self.span_us // 4,
        )
        return gang if flavour.plain else self._dress(gang)

    def _dress(self, gang: Gang) -> Gang:
        """Everything that only some gangs state."""
        rng = self.rng
        alone = len(gang.roles) == 1
        habit = SnapshotHabit(
            every_us=rng.choice([1, 10]) * MINUTE_US,
            stall_us=rng.choice([0, SECOND_US, MINUTE_US]),
            restore_us=rng.choice([0, SECOND_US, 5 * MINUTE_US]),
        )
        return replace(
            gang,
            queue=rng.choice(self.busy_queues if self._odds(85) else [queue.name for queue in self.queues]),
            priority=rng.choice([0, 0, 0, 1, 2]),
            topology=self._draw_topology() if self._odds(self.flavour.topology // (1 if alone else 2)) else Topology(),
            deadline_us=rng.choice([1, 4, 12, 40]) * self.span_us // 4 if self._odds(25) else None,
            preemptible=self._odds(self.flavour.soft),
            snapshot=habit if self._odds(65) else None,
            resize_pause_us=rng.choice([0, 0, 5 * SECOND_US, MINUTE_US]) if gang.elastic else 0,
            startup_us=rng.choice([0, 0, MINUTE_US]),
        )

    def _draw_role(self, name: str, least_most: int) -> Role:
        rng = self.rng
        shape = self.shape or self._draw_shape()
        # Mostly what the cluster could hold, now and then one too many.
        fits = sum(count_empty(node, shape) for node in self.nodes)
        least = rng.randint(1, max(1, min(least_most, fits)))
        if self._odds(2):
            least = fits + 1
        allowed: tuple[int, ...] = (least,)
        if not self.flavour.plain and self._odds(self.flavour.elastic):
            allowed = tuple(range(least, least + rng.randint(1, 6) + 1, rng.choice([1, 1, 2])))
            if len(allowed) > 2 and self._odds(30):
                allowed = (allowed[0], *(size for size in allowed[1:-1] if self._odds(50)), allowed[-1])
        topology = self._draw_topology() if not self.flavour.plain and self._odds(15) else Topology()
        return Role(name, Sizes(allowed), shape, topology)

    def _draw_shape(self) -> Shape:
        rng = self.rng
        node = rng.choice(self.nodes)
        has = node.resources.get(self.kind, 0) // WHOLE
        need: dict[str, int] = {}
        if has and (self.flavour.slots or self._odds(85)):
            need[self.kind] = rng.choice([1, 1, 1, 2, has]) * WHOLE if has > 1 else WHOLE
            if not self.flavour.slots and self._odds(self.flavour.shares):
                need["gpu"] = rng.choice([250, 300, 500, 700])
        if not need and self.flavour.slots:
            need["slot"] = WHOLE
        if not self.flavour.slots and (not need or self._odds(40)):
            need["cpu"] = rng.choice([1, 2, 4]) * WHOLE
        if not self.flavour.slots and self._odds(15):
            need["memory"] = rng.choice([8, 24]) * GIB
        model = node.labels.get("model")
        select = (("model", (model,) if self._odds(70) else ("a", "h")),) if model and self._odds(30) else ()
        tolerate = ("spot",) if node.taints or self._odds(15) else ()
        return Shape(tuple(sorted(need.items())), select, tolerate)

    def _draw_topology(self) -> Topology:
        rng, levels = self.rng, (*self.levels, "node")
        wish = rng.choice(["require", "require", "prefer", "prefer", "both", "segment", "require segment"])
        return Topology(
            require=rng.choice(levels) if "require" in wish or wish == "both" else None,
            prefer=rng.choice(levels) if wish in ("prefer", "both") else None,
            segment=Segment(rng.randint(1, 4), rng.choice(levels)) if "segment" in wish else None,
        )

    def _submit(self, gang: Gang) -> int:
        curve = None
        if gang.elastic and self._odds(50):
            sizes = sorted({1, gang.members_min, gang.members_max})
            bend = self.rng.choice([1.0, 0.8, 0.5])
            curve = tuple((size, round(float(size) ** bend, 6)) for size in sizes)
        return self.state.submit(gang, curve)

    def _submit_newcomers(self) -> None:
        """One that waits; or some that wait for each other, for somebody, or for a word."""
        rng = self.rng
        gang = self._draw_gang()
        if self.flavour.plain:
            self._submit(gang)
            return
        if self.flavour.small and self._odds(50):
            gang = replace(gang, topology=Topology(require="node"), priority=0)
        if self.flavour.rivals and self._odds(60):
            gang = replace(gang, priority=rng.choice([1, 2, 3]))
        if self._odds(12) and not gang.hold:
            word = Together(f"t{self.names}", rng.choice([2, 2, 3]))
            for _ in range(2):
                self._submit(replace(self._draw_gang(least_most=2), together=word, queue=gang.queue))
            return
        if self._odds(8):
            gang = replace(gang, hold=True)
        elif self._odds(8) and self.state.gangs:
            gang = replace(gang, after=After((rng.choice(self.state.gangs).name,), any_end=self._odds(50)))
        self._submit(gang)

    # ------------------------------------------------------------------ who runs

    def _start_one(self) -> None:
        """A gang on the first seats that hold it, at any of its sizes; nothing happens if there are none."""
        state, rng = self.state, self.rng
        gang = self._draw_gang(least_most=1 if self.flavour.small else 4)
        if self.flavour.small or (self.flavour.rivals and self._odds(60)):
            gang = replace(gang, priority=0)
        sizes = tuple(rng.choice(role.sizes.allowed) for role in gang.roles)
        seats = self._find_seats(gang, sizes, FreeColumns(state.fleet, state.nodes.free, state.nodes.device_free))
        number = self._submit(gang)
        if seats is None:
            if self._odds(60):
                state.cancel(number)
            return
        length = gang.walltime_us if gang.walltime_us is not None else state.default_walltime_us
        guest = Guest.NO
        if gang.preemptible and self._odds(25):
            guest = Guest.WHOLE
        elif gang.elastic and self._odds(25):
            guest = Guest.SURPLUS
        bind = Bind(number, seats, length * gang.members_max // sum(sizes), guest)
        state.apply(Plan(decisions=(bind,)))

    def _empty(self) -> FreeColumns:
        fleet = self.state.fleet
        return FreeColumns(fleet, fleet.capacity.copy(), fleet.device_capacity.copy())

    def _find_seats(self, gang: Gang, sizes: Sequence[int], room: FreeColumns) -> tuple[Seats, ...] | None:
        """A first fit in a drawn order of the nodes where gangs may start."""
        up, opened = self.state.nodes.up, self.state.nodes.open
        order = [i for i, node in enumerate(self.nodes) if up[i] and opened[i] and not node.spare]
        if not self.flavour.plain and self._odds(60):
            self.rng.shuffle(order)
        return find_seats(gang, sizes, room, order, spread=self.flavour.small)

    # ------------------------------------------------------------------ what happened to them

    def _change_running(self) -> None:
        """Some were resized, evicted, or have ended."""
        for number in self._numbers("running"):
            what = self.rng.randrange(20)
            if what == 0:
                self.state.apply(Plan(decisions=(Evict(number, Cause.PREEMPT),)))
            elif what == 1:
                self.state.requeue(number)
            elif what == 2:
                self.state.complete(number)
            elif what in (3, 4, 5):
                self._shrink(number)

    def _shrink(self, number: int) -> None:
        """A gang leaves the last of its nodes; perhaps somebody waits until it is gone from there."""
        state = self.state
        gang, seats = state.gangs[number], state.records[number].seats
        for index, (role, each) in enumerate(zip(gang.roles, seats, strict=True)):
            left = each.members - (int(each.counts[-1]) if len(each.nodes) else 0)
            if left not in role.sizes.allowed or left == each.members:
                continue
            kept = Seats(index, each.nodes[:-1], each.counts[:-1], each.devices[:-1])
            given = Seats(0, each.nodes[-1:], each.counts[-1:], each.devices[-1:])
            smaller = (*seats[:index], kept, *seats[index + 1 :])
            if self._odds(50):
                state.apply(Plan(decisions=(Resize(number, smaller, Cause.PIN),)))
                return
            self.names += 1
            heir = Role("heir", Sizes((given.members,)), role.shape)
            other = self._submit(replace(gang, name=f"g{self.names}", roles=(heir,), topology=Topology()))
            bind = Bind(other, (given,), self.span_us)
            state.apply(Plan(decisions=(Resize(number, smaller, Cause.LOAN, other), bind)))
            return

    def _degrade(self) -> None:
        """Nodes fail, are cordoned or drained."""
        state, rng = self.state, self.rng
        indices = range(len(self.nodes))
        if self._odds(self.flavour.degraded):
            busy = [node for node in indices if state.gangs_on(node)]
            for node in rng.sample(busy, min(len(busy), rng.choice([1, 1, 2]))):
                lose_node(state, node)
                state.set_up(node, up=self._odds(20))  # some are back already, and nobody has been mended yet
        if self._odds(self.flavour.drains):
            state.set_open(rng.choice(indices), open_=False, drain=self._odds(75))

    def _note_plan(self) -> None:
        """The last plan has spoken to whoever waits: with promises, with a hint, or not at all."""
        state, waiting = self.state, self._numbers("pending")
        if self.flavour.plain:
            room = int(state.nodes.free.sum()) // WHOLE
            refused = all(state.gangs[number].members_min > room for number in waiting)
            possible = all(state.gangs[number].members_min <= self.total for number in waiting)
            if refused and possible and self._odds(70):
                state.apply(Plan(settled=Settled(room if self._odds(70) else -1)))
            return
        if self._odds(self.flavour.promises):
            state.apply(Plan(reservations=tuple(self._promise(waiting))))
        elif self._odds(50):
            state.apply(Plan())

    def _promise(self, waiting: Sequence[int]) -> Iterator[Reservation]:
        """Starts after everybody who runs there is believed to be gone; now and then too early to be true."""
        state = self.state
        room = self._empty()
        running = state.running
        ends = (running.columns["start_us"] + running.columns["length_us"])[running.alive]
        last_us = max(state.now_us, int(ends.max(initial=0)))
        for number in waiting:
            gang = state.gangs[number]
            seats = self._find_seats(gang, [role.sizes.least for role in gang.roles], room)
            if seats is None or gang.together is not None or number in state.curves or self._odds(20):
                continue
            room.take(gang, seats)
            if not state.nodes.shared:
                seats = tuple(replace(each, devices=np.zeros_like(each.devices)) for each in seats)
            start_us = last_us if self._odds(75) else state.now_us + self.rng.randrange(2) * self.span_us // 4
            yield Reservation((number,), start_us, start_us + self._length_at_least(gang), (seats,))

    def _length_at_least(self, gang: Gang) -> int:
        """How long a gang without a curve of its own takes at its least: a promise of another length was never made."""
        length = gang.walltime_us if gang.walltime_us is not None else self.state.default_walltime_us
        elastic = [role.sizes for role in gang.roles if role.sizes.elastic]
        most, least = sum(sizes.most for sizes in elastic), sum(sizes.least for sizes in elastic)
        return (2 * length * most + least) // (2 * least) if elastic else length

    def _pin(self) -> None:
        """A person wants somebody at a size."""
        state = self.state
        known = [*self._numbers("running"), *(n for n in self._numbers("pending") if self._odds(30))]
        for number in (number for number in known if state.gangs[number].elastic):
            sizes = next(role.sizes for role in state.gangs[number].roles if role.sizes.elastic)
            state.pin(number, self.rng.choice(sizes.allowed))

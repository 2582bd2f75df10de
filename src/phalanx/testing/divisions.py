"""Worlds in which surplus is divided, and what may be said of every plan there (rule 16), worked out from the snapshot.

Nothing here asks the engine: sizes, shares and completion times are computed again, from lengths and curves, as plainly
as the rule says them. The worlds are such that sums decide: devices one by one, everybody's least fits, one queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from phalanx.engine.curves import curve_of
from phalanx.engine.policy import Policy
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Plan, Resize, Seats
from phalanx.model.snapshot import Snapshot
from phalanx.perfmodel.speedup import Speedup, speedup_at
from phalanx.testing.whole_worlds import Tree


def draw_division(rng: Random, *, dates: bool = True) -> Tree:
    """Two to six elastic gangs that come one after the other, some with dates, on a few devices."""
    count = rng.randint(2, 6)
    devices = rng.randint(count * 2, 16)
    submits = sorted(rng.sample(range(600), count))
    gangs: list[Tree] = []
    for index, submit in enumerate(submits):
        most = rng.randint(2, devices)
        duration = round(10 ** rng.uniform(1.5, 3.7))
        gang: Tree = {
            "name": f"g{index}",
            "submit": submit,
            "members": {"min": rng.randint(1, min(2, most - 1)), "max": most},
            "each": {"gpu": 1},
            "duration": duration,
            "walltime": duration,
            "resize_pause": rng.choice([0, 0, 5, 20, 60]),
            "priority": rng.choice([0, 0, 0, 1]),
        }
        if rng.random() < 0.7:
            gang["speedup"] = {"table": _draw_table(rng, most)}
        if dates and rng.random() < 0.6:
            gang["deadline"] = round(duration * rng.uniform(1.05, 5))
        gangs.append(gang)
    nodes = [{"name": f"n{index}", "resources": {"gpu": 1}} for index in range(devices)]
    return {"cluster": {"nodes": nodes}, "gangs": gangs}


def _draw_table(rng: Random, most: int) -> dict[int, int]:
    """A concave curve in whole numbers."""
    speed, step = 0.0, 64.0
    table: dict[int, int] = {}
    for members in range(1, most + 1):
        speed += step
        table[members] = round(speed)
        step *= rng.uniform(0.75, 1.0)
    return table


# ---------------------------------------------------------------------- what the rule says of a gang


@dataclass(slots=True)
class Elastic:
    """An elastic gang of one role: its size, and how long it still takes at others."""

    gang: Gang
    curve: Speedup
    members: int
    left_us: float
    runs: bool

    def expected_us(self, members: int) -> float:
        """Until it is done with so many from now on, the pause included if it runs with another size."""
        pause_us = self.gang.resize_pause_us if self.runs and members != self.members else 0
        return pause_us + self.left_us * self.rate(members)

    def rate(self, members: int) -> float:
        """How many times as long it takes with so many as with what it has."""
        return speedup_at(self.curve, self.members) / speedup_at(self.curve, members)

    @property
    def least(self) -> int:
        """Its smallest size."""
        return self.gang.roles[0].sizes.least

    def share(self, now_us: int) -> int:
        """The smallest size that meets its date; 0 without one, or if none does."""
        if self.gang.deadline_us is None:
            return 0
        date_us = self.gang.submit_us + self.gang.deadline_us
        return next((n for n in self.gang.roles[0].sizes.allowed if now_us + self.expected_us(n) <= date_us), 0)


def read_elastic(snapshot: Snapshot, plan: Plan) -> dict[int, Elastic]:
    """Everybody who runs before the plan or starts by it, by number; of those who start, at their least."""
    running, table, found = snapshot.running, snapshot.allocations, {}
    for row in running.alive.nonzero()[0].tolist():
        number = int(running.gang[row])
        if number < 0 or running.start_us[row] > snapshot.now_us:
            continue
        members = int(table.count[table.alive & (table.running == row)].sum())
        end_us = int(running.start_us[row] + running.length_us[row])
        gang = snapshot.gangs[number]
        found[number] = Elastic(gang, curve_of(snapshot, number), members, end_us - snapshot.now_us, runs=True)
    for bind in plan.decisions:
        if isinstance(bind, Bind):
            gang, curve = snapshot.gangs[bind.gang], curve_of(snapshot, bind.gang)
            least, size = gang.roles[0].sizes.least, count_members(bind.seats)
            length_us = bind.length_us * speedup_at(curve, size) / speedup_at(curve, least)
            found[bind.gang] = Elastic(gang, curve, least, length_us, runs=False)
    return found


def count_members(seats: Sequence[Seats]) -> int:
    """Members of all roles."""
    return sum(each.members for each in seats)


def read_sizes(elastic: Mapping[int, Elastic], plan: Plan) -> dict[int, int]:
    """Members of everybody when the plan has been carried out."""
    sizes = {number: each.members for number, each in elastic.items()}
    for decision in plan.decisions:
        if isinstance(decision, Bind | Resize):
            sizes[decision.gang] = count_members(decision.seats)
    return sizes


# ---------------------------------------------------------------------- no share is starved


def find_starved(snapshot: Snapshot, plan: Plan, _: Policy) -> list[str]:
    """Whoever is below its share by a plan, though enough is idle or on loan to it above others' shares.

    Not while seats are on their way: they may be for it, and it gets them when they are empty. Nor whoever the plan
    made give for a start: it is told of one size, and comes last among those who give.
    """
    elastic = read_elastic(snapshot, plan)
    sizes = read_sizes(elastic, plan)
    leaving = snapshot.running.alive & ((snapshot.running.gang < 0) | (snapshot.running.start_us > snapshot.now_us))
    shrinks = [d for d in plan.decisions if isinstance(d, Resize) and sizes[d.gang] < elastic[d.gang].members]
    if leaving.any() or any(snapshot.gangs[each.gang].resize_pause_us for each in shrinks):
        return []
    granted = _grant(snapshot, elastic)
    idle = len(snapshot.fleet.names) - sum(sizes.values())
    found = []
    for number, share in granted.items():
        mine = elastic[number].gang
        above = sum(
            max(0, sizes[other] - max(each.least, granted.get(other, 0)))
            for other, each in elastic.items()
            if other != number and each.gang.priority <= mine.priority
        )
        short = sizes[number] < share
        if number in {each.gang for each in shrinks}:
            continue
        if short and share <= sizes[number] + idle + above:
            found.append(f"{mine.name} has {sizes[number]} and needs {share}: {idle} idle, {above} above shares")
    return found


def _grant(snapshot: Snapshot, elastic: Mapping[int, Elastic]) -> dict[int, int]:
    """Shares that fit beside each other's and everybody's least, the least device time first."""
    room = len(snapshot.fleet.names) - sum(each.least for each in elastic.values())
    shares = {number: each.share(snapshot.now_us) for number, each in elastic.items()}
    dated = [number for number, share in shares.items() if share]
    granted: dict[int, int] = {}
    for number in sorted(dated, key=lambda n: (shares[n] * elastic[n].expected_us(shares[n]), n)):
        more = shares[number] - elastic[number].least
        if more <= room:
            granted[number], room = shares[number], room - more
    return granted


# ---------------------------------------------------------------------- balance


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one plan shifted by `balance`, with sizes afterwards."""

    elastic: Mapping[int, Elastic]
    givers: Mapping[int, int]
    takers: Mapping[int, int]

    @property
    def pauses_us(self) -> int:
        """All pauses that it costs."""
        return sum(self.elastic[number].gang.resize_pause_us for number in (*self.givers, *self.takers))

    def saved_us(self) -> float:
        """By how much the sum of expected completion times falls, all pauses counted.

        Takers wait until the last giver has left, pause, and are large then. Givers pause, are small until the takers
        expect to be done (by devices, as each lent to all), pause again and are what they were.
        """
        wait_us = max(self.elastic[number].gang.resize_pause_us for number in self.givers)
        ends = {number: self._end_of_taker(number, wait_us) for number in self.takers}
        weights = sum(self.takers.values())
        back_us = sum(self.takers[number] * end for number, end in ends.items()) / weights
        after = sum(ends.values()) + sum(self._end_of_giver(number, back_us) for number in self.givers)
        before = sum(self.elastic[number].left_us for number in (*self.givers, *self.takers))
        return before - after

    def _end_of_taker(self, number: int, wait_us: float) -> float:
        each, size = self.elastic[number], self.takers[number]
        left_us = each.left_us - wait_us
        if left_us <= 0:
            return each.left_us
        return wait_us + each.gang.resize_pause_us + left_us * each.rate(size)

    def _end_of_giver(self, number: int, back_us: float) -> float:
        each, size = self.elastic[number], self.givers[number]
        pause_us = each.gang.resize_pause_us
        small_us = each.left_us * each.rate(size)
        if pause_us + small_us <= back_us:
            return pause_us + small_us
        done = max(0.0, back_us - pause_us) / each.rate(size)
        # It grows back where that saves something, and stays small where it does not.
        return min(back_us + pause_us + each.left_us - done, pause_us + small_us)


def list_rests(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Whoever gives by `balance` although it rests."""
    rows = {int(gang): row for row, gang in enumerate(snapshot.running.gang.tolist()) if snapshot.running.alive[row]}
    givers = [d.gang for d in plan.decisions if isinstance(d, Resize) and d.cause is Cause.BALANCE]
    return [
        f"{snapshot.gangs[number].name} gives before {int(snapshot.running.cool_until_us[rows[number]])}"
        for number in givers
        if snapshot.running.cool_until_us[rows[number]] > snapshot.now_us
    ]


# ---------------------------------------------------------------------- the same world in other words


def scale_curves(tree: Tree, times: Sequence[float]) -> Tree:
    """Every gang's curve in another unit."""
    gangs = []
    for gang, factor in zip(tree["gangs"], times, strict=True):
        table = gang.get("speedup", {}).get("table")
        if table is None:
            gangs.append(gang)
            continue
        gangs.append(gang | {"speedup": {"table": {members: speed * factor for members, speed in table.items()}}})
    return tree | {"gangs": gangs}

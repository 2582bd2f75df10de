"""Where every GPU-second of the cluster went. The parts sum to capacity times time, exactly.

Integer µs × milli of one kind: the device where there are any, else the first kind there is. What
gangs do with their seats is booked by their lives, once per change; what nobody runs on is kept as
steps (how much there is, how much of it is down, in use, being vacated, claimed) and summed at the end.
"""

from __future__ import annotations

from typing import Final

from phalanx.control.state import State
from phalanx.frontends.sim.handover import Fading, Handover
from phalanx.model.gang import Gang
from phalanx.model.plan import Idle, Seats
from phalanx.model.resources import DEVICE_KIND

#: What lives book into; `resize` and `idle_allocated` also get what changes hands.
BOOKED: Final = ("productive", "startup", "snapshot", "restore", "resize", "lost", "idle_allocated")


#: The cluster from one instant on: when, capacity, of it down, used by gangs that run or were degraded, still used by
#: gangs that leave, claimed by gangs that wait for that; reserved at the most, and whether the rest is in pieces.
#: A plain tuple: a log makes two for every job.
Step = tuple[int, int, int, int, int, int, int, bool]


class Ledger:
    """Books and steps of one run."""

    def __init__(self, state: State) -> None:
        """The cluster as it is before anything happens."""
        self.kind = counted_kind(state.fleet.kinds)
        self.books = dict.fromkeys(BOOKED, 0)
        self.steps: list[Step] = [(state.now_us, 0, 0, 0, 0, 0, 0, False)]
        self.used = 0
        self.handover = Handover(state, self.kind)
        self._state = state
        self._reserved, self._fragmented = 0, False
        self.fading: list[Fading] = []
        self._each: dict[object, int] = {}
        self.note_capacity()

    def units_of(self, gang: Gang, seats: tuple[Seats, ...]) -> int:
        """How much of the counted kind some seats are."""
        total = 0
        for each in seats:
            shape = gang.roles[each.role].shape
            amount = self._each.get(shape)
            if amount is None:
                amount = self._each[shape] = shape.amount(self.kind)
            total += each.members * amount
        return total

    def note_capacity(self) -> None:
        """Nodes joined, left, failed, came back, were closed or opened."""
        state = self._state
        column = state.fleet.kind_index.get(self.kind)
        self._column = column
        self._capacity = 0 if column is None else int(state.fleet.capacity[:, column].sum())
        nodes = state.show_nodes()
        self._all_in_service = bool(nodes.up.all()) and bool(nodes.open.all())
        self.note()

    def note_idle(self, idle: Idle) -> None:
        """A plan says what the room that it left is kept for."""
        self._reserved = int(idle.reserved[self._column]) if self._column is not None else 0
        self._fragmented = idle.fragmented

    def note(self) -> None:
        """Something changed: remember how things stand from now on; the last word of an instant counts."""
        state, steps = self._state, self.steps
        if (self._reserved or self._fragmented) and not state.count_waiting():
            self._reserved, self._fragmented = 0, False  # whoever room was kept for has gone
        down = vacating = claimed = 0
        if state.list_vacating() or self.handover.claims or self.fading:
            self._catch_up(state.now_us)
            vacating, claimed, self.fading = self.handover.measure()
        if not self._all_in_service:
            down = self._count_down()
        step = (state.now_us, self._capacity, down, self.used, vacating, claimed, self._reserved, self._fragmented)
        if steps[-1][0] == step[0]:
            steps[-1] = step
        else:
            steps.append(step)

    def _count_down(self) -> int:
        """Capacity of failed nodes, and what is idle on cordoned ones."""
        state, column = self._state, self._column
        if column is None:
            return 0
        nodes = state.show_nodes()
        closed = nodes.up & ~nodes.open
        return int(state.fleet.capacity[~nodes.up, column].sum()) + int(nodes.free[closed, column].sum())

    def _catch_up(self, now_us: int) -> None:
        """Steps at the instants since the last one at which somebody was gone from seats they left."""
        for at_us, vacated, unclaimed, closed in self.fading:
            if at_us <= now_us:
                _, capacity, down, used, vacating, claimed, reserved, fragmented = self.steps[-1]
                left = (vacating - vacated, claimed - unclaimed)
                self.steps.append((at_us, capacity, down + closed, used, *left, reserved, fragmented))
        self.fading = [fading for fading in self.fading if fading[0] > now_us]

    def close(self, horizon: tuple[int, int]) -> dict[str, int]:
        """The parts over the horizon. Lives must have booked everything up to its end."""
        first, last = horizon
        self._catch_up(last)
        parts = {"capacity": 0, **self.books, "reserved_idle": 0, "fragmented": 0, "free": 0, "down": 0}
        ends = [step[0] for step in self.steps[1:]] + [last]
        for step, until in zip(self.steps, ends, strict=True):
            at_us, capacity, down, used, vacating, claimed, most, fragmented = step
            span = min(last, until) - max(first, at_us)
            if span <= 0:
                continue
            idle = capacity - down - used - vacating - claimed
            reserved = min(idle, most)
            parts["capacity"] += capacity * span
            parts["fragmented" if fragmented else "free"] += (idle - reserved) * span
            if reserved:
                parts["reserved_idle"] += reserved * span
            if down or vacating or claimed:
                parts["down"] += down * span
                parts["resize"] += vacating * span
                parts["idle_allocated"] += claimed * span
        return parts


def counted_kind(kinds: tuple[str, ...]) -> str:
    """The kind the ledger counts."""
    return DEVICE_KIND if DEVICE_KIND in kinds or not kinds else kinds[0]


def placement_of(names: tuple[str, ...], seats: tuple[Seats, ...]) -> dict[str, int]:
    """Members by node name, in rank order."""
    if len(seats) == 1:  # a node stands once in the seats of a role
        return {names[node]: n for node, n in zip(seats[0].nodes.tolist(), seats[0].counts.tolist(), strict=True)}
    placed: dict[str, int] = {}
    for each in seats:
        for node, count in zip(each.nodes.tolist(), each.counts.tolist(), strict=True):
            placed[names[node]] = placed.get(names[node], 0) + count
    return placed

"""Plain readings of a snapshot that the checks share: domains, labels, amounts, room.

What the engine has a fast way for is done here the slow way, node by node: a mistake that both shared would go unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.engine.invariants.findings import Promise, Violation
from phalanx.model.fleet import Fleet, IntArray, Node
from phalanx.model.gang import Gang, Shape
from phalanx.model.plan import Seats
from phalanx.model.snapshot import Snapshot
from phalanx.model.topology import NODE_LEVEL

#: Rule 7: past its walltime a gang is expected to go on for this long, or a tenth of its age if that is more.
OVERRUN_LEAST_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """Seats that a plan gives to one gang over a stretch of time."""

    number: int
    gang: Gang
    seats: tuple[Seats, ...]
    start_us: int
    end_us: int
    verb: str  # "starts", "is promised", "grows"
    # As long as no device was ever split, amounts say it all and a reservation names no devices yet.
    names_devices: bool = True
    held: frozenset[tuple[int, int]] = frozenset()  # (role, node) on which it gets nothing that it has not already
    ranked: bool = True  # ranks are dealt anew; else newcomers have the last ones
    spares: bool = False  # a repair, which may use spare nodes

    @property
    def story(self) -> str:
        """How a finding about it begins."""
        return f"{self.gang.name} {self.verb}"


def list_alive(alive: npt.NDArray[np.bool_], column: npt.NDArray[np.integer]) -> list[int]:
    """The entries of a column that are not rubbish."""
    return [int(value) for value in column[np.flatnonzero(alive)].tolist()]


def find_rows(snapshot: Snapshot) -> dict[int, int]:
    """Running rows by gang number; rows of nobody are left out."""
    rows = np.flatnonzero(snapshot.running.alive & (snapshot.running.gang >= 0)).tolist()
    return {int(snapshot.running.gang[row]): row for row in rows}


def find_waiting(snapshot: Snapshot) -> dict[int, int]:
    """Pending rows by gang number."""
    return {int(snapshot.pending.gang[row]): row for row in np.flatnonzero(snapshot.pending.alive).tolist()}


Held = dict[tuple[int, int], tuple[int, tuple[int, ...]]]  # (role, node): members and thousandths by device


def held_by(snapshot: Snapshot, row: int) -> Held:
    """What a running row sits on."""
    table, held = snapshot.allocations, {}
    for at in np.flatnonzero(table.alive & (table.running == row)).tolist():
        # By place and not as `Seats`: two sets of seats are compared node by node, whatever their order.
        held[int(table.role[at]), int(table.node[at])] = int(table.count[at]), tuple(table.devices[at].tolist())
    return held


def held_after(seats: Iterable[Seats]) -> Held:
    """The same of the seats that a plan gives."""
    held: Held = {}
    for each in seats:
        for node, count, devices in zip(each.nodes.tolist(), each.counts.tolist(), each.devices.tolist(), strict=True):
            held[each.role, node] = count, tuple(devices)
    return held


def sizes_of(gang: Gang, held: Held) -> list[int]:
    """Members by role."""
    return [sum(count for (role, _), (count, _) in held.items() if role == index) for index in range(len(gang.roles))]


def vector_of(fleet: Fleet, gang: Gang, held: Held) -> IntArray:
    """What some seats take of every kind."""
    total = np.zeros(len(fleet.kinds), dtype=np.int64)
    for (role, _), (count, _) in held.items():
        total += count * np.array(units_of(fleet, gang.roles[role].shape), dtype=np.int64)
    return total


def expected_end(snapshot: Snapshot, row: int) -> int:
    """When a running row is expected to give its room back (rule 7)."""
    start, length, now = int(snapshot.running.start_us[row]), int(snapshot.running.length_us[row]), snapshot.now_us
    # Written anew and not taken from `engine.ends`, so that a change there is noticed here.
    return start + length if start + length > now else now + max(OVERRUN_LEAST_US, (now - start) // 10)


def walk_up(snapshot: Snapshot, queue: int) -> Iterator[int]:
    """A queue and everything above it."""
    while queue >= 0:
        yield queue
        queue = int(snapshot.queues.parent[queue])


def name_of(snapshot: Snapshot, number: int) -> str:
    """A gang as people know it."""
    return snapshot.gangs[number].name


def units_of(fleet: Fleet, shape: Shape) -> list[int]:
    """What one member takes of every kind of the fleet; a kind that no node has makes it more than anybody has."""
    if any(kind not in fleet.kinds for kind, _ in shape.need):
        # Such a gang must never be seated; if it is, the recount falls far below zero.
        return [1 << 40 for _ in fleet.kinds]
    return [shape.amount(kind) for kind in fleet.kinds]


def asked_by(fleet: Fleet, claim: Claim) -> IntArray:
    """What all members of a claim take together."""
    asked = np.zeros(len(fleet.kinds), dtype=np.int64)
    for seats in claim.seats:
        asked += seats.members * np.array(units_of(fleet, claim.gang.roles[seats.role].shape), dtype=np.int64)
    return asked


def domain_of(fleet: Fleet, level: str, node: int) -> tuple[object, ...]:
    """The domain of a node, by its whole path; a node without the label is alone there."""
    path: list[object] = []
    for name in fleet.levels:
        # A number where the label is missing: no label is a number, so that it meets nobody else's.
        path.append(node if name == NODE_LEVEL else fleet.nodes[node].labels.get(name, node))
        if name == level:
            break
    return tuple(path)


def admits(node: Node, shape: Shape) -> bool:
    """Whether labels and taints let such a member onto a node."""
    if not set(node.taints) <= set(shape.tolerate):
        return False
    # A label called `node` goes before the node's name, as in `Fleet`.
    labels = {NODE_LEVEL: node.name, **node.labels}
    return all(labels.get(label) in values for label, values in shape.select)


class Recount:
    """What every node has left, from its capacity and the seats on it."""

    def __init__(self, snapshot: Snapshot, gone: Iterable[int] = ()) -> None:
        """Everybody who runs sits; `gone` are running rows that do not."""
        self.fleet = snapshot.fleet
        # From capacity down, never from the snapshot's own free columns: those are what is to be checked.
        self.free = snapshot.fleet.capacity.copy()
        self.devices = snapshot.fleet.device_capacity.astype(np.int64)
        left = set(gone)
        for row in np.flatnonzero(snapshot.allocations.alive).tolist():
            if int(snapshot.allocations.running[row]) not in left:
                node = int(snapshot.allocations.node[row])
                self.free[node] -= snapshot.allocations.taken[row]
                self.devices[node] -= snapshot.allocations.devices[row]

    def take(self, claim: Claim) -> None:
        """Seat a gang, whether there is room or not."""
        for seats in claim.seats:
            units = np.array(units_of(self.fleet, claim.gang.roles[seats.role].shape), dtype=np.int64)
            for node, count, devices in zip(seats.nodes.tolist(), seats.counts.tolist(), seats.devices, strict=True):
                self.free[node] -= count * units
                # A reservation without named devices takes amounts only; which devices, is chosen when it starts.
                if claim.names_devices:
                    self.devices[node] -= devices

    def occupy(self, node: int, gang: Gang, role: int, count: int, devices: IntArray) -> None:
        """Seat some members of one role on one node."""
        self.free[node] -= count * np.array(units_of(self.fleet, gang.roles[role].shape), dtype=np.int64)
        self.devices[node] -= devices

    def check(self, who: str) -> Iterator[Violation]:
        """No amount and no device below zero."""
        # Everything that falls below zero is told, not only the first: one mistake often shows in several places.
        for node, name in enumerate(self.fleet.names):
            for kind, left in zip(self.fleet.kinds, self.free[node].tolist(), strict=True):
                if left < 0:
                    yield Violation(Promise.CAPACITY, f"{name} gives {-left} units of {kind} too many to {who}")
            for device, left in enumerate(self.devices[node].tolist()):
                if left < 0:
                    yield Violation(Promise.DEVICE, f"device {device} of {name} is given twice to {who}: {left}")

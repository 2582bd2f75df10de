"""Plain readings of a snapshot that the checks share: domains, labels, amounts, room."""

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


@dataclass(frozen=True, slots=True)
class Claim:
    """Seats that a plan gives to one gang over a stretch of time."""

    number: int
    gang: Gang
    seats: tuple[Seats, ...]
    start_us: int
    end_us: int
    verb: str  # "starts" or "is promised"
    # As long as no device was ever split, amounts say it all and a reservation names no devices yet.
    names_devices: bool = True

    @property
    def story(self) -> str:
        """How a finding about it begins."""
        return f"{self.gang.name} {self.verb}"


def list_alive(alive: npt.NDArray[np.bool_], column: npt.NDArray[np.integer]) -> list[int]:
    """The entries of a column that are not rubbish."""
    return [int(value) for value in column[np.flatnonzero(alive)].tolist()]


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
        path.append(node if name == NODE_LEVEL else fleet.nodes[node].labels.get(name, node))
        if name == level:
            break
    return tuple(path)


def admits(node: Node, shape: Shape) -> bool:
    """Whether labels and taints let such a member onto a node."""
    if not set(node.taints) <= set(shape.tolerate):
        return False
    labels = {NODE_LEVEL: node.name, **node.labels}
    return all(labels.get(label) in values for label, values in shape.select)


class Room:
    """What every node has left, from its capacity and the seats on it."""

    def __init__(self, snapshot: Snapshot, gone: Iterable[int] = ()) -> None:
        """Everybody who runs sits; `gone` are running rows that do not."""
        self.fleet = snapshot.fleet
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
                if claim.names_devices:
                    self.devices[node] -= devices

    def check(self, who: str) -> Iterator[Violation]:
        """No amount and no device below zero."""
        for node, name in enumerate(self.fleet.names):
            for kind, left in zip(self.fleet.kinds, self.free[node].tolist(), strict=True):
                if left < 0:
                    yield Violation(Promise.CAPACITY, f"{name} gives {-left} units of {kind} too many to {who}")
            for device, left in enumerate(self.devices[node].tolist()):
                if left < 0:
                    yield Violation(Promise.DEVICE, f"device {device} of {name} is given twice to {who}: {left}")

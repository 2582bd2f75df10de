"""Seats by a first fit of its own, so that whoever draws a busy cluster asks no engine where to put anybody.

Sound, not good: labels, taints, devices and every level that must hold a gang (or a segment of it) are obeyed;
whatever is tried first and fits is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.model.fleet import Fleet, IntArray, MilliArray, Node
from phalanx.model.gang import Gang, Role, Shape
from phalanx.model.plan import Seats
from phalanx.model.topology import Topology

WHOLE = 1000  # one device, or one of anything that is not counted in bytes


@dataclass(slots=True, eq=False)
class FreeColumns:
    """What is free, as columns over the nodes of a fleet."""

    fleet: Fleet
    free: IntArray
    devices: MilliArray

    def copy(self) -> FreeColumns:
        """The same, to try something on."""
        return FreeColumns(self.fleet, self.free.copy(), self.devices.copy())

    def take_one(self, node: int, shape: Shape) -> MilliArray | None:
        """Seat one more member on a node: its devices, or None if it does not fit."""
        columns = self.fleet.kind_index
        if any(kind not in columns or self.free[node, columns[kind]] < units for kind, units in shape.need):
            return None
        devices = _name_devices(shape.amount("gpu"), self.devices[node])
        if devices is None:
            return None
        for kind, units in shape.need:
            self.free[node, columns[kind]] -= units
        self.devices[node] -= devices
        return devices

    def take(self, gang: Gang, seats: Sequence[Seats]) -> None:
        """Everything that a gang has on these seats."""
        for each in seats:
            units = [gang.roles[each.role].shape.amount(kind) for kind in self.fleet.kinds]
            self.free[each.nodes] -= each.counts[:, None] * np.array(units)
            self.devices[each.nodes] -= each.devices


def find_seats(
    gang: Gang, sizes: Sequence[int], room: FreeColumns, order: Sequence[int], *, spread: bool
) -> tuple[Seats, ...] | None:
    """The first seats in this order of nodes that hold the gang at these sizes; `spread`: one member a node."""
    for nodes in _list_domains(room.fleet, gang.topology, order):
        trial: FreeColumns | None = room.copy()
        seats: list[Seats] = []
        for index, (role, size) in enumerate(zip(gang.roles, sizes, strict=True)):
            assert trial is not None
            found, trial = _find_role(trial, index, role, size, nodes, 1 if spread else size)
            if found is None:
                break
            seats.append(found)
        if len(seats) == len(gang.roles):
            return tuple(seats)
    return None


def _find_role(
    room: FreeColumns, index: int, role: Role, size: int, nodes: Sequence[int], most: int
) -> tuple[Seats | None, FreeColumns | None]:
    """Seats of one role inside one domain of its own, and the room that is left."""
    for domain in _list_domains(room.fleet, role.topology, nodes):
        trial = room.copy()
        taken: list[tuple[int, int, MilliArray]] = []
        left = size
        for node in domain:
            got = _fill_node(trial, node, role.shape, min(left, most))
            if got:
                taken.append((node, len(got), np.sum(got, axis=0, dtype=np.int16)))
                left -= len(got)
        if left:
            continue
        held, counts = [each[0] for each in taken], [each[1] for each in taken]
        table = np.array([each[2] for each in taken], dtype=np.int16).reshape(len(taken), room.devices.shape[1])
        return Seats(index, np.array(held, dtype=np.int64), np.array(counts, dtype=np.int64), table), trial
    return None, None


def _fill_node(room: FreeColumns, node: int, shape: Shape, most: int) -> list[MilliArray]:
    """The devices of each member that sits down on a node."""
    got: list[MilliArray] = []
    while len(got) < most and admits(room.fleet.nodes[node], shape):
        devices = room.take_one(node, shape)
        if devices is None:
            break
        got.append(devices)
    return got


def _list_domains(fleet: Fleet, wish: Topology, order: Sequence[int]) -> list[list[int]]:
    """Sets of nodes inside one domain of every level that must hold a gang, or a segment of it."""
    hard = [wish.require, None if wish.segment is None else wish.segment.level]
    level = max((fleet.levels.index(name) for name in hard if name is not None), default=-1)
    if level < 0:
        return [list(order)]
    column = fleet.domains[level]
    numbers = dict.fromkeys(int(column[node]) for node in order)
    return [[node for node in order if int(column[node]) == number] for number in numbers]


def admits(node: Node, shape: Shape) -> bool:
    """Whether labels and taints let such a member in."""
    fine = all(node.labels.get(label) in values for label, values in shape.select)
    return fine and set(node.taints) <= set(shape.tolerate)


def count_empty(node: Node, shape: Shape) -> int:
    """Members on an empty node."""
    if not admits(node, shape):
        return 0
    return min(
        node.resources.get(kind, 0) // WHOLE * (WHOLE // units)
        if kind == "gpu" and units < WHOLE
        else node.resources.get(kind, 0) // units
        for kind, units in shape.need
    )


def _name_devices(units: int, free: MilliArray) -> MilliArray | None:
    """The first devices that one member could have: whole ones, or a share of one."""
    used = np.zeros(len(free), dtype=np.int16)
    if not units:
        return used
    if units < WHOLE:
        fitting = np.flatnonzero(free >= units)[:1]
        used[fitting] = units
        return used if len(fitting) else None
    whole = np.flatnonzero(free == WHOLE)[: units // WHOLE]
    used[whole] = WHOLE
    return used if len(whole) == units // WHOLE else None

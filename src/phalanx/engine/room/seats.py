"""Arithmetic on seats: add, take away, count by role, shrink to a size.

Seats stand in rank order, and everything here keeps it: whoever stays keeps the order among those who stay, and nodes
that join come last. Nothing here looks for room; that is for `placement` and `extend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from phalanx.engine.kernels.slots import Need
from phalanx.engine.room.view import find_need
from phalanx.model.fleet import BoolArray, Fleet, IntArray, MilliArray
from phalanx.model.gang import Gang, Shape
from phalanx.model.plan import Seats
from phalanx.model.resources import DEVICE_KIND, MILLI


def subtract_seats(seats: Seats, gone: Seats) -> Seats:
    """What is left of seats when others, a part of them, are given back. Ranks keep their order."""
    if not len(gone.nodes):
        return seats
    # By node, since both list nodes in an order of their own.
    at = {node: index for index, node in enumerate(seats.nodes.tolist())}
    counts, devices = seats.counts.copy(), seats.devices.copy()
    there = gone.nodes.tolist()
    rows = [row for row, node in enumerate(there) if node in at]
    mine = [at[there[row]] for row in rows]
    counts[mine] = np.maximum(counts[mine] - gone.counts[rows], 0)
    devices[mine] = np.maximum(devices[mine] - gone.devices[rows], 0)
    # A node with nobody left is no seat: masks and reservations are read off the nodes.
    kept = counts > 0
    return Seats(seats.role, seats.nodes[kept], counts[kept], devices[kept])


def add_seats(seats: Seats, more: Seats) -> Seats:
    """Both together; new nodes get the last ranks."""
    if not len(more.nodes):
        return seats
    at = {node: index for index, node in enumerate(seats.nodes.tolist())}
    counts, devices = seats.counts.copy(), seats.devices.copy()
    # Members that join a node in use come right after those on it. Ranks after them move; `extend` looks at that.
    fresh = []
    for row, node in enumerate(more.nodes.tolist()):
        index = at.get(node)
        if index is None:
            fresh.append(row)
        else:
            counts[index] += more.counts[row]
            devices[index] += more.devices[row]
    rows = np.array(fresh, dtype=np.int64)
    return Seats(
        seats.role,
        np.concatenate((seats.nodes, more.nodes[rows])),
        np.concatenate((counts, more.counts[rows])),
        np.concatenate((devices, more.devices[rows])),
    )


def sizes_of(seats: tuple[Seats, ...]) -> tuple[int, ...]:
    """Members by role."""
    return tuple(each.members for each in seats)


def elastic_members(gang: Gang, sizes: tuple[int, ...]) -> int:
    """Members that the speed-up counts: those of the elastic roles."""
    # Rule 6: curves are stated in members of the elastic roles. A parameter server beside them makes nobody quicker.
    if len(sizes) == 1:  # most gangs, and asked of every elastic one in every pass
        return sizes[0] if len(gang.roles[0].sizes.allowed) > 1 else 0
    return sum(size for role, size in zip(gang.roles, sizes, strict=True) if role.sizes.elastic)


def part_of(fleet: Fleet, shape: Shape, seats: Seats, counts: Mapping[int, int]) -> Seats:
    """Some members of some seats: how many of them by node, with the devices they use."""
    need = find_need(fleet, shape)
    # In the order of the seats, whatever order the mapping has: the same input must give the same plan.
    rows = [row for row, node in enumerate(seats.nodes.tolist()) if counts.get(node, 0)]
    nodes = seats.nodes[rows]
    wanted = np.array([counts[node] for node in nodes.tolist()], dtype=np.int64)
    devices = np.zeros((len(rows), seats.devices.shape[1]), dtype=np.int16)
    for index, row in enumerate(rows):
        if need.whole or need.share:
            devices[index] = _some_devices(seats.devices[row], need, int(seats.counts[row]), int(wanted[index]))
    return Seats(seats.role, nodes, wanted, devices)


def _some_devices(held: MilliArray, need: Need, members: int, leaving: int) -> MilliArray:
    """The devices of the last members: whole ones from the last device down, shares likewise."""
    if leaving == members:
        return held
    # From the last device down: which member of a node uses which device is not written down, and devices are given
    # out from the lowest index, so that the last members are most likely to have the last ones.
    left = leaving * (need.whole * MILLI if need.whole else need.share)
    given = np.zeros_like(held)
    for device in range(len(held) - 1, -1, -1):
        take = min(int(held[device]), left)
        if need.share:
            # Only whole shares: three shares of 300 on a device free 300 or 600 of it, never 500.
            take -= take % need.share
        given[device] = take
        left -= take
    return given


def drop_tail(fleet: Fleet, shape: Shape, seats: Seats, members: int) -> Seats:
    """The same without its last ranks."""
    if members <= 0:
        return seats
    counts: dict[int, int] = {}
    left = members
    # From the last node backwards: 4, 4, 4 without five is 4, 3.
    for node, count in zip(seats.nodes.tolist()[::-1], seats.counts.tolist()[::-1], strict=True):
        counts[node] = min(count, left)
        left -= counts[node]
        if not left:
            break
    return subtract_seats(seats, part_of(fleet, shape, seats, counts))


def cover_nodes(nodes: int, reserved: Iterable[Sequence[Sequence[Seats]]]) -> BoolArray:
    """A mask of the nodes that any of these places, each of gangs that start together, are on."""
    mask = np.zeros(nodes, dtype=np.bool_)
    for seats in chain.from_iterable(chain.from_iterable(reserved)):
        mask[seats.nodes] = True
    return mask


def still_free(free: IntArray, device_free: MilliArray, need: Need, seats: Seats) -> Seats:
    """The part of given-back seats that nobody was given in the same plan."""
    # What was given back may have been given away since, whole members or parts of one. What is left of it is what is
    # still free of every kind, in whole members; parts of one are `list_crumbs`.
    room = [free[seats.nodes, column] // amount for column, amount in zip(need.columns, need.amounts, strict=True)]
    counts = np.minimum.reduce([seats.counts, *room])
    devices = seats.devices
    if need.whole or need.share:
        # Of the very devices that were given back; others that are free on the node are none of these seats.
        devices = np.minimum(seats.devices, np.maximum(device_free[seats.nodes], 0))
        each = need.whole * MILLI if need.whole else need.share
        counts = np.minimum(counts, devices.sum(axis=1) // each)
        devices = _trim_devices(devices, counts, each)
    kept = counts > 0
    return Seats(seats.role, seats.nodes[kept], counts[kept], devices[kept])


def list_crumbs(
    fleet: Fleet, free: IntArray, device_free: MilliArray, need: Need, given: Seats, kept: Seats
) -> list[tuple[Shape, Seats]]:
    """What is free of given-back seats beside their whole members: the rest of a member of whom somebody has a part.

    As seats of shapes that such a rest has: single devices, shares of one, and everything else together.
    """
    by_shape: dict[Shape, list[tuple[int, int, MilliArray]]] = {}
    whole = {node: (count, kept.devices[row]) for row, (node, count) in enumerate(_pairs(kept))}
    for row, (node, count) in enumerate(_pairs(given)):
        # Two GPUs per member, and somebody was given one of them: no whole member is free, and one GPU is.
        stays, held = whole.get(node, (0, np.zeros_like(given.devices[row])))
        # All of it is still free, or was handed on whole: there is no rest.
        if stays == count:
            continue
        # What is free beyond the whole members, but no more than was given back: the rest was free before.
        devices = np.clip(device_free[node] - held, 0, given.devices[row] - held)
        units = np.clip(free[node] - stays * need.vector, 0, (count - stays) * need.vector)
        for shape, members, taken in _split(fleet, units, devices if need.whole or need.share else devices * 0):
            by_shape.setdefault(shape, []).append((node, members, taken))
    return [(shape, _as_seats(rows)) for shape, rows in by_shape.items()]


def _pairs(seats: Seats) -> zip[tuple[int, int]]:
    return zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True)


def _split(fleet: Fleet, units: IntArray, devices: MilliArray) -> list[tuple[Shape, int, MilliArray]]:
    """Amounts on one node as members of simple shapes."""
    found: list[tuple[Shape, int, MilliArray]] = []
    # Whole devices as members of one device each, every share as a member of its own size: a shape asks for one amount
    # of devices, so that a mixture of both cannot be one shape.
    untouched = devices == MILLI
    if untouched.any():
        found.append((Shape(((DEVICE_KIND, MILLI),)), int(untouched.sum()), devices * untouched))
    for device in np.flatnonzero((devices > 0) & ~untouched).tolist():
        only = np.zeros_like(devices)
        only[device] = devices[device]
        found.append((Shape(((DEVICE_KIND, int(devices[device])),)), 1, only))
    loose = [(kind, int(units[column])) for kind, column in fleet.kind_index.items() if kind != DEVICE_KIND]
    rest = tuple(sorted((kind, amount) for kind, amount in loose if amount > 0))
    if rest:
        found.append((Shape(rest), 1, np.zeros_like(devices)))
    return found


def _as_seats(rows: list[tuple[int, int, MilliArray]]) -> Seats:
    """Seats on some nodes; of several rests on one node with the same shape, all."""
    # By node index: these seats belong to nobody's ranks, and the same input must give the same plan.
    nodes = sorted({node for node, _, _ in rows})
    counts = [sum(count for other, count, _ in rows if other == node) for node in nodes]
    devices = [np.sum([taken for other, _, taken in rows if other == node], axis=0) for node in nodes]
    table = np.array(devices, dtype=np.int16)
    return Seats(0, np.array(nodes, dtype=np.int64), np.array(counts, dtype=np.int64), table)


def _trim_devices(devices: MilliArray, counts: IntArray, each: int) -> MilliArray:
    """Of every row's devices only as much as so many members use, from the first device on."""
    wanted = (counts * each)[:, None]
    # Devices (1000, 1000, 500) and 1500 wanted: 1000 of the first, 500 of the second, nothing of the third.
    before = devices.cumsum(axis=1) - devices
    trimmed: MilliArray = np.clip(wanted - before, 0, devices).astype(np.int16)
    return trimmed

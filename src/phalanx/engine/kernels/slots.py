"""How many members of one shape each node can hold.

This is the question asked most often, so it is one pass over columns. Members of a shape are
identical, hence the answer per node is a number and the answer per domain a sum.

Devices: a share of a device (under 1000 thousandths) counts room device by device, since it may
not be smeared over two; a whole request needs devices that nobody shares. As long as no device of
the cluster was ever split, free amounts say the same and the device table need not be read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phalanx.model.fleet import BoolArray, Fleet, IntArray, MilliArray
from phalanx.model.gang import Shape
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.rules import Mark


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """A shape against one fleet."""

    shape: Shape
    columns: tuple[int, ...]  # kinds asked for
    amounts: tuple[int, ...]  # units of each, beside `columns`
    vector: IntArray  # the same over all kinds
    units: tuple[int, ...]  # ... as plain numbers
    share: int  # thousandths of one device if it asks for part of one, else 0
    whole: int  # whole devices asked for
    missing: str | None  # a kind that no node of the fleet has
    unasked: tuple[int, ...]  # kinds not asked for, devices first
    allowed: BoolArray  # nodes whose labels and taints admit it
    social: bool  # whether where others are bears on it, or the other way round
    marks: tuple[Mark, ...]  # what others have to know of it


def compile_need(fleet: Fleet, shape: Shape) -> Need:
    """Lay a shape out over the kinds of a fleet."""
    vector = np.zeros(len(fleet.kinds), dtype=np.int64)
    missing = None
    for kind, units in shape.need:
        if kind in fleet.kind_index:
            vector[fleet.kind_index[kind]] = units
        else:
            missing = missing or kind
    device = shape.amount(DEVICE_KIND)
    columns = tuple(int(column) for column in np.flatnonzero(vector))
    return Need(
        shape=shape,
        columns=columns,
        amounts=tuple(int(vector[column]) for column in columns),
        vector=vector,
        units=tuple(vector.tolist()),
        # A share and whole devices exclude each other: 1.5 devices is bad input and never gets here (rule 15, shares).
        share=device if device < MILLI else 0,
        whole=device // MILLI,
        missing=missing,
        unasked=tuple(column for column in range(len(vector)) if not vector[column]),
        allowed=fleet.allowed(shape.select, shape.tolerate),
        social=shape.social,
        marks=shape.list_marks(),
    )


def compute_slots(need: Need, free: IntArray, device_free: MilliArray, device_column: int, *, shared: bool) -> IntArray:
    """Members of this shape that each of these nodes can hold, labels and service left aside."""
    if need.missing is not None:
        return np.zeros(len(free), dtype=np.int64)
    slots: IntArray | None = None
    for column, amount in zip(need.columns, need.amounts, strict=True):
        if column == device_column and need.share:
            # Device by device: of 600 and 500 thousandths left, one share of 550 fits, though 1100 would be two.
            room = (device_free // np.int16(need.share)).sum(axis=1, dtype=np.int64)
        elif column == device_column and shared:
            # Only untouched devices: four halves free are no two devices.
            room = (device_free == MILLI).sum(axis=1, dtype=np.int64) // need.whole
        else:
            room = free[:, column] // amount
        slots = room if slots is None else np.minimum(slots, room)
    if slots is None:  # a member that needs nothing fits anywhere, any number of times
        return np.full(len(free), 1 << 30, dtype=np.int64)
    return slots


def count_slots_reference(need: Need, free: list[int], devices: list[int], device_column: int) -> int:
    """The plain reading of `compute_slots` for one node: put members in one by one until one does not fit."""
    free, devices, count = list(free), list(devices), 0
    while count < 1 << 12 and _seat_one(need, free, devices, device_column):
        count += 1
    return count


def _seat_one(need: Need, free: list[int], devices: list[int], device_column: int) -> bool:
    """Seat one more member on a node, changing its room; False if it does not fit."""
    if need.missing is not None:
        return False
    asked = [(c, a) for c, a in zip(need.columns, need.amounts, strict=True) if c != device_column]
    fitting = [d for d, milli in enumerate(devices) if milli >= (need.share or MILLI)]
    wanted = 1 if need.share else need.whole
    if any(free[column] < amount for column, amount in asked) or len(fitting) < wanted:
        return False
    for column, amount in asked:
        free[column] -= amount
    for device in fitting[:wanted]:
        devices[device] -= need.share or MILLI
    return True

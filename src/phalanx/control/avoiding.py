"""Other devices of the same node for a gang that was given some which somebody is still leaving.

To a plan a device is free as soon as its user has been told to go; that may take minutes of grace. Where as many others
are free of everybody, whoever starts is better off there. Amounts do not change, so that nobody else's start does.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from phalanx.control.state import State
from phalanx.engine.kernels.devices import choose_devices
from phalanx.engine.lifecycle import Phase
from phalanx.engine.room.view import find_need
from phalanx.model.fleet import MilliArray
from phalanx.model.plan import Seats
from phalanx.model.resources import MILLI


def sit_beside(state: State, number: int, node: int, avoided: Collection[int]) -> tuple[Seats, ...] | None:
    """Seat a gang, all of it on one node, on devices that are not to be avoided; None if it stays where it is."""
    seats = state.seats_of(number)
    if state.phase_of(number) is not Phase.RUNNING or not any(_uses(each, avoided) for each in seats):
        return None
    # What is free, and what it has itself, less what is avoided: of these the engine's own choice is taken.
    free = state.show_nodes().device_free[node].copy()
    for each in seats:
        free += each.devices.sum(axis=0, dtype=np.int16)
    free[list(avoided)] = 0
    found = []
    for each in seats:
        other = _choose(state, number, each, free)
        if other is None:
            return None
        free -= other.devices.sum(axis=0, dtype=np.int16)
        found.append(other)
    moved = tuple(found)
    state.move_to(number, moved)
    return moved


def _uses(seats: Seats, avoided: Collection[int]) -> bool:
    return bool(seats.devices[:, list(avoided)].any())


def _choose(state: State, number: int, seats: Seats, free: MilliArray) -> Seats | None:
    need = find_need(state.fleet, state.gangs[number].roles[seats.role].shape)
    if not need.whole:
        # Parts of a device are packed onto as few as possible: elsewhere would not be as good.
        return None if need.share else seats
    if int((free == MILLI).sum()) < int(seats.members) * need.whole:
        return None
    devices = choose_devices(state.fleet, need, seats.nodes, seats.counts, free[None])
    return Seats(seats.role, seats.nodes, seats.counts, devices)

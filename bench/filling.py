"""A shared GPU cluster filled until nothing more fits: the openb log as a question of packing.

Nodes and members come from two tables (`phalanx.frontends.sim.traces.openb`). The published study fills the
cluster until a share of its devices was asked for: all members in a shuffled order, then copies drawn at random.
Nobody leaves, and who finds no place is gone. Each member is a gang of one, decided by the engine like any other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from phalanx.control.spec.gangs import SOLE_ROLE
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.resources import DEVICE_KIND
from phalanx.policy import named

_BATCH: Final = 500  # members submitted between two cycles; since nobody leaves, any number gives the same places


def draw_arrivals(shapes: Sequence[Shape], milli: float, seed: int) -> list[Shape]:
    """All members shuffled, then copies at random, until so many thousandths of devices were asked for."""
    rng = random.Random(seed)
    shuffled = rng.sample(shapes, len(shapes))
    arrivals: list[Shape] = []
    asked = 0
    while asked < milli:
        shape = shuffled[len(arrivals)] if len(arrivals) < len(shuffled) else rng.choice(shapes)
        arrivals.append(shape)
        asked += shape.amount(DEVICE_KIND)
    return arrivals


def fill(fleet: Fleet, arrivals: Sequence[Shape]) -> State:
    """Give every member its chance in order; the cluster as it is in the end."""
    state, policy = State(fleet), named("pod-fifo")
    for at in range(0, len(arrivals), _BATCH):
        roles = [Role(SOLE_ROLE, Sizes((1,)), shape) for shape in arrivals[at : at + _BATCH]]
        numbers = [state.submit(Gang(str(at + index), (role,))) for index, role in enumerate(roles)]
        plan = schedule(state.borrow(), policy)
        state.apply(plan)
        started = {decision.gang for decision in plan.decisions}
        for number in numbers:
            if number not in started:
                state.cancel(number)
    return state


def measure_allocated(fleet: Fleet, shapes: Sequence[Shape], arrived: float, seed: int) -> float:
    """Percent of the devices that are taken once `arrived` times as many were asked for."""
    column = fleet.device_column
    capacity = int(fleet.capacity[:, column].sum())
    state = fill(fleet, draw_arrivals(shapes, capacity * arrived, seed))
    return 100 * (1 - int(state.nodes.free[:, column].sum()) / capacity)

"""Places and times for a whole queue: every pending gang gets a reservation on a full cluster."""

from __future__ import annotations

import random

from bench.measure import Measured, cpu_times, median
from bench.worlds import HOUR_US, make_fleet, make_gang, make_shape, start_all
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.policy import named

NAME = "conservative"
WHAT = "conservative plan, 1,156 pending gangs of 2–64 nodes, 1,000 full nodes, places for all"
TARGET_S = 1.0
PENDING = 1_156
MINUTE_US = HOUR_US // 60


def run(*, quick: bool) -> Measured:
    """One plan; walltimes between 1 and 48 hours keep it inside 30 days."""
    rng = random.Random(4)
    state = make_full(rng)
    sizes = draw_sizes(rng, PENDING)
    for at, size in enumerate(sizes):
        state.submit(make_gang(f"p{at}", make_shape(8), size, walltime_us=rng.randint(60, 48 * 60) * MINUTE_US))
    snapshot, policy = state.snapshot(), named("conservative")
    times = cpu_times(lambda: schedule(snapshot, policy), 1 if quick else 5)
    plan = schedule(snapshot, policy)
    promised = sum(len(reservation.gangs) for reservation in plan.reservations)
    assert promised + len(plan.decisions) == PENDING, "not everybody got a place"
    days = max(reservation.end_us for reservation in plan.reservations) / (24 * HOUR_US)
    note = f"{len(state.running)} running, mean {sum(sizes) / PENDING:.1f} nodes, {days:.1f} days ahead"
    return Measured(f"{median(times):.2f} CPU-s", f"≤ {TARGET_S:g} CPU-s", median(times) <= TARGET_S, note)


def make_full(rng: random.Random) -> State:
    """A thousand nodes, all taken by gangs that end at different times."""
    state = State(make_fleet((4, 10, 25), ("block", "rack")))
    at = 0
    while state.nodes.free[:, state.fleet.device_column].any():
        for size in draw_sizes(rng, 32):
            state.submit(make_gang(f"r{at}", make_shape(8), size, walltime_us=rng.randint(60, 48 * 60) * MINUTE_US))
            at += 1
        start_all(state)
    return state


def draw_sizes(rng: random.Random, count: int) -> list[int]:
    """Two to 64 nodes, many small and few large, about 10.7 in the mean."""
    sizes = range(2, 65)
    return rng.choices(sizes, weights=[size**-1.5 for size in sizes], k=count)

"""Members decided per CPU-second: gangs of 64 on 5,000 nodes."""

from __future__ import annotations

from bench.measure import Measured, cpu_times, median
from bench.worlds import HOUR_US, make_fleet, make_gang, make_partly_busy, make_shape
from phalanx.engine.cycle import schedule
from phalanx.model.topology import Topology
from phalanx.policy import named

NAME = "members"
WHAT = "members decided per CPU-second, gangs of 64, 5,000 nodes"
TARGET = 100_000
MEMBERS = 64


def run(*, quick: bool) -> Measured:
    """One cycle that starts 400 gangs, which fill most of what is free; a rack is preferred."""
    state = make_partly_busy(make_fleet((5, 20, 50), ("block", "rack")), 0.30, seed=2)
    shape, gangs = make_shape(1, 8, 64), 400
    for at in range(gangs):
        topology = Topology(prefer="rack")
        state.submit(make_gang(f"g{at}", shape, MEMBERS, topology=topology, walltime_us=HOUR_US + at))
    snapshot, policy = state.snapshot(), named("easy")
    times = cpu_times(lambda: schedule(snapshot, policy), 3 if quick else 9)
    started = len(schedule(snapshot, policy).decisions)
    rate = started * MEMBERS / median(times)
    note = f"{started} of {gangs} gangs in one cycle, {median(times) / started * 1e3:.2f} ms a gang"
    return Measured(f"{rate:,.0f} /s", f"≥ {TARGET:,} /s", rate >= TARGET, note)

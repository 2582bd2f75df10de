"""A full cycle over 100,000 pending gangs on a cluster that is 95 % full, with every reason filled."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

from bench.measure import Measured, median, nearest_rank
from bench.worlds import SECOND_US, draw_gangs, draw_shapes, make_fleet, start_all
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.gang import Gang
from phalanx.model.plan import Plan
from phalanx.model.queue import Queue
from phalanx.policy import named

NAME = "cycle"
WHAT = "cycle, 100,000 pending (500 shapes, 50 queues), 5,000 nodes 95 % full, reasons filled"
P50_S, P99_S = 0.5, 1.5
FULL = 0.95


def run(*, quick: bool) -> Measured:
    """Cycle after cycle: some gangs end, as many as started arrive, one node is cordoned on the way."""
    pending, cycles = (20_000, 4) if quick else (100_000, 24)
    rng = random.Random(3)
    state, arrivals = make_world(rng)
    for gang in itertools.islice(arrivals, pending):
        state.submit(gang)
    times, starts = [], []
    for at in range(cycles):
        end_some(state, rng)
        if at == cycles // 2:
            state.set_open(rng.randrange(len(state.fleet)), open_=False)
        seconds, plan = time_cycle(state)
        assert plan.verdicts is not None
        times.append(seconds)
        starts.append(len(plan.decisions))
        state.apply(plan)
        for gang in itertools.islice(arrivals, len(plan.decisions)):
            state.submit(gang)
        state.now_us += 60 * SECOND_US
    p50, p99 = median(times), nearest_rank(times, 99)
    note = (
        f"{cycles} cycles, {median(starts):.0f} starts each, {len(state.running)} running; first cycle {times[0]:.2f} s"
    )
    note += f"; only {pending:,} pending" if quick else ""
    return Measured(
        f"p50 {p50:.2f} s, p99 {p99:.2f} s", f"p50 {P50_S} s, p99 {P99_S} s", p50 <= P50_S and p99 <= P99_S, note
    )


def make_world(rng: random.Random) -> tuple[State, Iterator[Gang]]:
    """A full cluster, fifty queues of which every second has a ceiling that binds, and more to come."""
    fleet = make_fleet((4, 25, 50), ("block", "rack"))
    names = [f"q{at:02}" for at in range(50)]
    parts = [Queue(f"part{at}") for at in range(5)]
    limit = {"gpu": 700_000}
    queues = [Queue(name, parent=f"part{at % 5}", limit=limit if at % 2 else {}) for at, name in enumerate(names)]
    state = State(fleet, [*parts, *queues])
    arrivals = draw_gangs(draw_shapes(500, rng), names, rng, "g")
    while free_share(state) > 1 - FULL:
        for gang in itertools.islice(arrivals, 500):
            state.submit(gang)
        start_all(state)
        state.now_us += 60 * SECOND_US
    return state, arrivals


def free_share(state: State) -> float:
    """Share of the devices that nobody holds."""
    column = state.fleet.device_column
    return float(state.nodes.free[:, column].sum() / state.fleet.capacity[:, column].sum())


def end_some(state: State, rng: random.Random) -> None:
    """Let gangs end, picked at random, until the cluster is as full as it should be."""
    running = state.running.columns["gang"][state.running.alive].tolist()
    rng.shuffle(running)
    while free_share(state) < 1 - FULL:
        state.complete(running.pop())


def time_cycle(state: State) -> tuple[float, Plan]:
    """CPU seconds from a given snapshot to the plan."""
    snapshot, policy = state.borrow(), named("easy")
    before = time.process_time()
    plan = schedule(snapshot, policy, explain=True)
    return time.process_time() - before, plan

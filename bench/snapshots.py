"""A snapshot with everything copied: 10,000 nodes, 100,000 allocations."""

from __future__ import annotations

import numpy as np

from bench.measure import Disagreement, Measured, cpu_times, median
from bench.worlds import HOUR_US, make_fleet, make_gang, make_shape
from phalanx.control.state import State
from phalanx.model.plan import Bind, Plan, Seats
from phalanx.model.snapshot import Snapshot

NAME = "snapshot"
WHAT = "snapshot of 10,000 nodes / 100,000 allocations, with a write to every array"
TARGET_MS = 10.0
NODES, LAYERS, MEMBERS = 10_000, 10, 100


def run(*, quick: bool) -> Measured:
    """Time a snapshot together with the writes after it, which must not reach it."""
    state = make_busy()
    kept: list[Snapshot] = []  # all of them stay alive, so that every copy needs fresh memory
    times = [seconds * 1e3 for seconds in cpu_times(lambda: kept.append(take_and_write(state)), 5 if quick else 20)]
    check_apart(state)
    size = sum(array.nbytes for array in arrays_of(kept[0])) / 1e6
    note = f"{len(state.allocations):,} allocations, {size:.1f} MB copied"
    return Measured(f"{median(times):.2f} ms", f"≤ {TARGET_MS:g} ms", median(times) <= TARGET_MS, note)


def make_busy() -> State:
    """Ten layers of gangs over all nodes: each gang of 100 members on 100 nodes is 100 allocations."""
    state = State(make_fleet((NODES // 50, 50), ("rack",)))
    binds = []
    for layer in range(LAYERS):
        shape = make_shape(1, 2, 16) if layer < 8 else make_shape(0, 2, 16)
        for at in range(0, NODES, MEMBERS):
            number = state.submit(make_gang(f"g{layer}-{at}", shape, MEMBERS, walltime_us=HOUR_US))
            devices = np.zeros((MEMBERS, state.nodes.device_free.shape[1]), dtype=np.int16)
            if layer < 8:
                devices[:, layer] = 1000
            seats = Seats(0, np.arange(at, at + MEMBERS), np.ones(MEMBERS, dtype=np.int64), devices)
            binds.append(Bind(number, (seats,), HOUR_US))
    state.apply(Plan(decisions=tuple(binds)))
    return state


def take_and_write(state: State) -> Snapshot:
    """A snapshot, and after it a write to every array that it shares."""
    snapshot = state.snapshot()
    write_all(state)
    return snapshot


def write_all(state: State) -> None:
    """Any event lets go of what a snapshot shares; then one entry of each array is written."""
    state.set_open(0, open_=True)
    for array in arrays_of(state.borrow()):
        if array.size:
            array.flat[0] = array.flat[0]


def check_apart(state: State) -> None:
    """Spoil the state after a snapshot, and find the snapshot as it was."""
    shared = arrays_of(state.snapshot())
    copies = [array.copy() for array in shared]
    state.set_open(0, open_=True)
    for array in arrays_of(state.borrow()):
        array[...] = ~array if array.dtype == np.bool_ else array + 1
    if not all(np.array_equal(old, new) for old, new in zip(copies, shared, strict=True)):
        raise Disagreement("a write reached a snapshot that was taken before it")


def arrays_of(snapshot: Snapshot) -> list[np.ndarray]:
    """The arrays of a snapshot that change over time."""
    tables = (snapshot.pending, snapshot.running, snapshot.allocations)
    nodes = snapshot.nodes
    columns = [getattr(table, name) for table in tables for name in table.__slots__]
    usage = [snapshot.queues.usage, snapshot.users.usage]
    return [nodes.free, nodes.device_free, nodes.up, nodes.open, *columns, *usage]

"""One 1,000-member gang on 10,000 nodes: three levels above the node, one required, one preferred."""

from __future__ import annotations

from bench.measure import Measured, cpu_times, median
from bench.worlds import HOUR_US, make_fleet, make_gang, make_partly_busy, make_shape
from phalanx.engine.cycle import schedule
from phalanx.model.plan import Bind
from phalanx.model.topology import Topology
from phalanx.policy import named

NAME = "decide"
WHAT = "one 1,000-member gang, 10,000 nodes, require + prefer over 3 levels, plan emitted"
TARGET_MS = 1.5


def run(*, quick: bool) -> Measured:
    """The snapshot is given; 30 % of the nodes are partly busy."""
    state = make_partly_busy(make_fleet((4, 10, 10, 25), ("zone", "block", "rack")), 0.30, seed=1)
    gang = make_gang(
        "big",
        make_shape(1, 8, 64),
        1000,
        topology=Topology(require="zone", prefer="rack"),
        walltime_us=HOUR_US,
    )
    number = state.submit(gang)
    snapshot, policy = state.snapshot(), named("easy")
    first = cpu_times(lambda: schedule(snapshot, policy), 1, warm_up=0)[0] * 1e3
    times = [seconds * 1e3 for seconds in cpu_times(lambda: schedule(snapshot, policy), 20 if quick else 100)]
    (bind,) = schedule(snapshot, policy).decisions
    assert isinstance(bind, Bind)
    assert (bind.gang, bind.members) == (number, 1000)
    note = f"on {len(bind.seats[0].nodes)} nodes; first call on a new fleet {first:.1f} ms"
    return Measured(f"{median(times):.2f} ms", f"≤ {TARGET_MS} ms", median(times) <= TARGET_MS, note)

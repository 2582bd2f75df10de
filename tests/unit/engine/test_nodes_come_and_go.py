"""Machines that join and leave while gangs wait, run and hold promises."""

import pytest

from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import check_plan, check_snapshot
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.fleet import Node
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, make_state, occupy

KEEP = named("conservative")


def test_the_last_node_may_leave():
    """A cluster without nodes has no kinds either; it is still a cluster."""
    gang = make_gang("A", "1 gpu=1")
    events = (TimedEvent(5 * SECOND_US, "remove", node="n0"),)
    scenario = Scenario(make_nodes("1 gpu=1"), (), (gang,), (TrueRun(10 * SECOND_US),), events=events)
    assert [result.state for result in simulate(scenario, "easy").gangs] == ["infeasible"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_promise_survives_a_node_with_more_devices_and_more_kinds(shared):
    """Kinds and devices are columns: a new node makes every table wider, the promised seats' too."""
    state = make_state("1 gpu=2", gangs=[make_gang("A", "2 gpu=1", walltime=10)])
    if shared:
        state.submit(make_gang("S", "1 gpu=0.5", hold=True))
    occupy(state, 0, [1000, 0], walltime=100)
    state.apply(schedule(state.snapshot(), KEEP))
    state.add_node(Node("wide", {"gpu": 8000, "nic": 1000}, taints=("spot",)))
    snapshot = state.snapshot()
    plan = schedule(snapshot, KEEP)
    assert check_snapshot(snapshot) == []
    assert check_plan(snapshot, plan, KEEP) == []
    assert [reservation.start_us for reservation in plan.reservations] == [100 * SECOND_US]

"""Gangs of several roles where the calendar or a reservation is in play."""

import pytest

from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import check_plan
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, occupy
from phalanx.testing.exhaustive import find_any, read_board

EASY, KEEP = named("easy"), named("conservative")


@pytest.mark.parametrize(
    "policy", [EASY, KEEP, named("easy", {"reservations": 2})], ids=["easy", "conservative", "two"]
)
def test_roles_get_devices_that_are_free(policy):
    """No device was ever split, so room is counted in amounts; who gets which device still matters."""
    state = make_state("1 gpu=4 cpu=4", gangs=[make_gang("A", "1 gpu=1", "1 cpu=1", walltime=10)])
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    snapshot = state.snapshot()
    plan = schedule(snapshot, policy)
    assert len(plan.decisions) == 1
    assert check_plan(snapshot, plan, policy) == []


@pytest.mark.parametrize("policy", [EASY, KEEP], ids=["easy", "conservative"])
def test_roles_are_not_promised_devices_that_are_still_in_use(policy):
    """Greedy fails here, so the exact search decides, and it must count what is free then, not what the nodes have."""
    crowd = make_gang("A", "2 gpu=2", "1 gpu=3", walltime=10)
    state = make_state("1 gpu=4 cpu=4", "1 gpu=3 cpu=4", gangs=[crowd])
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    occupy(state, 1, [1000, 0, 0], walltime=50)
    assert find_any(read_board(state), [crowd]) is None
    snapshot = state.snapshot()
    told = schedule(snapshot, policy, explain=True)
    assert check_plan(snapshot, told, policy) == []
    assert [reservation.start_us for reservation in told.reservations] == [100 * SECOND_US]


@pytest.mark.parametrize("policy", [KEEP, named("easy", {"reservations": 2})], ids=["conservative", "two"])
def test_roles_do_not_start_on_devices_that_are_in_use(policy):
    crowd = make_gang("A", "2 gpu=2", "1 gpu=3", walltime=10)
    state = make_state("1 gpu=4 cpu=4", "1 gpu=3 cpu=4", gangs=[crowd])
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    snapshot = state.snapshot()
    plan = schedule(snapshot, policy)
    assert plan.decisions == ()
    assert check_plan(snapshot, plan, policy) == []


@pytest.mark.parametrize("roles", [("2 gpu=1", "2 gpu=1"), ("2 gpu=1", "1 gpu=1", "1 gpu=1")])
def test_a_filler_of_several_roles_sits_whole_beside_a_reservation(roles):
    """Its first role takes room that the reservation leaves alone; the next must not count that as owed to somebody."""
    state = make_state("1 gpu=2 model:h", "1 gpu=2", "1 gpu=3")
    occupy(state, 0, [1000, 0, 0], walltime=100)
    state.submit(make_gang("H", "1 gpu=2 model:h", walltime=10))
    filler = state.submit(make_gang("F", *roles, walltime=20))
    snapshot = state.snapshot()
    plan = schedule(snapshot, EASY)
    assert [bind.gang for bind in plan.decisions] == [filler]
    assert check_plan(snapshot, plan, EASY) == []

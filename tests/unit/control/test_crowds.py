"""Amounts of a node that others hold: they count, and are nobody's gang."""

from __future__ import annotations

import pytest

from phalanx.control.clone import clone_state
from phalanx.control.dump import dump_state
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet, Node
from phalanx.policy import POLICIES
from phalanx.testing.builders import make_gang

EASY = POLICIES["easy"]


def make_state(*rooms: int) -> State:
    return State(Fleet([Node(f"n{at}", {"cpu": room * 1000}) for at, room in enumerate(rooms)], ()))


def free(state):
    return state.snapshot().nodes.free[:, 0].tolist()


def test_what_others_hold_is_not_free_and_what_they_leave_is():
    state = make_state(8, 8)
    assert state.crowd(0, {"cpu": 5_000})
    assert free(state) == [3_000, 8_000]
    assert state.crowd(0, {"cpu": 2_000}), "the sum, and not one more of them"
    assert free(state) == [6_000, 8_000]
    assert state.crowd(0, {})
    assert free(state) == [8_000, 8_000]
    assert state.is_empty()


def test_a_gang_waits_for_what_others_hold():
    state = make_state(8)
    state.crowd(0, {"cpu": 5_000})
    number = state.submit(make_gang("A", "4 cpu=1"))
    assert schedule(state.snapshot(), EASY).decisions == ()
    state.crowd(0, {"cpu": 4_000})
    assert [decision.gang for decision in schedule(state.snapshot(), EASY).decisions] == [number]


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"fcfs"}))
@pytest.mark.parametrize("kinds", [1, 2])
def test_who_waits_for_others_of_whom_nobody_knows_until_when_holds_up_nobody(policy, kinds):
    state = make_state(8, 8)
    state.crowd(0, {"cpu": 1_000})
    state.submit(make_gang("big", "2 cpu=8"))
    small = [state.submit(make_gang(f"small{at}", f"1 cpu={4 + at}")) for at in range(kinds)]
    plan = schedule(state.snapshot(), POLICIES[policy])
    assert [decision.gang for decision in plan.decisions] == small


def test_who_waits_for_ours_and_not_for_others_has_its_reservation():
    state = make_state(8, 8)
    state.crowd(0, {"cpu": 1_000})
    state.submit(make_gang("runs", "1 cpu=8", walltime=100))
    state.apply(schedule(state.snapshot(), EASY))
    state.submit(make_gang("big", "2 cpu=7"))
    state.submit(make_gang("long", "1 cpu=4"))
    short = state.submit(make_gang("short", "1 cpu=4", walltime=50))
    assert [each.gang for each in schedule(state.snapshot(), EASY).decisions] == [short]


def test_nothing_is_below_zero_where_more_is_used_than_there_is():
    state = make_state(8)
    number = state.submit(make_gang("A", "4 cpu=1"))
    state.apply(schedule(state.snapshot(), EASY))
    assert not state.crowd(0, {"cpu": 6_000})
    assert free(state) == [0]
    state.complete(number)
    assert state.crowd(0, {"cpu": 6_000}), "said again when somebody has left"
    assert free(state) == [2_000]


def test_kinds_that_no_node_has_are_nothing_to_take():
    state = make_state(8)
    assert state.crowd(0, {"example.com/thing": 1_000, "cpu": 1_000})
    assert free(state) == [7_000]


def test_they_stay_where_nodes_join():
    state = make_state(8)
    state.crowd(0, {"cpu": 5_000})
    state.add_node(Node("n1", {"cpu": 4_000, "memory": 7}))
    assert state.snapshot().nodes.free.tolist() == [[3_000, 0], [4_000, 7]]
    state.crowd(0, {"cpu": 1_000})
    assert state.snapshot().nodes.free.tolist() == [[7_000, 0], [4_000, 7]]


def test_a_copy_has_its_own():
    state = make_state(8)
    state.crowd(0, {"cpu": 5_000})
    twin = clone_state(state)
    twin.crowd(0, {})
    assert (free(twin), free(state)) == ([8_000], [3_000])


def test_a_dump_is_without_them():
    state = make_state(8)
    state.crowd(0, {"cpu": 5_000})
    assert dump_state(state)["vacating"] == []


@pytest.mark.parametrize(("since_us", "first"), [(0, "B"), (10**9, "A")])
def test_a_gang_that_stands_for_an_older_one_has_its_age(since_us, first):
    state = make_state(1)
    state.advance_to(10**6)
    state.submit(make_gang("A", "1 cpu=1"))
    number = state.submit(make_gang("B", "1 cpu=1"))
    state.backdate(number, since_us)
    (decision,) = schedule(state.snapshot(), EASY).decisions
    assert state.gangs[decision.gang].name == first

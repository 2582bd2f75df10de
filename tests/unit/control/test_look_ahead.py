"""The one look-ahead: when it stops, what it believes, and what it tells of starts and devices."""

from __future__ import annotations

import pytest

from phalanx.control.belief import AS_STATED, RunTimes
from phalanx.control.forward import Arrival, Happens
from phalanx.control.look_ahead import FOREVER, Budget, Outlook, StartCause, Until, look_ahead
from phalanx.control.policies import find_policy
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.gang import SnapshotHabit
from phalanx.testing.builders import make_gang, make_state

S = 10**6
POLICY = find_policy("fcfs")


def line_up(*names: str, nodes: int = 1, started: int = 1) -> State:
    """Gangs of a whole node each, ten seconds long, of which the first run since now."""
    state = make_state(f"{nodes} gpu=4")
    for name in names:
        state.submit(make_gang(name, "4 gpu=1", walltime=10))
        if len(state.gangs) == started:
            state.apply(schedule(state.borrow(), POLICY))
    return state


def look(state: State, runs: RunTimes = AS_STATED, until: Until = FOREVER, **more) -> Outlook:
    return look_ahead(state, POLICY, runs, until, **more)


def starts(outlook: Outlook) -> dict[int, float]:
    return {gang: at_us / S for gang, (at_us, _) in outlook.starts.items()}


def ends(outlook: Outlook) -> dict[str, float | None]:
    return {fate.name: None if fate.end_us is None else fate.end_us / S for fate in outlook.fates.values()}


# ---------------------------------------------------------------------- when it stops


def test_by_itself_a_look_goes_on_until_nothing_happens_any_more():
    found = look(line_up("a", "b", "c"))
    assert found.whole
    assert starts(found) == {1: 10, 2: 20}
    assert ends(found) == {"a": 10, "b": 20, "c": 30}
    assert {fate.state for fate in found.fates.values()} == {"completed"}


def test_it_stops_when_everybody_who_was_asked_for_has_started():
    found = look(line_up("a", "b", "c"), until=Until(started={1}))
    assert found.whole
    assert starts(found) == {1: 10}
    assert {fate.name: fate.state for fate in found.fates.values()} == {
        "a": "completed",
        "b": "running",
        "c": "pending",
    }


def test_whoever_asks_for_nobody_sees_what_is_decided_now():
    found = look(line_up("a", "b", nodes=2), until=Until(started=()))
    assert starts(found) == {1: 0}
    assert ends(found) == {"a": None, "b": None}


def test_so_many_starts_are_enough_and_the_rest_is_left_out():
    found = look(line_up("a", "b", "c", "d"), until=Until(starts=2))
    assert not found.whole
    assert starts(found) == {1: 10, 2: 20}


def test_it_stops_when_the_callers_meter_says_so():
    readings = iter([5.0, 5.0, 6.0, 7.0, 8.0])
    found = look(line_up("a", "b", "c", "d"), until=Until(spent=Budget(lambda: next(readings), 2.0)))
    assert not found.whole  # the third pass, of instants 0, 10 and 20, has used up what there was
    assert starts(found) == {1: 10, 2: 20}


def test_an_instant_bounds_it_and_is_looked_at_itself():
    assert starts(look(line_up("a", "b", "c"), until=Until(at_us=20 * S))) == {1: 10, 2: 20}
    assert starts(look(line_up("a", "b", "c"), until=Until(at_us=20 * S - 1))) == {1: 10}


# ---------------------------------------------------------------------- what it believes and is told


def test_gangs_run_as_long_as_somebody_guesses_and_the_others_as_they_say():
    found = look(line_up("a", "b", "c"), RunTimes(whole={1: 3 * S}, left={0: 25 * S}))
    assert ends(found) == {"a": 25, "b": 28, "c": 38}


def test_what_a_guess_adds_is_still_to_do_for_whoever_goes_back_to_a_snapshot():
    state = make_state("1 gpu=4", gangs=[make_gang("a", "4 gpu=1", walltime=10, snapshot=SnapshotHabit(4 * S, 0, 0))])
    state.apply(schedule(state.borrow(), POLICY))
    state.advance_to(6 * S)
    outage = [Happens(7 * S, "fail", node="n0"), Happens(7 * S, "repair", node="n0")]
    assert ends(look(state, RunTimes(left={0: 25 * S}), events=outage)) == {"a": 7 + 25 + 2}


def test_who_comes_and_what_happens_meanwhile_is_part_of_the_question():
    late = Arrival(make_gang("late", "4 gpu=1", walltime=10, submit=5))
    found = look(line_up("a", "b"), arrivals=[late], events=[Happens(2 * S, "cancel", gang="a")])
    assert ends(found) == {"a": 2, "b": 12, "late": 22}
    assert (found.fates["a"].was, found.fates["b"].was, found.fates["late"].was) == ("running", "pending", "new")
    assert found.starts[1] == (2 * S, StartCause("end", 0))


# ---------------------------------------------------------------------- what it tells


@pytest.mark.parametrize("node", [0, 1])
def test_a_start_hangs_on_whoever_sat_there_and_not_on_the_same_device_of_another_node(node):
    state = line_up("a", "b", nodes=2, started=2)
    sits_on = {int(state.seats_of(gang)[0].nodes[0]): gang for gang in (0, 1)}
    other = state.fleet.names[1 - node]
    state.submit(make_gang("c", "4 gpu=1", walltime=10))
    found = look(state, events=[Happens(1 * S, "cordon", node=other)])
    assert found.starts[2] == (10 * S, StartCause("end", sits_on[node]))


def test_who_starts_where_there_was_room_hangs_on_nobody():
    assert look(line_up("a", "b", nodes=2)).starts == {1: (0, StartCause("time"))}


def test_stays_are_devices_of_nodes_from_a_start_to_an_end():
    found = look(line_up("a", "b", nodes=1), until=Until(at_us=15 * S))
    whole = [(0, device) for device in range(4)]
    told = [(stay.gang, stay.list_devices(), stay.start_us, stay.end_us, stay.fresh) for stay in found.stays]
    assert told == [(0, whole, 0, 10 * S, False), (1, whole, 10 * S, None, True)]

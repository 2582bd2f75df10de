"""Gates of a front end on the virtual clock, and in a file."""

from __future__ import annotations

import json

import pytest

from phalanx.control.belief import RunTimes
from phalanx.control.dump import dump_state, format_state
from phalanx.control.forward import Arrival
from phalanx.control.gates import GateLine, Gates, let_in, move_up
from phalanx.control.look_ahead import look_ahead
from phalanx.control.policies import find_policy
from phalanx.control.restore import restore_state
from phalanx.control.spec.errors import BadInput
from phalanx.control.spec.spot import spot_of
from phalanx.control.state import State
from phalanx.control.what_if import Changes, play
from phalanx.testing.builders import make_gang, make_state

S = 10**6
POLICY = find_policy("easy")


def line_up(gates: Gates, *names: str, **more) -> State:
    """Gangs of one device on a node of eight, ten seconds each, with their gates shut as `gates` has them."""
    state = make_state("1 gpu=8")
    for name in names:
        number = state.submit(make_gang(name, "1 gpu=1", walltime=10, user="ada", **more))
        if gates.shut.get(name):
            state.hold(number)
    return state


def starts(state: State, outlook) -> dict[str, float]:
    return {state.gangs[number].name: at_us / S for number, (at_us, _) in outlook.starts.items()}


def shut(gate: str, *names: str) -> dict[str, set[str]]:
    return {name: {gate} for name in names}


# ---------------------------------------------------------------------- rules


def test_those_who_start_together_are_let_in_together_and_others_pass():
    gangs = [
        make_gang("a", "1 gpu=1"),
        make_gang("b", "1 gpu=1", together=("x", 2)),
        make_gang("c", "1 gpu=1", together=("x", 2)),
        make_gang("d", "1 gpu=1", priority=1),
    ]
    waiting = [(gang.name, number, gang) for number, gang in enumerate(gangs)]
    assert [name for name, may in let_in(waiting, None) if may] == ["d", "a", "b", "c"]
    assert [name for name, may in let_in(waiting, 3) if may] == ["d", "a"]
    assert [name for name, may in let_in(waiting[1:], 2) if may] == ["d"]
    assert [name for name, may in let_in(waiting, -1) if may] == []


def test_a_line_moves_up_as_far_as_there_is_room():
    assert list(move_up("abc", 1, 2)) == ["a"]
    assert list(move_up("abc", 3, 2)) == []


# ---------------------------------------------------------------------- on the virtual clock


def test_a_ceiling_lets_the_next_one_in_when_one_has_ended():
    state = line_up(Gates(), "a", "b", "c")
    assert starts(state, look_ahead(state, POLICY, gates=Gates(running_max=1))) == {"a": 0, "b": 10, "c": 20}
    state = line_up(Gates(), "a", "b", "c")
    assert starts(state, look_ahead(state, POLICY, gates=Gates(running_max=1, running_max_of={"ada": 2}))) == {
        "a": 0,
        "b": 0,
        "c": 10,
    }


def test_a_ceiling_concerns_whoever_comes_meanwhile():
    state = line_up(Gates(), "a")
    late = Arrival(make_gang("late", "1 gpu=1", submit=5, walltime=10, user="ada"))
    other = Arrival(make_gang("other", "1 gpu=1", submit=5, walltime=10, user="bob"))
    found = look_ahead(state, POLICY, gates=Gates(running_max=1), arrivals=[late, other])
    assert starts(state, found) == {"a": 0, "late": 10, "other": 5}


def test_lines_and_times_to_begin_open_and_what_a_person_holds_stays():
    gates = Gates(shut("array", "b", "c"), lines=[GateLine("array", 1, ["a", "b", "c"])])
    gates.shut |= {"later": {"begin"}, "held": {"hold"}, "both": {"hold", "begin"}}
    gates.begins_us = {"later": 7 * S, "both": 3 * S}
    state = line_up(gates, "a", "b", "c", "later", "held", "both")
    found = look_ahead(state, POLICY, gates=gates.clone())
    assert starts(state, found) == {"a": 0, "later": 7, "b": 10, "c": 20}
    assert gates.begins_us == {"later": 7 * S, "both": 3 * S}, "a look changes nothing for the next"


def test_whoever_is_held_takes_nobodys_place_under_a_ceiling_and_is_not_let_loose_by_it():
    state = line_up(Gates(), "a", "b")
    held = Arrival(make_gang("held", "1 gpu=1", walltime=10, user="ada", hold=True))
    assert starts(state, look_ahead(state, POLICY, gates=Gates(running_max=1), arrivals=[held])) == {"a": 0, "b": 10}


def test_who_goes_through_a_gate_before_another_is_known():
    gates = Gates(shut("array", "b", "c") | shut("running", "d"), lines=[GateLine("array", 1, ["a", "b", "c"])])
    state = line_up(gates, "a", "b", "c", "d")
    assert gates.find_before(state, 2) == [0, 1]
    assert gates.find_before(state, 3) == [0, 1, 2]
    assert gates.find_before(state, 0) == []


# ---------------------------------------------------------------------- in a file


def dumped() -> tuple[dict, Gates]:
    gates = Gates(shut("running", "b") | {"c": {"begin", "running"}, "d": {"hold"}}, running_max=1)
    gates.begins_us, gates.running_max_of = {"c": 30 * S}, {"bob": 3}
    gates.lines = [GateLine("singleton", 1, ["a", "b"])]
    state = line_up(gates, "a", "b", "c", "d")
    runs = RunTimes({0: 4 * S, 1: 5 * S}, {}, 3600 * S)
    return dump_state(state, ("easy", {}), gates=gates, runs=runs), gates


def test_gates_and_beliefs_come_back_from_a_file():
    tree, gates = dumped()
    text = format_state(tree)
    again = restore_state(spot_of(json.loads(text), "state.json"))
    assert (again.gates, again.runs) == (gates, RunTimes({0: 4 * S, 1: 5 * S}, {}, 3600 * S))
    assert format_state(dump_state(again.state, again.policy, gates=again.gates, runs=again.runs)) == text


def test_a_what_if_keeps_them_and_says_what_is_not_on_hold():
    tree, _ = dumped()
    again = restore_state(spot_of(json.loads(format_state(tree)), "state.json"))
    new = Arrival(make_gang("new", "1 gpu=1", walltime=10, user="ada"))
    seen = play(again, POLICY, Changes(add_gangs=(new,)))
    assert {name: fate.start_us and fate.start_us / S for name, fate in seen.fates.items()} == {
        "a": 0,
        "b": 4,
        "c": 30,
        "d": None,
        "new": 9,
    }
    assert seen.fates["d"].reason == ("Held", "on hold; release it to give it its turn")
    again = restore_state(spot_of(json.loads(format_state(tree)), "state.json"))
    early = play(again, POLICY, Changes(), until_us=2 * S)
    assert early.fates["b"].reason == ("UserLimit", "as many jobs of its owner run as may at once")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gates": ["runing"]}, "running"),
        ({"gates": ["hold"], "held": False}, "has gates, and is not pending with held: true"),
        ({"begin_us": 5}, "lack 'begin'"),
    ],
)
def test_what_could_not_be_true_of_gates_is_refused(change, words):
    tree, _ = dumped()
    tree["gangs"][3] |= change
    with pytest.raises(BadInput, match=words):
        restore_state(spot_of(json.loads(format_state(tree)), "state.json"))

"""Every promise can be broken, and is then reported by its name: a check that cannot fail checks nothing."""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import (
    InvariantError,
    Promise,
    Violation,
    check_plan,
    check_snapshot,
    check_usage,
    demand,
)
from phalanx.model.plan import Bind, Plan, Reservation, Seats
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.window import Window
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, occupy, seat

EASY = named("easy")
NODES = ("2 gpu=4 cpu=8 rack:x", "1 gpu=4 cpu=8 rack:y", "1 gpu=4 cpu=8 rack:y !spot")


def make_seats(counts, devices=None, role=0, each=1000):
    """Seats of whole devices from the first on, unless devices are given."""
    table = np.zeros((len(counts), 4), dtype=np.int16)
    for row, (node, count) in enumerate(counts.items()):
        table[row, : count * each // 1000] = 1000
        if devices is not None:
            table[row] = devices[node]
    nodes, members = np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64)
    return Seats(role, nodes, members, table)


def codes(state, *decisions, policy=EASY, **rest):
    plan = Plan(decisions=decisions, **rest)
    return {violation.code for violation in check_plan(state.snapshot(), plan, policy)}


def bind(number, *seats, length=60):
    return Bind(number, seats, length * SECOND_US)


def start(*lines, counts, devices=None, each=1000, state=None, **gang):
    """The promises that one hand-made start on the usual cluster breaks."""
    state = state or make_state(*NODES, levels=("rack",))
    number = state.submit(make_gang("A", *lines, walltime=60, **gang))
    return codes(state, bind(number, make_seats(counts, devices, each=each)))


def test_a_sound_start_breaks_nothing():
    assert start("4 gpu=1", counts={0: 4}) == set()
    assert start("4 gpu=1", counts={0: 2, 1: 2}, topology=">rack") == set()
    assert start("3 gpu=0.5", counts={0: 3}, devices={0: [1000, 500, 0, 0]}) == set()


@pytest.mark.parametrize(
    ("promise", "line", "counts", "gang"),
    [
        (Promise.WHOLE, "4 gpu=1", {0: 3}, {}),
        (Promise.WHOLE, "4 gpu=1", {0: 4, 1: 1}, {}),
        (Promise.WHOLE, "4 gpu=1", {0: 5, 1: -1}, {}),
        (Promise.ADMISSION, "2 gpu=1", {3: 2}, {}),
        (Promise.ADMISSION, "2 gpu=1 rack:y", {0: 2}, {}),
        (Promise.REQUIRE, "4 gpu=1", {0: 2, 2: 2}, {"topology": ">rack"}),
        (Promise.REQUIRE, "4 gpu=1 >node", {0: 2, 1: 2}, {}),
        (Promise.SEGMENT, "4 gpu=1", {0: 3, 1: 1}, {"topology": "/2:node"}),
        (Promise.SEGMENT, "3 gpu=1", {0: 1, 1: 2}, {"topology": "/2:node"}),
        (Promise.RANKS, "4 gpu=1", {1: 2, 0: 2}, {}),
        (Promise.CAPACITY, "2 gpu=1 cpu=5", {0: 2}, {}),
        (Promise.CAPACITY, "1 nic=1", {0: 1}, {}),
    ],
)
def test_a_broken_promise_has_its_name(promise, line, counts, gang):
    assert promise in start(line, counts=counts, **gang)


def test_the_smaller_last_group_may_come_last():
    assert start("3 gpu=1", counts={1: 2, 0: 1}, topology="/2:node") == set()
    assert start("5 gpu=1", counts={1: 2, 2: 2, 0: 1}, topology="/2:node") == set()


@pytest.mark.parametrize(
    ("line", "count", "devices"),
    [
        ("1 gpu=0.5", 1, [250, 250, 0, 0]),  # smeared over two
        ("2 gpu=0.5", 2, [500, 0, 0, 0]),  # one member without
        ("1 gpu=2", 1, [1000, 500, 500, 0]),  # a whole request on parts
        ("1 gpu=1", 1, [0, 0, 0, 0]),
        ("1 cpu=1", 1, [1000, 0, 0, 0]),  # nobody asked
    ],
)
def test_devices_are_whole_or_shares_of_one(line, count, devices):
    assert start(line, counts={0: count}, devices={0: devices}) == {Promise.DEVICE}


def test_a_device_is_given_once():
    state = make_state(*NODES, levels=("rack",))
    occupy(state, 0, [1000, 0, 0, 0])
    assert start("1 gpu=1", counts={0: 1}, state=state) == {Promise.DEVICE}


def test_two_starts_of_one_plan_share_a_node_only_if_both_fit():
    state = make_state("1 gpu=4 cpu=4", gangs=[make_gang("A", "2 gpu=1 cpu=1"), make_gang("B", "3 gpu=1")])
    both = (make_seats({0: 2}, {0: [1000, 1000, 0, 0]}), make_seats({0: 3}, {0: [0, 1000, 1000, 1000]}))
    assert codes(state, bind(0, both[0]), bind(1, both[1])) == {Promise.CAPACITY, Promise.DEVICE}


def test_every_role_is_there():
    state = make_state(*NODES, gangs=[make_gang("A", "1 gpu=1", "1 cpu=1")])
    assert codes(state, bind(0, make_seats({0: 1}))) == {Promise.WHOLE}


def test_nothing_lands_on_a_node_out_of_service():
    for close in (lambda s: s.set_open(0, open_=False), lambda s: s.set_up(0, up=False)):
        state = make_state(*NODES, levels=("rack",))
        close(state)
        assert start("1 gpu=1", counts={0: 1}, state=state) == {Promise.SERVICE}


def test_nothing_overlaps_a_window_that_was_not_made_for_it():
    window = Window("upgrade", ("n0",), 30 * SECOND_US, 40 * SECOND_US)
    assert start("1 gpu=1", counts={0: 1}, state=make_state(*NODES, windows=(window,))) == {Promise.WINDOW}
    assert start("1 gpu=1", counts={1: 1}, state=make_state(*NODES, windows=(window,))) == set()
    for guests in ({"users": ("ada",)}, {"queues": ("root",)}):
        state = make_state(*NODES, windows=(replace(window, **guests),))
        assert start("1 gpu=1", counts={0: 1}, state=state, user="ada") == set()
    past = replace(window, start_us=0, end_us=0)
    assert start("1 gpu=1", counts={0: 1}, state=make_state(*NODES, windows=(past,))) == set()


def test_nobody_goes_over_a_limit():
    queues = (Queue("a", limit={"gpu": 3000}), Queue("b", parent="a"))
    for gang in ({"queue": "a"}, {"queue": "b"}):
        assert start("4 gpu=1", counts={0: 4}, state=make_state(*NODES, queues=queues), **gang) == {Promise.LIMIT}
        assert start("3 gpu=1", counts={0: 3}, state=make_state(*NODES, queues=queues), **gang) == set()
    users = (UserLimit("ada", {"gpu": 3000}),)
    assert start("4 gpu=1", counts={0: 4}, state=make_state(*NODES, users=users), user="ada") == {Promise.LIMIT}


def test_gangs_of_one_word_start_together():
    gangs = [make_gang(name, "1 gpu=1", together=("pair", 2), walltime=60) for name in "AB"]
    state = make_state(*NODES, gangs=gangs)
    assert codes(state, bind(0, make_seats({0: 1}))) == {Promise.TOGETHER}
    assert codes(state, bind(0, make_seats({0: 1})), bind(1, make_seats({1: 1}))) == set()


def test_who_is_held_back_does_not_start():
    state = make_state(*NODES, gangs=[make_gang("A", "1 gpu=1", hold=True)])
    assert codes(state, bind(0, make_seats({0: 1}))) == {Promise.GATED}


def test_who_runs_does_not_start_again():
    state = make_state(*NODES, gangs=[make_gang("A", "1 gpu=1")])
    seat(state, 0, {0: 1})
    assert codes(state, bind(0, make_seats({1: 1}))) == {Promise.ONCE}
    other = make_state(*NODES, gangs=[make_gang("A", "1 gpu=1")])
    assert codes(other, bind(0, make_seats({0: 1})), bind(0, make_seats({1: 1}))) == {Promise.ONCE}


# ---------------------------------------------------------------------- reservations


def reserve(number, at, *seats, length=60):
    return Reservation((number,), at * SECOND_US, (at + length) * SECOND_US, (seats,))


def make_busy():
    """Four devices until 100 s, and two gangs that want them."""
    state = make_state("1 gpu=4", gangs=[make_gang(name, "4 gpu=1", walltime=60) for name in "AB"])
    occupy(state, 0, [1000, 1000, 1000, 1000], walltime=100)
    return state


def test_a_reservation_is_for_when_there_is_room():
    state = make_busy()
    assert codes(state, reservations=(reserve(0, 100, make_seats({0: 4})),)) == set()
    assert codes(state, reservations=(reserve(0, 99, make_seats({0: 4})),)) == {Promise.RESERVATION}
    both = (reserve(0, 100, make_seats({0: 4})), reserve(1, 159, make_seats({0: 4})))
    assert codes(state, reservations=both, policy=named("conservative")) == {Promise.RESERVATION}
    apart = (both[0], reserve(1, 160, make_seats({0: 4})))
    assert codes(state, reservations=apart, policy=named("conservative")) == set()


def test_a_start_does_not_run_into_a_reservation():
    state = make_state(
        "1 gpu=4", gangs=[make_gang("A", "4 gpu=1", walltime=60), make_gang("B", "1 gpu=1", walltime=60)]
    )
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    later = reserve(0, 100, make_seats({0: 4}))
    late = make_seats({0: 1}, {0: [0, 1000, 0, 0]})
    assert codes(state, bind(1, late, length=100), reservations=(later,)) == set()
    assert codes(state, bind(1, late, length=101), reservations=(later,)) == {Promise.RESERVATION}


def test_reservations_are_whole_and_few():
    state = make_busy()
    assert codes(state, reservations=(reserve(0, 100, make_seats({0: 3})),)) == {Promise.WHOLE}
    both = (reserve(0, 100, make_seats({0: 4})), reserve(1, 160, make_seats({0: 4})))
    assert codes(state, reservations=both) == {Promise.RESERVATION}
    assert codes(state, reservations=both, policy=named("easy", {"reservations": 2})) == set()
    # A policy without reservations may still say when its blocked head would start.
    assert codes(state, reservations=both[:1], policy=named("fcfs")) == set()
    assert codes(state, reservations=both, policy=named("fcfs")) == {Promise.RESERVATION}
    assert codes(state, reservations=both[:1], policy=named("pod-fifo")) == {Promise.RESERVATION}


def test_who_can_never_run_reserves_nothing():
    state = make_busy()
    later = reserve(0, 100, make_seats({0: 4}))
    assert codes(state, infeasible=(0,), reservations=(later,)) == {Promise.INFEASIBLE}
    state.apply(Plan(infeasible=(0,)))
    assert codes(state, reservations=(later,)) == {Promise.INFEASIBLE}


def test_who_is_over_a_limit_reserves_nothing():
    state = make_state("1 gpu=4", queues=[Queue("a", limit={"gpu": 3000})])
    number = state.submit(make_gang("A", "4 gpu=1", queue="a"))
    assert codes(state, reservations=(reserve(number, 100, make_seats({0: 4})),)) == {Promise.RESERVATION}


# ---------------------------------------------------------------------- snapshots


def spoil(table, column, change):
    """A snapshot of a small busy state with one column changed."""
    state = make_state("2 gpu=2 cpu=4", gangs=[make_gang("A", "2 gpu=1 cpu=1"), make_gang("B", "1 gpu=0.5")])
    state.apply(schedule(state.snapshot(), EASY))
    state.submit(make_gang("C", "1 gpu=1"))
    snapshot = state.snapshot()
    assert check_snapshot(snapshot) == []
    columns = getattr(snapshot, table)
    value = getattr(columns, column)
    fresh = value.copy() if isinstance(value, np.ndarray) else value
    changed = change(fresh)
    spoilt = replace(snapshot, **{table: replace(columns, **{column: fresh if changed is None else changed})})
    return {violation.code for violation in (*check_snapshot(spoilt), *check_usage(spoilt))}


def set_at(at, value):
    def change(column):
        column[at] = value

    return change


def add_at(at, value):
    def change(column):
        column[at] += value

    return change


@pytest.mark.parametrize(
    ("promise", "table", "column", "change"),
    [
        (Promise.SUMS, "nodes", "free", add_at((1, 0), 1000)),
        (Promise.SUMS, "nodes", "device_free", add_at((1, 0), -1000)),
        (Promise.SUMS, "nodes", "shared", lambda _: False),
        (Promise.SUMS, "queues", "usage", add_at((0, 0), 1)),
        (Promise.SUMS, "users", "usage", add_at((0, 1), 1)),
        (Promise.SUMS, "running", "members", add_at(0, 1)),
        (Promise.SUMS, "allocations", "taken", add_at((0, 0), 1000)),
        (Promise.WHOLE, "allocations", "count", add_at(0, -1)),
        (Promise.WHOLE, "allocations", "alive", set_at(0, value=False)),
        (Promise.ONCE, "running", "alive", set_at(0, value=False)),
        (Promise.ONCE, "pending", "gang", set_at(2, 0)),
        (Promise.DEVICE, "allocations", "devices", set_at((0, 0), 500)),
        (Promise.CAPACITY, "allocations", "taken", add_at((0, 1), 8000)),
        (Promise.SUMS, "nodes", "in_service", set_at(0, value=False)),
        (Promise.SUMS, "pending", "gate", set_at(2, 3)),
        (Promise.SUMS, "pending", "elastic", set_at(2, value=True)),
    ],
)
def test_a_column_that_disagrees_is_found(promise, table, column, change):
    assert promise in spoil(table, column, change)


def test_findings_become_an_error_that_tells_them_all():
    demand([])
    found = [Violation(Promise.WHOLE, "A starts with 3 of 4"), Violation(Promise.LIMIT, "queue 'a' gets 5")]
    with pytest.raises(InvariantError, match="whole: A starts with 3 of 4\nlimit: queue 'a' gets 5") as raised:
        demand(found)
    assert raised.value.violations == tuple(found)


def test_whoever_waits_is_told_why_and_nobody_else():
    state = make_state("1 gpu=1", gangs=[make_gang("A", "1 gpu=1", walltime=60), make_gang("B", "1 gpu=1")])
    plan = schedule(state.snapshot(), EASY, explain=True)
    assert check_plan(state.snapshot(), plan, EASY) == []
    silent = replace(plan, verdicts=replace(plan.verdicts, codes=np.zeros_like(plan.verdicts.codes)))
    chatty = replace(plan, verdicts=replace(plan.verdicts, codes=np.full_like(plan.verdicts.codes, 9)))
    for wrong in (silent, chatty):
        assert {each.code for each in check_plan(state.snapshot(), wrong, EASY)} == {Promise.REASON}

"""Promises about running gangs can be broken, each by a hand-made plan, and are then reported by their names."""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.control.losses import lose_node
from phalanx.engine.invariants import Promise, check_plan, check_snapshot
from phalanx.model.gang import SnapshotHabit
from phalanx.model.plan import Bind, Cause, Evict, Guest, Move, Plan, Repair, Resize, Restart, Seats
from phalanx.model.queue import Queue
from phalanx.model.window import Window
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, seat

FAIR, GOODPUT = named("fair"), named("goodput")
ROTATE = named("rotate", {"quantum": 100 * SECOND_US})
SAVES = SnapshotHabit(60 * SECOND_US, 0, 0)


def at(counts, role=0):
    """Seats on one-device nodes."""
    nodes, members = np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64)
    return Seats(role, nodes, members, np.full((len(counts), 1), 1000, dtype=np.int16))


def on(*nodes):
    return (at(dict.fromkeys(nodes, 1)),)


def make(running, waiting=(), now=1000, nodes="6 gpu=1", **rest):
    """A state with gangs on one-device nodes: (gang, nodes) each, and gangs that wait."""
    state = make_state(nodes, **rest)
    for gang, places in running:
        seat(state, state.submit(gang), dict.fromkeys(places, 1))
    state.now_us = now * SECOND_US
    for gang in waiting:
        state.submit(gang)
    return state


def codes(state, *decisions, policy=FAIR):
    return {violation.code for violation in check_plan(state.snapshot(), Plan(decisions=decisions), policy)}


def bind(number, *nodes, guest=Guest.NO):
    return Bind(number, on(*nodes), 60 * SECOND_US, guest)


LOW = make_gang("low", "2 gpu=1", preemptible=True)
HIGH = make_gang("high", "2 gpu=1", priority=1)


# ---------------------------------------------------------------------- evictions


def test_a_sound_eviction_breaks_nothing():
    state = make([(LOW, (0, 1))], [HIGH])
    assert codes(state, Evict(0, Cause.PREEMPT, 1), bind(1, 0, 1)) == set()


@pytest.mark.parametrize(
    ("promise", "victim", "taker", "policy"),
    [
        (Promise.RIGHTS, LOW, replace(HIGH, priority=0), FAIR),
        (Promise.RIGHTS, LOW, HIGH, named("deadline")),
        (Promise.RIGHTS, replace(LOW, queue="a"), HIGH, FAIR),
        (Promise.EVICTION, replace(LOW, preemptible=False), HIGH, FAIR),
        (Promise.EVICTION, LOW, HIGH, named("fair", {"min_runtime": 2000 * SECOND_US})),
        (Promise.EVICTION, LOW, HIGH, named("fair", {"max_evictions": 0})),
    ],
)
def test_who_may_preempt(promise, victim, taker, policy):
    state = make([(victim, (0, 1))], [taker], queues=(Queue("a"),))
    assert codes(state, Evict(0, Cause.PREEMPT, 1), bind(1, 0, 1), policy=policy) == {promise}


def test_nobody_is_evicted_for_somebody_who_does_not_start():
    state = make([(LOW, (0, 1))], [HIGH])
    assert codes(state, Evict(0, Cause.PREEMPT, 1)) == {Promise.EVICTION}
    assert codes(state, Evict(0, Cause.PREEMPT)) == {Promise.EVICTION}
    assert codes(state, Evict(0, Cause.DRAIN)) == {Promise.EVICTION}


def test_who_may_reclaim():
    queues = (Queue("a", guarantee={"gpu": 2000}), Queue("b", guarantee={"gpu": 2000}))
    owner = make_gang("owner", "2 gpu=1", queue="a")
    lent = make([(LOW, (0, 1))], [owner], queues=queues)
    take = (Evict(0, Cause.RECLAIM, 1), bind(1, 0, 1))
    assert codes(lent, *take) == set()
    assert codes(make([(replace(LOW, queue="b"), (0, 1))], [owner], queues=queues), *take) == {Promise.GUARANTEE}
    assert codes(make([(LOW, (0, 1))], [replace(owner, queue="default")], queues=queues), *take) == {Promise.RIGHTS}
    large = make([(LOW, (0, 1))], [make_gang("large", "3 gpu=1", queue="a")], queues=queues)
    assert codes(large, Evict(0, Cause.RECLAIM, 1), bind(1, 0, 1, 2)) == {Promise.GUARANTEE}


def test_who_may_end_a_turn():
    one = make_gang("one", "2 gpu=1", preemptible=True, snapshot=SAVES)
    two = make_gang("two", "2 gpu=1", submit=1)
    turn = (Evict(0, Cause.TURN, 1), bind(1, 0, 1))
    assert codes(make([(one, (0, 1))], [two]), *turn, policy=ROTATE) == set()
    assert codes(make([(one, (0, 1))], [two], now=50), *turn, policy=ROTATE) == {Promise.RIGHTS}
    assert codes(make([(one, (0, 1))], [two]), *turn) == {Promise.RIGHTS}
    assert codes(make([(replace(one, snapshot=None), (0, 1))], [two]), *turn, policy=ROTATE) == {Promise.RIGHTS}
    slow = replace(one, snapshot=replace(SAVES, stall_us=5 * SECOND_US))
    assert codes(make([(slow, (0, 1))], [two]), *turn, policy=ROTATE) == {Promise.RIGHTS}
    assert codes(make([(one, (0, 1))], [replace(two, priority=1)]), *turn, policy=ROTATE) == {Promise.RIGHTS}


def test_only_guests_leave_for_an_owner():
    state = make([(LOW, (0, 1))], [replace(HIGH, priority=0)])
    leave = (Evict(0, Cause.GUEST, 1), bind(1, 0, 1))
    assert codes(state, *leave) == {Promise.RIGHTS}
    state.thaw()
    state.running.columns["guest"][0] = Guest.WHOLE
    assert codes(state, *leave) == set()
    state.thaw()
    state.running.columns["guest"][0] = Guest.SURPLUS
    assert {violation.code for violation in check_snapshot(state.snapshot())} == {Promise.GUEST}


def test_nobody_who_has_not_begun_or_was_degraded_is_told_anything():
    state = make([(LOW, (0, 1))], [HIGH])
    state.running.columns["start_us"][0] = 2000 * SECOND_US
    assert codes(state, Evict(0, Cause.PREEMPT, 1), bind(1, 0, 1)) == {Promise.ONCE}
    degraded = make([(LOW, (0, 1))], [HIGH])
    lose_node(degraded, 0)
    degraded.set_up(0, up=False)
    assert codes(degraded, Evict(0, Cause.PREEMPT, 1), bind(1, 1, 2)) == {Promise.DEGRADED}
    assert codes(state, Evict(1, Cause.PREEMPT, 1)) == {Promise.ONCE}


# ---------------------------------------------------------------------- sizes

WIDE = make_gang("wide", "2-4 gpu=1")
NEXT = make_gang("next", "2 gpu=1")


def lend(state, *nodes, cause=Cause.LOAN):
    return Resize(0, on(*nodes), cause, 1)


def test_surplus_is_lent_to_an_equal():
    state = make([(WIDE, (0, 1, 2, 3))], [NEXT], nodes="4 gpu=1")
    assert codes(state, lend(state, 0, 1), bind(1, 2, 3)) == set()
    assert codes(state, lend(state, 0, 1)) == {Promise.EVICTION}
    assert Promise.WHOLE in codes(state, lend(state, 0), bind(1, 2, 3))
    assert Promise.SIZE in codes(state, lend(state, 0, 1, 2, 3), bind(1, 2, 3))
    assert codes(state, lend(state, 0, 1), bind(1, 2, 3), policy=named("rotate")) == {Promise.RIGHTS}
    better = make([(replace(WIDE, priority=1), (0, 1, 2, 3))], [NEXT], nodes="4 gpu=1")
    assert codes(better, lend(better, 0, 1), bind(1, 2, 3)) == {Promise.RIGHTS}


def test_surplus_below_a_guarantee_stays():
    queues = (Queue("a", guarantee={"gpu": 3000}),)
    state = make([(replace(WIDE, queue="a"), (0, 1, 2, 3))], [NEXT], nodes="4 gpu=1", queues=queues)
    assert Promise.GUARANTEE in codes(state, lend(state, 0, 1), bind(1, 2, 3))


def test_a_rigid_gang_keeps_its_size():
    state = make([(LOW, (0, 1))], [make_gang("one", "1 gpu=1")], nodes="2 gpu=1")
    assert {Promise.SIZE, Promise.WHOLE} <= codes(state, lend(state, 0), bind(1, 1))


def test_a_pinned_size_is_kept():
    state = make([(WIDE, (0, 1, 2, 3))], [NEXT], nodes="4 gpu=1")
    state.pin(0, 4)
    assert codes(state, lend(state, 0, 1), bind(1, 2, 3)) == {Promise.SIZE}
    state.pin(0, 3)
    assert codes(state, Resize(0, on(0, 1, 2), Cause.PIN)) == set()
    assert codes(state, Resize(0, on(0, 1), Cause.PIN)) == {Promise.SIZE}
    waits = make([], [WIDE])
    waits.pin(0, 2)
    assert codes(waits, bind(0, 0, 1, 2)) == {Promise.SIZE}


def test_growth_waits_until_the_gang_has_cooled_down():
    state = make([(WIDE, (0, 1))])
    grow = Resize(0, on(0, 1, 2), Cause.GROW)
    assert codes(state, grow, policy=GOODPUT) == set()
    assert codes(state, grow) == {Promise.SIZE}
    assert codes(state, Resize(0, on(0, 1), Cause.GROW), policy=GOODPUT) == {Promise.SIZE}
    state.thaw()
    state.running.columns["cool_until_us"][0] = 1001 * SECOND_US
    assert codes(state, grow, policy=GOODPUT) == {Promise.SIZE}


def test_growth_stays_below_a_ceiling():
    state = make([(replace(WIDE, queue="a"), (0, 1))], queues=(Queue("a", limit={"gpu": 2000}),))
    assert codes(state, Resize(0, on(0, 1, 2), Cause.GROW), policy=GOODPUT) == {Promise.LIMIT}


def test_growth_ends_where_a_window_begins():
    window = Window("upgrade", ("n2", "n3"), 1000 * SECOND_US, 5000 * SECOND_US)
    state = make([(WIDE, (0, 1))], windows=(window,))
    assert codes(state, Resize(0, on(0, 1, 2), Cause.GROW), policy=GOODPUT) == {Promise.WINDOW}
    ahead = make([(WIDE, (0, 1))], windows=(replace(window, start_us=1500 * SECOND_US),))
    assert codes(ahead, Resize(0, on(0, 1, 2), Cause.GROW), policy=GOODPUT) == set()
    starts = make([], [WIDE], windows=(replace(window, start_us=1010 * SECOND_US),))
    assert codes(starts, bind(0, 0, 2, 3)) == {Promise.WINDOW}, "its least must be outside"
    assert codes(starts, bind(0, 0, 1, 2)) == set(), "its surplus may enter"


def test_who_leaves_a_node_leaves_it_altogether():
    state = make([(WIDE, (0, 1, 2))])
    state.set_open(0, open_=False, drain=True)
    assert codes(state, Resize(0, on(1, 2), Cause.DRAIN)) == set()
    assert codes(state, Resize(0, on(0, 1), Cause.DRAIN)) == {Promise.SIZE}
    state.set_open(0, open_=True)
    assert codes(state, Resize(0, on(1, 2), Cause.DRAIN)) == {Promise.SIZE}
    assert codes(state, Resize(0, on(1, 2), Cause.RECLAIM, None)) >= {Promise.SIZE}


def test_nobody_sits_down_where_somebody_is_leaving():
    paused = replace(WIDE, resize_pause_us=SECOND_US)
    state = make([(paused, (0, 1, 2, 3)), (replace(WIDE, name="other"), (4, 5))], [make_gang("one", "1 gpu=1")])
    shrink = Resize(0, on(0, 1), Cause.LOAN, 2)
    assert codes(state, shrink, bind(2, 2), policy=GOODPUT) == set(), "a start waits for it"
    grown = Resize(1, on(4, 5, 3), Cause.GROW)
    assert codes(state, shrink, grown, bind(2, 2), policy=GOODPUT) == {Promise.VACATED}


def test_members_that_stay_keep_their_devices():
    state = make_state("1 gpu=4", gangs=[make_gang("wide", "1-2 gpu=1")])
    seat(state, 0, {0: 1}, devices=({0: [1000, 0, 0, 0]},))
    for devices, wanted in (([1000, 1000, 0, 0], set()), ([0, 1000, 1000, 0], {Promise.DEVICE})):
        seats = Seats(0, np.array([0]), np.array([2]), np.array([devices], dtype=np.int16))
        assert codes(state, Resize(0, (seats,), Cause.GROW), policy=GOODPUT) == wanted


# ---------------------------------------------------------------------- moves, repairs


def test_a_move_keeps_the_size_and_needs_a_snapshot():
    mover = replace(LOW, snapshot=SAVES)
    state = make([(mover, (0, 1))], [make_gang("next", "1 gpu=1")])
    assert codes(state, Move(0, on(2, 3)), bind(1, 0), policy=GOODPUT) == set()
    assert codes(state, Move(0, on(2, 3)), policy=GOODPUT) == {Promise.MOVE}
    assert codes(state, Move(0, on(2, 3)), bind(1, 0)) == {Promise.MOVE}
    assert codes(state, Move(0, on(0, 1)), bind(1, 2), policy=GOODPUT) == {Promise.MOVE}
    hard = make([(LOW, (0, 1))], [make_gang("next", "1 gpu=1")])
    assert codes(hard, Move(0, on(2, 3)), bind(1, 0), policy=GOODPUT) == {Promise.MOVE}
    wide = make([(replace(WIDE, preemptible=True, snapshot=SAVES), (0, 1))], [make_gang("next", "1 gpu=1")])
    assert codes(wide, Move(0, on(2, 3, 4)), bind(1, 0), policy=GOODPUT) == {Promise.MOVE}


def make_degraded(gang=LOW, places=(0, 1), **rest):
    state = make([(gang, places)], **rest)
    lose_node(state, 0)
    state.set_up(0, up=False)
    return state


def test_a_repair_keeps_what_is_healthy_and_gives_back_what_was_lost():
    state = make_degraded()
    assert codes(state, Repair(0, on(1, 2))) == set()
    assert codes(state, Repair(0, on(2, 3))) == {Promise.DEGRADED}
    assert codes(state, Restart(0, on(2, 3))) == set()
    assert codes(state, Repair(0, on(0, 1))) == {Promise.SERVICE}
    assert Promise.WHOLE in codes(state, Repair(0, on(1)))
    whole = make([(LOW, (0, 1))])
    assert codes(whole, Repair(0, on(0, 1))) == codes(whole, Restart(0, on(2, 3))) == {Promise.DEGRADED}


def test_nobody_gets_more_than_it_had():
    state = make_degraded(WIDE, (0, 1, 2))
    assert state.degraded[0].whole
    assert codes(state, Repair(0, on(1, 2, 3))) == set()
    assert codes(state, Repair(0, on(1, 2, 3, 4))) == {Promise.DEGRADED}
    assert codes(state, Restart(0, on(3, 4, 5))) == {Promise.DEGRADED}


def test_a_spare_is_for_repairs():
    state = make_degraded()
    state.fleet.nodes = (*state.fleet.nodes[:-1], replace(state.fleet.nodes[-1], spare=True))
    state.fleet.spare[-1] = True
    state.nodes_changed()
    number = state.submit(make_gang("one", "1 gpu=1"))
    assert codes(state, Repair(0, on(1, 5))) == set()
    assert codes(state, bind(number, 5)) == {Promise.SERVICE}


def test_a_gang_is_told_one_thing_at_a_time():
    state = make([(WIDE, (0, 1, 2))])
    decisions = Resize(0, on(0, 1), Cause.GROW), Evict(0, Cause.DRAIN)
    assert codes(state, *decisions, policy=GOODPUT) == {Promise.ONCE}


# ---------------------------------------------------------------------- snapshots


def spoil(state, column, value, row=0):
    state.thaw()
    state.running.columns[column][row] = value
    return {violation.code for violation in check_snapshot(state.snapshot())}


def test_a_degraded_gang_runs_nothing_and_gives_nothing():
    state = make_degraded()
    assert check_snapshot(state.snapshot()) == []
    assert spoil(make_degraded(), "members", 1) == {Promise.DEGRADED}
    assert Promise.DEGRADED in spoil(make_degraded(), "preemptible", value=True)
    whole = make_degraded(WIDE, (0, 1, 2))
    whole.thaw()
    whole.degraded[0] = replace(whole.degraded[0], whole=False)
    assert Promise.DEGRADED in {violation.code for violation in check_snapshot(whole.snapshot())}


def test_seats_of_nobody_are_busy_for_a_while():
    wide = replace(WIDE, resize_pause_us=10 * SECOND_US)
    state = make([(wide, (0, 1, 2, 3))], nodes="4 gpu=1")
    state.apply(Plan(decisions=(Resize(0, on(0, 1), Cause.PIN),)))
    assert check_snapshot(state.snapshot()) == []
    state.now_us += 10 * SECOND_US
    assert {violation.code for violation in check_snapshot(state.borrow())} >= {Promise.VACATED}


def test_nobody_sits_on_a_node_that_is_down():
    state = make([(LOW, (0, 1))])
    state.set_up(0, up=False)
    assert {violation.code for violation in check_snapshot(state.snapshot())} == {Promise.SERVICE}


# ---------------------------------------------------------------------- the least of who leaves with its surplus only


@pytest.mark.parametrize(("kept", "broken"), [((0, 1), {Promise.WINDOW}), ((1, 2), set()), ((2, 3), set())])
def test_a_least_is_not_left_under_a_window_ahead(kept, broken):
    window = Window("works", ("n0",), 1500 * SECOND_US, 2000 * SECOND_US)
    wide = make_gang("wide", "2-4 gpu=1", walltime=9000)
    state = make([(wide, (0, 1, 2, 3))], [make_gang("next", "2 gpu=1", walltime=60)], nodes="4 gpu=1", windows=[window])
    gone = [node for node in range(4) if node not in kept]
    names = state.fleet.names
    assert names[0] == "n0", names
    assert codes(state, Resize(0, on(*kept), Cause.LOAN, 1), bind(1, *gone)) == broken

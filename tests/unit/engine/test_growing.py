"""Idle room goes to elastic gangs where it adds most, if it pays, and to the sizes that people want."""

from dataclasses import replace

import pytest

from phalanx.model.plan import Bind, Cause, Guest, Resize
from phalanx.model.queue import Queue, UserLimit
from phalanx.perfmodel.speedup import Amdahl, speedup_at
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, seat
from phalanx.testing.checking import schedule_checked

NOW = 1000


def curve(serial, most=8):
    return tuple((n, speedup_at(Amdahl(serial), n)) for n in range(1, most + 1))


def make(nodes, *running, waiting=(), **rest):
    """Gangs that sit: (gang, places, serial); gangs that wait: (gang, serial)."""
    state = make_state(nodes, **rest)
    for gang, places, serial in running:
        number = state.submit(gang, curve(serial) if serial is not None else None)
        seat(state, number, dict.fromkeys(places, 1))
    state.now_us = NOW * SECOND_US
    for gang, serial in waiting:
        state.submit(replace(gang, submit_us=state.now_us), curve(serial) if serial is not None else None)
    return state


def sizes(state, policy="goodput", options=None):
    plan = schedule_checked(state.snapshot(), named(policy, options))
    return {state.gangs[each.gang].name: each.members for each in plan.decisions if isinstance(each, Bind | Resize)}


WIDE = make_gang("wide", "1-4 gpu=1", walltime=5000)
OTHER = replace(WIDE, name="other")


def test_a_start_has_its_share_of_the_surplus_at_once():
    assert sizes(make("3 gpu=1", waiting=[(WIDE, 0.0)])) == {"wide": 3}
    assert sizes(make("3 gpu=1", waiting=[(WIDE, 0.0)]), "fair") == {"wide": 3}
    assert sizes(make("9 gpu=1", waiting=[(WIDE, 0.0)])) == {"wide": 4}


def test_minimums_come_before_surplus():
    assert sizes(make("4 gpu=1", waiting=[(WIDE, 0.0), (make_gang("rigid", "3 gpu=1"), None)])) == {
        "wide": 1,
        "rigid": 3,
    }


def test_whoever_gains_most_gets_the_next_one():
    assert sizes(make("5 gpu=1", waiting=[(WIDE, 0.5), (OTHER, 0.0)])) == {"wide": 1, "other": 4}
    assert sizes(make("4 gpu=1", waiting=[(WIDE, 0.1), (OTHER, 0.1)])) == {"wide": 2, "other": 2}


def test_queues_grow_in_the_order_of_their_standing():
    rich = make_gang("rich", "2 gpu=1", queue="a")
    state = make("5 gpu=1", (rich, (0, 1), None), waiting=[(replace(WIDE, queue="a"), 0.0), (replace(OTHER, queue="b"), 0.0)],
                 queues=(Queue("a"), Queue("b")))  # fmt: skip
    assert sizes(state) == {"wide": 1, "other": 2}


def test_only_goodput_grows_who_runs():
    assert sizes(make("4 gpu=1", (WIDE, (0,), 0.0))) == {"wide": 4}
    assert sizes(make("4 gpu=1", (WIDE, (0,), 0.0)), "fair") == {}


@pytest.mark.parametrize(("pause", "grows"), [(0, True), (1, True), (2999, True), (3001, False)])
def test_a_change_must_pay_for_its_pause(pause, grows):
    """4000 s are left at one member, 1000 s at four."""
    state = make("4 gpu=1", (replace(WIDE, resize_pause_us=pause * SECOND_US), (0,), 0.0))
    assert bool(sizes(state)) is grows


def test_nobody_grows_before_it_has_cooled_down():
    state = make("4 gpu=1", (WIDE, (0,), 0.0))
    state.running.columns["cool_until_us"][0] = (NOW + 1) * SECOND_US
    plan = schedule_checked(state.snapshot(), named("goodput"))
    assert plan.decisions == ()
    assert plan.wake_at_us == (NOW + 1) * SECOND_US


def test_ceilings_bound_growth():
    limited = make("4 gpu=1", (replace(WIDE, queue="q"), (0,), 0.0), queues=(Queue("q", limit={"gpu": 2000}),))
    assert sizes(limited) == {"wide": 2}
    users = (UserLimit("ada", {"gpu": 3000}),)
    assert sizes(make("4 gpu=1", (replace(WIDE, user="ada"), (0,), 0.0), users=users)) == {"wide": 3}


def test_nothing_is_kept_for_a_share_that_a_ceiling_forbids():
    """Its date needs all four, its queue may have two: the other six are for whoever can use them."""
    dated = make_gang("dated", "1-4 gpu=1", walltime=1000, queue="q")
    dated = replace(dated, deadline_us=1100 * SECOND_US)
    free = make_gang("free", "1-8 gpu=1", walltime=1000, queue="r")
    queues = (Queue("q", limit={"gpu": 2000}), Queue("r"))
    state = make("8 gpu=1", waiting=[(dated, 0.0), (free, 0.0)], queues=queues)
    assert sizes(state) == {"dated": 2, "free": 6}


def test_nothing_is_kept_for_a_share_to_which_no_seats_come():
    """Its date needs four and three are free; who holds the rest need not give, so that three are better than one."""
    high = make_gang("high", "1-5 gpu=1", walltime=5000, priority=1)
    dated = make_gang("dated", "1-4 gpu=1", walltime=1000, deadline_us=1100 * SECOND_US)
    state = make("8 gpu=1", (high, range(5), 0.0), waiting=[(dated, 0.0)])
    assert sizes(state) == {"dated": 3}


def test_steps_are_taken_whole():
    coarse = make_gang("wide", "1|4 gpu=1", walltime=5000)
    assert sizes(make("3 gpu=1", (coarse, (0,), 0.0))) == {}
    assert sizes(make("4 gpu=1", (coarse, (0,), 0.0))) == {"wide": 4}


@pytest.mark.parametrize(
    ("nodes", "most", "grows"),
    [
        (9, 12, None),  # one of eight is no quarter: whoever comes next would call it back
        (10, 12, 10),
        (11, 12, 11),  # once it is worth a pause, all there is
        (9, 9, 9),  # nothing more will come for it
    ],
)
def test_whoever_runs_pauses_for_a_quarter_or_for_its_largest_size(nodes, most, grows):
    big = make_gang("big", f"4-{most} gpu=1", walltime=50_000)
    state = make(f"{nodes} gpu=1", (big, tuple(range(8)), None))
    assert sizes(state).get("big") == grows


def test_whoever_starts_pauses_for_nothing_and_takes_the_last_one_too():
    assert sizes(make("9 gpu=1", waiting=[(make_gang("big", "8-12 gpu=1", walltime=50_000), None)])) == {"big": 9}


@pytest.mark.parametrize(("pause", "taker"), [(0, {"short": 3}), (5, {})])
def test_what_is_given_without_a_pause_is_taken_in_the_same_plan(pause, taker):
    """With a pause the seats are empty later, which is an event; without one nothing would happen until an end."""
    long = make_gang("long", "1-4 gpu=1", walltime=50_000, resize_pause_us=pause * SECOND_US)
    short = make_gang("short", "1-4 gpu=1", walltime=5000, resize_pause_us=pause * SECOND_US)
    state = make("4 gpu=1", (long, (0, 1, 2), 0.0), (short, (3,), 0.0))
    assert sizes(state) == {"long": 1} | taker


def test_room_under_a_reservation_is_lent():
    """Two of four are free until a third is; wide has them until then, and is told."""
    head = make_gang("head", "3 gpu=1", walltime=100)
    short = make_gang("ends", "1 gpu=1", walltime=2000)
    state = make("4 gpu=1", (short, (0,), None), (WIDE, (1,), 0.0), waiting=[(head, None)])
    plan = schedule_checked(state.snapshot(), named("goodput"))
    assert [(each.gang, each.members, each.guest) for each in plan.decisions] == [(1, 3, Guest.SURPLUS)]


# ---------------------------------------------------------------------- sizes that people want


def pinned(state, members, policy="fair"):
    state.pin(0, members)
    plan = schedule_checked(state.snapshot(), named(policy))
    return [(each.gang, each.members, each.cause) for each in plan.decisions]


@pytest.mark.parametrize("policy", ["easy", "fair", "goodput"])
def test_a_pinned_gang_has_its_size_at_once(policy):
    assert pinned(make("4 gpu=1", (WIDE, (0, 1, 2), 0.0)), 2, policy) == [(0, 2, Cause.PIN)]
    assert pinned(make("4 gpu=1", (WIDE, (0, 1), 0.0)), 4, policy) == [(0, 4, Cause.PIN)]
    assert pinned(make("4 gpu=1", (WIDE, (0, 1), 0.0)), 2, policy) == []


def test_it_takes_the_surplus_of_an_equal():
    other = (OTHER, (1, 2, 3), 0.0)
    assert pinned(make("4 gpu=1", (WIDE, (0,), 0.0), other), 3) == [(0, 3, Cause.PIN), (1, 1, Cause.LOAN)]
    better = (replace(OTHER, priority=1), (1, 2, 3), 0.0)
    assert pinned(make("4 gpu=1", (WIDE, (0,), 0.0), better), 3) == []


def test_it_waits_until_a_lender_has_left():
    slow = (replace(OTHER, resize_pause_us=10 * SECOND_US), (1, 2, 3), 0.0)
    state = make("4 gpu=1", (WIDE, (0,), 0.0), slow)
    assert pinned(state, 3) == [(1, 1, Cause.LOAN)]
    state.apply(schedule_checked(state.snapshot(), named("fair")))
    assert schedule_checked(state.snapshot(), named("fair")).decisions == ()


def test_what_cannot_be_had_is_refused():
    state = make("4 gpu=1", (make_gang("rigid", "1 gpu=1"), (0,), None), (WIDE, (1,), 0.0))
    assert not state.pin(0, 2)
    assert not state.pin(1, 5)
    assert state.pin(1, 4)
    assert state.pin(1, None)
    assert state.pins == {}

"""Losses and drains: a place for the lost members, else a whole place, else waiting; who can leave a node, leaves it."""

from dataclasses import replace

import pytest

from phalanx.control.losses import lose_node
from phalanx.control.state import State
from phalanx.model.fleet import Fleet
from phalanx.model.gang import SnapshotHabit
from phalanx.model.plan import Cause, Evict, Move, Repair, Resize, Restart
from phalanx.model.window import Window
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, occupy, seat
from phalanx.testing.checking import schedule_checked

SAVES = SnapshotHabit(60 * SECOND_US, 0, 0)


def make(nodes, *running, levels=(), spares=0, windows=()):
    """Gangs that sit: (gang, places by role)."""
    made = make_nodes(*((nodes,) if isinstance(nodes, str) else nodes))
    made = tuple(replace(node, spare=index >= len(made) - spares) for index, node in enumerate(made))
    state = State(Fleet(made, levels), windows=windows)
    for gang, *places in running:
        seat(state, state.submit(gang), *places)
    state.now_us = 1000 * SECOND_US
    return state


def lose(state, *nodes):
    for node in nodes:
        lose_node(state, node)
        state.set_up(node, up=False)
    return state


def tell(state, policy="easy"):
    """What each running gang is told, and where it then sits."""
    plan = schedule_checked(state.snapshot(), named(policy))
    told = {}
    for decision in plan.decisions:
        places = [
            dict(zip(each.nodes.tolist(), each.counts.tolist(), strict=True)) for each in getattr(decision, "seats", ())
        ]
        told[state.gangs[decision.gang].name] = (type(decision), *places)
    return told


TWO = make_gang("two", "2 gpu=1", walltime=5000)
WIDE = make_gang("wide", "1-3 gpu=1", walltime=5000)


# ---------------------------------------------------------------------- losses


def test_a_free_place_for_the_lost_member():
    assert tell(lose(make("3 gpu=1", (TWO, {0: 1, 1: 1})), 0)) == {"two": (Repair, {1: 1, 2: 1})}


def test_in_the_domain_that_the_rest_sits_in():
    racks = ("2 gpu=1 rack:x", "2 gpu=1 rack:y")
    inside = replace(TWO, topology=make_gang("_", "1 gpu=1", topology=">rack").topology)
    state = make(racks, (inside, {0: 1, 1: 1}), levels=("rack",))
    assert tell(lose(state, 0)) == {"two": (Restart, {2: 1, 3: 1})}, "no place beside the healthy one"


def test_nothing_free_means_waiting_on_what_is_left():
    state = lose(make("2 gpu=1", (TWO, {0: 1, 1: 1})), 0)
    assert tell(state) == {}
    assert int(state.running.columns["members"][0]) == 0


def test_a_spare_is_the_last_resort():
    state = make("4 gpu=1", (TWO, {0: 1, 1: 1}), spares=1)
    assert tell(lose(state, 0)) == {"two": (Repair, {1: 1, 2: 1})}
    busy = make("4 gpu=1", (TWO, {0: 1, 1: 1}), spares=1)
    occupy(busy, 2, [1000])
    assert tell(lose(busy, 0)) == {"two": (Repair, {1: 1, 3: 1})}


def test_an_elastic_gang_that_is_still_large_enough_runs_on():
    state = lose(make("3 gpu=1", (WIDE, {0: 1, 1: 1, 2: 1})), 0)
    assert state.degraded[0].whole
    assert int(state.running.columns["members"][0]) == 2
    assert tell(state) == {}
    more = lose(make("4 gpu=1", (WIDE, {0: 1, 1: 1, 2: 1})), 0)
    assert tell(more) == {"wide": (Repair, {1: 1, 2: 1, 3: 1})}


def test_whoever_lost_everything_starts_elsewhere_or_queues_again():
    state = lose(make("4 gpu=1", (TWO, {0: 1, 1: 1})), 0, 1)
    assert tell(state) == {"two": (Restart, {2: 1, 3: 1})}


def test_the_most_important_is_mended_first():
    high = make_gang("high", "1 gpu=1", priority=1)
    state = make("3 gpu=1", (make_gang("low", "1 gpu=1"), {0: 1}), (high, {1: 1}))
    assert tell(lose(state, 0, 1)) == {"high": (Restart, {2: 1})}


def test_roles_are_mended_together_or_not_at_all():
    gang = make_gang("two", "1 gpu=1", "1 cpu=1")
    state = make(("1 gpu=1 cpu=1", "1 gpu=1"), (gang, {0: 1}, {0: 1}))
    assert tell(lose(state, 0)) == {}


# ---------------------------------------------------------------------- drains


def drain(state, node):
    state.set_open(node, open_=False, drain=True)
    return state


def test_who_leaves_a_draining_node():
    mover = replace(TWO, preemptible=True, snapshot=SAVES)
    assert tell(drain(make("4 gpu=1", (mover, {0: 1, 1: 1})), 0))["two"][0] is Move
    assert tell(drain(make("4 gpu=1", (TWO, {0: 1, 1: 1})), 0)) == {}
    assert tell(drain(make("4 gpu=1", (replace(mover, snapshot=None), {0: 1, 1: 1})), 0)) == {}
    assert tell(drain(make("2 gpu=1", (mover, {0: 1, 1: 1})), 0)) == {}, "no whole place"


def test_elastic_gangs_go_elsewhere_or_close_their_ranks():
    assert tell(drain(make("4 gpu=1", (WIDE, {0: 1, 1: 1})), 0)) == {"wide": (Resize, {1: 1, 2: 1})}
    assert tell(drain(make("2 gpu=1", (WIDE, {0: 1, 1: 1})), 0)) == {"wide": (Resize, {1: 1})}
    assert tell(drain(make("1 gpu=1", (WIDE, {0: 1})), 0)) == {}, "it would be nothing"


def test_a_whole_rack_is_left_for_another_one():
    racks = ("2 gpu=2 rack:x", "1 gpu=1 rack:y", "1 gpu=2 rack:z")
    inside = make_gang("wide", "2-4 gpu=1", topology=">rack", walltime=5000)
    state = drain(drain(make(racks, (inside, {0: 2, 1: 1}), levels=("rack",)), 0), 1)
    assert tell(state) == {"wide": (Resize, {3: 2})}


@pytest.mark.parametrize(("soft", "told"), [(True, {"two": (Evict,)}), (False, {})])
def test_when_a_window_opens_whoever_may_be_stopped_is(soft, told):
    window = Window("upgrade", ("n0",), 1000 * SECOND_US, 2000 * SECOND_US)
    state = make("2 gpu=1", (replace(TWO, preemptible=soft), {0: 1, 1: 1}), windows=(window,))
    assert tell(state) == told


def test_a_window_made_for_somebody_does_not_send_them_away():
    window = Window("hers", ("n0",), 1000 * SECOND_US, 2000 * SECOND_US, users=("ada",))
    state = make("2 gpu=1", (replace(TWO, preemptible=True, user="ada"), {0: 1, 1: 1}), windows=(window,))
    assert tell(state) == {}


def test_evictions_of_a_drain_are_for_nobody():
    window = Window("upgrade", ("n0",), 1000 * SECOND_US, 2000 * SECOND_US)
    state = make("2 gpu=1", (replace(TWO, preemptible=True), {0: 1, 1: 1}), windows=(window,))
    (told,) = schedule_checked(state.snapshot(), named("easy")).decisions
    assert (told.cause, told.beneficiary) == (Cause.DRAIN, None)

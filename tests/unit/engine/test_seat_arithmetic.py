"""Seats are added, taken away and cut without losing a member or a device; more seats are found beside those one has."""

import random

import numpy as np
import pytest

from phalanx.engine.room.extend import extend
from phalanx.engine.room.seats import (
    add_seats,
    drop_tail,
    elastic_members,
    part_of,
    sizes_of,
    still_free,
    subtract_seats,
)
from phalanx.engine.room.view import find_need
from phalanx.engine.session import Session
from phalanx.model.fleet import Fleet
from phalanx.model.plan import Seats
from phalanx.policy import named
from phalanx.testing.builders import make_gang, make_nodes, make_role, make_state, occupy, seat

FLEET = Fleet(make_nodes("3 gpu=4 cpu=8"), ())
WHOLE, PAIR, SHARE = (make_role(f"2-8 {need}").shape for need in ("gpu=1", "gpu=2", "gpu=0.5"))


def make_seats(counts, devices):
    nodes, members = np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64)
    return Seats(0, nodes, members, np.array(devices, dtype=np.int16).reshape(len(counts), 4))


SIX = make_seats({2: 4, 0: 2}, [[1000] * 4, [0, 1000, 0, 1000]])


def facts(seats):
    return dict(zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True)), seats.devices.tolist()


def test_the_last_ranks_leave_first_and_take_their_devices_along():
    five = drop_tail(FLEET, WHOLE, SIX, 1)
    assert facts(five) == ({2: 4, 0: 1}, [[1000] * 4, [0, 1000, 0, 0]])
    three = drop_tail(FLEET, WHOLE, SIX, 3)
    assert facts(three) == ({2: 3}, [[1000, 1000, 1000, 0]])
    assert drop_tail(FLEET, WHOLE, SIX, 0) is SIX
    assert drop_tail(FLEET, WHOLE, SIX, 6).members == 0


def test_a_member_of_two_devices_leaves_with_both():
    pairs = make_seats({1: 2}, [1000] * 4)
    assert facts(drop_tail(FLEET, PAIR, pairs, 1)) == ({1: 1}, [[1000, 1000, 0, 0]])


def test_shares_leave_whole():
    shares = make_seats({1: 5}, [1000, 500, 1000, 0])
    for leaving in range(6):
        given = part_of(FLEET, SHARE, shares, {1: leaving})
        left = subtract_seats(shares, given)
        assert left.members == 5 - leaving
        assert given.devices.sum() == 500 * leaving
        assert all(milli % 500 == 0 for milli in given.devices.ravel())


def test_what_is_taken_away_can_be_added_again():
    for seed in range(100):
        rng = random.Random(seed)
        counts = {node: rng.randint(1, 4) for node in rng.sample(range(3), rng.randint(1, 3))}
        seats = make_seats(
            counts, [[1000 if device < count else 0 for device in range(4)] for count in counts.values()]
        )
        some = {node: rng.randint(0, count) for node, count in counts.items()}
        given = part_of(FLEET, WHOLE, seats, some)
        left = subtract_seats(seats, given)
        assert left.members + given.members == seats.members
        together = add_seats(left, given)
        assert dict(sorted(facts(together)[0].items())) == dict(sorted(counts.items()))
        assert together.devices.sum() == seats.devices.sum()


def test_new_nodes_have_the_last_ranks():
    more = make_seats({1: 2, 0: 1}, [[1000, 1000, 0, 0], [1000, 0, 0, 0]])
    both = add_seats(SIX, more)
    assert facts(both) == ({2: 4, 0: 3, 1: 2}, [[1000] * 4, [1000, 1000, 0, 1000], [1000, 1000, 0, 0]])
    assert add_seats(SIX, make_seats({}, [])) is SIX


def test_only_elastic_roles_count_for_the_speed():
    gang = make_gang("A", "2-4 gpu=1", "3 cpu=1", "1|5 gpu=1")
    assert elastic_members(gang, (2, 3, 5)) == 7
    assert sizes_of((SIX,)) == (6,)


def test_what_others_were_given_meanwhile_is_not_free_any_more():
    """Of seats that are being left, the part that nobody got."""
    free, devices = FLEET.capacity.copy(), FLEET.device_capacity.copy()
    devices[2] = [0, 0, 1000, 1000]
    free[2, 0] = 2000
    rest = still_free(free, devices, find_need(FLEET, WHOLE), SIX)
    assert facts(rest) == ({2: 2, 0: 2}, [[0, 0, 1000, 1000], [0, 1000, 0, 1000]])
    free[0, 0] = 0
    assert facts(still_free(free, devices, find_need(FLEET, WHOLE), SIX))[0] == {2: 2}


# ---------------------------------------------------------------------- more seats

RACKS = ("2 gpu=2 rack:x", "2 gpu=2 rack:y")


def grow(gang, places, count, *, role=0, busy=(), lines=RACKS):
    """Nodes of the additional members, or None."""
    state = make_state(*lines, levels=("rack",), gangs=[gang])
    seat(state, 0, *places)
    for node, devices in busy:
        occupy(state, node, devices)
    session = Session(state.snapshot(), named("goodput"))
    before = session.view.free.copy()
    found = extend(session.view, gang, state.records[0].seats, role, count)
    if found is None:
        assert (session.view.free == before).all(), "nothing is taken if nothing is found"
        return None
    assert (before - session.view.free).sum() == count * 1000
    return dict(zip(found.nodes.tolist(), found.counts.tolist(), strict=True))


def test_members_join_where_the_gang_sits():
    assert grow(make_gang("A", "1-4 gpu=1"), [{2: 1}], 1) == {2: 1}
    assert grow(make_gang("A", "1-4 gpu=1 ~rack"), [{2: 1}], 2) == {2: 1, 3: 1}


def test_members_stay_inside_the_domain_that_is_required():
    assert grow(make_gang("A", "1-8 gpu=1", topology=">rack"), [{0: 2}], 2) == {1: 2}
    assert grow(make_gang("A", "1-8 gpu=1", topology=">rack"), [{0: 2}], 3) is None
    assert grow(make_gang("A", "1-8 gpu=1 >node"), [{0: 1}], 2) is None
    loader = make_gang("A", "1 gpu=1", "1-2 gpu=1", topology=">rack")
    full = [(0, [0, 1000]), (1, [0, 1000])]
    assert grow(loader, [{0: 1}, {1: 1}], 1, role=1, busy=full) is None, "where the first role sits"
    assert grow(loader, [{0: 1}, {1: 1}], 1, role=1, busy=full[:1]) == {1: 1}


def test_a_wider_domain_if_the_preferred_one_is_full():
    gang = make_gang("A", "1-8 gpu=1 ~rack")
    assert grow(gang, [{0: 2}], 1, busy=[(1, [1000, 1000])]) in ({2: 1}, {3: 1})


@pytest.mark.parametrize(("count", "wanted"), [(2, {1: 2}), (1, {1: 1})])
def test_groups_of_ranks_stay_together(count, wanted):
    gang = make_gang("A", "2-8 gpu=1", topology="/2:node")
    assert grow(gang, [{0: 2}], count) == wanted
    odd = make_gang("A", "1-8 gpu=1", topology="/2:node")
    assert grow(odd, [{0: 1}], count) is None, "the last group is not full"

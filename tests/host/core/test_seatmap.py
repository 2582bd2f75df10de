"""Seats of the engine as members with devices, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.frontends.host.core.jobs import Member
from phalanx.frontends.host.core.seatmap import join_seats, match, split_seats
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Seats


def gang(*shares: int) -> Gang:
    roles = [
        Role(f"r{at}", Sizes((1, 2, 3, 4, 5, 6, 7, 8)), Shape((("gpu", s),) if s else (("cpu", 1000),)))
        for at, s in enumerate(shares)
    ]
    return Gang("1", tuple(roles))


def seats(role: int, count: int, *row: int) -> Seats:
    return Seats(role, np.array([0]), np.array([count]), np.array([row], dtype=np.int16))


def test_whole_devices_are_dealt_in_order():
    found = split_seats(gang(2000), [seats(0, 2, 0, 1000, 1000, 0, 1000, 1000)])
    assert found == [("r0", ((1, 1000), (2, 1000))), ("r0", ((4, 1000), (5, 1000)))]


def test_shares_sit_where_the_row_says():
    found = split_seats(gang(250), [seats(0, 3, 500, 0, 250)])
    assert found == [("r0", ((0, 250),)), ("r0", ((0, 250),)), ("r0", ((2, 250),))]


def test_members_without_devices_have_none():
    assert split_seats(gang(0), [seats(0, 2, 0, 0)]) == [("r0", ()), ("r0", ())]


@given(st.integers(1, 4), st.integers(1, 2), st.permutations(range(8)))
def test_there_and_back(count, width, order):
    row = [0] * 8
    for device in order[: count * width]:
        row[device] = 1000
    one = gang(width * 1000)
    given_ = (seats(0, count, *row),)
    members = [Member(at, role, devices, rank=at) for at, (role, devices) in enumerate(split_seats(one, given_))]
    (back,) = join_seats(one, members, 8)
    assert back.key() == given_[0].key()


def test_who_stays_is_who_keeps_its_devices():
    one = gang(1000)
    members = [Member(at, "r0", ((at, 1000),), rank=at) for at in range(4)]
    leaving, places = match(one, [seats(0, 3, 1000, 0, 1000, 0, 1000)], members)
    assert [member.key for member in leaving] == [1, 3]
    assert places == [("r0", ((4, 1000),))]


def test_without_devices_the_highest_ranks_leave():
    one = gang(0)
    members = [Member(at, "r0", (), rank=at) for at in range(4)]
    leaving, places = match(one, [seats(0, 2, 0)], members)
    assert ([member.key for member in leaving], places) == ([2, 3], [])


def test_several_roles_keep_apart():
    one = gang(1000, 0)
    members = [Member(0, "r0", ((0, 1000),), rank=0), Member(1, "r1", (), rank=1)]
    first, second = join_seats(one, members, 2)
    assert (first.members, second.members) == (1, 1)
    with pytest.raises(KeyError):
        join_seats(one, [Member(0, "nobody", (), rank=0)], 2)

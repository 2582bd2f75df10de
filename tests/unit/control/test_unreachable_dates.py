"""What is said of a date that is out of reach: how long the gang needs, and how long the date leaves it."""

import pytest

from phalanx.frontends.sim.run import simulate
from phalanx.testing.whole_worlds import read_tree

ALONE = {"name": "alone", "duration": 100, "walltime": 100, "startup": 20, "deadline": 50, "members": 4}
FIRST, SECOND = ({"name": name, "duration": 100, "walltime": 100, "deadline": 110, "members": 8} for name in "ab")


def reasons_of(gangs, **options):
    cluster = {"nodes": [{"name": "n0", "resources": {"gpu": 8}}]}
    world = read_tree({"cluster": cluster, "gangs": [gang | {"each": {"gpu": 1}} for gang in gangs]})
    return {gang.name: gang.reason for gang in simulate(world, "goodput", options).gangs}


def test_alone_on_an_empty_cluster():
    _, words, needed, available = reasons_of([ALONE])["alone"]
    assert (needed, available) == (120_000_000, 50_000_000)
    assert words.endswith("alone on an empty cluster it needs 120 s, and its date leaves 50 s")


def test_beside_those_who_were_promised_theirs():
    reasons = reasons_of([FIRST, SECOND], admit="refuse")
    assert reasons["a"] is None
    # It could be promised 200 s after its submit.
    assert reasons["b"][2:] == (200_000_000, 110_000_000)


@pytest.mark.parametrize("deadline", [120, 121])
def test_a_date_that_leaves_enough_is_no_reason(deadline):
    assert reasons_of([ALONE | {"deadline": deadline}])["alone"] is None

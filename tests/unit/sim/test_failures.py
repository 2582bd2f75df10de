"""Node failures that a seed decides."""

import statistics

import pytest

from phalanx.frontends.sim.failures import failure_events
from phalanx.frontends.sim.scenario import read_cluster

HOUR = 3_600_000_000
NODES = read_cluster("20x8", "gpu")


def test_every_failure_is_repaired_and_nodes_take_turns():
    events = failure_events(NODES, 100 * HOUR, 2 * HOUR, 1_000 * HOUR, 5)
    assert [event.at_us for event in events] == sorted(event.at_us for event in events)
    for node in NODES:
        verbs = [event.verb for event in events if event.node == node.name]
        assert verbs == ["fail", "repair"] * (len(verbs) // 2)
    assert all(event.at_us < 1_000 * HOUR for event in events if event.verb == "fail")


def test_means_are_those_asked_for():
    events = failure_events(NODES, 50 * HOUR, 5 * HOUR, 20_000 * HOUR, 1)
    ups, downs = [], []
    for node in NODES:
        mine = [event.at_us for event in events if event.node == node.name]
        ups += [b - a for a, b in zip([0, *mine[1::2]], mine[0::2], strict=False)]
        downs += [b - a for a, b in zip(mine[0::2], mine[1::2], strict=True)]
    assert statistics.mean(ups) == pytest.approx(50 * HOUR, rel=0.05)
    assert statistics.mean(downs) == pytest.approx(5 * HOUR, rel=0.05)
    assert statistics.pstdev(ups) == pytest.approx(50 * HOUR, rel=0.1), "memoryless"


def test_a_seed_decides():
    first = failure_events(NODES, 50 * HOUR, 5 * HOUR, 500 * HOUR, 1)
    assert failure_events(NODES, 50 * HOUR, 5 * HOUR, 500 * HOUR, 1) == first
    assert failure_events(NODES, 50 * HOUR, 5 * HOUR, 500 * HOUR, 2) != first


def test_more_nodes_change_nothing_about_the_others():
    few = failure_events(NODES[:3], 50 * HOUR, 5 * HOUR, 500 * HOUR, 1)
    many = failure_events(NODES, 50 * HOUR, 5 * HOUR, 500 * HOUR, 1)
    names = {node.name for node in NODES[:3]}
    assert few == tuple(event for event in many if event.node in names)
    assert few


def test_mean_times_are_more_than_nothing():
    with pytest.raises(ValueError, match="must be more than 0"):
        failure_events(NODES, 0, HOUR, HOUR, 1)
    with pytest.raises(ValueError, match="must be more than 0"):
        failure_events(NODES, HOUR, 0, HOUR, 1)

"""Levels as dialects name them, in the words of the cluster."""

import pytest

from phalanx.frontends.kube.topology_wishes import LevelNames, NamedLevel, TopologyWish, name_levels
from phalanx.model.topology import Segment, Topology

NAMES = LevelNames(("block", "rack"), {"example.com/rack": "rack"}, {"rackLayer": "rack"})


def wish(require=(), prefer=(), segments=()):
    return TopologyWish(tuple(NamedLevel(*each) for each in require), tuple(NamedLevel(*each) for each in prefer),
                        tuple((size, NamedLevel(*level)) for size, level in segments), "spec.here")  # fmt: skip


@pytest.mark.parametrize(
    ("wished", "found"),
    [
        (wish(), Topology()),
        (wish([("label", "example.com/rack")]), Topology(require="rack")),
        (wish([("label", "kubernetes.io/hostname")]), Topology(require="node")),
        (wish([("layer", "rackLayer"), ("layer", "block")]), Topology(require="rack")),
        (wish([("layer", "block")], [("layer", "rack")]), Topology("block", "rack")),
        (wish([("tier", "1")]), Topology(require="rack")),
        (wish([("tier", "2")]), Topology(require="block")),
        (wish([], [("tier name", "block")]), Topology(prefer="block")),
        (wish([], [("layer", "rack")], [(4, ("layer", "rack"))]), Topology(None, "rack", Segment(4, "rack"))),
    ],
)
def test_levels_by_every_name(wished, found):
    assert name_levels(wished, NAMES) == (found, ())


@pytest.mark.parametrize("level", [("label", "zone"), ("layer", "spine"), ("tier name", "pod"), ("tier", "3")])
def test_a_level_that_nobody_configured_is_told(level):
    found, (remark,) = name_levels(wish([level]), NAMES)
    assert found == Topology()
    assert (type(remark).__name__, remark.field) == ("Invalid", "spec.here")
    assert "block, rack, node" in remark.says


def test_without_configured_levels_no_tier_is_known():
    found, remarks = name_levels(wish([("tier", "1")]), LevelNames())
    assert (found, len(remarks)) == (Topology(), 1)


def test_multiples_at_several_layers_are_refused():
    _, (remark,) = name_levels(wish([], [], [(2, ("layer", "rack")), (4, ("layer", "block"))]), NAMES)
    assert type(remark).__name__ == "Unsupported"

"""The logical cluster in the words of pods: who starts where, and what becomes of the room."""

from __future__ import annotations

import pytest
from kube_objects import pod

from phalanx.frontends.kube.expressing import Venture
from phalanx.frontends.kube.gang_view import Dialect, GangKey, MemberPhase, PodMember
from phalanx.frontends.kube.kube_planner import KubePlanner
from phalanx.frontends.kube.taking_over import find_bound_us
from phalanx.model.fleet import Node
from phalanx.model.gang import Gang, Role, Shape, Sizes, Together
from phalanx.policy import POLICIES

GPU = "example.com/gpu"
SHAPE = Shape(((GPU, 1000),))


def key_of(name):
    return GangKey(Dialect.NATIVE, "team", name)


def members(name, count, node=""):
    phase = MemberPhase.SEATED if node else MemberPhase.WAITING
    return tuple(PodMember(f"{name}-{at}", f"{name}/{at}", "1", phase, node=node) for at in range(count))


def venture(name, count, together=None):
    gang = Gang(key_of(name).unique, (Role("member", Sizes((count,)), SHAPE),), together=together)
    return Venture(gang, (members(name, count),))


def make_planner(*devices):
    nodes = [Node(f"n{at}", {GPU: each * 1000}) for at, each in enumerate(devices)]
    return KubePlanner(nodes, (), POLICIES["easy"], 0)


def free(planner):
    return (planner.state.snapshot().nodes.free[:, 0] // 1000).tolist()


def settle(planner, name, count, **options):
    planner.settle(key_of(name), (venture(name, count, **options),), None)


def test_members_sit_in_rank_order_and_hold_their_room():
    planner = make_planner(2, 2)
    settle(planner, "a", 4)
    (departure,) = planner.plan()
    assert [(berth.name, berth.node) for berth in departure.berths] == [
        ("a-0", "n0"),
        ("a-1", "n0"),
        ("a-2", "n1"),
        ("a-3", "n1"),
    ]
    assert free(planner) == [0, 0]
    planner.land(departure.numbers[0])
    for at in range(3):
        planner.lose_pod(f"a/{at}")
    assert free(planner) == [2, 1]
    planner.lose_pod("a/3")
    assert planner.parties == {}
    assert free(planner) == [2, 2]


def test_a_gang_that_changes_keeps_its_turn():
    planner = make_planner(0)
    settle(planner, "a", 2)
    planner.at(1)
    settle(planner, "b", 2)
    settle(planner, "a", 3)
    assert planner.plan() == []
    planner.put_nodes([Node("n1", {GPU: 3000})])
    (departure,) = planner.plan()
    assert departure.keys == (key_of("a"),)


def test_what_turned_back_holds_nothing_and_rests():
    planner = make_planner(4)
    settle(planner, "a", 4)
    (departure,) = planner.plan()
    assert planner.turn_back(departure.numbers[0], "the API server said no") == {key_of("a")}
    assert free(planner) == [4]
    assert planner.plan() == [], "not at once again"
    planner.at(planner.next_due_us())
    assert [each.keys for each in planner.plan()] == [(key_of("a"),)]


def test_gangs_that_start_together_turn_back_together():
    planner = make_planner(4)
    word = Together("both", 2)
    settle(planner, "a", 2, together=word)
    assert planner.plan() == []
    settle(planner, "b", 2, together=word)
    (departure,) = planner.plan()
    assert len(departure.numbers) == 2
    assert planner.turn_back(departure.numbers[0], "no") == {key_of("a"), key_of("b")}
    assert planner.turn_back(departure.numbers[1], "no") == set()
    assert free(planner) == [4]


def test_a_pod_lost_on_the_way_is_lost_when_the_others_have_landed():
    planner = make_planner(4)
    settle(planner, "a", 4)
    (departure,) = planner.plan()
    planner.lose_pod("a/2")
    assert free(planner) == [0]
    planner.land(departure.numbers[0])
    assert free(planner) == [1]


def test_others_count_and_what_was_there_when_we_came():
    planner = make_planner(4, 4)
    pods = [(member, SHAPE) for member in members("old", 3, node="n1")]
    planner.seat(key_of("old"), "old", pods)
    planner.set_others("n0", {GPU: 3000, "unknown": 7})
    assert free(planner) == [1, 1]
    settle(planner, "a", 3)
    assert planner.plan() == []
    planner.set_others("n0", {})
    assert len(planner.plan()) == 1


def test_what_was_there_when_we_came_ends_when_it_would_have():
    planner = make_planner(4)
    planner.at(100_000_000)
    pods = [(member, SHAPE) for member in members("old", 4, node="n0")]
    planner.seat(key_of("old"), "old", pods, since_us=40_000_000, walltime_us=600_000_000)
    (number,) = planner.parties
    assert planner.state.start_of(number) == 40_000_000
    assert planner.state.end_of(number) == 640_000_000


@pytest.mark.parametrize(
    ("conditions", "at_us"),
    [
        ([], None),
        ([{"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-11-19T12:00:00Z"}], None),
        ([{"type": "PodScheduled", "status": "True"}], None),
        ([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "soon"}], None),
        (
            [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-19T12:00:00Z"}],
            1795089600_000_000,
        ),
    ],
)
def test_when_a_pod_was_bound(conditions, at_us):
    assert find_bound_us(pod(status={"conditions": conditions})) == at_us


def test_a_node_that_goes_takes_its_pods_along_and_may_come_back():
    planner = make_planner(2, 2)
    settle(planner, "a", 4)
    (departure,) = planner.plan()
    planner.drop_node("n1")
    planner.plan()
    assert planner.state.fleet.nodes[1].resources, "not before the gang has turned back"
    planner.turn_back(departure.numbers[0], "node n1 is gone")
    planner.plan()
    assert not planner.state.fleet.nodes[1].resources
    planner.put_nodes([Node("n1", {GPU: 2000})])
    planner.at(planner.next_due_us())
    assert len(planner.plan()) == 1


def test_a_node_that_shrinks_under_its_pods_has_nothing_left():
    planner = make_planner(4)
    settle(planner, "a", 3)
    planner.land(planner.plan()[0].numbers[0])
    planner.put_nodes([Node("n0", {GPU: 1000})])
    assert free(planner) == [0]
    planner.lose_pod("a/0")
    assert free(planner) == [1]


@pytest.mark.parametrize("first", ["a", "b"])
def test_ventures_that_are_gone_are_forgotten(first):
    planner = make_planner(0)
    settle(planner, "a", 2)
    settle(planner, "b", 2)
    planner.settle(key_of(first), (), None)
    assert [party.key for party in planner.parties.values()] == [key_of("ba"["ab".index(first)])]
    assert set(planner.explain()) == {key_of("ba"["ab".index(first)])}

"""The logical cluster in the words of pods: who starts where, and what becomes of the room."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace

import pytest
from kube_objects import pod

from phalanx.frontends.kube.expressing import Venture
from phalanx.frontends.kube.flights import find_short
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


def test_ranks_count_from_the_beginning_of_each_gang_and_a_single_one_has_its_own():
    planner = make_planner(8)
    for name in "ab":
        settle(planner, name, 2, together=Together("both", 2))
    (departure,) = planner.plan()
    assert {berth.name: berth.rank for berth in departure.berths} == {"a-0": 0, "a-1": 1, "b-0": 0, "b-1": 1}
    (numbered,) = members("c", 1)
    for name, index in (("c", 5), ("d", -1)):
        gang = Gang(f"{key_of(name).unique}/x", (Role("member", Sizes((1,)), SHAPE),))
        planner.settle(key_of(name), (Venture(gang, ((replace(numbered, uid=name, index=index),),)),), None)
    assert [departure.berths[0].rank for departure in planner.plan()] == [5, -1]


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
    planner.drop_nodes(["n1"])
    planner.plan()
    assert planner.state.fleet.nodes[1].resources, "not before the gang has turned back"
    planner.turn_back(departure.numbers[0], "node n1 is gone")
    planner.plan()
    assert not planner.state.fleet.nodes[1].resources
    planner.put_nodes([Node("n1", {GPU: 2000})])
    planner.at(planner.next_due_us())
    assert len(planner.plan()) == 1


def test_a_node_that_is_back_before_the_gang_has_turned_back_takes_others():
    planner = make_planner(2)
    settle(planner, "a", 2)
    (departure,) = planner.plan()
    planner.drop_nodes(["n0"])
    planner.plan()
    planner.put_nodes([Node("n0", {GPU: 2000})])
    planner.turn_back(departure.numbers[0], "node n0 was gone")
    planner.at(planner.next_due_us())
    assert len(planner.plan()) == 1


def test_of_nodes_that_go_together_only_those_wait_to_which_somebody_is_on_the_way():
    planner = make_planner(2, 2, 2)
    settle(planner, "a", 2)
    planner.land(planner.plan()[0].numbers[0])
    settle(planner, "b", 2)
    (flying,) = planner.plan()
    (sits,) = {node for _, node in planner.parties[0].seats.values()}
    (flies,) = {berth.node for berth in flying.berths}
    planner.drop_nodes(["n0", "n1", "n2", "nowhere"])
    planner.plan()
    left = {node.name for node in planner.state.fleet.nodes if node.resources}
    assert left == {flies}
    assert planner.find_party("a/0") is None, "its node is gone"
    assert sits != flies
    planner.turn_back(flying.numbers[0], "gone")
    planner.plan()
    assert not any(node.resources for node in planner.state.fleet.nodes)


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


def test_gangs_that_start_together_do_so_although_one_of_them_changes_or_goes_and_comes_back():
    planner = make_planner(0)
    word = Together("both", 2)
    for name in "ab":
        settle(planner, name, 2, together=word)
    settle(planner, "a", 3, together=word)
    planner.settle(key_of("b"), (), None)
    planner.put_nodes([Node("n1", {GPU: 8000})])
    assert planner.plan() == [], "a waits for b, whether b was ever here or not"
    settle(planner, "b", 2, together=word)
    (departure,) = planner.plan()
    assert (len(departure.numbers), len(departure.berths)) == (2, 5)


def test_one_that_leaves_its_group_starts_alone_and_the_others_wait_for_another():
    planner = make_planner(8)
    planner.loop.open_node(0, open_=False)
    for name in "ab":
        settle(planner, name, 2, together=Together("both", 2))
    settle(planner, "a", 2)
    planner.loop.open_node(0, open_=True)
    assert [each.keys for each in planner.plan()] == [(key_of("a"),)]
    settle(planner, "c", 2, together=Together("both", 2))
    assert [set(each.keys) for each in planner.plan()] == [{key_of("b"), key_of("c")}]


def count_reachable(root):
    """Objects that something holds on to, numbers aside."""
    seen, open_ = {id(root)}, [root]
    while open_:
        for each in gc.get_referents(open_.pop()):
            if id(each) not in seen and not isinstance(each, int | type) and type(each).__name__ != "module":
                seen.add(id(each))
                open_.append(each)
    return len(seen)


def run_through(planner, numbers):
    """Pairs that start together, singles, some that are refused, some that go before they start."""
    for number in numbers:
        planner.at(number * 10_000_000)
        settle(planner, f"g{number}", 2, together=Together(f"w{number // 2}", 2) if number % 4 < 2 else None)
        for departure in planner.plan():
            if number % 8 == 7:
                planner.turn_back(departure.numbers[0], "no")
                planner.settle(key_of(f"g{number}"), (), None)
                continue
            for each in departure.numbers:
                planner.land(each)
            for berth in departure.berths:
                planner.lose_pod(berth.uid)


def test_gangs_that_have_come_and_gone_leave_nothing():
    planner = make_planner(8)
    run_through(planner, range(1_200))  # what is kept of the latest thousand is full by then
    before = count_reachable(planner)
    run_through(planner, range(1_200, 5_000))
    assert planner.parties == {}
    assert count_reachable(planner) <= before + 50


def test_a_gang_of_twenty_thousand_is_planned_and_its_rest_is_counted():
    planner = make_planner(*[8] * 2_500)
    settle(planner, "big", 20_000)
    (departure,) = planner.plan()
    assert Counter(berth.node for berth in departure.berths) == {f"n{at}": 8 for at in range(2_500)}
    assert [berth.rank for berth in departure.berths] == list(range(20_000))
    room = {f"n{at}": {GPU: 8_000} for at in range(2_500)}
    need = {berth.uid: {GPU: 1_000} for berth in departure.berths}
    assert find_short(departure.berths, room, need) == ""
    room["n77"] = {GPU: 7_000}
    assert "n77" in find_short(departure.berths, room, need)
    planner.turn_back(departure.numbers[0], "no")
    assert free(planner) == [8] * 2_500

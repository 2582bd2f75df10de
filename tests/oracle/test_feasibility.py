"""We place a gang exactly when some placement exists, and call it infeasible exactly when none ever could.

One decision at a time on a partly filled cluster, against `phalanx.testing.exhaustive`, which tries everything.
"""

import itertools
import random
from dataclasses import replace

import pytest

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import check_plan
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import After, Together
from phalanx.policy import named
from phalanx.testing.builders import make_gang, make_nodes, make_state, occupy
from phalanx.testing.exhaustive import empty_board, find_any, read_board
from phalanx.testing.worlds import Taste, draw_gang

FCFS = named("fcfs")

#: Every feature on a cluster of two nodes: shares, whole devices, a second kind, roles, domains, groups.
SMALL = [
    make_gang("whole", "1 gpu=1"),
    make_gang("two-whole", "2 gpu=1"),
    make_gang("three-whole", "3 gpu=1"),
    make_gang("wide", "1 gpu=2"),
    make_gang("half", "3 gpu=0.5"),
    make_gang("many-halves", "6 gpu=0.5"),
    make_gang("odd-shares", "3 gpu=0.3"),
    make_gang("heavy-shares", "2 gpu=0.7"),
    make_gang("gpu-and-cpu", "2 gpu=1 cpu=2"),
    make_gang("cpu", "3 cpu=2"),
    make_gang("one-node", "2 gpu=1", topology=">node"),
    make_gang("one-node-halves", "3 gpu=0.5", topology=">node"),
    make_gang("pairs", "4 gpu=0.5", topology="/2:node"),
    make_gang("triples", "4 gpu=0.5", topology="/3:node"),
    make_gang("share-beside-whole", "1 gpu=1", "1 gpu=0.5"),
    make_gang("shares-that-fill", "1 gpu=0.5", "2 gpu=0.3", "1 gpu=0.7"),
    make_gang("learner-and-loader", "2 gpu=1", "2 cpu=2"),
    make_gang("each-on-a-node", "2 gpu=0.5 >node", "2 cpu=1 >node"),
    make_gang("all-on-a-node", "2 gpu=0.5", "1 cpu=2", topology=">node"),
    make_gang("pairs-and-one", "2 gpu=1 /2:node", "1 gpu=0.5"),
]


def decide(state: State, gangs) -> tuple[bool, bool]:
    """Whether the engine starts these gangs, and whether it calls them impossible; the state is left as it was."""
    numbers = [state.submit(gang) for gang in gangs]
    snapshot = state.snapshot()
    plan = schedule(snapshot, FCFS)
    assert check_plan(snapshot, plan, FCFS) == []
    started = {decision.gang for decision in plan.decisions}
    assert started in (set(), set(numbers))
    for number in numbers:
        state.cancel(number)
    return bool(started), set(plan.infeasible) >= set(numbers)


def fill_node(rng, state, node):
    """Leave some thousandths of every device, and some of every other kind."""
    used = [
        1000 - rng.choice([0, 300, 500, 700, 1000, 1000]) if left else 0
        for left in state.nodes.device_free[node].tolist()
    ]
    cpu = int(state.nodes.free[node][state.fleet.kind_index["cpu"]]) // 1000
    occupy(state, node, used, cpu=rng.randint(0, cpu))


def list_small_fills():
    """Every amount of room that two nodes of two devices and four cpu can be left with, in halves."""
    devices = list(itertools.combinations_with_replacement((0, 500, 1000), 2))
    one = list(itertools.product(devices, (0, 3)))
    return list(itertools.combinations_with_replacement(one, 2))


@pytest.mark.parametrize("half", [0, 1])
def test_every_small_gang_in_every_small_cluster(half):
    empty = {gang.name: None for gang in SMALL}
    for fill in list_small_fills()[half::2]:
        state = make_state("2 gpu=2 cpu=4")
        for node, (used, cpu) in enumerate(fill):
            occupy(state, node, used, cpu=cpu)
        board = read_board(state)
        for gang in SMALL:
            started, impossible = decide(state, [gang])
            if empty[gang.name] is None:
                empty[gang.name] = find_any(empty_board(state.fleet), [gang]) is not None
            assert started == (find_any(board, [gang]) is not None), (gang.name, fill)
            assert impossible == (not empty[gang.name]), gang.name


TASTES = {
    "several roles": Taste(),
    "whole devices": Taste(shares=False),
    "no labels": Taste(labels=False, roles_max=2),
}


def draw_question(rng, taste):
    """A small partly filled cluster, and one gang or a pair that starts together."""
    levels = rng.choice([(), ("rack",), ("block", "rack")])
    nodes = []
    for index in range(rng.randint(1, 4)):
        amounts = {"gpu": rng.choice([1, 2, 2, 3, 4]) * 1000, "cpu": rng.choice([2, 4]) * 1000}
        labels = {level: rng.choice("xy") for level in levels if rng.randint(1, 8) > 1}
        taints = ("spot",) if taste.labels and rng.randint(1, 8) == 1 else ()
        nodes.append(Node(f"n{index}", amounts, labels, taints))
    state = State(Fleet(nodes, levels))
    for node in range(len(nodes)):
        if rng.randint(1, 3) > 1:
            fill_node(rng, state, node)
    if rng.randint(1, 6) == 1:
        state.set_open(rng.randrange(len(nodes)), open_=False)
    count = 2 if rng.randint(1, 4) == 1 else 1
    gangs = [draw_gang(rng, taste, nodes, levels, f"g{index}")[0] for index in range(count)]
    together = Together("both", 2) if count == 2 else None
    return state, [replace(gang, together=together, after=After(), hold=False, queue="default") for gang in gangs]


@pytest.mark.parametrize("taste", TASTES)
@pytest.mark.parametrize("batch", range(4))
def test_any_gang_in_any_cluster(taste, batch):
    placed = 0
    for case in range(300):
        state, gangs = draw_question(random.Random(f"{taste} {batch} {case}"), TASTES[taste])
        if sum(gang.members_min for gang in gangs) > 9:
            continue
        started, impossible = decide(state, gangs)
        where = find_any(read_board(state), gangs)
        assert started == (where is not None), (taste, batch, case)
        placed += started
        if not started:
            assert impossible == (find_any(empty_board(state.fleet), gangs) is None), (taste, batch, case)
    assert 50 < placed < 280  # both answers are asked for


@pytest.mark.parametrize("batch", range(2))
def test_a_moldable_gang_starts_at_the_largest_size_that_fits(batch):
    for case in range(200):
        rng = random.Random(f"mold {batch} {case}")
        state, gangs = draw_question(rng, Taste(elastic=True, roles_max=1))
        gang = replace(gangs[0], together=None)
        if gang.members_max > 9:
            continue
        board = read_board(state)
        number = state.submit(gang)
        plan = schedule(state.snapshot(), FCFS)
        started = {decision.gang: decision.members for decision in plan.decisions}
        fitting = [size for size in gang.roles[0].sizes.allowed if find_any(board, [gang], [[size]]) is not None]
        assert started.get(number) == max(fitting, default=None), (batch, case)


def test_the_oracle_knows_a_placement_from_none():
    """The judge itself, on cases that can be seen at a glance."""
    board = empty_board(Fleet(make_nodes("1 gpu=2 rack:x", "1 gpu=1 rack:y"), ("rack",)))
    assert find_any(board, [make_gang("a", "3 gpu=1")]) == [0, 0, 1]
    assert find_any(board, [make_gang("a", "4 gpu=1")]) is None
    assert find_any(board, [make_gang("a", "3 gpu=1", topology=">rack")]) is None
    assert find_any(board, [make_gang("a", "2 gpu=1", topology="/2:node")]) == [0, 0]
    assert find_any(board, [make_gang("a", "4 gpu=0.7")]) is None
    assert find_any(board, [make_gang("a", "3 gpu=0.7", "3 gpu=0.3")]) == [0, 0, 1, 0, 0, 1]
    assert find_any(board, [make_gang("a", "2 gpu=1"), make_gang("b", "2 gpu=1")]) is None
    assert find_any(board, [make_gang("a", "1 gpu=1 kind:h")]) is None

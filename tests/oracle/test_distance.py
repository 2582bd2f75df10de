"""How close together members sit, against the best over all sets of nodes.

Distance is (domains of the preferred level, nodes). The engine shrinks the radius first: it enters the
tightest single domain that holds everybody, and only inside it counts domains. So:

- one domain of the preferred level is enough: we use one;
- the preferred level is the outermost one: we use the fewest domains of it, always;
- otherwise the fewest could lie across a wider radius, and the factors below are what was measured.
"""

import random

import pytest

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet, Node
from phalanx.policy import named
from phalanx.testing.builders import make_gang, occupy
from phalanx.testing.exhaustive import find_nearest, measure_distance, read_board

#: Worst over the cases below and over 6,000 others; a better placement may lower them, nothing may raise them.
DOMAINS_FACTOR_MAX = 2.5
NODES_FACTOR_MAX = 3.0

CASES = 300


def draw_case(rng):
    """Up to eight nodes of one, two or four devices, about half of them busy, and a gang that prefers a level."""
    levels = rng.choice([(), ("rack",), ("block", "rack")])
    nodes = []
    for index in range(rng.randint(1, 8)):
        labels = {level: rng.choice("xyz") for level in levels}
        nodes.append(Node(f"n{index}", {"gpu": rng.choice([1, 2, 4]) * 1000, "cpu": 4000}, labels))
    state = State(Fleet(nodes, levels))
    for index, node in enumerate(nodes):
        occupy(state, index, [1000 * rng.randint(0, 1) for _ in range(node.resources["gpu"] // 1000)])
    require = rng.choice([None, None, *levels])
    prefer = rng.choice((*levels, "node"))
    wish = f"~{prefer} >{require}" if require else f"~{prefer}"
    return state, make_gang("g", f"{rng.randint(1, 8)} gpu=1", topology=wish), prefer


def place_one(state, gang):
    state.submit(gang)
    plan = schedule(state.snapshot(), named("fcfs"))
    return plan.decisions[0].seats[0].nodes.tolist() if plan.decisions else None


@pytest.mark.parametrize("batch", range(4))
def test_members_sit_as_near_as_possible(batch):
    compared = equal = 0
    for case in range(CASES):
        state, gang, prefer = draw_case(random.Random(f"distance {batch} {case}"))
        board = read_board(state)
        best = find_nearest(board, gang.roles[0], gang.topology, gang.members_min)
        nodes = place_one(state, gang)
        assert (nodes is None) == (best is None), (batch, case)
        if nodes is None:
            continue
        distance = measure_distance(board, prefer, nodes)
        if best[0] == 1 or state.fleet.levels[0] == prefer:
            assert distance[0] == best[0], (batch, case)
        assert distance[0] <= best[0] * DOMAINS_FACTOR_MAX, (batch, case)
        assert distance[1] <= best[1] * NODES_FACTOR_MAX, (batch, case)
        compared += 1
        equal += distance == best
    assert compared > CASES // 3
    assert equal >= 0.9 * compared


def test_one_role_on_plain_nodes_uses_the_fewest():
    """Without levels there is nothing but nodes, and there the greedy choice is the best one."""
    for case in range(200):
        rng = random.Random(f"plain {case}")
        nodes = [Node(f"n{i}", {"gpu": rng.choice([1, 2, 3, 4, 8]) * 1000}) for i in range(rng.randint(1, 8))]
        state = State(Fleet(nodes, ()))
        for index, node in enumerate(nodes):
            occupy(state, index, [1000 * rng.randint(0, 1) for _ in range(node.resources["gpu"] // 1000)])
        gang = make_gang("g", f"{rng.randint(1, 8)} gpu=1", topology="~node")
        best = find_nearest(read_board(state), gang.roles[0], gang.topology, gang.members_min)
        chosen = place_one(state, gang)
        assert (None if chosen is None else len(chosen)) == (None if best is None else best[1]), case

"""What must not matter does not: names, the order of equal nodes, who asks, the seed of Python's hashes."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest
from selection import rest_long

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.frontends.sim.run import simulate
from phalanx.model.fleet import Fleet, Node
from phalanx.policy import named
from phalanx.testing.checking import play
from phalanx.testing.worlds import Taste, draw_gang, draw_world

CALM = Taste(failures=False, cancels=False)


def list_starts(result):
    return [(gang.name, gang.state, gang.start_us, gang.end_us, gang.members) for gang in result.gangs]


@pytest.mark.parametrize("seed", rest_long(range(12), short=4))
def test_renaming_everything_gives_the_same_run(seed):
    """Nodes, domains, labels and people under other names that sort the other way round."""
    world = draw_world(random.Random(f"rename {seed}"))

    def rename(word):
        return "".join(chr(ord("z") - ord(letter) % 26) for letter in word) + word

    nodes = tuple(
        replace(
            node, name=rename(node.name), labels={k: v if k == "model" else rename(v) for k, v in node.labels.items()}
        )
        for node in world.nodes
    )
    events = tuple(
        replace(event, node=event.node and (event.node if event.added else rename(event.node)))
        for event in world.events
    )
    renamed = replace(world, nodes=nodes, events=events)
    here, there = simulate(world, "easy"), simulate(renamed, "easy")
    assert list_starts(here) == list_starts(there)
    old = {rename(node.name): node.name for node in world.nodes}
    for one, other in zip(here.gangs, there.gangs, strict=True):
        assert one.placement == {old.get(name, name): count for name, count in other.placement.items()}


@pytest.mark.parametrize("seed", rest_long([0, *range(2, 12), 1], short=4))  # 1 takes as long as the others together
def test_the_order_of_equal_nodes_does_not_matter(seed):
    """Racks of equal nodes, listed rack by rack or in turns: every gang starts at the same time, as large."""
    rng = random.Random(f"permute {seed}")
    world = draw_world(rng, replace(CALM, labels=False))
    racks, per_rack, devices = rng.randint(1, 3), rng.randint(1, 3), rng.choice([1, 2, 4])
    amounts = {"gpu": devices * 1000, "cpu": 4000}
    by_rack = [
        Node(f"{rack}-{i}", amounts, {"block": "b", "rack": f"r{rack}"})
        for rack in range(racks)
        for i in range(per_rack)
    ]
    in_turns = [by_rack[rack * per_rack + i] for i in range(per_rack) for rack in range(racks)]
    runs = [play(replace(world, nodes=tuple(nodes)), "easy") for nodes in (by_rack, in_turns)]
    assert list_starts(runs[0]) == list_starts(runs[1])


@pytest.mark.parametrize("seed", range(6))
def test_who_asks_does_not_matter_without_limits(seed):
    world = draw_world(random.Random(f"users {seed}"), replace(CALM, limits=False))
    others = replace(world, gangs=tuple(replace(gang, user=f"user of {gang.name}") for gang in world.gangs))
    assert list_starts(simulate(world, "conservative")) == list_starts(simulate(others, "conservative"))


def test_one_more_empty_node_never_makes_a_gang_unplaceable():
    policy = named("fcfs")
    for case in range(300):
        rng = random.Random(f"more {case}")
        world = draw_world(rng, replace(CALM, gangs_max=3, ties=False, limits=False, holds=False))
        extra = replace(rng.choice(world.nodes), name="extra")
        gang, _ = draw_gang(rng, CALM, world.nodes, world.levels, "asked")
        started = []
        for nodes in (world.nodes, (*world.nodes, extra)):
            state = State(Fleet(nodes, world.levels), world.queues)
            for other in world.gangs:
                state.submit(other)
            plan = schedule(State.snapshot(state), policy)
            if len(nodes) == len(world.nodes):
                filled = plan  # the same gangs at the same places in both clusters
            state.apply(filled)
            number = state.submit(replace(gang, priority=9, hold=False))
            started.append(number in {decision.gang for decision in schedule(state.snapshot(), policy).decisions})
        assert started[1] >= started[0], case


DIGEST = """
import hashlib, random
from unittest.mock import patch
from phalanx.control import loop
from phalanx.engine.cycle import schedule
from phalanx.frontends.sim.run import simulate
from phalanx.testing.worlds import Taste, draw_world

digest = hashlib.sha256()

def note(snapshot, policy, *, explain=False, ledger=False):
    plan = schedule(snapshot, policy, explain=True)
    digest.update(repr(plan.key()).encode())
    return schedule(snapshot, policy, explain=explain, ledger=ledger)

with patch.object(loop, "schedule", note):
    for seed in range(12):
        world = draw_world(random.Random(f"hash {seed}"), Taste(windows=seed % 2 == 1))
        for policy, options in (("fcfs", {}), ("easy", {}), ("easy", {"reservations": 2}), ("conservative", {})):
            result = simulate(world, policy, options)
            digest.update(repr([(gang.name, gang.start_us, gang.placement, gang.reason) for gang in result.gangs]).encode())
print(digest.hexdigest())
"""


def test_the_seed_of_pythons_hashes_does_not_matter():
    runs = [
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        for seed in ("0", "1", "2", "random")
    ]
    assert [run.stderr for run in runs] == [""] * 4
    assert len({run.stdout for run in runs}) == 1

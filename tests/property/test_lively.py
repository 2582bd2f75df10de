"""Worlds in which everything happens: tenants, priorities, elastic gangs, losses, deadlines, turns, wishes of people.

Every plan is checked, and every instant; see `phalanx.testing.checking` and `phalanx.testing.transitions`. Drawn
worlds meet every rule now and then, contests meet the rules about taking room all the time.
"""

import os
import random
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from selection import rest_long

from phalanx.model.resources import DEVICE_KIND
from phalanx.perfmodel.speedup import Linear
from phalanx.testing.checking import CheckedRun, play
from phalanx.testing.contests import Contest, draw_contest
from phalanx.testing.worlds import LIVELY, draw_policy, draw_world

#: A drawn world can be read as it is; shrinking one plays it hundreds of times, which is for the `deep` profile.
PHASES = tuple(Phase) if os.environ.get("PHALANX_HYPOTHESIS") == "deep" else (Phase.explicit, Phase.generate)
as_drawn = settings(phases=PHASES)

#: A seed is a world and a policy. Hypothesis' own generator would draw small worlds, where nobody meets anybody.
SEEDS = st.integers(0, 1 << 32).map(lambda seed: f"lively {seed}")

#: Nobody looks further: whatever is not done by then never will be.
DAYS_30_US = 30 * 24 * 3600 * 1_000_000

SETTLED = {"completed", "cancelled", "infeasible", "failed"}

#: One way through the engine each: places by counting, or by searching; windows need the general walk.
TASTES = {
    "everything": LIVELY,
    "whole devices": replace(LIVELY, windows=False, shares=False, labels=False, topology=False, roles_max=1),
    "calm": replace(LIVELY, windows=False, failures=False, cancels=False),
}

CONTESTS = {
    "calm": Contest(),
    "with losses": Contest(failures=True),
    "one queue": Contest(queues=False),
    "rigid": Contest(elastic=False, all_soft=True),
}


def check_settled(result):
    """Everything broken was repaired and everything held was released, so everybody comes to an end."""
    left = {gang.name: (gang.state, gang.reason) for gang in result.gangs if gang.state not in SETTLED}
    assert {name: why for name, why in left.items() if why[1] is None or why[1][0] != "SearchBudget"} == {}


def draw_lively(rng, taste):
    return replace(draw_world(rng, taste), until_us=DAYS_30_US)


@pytest.mark.parametrize("taste", rest_long(TASTES, short=1))
@as_drawn
@given(seed=SEEDS)
def test_every_promise_holds_whatever_happens(taste, seed):
    rng = random.Random(seed)
    world = draw_lively(rng, TASTES[taste])
    check_settled(play(world, *draw_policy(rng)))


@pytest.mark.parametrize("contest", rest_long(CONTESTS, short=1))
@as_drawn
@given(seed=SEEDS)
def test_every_promise_holds_where_everybody_takes_from_everybody(contest, seed):
    rng = random.Random(seed)
    world = replace(draw_contest(rng, CONTESTS[contest]), until_us=DAYS_30_US)
    watch = CheckedRun()
    check_settled(watch.play(world, *draw_policy(rng)))
    # Whoever makes way does so for somebody, and nobody comes back more often than there are others.
    assert max(watch.chronicle.evictions.values(), default=0) < len(world.gangs)


@as_drawn
@given(seed=SEEDS)
def test_the_ledger_counts_all_the_capacity_there_was(seed):
    """Its parts sum to it in every run; here is what it should be, from the file alone."""
    rng = random.Random(seed)
    world = draw_lively(rng, replace(LIVELY, cancels=False))
    watch = CheckedRun()
    result = watch.play(world, *draw_policy(rng))
    first = min(gang.submit_us for gang in result.gangs)
    last = first + round(result.metrics["makespan_s"] * 1_000_000)
    kind = (
        DEVICE_KIND
        if any(DEVICE_KIND in node.resources for node in world.nodes)
        else next(iter(kind for node in world.nodes for kind in node.resources))
    )
    changes = [(0, node.resources.get(kind, 0)) for node in world.nodes]
    for event in world.events:
        if event.verb == "remove":
            changes.append(
                (event.at_us, -next(node.resources.get(kind, 0) for node in world.nodes if node.name == event.node))
            )
        elif event.verb == "add":
            changes.append((event.at_us, event.added.resources.get(kind, 0)))
    expected = sum(units * max(0, last - max(first, at_us)) for at_us, units in changes)
    assert watch.parts["capacity"] == expected


@pytest.mark.parametrize("elastic", [False, True], ids=["rigid", "elastic"])
@as_drawn
@given(seed=SEEDS)
def test_work_is_neither_made_nor_lost(elastic, seed):
    """Whatever was evicted, moved, resized, degraded and repaired: in the end each job was done once.

    At twice the size a linear gang works half as long, so its device time does not depend on the way. An elastic gang
    may be off by the rounding of an instant at every change.
    """
    rng = random.Random(seed)
    world = draw_contest(rng, Contest(elastic=elastic, failures=True))
    world = replace(world, true_runs=tuple(replace(truth, speedup=Linear()) for truth in world.true_runs))
    watch = CheckedRun()
    result = watch.play(world, *draw_policy(rng))
    done = [gang.state == "completed" for gang in result.gangs]
    pairs = list(zip(world.gangs, world.true_runs, done, strict=True))
    work = sum(truth.duration_us * gang.members_max * 1000 for gang, truth, completed in pairs if completed)
    if all(done):
        slack = 1000 * sum(
            gang.members_max * len(told.history) for gang, told in zip(world.gangs, result.gangs, strict=True)
        )
        assert abs(watch.parts["productive"] - work) <= (slack if elastic else 0)
    else:
        assert watch.parts["productive"] >= work - 1000 * 1000

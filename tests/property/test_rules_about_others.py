"""Random worlds in which gangs ask about others: every promise holds, under every policy, and nobody is lost."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.model.rules import Apart, AtMost, Beside, Evenly
from phalanx.testing.builders import asking
from phalanx.testing.checking import CheckedRun
from phalanx.testing.worlds import LIVELY, draw_policy, draw_world

SEEDS = st.integers(0, 1 << 32).map(lambda seed: f"rules {seed}")
WORDS = ["a", "b"]
SETTLED = {"completed", "cancelled", "infeasible", "failed"}


def draw_rule(rng, by):
    word = rng.choice(WORDS)
    return rng.choice(
        [AtMost("node", rng.randint(1, 3)), Apart(by, word), Beside(by, word), Evenly(by, word, rng.randint(1, 2))]
    )


def ask_around(rng, world):
    """The same world, where half of the gangs bear words and some of them ask about others."""
    gangs = []
    for gang in world.gangs:
        confined = gang.topology != type(gang.topology)() or any(role.topology != gang.topology for role in gang.roles)
        by = "node" if confined else rng.choice([*world.levels, "node"])
        rules = [draw_rule(rng, by)] if rng.random() < 0.4 else []
        if confined:  # groups and required domains exclude shares, where gangs are read
            rules = [rule for rule in rules if not isinstance(rule, Evenly)]
        bears = [word for word in WORDS if rng.random() < 0.3]
        gangs.append(asking(gang, *rules, bears=bears) if rng.random() < 0.7 else gang)
    return replace(world, gangs=tuple(gangs))


def check_world(seed):
    rng = random.Random(seed)
    world = ask_around(rng, draw_world(rng, LIVELY))
    result = CheckedRun().play(world, *draw_policy(rng))
    # Who asks for others may wait for ever: nobody has to come, or to go.
    assert {gang.state for gang in result.gangs} <= {*SETTLED, "pending", "running"}


@settings(max_examples=max(10, settings.default.max_examples // 5))
@given(seed=SEEDS)
def test_every_promise_holds_where_gangs_ask_about_others(seed):
    check_world(seed)


@pytest.mark.long
def test_the_same_in_many_worlds():
    for seed in range(400):
        check_world(f"rules, long {seed}")

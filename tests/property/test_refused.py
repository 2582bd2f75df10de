"""Worlds that refuse parts of plans: every promise holds after every refusal, and everybody comes to an end."""

import os
import random
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from selection import rest_long

from phalanx.testing.contests import Contest, draw_contest
from phalanx.testing.drawn_refusals import RefusedWatch
from phalanx.testing.worlds import LIVELY, draw_policy, draw_world

PHASES = tuple(Phase) if os.environ.get("PHALANX_HYPOTHESIS") == "deep" else (Phase.explicit, Phase.generate)
as_drawn = settings(phases=PHASES)
SEEDS = st.integers(0, 1 << 32).map(lambda seed: f"refused {seed}")
DAYS_30_US = 30 * 24 * 3600 * 1_000_000
SETTLED = {"completed", "cancelled", "infeasible", "failed"}


def check_settled(result):
    left = {gang.name: (gang.state, gang.reason) for gang in result.gangs if gang.state not in SETTLED}
    assert {name: why for name, why in left.items() if why[1] is None or why[1][0] != "SearchBudget"} == {}


@pytest.mark.parametrize("probability", rest_long([0.1, 0.5], 1))
@as_drawn
@given(seed=SEEDS)
def test_every_promise_holds_in_a_world_that_says_no(probability, seed):
    rng = random.Random(seed)
    world = replace(draw_world(rng, LIVELY), until_us=DAYS_30_US)
    check_settled(RefusedWatch(rng, probability).play(world, *draw_policy(rng)))


@pytest.mark.parametrize("probability", rest_long([0.1, 0.5], 1))
@as_drawn
@given(seed=SEEDS)
def test_every_promise_holds_where_nobody_may_make_way_in_the_end(probability, seed):
    rng = random.Random(seed)
    world = replace(draw_contest(rng, Contest(failures=True)), until_us=DAYS_30_US)
    check_settled(RefusedWatch(rng, probability).play(world, *draw_policy(rng)))

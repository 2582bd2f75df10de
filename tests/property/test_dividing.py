"""Rule 16 on drawn worlds: units, names and the order of a file say nothing; shares come first; a balance pays.

Completion times and shares are worked out again by `phalanx.testing.divisions`, from snapshots alone.
"""

import random
from unittest.mock import patch

import pytest
from selection import rest_long

from phalanx.control import loop
from phalanx.engine import cycle
from phalanx.engine.dividing import balance
from phalanx.frontends.sim.run import simulate
from phalanx.model.plan import Cause, Resize
from phalanx.testing.divisions import (
    Exchange,
    draw_division,
    find_starved,
    list_rests,
    read_elastic,
    scale_curves,
)
from phalanx.testing.twins import rename
from phalanx.testing.whole_worlds import read_tree

POLICIES = ("goodput", "deadline")
STRETCH = 40


def draw(seed, **options):
    rng = random.Random(f"division {seed}")
    return draw_division(rng, **options), POLICIES[seed % 2], rng


def tell(tree, policy):
    """What becomes of everybody, by submit: in these worlds no two come at once."""
    result = simulate(read_tree(tree), policy, {})
    submits = {gang["name"]: gang["submit"] for gang in tree["gangs"]}
    return {
        submits[gang.name]: (gang.state, [(entry.at_us, entry.event, entry.members) for entry in gang.history])
        for gang in result.gangs
    }


def watch(tree, policy, on_plan):
    """Play a world; `on_plan` sees every plan."""

    def schedule(snapshot, policy, **options):
        plan = cycle.schedule(snapshot, policy, **options)
        on_plan(snapshot, plan, policy)
        return plan

    with patch.object(loop, "schedule", schedule):
        return simulate(read_tree(tree), policy, {})


@pytest.mark.parametrize("first", rest_long(range(0, 400, STRETCH), short=2))
def test_a_curve_has_no_unit(first):
    for seed in range(first, first + STRETCH):
        tree, policy, rng = draw(seed)
        told = tell(tree, policy)
        for times in ([100] * len(tree["gangs"]), [rng.choice([100, 1, 0.01]) for _ in tree["gangs"]]):
            assert tell(scale_curves(tree, times), policy) == told, (seed, times)


@pytest.mark.parametrize("first", rest_long(range(0, 400, STRETCH), short=2))
def test_the_order_of_a_file_does_not_matter_where_nobody_comes_at_once(first):
    for seed in range(first, first + STRETCH):
        tree, policy, rng = draw(seed)
        shuffled = tree | {"gangs": rng.sample(tree["gangs"], len(tree["gangs"]))}
        assert tell(shuffled, policy) == tell(tree, policy), seed


@pytest.mark.parametrize("first", rest_long(range(0, 400, STRETCH), short=2))
def test_names_do_not_matter(first):
    for seed in range(first, first + STRETCH):
        tree, policy, _ = draw(seed)
        assert tell(rename(tree).tree, policy) == tell(tree, policy), seed


@pytest.mark.parametrize("first", rest_long(range(0, 800, STRETCH), short=4))
def test_no_share_is_starved_while_others_have_more_than_theirs(first):
    for seed in range(first, first + STRETCH):
        tree, policy, _ = draw(seed)
        found = []

        def on_plan(snapshot, plan, policy, found=found):
            found += [(snapshot.now_us, story) for story in find_starved(snapshot, plan, policy)]

        watch(tree, policy, on_plan)
        assert found == [], seed


def find_shifts(tree, policy):
    """Every balance of a run, as it was expected to turn out when it was decided; and who gave while it rested."""
    shifts, meant, rests = [], {}, []
    compare = balance.compare

    def remember(takers, givers, target):
        # The first word counts: afterwards the plan asks what it would do if nobody rested, to know when to look again.
        meant.setdefault(
            frozenset(each.number for each in givers),
            (
                {each.number: target[each.number] for each in takers},
                {each.number: target[each.number] for each in givers},
            ),
        )
        return compare(takers, givers, target)

    def on_plan(snapshot, plan, _):
        gave = {d.gang for d in plan.decisions if isinstance(d, Resize) and d.cause is Cause.BALANCE}
        for numbers, (takers, givers) in meant.items():
            if numbers <= gave:
                shifts.append(Exchange(read_elastic(snapshot, plan), givers, takers))
        assert gave <= {number for numbers in meant for number in numbers}
        meant.clear()
        rests.extend(list_rests(snapshot, plan))

    with patch.object(balance, "compare", remember):
        watch(tree, policy, on_plan)
    return shifts, rests


@pytest.mark.parametrize("first", rest_long(range(0, 800, STRETCH), short=4))
def test_a_balance_lowers_the_sum_of_expected_completions(first):
    seen = 0
    for seed in range(first, first + STRETCH):
        tree, policy, _ = draw(seed, dates=seed % 3 == 0)
        shifts, rests = find_shifts(tree, policy)
        assert rests == [], seed
        assert [shift.saved_us() for shift in shifts if shift.saved_us() <= 0] == [], seed
        # What all of them cost in pauses is less than what they were expected to save before those.
        assert sum(shift.pauses_us for shift in shifts) < sum(s.saved_us() + s.pauses_us for s in shifts) or not shifts
        seen += len(shifts)
    assert seen > 10

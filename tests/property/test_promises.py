"""Whole simulations of drawn worlds, every promise checked after every event, under every policy.

`phalanx.testing.checking.play` checks each snapshot, each plan, that the engine is pure and gives the same
plan twice, and each gang's life. Here are the worlds, and what must hold when everything is over.
"""

import os
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from phalanx.engine.invariants import Promise
from phalanx.frontends.sim.run import make_state, simulate
from phalanx.testing.checking import play
from phalanx.testing.exhaustive import empty_board, find_any
from phalanx.testing.worlds import Taste, draw_world

POLICIES = {
    "fcfs": ("fcfs", {}),
    "easy": ("easy", {}),
    "easy, shortest": ("easy", {"fill": "shortest"}),
    "easy, 2": ("easy", {"reservations": 2}),
    "easy, 3, shortest": ("easy", {"reservations": 3, "fill": "shortest"}),
    "conservative": ("conservative", {}),
}

#: What a gang may have come to when nothing more can happen: everything broken was repaired again.
SETTLED = {"completed", "cancelled", "infeasible"}


EVERYTHING = Taste()


#: A drawn world can be read as it is; shrinking one plays it hundreds of times, which is for the `deep` profile.
PHASES = tuple(Phase) if os.environ.get("PHALANX_HYPOTHESIS") == "deep" else (Phase.explicit, Phase.generate)
as_drawn = settings(phases=PHASES)


@st.composite
def worlds(draw, taste=EVERYTHING):
    return draw_world(draw(st.randoms(use_true_random=False)), taste)


def check_all_settled(world, result):
    left = {gang.name: (gang.state, gang.reason) for gang in result.gangs if gang.state not in SETTLED}
    # The exact search has a budget and says so when it is spent; that is an answer, if a rare one.
    assert {name: why for name, why in left.items() if why[1][0] != "SearchBudget"} == {}
    for gang in result.gangs:
        assert (gang.state == "completed") == (gang.history[-1:] != [] and gang.history[-1].event == "complete")
        assert gang.state != "infeasible" or gang.reason is not None


@pytest.mark.parametrize("policy", POLICIES)
@as_drawn
@given(world=worlds())
def test_every_promise_holds_and_nobody_starves(policy, world):
    name, options = POLICIES[policy]
    check_all_settled(world, play(world, name, options))


@pytest.mark.parametrize("policy", ["easy", "easy, 2", "conservative"])
@as_drawn
@given(world=worlds(Taste(shares=False, limits=False)))
def test_the_same_with_whole_devices_only(policy, world):
    """Where no device was ever split the engine reads amounts instead of devices: another way through all of it."""
    name, options = POLICIES[policy]
    check_all_settled(world, play(world, name, options))


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
@as_drawn
@given(world=worlds(Taste(windows=True)))
def test_the_same_with_maintenance_and_reserved_nodes(policy, world):
    name, options = POLICIES[policy]
    check_all_settled(world, play(world, name, options))


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
@as_drawn
@given(world=worlds(Taste(elastic=True)))
def test_the_same_with_moldable_gangs(policy, world):
    name, options = POLICIES[policy]
    check_all_settled(world, play(world, name, options))


@as_drawn
@given(world=worlds(Taste(failures=False, cancels=False)))
def test_a_calm_world_loses_nobody(world):
    """Without failures and cancels every gang that could run completes, unless it waits for one that cannot."""
    result = play(world, "easy", {})
    doomed = {gang.name for gang in result.gangs if gang.state == "infeasible"}
    for gang, outcome in zip(world.gangs, result.gangs, strict=True):
        if outcome.state == "cancelled":
            assert gang.after.names or gang.together, gang.name
            assert doomed
        assert len([entry for entry in outcome.history if entry.event == "bind"]) == (outcome.state == "completed")


SMALL = Taste(nodes_max=3, gangs_max=4, roles_max=2, failures=False, cancels=False, holds=False)


@as_drawn
@given(world=worlds(SMALL))
def test_whoever_is_called_infeasible_could_never_run(world):
    """And nobody else: judged by trying everything on the empty cluster, and by the limits as they are written."""
    result = simulate(world, "easy", {})
    state = make_state(world)
    groups = {}
    for gang in world.gangs:
        groups.setdefault(gang.together.word if gang.together else gang.name, []).append(gang)
    outcomes = {gang.name: gang.state for gang in result.gangs}
    for gangs in groups.values():
        if sum(gang.members_min for gang in gangs) > 8:
            continue
        possible = not over_limits(world, gangs) and find_any(empty_board(state.fleet), gangs) is not None
        for gang in gangs:
            assert possible or outcomes[gang.name] in ("infeasible", "cancelled"), gang.name
            assert not possible or outcomes[gang.name] != "infeasible", gang.name


def over_limits(world, gangs):
    """Whether these gangs at once pass a limit of their queue, of a queue above it, or of one of their users."""
    parents = {queue.name: queue for queue in world.queues}
    limits = [(user.limit, [gang for gang in gangs if gang.user == user.name]) for user in world.users]
    queue = parents.get(gangs[0].queue)
    while queue is not None:
        limits.append((queue.limit, gangs))
        queue = parents.get(queue.parent)
    return any(
        sum(role.sizes.least * role.shape.amount(kind) for gang in held for role in gang.roles) > most
        for limit, held in limits
        for kind, most in limit.items()
    )


@as_drawn
@given(world=worlds())
def test_nothing_of_a_cancelled_gang_starts_later(world):
    result = simulate(world, "easy", {})
    for outcome in result.gangs:
        events = [entry.event for entry in outcome.history]
        assert events.count("cancel") <= 1
        assert "cancel" not in events or events[-1] == "cancel"


@as_drawn
@given(world=worlds(Taste(gangs_max=4)))
def test_until_is_a_prefix(world):
    """What has happened by some time does not depend on whether anybody looks further."""
    whole = simulate(world, "easy", {})
    until_us = 20_000_000
    part = simulate(replace(world, until_us=until_us), "easy", {})
    for one, other in zip(whole.gangs, part.gangs, strict=True):
        known = [entry for entry in one.history if entry.at_us <= until_us]
        assert [(e.at_us, e.event, e.placement) for e in known] == [
            (e.at_us, e.event, e.placement) for e in other.history
        ]


def test_every_promise_has_a_name_people_can_search_for():
    assert {promise.value for promise in Promise} >= {"whole", "device", "limit", "together", "reservation"}

"""The short cuts decide what the long way decides: the short calendar, the prefilter, and views kept up to date."""

import os
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from phalanx.control import loop
from phalanx.engine import cycle, short_cuts
from phalanx.engine.calendar.long import LongCalendar
from phalanx.engine.kernels.slots import compute_slots
from phalanx.engine.room.placement import NoPlace, Wish, place, retake, undo
from phalanx.engine.session import Session
from phalanx.frontends.sim.run import make_state, simulate
from phalanx.model.plan import Bind
from phalanx.policy import named
from phalanx.testing.worlds import LIVELY, Taste, draw_world

EVERYTHING = Taste()
#: Everything that running gangs can meet as well; a window would make the long calendar the only one.
TAKING = replace(LIVELY, windows=False)
POLICIES = {"fcfs": ("fcfs", {}), "easy": ("easy", {}), "shortest": ("easy", {"fill": "shortest"})}
TAKERS = {name: (name, {}) for name in ("fair", "deadline", "rotate", "goodput")}


#: A drawn world can be read as it is; shrinking one plays it hundreds of times, which is for the `deep` profile.
PHASES = tuple(Phase) if os.environ.get("PHALANX_HYPOTHESIS") == "deep" else (Phase.explicit, Phase.generate)
as_drawn = settings(phases=PHASES)


@st.composite
def worlds(draw, taste=EVERYTHING):
    return draw_world(draw(st.randoms(use_true_random=False)), taste)


def compare_passes(world, policy, other, view):
    """Play a world, and at every pass hold another way of deciding to the same answer."""
    name, options = (POLICIES | TAKERS)[policy]

    def both(snapshot, chosen, *, explain=False, ledger=False):
        plan = cycle.schedule(snapshot, chosen, explain=True)
        assert view(plan) == view(other(snapshot, chosen))
        return cycle.schedule(snapshot, chosen, explain=explain, ledger=ledger)

    with patch.object(loop, "schedule", both):
        simulate(world, name, options)


def plan_the_long_way(snapshot, policy):
    with patch.object(cycle, "choose_calendar", LongCalendar):
        return cycle.schedule(snapshot, policy, explain=True)


def list_starts(plan):
    """Who starts, and at which size."""
    binds = [decision for decision in plan.decisions if isinstance(decision, Bind)]
    return [(bind.gang, bind.members, bind.length_us) for bind in binds], plan.infeasible


def list_starts_and_promises(plan):
    """The same with the starts of those who wait."""
    return *list_starts(plan), sorted((r.gangs, r.start_us, r.end_us) for r in plan.reservations)


def list_decisions(plan):
    """Everything that anybody is told, but for the places."""
    told = [
        (type(each).__name__, each.gang, getattr(each, "members", 0), getattr(each, "cause", None))
        for each in plan.decisions
        if not isinstance(each, Bind)
    ]
    return *list_starts_and_promises(plan), sorted(told, key=str)


def list_places(plan):
    """The same with nodes and devices, where no reservation is in play."""
    return None if plan.reservations else ([decision.key() for decision in plan.decisions], plan.infeasible)


@pytest.mark.parametrize("policy", POLICIES)
@as_drawn
@given(world=worlds())
def test_the_short_calendar_starts_whom_the_long_one_starts(policy, world):
    # Of a policy that only stops, the long calendar does not work out when its head would start.
    compare_passes(world, policy, plan_the_long_way, list_starts if policy == "fcfs" else list_starts_and_promises)


@pytest.mark.parametrize("policy", ["easy", *TAKERS])
@as_drawn
@given(world=worlds(TAKING))
def test_both_calendars_shrink_evict_move_and_grow_the_same_gangs(policy, world):
    """A window anywhere switches to the long calendar: who is taken from, or grows, must not depend on that."""
    compare_passes(world, policy, plan_the_long_way, list_decisions)


@as_drawn
@given(world=worlds(Taste(roles_max=1, ties=False)))
def test_the_short_calendar_finds_the_places_of_the_long_one(world):
    """To the device, as long as nobody waits for a reservation.

    With one in play both keep clear of it, but ties between equal places are broken by what is free now in
    the one and by what is free throughout in the other, so one world in some hundreds differs there.
    """
    compare_passes(world, "easy", plan_the_long_way, list_places)


@pytest.mark.parametrize("taste", [Taste(), Taste(ties=False, priorities=False, limits=False)], ids=["all", "plain"])
@pytest.mark.parametrize("policy", POLICIES)
@as_drawn
@given(data=st.data())
def test_the_prefilter_never_hides_a_start(policy, taste, data):
    """A cycle that says "nobody fits" without looking says it only where looking says the same."""
    name, options = POLICIES[policy]
    world = data.draw(worlds(taste))

    def both(snapshot, chosen, *, explain=False, ledger=False):
        quick = cycle.schedule(snapshot, chosen)
        with patch.object(short_cuts, "nobody_fits", lambda *_: False):
            slow = cycle.schedule(snapshot, chosen)
        assert quick.key()[:3] == slow.key()[:3]
        return quick

    with patch.object(loop, "schedule", both):
        simulate(world, name, options)


@as_drawn
@given(world=worlds(Taste(gangs_max=6, ties=False, holds=False)), rng=st.randoms(use_true_random=False))
def test_a_view_kept_up_to_date_equals_a_fresh_one(world, rng):
    """Seats taken and given back in any order: slots, totals and sums per domain are what a new view counts."""
    state = make_state(world)
    for gang in world.gangs:
        state.submit(gang)
    session = Session(state.snapshot(), named("fcfs"))
    view = session.view
    held = []
    for _ in range(12):
        form = rng.choice(state.forms.forms)
        if held and rng.randint(1, 3) == 1:
            undo(view, *held.pop(rng.randrange(len(held))))
        else:
            placed = place(view, Wish(form, rng.randint(1, 3)))
            if not isinstance(placed, NoPlace):
                held.append((form, placed))
                if rng.randint(1, 3) == 1:
                    undo(view, form, placed)
                    retake(view, form, placed)
        for role in form.roles:
            check_row(view, role.shape)


def check_row(view, shape):
    row = view.slots(shape)
    fresh = (
        compute_slots(row.need, view.free, view.device_free, view.fleet.device_column, shared=view.shared) * row.mask
    )
    assert row.slots.tolist() == fresh.tolist()
    assert row.total == int(fresh.sum())
    for level, domains in enumerate(view.fleet.domains):
        sums = np.bincount(domains, weights=fresh).astype(int)
        assert view.domain_sums(row, level).tolist() == sums[view.fleet.domain_by_run[level]].tolist()

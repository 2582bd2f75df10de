"""Backfilling by the book: equal starts where places do not matter, and nobody's promised start moves later."""

import os
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from phalanx.control import loop
from phalanx.engine.cycle import schedule
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes
from phalanx.testing.checking import play
from phalanx.testing.textbook import Rectangle, run_conservative, run_easy, run_fcfs
from phalanx.testing.worlds import Taste, draw_world

PROCESSORS = 8


def jobs(*, underestimates=True):
    """Few sizes and times, so that ties and exact fits are common. An estimate may be right, generous or too small."""
    spans = st.sampled_from([1, 2, 5, 10, 10, 30])
    factors = [(1, 1), (2, 1), (3, 2), (1, 2)] if underestimates else [(1, 1), (2, 1), (3, 2)]
    one = st.builds(
        lambda submit, size, duration, factor: Rectangle(submit, size, duration, max(1, duration * factor[0] // factor[1])),
        st.integers(0, 30), st.integers(1, PROCESSORS), spans, st.sampled_from(factors),
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=12)


def run_engine(drawn, nodes, policy, options=None):
    """Starts in seconds, in the order of the jobs, on a cluster of slots; every plan checked on the way."""
    gangs = [
        make_gang(f"j{index}", f"{job.size} slot=1", submit=job.submit, walltime=job.estimate)
        for index, job in enumerate(drawn)
    ]
    true_runs = tuple(TrueRun(job.duration * SECOND_US) for job in drawn)
    result = play(Scenario(make_nodes(nodes), (), tuple(gangs), true_runs), policy, options)
    return [gang.start_us // SECOND_US for gang in result.gangs]


ONE, MANY = f"1 slot={PROCESSORS}", f"{PROCESSORS} slot=1"


@pytest.mark.parametrize("cluster", [ONE, MANY, "4 slot=2"])
@given(drawn=jobs())
def test_fcfs_is_the_textbook(cluster, drawn):
    assert run_engine(drawn, cluster, "fcfs") == run_fcfs(drawn, PROCESSORS)


@pytest.mark.parametrize("cluster", [ONE, MANY, "4 slot=2"])
@given(drawn=jobs())
def test_easy_is_the_textbook_wherever_the_processors_are(cluster, drawn):
    assert run_engine(drawn, cluster, "easy") == run_easy(drawn, PROCESSORS)


@pytest.mark.parametrize("cluster", [ONE, MANY])
@given(drawn=jobs())
def test_easy_filled_by_the_shortest_is_the_textbook(cluster, drawn):
    assert run_engine(drawn, cluster, "easy", {"fill": "shortest"}) == run_easy(drawn, PROCESSORS, shortest=True)


@given(drawn=jobs(underestimates=False))
def test_conservative_is_the_textbook_on_one_node(drawn):
    assert run_engine(drawn, ONE, "conservative") == run_conservative(drawn, PROCESSORS)


# ---------------------------------------------------------------------- promised starts

#: Nothing that may rightly move a start: every walltime is true, nobody goes before the head or holds a limit.
STEADY = Taste(exact=True, failures=False, cancels=False, limits=False, priorities=False, holds=False)


#: A drawn world can be read as it is; shrinking one plays it hundreds of times, which is for the `deep` profile.
PHASES = tuple(Phase) if os.environ.get("PHALANX_HYPOTHESIS") == "deep" else (Phase.explicit, Phase.generate)
as_drawn = settings(phases=PHASES)


@st.composite
def worlds(draw, taste=STEADY):
    return draw_world(draw(st.randoms(use_true_random=False)), taste)


def watch_promises(world, policy, options):
    """Every start promised to every gang, in order of time, with the start it got in the end."""
    promised = {}

    def note(snapshot, chosen, *, explain=False, ledger=False):
        told = schedule(snapshot, chosen, explain=True)
        for reservation in told.reservations:
            for number in reservation.gangs:
                promised.setdefault(snapshot.gangs[number].name, []).append(reservation.start_us)
        return schedule(snapshot, chosen, explain=explain, ledger=ledger)

    with patch.object(loop, "schedule", note):
        result = simulate(world, policy, options)
    starts = {gang.name: gang.start_us for gang in result.gangs}
    return {name: [*history, starts[name]] for name, history in promised.items()}


def make_generous(world):
    """The same world with estimates that are never too small."""
    gangs = [
        replace(gang, walltime_us=max(gang.walltime_us or 2 * truth.duration_us, truth.duration_us))
        for gang, truth in zip(world.gangs, world.true_runs, strict=True)
    ]
    return replace(world, gangs=tuple(gangs))


@pytest.mark.parametrize("policy", ["easy", "shortest", "conservative"])
@pytest.mark.parametrize("taste", ["exact", "generous"])
@as_drawn
@given(data=st.data())
def test_a_promised_start_never_moves_later(policy, taste, data):
    """The head of a pool under EASY, and everybody under conservative: whatever was filled in before them."""
    name, options = ("easy", {"fill": "shortest"}) if policy == "shortest" else (policy, {})
    if taste == "exact":
        world = data.draw(worlds(STEADY))
    else:
        world = make_generous(data.draw(worlds(replace(STEADY, exact=False))))
    for gang, history in watch_promises(world, name, options).items():
        assert None not in history, gang
        assert history == sorted(history, reverse=True), gang

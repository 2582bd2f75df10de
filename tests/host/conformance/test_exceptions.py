"""Where a live machine differs from a simulated one, on purpose; and that a difference is noticed at all."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from phalanx.frontends.host.core.planner import Planner
from phalanx.frontends.host.settings import Settings
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes
from phalanx.testing.hosts.busy_days import draw_day
from phalanx.testing.hosts.conformance import compare, play_in_sim, play_on_host, why_not_here
from phalanx.testing.hosts.host_world import HostWorld, Setup, caller_of, make_submission
from phalanx.testing.hosts.scripts import WorkScript


def make_scenario(*gangs, seconds: dict[str, int], events=(), gpus: int = 4) -> Scenario:
    true_runs = tuple(TrueRun(seconds[gang.name] * SECOND_US) for gang in gangs)
    return Scenario(
        make_nodes(f"1 gpu={gpus} cpu=64"), (), tuple(gangs), true_runs, (Queue(DEFAULT_QUEUE),), events=events
    )


def resize(seconds: float, gang: str, members: int) -> TimedEvent:
    return TimedEvent(round(seconds * SECOND_US), "resize", gang=gang, members=members)


def test_a_change_that_takes_no_time_is_an_instant_of_its_own():
    """The simulator plans again at its next event; a daemon is told when the change is done, and plans then."""
    wide = make_gang("wide", "2-4 gpu=1", walltime=100)
    late = make_gang("late", "2 gpu=1", walltime=10, submit=5)
    scenario = make_scenario(wide, late, seconds={"wide": 100, "late": 10}, events=(resize(20, "wide", 2),))
    policy = named("easy")
    simulated = play_in_sim(scenario, policy)
    seen = play_on_host(scenario, policy, 400 * SECOND_US)
    assert simulated.starts["late"] > 20 * SECOND_US
    assert seen.starts["late"] == 20 * SECOND_US
    paused = replace(scenario, gangs=(replace(wide, resize_pause_us=SECOND_US), late))
    assert compare(paused, policy) == []


def test_seats_that_are_lost_at_the_same_instant_are_not_sat_on():
    """Two passes of one instant may bind and evict a gang: it was never started, and no program has run."""
    for seed in range(200, 400):
        scenario = draw_day(Random(seed))
        policy = named("goodput", {"quantum": 60 * SECOND_US})
        story = play_in_sim(scenario, policy)
        bound = {line[:1] + line[2:3] for line in story.lines if line[1] == "bind"}
        if bound & {line[:1] + line[2:3] for line in story.lines if line[1] == "evict"}:
            assert compare(scenario, policy) == []
            return
    pytest.fail("no drawn day binds and evicts a gang at one instant")


def test_a_pause_longer_than_the_patience_of_the_machine_is_cut():
    """`resize_s` says how long members may take to leave; after that they are made to."""
    wide = make_gang("wide", "2-4 gpu=1", walltime=1000, resize_pause_us=500 * SECOND_US)
    setup = Setup(make_nodes("1 gpu=4 cpu=8")[0], settings=Settings(resize_s=20.0))
    with HostWorld(setup) as world:
        script = WorkScript(world.machine, wide, TrueRun(1000 * SECOND_US))
        world.machine.scripts = lambda order: script
        world.loop.hush = script.speak
        world.boot()
        ada = caller_of("ada")
        submission = make_submission(wide, {})
        world.at(SECOND_US, lambda: world.ask(lambda core: core.submit(ada, [submission], None, dry_run=False)))
        world.at(10 * SECOND_US, lambda: world.ask(lambda core: core.act(ada, "1", "resize", {"members": 2})))
        world.run_until(25 * SECOND_US)
        assert len(world.processes()) == 4
        world.run_until(45 * SECOND_US)
        assert len(world.processes()) < 4


@pytest.mark.parametrize(
    ("why", "scenario"),
    [
        ("several nodes", Scenario(make_nodes("2 gpu=4"), (), (make_gang("a", "1 gpu=1"),), (TrueRun(1),))),
        (
            "a dependency on a job that does not exist yet",
            make_scenario(make_gang("a", "1 gpu=1", after=("b",)), make_gang("b", "1 gpu=1"), seconds={"a": 1, "b": 1}),
        ),
        (
            "nodes that fail, drain or come",
            make_scenario(make_gang("a", "1 gpu=1"), seconds={"a": 1}, events=(TimedEvent(1, "cordon", node="n0"),)),
        ),
    ],
)
def test_what_one_machine_cannot_be_told_is_said(why, scenario):
    assert why_not_here(scenario) == why


# ---------------------------------------------------------------------- the comparison can fail


def find_difference() -> str | None:
    days = (draw_day(Random(seed)) for seed in range(8))
    return next((each for day in days for each in compare(day, "easy")), None)


def test_without_a_plant_there_is_no_difference():
    assert find_difference() is None


def believes_in_long_runs(patch):
    """Everybody is believed to run ten times as long as they say."""
    submit = Planner.submit

    def gloomy(self, now_us, gang, *, held=False):
        return submit(self, now_us, replace(gang, walltime_us=10 * (gang.walltime_us or SECOND_US)), held=held)

    patch.setattr(Planner, "submit", gloomy)


def carries_out_one(patch):
    """Of several decisions only the first is carried out."""
    plan = Planner.plan

    def sleepy(self, now_us):
        acts = plan(self, now_us)
        acts.done = acts.done[:1]
        return acts

    patch.setattr(Planner, "plan", sleepy)


def forgets_priorities(patch):
    """Nobody is more important than others."""
    submit = Planner.submit

    def levelling(self, now_us, gang, *, held=False):
        return submit(self, now_us, replace(gang, priority=0), held=held)

    patch.setattr(Planner, "submit", levelling)


@pytest.mark.parametrize(
    "plant", [believes_in_long_runs, carries_out_one, forgets_priorities], ids=lambda plant: plant.__name__
)
def test_a_planner_that_sees_something_else_is_noticed(monkeypatch, plant):
    plant(monkeypatch)
    assert find_difference() is not None

"""Promises that are kept from cycle to cycle, where the random worlds found us wrong."""

from phalanx.engine.cycle import schedule
from phalanx.engine.invariants import check_plan
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.queue import Queue
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, make_state, occupy

KEEP = named("conservative")


def test_a_promised_start_comes_even_if_nothing_else_happens_then():
    """R overruns and then ends early by the new guess: nobody is left who could wake the clock at the promised time."""
    gangs = (
        make_gang("R", "1 gpu=1", walltime=10),
        make_gang("U", "1 gpu=1", submit=20),
        make_gang("V", "1 gpu=1", submit=20),
    )
    durations = (30, 10, 10)
    scenario = Scenario(make_nodes("1 gpu=1"), (), gangs, tuple(TrueRun(d * SECOND_US) for d in durations))
    assert [gang.state for gang in simulate(scenario, "conservative").gangs] == ["completed"] * 3


def test_a_promise_made_before_any_device_was_split_gets_devices_when_one_is():
    """Until then amounts said it all; from now on a promise without devices would keep nothing."""
    state = make_state("1 gpu=2", gangs=[make_gang("A", "1 gpu=2", walltime=10)])
    holder = len(state.gangs)
    occupy(state, 0, [1000, 0], walltime=100)
    state.apply(schedule(state.snapshot(), KEEP))
    state.submit(make_gang("S", "1 gpu=0.5", walltime=1000))
    for _ in range(2):
        snapshot = state.snapshot()
        plan = schedule(snapshot, KEEP)
        assert check_plan(snapshot, plan, KEEP) == []
        assert [reservation.gangs for reservation in plan.reservations][:1] == [(0,)]
        state.apply(plan)
    state.now_us = 100 * SECOND_US
    state.complete(holder)
    snapshot = state.snapshot()
    plan = schedule(snapshot, KEEP)
    assert 0 in [bind.gang for bind in plan.decisions]
    assert check_plan(snapshot, plan, KEEP) == []


def test_a_filler_does_not_take_the_limit_that_the_head_will_need():
    """H starts at 20 by its reservation; a long filler of its queue fits beside it, and would leave it no limit."""
    state = make_state("1 gpu=8", queues=[Queue("a", limit={"gpu": 4000})])
    occupy(state, 0, [1000] * 6 + [0, 0], walltime=20)
    head = state.submit(make_gang("H", "4 gpu=1", queue="a", walltime=10))
    state.submit(make_gang("F", "2 gpu=1", queue="a", walltime=100))
    plan = schedule(state.snapshot(), named("easy"), explain=True)
    assert [(reservation.gangs, reservation.start_us) for reservation in plan.reservations] == [
        ((head,), 20 * SECOND_US)
    ]
    assert plan.decisions == ()


def test_gangs_without_a_walltime_do_not_wait_for_each_other_on_an_idle_cluster():
    """X is released late and stands ahead of Y with a later promise; when R ends, each keeps clear of the other's."""
    gangs = (
        make_gang("R", "1 gpu=1"),
        make_gang("X", "1 gpu=1", submit=1, hold=True),
        make_gang("Y", "1 gpu=1", submit=5),
    )
    events = (TimedEvent(10 * SECOND_US, "release", gang="X"),)
    true_runs = tuple(TrueRun(30 * SECOND_US) for _ in gangs)
    scenario = Scenario(make_nodes("1 gpu=1"), (), gangs, true_runs, events=events)
    assert [gang.state for gang in simulate(scenario, "conservative").gangs] == ["completed"] * 3

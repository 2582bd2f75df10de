"""One control loop, whoever drives it: what is due, then passes for as long as a plan makes events of its own."""

import numpy as np
import pytest

from phalanx.control import loop as control_loop
from phalanx.control.forward import Arrival, End, Forward
from phalanx.control.instructions import Leave, LetGo, Remains, Shift, Silence, Start
from phalanx.control.loop import Loop
from phalanx.control.losses import HOLD_FOR_US
from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.engine.lifecycle import Phase
from phalanx.frontends.host.core.planner import Begin, Planner
from phalanx.model.fleet import Fleet
from phalanx.model.plan import Bind, Cause, Evict, Plan, Repair, Resize, Restart, Seats
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes

PAIR = make_gang("pair", "2 gpu=1", walltime=5000)
FCFS = named("fcfs")


def on(*nodes):
    places = np.array(nodes, dtype=np.int64)
    return (Seats(0, places, np.ones(len(nodes), dtype=np.int64), np.full((len(nodes), 1), 1000, dtype=np.int16)),)


class Hands:
    """A carrier that writes down what it is told, and refuses what it was asked to refuse."""

    def __init__(self):
        self.told, self.refused, self.left_us = [], {}, None

    def list_refused(self, plan):
        return [(d.gang, self.refused[d.gang]) for d in plan.decisions if d.gang in self.refused]

    def stop(self, number, *, saves, holds=()):
        return Remains(progressed=saves, left_us=self.left_us)

    def carry_out(self, instruction):
        self.told.append(instruction)

    def foresee(self, number):
        return None


class Script:
    """An engine that says what it was told to say, then nothing."""

    def __init__(self, *plans):
        self.plans, self.calls = list(plans), 0

    def __call__(self, snapshot, policy, **options):
        self.calls += 1
        return self.plans.pop(0) if self.plans else Plan()


def make_loop(nodes="4 gpu=1", *, refusable=False):
    hands = Hands()
    return Loop(State(Fleet(make_nodes(nodes), ())), FCFS, hands, refusable=refusable), hands


def make_planner(nodes="4 gpu=1"):
    planner = Planner(Fleet(make_nodes(nodes), ()), FCFS)
    planner.submit(0, PAIR)
    assert [type(act) for act in planner.plan(0).done] == [Begin]
    return planner


# ---------------------------------------------------------------------- passes


@pytest.mark.parametrize("decision", [Repair(0, on(1, 2)), Restart(0, on(2, 3))])
def test_the_daemon_plans_again_after_a_repair_as_the_simulator_does(decision):
    planner = make_planner()
    planner.submit(5, make_gang("large", "9 gpu=1"))  # somebody waits who may take from whoever was repaired
    planner.loop.fail_node(0)
    script = planner.loop.engine = Script(Plan((decision,)))
    acts = planner.plan(10)
    assert acts.passes == script.calls == 2
    assert acts.done == [Begin(0, decision.seats, again=True)]


def test_the_daemon_is_told_when_a_hold_is_over():
    planner = make_planner("2 gpu=1")
    planner.loop.fail_node(0)
    assert planner.plan(10).done == []
    assert planner.state.phase_of(0) is Phase.DEGRADED
    acts = planner.plan(10 + HOLD_FOR_US)
    assert acts.done == [Leave(0, Cause.DRAIN)]
    assert planner.state.phase_of(0) is Phase.PENDING


def test_the_daemon_lets_go_of_a_gang_that_has_nothing_left_to_hold():
    planner = make_planner("1 gpu=2")
    planner.loop.fail_node(0)
    acts = planner.plan(10)
    assert acts.done == [Leave(0, Cause.DRAIN)]
    assert planner.state.phase_of(0) is Phase.PENDING
    assert acts.passes == 2  # it may find a place at once, in the queue


def test_no_pass_where_nobody_waits_and_nobody_may_change():
    loop, hands = make_loop()
    script = loop.engine = Script()
    assert loop.plan().passes == 0
    number, _ = loop.submit(PAIR)
    loop.plan()
    loop.cancel(number)
    loop.plan()
    assert script.calls == 1
    assert hands.told == []


def test_a_plan_that_evicts_is_followed_by_another_at_the_same_instant():
    loop, hands = make_loop()
    loop.submit(PAIR)
    script = loop.engine = Script(Plan((Bind(0, on(0, 1), 5),)))
    loop.plan()
    assert script.calls == 1
    loop.at(SECOND_US)
    loop.submit(make_gang("other", "4 gpu=1"))
    script = loop.engine = Script(Plan((Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1, 2, 3), 5))))
    assert loop.plan().passes == script.calls == 2
    assert [type(each) for each in hands.told] == [Start, Leave, Start]


def test_what_is_left_of_a_gang_that_makes_way_decides_how_it_queues():
    loop, hands = make_loop()
    loop.submit(make_gang("elastic", "1-2 gpu=1", walltime=5000))
    loop.plan()
    hands.left_us = 77
    loop.engine = Script(Plan((Evict(0, Cause.TURN),)))
    loop.submit(PAIR)
    loop.plan()
    columns, row = loop.state.pending.columns, loop.state.records[0].row
    assert (columns["length_us"][row], columns["proven"][row]) == (77, True)


def test_engines_are_looked_up_in_one_place(monkeypatch):
    """Whoever stands in for the engine is asked by the virtual clock and by the daemon."""
    seen = []

    def watched(snapshot, policy, **options):
        seen.append(snapshot.now_us)
        return schedule(snapshot, policy, **options)

    monkeypatch.setattr(control_loop, "schedule", watched)
    make_planner()
    assert seen == [0]


# ---------------------------------------------------------------------- refusals


def test_nothing_of_a_refused_start_is_told():
    loop, hands = make_loop(refusable=True)
    hands.refused = {0: "no such machine"}
    loop.submit(PAIR)
    loop.plan()
    assert hands.told == []
    assert loop.state.phase_of(0) is Phase.PENDING
    assert loop.state.refusal_of(0).words == "no such machine"
    hands.refused = {}
    loop.at(loop.state.next_due_us())
    loop.run_due()
    loop.plan()
    assert [type(each) for each in hands.told] == [Start]


def test_a_refused_eviction_stops_nobody_and_is_not_followed_by_another_pass():
    loop, hands = make_loop(refusable=True)
    loop.submit(PAIR)
    loop.plan()
    loop.state.confirm(0)
    loop.submit(make_gang("other", "4 gpu=1"))
    evict = Plan((Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1, 2, 3), 5)))
    script = loop.engine = Script(evict)
    hands.refused = {0: "it will not go"}
    assert loop.plan().passes == script.calls == 1
    assert [type(each) for each in hands.told] == [Start]
    assert [loop.state.phase_of(n) for n in (0, 1)] == [Phase.RUNNING, Phase.PENDING]


def test_a_gang_that_refused_a_moment_ago_is_not_asked_again():
    loop, hands = make_loop(refusable=True)
    loop.submit(make_gang("wide", "1-2 gpu=1"))
    loop.plan()
    loop.state.confirm(0)
    loop.refuse(0, "nothing was asked")  # too late: nothing is undone, and nobody rests
    assert not loop.state.is_resting(0)
    shrink = Plan((Resize(0, on(0), Cause.PIN),))
    loop.submit(make_gang("never", "9 gpu=1"))
    loop.engine = Script(shrink)
    hands.refused = {0: "not now"}
    loop.plan()
    hands.refused, before = {}, list(hands.told)
    loop.engine = Script(shrink)
    loop.plan()
    assert hands.told == before
    loop.at(loop.state.now_us + 10 * SECOND_US)
    loop.run_due()
    loop.engine = Script(shrink)
    loop.plan()
    assert len(hands.told) == len(before) + 1


def test_a_refusal_may_come_later():
    loop, _ = make_loop(refusable=True)
    loop.submit(PAIR)
    loop.plan()
    loop.at(3 * SECOND_US)
    assert loop.refuse(0, "its image was not found").undone == (0,)
    assert loop.state.phase_of(0) is Phase.PENDING
    assert loop.state.nodes.free.sum() == 4000


# ---------------------------------------------------------------------- nodes


def test_whoever_is_left_when_a_drain_is_over_is_told_to_leave():
    loop, hands = make_loop()
    loop.submit(PAIR)
    loop.plan()
    loop.open_node(0, open_=False, drain=True)
    loop.empty_node(0)
    assert hands.told[1:] == [Leave(0, Cause.DRAIN)]
    assert loop.state.phase_of(0) is Phase.PENDING


def test_a_gang_that_lost_a_node_goes_on_elsewhere():
    loop, hands = make_loop()
    loop.submit(PAIR)
    loop.plan()
    loop.fail_node(0)
    loop.plan()
    assert [each.how for each in hands.told if isinstance(each, Shift)] == ["repair"]
    assert not [each for each in hands.told if isinstance(each, LetGo)]


def test_an_end_of_an_attempt_that_never_was_means_nothing():
    """A start that is refused begins nothing, so nothing of it is expected to end."""

    class Never:
        def draw(self, plan):
            return [(decision.gang, "never") for decision in plan.decisions]

    class Short:
        def ends_after(self, bind, now_us):
            return [End(now_us + 5, bind.gang, ok=True)]

    forward = Forward(State(Fleet(make_nodes("4 gpu=1"), ())), FCFS, Short(), Silence(), refusals=Never())
    forward.run([Arrival(PAIR)], [], until_us=20 * SECOND_US)
    assert forward.state.phase_of(0) is Phase.PENDING
    assert forward.state.refusal_of(0).times > 3

"""The walk by sums and the general walk give the same plans."""

import random

import numpy as np
import pytest

from phalanx.control.state import State
from phalanx.engine import short_cuts
from phalanx.engine.actions import single_form
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Bind, Evict
from phalanx.model.queue import Queue
from phalanx.policy import named


def draw_nodes(rng, kind):
    """Nodes of one kind. Slots may be cut anyhow; devices are whole."""
    crumbs = 100 * (kind == "slot")
    return [
        Node(
            f"n{i}",
            {kind: 1000 * rng.randint(1, 6) + crumbs * rng.randint(0, 9)},
            {"rack": f"r{rng.randrange(3)}"},
        )
        for i in range(rng.choice((1, 5, 12)))
    ]


def play(seed, policy, monkeypatch, single_form, *, kind="slot", mixed=False, queues=()):
    """Plans of a drawn world; `mixed`: with preemptible gangs and deadlines, some of them out of reach."""
    monkeypatch.setattr(short_cuts, "is_single_form", single_form)
    rng = random.Random(seed)
    nodes = draw_nodes(rng, kind)
    state = State(Fleet(nodes, rng.choice(((), ("rack",)))), queues)
    each = rng.choice((1000, 700) if kind == "slot" else (1000, 1000, 2000))
    total = max(1, sum(n.resources[kind] // each for n in nodes))
    plans, ends, number = [], [], 0
    for at in range(60):
        state.now_us = at * 1_000_000
        for end, gang in [e for e in ends if e[0] <= at]:
            state.complete(gang)
            ends.remove((end, gang))
        if rng.random() < 0.1:
            state.set_open(rng.randrange(len(nodes)), open_=rng.random() < 0.6)
        for _ in range(rng.randint(0, 3)):
            walltime = None if rng.random() < 0.1 else rng.randint(1, 20) * 1_000_000
            role = Role("m", Sizes((rng.randint(1, total + (rng.random() < 0.02)),)), Shape(((kind, each),)))
            more = {"preemptible": rng.random() < 0.3} if mixed else {}
            if mixed and rng.random() < 0.3:
                more["deadline_us"] = rng.randint(1, 60) * 1_000_000
            if queues:
                more["queue"] = rng.choice(queues).name
            priority = rng.choice((0, 0, 0, 1))
            state.submit(Gang(f"g{number}", (role,), state.now_us, priority=priority, walltime_us=walltime, **more))
            number += 1
        plan = schedule(state.borrow(), policy, ledger=True)
        idle = None if plan.idle is None else (plan.idle.reserved.tolist(), plan.idle.fragmented)
        plans.append((plan.decisions and plan.key()[0], plan.infeasible, idle))
        state.apply(plan)
        gone = {d.gang for d in plan.decisions if isinstance(d, Evict)}
        ends = [end for end in ends if end[1] not in gone]
        ends += [(at + rng.randint(1, 25), d.gang) for d in plan.decisions if isinstance(d, Bind)]
    return plans


def fill_in(plans):
    """Plans with what is idle: a pass that looked at nothing says nothing of it, and what was said last still holds."""
    told = None
    for decisions, infeasible, idle in plans:
        told = idle or told
        yield decisions, infeasible, told


@pytest.mark.parametrize("name", ["easy", "fcfs", "goodput", "fair", "rotate"])
@pytest.mark.parametrize("seed", range(40))
def test_the_same_plans_as_the_general_walk(monkeypatch, seed, name):
    real = short_cuts.is_single_form
    fast = play(seed, named(name), monkeypatch, real)
    slow = play(seed, named(name), monkeypatch, lambda *_: False)
    assert list(fill_in(fast)) == list(fill_in(slow))


@pytest.mark.parametrize("name", ["easy", "goodput"])
@pytest.mark.parametrize("seed", range(60))
def test_the_same_plans_where_members_are_whole_devices(monkeypatch, seed, name):
    real = short_cuts.is_single_form
    fast = play(seed, named(name), monkeypatch, real, kind="gpu")
    slow = play(seed, named(name), monkeypatch, lambda *_: False, kind="gpu")
    assert list(fill_in(fast)) == list(fill_in(slow))


@pytest.mark.parametrize("name", ["fair", "goodput", "easy"])
@pytest.mark.parametrize("seed", range(20))
def test_queues_take_turns_by_their_standing_whatever_the_kind_is_called(monkeypatch, seed, name):
    queues = (Queue("left", weight=2), Queue("right"), Queue("inner", "right"))
    real = short_cuts.is_single_form
    fast = play(seed, named(name), monkeypatch, real, queues=queues)
    slow = play(seed, named(name), monkeypatch, lambda *_: False, queues=queues)
    assert list(fill_in(fast)) == list(fill_in(slow))


@pytest.mark.parametrize("name", ["easy", "fcfs", "deadline"])
@pytest.mark.parametrize("seed", range(20))
def test_the_same_plans_with_guests_and_deadlines_out_of_reach(monkeypatch, seed, name):
    real = short_cuts.is_single_form
    fast = play(seed, named(name), monkeypatch, real, mixed=True)
    monkeypatch.setattr(short_cuts, "nobody_fits", lambda *_: False)  # it may be the screening that says nothing
    slow = play(seed, named(name), monkeypatch, lambda *_: False, mixed=True)
    assert list(fill_in(fast)) == list(fill_in(slow))


@pytest.mark.parametrize("name", ["easy", "goodput"])
@pytest.mark.parametrize("seed", range(20))
def test_a_queue_is_walked_the_same_whether_it_counts_as_short_or_long(monkeypatch, seed, name):
    short = play(seed, named(name), monkeypatch, short_cuts.is_single_form)
    monkeypatch.setattr(single_form, "SHORT", 1)
    assert play(seed, named(name), monkeypatch, short_cuts.is_single_form) == short


@pytest.mark.parametrize("seed", range(40))
def test_few_ends_give_the_same_start_as_many(monkeypatch, seed):
    rng = random.Random(seed)
    count = rng.randint(0, 12)
    end = np.array([rng.randint(1, 9) for _ in range(count)], dtype=np.int64)
    gain = np.array([rng.randint(0, 4) for _ in range(count)], dtype=np.int64)
    for missing in range(1, int(gain.sum()) + 3):
        few = single_form.find_start(end, gain, missing)
        with monkeypatch.context() as patch:
            patch.setattr(single_form, "SHORT", -1)
            assert single_form.find_start(end, gain, missing) == few

"""The harness can fail: each mistake planted here is caught by the invariants, the chronicle, the oracle or the textbook.

A plant is a change to the running engine, made by `monkeypatch` and gone after the test. For each there are
cases that pass without it (the first test says so) and a check that must report it by name.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from phalanx.control import leaving
from phalanx.control.tenants import Tenants
from phalanx.engine import cycle
from phalanx.engine.actions import allocate, single_form
from phalanx.engine.actions.allocate import Walk
from phalanx.engine.invariants import InvariantError, Promise
from phalanx.engine.kernels import devices
from phalanx.engine.order import turns
from phalanx.engine.room import placement, view
from phalanx.engine.room.limits import Limits
from phalanx.engine.room.placement import NoPlace
from phalanx.engine.room.view import View
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.run import simulate
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, make_state, occupy
from phalanx.testing.checking import BrokenPromise, play
from phalanx.testing.exhaustive import find_any, read_board
from phalanx.testing.textbook import Rectangle, run_easy, run_fcfs

EASY = named("easy")


def make_world(gangs, nodes, events=(), **rest):
    true_runs = tuple(TrueRun(gang.walltime_us) for gang in gangs)
    return Scenario(make_nodes(*nodes), ("rack",), tuple(gangs), true_runs, events=events, **rest)


#: Busy, with everything a plant could spoil: roles, shares, groups, limits, a cordon, and a head that waits.
NODES = ("2 gpu=4 cpu=8 rack:x", "2 gpu=4 cpu=8 rack:y")
WORLDS = {
    "whole": make_world([make_gang(f"g{i}", f"{3 + i % 3} gpu=1", walltime=10 + i) for i in range(8)], NODES),
    "shares": make_world([make_gang(f"g{i}", f"{2 + i % 3} gpu=0.5", walltime=10 + i) for i in range(6)], NODES),
    "wide": make_world(
        [make_gang("run", "10 gpu=1", walltime=50), make_gang("head", "14 gpu=1", walltime=50),
         *(make_gang(f"fill{i}", "2 gpu=1", walltime=100) for i in range(3))], NODES),
    "roles": make_world([make_gang(f"g{i}", "2 gpu=1", "3 cpu=2", "1 gpu=1", walltime=10) for i in range(6)], NODES),
    "pairs": make_world([make_gang(f"g{i}", "5 gpu=1", together=(f"p{i // 2}", 2), walltime=10) for i in range(6)], NODES),
    "limits": make_world(
        [make_gang(f"g{i}", "2 gpu=1", queue="b", walltime=10 + i) for i in range(6)], NODES,
        queues=(Queue(DEFAULT_QUEUE), Queue("a", limit={"gpu": 5000}), Queue("b", parent="a"))),
    "segments": make_world([make_gang(f"g{i}", "6 gpu=1", topology="/2:node", walltime=10) for i in range(4)], NODES),
}  # fmt: skip


def find_fault(worlds=tuple(WORLDS), policy="easy"):
    """What playing these worlds brings to light: promises by name, or the chronicle's sentence; None if nothing."""
    for name in worlds:
        try:
            play(WORLDS[name], policy)
        except InvariantError as broken:
            return {violation.code for violation in broken.violations}
        except BrokenPromise as broken:
            return str(broken)
    return None


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
def test_without_a_plant_there_is_nothing_to_find(policy):
    assert find_fault(policy=policy) is None
    assert find_misplacement() is None
    assert find_departure("easy", run_easy) is None
    assert find_departure("fcfs", run_fcfs) is None


# ---------------------------------------------------------------------- caught by the invariants


def test_a_member_is_dropped(monkeypatch):
    real = placement.choose_nodes

    def forgetful(room, role, size):
        chosen = real(room, role, size)
        return chosen and (chosen[0], np.append(chosen[1][:-1], chosen[1][-1:] - 1))

    monkeypatch.setattr(placement, "choose_nodes", forgetful)
    assert Promise.WHOLE in find_fault(["whole"])


def test_a_role_is_dropped(monkeypatch):
    real = placement._place_roles
    monkeypatch.setattr(placement, "_place_roles", lambda *args: (real(*args) or ())[:-1] or None)
    assert Promise.WHOLE in find_fault(["roles"])


def test_fillers_ignore_the_reservation(monkeypatch):
    """They are offered everything that is free now, however long they run."""
    real = Walk._place_in
    monkeypatch.setattr(Walk, "_place_in", lambda self, level, wish, index: real(self, 0, wish, index))
    monkeypatch.setattr(Walk, "_refuse_by_sums", lambda *_: False, raising=False)
    monkeypatch.setattr(allocate, "find_ceiling", lambda *_: 1 << 20)
    assert find_fault(["wide"]) == {Promise.RESERVATION}


def test_a_device_is_given_twice(monkeypatch):
    """Whoever comes gets the first devices of the node."""

    def first_devices(fleet, need, nodes, counts, free):
        taken = np.zeros_like(free)
        for row, count in enumerate(counts.tolist()):
            taken[row, : count * need.whole] = 1000
        return taken

    monkeypatch.setattr(view, "choose_devices", first_devices)
    assert find_fault(["whole"]) == {Promise.DEVICE}


def test_a_node_gives_more_than_it_has(monkeypatch):
    real = view.compute_slots
    monkeypatch.setattr(view, "compute_slots", lambda *args, **kw: real(*args, **kw) + 1)
    assert {Promise.CAPACITY, Promise.DEVICE} & find_fault(["roles"])


def test_a_share_is_smeared_over_two_devices(monkeypatch):
    def smear(room, share, count, taken):
        for _ in range(count):
            roomy = np.argsort(-(room - taken), kind="stable")[:2]
            taken[roomy] += share // 2

    monkeypatch.setattr(devices, "_share_devices", smear)
    assert find_fault(["shares"]) == {Promise.DEVICE}


def test_a_cordon_is_ignored(monkeypatch):
    real = cycle.schedule

    def blind(snapshot, policy, **rest):
        nodes = replace(snapshot.nodes, open=np.ones_like(snapshot.nodes.open), in_service=snapshot.nodes.up)
        return real(replace(snapshot, nodes=nodes), policy, **rest)

    monkeypatch.setattr(cycle, "schedule", blind)
    cordon = TimedEvent(0, "cordon", node="n0")
    monkeypatch.setitem(WORLDS, "cordoned", replace(WORLDS["whole"], events=(cordon,)))
    assert find_fault(["cordoned"]) == {Promise.SERVICE}


def test_a_companion_is_forgotten(monkeypatch):
    """Gangs with one word start one by one."""
    monkeypatch.setattr(turns, "_merge_groups", lambda _, rows: (rows, {}))
    assert find_fault(["pairs"]) == {Promise.TOGETHER}


def test_starts_of_one_plan_are_not_charged(monkeypatch):
    monkeypatch.setattr(Limits, "charge", lambda *_: None)
    assert find_fault(["limits"]) == {Promise.LIMIT}


def test_a_parent_queue_is_not_charged(monkeypatch):
    def charge_one(self, queue, user, need, members):
        self.user_columns.usage[user] += members * need.vector
        self.queue_columns.usage[queue] += members * need.vector

    monkeypatch.setattr(Tenants, "charge", charge_one)
    assert find_fault(["limits"]) == {Promise.SUMS}


def test_ranks_are_dealt_at_random(monkeypatch):
    real = placement.choose_nodes

    def shuffle(room, role, size):
        chosen = real(room, role, size)
        return chosen and (chosen[0][::-1], chosen[1][::-1])

    monkeypatch.setattr(placement, "choose_nodes", shuffle)
    assert Promise.RANKS in find_fault(["whole"])


def test_groups_of_ranks_are_torn(monkeypatch):
    real = placement.choose_nodes
    monkeypatch.setattr(
        placement, "choose_nodes", lambda room, role, size: real(room, replace(role, segment_size=0), size)
    )
    torn = make_world(
        [make_gang("g", "6 gpu=1", topology="/3:node", walltime=10)], ("1 gpu=4 rack:x", "1 gpu=3 rack:x")
    )
    monkeypatch.setitem(WORLDS, "torn", torn)
    assert find_fault(["torn"]) == {Promise.SEGMENT}


def test_the_seats_of_one_role_are_never_given_back(monkeypatch):
    real = leaving.unseat

    def forgetful(state, record):
        record.seats = record.seats[:-1]
        real(state, record)

    monkeypatch.setattr(leaving, "unseat", forgetful)
    assert find_fault(["roles"]) == {Promise.SUMS}


# ---------------------------------------------------------------------- caught by the chronicle


def test_the_engine_writes_into_its_snapshot(monkeypatch):
    monkeypatch.setattr(View, "_own", lambda self: setattr(self, "_owned", True))
    assert "wrote into its snapshot" in find_fault(["whole"])


def test_the_engine_remembers(monkeypatch):
    """An order that differs from call to call, as an iteration over a set would."""
    mood = random.Random(0)
    real = cycle.order_turns

    def moody(session):
        found = real(session)
        return found.keep(np.array([mood.random() < 0.7 for _ in range(len(found))], dtype=np.bool_))

    monkeypatch.setattr(cycle, "order_turns", moody)
    assert "two plans" in find_fault(["whole"])


# ---------------------------------------------------------------------- caught by the oracle and the textbook


def find_misplacement():
    """Gangs that the engine and the exhaustive search disagree about."""
    pair = [make_gang("A", "2 gpu=1", together=("pair", 2)), make_gang("B", "1 gpu=0.5 cpu=4", together=("pair", 2))]
    for fill in ([0, 0], [500, 0], [1000, 0], [500, 500]):
        state = make_state("1 gpu=1 cpu=2", "1 gpu=2 cpu=4")
        occupy(state, 1, fill)
        board = read_board(state)
        for gang in pair:
            state.submit(gang)
        started = bool(cycle.schedule(state.snapshot(), EASY).decisions)
        if started != (find_any(board, pair) is not None):
            return fill
    return None


def test_the_exact_search_gives_up(monkeypatch):
    """What greedy cannot seat is called impossible."""
    monkeypatch.setattr(placement, "_place_exactly", lambda *_: NoPlace())
    assert find_misplacement() is not None


JOBS = [
    Rectangle(0, 6, 10, 10),
    Rectangle(1, 8, 10, 10),
    Rectangle(2, 2, 30, 30),
    Rectangle(3, 1, 5, 5),
    Rectangle(4, 1, 20, 20),
]


def find_departure(policy, textbook):
    """Jobs that start at another time than the papers say."""
    gangs = [make_gang(f"j{i}", f"{j.size} slot=1", submit=j.submit, walltime=j.estimate) for i, j in enumerate(JOBS)]
    true_runs = tuple(TrueRun(job.duration * SECOND_US) for job in JOBS)
    result = simulate(Scenario(make_nodes("8 slot=1"), (), tuple(gangs), true_runs), policy)
    starts = [gang.start_us // SECOND_US for gang in result.gangs]
    expected = textbook(JOBS, 8)
    return None if starts == expected else (starts, expected)


@pytest.fixture
def only_the_general_walk(monkeypatch):
    """These jobs are all of one form, and a quicker walk would decide about them."""
    monkeypatch.setattr(cycle, "is_single_form", lambda *_: False)


@pytest.mark.usefixtures("only_the_general_walk")
def test_there_is_no_reservation_at_all(monkeypatch):
    monkeypatch.setattr(allocate, "find_start", lambda *_, **__: None)
    monkeypatch.setattr(allocate, "find_shadow", lambda *_: (allocate.NEVER, 0))
    assert find_departure("easy", run_easy) is not None


@pytest.mark.usefixtures("only_the_general_walk")
def test_somebody_overtakes_under_fcfs(monkeypatch):
    monkeypatch.setattr(Walk, "_block", lambda *_: None)
    assert find_departure("fcfs", run_fcfs) is not None


def test_the_quick_walk_forgets_what_the_head_needs(monkeypatch):
    monkeypatch.setattr(single_form, "find_start", lambda *_: (single_form.NEVER, 0))
    assert find_departure("easy", run_easy) is not None

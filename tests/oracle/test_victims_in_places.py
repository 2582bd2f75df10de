"""Whom the engine evicts where places, queues and waiting matter, against every permitted set by brute force.

`test_victims` has one device per node and one queue, so that sizes say it all. Here are nodes of several devices, racks
that a gang may require, guarantees that allow or forbid, and ends ahead for which it is better to wait. Whether
somebody fits is asked of the exhaustive search.
"""

import random
from fractions import Fraction
from itertools import combinations

import pytest

from phalanx.control.state import State
from phalanx.engine.cycle import schedule
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import SnapshotHabit
from phalanx.model.plan import Evict
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, seat
from phalanx.testing.checking import schedule_checked
from phalanx.testing.exhaustive import board_of, find_any

NOW_US = 5_000 * SECOND_US


def draw_case(rng):
    """A cluster with some running gangs of several ages, and one that waits."""
    nodes = [
        Node(f"n{i}", {"gpu": rng.choice([1, 2, 4]) * 1000}, {"rack": rng.choice("xy")})
        for i in range(rng.randint(1, 4))
    ]
    total = sum(node.resources["gpu"] for node in nodes) // 1000
    floors = [rng.randint(0, total), rng.randint(0, total // 2)]
    queues = (
        Queue(DEFAULT_QUEUE),
        Queue("a", guarantee={"gpu": floors[0] * 1000} if floors[0] else {}),
        Queue("b", guarantee={"gpu": floors[1] * 1000} if floors[1] else {}),
    )
    state = State(Fleet(nodes, ("rack",)), queues)
    free = [node.resources["gpu"] // 1000 for node in nodes]
    for index in range(rng.randint(3, 8)):
        places = take_some(rng, free)
        if not places:
            continue
        habit = SnapshotHabit(rng.choice([60, 600, 3600]) * SECOND_US, 0, rng.choice([0, 5, 100]) * SECOND_US)
        gang = make_gang(
            f"g{index}", f"{sum(places.values())} gpu=1", queue=rng.choice(["default", "a", "b"]),
            priority=rng.randint(0, 2), walltime=rng.choice([20_000, 20_000, 20_000, 6_000]), preemptible=rng.random() < 0.9,
            snapshot=habit if rng.random() < 0.5 else None, startup_us=rng.choice([0, 30]) * SECOND_US,
        )  # fmt: skip
        state.now_us = rng.randint(0, 4_900) * SECOND_US
        seat(state, state.submit(gang), places)
    state.now_us = NOW_US
    wish = rng.choice(["", "", ">rack", ">node"])
    asker = make_gang("asker", f"{rng.randint(1, max(1, total // 2))} gpu=1", queue=rng.choice(["default", "a", "b"]),
                      priority=rng.randint(1, 3), walltime=100, topology=wish, submit=5_000)  # fmt: skip
    return state, asker


def take_some(rng, free):
    """Members by node for one gang, taken out of what is free."""
    places = {}
    for node in rng.sample(range(len(free)), rng.randint(1, len(free))):
        count = rng.randint(0, min(free[node], 3))
        if count:
            places[node] = count
            free[node] -= count
    return places


# ---------------------------------------------------------------------- the rule, the plain way


def restart_us(state, number):
    record, gang = state.records[number], state.gangs[number]
    age = NOW_US - int(state.running.columns["start_us"][record.row])
    unsaved = age if gang.snapshot is None else min(age, gang.snapshot.every_us)
    return unsaved + (0 if gang.snapshot is None else gang.snapshot.restore_us) + gang.startup_us


def members(state, number):
    return sum(seats.members for seats in state.records[number].seats)


def may_take(state, asker, victims):
    """Rules 9: higher priority in the same queue, or another queue's guarantee, judged as everything is afterwards."""
    usage = dict.fromkeys(("default", "a", "b"), 0)
    for number, gang in enumerate(state.gangs):
        if gang is not asker and number not in victims:
            usage[gang.queue] += members(state, number)
    floor = {
        name: int(row[0]) // 1000
        for name, row in zip(
            state.tenants.queue_columns.names, state.tenants.queue_columns.guarantee.tolist(), strict=True
        )
    }
    for number in victims:
        gang = state.gangs[number]
        if not gang.preemptible:
            return False
        if gang.queue == asker.queue:
            if asker.priority <= gang.priority:
                return False
            continue
        within = floor[asker.queue] and usage[asker.queue] + asker.members_min <= floor[asker.queue]
        if not within or usage[gang.queue] < floor[gang.queue]:
            return False
    return True


def fits_without(state, asker, victims):
    """Whether the asker has a place once these are gone."""
    free = [int(row[0]) for row in state.fleet.capacity.tolist()]
    for number, record in enumerate(state.records):
        for seats in record.seats if number not in victims else ():
            for node, count in zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True):
                free[node] -= count * 1000
    devices = [[1000] * (units // 1000) for units in free]
    board = board_of(state.fleet, [[units] for units in free], devices, [True] * len(free))
    return find_any(board, [asker]) is not None


def best_set(state, asker):
    """All permitted sets that are enough: lowest highest priority, least cost, fewer, later; or none, if waiting is shorter."""
    running = [number for number, gang in enumerate(state.gangs) if gang is not asker]
    if fits_without(state, asker, ()):
        return set()
    found = []
    for count in range(1, len(running) + 1):
        for some in combinations(running, count):
            if may_take(state, asker, some) and fits_without(state, asker, some):
                highest = max(state.gangs[number].priority for number in some)
                cost = sum(restart_us(state, number) * members(state, number) for number in some)
                found.append((highest, cost, count, sorted(-number for number in some), set(some)))
    if not found:
        return set()
    best = min(found, key=lambda each: each[:4])[4]
    wait_us = first_start_us(state, asker) - NOW_US
    return set() if wait_us < max(restart_us(state, number) for number in best) else best


def first_start_us(state, asker):
    """When the asker would start by itself, from everybody's expected end."""
    ends = {}
    for number, gang in enumerate(state.gangs):
        if gang is asker:
            continue
        start = int(state.running.columns["start_us"][state.records[number].row])
        end = start + gang.walltime_us
        ends[number] = end if end > NOW_US else NOW_US + max(60 * SECOND_US, (NOW_US - start) // 10)
    for at_us in sorted(set(ends.values())):
        if fits_without(state, asker, {number for number, end in ends.items() if end <= at_us}):
            return at_us
    return Fraction(1 << 62)


@pytest.mark.parametrize("batch", range(6))
def test_the_engine_evicts_the_best_permitted_set(batch):
    policy, evicting = named("fair"), 0
    for case in range(40):
        state, asker = draw_case(random.Random(f"victims {batch} {case}"))
        number = state.submit(asker)
        snapshot = state.snapshot()
        plan = schedule_checked(snapshot, policy)
        assert schedule(snapshot, policy).key() == plan.key()
        evicted = {decision.gang for decision in plan.decisions if isinstance(decision, Evict)}
        if number in plan.infeasible:
            continue
        assert evicted == best_set(state, asker), (batch, case)
        evicting += bool(evicted)
    assert evicting >= 8, "some draws should have somebody to evict"

"""The harness can fail, about everything that is taken, lent, moved, degraded and grown: one planted mistake per test.

As in `test_planted`: a plant is a change to the running engine, made by `monkeypatch`. Where no single promise is
broken by a mistake, the run comes out differently from what the rules say; `FATES` are those outcomes.
"""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.control import folding, losses
from phalanx.engine import cycle, fairshare
from phalanx.engine.actions import allocate, grow, repair
from phalanx.engine.invariants import InvariantError, Promise
from phalanx.engine.making_room import moves
from phalanx.engine.making_room.permits import Permits
from phalanx.engine.making_room.preemption import _Search
from phalanx.engine.order import turns
from phalanx.engine.reclaimable import Occupant, Reclaimable
from phalanx.frontends.sim.events import TimedEvent
from phalanx.frontends.sim.progress import GangProgress
from phalanx.frontends.sim.scenario import Scenario, TrueRun
from phalanx.model.gang import SnapshotHabit
from phalanx.model.queue import DEFAULT_QUEUE, Queue
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes
from phalanx.testing.checking import BrokenPromise, CheckedRun

SAVES = SnapshotHabit(60 * SECOND_US, 0, 0)
PAUSE = 10 * SECOND_US


def make_world(nodes, *gangs, queues=(), events=(), spares=0):
    """Nodes of one line; gangs run as long as they say."""
    made = make_nodes(nodes)
    made = tuple(replace(node, spare=index >= len(made) - spares) for index, node in enumerate(made))
    true_runs = tuple(TrueRun(gang.walltime_us or 1000 * SECOND_US) for gang in gangs)
    tenants = (Queue(DEFAULT_QUEUE), *queues)
    return Scenario(made, (), gangs, true_runs, queues=tenants, events=events, until_us=86400 * SECOND_US)


def soft(name, line, **rest):
    return make_gang(name, line, preemptible=True, **rest)


def fail(at, node, repaired=None):
    events = [TimedEvent(at * SECOND_US, "fail", node=node)]
    return (*events, *([TimedEvent(repaired * SECOND_US, "repair", node=node)] if repaired else ()))


GUARANTEED = (Queue("a", guarantee={"gpu": 2000}), Queue("b", guarantee={"gpu": 2000}))

#: name: policy, options, world. Each is sound as it is.
WORLDS = {
    "preempt": ("fair", {}, make_world(
        "4 gpu=1", soft("low", "2 gpu=1"), soft("other", "2 gpu=1"), make_gang("high", "2 gpu=1", submit=100, priority=1, walltime=50))),
    "equals": ("fair", {}, make_world(
        "4 gpu=1", soft("run", "4 gpu=1", walltime=500), make_gang("equal", "2 gpu=1", submit=100, walltime=50))),
    "hard": ("fair", {}, make_world(
        "4 gpu=1", make_gang("hard", "4 gpu=1", walltime=5000), make_gang("high", "2 gpu=1", submit=100, priority=1, walltime=50))),
    "three": ("fair", {}, make_world(
        "3 gpu=1", *(soft(f"low{i}", "1 gpu=1") for i in range(3)), make_gang("high", "1 gpu=1", submit=100, priority=1, walltime=50))),
    "reclaim": ("fair", {}, make_world(
        "4 gpu=1", soft("lent", "4 gpu=1"), make_gang("owner", "2 gpu=1", submit=100, queue="a", walltime=50), queues=GUARANTEED)),
    "beyond": ("fair", {}, make_world(
        "4 gpu=1", soft("lent", "4 gpu=1", walltime=500), make_gang("large", "3 gpu=1", submit=100, queue="a", walltime=50), queues=GUARANTEED)),
    "both": ("fair", {}, make_world(
        "4 gpu=1", soft("mine", "2 gpu=1", queue="b", walltime=500), make_gang("run", "2 gpu=1", walltime=500),
        make_gang("owner", "2 gpu=1", submit=100, queue="a", walltime=50), queues=GUARANTEED)),
    "shared": ("fair", {}, make_world(
        "2 gpu=1", soft("mine", "1 gpu=1", queue="a"), soft("below", "2 gpu=1", submit=10, queue="c", walltime=50),
        queues=(Queue("a", guarantee={"gpu": 2000}), Queue("c", parent="a")))),
    "young": ("fair", {"min_runtime": 200 * SECOND_US}, make_world(
        "2 gpu=1", soft("low", "2 gpu=1"), make_gang("high", "2 gpu=1", submit=100, priority=1, walltime=50))),
    "often": ("fair", {"max_evictions": 1}, make_world(
        "2 gpu=1", soft("low", "2 gpu=1"), *(make_gang(f"high{i}", "2 gpu=1", submit=100 + 100 * i, priority=1 + i, walltime=50) for i in range(2)))),
    "lend": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1", resize_pause_us=PAUSE), make_gang("next", "2 gpu=1", submit=100, walltime=50))),
    "poor": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1", priority=1), make_gang("next", "2 gpu=1", submit=100, walltime=50))),
    "pinned": ("fair", {}, make_world(
        "4 gpu=1", make_gang("wide", "2-4 gpu=1"), make_gang("next", "2 gpu=1", submit=100, walltime=50),
        events=(TimedEvent(50 * SECOND_US, "resize", gang="wide", members=4),))),
    "grow": ("goodput", {}, make_world(
        "4 gpu=1", make_gang("wide", "1-4 gpu=1"), make_gang("brief", "2 gpu=1", walltime=100), make_gang("later", "1 gpu=1", submit=110, walltime=10))),
    "ceiling": ("goodput", {}, make_world(
        "4 gpu=1", make_gang("wide", "1-4 gpu=1", queue="q"), make_gang("brief", "2 gpu=1", walltime=100), queues=(Queue("q", limit={"gpu": 2000}),))),
    "turns": ("rotate", {"quantum": 100 * SECOND_US}, make_world(
        "2 gpu=1", soft("one", "2 gpu=1", snapshot=SAVES, walltime=400), soft("two", "2 gpu=1", submit=1, snapshot=SAVES, walltime=400))),
    "stubborn": ("rotate", {"quantum": 100 * SECOND_US}, make_world(
        "2 gpu=1", soft("one", "2 gpu=1", walltime=400), soft("two", "2 gpu=1", submit=1, snapshot=SAVES, walltime=400))),
    "guest": ("easy", {}, make_world(
        "3 gpu=1", make_gang("run", "2 gpu=1", walltime=300), make_gang("head", "3 gpu=1", submit=10, walltime=50),
        soft("guest", "1 gpu=1", submit=20))),
    "unstoppable": ("easy", {}, make_world(
        "3 gpu=1", make_gang("run", "2 gpu=1", walltime=300), make_gang("head", "3 gpu=1", submit=10, walltime=50),
        make_gang("stays", "1 gpu=1", submit=20))),
    "hurt": ("easy", {}, make_world(
        "3 gpu=1", soft("two", "2 gpu=1", snapshot=SAVES, walltime=500), events=fail(100, "n0", 3000))),
    "waits": ("easy", {}, make_world(
        "2 gpu=1", make_gang("two", "2 gpu=1", walltime=500), make_gang("small", "1 gpu=1", submit=50, walltime=5000), events=fail(100, "n0"))),
    "cordoned": ("easy", {}, make_world(
        "3 gpu=1", make_gang("two", "2 gpu=1", walltime=500),
        events=(TimedEvent(50 * SECOND_US, "cordon", node="n2"), *fail(100, "n0", 3000)))),
    "spare": ("easy", {}, make_world("3 gpu=1", make_gang("two", "2 gpu=1", walltime=500), make_gang("next", "1 gpu=1", walltime=50), spares=1)),
    "move": ("goodput", {}, make_world(
        "2 gpu=2", make_gang("left", "1 gpu=1", walltime=200), make_gang("gone", "1 gpu=1", walltime=100),
        soft("right", "1 gpu=1", snapshot=SAVES, walltime=5000), make_gang("also", "1 gpu=1", walltime=100),
        make_gang("pair", "1 gpu=2", submit=150, walltime=100))),
    "drained": ("easy", {}, make_world(
        "2 gpu=1", soft("one", "1 gpu=1", snapshot=replace(SAVES, stall_us=SECOND_US, restore_us=4 * SECOND_US), walltime=500),
        events=(TimedEvent(90 * SECOND_US, "drain", node="n0"),))),
}  # fmt: skip


def run(name):
    policy, options, world = WORLDS[name]
    watch = CheckedRun()
    return watch, watch.play(world, policy, options)


def find_fault(name):
    """The promises that a world breaks, or the chronicle's sentence; None if nothing."""
    try:
        run(name)
    except InvariantError as broken:
        return {violation.code for violation in broken.violations}
    except BrokenPromise as broken:
        return str(broken)
    return None


def tell(name):
    """What happened to whom and when, in seconds."""
    _, result = run(name)
    return {gang.name: [(entry.event, entry.at_us / SECOND_US) for entry in gang.history] for gang in result.gangs}


#: By the rules, to the second.
FATES = {
    "guest": {"guest": [("bind", 20), ("evict", 300), ("bind", 350), ("complete", 1350)], "head": [("bind", 300), ("complete", 350)]},
    "turns": {"one": [("bind", 0), ("yield", 100), ("bind", 200), ("yield", 300), ("bind", 400)]},
    "lend": {"wide": [("bind", 0), ("shrink", 100)], "next": [("bind", 110), ("complete", 160)]},
    "waits": {"two": [("bind", 0), ("lose", 100), ("lose", 700)], "small": [("bind", 700)]},
    "hurt": {"two": [("bind", 0), ("lose", 100), ("repair", 100), ("complete", 540)]},
    "drained": {"one": [("bind", 0), ("move", 90), ("complete", 512)]},
    "preempt": {"high": [("bind", 100), ("complete", 150)]},
    "grow": {"wide": [("bind", 0), ("grow", 100), ("shrink", 110)], "later": [("bind", 110), ("complete", 120)]},
}  # fmt: skip


def find_departure(name):
    """Whose history does not begin as the rules say."""
    told = tell(name)
    return {gang: told[gang] for gang, fate in FATES[name].items() if told[gang][: len(fate)] != fate}


@pytest.mark.parametrize("name", WORLDS)
def test_without_a_plant_there_is_nothing_to_find(name):
    assert find_fault(name) is None
    if name in FATES:
        assert find_departure(name) == {}


# ---------------------------------------------------------------------- who takes from whom


def test_somebody_is_evicted_and_nobody_starts(monkeypatch):
    real = allocate.Walk._commit

    def forgetful(self, turn, taken):
        with monkeypatch.context() as inside:
            inside.setattr(allocate, "start_turn", lambda *_, **__: None)
            real(self, turn, taken)

    monkeypatch.setattr(allocate.Walk, "_commit", forgetful)
    assert find_fault("preempt") == {Promise.EVICTION}


def test_an_equal_is_evicted(monkeypatch):
    real = Permits.claimant
    monkeypatch.setattr(Permits, "claimant", lambda *args, **rest: replace(real(*args, **rest), priority=1))
    assert find_fault("equals") == {Promise.RIGHTS}


def test_somebody_who_may_not_be_stopped_is_evicted(monkeypatch):
    real = Reclaimable.__init__

    def forgetful(self, snapshot, *rest):
        gangs = [replace(gang, preemptible=True) for gang in snapshot.gangs]
        running = replace(snapshot.running, preemptible=np.ones_like(snapshot.running.preemptible))
        real(self, replace(snapshot, gangs=gangs, running=running), *rest)

    monkeypatch.setattr(Reclaimable, "__init__", forgetful)
    monkeypatch.setattr(cycle, "is_restless", lambda *_: True)
    policy, options, world = WORLDS["hard"]
    # Somebody else can be stopped, or nobody would look for anybody at all.
    monkeypatch.setitem(
        WORLDS,
        "hard",
        (
            policy,
            options,
            replace(
                world,
                gangs=(*world.gangs, soft("late", "1 gpu=1", submit=1)),
                true_runs=(*world.true_runs, world.true_runs[0]),
            ),
        ),
    )
    assert find_fault("hard") == {Promise.EVICTION}


def test_one_victim_too_many(monkeypatch):
    monkeypatch.setattr(_Search, "_best", lambda self, allowed, loans: allowed)
    assert "had room without that" in find_fault("three")


def test_the_victims_guarantee_is_forgotten(monkeypatch):
    monkeypatch.setattr(fairshare.Standing, "victim_keeps_guarantee", lambda *_: True)
    assert find_fault("both") == {Promise.GUARANTEE}


def test_the_takers_own_guarantee_is_forgotten(monkeypatch):
    monkeypatch.setattr(fairshare.Standing, "taker_within_guarantee", lambda *_, **__: True)
    assert find_fault("beyond") == {Promise.GUARANTEE}


def test_two_make_way_for_each_other(monkeypatch):
    """Below one guarantee, each may take from the other for ever."""
    monkeypatch.setattr(fairshare.Standing, "taker_within_guarantee", lambda *_, **__: True)
    assert "make way for each other" in find_fault("shared")


def test_nobody_runs_for_long_enough(monkeypatch):
    monkeypatch.setattr(Permits, "_ripe", lambda *_: True)
    assert find_fault("young") == {Promise.EVICTION}
    assert find_fault("often") == {Promise.EVICTION}


def test_waiting_is_never_worth_it(monkeypatch):
    """The head would start in 10 s, and the work of 100 s is thrown away instead."""
    short = make_world("2 gpu=1", make_gang("run", "1 gpu=1", walltime=110), soft("low", "1 gpu=1"),
                       make_gang("high", "1 gpu=1", submit=100, priority=1, walltime=50))  # fmt: skip
    monkeypatch.setitem(WORLDS, "short", ("fair", {}, short))
    assert tell("short")["low"] == [("bind", 0), ("complete", 1000)]
    monkeypatch.setattr(Reclaimable, "restart_us", lambda *_: 0)
    assert tell("short")["low"] != [("bind", 0), ("complete", 1000)]


# ---------------------------------------------------------------------- surplus


def test_a_gang_gives_more_than_its_surplus(monkeypatch):
    real = Reclaimable.give

    def generous(self, release, beneficiary):
        real(self, release, beneficiary)
        if not release.whole:
            seats = release.occupant.seats[0]
            left = replace(seats, nodes=seats.nodes[1:], counts=seats.counts[1:], devices=seats.devices[1:], members=-1)
            release.occupant.seats = (left,)

    monkeypatch.setattr(Reclaimable, "give", generous)
    assert Promise.WHOLE in find_fault("lend")


def test_surplus_is_taken_by_somebody_who_may_not(monkeypatch):
    monkeypatch.setattr(Permits, "may_borrow_from", lambda *_: True)
    assert find_fault("poor") == {Promise.RIGHTS}


def test_a_pinned_gang_lends(monkeypatch):
    monkeypatch.setattr(Occupant, "exact", property(lambda _: False, lambda *_: None), raising=False)
    assert find_fault("pinned") == {Promise.SIZE}


def test_seats_are_given_while_somebody_is_still_leaving(monkeypatch):
    monkeypatch.setattr(folding, "_find_lenders", lambda *_: {})
    assert "is still leaving" in find_fault("lend")


def test_seats_that_were_left_are_kept_for_ever(monkeypatch):
    """Rows of nobody outlive their time."""
    monkeypatch.setattr(losses, "vacate_due", lambda state: bool(state.vacating) and not state.vacating.clear())
    policy, options, world = WORLDS["pinned"]
    shrinks = replace(
        world,
        gangs=tuple(replace(gang, resize_pause_us=PAUSE) for gang in world.gangs),
        events=(TimedEvent(50 * SECOND_US, "resize", gang="wide", members=2),),
    )
    monkeypatch.setitem(WORLDS, "pinned", (policy, options, shrinks))
    assert Promise.VACATED in find_fault("pinned")


def test_somebody_grows_before_it_has_cooled_down(monkeypatch):
    real = grow.Growth.__init__

    def hot(self, session, *rest):
        cool = np.zeros_like(session.snapshot.running.cool_until_us)
        session.snapshot = replace(session.snapshot, running=replace(session.snapshot.running, cool_until_us=cool))
        real(self, session, *rest)

    monkeypatch.setattr(grow.Growth, "__init__", hot)
    assert find_fault("grow") == {Promise.SIZE}


def test_somebody_grows_through_a_ceiling(monkeypatch):
    real = grow.Growth._step

    def blind(self, grower):
        monkeypatch.setattr(self.session.limits, "any", False)
        return real(self, grower)

    monkeypatch.setattr(grow.Growth, "_step", blind)
    assert find_fault("ceiling") == {Promise.LIMIT}


def test_a_change_of_size_costs_nothing(monkeypatch):
    """The seats are free at once in truth, and the ledger has no pause in it."""
    watch, _ = run("lend")
    assert watch.parts["resize"] > 0
    monkeypatch.setattr(
        GangProgress,
        "resize",
        lambda self, now, units, pace: (
            self.advance(now),
            setattr(self, "units", units),
            setattr(self, "pace_us", pace),
            self._look_ahead(),
        ),
    )
    cheap, _ = run("lend")
    assert cheap.parts["resize"] != watch.parts["resize"]


# ---------------------------------------------------------------------- turns


def test_a_turn_is_cut_short(monkeypatch):
    real = Permits.list_turns

    def hasty(self, who):
        self.policy = replace(self.policy, quantum_us=self.policy.quantum_us // 2)
        return real(self, who)

    monkeypatch.setattr(Permits, "list_turns", hasty)
    assert find_fault("turns") == {Promise.RIGHTS}


def test_somebody_yields_who_cannot_save_its_work(monkeypatch):
    monkeypatch.setattr(Permits, "_takes_turns", lambda *_: True)
    assert find_fault("stubborn") == {Promise.RIGHTS}


def test_whoever_yields_begins_again_from_nothing(monkeypatch):
    real = GangProgress.stop
    monkeypatch.setattr(GangProgress, "stop", lambda self, now, *, saves: real(self, now, saves=False))
    watch, result = run("turns")
    assert watch.parts["lost"] > 0
    assert result.metrics["makespan_s"] > 800


# ---------------------------------------------------------------------- guests


def test_a_guest_stays(monkeypatch):
    monkeypatch.setattr(Permits, "list_guests", lambda *_: [])
    assert "head" in find_departure("guest")


def test_somebody_is_a_guest_whom_nobody_can_send_away(monkeypatch):
    monkeypatch.setattr(turns.Turns, "may_be_guest", lambda *_: True)
    assert Promise.GUEST in find_fault("unstoppable")


# ---------------------------------------------------------------------- losses


def test_a_gang_is_mended_twice(monkeypatch):
    real = cycle.repair_degraded
    monkeypatch.setattr(cycle, "repair_degraded", lambda session: real(session) * 2)
    assert find_fault("hurt") == {Promise.ONCE}


def test_a_repair_gives_more_than_was_lost(monkeypatch):
    real = repair._repair

    def lavish(view, gang, held, degraded, nodes):
        wider = replace(
            gang, roles=tuple(replace(role, sizes=replace(role.sizes, allowed=(3,))) for role in gang.roles)
        )
        return real(view, wider, held, replace(degraded, lost=tuple(lost + 1 for lost in degraded.lost)), nodes)

    monkeypatch.setattr(repair, "_repair", lavish)
    policy, options, world = WORLDS["hurt"]
    monkeypatch.setitem(WORLDS, "hurt", (policy, options, replace(world, nodes=make_nodes("4 gpu=1"))))
    assert Promise.DEGRADED in find_fault("hurt")


def test_a_repair_uses_a_cordoned_node(monkeypatch):
    real = repair._open_nodes

    def careless(session, view, row, gang):
        real(session, view, row, gang)
        view.usable_by_exempt[repair.ORDINARY] = session.snapshot.nodes.up

    monkeypatch.setattr(repair, "_open_nodes", careless)
    assert find_fault("cordoned") == {Promise.SERVICE}


def test_a_spare_is_used_for_a_start(monkeypatch):
    real = cycle.schedule

    def lavish(snapshot, policy, **rest):
        return real(
            replace(snapshot, nodes=replace(snapshot.nodes, in_service=snapshot.nodes.repairable)), policy, **rest
        )

    monkeypatch.setattr(cycle, "schedule", lavish)
    assert find_fault("spare") == {Promise.SERVICE}


def test_seats_are_held_for_ever(monkeypatch):
    monkeypatch.setattr(losses, "HOLD_FOR_US", 80000 * SECOND_US)
    assert "small" in find_departure("waits")


def test_somebody_takes_what_a_degraded_gang_holds(monkeypatch):
    """A degraded gang is still said to be preemptible."""
    real = losses._lose_members

    def soft_still(state, number, node):
        loss = real(state, number, node)
        state.running.columns["preemptible"][state.records[number].row] = True
        return loss

    monkeypatch.setattr(losses, "_lose_members", soft_still)
    assert Promise.DEGRADED in find_fault("waits")


def test_what_was_rolled_back_stays_productive(monkeypatch):
    """More work than there is: forty seconds on two devices are counted twice."""
    watch, _ = run("hurt")
    assert (watch.parts["productive"], watch.parts["lost"]) == (500 * 2 * 10**9, 40 * 2 * 10**9)
    real = GangProgress.stop

    def proud(self, now, *, saves):
        self.advance(now)
        self.unsaved = 0
        return real(self, now, saves=saves)

    monkeypatch.setattr(GangProgress, "stop", proud)
    wrong, _ = run("hurt")
    assert wrong.parts["productive"] > watch.parts["productive"]


def test_the_ledger_forgets_what_is_held(monkeypatch):
    real = GangProgress.advance

    def forgetful(self, now):
        if self.holding:
            self.at_us = now
        real(self, now)

    monkeypatch.setattr(GangProgress, "advance", forgetful)
    assert "the ledger does not sum" in find_fault("waits")


# ---------------------------------------------------------------------- moves


def test_somebody_is_moved_who_cannot_save_its_work(monkeypatch):
    monkeypatch.setattr(moves, "_movable", lambda occupant: not (occupant.gone or occupant.moved or occupant.changed))
    monkeypatch.setattr(moves, "_cost_us", lambda _: 0)
    policy, options, world = WORLDS["move"]
    hard = tuple(replace(gang, snapshot=None) for gang in world.gangs)
    monkeypatch.setitem(WORLDS, "move", (policy, options, replace(world, gangs=hard)))
    assert find_fault("move") == {Promise.MOVE}


def test_a_move_loses_work(monkeypatch):
    def careless(self, now, units, pace):
        self.stop(now, saves=False)
        self.begin(now, units, pace, anew=False)

    monkeypatch.setattr(GangProgress, "move", careless)
    assert find_departure("drained")

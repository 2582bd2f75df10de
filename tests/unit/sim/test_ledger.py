"""Where the time of a whole cluster goes, under plans written by hand and under plans drawn at random."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.control import loop
from phalanx.control.forward import Arrival, Forward, Happens
from phalanx.control.instructions import Foresight
from phalanx.control.state import State
from phalanx.engine.lifecycle import Phase
from phalanx.engine.policy import Policy
from phalanx.frontends.sim.ledger import BOOKED
from phalanx.frontends.sim.scenario import TrueRun
from phalanx.frontends.sim.scribe import Scribe
from phalanx.frontends.sim.world import World
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Gang, SnapshotHabit
from phalanx.model.plan import Bind, Cause, Decision, Evict, Idle, Move, Plan, Repair, Resize, Restart, Seats
from phalanx.perfmodel.speedup import Amdahl, Linear
from phalanx.testing.builders import make_gang, make_nodes

SECOND = 1_000_000
#: One slot for one second, as the ledger counts it.
SLOT_SECOND = 1000 * SECOND

ALL_PARTS = (*BOOKED, "reserved_idle", "fragmented", "free", "down")

Write = Callable[[State], Sequence[Decision]]


def seats(counts: Mapping[int, int]) -> tuple[Seats, ...]:
    """One role; members by node, of a kind that has no devices."""
    nodes, members = np.array(list(counts), dtype=np.int64), np.array(list(counts.values()), dtype=np.int64)
    return (Seats(0, nodes, members, np.zeros((len(counts), 0), dtype=np.int16)),)


class Play:
    """A run in which somebody else than the engine writes the plans."""

    def __init__(self, nodes: str, gangs: Sequence[Gang], duration_s: Mapping[str, float], curve=None) -> None:
        self.state = State(Fleet(make_nodes(nodes), ()))
        true_runs = {name: TrueRun(round(length * SECOND), curve or Linear()) for name, length in duration_s.items()}
        self.world = World(self.state, true_runs)
        self.scribe = Scribe(self.state, self.world)
        self.gangs = gangs
        self.busy, self._since, self._in_use = 0, 0, 0

    def run(
        self,
        plan: Callable[[State], Plan],
        events: Sequence[Happens] = (),
        until: float | None = None,
        touches_running: bool = True,
    ) -> None:
        """`touches_running`: the plans are asked for at every instant, not only when somebody waits."""
        policy = Policy("hand", lambda snapshot, rows: rows, grows=touches_running)
        with patch.object(loop, "schedule", lambda snapshot, policy, *, ledger: plan(self.state)):
            walk = Forward(self.state, policy, self.world, self.scribe, ledger=True)
            walk.check = self.check
            until_us = None if until is None else round(until * SECOND)
            walk.run([Arrival(gang) for gang in self.gangs], events, until_us)

    def check(self, state: State) -> None:
        """After every instant: what is in use by the tables is summed, and if the ledger heard of it, it agrees."""
        self.busy += self._in_use * (state.now_us - self._since)
        self._since = state.now_us
        at_us, capacity, down, used, vacating, claimed, *_ = self.world.ledger.steps[-1]
        idle = int(state.nodes.free[state.nodes.up & state.nodes.open, 0].sum())
        self._in_use = int((state.fleet.capacity - state.nodes.free)[state.nodes.up, 0].sum())
        assert min(vacating, claimed, down, used) >= 0
        # Seats that are left at this very instant may be written down with the next thing that happens.
        leaving = any(due <= state.now_us for due, *_ in [*state.vacating, *self.world.ledger.fading])
        if at_us == state.now_us and not leaving:
            assert capacity - down - used - vacating - claimed == idle
            sitting = [record for record in state.records if record.phase in (Phase.RUNNING, Phase.DEGRADED)]
            assert used == sum(1000 * each.members for record in sitting for each in record.seats)

    def close(self, end: float) -> dict[str, float]:
        """The parts in slot-seconds, those that are not zero."""
        end_us = round(end * SECOND)
        self.busy += self._in_use * max(0, end_us - self._since)
        self.world.close_all(end_us)
        parts = self.world.ledger.close((0, end_us))
        assert sum(parts[part] for part in ALL_PARTS) == parts["capacity"]
        assert min(parts.values()) >= 0
        return {part: amount / SLOT_SECOND for part, amount in parts.items() if amount}

    def history(self, number: int) -> list[tuple[float, str, int, dict[str, int]]]:
        return [(e.at_us / SECOND, e.event, e.members, e.held or e.placement) for e in self.scribe.histories[number]]


def script(*lines: tuple[float, Write | Idle | None]) -> Callable[[State], Plan]:
    """Plans by instant, in seconds: decisions, or what idle room is kept for. At any other instant nothing is decided."""
    left = [(round(at * SECOND), what) for at, what in lines]

    def plan(state: State) -> Plan:
        decisions: Sequence[Decision] = ()
        idle = None
        while left and left[0][0] <= state.now_us:
            _, what = left.pop(0)
            if isinstance(what, Idle):
                idle = what
            elif what is not None:
                decisions = [*decisions, *what(state)]
        return Plan(tuple(decisions), idle=idle, wake_at_us=left[0][0] if left else None)

    return plan


def bind(number: int, counts: Mapping[int, int]) -> Write:
    return lambda state: [Bind(number, seats(counts), 10**9)]


ELASTIC = make_gang("E", "1-8 slot=1", resize_pause_us=10 * SECOND)
RIGID = make_gang("R", "4 slot=1")


def test_a_shrinking_gang_keeps_its_seats_until_its_pause_is_over():
    play = Play("2 slot=4", [ELASTIC], {"E": 100})  # 800 slot-seconds of work
    play.run(
        script((0, bind(0, {0: 4, 1: 4})), (50, lambda state: [Resize(0, seats({0: 4}), Cause.LOAN)])),
    )
    assert play.history(0) == [
        (0, "bind", 8, {"n0": 4, "n1": 4}), (50, "shrink", 4, {"n0": 4}), (160, "complete", 0, {})
    ]  # fmt: skip
    assert play.close(160) == {"capacity": 1280, "productive": 800, "resize": 80, "free": 400}


def test_seats_that_are_handed_over_count_for_the_gang_that_leaves_them():
    """R starts on four seats of E and on nothing else; they are E's for ten seconds and then R's."""
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 100, "R": 30})
    shrink = lambda state: [Resize(0, seats({0: 4}), Cause.LOAN, 1), Bind(1, seats({1: 4}), 10**9)]  # noqa: E731
    play.run(script((0, bind(0, {0: 4, 1: 4})), (50, shrink)))
    assert play.history(1) == [(60, "bind", 4, {"n1": 4}), (90, "complete", 0, {})]
    assert play.close(160) == {"capacity": 1280, "productive": 800 + 120, "resize": 80, "free": 280}


def test_seats_that_wait_for_others_to_be_left_are_idle_and_allocated():
    """R has two free seats, and two that E still sits on: the free ones wait with it."""
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 60, "R": 30})  # 480 slot-seconds of work
    shrink = lambda state: [Resize(0, seats({0: 4}), Cause.LOAN, 1), Bind(1, seats({1: 4}), 10**9)]  # noqa: E731
    play.run(script((0, bind(0, {0: 4, 1: 2})), (20, shrink)))
    assert play.history(1) == [(30, "bind", 4, {"n1": 4}), (60, "complete", 0, {})]
    assert play.history(0)[-1] == (120, "complete", 0, {})
    assert play.close(120) == {
        "capacity": 960, "productive": 480 + 120, "resize": 60, "idle_allocated": 20, "free": 40 + 240,
    }  # fmt: skip


def test_only_what_is_claimed_of_what_is_given_back_is_handed_over():
    """E gives back two seats on each node; R takes those on n0, and on n1 the two that were free before."""
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 60, "R": 30})

    def shrink(state: State) -> list[Decision]:
        return [Resize(0, seats({0: 2}), Cause.LOAN, 1), Bind(1, seats({0: 2, 1: 2}), 10**9)]

    play.run(script((0, bind(0, {0: 4, 1: 2})), (20, shrink)))
    assert play.history(1)[0] == (30, "bind", 4, {"n0": 2, "n1": 2})
    parts = play.close(210)
    assert (parts["resize"], parts["idle_allocated"]) == (60, 20)


@pytest.mark.parametrize(("cancel", "resize", "idle"), [(None, 4 * 10 + 4 * 30, 2 * 20), (25, 4 * 5 + 4 * 30, 2 * 25)])
def test_a_claim_that_waits_for_two_is_idle_where_the_first_has_left(cancel: float | None, resize: float, idle: float):
    slow = make_gang("S", "1-4 slot=1", resize_pause_us=30 * SECOND)
    play = Play("2 slot=4", [ELASTIC, RIGID, slow], {"E": 60, "R": 30, "S": 60})

    def shrink(state: State) -> list[Decision]:
        start = Bind(1, seats({0: 2, 1: 2}), 10**9)
        return [Resize(0, seats({0: 2}), Cause.LOAN, 1), Resize(2, seats({1: 2}), Cause.LOAN, 1), start]

    events = [] if cancel is None else [Happens(round(cancel * SECOND), "cancel", gang="E")]
    play.run(script((0, bind(0, {0: 4})), (0, bind(2, {1: 4})), (20, shrink)), events, touches_running=False)
    assert play.history(1)[0] == (50, "bind", 4, {"n0": 2, "n1": 2})
    parts = play.close(play.state.now_us / SECOND)
    assert (parts["resize"], parts["idle_allocated"]) == (resize, idle)


def test_a_claim_that_is_given_up_stays_held_until_the_seats_are_left():
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 60, "R": 30})
    shrink = lambda state: [Resize(0, seats({0: 4}), Cause.LOAN, 1), Bind(1, seats({1: 4}), 10**9)]  # noqa: E731
    play.run(script((0, bind(0, {0: 4, 1: 2})), (20, shrink)), [Happens(25 * SECOND, "cancel", gang="R")])
    assert play.history(1) == [(25, "cancel", 0, {})]
    parts = play.close(120)
    assert (parts["resize"], parts["idle_allocated"], parts["productive"]) == (60, 20, 480)


def test_a_gang_that_ends_in_its_pause_is_gone_from_the_seats_it_was_leaving():
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 60, "R": 30})
    shrink = lambda state: [Resize(0, seats({0: 4}), Cause.LOAN, 1), Bind(1, seats({1: 4}), 10**9)]  # noqa: E731
    play.run(script((0, bind(0, {0: 4, 1: 2})), (20, shrink)), [Happens(25 * SECOND, "cancel", gang="E")])
    assert play.history(1)[0] == (25, "bind", 4, {"n1": 4})
    assert play.close(55) == {
        "capacity": 440, "productive": 120 + 120, "resize": 30, "idle_allocated": 10, "free": 40 + 120,
    }  # fmt: skip


def test_what_another_gang_grows_onto_is_not_handed_over_to_a_start():
    """E leaves two seats to G, which grows, and R waits for two of F; R's other two were free."""
    other = [make_gang(name, "1-4 slot=1", resize_pause_us=10 * SECOND) for name in "FG"]
    play = Play("3 slot=4", [ELASTIC, RIGID, *other], {"E": 60, "R": 30, "F": 90, "G": 60})

    def shrink(state: State) -> list[Decision]:
        loans = [Resize(0, seats({0: 2}), Cause.LOAN), Resize(2, seats({2: 1}), Cause.LOAN, 1)]
        return [*loans, Resize(3, seats({0: 2, 2: 1}), Cause.PIN), Bind(1, seats({1: 4}), 10**9)]

    play.run(script((0, bind(0, {0: 4})), (0, bind(2, {1: 2, 2: 1})), (0, bind(3, {2: 1})), (20, shrink)))
    assert play.history(1)[0] == (30, "bind", 4, {"n1": 4})
    parts = play.close(play.state.now_us / SECOND)
    assert (parts["resize"], parts["idle_allocated"]) == (20 + 30 + 30, 20)


def test_seats_left_on_a_cordoned_node_are_down_from_then_on():
    play = Play("2 slot=4", [ELASTIC], {"E": 100})
    play.run(
        script((0, bind(0, {0: 4, 1: 4})), (50, lambda state: [Resize(0, seats({0: 4}), Cause.LOAN)])),
        [Happens(55 * SECOND, "cordon", node="n1")],
    )
    assert play.close(160) == {"capacity": 1280, "productive": 800, "resize": 80, "down": 400}


def test_seats_under_a_failed_node_are_down_whoever_was_leaving_them():
    play = Play("2 slot=4", [ELASTIC], {"E": 100})
    play.run(
        script((0, bind(0, {0: 4, 1: 4})), (50, lambda state: [Resize(0, seats({0: 4}), Cause.LOAN)])),
        [Happens(55 * SECOND, "fail", node="n1"), Happens(58 * SECOND, "repair", node="n1")],
    )
    assert play.close(160) == {"capacity": 1280, "productive": 800, "resize": 80 - 12, "down": 12, "free": 400}
    assert play.scribe.list_outages() == [("n1", 55 * SECOND, 58 * SECOND)]


def test_a_gang_that_grows_stands_still_on_its_new_seats_too():
    play = Play("2 slot=4", [ELASTIC], {"E": 100})
    play.run(script((0, bind(0, {0: 4})), (100, lambda state: [Resize(0, seats({0: 4, 1: 4}), Cause.GROW)])))
    assert play.close(160) == {"capacity": 1280, "productive": 800, "resize": 80, "free": 400}
    assert play.scribe.counts["resizes"] == 1


def test_a_move_leaves_at_once_and_pays_at_its_new_seats():
    gang = make_gang("M", "4 slot=1", snapshot=SnapshotHabit(60 * SECOND, 2 * SECOND, 5 * SECOND), preemptible=True)
    play = Play("2 slot=4", [gang], {"M": 50})
    play.run(script((0, bind(0, {0: 4})), (10, lambda state: [Move(0, seats({1: 4}))])))
    assert play.history(0)[1] == (10, "move", 4, {"n1": 4})
    assert play.close(57) == {"capacity": 456, "productive": 200, "snapshot": 8, "restore": 20, "free": 228}


def test_an_evicted_gang_loses_what_it_did_and_a_yielding_one_does_not():
    saving = {"snapshot": SnapshotHabit(60 * SECOND, 2 * SECOND, 5 * SECOND), "preemptible": True}
    gangs = [make_gang(name, "4 slot=1", **saving) for name in "AB"]
    play = Play("2 slot=4", gangs, {"A": 50, "B": 50})
    away = lambda state: [Evict(0, Cause.TURN), Evict(1, Cause.PREEMPT)]  # noqa: E731
    play.run(
        script((0, bind(0, {0: 4})), (0, bind(1, {1: 4})), (10, away), (20, bind(0, {0: 4})), (20, bind(1, {1: 4})))
    )
    assert [event for _, event, *_ in play.history(0)] == ["bind", "yield", "bind", "complete"]
    assert play.history(0)[-1][0] == 20 + 2 + 5 + 40
    assert [event for _, event, *_ in play.history(1)] == ["bind", "evict", "bind", "complete"]
    assert play.history(1)[-1][0] == 70
    assert play.scribe.counts["preemptions"] == 1
    parts = play.close(70)
    assert parts == {
        "capacity": 560, "productive": 400, "lost": 40, "snapshot": 8, "restore": 20, "free": 80 + 12,
    }  # fmt: skip


def test_a_gang_without_snapshots_that_yields_loses_nothing_either():
    play = Play("2 slot=4", [RIGID], {"R": 50})
    play.run(script((0, bind(0, {0: 4})), (10, lambda state: [Evict(0, Cause.TURN)]), (20, bind(0, {0: 4}))))
    assert play.history(0)[-1] == (60, "complete", 0, {})
    assert play.close(60) == {"capacity": 480, "productive": 200, "free": 280}


def test_a_degraded_gang_holds_what_it_has_left_and_then_lets_go():
    play = Play("2 slot=4", [RIGID], {"R": 50})
    play.run(script((0, bind(0, {0: 2, 1: 2})), (700, bind(0, {0: 4}))), [Happens(10 * SECOND, "fail", node="n1")])
    assert play.history(0) == [
        (0, "bind", 4, {"n0": 2, "n1": 2}),
        (10, "lose", 0, {"n0": 2}),
        (610, "lose", 0, {}),
        (700, "bind", 4, {"n0": 4}),
        (750, "complete", 0, {}),
    ]
    assert play.scribe.histories[0][1].held == {"n0": 2}
    assert play.close(750) == {
        "capacity": 6000, "productive": 200, "lost": 40, "idle_allocated": 1200, "down": 4 * 740,
        "free": 6000 - 200 - 40 - 1200 - 2960,
    }  # fmt: skip


def test_a_repair_goes_on_from_the_snapshot_and_a_restart_is_a_new_attempt():
    gang = make_gang("R", "4 slot=1", snapshot=SnapshotHabit(20 * SECOND, 0, 5 * SECOND), kill_after_us=60 * SECOND)
    for decision, end in ((Repair, 60), (Restart, 30 + 5 + 30)):
        play = Play("3 slot=4", [gang], {"R": 50})
        mend = lambda state, decision=decision: [decision(0, seats({0: 2, 2: 2}))]  # noqa: E731
        play.run(script((0, bind(0, {0: 2, 1: 2})), (30, mend)), [Happens(25 * SECOND, "fail", node="n1")])
        assert play.history(0)[-1] == (end, "fail" if decision is Repair else "complete", 0, {})
        parts = play.close(end)
        assert (parts["lost"], parts["idle_allocated"], parts["restore"]) == (20, 10, 20)
        assert parts["productive"] == (80 + 4 * 25 if decision is Repair else 200)


def test_the_time_to_be_killed_at_passes_while_a_gang_is_degraded():
    gang = make_gang("R", "4 slot=1", kill_after_us=60 * SECOND)
    play = Play("3 slot=4", [gang], {"R": 50})
    mend = lambda state: [Repair(0, seats({0: 2, 2: 2}))]  # noqa: E731
    play.run(script((0, bind(0, {0: 2, 1: 2})), (100, mend)), [Happens(25 * SECOND, "fail", node="n1")])
    assert [(at, event) for at, event, *_ in play.history(0)][2:] == [(100, "repair"), (100, "fail")]


def test_a_gang_that_is_done_when_it_would_be_killed_is_done():
    play = Play("1 slot=4", [make_gang("R", "4 slot=1", kill_after_us=50 * SECOND)], {"R": 50})
    play.run(script((0, bind(0, {0: 4}))))
    assert play.history(0)[-1] == (50, "complete", 0, {})


def test_a_gang_that_is_cancelled_in_its_startup_did_nothing_else():
    play = Play("1 slot=4", [make_gang("R", "4 slot=1", startup_us=20 * SECOND)], {"R": 50})
    play.run(script((0, bind(0, {0: 4}))), [Happens(15 * SECOND, "cancel", gang="R")])
    assert play.close(15) == {"capacity": 60, "startup": 60}


def test_a_gang_without_restarts_left_fails_with_what_it_held():
    play = Play("2 slot=4", [make_gang("R", "4 slot=1", max_restarts=0)], {"R": 50})
    play.run(script((0, bind(0, {0: 2, 1: 2}))), [Happens(10 * SECOND, "fail", node="n1")])
    assert [(at, event) for at, event, *_ in play.history(0)] == [(0, "bind"), (10, "lose"), (10, "fail")]


def test_only_elastic_gangs_that_run_report_anything():
    gangs = [make_gang("E", "4-8 slot=1"), make_gang("R", "4 slot=1")]
    play = Play("3 slot=4", gangs, {"E": 100, "R": 100})
    play.run(script((0, bind(0, {0: 2, 1: 2})), (0, bind(1, {2: 4}))), until=50)
    assert play.world.foresee(0, 50 * SECOND) == Foresight(200 * SECOND, 0)
    assert play.world.foresee(1, 50 * SECOND) is None
    play.world.stop(0, 50 * SECOND, saves=False, holds=seats({0: 2}))
    assert play.world.foresee(0, 60 * SECOND) is None, "it holds seats and runs none"


def test_an_elastic_gang_that_loses_members_and_is_repaired_at_once_pauses_once():
    play = Play("3 slot=4", [ELASTIC], {"E": 100})
    play.run(
        script((0, bind(0, {0: 4, 1: 4})), (50, lambda state: [Repair(0, seats({0: 4, 2: 4}))])),
        [Happens(50 * SECOND, "fail", node="n1")],
    )
    assert [event for _, event, *_ in play.history(0)] == ["bind", "lose", "repair", "complete"]
    assert [members for *_, members, _ in play.history(0)] == [8, 4, 8, 0]
    parts = play.close(110)
    assert (parts["productive"], parts["resize"], parts["down"]) == (800, 80, 240)


def test_idle_room_is_what_the_plans_say_until_they_say_otherwise():
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 50, "R": 10})
    some = lambda units, fragmented=False: Idle(np.array([units * 1000]), fragmented)  # noqa: E731
    play.run(
        script((0, bind(0, {0: 4})), (0, some(3)), (10, some(2, True)), (20, some(8)), (30, some(0))),
        [Happens(40 * SECOND, "cancel", gang="R")],
    )
    # E takes 100 s at half its size. For 10 s three seats are reserved, then two and the rest in pieces, then all four.
    assert play.close(100) == {
        "capacity": 800, "productive": 400, "reserved_idle": 30 + 20 + 40, "fragmented": 20, "free": 10 + 10 * 4 + 240,
    }  # fmt: skip


def test_nothing_is_reserved_when_nobody_waits_any_more():
    play = Play("2 slot=4", [ELASTIC, RIGID], {"E": 50, "R": 10})
    play.run(
        script((0, bind(0, {0: 4})), (0, Idle(np.array([3000]), fragmented=True))),
        [Happens(40 * SECOND, "cancel", gang="R")],
    )
    assert play.close(100) == {"capacity": 800, "productive": 400, "reserved_idle": 120, "fragmented": 40, "free": 240}


def test_cordoned_nodes_are_down_as_far_as_they_are_idle():
    play = Play("2 slot=4", [RIGID], {"R": 50})
    play.run(
        script((0, bind(0, {0: 2, 1: 2}))),
        [Happens(10 * SECOND, "cordon", node="n0"), Happens(60 * SECOND, "uncordon", node="n0")],
    )
    assert play.close(80) == {
        "capacity": 640,
        "productive": 200,
        "down": 2 * 40 + 4 * 10,
        "free": (20 + 80) + (100 + 120),  # of n0, of n1
    }


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("until", range(0, 60, 3))
def test_the_parts_sum_wherever_the_run_is_cut(until: int, alone: bool):
    gang = make_gang(
        "E", "1-8 slot=1", resize_pause_us=4 * SECOND, startup_us=5 * SECOND,
        snapshot=SnapshotHabit(7 * SECOND, 3 * SECOND, 2 * SECOND),
    )  # fmt: skip
    play = Play("2 slot=4", [gang, RIGID], {"E": 100, "R": 30})

    def shrink(state: State) -> list[Decision]:
        start = [] if alone else [Bind(1, seats({1: 4}), 10**9)]
        return [Resize(0, seats({0: 4}), Cause.LOAN, 1), *start]

    cancel = [Happens(21 * SECOND, "cancel", gang="R")] if alone else []
    play.run(script((0, bind(0, {0: 4, 1: 2})), (20, shrink)), cancel, until, touches_running=False)
    play.close(until)
    assert play.busy == sum(play.world.ledger.close((0, until * SECOND))[part] for part in BOOKED)


# ---- plans drawn at random


class Chance:
    """Plans that no engine would make, all of them allowed."""

    def __init__(self, random: Random) -> None:
        self.random, self.plans = random, 0

    def plan(self, state: State) -> Plan:
        self.plans += 1
        random, up = self.random, state.nodes.up & state.nodes.open
        free = {node: int(state.nodes.free[node, 0]) // 1000 for node in np.flatnonzero(up).tolist()}
        loans = dict.fromkeys(free, 0)  # given back in this plan, and free only after a pause
        decisions: list[Decision] = []
        if self.plans < 200:
            for number, record in enumerate(state.records):
                if record.phase is Phase.RUNNING and number in state.degraded:
                    decisions += self._repair(state, number, free, Repair)
                elif record.phase is Phase.RUNNING and random.random() < 0.4:
                    decisions += self._disturb(state, number, free, loans)
                elif record.phase is Phase.DEGRADED and random.random() < 0.5:
                    decisions += self._repair(state, number, free, random.choice([Repair, Restart]))
        both = {node: room + loans[node] for node, room in free.items()}
        for number, record in enumerate(state.records):
            if (
                record.phase is Phase.PENDING
                and not (record.history and record.history.resting)
                and random.random() < 0.8
            ):
                decisions += self._bind(state, number, both)
        idle = Idle(np.array([1000 * random.randint(0, 9)]), random.random() < 0.3) if random.random() < 0.5 else None
        late = state.now_us + random.randint(1, 40) * SECOND
        return Plan(tuple(decisions), idle=idle, wake_at_us=late if self.plans < 200 else None)

    def _pick(self, free: dict[int, int], members: int) -> dict[int, int] | None:
        if sum(free.values()) < members:
            return None
        picked: dict[int, int] = {}
        for _ in range(members):
            node = self.random.choice([node for node, room in free.items() if room > 0])
            free[node] -= 1
            picked[node] = picked.get(node, 0) + 1
        return picked

    def _bind(self, state: State, number: int, free: dict[int, int]) -> list[Decision]:
        picked = self._pick(free, self.random.choice(state.gangs[number].roles[0].sizes.allowed))
        return [] if picked is None else [Bind(number, seats(picked), 10**9)]

    def _disturb(self, state: State, number: int, free: dict[int, int], loans: dict[int, int]) -> list[Decision]:
        record, random = state.records[number], self.random
        now = dict(zip(record.seats[0].nodes.tolist(), record.seats[0].counts.tolist(), strict=True))
        what = random.choice(["evict", "resize", "resize", "resize", "move"])
        if what == "evict":
            _give(free, now)
            return [Evict(number, random.choice([Cause.PREEMPT, Cause.TURN]))]
        size = random.choice(state.gangs[number].roles[0].sizes.allowed)
        if what == "move":
            picked = self._pick(free, sum(now.values()))
            if picked is None:
                return []
            _give(free, now)
            return [Move(number, seats(picked))]
        if not record.gang.elastic:
            return []
        kept = dict(now)
        for node in random.sample(list(kept), len(kept)):
            kept[node] -= min(kept[node], max(0, sum(kept.values()) - size))
        # Now and then onto what another gives back in the same plan, as a gang may that was told its size.
        more = self._pick(loans if random.random() < 0.2 else free, max(0, size - sum(kept.values())))
        if more is None:
            return []
        given = {node: now[node] - kept[node] for node in now}
        _give(loans if record.gang.resize_pause_us else free, given)
        wanted = {node: kept.get(node, 0) + more.get(node, 0) for node in {**kept, **more}}
        return [Resize(number, seats({n: c for n, c in wanted.items() if c}), Cause.LOAN)]

    def _repair(self, state: State, number: int, free: dict[int, int], how: type) -> list[Decision]:
        record = state.records[number]
        kept = dict(zip(record.seats[0].nodes.tolist(), record.seats[0].counts.tolist(), strict=True))
        if how is Restart:
            kept = {}
        allowed = [size for size in record.gang.roles[0].sizes.allowed if size >= sum(kept.values())]
        more = self._pick(free, self.random.choice(allowed) - sum(kept.values()))
        if more is None:
            return []
        wanted = {node: kept.get(node, 0) + more.get(node, 0) for node in {**kept, **more}}
        return [how(number, seats(wanted))]


def _give(free: dict[int, int], given: Mapping[int, int]) -> None:
    for node, count in given.items():
        if node in free:  # not on nodes that take nobody
            free[node] += count


TIMES = st.integers(0, 12).map(lambda s: s * SECOND)
HABITS = st.none() | st.builds(SnapshotHabit, st.integers(3, 30).map(lambda s: s * SECOND), TIMES, TIMES)
GANGS = st.lists(st.tuples(HABITS, TIMES, TIMES, st.booleans(), st.integers(0, 60)), min_size=1, max_size=6)
EVENTS = st.lists(
    st.tuples(
        st.integers(1, 200), st.sampled_from(["fail", "repair", "cordon", "uncordon", "cancel"]), st.integers(0, 3)
    ),
    max_size=8,
)


@settings(max_examples=150)
@given(gangs=GANGS, events=EVENTS, seed=st.integers(0, 2**32), until=st.none() | st.integers(1, 300))
def test_the_ledger_agrees_with_the_tables_under_any_plans(gangs, events, seed, until):
    random = Random(seed)
    made = [
        make_gang(
            f"g{i}", "1-6 slot=1" if elastic else f"{1 + i} slot=1", submit=submit,
            snapshot=habit, startup_us=startup, resize_pause_us=pause, kill_after_us=[None, 90 * SECOND][i == 3],
        )
        for i, (habit, startup, pause, elastic, submit) in enumerate(gangs)
    ]  # fmt: skip
    happens = [
        Happens(at * SECOND, verb, gang=f"g{which}") if verb == "cancel" else Happens(at * SECOND, verb, f"n{which}")
        for at, verb, which in events
    ]
    play = Play("4 slot=3", made, {gang.name: 30 for gang in made}, random.choice([Linear(), Amdahl(0.1)]))
    play.run(Chance(random).plan, happens, until, touches_running=random.random() < 0.7)
    end = until if until is not None else play.state.now_us / SECOND
    play.close(end)
    parts = play.world.ledger.close((0, round(end * SECOND)))
    assert play.busy == sum(parts[part] for part in BOOKED)

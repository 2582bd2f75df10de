"""A plan is carried out on the tables: seats change hands, rows of nobody stand between two users, losses are held."""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.control.losses import HOLD_FOR_US, REST_FIRST_US, lose_node, note_failure, requeue_after_loss, tick
from phalanx.control.suspicion import NodeSuspicion
from phalanx.engine.invariants import check_snapshot, check_usage
from phalanx.engine.lifecycle import ImpossibleTransition, Phase
from phalanx.model.plan import Bind, Cause, Evict, Guest, Move, Plan, Repair, Resize, Restart, Seats
from phalanx.model.reason import Code
from phalanx.testing.builders import SECOND_US, make_gang, make_state, seat

WIDE = make_gang("wide", "2-4 gpu=1", resize_pause_us=10 * SECOND_US)
NEXT = make_gang("next", "2 gpu=1", walltime=50)


def on(*nodes):
    places = np.array(nodes, dtype=np.int64)
    return (Seats(0, places, np.ones(len(nodes), dtype=np.int64), np.full((len(nodes), 1), 1000, dtype=np.int16)),)


def make(*running, waiting=(), nodes=4):
    state = make_state(f"{nodes} gpu=1")
    for gang, places in running:
        seat(state, state.submit(gang), dict.fromkeys(places, 1))
    state.now_us = 100 * SECOND_US
    for gang in waiting:
        state.submit(gang)
    return state


def apply(state, *decisions):
    folded = state.apply(Plan(decisions=decisions))
    state.tenants.settle()
    assert [*check_snapshot(state.snapshot()), *check_usage(state.snapshot())] == []
    return folded


def wait(state, seconds):
    state.now_us += round(seconds * SECOND_US)
    return tick(state)


def free(state):
    return (state.nodes.free[:, 0] // 1000).tolist()


# ---------------------------------------------------------------------- seats between two users


def test_of_two_roles_that_leave_one_node_nothing_is_kept_twice():
    pair = make_gang("pair", "1-2 cpu=2", "1-2 cpu=2", resize_pause_us=10 * SECOND_US)
    state = make_state("2 cpu=4", gangs=[pair, make_gang("next", "1 cpu=3", walltime=50)])
    none = np.zeros((2, state.nodes.device_free.shape[1]), dtype=np.int16)
    both = tuple(Seats(role, np.array([0, 1]), np.array([1, 1]), none) for role in (0, 1))
    apply(state, Bind(0, both, 900 * SECOND_US))
    here = tuple(Seats(role, np.array([0]), np.array([1]), none[:1]) for role in (0, 1))
    claim = (Seats(0, np.array([1]), np.array([1]), none[:1]),)
    apply(state, Resize(0, here, Cause.LOAN, 1), Bind(1, claim, 50 * SECOND_US))
    assert state.nodes.free.tolist() == [[0], [0]]
    wait(state, 10)
    assert state.nodes.free.tolist() == [[0], [1000]]


@pytest.mark.parametrize(("asked", "rests"), [("gpu=0.5", {500, 1000}), ("gpu=1", {1000}), ("gpu=2 cpu=1", {3000})])
def test_the_rest_of_a_seat_is_nobodys_until_its_user_has_left_it_all(asked, rests):
    wide = make_gang("wide", "1-2 gpu=2 cpu=4", resize_pause_us=10 * SECOND_US)
    state = make_state("2 gpu=2 cpu=4", gangs=[wide, make_gang("next", f"1 {asked}", walltime=50)])
    two = np.full((2, 2), 1000, dtype=np.int16)
    apply(state, Bind(0, (Seats(0, np.array([0, 1]), np.array([1, 1]), two),), 900 * SECOND_US))
    milli = [500, 0] if "0.5" in asked else [1000, 0] if asked == "gpu=1" else [1000, 1000]
    claim = (Seats(0, np.array([1]), np.array([1]), np.array([milli], dtype=np.int16)),)
    keep = (Seats(0, np.array([0]), np.array([1]), two[:1]),)
    apply(state, Resize(0, keep, Cause.LOAN, 1), Bind(1, claim, 50 * SECOND_US))
    assert not state.nodes.free.any()
    assert not state.nodes.device_free.any()
    kept = {amount for _, ghost in state.vacating for role in ghost.gang.roles for _, amount in role.shape.need}
    assert rests <= kept
    assert [bind.gang for bind in wait(state, 10).begun] == [1]
    assert int(state.nodes.device_free[1].sum()) == 2000 - sum(milli)


def test_a_start_on_seats_that_are_being_left_begins_when_they_are():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    folded = apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    assert folded.begun == []
    assert state.records[1].phase is Phase.STARTING
    assert free(state) == [0, 0, 0, 0]
    assert state.next_due_us() == 110 * SECOND_US
    assert wait(state, 9).begun == []
    (begun,) = wait(state, 1).begun
    assert begun.gang == 1
    assert state.records[1].phase is Phase.RUNNING
    assert state.records[1].attempts == 1


def test_what_nobody_was_given_is_busy_until_the_pause_is_over():
    state = make((WIDE, (0, 1, 2, 3)))
    apply(state, Resize(0, on(0, 1), Cause.PIN))
    assert free(state) == [0, 0, 0, 0]
    assert (state.running.columns["gang"][state.running.alive] == -1).sum() == 1
    wait(state, 10)
    assert free(state) == [0, 0, 1, 1]
    assert len(state.running) == 1


def test_without_a_pause_seats_are_free_at_once():
    state = make((replace(WIDE, resize_pause_us=0), (0, 1, 2, 3)), waiting=[NEXT])
    folded = apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    assert [bind.gang for bind in folded.begun] == [1]


def test_a_start_beside_those_who_leave_begins_at_once():
    state = make((WIDE, (0, 1, 2)), waiting=[make_gang("one", "1 gpu=1", walltime=50)])
    folded = apply(state, Resize(0, on(0, 1), Cause.PIN), Bind(1, on(3), 50 * SECOND_US))
    assert [bind.gang for bind in folded.begun] == [1]


def test_whoever_leaves_altogether_leaves_at_once():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    state.complete(0)
    assert [bind.gang for bind in wait(state, 0).begun] == [1]
    assert free(state) == [1, 1, 0, 0]


def test_a_claim_that_is_given_up_leaves_the_seats_to_their_last_user():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    state.cancel(1)
    assert free(state) == [0, 0, 0, 0]
    wait(state, 10)
    assert free(state) == [0, 0, 1, 1]


def test_a_gang_that_has_not_begun_loses_its_claim_with_the_node():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    (loss,) = [loss for loss in lose_node(state, 3) if loss.gang == 1]
    assert loss.how == "unclaimed"
    assert state.records[1].phase is Phase.PENDING
    assert wait(state, 10).begun == []


# ---------------------------------------------------------------------- changes


def test_a_resize_starts_the_cool_down():
    state = make((WIDE, (0, 1)))
    apply(state, Resize(0, on(0, 1, 2), Cause.GROW, guest=Guest.SURPLUS))
    columns = state.running.columns
    assert int(columns["cool_until_us"][0]) == 160 * SECOND_US, "two pauses are less than a minute"
    assert int(columns["guest"][0]) == Guest.SURPLUS
    assert int(columns["attained_us"][0]) == 200 * SECOND_US, "two devices for 100 s, at the old size"
    slow = make((replace(WIDE, resize_pause_us=50 * SECOND_US), (0, 1)))
    apply(slow, Resize(0, on(0, 1, 2), Cause.GROW))
    assert int(slow.running.columns["cool_until_us"][0]) == 200 * SECOND_US, "two pauses"


def test_an_eviction_is_counted_and_keeps_the_age():
    soft = make_gang("soft", "2 gpu=1", preemptible=True)
    for cause, counted in ((Cause.PREEMPT, 1), (Cause.TURN, 0)):
        state = make((soft, (0, 1)), waiting=[NEXT])
        apply(state, Evict(0, cause, 1), Bind(1, on(0, 1), 50 * SECOND_US))
        record = state.records[0]
        assert record.phase is Phase.PENDING
        assert record.history.evictions == counted
        assert record.eligible_us == 0
        assert int(state.pending.columns["attained_us"][record.row]) == 200 * SECOND_US


def test_a_move_keeps_the_row_and_changes_the_seats():
    state = make((make_gang("soft", "2 gpu=1", preemptible=True), (0, 1)))
    apply(state, Move(0, on(2, 3)))
    assert free(state) == [1, 1, 0, 0]
    assert state.records[0].attempts == 1
    assert int(state.running.columns["start_us"][0]) == 0


# ---------------------------------------------------------------------- losses

TWO = make_gang("two", "2 gpu=1", walltime=500)


def test_a_degraded_gang_holds_what_is_left_for_a_while():
    state = make((TWO, (0, 1)))
    (loss,) = lose_node(state, 0)
    state.set_up(0, up=False)
    assert loss.how == "hurt"
    assert state.records[0].phase is Phase.DEGRADED
    assert free(state) == [1, 0, 1, 1]
    assert wait(state, HOLD_FOR_US / SECOND_US - 1).requeued == []
    assert wait(state, 1).requeued == [0]
    assert free(state) == [1, 1, 1, 1]
    assert state.records[0].phase is Phase.PENDING


def test_a_repair_is_the_same_attempt_and_a_restart_a_new_one():
    for decision, attempts in ((Repair(0, on(1, 2)), 1), (Restart(0, on(2, 3)), 2)):
        state = make((TWO, (0, 1)))
        lose_node(state, 0)
        state.set_up(0, up=False)
        apply(state, decision)
        assert state.records[0].phase is Phase.RUNNING
        assert state.records[0].attempts == attempts
        assert state.degraded == {}
        assert wait(state, HOLD_FOR_US / SECOND_US).requeued == [], "the timer was set for a stay that is over"


def test_another_loss_while_it_waits():
    state = make((make_gang("three", "3 gpu=1"), (0, 1, 2)))
    lose_node(state, 0)
    state.set_up(0, up=False)
    state.now_us += 10 * SECOND_US
    lose_node(state, 1)
    assert state.degraded[0].lost == (2,)
    assert free(state) == [1, 1, 0, 1]


def test_an_elastic_gang_closes_its_ranks_to_a_size_it_may_have():
    state = make((make_gang("wide", "1|2|4 gpu=1"), (0, 1, 2, 3)))
    (loss,) = lose_node(state, 0)
    assert loss.how == "whole"
    assert free(state) == [1, 0, 0, 1], "three are left, and two are allowed"
    assert state.degraded[0].whole


def test_failing_again_and_again_costs_a_growing_rest_and_in_the_end_the_gang():
    state = make((replace(TWO, max_restarts=3), (0, 1)))
    rests = []
    for attempt in range(1, 5):
        lose_node(state, 0)
        given_up = note_failure(state, 0, progressed=False)
        assert given_up is (attempt > 3)
        requeue_after_loss(state, 0)
        row = state.records[0].row
        resting = int(state.pending.columns["gate"][row]) == Code.BACKOFF
        rests.append(state.next_due_us() - state.now_us if resting else 0)
        if resting:
            wait(state, rests[-1] / SECOND_US)
        assert int(state.pending.columns["gate"][state.records[0].row]) == Code.NONE
        apply(state, Bind(0, on(0, 1), 500 * SECOND_US))
    assert rests == [0, REST_FIRST_US, 2 * REST_FIRST_US, 4 * REST_FIRST_US]
    assert not note_failure(state, 0, progressed=True), "whoever saved something begins to count anew"


def test_a_node_that_keeps_killing_is_not_trusted_for_a_while():
    suspicion = NodeSuspicion(2)
    hour = 3600 * SECOND_US
    assert [suspicion.note_kill(0, at * hour) for at in range(3)] == [None, None, 3 * hour]
    assert suspicion.trusted.tolist() == [False, True]
    assert not suspicion.forgive(3 * hour - 1)
    assert suspicion.forgive(3 * hour)
    assert suspicion.trusted.all()
    assert suspicion.note_kill(0, 4 * hour) == 6 * hour, "twice as long"
    assert NodeSuspicion(1).note_kill(0, 0) is None


# ---------------------------------------------------------------------- waiting


def gate(state, number):
    return Code(int(state.pending.columns["gate"][state.records[number].row]))


def test_gates_open_one_after_the_other():
    state = make_state("1 gpu=1")
    first = state.submit(make_gang("first", "1 gpu=1"))
    held = state.submit(make_gang("held", "1 gpu=1", hold=True, after=("first",)))
    pair = [state.submit(make_gang(name, "1 gpu=1", together=("p", 2), hold=name == "q")) for name in "pq"]
    assert [gate(state, number) for number in (first, held, *pair)] == [
        Code.NONE,
        Code.HELD,
        Code.GANG_INCOMPLETE,
        Code.HELD,
    ]
    state.release(held)
    assert gate(state, held) is Code.DEPENDENCY_WAITING
    state.release(pair[1])
    assert [gate(state, number) for number in pair] == [Code.NONE, Code.NONE]
    seat(state, first, {0: 1})
    state.now_us = 7 * SECOND_US
    assert state.complete(first) == []
    assert gate(state, held) is Code.NONE
    assert state.records[held].eligible_us == 7 * SECOND_US


def test_who_needed_a_success_is_cancelled_with_a_failure():
    state = make_state("1 gpu=1")
    first = state.submit(make_gang("first", "1 gpu=1"))
    needs = state.submit(make_gang("needs", "1 gpu=1", after=("first",)))
    any_end = state.submit(make_gang("any", "1 gpu=1", after_any=("first",)))
    also = state.submit(make_gang("also", "1 gpu=1", after=("needs",)))
    seat(state, first, {0: 1})
    assert state.fail(first) == [needs, also]
    assert gate(state, any_end) is Code.NONE


def test_what_cannot_happen_is_refused():
    state = make((TWO, (0, 1)))
    state.complete(0)
    with pytest.raises(ImpossibleTransition, match="two is completed"):
        state.requeue(0)

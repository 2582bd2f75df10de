"""A plan is refused in part: what hung on the refused decision is undone, and the reason is kept."""

from dataclasses import replace

import numpy as np
import pytest

from phalanx.control.clone import clone_state
from phalanx.control.explain import explain_pending
from phalanx.control.refusing import REST_FIRST_US, REST_LAST_US
from phalanx.engine.invariants import check_snapshot, check_usage
from phalanx.engine.lifecycle import Phase
from phalanx.model.plan import Bind, Cause, Evict, Move, Plan, Repair, Reservation, Resize, Restart, Seats, Settled
from phalanx.model.reason import Code
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_nodes, make_state, seat

WIDE = make_gang("wide", "2-4 gpu=1", resize_pause_us=10 * SECOND_US)
SOFT = make_gang("soft", "2 gpu=1", walltime=1000, preemptible=True)
NEXT = make_gang("next", "2 gpu=1", walltime=50)
WORDS = "the node said no"


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


def check(state):
    state.tenants.settle()
    assert [*check_snapshot(state.snapshot()), *check_usage(state.snapshot())] == []


def apply(state, *decisions):
    folded = state.apply(Plan(decisions=decisions), undoable=True)
    check(state)
    return folded


def refuse(state, number, words=WORDS):
    refusal = state.refuse(number, words)
    check(state)
    return refusal


def picture(state, number):
    """Everything about a gang that seats."""
    record = state.records[number]
    row = {name: column[record.row].item() for name, column in state.running.columns.items()}
    return record.phase, record.attempts, [seats.key() for seats in record.seats], row


def wait(state, seconds):
    state.now_us += round(seconds * SECOND_US)
    return state.tick()


def free(state):
    return (state.nodes.free[:, 0] // 1000).tolist()


# ---------------------------------------------------------------------- starts


def test_a_refused_start_waits_again_with_its_age_and_counts_nothing():
    state = make(waiting=[NEXT])
    age_us = state.records[0].eligible_us
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    assert state.records[0].attempts == 1
    assert refuse(state, 0).undone == (0,)
    record = state.records[0]
    assert record.phase is Phase.PENDING
    assert (record.attempts, record.eligible_us) == (0, age_us)
    assert (record.history.failures, record.history.evictions) == (0, 0)
    assert free(state) == [1, 1, 1, 1]


def test_a_refused_start_rests_a_moment_and_longer_every_time():
    state = make(waiting=[NEXT])
    rests = []
    for _ in range(12):
        apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
        rests.append(refuse(state, 0).rests_until_us - state.now_us)
        gate = state.pending.columns["gate"][state.records[0].row]
        assert Code(int(gate)) is Code.BACKOFF
        assert state.next_due_us() == state.now_us + rests[-1]
        wait(state, rests[-1] / SECOND_US)
        assert state.pending.columns["gate"][state.records[0].row] == 0
    assert rests[:3] == [REST_FIRST_US, 2 * REST_FIRST_US, 4 * REST_FIRST_US]
    assert rests[-1] == REST_LAST_US


def test_a_start_that_came_about_begins_the_count_anew():
    state = make(waiting=[NEXT])
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    refuse(state, 0)
    wait(state, 1)
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    state.confirm(0)
    state.requeue(0)
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    assert refuse(state, 0).rests_until_us - state.now_us == REST_FIRST_US


def test_gangs_that_start_together_wait_together():
    pair = [make_gang(name, "1 gpu=1", walltime=50, together=("pair", 2)) for name in "ab"]
    state = make(waiting=[*pair, make_gang("c", "1 gpu=1")])
    apply(state, *(Bind(number, on(number), 50 * SECOND_US) for number in range(3)))
    assert set(refuse(state, 1).undone) == {0, 1}
    assert [record.phase for record in state.records] == [Phase.PENDING, Phase.PENDING, Phase.RUNNING]
    assert (state.pending.columns["gate"][[state.records[n].row for n in (0, 1)]] != 0).all()
    assert state.refusal_of(0).words == "hangs on b: the node said no"


def test_a_mate_that_has_begun_runs_on():
    pair = [make_gang(name, "1 gpu=1", walltime=50, together=("pair", 2)) for name in "ab"]
    state = make(waiting=pair)
    apply(state, *(Bind(number, on(number), 50 * SECOND_US) for number in range(2)))
    state.confirm(0)
    assert refuse(state, 1).undone == (1,)
    assert state.records[0].phase is Phase.RUNNING


def test_a_refused_claim_leaves_the_seats_to_their_last_user():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    state.confirm(0)  # it is shrinking already
    assert refuse(state, 1).undone == (1,)
    assert free(state) == [0, 0, 0, 0]
    assert wait(state, 10).begun == []
    assert free(state) == [0, 0, 1, 1]


def test_nobody_shrinks_for_a_start_that_is_refused():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    before = picture(state, 0)
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    assert set(refuse(state, 1).undone) == {0, 1}
    assert picture(state, 0) == before
    assert state.vacating == []


# ---------------------------------------------------------------------- those who were to make way


def test_a_gang_that_will_not_shrink_sits_as_before_and_whoever_was_to_follow_waits():
    state = make((WIDE, (0, 1, 2, 3)), waiting=[NEXT])
    before = picture(state, 0)
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    assert set(refuse(state, 0).undone) == {0, 1}
    assert picture(state, 0) == before
    assert state.records[1].phase is Phase.PENDING
    assert wait(state, 10).begun == []
    check(state)


def test_of_two_starts_on_one_shrink_both_may_be_refused():
    single = make_gang("single", "1 gpu=1", walltime=50)
    state = make((WIDE, (0, 1, 2, 3)), waiting=[single, replace(single, name="last")])
    before = picture(state, 0)
    binds = Bind(1, on(2), 50 * SECOND_US), Bind(2, on(3), 50 * SECOND_US)
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 2), *binds)
    assert refuse(state, 1).undone == (1,)
    assert set(refuse(state, 2).undone) == {0, 2}
    assert picture(state, 0) == before
    assert state.vacating == []


def test_what_one_of_two_lenders_keeps_is_its_own_and_the_other_goes_on_leaving():
    wide = replace(WIDE, roles=make_gang("wide", "1-2 gpu=1").roles)
    state = make((wide, (0, 1)), (replace(wide, name="other"), (2, 3)), waiting=[NEXT])
    before = picture(state, 0)
    apply(
        state, Resize(0, on(0), Cause.LOAN, None), Resize(1, on(2), Cause.LOAN, None), Bind(2, on(1, 3), 50 * SECOND_US)
    )
    state.confirm(1)
    assert refuse(state, 2).undone == (2,)
    assert refuse(state, 0).undone == (0,)
    assert picture(state, 0) == before
    assert free(state) == [0, 0, 0, 0]
    wait(state, 10)
    assert free(state) == [0, 0, 0, 1]


def test_a_gang_that_will_not_shrink_for_a_part_of_a_device_keeps_all_of_it():
    part = make_gang("part", "1 gpu=0.25", walltime=50)
    state = make((WIDE, (0, 1, 2)), waiting=[part], nodes=3)
    before = picture(state, 0)
    quarter = Seats(0, np.array([2]), np.array([1]), np.full((1, 1), 250, dtype=np.int16))
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, (quarter,), 50 * SECOND_US))
    assert set(refuse(state, 0).undone) == {0, 1}
    assert picture(state, 0) == before
    assert state.vacating == []


def test_whoever_grew_onto_seats_that_are_not_given_back_shrinks_again():
    other = make_gang("other", "1-2 gpu=1")
    state = make((replace(WIDE, resize_pause_us=0), (0, 1, 2)), (other, (3,)))
    before = picture(state, 1)
    apply(state, Resize(0, on(0, 1), Cause.PIN), Resize(1, on(3, 2), Cause.GROW))
    assert set(refuse(state, 0).undone) == {0, 1}
    assert picture(state, 1) == before


def test_a_victim_that_will_not_go_runs_on_where_it_was():
    state = make((SOFT, (0, 1)), waiting=[make_gang("next", "4 gpu=1", walltime=50)])
    before = picture(state, 0)
    apply(state, Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1, 2, 3), 50 * SECOND_US))
    assert set(refuse(state, 0).undone) == {0, 1}
    assert picture(state, 0) == before
    assert state.records[0].history is None or not state.records[0].history.evictions
    assert state.records[1].phase is Phase.PENDING


def test_with_one_victim_that_will_not_go_the_others_need_not_go_either():
    state = make(
        (SOFT, (0, 1)), (replace(SOFT, name="soft2"), (2, 3)), waiting=[make_gang("next", "4 gpu=1", walltime=50)]
    )
    apply(state, Evict(0, Cause.PREEMPT, 2), Evict(1, Cause.PREEMPT, 2), Bind(2, on(0, 1, 2, 3), 50 * SECOND_US))
    assert set(refuse(state, 0).undone) == {0, 1, 2}
    assert [state.phase_of(number) for number in range(3)] == [Phase.RUNNING, Phase.RUNNING, Phase.PENDING]
    assert state.evictions_in_vain == 0


def test_a_victim_that_is_gone_already_went_in_vain():
    state = make(
        (SOFT, (0, 1)), (replace(SOFT, name="soft2"), (2, 3)), waiting=[make_gang("next", "4 gpu=1", walltime=50)]
    )
    apply(state, Evict(0, Cause.PREEMPT, 2), Evict(1, Cause.PREEMPT, 2), Bind(2, on(0, 1, 2, 3), 50 * SECOND_US))
    state.confirm(1)
    assert set(refuse(state, 0).undone) == {0, 2}
    assert [state.phase_of(number) for number in range(3)] == [Phase.RUNNING, Phase.PENDING, Phase.PENDING]
    assert state.evictions_in_vain == 1


def test_a_victim_that_was_leaving_seats_still_leaves_them():
    wide = replace(WIDE, preemptible=True)
    state = make((wide, (0, 1, 2, 3)), waiting=[NEXT, make_gang("third", "2 gpu=1", walltime=50)])
    apply(state, Resize(0, on(0, 1), Cause.LOAN, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    state.confirm(0)
    wait(state, 4)
    apply(state, Evict(0, Cause.PREEMPT, 2), Bind(2, on(0, 1), 50 * SECOND_US))
    refuse(state, 0)
    assert state.phase_of(1) is Phase.STARTING
    assert wait(state, 5).begun == []
    assert [bind.gang for bind in wait(state, 1).begun] == [1]
    check(state)


def test_whoever_was_let_in_by_an_eviction_waits_even_where_it_sits_elsewhere():
    """Room may be a limit of a queue, which has no place."""
    state = make((SOFT, (0, 1)), waiting=[NEXT])
    apply(state, Evict(0, Cause.RECLAIM, 1), Bind(1, on(2, 3), 50 * SECOND_US))
    assert set(refuse(state, 0).undone) == {0, 1}
    assert state.phase_of(1) is Phase.PENDING


def test_promises_on_seats_that_were_not_given_back_are_void():
    later = make_gang("later", "2 gpu=1", walltime=50)
    state = make((SOFT, (0, 1)), waiting=[NEXT, later])
    evict = Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1), 50 * SECOND_US)
    promised = [Reservation((2,), 200 * SECOND_US, 250 * SECOND_US, (on(*nodes),)) for nodes in ((0, 1), (2, 3))]
    state.apply(Plan(evict, (promised[0],)), undoable=True)
    refuse(state, 0)
    assert state.promises == {}
    wait(state, 1)
    state.apply(Plan(evict, (promised[1],)), undoable=True)
    refuse(state, 0)
    assert list(state.promises) == [2]


# ---------------------------------------------------------------------- moves and repairs


def test_a_refused_move_leaves_the_gang_where_it_was():
    state = make((SOFT, (0, 1)))
    before = picture(state, 0)
    apply(state, Move(0, on(2, 3)))
    refuse(state, 0)
    assert picture(state, 0) == before
    assert free(state) == [0, 0, 1, 1]


def test_whoever_was_refused_before_is_looked_at_again():
    """A plan says that nobody else will be let in; it counted on what did not come about."""
    state = make((SOFT, (0, 1)), waiting=[NEXT])
    state.apply(Plan((Move(0, on(2, 3)),), settled=Settled()), undoable=True)
    assert state.snapshot().hints.settled_upto
    refuse(state, 0)
    assert not state.snapshot().hints.settled_upto


@pytest.mark.parametrize("decision", [Repair(0, on(1, 2)), Restart(0, on(2, 3))])
def test_a_refused_repair_leaves_the_gang_degraded_and_its_hold_runs_out_as_before(decision):
    state = make((NEXT, (0, 1)))
    state.lose_node(0)
    state.set_up(0, up=False)
    before, degraded, due_us = picture(state, 0), state.degraded[0], state.next_due_us()
    wait(state, 5)
    apply(state, decision)
    refuse(state, 0)
    assert picture(state, 0) == before
    assert state.degraded[0] == degraded
    wait(state, 1)  # its rest is over
    state.now_us = due_us
    assert state.tick().requeued == [0]


# ---------------------------------------------------------------------- too late


def test_what_was_confirmed_cannot_be_refused_and_the_words_are_kept():
    state = make(waiting=[NEXT])
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    state.confirm(0)
    assert refuse(state, 0).undone == ()
    assert state.phase_of(0) is Phase.RUNNING
    assert state.refusal_of(0).words == WORDS


@pytest.mark.parametrize("event", ["complete", "fail", "cancel", "requeue"])
def test_what_has_happened_since_stands(event):
    state = make(waiting=[NEXT])
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    getattr(state, event)(0)
    phase = state.phase_of(0)
    assert refuse(state, 0).undone == ()
    assert state.phase_of(0) is phase


def test_nobody_is_put_back_on_a_node_that_is_gone():
    state = make((SOFT, (0, 1)), waiting=[make_gang("next", "4 gpu=1", walltime=50)])
    apply(state, Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1, 2, 3), 50 * SECOND_US))
    state.lose_node(0)
    state.set_up(0, up=False)
    assert refuse(state, 0).undone == ()
    assert state.phase_of(0) is Phase.PENDING


def test_nobody_is_put_back_where_somebody_has_begun():
    state = make((SOFT, (0, 1)), waiting=[NEXT])
    apply(state, Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1), 50 * SECOND_US))
    state.confirm(1)
    assert refuse(state, 0).undone == ()
    assert [state.phase_of(number) for number in (0, 1)] == [Phase.PENDING, Phase.RUNNING]


def test_a_node_that_joins_meanwhile_changes_nothing_about_it():
    state = make((SOFT, (0, 1)))
    apply(state, Evict(0, Cause.DRAIN))
    (node,) = make_nodes("1 gpu=8 cpu=4")
    state.add_node(replace(node, name="new"))
    refuse(state, 0)
    assert state.phase_of(0) is Phase.RUNNING
    assert free(state)[:2] == [0, 0]


# ---------------------------------------------------------------------- the reason


def test_why_says_what_was_refused():
    state = make(waiting=[NEXT])
    apply(state, Bind(0, on(0, 1), 50 * SECOND_US))
    refuse(state, 0)
    code, words, *_ = explain_pending(state, named("fcfs"))[0]
    assert code is Code.BACKOFF
    assert words == "was to start and could not: the node said no; it is tried again at 101 s"


def test_a_copy_goes_its_own_way():
    state = make((SOFT, (0, 1)), waiting=[NEXT])
    apply(state, Evict(0, Cause.PREEMPT, 1), Bind(1, on(0, 1), 50 * SECOND_US))
    twin = clone_state(state)
    refuse(twin, 0)
    assert twin.phase_of(0) is Phase.RUNNING
    assert state.phase_of(0) is Phase.PENDING
    assert state.refusal_of(0) is None
    check(state)

"""Why a gang waits: all blockers with their numbers, the dominant one first, and when it will start."""

from phalanx.engine.cycle import schedule
from phalanx.engine.explain import explain
from phalanx.model.queue import Queue
from phalanx.model.reason import Code
from phalanx.model.window import Window
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, occupy

EASY, FCFS = named("easy"), named("fcfs")


def why(state, gang, policy=EASY):
    return [
        (reason.code, reason.needed, reason.available, reason.eta_us)
        for reason in explain(state.snapshot(), policy, gang)
    ]


def test_a_gang_that_starts_has_no_reason():
    state = make_state("1 gpu=4", gangs=[make_gang("A", "4 gpu=1")])
    assert why(state, 0) == []


def test_too_little_is_free_and_the_calendar_knows_until_when():
    state = make_state("1 gpu=4", gangs=[make_gang("A", "4 gpu=1", walltime=10)])
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    assert why(state, 0) == [(Code.CAPACITY, 4, 3, 100 * SECOND_US)]


def test_all_blockers_in_order_of_precedence():
    state = make_state("1 gpu=4", queues=[Queue("a", limit={"gpu": 3000})])
    state.submit(make_gang("H", "2 gpu=1", queue="a", walltime=100))
    state.apply(schedule(state.snapshot(), EASY))
    waiting = state.submit(make_gang("A", "3 gpu=1", queue="a", walltime=10))
    assert [code for code, *_ in why(state, waiting)] == [Code.QUEUE_LIMIT, Code.CAPACITY]


def test_pieces_that_do_not_fit_are_told_apart_from_too_little():
    state = make_state("2 gpu=4", gangs=[make_gang("A", "1 gpu=4", walltime=10)])
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    occupy(state, 1, [1000, 0, 0, 0], walltime=50)
    assert why(state, 0) == [(Code.FRAGMENTATION, 1, 0, 50 * SECOND_US)]


def test_behind_a_blocked_gang_and_under_its_reservation():
    state = make_state(
        "1 gpu=4", gangs=[make_gang("A", "4 gpu=1", walltime=10), make_gang("B", "1 gpu=1", walltime=500)]
    )
    occupy(state, 0, [1000, 0, 0, 0], walltime=100)
    assert why(state, 1, FCFS)[0][0] is Code.BEHIND
    assert [(code, eta) for code, _, _, eta in why(state, 1)] == [(Code.RESERVED, 110 * SECOND_US)]


def test_a_window_in_the_way():
    window = Window("upgrade", ("n0",), 100 * SECOND_US, 200 * SECOND_US)
    state = make_state("1 gpu=4", windows=(window,), gangs=[make_gang("A", "4 gpu=1", walltime=101)])
    assert [(code, eta) for code, _, _, eta in why(state, 0)] == [(Code.MAINTENANCE, 200 * SECOND_US)]


def test_out_of_service_and_never():
    state = make_state("2 gpu=4", gangs=[make_gang("A", "8 gpu=1"), make_gang("B", "9 gpu=1")])
    state.set_open(1, open_=False)
    assert why(state, 0)[0][:3] == (Code.NODE_CONSTRAINT, 8, 4)
    assert why(state, 1) == [(Code.INFEASIBLE, 9, 8, None)]


def test_held_and_waiting_come_before_any_question_of_room():
    state = make_state("1 gpu=4", gangs=[make_gang("A", "1 gpu=1", hold=True), make_gang("B", "1 gpu=1", after=("A",))])
    assert [code for code, *_ in why(state, 0) + why(state, 1)] == [Code.HELD, Code.DEPENDENCY_WAITING]

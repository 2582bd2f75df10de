"""Whose queue is next: the standing decides between queues, and moves with every start."""

from phalanx.engine.cycle import schedule
from phalanx.engine.order.queue_turns import QueueTurns
from phalanx.engine.order.turns import order_turns
from phalanx.engine.session import Session
from phalanx.model.queue import Queue
from phalanx.policy import named
from phalanx.testing.builders import make_gang, make_state

TWO = (Queue("a"), Queue("b"))


def make(*gangs, queues=TWO, policy="fair", nodes="4 gpu=1"):
    state = make_state(nodes, queues=queues, gangs=[make_gang(name, line, **rest) for name, line, rest in gangs])
    session = Session(state.snapshot(), named(policy))
    return state, session, order_turns(session)


def names(state, turns, stretch):
    return [state.gangs[int(turns.rows[turn])].name for turn in stretch.tolist()]


def test_without_standing_everybody_is_one_stretch():
    state, session, turns = make(("x", "1 gpu=1", {"queue": "a"}), ("y", "1 gpu=1", {"queue": "b"}), policy="easy")
    line = QueueTurns(session, turns)
    assert names(state, turns, line.next_stretch()) == ["x", "y"]
    assert not line.moves
    line.done(2)
    assert not line.left


def test_one_queue_with_everybody_in_it_needs_no_standing():
    _, session, turns = make(("x", "1 gpu=1", {"queue": "a"}), ("y", "1 gpu=1", {"queue": "a"}))
    assert not QueueTurns(session, turns).moves


def test_queues_that_stand_equal_take_turns_by_the_order_of_their_gangs():
    state, session, turns = make(
        ("x1", "1 gpu=1", {"queue": "a"}), ("y1", "1 gpu=1", {"queue": "b"}), ("x2", "1 gpu=1", {"queue": "a"})
    )
    line = QueueTurns(session, turns)
    assert line.moves
    assert names(state, turns, line.next_stretch()) == ["x1", "y1", "x2"]
    session.charge(1, 0, session.need_of(state.gangs[0], 0).vector)
    line.done(1)  # x1 has started, so that b stands better
    assert names(state, turns, line.next_stretch()) == ["y1"]
    line.done(1)
    assert names(state, turns, line.next_stretch()) == ["x2"]
    line.done(1)
    assert not line.left


def test_whoever_is_below_its_guarantee_comes_first():
    queues = (Queue("a"), Queue("b", guarantee={"gpu": 1000}))
    state, session, turns = make(
        ("x", "1 gpu=1", {"queue": "a", "priority": 9}), ("y", "1 gpu=1", {"queue": "b"}), queues=queues
    )
    assert names(state, turns, QueueTurns(session, turns).next_stretch()) == ["y"]


def test_starts_of_one_plan_alternate_between_equal_queues():
    gangs = [(f"{queue}{index}", "1 gpu=1", {"queue": queue}) for queue in "ab" for index in range(4)]
    state, _, _ = make(*gangs)
    started = [state.gangs[bind.gang].name for bind in schedule(state.snapshot(), named("fair")).decisions]
    assert started == ["a0", "b0", "a1", "b1"]


def test_weights_divide_what_is_there():
    gangs = [(f"{queue}{index}", "1 gpu=1", {"queue": queue}) for queue in "ab" for index in range(4)]
    state, _, _ = make(*gangs, queues=(Queue("a", weight=3), Queue("b")))
    started = [state.gangs[bind.gang].queue for bind in schedule(state.snapshot(), named("fair")).decisions]
    assert sorted(started) == ["a", "a", "a", "b"]

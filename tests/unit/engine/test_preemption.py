"""Room at the expense of others, the gentlest way first: one world, one plan, who gives what to whom and why.

Every plan goes through all checks (`schedule_checked`); here is which of the lawful plans it must be.
"""

from dataclasses import replace

import pytest

from phalanx.engine.making_room.permits import Permits
from phalanx.engine.order.turns import order_turns
from phalanx.engine.reclaimable import Reclaimable
from phalanx.engine.session import Session
from phalanx.model.gang import SnapshotHabit
from phalanx.model.plan import Bind, Cause, Evict, Guest, Move, Resize
from phalanx.model.queue import Queue, UserLimit
from phalanx.policy import named
from phalanx.testing.builders import SECOND_US, make_gang, make_state, seat
from phalanx.testing.checking import schedule_checked

SAVES = SnapshotHabit(60 * SECOND_US, 0, 0)
NOW = 1000


def make(nodes, *running, waiting=(), now=NOW, **rest):
    """Gangs that sit: (name, line, places, more); gangs that wait: (name, line, more)."""
    lines = (nodes,) if isinstance(nodes, str) else nodes
    state = make_state(*lines, **rest)
    for name, line, places, more in running:
        state.now_us = more.get("start", 0) * SECOND_US
        words = {key: value for key, value in more.items() if key != "start"}
        seat(state, state.submit(make_gang(name, line, **words)), places)
    state.now_us = now * SECOND_US
    for name, line, more in waiting:
        state.submit(make_gang(name, line, submit=now, **more))
    return state


def tell(state, policy="fair", options=None):
    """The plan in words: what, who, why and for whom; sizes of those who are resized."""
    plan = schedule_checked(state.snapshot(), named(policy, options))
    name = {None: None, **dict(enumerate(gang.name for gang in state.gangs))}
    told = []
    for decision in plan.decisions:
        match decision:
            case Evict(gang, cause, whom):
                told.append(("evict", name[gang], cause.value, name[whom]))
            case Resize(gang, _, cause, whom):
                told.append((f"resize to {decision.members}", name[gang], cause.value, name[whom]))
            case Move(gang):
                told.append(("move", name[gang]))
            case Bind(gang):
                told.append(("bind", name[gang]))
    return told


SOFT = {"preemptible": True}
HIGH = ("high", "2 gpu=1", {"priority": 1, "walltime": 50})


# ---------------------------------------------------------------------- the gentlest way


def test_free_places_come_first():
    state = make("4 gpu=1", ("low", "2 gpu=1", {0: 1, 1: 1}, SOFT), waiting=[HIGH])
    assert tell(state) == [("bind", "high")]


def test_surplus_comes_before_whole_gangs():
    state = make(
        "4 gpu=1",
        ("low", "1 gpu=1", {0: 1}, SOFT),
        ("wide", "1-3 gpu=1", {1: 1, 2: 1, 3: 1}, {}),
        waiting=[HIGH],
    )
    assert tell(state) == [("resize to 1", "wide", "loan", "high"), ("bind", "high")]


def test_surplus_and_a_whole_gang_together():
    state = make("3 gpu=1", ("low", "1 gpu=1", {0: 1}, SOFT), ("wide", "1-2 gpu=1", {1: 1, 2: 1}, {}), waiting=[HIGH])
    assert tell(state) == [
        ("evict", "low", "preempt", "high"),
        ("resize to 1", "wide", "loan", "high"),
        ("bind", "high"),
    ]


def test_nobody_gives_more_than_is_needed():
    state = make("5 gpu=1", ("wide", "1-5 gpu=1", dict.fromkeys(range(5), 1), {}), waiting=[HIGH])
    assert tell(state)[0] == ("resize to 3", "wide", "loan", "high")
    coarse = make("5 gpu=1", ("wide", "1|5 gpu=1", dict.fromkeys(range(5), 1), {}), waiting=[HIGH])
    assert tell(coarse)[0] == ("resize to 1", "wide", "loan", "high")


def test_who_is_least_important_gives_first():
    state = make(
        "4 gpu=1",
        ("one", "1-2 gpu=1", {0: 1, 1: 1}, {"priority": 1}),
        ("two", "1-2 gpu=1", {2: 1, 3: 1}, {}),
        waiting=[("next", "1 gpu=1", {"priority": 1, "walltime": 50})],
    )
    assert tell(state)[0] == ("resize to 1", "two", "loan", "next")


def test_moving_somebody_comes_before_evicting_anybody():
    """A pair of devices on one node: somebody who saves its work makes way, and nothing is lost."""
    state = make(
        "2 gpu=2",
        ("left", "1 gpu=1", {0: 1}, {**SOFT, "snapshot": SAVES}),
        ("right", "1 gpu=1", {1: 1}, {}),
        waiting=[("pair", "1 gpu=2", {"priority": 1, "walltime": 50})],
    )
    assert tell(state, "goodput") == [("move", "left"), ("bind", "pair")]
    assert tell(state, "fair") == [("evict", "left", "preempt", "pair"), ("bind", "pair")]


def test_a_move_that_costs_more_than_the_wait_is_not_made():
    dear = replace(SAVES, stall_us=30 * SECOND_US, restore_us=30 * SECOND_US)
    state = make(
        "2 gpu=2",
        ("left", "1 gpu=1", {0: 1}, {**SOFT, "snapshot": dear}),
        ("right", "1 gpu=1", {1: 1}, {"walltime": NOW + 50}),
        waiting=[("pair", "1 gpu=2", {"walltime": 50})],
    )
    assert tell(state, "goodput") == []


# ---------------------------------------------------------------------- who


@pytest.mark.parametrize(
    ("more", "evicted"),
    [
        ({}, True),
        ({"priority": 1}, False),
        ({"preemptible": False}, False),
        ({"queue": "a"}, False),
    ],
)
def test_who_may_be_preempted(more, evicted):
    state = make("2 gpu=1", ("low", "2 gpu=1", {0: 1, 1: 1}, {**SOFT, **more}), waiting=[HIGH], queues=(Queue("a"),))
    assert bool(tell(state)) is evicted


@pytest.mark.parametrize(
    ("floors", "evicted"),
    [
        ({"a": 2}, True),
        ({"a": 1}, False),  # the owner would be beyond it
        ({}, False),
        ({"a": 2, "default": 1}, False),  # the borrower's own
    ],
)
def test_who_may_reclaim(floors, evicted):
    queues = tuple(Queue(name, guarantee={"gpu": floors.get(name, 0) * 1000}) for name in ("default", "a"))
    state = make("2 gpu=1", ("lent", "2 gpu=1", {0: 1, 1: 1}, SOFT), queues=queues,
                 waiting=[("owner", "2 gpu=1", {"queue": "a", "walltime": 50})])  # fmt: skip
    assert bool(tell(state)) is evicted


def test_the_weighted_share_is_taken_back_only_if_so_wanted():
    lent = [(f"lent{i}", "1 gpu=1", {i: 1}, SOFT) for i in range(4)]
    state = make("4 gpu=1", *lent, queues=(Queue("a"),), waiting=[("owner", "2 gpu=1", {"queue": "a", "walltime": 50})])
    assert tell(state) == []
    told = tell(state, options={"reclaim": "entitlement"})
    assert [what for what, *_ in told] == ["evict", "evict", "bind"]


def test_surplus_of_a_queue_that_stands_worse():
    lines = [("wide", "1-4 gpu=1", dict.fromkeys(range(4), 1), {"queue": "a", "priority": 9})]
    state = make(
        "4 gpu=1",
        *lines,
        queues=(Queue("a"), Queue("b")),
        waiting=[("next", "1 gpu=1", {"queue": "b", "walltime": 50})],
    )
    assert tell(state)[0] == ("resize to 3", "wide", "loan", "next")


def test_a_ceiling_is_freed_by_whoever_is_below_it():
    """There is room, but the queue is full: somebody of that queue makes way."""
    queues = (Queue("q", limit={"gpu": 2000}),)
    low = ("low", "2 gpu=1", {0: 1, 1: 1}, {**SOFT, "queue": "q"})
    state = make(
        "4 gpu=1", low, queues=queues, waiting=[("high", "2 gpu=1", {"queue": "q", "priority": 1, "walltime": 50})]
    )
    assert tell(state) == [("evict", "low", "preempt", "high"), ("bind", "high")]
    users = (UserLimit("ada", {"gpu": 2000}),)
    mine = make("4 gpu=1", ("low", "2 gpu=1", {0: 1, 1: 1}, {**SOFT, "user": "ada"}), users=users,
                waiting=[("high", "2 gpu=1", {"user": "ada", "priority": 1, "walltime": 50})])  # fmt: skip
    assert tell(mine) == [("evict", "low", "preempt", "high"), ("bind", "high")]


# ---------------------------------------------------------------------- which


def three(**more):
    return [
        (f"low{i}", "1 gpu=1", {i: 1}, {**SOFT, **{key: value[i] for key, value in more.items()}}) for i in range(3)
    ]


ONE = ("high", "1 gpu=1", {"priority": 3, "walltime": 50})


def test_the_lowest_priority_goes_however_dear():
    state = make("3 gpu=1", *three(priority=[1, 0, 2], start=[990, 0, 990]), waiting=[ONE])
    assert tell(state)[0] == ("evict", "low1", "preempt", "high")


def test_then_whoever_loses_least():
    assert tell(make("3 gpu=1", *three(start=[0, 900, 500]), waiting=[ONE]))[0][1] == "low1"
    saving = three(snapshot=[SAVES, None, replace(SAVES, restore_us=50 * SECOND_US)], start=[0, 900, 0])
    assert tell(make("3 gpu=1", *saving, waiting=[ONE]))[0][1] == "low0"
    slow = three(startup_us=[200 * SECOND_US, 0, 0], start=[900, 500, 600])
    assert tell(make("3 gpu=1", *slow, waiting=[ONE]))[0][1] == "low0"


def test_then_fewer_and_then_later_ones():
    state = make("4 gpu=1", ("a", "1 gpu=1", {0: 1}, SOFT), ("b", "1 gpu=1", {1: 1}, SOFT), ("c", "2 gpu=1", {2: 1, 3: 1}, SOFT),
                 waiting=[("high", "2 gpu=1", {"priority": 3, "walltime": 50})])  # fmt: skip
    assert [told[1] for told in tell(state)] == ["c", "high"]
    assert tell(make("3 gpu=1", *three(), waiting=[ONE]))[0][1] == "low2"


def test_somebody_who_sits_in_the_wrong_place_does_not_help():
    state = make(
        ("1 gpu=1 rack:x", "2 gpu=1 rack:y"),
        *three(start=[990, 0, 0]),
        levels=("rack",),
        waiting=[("high", "2 gpu=1", {"priority": 3, "walltime": 50, "topology": ">rack"})],
    )
    assert [told[1] for told in tell(state)] == ["low1", "low2", "high"]


def test_waiting_is_better_if_it_is_shorter_than_starting_anew():
    running = [("low", "1 gpu=1", {0: 1}, SOFT), ("ends", "1 gpu=1", {1: 1}, {"walltime": NOW + 999})]
    assert tell(make("2 gpu=1", *running, waiting=[ONE])) == []
    late = [running[0], ("ends", "1 gpu=1", {1: 1}, {"walltime": NOW + 1001})]
    assert tell(make("2 gpu=1", *late, waiting=[ONE]))[0] == ("evict", "low", "preempt", "high")


# ---------------------------------------------------------------------- turns and guests


def test_a_turn_goes_to_an_equal_that_had_less():
    one = ("one", "2 gpu=1", {0: 1, 1: 1}, {**SOFT, "snapshot": SAVES})
    state = make("2 gpu=1", one, waiting=[("two", "2 gpu=1", {"walltime": 50})])
    quantum = {"quantum": 500 * SECOND_US}
    assert tell(state, "rotate", quantum) == [("evict", "one", "turn", "two"), ("bind", "two")]
    assert tell(state, "rotate", {"quantum": 1001 * SECOND_US}) == []
    plan = schedule_checked(state.snapshot(), named("rotate", {"quantum": 1001 * SECOND_US}))
    assert plan.wake_at_us == 1001 * SECOND_US
    served = make("2 gpu=1", one, waiting=[("two", "2 gpu=1", {"walltime": 50})])
    served.pending.columns["attained_us"][served.records[1].row] = 3000 * SECOND_US
    assert tell(served, "rotate", quantum) == []


def test_only_the_owner_of_the_reservation_sends_a_guest_away():
    state = make("2 gpu=1", ("guest", "1 gpu=1", {0: 1}, SOFT), waiting=[("head", "2 gpu=1", {"walltime": 50})])
    assert tell(state, "easy") == []
    state.thaw()
    state.running.columns["guest"][0] = Guest.WHOLE
    assert tell(state, "easy") == [("evict", "guest", "guest", "head"), ("bind", "head")]
    surplus = make("3 gpu=1", ("guest", "1-2 gpu=1", {0: 1, 1: 1}, {}), waiting=[("head", "2 gpu=1", {"walltime": 50})])
    surplus.running.columns["guest"][0] = Guest.SURPLUS
    assert tell(surplus, "easy")[0] == ("resize to 1", "guest", "guest", "head")


# ---------------------------------------------------------------------- what it costs


def test_what_an_eviction_costs():
    state = make(
        "4 gpu=1",
        ("plain", "2 gpu=1", {0: 1, 1: 1}, {**SOFT, "startup_us": 7 * SECOND_US}),
        ("saves", "1 gpu=1", {2: 1}, {**SOFT, "snapshot": replace(SAVES, restore_us=5 * SECOND_US)}),
        ("fresh", "1 gpu=1", {3: 1}, {**SOFT, "snapshot": SAVES, "start": 990}),
    )
    reclaimable = Reclaimable(state.snapshot())
    costs = [reclaimable.restart_us(occupant) // SECOND_US for occupant in reclaimable.occupants]
    assert costs == [1007, 65, 10]
    assert [reclaimable.cost(occupant) // SECOND_US // 1000 for occupant in reclaimable.occupants] == [2014, 65, 10]


def test_who_is_not_asked_for_anything():
    state = make(
        "5 gpu=1",
        ("rigid", "1 gpu=1", {0: 1}, {}),
        ("soft", "1 gpu=1", {1: 1}, SOFT),
        ("wide", "1-2 gpu=1", {2: 1, 3: 1}, {}),
        ("begins", "1 gpu=1", {4: 1}, SOFT),
    )
    state.running.columns["start_us"][3] = (NOW + 1) * SECOND_US
    reclaimable = Reclaimable(state.snapshot())
    assert [occupant.gang.name for occupant in reclaimable.occupants] == ["soft", "wide"]
    assert [occupant.surplus(0) for occupant in reclaimable.occupants] == [0, 1]
    state.pin(2, 2)
    assert [occupant.surplus(0) for occupant in Reclaimable(state.snapshot()).occupants] == [0, 0]


def test_loans_come_least_important_first_and_leave_guarantees():
    queues = (Queue("a", guarantee={"gpu": 2000}),)
    state = make(
        "9 gpu=1",
        ("one", "1-3 gpu=1", {0: 1, 1: 1, 2: 1}, {"priority": 1}),
        ("two", "1-3 gpu=1", {3: 1, 4: 1, 5: 1}, {}),
        ("lord", "1-3 gpu=1", {6: 1, 7: 1, 8: 1}, {"queue": "a"}),
        waiting=[("next", "1 gpu=1", {"priority": 1})],
        queues=queues,
    )
    session = Session(state.snapshot(), named("fair"))
    reclaimable = Reclaimable(session.snapshot)
    permits = Permits(session, reclaimable)
    turns = order_turns(session)
    who = permits.claimant(turns, 0, session.need_of(state.gangs[3], 0).vector, owner=False)
    assert [(pool.occupant.gang.name, pool.members, pool.cause) for pool in permits.list_loans(who)] == [
        ("two", 2, Cause.LOAN),
        ("one", 2, Cause.LOAN),
    ]

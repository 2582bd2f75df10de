"""Rules about others, one by one: what a view leaves of slots, what is never said, and what others are told of."""

import numpy as np
import pytest

from phalanx.control.clone import clone_state
from phalanx.engine.explain import explain
from phalanx.engine.kernels.cuts import cut_by_wishes, cut_slots, spread_out
from phalanx.model.fleet import Fleet
from phalanx.model.gang import Shape
from phalanx.model.plan import Bind
from phalanx.model.reason import Code
from phalanx.model.rules import Apart, AtMost, Beside, Evenly, Presence, Rather
from phalanx.policy import named
from phalanx.testing.builders import asking, make_gang, make_nodes, make_state, seat
from phalanx.testing.checking import schedule_checked

ZONES = Fleet(make_nodes("2 gpu=4 zone:a", "2 gpu=4 zone:b", "1 gpu=4"), ())
FOUR = np.array([4, 4, 4, 4, 4])


def present(**nodes_by_word):
    found = Presence(len(ZONES))
    for word, nodes in nodes_by_word.items():
        for node in nodes:
            found.add((word,), np.array([node]), np.array([1]))
    return found


def left(*rules, bears=(), presence=None, own=None, slots=FOUR):
    found = cut_slots(ZONES, Shape((("gpu", 1000),), bears=tuple(bears), rules=rules), slots, presence, own)
    return found.tolist()


@pytest.mark.parametrize(
    ("rules", "more", "slots"),
    [
        ([AtMost("node", 1)], {}, [1, 1, 1, 1, 1]),
        ([AtMost("node", 3)], {"own": np.array([2, 0, 0, 0, 5])}, [1, 3, 3, 3, 0]),
        # Of a zone the roomiest node keeps its slots; a node without the label is in no zone.
        ([AtMost("zone", 5)], {"slots": np.array([1, 4, 2, 2, 4])}, [1, 4, 2, 2, 4]),
        ([AtMost("zone", 3)], {"slots": np.array([1, 4, 2, 2, 4])}, [0, 3, 2, 1, 4]),
        ([AtMost("zone", 3), AtMost("node", 2)], {}, [2, 1, 2, 1, 2]),
        ([Apart("zone", "w")], {"presence": present(w=[1])}, [0, 0, 4, 4, 4]),
        ([Apart("zone", "w")], {"presence": present(w=[4])}, [4, 4, 4, 4, 4]),
        ([Apart("zone", "w")], {"bears": ["w"], "presence": present()}, [1, 0, 1, 0, 4]),
        ([Beside("zone", "w")], {"presence": present(w=[3])}, [0, 0, 4, 4, 0]),
        ([Beside("zone", "w")], {"presence": present()}, [0, 0, 0, 0, 0]),
        # The first of them, all in one zone; in an empty cluster nobody knows which of them come first.
        ([Beside("zone", "w")], {"bears": ["w"], "presence": present()}, [4, 4, 0, 0, 0]),
        ([Beside("zone", "w")], {"bears": ["w"]}, [4, 4, 4, 4, 4]),
        ([Evenly("zone", "w", 1)], {"bears": ["w"], "presence": present(w=[0, 1])}, [4, 3, 4, 4, 0]),
        ([Evenly("zone", "w", 1)], {"presence": present(w=[0, 1])}, [0, 0, 4, 4, 0]),
        ([Evenly("zone", "w", 1, 3)], {"bears": ["w"], "presence": present()}, [1, 0, 1, 0, 0]),
    ],
)
def test_what_is_left_of_slots(rules, more, slots):
    assert left(*rules, **more) == slots


def test_who_keeps_a_word_away_does_so_by_its_own_domains():
    presence = present()
    presence.add((("w", "zone"),), np.array([3]), np.array([1]))
    assert left(bears=["w"], presence=presence) == [4, 4, 0, 0, 4]
    assert left(presence=presence) == [4, 4, 4, 4, 4]


def test_one_after_the_other_to_where_they_are_fewest():
    shape = Shape((("gpu", 1000),), bears=("w",), rules=(Evenly("zone", "w", 1),))
    found = spread_out(ZONES, shape, np.array([1, 1, 4, 4, 4]), present(w=[2]), 4)
    assert found.tolist() == [1, 1, 2, 0, 0]
    assert spread_out(ZONES, shape, np.array([1, 1, 4, 4, 4]), present(w=[2]), 5) is None


def wished(size, *wishes, bears=(), presence=None):
    rather = tuple(Rather(1, wish) for wish in wishes)
    shape = Shape((("gpu", 1000),), bears=tuple(bears), rather=rather)
    found = cut_by_wishes(ZONES, shape, FOUR, presence or present(), size)
    return None if found is None else found.tolist()


IN_A, IN_B = (("zone", ("a",)),), (("zone", ("b",)),)


@pytest.mark.parametrize(
    ("size", "wishes", "more", "slots"),
    [
        (8, [IN_A], {}, [4, 4, 0, 0, 0]),
        (9, [IN_A], {}, None),
        # The second cannot hold where the first does, and gives way; it holds where the first does not.
        (8, [IN_A, IN_B], {}, [4, 4, 0, 0, 0]),
        (8, [(("zone", ("c",)),), IN_B], {}, [0, 0, 4, 4, 0]),
        (4, [Apart("zone", "w")], {"presence": present(w=[0])}, [0, 0, 4, 4, 4]),
        (13, [Apart("zone", "w")], {"presence": present(w=[0])}, None),
        (5, [Beside("zone", "w")], {"presence": present(w=[0])}, [4, 4, 0, 0, 0]),
        # Not beside its own: one in each, and then a second.
        (5, [Apart("node", "w")], {"bears": ["w"]}, [1, 1, 1, 1, 1]),
        (6, [Apart("node", "w")], {"bears": ["w"]}, [2, 1, 1, 1, 1]),
        (4, [Evenly("zone", "w", 1)], {"bears": ["w"], "presence": present(w=[0, 1, 1])}, [0, 0, 4, 0, 0]),
    ],
)
def test_wishes_hold_for_all_members_or_are_left_out(size, wishes, more, slots):
    assert wished(size, *wishes, **more) == slots


def test_a_copy_of_who_is_where_goes_its_own_way():
    one = present(w=[1])
    other = one.copy()
    other.add(("w", ("w", "zone")), np.array([0, 1]), np.array([2, 3]))
    assert one.bearing("w").tolist() == [0, 1, 0, 0, 0]
    assert other.bearing("w").tolist() == [2, 4, 0, 0, 0]
    assert one.merge(other).bearing("w").tolist() == [2, 4, 0, 0, 0]
    assert one.away == {}


def one_each(name, *lines, **rest):
    return asking(make_gang(name, *lines, **rest), Apart("node", "w"), bears=["w"])


def test_who_starts_smaller_after_a_search_that_gave_up_is_not_told_why_it_waits():
    state = make_state("3 gpu=4", gangs=[one_each("a", "1-3 gpu=1", "1 gpu=1")])
    plan = schedule_checked(state.snapshot(), named("easy"), explain=True)
    (bind,) = plan.decisions
    assert isinstance(bind, Bind)
    assert bind.members == 3
    assert plan.verdicts.codes[0] == Code.NONE


def test_reasons_tell_room_before_rules():
    state = make_state("2 gpu=4", gangs=[make_gang("run", "5 gpu=1"), one_each("a", "2 gpu=1")])
    seat(state, 0, {0: 4, 1: 1})
    assert [(each.code, each.needed, each.available) for each in explain(state.snapshot(), named("easy"), 1)] == [
        (Code.NEIGHBOURS, 2, 1)
    ]
    seat(state, state.submit(make_gang("rest", "3 gpu=1")), {1: 3})
    first, *_ = explain(state.snapshot(), named("easy"), 1)
    assert (first.code, first.needed, first.available) == (Code.CAPACITY, 2, 0)


def test_nobody_keeps_count_until_somebody_asks_and_then_of_everybody():
    state = make_state("2 gpu=4", gangs=[make_gang("plain", "1 gpu=1")])
    assert state.snapshot().presence is None
    seat(state, state.submit(asking(make_gang("b", "3 gpu=1"), bears=["w"])), {1: 3})
    before = state.snapshot()
    assert before.presence.bearing("w").tolist() == [0, 3]
    state.note_marks(0, {"w": 2, ("w", "node"): 1})
    twin = clone_state(state)
    state.note_marks(0, {"w": 1})
    assert state.snapshot().presence.bearing("w").tolist() == [1, 3]
    assert state.snapshot().presence.away["w"]["node"].tolist() == [0, 0]
    assert twin.snapshot().presence.bearing("w").tolist() == [2, 3]
    assert before.presence.bearing("w").tolist() == [0, 3], "a picture stays as it was taken"
    state.add_nodes(make_nodes("3 gpu=2"))
    assert state.snapshot().presence.bearing("w").tolist() == [1, 3, 0]
    state.complete(1)
    assert state.snapshot().presence.bearing("w").tolist() == [1, 0, 0]

"""Entitlement, standing and who may take from whom, in numbers that can be checked by hand."""

import numpy as np
import pytest

from phalanx.engine.fairshare import (
    Standing,
    compute_entitlement,
    leaves_guarantee,
    may_reclaim,
    may_reclaim_set,
    may_reclaim_share,
)
from phalanx.model.snapshot import QueueColumns


def vector(amount, kinds):
    """An amount of the first kind, or one of each."""
    return list(amount) if isinstance(amount, tuple) else [amount] + [0] * (kinds - 1)


class World:
    """Queues by name over one kind (or, with tuples as amounts, several)."""

    def __init__(self, capacity, **queues):
        """Each queue a mapping: above, weight, guarantee, limit, uses and wants of its own gangs."""
        kinds = len(capacity) if isinstance(capacity, tuple) else 1
        self.kinds, self.capacity = kinds, np.array(vector(capacity, kinds))
        names = ["root", *queues]
        specs = [{}, *queues.values()]
        parent = [-1] + [names.index(spec.get("above", "root")) for spec in specs[1:]]
        sums = {key: np.array([vector(spec.get(key, 0), kinds) for spec in specs]) for key in ("uses", "wants")}
        for table in sums.values():
            for row in range(len(names) - 1, 0, -1):
                table[parent[row]] += table[row]
        self.names = names
        self.queues = QueueColumns(
            names=tuple(names),
            parent=np.array(parent, dtype=np.int32),
            weight=np.array([spec.get("weight", 1) for spec in specs]),
            guarantee=np.array([vector(spec.get("guarantee", 0), kinds) for spec in specs]),
            limit=np.array([vector(spec["limit"], kinds) if "limit" in spec else [-1] * kinds for spec in specs]),
            usage=sums["uses"],
            decayed=np.zeros_like(sums["uses"]),
        )
        self.demand = sums["uses"] + sums["wants"]

    def units(self, amount):
        return np.array(vector(amount, self.kinds))

    def entitled(self):
        """By name without the root; one number where there is one kind."""
        table = compute_entitlement(self.queues, self.capacity, self.demand)
        rows = {name: tuple(row) for name, row in zip(self.names, table.tolist(), strict=True) if name != "root"}
        return {name: row[0] if self.kinds == 1 else row for name, row in rows.items()}

    def standing(self, history=None):
        past = None
        if history is not None:
            past = np.array([vector(history.get(name, 0), self.kinds) for name in self.names])
            for row in range(len(self.names) - 1, 0, -1):
                past[self.queues.parent[row]] += past[row]
        return Standing(self.queues, self.capacity, self.demand, past)

    def order(self, *names, standing=None, history=None):
        """Names by standing, those that tie joined."""
        standing = standing or self.standing(history)
        keys = {name: standing.key(self.names.index(name)) for name in names}
        ranked = sorted(set(keys.values()))
        return ["=".join(name for name in names if keys[name] == key) for key in ranked]

    def reclaim(self, rule, taker, asked, victim, given):
        return rule(
            self.standing(), self.names.index(taker), self.units(asked), self.names.index(victim), self.units(given)
        )


# ---------------------------------------------------------------------- entitlement


def test_weights_divide_what_there_is():
    assert World(9, a={"wants": 20, "weight": 2}, b={"wants": 20}).entitled() == {"a": 6, "b": 3}


def test_what_one_does_not_want_goes_to_the_others():
    world = World(12, a={"wants": 1}, b={"wants": 20}, c={"uses": 2, "wants": 18})
    assert world.entitled() == {"a": 1, "b": 6, "c": 5}


def test_the_guarantee_comes_before_the_shares():
    assert World(10, a={"wants": 20, "guarantee": 4}, b={"wants": 20}).entitled() == {"a": 7, "b": 3}


def test_an_unused_guarantee_is_lent_and_kept():
    """Of 8 guaranteed only 2 are wanted, so 6 go round; what was promised stays promised."""
    assert World(10, a={"wants": 2, "guarantee": 8}, b={"wants": 20}).entitled() == {"a": 8, "b": 8}


def test_without_demand_the_guarantee_is_all():
    assert World(10, a={"guarantee": 8}, b={}).entitled() == {"a": 8, "b": 0}


def test_guarantees_beyond_what_there_is_stay():
    world = World(10, a={"wants": 9, "guarantee": 8}, b={"wants": 9, "guarantee": 8}, c={"wants": 5})
    assert world.entitled() == {"a": 8, "b": 8, "c": 0}


def test_a_limit_caps_the_share_and_the_rest_goes_on():
    assert World(10, a={"wants": 20, "limit": 3}, b={"wants": 20}).entitled() == {"a": 3, "b": 7}


def test_a_limit_below_the_guarantee_wins():
    assert World(10, a={"wants": 20, "guarantee": 5, "limit": 3}).entitled() == {"a": 3}


def test_what_a_limit_below_forbids_is_no_demand_above():
    world = World(10, p={}, a={"above": "p", "wants": 20, "limit": 2}, q={"wants": 20})
    assert world.entitled() == {"p": 2, "a": 2, "q": 8}


@pytest.mark.parametrize(
    ("capacity", "weights", "expected"),
    [
        (10, (1, 1, 1), (4, 3, 3)),  # equal fractions: the lowest index
        (11, (1, 1, 1), (4, 4, 3)),
        (10, (2, 1, 3), (3, 2, 5)),  # 3⅓, 1⅔, 5: the largest fraction
        (1, (1, 5, 1), (0, 1, 0)),
        (0, (1, 1, 1), (0, 0, 0)),
    ],
)
def test_whole_units(capacity, weights, expected):
    world = World(capacity, **{name: {"wants": 99, "weight": w} for name, w in zip("abc", weights, strict=True)})
    assert tuple(world.entitled().values()) == expected


def test_no_weight_no_share():
    world = World(10, a={"wants": 20, "weight": 0, "guarantee": 1}, b={"wants": 3}, c={"weight": 0, "wants": 5})
    assert world.entitled() == {"a": 1, "b": 3, "c": 0}


def test_children_divide_what_their_parent_is_entitled_to():
    world = World(
        12,
        p={"weight": 2},
        q={"wants": 20},
        a={"above": "p", "wants": 20, "guarantee": 4},
        b={"above": "p", "wants": 20},
    )
    assert world.entitled() == {"p": 8, "q": 4, "a": 6, "b": 2}


def test_gangs_of_a_queue_above_others_count_as_one_more_child():
    world = World(12, p={"wants": 20}, a={"above": "p", "wants": 20, "weight": 2}, b={"above": "p", "wants": 1})
    assert world.entitled() == {"p": 12, "a": 7, "b": 1}


def test_every_kind_for_itself():
    world = World((10, 100), a={"wants": (20, 10), "guarantee": (2, 0)}, b={"wants": (20, 200)})
    assert world.entitled() == {"a": (6, 10), "b": (4, 90)}


def test_amounts_near_the_end_of_64_bits():
    most = 1 << 61
    world = World(most, a={"wants": most, "weight": 1_000_000}, b={"wants": most, "weight": 999_999})
    entitled = world.entitled()
    assert sum(entitled.values()) == most
    assert entitled["a"] == -(-most * 1_000_000 // 1_999_999)


# ---------------------------------------------------------------------- standing


def test_below_the_guarantee_comes_first_then_the_lower_ratio():
    world = World(
        20,
        a={"uses": 1, "wants": 20},
        b={"uses": 3, "wants": 20, "guarantee": 4},
        c={"uses": 4, "wants": 20, "guarantee": 4},
        d={"uses": 2, "wants": 20, "weight": 5},
    )
    assert world.order("a", "b", "c", "d") == ["b", "d", "a", "c"]


def test_equal_ratios_tie():
    world = World(12, a={"uses": 2, "wants": 20, "weight": 2}, b={"uses": 1, "wants": 20})
    assert world.order("a", "b") == ["a=b"]
    standing = world.standing()
    assert not standing.better(1, 2)
    assert not standing.better(2, 1)


def test_ratios_are_exact():
    """All are entitled to what they want; no float could tell these ratios from 1."""
    big = 1 << 60
    world = World(1 << 62, a={"uses": big, "wants": 1}, b={"uses": big + 1, "wants": 1})
    assert world.order("a", "b") == ["a", "b"]
    world = World(1 << 62, a={"uses": big, "wants": 2}, b={"uses": big + 1, "wants": 1})
    assert world.order("a", "b") == ["a", "b"]
    world = World(1 << 62, a={"uses": big, "wants": 1}, b={"uses": big + 1, "wants": 2})
    assert world.order("a", "b") == ["b", "a"]


def test_the_dominant_kind_counts():
    world = World((10, 100), a={"uses": (1, 40), "wants": (9, 60)}, b={"uses": (3, 1), "wants": (9, 99)})
    assert world.order("a", "b") == ["b", "a"]


def test_entitled_to_nothing_stands_last_by_usage_over_weight():
    world = World(
        8,
        a={"uses": 9, "wants": 20, "guarantee": 8},
        b={"uses": 4, "wants": 20, "weight": 4},
        c={"uses": 2, "wants": 20},
        d={"wants": 20, "weight": 0},
    )
    assert world.entitled() == {"a": 8, "b": 0, "c": 0, "d": 0}
    assert world.order("a", "b", "c", "d") == ["a", "b", "c", "d"]


def test_usage_over_weight_is_exact():
    """1 ÷ 999,983 and 1 ÷ 999,979 of a cluster of one."""
    borrowed = {"uses": 1, "wants": 1}
    world = World(1, a={"wants": 1, "guarantee": 1}, b=borrowed | {"weight": 999_979}, c=borrowed | {"weight": 999_983})
    assert world.order("a", "b", "c") == ["a", "c", "b"]


def test_using_what_one_has_no_part_of_is_standing_last():
    """The GPUs are all guaranteed to a: whoever borrowed one comes after those that did not."""
    world = World(
        (4, 100),
        a={"uses": (4, 0), "wants": (4, 0), "guarantee": (4, 0)},
        b={"uses": (0, 50), "wants": (2, 50)},
        c={"uses": (1, 0), "wants": (2, 50)},
    )
    assert world.entitled() == {"a": (4, 0), "b": (0, 50), "c": (0, 50)}
    assert world.order("a", "b", "c") == ["a=b", "c"]


def test_of_what_is_not_in_service_nobody_uses_too_much():
    """A gang runs on a cordoned node of the only kind of its sort; its queue is judged by the rest."""
    world = World((10, 0), a={"uses": (1, 5), "wants": (9, 0)}, b={"uses": (2, 0), "wants": (9, 0)})
    assert world.order("a", "b") == ["a", "b"]


def test_a_cluster_with_nothing_in_service_still_has_an_order():
    world = World(0, a={"uses": 3, "wants": 1}, b={"wants": 1}, c={"wants": 1, "guarantee": 1})
    assert world.order("a", "b", "c") == ["c", "a=b"]


def test_one_kind_short_is_not_below_the_guarantee_when_another_is_used_up():
    """All guaranteed GPUs are in use and CPUs are left: more GPUs are borrowed, and borrowing has no precedence."""
    a = {"uses": (4, 4), "wants": (4, 4), "guarantee": (4, 50)}
    world = World((10, 100), a=a, b={"uses": (1, 1), "wants": (9, 9)})
    assert world.order("a", "b") == ["b", "a"]


def test_a_used_up_kind_that_nobody_waits_for_does_not_count():
    """The guaranteed CPUs are used up, but what waits asks for GPUs alone."""
    a = {"uses": (1, 50), "wants": (4, 0), "guarantee": (4, 50)}
    world = World((10, 100), a=a, b={"uses": (1, 1), "wants": (9, 9)})
    assert world.order("a", "b") == ["a", "b"]


def test_a_guarantee_of_what_nobody_waits_for_gives_no_precedence():
    a = {"uses": (0, 30), "wants": (0, 80), "guarantee": (4, 0)}
    world = World((10, 100), a=a, b={"uses": (0, 10), "wants": (0, 80)})
    assert world.order("a", "b") == ["b", "a"]


def test_a_queue_that_only_runs_is_below_its_guarantee_too():
    """Its elastic gangs may want to grow."""
    world = World(20, a={"uses": 3, "guarantee": 4}, b={"wants": 20})
    assert world.order("a", "b") == ["a", "b"]


def test_levels_are_compared_from_the_root():
    """Inside p a has had nothing, but p as a whole has had more than q."""
    world = World(
        12,
        p={},
        q={"uses": 3, "wants": 20},
        a={"above": "p", "wants": 20},
        b={"above": "p", "uses": 4, "wants": 20},
    )
    assert world.order("a", "b", "q") == ["q", "a", "b"]


def test_a_tie_above_is_decided_below():
    world = World(
        12,
        p={},
        q={},
        a={"above": "p", "uses": 1, "wants": 20},
        b={"above": "p", "uses": 2, "wants": 20},
        c={"above": "q", "uses": 3, "wants": 20},
        d={"above": "q", "wants": 20},
    )
    assert world.order("a", "b", "c", "d") == ["d", "a", "b", "c"]


def test_a_shallow_queue_stands_as_its_own_only_child():
    """All have had nothing: nobody comes first for being nearer to the root. Then one of p's children has."""
    world = World(12, p={}, q={"wants": 20}, a={"above": "p", "wants": 20}, b={"above": "p", "wants": 20})
    assert world.order("a", "b", "q") == ["a=b=q"]
    standing = world.standing()
    for name in ("a", "q"):
        standing.charge(world.names.index(name), world.units(1))
    assert world.order("a", "b", "q", standing=standing) == ["b", "q", "a"]


def test_own_gangs_of_a_queue_stand_among_its_children():
    world = World(
        12,
        p={"uses": 2, "wants": 20},
        a={"above": "p", "uses": 1, "wants": 20},
        b={"above": "p", "uses": 3, "wants": 20},
    )
    assert world.order("p", "a", "b") == ["a", "p", "b"]


def test_a_start_counts_all_the_way_up():
    world = World(12, p={}, q={"uses": 1, "wants": 20}, a={"above": "p", "wants": 20}, b={"above": "p", "wants": 20})
    standing = world.standing()
    assert world.order("a", "b", "q", standing=standing) == ["a=b", "q"]
    standing.charge(world.names.index("a"), world.units(2))
    assert world.order("a", "b", "q", standing=standing) == ["q", "b", "a"]
    standing.charge(world.names.index("q"), world.units(2))
    assert world.order("a", "b", "q", standing=standing) == ["b", "a", "q"]
    standing.charge(world.names.index("q"), world.units(-3))
    assert world.order("a", "b", "q", standing=standing) == ["q", "b", "a"]
    assert world.queues.usage[world.names.index("a")].tolist() == [0], "the snapshot is not ours to change"


def test_history_counts_in_the_ratio_only():
    world = World(12, a={"uses": 1, "wants": 20}, b={"uses": 2, "wants": 20})
    assert world.order("a", "b") == ["a", "b"]
    assert world.order("a", "b", history={"a": 4}) == ["b", "a"]
    world = World(12, a={"uses": 1, "wants": 20, "guarantee": 2}, b={"uses": 1, "wants": 20})
    assert world.order("a", "b", history={"a": 40}) == ["a", "b"]


def test_a_root_alone():
    world = World(4)
    assert world.standing().key(0) == ()
    assert world.entitled() == {}


# ---------------------------------------------------------------------- reclaim

TWO = {"a": {"wants": 8, "guarantee": 4}, "b": {"uses": 8, "guarantee": 4}}


@pytest.mark.parametrize(
    ("asked", "given", "expected"),
    [(4, 4, True), (5, 4, False), (4, 5, False), (1, 4, True)],
    ids=["up to both guarantees", "beyond the taker's", "below the victim's", "more than needed"],
)
def test_reclaim_restores_a_guarantee(asked, given, expected):
    assert World(8, **TWO).reclaim(may_reclaim, "a", asked, "b", given) is expected


def test_nobody_reclaims_from_their_own_queue():
    world = World(8, a={"uses": 8, "wants": 8, "guarantee": 12})
    for rule in (may_reclaim, may_reclaim_share):
        assert not world.reclaim(rule, "a", 1, "a", 1)


def test_without_any_guarantee_nobody_is_within_it():
    world = World(8, a={"wants": 8}, b={"uses": 8})
    assert not world.reclaim(may_reclaim, "a", 1, "b", 1)


def tree(**rest):
    """p above a and b, q above c; q has borrowed."""
    queues = {
        "p": {"guarantee": 4},
        "q": {"guarantee": 4},
        "a": {"above": "p", "wants": 8},
        "b": {"above": "p"},
        "c": {"above": "q", "uses": 8},
    }
    return World(8, **{name: spec | rest.get(name, {}) for name, spec in queues.items()})


def test_a_queue_without_a_guarantee_counts_by_the_nearest_above():
    assert tree().reclaim(may_reclaim, "a", 4, "c", 4)
    assert not tree().reclaim(may_reclaim, "a", 5, "c", 4)
    assert not tree(b={"uses": 1}).reclaim(may_reclaim, "a", 4, "c", 4)
    assert tree(b={"uses": 1}).reclaim(may_reclaim, "a", 3, "c", 4)


def test_every_guarantee_below_the_common_ancestor_holds():
    assert not tree(a={"guarantee": 2}).reclaim(may_reclaim, "a", 3, "c", 4)
    assert tree(a={"guarantee": 2}).reclaim(may_reclaim, "a", 2, "c", 4)
    assert not tree(c={"guarantee": 6}).reclaim(may_reclaim, "a", 3, "c", 3)
    assert not tree(a={"guarantee": 4}, b={"uses": 2}).reclaim(may_reclaim, "a", 4, "c", 4)


def test_a_queue_between_that_promises_nothing_says_nothing():
    world = tree(p={"guarantee": 0}, a={"guarantee": 4})
    assert world.reclaim(may_reclaim, "a", 4, "c", 4)
    assert not world.reclaim(may_reclaim, "a", 5, "c", 4)


def test_inside_one_parent_its_guarantee_is_for_those_that_have_none():
    """b has a guarantee of its own and exceeds it; a has none and lives on p's, as long as p is within it."""
    within = World(8, p={"guarantee": 4}, a={"above": "p", "wants": 4}, b={"above": "p", "uses": 4, "guarantee": 1})
    assert within.reclaim(may_reclaim, "a", 3, "b", 3)
    assert not within.reclaim(may_reclaim, "a", 3, "b", 4)
    beyond = World(8, p={"guarantee": 4}, a={"above": "p", "wants": 4}, b={"above": "p", "uses": 5, "guarantee": 1})
    assert not beyond.reclaim(may_reclaim, "a", 3, "b", 3)


def test_what_is_free_must_not_carry_the_parent_beyond_its_guarantee():
    """3 for 3 leaves p where it is; with one more from free room it would end above."""
    world = World(8, p={"guarantee": 4}, a={"above": "p", "wants": 4}, b={"above": "p", "uses": 4, "guarantee": 1})
    standing, a, b = world.standing(), world.names.index("a"), world.names.index("b")
    assert may_reclaim_set(standing, a, world.units(3), [(b, world.units(3))])
    assert not may_reclaim_set(standing, a, world.units(4), [(b, world.units(3))])


def test_a_guarantee_speaks_of_the_kinds_it_names():
    world = World((8, 96), a={"wants": (8, 96), "guarantee": (4, 0)}, b={"uses": (8, 96), "guarantee": (4, 0)})
    assert world.reclaim(may_reclaim, "a", (4, 48), "b", (4, 48))
    assert not world.reclaim(may_reclaim, "a", (5, 48), "b", (4, 48))
    assert not world.reclaim(may_reclaim, "a", (0, 48), "b", (0, 48))


def test_only_what_is_given_can_be_missing():
    """The victim is below its guarantee of CPUs already; that protects none of its GPUs."""
    world = World((8, 96), a={"wants": (4, 0), "guarantee": (4, 0)}, b={"uses": (8, 1), "guarantee": (4, 9)})
    assert world.reclaim(may_reclaim, "a", (4, 0), "b", (4, 0))
    assert not world.reclaim(may_reclaim, "a", (4, 0), "b", (4, 1))


def test_earlier_takings_count():
    world = World(8, **TWO)
    standing = world.standing()
    four, two = world.units(4), world.units(2)
    assert may_reclaim(standing, 1, four, 2, two)
    standing.charge(2, -two)
    assert may_reclaim(standing, 1, four, 2, two)
    standing.charge(2, -two)
    assert not may_reclaim(standing, 1, four, 2, world.units(1))


def test_several_victims_are_judged_together():
    world = tree(p={"guarantee": 4}, b={"uses": 2}, c={"uses": 6})
    a, b, c = (world.names.index(name) for name in "abc")
    standing = world.standing()
    before = [standing.key(queue) for queue in range(len(world.names))]
    four, two = world.units(4), world.units(2)
    assert not may_reclaim(standing, a, four, c, two), "p would be at 6 of 4"
    assert not may_reclaim_set(standing, a, four, [(c, two), (b, two)]), "b shares p's guarantee and could swap back"
    assert not may_reclaim_set(standing, a, four, [(c, two + 1), (b, two)])
    assert not may_reclaim_set(standing, a, four, [(b, world.units(1)), (c, two)])
    assert not may_reclaim_set(standing, a, four, [(a, two), (c, two)])
    assert [standing.key(queue) for queue in range(len(world.names))] == before


# ---------------------------------------------------------------------- reclaim of shares


def test_the_share_may_be_taken_back_by_option():
    world = World(8, a={"wants": 8}, b={"uses": 8})
    assert world.reclaim(may_reclaim_share, "a", 4, "b", 4)
    assert not world.reclaim(may_reclaim_share, "a", 5, "b", 4)
    assert not world.reclaim(may_reclaim_share, "a", 4, "b", 5)
    assert not world.reclaim(may_reclaim, "a", 4, "b", 4)
    assert may_reclaim_set(world.standing(), 1, world.units(4), [(2, world.units(4))], share=True)
    assert not may_reclaim_set(world.standing(), 1, world.units(4), [(2, world.units(4))])
    assert not may_reclaim_set(
        world.standing(), 1, world.units(4), [(2, world.units(3)), (2, world.units(2))], share=True
    )


def test_what_there_is_enough_of_goes_along():
    """GPUs are short and memory is not: the victim keeps its share of GPUs, and nobody counts the memory."""
    world = World((8, 1000), a={"wants": (8, 80)}, b={"uses": (8, 80)})
    assert world.reclaim(may_reclaim_share, "a", (4, 40), "b", (4, 40))
    assert not world.reclaim(may_reclaim_share, "a", (4, 40), "b", (5, 50))


def test_where_there_is_enough_nobody_has_too_much():
    """Everything would fit, if only the free room were in one place."""
    world = World(16, a={"wants": 4}, b={"uses": 8})
    assert not world.reclaim(may_reclaim_share, "a", 4, "b", 4)


def test_the_guarantee_is_restored_under_that_option_too():
    """b was entitled to keep more than its guarantee; a's guarantee comes first."""
    world = World(8, a={"wants": 4, "guarantee": 4}, b={"uses": 8})
    assert world.reclaim(may_reclaim_share, "a", 4, "b", 4)
    assert world.reclaim(may_reclaim_share, "a", 4, "b", 8)


def test_shares_hold_level_by_level():
    """q exceeds its share because of c; d, inside q, does not."""
    world = World(
        8,
        p={"wants": 8},
        q={},
        c={"above": "q", "uses": 6, "wants": 2},
        d={"above": "q", "uses": 2, "wants": 2},
    )
    assert world.entitled() == {"p": 4, "q": 4, "c": 2, "d": 2}
    assert world.reclaim(may_reclaim_share, "p", 4, "c", 4)
    assert not world.reclaim(may_reclaim_share, "p", 1, "d", 1)


def test_the_share_of_the_parent_holds_for_the_taker_too():
    """Of p's 4 its other child has 3: a may have one more from q, and from b, above its share, two."""
    world = World(
        8,
        p={},
        q={"uses": 5, "wants": 8},
        a={"above": "p", "wants": 8},
        b={"above": "p", "uses": 3, "wants": 8},
    )
    assert world.entitled() == {"p": 4, "q": 4, "a": 2, "b": 2}
    assert world.reclaim(may_reclaim_share, "a", 1, "q", 1)
    assert not world.reclaim(may_reclaim_share, "a", 2, "q", 1)
    assert world.reclaim(may_reclaim_share, "a", 2, "b", 1)


def test_children_share_even_if_their_parent_has_too_much():
    world = World(8, p={}, q={"wants": 8}, a={"above": "p", "wants": 8}, b={"above": "p", "uses": 8, "wants": 8})
    assert world.entitled() == {"p": 4, "q": 4, "a": 2, "b": 2}
    assert world.reclaim(may_reclaim_share, "a", 2, "b", 6)


def test_a_limit_that_was_lowered_keeps_nobody_from_giving():
    """c may use 2 and uses 8, so inside q nobody wants for anything; a does."""
    world = World(8, q={}, a={"wants": 8}, c={"above": "q", "uses": 8, "limit": 2})
    assert world.entitled() == {"q": 2, "a": 6, "c": 2}
    assert world.reclaim(may_reclaim_share, "a", 6, "c", 6)
    assert not world.reclaim(may_reclaim_share, "a", 6, "c", 7)


def test_a_guarantee_holds_of_what_there_is_enough_of():
    world = World((8, 1000), a={"wants": (8, 80)}, b={"uses": (8, 80), "guarantee": (0, 50)})
    assert world.reclaim(may_reclaim_share, "a", (3, 30), "b", (3, 30))
    assert not world.reclaim(may_reclaim_share, "a", (4, 40), "b", (4, 40))


# ---------------------------------------------------------------------- surplus


def test_surplus_is_taken_down_to_the_guarantee():
    world = World(8, **TWO)
    assert leaves_guarantee(world.standing(), 1, 2, world.units(4))
    assert not leaves_guarantee(world.standing(), 1, 2, world.units(5))


def test_inside_a_queue_surplus_changes_hands_freely():
    world = World(8, **TWO)
    assert leaves_guarantee(world.standing(), 2, 2, world.units(8))


def test_what_stays_below_the_common_ancestor_leaves_its_guarantee_alone():
    world = World(8, p={"guarantee": 8}, a={"above": "p", "wants": 4}, b={"above": "p", "uses": 8}, c={"wants": 1})
    standing = world.standing()
    a, b, c = (world.names.index(name) for name in "abc")
    assert leaves_guarantee(standing, a, b, world.units(4))
    assert not leaves_guarantee(standing, c, b, world.units(1))

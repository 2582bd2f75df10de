"""Entitlement and standing against a slow reading of the same sentences in fractions, on random trees."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from phalanx.engine.fairshare import (
    Standing,
    compute_entitlement,
    leaves_guarantee,
    may_reclaim,
    may_reclaim_set,
    may_reclaim_share,
)
from phalanx.model.snapshot import QueueColumns

#: Few values, so that ties and exact fits are common, and two that no float and no 64 bits times a weight can hold.
AMOUNTS = st.sampled_from([0, 0, 1, 2, 3, 4, 5, 7, 10, 1 << 49, (1 << 49) + 1])


@dataclass(frozen=True)
class World:
    """What the functions are given."""

    queues: QueueColumns
    capacity: np.ndarray
    demand: np.ndarray

    @property
    def count(self):
        return len(self.queues.parent)

    @cached_property
    def children(self):
        parent = self.queues.parent.tolist()
        return [[q for q in range(self.count) if parent[q] == above] for above in range(self.count)]

    def standing(self, history=None):
        return Standing(self.queues, self.capacity, self.demand, history)

    def entitlement(self):
        return compute_entitlement(self.queues, self.capacity, self.demand)


def sum_up(parent, own):
    """Amounts of queues with everything below them."""
    total = own.copy()
    for queue in range(len(parent) - 1, 0, -1):
        total[parent[queue]] += total[queue]
    return total


@st.composite
def worlds(draw, amounts=AMOUNTS, promises=AMOUNTS, *, leaves_only=False):
    count, kinds = draw(st.integers(1, 7)), draw(st.integers(1, 2))
    parent = [-1] + [draw(st.integers(0, queue - 1)) for queue in range(1, count)]

    def table(cells):
        return np.array([[draw(cells) for _ in range(kinds)] for _ in range(count)], dtype=np.int64)

    usage, wants, limit, guarantee = table(amounts), table(amounts), table(amounts), table(promises)
    if leaves_only:
        usage[sorted(set(parent) - {-1})] = wants[sorted(set(parent) - {-1})] = 0
    limit[0] = -1
    limited = np.array([[draw(st.integers(0, 3)) == 0 for _ in range(kinds)] for _ in range(count)])
    guarantee[np.array([draw(st.booleans()) for _ in range(count)])] = 0
    guarantee[0] = 0
    queues = QueueColumns(
        names=tuple(f"q{queue}" for queue in range(count)),
        parent=np.array(parent, dtype=np.int32),
        weight=np.array([draw(st.sampled_from([1, 1, 2, 3, 10, 999_983])) for _ in range(count)], dtype=np.int64),
        guarantee=guarantee,
        limit=np.where(limited, limit, -1),
        usage=sum_up(parent, usage),
        decayed=np.zeros_like(usage),
    )
    capacity = np.array([draw(amounts) for _ in range(kinds)], dtype=np.int64)
    return World(queues, capacity, sum_up(parent, usage + wants))


# ---------------------------------------------------------------------- the slow reading


class Slow:
    """Rule 11 as one would do it on paper: a recursion over a tree whose gangs are all in leaves.

    Leaves are numbered like their queues; the own gangs of a queue q above others are the leaf ~q.
    """

    def __init__(self, world, history=None):
        self.world = world
        self.below = {q: [*world.children[q], ~q] if world.children[q] else [] for q in range(world.count)}
        self.kinds = range(len(world.capacity))
        self.history = np.zeros_like(world.queues.usage) if history is None else history
        self.entitled = {0: world.capacity.tolist()}
        self.share_out(0)

    def own(self, table, q):
        if q >= 0:
            return table[q].tolist()
        return (table[~q] - table[self.world.children[~q]].sum(axis=0)).tolist()

    def guarantee(self, q):
        return self.world.queues.guarantee[q].tolist() if q >= 0 else [0 for _ in self.kinds]

    def weight(self, q):
        return int(self.world.queues.weight[q]) if q >= 0 else 1

    def limit(self, q, kind):
        limit = int(self.world.queues.limit[q, kind]) if q >= 0 else -1
        return None if limit < 0 else limit

    def demand(self, q, kind):
        below = self.below.get(q)
        demand = sum(self.demand(child, kind) for child in below) if below else self.own(self.world.demand, q)[kind]
        limit = self.limit(q, kind)
        return demand if limit is None else min(demand, limit)

    def share_out(self, above):
        below = self.below.get(above)
        if not below:
            return
        self.entitled |= {q: [0 for _ in self.kinds] for q in below}
        for kind in self.kinds:
            floors, demands = {}, {q: self.demand(q, kind) for q in below}
            for q in below:
                limit = self.limit(q, kind)
                floors[q] = self.guarantee(q)[kind] if limit is None else min(self.guarantee(q)[kind], limit)
            remainder = self.entitled[above][kind] - sum(min(floors[q], demands[q]) for q in below)
            wants = {q: max(0, demands[q] - floors[q]) for q in below}
            poured = pour(max(remainder, 0), wants, {q: self.weight(q) for q in below})
            for q in below:
                self.entitled[q][kind] = floors[q] + poured[q]
        for q in below:
            self.share_out(q)

    def level(self, q, usage):
        """Tier, whether entitled to nothing, ratio."""
        now, entitled, guarantee = self.own(usage, q), self.entitled[q], self.guarantee(q)
        first, demand = self.own(self.world.queues.usage, q), [self.demand(q, kind) for kind in self.kinds]
        waited = [kind for kind in self.kinds if demand[kind] > first[kind]]
        if not waited:
            waited = [kind for kind in self.kinds if demand[kind] > 0]
        promised = [kind for kind in waited if guarantee[kind] > 0]
        below = promised != [] and all(now[kind] < guarantee[kind] for kind in promised)
        past, has = self.own(self.history, q), self.world.capacity.tolist()
        foreign = any(now[kind] > 0 and entitled[kind] == 0 and has[kind] > 0 for kind in self.kinds)
        if foreign or not any(entitled):
            shares = [Fraction(now[kind] + past[kind], has[kind]) for kind in self.kinds if has[kind]]
            return (not below, True, max(shares, default=Fraction(0)) / self.weight(q))
        ratios = [Fraction(now[kind] + past[kind], entitled[kind]) for kind in self.kinds if entitled[kind]]
        return (not below, False, max(ratios))

    def levels(self, q, usage):
        """From below the root down to the leaf of the queue's own gangs, repeated to the depth of any tree here."""
        path = [~q] if self.below[q] else [q]
        while (above := int(self.world.queues.parent[path[0]]) if path[0] >= 0 else ~path[0]) > 0:
            path.insert(0, above)
        levels = [self.level(row, usage) for row in path if row != 0]
        return levels + levels[-1:] * (self.world.count + 1 - len(levels))


def pour(left, wants, weights):
    """Raise one level until nothing is left or everybody has what they want; then round by the largest fraction."""
    level, drinking = Fraction(0), {q for q in wants if wants[q]}
    while drinking:
        step = min(Fraction(wants[q], weights[q]) for q in drinking)
        used = sum(min(Fraction(wants[q]), step * weights[q]) for q in wants)
        if used > left:
            dry = sum(wants[q] for q in wants if q not in drinking)
            level = Fraction(left - dry, sum(weights[q] for q in drinking))
            break
        level = step
        drinking = {q for q in drinking if Fraction(wants[q], weights[q]) > step}
    exact = {q: min(Fraction(wants[q]), level * weights[q]) for q in wants}
    whole = {q: share.numerator // share.denominator for q, share in exact.items()}
    spare = min(left, sum(wants.values())) - sum(whole.values())
    # Own gangs (negative) are the last of the siblings; dictionaries keep the order of the children.
    lucky = sorted(wants, key=lambda q: whole[q] - exact[q])[:spare]
    return {q: whole[q] + (q in lucky) for q in wants}


# ---------------------------------------------------------------------- entitlement


@given(world=worlds())
def test_entitlement_is_what_one_finds_on_paper(world):
    slow = Slow(world)
    assert world.entitlement().tolist() == [slow.entitled[q] for q in range(world.count)]


@given(world=worlds())
def test_guarantee_and_limit_and_demand_bound_it(world):
    entitled, slow = world.entitlement(), Slow(world)
    for queue in range(1, world.count):
        for kind in slow.kinds:
            floor, limit = int(world.queues.guarantee[queue, kind]), slow.limit(queue, kind)
            ceiling = max(floor, slow.demand(queue, kind))
            if limit is not None:
                floor, ceiling = min(floor, limit), min(ceiling, limit)
            assert floor <= entitled[queue, kind] <= ceiling


@given(world=worlds(leaves_only=True))
def test_nobody_hands_out_more_or_keeps_back_what_is_wanted(world):
    """What leaves a parent is what it has where more is wanted, and all that is wanted where it is not."""
    entitled, slow = world.entitlement(), Slow(world)
    for above, below in enumerate(world.children):
        for kind in slow.kinds if below else ():
            demand = {q: slow.demand(q, kind) for q in below}
            floor = {q: int(entitled[q, kind]) - min(int(entitled[q, kind]), demand[q]) for q in below}
            out = sum(int(entitled[q, kind]) - floor[q] for q in below)  # without what is promised and not wanted
            promised = sum(min(int(world.queues.guarantee[q, kind]), demand[q]) for q in below)
            assert out == max(min(int(entitled[above, kind]), sum(demand.values())), promised)


@given(world=worlds(), data=st.data())
def test_more_weight_is_never_less(world, data):
    assume(world.count > 1)
    queue = data.draw(st.integers(1, world.count - 1))
    weight = world.queues.weight.copy()
    weight[queue] += data.draw(st.sampled_from([1, 2, 5, 1000]))
    heavier = replace(world, queues=replace(world.queues, weight=weight))
    assert (heavier.entitlement()[queue] >= world.entitlement()[queue]).all()


# ---------------------------------------------------------------------- standing


@given(world=worlds(), data=st.data())
def test_standing_is_what_one_finds_on_paper(world, data):
    history = None
    if data.draw(st.booleans()):
        own = [[data.draw(AMOUNTS) for _ in world.capacity] for _ in range(world.count)]
        history = sum_up(world.queues.parent.tolist(), np.array(own, dtype=np.int64))
    fast, slow = world.standing(history), Slow(world, history)
    usage, parent = world.queues.usage.copy(), world.queues.parent.tolist()
    for _ in range(data.draw(st.integers(1, 4))):
        levels = [slow.levels(q, usage) for q in range(world.count)]
        for one in range(world.count):
            for other in range(world.count):
                assert fast.better(one, other) is (levels[one] < levels[other])
                assert (fast.key(one) == fast.key(other)) is (levels[one] == levels[other])
        queue = data.draw(st.integers(0, world.count - 1))
        units = np.array([data.draw(AMOUNTS) for _ in world.capacity], dtype=np.int64)
        fast.charge(queue, units)
        usage += sum_up(parent, np.where(np.arange(world.count)[:, None] == queue, units, 0))


@given(world=worlds(), data=st.data())
def test_a_start_never_makes_a_queue_stand_better(world, data):
    standing = world.standing()
    queue = data.draw(st.integers(0, world.count - 1))
    units = np.array([data.draw(AMOUNTS) for _ in world.capacity], dtype=np.int64)
    before, ahead = standing.key(queue), [standing.better(other, queue) for other in range(world.count)]
    keys = [standing.key(other) for other in range(world.count)]
    standing.charge(queue, units)
    assert standing.key(queue) >= before
    assert all(standing.better(other, queue) for other in range(world.count) if ahead[other])
    standing.charge(queue, -units)
    assert [standing.key(other) for other in range(world.count)] == keys


@given(weights=st.lists(st.integers(1, 3), min_size=2, max_size=4), data=st.data())
def test_turns_by_standing_keep_ratios_together(weights, data):
    """Served one unit a turn, nobody is ahead of another by more than the last turn it had."""
    count, capacity = len(weights), 6 * sum(weights)
    zeros = np.zeros((count + 1, 1), dtype=np.int64)
    queues = QueueColumns(
        names=("root", *"abcd"[:count]),
        parent=np.array([-1, *[0] * count], dtype=np.int32),
        weight=np.array([1, *weights]),
        guarantee=zeros,
        limit=zeros - 1,
        usage=zeros,
        decayed=zeros,
    )
    demand = np.array([[capacity * count], *[[capacity]] * count])
    standing, had = Standing(queues, np.array([capacity]), demand), [0] * count
    for _ in range(data.draw(st.integers(1, capacity))):
        turn = min(range(1, count + 1), key=standing.key)
        standing.charge(turn, np.array([1]))
        had[turn - 1] += 1
    for one in range(count):
        for other in range(count):
            assert Fraction(max(had[one] - 1, 0), weights[one]) <= Fraction(had[other], weights[other])


# ---------------------------------------------------------------------- taking


@st.composite
def takings(draw):
    """A world of small numbers, a taker with what it asks for, and victims with what they could give."""
    world = draw(worlds(st.sampled_from([0, 2, 4]), st.sampled_from([0, 2, 4, 8, 12])))
    assume(world.count > 2)
    world = replace(world, capacity=np.array([draw(st.integers(4, 16)) for _ in world.capacity]))
    taker = draw(st.integers(1, world.count - 1))
    asked = np.array([draw(st.integers(0, 2)) for _ in world.capacity], dtype=np.int64)
    asked[0] += 1
    victims = []
    for victim in draw(st.lists(st.integers(0, world.count - 1), min_size=1, max_size=2, unique=True)):
        own = world.queues.usage[victim] - world.queues.usage[world.children[victim]].sum(axis=0)
        victims.append((victim, np.array([draw(st.integers(0, int(units))) for units in own])))
    return world, taker, asked, victims


def way_up(world, queue):
    """The queue, then those above it."""
    chain = [queue]
    while (above := int(world.queues.parent[chain[-1]])) >= 0:
        chain.append(above)
    return chain


def side(world, queue, other):
    """The queue and those above it as long as they are not above the other queue as well."""
    return [row for row in way_up(world, queue) if row not in way_up(world, other)]


def after_all(world, changes):
    usage = world.queues.usage.copy()
    for queue, units in changes:
        usage[way_up(world, queue)] += units
    return usage


def named(world, row, units):
    """Kinds of these that a queue has a guarantee of."""
    return np.flatnonzero((world.queues.guarantee[row] > 0) & (units > 0)).tolist()


def slow_within(world, taker, asked, victim, usage, common):
    """Rule 9, the taker's half: `usage` with its start, `common` where both sides meet."""
    guarantee = world.queues.guarantee
    promised = [row for row in side(world, taker, victim) if named(world, row, asked)]
    if promised:
        return all(usage[row, kind] <= guarantee[row, kind] for row in promised for kind in named(world, row, asked))
    if not any(named(world, row, asked) for row in side(world, victim, taker)):
        return False  # a guarantee that both share, or none: the victim could demand it back at once
    for row in way_up(world, taker):
        if named(world, row, asked):
            return all(common[row, kind] <= guarantee[row, kind] for kind in named(world, row, asked))
    return False


def slow_keeps(world, taker, victim, units, usage):
    """Rule 9, the victim's half."""
    return all(
        usage[row, kind] >= world.queues.guarantee[row, kind]
        for row in side(world, victim, taker)
        for kind in named(world, row, units)
    )


def slow_reclaim(world, taker, asked, victims):
    """All victims together, as everything stands in the end."""
    end = after_all(world, [(taker, asked), *((victim, -units) for victim, units in victims)])
    return all(
        victim != taker
        and slow_within(world, taker, asked, victim, end, end)
        and slow_keeps(world, taker, victim, units, end)
        for victim, units in victims
    )


@given(taking=takings())
def test_reclaim_is_what_one_finds_on_paper(taking):
    world, taker, asked, victims = taking
    standing = world.standing()
    assert may_reclaim_set(standing, taker, asked, victims) is slow_reclaim(world, taker, asked, victims)
    victim, units = victims[0]
    less, more = after_all(world, [(victim, -units)]), after_all(world, [(taker, asked)])
    keeps = slow_keeps(world, taker, victim, units, less)
    within = slow_within(world, taker, asked, victim, more, world.queues.usage)
    assert may_reclaim(standing, taker, asked, victim, units) is (victim != taker and within and keeps)
    assert leaves_guarantee(standing, taker, victim, units) is keeps


@given(taking=takings(), share=st.booleans())
def test_nothing_is_taken_below_a_guarantee(taking, share):
    world, taker, asked, victims = taking
    before, guarantee = world.queues.usage, world.queues.guarantee
    if may_reclaim_set(world.standing(), taker, asked, victims, share=share):
        end = after_all(world, [(taker, asked), *((victim, -units) for victim, units in victims)])
        for victim, _ in victims:
            rows = side(world, victim, taker)
            assert (end[rows] >= np.minimum(before[rows], guarantee[rows])).all()


@given(taking=takings())
def test_the_share_may_be_taken_and_no_more(taking):
    """By the option both sides end at their entitlement or nearer to it, unless a guarantee is restored."""
    world, taker, asked, victims = taking
    standing, entitled = world.standing(), world.entitlement()
    restored = may_reclaim_set(standing, taker, asked, victims)
    evened = may_reclaim_set(standing, taker, asked, victims, share=True)
    assert evened or not restored
    for victim, units in victims:
        if may_reclaim(standing, taker, asked, victim, units):
            assert may_reclaim_share(standing, taker, asked, victim, units)
    if evened and not restored and len(victims) == 1:
        victim, units = victims[0]
        end = after_all(world, [(taker, asked), (victim, -units)])
        rows = side(world, taker, victim)
        assert (end[rows] <= entitled[rows])[:, asked > 0].all()
        for row in side(world, victim, taker)[-1:]:  # what its parent divides among the two sides
            assert (end[row] >= entitled[row])[units > 0].any()


def test_the_slow_reading_pours_as_one_would():
    assert pour(10, {1: 99, 2: 99, 3: 99}, {1: 1, 2: 1, 3: 1}) == {1: 4, 2: 3, 3: 3}
    assert pour(12, {1: 1, 2: 20, 3: 20}, {1: 1, 2: 1, 3: 1}) == {1: 1, 2: 6, 3: 5}
    levels = [pour(left, {1: 2, 2: 9}, {1: 1, 2: 2}) for left in range(12)]
    assert all(a[1] <= b[1] and a[2] <= b[2] for a, b in pairwise(levels))

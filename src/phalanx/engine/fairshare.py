"""Who is entitled to what, and whose turn that makes it.

Decides three things about queues, from columns and nothing else: their entitlement, their standing (the order of
turns, which changes with every start of a plan) and who may take from whom across queues. Which gang, which seats and
at what cost is for the caller (`engine.making_room`). The rules are 9 (who may evict) and 11 (entitlement).

In the words of others: an entitlement is Kueue's share in the cohort, KAI's fair share and Volcano's `deserved`; a
standing is Slurm's fair-share factor, but of what is in use now; the ratio is that of dominant resource fairness (DRF,
Ghodsi et al. 2011), weighted and hierarchical. Dividing what is left is max-min water-filling.

Amounts are turned into Python integers at the door: a weight times an amount passes 64 bits, and for the few dozen
cells of a tenant tree plain loops are quicker than NumPy.

Where the rule leaves a choice:

- A queue above others may hold gangs of its own. They stand beside its children as one more child of weight 1, without
  guarantee or limit; otherwise they would always, or never, come before everything below.
- What a limit forbids is no demand, neither for the queue nor for those above it.
- An unused guarantee is lent, not lost: entitlement never falls below the guarantee (or the limit, if that is less),
  while only min(guarantee, demand) leaves the remainder. So siblings may be entitled to more than their parent has, and
  without demand entitlement is the guarantee. Guarantees beyond what the parent has stay, and the remainder is 0.
- Shares are whole units by the largest fraction, equal fractions by the lowest index. Weight 0 never gets a share.
- Below its guarantee is a queue that uses less than it in every guaranteed kind that it waits for (if it waits for
  nothing: that it uses). One kind below is not enough: a generous guarantee of CPUs would let a queue whose GPUs are
  all in use borrow more of them before everybody else, forever.
- Usage ÷ entitlement is the largest over the kinds with an entitlement. To use a kind without being entitled to any of
  it is to stand with entitlement 0. Usage ÷ weight is the largest share of what the cluster has, ÷ weight.
- Where the tree ends sooner, a queue stands as if it were its own only child, which would have the same ratio. If it
  simply came first, a flat queue would win every tie against a deep one, whatever the gangs' priorities.
- History counts in these two ratios only: a guarantee is about now.
- A guarantee speaks of the kinds that it names. A gang that asks for GPUs and CPUs is within a guarantee of GPUs if its
  GPUs are; one that asks for nothing that is guaranteed is not within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import QueueColumns

#: Smaller is better; one (rank, ratio) for every level below the root.
StandingKey = tuple[tuple[int, int], ...]

_Amounts = list[int]  # by kind

_UNLIMITED = 1 << 80

# Ranks at one level: below its guarantee or not, times entitled to something, by weight only, or by usage only.
_RANKS_PER_TIER = 3


@dataclass(frozen=True, slots=True)
class _Tree:
    """Rows of the tenant tree: first the queues, then one row for the own gangs of each queue above others."""

    parent: tuple[int, ...]  # by row; -1 for the root
    children: tuple[tuple[int, ...], ...]  # by row
    path: tuple[tuple[int, ...], ...]  # by queue: rows from below the root down to where its own gangs are
    branch: tuple[tuple[int, ...], ...]  # by queue: queues whose standing changes with its usage
    depth: int  # levels below the root


@lru_cache(maxsize=64)
def _grow_tree(parent: tuple[int, ...]) -> _Tree:
    # Trees hardly ever change, and a cycle must not pay for laying one out: hence a cache, by the parents alone.
    inner = sorted(set(parent) - {-1})
    rows = (*parent, *inner)
    # Queues 0 root, 1 a, 2 b, 3 a/x with parents (-1, 0, 0, 1): root and a stand above others, so two more rows, 4 for
    # root's own gangs and 5 for a's. The path of a is (1, 5), that of a/x is (1, 3), that of b is (2).
    children: list[list[int]] = [[] for _ in rows]
    for row, above in enumerate(rows):
        if above >= 0:
            children[above].append(row)
    own = {queue: len(parent) + place for place, queue in enumerate(inner)}
    paths: list[tuple[int, ...]] = []
    for queue in range(len(parent)):
        path = [row] if (row := own.get(queue, queue)) != 0 else []  # a root without children has no level at all
        while path and rows[path[-1]] > 0:
            path.append(rows[path[-1]])
        paths.append(tuple(reversed(path)))
    tops = [path[0] if path else -1 for path in paths]
    # A charge changes the ratio of every row on its path, and with that the keys of all queues below the topmost one.
    branch = tuple(tuple(queue for queue, top in enumerate(tops) if top == mine) for mine in tops)
    return _Tree(rows, tuple(map(tuple, children)), tuple(paths), branch, max(map(len, paths)))


class _Rows:
    """The columns of the tree as lists of integers by row and kind."""

    def __init__(self, queues: QueueColumns, capacity: IntArray, demand: IntArray) -> None:
        """Give the own gangs of queues above others their rows, and let limits cut demand from below."""
        self.tree = tree = _grow_tree(tuple(queues.parent.tolist()))
        own, kinds = len(tree.parent) - len(queues.parent), len(capacity)
        self.capacity: _Amounts = capacity.tolist()
        self.weight: _Amounts = queues.weight.tolist() + [1] * own
        self.guarantee: list[_Amounts] = queues.guarantee.tolist() + [[0] * kinds] * own
        unlimited = [_UNLIMITED] * kinds
        self.limit = [[_UNLIMITED if cell < 0 else cell for cell in row] for row in queues.limit.tolist()]
        self.limit += [unlimited] * own
        self.usage = self.spread(queues.usage)
        self.demand = self.spread(demand)
        # From below: what a child may not have because of its own limit is no demand of its parent either.
        for row in self._bottom_up():
            below = tree.children[row]
            wanted = [sum(column) for column in zip(*(self.demand[child] for child in below), strict=True)]
            self.demand[row] = list(map(min, wanted if below else self.demand[row], self.limit[row]))

    def spread(self, amounts: IntArray) -> list[_Amounts]:
        """Amounts of queues and everything below them, with those of own gangs told apart."""
        cells: list[_Amounts] = amounts.tolist()
        for above in self.tree.parent[len(cells) :]:
            below = [cells[child] for child in self.tree.children[above] if child < len(amounts)]
            # A queue's column has everything below it inside; its own gangs are what the children leave of it.
            cells.append([max(whole - sum(part), 0) for whole, *part in zip(cells[above], *below, strict=True)])
        return cells

    def _bottom_up(self) -> Iterable[int]:
        """Rows with everything below a row before it."""
        queues = len(self.tree.path)
        yield from range(queues, len(self.tree.parent))
        yield from range(queues - 1, -1, -1)


def compute_entitlement(queues: QueueColumns, capacity: IntArray, demand: IntArray) -> IntArray:
    """What each queue is entitled to of each kind, given what is in service and what everybody could use."""
    entitled = _share_out(_Rows(queues, capacity, demand))
    return np.array(entitled[: len(queues.parent)], dtype=np.int64).reshape(queues.usage.shape)


def _share_out(rows: _Rows) -> list[_Amounts]:
    """Entitlement of every row and kind, from the root down; the root's is what the cluster has."""
    # 100 GPUs, weights 1: a is guaranteed 40 and wants 90, b is guaranteed 20 and wants 10, c wants 60. What is left,
    # 100 - 40 - 10 = 50, goes to a (who wants 50 more) and c, 25 each. Entitled: a to 65, b to 20, c to 25.
    entitled = [list(rows.capacity) for _ in rows.tree.parent]
    for above, below in enumerate(rows.tree.children):  # parents come before children
        if not below:
            continue
        for kind, available in enumerate(entitled[above]):
            floors = [min(rows.guarantee[row][kind], rows.limit[row][kind]) for row in below]
            wants = [rows.demand[row][kind] for row in below]
            # Only the part of a guarantee that is wanted is set aside; the rest of it is lent, and can be reclaimed.
            left = available - sum(map(min, floors, wants))
            more = [max(want - floor, 0) for want, floor in zip(wants, floors, strict=True)]
            shares = _fill(left, more, [rows.weight[row] for row in below])
            for row, floor, share in zip(below, floors, shares, strict=True):
                entitled[row][kind] = floor + share
    return entitled


def _fill(left: int, wants: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Pour what is left over those who want, by weight, nobody getting more than they want."""
    # Progressive filling: 30 over wants of 5, 20 and 20, weights 1. A level of 10 sates the first, who leaves 25 to
    # the others: 12 and a half each, in whole units 13 and 12.
    shares = [0] * len(wants)
    thirsty = [place for place, want in enumerate(wants) if want > 0 and weights[place] > 0]
    while thirsty and left > 0:
        total = sum(weights[place] for place in thirsty)
        # want <= left * weight / total, multiplied out: integers decide, or two machines might disagree about a unit.
        sated = [place for place in thirsty if wants[place] * total <= left * weights[place]]
        if not sated:
            parts = [divmod(left * weights[place], total) for place in thirsty]
            for place, (whole, _) in zip(thirsty, parts, strict=True):
                shares[place] = whole
            # Whoever gets one unit more still wants it: its exact share was below what it wants, which is whole.
            spare = left - sum(whole for whole, _ in parts)
            by_fraction = sorted(range(len(parts)), key=lambda index: -parts[index][1])  # stable: lowest index first
            for index in by_fraction[:spare]:
                shares[thirsty[index]] += 1
            break
        # The level only rises from here, so all who are sated at this one are done.
        for place in sated:
            shares[place] = wants[place]
            left -= wants[place]
        thirsty = [place for place in thirsty if not shares[place]]
    return shares


class Standing:
    """Usage so far in this cycle against what everybody is entitled to."""

    def __init__(
        self, queues: QueueColumns, capacity: IntArray, demand: IntArray, history: IntArray | None = None
    ) -> None:
        """Start from the snapshot; nobody's entitlement changes with the starts of one plan."""
        self._rows = rows = _Rows(queues, capacity, demand)
        self._tree = rows.tree
        self._usage = rows.usage
        self._history = None if history is None else rows.spread(history)
        # Guarantees decide the tier, and the tier decides before any ratio (rule 11, standing).
        self._counted = [_find_counted_kinds(*row) for row in zip(rows.guarantee, rows.demand, rows.usage, strict=True)]
        self._keys: dict[int, StandingKey] = {}
        self._levels: dict[int, tuple[int, int]] = {}
        self._entitled: list[_Amounts] | None = None  # many cycles never ask
        self._scale = 0

    @property
    def entitled(self) -> list[_Amounts]:
        """Entitlement by row and kind; the rows of queues come first."""
        if self._entitled is None:
            self._entitled = _share_out(self._rows)
            # Two different fractions with denominators up to B are at least 1/B² apart, so that ratios times a number
            # above B², cut to integers, compare exactly as the fractions do, and far quicker.
            weighty = max(self._rows.weight, default=0) * max(self._rows.capacity, default=0)
            largest = max(weighty, max((max(row, default=0) for row in self._entitled), default=0))
            self._scale = 1 << (2 * largest.bit_length())
        return self._entitled

    def charge(self, queue: int, units: IntArray) -> None:
        """Count a start (or, negative, a taking) of this plan for the queue and all above."""
        more = units.tolist()
        for row in (0, *self._tree.path[queue]):
            self._usage[row] = [had + added for had, added in zip(self._usage[row], more, strict=True)]
            # Only rows on the path are worked out anew: a walk charges at every start and asks for all keys after it.
            self._levels.pop(row, None)
        for other in self._tree.branch[queue]:
            self._keys.pop(other, None)

    @contextmanager
    def trial(self) -> Iterator[Callable[[int, IntArray], None]]:
        """Charge at will inside the block; all of it is taken back at its end."""
        charged: list[tuple[int, IntArray]] = []

        def charge(queue: int, units: IntArray) -> None:
            self.charge(queue, units)
            charged.append((queue, units))

        try:
            yield charge
        finally:
            for queue, units in reversed(charged):
                self.charge(queue, -units)

    def key(self, queue: int) -> StandingKey:
        """Smaller is better. Equal keys are a tie, which is for the caller to break."""
        known = self._keys.get(queue)
        if known is None:
            levels = tuple([self._level(row) for row in self._tree.path[queue]])
            # Level by level from the root: first whose department stands better, then whose team. So do tuples compare.
            known = self._keys[queue] = levels + levels[-1:] * (self._tree.depth - len(levels))
        return known

    def tiers(self, queue: int) -> tuple[int, ...]:
        """Whether a queue is below its guarantee (0) or not (1), level by level from the root."""
        return tuple([rank // _RANKS_PER_TIER for rank, _ in self.key(queue)])

    def better(self, queue: int, other: int) -> bool:
        """Whether a queue stands strictly better than another."""
        return self.key(queue) < self.key(other)

    def _level(self, row: int) -> tuple[int, int]:
        known = self._levels.get(row)
        if known is None:
            known = self._levels[row] = self._compute_level(row)
        return known

    def _compute_level(self, row: int) -> tuple[int, int]:
        usage, guarantee, counted = self._usage[row], self._rows.guarantee[row], self._counted[row]
        below = bool(counted) and all(usage[kind] < guarantee[kind] for kind in counted)
        tier = 0 if below else _RANKS_PER_TIER
        entitled, capacity, weight = self.entitled[row], self._rows.capacity, self._rows.weight[row]
        # The tier above is judged by usage alone: whoever used much yesterday still has a guarantee today.
        spent = usage if self._history is None else [a + b for a, b in zip(usage, self._history[row], strict=True)]
        # A chain of comparisons: uses some of a kind that the cluster has, and is entitled to none of it.
        beyond = any(used > 0 == own and has > 0 for used, own, has in zip(usage, entitled, capacity, strict=True))
        if any(entitled) and not beyond:
            # The dominant share: the kind of which most of the entitlement is used up stands for all.
            return tier, max(used * self._scale // own for used, own in zip(spent, entitled, strict=True) if own)
        # Weight 0 divides nothing: such queues come after all that have one, by usage alone.
        shares = [used * self._scale // (has * (weight or 1)) for used, has in zip(spent, capacity, strict=True) if has]
        return tier + (1 if weight else 2), max(shares, default=0)

    def _named(self, row: int, asked: _Amounts) -> list[int]:
        """Kinds asked for that this row has a guarantee of."""
        guarantee = self._rows.guarantee[row]
        return [kind for kind, units in enumerate(asked) if units > 0 and guarantee[kind] > 0]

    def _within(self, row: int, asked: _Amounts, kinds: Iterable[int]) -> bool:
        usage, guarantee = self._usage[row], self._rows.guarantee[row]
        return all(usage[kind] + asked[kind] <= guarantee[kind] for kind in kinds)

    def _split(self, queue: int, other: int) -> int:
        """How many levels below the root two queues have in common."""
        mine, theirs = self._tree.path[queue], self._tree.path[other]
        level = 0
        while level < min(len(mine), len(theirs)) and mine[level] == theirs[level]:
            level += 1
        return level

    def taker_within_guarantee(self, taker: int, asked: _Amounts, victim: int, *, settled: bool) -> bool:
        """Whether a start keeps the taker's side within its guarantee, as seen from where it parts from the victim.

        A row without a guarantee between rows with one says nothing. If none below the parting has one, the nearest
        above decides: as it stands, since what is taken stays below it, or, if all takings are `settled`, afterwards.
        """
        # Rows above the parting hold taker and victim both: what moves between them changes nothing there.
        path, split = self._tree.path[taker], self._split(taker, victim)
        # Every guarantee on the way down must hold it. One team's guarantee may be larger than its department has left.
        named = [(row, kinds) for row in path[split:] if (kinds := self._named(row, asked))]
        if named:
            return all(self._within(row, asked, kinds) for row, kinds in named)
        # A guarantee that both share is not restored by a swap inside it, which the victim could demand back at once.
        if not any(self._named(row, asked) for row in self._tree.path[victim][split:]):
            return False
        for row in reversed((0, *path[:split])):
            kinds = self._named(row, asked)
            if kinds:
                return self._within(row, asked if settled else [0] * len(asked), kinds)
        return False

    def victim_keeps_guarantee(self, taker: int, victim: int, given: _Amounts, lost: _Amounts) -> bool:
        """Whether the victim's side is not below its guarantee in any kind given, with `lost` off its usage."""
        # The whole side, not only the victim's own queue: taking from a team also takes from its department.
        side = self._tree.path[victim][self._split(taker, victim) :]
        return all(
            self._usage[row][kind] - lost[kind] >= self._rows.guarantee[row][kind]
            for row in side
            for kind in self._named(row, given)
        )

    def taker_within_entitlement(self, taker: int, asked: _Amounts, victim: int) -> bool:
        """Whether a start keeps the taker's side within its entitlement in every kind asked for."""
        entitled = self.entitled
        return all(
            self._usage[row][kind] + units <= entitled[row][kind]
            for row in self._tree.path[taker][self._split(taker, victim) :]
            for kind, units in enumerate(asked)
            if units > 0
        )

    def victim_keeps_entitlement(self, taker: int, victim: int, given: _Amounts, lost: _Amounts) -> bool:
        """Whether the victim's side gives only what exceeds its entitlement.

        Only kinds of which there is too little count: of the others everybody is entitled to all they could use, and
        nobody could give the memory that goes with a GPU. If there is enough of all that is given, nobody has too much.
        """
        side = self._tree.path[victim][self._split(taker, victim) :]
        # At the parting (depth 0) some kind that is given must be scarce, or nobody there has too much.
        entitled, scarce = self.entitled, True
        for depth, row in enumerate(side):
            short = [kind for kind, units in enumerate(given) if units > 0 and self._is_scarce(row, kind)]
            if any(self._usage[row][kind] - lost[kind] < entitled[row][kind] for kind in short):
                return False
            scarce = scarce and (depth > 0 or bool(short))
        return scarce

    def _is_scarce(self, row: int, kind: int) -> bool:
        beside = self._tree.children[self._tree.parent[row]]
        # Somebody beside it, or itself, wants more than it is entitled to: only then has anybody more than a share.
        return any(self.entitled[other][kind] < self._rows.demand[other][kind] for other in beside)


def _find_counted_kinds(guarantee: _Amounts, demand: _Amounts, usage: _Amounts) -> tuple[int, ...]:
    """Guaranteed kinds that say whether a queue is below: those it waits for, or, if it waits for nothing, uses.

    Fixed for a plan: were the kinds to change with its starts, a start could make a queue stand better.
    """
    if not any(guarantee):
        return ()
    waits = any(want > used for want, used in zip(demand, usage, strict=True))
    base = usage if waits else [0] * len(usage)
    return tuple(kind for kind, floor in enumerate(guarantee) if floor > 0 and demand[kind] > base[kind])


def may_reclaim(standing: Standing, taker: int, asked: IntArray, victim: int, given: IntArray) -> bool:
    """Whether one queue may take this much of another's minimum to restore a guarantee.

    Takings so far are in the standing, later ones not: `may_reclaim_set` has the last word about several.
    """
    if taker == victim:
        return False
    gives = given.tolist()
    return standing.taker_within_guarantee(
        taker, asked.tolist(), victim, settled=False
    ) and standing.victim_keeps_guarantee(taker, victim, gives, gives)


def may_reclaim_share(standing: Standing, taker: int, asked: IntArray, victim: int, given: IntArray) -> bool:
    """The same where what exceeds the weighted share may be taken back as well."""
    if taker == victim:
        return False
    if may_reclaim(standing, taker, asked, victim, given):
        return True
    gives = given.tolist()
    return (
        standing.taker_within_entitlement(taker, asked.tolist(), victim)
        and standing.victim_keeps_entitlement(taker, victim, gives, gives)
        and standing.victim_keeps_guarantee(taker, victim, gives, gives)
    )


def may_reclaim_set(
    standing: Standing, taker: int, asked: IntArray, victims: Sequence[tuple[int, IntArray]], *, share: bool = False
) -> bool:
    """Whether a queue may take all of these (queue, given) together, judged as everything stands afterwards."""
    if any(victim == taker for victim, _ in victims):
        return False
    with standing.trial() as charge:
        for victim, given in victims:
            charge(victim, -given)
        # All takings are counted before any is judged: each may be fine by itself, and together leave too little.
        return all(_settled_with(standing, taker, asked, each, share=share) for each in victims)


def _settled_with(
    standing: Standing, taker: int, asked: IntArray, victim: tuple[int, IntArray], *, share: bool
) -> bool:
    """Whether one victim's side and the taker stand as they should, now that everybody has given."""
    queue, gives = victim[0], victim[1].tolist()
    asks, nothing = asked.tolist(), [0] * len(asked)
    if not standing.victim_keeps_guarantee(taker, queue, gives, nothing):
        return False
    if standing.taker_within_guarantee(taker, asks, queue, settled=True):
        return True
    return (
        share
        and standing.taker_within_entitlement(taker, asks, queue)
        and standing.victim_keeps_entitlement(taker, queue, gives, nothing)
    )


def leaves_guarantee(standing: Standing, taker: int, victim: int, given: IntArray) -> bool:
    """Whether taking surplus leaves the victim's side its guarantee; inside one queue there are no sides."""
    gives = given.tolist()
    return standing.victim_keeps_guarantee(taker, victim, gives, gives)

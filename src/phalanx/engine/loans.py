"""Which members of elastic gangs leave, so that somebody else finds room.

Surplus may be called back anywhere, so the question is where it helps: node by node, the fewest
members whose leaving makes one more place for the asker, from the gangs that should give first.
Where places are not a matter of counting (several roles, shared devices, groups of ranks), whole
tails of ranks are called back and as many as possible sent home again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.roster import Gift, Sitter
from phalanx.engine.seats import drop_tail, part_of, subtract_seats
from phalanx.engine.view import Exempt, View, find_need
from phalanx.model.fleet import BoolArray, Fleet
from phalanx.model.form import RoleForm
from phalanx.model.plan import Cause, Seats
from phalanx.model.topology import ANYWHERE

#: Domains that are compared before one is chosen.
DOMAINS_TRIED = 16

Fits = Callable[[Sequence[Gift]], bool]


@dataclass(slots=True, eq=False)
class Pool:
    """Members of one role of one gang that may be called back, in the order of whose turn it is to give."""

    sitter: Sitter
    role: int
    members: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Asker:
    """Whoever needs room: members of one shape, inside one domain of a level, on some nodes only."""

    role: RoleForm
    size: int
    exempt: Exempt
    inside: BoolArray | None = None


def call_back(view: View, asker: Asker, pools: list[Pool], fits: Fits) -> list[Gift] | None:
    """The gifts that make room in a view for an asker of one role; None if all surplus together does not."""
    plain = [pool for pool in pools if not _grouped(pool)]
    best: tuple[tuple[int, int], list[Gift]] | None = None
    countable = not view.shared and not find_need(view.fleet, asker.role.shape).share
    if countable:
        for mask in _domains(view, asker):
            counts = _Counting(view, asker, plain, mask).run()
            gifts = None if counts is None else _as_gifts(view.fleet, plain, counts)
            if gifts is None or not fits(gifts):
                continue
            key = (max(gift.sitter.priority for gift in gifts), _members(gifts)) if gifts else (0, 0)
            if best is None or key < best[0]:
                best = (key, gifts)
    if best is not None:
        return best[1]
    # Counting finds whatever there is, unless ranks stand in groups or a step is too coarse to give a few.
    coarse = len(plain) < len(pools) or any(_coarse(pool) for pool in pools) or asker.role.segment_size > 1
    return call_back_tails(view.fleet, pools, fits) if coarse or not countable else None


def call_back_tails(fleet: Fleet, pools: list[Pool], fits: Fits) -> list[Gift] | None:
    """Whole tails of ranks, gang after gang until it fits; then everybody keeps as much as possible."""
    given: list[Gift] = []
    for pool in pools:
        gift = _tail(fleet, pool, pool.sitter.seats[pool.role].members - pool.members)
        if gift is None:
            continue
        given.append(gift)
        if fits(given):
            break
    else:
        return None
    by_sitter = {(gift.sitter.number, gift.seats[0].role): gift for gift in given}
    for pool in pools:
        key = (pool.sitter.number, pool.role)
        if key in by_sitter:
            others = [gift for at, gift in by_sitter.items() if at != key]
            kept = _least_tail(fleet, pool, others, fits)
            by_sitter = {at: gift for at, gift in by_sitter.items() if at != key}
            if kept is not None:
                by_sitter[key] = kept
    return list(by_sitter.values())


def _least_tail(fleet: Fleet, pool: Pool, others: list[Gift], fits: Fits) -> Gift | None:
    """The shortest tail that, with the others' gifts, is enough; None if none is needed."""
    members = pool.sitter.seats[pool.role].members
    if fits(others):
        return None
    allowed = [size for size in pool.sitter.gang.roles[pool.role].sizes.allowed if size < members]
    for size in reversed(allowed):
        gift = _tail(fleet, pool, size)
        if gift is not None and fits([*others, gift]):
            return gift
    return _tail(fleet, pool, members - pool.members)


def _tail(fleet: Fleet, pool: Pool, keep: int) -> Gift | None:
    """All ranks from one on, so that the role has an allowed size; None if the pool may not give that much."""
    seats, role = pool.sitter.seats[pool.role], pool.sitter.gang.roles[pool.role]
    allowed = [size for size in role.sizes.allowed if seats.members - pool.members <= size <= keep]
    if not allowed or allowed[-1] >= seats.members:
        return None
    left = drop_tail(fleet, role.shape, seats, seats.members - allowed[-1])
    return Gift(pool.sitter, (subtract_seats(seats, left),), pool.cause, whole=False)


def _grouped(pool: Pool) -> bool:
    """Whether ranks stand in groups, so that only the last ones may leave."""
    gang = pool.sitter.gang
    segment = gang.roles[pool.role].topology.segment or gang.topology.segment
    return segment is not None and segment.size > 1


def _coarse(pool: Pool) -> bool:
    """Whether the role has sizes that are more than one apart, so that giving a few means giving more."""
    allowed = pool.sitter.gang.roles[pool.role].sizes.allowed
    return allowed[-1] - allowed[0] + 1 != len(allowed)


def _members(gifts: Sequence[Gift]) -> int:
    return sum(seats.members for gift in gifts for seats in gift.seats)


def _domains(view: View, asker: Asker) -> Iterator[BoolArray | None]:
    """Where to look: everywhere, or in one domain of the required level after the other, the emptiest first."""
    if asker.role.require == ANYWHERE:
        yield asker.inside
        return
    row = view.slots(asker.role.shape, asker.exempt)
    column = view.fleet.domains[asker.role.require]
    inside = np.ones(len(column), dtype=np.bool_) if asker.inside is None else asker.inside
    free = np.bincount(column, weights=row.slots * inside)
    useful = np.unique(column[row.mask & inside])
    for domain in useful[np.argsort(-free[useful], kind="stable")][:DOMAINS_TRIED].tolist():
        yield (column == domain) & inside


class _Counting:
    """Greedy over nodes: the cheapest next place, until there are enough."""

    def __init__(self, view: View, asker: Asker, pools: list[Pool], mask: BoolArray | None) -> None:
        """Lay out who sits where."""
        row = view.slots(asker.role.shape, asker.exempt)
        self.need = row.need
        self.left = [pool.members for pool in pools]
        self.pools = pools
        allowed = row.mask if mask is None else row.mask & mask
        self.missing = asker.size - int((row.slots * allowed).sum())
        self.free: dict[int, list[int]] = {}
        self.ranks: dict[tuple[int, int], int] = {}
        self.seated: dict[int, list[tuple[int, int]]] = {}  # node: (pool, members there)
        self.vectors = [
            find_need(view.fleet, pool.sitter.gang.roles[pool.role].shape).vector.tolist() for pool in pools
        ]
        for index, pool in enumerate(pools):
            seats = pool.sitter.seats[pool.role]
            for rank, (node, count) in enumerate(zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True)):
                if allowed[node]:
                    self.seated.setdefault(node, []).append((index, count))
                    self.ranks[index, node] = -rank  # later ranks leave first
        for node in self.seated:
            self.free[node] = view.free[node].tolist()
        self.taken: dict[tuple[int, int], int] = {}  # (pool, node): members

    def run(self) -> dict[tuple[int, int], int] | None:
        """Members that leave, by pool and node; None if there are not enough."""
        if not self._enough():
            return None
        heap = [(key, node, leaving) for node in self.seated for key, leaving in self._step(node)]
        heapq.heapify(heap)
        while self.missing > 0:
            if not heap:
                return None
            _, node, leaving = heapq.heappop(heap)
            if self._still(node, leaving):
                before = self._slots(self.free[node])
                for index in leaving:
                    self.left[index] -= 1
                    self.taken[index, node] = self.taken.get((index, node), 0) + 1
                    self.free[node] = [a + b for a, b in zip(self.free[node], self.vectors[index], strict=True)]
                self.missing -= self._slots(self.free[node]) - before
            for key, others in self._step(node):  # the next place on this node, or another way to the same one
                heapq.heappush(heap, (key, node, others))
        return self.taken

    def _enough(self) -> bool:
        """Whether all that may be given, were it in one piece, would do: most questions end here."""
        for column, amount in zip(self.need.columns, self.need.amounts, strict=True):
            given = sum(left * vector[column] for left, vector in zip(self.left, self.vectors, strict=True))
            loose = sum(free[column] % amount for free in self.free.values())
            if given + loose < self.missing * amount:
                return False
        return True

    def _still(self, node: int, leaving: list[int]) -> bool:
        """Whether everybody in a step worked out earlier may still give that much."""
        return all(self.left[index] >= leaving.count(index) for index in set(leaving))

    def _slots(self, free: list[int]) -> int:
        columns = zip(self.need.columns, self.need.amounts, strict=True)
        return int(min((free[column] // amount for column, amount in columns), default=1 << 30))

    def _step(self, node: int) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """The next place on a node: who leaves for it, and how dear that is."""
        free, before = self.free[node], self._slots(self.free[node])
        leaving: list[int] = []
        for index, count in self.seated[node]:
            able = min(self.left[index], count - self.taken.get((index, node), 0))
            for _ in range(able):
                leaving.append(index)
                free = [a + b for a, b in zip(free, self.vectors[index], strict=True)]
                if self._slots(free) > before:
                    yield (max(leaving), len(leaving), self.ranks[leaving[-1], node]), leaving
                    return


def _as_gifts(fleet: Fleet, pools: list[Pool], counts: dict[tuple[int, int], int]) -> list[Gift] | None:
    """The same as seats, rounded to sizes that each gang may have; None if one may not give that much."""
    gifts = []
    for index in sorted({index for index, _ in counts}):
        pool = pools[index]
        by_node = {node: count for (at, node), count in counts.items() if at == index}
        role, seats = pool.sitter.gang.roles[pool.role], pool.sitter.seats[pool.role]
        leaving = part_of(fleet, role.shape, seats, by_node)
        left = subtract_seats(seats, leaving)
        allowed = [size for size in role.sizes.allowed if size <= left.members]
        if not allowed or seats.members - allowed[-1] > pool.members:
            return None
        left = drop_tail(fleet, role.shape, left, left.members - allowed[-1])
        gifts.append(Gift(pool.sitter, (_difference(seats, left),), pool.cause, whole=False))
    return gifts


def _difference(seats: Seats, left: Seats) -> Seats:
    return subtract_seats(seats, left)

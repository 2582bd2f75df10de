"""Which members of elastic gangs leave, so that somebody else finds room.

Surplus may be called back anywhere, so the placement key is where it helps: node by node, the fewest
members whose leaving makes one more place for the claimant, from the gangs that should give first.
Where places are not a matter of counting (several roles, shared devices, groups of ranks), whole
tails of ranks are called back and as many as possible sent home again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.reclaimable import Occupant, Release
from phalanx.engine.room.seats import drop_tail, part_of, subtract_seats
from phalanx.engine.room.view import Exempt, View, find_need
from phalanx.model.fleet import BoolArray, Fleet
from phalanx.model.form import RoleForm
from phalanx.model.plan import Cause
from phalanx.model.topology import ANYWHERE

#: Domains that are compared before one is chosen.
DOMAINS_TRIED = 16

Fits = Callable[[Sequence[Release]], bool]


@dataclass(slots=True, eq=False)
class Loan:
    """Members of one role of one gang that may be called back, in the order of whose turn it is to give."""

    occupant: Occupant
    role: int
    members: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class SeatsWanted:
    """Whoever needs room: members of one shape, inside one domain of a level, on some nodes only."""

    role: RoleForm
    size: int
    exempt: Exempt
    inside: BoolArray | None = None


def call_back(view: View, claimant: SeatsWanted, loans: list[Loan], fits: Fits) -> list[Release] | None:
    """The releases that make room in a view for an claimant of one role; None if all surplus together does not."""
    # Members may be picked off any node only where no group of ranks is torn by it;
    # grouped gangs give tails, further down.
    plain = [loan for loan in loans if not _grouped(loan)]
    best: tuple[tuple[int, int], list[Release]] | None = None
    refused = False  # somewhere there were places enough by count, and something else was in the way
    # With shares of devices two members that fit by amount may not fit by device, so
    # that counting would promise too much.
    need = find_need(view.fleet, claimant.role.shape)
    # Nor do rules about others follow from amounts.
    countable = not (view.shared or need.share or need.social)
    if countable:
        for mask in _domains(view, claimant):
            counts = _Counting(view, claimant, plain, mask).run()
            releases = None if counts is None else _as_releases(view.fleet, plain, counts)
            # Counting is about places only. `fits` also asks for rights, limits and
            # guarantees of everything taken together.
            if releases is None or not fits(releases):
                refused |= releases is not None
                continue
            releases = _needed(releases, fits)
            # Rule 9's order among sets of victims, for surplus: the lowest highest priority, then the fewest members.
            # Cost is left out, since who is called back pays a pause and loses no work.
            key = (max(release.occupant.priority for release in releases), _members(releases)) if releases else (0, 0)
            if best is None or key < best[0]:
                best = (key, releases)
    if best is not None:
        return best[1]
    # Counting finds whatever there is, unless ranks stand in groups or a step is too coarse to give a few; or the
    # places it counts first are those that a reservation had counted on (`a-surplus-beside-the-one-that-is-counted-on`
    # among the found worlds), while the surplus of somebody else would do.
    # A tail costs a trial view per step, counting a few divisions: where counting is complete, its no is the answer.
    coarse = len(plain) < len(loans) or any(_coarse(loan) for loan in loans) or claimant.role.segment_size > 1
    return call_back_tails(view.fleet, loans, fits) if coarse or refused or not countable else None


def _needed(releases: list[Release], fits: Fits) -> list[Release]:
    """Without whoever gives in vain, since somebody after it had to give more than was missing then."""
    for release in releases if len(releases) > 1 else ():
        fewer = [other for other in releases if other is not release]
        # A later place can be larger than what was still missing, and then somebody counted earlier gives in vain
        # (`a-giver-of-what-nobody-needs` among the found worlds; rule 9: nobody superfluous).
        if fits(fewer):
            releases = fewer
    return releases


def call_back_tails(fleet: Fleet, loans: list[Loan], fits: Fits) -> list[Release] | None:
    """Whole tails of ranks, gang after gang until it fits; then everybody keeps as much as possible."""
    given: list[Release] = []
    for loan in loans:
        # Everything that each may give, so that this ends after one round; who gave too much gets it back below.
        release = _tail(fleet, loan, loan.occupant.seats[loan.role].members - loan.members)
        if release is None:
            continue
        given.append(release)
        if fits(given):
            break
    else:
        return None
    # The last to give is needed in any case, or those before it would have been enough. So those are let off first:
    # fewer gangs give, and the highest priority among them stays the same.
    by_occupant = {(release.occupant.number, release.seats[0].role): release for release in given}
    for loan in loans:
        key = (loan.occupant.number, loan.role)
        if key in by_occupant:
            others = [release for at, release in by_occupant.items() if at != key]
            kept = _least_tail(fleet, loan, others, fits)
            by_occupant = {at: release for at, release in by_occupant.items() if at != key}
            if kept is not None:
                by_occupant[key] = kept
    return list(by_occupant.values())


def _least_tail(fleet: Fleet, loan: Loan, others: list[Release], fits: Fits) -> Release | None:
    """The shortest tail that, with the others' releases, is enough; None if none is needed."""
    members = loan.occupant.seats[loan.role].members
    # All or part: it may not be needed at all, since those after it gave everything they had.
    if fits(others):
        return None
    allowed = [size for size in loan.occupant.gang.roles[loan.role].sizes.allowed if size < members]
    # From its present size down, one allowed size at a time, so that the first that is enough is the least loss.
    for size in reversed(allowed):
        release = _tail(fleet, loan, size)
        if release is not None and fits([*others, release]):
            return release
    return _tail(fleet, loan, members - loan.members)


def _tail(fleet: Fleet, loan: Loan, keep: int) -> Release | None:
    """All ranks from one on, so that the role has an allowed size; None if the loan may not give that much."""
    seats, role = loan.occupant.seats[loan.role], loan.occupant.gang.roles[loan.role]
    allowed = [size for size in role.sizes.allowed if seats.members - loan.members <= size <= keep]
    # A role whose sizes are far apart may have none between what it may give and what it has.
    if not allowed or allowed[-1] >= seats.members:
        return None
    left = drop_tail(fleet, role.shape, seats, seats.members - allowed[-1])
    return Release(loan.occupant, (subtract_seats(seats, left),), loan.cause, whole=False)


def _grouped(loan: Loan) -> bool:
    """Whether ranks stand in groups, so that only the last ones may leave."""
    gang = loan.occupant.gang
    segment = gang.roles[loan.role].topology.segment or gang.topology.segment
    return segment is not None and segment.size > 1


def _coarse(loan: Loan) -> bool:
    """Whether the role has sizes that are more than one apart, so that giving a few means giving more."""
    allowed = loan.occupant.gang.roles[loan.role].sizes.allowed
    return allowed[-1] - allowed[0] + 1 != len(allowed)


def _members(releases: Sequence[Release]) -> int:
    return sum(seats.members for release in releases for seats in release.seats)


def _domains(view: View, claimant: SeatsWanted) -> Iterator[BoolArray | None]:
    """Where to look: everywhere, or in one domain of the required level after the other, the emptiest first."""
    if claimant.role.require == ANYWHERE:
        yield claimant.inside
        return
    row = view.slots(claimant.role.shape, claimant.exempt)
    column = view.fleet.domains[claimant.role.require]
    inside = np.ones(len(column), dtype=np.bool_) if claimant.inside is None else claimant.inside
    free = np.bincount(column, weights=row.slots * inside)
    useful = np.unique(column[row.mask & inside])
    # The emptiest need the fewest members to leave. Stable, so that equal ones come by index; and bounded, since every
    # domain costs a search, in clusters with hundreds of racks.
    for domain in useful[np.argsort(-free[useful], kind="stable")][:DOMAINS_TRIED].tolist():
        yield (column == domain) & inside


class _Counting:
    """Greedy over nodes: the cheapest next place, until there are enough."""

    def __init__(self, view: View, claimant: SeatsWanted, loans: list[Loan], mask: BoolArray | None) -> None:
        """Lay out who sits where."""
        row = view.slots(claimant.role.shape, claimant.exempt)
        self.need = row.need
        self.left = [loan.members for loan in loans]
        self.loans = loans
        allowed = row.mask if mask is None else row.mask & mask
        # Free places of the domain count first: surplus is called back for the rest only.
        self.missing = claimant.size - int((row.slots * allowed).sum())
        self.free: dict[int, list[int]] = {}
        self.ranks: dict[tuple[int, int], int] = {}
        self.seated: dict[int, list[tuple[int, int]]] = {}  # node: (loan, members there)
        self.vectors = [
            find_need(view.fleet, loan.occupant.gang.roles[loan.role].shape).vector.tolist() for loan in loans
        ]
        for index, loan in enumerate(loans):
            seats = loan.occupant.seats[loan.role]
            for rank, (node, count) in enumerate(zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True)):
                if allowed[node]:
                    self.seated.setdefault(node, []).append((index, count))
                    # Negative, so that later ranks sort first: with them gone, those who stay keep their numbers.
                    self.ranks[index, node] = -rank  # later ranks leave first
        for node in self.seated:
            self.free[node] = view.free[node].tolist()
        self.taken: dict[tuple[int, int], int] = {}  # (loan, node): members

    def run(self) -> dict[tuple[int, int], int] | None:
        """Members that leave, by loan and node; None if there are not enough."""
        if not self._enough():
            return None
        # Ties end at the node index (rule 1), which stands right after the key.
        heap = [(key, node, leaving) for node in self.seated for key, leaving in self._step(node)]
        heapq.heapify(heap)
        while self.missing > 0:
            if not heap:
                return None
            _, node, leaving = heapq.heappop(heap)
            # A loan is spent on all its nodes together: a step that was worked out before may
            # ask for members that are gone by now.
            if self._still(node, leaving):
                before = self._slots(self.free[node])
                for index in leaving:
                    self.left[index] -= 1
                    self.taken[index, node] = self.taken.get((index, node), 0) + 1
                    self.free[node] = [a + b for a, b in zip(self.free[node], self.vectors[index], strict=True)]
                self.missing -= self._slots(self.free[node]) - before
            for key, others in self._step(node):  # the next place on this node, or another way to the same one
                heapq.heappush(heap, (key, node, others))
        self._send_home()
        return self.taken

    def _send_home(self) -> None:
        """A place can be larger than what was still missing: members that left before it for nothing stay."""
        for index, node in list(self.taken) if self.missing < 0 else ():
            vector = self.vectors[index]
            while self.taken[index, node]:
                free = [a - b for a, b in zip(self.free[node], vector, strict=True)]
                lost = self._slots(self.free[node]) - self._slots(free)
                if self.missing + lost > 0:
                    break
                self.free[node], self.missing = free, self.missing + lost
                self.taken[index, node] -= 1
        self.taken = {key: members for key, members in self.taken.items() if members}

    def _enough(self) -> bool:
        """Whether all that may be given, were it in one piece, would do: most keys end here."""
        for column, amount in zip(self.need.columns, self.need.amounts, strict=True):
            given = sum(left * vector[column] for left, vector in zip(self.left, self.vectors, strict=True))
            # What is free and too little for a place by itself, which a leaving member may
            # complete; whole places are not missing.
            loose = sum(free[column] % amount for free in self.free.values())
            if given + loose < self.missing * amount:
                return False
        return True

    def _still(self, node: int, leaving: list[int]) -> bool:
        """Whether everybody in a step worked out earlier may still give that much."""
        # By count: one loan may be asked for several members in one step.
        return all(self.left[index] >= leaving.count(index) for index in set(leaving))

    def _slots(self, free: list[int]) -> int:
        columns = zip(self.need.columns, self.need.amounts, strict=True)
        # A shape that asks for nothing fits any number of times.
        return int(min((free[column] // amount for column, amount in columns), default=1 << 30))

    def _step(self, node: int) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """The next place on a node: who leaves for it, and how dear that is."""
        free, before = self.free[node], self._slots(self.free[node])
        leaving: list[int] = []
        for index, count in self.seated[node]:
            # In the order of the loans and never past it: the members of a later loan leave
            # only if those before cannot make a place.
            able = min(self.left[index], count - self.taken.get((index, node), 0))
            for _ in range(able):
                leaving.append(index)
                free = [a + b for a, b in zip(free, self.vectors[index], strict=True)]
                if self._slots(free) > before:
                    # How dear: first the last loan that it touches (that is who should give last), then
                    # how many leave, then late ranks first.
                    yield (max(leaving), len(leaving), self.ranks[leaving[-1], node]), leaving
                    return


def _as_releases(fleet: Fleet, loans: list[Loan], counts: dict[tuple[int, int], int]) -> list[Release] | None:
    """The same as seats, rounded to sizes that each gang may have; None if one may not give that much."""
    releases = []
    for index in sorted({index for index, _ in counts}):
        loan = loans[index]
        by_node = {node: count for (at, node), count in counts.items() if at == index}
        role, seats = loan.occupant.gang.roles[loan.role], loan.occupant.seats[loan.role]
        leaving = part_of(fleet, role.shape, seats, by_node)
        stays = seats.members - leaving.members
        # Down and never up: more leave than were counted, and places are only gained by it.
        allowed = [size for size in role.sizes.allowed if size <= stays]
        if not allowed or seats.members - allowed[-1] > loan.members:
            return None
        if allowed[-1] < stays:
            left = drop_tail(fleet, role.shape, subtract_seats(seats, leaving), stays - allowed[-1])
            leaving = subtract_seats(seats, left)
        releases.append(Release(loan.occupant, (leaving,), loan.cause, whole=False))
    return releases

"""Room for a blocked gang at the expense of running ones, the gentlest way first.

In this order: surplus on loan, that of guests included; guests, which leave for the owner of the reservation above
them; moving somebody out of the way; a turn that is over; whole gangs, of lower priority in the same queue or beyond
their queue's guarantee in another. Nothing is taken unless the whole claimant then starts, and no victim is
superfluous. Who may take from whom is `engine.making_room.permits`, which members leave is `engine.making_room.loans`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from phalanx.engine.calendar.port import RoomAhead
from phalanx.engine.calendar.releases import find_start
from phalanx.engine.curves import curve_of
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.hopes import HUGE, Hopes
from phalanx.engine.making_room.loans import DOMAINS_TRIED, Loan, SeatsWanted, call_back, call_back_tails
from phalanx.engine.making_room.moves import find_moves
from phalanx.engine.making_room.permits import Permits
from phalanx.engine.making_room.reach import RoomReach
from phalanx.engine.order.turns import Offer, Turns, find_over_limit, list_offers, list_shares
from phalanx.engine.reclaimable import Occupant, Reclaimable, Release, vector_of
from phalanx.engine.room.limits import usage_fits
from phalanx.engine.room.placement import NoPlace, Places, Wish, find_ceiling, place
from phalanx.engine.room.seats import elastic_members, sizes_of
from phalanx.engine.room.view import View
from phalanx.engine.session import PlacementKey, Session
from phalanx.engine.transaction import Transaction
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import form_at_sizes
from phalanx.model.plan import Cause, Guest, Seats
from phalanx.model.topology import ANYWHERE
from phalanx.perfmodel.speedup import scaled_us

#: Up to so many candidates the best set of victims is found by trying all; beyond, by dropping the superfluous.
EXACT_VICTIMS = 10
#: Nobody is woken for less than this.
LATER_US = 1_000_000


@dataclass(frozen=True, slots=True)
class RoomFound:
    """How a blocked gang gets in."""

    offer: Offer
    releases: list[Release]
    places: Places
    gone_us: int
    moves: tuple[tuple[Occupant, tuple[Seats, ...]], ...] = ()


class RoomFinder:
    """Finds room for one gang after the other, within one walk."""

    def __init__(self, session: Session, turns: Turns, calendar: RoomAhead, reclaimable: Reclaimable) -> None:
        """Nobody has failed yet."""
        self.session, self.turns, self.calendar, self.reclaimable = session, turns, calendar, reclaimable
        self.permits = Permits(session, reclaimable)
        self.transaction = Transaction(session, reclaimable, calendar)
        self.policy, self.now = session.policy, session.snapshot.now_us
        self.wake_us = NEVER  # somebody waits for an instant, not for an event
        self.reach = RoomReach(session, turns, self.permits)
        self.hopes = Hopes(turns, self.reach)

    def _in_reach_beside(self, turn: int, offer: Offer) -> bool:
        """The same of what is free beside the reservations that are ahead of it for as long as it stays."""
        gone_us = self.calendar.gone_us(turn, offer)
        # Of a reserved start first: what ends by then, and guests, are counted on there, so that most who stay past it
        # could be given everything and would still be in its way.
        ahead = self.calendar.dismissals
        if ahead is not None and not all(self.reach.has_then(turn, *start) for start in ahead.list_starts(gone_us)):
            return False
        return self.reach.has(turn, filling=True, beside=self.calendar.trial(gone_us, self.turns.key_of(turn).exempt))

    def find(self, turn: int, key: PlacementKey, *, filling: bool) -> RoomFound | None:
        """A way in for a gang that found no free place; `filling`: a reservation is ahead of it."""
        if not self.reach.has(turn, filling=filling):  # most searches end here
            return None
        # Who makes way may be whom it wants to be beside, and whoever leaves changes where they are fewest.
        if any(role.shape.seeks_others for role in key.form.roles):
            return None
        # The least size: nobody gives anything up so that somebody else starts with surplus (rule 8).
        offer = list_offers(self.session, self.turns, turn)[-1]
        # Without a stated length nothing proves an end, so it stays for ever as far as
        # a reservation is concerned (rule 7).
        stays = offer.length_us if self.turns.proven[turn] else HUGE
        if self.hopes.is_gone(turn, offer.size, stays, filling=filling):
            return None
        if filling and not self._in_reach_beside(turn, offer):
            return None
        found = _Search(self, turn, key, offer, filling=filling).run()
        # Whether a turn is over depends on who asks, and a promise on its own time: those are searched one by one.
        alike = self.policy.quantum_us is None and not self.policy.keep
        if found is None and alike:
            self.hopes.give_up(turn, offer.size, stays, filling=filling)
        return found

    def commit(self, taken: RoomFound, beneficiary: int) -> None:
        """Carry the releases and moves out in this cycle's books."""
        for release in taken.releases:
            # Before it gives: afterwards its seats are gone, and nobody could say what of its least sat where.
            self._note_guest(release)
            self.transaction.give(release, beneficiary)
        for occupant, seats in taken.moves:
            # Lifted, not given: a move is no eviction, so the gang is neither counted as one nor told that it leaves.
            self.transaction.lift(Release(occupant, occupant.seats, Cause.LOAN, whole=True))
            occupant.gone, occupant.moved, occupant.cause, occupant.seats = False, True, None, seats
        # Room came back, and with it everybody's chances: a failure is known to last only while room shrinks.
        self.hopes.revive()

    def _note_guest(self, release: Release) -> None:
        """A guest with its surplus only, that can be evicted, is one altogether once its least is left there."""
        occupant = release.occupant
        # What is not preemptible cannot become a whole guest; `_leaves_minimum` has refused such a release before.
        if release.whole or occupant.guest is not Guest.SURPLUS or not occupant.gang.preemptible:
            return
        reserved = self.calendar.reserved_nodes()
        if not all(_keeps_least(occupant, seats, reserved) for seats in release.seats):
            occupant.grown_as = Guest.WHOLE

    def list_lent(self, occupant: Occupant) -> list[BoolArray]:
        """Nodes that it will have to leave: reserved ones, if it is a guest, and those with a window in its time.

        Apart from each other: a minimum that has to make way for a reservation in any case must still not be left to
        the windows alone.
        """
        session, windowed = self.session, None
        # Whoever is no guest may stay where it sits: no reservation was laid over it before its end.
        lent = [self.calendar.reserved_nodes()] if occupant.guest else []
        exempt = session.exempt_of(occupant.queue, occupant.user)
        # By its latest end, since what is called back makes it slower: a window that it would
        # have been out of by then may catch it.
        end_us = self._latest_end_us(occupant) if session.snapshot.windows else 0
        for index, window in enumerate(session.snapshot.windows):
            if index not in exempt and window.start_us < end_us and window.end_us > self.now:
                mask = session.window_masks[index]
                windowed = mask if windowed is None else windowed | mask
        return lent if windowed is None else [*lent, windowed]

    def _latest_end_us(self, occupant: Occupant) -> int:
        """When it would be done at its least size: what is called back now makes it stay longer."""
        gang, snapshot = occupant.gang, self.session.snapshot
        if not gang.elastic:
            return occupant.end_us
        members = elastic_members(gang, sizes_of(occupant.seats))
        least = elastic_members(gang, tuple(role.sizes.least for role in gang.roles))
        left_us = scaled_us(max(0, occupant.end_us - self.now), curve_of(snapshot, occupant.number), members, least)
        return self.now + gang.resize_pause_us + left_us

    def settle_moves(self, taken: RoomFound) -> None:
        """Seat those who were moved, once the claimant sits."""
        for occupant, chosen in taken.moves:
            form = form_at_sizes(self.session.fleet, ((occupant.gang, sizes_of(chosen)),))
            (seats,) = self.calendar.name_devices(form, (chosen,))
            occupant.seats = seats
            # Devices are named from what is free in the session's view, so that those of
            # the moved come after the claimant's.
            for each in seats:
                self.transaction.take(occupant, each, occupant.end_us)


class _Search:
    """One gang's search."""

    def __init__(self, finder: RoomFinder, turn: int, key: PlacementKey, offer: Offer, *, filling: bool) -> None:
        self.finder, self.turn, self.key, self.offer, self.filling = (
            finder,
            turn,
            key,
            offer,
            filling,
        )
        self.session, self.turns, self.calendar = finder.session, finder.turns, finder.calendar
        self.gone_us = finder.calendar.gone_us(turn, offer)
        self.shares = list_shares(self.session, self.turns, turn, offer)
        self.asked = np.sum([asked for _, asked in self.shares], axis=0)
        self.queue = int(self.turns.queue[turn])
        self._free: IntArray | None = None
        # Whoever is not behind a reservation is about to have the next one, so that guests under it are its own.
        self.who = finder.permits.claimant(self.turns, turn, self.asked, owner=not filling)

    def run(self) -> RoomFound | None:
        """The gentlest way that works."""
        permits, takes = self.finder.permits, self.finder.policy.takes
        loans = permits.list_loans(self.who)
        # Gentlest first: surplus costs a pause, guests were told that they would leave, a move costs a stall, a turn is
        # over, an eviction loses work. Each step is asked only if all before it together with loans do not do.
        releases = self._call_back(loans, []) if loans else None
        if releases is None:
            guests = permits.list_guests(self.who)
            releases = self._find_set(guests, loans) if guests else None
        # Before turns and evictions, since nothing is lost; after guests, since a guest's seats are the owner's anyway.
        if releases is None and "move" in takes:
            moved = None
            free_enough = bool((self._free_in_all() >= self.asked).all())  # moving somebody frees nothing in all
            if free_enough and find_over_limit(self.session, self.turns, self.turn, self.offer) is None:
                moved = find_moves(permits, self.who, self.calendar, self._wish(), self._start_us)
            if moved is not None:
                return RoomFound(self.offer, [], moved[0], self.gone_us, moved[1])
        if releases is None:
            turns = permits.list_turns(self.who)
            # After a quantum (rule 14) a gang saves before it goes: dearer than a move, cheaper than an eviction.
            releases = self._find_set(turns, loans) if turns else None
        if releases is None:
            releases = self._evict(loans)
        if releases is None:
            return None
        # `fits` ends at a ceiling where sizes are open; here the places themselves are
        # chosen, in a view like the one it asked.
        places = place(self._trial(releases), self._wish())
        return None if isinstance(places, NoPlace) else RoomFound(self.offer, releases, places, self.gone_us)

    def _free_in_all(self) -> IntArray:
        # Nobody can start on a node that is out of service, whatever is free there.
        total: IntArray = self.session.view.free[self.session.in_service].sum(axis=0)
        return total

    def _start_us(self) -> int:
        """When it would start if nobody were evicted."""
        # The start without evicting anybody (rule 9): its own guests leave without eviction, those of others do not.
        start = find_start(self.session, self.key, self.offer.size, guests_leave=not self.filling)
        return NEVER if start is None else start.at_us

    def _evict(self, loans: list[Loan]) -> list[Release] | None:
        """Whole gangs, unless waiting is shorter than what it would cost them."""
        victims = self.finder.permits.list_victims(self.who)
        if not victims:
            return None
        # Guests again, together with victims: neither alone was enough, and a guest in the set spares a victim.
        releases = self._find_set([*self.finder.permits.list_guests(self.who), *victims], loans)
        if releases is None:
            return None
        reclaimable = self.finder.reclaimable
        evicted = [release for release in releases if release.whole and release.cause is not Cause.GUEST]
        # The largest among the victims, in wall seconds (rule 9). Guests are not counted: they were told, and the
        # waiting clause does not apply to their owner (rule 8).
        cost_us = max((reclaimable.restart_us(release.occupant) for release in evicted), default=0)
        start_us = self._start_us() if evicted else NEVER
        # Waiting loses nobody's work. To evict a gang that would have to redo an hour, for one that
        # starts in ten minutes, is a loss to everybody.
        if start_us - self.finder.now < cost_us:
            # If nothing ends by then the estimate moves, and waiting may not be worth it any more.
            if start_us > self.finder.now + LATER_US:
                self.finder.wake_us = min(self.finder.wake_us, start_us)
            return None
        return releases

    # ------------------------------------------------------------------ does it fit

    def _wish(self) -> Wish:
        return Wish(self.offer.form, self.offer.size, self.key.exempt)

    def _trial(self, releases: Sequence[Release]) -> View:
        return self.calendar.trial(self.gone_us, self.key.exempt, releases)

    def fits(self, releases: Sequence[Release]) -> bool:
        """Whether the whole gang could start if these releases were given."""
        # Cheapest first: this is asked of every set that is tried, up to a thousand,
        # and a trial view copies the cluster.
        if not self._within_limits(releases) or not self.finder.permits.allow_all(self.who, releases):
            return False
        if not all(self._leaves_minimum(release) for release in releases if not release.whole):
            return False
        view = self._trial(releases)
        # With open sizes the ceiling is exact, so that no placement need be searched.
        if find_ceiling(view, self.offer.form, self.key.exempt) < (self.offer.size if self.offer.form.open_size else 1):
            return False
        return self.offer.form.open_size or not isinstance(place(view, self._wish()), NoPlace)

    def _leaves_minimum(self, release: Release) -> bool:
        """Whether a gang that can be made to leave with its surplus only keeps its least where it may stay.

        It may have entered reserved places, or a window ahead, because its least sat elsewhere: whoever calls
        those back would leave the least in the way of somebody who was promised that it goes.
        """
        occupant = release.occupant
        if occupant.gang.preemptible:
            return True
        return all(
            _keeps_least(occupant, seats, lent) for lent in self.finder.list_lent(occupant) for seats in release.seats
        )

    def _within_limits(self, releases: Sequence[Release]) -> bool:
        limits = self.session.limits
        # Most clusters have no limits, and then this would be work for nothing in the innermost question.
        if not limits.any:
            return True
        queues, users = limits.no_usage()
        for release in releases:
            given = vector_of(self.session.fleet, release.occupant.gang, release.seats)
            # What its victims give back is room under its own ceiling too, if they share a queue or a user with it.
            queues[release.occupant.queue] += given
            users[release.occupant.user] += given
        return usage_fits(limits, [(self.queue, user, asked) for user, asked in self.shares], (queues, users))

    # ------------------------------------------------------------------ which set

    def _call_back(self, loans: list[Loan], others: list[Release]) -> list[Release] | None:
        """Surplus that, with these other releases, is enough."""
        # Nobody gives twice: who leaves altogether has no surplus to lend beside it.
        gone = {release.occupant.number for release in others}
        loans = [loan for loan in loans if loan.occupant.number not in gone]
        # Sums over the cluster, one addition per release: no set that is too small in all costs a trial view.
        if not self._enough_in_all(others, loans):
            return None
        if others and self.fits(others):
            return []
        if not loans:
            return None

        def fits(releases: Sequence[Release]) -> bool:
            return self.fits([*others, *releases])

        form = self.offer.form
        if not form.open_size:
            return call_back_tails(self.session.fleet, loans, fits)
        claimant = SeatsWanted(form.roles[0], self.offer.size, self.key.exempt)
        found = call_back(self._trial(others), claimant, loans, fits)
        if (
            # `call_back` counts places, so that it finds nothing to call back where places
            # are free and a limit is what blocks.
            found is None and self.session.limits.any
        ):  # room there may be, below a ceiling that somebody must make way for
            found = call_back_tails(self.session.fleet, loans, fits)
        return found

    def _enough_in_all(self, releases: Sequence[Release], loans: list[Loan]) -> bool:
        """Whether free amounts and all that might be given would do, were they in one piece: most sets end here."""
        if self._free is None:
            self._free = self._free_in_all()
        total = self._free.copy()
        for release in releases:
            total += vector_of(self.session.fleet, release.occupant.gang, release.seats)
        for loan in loans:
            total += self.session.need_of(loan.occupant.gang, loan.role).vector * loan.members
        return bool((total >= self.asked).all())

    def _find_set(self, victims: list[tuple[Occupant, Cause]], loans: list[Loan]) -> list[Release] | None:
        """The best permitted set: lowest highest priority, then least cost, then fewer, then later gangs."""
        useful = [each for each in victims if self._useful(each[0])]
        releases = {
            occupant.number: Release(occupant, occupant.seats, cause, whole=True)
            # A gang that is listed twice, as guest and as victim, counts as the victim:
            # what it loses is then weighed as well.
            for occupant, cause in sorted(useful, key=lambda each: (each[0].priority, -each[0].number))
        }
        # The lowest highest priority first (rule 9): raising the bar one priority at a time, the first set that is
        # enough has it, and cost is compared only within one bar.
        for threshold in sorted({release.occupant.priority for release in releases.values()}):
            allowed = [release for release in releases.values() if release.occupant.priority <= threshold]
            chosen = self._choose(allowed, loans)
            if chosen is not None:
                lent = self._with_loans(chosen, loans)
                assert lent is not None, "a set that was enough is enough"
                return [*chosen, *lent]
        return None

    def _choose(self, allowed: list[Release], loans: list[Loan]) -> list[Release] | None:
        """The best set among these, or a good one if they are many."""
        # 2^10 sets at the most, each asked until one fits; steps and not seconds bound it,
        # so that the plan is the same anywhere.
        if len(allowed) <= EXACT_VICTIMS:
            return self._best(allowed, loans)
        cost = self.finder.reclaimable.cost
        # Single victims are all tried even then: mostly one is enough, and it is the
        # best there is if it is the cheapest.
        found = [[release] for release in allowed if self._with_loans([release], loans) is not None]
        for some in self._by_domain(allowed):
            together = self._permitted(some)
            if together and self._with_loans(together, loans) is not None:
                found.append(self._drop(together, loans, cost))
                # The dearest for what it gives goes home first: many small ones may cost more than one large one.
                found.append(
                    self._drop(together, loans, lambda occupant: cost(occupant) / sum(sizes_of(occupant.seats)))
                )
        # Equal sets: `min` keeps the first, and single victims stand in the order of `allowed`, later gangs first.
        return min(found, key=lambda some: (sum(cost(g.occupant) for g in some), len(some))) if found else None

    def _by_domain(self, allowed: list[Release]) -> list[list[Release]]:
        """All of them; and if the claimant must be inside one domain, those of each domain as well."""
        # Dropping one by one from all over the cluster ends in the domain that happens to be dropped last, which need
        # not be the cheapest: each domain is a set of its own to begin with.
        level = max(max(gang.require, *(role.require for role in gang.roles)) for gang in self.offer.form.gangs)
        if level == ANYWHERE:
            return [allowed]
        column = self.session.fleet.domains[level]
        domains: dict[int, list[Release]] = {}
        for release in allowed:
            for domain in {int(column[node]) for seats in release.seats for node in seats.nodes.tolist()}:
                domains.setdefault(domain, []).append(release)
        # In the order in which victims come: domains with low priorities and late gangs first.
        return [allowed, *list(domains.values())[:DOMAINS_TRIED]]

    def _permitted(self, releases: list[Release]) -> list[Release]:
        """As many as may be taken together, the cheapest first."""
        kept: list[Release] = []
        for release in sorted(
            releases, key=lambda release: (self.finder.reclaimable.cost(release.occupant), -release.occupant.number)
        ):
            # Together they may be too much where each alone is fine: a guarantee is a queue's, not a gang's.
            if self.finder.permits.allow_all(self.who, [*kept, release]):
                kept.append(release)
        return kept

    def _with_loans(self, releases: Sequence[Release], loans: list[Loan]) -> list[Release] | None:
        return self._call_back(loans, list(releases))

    def _best(self, allowed: list[Release], loans: list[Loan]) -> list[Release] | None:
        cost = {release.occupant.number: self.finder.reclaimable.cost(release.occupant) for release in allowed}
        # Cheapest set first, so that the first that is enough is the answer and has nobody superfluous: without the
        # superfluous one the set would have been cheaper, or as cheap and smaller, and come before.
        sets = [list(some) for count in range(1, len(allowed) + 1) for some in combinations(allowed, count)]

        def key(some: list[Release]) -> tuple[int, int, list[int]]:
            numbers = sorted((release.occupant.number for release in some), reverse=True)
            # Least cost, fewer gangs, later sequence (rule 9), compared from the latest gang down.
            return sum(cost[number] for number in numbers), len(some), [-number for number in numbers]

        for some in sorted(sets, key=key):
            if self._with_loans(some, loans) is not None:
                return some
        return None

    def _drop(self, allowed: list[Release], loans: list[Loan], dear: Callable[[Occupant], float]) -> list[Release]:
        """Send home whoever is not needed, the dearest first."""
        kept = list(allowed)
        for release in sorted(allowed, key=lambda release: (-dear(release.occupant), release.occupant.number)):
            fewer = [other for other in kept if other is not release]
            # Never empty: loans alone were tried before, and were not enough.
            if fewer and self._with_loans(fewer, loans) is not None:
                kept = fewer
        return kept

    def _useful(self, occupant: Occupant) -> bool:
        """Whether it sits anywhere the claimant could."""
        masks = [self.session.view.slots(role.shape, self.key.exempt).mask for role in self.offer.form.roles]
        # Beyond the candidate nodes only where a ceiling might be what blocks.
        if self.session.limits.any:
            return True  # it may also free a ceiling
        return any(bool(mask[seats.nodes].any()) for mask in masks for seats in occupant.seats)


def _keeps_least(occupant: Occupant, given: Seats, lent: BoolArray) -> bool:
    """Whether as much of its least as sits outside some nodes still does."""
    had = occupant.seats[given.role]
    # As much as sat outside before, if that was less than the least: what was in the
    # way already is not this release's doing.
    stays = int(had.counts[~lent[had.nodes]].sum())
    left = stays - int(given.counts[~lent[given.nodes]].sum())
    return left >= min(stays, occupant.gang.roles[given.role].sizes.least)

"""Room for a blocked gang at the expense of running ones, the gentlest way first.

In this order: what guests owe to the owner of a reservation; surplus on loan; moving somebody out of
the way; a turn that is over; whole gangs, of lower priority in the same queue or beyond their queue's
guarantee in another. Nothing is taken unless the whole asker then starts, and no victim is
superfluous. Who may take from whom is `engine.permits`, which members leave is `engine.loans`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from phalanx.engine.calendar import find_start
from phalanx.engine.ground import Ground
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.limits import usage_fits
from phalanx.engine.loans import DOMAINS_TRIED, Asker, Pool, call_back, call_back_tails
from phalanx.engine.moves import find_moves
from phalanx.engine.permits import Permits
from phalanx.engine.placement import NoPlace, Places, Wish, find_ceiling, place
from phalanx.engine.roster import Gift, Roster, Sitter, vector_of
from phalanx.engine.seats import sizes_of
from phalanx.engine.session import Question, Session
from phalanx.engine.turns import Offer, Turns, find_over_limit, list_offers, list_shares
from phalanx.engine.view import View
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import form_at_sizes
from phalanx.model.plan import Cause, Seats
from phalanx.model.topology import ANYWHERE

#: Up to so many candidates the best set of victims is found by trying all; beyond, by dropping the superfluous.
EXACT_VICTIMS = 10
HUGE = 1 << 60
#: Nobody is woken for less than this.
LATER_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """How a blocked gang gets in."""

    offer: Offer
    gifts: list[Gift]
    places: Places
    gone_us: int
    moves: tuple[tuple[Sitter, tuple[Seats, ...]], ...] = ()


class Taker:
    """Finds room for one gang after the other, within one walk."""

    def __init__(self, session: Session, turns: Turns, ground: Ground, roster: Roster) -> None:
        """Nobody has failed yet."""
        self.session, self.turns, self.ground, self.roster = session, turns, ground, roster
        self.permits = Permits(session, roster)
        self.policy, self.now = session.policy, session.snapshot.now_us
        self.wake_us = NEVER  # somebody waits for an instant, not for an event
        pending = session.snapshot.pending
        kinds = np.stack([turns.queue, pending.priority[turns.rows], turns.question]) if len(turns) else None
        self._class = np.zeros(0, dtype=np.int64) if kinds is None else np.unique(kinds, axis=1, return_inverse=True)[1]
        self._class = self._class.reshape(-1)
        # The least size that found no help, for those who fill and those who do not, by class of equal rights;
        # of those who fill, only for whoever stays at least as long.
        self._failed = np.full((2, int(self._class.max(initial=-1)) + 1), HUGE, dtype=np.int64)
        self._stayed = np.zeros_like(self._failed)

    def forget(self) -> None:
        """Room was given back: whoever failed may try again."""
        self._failed[:] = HUGE

    def might_help(self, block: IntArray, mode: npt.NDArray[np.int8], *, fill: bool) -> BoolArray:
        """Turns for which taking has not failed yet; `mode` of their questions: 0 to be visited, 1 to fill."""
        modes = mode[self.turns.question[block]]
        looked = (modes == 0) | ((modes == 1) & fill)
        at = np.minimum(modes, 1), self._class[block]
        gone = np.where(self.turns.proven[block], self.turns.length_us[block], HUGE)
        known: BoolArray = (self.turns.size[block] >= self._failed[at]) & (gone >= self._stayed[at])
        wanted: BoolArray = looked & ~known
        return wanted

    def find(self, turn: int, question: Question, *, filling: bool) -> Taken | None:
        """A way in for a gang that found no free place; `filling`: a reservation is ahead of it."""
        offer = list_offers(self.session, self.turns, turn)[-1]
        key = int(filling), int(self._class[turn])
        stays = offer.length_us if self.turns.proven[turn] else HUGE
        if offer.size >= self._failed[key] and stays >= self._stayed[key]:
            return None
        found = _Search(self, turn, question, offer, filling=filling).run()
        # Turns depend on who asks, and pinned sizes differ: those are searched one by one.
        stricter = not filling or self._failed[key] == HUGE or stays <= self._stayed[key]
        if found is None and self.policy.quantum_us is None and offer.size <= self._failed[key] and stricter:
            self._failed[key], self._stayed[key] = offer.size, stays if filling else 0
        return found

    def commit(self, taken: Taken, beneficiary: int) -> None:
        """Carry the gifts and moves out in this cycle's books."""
        for gift in taken.gifts:
            self._give(gift, beneficiary)
        for sitter, seats in taken.moves:
            self._give(Gift(sitter, sitter.seats, Cause.LOAN, whole=True), beneficiary, moving=True)
            sitter.gone, sitter.moved, sitter.cause, sitter.seats = False, True, None, seats
        self.forget()

    def settle_moves(self, taken: Taken) -> None:
        """Seat those who were moved, once the asker sits."""
        for sitter, chosen in taken.moves:
            form = form_at_sizes(self.session.fleet, ((sitter.gang, sizes_of(chosen)),))
            (seats,) = self.ground.name_devices(form, (chosen,))
            sitter.seats = seats
            for each in seats:
                need = self.session.need_of(sitter.gang, each.role)
                self.ground.take(need, each, sitter.end_us)
                self.session.view.take_seats(need, each)
            self.session.charge(sitter.queue, sitter.user, vector_of(self.session.fleet, sitter.gang, seats))

    def _give(self, gift: Gift, beneficiary: int, *, moving: bool = False) -> None:
        self.session.give(gift)
        self.ground.give(gift)
        if not moving:
            self.roster.give(gift, beneficiary)


class _Search:
    """One gang's search."""

    def __init__(self, taker: Taker, turn: int, question: Question, offer: Offer, *, filling: bool) -> None:
        self.taker, self.turn, self.question, self.offer, self.filling = taker, turn, question, offer, filling
        self.session, self.turns, self.ground = taker.session, taker.turns, taker.ground
        self.gone_us = taker.now + offer.length_us if taker.turns.proven[turn] else NEVER
        self.shares = list_shares(self.session, self.turns, turn, offer)
        self.asked = np.sum([asked for _, asked in self.shares], axis=0)
        self.queue = int(self.turns.queue[turn])
        self._free: IntArray | None = None
        self.who = taker.permits.asker(self.turns, turn, self.asked, owner=not filling)

    def run(self) -> Taken | None:
        """The gentlest way that works."""
        permits, takes = self.taker.permits, self.taker.policy.takes
        loans = permits.list_loans(self.who)
        gifts = self._call_back(loans, []) if loans else None
        if gifts is None:
            guests = permits.list_guests(self.who)
            gifts = self._find_set(guests, loans) if guests else None
        if gifts is None and "move" in takes:
            moved = None
            free_enough = bool((self._free_in_all() >= self.asked).all())  # moving somebody frees nothing in all
            if free_enough and find_over_limit(self.session, self.turns, self.turn, self.offer) is None:
                moved = find_moves(permits, self.who, self.ground, self._wish(), self._start_us)
            if moved is not None:
                return Taken(self.offer, [], moved[0], self.gone_us, moved[1])
        if gifts is None:
            turns = permits.list_turns(self.who)
            gifts = self._find_set(turns, loans) if turns else None
        if gifts is None:
            gifts = self._evict(loans)
        if gifts is None:
            return None
        places = place(self._trial(gifts), self._wish())
        return None if isinstance(places, NoPlace) else Taken(self.offer, gifts, places, self.gone_us)

    def _free_in_all(self) -> IntArray:
        total: IntArray = self.session.view.free[self.session.in_service].sum(axis=0)
        return total

    def _start_us(self) -> int:
        """When it would start if nobody were evicted."""
        start = find_start(self.session, self.question, self.offer.size, guests_leave=not self.filling)
        return NEVER if start is None else start.at_us

    def _evict(self, loans: list[Pool]) -> list[Gift] | None:
        """Whole gangs, unless waiting is shorter than what it would cost them."""
        victims = self.taker.permits.list_victims(self.who)
        if not victims:
            return None
        gifts = self._find_set([*self.taker.permits.list_guests(self.who), *victims], loans)
        if gifts is None:
            return None
        roster = self.taker.roster
        evicted = [gift for gift in gifts if gift.whole and gift.cause is not Cause.GUEST]
        cost_us = max((roster.restart_us(gift.sitter) for gift in evicted), default=0)
        start_us = self._start_us() if evicted else NEVER
        if start_us - self.taker.now < cost_us:
            # If nothing ends by then the estimate moves, and waiting may not be worth it any more.
            if start_us > self.taker.now + LATER_US:
                self.taker.wake_us = min(self.taker.wake_us, start_us)
            return None
        return gifts

    # ------------------------------------------------------------------ does it fit

    def _wish(self) -> Wish:
        return Wish(self.offer.form, self.offer.size, self.question.exempt)

    def _trial(self, gifts: Sequence[Gift]) -> View:
        return self.ground.trial(self.gone_us, self.question.exempt, gifts)

    def fits(self, gifts: Sequence[Gift]) -> bool:
        """Whether the whole gang could start if these gifts were given."""
        if not self._within_limits(gifts) or not self.taker.permits.allow_all(self.who, gifts):
            return False
        view = self._trial(gifts)
        if find_ceiling(view, self.offer.form, self.question.exempt) < (
            self.offer.size if self.offer.form.open_size else 1
        ):
            return False
        return self.offer.form.open_size or not isinstance(place(view, self._wish()), NoPlace)

    def _within_limits(self, gifts: Sequence[Gift]) -> bool:
        limits = self.session.limits
        if not limits.any:
            return True
        queues, users = limits.no_usage()
        for gift in gifts:
            given = vector_of(self.session.fleet, gift.sitter.gang, gift.seats)
            queues[gift.sitter.queue] += given
            users[gift.sitter.user] += given
        return usage_fits(limits, [(self.queue, user, asked) for user, asked in self.shares], (queues, users))

    # ------------------------------------------------------------------ which set

    def _call_back(self, loans: list[Pool], others: list[Gift]) -> list[Gift] | None:
        """Surplus that, with these other gifts, is enough."""
        gone = {gift.sitter.number for gift in others}
        pools = [pool for pool in loans if pool.sitter.number not in gone]
        if not self._enough_in_all(others, pools):
            return None
        if others and self.fits(others):
            return []
        if not pools:
            return None

        def fits(gifts: Sequence[Gift]) -> bool:
            return self.fits([*others, *gifts])

        form = self.offer.form
        if not form.open_size:
            return call_back_tails(self.session.fleet, pools, fits)
        asker = Asker(form.roles[0], self.offer.size, self.question.exempt)
        found = call_back(self._trial(others), asker, pools, fits)
        if (
            found is None and self.session.limits.any
        ):  # room there may be, below a ceiling that somebody must make way for
            found = call_back_tails(self.session.fleet, pools, fits)
        return found

    def _enough_in_all(self, gifts: Sequence[Gift], pools: list[Pool]) -> bool:
        """Whether free amounts and all that might be given would do, were they in one piece: most sets end here."""
        if self._free is None:
            self._free = self._free_in_all()
        total = self._free.copy()
        for gift in gifts:
            total += vector_of(self.session.fleet, gift.sitter.gang, gift.seats)
        for pool in pools:
            total += self.session.need_of(pool.sitter.gang, pool.role).vector * pool.members
        return bool((total >= self.asked).all())

    def _find_set(self, victims: list[tuple[Sitter, Cause]], loans: list[Pool]) -> list[Gift] | None:
        """The best permitted set: lowest highest priority, then least cost, then fewer, then later gangs."""
        useful = [each for each in victims if self._useful(each[0])]
        gifts = {
            sitter.number: Gift(sitter, sitter.seats, cause, whole=True)
            for sitter, cause in sorted(useful, key=lambda each: (each[0].priority, -each[0].number))
        }
        for threshold in sorted({gift.sitter.priority for gift in gifts.values()}):
            allowed = [gift for gift in gifts.values() if gift.sitter.priority <= threshold]
            chosen = self._choose(allowed, loans)
            if chosen is not None:
                lent = self._with_loans(chosen, loans)
                assert lent is not None, "a set that was enough is enough"
                return [*chosen, *lent]
        return None

    def _choose(self, allowed: list[Gift], loans: list[Pool]) -> list[Gift] | None:
        """The best set among these, or a good one if they are many."""
        if len(allowed) <= EXACT_VICTIMS:
            return self._best(allowed, loans)
        cost = self.taker.roster.cost
        found = [[gift] for gift in allowed if self._with_loans([gift], loans) is not None]
        for some in self._by_domain(allowed):
            together = self._permitted(some)
            if together and self._with_loans(together, loans) is not None:
                found.append(self._drop(together, loans, cost))
                # The dearest for what it gives goes home first: many small ones may cost more than one large one.
                found.append(self._drop(together, loans, lambda sitter: cost(sitter) / sum(sizes_of(sitter.seats))))
        return min(found, key=lambda some: (sum(cost(g.sitter) for g in some), len(some))) if found else None

    def _by_domain(self, allowed: list[Gift]) -> list[list[Gift]]:
        """All of them; and if the asker must be inside one domain, those of each domain as well."""
        level = max(max(gang.require, *(role.require for role in gang.roles)) for gang in self.offer.form.gangs)
        if level == ANYWHERE:
            return [allowed]
        column = self.session.fleet.domains[level]
        domains: dict[int, list[Gift]] = {}
        for gift in allowed:
            for domain in {int(column[node]) for seats in gift.seats for node in seats.nodes.tolist()}:
                domains.setdefault(domain, []).append(gift)
        return [allowed, *list(domains.values())[:DOMAINS_TRIED]]

    def _permitted(self, gifts: list[Gift]) -> list[Gift]:
        """As many as may be taken together, the cheapest first."""
        kept: list[Gift] = []
        for gift in sorted(gifts, key=lambda gift: (self.taker.roster.cost(gift.sitter), -gift.sitter.number)):
            if self.taker.permits.allow_all(self.who, [*kept, gift]):
                kept.append(gift)
        return kept

    def _with_loans(self, gifts: Sequence[Gift], loans: list[Pool]) -> list[Gift] | None:
        return self._call_back(loans, list(gifts))

    def _best(self, allowed: list[Gift], loans: list[Pool]) -> list[Gift] | None:
        cost = {gift.sitter.number: self.taker.roster.cost(gift.sitter) for gift in allowed}
        sets = [list(some) for count in range(1, len(allowed) + 1) for some in combinations(allowed, count)]

        def key(some: list[Gift]) -> tuple[int, int, list[int]]:
            numbers = sorted((gift.sitter.number for gift in some), reverse=True)
            return sum(cost[number] for number in numbers), len(some), [-number for number in numbers]

        for some in sorted(sets, key=key):
            if self._with_loans(some, loans) is not None:
                return some
        return None

    def _drop(self, allowed: list[Gift], loans: list[Pool], dear: Callable[[Sitter], float]) -> list[Gift]:
        """Send home whoever is not needed, the dearest first."""
        kept = list(allowed)
        for gift in sorted(allowed, key=lambda gift: (-dear(gift.sitter), gift.sitter.number)):
            fewer = [other for other in kept if other is not gift]
            if fewer and self._with_loans(fewer, loans) is not None:
                kept = fewer
        return kept

    def _useful(self, sitter: Sitter) -> bool:
        """Whether it sits anywhere the asker could."""
        masks = [self.session.view.slots(role.shape, self.question.exempt).mask for role in self.offer.form.roles]
        if self.session.limits.any:
            return True  # it may also free a ceiling
        return any(bool(mask[seats.nodes].any()) for mask in masks for seats in sitter.seats)

"""Walk down the order: start what fits, reserve for who is blocked, let others fill around that.

This is where backfill is decided. Every turn first tries free places, then to make room. A turn that is blocked
gets a reservation while fewer than the policy allows (K: 1 is EASY, all is conservative) lie ahead of its
nodes; with that many ahead it *fills*: it may start only where no reservation moves later. Where the policy
stops instead (fcfs), the turns behind a blocked one are not looked at.

What lies ahead is a `Calendar`: a short one or a long one, and the walk does not know which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.engine.calendar.limits_ahead import leaves_limits
from phalanx.engine.calendar.port import Calendar
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.preemption import RoomFinder, RoomFound
from phalanx.engine.order.queue_turns import QueueTurns
from phalanx.engine.order.turns import Offer, Turns, find_over_limit, list_offers, start_turn
from phalanx.engine.room.placement import Places
from phalanx.engine.session import PlacementKey, Session, empty_ceiling
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import Form
from phalanx.model.plan import Guest, Reservation
from phalanx.model.reason import Code

VISIT, FILL, STOPPED = 0, 1, 2  # how the turns of a placement key are looked at
BLOCK = 1024  # turns that are looked over at once
SHORT = 64  # so many turns are walked one by one


class Walk:
    """One walk over the turns of a session."""

    def __init__(self, session: Session, turns: Turns, calendar: Calendar) -> None:
        """Nobody is blocked yet: every placement key is visited."""
        self.session, self.turns, self.calendar = session, turns, calendar
        self.now = session.snapshot.now_us
        self.mode = np.zeros(len(turns.keys), dtype=np.int8)
        self.blocked: list[int] = []  # turns that have a reservation, or stop those behind them
        self.started = np.zeros(len(turns), dtype=np.bool_)
        self.undecided: set[int] = set()
        self.limit_caps = turns.queue_caps(session) if session.limits.any else None
        self.finder = None if session.reclaimable is None else RoomFinder(session, turns, calendar, session.reclaimable)
        self._ahead = np.zeros(len(turns.keys), dtype=np.int64)  # blocked turns whose nodes each key could use
        self._service: dict[int, int] = {}  # ceilings on the nodes in service, were they empty
        self._sizes = turns.size.tolist()
        self._key_index = turns.key_index.tolist()

    # ------------------------------------------------------------------ the walk

    def run(self) -> None:
        """Give every turn its chance, in order; then, if so wanted, the shortest fill what is left."""
        fill = self.session.policy.fill == "arrival"
        queues = QueueTurns(self.session, self.turns)
        while queues.left:
            stretch = queues.next_stretch()
            queues.done(self._pass_over(stretch, fill=fill, until_start=queues.moves))
        if self.session.policy.fill == "shortest" and self.blocked:
            waiting = ~self.started & (self.mode[self.turns.key_index] == FILL)
            waiting[self.blocked] = False  # they have their reservation, and fill nothing
            left = np.flatnonzero(waiting)
            lengths = self.turns.least_lengths(self.session)[left]
            self._pass_over(left[np.argsort(lengths, kind="stable")], fill=True)

    def _pass_over(self, order: IntArray, *, fill: bool, until_start: bool = False) -> int:
        """Visit whoever might start; the answer is how many turns are dealt with."""
        if len(order) <= SHORT or not self.calendar.dismisses:
            return self._pass_one_by_one(order.tolist(), fill=fill, until_start=until_start)
        at = 0
        while at < len(order) and not self.blocked and self.limit_caps is None:
            turn = int(order[at])
            self._visit(turn)  # nobody is blocked yet, so everybody is looked at
            at += 1
            if until_start and self.started[turn]:
                return at
        while at < len(order):
            if self.session.policy.stops and self.blocked and bool((self.mode == STOPPED).all()):
                break
            block = order[at : at + BLOCK]
            look = self._worth_a_look(block, fill=fill)
            hit = int(look.argmax())
            if not look[hit]:
                at += len(block)
                continue
            at += hit + 1
            turn = int(block[hit])
            self._visit(turn)
            if until_start and self.started[turn]:
                return at
        return len(order)

    def _pass_one_by_one(self, order: Sequence[int], *, fill: bool, until_start: bool) -> int:
        """The same turn by turn: below some dozens of turns that is cheaper than arrays."""
        dismisses = self.calendar.dismisses and self.finder is None
        for at, turn in enumerate(order):
            index, size = self._key_index[turn], self._sizes[turn]
            mode = self.mode[index]
            if mode == STOPPED or (mode == FILL and not fill):
                continue
            if dismisses:
                if mode == FILL and size > self.calendar.ceiling(turn):
                    continue
                if self.limit_caps is not None and size > self.limit_caps[self.turns.queue[turn], index]:
                    continue
            self._visit(turn)
            if until_start and self.started[turn]:
                return at + 1
        return len(order)

    def _worth_a_look(self, block: IntArray, *, fill: bool) -> BoolArray:
        """Turns that are not yet known to fail."""
        index = self.turns.key_index[block]
        mode = self.mode[index]
        look: BoolArray = mode == VISIT
        if self.blocked and fill:
            look |= (mode == FILL) & self.calendar.worth_a_look(block)
        if self.limit_caps is not None:
            look &= self.turns.size[block] <= self.limit_caps[self.turns.queue[block], index]
        if self.finder is not None:
            look |= self.finder.might_help(block, self.mode, fill=fill)
        return look

    def _visit(self, turn: int) -> None:
        index, size = self._key_index[turn], self._sizes[turn]
        key = self.turns.keys[index]
        self.calendar.open_turn(turn)
        if size > self._service_ceiling(index, key):
            return  # not on the nodes in service even if empty: it neither reserves nor blocks
        filling = bool(self.mode[index] == FILL)
        if self.limit_caps is not None and self._over_limit(turn, index, key.form, size):
            self._make_room(turn, key, filling=filling)  # somebody below the ceiling may make way
            return
        if filling and self.calendar.delays_surely(turn) and not self.turns.may_be_guest(self.session, turn):
            self._make_room(turn, key, filling=True)
            return
        if filling:
            self.calendar.look_ahead()
        outcome = self._try_offers(turn)
        if outcome is not None:
            self._start(turn, *outcome)
        elif not self._make_room(turn, key, filling=filling) and not filling and turn not in self.undecided:
            self._block(turn, key)

    # ------------------------------------------------------------------ starting

    def _try_offers(self, turn: int) -> tuple[Offer, Places, Guest] | None:
        """The largest size that fits where the turn may stay; as a guest, where it may not."""
        offers = list_offers(self.session, self.turns, turn)
        lodges = self.turns.may_be_guest(self.session, turn)
        for offer in offers:
            # Asked before the ceilings of queues, which are dear to look up for the future: most turns end here.
            if not self.calendar.has_room(turn, offer, lodges=lodges):
                continue
            if self.session.limits.any and not self._limits_allow(turn, offer):
                continue
            places = self.calendar.find_now(turn, offer)
            if places is not None:
                return offer, places, Guest.NO
            if self.calendar.gave_up:
                self.undecided.add(turn)
            if lodges:
                lodging = self.calendar.find_as_guest(turn, offer)
                if lodging is not None:
                    return offer, *lodging
        promised = self.calendar.find_promised(turn)
        return None if promised is None else (offers[-1], promised, Guest.NO)

    def _limits_allow(self, turn: int, offer: Offer) -> bool:
        """Neither over a ceiling now, nor in the way of a reservation that will need it."""
        if find_over_limit(self.session, self.turns, turn, offer) is not None:
            return False
        gone_us = self.now + offer.length_us if self.turns.proven[turn] else NEVER
        return leaves_limits(self.session, self.turns, turn, offer, gone_us, self.calendar.list_reserved())

    def _start(self, turn: int, offer: Offer, places: Places, guest: Guest) -> None:
        start_turn(self.session, self.turns, turn, offer, places, guest=guest)
        self.started[turn] = True
        self.calendar.start(turn, offer, places, guest)

    def _make_room(self, turn: int, key: PlacementKey, *, filling: bool) -> bool:
        """Start a blocked turn at the expense of running gangs, if anybody lets it."""
        if self.finder is None:
            return False
        if filling:
            self.calendar.look_ahead()
        found = self.finder.find(turn, key, filling=filling) or self._call_in(turn)
        if found is None:
            return False
        self._commit(turn, found)
        return True

    def _call_in(self, turn: int) -> RoomFound | None:
        """Its time has come, and guests still sit at the places that were promised to it."""
        owed = self.calendar.find_owed(turn)
        if owed is None:
            return None
        offer = list_offers(self.session, self.turns, turn)[-1]
        return RoomFound(offer, *owed, self.calendar.gone_us(turn, offer))

    def _commit(self, turn: int, found: RoomFound) -> None:
        assert self.finder is not None
        self.finder.commit(found, int(self.session.snapshot.pending.gang[self.turns.rows[turn]]))
        self.calendar.forget_refusals()
        self._start(turn, found.offer, self.calendar.hold(found.offer.form, found.places), Guest.NO)
        self.finder.settle_moves(found)
        self.limit_caps = self.turns.queue_caps(self.session) if self.session.limits.any else None

    # ------------------------------------------------------------------ ceilings

    def _service_ceiling(self, index: int, key: PlacementKey) -> int:
        found = self._service.get(index)
        if found is None:
            found = self._service[index] = empty_ceiling(self.session.fleet, key.form, self.session.in_service)
        return found

    def _over_limit(self, turn: int, index: int, form: Form, size: int) -> bool:
        """Whether a ceiling forbids the start; its size is then remembered, since usage only grows in a walk."""
        over = find_over_limit(self.session, self.turns, turn, Offer(form, size, 0))
        if over is not None and over.code is Code.QUEUE_LIMIT and self.limit_caps is not None:
            queue = int(self.turns.queue[turn])
            self.limit_caps[queue, index] = min(int(self.limit_caps[queue, index]), size - 1)
        return over is not None

    # ------------------------------------------------------------------ blocking

    def _block(self, turn: int, key: PlacementKey) -> None:
        """Reserve for a blocked turn, or let it stop those behind it; either holds on the nodes it could use."""
        policy = self.session.policy
        if policy.reservations == 0 and not policy.stops:
            return
        if not self.calendar.reserve(turn, key):
            self.undecided.add(turn)
            return
        self.blocked.append(turn)
        if policy.reservations > len(self.turns):
            return  # there are not as many turns as there may be reservations: nobody ever only fills
        self._count_ahead(self.session.pool_of(key))
        if policy.stops:
            self.mode[self._ahead > 0] = STOPPED
        else:
            self.mode[self._ahead >= policy.reservations] = FILL

    def _count_ahead(self, blocked: BoolArray) -> None:
        """One more blocked turn for every key that shares candidate nodes with it (rule 2: K counts per pool)."""
        if len(self.turns.keys) == 1:
            self._ahead += 1
            return
        pools: dict[bytes, bool] = {}
        for index, other in enumerate(self.turns.keys):
            if self.mode[index] != VISIT:
                continue  # it has as many ahead of it as make a difference
            pool = self.session.pool_of(other)
            meets = pools.get(pool.tobytes())
            if meets is None:
                meets = pools[pool.tobytes()] = bool((pool & blocked).any())
            self._ahead[index] += meets

    # ------------------------------------------------------------------ afterwards

    def list_reservations(self) -> tuple[Reservation, ...]:
        """Starts in the future, with places."""
        return self.calendar.list_reservations()

    def why_not(self, turn: int) -> Code:
        """Of a turn that has room now: the order, a window or a reservation keeps it waiting."""
        mode = self.mode[self.turns.key_index[turn]]
        return Code.BEHIND if mode == STOPPED else self.calendar.why_not(turn, filling=bool(mode == FILL))

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
from phalanx.engine.kept_dates import PlannedStart
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.preemption import RoomFinder, RoomFound
from phalanx.engine.order.orders import overhead_us
from phalanx.engine.order.queue_turns import QueueTurns
from phalanx.engine.order.turns import Offer, Turns, asked_units, find_over_limit, list_offers, start_turn
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import Places
from phalanx.engine.room.seats import sizes_of
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
        self.dismissals = calendar.dismissals
        self.now = session.snapshot.now_us
        # By placement key and not by turn: reservations are counted per pool of nodes
        # (rule 2), and turns of one key share it.
        self.mode = np.zeros(len(turns.keys), dtype=np.int8)
        self.blocked: list[int] = []  # turns that have a reservation, or stop those behind them
        self.started = np.zeros(len(turns), dtype=np.bool_)
        self.undecided: set[int] = set()
        self.kept_out: set[int] = set()  # turns that a promised date keeps from starting
        self.limit_caps = turns.queue_caps(session) if session.limits.any else None
        self.finder = None if session.reclaimable is None else RoomFinder(session, turns, calendar, session.reclaimable)
        self._ahead = np.zeros(len(turns.keys), dtype=np.int64)  # blocked turns whose nodes each key could use
        self._service: dict[int, int] = {}  # ceilings on the nodes in service, were they empty
        # As plain numbers: a visit reads two of them, and one element of an array is many times as slow to read.

    # ------------------------------------------------------------------ the walk

    def run(self) -> None:
        """Give every turn its chance, in order; then, if so wanted, the shortest fill what is left."""
        fill = self.session.policy.fill == "arrival"
        queues = QueueTurns(self.session, self.turns)
        # As it is before the walk: it goes by the queues that have turns left, and none has when others fill.
        moves = queues.moves
        while queues.left:
            stretch = queues.next_stretch()
            queues.done(self._pass_over(stretch, fill=fill, until_start=moves))
        if self.session.policy.fill == "shortest" and self.blocked:
            # Only those who fill: whoever had fewer than K ahead was tried in its turn.
            waiting = ~self.started & (self.mode[self.turns.key_index] == FILL)
            waiting[self.blocked] = False  # they have their reservation, and fill nothing
            left = np.flatnonzero(waiting)
            lengths = self.turns.lengths_at_first_size(self.session)[left]
            # After everybody had their turn, so that no short gang takes what one ahead of it could have started on.
            # Stable: of equal lengths the policy's order.
            self._fill_by_tier(left[np.argsort(lengths, kind="stable")], moves=moves)

    def _fill_by_tier(self, order: IntArray, *, moves: bool) -> None:
        """The shortest first, but those of queues below their guarantee before all others (rule 1)."""
        if not moves:
            self._pass_over(order, fill=True)
            return
        while len(order):
            # Anew after each start, which may have brought its queue up to its guarantee.
            queue = self.turns.queue[order]
            tiers = {each: self.session.standing.tiers(each) for each in set(queue.tolist())}
            ranks = {tier: rank for rank, tier in enumerate(sorted(set(tiers.values())))}
            rank = np.array([ranks[tiers[each]] for each in queue.tolist()])
            order = order[np.argsort(rank, kind="stable")]
            order = order[self._pass_over(order, fill=True, until_start=len(ranks) > 1) :]

    def _pass_over(self, order: IntArray, *, fill: bool, until_start: bool = False) -> int:
        """Visit whoever might start; the answer is how many turns are dealt with."""
        if len(order) <= SHORT or self.dismissals is None:
            return self._pass_one_by_one(order, fill=fill, until_start=until_start)
        at = 0
        # Until somebody is blocked nobody can be dismissed by a glance, and looking over a block would be for nothing.
        while at < len(order) and not self.blocked and self.limit_caps is None:
            turn = int(order[at])
            self._visit(turn)  # nobody is blocked yet, so everybody is looked at
            at += 1
            if until_start and self.started[turn]:
                return at
        while at < len(order):
            if self.session.policy.stops and self.blocked and bool((self.mode == STOPPED).all()):
                break
            # Looked over anew after each visit: what a start took may have made the rest of the block
            # hopeless, and a block bounds what that costs.
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

    def _pass_one_by_one(self, order: IntArray, *, fill: bool, until_start: bool) -> int:
        """The same turn by turn: below some dozens of turns that is cheaper than arrays."""
        dismissals, finder = self.dismissals, self.finder
        columns = (order, self.turns.key_index[order], self.turns.size[order])
        modes, hopes = self.mode.tolist(), None
        for at, (turn, index, size) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            mode = modes[index]
            # Those who fill in another order come later, in `run`.
            if mode == STOPPED or (mode == FILL and not fill):
                continue
            if mode == FILL and dismissals is not None and size > dismissals.ceiling(turn):
                # Whoever may take room is dismissed only if that is known to fail as well.
                if finder is not None and hopes is None:
                    hopes = finder.hopes.list_few(order, self.mode)
                if hopes is None or not hopes[at]:
                    continue
            if finder is None and dismissals is not None and self._over_cap(turn, index, size):
                continue
            self._visit(turn)
            if until_start and self.started[turn]:
                return at + 1
            # A visit may have blocked others, and what it took or gave back changes what they may hope for.
            modes, hopes = self.mode.tolist(), None
        return len(order)

    def _over_cap(self, turn: int, index: int, size: int) -> bool:
        return self.limit_caps is not None and size > self.limit_caps[self.turns.queue[turn], index]

    def _worth_a_look(self, block: IntArray, *, fill: bool) -> BoolArray:
        """Turns that are not yet known to fail."""
        index = self.turns.key_index[block]
        mode = self.mode[index]
        look: BoolArray = mode == VISIT
        if self.blocked and fill and self.dismissals is not None:
            look |= (mode == FILL) & self.dismissals.worth_a_look(block)
        if self.limit_caps is not None:
            look &= self.turns.size[block] <= self.limit_caps[self.turns.queue[block], index]
        if self.finder is not None:
            # After the limits, which it lifts again: somebody below the same ceiling may make way.
            look |= self.finder.hopes.might_help(block, self.mode, fill=fill)
        return look

    def _visit(self, turn: int) -> None:
        index, size = int(self.turns.key_index[turn]), int(self.turns.size[turn])
        key = self.turns.keys[index]
        # First of all, also for those who return at once: a promise that is not taken up
        # would stay claimed for the whole walk.
        self.calendar.open_turn(turn)
        if size > self._service_ceiling(index, key):
            return  # not on the nodes in service even if empty: it neither reserves nor blocks
        filling = bool(self.mode[index] == FILL)
        if self.limit_caps is not None and self._over_limit(turn, index, key.form, size):
            self._make_room(turn, key, filling=filling)  # somebody below the ceiling may make way
            return
        # Sums before views: most fillers of a long queue end here, and the reservation need never be worked out.
        delays = filling and self.dismissals is not None and self.dismissals.delays_surely(turn)
        if delays and not self.turns.may_be_guest(self.session, turn):
            self._make_room(turn, key, filling=True)
            return
        if filling:
            self.calendar.look_ahead()
        outcome = self._try_offers(turn)
        if outcome is not None:
            self._start(turn, *outcome)
        # Only a turn that did not merely fill blocks, and only one that is known not to fit: a search
        # that gave up may not hold up those behind it.
        elif not self._make_room(turn, key, filling=filling) and not filling and turn not in self.undecided:
            self._block(turn, key)

    # ------------------------------------------------------------------ starting

    def _try_offers(self, turn: int) -> tuple[Offer, Places, Guest] | None:
        """The largest size that fits where the turn may stay; as a guest, where it may not."""
        offers = list_offers(self.session, self.turns, turn)
        lodges = self.turns.may_be_guest(self.session, turn)
        if self.session.dates is not None and lodges:
            # A guest leaves whenever the owner of its places comes: no way to keep a promise.
            lodges = int(self.session.snapshot.pending.gang[self.turns.rows[turn]]) not in self.session.dates.promised
        for offer in offers:
            # Asked before the ceilings of queues, which are dear to look up for the future: most turns end here.
            if not self.calendar.has_room(turn, offer, lodges=lodges):
                continue
            if self.session.limits.any and not self._limits_allow(turn, offer):
                continue
            if self.session.dates is not None and not self._leaves_dates(turn, offer):
                continue
            places = self.calendar.find_now(turn, offer)
            if places is not None:
                return offer, places, Guest.NO
            if self.calendar.gave_up:
                self.undecided.add(turn)
            # Before a smaller size: a moldable gang gets the largest that fits at its
            # start (rule 1), as a guest or not.
            if lodges:
                lodging = self.calendar.find_as_guest(turn, offer)
                if lodging is not None:
                    return offer, *lodging
        promised = None if turn in self.kept_out else self.calendar.find_promised(turn)
        return None if promised is None else (offers[-1], promised, Guest.NO)

    def _limits_allow(self, turn: int, offer: Offer) -> bool:
        """Neither over a ceiling now, nor in the way of a reservation that will need it."""
        if find_over_limit(self.session, self.turns, turn, offer) is not None:
            return False
        # As with places: only a stated or predicted walltime proves an end (rule 7).
        gone_us = self.now + offer.length_us if self.turns.proven[turn] else NEVER
        return leaves_limits(self.session, self.turns, turn, offer, gone_us, self.calendar.list_reserved())

    def _leaves_dates(self, turn: int, offer: Offer, releases: Sequence[Release] = ()) -> bool:
        """Whether every promised date can still be met if it starts now."""
        assert self.session.dates is not None
        if self.session.dates.allows(self._as_start(turn, offer, releases)):
            self.kept_out.discard(turn)
            return True
        self.kept_out.add(turn)
        return False

    def _as_start(self, turn: int, offer: Offer, releases: Sequence[Release]) -> PlannedStart:
        pending, gangs = self.session.snapshot.pending, self.session.snapshot.gangs
        rows = self.turns.rows_of(turn)
        # Start-up and restoring come on top of what is stated (decision 7).
        more = (overhead_us(gangs[int(pending.gang[row])], ran_before=bool(pending.attained_us[row])) for row in rows)
        until_us = self.now + offer.length_us + max(more) if self.turns.proven[turn] else NEVER
        units = asked_units(self.session, offer.form, offer.size)
        pool = self.session.pool_of(self.turns.key_of(turn))
        leaving = tuple(each.occupant.number for each in releases if each.whole)
        lending = tuple((each.occupant.number, sum(sizes_of(each.seats))) for each in releases if not each.whole)
        return PlannedStart(int(pending.gang[rows[-1]]), pool, units, until_us, leaving, lending)

    def _start(self, turn: int, offer: Offer, places: Places, guest: Guest, releases: Sequence[Release] = ()) -> None:
        # The session before the calendar: the long one reads the ends that this has just written.
        if self.session.dates is not None:
            self.session.dates.note_start(self._as_start(turn, offer, releases))
            # What others need may be more beside it, and the next one may not take that from them.
            if self.session.reclaimable is not None:
                self.session.dates.protect(self.session.reclaimable)
        start_turn(self.session, self.turns, turn, offer, places, guest=guest)
        self.started[turn] = True
        # A search gave up on a larger size, and a smaller one was found.
        self.undecided.discard(turn)
        self.calendar.start(turn, offer, places, guest)

    def _make_room(self, turn: int, key: PlacementKey, *, filling: bool) -> bool:
        """Start a blocked turn at the expense of running gangs, if anybody lets it."""
        if self.finder is None:
            return False
        # Before anything is looked for: what the trial views may use depends on where the reservations lie.
        if filling:
            self.calendar.look_ahead()
        # What it is owed comes last: guests leave only if nothing gentler lets the owner in (decision 17).
        found = self.finder.find(turn, key, filling=filling) or self._call_in(turn)
        if found is None:
            return False
        if self.session.dates is not None and not self._leaves_dates(turn, found.offer, found.releases):
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
        if self.dismissals is not None:
            self.dismissals.forget()
        # Releases first, then the claimant, then those who were moved: each sits on what the one before has left.
        places = self.calendar.hold(found.offer.form, found.places)
        self._start(turn, found.offer, places, Guest.NO, found.releases)
        self.finder.settle_moves(found)
        # Usage has gone down with the releases, so that sizes remembered as too large may fit again.
        self.limit_caps = self.turns.queue_caps(self.session) if self.session.limits.any else None

    # ------------------------------------------------------------------ ceilings

    def _service_ceiling(self, index: int, key: PlacementKey) -> int:
        found = self._service.get(index)
        if found is None:
            found = self._service[index] = empty_ceiling(self.session.fleet, key.form, self.session.in_service)
        return found

    def _over_limit(self, turn: int, index: int, form: Form, size: int) -> bool:
        """Whether a ceiling forbids the start; its size is then remembered, until somebody gives room back."""
        over = find_over_limit(self.session, self.turns, turn, Offer(form, size, 0))
        # Not a user's limit: another user of the queue may start the same size.
        if over is not None and over.code is Code.QUEUE_LIMIT and self.limit_caps is not None:
            queue = int(self.turns.queue[turn])
            self.limit_caps[queue, index] = min(int(self.limit_caps[queue, index]), size - 1)
        return over is not None

    # ------------------------------------------------------------------ blocking

    def _block(self, turn: int, key: PlacementKey) -> None:
        """Reserve for a blocked turn, or let it stop those behind it; either holds on the nodes it could use."""
        policy = self.session.policy
        # Kept out: it has room, and waits for a date that was promised. A reservation would be one for now.
        if (policy.reservations == 0 and not policy.stops) or turn in self.kept_out:
            return
        # It waits for others to leave, or to come, and not for room.
        if self.session.is_barred(key, int(self.turns.size[turn])):
            return
        # No instant was found although it fits the empty nodes: nobody knows when, so
        # it may not hold up those behind it.
        if not self.calendar.reserve(turn, key):
            self.undecided.add(turn)
            return
        self.blocked.append(turn)
        if policy.reservations > len(self.turns):
            return  # there are not as many turns as there may be reservations: nobody ever only fills
        # By candidate nodes and not by reserved places (decision 5): the stop of `fcfs` has no places to compare.
        self._count_ahead(self.session.pool_of(key))
        if policy.stops:
            # One is enough: behind the first blocked gang of its pool nobody passes.
            self.mode[self._ahead > 0] = STOPPED
        else:
            self.mode[self._ahead >= policy.reservations] = FILL

    def _count_ahead(self, blocked: BoolArray) -> None:
        """One more blocked turn for every key that shares candidate nodes with it (rule 2: K counts per pool)."""
        if len(self.turns.keys) == 1:
            self._ahead += 1
            return
        # Keys differ in sizes, shapes and wishes, and mostly have the same pool.
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
        """Of a turn that has room now: the order, a window, a reservation or a promised date keeps it waiting."""
        if turn in self.kept_out:
            return Code.RESERVED
        mode = self.mode[self.turns.key_index[turn]]
        return Code.BEHIND if mode == STOPPED else self.calendar.why_not(turn, filling=bool(mode == FILL))

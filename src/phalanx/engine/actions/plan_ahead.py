"""Walk down the order with a full calendar: any number of reservations, promises kept, windows.

Each gang is placed at its earliest start against everything already in the calendar. If that is
now it starts; if not, it gets a reservation as long as its pool has fewer than the policy allows.
Under `keep` the promises of earlier cycles are in the calendar from the beginning, and a gang is
re-placed never later than its own. `engine.actions.allocate` is the fast walk for one reservation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.engine.calendar.guests import GuestSeats
from phalanx.engine.calendar.limits_ahead import leaves_limits
from phalanx.engine.calendar.timeline import Timeline
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.making_room.preemption import RoomFinder, RoomFound
from phalanx.engine.order.queue_turns import QueueTurns
from phalanx.engine.order.turns import Offer, Turns, find_over_limit, list_offers, start_turn
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import Places, find_ceiling, retake, undo
from phalanx.engine.room.seats import cover_nodes
from phalanx.engine.room.view import Exempt, View, find_need
from phalanx.engine.session import PlacementKey, Session, empty_ceiling
from phalanx.model.fleet import BoolArray
from phalanx.model.form import Form
from phalanx.model.plan import Cause, Guest, Reservation, Seats
from phalanx.model.reason import Code


class PlanAhead:
    """One walk over the turns of a session, with a calendar."""

    def __init__(self, session: Session, turns: Turns) -> None:
        """Build the calendar and put the promises into it that still hold."""
        self.session, self.turns = session, turns
        self.now = session.snapshot.now_us
        self.timeline = Timeline(session)
        self.started = np.zeros(len(turns), dtype=np.bool_)
        self.stopped: list[BoolArray] = []  # pools of gangs that stop those behind them
        self.reserved_pools: list[BoolArray] = []
        self.reservations: list[tuple[int, Reservation]] = []  # with the turn
        self.undecided: set[int] = set()
        self._pools: dict[PlacementKey, BoolArray] = {}
        self._own: Reservation | None = None  # the promise of the gang whose turn it is
        self._late: set[int] = set()  # turns whose time has come, and a guest still sits at their places
        self._promises = self._recall_promises() if session.policy.keep else {}
        many = session.policy.keep or session.policy.reservations > 1
        self.guests = GuestSeats(session, self.timeline, self._list_promised) if many else None
        self.finder = None if session.reclaimable is None else RoomFinder(session, turns, self, session.reclaimable)

    # ------------------------------------------------------------------ promises

    def _recall_promises(self) -> dict[int, tuple[Form, Reservation]]:
        """Promises that still hold, by turn, claimed in the calendar. A void one is simply forgotten."""
        pending, promises = self.session.snapshot.pending, self.session.snapshot.promises
        found: dict[int, tuple[Form, Reservation]] = {}
        newcomer = self._newcomers_priority()
        for turn in range(len(self.turns)):
            rows = self.turns.rows_of(turn)
            promise = promises.get(int(pending.gang[rows[0]]))
            if promise is None or promise.start_us < self.now:
                continue
            if newcomer is not None and int(pending.priority[rows[0]]) < newcomer:
                continue  # somebody more important has come: this one is placed anew, after them
            form = self.turns.key_of(turn).form
            if self._stands(turn, form, promise):
                found[turn] = (form, promise)
        return found

    def _newcomers_priority(self) -> int | None:
        """The highest priority of those who have just come and could take part; the rest disturb nobody."""
        pending, fresh = self.session.snapshot.pending, self.session.snapshot.fresh
        highest: int | None = None
        for turn in range(len(self.turns)) if fresh else ():
            row = self.turns.rows_of(turn)[-1]
            if int(pending.gang[row]) not in fresh or not self._takes_part(turn):
                continue
            priority = int(pending.priority[row])
            highest = priority if highest is None else max(highest, priority)
        return highest

    def _takes_part(self, turn: int) -> bool:
        """Whether the ends of others could let it start: neither over a limit nor without nodes in service."""
        key, size = self._key_of(turn), int(self.turns.size[turn])
        if size > empty_ceiling(self.session.fleet, key.form, self.session.in_service):
            return False
        return find_over_limit(self.session, self.turns, turn, Offer(key.form, size, 0)) is None

    def _stands(self, turn: int, form: Form, promise: Reservation) -> bool:
        """Claim a promise; if something grew into it (an overrun, a window), take it out again."""
        if self._under_window(turn, promise):
            return False
        sound = self._claim_promise(turn, form, promise, -1)
        if not sound:
            self._claim_promise(turn, form, promise, 1)
        if not sound and promise.start_us == self.now and turn not in self._late:
            self._late.add(turn)  # a guest is counted as gone in the next moment; anybody else is in the way
            sound = self._stands(turn, form, promise)
        return sound

    def _claim_promise(self, turn: int, form: Form, promise: Reservation, sign: int) -> bool:
        start_us = promise.start_us + (turn in self._late)
        return self.timeline.claim(form, promise.seats, start_us, promise.end_us, sign)

    def _list_promised(self) -> list[Reservation]:
        """Starts in the future, and promises of those whose turn has not come yet."""
        return [reservation for _, reservation in self.reservations] + [each for _, each in self._promises.values()]

    def _under_window(self, turn: int, promise: Reservation) -> bool:
        exempt = self.turns.key_of(turn).exempt
        for index, window in enumerate(self.session.snapshot.windows):
            if index in exempt or window.start_us >= promise.end_us or window.end_us <= promise.start_us:
                continue
            mask = self.session.window_masks[index]
            if any(bool(mask[seats.nodes].any()) for per_gang in promise.seats for seats in per_gang):
                return True
        return False

    # ------------------------------------------------------------------ the walk

    def run(self) -> None:
        """Give every turn its chance, in order."""
        later = []
        line = QueueTurns(self.session, self.turns)
        while line.left:
            stretch = line.next_stretch().tolist()
            done = 0
            for turn in stretch:
                done += 1
                if self.session.policy.fill == "shortest" and not self._may_reserve(turn):
                    later.append(turn)
                    continue
                self._visit(turn)
                if line.moves and self.started[turn]:
                    break
            line.done(done)
        lengths = self.turns.least_lengths(self.session) if later else None
        for turn in sorted(later, key=lambda turn: 0 if lengths is None else int(lengths[turn])):
            self._visit(turn)

    def _visit(self, turn: int) -> None:
        key = self._key_of(turn)
        promised = self._recall_own(turn)
        if not self._takes_part(turn):
            if int(self.turns.size[turn]) <= self._service_ceiling(key):
                self._take(turn, key)  # over a limit: somebody below it may make way
            return
        if any(bool((pool & self._pool(key)).any()) for pool in self.stopped):
            return
        outcome = self._start_now(turn, key)
        if outcome is None and turn not in self._late:
            outcome = self._as_promised(turn, promised)
        if outcome is None and not self._take(turn, key) and self._send_away(turn, promised):
            outcome = self._as_promised(turn, promised)
        if outcome is not None:
            self._start(turn, *outcome)
        elif self.started[turn]:
            pass
        elif self.session.policy.stops:
            self.stopped.append(self._pool(key))
        elif self._may_reserve(turn):
            self._reserve(turn, key, None if promised is None else promised[1])

    def _recall_own(self, turn: int) -> tuple[Form, Reservation] | None:
        """The promise of the gang whose turn it is, out of the calendar, which from now on answers for this gang."""
        if self.guests is not None:
            self.guests.show_to(int(self.turns.rows[turn]))
        promised = self._promises.pop(turn, None)
        if promised is not None:
            self._claim_promise(turn, *promised, 1)
        self._own = None if promised is None else promised[1]
        return promised

    def _as_promised(self, turn: int, promised: tuple[Form, Reservation] | None) -> tuple[Offer, Places, Guest] | None:
        """Its own time has come, at the places named for it: whatever was planned since kept clear of them."""
        if promised is None or promised[1].start_us != self.now:
            return None
        offer = list_offers(self.session, self.turns, turn)[-1]
        return offer, self.name_devices(*promised_places(promised)), Guest.NO

    def _send_away(self, turn: int, promised: tuple[Form, Reservation] | None) -> bool:
        """As many guests as must leave the places that were named for a gang; whether that is enough."""
        if promised is None or turn not in self._late or self.guests is None or self.finder is None:
            return False
        form, promise = promised
        releases = self.guests.choose_leaving(form, promise.seats)
        if releases is None:
            return False
        offer = list_offers(self.session, self.turns, turn)[-1]
        number = int(self.session.snapshot.pending.gang[self.turns.rows[turn]])
        self.finder.commit(RoomFound(offer, releases, promise.seats, promise.end_us), number)
        return True

    def _service_ceiling(self, key: PlacementKey) -> int:
        return empty_ceiling(self.session.fleet, key.form, self.session.in_service)

    def _take(self, turn: int, key: PlacementKey) -> bool:
        """Start a blocked gang at the expense of running ones, if anybody lets it."""
        if self.finder is None:
            return False
        taken = self.finder.find(turn, key, filling=not self._may_reserve(turn))
        if taken is None:
            return False
        self._commit(turn, taken)
        return True

    def _commit(self, turn: int, taken: RoomFound) -> None:
        assert self.finder is not None
        self.finder.commit(taken, int(self.session.snapshot.pending.gang[self.turns.rows[turn]]))
        self._start(turn, taken.offer, self.name_devices(taken.offer.form, taken.places), Guest.NO)
        self.finder.settle_moves(taken)

    # ------------------------------------------------------------------ calendar

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until then, with releases; a copy of its own."""
        for release in releases:
            self._shift(release, 1)
        view = self.timeline.view_over(exempt, self.now, max(gone_us, self.now + 1))
        for release in releases:
            self._shift(release, -1)
        return view

    def _shift(self, release: Release, sign: int) -> None:
        for seats in release.seats:
            need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
            end_us = release.occupant.end_us
            if release.occupant.guest:
                guests = None if release.cause is Cause.GUEST else self.guests
                end_us = self.now + 1 if guests is None else guests.until_us(release.occupant)
            self.timeline.claim_seats(need, seats, self.now, end_us, sign)

    def give(self, release: Release) -> None:
        """Seats given back are free in the calendar until their end, when they would have been anyway."""
        if self.guests is not None:
            self.guests.lift(release.occupant)
        self._shift(release, 1)

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats are taken in the calendar."""
        self.timeline.claim_seats(need, seats, self.now, gone_us, -sign)

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Until when whoever starts now must be able to stay."""
        return self.now + self._span(turn, offer)

    def _key_of(self, turn: int) -> PlacementKey:
        return self.turns.key_of(turn)

    def _pool(self, key: PlacementKey) -> BoolArray:
        if key not in self._pools:
            self._pools[key] = self.session.pool_of(key)
        return self._pools[key]

    def _may_reserve(self, turn: int) -> bool:
        """Whether fewer reservations than the policy allows share this gang's candidate nodes."""
        allowed = self.session.policy.reservations
        if allowed > len(self.turns):
            return True
        pool = self._pool(self._key_of(turn))
        return sum(bool((other & pool).any()) for other in self.reserved_pools) < allowed

    # ------------------------------------------------------------------ starting

    def _start_now(self, turn: int, key: PlacementKey) -> tuple[Offer, Places, Guest] | None:
        """The largest size that fits now and stays out of every reservation's way."""
        for offer in list_offers(self.session, self.turns, turn):
            if find_ceiling(self.session.view, offer.form, key.exempt) < offer.size:
                continue
            if self.session.limits.any and not self._limits_allow(turn, offer):
                continue
            places = self._places_now(turn, key, offer)
            if places is not None:
                return offer, places, Guest.NO
            if self._ahead_of_others and self.turns.may_be_guest(self.session, turn):
                places = self.timeline.place_over(key, offer.form, offer.size, self.now, 1)
                if places is not None:
                    guest = Guest.WHOLE if self._under_reservation(places) else Guest.NO
                    return offer, self.name_devices(offer.form, places), guest
        return None

    @property
    def _ahead_of_others(self) -> bool:
        """Whether there is anything to be a guest under, or a window that one may have to leave."""
        return bool(self.reservations or self._promises or self.session.snapshot.windows)

    def _under_reservation(self, places: Places) -> bool:
        """Whether these places are promised to somebody; of a window one gets notice, and owes nobody anything."""
        mine = {int(node) for per_gang in places for seats in per_gang for node in seats.nodes}
        return any(
            int(node) in mine
            for each in self._list_promised()
            for per_gang in each.seats
            for seats in per_gang
            for node in seats.nodes
        )

    def _limits_allow(self, turn: int, offer: Offer) -> bool:
        """Neither over a ceiling now, nor in the way of somebody with a reservation who will need it."""
        if find_over_limit(self.session, self.turns, turn, offer) is not None:
            return False
        reserved = [(other, reservation.start_us) for other, reservation in self.reservations]
        reserved += [(other, promise.start_us) for other, (_, promise) in self._promises.items()]
        gone_us = self.now + self._span(turn, offer) if self.turns.proven[turn] else NEVER
        return leaves_limits(self.session, self.turns, turn, offer, gone_us, reserved)

    def _places_now(self, turn: int, key: PlacementKey, offer: Offer) -> Places | None:
        places = self.timeline.place_over(key, offer.form, offer.size, self.now, self._span(turn, offer))
        return None if places is None else self.name_devices(offer.form, places)

    def _span(self, turn: int, offer: Offer) -> int:
        """How long a gang must be able to stay.

        Without a stated walltime nobody knows when it ends, so it may not stand where somebody ahead of it
        has a reservation, however late that is, unless that was planned around its own promise. Those behind
        it were planned around its default length, and against windows that length counts as well.
        """
        if self.turns.proven[turn]:
            return offer.length_us
        own_end_us = NEVER if self._own is None else self._own.end_us
        starts = (reservation.start_us for _, reservation in self.reservations)
        ahead_us = max((start_us for start_us in starts if start_us < own_end_us), default=self.now)
        return max(offer.length_us, ahead_us + 1 - self.now)

    def name_devices(self, form: Form, places: Places) -> Places:
        """Choose real devices for places that were found by amounts, as long as no device was ever split."""
        view = self.session.view
        if view.shared or view.fleet.device_column < 0:
            return places
        chosen: list[tuple[Seats, ...]] = []
        for gang, seats_by_role in zip(form.gangs, places, strict=True):
            taken = []
            for seats in seats_by_role:
                devices = view.take(find_need(view.fleet, gang.roles[seats.role].shape), seats.nodes, seats.counts)
                taken.append(Seats(seats.role, seats.nodes, seats.counts, devices, seats.members))
            chosen.append(tuple(taken))
        undo(view, form, tuple(chosen))
        return tuple(chosen)

    def _start(self, turn: int, offer: Offer, places: Places, guest: Guest) -> None:
        start_turn(self.session, self.turns, turn, offer, places, guest=guest)
        self.started[turn] = True
        retake(self.session.view, offer.form, places)
        for form, own, end_us in self.session.bound[-len(places) :]:
            until_us = end_us
            if guest and self.guests is not None:  # those behind it may not have its seats before the owner does
                until_us = max(end_us, self.guests.stays_until_us(own[0], self.now + offer.length_us))
            self.timeline.claim(form, own, self.now, until_us)

    # ------------------------------------------------------------------ reserving

    def _reserve(self, turn: int, key: PlacementKey, promise: Reservation | None) -> None:
        """The earliest start there is, never later than what was promised."""
        offer = list_offers(self.session, self.turns, turn)[-1]
        latest = NEVER if promise is None else promise.start_us - 1
        found = self.timeline.find_start(key, int(self.turns.size[turn]), self._span(turn, offer), latest)
        if found is None and promise is not None:
            found = (promise.start_us, promise.seats)  # nothing gained: the places that were named stay
        if found is None:
            self.undecided.add(turn)
            return
        start_us, places = found
        end_us = start_us + offer.length_us
        self.timeline.claim(key.form, places, start_us, end_us)
        self.reserved_pools.append(self._pool(key))
        gangs = tuple(int(self.session.snapshot.pending.gang[row]) for row in self.turns.rows_of(turn))
        self.reservations.append((turn, Reservation(gangs, start_us, end_us, places)))

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which somebody has a reservation, or a promise."""
        return cover_nodes(len(self.session.fleet), self._list_promised())

    def next_start_us(self) -> int:
        """The first reserved start, or window."""
        starts = [reservation.start_us for _, reservation in self.reservations]
        starts += [window.start_us for window in self.session.snapshot.windows if window.start_us > self.now]
        return min(starts, default=NEVER)

    def list_reservations(self) -> tuple[Reservation, ...]:
        """The reservations of this walk, in order of turns."""
        return tuple(reservation for _, reservation in self.reservations)

    def why_not(self, turn: int) -> Code:
        """Of a gang that has room now: the order, a window or a reservation keeps it waiting."""
        key = self._key_of(turn)
        if any(bool((pool & self._pool(key)).any()) for pool in self.stopped):
            return Code.BEHIND
        offer = list_offers(self.session, self.turns, turn)[-1]
        for role in key.form.roles if self.session.snapshot.windows else ():
            lanes = self.timeline.lanes(role.shape, key.exempt, windows=False)
            cut = self.timeline.lanes(role.shape, key.exempt)
            size = role.size or int(self.turns.size[turn])
            without, within = (
                int(each.slots_over(self.now, offer.length_us, len(self.session.fleet)).sum()) for each in (lanes, cut)
            )
            if without >= size > within:
                return Code.MAINTENANCE
        return Code.RESERVED


def promised_places(promised: tuple[Form, Reservation]) -> tuple[Form, Places]:
    """The form and the places of a promise."""
    return promised[0], promised[1].seats

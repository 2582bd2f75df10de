"""The calendar with any number of reservations, promises that are kept, and windows.

Everything that lies ahead is a claim on a `Timeline`: expected ends, reservations of this walk, and under `keep`
the promises of earlier cycles (`engine.calendar.promises`), which are in it from the beginning. A turn is placed
against everybody else's claims, never later than its own promise.

This is conservative backfill (`reservations: all`, `keep`), EASY with several reservations, and any policy while a
maintenance window or an administrator's reservation lies ahead. `choose_calendar` takes `engine.calendar.short`
wherever that gives the same answers, since it is quicker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.engine.calendar.guests import GuestSeats
from phalanx.engine.calendar.promises import KeptPromises
from phalanx.engine.calendar.releases import collect_ends
from phalanx.engine.calendar.timeline import Timeline
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.order.turns import Offer, Turns, fit_domain, list_offers
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import Places, find_ceiling, retake, undo
from phalanx.engine.room.seats import cover_nodes
from phalanx.engine.room.view import Exempt, View, find_need
from phalanx.engine.session import PlacementKey, Session
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import Form
from phalanx.model.plan import Cause, Guest, Reservation, Seats
from phalanx.model.reason import Code
from phalanx.model.topology import ANYWHERE


class LongCalendar:
    """A line of time per node, with everybody's claims."""

    # Whoever has a promise must be visited, or it would be forgotten. Room may even grow within a walk of this kind,
    # when a turn opens and its promise is lifted, so that no refusal is remembered.
    dismissals = None
    gave_up = False

    def __init__(self, session: Session, turns: Turns) -> None:
        """Lay out the ends, and put the promises into it that still hold."""
        self.session, self.turns = session, turns
        self.now = session.snapshot.now_us
        self.timeline = Timeline(session)
        self.reservations: list[tuple[int, Reservation]] = []  # with the turn
        self._own: Reservation | None = None  # the promise of the turn that is open
        self._promises = KeptPromises(session, turns, self.timeline)
        # With one reservation at most, it is plain whose guest a guest is.
        many = session.policy.keep or session.policy.reservations > 1
        self._guests = GuestSeats(session, self.timeline, self._list_promised) if many else None

    @property
    def wake_us(self) -> int:
        """The time of an owner above a guest comes."""
        return NEVER if self._guests is None else self._guests.wake_us

    def _list_promised(self) -> list[Reservation]:
        """Starts in the future, and promises of those whose turn has not come yet."""
        return [*self.list_reservations(), *self._promises.list_reservations()]

    # ------------------------------------------------------------------ starting

    def open_turn(self, turn: int) -> None:
        """What was promised to it is free for it to use, now or at another time."""
        if self._guests is not None:
            self._guests.show_to(int(self.turns.rows[turn]))
        self._own = self._promises.take_up(turn)

    def look_ahead(self) -> None:
        """Every reservation is worked out when it is made."""

    def has_room(self, turn: int, offer: Offer, *, lodges: bool) -> bool:
        """By the ceiling of what is free now."""
        # Now, whatever lies ahead: cheap, and no start is possible without it.
        return find_ceiling(self.session.view, offer.form, self.turns.key_of(turn).exempt) >= offer.size

    def find_now(self, turn: int, offer: Offer) -> Places | None:
        """Places that are free for as long as the turn may stay."""
        key, span_us = self.turns.key_of(turn), self._span_us(turn, offer)
        # One question for both ways to pass: whoever is gone by a reserved start finds the reserved places free over
        # its span, whoever is not finds only the others.
        places = self.timeline.place_over(key, offer.form, offer.size, self.now, span_us)
        if places is None:
            return None
        if max(role.require for role in offer.form.roles) != ANYWHERE or offer.form.roles[0].prefer != ANYWHERE:
            # An elastic gang goes where most of its range would fit, for as long as it stays. `fit_domain` expects the
            # places to be taken, and gives them back before it looks further.
            view = self.timeline.view_over(key.exempt, self.now, self.now + span_us)
            retake(view, offer.form, places)
            places = fit_domain(self.session, view, turn, self.turns, offer, places)
        return self.name_devices(offer.form, places)

    def find_as_guest(self, turn: int, offer: Offer) -> tuple[Places, Guest] | None:
        """Places that are free at this instant. Under a window alone one gets notice, and owes nobody anything."""
        if not (self.reservations or self._promises or self.session.snapshot.windows):
            return None
        # For the least stretch there is: only what is claimed at this very instant is in the way.
        # A promise that is due waits for its guests in the next moment: nobody else may lodge there meanwhile.
        span_us = 2 if self._promises.some_late else 1
        places = self.timeline.place_over(self.turns.key_of(turn), offer.form, offer.size, self.now, span_us)
        if places is None:
            return None
        # By nodes, as in `GuestSeats.stays_until_us`. Rule 15 (maintenance): entering a window to come is no debt to an
        # owner.
        guest = Guest.WHOLE if _share_a_node(places, self._list_promised()) else Guest.NO
        return self.name_devices(offer.form, places), guest

    def find_promised(self, turn: int) -> Places | None:
        """Its own time has come, at the places named for it: whatever was planned since kept clear of them."""
        # Asked last, when nothing better was found: a promise is an upper bound and not a plan.
        if self._own is None or self._own.start_us != self.now or self._promises.is_late(turn):
            return None
        return self.name_devices(self.turns.key_of(turn).form, self._own.seats)

    def find_owed(self, turn: int) -> tuple[list[Release], Places] | None:
        """As many guests as must leave the places that were named for it."""
        if self._own is None or not self._promises.is_late(turn) or self._guests is None:
            return None
        # Rule 8: the owner takes its seats at its start, whatever the policy says of taking room.
        releases = self._guests.choose_leaving(self.turns.key_of(turn).form, self._own.seats)
        return None if releases is None else (releases, self._own.seats)

    def start(self, turn: int, offer: Offer, places: Places, guest: Guest) -> None:
        """The places leave the room of now, and the calendar until each gang of the turn is expected to end."""
        retake(self.session.view, offer.form, places)
        # `start_turn` has just written these: each gang of a group with an end of its own.
        for form, own, end_us in self.session.bound[-len(places) :]:
            until_us = end_us
            if guest and self._guests is not None:  # those behind it may not have its seats before the owner does
                until_us = max(end_us, self._guests.stays_until_us(own[0], self.now + offer.length_us))
            self.timeline.claim(form, own, self.now, until_us)

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Until when it must be able to stay."""
        return self.now + self._span_us(turn, offer)

    def _span_us(self, turn: int, offer: Offer) -> int:
        """How long a turn must be able to stay.

        Without a stated walltime nobody knows when it ends, so it may not stand where somebody ahead of it
        has a reservation, however late that is, unless that was planned around its own promise. Those behind
        it were planned around its default length, and against windows that length counts as well.
        """
        if self.turns.proven[turn]:
            return offer.length_us
        own_end_us = NEVER if self._own is None else self._own.end_us
        # A reservation at 500 and a default length of 100: until 501, so that the turn finds no place under it. Without
        # any reservation ahead the default length counts alone.
        starts = (reservation.start_us for _, reservation in self.reservations)
        ahead_us = max((start_us for start_us in starts if start_us < own_end_us), default=self.now)
        return max(offer.length_us, ahead_us + 1 - self.now)

    # ------------------------------------------------------------------ room that is given back or taken

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until then, with releases; a copy of its own."""
        for release in releases:
            # Put in, looked at, taken out: the timeline has no copy, and is as it was.
            self._shift(release, 1)
        view = self.timeline.view_over(exempt, self.now, max(gone_us, self.now + 1))
        for release in releases:
            self._shift(release, -1)
        return view

    def _shift(self, release: Release, sign: int) -> None:
        for seats in release.seats:
            need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
            # What is given back is free until the end that the timeline knows of; from there on it was free anyway. Of
            # a guest that is the next moment, or the time up to which it sits for whoever is looking.
            end_us = release.occupant.end_us
            if release.occupant.guest:
                guests = None if release.cause is Cause.GUEST else self._guests
                end_us = self.now + 1 if guests is None else guests.until_us(release.occupant)
            self.timeline.claim_seats(need, seats, self.now, end_us, sign)

    def give(self, release: Release) -> None:
        """Seats given back are free in the calendar until their end, when they would have been anyway."""
        if self._guests is not None:
            self._guests.lift(release.occupant)
        self._shift(release, 1)

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats are taken in the calendar."""
        self.timeline.claim_seats(need, seats, self.now, gone_us, -sign)

    def name_devices(self, form: Form, places: Places) -> Places:
        """Choose real devices for places that were found by amounts, as long as no device was ever split."""
        view = self.session.view
        # Once a device was split, lines carry devices and places come with them.
        if view.shared or view.fleet.device_column < 0:
            return places
        chosen: list[tuple[Seats, ...]] = []
        for gang, seats_by_role in zip(form.gangs, places, strict=True):
            taken = []
            for seats in seats_by_role:
                devices = view.take(find_need(view.fleet, gang.roles[seats.role].shape), seats.nodes, seats.counts)
                taken.append(Seats(seats.role, seats.nodes, seats.counts, devices, seats.members))
            chosen.append(tuple(taken))
        # Role after role, taken so that no two roles get one device, and given back: only `start` takes for good.
        undo(view, form, tuple(chosen))
        return tuple(chosen)

    # Places that somebody else found: with devices that are free now. Nothing is taken before `start`.
    hold = name_devices

    # ------------------------------------------------------------------ reserving

    def reserve(self, turn: int, key: PlacementKey) -> bool:
        """The earliest start there is, never later than what was promised."""
        # Nobody has one under this policy, and a start in the future would be of no use to anybody.
        if self.session.policy.reservations == 0:
            return True  # it stops those behind it, and that is all
        if any(role.shape.names_others for role in key.form.roles):
            return True  # who will be where at an instant to come, no calendar says: places could not be promised
        offer = list_offers(self.session, self.turns, turn)[-1]
        promise = self._own
        # Strictly earlier, or not at all: an equal start elsewhere would move the promise to and fro for nothing.
        latest = NEVER if promise is None else promise.start_us - 1
        found = self.timeline.find_start(key, int(self.turns.size[turn]), self._span_us(turn, offer), latest)
        if found is None and promise is not None:
            found = (promise.start_us, promise.seats)  # nothing gained: the places that were named stay
        if found is None:
            return False
        start_us, places = found
        end_us = start_us + offer.length_us
        # From here on everybody behind it is placed around it.
        late = promise is not None and start_us == promise.start_us and self._promises.is_late(turn)
        self.timeline.claim(key.form, places, start_us + late, end_us)
        gangs = tuple(int(self.session.snapshot.pending.gang[row]) for row in self.turns.rows_of(turn))
        self.reservations.append((turn, Reservation(gangs, start_us, end_us, places)))
        return True

    def list_reserved(self) -> list[tuple[int, int]]:
        """(turn, start) of this walk's reservations, and of promises to those whose turn has not come."""
        reserved = [(turn, reservation.start_us) for turn, reservation in self.reservations]
        return reserved + self._promises.list_starts()

    def list_reservations(self) -> tuple[Reservation, ...]:
        """The reservations of this walk, in order of turns."""
        return tuple(reservation for _, reservation in self.reservations)

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which somebody has a reservation, or a promise."""
        return cover_nodes(len(self.session.fleet), [promised.seats for promised in self._list_promised()])

    def measure_kept(self) -> IntArray:
        """Reservation by reservation, each without what is given back on its nodes by then; windows keep nothing."""
        kept = np.zeros_like(self.session.view.free)
        if not self.reservations:
            return kept
        ends = collect_ends(self.session)
        for _, reservation in self.reservations:
            mine = np.zeros_like(kept)
            for number, per_gang in zip(reservation.gangs, reservation.seats, strict=True):
                for seats in per_gang:
                    need = self.session.need_of(self.session.snapshot.gangs[number], seats.role)
                    mine[seats.nodes] += seats.counts[:, None] * need.vector
            gone = ends.end_us <= reservation.start_us
            np.subtract.at(mine, ends.node[gone], ends.taken[gone])
            kept += np.maximum(mine, 0)
        return kept

    def next_start_us(self) -> int:
        """The first reserved start, or window."""
        starts = [reservation.start_us for _, reservation in self.reservations]
        starts += [window.start_us for window in self.session.snapshot.windows if window.start_us > self.now]
        return min(starts, default=NEVER)

    def why_not(self, turn: int, *, filling: bool) -> Code:
        """A window keeps it waiting if it would fit without; else a reservation does."""
        key = self.turns.key_of(turn)
        offer = list_offers(self.session, self.turns, turn)[-1]
        for role in key.form.roles if self.session.snapshot.windows else ():
            lanes = self.timeline.lanes(role.shape, key.exempt, windows=False)
            cut = self.timeline.lanes(role.shape, key.exempt)
            size = role.size or int(self.turns.size[turn])
            # Members that fit now for the whole run, with the windows cut out and without.
            without, within = (
                int(each.slots_over(self.now, offer.length_us, len(self.session.fleet)).sum()) for each in (lanes, cut)
            )
            if without >= size > within:
                return Code.MAINTENANCE
        return Code.RESERVED


def _share_a_node(places: Places, promised: Sequence[Reservation]) -> bool:
    """Whether any node of these places is promised to somebody."""
    mine = {int(node) for per_gang in places for seats in per_gang for node in seats.nodes}
    theirs = (seats.nodes for each in promised for per_gang in each.seats for seats in per_gang)
    return any(int(node) in mine for nodes in theirs for node in nodes)

"""The calendar with at most one reservation per pool and no windows ahead.

Only ends lie ahead, so room grows with time except at the reservations' starts. What a turn may use is
therefore the room now (if it is gone by the first reserved start), or the lesser of now and then (if it is
not), and so on for each further pool: one `View` per reserved start, instead of a line of time per node.

Reservations are worked out when somebody wants to fill around them and not before. Most passes of a busy
cluster end with nobody left to fill, and never pay for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.calendar.releases import EarliestStart, find_shadow, find_start
from phalanx.engine.kernels.devices import keep_devices
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.order.turns import Offer, Turns, fit_domain, list_offers
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import First, NoPlace, Places, Wish, find_ceiling, place, retake, undo
from phalanx.engine.room.seats import cover_nodes
from phalanx.engine.room.view import Exempt, View, find_need
from phalanx.engine.session import PlacementKey, Session
from phalanx.model.fleet import BoolArray, IntArray, MilliArray
from phalanx.model.form import Form, RoleForm
from phalanx.model.plan import Guest, Reservation, Seats
from phalanx.model.reason import Code

_NO_INSTANTS = np.zeros(0, dtype=np.int64)
BIG = 1 << 40


@dataclass(slots=True, eq=False)
class Head:
    """A blocked turn with a reservation, or with the right to one that nobody has needed yet."""

    turn: int
    start: EarliestStart | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """What sums tell of the one head: when it starts, and how many slots of its placement key it leaves then."""

    index: int  # of that key
    at_us: int  # NEVER: sums do not tell
    extra: int


class ShortCalendar:
    """Room now, and at the start of each reservation."""

    dismisses = True
    wake_us = NEVER

    def __init__(self, session: Session, turns: Turns) -> None:
        """Nothing is known yet: every placement key has an unknown ceiling."""
        self.session, self.turns = session, turns
        self.now = session.snapshot.now_us
        self.gave_up = False
        self.heads: list[Head] = []
        self.shadows: list[Head] = []  # heads whose start is known, by start
        self.instants = _NO_INSTANTS  # of the shadows
        self.views = [session.view]  # now; now and at the first start; now and at the first two; …
        # The largest size of each key that may still fit in each view. Room only shrinks within a walk (unless
        # somebody gives it back: `forget_refusals`), so a ceiling that was found once holds to the end.
        self.ceilings = np.full((1, len(turns.keys)), BIG, dtype=np.int64)
        self._sums: Sums | None = None
        self._gone: IntArray | None = None
        self._held = 0  # the view that the places found last were taken from

    @property
    def gone(self) -> IntArray:
        """When each turn is provably gone; without a stated walltime never: no reservation may count on it."""
        if self._gone is None:
            self._gone = np.where(self.turns.proven, self.now + self.turns.length_us, NEVER)
        return self._gone

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Without a stated walltime nobody knows, so that no reservation may count on it."""
        return self.now + offer.length_us if self.turns.proven[turn] else NEVER

    # ------------------------------------------------------------------ who is worth a look

    def worth_a_look(self, block: IntArray) -> BoolArray:
        """Turns not larger than the ceiling of the view they may use, nor refused by sums."""
        index, size = self.turns.key_index[block], self.turns.size[block]
        # Whoever can be made to leave may start as a guest where it may not stay, so that only room now can dismiss it.
        reclaimable = self.session.snapshot.hints.has_reclaimable
        level = self.instants.searchsorted(self.gone[block]) if self.shadows and not reclaimable else 0
        look: BoolArray = size <= self.ceilings[level, index]
        if self._sums is not None and not self.shadows and not reclaimable:
            sums = self._sums
            # The EASY rule in one line, for those who ask what the head asks: gone by the
            # shadow time, or within the extra slots.
            look &= (self.gone[block] <= sums.at_us) | (size <= sums.extra) | (index != sums.index)
        return look

    def ceiling(self, turn: int) -> int:
        """That of the view it may use; of somebody who may be a guest, the widest."""
        level = 0
        if self.shadows and not self.session.snapshot.hints.has_reclaimable:
            level = int(self.instants.searchsorted(self.gone[turn]))
        return int(self.ceilings[level, self.turns.key_index[turn]])

    def delays_surely(self, turn: int) -> bool:
        """Whether sums alone show that a filler would delay the one reservation there is.

        Where head and filler ask for the same about the whole cluster, places do not matter: it may start if it
        is gone by the head's start, or if it fits beside the head then. Most fillers fail this, and failing it
        costs no view of the future.
        """
        # With a second head the sums of the first do not tell what the second keeps; with
        # views at hand they tell nothing new.
        if self.shadows or len(self.heads) != 1:
            return False
        index, head = int(self.turns.key_index[turn]), self.heads[0].turn
        if int(self.turns.key_index[head]) != index:
            return False
        if self._sums is None:
            self._sums = Sums(index, *find_shadow(self.session, self.turns.keys[index], int(self.turns.size[head])))
        sums = self._sums
        # NEVER: no end helps the head, so that nobody can delay it.
        late = sums.at_us != NEVER and int(self.gone[turn]) > sums.at_us
        return late and int(self.turns.size[turn]) > sums.extra

    def forget_refusals(self) -> None:
        """There is more room than there was."""
        self.ceilings[:] = BIG
        # Room given back lets the head start earlier, and may leave more beside it.
        self._sums = None

    # ------------------------------------------------------------------ starting

    def open_turn(self, turn: int) -> None:
        """Nothing was promised to anybody: this calendar is made anew in every pass."""

    def look_ahead(self) -> None:
        """Find starts that somebody now wants to fill around."""
        missing = [head for head in self.heads if head.start is None]
        if not missing:
            return
        for head in missing:
            # What sums have found is the instant for places as well: they were asked only where places do not matter.
            known_us = self._sums.at_us if self._sums is not None and len(self.heads) == 1 else NEVER
            head.start = find_start(
                self.session, self.turns.key_of(head.turn), int(self.turns.size[head.turn]), known_us
            )
        known = [(head.start.at_us, head) for head in self.heads if head.start is not None]
        known.sort(key=lambda each: each[0])
        # Without a head whose start nobody could find: what has no instant keeps nothing free.
        self.shadows = [head for _, head in known]
        self.instants = np.array([at_us for at_us, _ in known], dtype=np.int64)
        self._make_views()

    def _make_views(self) -> None:
        base = self.session.view
        self.views = [base]
        free, device_free = base.free, base.device_free
        for head in self.shadows:
            assert head.start is not None
            # The lesser of now and then, kind by kind: whoever stays past the start must fit
            # both, and in between room only grows.
            free = np.minimum(free, head.start.view.free)
            device_free = self._devices_left(device_free, head.start.view.device_free, free)
            view = View(self.session.fleet, free, device_free, shared=base.shared, usable=self.session.in_service)
            view.usable_by_exempt = base.usable_by_exempt
            self.views.append(view)
        # Less room later: what did not fit now does not fit then.
        self.ceilings = np.repeat(self.ceilings[:1], len(self.views), axis=0)

    def _devices_left(self, now: MilliArray, then: MilliArray, free: IntArray) -> MilliArray:
        """Devices that are free now and then. Of devices never split, any will do: as many as the amounts say."""
        if self.session.view.shared:
            return np.minimum(now, then)
        column = self.session.fleet.device_column
        return now if column < 0 else keep_devices(now, free[:, column])

    def has_room(self, turn: int, offer: Offer, *, lodges: bool) -> bool:
        """By the ceiling of the widest view that it may use, where the offer asks what its key asks."""
        key, index = self.turns.key_of(turn), int(self.turns.key_index[turn])
        # A form at sizes of its own (several elastic roles) is not what the key's ceiling is about.
        if not (offer.form.open_size or offer.form == key.form):
            return True
        # searchsorted puts an end that equals a start before it: whoever is gone at that
        # very instant delays nobody (rule 3).
        level = 0 if lodges or not self.shadows else int(self.instants.searchsorted(self.gone_us(turn, offer)))
        ceiling = find_ceiling(self.views[level], offer.form, key.exempt)
        if ceiling < offer.size:
            # Less room later: what does not fit in this view does not fit in those of further starts either.
            np.minimum(self.ceilings[level:, index], ceiling, out=self.ceilings[level:, index])
        return ceiling >= offer.size

    def find_now(self, turn: int, offer: Offer) -> Places | None:
        """Places in the view of everything that is still there when this turn is."""
        level = int(self.instants.searchsorted(self.gone_us(turn, offer))) if self.shadows else 0
        return self._find_in(level, turn, offer)

    def find_as_guest(self, turn: int, offer: Offer) -> tuple[Places, Guest] | None:
        """Places in the view of now, if that is wider than the one it may stay in."""
        # Gone before the first start: it may stay where it found no place, and lodging would be the same question.
        if not self.shadows or not int(self.instants.searchsorted(self.gone_us(turn, offer))):
            return None
        places = self._find_in(0, turn, offer)
        return None if places is None else (places, Guest.WHOLE)

    def find_promised(self, turn: int) -> Places | None:
        """Nothing was promised."""
        return None

    def find_owed(self, turn: int) -> tuple[list[Release], Places] | None:
        """The same."""
        return None

    def _find_in(self, level: int, turn: int, offer: Offer) -> Places | None:
        """Places in one of the views, taken there; `start` settles the others."""
        key, index = self.turns.key_of(turn), int(self.turns.key_index[turn])
        view = self.views[level]
        self.gave_up = False
        if level and (offer.form.open_size or offer.form == key.form):
            ceiling = find_ceiling(view, offer.form, key.exempt)
            if ceiling < offer.size:
                self.ceilings[level, index] = min(int(self.ceilings[level, index]), ceiling)
                return None
        # Rule 3: a filler that ends by the shadow time takes reserved-but-idle places
        # first, and leaves the others to the long.
        first = self._reserved_but_idle(key.exempt) if level == 0 and self.shadows else None
        places = place(view, Wish(offer.form, offer.size, key.exempt, first))
        self.gave_up = isinstance(places, NoPlace) and places.undecided
        if isinstance(places, NoPlace):
            # A search that gave up has not found that it does not fit: the next one of
            # its size must be looked at again.
            if not self.gave_up:
                self.ceilings[level, index] = min(self.ceilings[level, index], offer.size - 1)
            return None
        self._held = level
        return fit_domain(self.session, view, turn, self.turns, offer, places)

    def _reserved_but_idle(self, exempt: Exempt) -> First:
        """Whoever is gone in time takes what only a reservation needs, and leaves the rest to the long ones."""

        def first(role: RoleForm) -> IntArray:
            now = self.views[0].slots(role.shape, exempt).slots
            # The last view has what no reservation needs, over all pools.
            kept = self.views[-1].slots(role.shape, exempt).slots
            # Between the roles of one gang the first view has moved on already.
            idle: IntArray = np.maximum(now - kept, 0)
            return idle

        return first

    def hold(self, form: Form, places: Places) -> Places:
        """The devices of a trial are real ones here."""
        retake(self.session.view, form, places)
        self._held = 0
        return places

    def start(self, turn: int, offer: Offer, places: Places, guest: Guest) -> None:
        """The places leave the view of now, and every later one in which their gang is still there."""
        if self._held:
            # They were taken from the view that answered; from here on `_settle_nodes`
            # works that view out from now and then.
            undo(self.views[self._held], offer.form, places)
            retake(self.session.view, offer.form, places)
        if not self.shadows:
            return
        # To a reservation a guest is gone already: its seats are the owner's whenever it comes (rule 8).
        gone_us = self.now if guest else self.gone_us(turn, offer)
        for head in self.shadows:
            if head.start is not None and head.start.at_us < gone_us:
                retake(head.start.view, offer.form, places)
        for seats_by_role in places:
            for seats in seats_by_role:
                self._settle_nodes(seats.nodes)

    def _settle_nodes(self, nodes: IntArray) -> None:
        """Bring the later views up to date on nodes whose room changed."""
        free, device_free = self.session.view.free[nodes], self.session.view.device_free[nodes]
        for view, head in zip(self.views[1:], self.shadows, strict=True):
            assert head.start is not None
            free = np.minimum(free, head.start.view.free[nodes])
            device_free = self._devices_left(device_free, head.start.view.device_free[nodes], free)
            view.overwrite(nodes, free, device_free)

    # ------------------------------------------------------------------ room that is given back or taken

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until then, with releases; a copy of its own."""
        level = int(self.instants.searchsorted(gone_us)) if self.shadows else 0
        base = self.views[level]
        # It copies nothing before it is written to: a trial without releases costs no copy.
        view = View(self.session.fleet, base.free, base.device_free, shared=base.shared, usable=self.session.in_service)
        view.usable_by_exempt = base.usable_by_exempt
        if not releases:
            return view
        nodes = np.unique(np.concatenate([seats.nodes for release in releases for seats in release.seats]))
        free, devices = self._with_releases(self.session.view, nodes, releases, -1)
        # Each start that it would still be there at, worked out with the releases: what a victim frees now may have
        # been counted on at a start anyway, so that the lesser of the two cannot simply be raised.
        for head in self.shadows[:level]:
            assert head.start is not None
            then, then_devices = self._with_releases(head.start.view, nodes, releases, head.start.at_us)
            free = np.minimum(free, then)
            devices = self._devices_left(devices, then_devices, free)
        view.overwrite(nodes, free, devices)
        return view

    def _with_releases(
        self, view: View, nodes: IntArray, releases: Sequence[Release], at_us: int
    ) -> tuple[IntArray, MilliArray]:
        """Room of some nodes with releases; at a later instant without those that are gone by then anyway."""
        free, devices = view.free[nodes].copy(), view.device_free[nodes].copy()
        for release in releases:
            if at_us >= 0 and _counted_on(release, at_us):
                continue
            for seats in release.seats:
                need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
                at = nodes.searchsorted(seats.nodes)
                free[at] += seats.counts[:, None] * need.vector
                devices[at] += seats.devices
        return free, devices

    def name_devices(self, form: Form, places: Places) -> Places:
        """The devices of a trial are real ones here."""
        return places

    def give(self, release: Release) -> None:
        """Seats given back are free later as well, unless that was counted on already."""
        for head in self.shadows:
            assert head.start is not None
            if not _counted_on(release, head.start.at_us):
                for seats in release.seats:
                    need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
                    head.start.view.take_seats(need, seats, sign=-1)
        for seats in release.seats if self.shadows else ():
            self._settle_nodes(seats.nodes)

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats taken are missing later as well, until they are given back."""
        for head in self.shadows:
            assert head.start is not None
            # An end at the very start is in time.
            if head.start.at_us < gone_us:
                head.start.view.take_seats(need, seats, sign)
        if self.shadows:
            self._settle_nodes(seats.nodes)

    # ------------------------------------------------------------------ reserving

    def reserve(self, turn: int, key: PlacementKey) -> bool:
        """The right to a reservation; when it is, somebody may want to know later."""
        # Not worked out: with nobody left to fill, a pass of a busy cluster never pays for it.
        self.heads.append(Head(turn))
        return True

    def list_reserved(self) -> list[tuple[int, int]]:
        """(turn, start) of every head, worked out now: a ceiling holds for all pools, so all must be known."""
        self.look_ahead()
        return [(head.turn, head.start.at_us) for head in self.shadows if head.start is not None]

    def list_reservations(self) -> tuple[Reservation, ...]:
        """The reservations of this walk, worked out now if nobody asked before."""
        self.look_ahead()
        found = []
        for head in self.shadows:
            assert head.start is not None
            gangs = tuple(int(self.session.snapshot.pending.gang[row]) for row in self.turns.rows_of(head.turn))
            # An elastic gang reserves its minimum, and runs for as long as that takes.
            length_us = list_offers(self.session, self.turns, head.turn)[-1].length_us
            end_us = head.start.at_us + length_us
            found.append(Reservation(gangs, head.start.at_us, end_us, head.start.places))
        return tuple(found)

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which a head will start."""
        return cover_nodes(len(self.session.fleet), self.list_reservations())

    def next_start_us(self) -> int:
        """The first reserved start."""
        self.look_ahead()
        return int(self.instants[0]) if len(self.instants) else NEVER

    def why_not(self, turn: int, *, filling: bool) -> Code:
        """A reservation keeps it waiting, or the order does."""
        return Code.RESERVED if filling else Code.BEHIND


def _counted_on(release: Release, at_us: int) -> bool:
    """Whether these seats were counted as free at an instant before anybody was asked to give them back."""
    # Given back twice, its seats would be free twice at that start, and somebody would be let in over the reservation.
    return release.occupant.end_us <= at_us or bool(release.occupant.guest)

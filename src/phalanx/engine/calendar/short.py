"""The calendar with at most one reservation per pool and no windows ahead.

Only ends lie ahead, so room grows with time except at the reservations' starts. What a turn may use is
therefore the room now (if it is gone by the first reserved start), or the lesser of now and then (if it is
not), and so on for each further pool: one `View` per reserved start (`engine.calendar.shadows`), instead of a line of
time per node. Who need not be looked at is known to `engine.calendar.dismissals`.

Reservations are worked out when somebody wants to fill around them and not before. Most passes of a busy
cluster end with nobody left to fill, and never pay for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.engine.calendar.dismissals import Dismissals
from phalanx.engine.calendar.releases import find_start
from phalanx.engine.calendar.shadows import Head, ShadowViews
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.order.turns import Offer, Turns, fit_domain, list_offers
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import First, NoPlace, Places, Wish, find_ceiling, place, retake, undo
from phalanx.engine.room.seats import cover_nodes
from phalanx.engine.room.view import Exempt, View
from phalanx.engine.session import PlacementKey, Session
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import Form, RoleForm
from phalanx.model.plan import Guest, Reservation, Seats
from phalanx.model.reason import Code


class ShortCalendar:
    """Room now, and at the start of each reservation."""

    wake_us = NEVER

    def __init__(self, session: Session, turns: Turns) -> None:
        """Nobody is blocked yet."""
        self.session, self.turns = session, turns
        self.now = session.snapshot.now_us
        self.gave_up = False
        self.heads: list[Head] = []
        self.ahead = ShadowViews(session)
        self.dismissals = Dismissals(session, turns, self.ahead, self.heads)
        self._held = 0  # the view that the places found last were taken from

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Without a stated walltime nobody knows, so that no reservation may count on it."""
        return self.now + offer.length_us if self.turns.proven[turn] else NEVER

    # ------------------------------------------------------------------ starting

    def open_turn(self, turn: int) -> None:
        """Nothing was promised to anybody: this calendar is made anew in every pass."""

    def look_ahead(self) -> None:
        """Find starts that somebody now wants to fill around."""
        missing = [head for head in self.heads if head.start is None]
        if not missing:
            return
        for head in missing:
            key, size = self.turns.key_of(head.turn), int(self.turns.size[head.turn])
            head.start = find_start(self.session, key, size, self.dismissals.known_start_us())
        self.ahead.lay_out(self.heads)
        self.dismissals.add_levels()

    def has_room(self, turn: int, offer: Offer, *, lodges: bool) -> bool:
        """By the ceiling of the widest view that it may use, where the offer asks what its key asks."""
        key, index = self.turns.key_of(turn), int(self.turns.key_index[turn])
        # A form at sizes of its own (several elastic roles) is not what the key's ceiling is about.
        if not (offer.form.open_size or offer.form == key.form):
            return True
        # searchsorted puts an end that equals a start before it: whoever is gone at that
        # very instant delays nobody (rule 3).
        level = 0 if lodges or not self.ahead.heads else self.ahead.level_of(self.gone_us(turn, offer))
        ceiling = find_ceiling(self.ahead.views[level], offer.form, key.exempt)
        if ceiling < offer.size:
            self.dismissals.note_ceiling_onwards(level, index, ceiling)
        return ceiling >= offer.size

    def find_now(self, turn: int, offer: Offer) -> Places | None:
        """Places in the view of everything that is still there when this turn is."""
        level = self.ahead.level_of(self.gone_us(turn, offer)) if self.ahead.heads else 0
        return self._find_in(level, turn, offer)

    def find_as_guest(self, turn: int, offer: Offer) -> tuple[Places, Guest] | None:
        """Places in the view of now, if that is wider than the one it may stay in."""
        # Gone before the first start: it may stay where it found no place, and lodging would be the same question.
        if not self.ahead.heads or not self.ahead.level_of(self.gone_us(turn, offer)):
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
        view = self.ahead.views[level]
        self.gave_up = False
        if level and (offer.form.open_size or offer.form == key.form):
            ceiling = find_ceiling(view, offer.form, key.exempt)
            if ceiling < offer.size:
                self.dismissals.note_ceiling(level, index, ceiling)
                return None
        # Rule 3: a filler that ends by the shadow time takes reserved-but-idle places
        # first, and leaves the others to the long.
        first = self._reserved_but_idle(key.exempt) if level == 0 and self.ahead.heads else None
        places = place(view, Wish(offer.form, offer.size, key.exempt, first))
        self.gave_up = isinstance(places, NoPlace) and places.undecided
        if isinstance(places, NoPlace):
            # A search that gave up has not found that it does not fit: the next one of
            # its size must be looked at again.
            if not self.gave_up:
                self.dismissals.note_ceiling(level, index, offer.size - 1)
            return None
        self._held = level
        return fit_domain(self.session, view, turn, self.turns, offer, places)

    def _reserved_but_idle(self, exempt: Exempt) -> First:
        """Whoever is gone in time takes what only a reservation needs, and leaves the rest to the long ones."""

        def first(role: RoleForm) -> IntArray:
            now = self.ahead.views[0].slots(role.shape, exempt).slots
            # The last view has what no reservation needs, over all pools.
            kept = self.ahead.views[-1].slots(role.shape, exempt).slots
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
            # They were taken from the view that answered; from here on that view is worked out from now and then.
            undo(self.ahead.views[self._held], offer.form, places)
            retake(self.session.view, offer.form, places)
        if self.ahead.heads:
            # To a reservation a guest is gone already: its seats are the owner's whenever it comes (rule 8).
            self.ahead.start(offer.form, places, self.now if guest else self.gone_us(turn, offer))

    # ------------------------------------------------------------------ room that is given back or taken

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until then, with releases; a copy of its own."""
        return self.ahead.trial(gone_us, releases)

    def name_devices(self, form: Form, places: Places) -> Places:
        """The devices of a trial are real ones here."""
        return places

    def give(self, release: Release) -> None:
        """Seats given back are free later as well, unless that was counted on already."""
        if self.ahead.heads:
            self.ahead.give(release)

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats taken are missing later as well, until they are given back."""
        if self.ahead.heads:
            self.ahead.take(need, seats, gone_us, sign)

    # ------------------------------------------------------------------ reserving

    def reserve(self, turn: int, key: PlacementKey) -> bool:
        """The right to a reservation; when it is, somebody may want to know later."""
        # Not worked out: with nobody left to fill, a pass of a busy cluster never pays for it.
        self.heads.append(Head(turn))
        return True

    def list_reserved(self) -> list[tuple[int, int]]:
        """(turn, start) of every head, worked out now: a ceiling holds for all pools, so all must be known."""
        self.look_ahead()
        return [(head.turn, head.start.at_us) for head in self.ahead.heads if head.start is not None]

    def list_reservations(self) -> tuple[Reservation, ...]:
        """The reservations of this walk, worked out now if nobody asked before."""
        self.look_ahead()
        found = []
        for head in self.ahead.heads:
            assert head.start is not None
            gangs = tuple(int(self.session.snapshot.pending.gang[row]) for row in self.turns.rows_of(head.turn))
            # An elastic gang reserves its minimum, and runs for as long as that takes.
            length_us = list_offers(self.session, self.turns, head.turn)[-1].length_us
            end_us = head.start.at_us + length_us
            found.append(Reservation(gangs, head.start.at_us, end_us, head.start.places))
        return tuple(found)

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which a head will start."""
        self.look_ahead()
        # From the places themselves: how long a head will stay there is not asked, and takes longer to find out.
        places = [head.start.places for head in self.ahead.heads if head.start is not None]
        return cover_nodes(len(self.session.fleet), places)

    def measure_kept(self) -> IntArray:
        """By the views themselves: of two devices free beside four that end in time, a head of five keeps one."""
        self.look_ahead()
        kept: IntArray = self.ahead.views[0].free - self.ahead.views[-1].free
        return kept

    def next_start_us(self) -> int:
        """The first reserved start."""
        self.look_ahead()
        return int(self.ahead.instants[0]) if self.ahead.heads else NEVER

    def why_not(self, turn: int, *, filling: bool) -> Code:
        """A reservation keeps it waiting, or the order does."""
        return Code.RESERVED if filling else Code.BEHIND

"""Seats change hands: everything that keeps count of them is told, or nothing is.

Five places know who has what: the room of now, the calendar, the ceilings, the standing of queues, and the list of
occupants. A release that reaches four of them is a device in two hands or a queue that pays for nothing, so nobody
writes to them one by one: whoever makes room, grows, pins or evacuates does it through here.

What is only tried out is tried out on the parts themselves: `View.attempt` for room, `Standing.trial` for shares,
`RoomAhead.trial` for what lies ahead. Each takes itself back.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.engine.calendar.port import RoomAhead
from phalanx.engine.reclaimable import Reclaimable, Release
from phalanx.engine.room.seats import list_crumbs, still_free
from phalanx.engine.room.view import find_need
from phalanx.engine.session import Session
from phalanx.model.gang import Gang
from phalanx.model.plan import Seats


class Owner(Protocol):
    """Whose seats they are."""

    gang: Gang
    queue: int
    user: int


class Transaction:
    """What one cycle makes running gangs give back and take."""

    def __init__(self, session: Session, reclaimable: Reclaimable, calendar: RoomAhead | None = None) -> None:
        """`calendar`: None before the walk. Calendars are made from what the session and the occupants say then."""
        self.session, self.reclaimable, self.calendar = session, reclaimable, calendar

    def give(self, release: Release, beneficiary: int | None = None) -> None:
        """Seats are given back for good, and their gang is told for whom."""
        self.lift(release)
        self.reclaimable.give(release, beneficiary)

    def lift(self, release: Release) -> None:
        """The same of a gang that gets other seats in this plan, and is told of those."""
        session, occupant = self.session, release.occupant
        if not release.whole and occupant.gang.resize_pause_us:
            # Still in use until the pause is over: for whoever starts on them then, and for nobody else.
            session.vacated += [(occupant.gang, seats) for seats in release.seats]
        for seats in release.seats:
            need = session.need_of(occupant.gang, seats.role)
            # Free at once in the room of now, pause or not: whoever this plan starts there is a claim (decision 6) and
            # begins when the seats are empty. What nobody has claimed by then is taken out again by `set_aside`.
            session.view.take_seats(need, seats, sign=-1)
            session.charge(occupant.queue, occupant.user, -seats.members * need.vector)
        # By this count the calendar knows that the ends it collected are out of date.
        session.taken_back += 1
        if self.calendar is not None:
            self.calendar.give(release)

    def set_aside(self) -> None:
        """Seats that are still being vacated are for those who start on them; nobody else may have them yet."""
        session, view = self.session, self.session.view
        for gang, seats in session.vacated:
            need, until_us = session.need_of(gang, seats.role), session.snapshot.now_us + max(1, gang.resize_pause_us)
            # Whole members, then crumbs: a claim may have taken a part of a member's seat,
            # and the rest of it is in use as well.
            left = still_free(view.free, view.device_free, need, seats)
            crumbs = list_crumbs(view.fleet, view.free, view.device_free, need, seats, left)
            for each, rest in [(need, left), *((find_need(view.fleet, shape), rest) for shape, rest in crumbs)]:
                view.take_seats(each, rest)
                if self.calendar is not None:
                    self.calendar.take(each, rest, until_us)
        # Called twice in a cycle, and each seat may be set aside once.
        session.vacated.clear()

    def take(self, owner: Owner, seats: Seats, gone_us: int) -> None:
        """Seats are taken from now until their gang is gone."""
        self._shift(owner, seats, gone_us, 1)

    def take_back(self, owner: Owner, seats: Seats, gone_us: int) -> None:
        """The same undone: exactly what was taken, with the same instant."""
        self._shift(owner, seats, gone_us, -1)

    def _shift(self, owner: Owner, seats: Seats, gone_us: int, sign: int) -> None:
        session = self.session
        need = session.need_of(owner.gang, seats.role)
        session.view.take_seats(need, seats, sign)
        if self.calendar is not None:
            self.calendar.take(need, seats, gone_us, sign)
        session.charge(owner.queue, owner.user, sign * seats.members * need.vector)

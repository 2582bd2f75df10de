"""Sizes that people asked for: a pinned gang shrinks at once, and grows as soon as there is room.

To reach its size it may call surplus back, as if it were to start.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.calendar.port import RoomAhead
from phalanx.engine.making_room.loans import call_back_tails
from phalanx.engine.making_room.permits import Claimant, Permits
from phalanx.engine.reclaimable import Occupant, Release
from phalanx.engine.room.extend import extend, whole_form
from phalanx.engine.room.seats import add_seats, drop_tail, elastic_members, sizes_of, subtract_seats
from phalanx.engine.room.view import NOBODY
from phalanx.engine.transaction import Transaction
from phalanx.model.plan import Cause, Grounds, Seats


def shrink_pinned(transaction: Transaction) -> None:
    """Gangs that are larger than people want them."""
    session = transaction.session
    for occupant, role, more in _list_pinned(transaction):
        if more < 0:
            seats = occupant.seats[role]
            left = drop_tail(session.fleet, occupant.gang.roles[role].shape, seats, -more)
            transaction.give(Release(occupant, (subtract_seats(seats, left),), Cause.PIN, whole=False))


def grow_pinned(transaction: Transaction, calendar: RoomAhead) -> None:
    """Gangs that are smaller than people want them."""
    for occupant, role, more in _list_pinned(transaction):
        if more > 0:
            _grow(transaction, calendar, occupant, role, more)


def _list_pinned(transaction: Transaction) -> list[tuple[Occupant, int, int]]:
    """Running gangs with a wish, their elastic role, and how many members they lack."""
    found = []
    for number, members in transaction.session.snapshot.pins.items():
        occupant = transaction.reclaimable.by_number.get(number)
        # One decision per gang and plan: whoever was shrunk or moved for somebody else gets its wish in a later cycle.
        if occupant is None or occupant.changed:
            continue
        now = elastic_members(occupant.gang, sizes_of(occupant.seats))
        # The one elastic role: a wish is one number, and is refused at the door for a
        # gang where it would not say which role.
        role = next(index for index, each in enumerate(occupant.gang.roles) if each.sizes.elastic)
        found.append((occupant, role, members - now))
    return found


def _grow(transaction: Transaction, calendar: RoomAhead, occupant: Occupant, role: int, count: int) -> None:
    session = transaction.session
    asked = session.need_of(occupant.gang, role).vector * count
    # Not refused, only not now: a wish stays wanted (rule 15, resize), and limits or usage may change.
    if session.limits.check(occupant.queue, occupant.user, asked) is not None:
        return

    def seats_with(releases: Sequence[Release]) -> Seats | None:
        # Until its own end: a pinned gang is no guest, so it may not grow into what somebody has reserved before that.
        return extend(calendar.trial(occupant.end_us, NOBODY, releases), occupant.gang, occupant.seats, role, count)

    releases: list[Release] | None = []
    more = seats_with([])
    running = session.snapshot.running
    if more is None and not (running.gang[running.alive] < 0).any():  # else seats are being vacated: wait for them
        permits = Permits(session, transaction.reclaimable)
        arrival = int(running.eligible_us[occupant.row]), occupant.number
        # Rule 8: surplus may be taken to reach a pinned size with the same rights as to start. Not as an owner: it has
        # no reservation, so that nobody is its guest; service and arrival matter only where turns are taken.
        who = Claimant(occupant.queue, occupant.priority, asked, owner=False, attained_us=0, arrival=arrival)
        loans = [loan for loan in permits.list_loans(who) if loan.occupant is not occupant]
        releases = call_back_tails(session.fleet, loans, lambda given: seats_with(given) is not None)
        more = seats_with(releases) if releases is not None else None
    if more is None or releases is None:
        return
    # Given before it is known whether it grows now: with a pause it grows in a later cycle, when the seats are empty,
    # and asks then for room that is free.
    for release in releases:
        transaction.give(release, occupant.number)
        release.occupant.grounds = Grounds(needs=sum(occupant.sizes) + count)
    if any(release.occupant.gang.resize_pause_us for release in releases):
        return  # whoever gives still sits there; it grows when the seats are vacated
    form = whole_form(session.fleet, occupant.gang, sizes_of(occupant.seats))
    # The long calendar finds places by amounts (`LongCalendar.name_devices`); what is
    # written down names devices free now.
    more = calendar.name_devices(form, ((more,),))[0][0]
    transaction.take(occupant, more, occupant.end_us)
    seats = list(occupant.seats)
    seats[role] = add_seats(seats[role], more)
    occupant.seats, occupant.cause = tuple(seats), Cause.PIN

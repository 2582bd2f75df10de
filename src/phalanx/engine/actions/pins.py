"""Sizes that people asked for: a pinned gang shrinks at once, and grows as soon as there is room.

To reach its size it may call surplus back, as if it were to start.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.extend import extend, whole_form
from phalanx.engine.ground import Ground
from phalanx.engine.loans import call_back_tails
from phalanx.engine.permits import Permits, Who
from phalanx.engine.roster import Gift, Roster, Sitter
from phalanx.engine.seats import add_seats, drop_tail, elastic_members, sizes_of, subtract_seats
from phalanx.engine.session import Session
from phalanx.engine.view import NOBODY
from phalanx.model.plan import Cause, Seats


def shrink_pinned(session: Session, roster: Roster, ground: Ground) -> None:
    """Gangs that are larger than people want them."""
    for sitter, role, more in _list_pinned(session, roster):
        if more < 0:
            _shrink(session, roster, ground, sitter, role, -more)


def grow_pinned(session: Session, roster: Roster, ground: Ground) -> None:
    """Gangs that are smaller than people want them."""
    for sitter, role, more in _list_pinned(session, roster):
        if more > 0:
            _grow(session, roster, ground, sitter, role, more)


def _list_pinned(session: Session, roster: Roster) -> list[tuple[Sitter, int, int]]:
    """Running gangs with a wish, their elastic role, and how many members they lack."""
    found = []
    for number, members in session.snapshot.pins.items():
        sitter = roster.by_number.get(number)
        if sitter is None or sitter.changed:
            continue
        now = elastic_members(sitter.gang, sizes_of(sitter.seats))
        role = next(index for index, each in enumerate(sitter.gang.roles) if each.sizes.elastic)
        found.append((sitter, role, members - now))
    return found


def _shrink(session: Session, roster: Roster, ground: Ground, sitter: Sitter, role: int, count: int) -> None:
    seats = sitter.seats[role]
    left = drop_tail(session.fleet, sitter.gang.roles[role].shape, seats, count)
    gift = Gift(sitter, (subtract_seats(seats, left),), Cause.PIN, whole=False)
    session.give(gift)
    ground.give(gift)
    roster.give(gift, None)


def _grow(session: Session, roster: Roster, ground: Ground, sitter: Sitter, role: int, count: int) -> None:
    need = session.need_of(sitter.gang, role)
    asked = need.vector * count
    if session.limits.check(sitter.queue, sitter.user, asked) is not None:
        return

    def seats_with(gifts: Sequence[Gift]) -> Seats | None:
        return extend(ground.trial(sitter.end_us, NOBODY, gifts), sitter.gang, sitter.seats, role, count)

    gifts: list[Gift] | None = []
    more = seats_with([])
    running = session.snapshot.running
    if more is None and not (running.gang[running.alive] < 0).any():  # else seats are being vacated: wait for them
        permits = Permits(session, roster)
        arrival = int(running.eligible_us[sitter.row]), sitter.number
        who = Who(sitter.queue, sitter.priority, asked, owner=False, attained_us=0, arrival=arrival)
        pools = [pool for pool in permits.list_loans(who) if pool.sitter is not sitter]
        gifts = call_back_tails(session.fleet, pools, lambda given: seats_with(given) is not None)
        more = seats_with(gifts) if gifts is not None else None
    if more is None or gifts is None:
        return
    for gift in gifts:
        session.give(gift)
        ground.give(gift)
        roster.give(gift, sitter.number)
    if any(gift.sitter.gang.resize_pause_us for gift in gifts):
        return  # whoever gives still sits there; it grows when the seats are vacated
    form = whole_form(session.fleet, sitter.gang, sizes_of(sitter.seats))
    more = ground.name_devices(form, ((more,),))[0][0]
    session.view.take_seats(need, more)
    ground.take(need, more, sitter.end_us)
    session.charge(sitter.queue, sitter.user, asked)
    seats = list(sitter.seats)
    seats[role] = add_seats(seats[role], more)
    sitter.seats, sitter.cause = tuple(seats), Cause.PIN

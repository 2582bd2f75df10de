"""Whoever can leave a draining node, or a node under a maintenance window, leaves it now.

Elastic gangs move their members elsewhere or close their ranks; preemptible gangs with snapshots move
as a whole if a whole place exists; the rest finish. When a window opens, preemptible gangs on it that
found no other place are evicted: they were told so when they entered.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.extend import extend, whole_form
from phalanx.engine.placement import NoPlace, Wish, find_ceiling, place
from phalanx.engine.roster import Gift, Roster, Sitter
from phalanx.engine.seats import add_seats, drop_tail, part_of, sizes_of, subtract_seats
from phalanx.engine.session import Session
from phalanx.engine.view import NOBODY, Exempt
from phalanx.model.fleet import BoolArray
from phalanx.model.gang import Role
from phalanx.model.plan import Cause, Seats

#: The name under which a view keeps the nodes that somebody who leaves may go to.
LEAVING: Exempt = frozenset({-3})


def evacuate(session: Session, roster: Roster) -> None:
    """Write down in the roster who leaves; the session's view is as it will be afterwards."""
    nodes = session.snapshot.nodes
    draining = nodes.draining & nodes.up
    if not (draining | _under_window(session, NOBODY)).any():
        return
    for sitter in roster.sitters:
        window = _under_window(session, session.exempt_of(sitter.queue, sitter.user))
        bad = draining | window
        if not any(bool(bad[seats.nodes].any()) for seats in sitter.seats):
            continue
        _open_nodes(session, sitter)
        if _close_up(session, sitter, bad) or _move(session, sitter):
            continue
        if sitter.gang.preemptible and any(bool(window[seats.nodes].any()) for seats in sitter.seats):
            gift = Gift(sitter, sitter.seats, Cause.DRAIN, whole=True)
            session.give(gift)
            roster.give(gift, None)


def _under_window(session: Session, exempt: Exempt) -> BoolArray:
    """Nodes under a window that is open now and binds whoever is not exempt from it."""
    mask = np.zeros(len(session.fleet), dtype=np.bool_)
    now = session.snapshot.now_us
    for index, window in enumerate(session.snapshot.windows):
        if index not in exempt and window.start_us <= now < window.end_us:
            mask |= session.window_masks[index]
    return mask


def _open_nodes(session: Session, sitter: Sitter) -> None:
    """Where it may go: in service, under no window; of windows ahead, one that can be made to leave need not care."""
    closed = np.zeros(len(session.fleet), dtype=np.bool_)
    exempt = session.exempt_of(sitter.queue, sitter.user)
    for index, window in enumerate(session.snapshot.windows):
        ahead = window.start_us < sitter.end_us and window.end_us > session.snapshot.now_us
        later = window.start_us > session.snapshot.now_us
        if index not in exempt and ahead and not (later and sitter.gang.preemptible):
            closed |= session.window_masks[index]
    session.view.forget()
    session.view.usable_by_exempt[LEAVING] = session.in_service & ~closed


def _close_up(session: Session, sitter: Sitter, bad: BoolArray) -> bool:
    """An elastic gang puts its members elsewhere, or goes on with fewer."""
    if not sitter.gang.elastic:
        return False
    seats: list[Seats] = []
    view, gang = session.view, sitter.gang
    leaving = [_on(session, sitter, each, bad) for each in sitter.seats]
    staying = [subtract_seats(each, gone) for each, gone in zip(sitter.seats, leaving, strict=True)]
    gained: list[Seats] = []
    for index, role in enumerate(gang.roles):
        kept = _keep_up(session, sitter, (*seats, *staying[index:]), index, gained)
        if kept is None:
            for each in gained:
                view.take_seats(session.need_of(gang, each.role), each, sign=-1)
            return False
        seats.append(drop_tail(session.fleet, role.shape, kept, _too_many(role, kept)))
    _reseat(session, sitter, tuple(seats), gained)
    return True


def _keep_up(
    session: Session, sitter: Sitter, seats: tuple[Seats, ...], index: int, gained: list[Seats]
) -> Seats | None:
    """The most of a role that can sit elsewhere, at least its least; None if not even that."""
    stay, had = seats[index], sitter.seats[index].members
    sizes = [size for size in reversed(sitter.gang.roles[index].sizes.allowed) if size <= had]
    for size in sizes:
        if size <= stay.members:
            return stay
        more = extend(session.view, sitter.gang, seats, index, size - stay.members, LEAVING)
        if more is not None:
            gained.append(more)
            return add_seats(stay, more)
    return None


def _too_many(role: Role, seats: Seats) -> int:
    return seats.members - max(size for size in role.sizes.allowed if size <= seats.members)


def _on(session: Session, sitter: Sitter, seats: Seats, bad: BoolArray) -> Seats:
    counts = {n: c for n, c in zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True) if bad[n]}
    return part_of(session.fleet, sitter.gang.roles[seats.role].shape, seats, counts)


def _reseat(session: Session, sitter: Sitter, seats: tuple[Seats, ...], gained: list[Seats]) -> None:
    """Everything that is not kept goes back into the view; what was gained is out of it already."""
    view, gang = session.view, sitter.gang
    for each in gained:
        view.take_seats(session.need_of(gang, each.role), each, sign=-1)
    for old, new in zip(sitter.seats, seats, strict=True):
        need = session.need_of(gang, old.role)
        if gang.resize_pause_us:  # it still sits there until its pause is over, so only what it gains changes hands
            view.take_seats(need, subtract_seats(new, old))
        else:
            view.take_seats(need, old, sign=-1)
            view.take_seats(need, new)
        session.charge(sitter.queue, sitter.user, (new.members - old.members) * need.vector)
    sitter.seats, sitter.cause = seats, Cause.DRAIN
    session.taken_back += 1


def _move(session: Session, sitter: Sitter) -> bool:
    """A preemptible gang with snapshots goes elsewhere, whole."""
    if not sitter.gang.preemptible or sitter.gang.snapshot is None:
        return False
    view = session.view
    form = whole_form(session.fleet, sitter.gang, sizes_of(sitter.seats))
    for seats in sitter.seats:
        view.take_seats(session.need_of(sitter.gang, seats.role), seats, sign=-1)
    found = place(view, Wish(form, 1, LEAVING)) if find_ceiling(view, form, LEAVING) else NoPlace()
    if isinstance(found, NoPlace):
        for seats in sitter.seats:
            view.take_seats(session.need_of(sitter.gang, seats.role), seats)
        return False
    sitter.seats, sitter.moved = found[0], True
    session.taken_back += 1
    return True

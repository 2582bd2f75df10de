"""Whoever can leave a draining node, or a node under a maintenance window, leaves it now.

Elastic gangs move their members elsewhere or close their ranks; preemptible gangs with snapshots move
as a whole if a whole place exists; the rest finish. When a window opens, preemptible gangs on it that
found no other place are evicted: they were told so when they entered. A resize frees its seats after a
pause, so elastic gangs begin to leave that much before the window opens; moved and evicted ones are
gone at once, so they stay until then.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.reclaimable import Occupant, Release
from phalanx.engine.room.extend import extend, whole_form
from phalanx.engine.room.placement import NoPlace, Wish, find_ceiling, place
from phalanx.engine.room.seats import add_seats, drop_tail, part_of, sizes_of, subtract_seats
from phalanx.engine.room.view import NOBODY, Exempt
from phalanx.engine.session import Session
from phalanx.engine.transaction import Transaction
from phalanx.engine.waking import lead_of
from phalanx.model.fleet import BoolArray
from phalanx.model.gang import Role
from phalanx.model.plan import Cause, Seats

#: The name under which a view keeps the nodes that somebody who leaves may go to.
LEAVING: Exempt = frozenset({-3})


def evacuate(transaction: Transaction) -> None:
    """Write down who leaves; the session's view is as it will be afterwards."""
    session, reclaimable = transaction.session, transaction.reclaimable
    nodes = session.snapshot.nodes
    if not session.snapshot.windows and not nodes.draining.any():
        return
    # A node that is down has lost its members already: they are for `repair`, and are not sitting there any more.
    draining = nodes.draining & nodes.up
    # By the longest lead of anybody, to ask once whether there is anything to do: most cycles have windows far ahead.
    lead_us = max((lead_of(occupant.gang) for occupant in reclaimable.occupants), default=0)
    if not (draining | _under_window(session, NOBODY, lead_us)).any():
        return
    for occupant in reclaimable.occupants:
        exempt = session.exempt_of(occupant.queue, occupant.user)
        # Two masks: `soon` says from when an elastic gang has to begin, `window` that it is too late to begin.
        window, soon = (_under_window(session, exempt, lead) for lead in (0, lead_of(occupant.gang)))
        if not _sits_on(occupant, draining | soon):
            continue
        _open_nodes(session, occupant, soon)
        # Where the window is open already a pause would be spent inside it: whoever can leave at once does.
        too_late = occupant.gang.preemptible and lead_of(occupant.gang) > 0 and _sits_on(occupant, window)
        if not too_late and _close_up(session, occupant, draining | soon):
            continue
        # A window that is merely near is no reason to move or evict: both are over in an
        # instant, so the gang works until then.
        if not _sits_on(occupant, draining | window) or _move(session, occupant):
            continue
        # Only for a window. A drain waits for those who cannot leave (rule 15); its `by` comes as an event of its own,
        # which evicts without asking the engine.
        if occupant.gang.preemptible and _sits_on(occupant, window):
            transaction.give(Release(occupant, occupant.seats, Cause.DRAIN, whole=True))


def _sits_on(occupant: Occupant, nodes: BoolArray) -> bool:
    return any(bool(nodes[seats.nodes].any()) for seats in occupant.seats)


def _under_window(session: Session, exempt: Exempt, lead_us: int) -> BoolArray:
    """Nodes under a window that is open now, or will be so soon, and binds whoever is not exempt from it."""
    mask = np.zeros(len(session.fleet), dtype=np.bool_)
    now = session.snapshot.now_us
    for index, window in enumerate(session.snapshot.windows):
        if index not in exempt and window.start_us - lead_us <= now < window.end_us:
            mask |= session.window_masks[index]
    return mask


def _open_nodes(session: Session, occupant: Occupant, soon: BoolArray) -> None:
    """Where it may go: in service, under no window; of windows ahead, one that can be made to leave need not care."""
    closed = np.zeros(len(session.fleet), dtype=np.bool_)
    exempt = session.exempt_of(occupant.queue, occupant.user)
    for index, window in enumerate(session.snapshot.windows):
        ahead = window.start_us < occupant.end_us and window.end_us > session.snapshot.now_us
        # The mask of nodes it may go to is stricter than the one of nodes it must leave: who has to leave a window soon
        # should not land under the next one, unless it can be made to leave that one too.
        later = window.start_us > session.snapshot.now_us
        if index not in exempt and ahead and not (later and occupant.gang.preemptible):
            closed |= session.window_masks[index]
    # `LEAVING` means other nodes for every occupant, and the view's rows have the last one's mask inside.
    session.view.forget()
    session.view.usable_by_exempt[LEAVING] = session.in_service & ~closed & ~soon


def _close_up(session: Session, occupant: Occupant, bad: BoolArray) -> bool:
    """An elastic gang puts its members elsewhere, or goes on with fewer."""
    if not occupant.gang.elastic:
        return False
    seats: list[Seats] = []
    gang = occupant.gang
    # All roles are split before any is extended: a role that looks for room next to the others must
    # see those that stay, not those that leave too.
    leaving = [_on(session, occupant, each, bad) for each in occupant.seats]
    staying = [subtract_seats(each, gone) for each, gone in zip(occupant.seats, leaving, strict=True)]
    with session.view.attempt():  # what is gained is taken for good below, with all the rest
        for index, role in enumerate(gang.roles):
            kept = _keep_up(session, occupant, (*seats, *staying[index:]), index)
            if kept is None:
                return False
            # What stays is what happens to sit on good nodes, which need not be a size that the role may have.
            seats.append(drop_tail(session.fleet, role.shape, kept, _too_many(role, kept)))
    _reseat(session, occupant, tuple(seats))
    return True


def _keep_up(session: Session, occupant: Occupant, seats: tuple[Seats, ...], index: int) -> Seats | None:
    """The most of a role that can sit elsewhere, at least its least; None if not even that."""
    stay, had = seats[index], occupant.seats[index].members
    sizes = [size for size in reversed(occupant.gang.roles[index].sizes.allowed) if size <= had]
    for size in sizes:
        if size <= stay.members:
            # No larger size found room elsewhere: it goes on with those who need not leave.
            return stay
        more = extend(session.view, occupant.gang, seats, index, size - stay.members, LEAVING)
        if more is not None:
            return add_seats(stay, more)
    return None


def _too_many(role: Role, seats: Seats) -> int:
    return seats.members - max(size for size in role.sizes.allowed if size <= seats.members)


def _on(session: Session, occupant: Occupant, seats: Seats, bad: BoolArray) -> Seats:
    # A whole node's members or none: the node is to be empty, so which of its devices they use does not matter.
    counts = {n: c for n, c in zip(seats.nodes.tolist(), seats.counts.tolist(), strict=True) if bad[n]}
    return part_of(session.fleet, occupant.gang.roles[seats.role].shape, seats, counts)


def _reseat(session: Session, occupant: Occupant, seats: tuple[Seats, ...]) -> None:
    """Everything that is not kept goes back into the view, and what was gained leaves it."""
    view, gang = session.view, occupant.gang
    for old, new in zip(occupant.seats, seats, strict=True):
        need = session.need_of(gang, old.role)
        if gang.resize_pause_us:  # it still sits there until its pause is over, so only what it gains changes hands
            view.take_seats(need, subtract_seats(new, old))
        else:
            view.take_seats(need, old, sign=-1)
            view.take_seats(need, new)
        session.charge(occupant.queue, occupant.user, (new.members - old.members) * need.vector)
    occupant.seats, occupant.cause = seats, Cause.DRAIN
    # Whoever changes seats counts here: the calendar remembers the ends it has collected by this number.
    session.taken_back += 1


def _move(session: Session, occupant: Occupant) -> bool:
    """A preemptible gang with snapshots goes elsewhere, whole."""
    if not occupant.gang.preemptible or occupant.gang.snapshot is None:
        return False
    view = session.view
    form = whole_form(session.fleet, occupant.gang, sizes_of(occupant.seats))
    with view.attempt() as keep:
        # Its own seats count as free, since the part of it that sits on good nodes may well stay there.
        for seats in occupant.seats:
            view.take_seats(session.need_of(occupant.gang, seats.role), seats, sign=-1)
        # The ceiling first: it is a sum, and with several roles the search for places is not.
        found = place(view, Wish(form, 1, LEAVING)) if find_ceiling(view, form, LEAVING) else NoPlace()
        if isinstance(found, NoPlace):
            return False
        keep()
    occupant.seats, occupant.moved = found[0], True
    session.taken_back += 1
    return True

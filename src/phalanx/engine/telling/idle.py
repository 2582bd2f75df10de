"""What the room that nobody took is kept for. Bookkeeping for a ledger; decides nothing.

Rule 13 (ledger): idle time is `reserved_idle` under a reservation, `fragmented` while somebody waits whom the free
amounts would hold in one piece, and `free` otherwise. Utilisation that is lost to backfill, to packing and to a lack
of work are three different things to mend.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from phalanx.engine.calendar.releases import collect_ends
from phalanx.engine.order.turns import Turns
from phalanx.engine.room.view import find_need
from phalanx.engine.session import Session
from phalanx.engine.telling.reasons import measure_room
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.plan import Idle, Reservation


class Walked(Protocol):
    """What a walk leaves behind."""

    turns: Turns
    started: BoolArray

    def list_reservations(self) -> tuple[Reservation, ...]:
        """Starts in the future, with places."""
        ...


def measure_idle(session: Session, walk: Walked) -> Idle:
    """Free room under reservations, and whether somebody waits only because it lies in the wrong places."""
    # After the walk: what this plan starts is off it already.
    free = session.view.free * session.in_service[:, None]
    if not free.any() or bool(walk.started.all()):
        return Idle(np.zeros(len(session.fleet.kinds), dtype=np.int64), fragmented=False)
    kept = np.zeros_like(free)
    for reservation in walk.list_reservations() if session.policy.reservations else ():
        # Several reservations may name one node at different times, so that more is kept than the node has...
        kept += _kept_for(session, reservation)
    # ... but no more than is free counts, node by node.
    reserved: IntArray = np.minimum(free, kept).sum(axis=0)
    return Idle(reserved, _is_fragmented(session, walk))


def _kept_for(session: Session, reservation: Reservation) -> IntArray:
    """What a reservation takes of each node beyond what is given back there by then.

    Of a node with two devices free and four that end in time, a head of five keeps one idle: whoever fills may use the
    other and stay. Counted as the walk does that let the fillers in, and so by the same number whatever the kind is.
    """
    kept = np.zeros_like(session.view.free)
    for number, per_gang in zip(reservation.gangs, reservation.seats, strict=True):
        for seats in per_gang:
            need = find_need(session.fleet, session.snapshot.gangs[number].roles[seats.role].shape)
            kept[seats.nodes] += seats.counts[:, None] * need.vector
    ends = collect_ends(session)
    gone = ends.end_us <= reservation.start_us
    np.subtract.at(kept, ends.node[gone], ends.taken[gone])
    return np.maximum(kept, 0)


def _is_fragmented(session: Session, walk: Walked) -> bool:
    turns = walk.turns
    waiting = (~walk.started).nonzero()[0]
    sums: dict[bytes, IntArray] = {}
    caps = np.minimum(*turns.limit_caps(session, empty=False)) if session.limits.any else None
    for index in np.unique(turns.key_index[waiting]).tolist():
        room = measure_room(session, turns.keys[index], sums)
        some = waiting[turns.key_index[waiting] == index]
        if caps is not None:
            # Whom a ceiling stops does not wait for room, in one piece or not.
            some = some[turns.size[some] <= caps[some]]
        # As the reasons have it: enough in total, too little on nodes (Fragmentation) or in a domain (Topology).
        sizes = np.full(len(some), room.needed) if room.needed else turns.size[some]
        if bool(((sizes <= room.in_total) & (sizes > min(room.on_nodes, room.in_domain))).any()):
            return True
    return False

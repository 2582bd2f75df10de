"""What the room that nobody took is kept for. Bookkeeping for a ledger; decides nothing.

Rule 13 (ledger): idle time is `reserved_idle` under a reservation, `fragmented` while somebody waits whom the free
amounts would hold in one piece, and `free` otherwise. Utilisation that is lost to backfill, to packing and to a lack
of work are three different things to mend.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from phalanx.engine.calendar.port import Calendar
from phalanx.engine.order.turns import Turns
from phalanx.engine.session import Session
from phalanx.engine.telling.reasons import measure_room
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.plan import Idle


class Walked(Protocol):
    """What a walk leaves behind."""

    turns: Turns
    started: BoolArray
    calendar: Calendar


def measure_idle(session: Session, walk: Walked) -> Idle:
    """Free room under reservations, and whether somebody waits only because it lies in the wrong places."""
    # After the walk: what this plan starts is off it already.
    free = session.view.free * session.in_service[:, None]
    if not free.any() or bool(walk.started.all()):
        return Idle(np.zeros(len(session.fleet.kinds), dtype=np.int64), fragmented=False)
    # Where the first who is blocked stops the others (fcfs), nothing is kept: nobody may use it, reserved or not.
    kept = walk.calendar.measure_kept() if session.policy.reservations else np.zeros_like(free)
    # No more than is free counts, node by node: several reservations may name one at different times.
    reserved: IntArray = np.minimum(free, kept).sum(axis=0)
    return Idle(reserved, _is_fragmented(session, walk))


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

"""Whether a start would use up the ceiling that somebody with a reservation will need.

A reservation keeps places and a time; the ceilings above it must still be there when it comes. What
is in use then is what is in use now, less what will have ended by then.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from phalanx.engine.ends import expected_ends
from phalanx.engine.order.turns import Offer, Turns, list_shares
from phalanx.engine.room.limits import usage_fits
from phalanx.engine.session import Session
from phalanx.model.fleet import IntArray


def leaves_limits(
    session: Session, turns: Turns, turn: int, offer: Offer, gone_us: int, reserved: Iterable[tuple[int, int]]
) -> bool:
    """Whether everyone of `reserved` (turn, start) stays below the ceilings if this turn starts now until `gone_us`."""
    if not session.limits.any:
        return True
    own = [(int(turns.queue[turn]), user, asked) for user, asked in list_shares(session, turns, turn, offer)]
    for other, start_us in reserved:
        if gone_us <= start_us or other == turn:
            continue
        least = Offer(turns.key_of(other).form, int(turns.size[other]), 0)
        shares = [(int(turns.queue[other]), user, asked) for user, asked in list_shares(session, turns, other, least)]
        released = _released(session, start_us)
        if usage_fits(session.limits, shares, released) and not usage_fits(session.limits, own + shares, released):
            return False
    return True


def _released(session: Session, at_us: int) -> tuple[IntArray, IntArray]:
    """What queues (without those above them) and people will have given back by an instant."""
    snapshot = session.snapshot
    table, running = snapshot.allocations, snapshot.running
    rows = table.alive.nonzero()[0]
    rows = rows[expected_ends(running, snapshot.now_us)[table.running[rows]] <= at_us]
    queues, users = np.zeros_like(snapshot.queues.usage), np.zeros_like(snapshot.users.usage)
    np.add.at(queues, running.queue[table.running[rows]], table.taken[rows])
    np.add.at(users, running.user[table.running[rows]], table.taken[rows])
    return queues, users

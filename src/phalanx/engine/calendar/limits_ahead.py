"""Whether a start would use up the ceiling that somebody with a reservation will need.

A reservation keeps places and a time; the ceilings above it must still be there when it comes. What
is in use then is what is in use now, less what will have ended by then.

A queue may hold 8 and uses 5, all of which is given back by t = 100, when a reservation for 6 begins. A filler of 3 is
within the limit now; if it runs on, 3 + 6 would pass it then, and the reservation would be worth nothing, with all its
places free. A filler of 2 leaves enough.
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
    # At its start only: from then on, what runs now can only become less.
    for other, start_us in reserved:
        # Gone by then, as with places: whoever ends by the shadow time delays nobody.
        if gone_us <= start_us or other == turn:
            continue
        # An elastic gang reserves its minimum (rule 3), so that is what its ceiling must leave.
        least = Offer(turns.key_of(other).form, int(turns.size[other]), 0)
        shares = [(int(turns.queue[other]), user, asked) for user, asked in list_shares(session, turns, other, least)]
        released = _released(session, start_us)
        # Both, because a reservation that a ceiling stops anyway is not made worse by anybody.
        if usage_fits(session.limits, shares, released) and not usage_fits(session.limits, own + shares, released):
            return False
    return True


def _released(session: Session, at_us: int) -> tuple[IntArray, IntArray]:
    """What queues (without those above them) and people will have given back by an instant."""
    snapshot = session.snapshot
    table, running = snapshot.allocations, snapshot.running
    rows = table.alive.nonzero()[0]
    # What this plan has started is in the usage and counts as still there: that errs on the reservation's side.
    rows = rows[expected_ends(running, snapshot.now_us)[table.running[rows]] <= at_us]
    queues, users = np.zeros_like(snapshot.queues.usage), np.zeros_like(snapshot.users.usage)
    np.add.at(queues, running.queue[table.running[rows]], table.taken[rows])
    np.add.at(users, running.user[table.running[rows]], table.taken[rows])
    return queues, users

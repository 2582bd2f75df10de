"""Deadlines that cannot be met, whatever happens.

Rule 15 (deadline) refuses a gang only if it is impossible on an empty cluster at its largest size. A miss that merely
looks likely is no refusal: ends come early, and what was refused is not tried again while the cluster stays the same.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.order.orders import overhead_us
from phalanx.engine.order.turns import Turns, offer_at
from phalanx.engine.session import Session, empty_ceiling
from phalanx.model.fleet import BoolArray


def find_too_late(session: Session, turns: Turns) -> BoolArray:
    """Turns whose deadline is shorter than their stated run time on an empty cluster at the largest size there."""
    snapshot = session.snapshot
    pending, late = snapshot.pending, np.zeros(len(turns), dtype=np.bool_)
    # The column is the last gang's of a group; each gang of it is then asked for its own deadline.
    for turn in (pending.deadline_us[turns.rows] >= 0).nonzero()[0].tolist():
        late[turn] = any(_too_late(session, turns, turn, row) for row in turns.rows_of(turn))
    return late


def _too_late(session: Session, turns: Turns, turn: int, row: int) -> bool:
    pending, number = session.snapshot.pending, int(session.snapshot.pending.gang[row])
    gang = session.snapshot.gangs[number]
    # Without a stated walltime the length is a guess (rule 7), and nobody is refused for a guess.
    if gang.deadline_us is None or gang.walltime_us is None:
        return False
    length = gang.walltime_us
    key = turns.key_of(turn)
    if pending.elastic[row] and key.form.open_size:
        # Of all nodes, those down or cordoned included: they may be back in time.
        most = empty_ceiling(session.fleet, key.form, None)
        fitting = [size for size in gang.roles[0].sizes.allowed if size <= most]
        # Walltimes are stated at the largest size. If that never fits, the gang is slower than it says.
        if fitting:
            length = offer_at(session, key, number, (fitting[-1],), length).length_us
    # It has to start up first, and to restore what it had saved if it ran before (rule 16).
    return length + overhead_us(gang, ran_before=bool(pending.attained_us[row] > 0)) > gang.deadline_us

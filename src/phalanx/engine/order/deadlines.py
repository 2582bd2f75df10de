"""Deadlines that cannot be met, whatever happens."""

from __future__ import annotations

import numpy as np

from phalanx.engine.order.turns import Turns, offer_at
from phalanx.engine.session import Session, empty_ceiling
from phalanx.model.fleet import BoolArray


def find_too_late(session: Session, turns: Turns) -> BoolArray:
    """Turns whose deadline is shorter than their stated run time on an empty cluster at the largest size there."""
    snapshot = session.snapshot
    pending, late = snapshot.pending, np.zeros(len(turns), dtype=np.bool_)
    for turn in (pending.deadline_us[turns.rows] >= 0).nonzero()[0].tolist():
        late[turn] = any(_too_late(session, turns, turn, row) for row in turns.rows_of(turn))
    return late


def _too_late(session: Session, turns: Turns, turn: int, row: int) -> bool:
    pending, number = session.snapshot.pending, int(session.snapshot.pending.gang[row])
    gang = session.snapshot.gangs[number]
    if gang.deadline_us is None or gang.walltime_us is None:
        return False
    length = gang.walltime_us
    key = turns.key_of(turn)
    if pending.elastic[row] and key.form.open_size:
        most = empty_ceiling(session.fleet, key.form, None)
        fitting = [size for size in gang.roles[0].sizes.allowed if size <= most]
        if fitting:
            length = offer_at(session, key, number, (fitting[-1],), length).length_us
    return length > gang.deadline_us

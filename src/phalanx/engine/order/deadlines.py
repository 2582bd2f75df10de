"""Deadlines that cannot be met, whatever happens.

Rule 15 (deadline) refuses a gang only if it is impossible on an empty cluster at its largest size. A miss that merely
looks likely is no refusal: ends come early, and what was refused is not tried again while the cluster stays the same.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.curves import curve_of
from phalanx.engine.order.turns import Turns
from phalanx.engine.session import Session, empty_ceiling
from phalanx.model.fleet import BoolArray
from phalanx.model.snapshot import Snapshot
from phalanx.perfmodel.speedup import scaled_us


def find_too_late(session: Session, turns: Turns) -> BoolArray:
    """Turns whose deadline is shorter than their stated run time on an empty cluster at the largest size there."""
    snapshot = session.snapshot
    pending, late = snapshot.pending, np.zeros(len(turns), dtype=np.bool_)
    # The column is the last gang's of a group; each gang of it is then asked for its own deadline.
    for turn in (pending.deadline_us[turns.rows] >= 0).nonzero()[0].tolist():
        late[turn] = any(is_too_late(snapshot, row) for row in turns.rows_of(turn))
    return late


def is_too_late(snapshot: Snapshot, row: int) -> bool:
    """The same of one pending gang."""
    deadline_us, needed_us = snapshot.gangs[int(snapshot.pending.gang[row])].deadline_us, find_needed_us(snapshot, row)
    return deadline_us is not None and needed_us is not None and needed_us > deadline_us


def find_needed_us(snapshot: Snapshot, row: int) -> int | None:
    """How long a pending gang takes alone on an empty cluster; None if nobody has said."""
    pending, number = snapshot.pending, int(snapshot.pending.gang[row])
    gang = snapshot.gangs[number]
    # Without a stated walltime the length is a guess (rule 7), and nobody is refused for a guess.
    if gang.walltime_us is None:
        return None
    length, form = gang.walltime_us, snapshot.forms[int(pending.form[row])]
    # A gang that starts together with others is judged at its largest: how large it could be beside them is not known.
    if pending.elastic[row] and form.open_size and pending.group[row] < 0:
        # Of all nodes, those down or cordoned included: they may be back in time.
        most = empty_ceiling(snapshot.fleet, form, None)
        fitting = [size for size in gang.roles[0].sizes.allowed if size <= most]
        # Walltimes are stated at the largest size. If that never fits, the gang is slower than it says.
        if fitting:
            length = scaled_us(length, curve_of(snapshot, number), gang.roles[0].sizes.most, fitting[-1])
    # It has to start up first (rule 16). Not what it restores if it ran before: beside its whole walltime that would
    # count twice, and whose date was in reach when it came is not refused because somebody evicted it.
    return length + gang.startup_us

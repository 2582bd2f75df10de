"""Who can never run here: told so once, and without a turn, so that it holds up nobody (rule 2).

Judged against the cluster as it would be empty, spares and windows aside: whoever only has to wait is not judged here.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.order.deadlines import find_too_late
from phalanx.engine.order.turns import Turns
from phalanx.engine.session import Session, empty_ceiling
from phalanx.model.fleet import BoolArray
from phalanx.model.snapshot import Snapshot


def find_impossible(session: Session, turns: Turns) -> tuple[BoolArray, BoolArray]:
    """Turns that can never run here, and of them those that only their deadline forbids."""
    ceilings = [empty_ceiling(session.fleet, key.form, None) for key in turns.keys]
    # One comparison for all turns; an array of one ceiling would be spread over 100,000 of them first.
    if len(ceilings) == 1:
        impossible = turns.size > ceilings[0]
    else:
        impossible = turns.size > np.array(ceilings, dtype=np.int64)[turns.key_index]
    if session.limits.any:
        # Rule 11: a gang whose minimum exceeds a limit above it is infeasible. With nothing in use:
        # usage goes down by itself, limits do not.
        impossible |= turns.size > np.minimum(*turns.limit_caps(session, empty=True))
    late = np.zeros_like(impossible)
    if session.policy.deadlines and session.snapshot.hints.has_deadlines:
        # Both may be true, and then size is the better answer: no date would help.
        late = (find_too_late(session, turns) | _find_refused(session, turns)) & ~impossible
    return impossible | late, late


def _find_refused(session: Session, turns: Turns) -> BoolArray:
    """Turns whose date could not be promised, where that is a refusal (option `admit`)."""
    refused = np.zeros(len(turns), dtype=np.bool_)
    if session.dates is not None:
        verdicts, gangs = session.snapshot.dates, session.snapshot.pending.gang[turns.rows].tolist()
        refused[:] = [number in verdicts and session.dates.is_refused(verdicts[number]) for number in gangs]
    return refused


def judge_gated(snapshot: Snapshot) -> tuple[int, ...]:
    """Newcomers that have no turn yet (held, waiting) and could never run: nobody should release them to find out."""
    if not (snapshot.hints.gated and snapshot.fresh):
        return ()
    pending, found = snapshot.pending, []
    for row in (pending.alive & (pending.gate != 0)).nonzero()[0].tolist():
        number = int(pending.gang[row])
        # Old ones were looked at when they came, and the cluster is the same: whoever
        # changes it makes everybody fresh again.
        if number not in snapshot.fresh or number in snapshot.judged:
            continue
        # By size alone: limits and dates are judged with its turn. This is for what no release could ever help.
        if int(pending.size[row]) > empty_ceiling(snapshot.fleet, snapshot.forms[int(pending.form[row])], None):
            found.append(number)
    return tuple(found)


def list_newly_judged(session: Session, turns: Turns, impossible: BoolArray) -> tuple[int, ...]:
    """Gangs of impossible turns that have not been told yet."""
    gangs = session.snapshot.pending.gang
    told = session.snapshot.judged
    numbers = [int(gangs[row]) for turn in np.flatnonzero(impossible).tolist() for row in turns.rows_of(turn)]
    return tuple(number for number in numbers if number not in told)

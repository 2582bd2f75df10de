"""Devices that somebody uses without having asked us.

Such a device is as busy as any other and nobody knows until when. It is kept as a row of nobody, like seats
that are being vacated, charged to no queue but the root.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from phalanx.control.records import NOTHING, Ghost, Record
from phalanx.control.seating import keep_busy, unseat
from phalanx.control.tables import Tables
from phalanx.engine.lifecycle import Phase
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Seats
from phalanx.model.queue import ROOT
from phalanx.model.resources import DEVICE_KIND, MILLI

#: Beyond what any plan looks at, and inside 64 bits with room for sums.
_LONG_US: Final = 365 * 24 * 3_600_000_000

_GANG: Final = Gang("(stranger)", (Role("stranger", Sizes((1,)), Shape(((DEVICE_KIND, MILLI),))),))


def occupy(state: Tables, node: int, device: int) -> None:
    """Somebody else uses this device; whatever of it is free is so no longer."""
    state.thaw()
    row = np.zeros((1, state.nodes.device_free.shape[1]), dtype=np.int16)
    # All of it: what a stranger leaves of a device nobody can tell, and nobody should be put beside it.
    row[0, device] = MILLI
    # To the root, which has no limit of its own to use up: no team pays for somebody who never asked.
    queue, user = state.tenants.index_of(ROOT, _GANG.name)
    record = Record(_GANG, Phase.RUNNING, -1, queue, user, state.now_us, -1, NOTHING, held=False)
    seats = Seats(0, np.array([node]), np.array([1]), row)
    # Only what is free of it: what a gang of ours uses is booked already.
    keep_busy(state, record, (seats,), state.now_us + _LONG_US)
    state.hints.unsettle()


def leave_free(state: Tables, node: int, device: int) -> None:
    """The stranger is gone."""
    state.thaw()
    for entry in [entry for entry in state.vacating if _is_stranger(entry[1], node, device)]:
        # By hand and not by time: it ends when somebody sees that it is gone.
        unseat(state, entry[1])
        state.running.remove(entry[1].row)
        state.vacating.remove(entry)
    state.hints.unsettle()


def _is_stranger(ghost: Ghost, node: int, device: int) -> bool:
    # By identity: a user may well call a gang "(stranger)".
    if ghost.leaver is not _GANG:
        return False
    return any(int(seats.nodes[0]) == node and bool(seats.devices[0, device]) for seats in ghost.seats)


def is_stranger(ghost: Ghost) -> bool:
    """Whether a row of nobody stands for somebody who never asked."""
    return ghost.leaver is _GANG

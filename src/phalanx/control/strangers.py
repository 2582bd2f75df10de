"""What somebody uses without having asked us: whole devices, or amounts of a node.

It is as busy as anything else and nobody knows until when. It is kept as a row of nobody, like seats
that are being vacated, charged to no queue but the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from phalanx.control.records import NOTHING, Ghost, Record
from phalanx.control.seating import add_ghost, keep_busy, unseat
from phalanx.control.tables import Tables
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.lifecycle import Phase
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Seats
from phalanx.model.queue import ROOT
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.rules import Mark

#: Beyond what any clock looks at. To the engine they have no end at all: a start that hangs on one is no start, and
#: whoever waits for it holds up nobody.
_LONG_US: Final = 365 * 24 * 3_600_000_000

_GANG: Final = Gang("(stranger)", (Role("stranger", Sizes((1,)), Shape(((DEVICE_KIND, MILLI),))),))
#: Of those who are known by amounts only; its shape is what they hold of a node, so that each is a gang of its own.
_CROWD: Final = "(others)"


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
    for _, ghost in state.vacating:
        if _is_stranger(ghost, node, device):
            _take_end(state, ghost)
    state.hints.unsettle()


def _take_end(state: Tables, ghost: Ghost) -> None:
    columns = state.running.columns
    columns["length_us"][ghost.row] = NEVER - columns["start_us"][ghost.row]


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
    return ghost.leaver is _GANG or (ghost.leaver is not None and ghost.leaver is ghost.gang and _is_crowd(ghost.gang))


def _is_crowd(gang: Gang) -> bool:
    # A gang of ours may have that name and not that role: words in parentheses are no role of anybody's.
    return gang.name == _CROWD and gang.roles[0].name == _CROWD


def crowd(state: Tables, node: int, amounts: Mapping[str, int]) -> bool:
    """Others hold so much of a node, all of them together; False if there was less left than that.

    One row for each node and not one for each of them: they come and go all day, and rows of nobody are walked through.
    """
    state.thaw()
    _leave_crowd(state, node)
    # No more than is free: below zero a node would be counted against the others in sums over the cluster. Whoever
    # says so says it again when somebody has left the node.
    free = state.nodes.free[node]
    index = state.fleet.kind_index
    # Devices are taken one by one (`occupy`): of a sum nobody could say which.
    wanted = {kind: units for kind, units in amounts.items() if kind in index and kind != DEVICE_KIND and units > 0}
    held = {kind: min(units, int(free[index[kind]])) for kind, units in wanted.items()}
    need = tuple(sorted((kind, units) for kind, units in held.items() if units > 0))
    if need:
        gang = replace(_GANG, name=_CROWD, roles=(Role(_CROWD, Sizes((1,)), Shape(need)),))
        queue, user = state.tenants.index_of(ROOT, _CROWD)
        devices = np.zeros((1, state.nodes.device_free.shape[1]), dtype=np.int16)
        seats = (Seats(0, np.array([node]), np.array([1]), devices),)
        ghost = Ghost(gang, Phase.RUNNING, -1, queue, user, state.now_us, -1, NOTHING, held=False, leaver=gang)
        ghost.seats = seats
        add_ghost(state, ghost, state.now_us + _LONG_US)
        _take_end(state, ghost)
        state.nodes.crowds[node] = ghost
    state.hints.unsettle()
    return held == wanted


def note_marks(state: Tables, node: int, marks: Mapping[Mark, int]) -> None:
    """What others on a node are to rules about others, all of them together.

    Negative numbers are fine: somebody of ours has ceased to be what it was when it started.
    """
    # A snapshot that was handed out goes on saying who was there when it was made.
    state.thaw()
    state.nodes.set_marks(node, marks)
    # Who was kept away, or had nobody to be beside, may have its place now.
    state.hints.unsettle()


def _leave_crowd(state: Tables, node: int) -> None:
    ghost = state.nodes.crowds.pop(node, None)
    if ghost is None:
        return
    unseat(state, ghost)
    state.running.remove(ghost.row)
    # By identity, as everywhere here: two nodes may be used to the same amounts.
    state.vacating = [entry for entry in state.vacating if entry[1] is not ghost]

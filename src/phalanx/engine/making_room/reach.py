"""What is within anybody's reach at all: free room and everything that running gangs might be made to give.

A search for room lists offers, claims, loans and victims, and tries sets of them in copies of the cluster. On a full
cluster nearly all of them fail, and nearly all of those because there is not enough of anything to begin with. One sum
per kind of rights says so, before a gang is even visited. It may say yes too often and never no: guarantees, time,
places and topology only take away from it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from phalanx.engine.making_room.permits import Permits
from phalanx.engine.order.turns import Turns
from phalanx.engine.room.view import View
from phalanx.engine.session import Session
from phalanx.model.fleet import BoolArray, IntArray

_NOTHING = np.zeros(0, dtype=np.int64)


class RoomReach:
    """Sums over the cluster, by the rights of those who ask."""

    def __init__(self, session: Session, turns: Turns, permits: Permits) -> None:
        """Nothing is measured before somebody asks."""
        self.session, self.turns, self.permits = session, turns, permits
        # One kind is enough to say no, and what everybody asks for is devices.
        self._column = max(0, session.fleet.device_column)
        # No stamp is negative: what is asked first is measured.
        self._measured, self._sums = (-1, -1), _NOTHING

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes when somebody gives or takes: what was known before is out of date then."""
        # Both, since a release lets more within reach and a start less. Where starts are not charged (nobody reads the
        # usage there) the sum stays as large as it was: a search in vain, and no start missed.
        return self.session.taken_back, self.session.charged

    def has(self, turn: int, *, filling: bool, beside: View | None = None) -> bool:
        """Whether all of it, were it in one piece, would do for a turn; `beside`: the free room that it may use."""
        reach = self._measure(turn, filling=filling)
        if beside is not None:
            # Free now, and kept for a reservation for as long as this one would stay.
            free, column = self.session.view.free, self._column
            reach -= int((free[:, column] - beside.free[:, column])[self.session.in_service].sum())
        return int(self._asked[turn]) <= reach

    def keep(self, block: IntArray, filling: npt.NDArray[np.int8], wanted: BoolArray) -> BoolArray:
        """Those of the wanted turns of a block for whom there might be enough; `filling`: 1 for those who fill."""
        # By columns: a block has many turns and few rights, and each of these is measured once.
        sums, at = self._known(), (filling, self._rights[block])
        for index in np.flatnonzero(wanted & (sums[at] < 0)).tolist():
            # Asked again: the one before it may have been of the same rights.
            if sums[at[0][index], at[1][index]] < 0:
                self._measure(int(block[index]), filling=bool(filling[index]))
        kept: BoolArray = wanted & (self._asked[block] <= sums[at])
        return kept

    @cached_property
    def _rights(self) -> IntArray:
        """By turn: who are of one queue and priority have the same rights over everybody."""
        # Of several gangs that start together the last one's, as `Permits.claimant` takes it.
        priority = self.session.snapshot.pending.priority[self.turns.rows]
        known: dict[tuple[int, int], int] = {}
        pairs = zip(self.turns.queue.tolist(), priority.tolist(), strict=True)
        return np.array([known.setdefault(pair, len(known)) for pair in pairs], dtype=np.int64)

    @cached_property
    def _asked(self) -> IntArray:
        """By turn: what it asks of the kind that is counted."""
        by_one = self.turns.counted_by_one(self.session, self._column)
        asked: IntArray = by_one[self.turns.key_index] * self.turns.size
        return asked

    def _known(self) -> IntArray:
        """What was measured since anybody gave or took: of those who do not fill and who do, by rights; else -1."""
        if self._measured != self.stamp:
            self._measured = self.stamp
            self._sums = np.full((2, int(self._rights.max(initial=-1)) + 1), -1, dtype=np.int64)
        return self._sums

    def _measure(self, turn: int, *, filling: bool) -> int:
        """The sum for one turn."""
        sums, at = self._known(), (int(filling), int(self._rights[turn]))
        if sums[at] < 0:
            # One speaks for all of its rights: what it might be given does not depend on how much it asks.
            who = self.permits.claimant(self.turns, turn, _NOTHING, owner=not filling)
            free = int(self.session.view.free[self.session.in_service, self._column].sum())
            sums[at] = free + self.permits.measure_reach(who, self._column)
        return int(sums[at])

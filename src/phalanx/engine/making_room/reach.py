"""What is within anybody's reach at all: free room and everything that running gangs might be made to give.

A search for room lists offers, claims, loans and victims, and tries sets of them in copies of the cluster. On a full
cluster nearly all of them fail, and nearly all of those because there is not enough of anything to begin with. One sum
per kind of rights says so, before a gang is even visited. It may say yes too often and never no: guarantees, time,
places and topology only take away from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from phalanx.engine.making_room.permits import Permits, Rights
from phalanx.engine.order.turns import Turns
from phalanx.engine.room.view import View
from phalanx.engine.session import Session
from phalanx.model.fleet import BoolArray, IntArray


class RoomReach:
    """Sums over the cluster, by the rights of those who ask."""

    def __init__(self, session: Session, turns: Turns, permits: Permits) -> None:
        """Nothing is measured before somebody asks."""
        self.session, self.turns, self.permits = session, turns, permits
        # One kind is enough to say no, and what everybody asks for is devices.
        self._column = max(0, session.fleet.device_column)
        # No stamp is negative: what is asked first is measured. By whether those who ask fill, and their rights.
        self._measured: tuple[int, int] = (-1, -1)
        self._sums: dict[tuple[bool, int], int] = {}

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
            reach -= self._count(self.session.view.free) - self._count(beside.free)
        return self._asked[turn] <= reach

    def list_having(self, turns: Sequence[int], modes: Sequence[int]) -> list[bool]:
        """The same of a few turns, as plain numbers; `modes`: 0 of those who do not fill, 1 of those who do."""
        rights, asked, found = self.rights, self._asked, []
        # In one loop with what it needs at hand: a call for every turn of every pass was a twentieth of all time.
        sums: dict[tuple[int, int], int] = {}
        for turn, mode in zip(turns, modes, strict=True):
            if mode > 1:
                found.append(False)
                continue
            at = mode, rights[turn]
            reach = sums.get(at)
            if reach is None:
                reach = sums[at] = self._measure(turn, filling=mode == 1)
            found.append(asked[turn] <= reach)
        return found

    def has_then(self, turn: int, at_us: int, free: IntArray) -> bool:
        """Whether a turn that fills would find enough at a reserved start too, given all that is not free by then."""
        reach = self._count(free) + self.permits.measure_reach(self._rights_of(turn, owner=False), self._column, at_us)
        return self._asked[turn] <= reach

    def keep(self, block: IntArray, filling: npt.NDArray[np.int8], wanted: BoolArray) -> BoolArray:
        """Those of the wanted turns of a block for whom there might be enough; `filling`: 1 for those who fill."""
        # By columns: a block has many turns and few rights, and each of these is measured once.
        kept, (rights, asked) = wanted.copy(), (column[block] for column in self._columns)
        for pair in {*zip(filling[wanted].tolist(), rights[wanted].tolist(), strict=True)}:
            alike = wanted & (filling == pair[0]) & (rights == pair[1])
            first = int(block[int(alike.argmax())])
            kept[alike] = asked[alike] <= self._measure(first, filling=bool(pair[0]))
        return kept

    @cached_property
    def rights(self) -> list[int]:
        """By turn: who are of one queue and priority have the same rights over everybody."""
        # Of several gangs that start together the last one's, as `Permits.claimant` takes it.
        priority = self.session.snapshot.pending.priority[self.turns.rows]
        known: dict[tuple[int, int], int] = {}
        pairs = zip(self.turns.queue.tolist(), priority.tolist(), strict=True)
        return [known.setdefault(pair, len(known)) for pair in pairs]

    @cached_property
    def _columns(self) -> tuple[IntArray, IntArray]:
        """Rights and what is asked as columns, for those who look over many turns at once."""
        return np.array(self.rights, dtype=np.int64), np.array(self._asked, dtype=np.int64)

    @cached_property
    def _asked(self) -> list[int]:
        """By turn: what it asks of the kind that is counted."""
        by_one = self.turns.counted_by_one(self.session, self._column)
        asked: list[int] = (by_one[self.turns.key_index] * self.turns.size).tolist()
        return asked

    def _measure(self, turn: int, *, filling: bool) -> int:
        """The sum for one turn."""
        stamp = self.session.taken_back, self.session.charged
        if self._measured != stamp:
            self._measured, self._sums = stamp, {}
        found = self._sums.get((filling, self.rights[turn]))
        if found is None:
            # One speaks for all of its rights: what it might be given does not depend on how much it asks.
            rights = self._rights_of(turn, owner=not filling)
            found = self._count(self.session.view.free) + self.permits.measure_reach(rights, self._column)
            self._sums[filling, self.rights[turn]] = found
        return found

    def _count(self, free: IntArray) -> int:
        return int(np.add.reduce(free[:, self._column], where=self.session.in_service))

    def _rights_of(self, turn: int, *, owner: bool) -> Rights:
        return int(self.turns.queue[turn]), int(self.session.snapshot.pending.priority[self.turns.rows[turn]]), owner

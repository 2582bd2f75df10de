"""What a state knows that saves the engine a look, kept up as things happen.

A hint never decides (`model.snapshot.Hints`): each may err by a look too many, never by one too few. So writers may say
`unsettle` once too often, and what was ever true of somebody (`has_elastic`) need not be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from phalanx.control.columns import Table
from phalanx.model.gang import Gang
from phalanx.model.plan import Settled
from phalanx.model.snapshot import Hints

_NEVER_US = 1 << 62


@dataclass(slots=True)
class ArrivalOrder:
    """Whether pending rows stand in order of arrival, all of one priority. Most queues always do."""

    kept: bool = True
    last: tuple[int, int, int] = (0, -1, -1)  # priority, eligibility and number of the last row

    def note(self, key: tuple[int, int, int], *, alone: bool) -> None:
        """A row is added; `alone`: to an empty table."""
        if alone:
            self.kept = True
        # Never back to true but by an empty table: whether the rows have come to stand
        # in order would have to be looked for.
        elif self.last[0] != key[0] or self.last[1] > key[1] or self.last[2] > key[2]:
            self.kept = False
        self.last = key


@dataclass(slots=True)
class LeastEnd:
    """A bound below every running gang's expected end, so that nobody has to look whether one is over."""

    least_us: int = 0

    def note(self, end_us: int) -> None:
        """A gang starts."""
        self.least_us = min(self.least_us, end_us)

    def on_time(self, now_us: int, running: Table) -> bool:
        """Whether every running gang still has time by its walltime; counted anew only when the bound is reached."""
        # The bound may be too low, as gangs end and take their ends along; then it is counted once too often. It is
        # never too high, since every end that is set is noted.
        if now_us >= self.least_us:
            ends = (running.columns["start_us"] + running.columns["length_us"])[running.alive]
            self.least_us = int(np.minimum.reduce(ends, initial=_NEVER_US))
        return now_us < self.least_us


@dataclass(slots=True)
class KeptHints:
    """Of those who wait, of those who run, and of what the last plan said."""

    order: ArrivalOrder = field(default_factory=ArrivalOrder)
    gated: bool = False  # whether anybody ever had a gate
    has_elastic: bool = False  # whether any gang ever was elastic; and so on
    has_reclaimable: bool = False
    has_deadlines: bool = False
    ends: LeastEnd = field(default_factory=LeastEnd)
    settled: Settled | None = None  # as the last plan said
    settled_upto: int = 0  # gangs with a lower number were refused by it, and nothing has changed since

    def tell(self, now_us: int, running: Table, *, limited: bool) -> Hints:
        """For the next snapshot."""
        # Built anew each time: on a busy cluster `settled_upto` and `room` change with every plan.
        return Hints(
            gated=self.gated,
            has_elastic=self.has_elastic,
            has_reclaimable=self.has_reclaimable,
            has_deadlines=self.has_deadlines,
            limited=limited,
            in_order=self.order.kept,
            on_time=self.ends.on_time(now_us, running),
            room=self.settled.room if self.settled is not None else -1,
            settled_upto=self.settled_upto,
        )

    def unsettle(self) -> None:
        """Whoever was refused may be let in now."""
        self.settled_upto = 0

    def settle(self, settled: Settled | None, gangs: int) -> None:
        """A plan was made over so many gangs."""
        self.settled = settled
        # Numbers ascend, so that everybody below this has been looked at, and who comes later is above.
        self.settled_upto = gangs if settled is not None else 0

    def note_gang(self, gang: Gang, *, elastic: bool) -> None:
        """Remember whether anybody could ever be made to give something back, or be late."""
        if elastic or gang.preemptible:
            self.has_elastic = self.has_elastic or elastic
            self.has_reclaimable = True
        if gang.deadline_us is not None:
            self.has_deadlines = True

    def clone(self) -> KeptHints:
        """The same for a copy of the state."""
        # These two are written in place; the rest are values.
        return replace(self, order=replace(self.order), ends=replace(self.ends))

"""What a session knows of dates that are promised: the port behind which `engine.dates` stands.

Here and not there, since a session carries it through a cycle and the counting reads sessions: each would import the
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from phalanx.engine.reclaimable import Reclaimable
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.plan import DateVerdict


@dataclass(frozen=True, slots=True, eq=False)
class PlannedStart:
    """A start that is being thought of: what it takes, of which nodes, for how long, and who makes way for it."""

    number: int  # of several gangs that start together, the last
    pool: BoolArray
    units: IntArray
    until_us: int  # `NEVER`: nothing proves its end
    leaving: tuple[int, ...] = ()  # whole gangs
    lending: tuple[tuple[int, int], ...] = ()  # who shrinks for it, and by how many members


class KeptDates(Protocol):
    """Promised dates of one cycle."""

    @property
    def promised(self) -> frozenset[int]:
        """Gangs whose promised dates can still be helped: those that wait, and those that run and may change size."""
        ...

    def is_refused(self, verdict: DateVerdict) -> bool:
        """Whether a gang does not run because of what was said of its date."""
        ...

    def put_first(self, rows: IntArray) -> IntArray:
        """Pending rows in order, those with a promised date before all others."""
        ...

    def count_first(self, gangs: IntArray) -> int:
        """How many of these have a promised date."""
        ...

    def shares(self) -> Mapping[int, int]:
        """Members that each promised gang needs from now on, by number."""
        ...

    def allows(self, start: PlannedStart) -> bool:
        """Whether all promises can be kept beside this start."""
        ...

    def note_start(self, start: PlannedStart) -> None:
        """It is counted from now on."""
        ...

    def protect(self, reclaimable: Reclaimable) -> None:
        """Nobody takes from those who run what their dates need."""
        ...

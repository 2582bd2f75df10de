"""What a policy is: an order and a few numbers. The named ones are in `phalanx.policy`.

The engine asks for properties and never for a name: there is one walk, and `easy` differs from `conservative` by the
number of reservations and whether they bind. So a user's policy from a file can do what a named one can.

    nobody passes a blocked gang (FCFS)     reservations=0, stops=True
    EASY backfill                           reservations=1
    conservative backfill                   reservations=EVERYONE, keep=True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from phalanx.engine.worth import Weigh, weigh_paced
from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Snapshot

#: Every blocked gang gets a reservation.
EVERYONE: Final = 1 << 30

Order = Callable[[Snapshot, IntArray], IntArray]


@dataclass(frozen=True, slots=True)
class Policy:
    """One way of deciding. Options of the user change fields, never code paths by name."""

    name: str
    order: Order  # pending rows in, the same rows in the order of their turn out
    reservations: int = 1  # K: how many blocked gangs of a pool get a start and places
    stops: bool = False  # without reservations: the first blocked gang stops those behind it
    keep: bool = False  # promises bind later cycles
    fill: Literal["arrival", "shortest"] = "arrival"
    moldable: bool = True  # an elastic gang starts at the largest size that fits, and stays there
    mold_efficiency: float = 0.5  # ... of those at which a device does this part of what one does at the minimum
    standing: bool = False  # queues take turns by how far they are below their entitlement
    deadlines: bool = False  # what cannot be met is refused, and laxity is part of the order
    # Dates: all looked at, or promised only if they can be met beside those promised before; the rest best effort, or
    # refused.
    admit: Literal["any", "promised", "refuse"] = "any"
    takes: frozenset[str] = frozenset()  # shrink, preempt, reclaim, move: how a blocked gang may get room
    grows: bool = False  # running elastic gangs get idle room
    weigh: Weigh = weigh_paced  # what more members are worth to a gang, and to whom surplus goes
    quantum_us: int | None = None  # gangs take turns after so long
    reclaims_share: bool = False  # reclaim takes back what exceeds the weighted share, not only guarantees
    min_runtime_us: int = 0  # nobody is evicted before
    max_evictions: int = 1 << 30  # nobody is evicted more often
    half_life_us: int | None = None  # of the memory of past usage in the standing
    shares_users: bool = False  # inside a queue and a priority, people take turns by what they use

    @property
    def promises_dates(self) -> bool:
        """Whether dates are judged beside each other."""
        return self.deadlines and self.admit != "any"

    @property
    def touches_running(self) -> bool:
        """Whether there is anything to decide about running gangs when nobody waits."""
        return self.grows or bool(self.takes) or self.quantum_us is not None

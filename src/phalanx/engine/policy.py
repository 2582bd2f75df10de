"""What a policy is: an order and a few numbers. The named ones are in `phalanx.policy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

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
    molds: bool = True  # an elastic gang starts at the largest size that fits, and stays there

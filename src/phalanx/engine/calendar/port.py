"""What whoever takes or grows needs to know of the walk that it happens in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.engine.kernels.slots import Need
from phalanx.engine.order.turns import Offer
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import Places
from phalanx.engine.room.view import Exempt, View
from phalanx.model.fleet import BoolArray
from phalanx.model.form import Form
from phalanx.model.plan import Seats


class Calendar(Protocol):
    """Room now and under the reservations, as one walk keeps it."""

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until `gone_us` if these releases were given. The view may be written to."""
        ...

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Until when a gang that starts now must be able to stay: NEVER ends whoever does not say how long it runs."""
        ...

    def name_devices(self, form: Form, places: Places) -> Places:
        """The same places with devices that are really free now."""
        ...

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which somebody has a start in the future."""
        ...

    def give(self, release: Release) -> None:
        """Seats are given back for good."""
        ...

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats are taken from now until `gone_us`; with sign -1 that is undone."""
        ...

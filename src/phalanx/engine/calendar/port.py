"""What the walk, and whoever makes room or grows, may ask of what lies ahead.

A blocked gang at the head of the order gets a reservation (`reserve`): the earliest start that there is, with places.
Those behind it may start now if that does not delay it (`find_now`): they are gone by its start (EASY's shadow time),
or sit where it will not (EASY's extra nodes, but with places). With more `Policy.reservations` others who are blocked
have one too; with all of them, kept, this is conservative backfill. Whoever states no walltime proves no end, and may
stand where a reservation lies as a *guest* only (rule 8).

Two calendars stand behind this port. `engine.calendar.short` knows ends and one reservation per pool: room
then only grows with time except at the reservations' starts, so a few arrays answer everything. `engine.calendar.long`
knows any number of reservations, promises and windows, and answers from a line of time per node. The walk
(`engine.actions.allocate`) is written once, over the port: what is decided must not depend on which of
the two answers, only how fast. `tests/property/test_two_calendars.py` holds them to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.engine.calendar.dismissals import Dismissals
from phalanx.engine.kernels.slots import Need
from phalanx.engine.order.turns import Offer
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.placement import Places
from phalanx.engine.room.view import Exempt, View
from phalanx.engine.session import PlacementKey
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import Form
from phalanx.model.plan import Guest, Reservation, Seats
from phalanx.model.reason import Code


class RoomAhead(Protocol):
    """Room now and under the reservations: all that making room and growing need to know."""

    @property
    def dismissals(self) -> Dismissals | None:
        """Who need not be looked at; None: every turn is visited."""
        ...

    def trial(self, gone_us: int, exempt: Exempt, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until `gone_us` if these releases were made. The view may be written to."""
        ...

    def gone_us(self, turn: int, offer: Offer) -> int:
        """Until when a turn that starts now must be able to stay; NEVER if it does not say how long it runs."""
        ...

    def reserved_nodes(self) -> BoolArray:
        """Nodes on which somebody has a start in the future."""
        ...

    def name_devices(self, form: Form, places: Places) -> Places:
        """The same places with devices that are really free now."""
        ...

    # What is written down below is final for this cycle; `trial` above is the same question without consequences.
    def give(self, release: Release) -> None:
        """Seats are given back for good."""
        ...

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int = 1) -> None:
        """Seats are taken from now until `gone_us`; with sign -1 that is undone."""
        ...


class Calendar(RoomAhead, Protocol):
    """What the walk asks: may this turn start now, and if not, when."""

    gave_up: bool  # the last search for places ended undecided, for lack of steps

    @property
    def wake_us(self) -> int:
        """The time of a reservation's owner comes, and nothing else need happen then; NEVER: nobody's."""
        ...

    # -- starting
    # Places that are found are held until `start`, which is the only commitment: between the two the walk writes the
    # start into the session.

    def open_turn(self, turn: int) -> None:
        """Its turn has come: what was promised to it is its own again."""
        ...

    def look_ahead(self) -> None:
        """Somebody wants to fill around the reservations: they must be known from here on."""
        ...

    def has_room(self, turn: int, offer: Offer, *, lodges: bool) -> bool:
        """Whether so many may fit where it may stay, or, if it `lodges`, now; cheap, and never a false no."""
        ...

    def find_now(self, turn: int, offer: Offer) -> Places | None:
        """Places from now until the turn is gone, out of every reservation's way; held until `start`."""
        ...

    def find_as_guest(self, turn: int, offer: Offer) -> tuple[Places, Guest] | None:
        """Places now, from which it must go when the owner of a reservation comes; held until `start`."""
        ...

    def find_promised(self, turn: int) -> Places | None:
        """Places that were promised to it for this very instant; held until `start`."""
        ...

    def find_owed(self, turn: int) -> tuple[list[Release], Places] | None:
        """Guests that still sit at the places promised to it for this very instant, and those places."""
        ...

    def hold(self, form: Form, places: Places) -> Places:
        """Places that somebody else found, with real devices; held until `start`."""
        ...

    def start(self, turn: int, offer: Offer, places: Places, guest: Guest) -> None:
        """The turn starts on the places that are held for it, and has been written into the session."""
        ...

    # -- reserving
    # The least size, at one instant, at one set of places (rule 3). Whether that instant may move later is rule 4:
    # under `replan` it is forgotten with the cycle, under `keep` it comes back as a promise.

    def reserve(self, turn: int, key: PlacementKey) -> bool:
        """A blocked turn gets the earliest start there is, or the right to it; False if it is known to have none."""
        ...

    def list_reserved(self) -> list[tuple[int, int]]:
        """(turn, start) of everybody who has a start ahead."""
        ...

    def list_reservations(self) -> tuple[Reservation, ...]:
        """The reservations of this walk."""
        ...

    def measure_kept(self) -> IntArray:
        """What of each node is free now and may be used by nobody who stays past the reserved starts."""
        ...

    def next_start_us(self) -> int:
        """The first reserved start, or window."""
        ...

    def why_not(self, turn: int, *, filling: bool) -> Code:
        """Of a turn that has room now and did not start: what keeps it waiting."""
        ...

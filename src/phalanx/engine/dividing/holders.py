"""Elastic gangs among whom surplus is divided, with the sizes each might have."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from phalanx.engine.reclaimable import Occupant
from phalanx.engine.room.seats import elastic_members, sizes_of
from phalanx.engine.worth import Prospect
from phalanx.model.gang import Gang
from phalanx.model.plan import Cause, Guest, Seats

#: Sizes nearer to each other than this part of a gang are not told apart: a pause for one member of forty is wasted
#: (decision 21).
STEP_PARTS = 4
#: No bound on a size.
ANY_SIZE = 1 << 30


@dataclass(slots=True, eq=False)
class Holder:
    """An elastic gang among whom surplus is divided."""

    number: int
    gang: Gang
    queue: int
    user: int
    sizes: tuple[int, ...]  # members by role
    read: Callable[[], tuple[Seats, ...]]  # where they sit, asked when somebody wants to know
    find_prospect: Callable[[], Prospect]  # asked once and when it matters: most passes divide nothing
    gone_us: int
    weigh_role: Callable[[Gang, int], int]  # units that a member of a role takes
    occupant: Occupant | None = None  # None: it starts in this plan
    at: int = -1  # its bind, if it starts
    date_us: int | None = None
    resting: bool = False  # it was resized not long ago
    told: bool = False  # this plan made it give for a start: it may give more, and takes nothing
    cool_us: int = 0  # when that rest is over
    pinned: int | None = None  # the size that somebody wants of one that starts
    guest: Guest = Guest.NO
    gained: list[tuple[Seats, int]] = field(default_factory=list)  # with the instant until which they are taken
    most: int = ANY_SIZE  # larger sizes of its role found no room
    ceiling: int = ANY_SIZE  # larger sizes are above what its user may have, while others keep theirs
    share: int = 0  # members that its date needs; 0: it has none, or cannot be met
    coming: int = 0  # members that its date needs and that others have been asked for
    cause: Cause = Cause.GROW
    role: int = 0  # its elastic role; of several the first
    several: bool = False  # more than one role is elastic: they grow together, and shares and balance leave it alone
    weight: int = 1  # units that a member of its role takes
    members: int = 0  # of all its elastic roles
    _prospect: Prospect | None = None
    _climbs: dict[tuple[int, int, bool], tuple[float, int]] = field(default_factory=dict)  # steps that were asked for
    _seats: tuple[Seats, ...] | None = None

    def __post_init__(self) -> None:
        """What is asked many times is worked out once."""
        if len(self.gang.roles) > 1:
            elastic = [index for index, role in enumerate(self.gang.roles) if role.sizes.elastic]
            self.role, self.several = elastic[0], len(elastic) > 1
        self.weight = self.weigh_role(self.gang, self.role)
        self.members = elastic_members(self.gang, self.sizes)

    def sit(self, seats: tuple[Seats, ...]) -> None:
        """It has these seats from here on."""
        self._seats, self.sizes = seats, sizes_of(seats)
        self.members = elastic_members(self.gang, self.sizes)

    @property
    def seats(self) -> tuple[Seats, ...]:
        """Where it sits."""
        if self._seats is None:
            self._seats = self.read()
        return self._seats

    def begin(self) -> None:
        """It starts with what it has now, and pays its pause for whatever it gets later."""
        had, members = self.prospect, self.members
        left_us = had.left_us * had.speed(had.members) / had.speed(members)
        self._climbs = {}
        self._prospect = Prospect(
            self.gang, had.curve, had.weigh, members, left_us, had.waits_us, self.gang.resize_pause_us
        )

    @property
    def prospect(self) -> Prospect:
        """How long it takes at each size, and what that is worth."""
        if self._prospect is None:
            self._prospect = self.find_prospect()
        return self._prospect

    @property
    def least(self) -> int:
        """The smallest size of its role."""
        return self.gang.roles[self.role].sizes.least

    @property
    def floor(self) -> int:
        """What nobody takes from it: its least, or the share that its date needs; of one that starts, all it has."""
        if self.occupant is None:
            return self.members  # it is told of one size only, and had its turn at what was idle
        return max(self.share, self.least)

    def next_units(self) -> int:
        """Units that its next size takes; of several roles that grow together, one member's."""
        if self.several:
            return self.weight
        allowed = self.gang.roles[self.role].sizes.allowed
        at = bisect_left(allowed, self.members + max(1, self.members // STEP_PARTS))
        larger = allowed[min(at, len(allowed) - 1)]
        return (larger - self.members) * self.weight if larger > self.members else ANY_SIZE

    def list_larger(self, members: int, most: int = ANY_SIZE, *, pauses: bool = False) -> list[int]:
        """Sizes of its one role above a size, far enough from it and from each other to be worth a pause.

        `pauses`: it would have to pause for this step alone.
        """
        found: list[int] = []
        last, most = members, min(most, self.ceiling)
        allowed = self.gang.roles[self.role].sizes.allowed
        larger = allowed[bisect_right(allowed, members) : bisect_right(allowed, most)]
        for size in larger:
            if size - last >= last // STEP_PARTS:
                found.append(size)
                last = size
        # The largest is one as well: who could have 10 is not offered 9. But not if it is near and a pause of its own,
        # since more may come. Whoever was called back from 28 to 27 grew again a minute later, and so on all day.
        if larger and larger[-1] > last and (found or not pauses or larger[-1] == allowed[-1]):
            found.append(larger[-1])
        return found

    def climb(self, members: int, most: int = ANY_SIZE, *, pauses: bool = False) -> tuple[float, int]:
        """The step up from a size that is worth most per unit, and to which size: curves need not be concave."""
        asked = members, min(most, self.ceiling), pauses
        found = self._climbs.get(asked)
        if found is None:
            found, worth, weight = (0.0, members), self.prospect.worth, self.weight
            larger = self.list_larger(members, most, pauses=pauses)
            now = worth(members) if larger else 0.0
            for size in larger:
                gain = (worth(size) - now) / ((size - members) * weight)
                if gain > found[0]:
                    found = (gain, size)
            self._climbs[asked] = found
        return found

    def fall(self) -> float:
        """What the next step down is worth, per unit."""
        had, floor = self.members, self.floor
        below = [size for size in self.gang.roles[self.role].sizes.allowed if floor <= size < had]
        less = next((size for size in reversed(below) if had - size >= had // STEP_PARTS), floor)
        return (self.prospect.worth(had) - self.prospect.worth(less)) / ((had - less) * self.weight)

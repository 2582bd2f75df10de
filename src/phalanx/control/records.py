"""What the state remembers: the columns of its tables, and a record per gang and group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from phalanx.control.columns import Columns
from phalanx.engine.lifecycle import Phase
from phalanx.model.fleet import BoolArray, Fleet
from phalanx.model.gang import Gang, Role, Shape, Sizes
from phalanx.model.plan import Bind, Decision, Reservation, Seats
from phalanx.model.snapshot import Degraded

#: One empty set for everybody: a set of its own would be a tenth of what a pending gang costs.
NOTHING: Final[frozenset[str]] = frozenset()

PENDING: Final[Columns] = {
    "gang": (np.int64, ()),
    "form": (np.int64, ()),
    "size": (np.int64, ()),
    "elastic": (np.bool_, ()),
    "queue": (np.int32, ()),
    "user": (np.int32, ()),
    "priority": (np.int32, ()),
    "eligible_us": (np.int64, ()),
    "length_us": (np.int64, ()),
    "least_us": (np.int64, ()),
    "proven": (np.bool_, ()),
    "deadline_us": (np.int64, ()),
    "gate": (np.int8, ()),
    "group": (np.int32, ()),
    "attained_us": (np.int64, ()),
}
RUNNING: Final[Columns] = {
    "gang": (np.int64, ()),
    "queue": (np.int32, ()),
    "user": (np.int32, ()),
    "priority": (np.int32, ()),
    "eligible_us": (np.int64, ()),
    "start_us": (np.int64, ()),
    "length_us": (np.int64, ()),
    "members": (np.int32, ()),
    "preemptible": (np.bool_, ()),
    "elastic": (np.bool_, ()),
    "guest": (np.int8, ()),
    "evictions": (np.int32, ()),
    "cool_until_us": (np.int64, ()),
    "saved_us": (np.int64, ()),
    "attained_us": (np.int64, ()),
}


@dataclass(slots=True)
class Past:
    """What is remembered of a gang that was evicted, degraded or resized. Most gangs never are."""

    evictions: int = 0
    failures: int = 0  # attempts lost in a row without a new snapshot
    attained_us: int = 0  # device time of earlier attempts
    left_us: int | None = None  # run time it still needs at its largest size, if it has reported progress
    claim: Bind | None = None  # seats that others are about to leave
    lenders: dict[int, int] | None = None  # those others by number, with the instant at which they are gone
    forced: bool = False  # somebody was evicted for that claim
    resting: bool = False  # it failed again and again, and may not start before its back-off is over
    token: int = 0  # timers set for an earlier stay mean nothing


@dataclass(slots=True)
class Record:
    """What is remembered of one gang."""

    gang: Gang
    phase: Phase
    form: int
    queue: int
    user: int
    eligible_us: int
    row: int  # in the pending or running table
    waits_for: frozenset[str]  # dependencies that have not ended
    held: bool
    group: int = -1
    seats: tuple[Seats, ...] = ()
    attempts: int = 0
    doomed_by: str | None = None  # a dependency that did not succeed
    history: Past | None = None  # of gangs to which something has happened


#: In the place of every gang of which nothing is remembered any more. Numbers are for life, so that something has to be
#: there; its token is that of no timer.
FORGOTTEN_GANG: Final = Gang("(forgotten)", (Role("(forgotten)", Sizes((1,)), Shape(())),))
FORGOTTEN: Final = Record(
    FORGOTTEN_GANG, Phase.COMPLETED, -1, -1, -1, 0, -1, NOTHING, held=False, attempts=1, history=Past(token=-1)
)


@dataclass(frozen=True, slots=True)
class PlanRefusal:
    """Something that was decided and did not come about."""

    gang: int
    at_us: int
    words: str
    undone: tuple[int, ...]  # gangs whose decisions were taken back, the refused one among them
    times: int = 1  # refusals in a row
    rests_until_us: int = 0


@dataclass(slots=True)
class Image:
    """A gang as it was before a decision."""

    phase: Phase
    attempts: int
    history: Past | None
    seats: tuple[Seats, ...]
    row: dict[str, Any] | None  # of the running table; None if it waited
    degraded: Degraded | None


@dataclass(slots=True)
class Lent:
    """A claim that counted on a gang to leave its seats by an instant, as it was before that gang was evicted."""

    claimant: int
    lenders: dict[int, int]
    start_us: int


@dataclass(slots=True)
class Unconfirmed:
    """A decision that was folded and may yet be refused."""

    plan: int  # a number that all decisions of one plan share
    decision: Decision
    image: Image
    leaves_us: int = 0  # of a resize: when it is gone from the seats that it gives back
    victims: tuple[int, ...] = ()  # of a start: who was evicted for it
    ghosts: tuple[tuple[int, Record], ...] = ()  # of an eviction: seats that the gang was leaving already
    lent: tuple[Lent, ...] = ()  # of an eviction: who waited for that


@dataclass(slots=True)
class Ghost(Record):
    """A row of nobody: seats in use by a gang that they do not belong to any more.

    `gang` says what one of its seats is: the gang itself, or one made for the rest of a member's seat.
    """

    leaver: Gang | None = None  # who still sits there, if it is one
    lenders: tuple[int, ...] = ()  # of a claim that was taken back: who is still leaving those seats


def allocation_columns(fleet: Fleet) -> Columns:
    """Columns of who sits where, over the kinds and devices of a fleet."""
    return {
        "running": (np.int32, ()),
        "role": (np.int32, ()),
        "node": (np.int64, ()),
        "count": (np.int32, ()),
        "taken": (np.int64, (len(fleet.kinds),)),
        "devices": (np.int16, (fleet.device_capacity.shape[1],)),
    }


def widen_seats(seats: Seats, devices: int) -> Seats:
    """The same seats where nodes may have more devices than before."""
    table = np.zeros((len(seats.nodes), devices), dtype=np.int16)
    # Cut as well as widened: the largest node may have been removed, and nobody sits on devices that are gone.
    table[:, : seats.devices.shape[1]] = seats.devices[:, :devices]
    return Seats(seats.role, seats.nodes, seats.counts, table, seats.members)


def widen_promise(promise: Reservation, devices: int) -> Reservation:
    """The same promise over wider tables."""
    seats = tuple(tuple(widen_seats(each, devices) for each in per_gang) for per_gang in promise.seats)
    return Reservation(promise.gangs, promise.start_us, promise.end_us, seats)


def touches(promise: Reservation, nodes: BoolArray) -> bool:
    """Whether a promise names any of these nodes."""
    return any(bool(nodes[seats.nodes].any()) for per_gang in promise.seats for seats in per_gang)

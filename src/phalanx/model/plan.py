"""What a cycle decided. A value: somebody else carries it out and may refuse parts of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt

from phalanx.model.fleet import IntArray, MilliArray
from phalanx.model.value import value


@value(frozen=True, slots=True, eq=False)
class Seats:
    """Where the members of one role sit, in rank order: `counts[i]` of them on `nodes[i]`.

    `devices[i, d]` is how many thousandths of device d of that node they take together.
    """

    role: int
    nodes: IntArray
    counts: IntArray
    devices: MilliArray
    members: int = -1  # in all; counted if not given

    def __post_init__(self) -> None:
        """Count the members once: everybody asks."""
        if self.members < 0:
            object.__setattr__(self, "members", int(self.counts.sum()))

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return (self.role, tuple(self.nodes.tolist()), tuple(self.counts.tolist()), self.devices.tobytes())


class Cause(Enum):
    """Why a running gang is asked to change."""

    LOAN = "loan"  # surplus, given back so that somebody starts
    PREEMPT = "preempt"  # same queue, higher priority
    RECLAIM = "reclaim"  # another queue's guarantee
    GUEST = "guest"  # the owner of the reservation it lived under
    DRAIN = "drain"  # its node, or a maintenance window on it
    TURN = "turn"  # its quantum is over
    PIN = "pin"  # a person said how large it should be
    GROW = "grow"  # idle room
    SHARE = "share"  # a date: its own, or that of somebody for whom it gives surplus back
    BALANCE = "balance"  # surplus is worth more to somebody else

    __hash__ = object.__hash__  # members are singletons


class Guest(IntEnum):
    """How much of a gang lives under a reservation and must go when its owner comes."""

    NO = 0
    SURPLUS = 1
    WHOLE = 2


@value(frozen=True, slots=True)
class Bind:
    """Start this gang, whole, at these seats."""

    gang: int
    seats: tuple[Seats, ...]
    length_us: int = 0  # believed run time at this size
    guest: Guest = Guest.NO  # under a reservation without a provable end: told so at the start

    @property
    def members(self) -> int:
        """Members of all roles."""
        if len(self.seats) == 1:  # asked at every start; mostly there is one role
            return self.seats[0].members
        return sum(seats.members for seats in self.seats)

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return ("bind", self.gang, self.length_us, int(self.guest), *(seats.key() for seats in self.seats))


@dataclass(frozen=True, slots=True)
class Grounds:
    """The numbers behind a division of surplus (rule 16). They are told to people and decide nothing."""

    needs: int = 0  # members that a date needs, or a person wants: of itself, or of whom it gives for
    date_us: int | None = None  # that date
    saves_us: int = 0  # how much sooner those who take are done
    costs_us: int = 0  # how much later whoever gives is
    takers: int = 1  # among whom what is given back goes


@dataclass(frozen=True, slots=True)
class Resize:
    """Run this gang on exactly these seats from now on; larger, smaller or elsewhere in part."""

    gang: int
    seats: tuple[Seats, ...]
    cause: Cause
    beneficiary: int | None = None  # who starts on what is given back
    guest: Guest = Guest.NO  # some of it now lies under a reservation
    # Neither compared nor digested: a plan that does the same is the same, in whatever words.
    grounds: Grounds | None = field(default=None, compare=False)

    @property
    def members(self) -> int:
        """Members of all roles afterwards."""
        return sum(seats.members for seats in self.seats)

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        seats = tuple(seats.key() for seats in self.seats)
        return ("resize", self.gang, self.cause.value, self.beneficiary, int(self.guest), *seats)


@dataclass(frozen=True, slots=True)
class Evict:
    """This gang gives everything back, for the gang named, and queues again with its age."""

    gang: int
    cause: Cause
    beneficiary: int | None = None

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return ("evict", self.gang, self.cause.value, self.beneficiary)


@dataclass(frozen=True, slots=True)
class Move:
    """This gang saves its work and goes on at other seats; no work is lost."""

    gang: int
    seats: tuple[Seats, ...]

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return ("move", self.gang, *(seats.key() for seats in self.seats))


@dataclass(frozen=True, slots=True)
class Repair:
    """A degraded gang gets new seats for the members it lost and goes on: the same attempt."""

    gang: int
    seats: tuple[Seats, ...]

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return ("repair", self.gang, *(seats.key() for seats in self.seats))


@dataclass(frozen=True, slots=True)
class Restart:
    """A degraded gang leaves what it holds and starts anew elsewhere, without queueing."""

    gang: int
    seats: tuple[Seats, ...]

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return ("restart", self.gang, *(seats.key() for seats in self.seats))


Decision = Bind | Resize | Evict | Move | Repair | Restart


@dataclass(frozen=True, slots=True)
class Reservation:
    """A start in the future, with places. Under `keep` it is a promise and comes back in the snapshot."""

    gangs: tuple[int, ...]  # several if they start together
    start_us: int
    end_us: int
    seats: tuple[tuple[Seats, ...], ...]  # per gang, per role

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        places = tuple(seats.key() for per_gang in self.seats for seats in per_gang)
        return ("reserve", self.gangs, self.start_us, self.end_us, places)


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """Why each pending gang of the snapshot did not start: a code and two numbers per row.

    Row i speaks of the gang in row i of `Snapshot.pending`; code 0 means it starts.
    """

    codes: npt.NDArray[np.int8]
    needed: IntArray
    available: IntArray


@value(frozen=True, slots=True, eq=False)
class Idle:
    """What the room that nobody took is kept for."""

    reserved: IntArray  # [kind], free now and under a reservation
    fragmented: bool  # somebody waits whom the free amounts would hold, were they in one place


@value(frozen=True, slots=True)
class Settled:
    """Whoever still waits will be refused again until room appears: a hint, not a decision."""

    room: int = -1  # members of the only form that still fit, where sums decided; -1: unknown


@dataclass(frozen=True, slots=True)
class DateVerdict:
    """Whether a gang's date is promised (option `admit`). Told once; comes back in every later snapshot."""

    gang: int
    promised: bool
    earliest_us: int | None  # the earliest date that could be promised; None: nobody knows how long it runs
    beside: int  # dates that were promised already, and had to be met as well

    def key(self) -> tuple[object, ...]:
        """The same facts as plain values, to compare and to digest."""
        return ("date", self.gang, self.promised, self.earliest_us, self.beside)


@value(frozen=True, slots=True)
class Plan:
    """The ordered result of one cycle."""

    decisions: tuple[Decision, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    infeasible: tuple[int, ...] = ()  # gangs that can never run here, judged for the first time
    verdicts: Verdicts | None = None  # only where the caller asked for reasons
    wake_at_us: int | None = None  # the plan could change then without an event
    settled_in: tuple[int, ...] = ()  # guests over whose seats no reservation lies any more
    idle: Idle | None = None  # only where the caller keeps a ledger
    settled: Settled | None = None  # None: somebody may be let in without anything happening
    dates: tuple[DateVerdict, ...] = ()  # dates judged for the first time, in order of arrival

    def key(self) -> tuple[object, ...]:
        """The whole plan as plain values: equal keys are equal plans."""
        reasons: tuple[object, ...] = ()
        if self.verdicts is not None:
            table = (self.verdicts.codes, self.verdicts.needed, self.verdicts.available)
            reasons = tuple(column.tobytes() for column in table)
        decided = tuple(decision.key() for decision in self.decisions)
        reserved = tuple(reservation.key() for reservation in self.reservations)
        dates = tuple(verdict.key() for verdict in self.dates)
        # Last, and only if there are any: most policies promise no dates, and their digests stay as they were.
        return (decided, reserved, self.infeasible, reasons, self.wake_at_us, self.settled_in, *dates)

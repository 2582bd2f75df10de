"""Running gangs that can be made to give something back, and what this cycle has made them give so far.

Surplus above the least size is on loan and can be called back; the least size only of gangs that are
preemptible. Gangs that are starting or degraded, and those that are neither elastic nor preemptible, are
not here.

These are the candidates among whom preemption looks for victims. Who may take from whom is for
`engine.making_room.permits`, whom to choose for `engine.making_room.preemption`; here is what each has,
what losing it would cost (rule 9), and what it has been made to give in this plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from phalanx.engine.ends import expected_ends
from phalanx.engine.room.seats import sizes_of, subtract_seats
from phalanx.engine.room.view import find_need
from phalanx.model.fleet import BoolArray, Fleet, IntArray
from phalanx.model.gang import Gang
from phalanx.model.plan import Cause, Decision, Evict, Grounds, Guest, Move, Resize, Seats
from phalanx.model.resources import MILLI
from phalanx.model.snapshot import Snapshot

#: By their numbers: looked up for everybody in every pass, and an enum looks dearly.
_GUESTS = tuple(Guest)


@dataclass(slots=True, eq=False)
class Occupant:
    """One running gang as this cycle sees it."""

    row: int
    number: int
    gang: Gang
    queue: int
    user: int
    priority: int
    start_us: int
    end_us: int
    guest: Guest
    # Read when somebody asks where they are: most passes end with how many they are.
    read: Callable[[int], tuple[Seats, ...]]
    had: tuple[int, ...]  # members by role as the cycle begins
    sizes: tuple[int, ...]  # ... and by this plan so far, kept in step with the seats
    promised: bool = False  # its date is: nobody evicts or moves it
    floor: int = 0  # members of its elastic role that a promised date needs now
    exact: bool = False  # a person pinned its size: it has no surplus
    cause: Cause | None = None
    beneficiary: int | None = None  # who starts on what it gives back; the last one, if it gave twice
    gone: bool = False  # evicted in this plan
    # A move is no eviction (rule 9): the gang saves its work first and goes on elsewhere.
    moved: bool = False
    grown_as: Guest = Guest.NO  # what it grew into in this plan lies under somebody's reservation
    grounds: Grounds | None = None  # by which surplus was divided, if that is why it changes
    # Both, since a plan says where a gang sits afterwards, and rights are judged by what it had before.
    _was: tuple[Seats, ...] | None = None
    _seats: tuple[Seats, ...] | None = None

    @property
    def was(self) -> tuple[Seats, ...]:
        """Where it sits as the cycle begins."""
        if self._was is None:
            self._was = self.read(self.row)
        return self._was

    @property
    def seats(self) -> tuple[Seats, ...]:
        """Where it sits by this plan so far."""
        if self._seats is None:
            self._seats = self.was
        return self._seats

    @seats.setter
    def seats(self, seats: tuple[Seats, ...]) -> None:
        self._seats, self.sizes = seats, sizes_of(seats)

    @property
    def changed(self) -> bool:
        """Whether this plan touches it."""
        # By identity, which is enough: every change makes new seats.
        return self.gone or (self._seats is not None and self._seats is not self._was)

    def surplus(self, role: int) -> int:
        """Members of a role above its least."""
        # Rule 8 (surplus): what is above the minimum is on loan, whether or not the gang is preemptible.
        allowed, has = self.gang.roles[role].sizes.allowed, self.sizes[role]
        if len(allowed) < 2 or self.exact or self.gone:
            return 0
        # Never negative: what a promised date needs may be more than it has.
        return has - max(allowed[0], min(self.floor, has) if self.floor else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Seats that a running gang gives back: all of them, or part of its surplus."""

    occupant: Occupant
    seats: tuple[Seats, ...]
    cause: Cause
    whole: bool


def is_counted_on(occupant: Occupant, at_us: int) -> bool:
    """Whether its seats were counted as free at a reserved start before anybody was asked to give them back."""
    # Given back twice, its seats would be free twice at that start, and somebody would be let in over the reservation.
    return occupant.end_us <= at_us or bool(occupant.guest)


class Reclaimable:
    """Everybody who could give something back, by number."""

    def __init__(self, snapshot: Snapshot, repaired: Collection[int] = ()) -> None:
        """Read the seats of elastic and preemptible gangs, without running rows that have just been repaired."""
        self.snapshot = snapshot
        self.now_us = snapshot.now_us
        self.evicted = 0  # whole gangs that this plan sends away
        running = snapshot.running
        soft = running.alive & (running.elastic | running.preemptible | (running.guest > 0))
        # Not yet begun: its seats are still somebody else's. Gang -1: seats that only wait for their last user to go.
        soft &= (running.start_us <= snapshot.now_us) & (running.gang >= 0)
        # Told where to sit in this very plan; a second decision about it would contradict the first.
        soft[list(repaired)] = False
        self.occupants: list[Occupant] = []
        self._soft = soft
        self._seats: dict[int, dict[int, Seats]] | None = None
        rows = soft.nonzero()[0]
        if len(rows):
            ends = expected_ends(running, snapshot.now_us)
            columns = (running.gang, running.queue, running.user, running.priority, running.start_us, ends)
            # Column by column: one element of an array at a time is many times as slow to read.
            values = [column[rows].tolist() for column in (*columns, running.guest, running.members)]
            facts = zip(rows.tolist(), *values, strict=True)
            # By gang number: row numbers depend on who came and went, and must not decide who is chosen.
            self.occupants = [self._occupant(*each) for each in sorted(facts, key=itemgetter(1))]
        self.by_number = {occupant.number: occupant for occupant in self.occupants}

    @property
    def lodges_surplus(self) -> bool:
        """Whether somebody is a guest with its surplus only."""
        return any(occupant.guest is Guest.SURPLUS for occupant in self.occupants)

    def _read(self, row: int) -> tuple[Seats, ...]:
        """Seats of everybody here are read at once, when they are first asked for, unless somebody has them at hand."""
        if self.snapshot.seats_of is not None:
            return self.snapshot.seats_of(int(self.snapshot.running.gang[row]))
        if self._seats is None:
            self._seats = read_seats(self.snapshot, self._soft)
        by_role = self._seats[row]
        return tuple(by_role[role] for role in range(len(by_role)))

    def _occupant(self, row: int, number: int, *facts: int) -> Occupant:
        queue, user, priority, start_us, end_us, guest, members = facts
        gang = self.snapshot.gangs[number]
        # The column counts all roles together.
        sizes = (members,) if len(gang.roles) == 1 else sizes_of(self._read(row))
        exact = number in self.snapshot.pins
        where, kind = self._read, _GUESTS[guest]
        return Occupant(
            row, number, gang, queue, user, priority, start_us, end_us, kind, where, sizes, sizes, exact=exact
        )

    # ------------------------------------------------------------------ cost

    def unsaved_us(self, occupant: Occupant) -> int:
        """Time since the newest snapshot; all of it, if there is none."""
        habit = occupant.gang.snapshot
        # An elastic gang reports its snapshots; of a rigid one only the habit is known (rule 6), so that the age of its
        # newest snapshot is at most `every`.
        if occupant.gang.elastic:
            return max(0, self.now_us - int(self.snapshot.running.saved_us[occupant.row]))
        age = max(0, self.now_us - occupant.start_us)
        return age if habit is None else min(age, habit.every_us)

    def restart_us(self, occupant: Occupant) -> int:
        """What an eviction costs it in wall time: the work since its newest snapshot, and starting again."""
        restore = 0 if occupant.gang.snapshot is None else occupant.gang.snapshot.restore_us
        # In wall seconds (rule 9, waiting clause): this is compared with how long the taker would have to wait instead.
        return self.unsaved_us(occupant) + restore + occupant.gang.startup_us

    def cost(self, occupant: Occupant) -> int:
        """The same times its size."""
        # In device time, to add up over a set of victims: an hour lost by eight GPUs is eight times as bad.
        return self.restart_us(occupant) * units_of(self.snapshot.fleet, occupant.gang, occupant.sizes)

    # ------------------------------------------------------------------ changes

    def give(self, release: Release, beneficiary: int | None) -> None:
        """Write a release down."""
        occupant = release.occupant
        occupant.beneficiary = beneficiary
        if release.whole:
            occupant.gone, occupant.cause = True, release.cause
            # Counted, because a plan that evicts takes in no guests (`Turns.may_be_guest`).
            self.evicted += 1
            return
        by_role = {seats.role: seats for seats in release.seats}
        occupant.seats = tuple(
            subtract_seats(seats, by_role[seats.role]) if seats.role in by_role else seats for seats in occupant.seats
        )
        # Of several reasons to shrink the first is told, of several beneficiaries the last.
        occupant.cause = occupant.cause or release.cause

    def list_decisions(self) -> list[Decision]:
        """What running gangs are told, by number."""
        decisions: list[Decision] = []
        # One decision per gang and plan: whoever carries it out sees where it sits in the end, not every step.
        for occupant in self.occupants:
            if occupant.gone:
                assert occupant.cause is not None
                decisions.append(Evict(occupant.number, occupant.cause, occupant.beneficiary))
            elif occupant.moved:
                decisions.append(Move(occupant.number, occupant.seats))
            elif occupant.changed:
                assert occupant.cause is not None
                told = occupant.beneficiary, occupant.grown_as, occupant.grounds
                decisions.append(Resize(occupant.number, occupant.seats, occupant.cause, *told))
        return decisions


def units_of(fleet: Fleet, gang: Gang, sizes: tuple[int, ...]) -> int:
    """Thousandths of the counted kind that members take; of a gang that asks for none of it, of members."""
    kind = fleet.counted_kind
    milli = sum(size * role.shape.amount(kind) for role, size in zip(gang.roles, sizes, strict=True))
    # Without devices members are counted, so that costs of CPU gangs are not all zero and equal.
    return milli or MILLI * sum(sizes)


def vector_of(fleet: Fleet, gang: Gang, seats: tuple[Seats, ...]) -> IntArray:
    """What seats take of every kind."""
    total = np.zeros(len(fleet.kinds), dtype=np.int64)
    for each in seats:
        total += each.members * find_need(fleet, gang.roles[each.role].shape).vector
    return total


def read_seats(snapshot: Snapshot, wanted: BoolArray) -> dict[int, dict[int, Seats]]:
    """Seats of some running rows by row and role, in rank order."""
    table = snapshot.allocations
    rows = (table.alive & wanted[table.running]).nonzero()[0]
    gathered: dict[tuple[int, int], list[int]] = {}
    pairs = zip(rows.tolist(), table.running[rows].tolist(), table.role[rows].tolist(), strict=True)
    for at, row, role in pairs:
        gathered.setdefault((row, role), []).append(at)
    seats: dict[int, dict[int, Seats]] = {}
    for (row, role), held in gathered.items():
        counts = table.count[held].astype(np.int64)

        seats.setdefault(row, {})[role] = Seats(role, table.node[held], counts, table.devices[held])
    return seats

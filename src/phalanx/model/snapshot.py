"""Everything one cycle may look at, including what time it is and all memory of earlier cycles.

Columns, not objects: a decision about 100,000 gangs is arithmetic over arrays. Arrays of a
snapshot are read-only. Rows of a table that are not `alive` hold rubbish; row numbers mean
nothing outside one snapshot, gang numbers (`gang`) are for life and follow submit order, so
they are the sequence numbers that ties break by.

Times are integer microseconds, amounts integer engine units (`model.resources`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.model.fleet import BoolArray, Fleet, IntArray, MilliArray
from phalanx.model.form import Form
from phalanx.model.gang import Gang
from phalanx.model.plan import DateVerdict, Reservation, Seats
from phalanx.model.rules import Presence
from phalanx.model.value import value
from phalanx.model.window import Window

Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]


@value(frozen=True, slots=True, eq=False)
class NodeColumns:
    """What of the machines changes all the time. One row per node of the fleet."""

    free: IntArray  # [node, kind], engine units not taken by anybody
    device_free: MilliArray  # [node, device], thousandths not taken
    shared: bool  # whether any device is, or ever was, split: else free amounts say it all
    up: BoolArray  # has not failed
    open: BoolArray  # neither cordoned nor draining
    in_service: BoolArray  # both, trusted, and no spare: where gangs may start
    repairable: BoolArray  # the same with the spares: where a degraded gang may be repaired
    draining: BoolArray  # whoever can leave should


@dataclass(frozen=True, slots=True, eq=False)
class PendingColumns:
    """Gangs that hold nothing and want to start. One row per gang."""

    alive: BoolArray
    gang: IntArray
    form: IntArray  # row of `Snapshot.forms`
    size: IntArray  # least members if the form's size is open, else 1
    elastic: BoolArray  # whether any role has more than one size
    queue: Int32Array
    user: Int32Array
    priority: Int32Array
    eligible_us: IntArray  # the later of submit and the last dependency's end
    length_us: IntArray  # believed run time at the largest size: walltime, prediction or default
    least_us: IntArray  # the same at the least size
    proven: BoolArray  # whether that was stated or predicted, not the default
    deadline_us: IntArray  # absolute; -1: none
    gate: Int8Array  # a reason code that stops it before any question of room; 0: none
    group: Int32Array  # gangs with the same number start together; -1: alone
    attained_us: IntArray  # device time it has had in earlier attempts


@dataclass(frozen=True, slots=True, eq=False)
class RunningColumns:
    """Gangs that hold seats. One row per gang."""

    alive: BoolArray
    gang: IntArray
    queue: Int32Array
    user: Int32Array
    priority: Int32Array
    eligible_us: IntArray
    start_us: IntArray  # of this attempt; in the future while the seats it was given are being vacated
    length_us: IntArray  # start to expected end, at its present size
    members: Int32Array
    preemptible: BoolArray
    elastic: BoolArray
    guest: Int8Array  # a `Guest`: how much of it must go when the owner of a reservation comes
    evictions: Int32Array  # how often it was evicted already
    cool_until_us: IntArray  # not grown before this
    saved_us: IntArray  # the instant of its newest snapshot, else the start of its work
    attained_us: IntArray  # device time it had before this attempt


@dataclass(frozen=True, slots=True, eq=False)
class AllocationColumns:
    """Who sits where. One row per gang, role and node."""

    alive: BoolArray
    running: Int32Array  # row of `RunningColumns`
    role: Int32Array
    node: IntArray
    count: Int32Array
    taken: IntArray  # [row, kind], engine units in all
    devices: MilliArray  # [row, device]


@dataclass(frozen=True, slots=True, eq=False)
class QueueColumns:
    """The tenant tree with what is in use, root first. `limit` is -1 where there is none."""

    names: tuple[str, ...]
    parent: Int32Array  # -1 for the root
    weight: IntArray
    guarantee: IntArray  # [queue, kind]
    limit: IntArray  # [queue, kind]
    usage: IntArray  # [queue, kind], of the queue and everything below it
    decayed: IntArray  # [queue, kind], what it had in the past, fading; 0 where nobody asked for that

    @property
    def many(self) -> bool:
        """Whether there is more than one queue below the root: else nobody stands better than anybody."""
        return len(self.names) > 2


@dataclass(frozen=True, slots=True, eq=False)
class UserColumns:
    """People with what they use; `limit` is -1 where there is none."""

    names: Sequence[str]
    limit: IntArray  # [user, kind]
    usage: IntArray  # [user, kind]


@dataclass(frozen=True, slots=True)
class Degraded:
    """A running gang that has just lost members, or is below its least and waits on the seats it still holds."""

    lost: tuple[int, ...]  # members by role
    whole: bool  # still at or above its least: it runs on


@value(frozen=True, slots=True)
class Hints:
    """What the columns would show as well, said beforehand to save the engine a look. Never a decision.

    Each may err on the side that makes the engine look: whether anybody *ever* had a gate, whether rows are
    *known* to stand in order. The invariants check the other side.
    """

    gated: bool  # whether any gang ever had a gate
    has_elastic: bool  # whether any gang ever was elastic
    has_reclaimable: bool  # whether any ever was elastic or preemptible: else nobody can be made to give anything back
    has_deadlines: bool  # whether any gang ever had a deadline
    limited: bool  # whether any queue or person has a ceiling
    in_order: bool  # whether pending rows stand in order of arrival, all of one priority
    on_time: bool  # whether nobody has outlived its expected end
    room: int  # as the last plan said (`Settled`); -1: unknown. Holds as long as `settled_upto` does
    settled_upto: int  # gangs below this number were refused, and no room has appeared since; 0: unknown


@value(frozen=True, slots=True, eq=False)
class Snapshot:
    """The immutable input of a cycle."""

    now_us: int
    fleet: Fleet
    nodes: NodeColumns
    forms: Sequence[Form]  # append-only; pending rows point into it
    gangs: Sequence[Gang]  # append-only, by gang number
    pending: PendingColumns
    running: RunningColumns
    allocations: AllocationColumns
    queues: QueueColumns
    users: UserColumns
    windows: tuple[Window, ...]
    group_forms: Mapping[int, int]  # form of a complete group, by group number
    curves: Mapping[int, tuple[tuple[int, float], ...]]  # (members, speed-up) of elastic gangs, by gang number
    promises: Mapping[int, Reservation]  # by the first gang's number; only policies that keep them
    degraded: Mapping[int, Degraded]  # by gang number
    pins: Mapping[int, int]  # members of the elastic roles that a person wants, by gang number
    dates: Mapping[int, DateVerdict]  # what was said of gangs' dates, by number; only policies that promise them
    judged: frozenset[int] | set[int]  # gangs already told that they are infeasible
    fresh: frozenset[int] | set[int]  # gangs that no cycle has looked at yet
    default_length_us: int  # believed run time of a gang that states none
    hints: Hints  # for fast paths
    # Who bears which word where, gangs that run and others alike; None as long as nobody ever used a word.
    presence: Presence | None = None
    # What the allocations say of a running gang, by number, from whoever has it at hand; None: read it from there.
    seats_of: Callable[[int], tuple[Seats, ...]] | None = None

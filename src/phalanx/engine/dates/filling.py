"""Fill a cluster over time with gangs that have dates, each with as little as meets its date.

Progressive filling, as ElasticFlow (ASPLOS'23) admits jobs: gangs are taken by date, the nearest first; each gets the
lowest level at which it is done in time, where a level is a size that it has whenever so much is left by those before
it, and less while there is less. What it takes is gone for those behind it. If everybody is in time, all of these dates
can be met together.

Amounts are counted over all nodes of a pool together. Where in the pool members sit, in how many pieces what is free
lies and which domain it is in is not looked at: a date that only topology or fragmentation makes impossible is counted
as possible. Everything else errs on the other side: every change of size costs its pause, and growth the longest time
for which somebody else may still be leaving the seats.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from phalanx.engine.kernels.release import NEVER
from phalanx.model.fleet import IntArray

#: Whoever gave seats in one plan is asked for more in the next, which is made a moment later.
LOOK_US = 1000
#: For the division of times, which are whole microseconds.
_HAIR_US = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A gang with a date: what it takes at each size, and how long it takes there."""

    number: int
    date_us: int
    sizes: tuple[int, ...]  # ascending; of a rigid gang one
    speeds: tuple[float, ...]  # at each size; only ratios are used
    fixed: IntArray  # [kind], whatever its size
    each: IntArray  # [kind], per unit of size
    work: float  # µs at speed 1
    waits_us: int  # before the first useful step: start-up, restoring
    pause_us: int  # what a change of size costs
    present: int = 0  # its size now; 0: it has none yet, and any is as good as another
    held: bool = False  # it runs, or starts in this plan: its least cannot be taken from it

    def units(self, size: int) -> IntArray:
        """What it takes of every kind at a size."""
        return self.fixed + self.each * size

    def least_us(self) -> int:
        """How long it takes at its least, with all that may come on top."""
        # One that has its least already, or has no size yet, comes to it without a change. Rounded up: an end that is a
        # moment too early would promise seats to two.
        span = self.waits_us + (self.pause_us if self.present not in (0, self.sizes[0]) else 0)
        return span + int(self.work / self.speeds[0]) + 1


@dataclass(frozen=True, slots=True)
class FillingStyle:
    """How gangs are filled in; each finds courses that others miss, and one without anybody late is enough."""

    steady: bool = False  # nobody who runs is counted with less than it has now, but for want of room
    fast: bool = False  # everybody as fast as room lets them, and not as slowly as their dates do
    first: frozenset[int] = frozenset()  # these before all others


@dataclass(frozen=True, slots=True)
class Filled:
    """What a gang gets: a size for now, and when it is then done."""

    size: int  # 0: it does not start yet
    end_us: int


class RoomOverTime:
    """What is free of every kind, from each instant to the next; the last stretch has no end."""

    def __init__(self, now_us: int, free: IntArray, idle: IntArray) -> None:
        """All of it free for ever. `idle`: what nobody sits on at this moment, so that nobody has to leave it first."""
        self.times: list[int] = [now_us]
        self.idle = idle.copy()
        # Longer than it is filled, and doubled when it is full: a stretch is cut for nearly every gang, and a new array
        # for each was a third of the time that filling took.
        self.rows: IntArray = np.repeat(free[None, :], 8, axis=0)

    @property
    def free(self) -> IntArray:
        """What is free in each stretch; a view."""
        return self.rows[: len(self.times)]

    def copy(self) -> RoomOverTime:
        """One to try things on."""
        # Past the constructor, which would lay out one free stretch only to have it replaced: copies are made per pool
        # for every start that is thought of.
        twin = RoomOverTime.__new__(RoomOverTime)
        twin.times, twin.rows, twin.idle = list(self.times), self.rows.copy(), self.idle.copy()
        return twin

    def take(self, units: IntArray, from_us: int, until_us: int, sign: int = 1) -> None:
        """Somebody has these for a while; with a sign of -1, no longer."""
        first = self.cut(max(from_us, self.times[0]))
        last = len(self.times) if until_us >= NEVER else self.cut(max(until_us, self.times[0]))
        self.free[first:last] -= sign * units

    def has(self, units: IntArray, from_us: int, until_us: int) -> bool:
        """Whether so much is free all that time."""
        first, last = bisect_right(self.times, from_us) - 1, bisect_left(self.times, until_us)
        return bool((self.free[first:last] >= units).all())

    def cut(self, at_us: int) -> int:
        """The stretch that begins at an instant; made if there is none."""
        at = bisect_right(self.times, at_us)
        if self.times[at - 1] == at_us:
            return at - 1
        count = len(self.times)
        if count == len(self.rows):
            self.rows = np.concatenate((self.rows, self.rows))
        self.rows[at + 1 : count + 1] = self.rows[at:count]
        self.rows[at] = self.rows[at - 1]
        self.times.insert(at, at_us)
        return at


class Filling:
    """Gangs being filled into room, by date; what everybody gets who can be in time.

    Whoever cannot be in time is left out and gets nothing but the least that it has.
    """

    def __init__(self, room: RoomOverTime, demands: Iterable[Demand], wait_us: int, style: FillingStyle) -> None:
        """Room is written to. `wait_us`: for seats others still leave."""
        self.room, self.wait_us, self.style = room, wait_us, style
        self.forgets = False  # whether these courses will not be found again once they have begun
        self.found: dict[int, Filled] = {}
        # By date (earliest deadline first): whoever stands behind takes nothing from those before it but the least that
        # it runs on, so that a newcomer with a late date cannot break an earlier one.
        self.line = sorted(demands, key=self._turn)
        self.done = 0
        for demand in self.line:
            # What runs keeps its least to its end, however far behind in the order it stands: nobody is stopped for a
            # date.
            if demand.held:
                self._hold(demand)

    def copy(self) -> Filling:
        """One to go on with in two ways."""
        twin = Filling.__new__(Filling)
        twin.room, twin.wait_us, twin.style = self.room.copy(), self.wait_us, self.style
        twin.forgets = self.forgets
        twin.found, twin.line, twin.done = dict(self.found), list(self.line), self.done
        return twin

    def add(self, demand: Demand) -> None:
        """One more that does not run yet, behind all that have been filled so far."""
        insort(self.line, demand, lo=self.done, key=self._turn)

    def run(self, before_us: int = NEVER + 1, may_be_late: Container[int] | None = None) -> bool:
        """Fill those with a date before an instant; False, and no further, as soon as one is late that may not be.

        With `may_be_late` an answer is good for later: courses that will not be found again are as good as late.
        """
        while self.done < len(self.line):
            demand = self.line[self.done]
            if demand.date_us >= before_us and demand.number not in self.style.first:
                break
            self.done += 1
            in_time = self._fill_one(demand)
            if may_be_late is not None and (self.forgets or (not in_time and demand.number not in may_be_late)):
                return False
        return True

    @property
    def late(self) -> set[int]:
        """Who was filled in and cannot be in time."""
        return {demand.number for demand in self.line[: self.done]} - self.found.keys()

    def hurry(self) -> dict[int, int]:
        """Sizes from now on of those who run and are late anyway: done as soon as what is left to them lets them."""
        found = {}
        for demand in self.line[: self.done]:
            if demand.held and demand.number not in self.found:
                self._hold(demand, -1)
                anyhow = replace(demand, date_us=NEVER)
                most = _find_most(self.room, anyhow)
                path = _follow(self.room, most, anyhow, len(demand.sizes) - 1, self.wait_us)
                assert path is not None  # it has its least, and the last stretch has no end
                found[demand.number] = _take_path(self.room, anyhow, path).size
        return found

    def _fill_one(self, demand: Demand) -> bool:
        if demand.held:
            # Its own least must not stand in its way. Taken out with the same instant as it went in, or a sliver of it
            # would stay behind.
            self._hold(demand, -1)
        path = _find_path(self.room, demand, self.wait_us, self.style)
        if path is None:
            if demand.held:
                self._hold(demand)
            return False
        # It would have less than now, and who counts again afterwards finds nobody who holds it to what it had.
        self.forgets |= self.style.steady and path.sizes[0] < demand.present
        self.found[demand.number] = _take_path(self.room, demand, path)
        return True

    def _turn(self, demand: Demand) -> tuple[bool, int, int]:
        # By number where dates are equal, since the order of a dict is nobody's right (rule 1, ties).
        return demand.number not in self.style.first, demand.date_us, demand.number

    def _hold(self, demand: Demand, sign: int = 1) -> None:
        now_us = self.room.times[0]
        self.room.take(demand.units(demand.sizes[0]), now_us, now_us + demand.least_us(), sign)


@dataclass(frozen=True, slots=True)
class _Path:
    """Sizes from one stretch on, and the instant at which the gang is done."""

    first: int
    sizes: list[int]
    end_us: int


def _find_path(room: RoomOverTime, demand: Demand, wait_us: int, style: FillingStyle) -> _Path | None:
    """The course of the lowest level that is in time, or of the highest."""
    most = _find_most(room, demand)
    present = bisect_right(demand.sizes, demand.present) - 1
    if style.fast:
        return _follow(room, most, demand, len(demand.sizes) - 1, wait_us)
    low = max(0, present) if style.steady else 0
    # Levels that would be late with all the room there is need not be followed.
    left_us = demand.date_us - room.times[0] - demand.waits_us
    top = len(demand.sizes) - 1
    while low < top and demand.work > (left_us + 1) * demand.speeds[low]:
        low += 1
    # The lowest that is left first: it is what nearly everybody gets.
    best = _follow(room, most, demand, low, wait_us)
    if best is not None or low == top:
        return best
    # The size that it has next: a change costs a pause, so that a larger one may be too late where this is not.
    high = present if present > low else top
    best = _follow(room, most, demand, high, wait_us)
    if best is None and high < top:
        high = top
        best = _follow(room, most, demand, high, wait_us)
    if best is None:
        return None
    # Else higher levels are not later, but for a pause more: what is answered has been followed to its end in any case.
    low += 1
    while low < high:
        middle = (low + high) // 2
        path = _follow(room, most, demand, middle, wait_us)
        if path is None:
            low = middle + 1
        else:
            best, high = path, middle
    return best


def _find_most(room: RoomOverTime, demand: Demand) -> IntArray:
    """The largest size that each stretch has room for, as an index of its sizes; negative: not even its least."""
    left = room.free - demand.fixed
    # A stretch in which too much is taken already (a window over seats in use) is negative here, and stays negative
    # through the division, which rounds down: no size fits, not even the least.
    most = np.where(left.min(axis=1) >= 0, demand.sizes[-1], -1)
    for kind in demand.each.nonzero()[0].tolist():
        np.minimum(most, left[:, kind] // demand.each[kind], out=most)
    return np.searchsorted(demand.sizes, most, side="right") - 1


def _follow(room: RoomOverTime, most: IntArray, demand: Demand, level: int, wait_us: int) -> _Path | None:
    """Run it at a level from the first stretch on in which it can stay; None if it is not in time."""
    path = _follow_straight(room, most, demand, level, wait_us)
    return _follow_stretches(room, most.tolist(), demand, level, wait_us) if path is None else path.path


@dataclass(frozen=True, slots=True)
class _Straight:
    """What became of a course of one size; `path` None if it is not in time."""

    path: _Path | None


def _follow_straight(room: RoomOverTime, most: IntArray, demand: Demand, level: int, wait_us: int) -> _Straight | None:
    """The same where it has one size from its start to its end, which most have; None if it does not."""
    # What `_follow_stretches` says, without going through stretches one by one.
    first = 0 if demand.held else int((most >= 0).argmax())
    if most[first] < level:
        return None
    size, owed = demand.sizes[level], demand.waits_us
    if size != demand.present:
        owed += _change_us(room, demand, demand.present, size, first, wait_us)
    end_us = room.times[first] + owed + demand.work / demand.speeds[level]
    done_us = ceil(end_us - _HAIR_US)
    if done_us > demand.date_us:
        # With less in between it would be later still.
        return _Straight(None)
    last = max(first + 1, bisect_left(room.times, end_us - _HAIR_US))
    if most[first:last].min() < level:
        return None
    return _Straight(_Path(first, [size] * (last - first), done_us))


def _follow_stretches(room: RoomOverTime, most: list[int], demand: Demand, level: int, wait_us: int) -> _Path | None:
    times, sizes, speeds, date_us = room.times, demand.sizes, demand.speeds, demand.date_us
    # `owed` is time in which it holds seats and gets nothing done. It is carried from one stretch into the next: a
    # pause does not end where somebody else's course happens to.
    first, left, before, owed = 0, demand.work, demand.present, demand.waits_us
    course: list[int] = []
    for at, start_us in enumerate(times):
        # Times ascend, so that every later stretch is too late as well.
        if start_us >= date_us:
            return None
        if most[at] < 0 and not demand.held:
            # It may not stop once it has started, so that it starts when this is over.
            first, left, before, owed, course = at + 1, demand.work, demand.present, demand.waits_us, []
            continue
        # What runs has its least, whatever the sums say.
        index = max(0, min(level, most[at]))
        size, speed = sizes[index], speeds[index]
        if size != before:
            owed += _change_us(room, demand, before, size, at, wait_us)
        course.append(size)
        end_us = start_us + owed + left / speed
        # Times are whole microseconds; a hair for the division, and the same hair in both places: one that ends at a
        # boundary by the one and behind it by the other would hold the whole next stretch.
        if at + 1 == len(times) or end_us - _HAIR_US <= times[at + 1]:
            done_us = ceil(end_us - _HAIR_US)
            return _Path(first, course, done_us) if done_us <= date_us else None
        span = times[at + 1] - start_us
        if owed < span:
            left -= (span - owed) * speed
            owed = 0
        else:
            owed -= span
        before = size
    return None


def _change_us(room: RoomOverTime, demand: Demand, before: int, size: int, at: int, wait_us: int) -> int:
    """What it costs to come to a size."""
    # What comes free later may have been lent out again by then; of what is idle now nobody has to leave.
    if size < before or (at == 0 and _fits_idle(room, demand, size)):
        return demand.pause_us if before else 0
    if before:
        return demand.pause_us + wait_us
    if len(demand.sizes) == 1:
        return wait_us
    # One that starts may have to wait for its first seats, begin with those, and wait for the others once more.
    return demand.pause_us * (wait_us > 0) + 2 * wait_us + LOOK_US


def _fits_idle(room: RoomOverTime, demand: Demand, size: int) -> bool:
    return bool((_added(demand, size) <= room.idle).all())


def _added(demand: Demand, size: int) -> IntArray:
    """What it takes now and does not have yet."""
    units = demand.units(size)
    more: IntArray = np.maximum(units - demand.units(demand.present), 0) if demand.present else units
    return more


def _take_path(room: RoomOverTime, demand: Demand, course: _Path) -> Filled:
    first, last = course.first, course.first + len(course.sizes)
    # The last stretch only up to its end: what comes after is for those behind it in the order.
    if last == len(room.times) or room.times[last] != course.end_us:
        room.cut(course.end_us)
    sizes = np.array(course.sizes, dtype=np.int64)
    room.free[first:last] -= demand.fixed + sizes[:, None] * demand.each
    # Idle seats are gone with the first who takes them: the next one that grows now has to wait for others.
    if first == 0:
        room.idle = np.maximum(room.idle - _added(demand, course.sizes[0]), 0)
    return Filled(course.sizes[0] if first == 0 else 0, course.end_us)

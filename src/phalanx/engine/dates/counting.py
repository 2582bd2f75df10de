"""Promises kept together: everybody with a promised date filled into every pool, and looked at again before each start.

Worked out anew in every pass; nothing is remembered but what the snapshot brings. Who is promised at all is for
`engine.dates.promising`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phalanx.engine.dates.demands import pool_of
from phalanx.engine.dates.filling import Demand, Filling, FillingStyle, RoomOverTime
from phalanx.engine.dates.rooms import RoomReader
from phalanx.engine.kept_dates import PlannedStart
from phalanx.engine.kernels.release import NEVER
from phalanx.model.fleet import BoolArray

#: How gangs are counted, one after the other until nobody is late. The least that is in time falls as a gang gets on,
#: and lasts longer: who comes behind may be late by that, though all were in time when it was promised. Going on as
#: they do is what was counted then.
STYLES = (FillingStyle(), FillingStyle(steady=True), FillingStyle(fast=True))

Rooms = dict[bytes, tuple[BoolArray, RoomOverTime]]


class Kept:
    """Everybody with a promise filled into every pool: what each needs from now on, and who will be late."""

    def __init__(self) -> None:
        self.fillings: dict[bytes, Filling] = {}
        self.late: set[int] = set()
        self.sizes: dict[int, int] = {}

    def add(self, key: bytes, filling: Filling) -> None:
        """One pool more."""
        self.fillings[key] = filling
        self.late |= filling.late
        # Behind all others, so that nobody is late by it. Given up, it would be hours late for want of seconds.
        hurried = filling.hurry() if filling.late else {}
        sizes = {number: each.size for number, each in filling.found.items()} | hurried
        for number, size in sizes.items():
            # In every pool that holds it: what a wider one leaves to it may not be in its own.
            self.sizes[number] = max(self.sizes.get(number, 0), size)


@dataclass(frozen=True, slots=True, eq=False)
class _TriedStart:
    """What a start that was allowed would leave, so that it is not worked out twice."""

    start: PlannedStart
    rooms: Rooms
    demands: dict[int, Demand]
    kept: Kept

    def is_of(self, start: PlannedStart) -> bool:
        """Whether the same start was tried."""
        mine = self.start
        same = (mine.number, mine.until_us) == (start.number, start.until_us)
        same &= (mine.leaving, mine.lending) == (start.leaving, start.lending)
        return same and bool((mine.units == start.units).all() and (mine.pool == start.pool).all())


class Counting:
    """Everybody who is counted by a date that was promised, and what is kept for them."""

    def __init__(self, reader: RoomReader) -> None:
        """Nobody yet."""
        self.reader, self.now, self.wait_us = reader, reader.now, reader.wait_us
        self.demands: dict[int, Demand] = {}
        #: Promises that cannot be kept any more, by what nobody could foresee (a node, a run time): nobody waits for
        #: them.
        self.broken: frozenset[int] = frozenset()
        self._pools: dict[int, BoolArray] = {}
        self._rooms: Rooms = {}
        self._kept: Kept | None = None
        self._tried: _TriedStart | None = None

    # ------------------------------------------------------------------ who is counted

    def enter(self, demand: Demand) -> None:
        """One whose date was promised before this cycle."""
        self.look_at(demand)
        self.demands[demand.number] = demand

    def look_at(self, demand: Demand) -> None:
        """One who asks: its room is read."""
        snapshot = self.reader.snapshot
        pool = self._pools[demand.number] = pool_of(snapshot, snapshot.gangs[demand.number])
        self._room(pool)

    def admit(self, group: Sequence[Demand]) -> bool:
        """Promise these dates, if all of them can be met beside the others."""
        demands = {**self.demands, **{each.number: each for each in group}}
        kept = self._try(demands, self._rooms)
        if kept is None:
            return False
        self.demands, self._kept = demands, kept
        return True

    def find_end_behind(self, demand: Demand) -> int | None:
        """When it would be done behind everybody else."""
        pool = self._pools[demand.number]
        filling = Filling(
            self._room(pool).copy(), self._within(pool, self.demands.values()), self.wait_us, FillingStyle()
        )
        filling.run()
        filling.add(replace(demand, date_us=NEVER))
        filling.run()
        last = filling.found.get(demand.number)
        return None if last is None else last.end_us

    def begin_fillings(self, demand: Demand) -> list[tuple[Filling, ...]]:
        """Of every pool that holds a newcomer: everybody who comes before its date filled in, in every style."""
        begun = []
        for key, (mask, room) in self._rooms.items():
            if (self._pools[demand.number] & ~mask).any():
                continue
            within = self._within(mask, self.demands.values())
            styles = dict.fromkeys((self.count().fillings[key].style, *STYLES))
            fillings = [Filling(room.copy(), within, self.wait_us, style) for style in styles]
            begun.append(tuple(each for each in fillings if each.run(demand.date_us, self.broken)))
        return begun

    # ------------------------------------------------------------------ what is kept for them

    def count(self) -> Kept:
        """What everybody needs from now on."""
        # Asked several times in a pass, and in most nobody starts in between.
        if self._kept is None:
            self._kept = self._fill_all(self.demands, self._rooms)
        return self._kept

    def allows(self, start: PlannedStart) -> bool:
        """Whether all promises that can be kept now can be kept beside this start."""
        if self._disturbs_nobody(start):
            return True
        # On copies, and to the end: one start more can be harmless now and be what makes a later growth impossible,
        # which no look at what is free at this moment shows.
        rooms, demands = self._with_start(start)
        kept = self._try(demands, rooms)
        self._tried = None if kept is None else _TriedStart(start, rooms, demands, kept)
        return kept is not None

    def note_start(self, start: PlannedStart) -> None:
        """It is counted from now on."""
        if self._disturbs_nobody(start):
            self._count_beside(start)
            return
        tried = self._tried
        if tried is not None and tried.is_of(start):
            self._rooms, self.demands, self._kept = tried.rooms, tried.demands, tried.kept
        else:
            self._rooms, self.demands = self._with_start(start)
            self._kept = None

    def _disturbs_nobody(self, start: PlannedStart) -> bool:
        """Whether it takes nothing that anybody is counted with: then everybody stays counted as they are.

        What is left when all are filled in was left at every step before, so that everybody's course would come out the
        same beside it. Most starts are such, and filling everybody in anew is what a pass costs.
        """
        if start.leaving or any(number in self.demands for number, _ in start.lending):
            return False
        own, kept = self.demands.get(start.number), self.count()
        if own is None:
            met = [kept.fillings[key].room for key, (mask, _) in self._rooms.items() if (start.pool & mask).any()]
            return all(
                room.has(start.units, self.now, start.until_us) and bool((room.idle >= start.units).all())
                for room in met
            )
        # From here on its least is kept for it before anybody else's turn, and for longer than it will need that.
        none, least = np.zeros_like(start.units), own.units(own.sizes[0])
        until_us = self.now + own.least_us()
        for key, (mask, _) in self._rooms.items():
            if (self._pools[own.number] & ~mask).any():
                continue
            filling = kept.fillings[key]
            filled = filling.found.get(own.number)
            if filled is None or not filled.size:
                return False
            end_us = min(filled.end_us, until_us)
            if not (filling.room.has(none, self.now, end_us) and filling.room.has(least, end_us, until_us)):
                return False
        return True

    def _count_beside(self, start: PlannedStart) -> None:
        own, kept = self.demands.get(start.number), self.count()
        if own is not None:
            self.demands[own.number] = replace(own, held=True)
            return
        for key, (mask, base) in self._rooms.items():
            if (start.pool & mask).any():
                for room in (base, kept.fillings[key].room):
                    room.take(start.units, self.now, start.until_us)
                    room.idle = np.maximum(room.idle - start.units, 0)

    def _with_start(self, start: PlannedStart) -> tuple[Rooms, dict[int, Demand]]:
        rooms = {key: (mask, room.copy()) for key, (mask, room) in self._rooms.items()}
        demands = dict(self.demands)
        for number, members in start.lending:
            lender = demands.get(number)
            if lender is not None:
                waits_us = lender.waits_us + lender.pause_us
                demands[number] = replace(lender, present=lender.present - members, waits_us=waits_us)
        own = demands.get(start.number)
        if own is not None:
            # From here on it has its least, come what may; how much more is for its date to say.
            demands[start.number] = replace(own, held=True)
        for mask, room in rooms.values():
            # Counted until its end so far. Left in, no start that sends somebody away could be allowed beside a tight
            # promise.
            for gone in start.leaving:
                for units, end_us in self.reader.taken_by(gone, mask):
                    room.take(units, self.now, end_us, -1)
            # Wherever it may sit: two pools that overlap both count it, and one of them for nothing.
            if own is None and (start.pool & mask).any():
                room.take(start.units, self.now, start.until_us)
                room.idle = np.maximum(room.idle - start.units, 0)
        return rooms, demands

    def _fill_all(self, demands: Mapping[int, Demand], rooms: Rooms) -> Kept:
        """What everybody needs from now on, with as few late as can be."""
        kept = Kept()
        for key, (mask, room) in rooms.items():
            within = self._within(mask, demands.values())
            kept.add(key, min(self._fill_in_turn(room, within), key=lambda filling: len(filling.late)))
        return kept

    def _fill_in_turn(self, room: RoomOverTime, within: Sequence[Demand]) -> list[Filling]:
        """One style after the other until nobody is late."""
        found: list[Filling] = []
        styles = list(STYLES)
        for style in styles:
            filling = Filling(room.copy(), within, self.wait_us, style)
            filling.run()
            found.append(filling)
            if not filling.late:
                break
            # Whoever came too late by its date may be in time before others who can wait.
            if not style.first:
                styles.append(replace(style, first=frozenset(filling.late)))
        return found

    def _try(self, demands: Mapping[int, Demand], rooms: Rooms) -> Kept | None:
        """The same where nobody is late who was not before; else None."""
        kept, before = Kept(), self.count()
        for key, (mask, room) in rooms.items():
            within = self._within(mask, demands.values())
            # First of all the style in which nobody was late without it.
            for style in dict.fromkeys((before.fillings[key].style, *STYLES)):
                filling = Filling(room.copy(), within, self.wait_us, style)
                if filling.run(may_be_late=self.broken):
                    kept.add(key, filling)
                    break
            else:
                return None
        return kept

    def _within(self, mask: BoolArray, demands: Iterable[Demand]) -> list[Demand]:
        """Those who can sit nowhere else."""
        return [each for each in demands if not (self._pools[each.number] & ~mask).any()]

    def _room(self, pool: BoolArray) -> RoomOverTime:
        key = pool.tobytes()
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = pool, self.reader.read(pool)
            self._kept = None
        return found[1]

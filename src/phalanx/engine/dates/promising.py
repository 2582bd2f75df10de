"""Which dates are promised, and what that means for everybody else (option `admit`).

A gang with a date is judged once, when it is first seen eligible, in order of arrival: its date is promised if it can
be met beside all those that are promised already (`engine.dates.filling`). The verdict is told in the plan and comes
back in the snapshot; nothing is remembered here. From then on a promise is kept by three things, each worked out anew
in every pass: what each promised gang that runs needs now (its share, below which nobody may take from it), the order
(promised gangs have their turn first), and a look before every start, whoever starts, whether all promises still hold
with it.

Counted as taken: what runs rigid, until its stated end; the least of what runs elastic, until its end at that size,
since only surplus can be called back. What nobody stated an end of stays for ever (rule 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from phalanx.engine.curves import curve_of
from phalanx.engine.dates.filling import Demand, RoomOverTime, fill
from phalanx.engine.ends import expected_ends
from phalanx.engine.kept_dates import PlannedStart
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.order.deadlines import is_too_late
from phalanx.engine.order.orders import overhead_us
from phalanx.engine.policy import Policy
from phalanx.engine.reclaimable import Reclaimable
from phalanx.engine.room.limits import Limits
from phalanx.engine.room.view import find_need
from phalanx.engine.session import could_hold_one
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.gang import Gang
from phalanx.model.plan import DateVerdict
from phalanx.model.snapshot import PendingColumns, RunningColumns, Snapshot
from phalanx.perfmodel.speedup import speedup_at

#: The earliest date that could be promised is told to this.
GRAIN_US = 1_000_000
#: Bounds above the earliest date that are tried, each twice as far away: beyond, nobody could rely on it anyway.
BOUNDS_TRIED = 8


Rooms = dict[bytes, tuple[BoolArray, RoomOverTime]]


class Dates:
    """Promised dates of one cycle, and what is kept for them."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Everybody whose date was promised before; newcomers are judged by `judge`."""
        self.snapshot, self.policy, self.now = snapshot, policy, snapshot.now_us
        self.demands: dict[int, Demand] = {}
        self._filled: dict[int, int] | None = None
        self._pools: dict[int, BoolArray] = {}
        self._rooms: Rooms = {}
        self._limits = Limits(snapshot)
        self._ends = expected_ends(snapshot.running, self.now)
        running, pending = snapshot.running, snapshot.pending
        rows = running.alive & (running.gang >= 0)
        pauses = [snapshot.gangs[n].resize_pause_us for n in running.gang[rows & running.elastic].tolist()]
        # The longest of anybody's, since nobody knows yet who will have to give: a promise may not hang on its being
        # one who leaves quickly.
        self.wait_us = max(pauses, default=0)
        seated = {int(running.gang[row]): row for row in rows.nonzero()[0].tolist()}
        dated = (pending.alive & (pending.deadline_us >= 0)).nonzero()[0]
        waiting = {int(pending.gang[row]): row for row in dated.tolist()}
        # More than are counted by their dates: a rigid gang that runs is promised too, and is counted by its seats.
        # People are told this number.
        self._promised = sum(self.is_promised(number) for number in (*seated, *waiting))
        asking = [n for n in waiting if n not in snapshot.dates or self.is_promised(n)]
        # Before any room is read: who is counted by its date and who by what it takes may not depend on who came first.
        self._flexible = {n: row for n, row in seated.items() if self.is_promised(n) and _resizable(snapshot, n)}
        gangs = [snapshot.gangs[number] for number in (*self._flexible, *asking)]
        # By queue and priority, as rule 8 has it: surplus may count as room only for one who could call it back.
        self._claims = {(gang.queue, gang.priority) for gang in gangs}
        for row in self._flexible.values():
            self._enter(self._limit(_running_demand(snapshot, row, int(self._ends[row])), snapshot.running, row))
        for number in asking:
            if number in snapshot.dates:
                row = waiting[number]
                demand = self._limit(_pending_demand(snapshot, row), snapshot.pending, row)
                if demand.sizes:  # else a ceiling was lowered since: it can never run any more
                    self._enter(demand)
        # Promises that were broken by what nobody could foresee (a node, a run time) hold up nobody else.
        self._broken = self.demands.keys() - self.shares().keys()

    @property
    def promised(self) -> frozenset[int]:
        """Gangs that are counted by their dates."""
        return frozenset(self.demands)

    def is_promised(self, number: int) -> bool:
        """Whether a gang's date was promised before this cycle."""
        verdict = self.snapshot.dates.get(number)
        return verdict is not None and verdict.promised

    # ------------------------------------------------------------------ judging

    def judge(self) -> tuple[DateVerdict, ...]:
        """Verdicts on everybody who is seen eligible for the first time, in order of arrival."""
        pending, known = self.snapshot.pending, self.snapshot.dates
        # Not while a gate is shut: nobody knows how long it stays so, and room would be kept for the gang all the
        # while.
        rows = (pending.alive & (pending.gate == 0) & (pending.deadline_us >= 0)).nonzero()[0]
        # Arrival decides and not the policy's order: a priority would let a later gang have a date at the expense of an
        # earlier one that is judged in the same pass, and not at that of one judged a pass before.
        rows = rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows]))]
        found = []
        for row in rows.tolist():
            number = int(pending.gang[row])
            # What is out of reach on an empty cluster is refused by rule 15, whatever the option says.
            if number not in known and not is_too_late(self.snapshot, row):
                found.append(self._judge(row))
        return tuple(found)

    def _judge(self, row: int) -> DateVerdict:
        number = int(self.snapshot.pending.gang[row])
        beside = self._promised
        # A guess is no ground for a promise (rule 7), and gangs that start together are not counted as one here.
        if not self.snapshot.pending.proven[row] or self.snapshot.pending.group[row] >= 0:
            return DateVerdict(number, promised=False, earliest_us=None, beside=beside)
        demand = self._limit(_pending_demand(self.snapshot, row), self.snapshot.pending, row)
        # Its least passes a ceiling: it can never run, and is told so (rule 11).
        if not demand.sizes:
            return DateVerdict(number, promised=False, earliest_us=None, beside=beside)
        self._pools[number] = _pool_of(self.snapshot, self.snapshot.gangs[number])
        # At once, before the next is judged: two who come together may not both be promised what is there for one.
        if self._holds_with(demand):
            self._enter(demand)
            self._promised += 1
            return DateVerdict(number, promised=True, earliest_us=demand.date_us, beside=beside)
        return DateVerdict(number, promised=False, earliest_us=self._find_earliest(demand), beside=beside)

    def _limit(self, demand: Demand, columns: PendingColumns | RunningColumns, row: int) -> Demand:
        """The same with the sizes that its ceilings would ever allow: a date that needs more cannot be promised."""
        limits = self._limits
        if not limits.any:
            return demand
        units = np.array([demand.units(size) for size in demand.sizes])
        # With nothing in use: what others of its queue hold meanwhile is not counted (decision 19).
        by_queue, by_user = limits.caps(units, empty=True)
        fits = np.minimum(by_queue[int(columns.queue[row])], by_user[int(columns.user[row])]) >= 1
        kept = [at for at, fine in enumerate(fits.tolist()) if fine or demand.sizes[at] == demand.present]
        sizes, speeds = tuple(demand.sizes[at] for at in kept), tuple(demand.speeds[at] for at in kept)
        return replace(demand, sizes=sizes, speeds=speeds)

    def _holds_with(self, demand: Demand) -> bool:
        self._room(self._pools[demand.number])
        # Its own date may be met at the expense of an earlier promise, so that everybody is filled anew. Those broken
        # before stay broken, and are no reason to refuse.
        broken = self._find_broken({**self.demands, demand.number: demand}, self._rooms)
        return demand.number not in broken and broken <= self._broken

    def _find_earliest(self, demand: Demand) -> int | None:
        """The earliest date, in whole seconds from its submit, that would have been promised."""
        submit_us = self.snapshot.gangs[demand.number].submit_us
        room = self._room(self._pools[demand.number])[1].copy()
        fill(room, self._within(self._pools[demand.number], self.demands.values()), self.wait_us)
        # Behind everybody else it disturbs nobody: no later date is needed.
        last = fill(room, [replace(demand, date_us=NEVER)], self.wait_us)
        if not last:
            return None
        low, high = (demand.date_us - submit_us) // GRAIN_US, -(-(last[demand.number].end_us - submit_us) // GRAIN_US)
        # By the very test that a submit with that date would have to pass: a formula of its own would name dates that
        # are then refused. The bound as well, since others may be pushed back by who comes behind them.
        for _ in range(BOUNDS_TRIED):
            if high > low and self._holds_with(replace(demand, date_us=submit_us + high * GRAIN_US)):
                break
            low, high = max(low, high), max(low, high) + max(1, 2 * abs(high - low))
        else:
            return None
        while low + 1 < high:
            middle = (low + high) // 2
            if self._holds_with(replace(demand, date_us=submit_us + middle * GRAIN_US)):
                high = middle
            else:
                low = middle
        return submit_us + high * GRAIN_US

    def show(self, judged: tuple[DateVerdict, ...]) -> Snapshot:
        """The snapshot with these verdicts, in which a date that is not promised is none."""
        snapshot, pending = self.snapshot, self.snapshot.pending
        # In the column, where orders and laxity read it: neither has to know that there is such a thing as a promise.
        # Shares read the date of the gang itself, and ask for the verdict.
        dates = {**snapshot.dates, **{verdict.gang: verdict for verdict in judged}}
        without = [number for number, verdict in dates.items() if not verdict.promised and not self.is_refused(verdict)]
        column = pending.deadline_us
        if without:
            column = np.where(np.isin(pending.gang, without), -1, column)
        return replace(snapshot, dates=dates, pending=replace(pending, deadline_us=column))

    def is_refused(self, verdict: DateVerdict) -> bool:
        """Whether a gang does not run because of what was said of its date."""
        # Where nobody knows how long it runs there is no date to offer, and nobody is refused for a guess.
        return self.policy.admit == "refuse" and not verdict.promised and verdict.earliest_us is not None

    def put_first(self, rows: IntArray) -> IntArray:
        """Pending rows in order, those with a promised date before all others, by date."""
        pending = self.snapshot.pending
        # Before priority and standing, which is what a promise means (decision 19). `allows` alone would let others
        # start for as long as a date has slack, until all of that is used up.
        promised = np.isin(pending.gang[rows], list(self.demands))
        first = rows[promised]
        first = first[np.lexsort((pending.gang[first], pending.deadline_us[first]))]
        return np.concatenate((first, rows[~promised]))

    def count_first(self, gangs: IntArray) -> int:
        """How many of these, which stand in order, have a promised date."""
        return int(np.isin(gangs, list(self.demands)).sum())

    # ------------------------------------------------------------------ keeping

    def shares(self) -> dict[int, int]:
        """Members of its elastic role that each promised gang needs from now on, by number; 0: not yet any."""
        # Asked twice in a pass, and in most nobody starts in between.
        if self._filled is None:
            self._filled = self._fill_all(self.demands, self._rooms)
        return self._filled

    def protect(self, reclaimable: Reclaimable) -> None:
        """Nobody takes from those who run what their dates need, nor sends them away."""
        needed = self.shares()
        for occupant in reclaimable.occupants:
            # Also of those that are not counted by their dates. A rigid gang needs no floor, but an eviction would
            # break its promise all the same.
            occupant.promised = self.is_promised(occupant.number)
            occupant.floor = needed.get(occupant.number, 0)

    def allows(self, start: PlannedStart) -> bool:
        """Whether all promises that can be kept now can be kept beside this start."""
        # On copies, and to the end: one start more can be harmless now and be what makes a later growth impossible,
        # which no look at what is free at this moment shows.
        rooms, demands = self._with_start(start)
        return self._find_broken(demands, rooms) <= self._broken

    def note_start(self, start: PlannedStart) -> None:
        """It is counted from now on."""
        self._rooms, self.demands = self._with_start(start)
        self._filled = None

    def _with_start(self, start: PlannedStart) -> tuple[Rooms, dict[int, Demand]]:
        rooms = {key: (mask, room.copy()) for key, (mask, room) in self._rooms.items()}
        demands = dict(self.demands)
        own = demands.get(start.number)
        if own is not None:
            # From here on it has its least, come what may; how much more is for its date to say.
            demands[start.number] = replace(own, held=True)
        for mask, room in rooms.values():
            # Counted until its end so far. Left in, no start that sends somebody away could be allowed beside a tight
            # promise.
            for gone in start.leaving:
                for units, end_us in self._taken_by(gone, mask):
                    room.take(units, self.now, end_us, -1)
            # Wherever it may sit: two pools that overlap both count it, and one of them for nothing.
            if own is None and (start.pool & mask).any():
                room.take(start.units, self.now, start.until_us)
                room.idle = np.maximum(room.idle - start.units, 0)
        return rooms, demands

    # ------------------------------------------------------------------ counting

    def _enter(self, demand: Demand) -> None:
        self.demands[demand.number] = demand
        self._filled = None
        pool = self._pools[demand.number] = _pool_of(self.snapshot, self.snapshot.gangs[demand.number])
        self._room(pool)

    def _find_broken(self, demands: Mapping[int, Demand], rooms: Rooms) -> set[int]:
        """Of these, the dates that cannot be met all together."""
        return set(demands) - self._fill_all(demands, rooms).keys()

    def _fill_all(self, demands: Mapping[int, Demand], rooms: Rooms) -> dict[int, int]:
        """Sizes for now of those who can be in time, by number."""
        found: dict[int, int] = {}
        late: set[int] = set()
        for mask, room in rooms.values():
            within = self._within(mask, demands.values())
            filled = fill(room.copy(), within, self.wait_us)
            late.update(demand.number for demand in within if demand.number not in filled)
            for number, each in filled.items():
                # In every pool that holds it: what a wider one leaves to it may not be in its own.
                found[number] = max(found.get(number, 0), each.size)
        return {number: size for number, size in found.items() if number not in late}

    def _within(self, mask: BoolArray, demands: Iterable[Demand]) -> list[Demand]:
        """Those who can sit nowhere else."""
        return [each for each in demands if not (self._pools[each.number] & ~mask).any()]

    def _room(self, pool: BoolArray) -> tuple[BoolArray, RoomOverTime]:
        key = pool.tobytes()
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = pool, self._read_room(pool)
        return found

    def _read_room(self, mask: BoolArray) -> RoomOverTime:
        """The nodes of a pool over time, without what is taken by those who have no promise and run elastic."""
        snapshot, fleet = self.snapshot, self.snapshot.fleet
        # From the capacity down and not from what is free up: promised gangs that may change size are left out here,
        # and filled in by what their dates need instead of by what they have.
        room = RoomOverTime(self.now, fleet.capacity[mask].sum(axis=0), snapshot.nodes.free[mask].sum(axis=0))
        running = snapshot.running
        for number in running.gang[running.alive & (running.gang >= 0)].tolist():
            if number not in self._flexible:
                for units, end_us in self._taken_by(number, mask):
                    room.take(units, self.now, end_us)
        table = snapshot.allocations
        # Gang -1: seats that only wait for their last user to go. Of those who shrink that is soon, and whoever takes
        # more than is idle waits so long in any case: counted as taken until then, they would go to somebody else for
        # a moment, and the one for whom they were given back would have to call for them again and again.
        leaving = running.alive & (running.gang < 0) & (self._ends > self.now + self.wait_us)
        for row in leaving.nonzero()[0].tolist():
            held = table.alive & (table.running == row)
            held[held] = mask[table.node[held]]
            room.take(table.taken[held].sum(axis=0), self.now, int(self._ends[row]))
        for window in snapshot.windows:
            nodes = [fleet.index_by_name[name] for name in window.nodes if name in fleet.index_by_name]
            # All of a node, also where somebody sits on it who is counted already: counted twice, a promise is refused
            # that could be kept, and none is given that could not.
            inside = [node for node in nodes if mask[node]]
            room.take(fleet.capacity[inside].sum(axis=0), window.start_us, window.end_us)
        return room

    def _taken_by(self, number: int, mask: BoolArray) -> list[tuple[IntArray, int]]:
        """What a running gang without a promised size takes of a pool, and until when."""
        snapshot, running, table = self.snapshot, self.snapshot.running, self.snapshot.allocations
        row = int((running.alive & (running.gang == number)).nonzero()[0][0])
        held = table.alive & (table.running == row)
        held[held] = mask[table.node[held]]
        units = table.taken[held].sum(axis=0)
        if not units.any():
            return []
        gang = snapshot.gangs[number]
        if _resizable(snapshot, number) and self._callable(row):
            demand = _running_demand(snapshot, row, int(self._ends[row]))
            end_us = self.now + demand.least_us() if _is_proven(snapshot, number) else NEVER
            # Part of its seats may lie outside this pool, and it is charged here with no more than it has here.
            return [(np.minimum(units, demand.units(demand.sizes[0])), end_us)]
        # Start-up comes on top of what is stated (decision 7); a length that was worked out anew has it behind it.
        extra_us = overhead_us(gang, ran_before=bool(running.attained_us[row] > 0))
        end_us = int(self._ends[row]) + extra_us if _is_proven(snapshot, number) else NEVER
        return [(units, end_us)]

    def _callable(self, row: int) -> bool:
        """Whether everybody with a promise may call its surplus back (rule 8), as far as that is plain to see."""
        if "shrink" not in self.policy.takes:
            return False
        running = self.snapshot.running
        name = self.snapshot.queues.names[int(running.queue[row])]
        priority = int(running.priority[row])
        # All and not any: room is one sum for everybody, and what only some may call back would be promised to the
        # others as well. Between queues standing decides, which moves with every start and is no ground for a promise.
        return all(queue == name and asked >= priority for queue, asked in self._claims)


def _is_proven(snapshot: Snapshot, number: int) -> bool:
    # An elastic gang reports its progress, from which its end follows (rule 6); the walltime is a claim until then.
    return snapshot.gangs[number].walltime_us is not None


def _resizable(snapshot: Snapshot, number: int) -> bool:
    """Whether a running gang has one role whose size may change."""
    gang = snapshot.gangs[number]
    return sum(role.sizes.elastic for role in gang.roles) == 1 and number not in snapshot.pins


def _pool_of(snapshot: Snapshot, gang: Gang) -> BoolArray:
    pool = np.zeros(len(snapshot.fleet), dtype=np.bool_)
    for role in gang.roles:
        # The union over roles, as `Session.pool_of`: amounts are summed, and a node that holds only one role is room
        # for that role.
        pool |= could_hold_one(snapshot.fleet, role.shape)
    return pool & snapshot.nodes.in_service


def _amounts(snapshot: Snapshot, gang: Gang, elastic: int) -> tuple[IntArray, IntArray]:
    """What it takes besides its elastic role, and what a member of that takes."""
    needs = [find_need(snapshot.fleet, role.shape).vector for role in gang.roles]
    fixed = np.zeros(len(snapshot.fleet.kinds), dtype=np.int64)
    for index, role in enumerate(gang.roles):
        if index != elastic:
            fixed += needs[index] * role.sizes.least
    return fixed, needs[elastic] if elastic >= 0 else np.zeros_like(fixed)


def _elastic_role(gang: Gang) -> int:
    """The one role that has several sizes; -1 if there is none, or there are several, which is as good as none."""
    elastic = [index for index, role in enumerate(gang.roles) if role.sizes.elastic]
    return elastic[0] if len(elastic) == 1 else -1


def _demand(
    snapshot: Snapshot, number: int, size: int, left_us: float, waits_us: int, *, present: int, held: bool
) -> Demand:
    """`left_us`: of run time, at a size of its elastic roles."""
    gang = snapshot.gangs[number]
    role = _elastic_role(gang)
    fixed, each = _amounts(snapshot, gang, role)
    date_us = gang.submit_us + (gang.deadline_us or 0)
    curve = curve_of(snapshot, number)
    if role < 0:
        # Several roles change one by one in ways that are not counted here: taken at its least, and never larger.
        least = sum(r.sizes.least for r in gang.roles if r.sizes.elastic)
        work = left_us * speedup_at(curve, size) / speedup_at(curve, least) if least else left_us
        return Demand(number, date_us, (1,), (1.0,), fixed, each, work, waits_us, 0, present and 1, held)
    # A person wants that size and no other (rule 15): a date is met with it or not at all.
    pinned = snapshot.pins.get(number)
    sizes = gang.roles[role].sizes.allowed if pinned is None else (pinned,)
    speeds = tuple(speedup_at(curve, n) for n in sizes)
    work = left_us * speedup_at(curve, size)
    return Demand(number, date_us, sizes, speeds, fixed, each, work, waits_us, gang.resize_pause_us, present, held)


def _pending_demand(snapshot: Snapshot, row: int) -> Demand:
    pending, number = snapshot.pending, int(snapshot.pending.gang[row])
    gang = snapshot.gangs[number]
    waits_us = overhead_us(gang, ran_before=bool(pending.attained_us[row] > 0))
    most = sum(role.sizes.most for role in gang.roles if role.sizes.elastic)
    return _demand(snapshot, number, most, float(pending.length_us[row]), waits_us, present=0, held=False)


def _running_demand(snapshot: Snapshot, row: int, end_us: int) -> Demand:
    """As `making_room.permits.prospect_of` sees it."""
    running, table, number = snapshot.running, snapshot.allocations, int(snapshot.running.gang[row])
    gang = snapshot.gangs[number]
    start_us = int(running.start_us[row])
    waits_us = max(0, start_us + gang.startup_us - snapshot.now_us)
    left_us = end_us - (start_us if waits_us else snapshot.now_us)
    role = _elastic_role(gang)
    members = int(table.count[table.alive & (table.running == row) & (table.role == role)].sum())
    at = members
    if waits_us and gang.walltime_us is not None:
        # Before its first step it reports nothing, and its length is that of the size it was given first. All of its
        # work is ahead; after a restart less, which nobody knows here.
        at, left_us = sum(each.sizes.most for each in gang.roles if each.sizes.elastic), gang.walltime_us
    return _demand(snapshot, number, at, float(left_us), waits_us, present=members, held=True)

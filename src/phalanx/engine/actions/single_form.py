"""The walk where sums decide: everybody asks one and the same placement key about the whole cluster.

Then a slot is a slot: whoever starts takes as many as it has members and gives as many back, on any
node, so the head's start and what it leaves beside itself are running sums over ends, and a filler
needs two comparisons. Places are still chosen by the one rule, over slots instead of free amounts.
Logs of one machine are like that, and they have hundreds of thousands of jobs.

`engine.actions.allocate` is the walk for everything else; tests hold the two to the same plans.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phalanx.engine.ends import expected_ends
from phalanx.engine.kernels.devices import choose_devices
from phalanx.engine.kernels.fill import SlotRoom, choose_lowest, choose_nodes
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.policy import Policy
from phalanx.engine.prefilter import waiting_rows
from phalanx.engine.room.view import NOBODY, View, find_need
from phalanx.engine.session import empty_ceiling
from phalanx.model.fleet import BoolArray, Fleet, IntArray, MilliArray
from phalanx.model.form import Form, RoleForm
from phalanx.model.plan import Bind, Idle, Seats
from phalanx.model.snapshot import Int32Array, Snapshot

#: Up to so many, plain numbers are quicker than arrays. Half of the walks of KTH-SP2 see at most six
#: waiting and ten running gangs, and an operation on an array costs a microsecond however short it is.
SHORT = 64


def is_single_form(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether this walk is exact here: one form, one queue, no wish about places, no ceilings or windows."""
    # Each of these brings in something that a sum over the cluster cannot see: another shape, a ceiling of some, a time
    # or a place for some, promises, or more than one start ahead.
    if len(snapshot.forms) != 1 or snapshot.hints.limited:
        return False
    if snapshot.windows or snapshot.group_forms or snapshot.judged:
        return False
    if policy.keep or policy.shares_users or policy.reservations + policy.stops != 1:
        return False
    # Queues take turns by their standing, and that moves with every start: here there is one line of rows.
    if policy.standing and snapshot.queues.many:
        return False
    ground = _find_ground(snapshot.fleet, snapshot.forms[0], snapshot.nodes.in_service)
    # Where devices were split, a node may have four halves free and no device: amounts do not count slots.
    return ground.exact and not (ground.need.whole and snapshot.nodes.shared)


def _find_ground(fleet: Fleet, form: Form, usable: BoolArray) -> _Ground:
    """What a form means on these nodes. Remembered for as long as the same nodes are in service.

    Compared by identity: the columns of a snapshot are read-only, and other nodes in service are another array.
    """
    found = fleet.needs.get("ground")
    if not isinstance(found, _Ground) or found.form is not form or found.usable is not usable:
        role = form.roles[0]
        need = find_need(fleet, role.shape)
        mask = need.allowed & usable
        plain = form.open_size and role.shape.plain and role.require < 0 and role.prefer < 0
        plain = plain and role.segment_size <= 1
        exact = plain and need.missing is None and len(need.columns) == 1
        # One kind, and no other on the nodes: else places of equal room differ by
        # what they leave of the rest (rule 15).
        exact = exact and not (need.unasked or need.share)
        # Any device is as good as another only where none is nearer to its neighbours.
        exact = exact and not (need.whole and fleet.islands)
        one_each = exact and fleet.walk_trivial and len(fleet.levels) == 1
        # Then all free nodes are equal, and every step of the choice but the lowest index falls away.
        one_each = one_each and bool((fleet.capacity[:, need.columns[0]] == need.amounts[0]).all())
        most = empty_ceiling(fleet, form, usable) if exact else 0
        found = _Ground(form, need, usable, mask, bool(mask.all()), exact, one_each, most, {})
        fleet.needs["ground"] = found
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
    """A form against the nodes in service."""

    form: Form
    need: Need
    usable: BoolArray
    mask: BoolArray  # nodes that count
    everywhere: bool  # whether all do
    exact: bool  # whether sums decide
    one_each: bool  # whether every node holds one member or none: then the lowest numbers are the best places
    most: int  # members were everything empty
    seats_by_size: dict[int, tuple[Seats, ...]]  # where there is one node only: all seats of a size are the same


@dataclass(frozen=True, slots=True, eq=False)
class _Left:
    """What is free of each node at the head's start, beside the head."""

    slots: IntArray
    free: IntArray  # units, also on nodes that do not count


@dataclass(slots=True, eq=False)
class _Ahead:
    """The head of the queue, which could not start."""

    size: int
    gone_by: int  # its start: whoever is gone by then keeps it from nothing; NEVER: no end helps it
    extra: int  # slots beside it then
    left: _Left | None = None  # where those are, once somebody has to choose between places


class SingleFormWalk:
    """One walk; `binds` is what starts."""

    def __init__(self, snapshot: Snapshot, view: View) -> None:
        """Count the slots; nobody has started yet."""
        self.snapshot, self.pending = snapshot, snapshot.pending
        self.role: RoleForm = snapshot.forms[0].roles[0]
        ground = self._ground = _find_ground(snapshot.fleet, snapshot.forms[0], view.usable_by_exempt[NOBODY])
        self.need, self._everywhere = ground.need, ground.everywhere
        # Counted here, not asked of the view: that would keep a row up to date that nobody asks for again.
        self._free = view.free[:, self.need.columns[0]]  # units, of which slots are the whole multiples
        self._devices = view.device_free
        self._alone = len(self._free) == 1
        if self._alone:
            # One node: no places to choose between, so nobody asks for the slots of each node.
            self.now = self._free
            self.room = int(self._free[0]) // self.need.amounts[0] if self._everywhere else 0
        else:
            self.now = self._free // self.need.amounts[0]  # slots of each node
            if not self._everywhere:
                self.now *= ground.mask
            self.room = int(np.add.reduce(self.now))  # slots left in all
        self.binds: list[Bind] = []
        self.settles = True  # whether those who were refused would be refused again at the next instant
        self.reserved = 0  # slots that are free and that the head will need, if anybody asked

    def run(self, policy: Policy, *, ledger: bool = False) -> bool:
        """Start whoever may; False if somebody asks what only the general walk answers."""
        pending = self.pending
        rows = policy.order(self.snapshot, waiting_rows(self.snapshot))
        if not len(rows):
            return True
        sizes = pending.size[rows]
        # An elastic gang has several sizes to try and surplus to take: those are questions about places and curves.
        if self.snapshot.hints.has_elastic and bool(pending.elastic[rows].any()):
            return False
        first: list[int] = sizes[:SHORT].tolist()
        # Somebody is larger than the cluster: whether it can never run or only not now is for the general walk to tell.
        if (max(first) if len(rows) <= SHORT else int(np.maximum.reduce(sizes))) > self._ground.most:
            return False
        head = 0
        while head < len(rows) and (size := first[head] if head < SHORT else int(sizes[head])) <= self.room:
            self._start(int(rows[head]), size, self.now, self._free)
            head += 1
        room = self.room
        # Everybody started, or nobody may pass the first who did not (fcfs).
        if head == len(rows) or not policy.reservations:
            return True
        if len(rows) <= SHORT:
            behind = rows[[at for at in range(head + 1, len(rows)) if first[at] <= room]]
        else:
            behind = rows[head + 1 :][sizes[head + 1 :] <= room]
        # Nobody small enough is left: when the head starts is then nobody's question, but the ledger's.
        if len(behind) or (ledger and room):
            return self._fill(policy, int(sizes[head]), behind)
        return True

    def measure_idle(self) -> Idle:
        """What is kept for the head, and whether somebody waits whom the free amounts would hold in one piece."""
        # On one node whatever is free is in one piece, and on nodes of one slot every piece is a slot.
        if self._alone or self._ground.one_each:
            return Idle(self.need.vector * self.reserved, fragmented=False)
        free = self._free if self._everywhere else self._free[self._ground.mask]
        whole = int(np.add.reduce(free)) // self.need.amounts[0]
        waiting: list[int] = waiting_rows(self.snapshot).tolist() if whole > self.room else []
        started = {bind.gang for bind in self.binds}
        fragmented = any(
            self.room < int(self.pending.size[row]) <= whole
            for row in waiting
            if int(self.pending.gang[row]) not in started
        )
        return Idle(self.need.vector * self.reserved, fragmented)

    def _start(self, row: int, size: int, slots: IntArray, free: IntArray, first: IntArray | None = None) -> Seats:
        """Seat one gang in these slots of this room, in the `first` ones before any other."""
        if self._alone:
            seats = self._sit_alone(size)
        else:
            nodes, counts = self._choose(size, slots, free, first)
            if not self.binds:
                self._free = self._free.copy()  # until now it was the view's
            self.now[nodes] -= counts
            self._free[nodes] -= counts * self.need.amounts[0]
            seats = (Seats(0, nodes, counts, self._take_devices(nodes, counts), size),)
        self.room -= size
        self.binds.append(Bind(int(self.pending.gang[row]), seats, int(self.pending.length_us[row])))
        return seats[0]

    def _sit_alone(self, size: int) -> tuple[Seats, ...]:
        # Seats are values and nobody writes to them, so that all gangs of one size may share them.
        seats = self._ground.seats_by_size.get(size)
        if seats is None:
            nodes, counts = np.zeros(1, dtype=np.int64), np.array([size])
            seats = (Seats(0, nodes, counts, self._take_devices(nodes, counts), size),)
            if not self.need.whole:  # two gangs of one size sit on different devices
                self._ground.seats_by_size[size] = seats
        return seats

    def _take_devices(self, nodes: IntArray, counts: IntArray) -> MilliArray:
        if not self.need.whole:
            return np.zeros((len(nodes), self._devices.shape[1]), dtype=np.int16)
        if not self.binds:
            self._devices = self._devices.copy()  # as with the amounts
        # The lowest free ones, also for somebody who sits beside a reservation: of devices never split the calendar
        # keeps a number for the head and not certain ones.
        taken = choose_devices(self.snapshot.fleet, self.need, nodes, counts, self._devices[nodes])
        self._devices[nodes] -= taken
        return taken

    def _choose(self, size: int, slots: IntArray, free: IntArray, first: IntArray | None) -> tuple[IntArray, IntArray]:
        if self._ground.one_each:
            return choose_lowest(slots, first, size)
        walked = None if first is None else self._walked(first)
        room = SlotRoom(self.snapshot.fleet, self._walked(slots), [], [self._walked(free)], walked)
        chosen = choose_nodes(room, self.role, size)
        assert chosen is not None, "the sums promised a place"
        return chosen

    def _walked(self, slots: IntArray) -> IntArray:
        fleet = self.snapshot.fleet
        return slots if fleet.walk_trivial else slots[fleet.walk]

    def _fill(self, policy: Policy, head: int, rows: IntArray) -> bool:
        """Let those pass who end by the head's start, or fit beside it then; False if somebody may be its guest."""
        # EASY's two numbers: the shadow time, and the extra slots that are left beside the head then.
        ahead = _Ahead(head, *find_start(*self._ends_in_all(), head - self.room))
        if self.snapshot.hints.has_reclaimable and self._might_be_guest(rows, ahead.gone_by):
            return False
        pending, shortest = self.pending, policy.fill == "shortest"
        # Room and what is extra only shrink, so that whoever fails once fails in its turn as well: of a long queue the
        # next who passes is picked, and those who no longer can are dropped; sorting it would cost more than it tells.
        while len(rows) > SHORT:
            rows = rows[self._may_pass(rows, ahead)]
            if len(rows) > SHORT:
                at = int(pending.length_us[rows].argmin()) if shortest else 0
                self._pass(ahead, int(rows[at]), int(pending.size[rows[at]]), int(self._gone(rows[at : at + 1])[0]))
                rows = np.concatenate((rows[:at], rows[at + 1 :]))
        if len(rows):
            self._pass_one_by_one(rows, ahead, shortest=shortest)
        self.reserved = max(0, self.room - ahead.extra) if ahead.gone_by != NEVER else 0
        return True

    def _pass_one_by_one(self, rows: IntArray, ahead: _Ahead, *, shortest: bool) -> None:
        pending, now_us = self.pending, self.snapshot.now_us
        if shortest and len(rows) > 1:
            rows = rows[pending.length_us[rows].argsort(kind="stable")]
        columns = (rows, pending.size[rows], pending.length_us[rows], pending.proven[rows])
        for row, size, length, sure in zip(*(column.tolist() for column in columns), strict=True):
            gone_us = now_us + length if sure else NEVER
            if size <= self.room and (gone_us <= ahead.gone_by or size <= ahead.extra):
                self._pass(ahead, row, size, gone_us)

    def _may_pass(self, rows: IntArray, ahead: _Ahead) -> BoolArray:
        size = self.pending.size[rows]
        may: BoolArray = (size <= self.room) & ((size <= ahead.extra) | (self._gone(rows) <= ahead.gone_by))
        return may

    def _pass(self, ahead: _Ahead, row: int, size: int, gone_us: int) -> None:
        """Start a filler where it keeps the head from nothing."""
        if self._alone or ahead.gone_by == NEVER:
            # One node has no places to choose between, and where nothing is reserved none are kept.
            self._start(row, size, self.now, self._free)
        else:
            if ahead.left is None:
                ahead.left = self._left_by_head(ahead)  # only now: most passes let nobody pass
            left = ahead.left
            kept = np.minimum(self.now, left.slots)
            if gone_us > ahead.gone_by:
                # Judged by what is there both now and then, as the room it stays in; nodes of one slot are all alike.
                free = self._free if self._ground.one_each else np.minimum(self._free, left.free)
                seats = self._start(row, size, kept, free)
                left.slots[seats.nodes] -= seats.counts
                if not self._ground.one_each:
                    left.free[seats.nodes] -= seats.counts * self.need.amounts[0]
            else:
                # Reserved but idle places are for those who end in time: they leave the others to the long ones.
                self._start(row, size, self.now, self._free, self.now - kept)
        # Whoever is gone in time gives its slots back before the head comes; only who stays uses up what is extra.
        if gone_us > ahead.gone_by:
            ahead.extra -= size
        if gone_us == NEVER:
            # It counts as staying for ever where it is let in, and by rule 7's length for whoever is judged later: at
            # the next instant there may be more beside the head than now.
            self.settles = False

    def _gone(self, rows: IntArray) -> IntArray:
        """When each is provably gone; without a stated walltime never: no reservation may count on it."""
        return np.where(self.pending.proven[rows], self.snapshot.now_us + self.pending.length_us[rows], NEVER)

    def _might_be_guest(self, rows: IntArray, gone_by: int) -> bool:
        """Whether any of those who would stay too long can be made to leave: where it sits is no matter of sums."""
        gangs = self.snapshot.gangs
        return any(gangs[number].preemptible for number in self.pending.gang[rows[self._gone(rows) > gone_by]].tolist())

    def _ends_in_all(self) -> tuple[IntArray, IntArray | Int32Array]:
        """Instant and slots of everything that runs or has just been started, wherever it is."""
        snapshot = self.snapshot
        if snapshot.hints.has_reclaimable or not self._everywhere:
            node, end, seats = self._ends()
            return end, seats * self._ground.mask[node]
        # Every slot counts, and nobody can have been made to give any back: a gang is its members.
        running = snapshot.running
        rows = running.alive.nonzero()[0]
        gain: Int32Array = running.members[rows]
        end = self._expected_ends()[rows]
        if not self.binds:
            return end, gain
        now_us = snapshot.now_us
        return (
            np.concatenate((end, [now_us + bind.length_us for bind in self.binds])),
            np.concatenate((gain, [bind.members for bind in self.binds])),
        )

    def _expected_ends(self) -> IntArray:
        running = self.snapshot.running
        if self.snapshot.hints.on_time:  # nobody to look for who has outlived its end
            ends: IntArray = running.start_us + running.length_us
            return ends
        return expected_ends(running, self.snapshot.now_us)

    def _ends(self) -> tuple[IntArray, IntArray, IntArray]:
        """Node, instant and slots of everything that runs or has just been started."""
        snapshot = self.snapshot
        table = snapshot.allocations
        rows = table.alive.nonzero()[0]
        node, gain = table.node[rows], table.count[rows].astype(np.int64)
        end = self._expected_ends()[table.running[rows]]
        if not self.binds:
            return node, end, gain
        seats = [bind.seats[0] for bind in self.binds]
        ends = [np.full(len(bind.seats[0].nodes), snapshot.now_us + bind.length_us) for bind in self.binds]
        return (
            np.concatenate([node, *(each.nodes for each in seats)]),
            np.concatenate([end, *ends]),
            np.concatenate([gain, *(each.counts for each in seats)]),
        )

    def _left_by_head(self, ahead: _Ahead) -> _Left:
        """What is free at the head's start, beside the places it will take: busy ones before idle ones."""
        node, end, gain = self._ends()
        gone = end <= ahead.gone_by
        if self._ground.one_each and self._everywhere:
            busy = np.zeros_like(self.now)
            busy[node[gone]] = 1  # nobody shares a node, so that nothing has to be added up
            then = self.now + busy
            then[self._choose(ahead.size, then, then, busy)[0]] = 0
            return _Left(then, then)
        busy = np.bincount(node[gone], weights=gain[gone], minlength=len(self.now)).astype(np.int64)
        free = self._free + busy * self.need.amounts[0]
        if not self._everywhere:
            busy *= self._ground.mask
        then = self.now + busy
        nodes, counts = self._choose(ahead.size, then, free, busy)
        then[nodes] -= counts
        free[nodes] -= counts * self.need.amounts[0]
        return _Left(then, free)


def find_start(end: IntArray, gain: IntArray | Int32Array, missing: int) -> tuple[int, int]:
    """When ends have given back what is missing, and how much more they have given by then."""
    if len(end) <= SHORT:
        return _find_start_short(end.tolist(), gain.tolist(), missing)
    # Ends of one instant count together below (`side="right"`), so that their order does not matter.
    order = end.argsort(kind="stable")
    end, total = end[order], gain[order].cumsum()
    at = int(total.searchsorted(missing))
    if at == len(order):
        return NEVER, 0  # no end helps, so nothing is reserved and everybody may pass
    gone_by = int(end[at])
    return gone_by, int(total[int(end.searchsorted(gone_by, side="right")) - 1]) - missing


def _find_start_short(ends: list[int], gains: list[int], missing: int) -> tuple[int, int]:
    """The same, one end after the other."""
    gone_by = NEVER
    for end, gain in sorted(zip(ends, gains, strict=True)):
        # Past the instant at which enough is free: what ends later leaves nothing beside the head then.
        if end > gone_by:
            break
        missing -= gain
        if missing <= 0:
            gone_by = min(gone_by, end)
    return (NEVER, 0) if gone_by == NEVER else (gone_by, -missing)

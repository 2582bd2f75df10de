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
    """Whether this walk is exact here: one form, no wish about places, no ceilings, windows or devices."""
    # Each of these brings in something that a sum over the cluster cannot see: another shape, a ceiling of some, a time
    # or a place for some, promises, or more than one start ahead.
    if len(snapshot.forms) != 1 or snapshot.hints.limited:
        return False
    if snapshot.windows or snapshot.group_forms or snapshot.judged:
        return False
    if policy.keep or policy.shares_users or policy.fill != "arrival" or policy.reservations + policy.stops != 1:
        return False
    return _find_ground(snapshot.fleet, snapshot.forms[0], snapshot.nodes.in_service).exact


def _find_ground(fleet: Fleet, form: Form, usable: BoolArray) -> _Ground:
    """What a form means on these nodes. Remembered for as long as the same nodes are in service.

    Compared by identity: the columns of a snapshot are read-only, and other nodes in service are another array.
    """
    found = fleet.needs.get("ground")
    if not isinstance(found, _Ground) or found.form is not form or found.usable is not usable:
        role = form.roles[0]
        need = find_need(fleet, role.shape)
        mask = need.allowed & usable
        plain = form.open_size and role.require < 0 and role.prefer < 0 and role.segment_size <= 1
        exact = plain and need.missing is None and len(need.columns) == 1
        # One kind, and no other on the nodes: else places of equal room differ by
        # what they leave of the rest (rule 15).
        exact = exact and not (need.unasked or need.share or need.whole)
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
            self._start(int(rows[head]), size, self.now)
            head += 1
        room = self.room
        # Everybody started, or nobody may pass the first who did not (fcfs).
        if head == len(rows) or not policy.reservations:
            return True
        if len(rows) <= SHORT:
            behind = [at for at in range(head + 1, len(rows)) if first[at] <= room]
        else:
            behind = ((sizes[head + 1 :] <= room).nonzero()[0] + (head + 1)).tolist()
        # Nobody small enough is left: when the head starts is then nobody's question, but the ledger's.
        if behind or (ledger and room):
            asked = [first[at] for at in behind] if len(rows) <= SHORT else sizes[behind].tolist()
            return self._fill(int(sizes[head]), rows[behind], asked, room)
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

    def _start(self, row: int, size: int, slots: IntArray, first: IntArray | None = None) -> Seats:
        """Seat one gang in these slots, in the `first` ones before any other."""
        if self._alone:
            seats = self._sit_alone(size)
        else:
            nodes, counts = self._choose(size, slots, self._free, first)
            if not self.binds:
                self._free = self._free.copy()  # until now it was the view's
            self.now[nodes] -= counts
            self._free[nodes] -= counts * self.need.amounts[0]
            seats = (Seats(0, nodes, counts, self._no_devices(len(nodes)), size),)
        self.room -= size
        self.binds.append(Bind(int(self.pending.gang[row]), seats, int(self.pending.length_us[row])))
        return seats[0]

    def _sit_alone(self, size: int) -> tuple[Seats, ...]:
        # Seats are values and nobody writes to them, so that all gangs of one size may share them.
        seats = self._ground.seats_by_size.get(size)
        if seats is None:
            nodes, counts = np.zeros(1, dtype=np.int64), np.array([size])
            seats = self._ground.seats_by_size[size] = (Seats(0, nodes, counts, self._no_devices(1), size),)
        return seats

    def _no_devices(self, nodes: int) -> MilliArray:
        return np.zeros((nodes, self.snapshot.nodes.device_free.shape[1]), dtype=np.int16)

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

    def _fill(self, head: int, rows: IntArray, sizes: list[int], room: int) -> bool:
        """Let those pass who end by the head's start, or fit beside it then; False if somebody may be its guest."""
        # EASY's two numbers: the shadow time, and the extra slots that are left beside the head then.
        gone_by, extra = find_start(*self._ends_in_all(), head - room)
        now_us = self.snapshot.now_us
        lengths, proven = self.pending.length_us[rows].tolist(), self.pending.proven[rows].tolist()
        gone = [now_us + length if sure else NEVER for length, sure in zip(lengths, proven, strict=True)]
        if self.snapshot.hints.has_reclaimable and self._might_be_guest(rows, gone, gone_by):
            return False
        # By the sums as they are before anybody fills: both only shrink below, so that nobody who may pass is left out.
        passing = [each for each, size in enumerate(sizes) if gone[each] <= gone_by or size <= extra]
        self.reserved = max(0, room - extra) if gone_by != NEVER else 0
        if not passing:
            return True
        many = not self._alone and gone_by != NEVER
        # Places matter only if somebody passes, and only where there are several nodes.
        left = self._left_by_head(head, gone_by) if many else None
        for each in passing:
            size, long = sizes[each], gone[each] > gone_by
            if size > room or (long and size > extra):
                continue
            # One node has no places to choose between; else the reserved ones are for those who end in time.
            kept = self.now if left is None else np.minimum(self.now, left)
            idle = None if left is None or long else self.now - kept
            seats = self._start(int(rows[each]), size, kept if long else self.now, idle)
            room -= size
            # Whoever is gone in time gives its slots back before the head comes; only
            # who stays uses up what is beside it.
            if long:
                extra -= size
            if long and left is not None:
                left[seats.nodes] -= seats.counts
        self.reserved = max(0, room - extra) if gone_by != NEVER else 0
        return True

    def _might_be_guest(self, rows: IntArray, gone: list[int], gone_by: int) -> bool:
        """Whether any of those who would stay too long can be made to leave: where it sits is no matter of sums."""
        gangs = self.snapshot.gangs
        numbers = zip(self.pending.gang[rows].tolist(), gone, strict=True)
        return any(gone_us > gone_by and gangs[number].preemptible for number, gone_us in numbers)

    def _ends_in_all(self) -> tuple[IntArray, IntArray | Int32Array]:
        """Instant and slots of everything that runs or has just been started, wherever it is."""
        snapshot = self.snapshot
        if snapshot.hints.has_reclaimable or not self._everywhere:
            return self._ends()[1:]
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
        if not self._everywhere:
            gain *= self._ground.mask[node]
        if not self.binds:
            return node, end, gain
        seats = [bind.seats[0] for bind in self.binds]
        ends = [np.full(len(bind.seats[0].nodes), snapshot.now_us + bind.length_us) for bind in self.binds]
        return (
            np.concatenate([node, *(each.nodes for each in seats)]),
            np.concatenate([end, *ends]),
            np.concatenate([gain, *(each.counts for each in seats)]),
        )

    def _left_by_head(self, head: int, gone_by: int) -> IntArray:
        """Slots of each node at the head's start, beside the places it will take: busy ones before idle ones."""
        node, end, gain = self._ends()
        gone = end <= gone_by
        busy = np.bincount(node[gone], weights=gain[gone], minlength=len(self.now)).astype(np.int64)
        then = self.now + busy
        free = self._free + busy * self.need.amounts[0]
        nodes, counts = self._choose(head, then, free, busy)
        then[nodes] -= counts
        return then


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

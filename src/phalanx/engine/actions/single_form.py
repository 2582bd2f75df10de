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
from phalanx.engine.kernels.fill import SlotRoom, choose_nodes
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.policy import Policy
from phalanx.engine.prefilter import waiting_rows
from phalanx.engine.room.view import NOBODY, View, find_need
from phalanx.engine.session import empty_ceiling
from phalanx.model.fleet import BoolArray, Fleet, IntArray
from phalanx.model.form import RoleForm
from phalanx.model.plan import Bind, Idle, Seats
from phalanx.model.snapshot import Snapshot

#: Up to so many, plain numbers are quicker than arrays. Half of the walks of KTH-SP2 see at most six
#: waiting and ten running gangs, and an operation on an array costs a microsecond however short it is.
SHORT = 64


def is_single_form(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether this walk is exact here: one form, no wish about places, no ceilings, windows or devices."""
    if len(snapshot.forms) != 1 or snapshot.hints.limited:
        return False
    if snapshot.windows or snapshot.group_forms or snapshot.judged:
        return False
    if policy.keep or policy.shares_users or policy.fill != "arrival" or policy.reservations + policy.stops != 1:
        return False
    form = snapshot.forms[0]
    role = form.roles[0]
    if not form.open_size or role.require >= 0 or role.prefer >= 0 or role.segment_size > 1:
        return False
    need = find_need(snapshot.fleet, role.shape)
    return need.missing is None and len(need.columns) == 1 and not (need.unasked or need.share or need.whole)


def _where_usable(fleet: Fleet, need: Need, usable: BoolArray) -> tuple[BoolArray, bool]:
    """Nodes that count, and whether all do. Remembered for as long as the same nodes are in service.

    Compared by identity: the columns of a snapshot are read-only, and other nodes in service are another array.
    """
    found = fleet.needs.get("usable")
    if not isinstance(found, _Usable) or found.need is not need or found.usable is not usable:
        mask = need.allowed & usable
        found = _Usable(need, usable, mask, bool(mask.all()))
        fleet.needs["usable"] = found
    return found.mask, found.everywhere


@dataclass(frozen=True, slots=True, eq=False)
class _Usable:
    need: Need
    usable: BoolArray
    mask: BoolArray
    everywhere: bool


class SingleFormWalk:
    """One walk; `binds` is what starts."""

    def __init__(self, snapshot: Snapshot, view: View) -> None:
        """Count the slots; nobody has started yet."""
        self.snapshot, self.pending = snapshot, snapshot.pending
        self.role: RoleForm = snapshot.forms[0].roles[0]
        self.need = find_need(snapshot.fleet, self.role.shape)
        self._usable = view.usable_by_exempt[NOBODY]
        self._mask, self._everywhere = _where_usable(snapshot.fleet, self.need, self._usable)
        # Counted here, not asked of the view: that would keep a row up to date that nobody asks for again.
        self._free = view.free[:, self.need.columns[0]]  # units, of which slots are the whole multiples
        self.now = self._free // self.need.amounts[0]  # slots of each node
        if not self._everywhere:
            self.now *= self._mask
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
        if self.snapshot.hints.has_elastic and bool(pending.elastic[rows].any()):
            return False
        if int(np.maximum.reduce(sizes)) > self._most():
            return False
        first = sizes[:SHORT].tolist()
        head = 0
        while head < len(rows) and (size := first[head] if head < SHORT else int(sizes[head])) <= self.room:
            self._start(int(rows[head]), size, self.now)
            head += 1
        room = self.room
        if head == len(rows) or not policy.reservations:
            return True
        if len(rows) <= SHORT:
            behind = [at for at in range(head + 1, len(rows)) if first[at] <= room]
        else:
            behind = ((sizes[head + 1 :] <= room).nonzero()[0] + (head + 1)).tolist()
        if behind or (ledger and room):
            asked = [first[at] for at in behind] if len(rows) <= SHORT else sizes[behind].tolist()
            return self._fill(int(sizes[head]), rows[behind], asked, room)
        return True

    def measure_idle(self) -> Idle:
        """What is kept for the head, and whether somebody waits whom the free amounts would hold in one piece."""
        # On one node whatever is free is in one piece.
        free = self._free if self._everywhere else self._free[self._mask]
        whole = int(np.add.reduce(free)) // self.need.amounts[0] if len(free) > 1 else self.room
        waiting: list[int] = waiting_rows(self.snapshot).tolist() if whole > self.room else []
        started = {bind.gang for bind in self.binds}
        fragmented = any(
            self.room < int(self.pending.size[row]) <= whole
            for row in waiting
            if int(self.pending.gang[row]) not in started
        )
        return Idle(self.need.vector * self.reserved, fragmented)

    def _most(self) -> int:
        return empty_ceiling(self.snapshot.fleet, self.snapshot.forms[0], self._usable)

    def _start(self, row: int, size: int, slots: IntArray, first: IntArray | None = None) -> Seats:
        """Seat one gang in these slots, in the `first` ones before any other."""
        if len(slots) == 1:
            # One node: nothing to choose, and two subtractions instead of five steps over arrays of one.
            nodes, counts = np.zeros(1, dtype=np.int64), np.array([size])
            self.now, self._free = self.now - size, self._free - size * self.need.amounts[0]
        else:
            nodes, counts = self._choose(size, slots, self._free, first)
            if not self.binds:
                self._free = self._free.copy()  # until now it was the view's
            self.now[nodes] -= counts
            self._free[nodes] -= counts * self.need.amounts[0]
        self.room -= size
        devices = np.zeros((len(nodes), self.snapshot.nodes.device_free.shape[1]), dtype=np.int16)
        seats = Seats(0, nodes, counts, devices, size)
        self.binds.append(Bind(int(self.pending.gang[row]), (seats,), int(self.pending.length_us[row])))
        return seats

    def _choose(self, size: int, slots: IntArray, free: IntArray, first: IntArray | None) -> tuple[IntArray, IntArray]:
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
        gone_by, extra = find_start(*self._ends_in_all(), head - room)
        now_us = self.snapshot.now_us
        lengths, proven = self.pending.length_us[rows].tolist(), self.pending.proven[rows].tolist()
        gone = [now_us + length if sure else NEVER for length, sure in zip(lengths, proven, strict=True)]
        if self.snapshot.hints.has_reclaimable and self._might_be_guest(rows, gone, gone_by):
            return False
        passing = [each for each, size in enumerate(sizes) if gone[each] <= gone_by or size <= extra]
        self.reserved = max(0, room - extra) if gone_by != NEVER else 0
        if not passing:
            return True
        many = len(self.now) > 1 and gone_by != NEVER
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

    def _ends_in_all(self) -> tuple[IntArray, IntArray]:
        """Instant and slots of everything that runs or has just been started, wherever it is."""
        snapshot = self.snapshot
        if snapshot.hints.has_reclaimable or not self._everywhere:
            _, end, gain = self._ends()
            return end, gain
        # Every slot counts, and nobody can have been made to give any back: a gang is its members.
        running = snapshot.running
        rows = running.alive.nonzero()[0]
        gain = running.members[rows].astype(np.int64)
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
            gain *= self._mask[node]
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


def find_start(end: IntArray, gain: IntArray, missing: int) -> tuple[int, int]:
    """When ends have given back what is missing, and how much more they have given by then."""
    if len(end) <= SHORT:
        return _find_start_short(end.tolist(), gain.tolist(), missing)
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
        if end > gone_by:
            break
        missing -= gain
        if missing <= 0:
            gone_by = min(gone_by, end)
    return (NEVER, 0) if gone_by == NEVER else (gone_by, -missing)

"""The walk where sums decide: everybody asks one and the same placement key about the whole cluster.

Then a slot is a slot: whoever starts takes as many as it has members and gives as many back, on any
node, so the head's start and what it leaves beside itself are running sums over ends, and a filler
needs two comparisons. Places are still chosen by the one rule, over slots instead of free amounts.
Logs of one machine are like that, and they have hundreds of thousands of jobs.

`engine.actions.allocate` is the walk for everything else; tests hold the two to the same plans.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.ends import expected_ends
from phalanx.engine.kernels.fill import Room, choose_nodes
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.policy import Policy
from phalanx.engine.prefilter import waiting_rows
from phalanx.engine.room.view import NOBODY, View, find_need
from phalanx.engine.session import empty_ceiling
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import RoleForm
from phalanx.model.plan import Bind, Idle, Seats
from phalanx.model.snapshot import Snapshot


def is_single_form(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether this walk is exact here: one form, no wish about places, no ceilings, windows or devices."""
    if len(snapshot.forms) != 1 or snapshot.limited or snapshot.windows or snapshot.group_forms or snapshot.judged:
        return False
    if policy.keep or policy.shares_users or policy.fill != "arrival" or policy.reservations + policy.stops != 1:
        return False
    form = snapshot.forms[0]
    role = form.roles[0]
    if not form.open_size or role.require >= 0 or role.prefer >= 0 or role.segment_size > 1:
        return False
    need = find_need(snapshot.fleet, role.shape)
    return need.missing is None and len(need.columns) == 1 and not (need.unasked or need.share or need.whole)


class SingleFormWalk:
    """One walk; `binds` is what starts."""

    def __init__(self, snapshot: Snapshot, view: View) -> None:
        """Count the slots; nobody has started yet."""
        self.snapshot, self.pending = snapshot, snapshot.pending
        self.role: RoleForm = snapshot.forms[0].roles[0]
        self.row = view.slots(self.role.shape)
        self._usable = view.usable_by_exempt[NOBODY]
        self.now = self.row.slots  # of each node
        self._free = view.free[:, self.row.need.columns[0]]  # units, of which slots are the whole multiples
        self.room = self.row.total  # slots left in all
        self.binds: list[Bind] = []
        self.reserved = 0  # slots that are free and that the head will need, if anybody asked

    def run(self, policy: Policy, *, ledger: bool = False) -> bool:
        """Start whoever may; False if somebody asks what only the general walk answers."""
        pending = self.pending
        rows = policy.order(self.snapshot, waiting_rows(self.snapshot))
        if not len(rows):
            return True
        sizes = pending.size[rows]
        if (self.snapshot.molding and pending.elastic[rows].any()) or int(sizes.max()) > self._most():
            return False
        filled = sizes.cumsum()
        head = int(filled.searchsorted(self.row.total, side="right"))
        for at in range(head):
            self._start(int(rows[at]), int(sizes[at]), self.now)
        if head < len(rows) and policy.reservations:
            room = self.row.total - (int(filled[head - 1]) if head else 0)
            behind = (sizes[head + 1 :] <= room).nonzero()[0] + (head + 1)
            if len(behind) or (ledger and room):
                return self._fill(int(sizes[head]), rows[behind], sizes[behind], room)
        return True

    def measure_idle(self) -> Idle:
        """What is kept for the head, and whether somebody waits whom the free amounts would hold in one piece."""
        amount = self.row.need.amounts[0]
        whole = int(self._free[self.row.mask].sum()) // amount
        waiting: list[int] = waiting_rows(self.snapshot).tolist() if whole > self.room else []
        started = {bind.gang for bind in self.binds}
        fragmented = any(
            self.room < int(self.pending.size[row]) <= whole
            for row in waiting
            if int(self.pending.gang[row]) not in started
        )
        return Idle(self.row.need.vector * self.reserved, fragmented)

    def _most(self) -> int:
        return empty_ceiling(self.snapshot.fleet, self.snapshot.forms[0], self._usable)

    def _start(self, row: int, size: int, slots: IntArray, first: IntArray | None = None) -> Seats:
        """Seat one gang in these slots, in the `first` ones before any other."""
        nodes, counts = self._choose(size, slots, self._free, first)
        if not self.binds:
            self.now, self._free = self.now.copy(), self._free.copy()  # until now they were the view's
        self.now[nodes] -= counts
        self.room -= size
        self._free[nodes] -= counts * self.row.need.amounts[0]
        devices = np.zeros((len(nodes), self.snapshot.nodes.device_free.shape[1]), dtype=np.int16)
        seats = Seats(0, nodes, counts, devices, size)
        self.binds.append(Bind(int(self.pending.gang[row]), (seats,), int(self.pending.length_us[row])))
        return seats

    def _choose(self, size: int, slots: IntArray, free: IntArray, first: IntArray | None) -> tuple[IntArray, IntArray]:
        walked = None if first is None else self._walked(first)
        room = Room(self.snapshot.fleet, self._walked(slots), [], [self._walked(free)], walked)
        chosen = choose_nodes(room, self.role, size)
        assert chosen is not None, "the sums promised a place"
        return chosen

    def _walked(self, slots: IntArray) -> IntArray:
        fleet = self.snapshot.fleet
        return slots if fleet.walk_trivial else slots[fleet.walk]

    def _fill(self, head: int, rows: IntArray, sizes: IntArray, room: int) -> bool:
        """Let those pass who end by the head's start, or fit beside it then; False if somebody may be its guest."""
        node, end, gain = self._ends()
        gone_by, extra = _find_start(end, gain, head - room)
        now_us = self.snapshot.now_us
        gone = np.where(self.pending.proven[rows], now_us + self.pending.length_us[rows], NEVER)
        if self.snapshot.soft and self._might_be_guest(rows[gone > gone_by]):
            return False
        passing = ((gone <= gone_by) | (sizes <= extra)).nonzero()[0].tolist()
        self.reserved = max(0, room - extra) if gone_by != NEVER else 0
        if not passing:
            return True
        many = len(self.now) > 1 and gone_by != NEVER
        left = self._left_by_head(head, node, gain, end <= gone_by) if many else None
        for each in passing:
            size, long = int(sizes[each]), int(gone[each]) > gone_by
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

    def _might_be_guest(self, rows: IntArray) -> bool:
        """Whether any of those who would stay too long can be made to leave: where it sits is no matter of sums."""
        gangs = self.snapshot.gangs
        return any(gangs[number].preemptible for number in self.pending.gang[rows].tolist())

    def _ends(self) -> tuple[IntArray, IntArray, IntArray]:
        """Node, instant and slots of everything that runs or has just been started."""
        snapshot = self.snapshot
        table = snapshot.allocations
        rows = table.alive.nonzero()[0]
        node, gain = table.node[rows], table.count[rows].astype(np.int64)
        end = expected_ends(snapshot.running, snapshot.now_us)[table.running[rows]]
        if not self.row.mask.all():
            gain *= self.row.mask[node]
        if not self.binds:
            return node, end, gain
        seats = [bind.seats[0] for bind in self.binds]
        ends = [np.full(len(bind.seats[0].nodes), snapshot.now_us + bind.length_us) for bind in self.binds]
        return (
            np.concatenate([node, *(each.nodes for each in seats)]),
            np.concatenate([end, *ends]),
            np.concatenate([gain, *(each.counts for each in seats)]),
        )

    def _left_by_head(self, head: int, node: IntArray, gain: IntArray, gone: BoolArray) -> IntArray:
        """Slots of each node at the head's start, beside the places it will take: busy ones before idle ones."""
        busy = np.bincount(node[gone], weights=gain[gone], minlength=len(self.now)).astype(np.int64)
        then = self.now + busy
        free = self._free + busy * self.row.need.amounts[0]
        nodes, counts = self._choose(head, then, free, busy)
        then[nodes] -= counts
        return then


def _find_start(end: IntArray, gain: IntArray, missing: int) -> tuple[int, int]:
    """When ends have given back what is missing, and how much more they have given by then."""
    order = end.argsort(kind="stable")
    end, total = end[order], gain[order].cumsum()
    at = int(total.searchsorted(missing))
    if at == len(order):
        return NEVER, 0  # no end helps, so nothing is reserved and everybody may pass
    gone_by = int(end[at])
    return gone_by, int(total[int(end.searchsorted(gone_by, side="right")) - 1]) - missing

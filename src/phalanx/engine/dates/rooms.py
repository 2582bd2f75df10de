"""Nodes of a pool over time, as promised dates find them.

Counted as taken: what runs rigid, until its stated end; the least of what runs elastic, until its end at that size,
since only surplus can be called back. What nobody stated an end of stays for ever (rule 7).
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.dates.demands import is_proven, is_resizable, running_demand
from phalanx.engine.dates.filling import RoomOverTime
from phalanx.engine.ends import expected_ends
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.order.orders import overhead_us
from phalanx.engine.policy import Policy
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.plan import DateVerdict
from phalanx.model.snapshot import Snapshot


class RoomReader:
    """Reads pools, and knows who has a promise in the snapshot."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        """Before any room is read: who is counted by its date may not depend on who came first."""
        self.snapshot, self.policy, self.now = snapshot, policy, snapshot.now_us
        self.ends = expected_ends(snapshot.running, self.now)
        running, pending = snapshot.running, snapshot.pending
        rows = running.alive & (running.gang >= 0)
        # The longest of anybody's, since nobody knows yet who will have to give: a promise may not hang on its being
        # one who leaves quickly. Of those who still wait as well: what was counted without them would be late by them.
        present = (*running.gang[rows & running.elastic].tolist(), *pending.gang[pending.alive].tolist())
        self.wait_us = max((snapshot.gangs[n].resize_pause_us for n in present if snapshot.gangs[n].elastic), default=0)
        seated = {int(running.gang[row]): row for row in rows.nonzero()[0].tolist()}
        dated = (pending.alive & (pending.deadline_us >= 0)).nonzero()[0]
        waiting = {int(pending.gang[row]): row for row in dated.tolist()}
        # More than are counted by their dates: a rigid gang that runs is promised too, and is counted by its seats.
        # People are told this number.
        self.promised = sum(self.is_promised(number) for number in (*seated, *waiting))
        self.waiting = {n: row for n, row in waiting.items() if self.is_promised(n)}
        self.flexible = {n: row for n, row in seated.items() if self.is_promised(n) and is_resizable(snapshot, n)}
        asking = [n for n in waiting if n not in snapshot.dates or self.is_promised(n)]
        gangs = [snapshot.gangs[number] for number in (*self.flexible, *asking)]
        # By queue and priority, as rule 8 has it: surplus may count as room only for one who could call it back.
        self._claims = {(gang.queue, gang.priority) for gang in gangs}

    def is_promised(self, number: int) -> bool:
        """Whether a gang's date was promised before this cycle."""
        verdict: DateVerdict | None = self.snapshot.dates.get(number)
        return verdict is not None and verdict.promised

    def read(self, mask: BoolArray) -> RoomOverTime:
        """The nodes of a pool over time, without what is taken by those who have no promise and run elastic."""
        snapshot, fleet = self.snapshot, self.snapshot.fleet
        # From the capacity down and not from what is free up: promised gangs that may change size are left out here,
        # and filled in by what their dates need instead of by what they have.
        room = RoomOverTime(self.now, fleet.capacity[mask].sum(axis=0), snapshot.nodes.free[mask].sum(axis=0))
        running = snapshot.running
        for number in running.gang[running.alive & (running.gang >= 0)].tolist():
            if number not in self.flexible:
                for units, end_us in self.taken_by(number, mask):
                    room.take(units, self.now, end_us)
        table = snapshot.allocations
        # Gang -1: seats that only wait for their last user to go. Of those who shrink that is soon, and whoever takes
        # more than is idle waits so long in any case: counted as taken until then, they would go to somebody else for
        # a moment, and the one for whom they were given back would have to call for them again and again.
        leaving = running.alive & (running.gang < 0) & (self.ends > self.now + self.wait_us)
        for row in leaving.nonzero()[0].tolist():
            held = table.alive & (table.running == row)
            held[held] = mask[table.node[held]]
            room.take(table.taken[held].sum(axis=0), self.now, int(self.ends[row]))
        for window in snapshot.windows:
            nodes = [fleet.index_by_name[name] for name in window.nodes if name in fleet.index_by_name]
            # All of a node, also where somebody sits on it who is counted already: counted twice, a promise is refused
            # that could be kept, and none is given that could not.
            inside = [node for node in nodes if mask[node]]
            room.take(fleet.capacity[inside].sum(axis=0), window.start_us, window.end_us)
        return room

    def taken_by(self, number: int, mask: BoolArray) -> list[tuple[IntArray, int]]:
        """What a running gang without a promised size takes of a pool, and until when."""
        snapshot, running, table = self.snapshot, self.snapshot.running, self.snapshot.allocations
        row = int((running.alive & (running.gang == number)).nonzero()[0][0])
        held = table.alive & (table.running == row)
        held[held] = mask[table.node[held]]
        units = table.taken[held].sum(axis=0)
        if not units.any():
            return []
        gang = snapshot.gangs[number]
        if is_resizable(snapshot, number) and self._callable(row):
            demand = running_demand(snapshot, row, int(self.ends[row]))
            end_us = self.now + demand.least_us() if is_proven(snapshot, number) else NEVER
            # Part of its seats may lie outside this pool, and it is charged here with no more than it has here.
            return [(np.minimum(units, demand.units(demand.sizes[0])), end_us)]
        # Start-up comes on top of what is stated (decision 7); a length that was worked out anew has it behind it.
        extra_us = overhead_us(gang, ran_before=bool(running.attained_us[row] > 0))
        end_us = int(self.ends[row]) + extra_us if is_proven(snapshot, number) else NEVER
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

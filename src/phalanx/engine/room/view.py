"""Free room at one instant, or throughout a stretch of time, with what has been worked out about it.

A view owns copies of the free columns and answers "how many members of this shape fit" per node,
per domain and in all. Answers are cached per shape and brought up to date lazily: a view keeps a
log of the nodes that changed, and a shape's row re-reads only those when it is next asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from phalanx.engine.kernels.cuts import cut_slots
from phalanx.engine.kernels.devices import choose_devices
from phalanx.engine.kernels.slots import Need, compile_need, compute_slots
from phalanx.model.fleet import BoolArray, Fleet, IntArray, MilliArray
from phalanx.model.gang import Shape
from phalanx.model.plan import Seats
from phalanx.model.rules import Presence

# A reservation by an administrator is a window that some are exempt from; maintenance exempts nobody.
Exempt = frozenset[int]  # windows that do not bind the asking gang
NOBODY: Exempt = frozenset()


@dataclass(slots=True, eq=False)
class SlotRow:
    """What a view knows about one shape."""

    need: Need
    mask: BoolArray
    slots: IntArray  # per node, 0 where not allowed or out of service
    total: int
    seen: int  # how much of the view's log is in it
    sums: dict[int, IntArray] = field(default_factory=dict)  # per level, in the fleet's run order


class View:
    """Room that may be taken and given back."""

    def __init__(
        self,
        fleet: Fleet,
        free: IntArray,
        device_free: MilliArray,
        *,
        shared: bool,
        usable: BoolArray,
        presence: Presence | None = None,
    ) -> None:
        """Read `free`, `device_free` and `presence`, and copy them before the first change.

        `presence`: who is where, for rules about others; None: nobody asks, or of others nothing is known.
        """
        self.fleet = fleet
        self.free = free
        self.device_free = device_free
        self.shared = shared
        self.usable_by_exempt: dict[Exempt, BoolArray] = {NOBODY: usable}
        self.presence = presence
        self._rows: dict[tuple[Shape, Exempt], SlotRow] = {}
        self._log: list[IntArray] = []
        # Copied before the first write and not at once: a view that is only asked costs no copy.
        self._owned = False
        self._knows_own = False  # whether the presence is a copy
        self._tried: list[tuple[Need, Seats, int]] | None = None  # taken since an attempt began

    @contextmanager
    def attempt(self) -> Iterator[Callable[[], None]]:
        """Take and give back at will: unless the block calls what it is given, all of it is undone at its end."""
        assert self._tried is None, "one attempt at a time"
        tried: list[tuple[Need, Seats, int]] = []
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True

        self._tried = tried
        try:
            yield keep
        finally:
            self._tried = None
            for need, seats, sign in () if kept else reversed(tried):
                self.take_seats(need, seats, -sign)

    def slots(self, shape: Shape, exempt: Exempt = NOBODY) -> SlotRow:
        """The row of a shape, up to date."""
        row = self._rows.get((shape, exempt))
        if row is None:
            return self._new_row(shape, exempt)
        # Between two questions a walk changes a handful of nodes; working the row out anew would touch all of them.
        if row.seen < len(self._log):
            self._refresh(row)
        return row

    def _new_row(self, shape: Shape, exempt: Exempt) -> SlotRow:
        need = find_need(self.fleet, shape)
        mask = need.allowed & self.usable_by_exempt[exempt]
        slots = compute_slots(need, self.free, self.device_free, self.fleet.device_column, shared=self.shared)
        # Cordons, taints and windows as zeros, so that sums need not know of them.
        slots *= mask
        # Last: a share of a domain is of what is left there once labels, taints and windows have spoken.
        if need.social:
            slots = cut_slots(self.fleet, shape, slots, self.presence)
        row = SlotRow(need, mask, slots, int(np.add.reduce(slots)), len(self._log))
        self._rows[shape, exempt] = row
        return row

    def _refresh(self, row: SlotRow) -> None:
        if row.need.social:
            # A member anywhere may close a whole domain, or open one.
            self._recount(row)
            return
        changed = self._log[row.seen :]
        # Without duplicates: a node that changed twice must be counted once in the total.
        nodes = changed[0] if len(changed) == 1 else np.unique(np.concatenate(changed))
        fresh = compute_slots(
            row.need, self.free[nodes], self.device_free[nodes], self.fleet.device_column, shared=self.shared
        )
        fresh = fresh * row.mask[nodes]
        # The total by its difference; sums by domain are worked out anew when somebody asks for them.
        row.total += int((fresh - row.slots[nodes]).sum())
        row.slots[nodes] = fresh
        row.sums.clear()
        row.seen = len(self._log)

    def _recount(self, row: SlotRow) -> None:
        # All nodes, where others need only those that changed: some microseconds for those who ask about others, and
        # no bookkeeping of who shares a domain with whom for anybody else.
        row.slots = cut_slots(self.fleet, row.need.shape, self.count_uncut(row.need, row.mask), self.presence)
        row.total = int(np.add.reduce(row.slots))
        row.sums.clear()
        row.seen = len(self._log)

    def count_uncut(self, need: Need, mask: BoolArray) -> IntArray:
        """Slots by room alone, whatever rules about others say."""
        slots = compute_slots(need, self.free, self.device_free, self.fleet.device_column, shared=self.shared)
        slots *= mask
        return slots

    def forget(self) -> None:
        """Other nodes are usable than before."""
        # The masks are inside the rows, so that bringing them up to date by the log would not do.
        self._rows.clear()

    def domain_sums(self, row: SlotRow, level: int) -> IntArray:
        """Slots per domain of a level, in the fleet's run order."""
        found = row.sums.get(level)
        if found is None:
            walked = row.slots if self.fleet.walk_trivial else row.slots[self.fleet.walk]
            # A domain is one run of the walk order: one sum per run, without looking at any node's labels.
            found = np.add.reduceat(walked, self.fleet.run_starts[level]) if len(walked) else walked
            row.sums[level] = found
        return found

    def take(self, need: Need, nodes: IntArray, counts: IntArray) -> MilliArray:
        """Seat members on nodes; the answer is which devices they got."""
        if not self._owned:
            self._own()
        if need.share or need.whole:
            devices = choose_devices(self.fleet, need, nodes, counts, self.device_free[nodes])
            self.device_free[nodes] -= devices
        else:
            devices = np.zeros((len(nodes), self.device_free.shape[1]), dtype=np.int16)
        # Amounts and devices are two accounts of one thing: whoever changes one changes the other.
        self.free[nodes] -= counts[:, None] * need.vector
        if need.marks:
            self._mark(need, nodes, counts)
        self._log.append(nodes)
        if self._tried is not None:
            self._tried.append((need, Seats(0, nodes, counts, devices), 1))
        return devices

    def take_seats(self, need: Need, seats: Seats, sign: int = 1) -> None:
        """Take seats whose devices are chosen already, or with sign -1 give them back."""
        if not self._owned:
            self._own()
        if need.share or need.whole:
            self.device_free[seats.nodes] -= seats.devices * np.int16(sign)
        self.free[seats.nodes] -= sign * seats.counts[:, None] * need.vector
        if need.marks:
            self._mark(need, seats.nodes, sign * seats.counts)
        self._log.append(seats.nodes)
        if self._tried is not None:
            self._tried.append((need, seats, sign))

    def overwrite(self, nodes: IntArray, free: IntArray, device_free: MilliArray) -> None:
        """Set the room of some nodes."""
        if not self._owned:
            self._own()
        self.free[nodes] = free
        self.device_free[nodes] = device_free
        self._log.append(nodes)

    def _mark(self, need: Need, nodes: IntArray, counts: IntArray) -> None:
        """A third account, of who is where, kept only where anybody asks."""
        # Nobody else is known of, as in an empty cluster: then what is placed here is not noted either, and a gang
        # is judged by what it asks of its own members alone.
        if self.presence is None:
            return
        # Views of one instant begin with one table; the first to write goes its own way.
        if not self._knows_own:
            self.presence, self._knows_own = self.presence.copy(), True
        self.presence.add(need.marks, nodes, counts)

    def look_anew(self, usable: BoolArray) -> View:
        """The same room through other masks, with nothing remembered."""
        return View(self.fleet, self.free, self.device_free, shared=self.shared, usable=usable, presence=self.presence)

    def know(self, presence: Presence | None) -> None:
        """Others are elsewhere than before; what is given belongs to somebody else."""
        self.presence, self._knows_own = presence, False

    def _own(self) -> None:
        self.free, self.device_free = self.free.copy(), self.device_free.copy()
        self._owned = True


def find_need(fleet: Fleet, shape: Shape) -> Need:
    """The shape over this fleet's kinds, worked out once per fleet."""
    # Kept by the fleet and not by the view: there are several views a cycle, and a new fleet has other columns.
    found = cast("Need | None", fleet.needs.get(shape))
    if found is None:
        found = fleet.needs[shape] = compile_need(fleet, shape)
    return found

"""Folds what happened into columns, and hands out snapshots of them.

The only writer of cluster state. Events and plans go in; a snapshot costs nothing until the next
write, which then copies the arrays once. Everything the engine remembers between cycles (promises,
who was told that it is infeasible) is kept here because the plan said so, never by the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.control.columns import Table
from phalanx.control.forms import Forms
from phalanx.control.records import (
    NOTHING,
    PENDING,
    RUNNING,
    ArrivalOrder,
    Group,
    LeastEnd,
    Record,
    allocation_columns,
    touches,
    widen_promise,
    widen_seats,
)
from phalanx.control.tenants import Tenants
from phalanx.engine.lifecycle import Happening, Phase, advance
from phalanx.engine.view import find_need
from phalanx.model.fleet import Fleet, Node
from phalanx.model.form import Form, form_at_sizes
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Plan, Reservation, Seats
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.reason import Code
from phalanx.model.snapshot import (
    AllocationColumns,
    NodeColumns,
    PendingColumns,
    RunningColumns,
    Snapshot,
)
from phalanx.model.window import Window

#: What planning assumes of a gang that states no walltime.
DEFAULT_WALLTIME_US = 24 * 3600 * 1_000_000


class State:
    """The cluster and everybody in it, now."""

    def __init__(
        self,
        fleet: Fleet,
        queues: Sequence[Queue] = (),
        users: Sequence[UserLimit] = (),
        windows: Sequence[Window] = (),
        default_walltime_us: int = DEFAULT_WALLTIME_US,
    ) -> None:
        """An empty cluster at time zero."""
        self.now_us = 0
        self.fleet = fleet
        self.free = fleet.capacity.copy()
        self.device_free = fleet.device_capacity.copy()
        self.up = np.ones(len(fleet), dtype=np.bool_)
        self.open = np.ones(len(fleet), dtype=np.bool_)
        self.closed = False  # whether any node is cordoned
        self.shared = False
        self.windows = tuple(windows)
        self.default_walltime_us = default_walltime_us
        self.tenants = Tenants(fleet, queues, users)
        self.pending = Table(PENDING)
        self.running = Table(RUNNING)
        self.allocations = Table(allocation_columns(self.fleet))
        self.gangs: list[Gang] = []
        self.records: list[Record] = []
        self.number_by_name: dict[str, int] = {}
        self.curves: dict[int, tuple[tuple[int, float], ...]] = {}
        self.forms = Forms()
        self.groups: list[Group] = []
        self._group_by_word: dict[str, int] = {}
        self.group_forms: dict[int, int] = {}
        self._dependents: dict[str, list[int]] = {}
        self._ended: dict[str, Phase] = {}
        self.promises: dict[int, Reservation] = {}
        self.judged: set[int] = set()
        self.fresh: set[int] = set()
        self._settled_upto = 0
        self._order = ArrivalOrder()
        self._frozen = False
        self._columns_at: tuple[int, ...] = ()
        self._node_columns: NodeColumns | None = None
        self._gated = self._molding = False
        self._room, self._ends = -1, LeastEnd()

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> Snapshot:
        """An immutable picture of now; the next write copies what it shares."""
        self.tenants.settle()
        self._frozen = True
        return self.borrow()

    def borrow(self) -> Snapshot:
        """The same without protection: good until the next write. For callers that let go of it before."""
        if self.tenants.limited:
            self.tenants.settle()
        if self._columns_at != (self.pending.version, self.running.version, self.allocations.version):
            self._make_columns()
        nodes = self._node_columns
        if nodes is None or nodes.free is not self.free or nodes.shared != self.shared or nodes.up is not self.up:
            in_service = self.up & self.open
            nodes = NodeColumns(self.free, self.device_free, self.shared, self.up, self.open, in_service)
            self._node_columns = nodes
        return Snapshot(
            now_us=self.now_us,
            fleet=self.fleet,
            nodes=nodes,
            forms=self.forms.forms,
            gangs=self.gangs,
            pending=self._pending_columns,
            running=self._running_columns,
            allocations=self._allocation_columns,
            queues=self.tenants.queue_columns,
            users=self.tenants.user_columns,
            windows=self.windows,
            group_forms=self.group_forms,
            curves=self.curves,
            promises=self.promises,
            judged=self.judged,
            fresh=self.fresh,
            gated=self._gated,
            molding=self._molding,
            limited=self.tenants.limited,
            in_order=self._order.kept,
            on_time=self._ends.on_time(self.now_us, self.running),
            room=self._room,
            settled_upto=self._settled_upto,
        )

    def _make_columns(self) -> None:
        self._pending_columns = PendingColumns(alive=self.pending.alive, **self.pending.columns)
        self._running_columns = RunningColumns(alive=self.running.alive, **self.running.columns)
        self._allocation_columns = AllocationColumns(alive=self.allocations.alive, **self.allocations.columns)
        self._columns_at = (self.pending.version, self.running.version, self.allocations.version)

    def _thaw(self) -> None:
        """Before a write: let go of the arrays that a snapshot shares."""
        if not self._frozen:
            return
        self.free, self.device_free = self.free.copy(), self.device_free.copy()
        self.up, self.open = self.up.copy(), self.open.copy()
        for table in (self.pending, self.running, self.allocations):
            table.copy()
        self.tenants.copy()
        self.gangs, self.forms.forms = list(self.gangs), list(self.forms.forms)
        self.group_forms, self.curves = dict(self.group_forms), dict(self.curves)
        self.promises, self.judged, self.fresh = dict(self.promises), set(self.judged), set(self.fresh)
        self._frozen = False

    # ------------------------------------------------------------------ gangs come

    def submit(self, gang: Gang, curve: tuple[tuple[int, float], ...] | None = None) -> int:
        """Take a gang in; the answer is its number, for life."""
        self._thaw()
        number = len(self.gangs)
        self.gangs.append(gang)
        self.number_by_name[gang.name] = number
        self.fresh.add(number)
        if curve is not None:
            self.curves[number] = curve
        queue, user = self.tenants.index_of(gang.queue, gang.user)
        record = Record(
            gang=gang,
            phase=Phase.PENDING,
            form=self._intern(self.forms.of_gang(self.fleet, gang)),
            queue=queue,
            user=user,
            eligible_us=max(self.now_us, gang.submit_us),
            row=-1,
            waits_for=NOTHING,
            held=gang.hold,
        )
        self.records.append(record)
        if gang.after.names:
            self._wait_for_dependencies(number, record)
        if gang.together is not None:
            self._join_group(number, record, gang.together.word, gang.together.gangs)
        self._queue_up(number, record)
        return number

    def _intern(self, form: Form) -> int:
        if self.forms.splits_devices(form) and not self.shared:
            self.shared = True
            self.promises = {}  # they were made without naming devices, which now matter
        return self.forms.number_of(form)

    def _wait_for_dependencies(self, number: int, record: Record) -> None:
        for name in record.gang.after.names:
            if name in self._ended:
                if self._ended[name] is not Phase.COMPLETED and not record.gang.after.any_end:
                    record.doomed_by = name
                continue
            record.waits_for = record.waits_for | {name}
            self._dependents.setdefault(name, []).append(number)

    def _join_group(self, number: int, record: Record, word: str, wanted: int) -> None:
        index = self._group_by_word.get(word, -1)
        if index < 0 or len(self.groups[index].gangs) >= self.groups[index].wanted:
            index = self._group_by_word[word] = len(self.groups)  # a word may be used again once its group is full
            self.groups.append(Group(word, wanted, []))
        group = self.groups[index]
        gone = [other for other in group.gangs if self.records[other].phase.ended and not self.records[other].attempts]
        if gone:
            record.doomed_by = self.gangs[gone[0]].name
        group.gangs.append(number)
        record.group = index
        if len(group.gangs) >= group.wanted and not gone:
            least = [(self.gangs[n], tuple(r.sizes.least for r in self.gangs[n].roles)) for n in group.gangs]
            group.form = self.group_forms[index] = self._intern(form_at_sizes(self.fleet, tuple(least)))

    def _queue_up(self, number: int, record: Record) -> None:
        """A row in the pending table, with the gate that keeps it from a turn, if any."""
        if self.pending.wants_compaction():
            self._compact_pending()
        gang, table = record.gang, self.pending
        self._order.note((gang.priority, record.eligible_us, number), alone=not len(table))
        row = table.add().start
        form = self.forms.forms[record.form]
        columns = table.columns
        columns["gang"][row] = number
        columns["form"][row] = record.form
        columns["size"][row] = gang.roles[0].sizes.least if form.open_size else 1
        columns["elastic"][row] = gang.elastic
        self._molding = self._molding or gang.elastic
        columns["queue"][row] = record.queue
        columns["user"][row] = record.user
        columns["priority"][row] = gang.priority
        columns["eligible_us"][row] = record.eligible_us
        columns["length_us"][row] = gang.walltime_us if gang.walltime_us is not None else self.default_walltime_us
        columns["proven"][row] = gang.walltime_us is not None
        columns["deadline_us"][row] = -1 if gang.deadline_us is None else gang.submit_us + gang.deadline_us
        columns["group"][row] = record.group if record.attempts == 0 else -1
        columns["gate"][row] = 0
        record.row = row
        if record.held or record.waits_for or record.group >= 0:
            self._set_gates(record)

    def _compact_pending(self) -> None:
        kept = self.pending.compact()
        for row, number in enumerate(self.pending.columns["gang"][: len(kept)].tolist()):
            self.records[number].row = row

    def _gate(self, record: Record) -> Code:
        if record.held:
            return Code.HELD
        if record.waits_for:
            return Code.DEPENDENCY_WAITING
        return Code.NONE

    def _set_gates(self, record: Record) -> None:
        """Gates of this gang, and of the gangs that start with it: one that is not ready holds back all."""
        self._settled_upto = 0
        self._gated = True
        self.fresh.add(self.number_by_name[record.gang.name])
        if record.group < 0 or record.attempts:
            self.pending.columns["gate"][record.row] = self._gate(record)
            return
        group = self.groups[record.group]
        waiting = [r for r in map(self.records.__getitem__, group.gangs) if r.phase is Phase.PENDING and not r.attempts]
        ready = group.form >= 0 and all(self._gate(other) is Code.NONE for other in waiting)
        for other in waiting:
            own = self._gate(other)
            self.fresh.add(self.number_by_name[other.gang.name])
            gate = own if own is not Code.NONE or ready else Code.GANG_INCOMPLETE
            if other.row >= 0:
                self.pending.columns["gate"][other.row] = gate

    # ------------------------------------------------------------------ plans

    def apply(self, plan: Plan) -> list[int]:
        """Fold a plan; the answer is the gangs that were cancelled because of it."""
        self._thaw()
        for decision in plan.decisions:
            assert isinstance(decision, Bind), "only starts are planned so far"
            self._bind(decision)
        self.promises = {promise.gangs[0]: promise for promise in plan.reservations}
        self._settled_upto, self._room = len(self.gangs) if plan.settled else 0, plan.room
        self.fresh = set()
        cancelled: list[int] = []
        for number in plan.infeasible:
            self.judged.add(number)
            cancelled += self._tell_dependents(self.gangs[number].name, succeeded=False)
        return cancelled

    def _bind(self, bind: Bind) -> None:
        record = self.records[bind.gang]
        gang = record.gang
        record.phase = advance(record.phase, Happening.BIND, gang.name)
        self.pending.remove(record.row)
        if self.running.wants_compaction():
            self._compact_running()
        row = self.running.add().start
        columns = self.running.columns
        columns["gang"][row] = bind.gang
        columns["queue"][row] = record.queue
        columns["user"][row] = record.user
        columns["priority"][row] = gang.priority
        columns["start_us"][row] = self.now_us
        columns["length_us"][row] = bind.length_us
        self._ends.note(self.now_us + bind.length_us)
        columns["members"][row] = bind.members
        columns["preemptible"][row] = gang.preemptible
        columns["guest"][row] = bind.guest
        columns["evictions"][row] = 0
        columns["cool_until_us"][row] = 0
        record.row, record.seats = row, bind.seats
        record.attempts += 1
        for seats in bind.seats:
            self._seat(record, row, seats)

    def _seat(self, record: Record, row: int, seats: Seats) -> None:
        if self.allocations.wants_compaction():
            self.allocations.compact()
        rows = self.allocations.add(len(seats.nodes))
        need = find_need(self.fleet, record.gang.roles[seats.role].shape)
        taken = seats.counts[:, None] * need.vector
        columns = self.allocations.columns
        columns["running"][rows] = row
        columns["role"][rows] = seats.role
        columns["node"][rows] = seats.nodes
        columns["count"][rows] = seats.counts
        columns["taken"][rows] = taken
        columns["devices"][rows] = seats.devices
        self.free[seats.nodes] -= taken
        if need.share or need.whole:
            self.device_free[seats.nodes] -= seats.devices
        self.tenants.charge(record.queue, record.user, seats.members * need.vector)

    def _compact_running(self) -> None:
        kept = self.running.compact()
        new_row = np.zeros(int(kept.max(initial=0)) + 1, dtype=np.int32)
        new_row[kept] = np.arange(len(kept))
        held = self.allocations.alive
        self.allocations.columns["running"][held] = new_row[self.allocations.columns["running"][held]]
        for row, number in enumerate(self.running.columns["gang"][: len(kept)].tolist()):
            self.records[number].row = row

    # ------------------------------------------------------------------ gangs go

    def _leave(self, number: int, happening: Happening) -> None:
        """Give back everything a running gang holds, or take a pending one out of the queue."""
        self._thaw()
        record = self.records[number]
        was = record.phase
        record.phase = advance(was, happening, record.gang.name)
        if was is Phase.PENDING:
            self.pending.remove(record.row)
            self.promises.pop(number, None)
        else:
            self._unseat(record)
            self.running.remove(record.row)
        record.row, record.seats = -1, ()
        self._settled_upto = 0

    def _unseat(self, record: Record) -> None:
        table = self.allocations
        table.remove((table.alive & (table.columns["running"] == record.row)).nonzero()[0])
        for seats in record.seats:
            need = find_need(self.fleet, record.gang.roles[seats.role].shape)
            self.free[seats.nodes] += seats.counts[:, None] * need.vector
            if need.share or need.whole:
                self.device_free[seats.nodes] += seats.devices
            self.tenants.charge(record.queue, record.user, -seats.members * need.vector)

    def complete(self, number: int) -> list[int]:
        """A gang has ended well; nobody is cancelled by that."""
        self._leave(number, Happening.COMPLETE)
        return self._end(number, Phase.COMPLETED)

    def fail(self, number: int) -> list[int]:
        """A gang has ended badly; the answer is whoever is cancelled with it."""
        self._leave(number, Happening.FAIL)
        return self._end(number, Phase.FAILED)

    def cancel(self, number: int) -> list[int]:
        """Somebody does not want it any more; the answer is whoever else is cancelled with it."""
        if self.records[number].phase.ended:
            return []
        waiting = self.records[number].phase is Phase.PENDING
        self._leave(number, Happening.CANCEL)
        cancelled = self._end(number, Phase.CANCELLED)
        group = self.records[number].group
        if waiting and group >= 0:
            for other in self.groups[group].gangs:
                record = self.records[other]
                if record.phase is Phase.PENDING and not record.attempts:
                    cancelled += [other, *self.cancel(other)]
        return cancelled

    def _end(self, number: int, phase: Phase) -> list[int]:
        name = self.gangs[number].name
        self._ended[name] = phase
        return self._tell_dependents(name, succeeded=phase is Phase.COMPLETED)

    def _tell_dependents(self, name: str, *, succeeded: bool) -> list[int]:
        """Free those who waited for this end; cancel, for good, those who needed it to be a success."""
        self._ended.setdefault(name, Phase.FAILED)
        cancelled: list[int] = []
        for number in self._dependents.pop(name, ()):
            record = self.records[number]
            if record.phase is not Phase.PENDING:
                continue
            if succeeded or record.gang.after.any_end:
                record.waits_for = record.waits_for - {name}
                record.eligible_us = max(record.eligible_us, self.now_us)
                self.pending.columns["eligible_us"][record.row] = record.eligible_us
                self._order.kept = False
                self._set_gates(record)
            else:
                record.doomed_by = name
                cancelled += [number, *self.cancel(number)]
        return cancelled

    def lose(self, number: int) -> None:
        """A node went from under a running gang: it queues again, with its age."""
        record = self.records[number]
        self._leave(number, Happening.LOSE)
        self._queue_up(number, record)

    def release(self, number: int) -> None:
        """Let a held gang have its turn."""
        self._thaw()
        record = self.records[number]
        record.held = False
        if record.phase is Phase.PENDING:
            self._set_gates(record)

    # ------------------------------------------------------------------ nodes

    def gangs_on(self, node: int) -> list[int]:
        """Gangs that hold seats on a node, by number."""
        rows = np.flatnonzero(self.allocations.alive & (self.allocations.columns["node"] == node))
        running = np.unique(self.allocations.columns["running"][rows])
        return sorted(self.running.columns["gang"][running].tolist())

    def set_up(self, node: int, *, up: bool) -> None:
        """A node failed, or was repaired. Whoever was on it must be told separately."""
        self._thaw()
        self.up[node] = up
        self._nodes_changed()

    def set_open(self, node: int, *, open_: bool) -> None:
        """A node is cordoned, or takes new gangs again."""
        self._thaw()
        self.open[node] = open_
        self._nodes_changed()

    def add_node(self, node: Node) -> None:
        """A new machine, or a removed one that comes back."""
        self._rebuild(self.fleet.with_node(node))
        index = self.fleet.index_by_name[node.name]
        self.up[index] = self.open[index] = True

    def remove_node(self, node: int) -> None:
        """A machine that will not come back; it must be empty."""
        self._rebuild(self.fleet.without_node(node))
        self.up[node] = False

    def _rebuild(self, fleet: Fleet) -> None:
        """Lay everything out over another set of nodes and kinds."""
        self._thaw()
        old, self.fleet = self.fleet, fleet
        extra = len(fleet) - len(old)
        self.up = np.concatenate((self.up, np.ones(extra, dtype=np.bool_)))
        self.open = np.concatenate((self.open, np.ones(extra, dtype=np.bool_)))
        self.free, self.device_free = fleet.capacity.copy(), fleet.device_capacity.copy()
        self.tenants = self.tenants.over(fleet)
        self.allocations = Table(allocation_columns(self.fleet))
        for record in self.records:
            if record.phase is Phase.RUNNING:
                record.seats = tuple(widen_seats(seats, self.device_free.shape[1]) for seats in record.seats)
                for seats in record.seats:
                    self._seat(record, record.row, seats)
        self._columns_at = ()
        width = self.device_free.shape[1]
        self.promises = {first: widen_promise(promise, width) for first, promise in self.promises.items()}
        self.judged.clear()  # feasibility is judged again when nodes change
        self.fresh.update(n for n, record in enumerate(self.records) if record.phase is Phase.PENDING)
        self._nodes_changed()

    def _nodes_changed(self) -> None:
        self._settled_upto = 0
        self._node_columns = None
        self.closed = not bool(self.open.all())
        out = ~(self.up & self.open)
        if self.promises and out.any():
            self.promises = {first: promise for first, promise in self.promises.items() if not touches(promise, out)}

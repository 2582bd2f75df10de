"""Folds what happened into columns, and hands out snapshots of them.

The only writer of cluster state. Events and plans go in; a snapshot costs nothing until the next
write, which then copies the arrays once. Everything the engine remembers between cycles (promises,
who was told that it is infeasible, who is a guest) is kept here because the plan said so, never by
the engine. `seating`, `waiting`, `folding` and `hurting` hold the steps, each over this one state.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from phalanx.control.columns import Table
from phalanx.control.folding import Folded, fold
from phalanx.control.forms import Forms
from phalanx.control.hurting import Trust
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
from phalanx.control.seating import attained_us, keep_busy, past_of, seat, unseat
from phalanx.control.tenants import Tenants
from phalanx.control.waiting import join_group, queue_up, set_gates, tell_dependents, wait_for_dependencies
from phalanx.engine.lifecycle import Happening, Phase, advance
from phalanx.model.fleet import Fleet, Node
from phalanx.model.form import Form
from phalanx.model.gang import Gang
from phalanx.model.plan import Plan, Reservation
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.snapshot import (
    AllocationColumns,
    Hurt,
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
        self.draining = np.zeros(len(fleet), dtype=np.bool_)
        self.trust = Trust(len(fleet))
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
        self.group_by_word: dict[str, int] = {}
        self.group_forms: dict[int, int] = {}
        self.dependents: dict[str, list[int]] = {}
        self.ended: dict[str, Phase] = {}
        self.promises: dict[int, Reservation] = {}
        self.hurt: dict[int, Hurt] = {}
        self.pins: dict[int, int] = {}
        self.judged: set[int] = set()
        self.fresh: set[int] = set()
        self.order = ArrivalOrder()
        self.gated = False
        self.vacating: list[tuple[int, Record]] = []  # rows of nobody, with the instant at which they end
        self.timers: list[tuple[int, str, int, int]] = []  # when, what, whom, of which stay
        self.evictions_in_vain = 0
        self._settled_upto = 0
        self._frozen = False
        self._columns_at: tuple[int, ...] = ()
        self._node_columns: NodeColumns | None = None
        self._molding = self._soft = False
        self._room, self._ends = -1, LeastEnd()

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> Snapshot:
        """An immutable picture of now; the next write copies what it shares."""
        self.tenants.settle()
        self._frozen = True
        return self.borrow()

    def borrow(self) -> Snapshot:
        """The same without protection: good until the next write. For callers that let go of it before."""
        if self.tenants.watched:
            self.tenants.settle()
        if self._columns_at != (self.pending.version, self.running.version, self.allocations.version):
            self._make_columns()
        return Snapshot(
            now_us=self.now_us,
            fleet=self.fleet,
            nodes=self._nodes(),
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
            hurt=self.hurt,
            pins=self.pins,
            judged=self.judged,
            fresh=self.fresh,
            gated=self.gated,
            molding=self._molding,
            soft=self._soft,
            limited=self.tenants.limited,
            in_order=self.order.kept,
            on_time=self._ends.on_time(self.now_us, self.running),
            room=self._room,
            settled_upto=self._settled_upto,
        )

    def _nodes(self) -> NodeColumns:
        nodes = self._node_columns
        if nodes is None or nodes.free is not self.free or nodes.shared != self.shared or nodes.up is not self.up:
            mending = self.up & self.open & self.trust.trusted
            in_service = mending & ~self.fleet.spare
            nodes = NodeColumns(
                self.free, self.device_free, self.shared, self.up, self.open, in_service, mending, self.draining
            )
            self._node_columns = nodes
        return nodes

    def _make_columns(self) -> None:
        self._pending_columns = PendingColumns(alive=self.pending.alive, **self.pending.columns)
        self._running_columns = RunningColumns(alive=self.running.alive, **self.running.columns)
        self._allocation_columns = AllocationColumns(alive=self.allocations.alive, **self.allocations.columns)
        self._columns_at = (self.pending.version, self.running.version, self.allocations.version)

    def thaw(self) -> None:
        """Before a write: let go of the arrays that a snapshot shares."""
        if not self._frozen:
            return
        self.free, self.device_free = self.free.copy(), self.device_free.copy()
        self.up, self.open, self.draining = self.up.copy(), self.open.copy(), self.draining.copy()
        for table in (self.pending, self.running, self.allocations):
            table.copy()
        self.tenants.copy()
        self.gangs, self.forms.forms = list(self.gangs), list(self.forms.forms)
        self.group_forms, self.curves = dict(self.group_forms), dict(self.curves)
        self.promises, self.judged, self.fresh = dict(self.promises), set(self.judged), set(self.fresh)
        self.hurt, self.pins = dict(self.hurt), dict(self.pins)
        self._frozen = False

    def unsettle(self) -> None:
        """Whoever was refused may be let in now."""
        self._settled_upto = 0

    def note_end(self, end_us: int) -> None:
        """A gang is expected to end then."""
        self._ends.note(end_us)

    @property
    def restless(self) -> bool:
        """Whether somebody who runs may have to change although nobody waits."""
        guests = self.running.alive & (self.running.columns["guest"] > 0)
        return bool(self.pins or self.windows or self.draining.any() or guests.any()) and self._soft

    def note_soft(self, gang: Gang) -> None:
        """Remember whether anybody could ever be made to give something back."""
        self._molding = self._molding or gang.elastic
        self._soft = self._soft or gang.elastic or gang.preemptible

    # ------------------------------------------------------------------ gangs come

    def submit(self, gang: Gang, curve: tuple[tuple[int, float], ...] | None = None) -> int:
        """Take a gang in; the answer is its number, for life."""
        self.thaw()
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
            form=self.intern(self.forms.of_gang(self.fleet, gang)),
            queue=queue,
            user=user,
            eligible_us=max(self.now_us, gang.submit_us),
            row=-1,
            waits_for=NOTHING,
            held=gang.hold,
        )
        self.records.append(record)
        if gang.after.names:
            wait_for_dependencies(self, number, record)
        if gang.together is not None:
            join_group(self, number, record, gang.together.word, gang.together.gangs)
        queue_up(self, number, record)
        return number

    def intern(self, form: Form) -> int:
        """The number of a form, and what it means for devices."""
        if self.forms.splits_devices(form) and not self.shared:
            self.shared = True
            self.promises = {}  # they were made without naming devices, which now matter
        return self.forms.number_of(form)

    # ------------------------------------------------------------------ plans

    def apply(self, plan: Plan) -> Folded:
        """Fold a plan; the answer tells what has really begun, and who was cancelled because of it."""
        self.thaw()
        folded = fold(self, plan) if plan.decisions else Folded()
        self.promises = {promise.gangs[0]: promise for promise in plan.reservations}
        self._settled_upto, self._room = len(self.gangs) if plan.settled else 0, plan.room
        self.fresh = set()
        if self.hurt:
            self.hurt = {number: hurt for number, hurt in self.hurt.items() if not hurt.whole}
        for number in plan.settled_in:
            self.running.columns["guest"][self.records[number].row] = 0
        for number in plan.infeasible:
            self.judged.add(number)
            folded.cancelled += tell_dependents(self, self.gangs[number].name, succeeded=False)
        return folded

    # ------------------------------------------------------------------ gangs go

    def leave(self, number: int, happening: Happening) -> None:
        """Give back everything a gang holds, or take a pending one out of the queue."""
        self.thaw()
        record = self.records[number]
        was = record.phase
        record.phase = advance(was, happening, record.gang.name)
        if was is Phase.PENDING:
            self.pending.remove(record.row)
            self.promises.pop(number, None)
        else:
            if record.history is not None or happening is Happening.LOSE:
                past = past_of(record)
                past.token += 1
                past.claim = None
                past.attained_us += attained_us(self, record) if was is Phase.RUNNING else 0
            starts_us = int(self.running.columns["start_us"][record.row])
            unseat(self, record)
            self.running.remove(record.row)
            self.hurt.pop(number, None)
            if was is Phase.STARTING:  # whoever was about to leave these seats still sits there
                keep_busy(self, record, record.seats, starts_us)
        record.row, record.seats = -1, ()
        self._settled_upto = 0

    def complete(self, number: int) -> list[int]:
        """A gang has ended well; nobody is cancelled by that."""
        self.leave(number, Happening.COMPLETE)
        return self._end(number, Phase.COMPLETED)

    def fail(self, number: int) -> list[int]:
        """A gang has ended badly; the answer is whoever is cancelled with it."""
        self.leave(number, Happening.FAIL)
        return self._end(number, Phase.FAILED)

    def cancel(self, number: int) -> list[int]:
        """Somebody does not want it any more; the answer is whoever else is cancelled with it."""
        if self.records[number].phase.ended:
            return []
        waiting = self.records[number].phase is Phase.PENDING
        self.leave(number, Happening.CANCEL)
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
        self.ended[name] = phase
        self.pins.pop(number, None)
        return tell_dependents(self, name, succeeded=phase is Phase.COMPLETED)

    def requeue(self, number: int) -> None:
        """A gang gives everything back and waits again, with its age."""
        self.leave(number, Happening.LOSE)
        queue_up(self, number, self.records[number])

    def release(self, number: int) -> None:
        """Let a held gang have its turn."""
        self.thaw()
        record = self.records[number]
        record.held = False
        if record.phase is Phase.PENDING:
            set_gates(self, record)

    def pin(self, number: int, members: int | None) -> bool:
        """A person wants an elastic gang at exactly this size, or with None at none. False if it cannot have it."""
        sizes = [role.sizes for role in self.gangs[number].roles if role.sizes.elastic]
        if members is not None and (len(sizes) != 1 or members not in sizes[0].allowed):
            return False
        self.thaw()
        self.unsettle()
        self.pins.pop(number, None)
        if members is not None:
            self.pins[number] = members
        self.fresh.add(number)
        return True

    # ------------------------------------------------------------------ timers

    def set_timer(self, at_us: int, what: str, number: int, token: int) -> None:
        """Something is due then, unless the gang's stay is over by that time."""
        heapq.heappush(self.timers, (at_us, what, number, token))

    def next_due_us(self) -> int | None:
        """The next instant at which time alone changes the state."""
        ahead = [at for at, _ in self.vacating]
        if self.timers:
            ahead.append(self.timers[0][0])
        return min(ahead, default=None)

    # ------------------------------------------------------------------ nodes

    def gangs_on(self, node: int) -> list[int]:
        """Gangs that hold seats on a node, by number."""
        rows = np.flatnonzero(self.allocations.alive & (self.allocations.columns["node"] == node))
        running = np.unique(self.allocations.columns["running"][rows])
        return sorted(number for number in self.running.columns["gang"][running].tolist() if number >= 0)

    def set_up(self, node: int, *, up: bool) -> None:
        """A node failed, or was repaired. Whoever was on it must be told separately."""
        self.thaw()
        self.up[node] = up
        self.nodes_changed()

    def set_open(self, node: int, *, open_: bool, drain: bool = False) -> None:
        """A node is cordoned, or takes new gangs again; if it drains, whoever can leave should."""
        self.thaw()
        self.open[node], self.draining[node] = open_, drain
        self.nodes_changed()

    def add_node(self, node: Node) -> None:
        """A new machine, or a removed one that comes back."""
        self._rebuild(self.fleet.with_node(node))
        index = self.fleet.index_by_name[node.name]
        self.up[index] = self.open[index] = True
        self.draining[index] = False

    def remove_node(self, node: int) -> None:
        """A machine that will not come back; it must be empty."""
        self._rebuild(self.fleet.without_node(node))
        self.up[node] = False

    def _rebuild(self, fleet: Fleet) -> None:
        """Lay everything out over another set of nodes and kinds."""
        self.thaw()
        old, self.fleet = self.fleet, fleet
        extra = np.ones(len(fleet) - len(old), dtype=np.bool_)
        self.up, self.open = np.concatenate((self.up, extra)), np.concatenate((self.open, extra))
        self.draining = np.concatenate((self.draining, ~extra))
        self.trust.widen(len(fleet))
        self.free, self.device_free = fleet.capacity.copy(), fleet.device_capacity.copy()
        self.tenants = self.tenants.over(fleet)
        self.allocations = Table(allocation_columns(self.fleet))
        seated = [record for record in self.records if record.phase.seated]
        for record in [*seated, *(ghost for _, ghost in self.vacating)]:
            record.seats = tuple(widen_seats(seats, self.device_free.shape[1]) for seats in record.seats)
            for seats in record.seats:
                seat(self, record, record.row, seats)
        self._columns_at = ()
        width = self.device_free.shape[1]
        self.promises = {first: widen_promise(promise, width) for first, promise in self.promises.items()}
        self.judged.clear()  # feasibility is judged again when nodes change
        self.fresh.update(n for n, record in enumerate(self.records) if record.phase is Phase.PENDING)
        self.nodes_changed()

    def nodes_changed(self) -> None:
        """Somebody may fit now who did not, and promises on nodes out of service are void."""
        self._settled_upto = 0
        self._node_columns = None
        self.closed = not bool(self.open.all())
        out = ~(self.up & self.open)
        if self.promises and out.any():
            self.promises = {first: promise for first, promise in self.promises.items() if not touches(promise, out)}

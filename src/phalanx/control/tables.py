"""The tables of a state, and snapshots of them.

Data and the bookkeeping that every writer needs; what happens to gangs is in `seating`, `waiting`,
`leaving`, `folding` and `losses`, each over these tables, and `State` puts them together.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from phalanx.control.bonds import Dependencies, Groups
from phalanx.control.columns import HeldTable, Table
from phalanx.control.forms import Forms
from phalanx.control.node_table import NodeTable
from phalanx.control.records import (
    PENDING,
    RUNNING,
    ArrivalOrder,
    Ghost,
    LeastEnd,
    PlanRefusal,
    Record,
    Unconfirmed,
    allocation_columns,
    touches,
)
from phalanx.control.tenants import Tenants
from phalanx.model.fleet import Fleet
from phalanx.model.form import Form
from phalanx.model.gang import Gang
from phalanx.model.plan import Plan, Reservation, Settled
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.snapshot import (
    AllocationColumns,
    Degraded,
    Hints,
    PendingColumns,
    RunningColumns,
    Snapshot,
)
from phalanx.model.window import Window

#: What planning assumes of a gang that states no walltime.
DEFAULT_WALLTIME_US = 24 * 3600 * 1_000_000


class Tables:
    """The cluster and everybody in it, now, as columns."""

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
        self.nodes = NodeTable(fleet)
        self.windows = tuple(windows)
        self.default_walltime_us = default_walltime_us
        self.tenants = Tenants(fleet, queues, users)
        self.pending = Table(PENDING)
        self.running = Table(RUNNING)
        self.allocations = HeldTable(allocation_columns(self.fleet))
        self.gangs: list[Gang] = []
        self.records: list[Record] = []
        # The newest of a name: an ended gang's name may be used again, and people mean the one that is there.
        self.number_by_name: dict[str, int] = {}
        self.curves: dict[int, tuple[tuple[int, float], ...]] = {}
        self.forms = Forms()
        self.groups = Groups()
        self.dependencies = Dependencies()
        self.promises: dict[int, Reservation] = {}
        self.degraded: dict[int, Degraded] = {}
        self.pins: dict[int, int] = {}
        # Who was told that it can never run, and whom no cycle has seen: both come back in the snapshot, since the
        # engine has no memory of its own (rule 5).
        self.judged: set[int] = set()
        self.fresh: set[int] = set()
        self.order = ArrivalOrder()
        self.gated = False
        self.vacating: list[tuple[int, Ghost]] = []  # rows of nobody, with the instant at which they end
        self.timers: list[tuple[int, str, int, int]] = []  # when, what, whom, of which stay
        self.evictions_in_vain = 0
        self._settled: Settled | None = None  # as the last plan said
        self.unconfirmed: list[Unconfirmed] = []  # decisions that may yet be refused, with what was before
        self.refusals: dict[int, PlanRefusal] = {}  # the last of each gang
        self._settled_upto = 0
        self._frozen = False
        self._columns_at: tuple[int, ...] = ()
        self._has_elastic = self._has_reclaimable = self._has_deadlines = False
        self._ends = LeastEnd()

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> Snapshot:
        """An immutable picture of now; the next write copies what it shares."""
        # A snapshot may be kept and compared later, so that its usage must be right; a
        # borrowed one only if somebody looks.
        self.tenants.settle()
        self._frozen = True
        return self.borrow()

    def borrow(self) -> Snapshot:
        """The same without protection: good until the next write. For callers that let go of it before."""
        if self.tenants.watched:
            self.tenants.settle()
        # The column objects only point to arrays; as long as no array was replaced they show the present by themselves.
        if self._columns_at != (self.pending.version, self.running.version, self.allocations.version):
            self._make_columns()
        return Snapshot(
            now_us=self.now_us,
            fleet=self.fleet,
            nodes=self.nodes.columns(),
            forms=self.forms.forms,
            gangs=self.gangs,
            pending=self._pending_columns,
            running=self._running_columns,
            allocations=self._allocation_columns,
            queues=self.tenants.queue_columns,
            users=self.tenants.user_columns,
            windows=self.windows,
            group_forms=self.groups.forms,
            curves=self.curves,
            promises=self.promises,
            degraded=self.degraded,
            pins=self.pins,
            judged=self.judged,
            fresh=self.fresh,
            default_length_us=self.default_walltime_us,
            # What only lets the engine skip a look, in a value of its own: none of it decides anything.
            hints=self._hints(),
        )

    def _hints(self) -> Hints:
        # Built anew each time: on a busy cluster `settled_upto` and `room` change with every plan.
        return Hints(
            gated=self.gated,
            has_elastic=self._has_elastic,
            has_reclaimable=self._has_reclaimable,
            has_deadlines=self._has_deadlines,
            limited=self.tenants.limited,
            in_order=self.order.kept,
            on_time=self._ends.on_time(self.now_us, self.running),
            room=self._settled.room if self._settled is not None else -1,
            settled_upto=self._settled_upto,
        )

    def _make_columns(self) -> None:
        self._pending_columns = PendingColumns(alive=self.pending.alive, **self.pending.columns)
        self._running_columns = RunningColumns(alive=self.running.alive, **self.running.columns)
        self._allocation_columns = AllocationColumns(alive=self.allocations.alive, **self.allocations.columns)
        self._columns_at = (self.pending.version, self.running.version, self.allocations.version)

    def thaw(self) -> None:
        """Before a write: let go of the arrays that a snapshot shares."""
        if not self._frozen:
            return
        # At the first write after a snapshot and not with it: snapshots between two writes share one copy.
        self.nodes.copy()
        for table in (self.pending, self.running, self.allocations):
            table.copy()
        self.tenants.copy()
        self.gangs, self.forms.forms = list(self.gangs), list(self.forms.forms)
        self.groups.forms, self.curves = dict(self.groups.forms), dict(self.curves)
        self.promises, self.judged, self.fresh = dict(self.promises), set(self.judged), set(self.fresh)
        self.degraded, self.pins = dict(self.degraded), dict(self.pins)
        self._frozen = False

    def unsettle(self) -> None:
        """Whoever was refused may be let in now."""
        self._settled_upto = 0

    def note_end(self, end_us: int) -> None:
        """A gang is expected to end then."""
        self._ends.note(end_us)

    @property
    def has_elastic(self) -> bool:
        """Whether any gang ever was elastic."""
        return self._has_elastic

    @property
    def restless(self) -> bool:
        """Whether somebody who runs may have to change although nobody waits."""
        # Ever, and not now: a flag that only rises costs nothing to keep, and errs by a needless look.
        if not self._has_reclaimable:
            return False
        guests = self.running.alive & (self.running.columns["guest"] > 0)
        return bool(self.pins or self.windows or self.nodes.draining.any() or guests.any())

    def note_soft(self, gang: Gang, *, elastic: bool) -> None:
        """Remember whether anybody could ever be made to give something back."""
        if elastic or gang.preemptible:
            self._has_elastic = self._has_elastic or elastic
            self._has_reclaimable = True
        if gang.deadline_us is not None:
            self._has_deadlines = True

    def intern(self, form: Form) -> int:
        """The number of a form, and what it means for devices."""
        if self.forms.splits_devices(form) and not self.nodes.shared:
            self.nodes.shared = True
            self.promises = {}  # they were made without naming devices, which now matter
        return self.forms.number_of(form)

    # ------------------------------------------------------------------ timers

    def set_timer(self, at_us: int, what: str, number: int, token: int) -> None:
        """Something is due then, unless the gang's stay is over by that time."""
        # Ties by word, then number: deterministic, and never taken out of the middle (see the token).
        heapq.heappush(self.timers, (at_us, what, number, token))

    def next_due_us(self) -> int | None:
        """The next instant at which time alone changes the state."""
        # Asked twice an instant, and of a log the answer is always None.
        timer_us = self.timers[0][0] if self.timers else None
        if not self.vacating:
            return timer_us
        # A list and not a heap: there are as many as gangs in their resize pause, and they are taken out of the middle.
        vacated_us = min(at for at, _ in self.vacating)
        return vacated_us if timer_us is None else min(vacated_us, timer_us)

    # ------------------------------------------------------------------ nodes

    def gangs_on(self, node: int) -> list[int]:
        """Gangs that hold seats on a node, by number."""
        rows = np.flatnonzero(self.allocations.alive & (self.allocations.columns["node"] == node))
        running = np.unique(self.allocations.columns["running"][rows])
        # By number and not by row: the order in which gangs are lost decides whose failure is noted first.
        return sorted(number for number in self.running.columns["gang"][running].tolist() if number >= 0)

    def nodes_changed(self) -> None:
        """Somebody may fit now who did not, and promises on nodes out of service are void."""
        self._settled_upto = 0
        # Rule 4: a promise is void when its places fail, are cordoned or drained. Suspects need no look: a node becomes
        # one by failing, which has voided them.
        out = self.nodes.note_service()
        if self.promises and out.any():
            self.promises = {first: promise for first, promise in self.promises.items() if not touches(promise, out)}

    def note_plan(self, plan: Plan) -> None:
        """What a plan says about later cycles: promises, who need not ask again, who is no guest any more."""
        if self.promises or plan.reservations:
            # All of them anew: a promise that the plan does not repeat is no longer one.
            self.promises = {promise.gangs[0]: promise for promise in plan.reservations}
        self._settled = plan.settled
        # Numbers ascend, so that everybody below this has been looked at, and who comes later is above.
        self._settled_upto = len(self.gangs) if plan.settled is not None else 0
        if self.fresh:
            self.fresh = set()
        if self.degraded:
            # One that runs on with fewer members was offered its repair in this plan. If there was no room, it grows
            # later like anybody else, and nobody holds seats for it.
            self.degraded = {number: degraded for number, degraded in self.degraded.items() if not degraded.whole}
        for number in plan.settled_in:
            self.running.columns["guest"][self.records[number].row] = 0

    def columns_moved(self) -> None:
        """The tables were laid out anew."""
        self._columns_at = ()

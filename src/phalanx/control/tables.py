"""The tables of a state, and snapshots of them.

Data and the bookkeeping that every writer needs; what happens to gangs is in `seating`, `waiting`,
`leaving`, `folding` and `losses`, each over these tables, and `State` puts them together.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phalanx.control.bonds import Dependencies, Groups
from phalanx.control.columns import HeldTable, Table
from phalanx.control.forms import Forms
from phalanx.control.kept_hints import KeptHints
from phalanx.control.node_table import NodeTable
from phalanx.control.records import (
    PENDING,
    RUNNING,
    Ghost,
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
from phalanx.model.plan import DateVerdict, Plan, Reservation, Seats
from phalanx.model.queue import Queue, UserLimit
from phalanx.model.snapshot import (
    AllocationColumns,
    Degraded,
    NodeColumns,
    PendingColumns,
    QueueColumns,
    RunningColumns,
    Snapshot,
    UserColumns,
)
from phalanx.model.window import Window

#: What planning assumes of a gang that states no walltime.
DEFAULT_WALLTIME_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class ShownColumns:
    """The three tables of gangs as snapshots show them, good while no table has replaced its arrays."""

    at: tuple[int, int, int]  # the versions of the tables
    pending: PendingColumns
    running: RunningColumns
    allocations: AllocationColumns


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
        self.dates: dict[int, DateVerdict] = {}  # replaced and never written to, so that snapshots may share it
        # Who was told that it can never run, and whom no cycle has seen: both come back in the snapshot, since the
        # engine has no memory of its own (rule 5).
        self.judged: set[int] = set()
        self.fresh: set[int] = set()
        self.hints = KeptHints()
        self.vacating: list[tuple[int, Ghost]] = []  # rows of nobody, with the instant at which they end
        self.timers: list[tuple[int, str, int, int]] = []  # when, what, whom, of which stay
        self.evictions_in_vain = 0
        self.unconfirmed: list[Unconfirmed] = []  # decisions that may yet be refused, with what was before
        self.refusals: dict[int, PlanRefusal] = {}  # the last of each gang
        self._frozen = False
        self._shown: ShownColumns | None = None  # as last handed out

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> Snapshot:
        """An immutable picture of now; the next write copies what it shares."""
        # A snapshot may be kept and compared later, so that its usage must be right; a
        # borrowed one only if somebody looks.
        self.tenants.settle()
        self._frozen = True
        # Without the seats of the records, which are written to and not copied.
        return replace(self.borrow(), seats_of=None)

    def borrow(self) -> Snapshot:
        """The same without protection: good until the next write. For callers that let go of it before."""
        if self.tenants.watched:
            self.tenants.settle()
        # The column objects only point to arrays; as long as no array was replaced they show the present by themselves.
        shown = self._shown
        if shown is None or shown.at != (self.pending.version, self.running.version, self.allocations.version):
            shown = self._shown = _show(self.pending, self.running, self.allocations)
        return Snapshot(
            now_us=self.now_us,
            fleet=self.fleet,
            nodes=self.nodes.columns(),
            forms=self.forms.forms,
            gangs=self.gangs,
            pending=shown.pending,
            running=shown.running,
            allocations=shown.allocations,
            queues=self.tenants.queue_columns,
            users=self.tenants.user_columns,
            windows=self.windows,
            group_forms=self.groups.forms,
            curves=self.curves,
            promises=self.promises,
            degraded=self.degraded,
            pins=self.pins,
            dates=self.dates,
            judged=self.judged,
            fresh=self.fresh,
            default_length_us=self.default_walltime_us,
            # What only lets the engine skip a look, in a value of its own: none of it decides anything.
            hints=self.hints.tell(self.now_us, self.running, limited=self.tenants.limited),
            presence=self.nodes.presence,
            seats_of=self.seats_of,
        )

    def seats_of(self, number: int) -> tuple[Seats, ...]:
        """Where a gang sits, or will."""
        return self.records[number].seats

    def show_nodes(self) -> NodeColumns:
        """What is free on every node, and which are in service; good until the next write."""
        return self.nodes.columns()

    def show_queues(self) -> QueueColumns:
        """Every queue with its rights and what it uses; good until the next write."""
        # Usage is added up when somebody looks, and here somebody does.
        self.tenants.settle()
        return self.tenants.queue_columns

    def show_users(self) -> UserColumns:
        """People with their limits and what they use; good until the next write."""
        self.tenants.settle()
        return self.tenants.user_columns

    def thaw(self) -> None:
        """Before a write: let go of the arrays that a snapshot shares."""
        if not self._frozen:
            return
        # At the first write after a snapshot and not with it: snapshots between two writes share one copy.
        self.nodes.unshare()
        for table in (self.pending, self.running, self.allocations):
            table.unshare()
        self.tenants.unshare()
        self.gangs, self.forms.forms = list(self.gangs), list(self.forms.forms)
        self.groups.forms, self.curves = dict(self.groups.forms), dict(self.curves)
        self.promises, self.judged, self.fresh = dict(self.promises), set(self.judged), set(self.fresh)
        self.degraded, self.pins = dict(self.degraded), dict(self.pins)
        self._frozen = False

    @property
    def restless(self) -> bool:
        """Whether somebody who runs may have to change although nobody waits."""
        # Ever, and not now: a flag that only rises costs nothing to keep, and errs by a needless look.
        if not self.hints.has_reclaimable:
            return False
        guests = self.running.alive & (self.running.columns["guest"] > 0)
        return bool(self.pins or self.windows or self.nodes.draining.any() or guests.any())

    def intern(self, form: Form) -> int:
        """The number of a form, and what it means for devices."""
        if self.forms.splits_devices(form) and not self.nodes.shared:
            self.nodes.shared = True
            self.promises = {}  # they were made without naming devices, which now matter
        # From the first who asks, and then for good: whoever never asks does not pay for the count. Nobody who runs by
        # then bears a word, or that one would have been the first.
        if self.nodes.presence is None and any(
            role.shape.names_others or role.shape.wishes_for_others for role in form.roles
        ):
            self.nodes.count_marks()
        if self.nodes.presence is not None and any(role.shape.seeks_others for role in form.roles):
            self.nodes.presence.sought = True
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
        self.hints.unsettle()
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
        self.hints.settle(plan.settled, len(self.gangs))
        if plan.dates:
            # A new dict, and only where there is something to add: snapshots that are lent out share the old one, and
            # most plans judge nobody.
            self.dates = {**self.dates, **{verdict.gang: verdict for verdict in plan.dates}}
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
        self._shown = None


def _show(pending: Table, running: Table, allocations: Table) -> ShownColumns:
    return ShownColumns(
        (pending.version, running.version, allocations.version),
        PendingColumns(alive=pending.alive, **pending.columns),
        RunningColumns(alive=running.alive, **running.columns),
        AllocationColumns(alive=allocations.alive, **allocations.columns),
    )

"""The working copy of a snapshot: what is free, what was decided so far, what each placement key is.

A placement key is a form together with the windows its claimant is exempt from; rows of equal placement key
differ in size, length and owner only. A session belongs to one cycle and is thrown away after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phalanx.engine.fairshare import Standing
from phalanx.engine.kept_dates import KeptDates
from phalanx.engine.kernels.slots import Need, compute_slots
from phalanx.engine.policy import Policy
from phalanx.engine.room.limits import Limits
from phalanx.engine.room.placement import NoPlace, Places, Wish, find_ceiling, place
from phalanx.engine.room.view import NOBODY, Exempt, View, find_need
from phalanx.engine.worth import Prospect
from phalanx.model.fleet import BoolArray, Fleet, IntArray, MilliArray
from phalanx.model.form import Form
from phalanx.model.gang import Gang, Shape
from phalanx.model.plan import Bind, Seats
from phalanx.model.snapshot import Snapshot

if TYPE_CHECKING:
    from phalanx.engine.reclaimable import Reclaimable


@dataclass(frozen=True, slots=True)
class PlacementKey:
    """A form and the windows that do not bind whoever asks."""

    form: Form
    exempt: Exempt = NOBODY


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """Everything that runs, with the instant at which it is expected to give its room back."""

    node: IntArray
    end_us: IntArray
    taken: IntArray
    devices: MilliArray


class Session:
    """One cycle's view of the world."""

    def __init__(self, snapshot: Snapshot, policy: Policy, view: View | None = None) -> None:
        """Everything is read where it is; the view copies before it is written. `view`: one that was only asked."""
        self.snapshot = snapshot
        self.policy = policy
        self.fleet: Fleet = snapshot.fleet
        nodes = snapshot.nodes
        self.in_service: BoolArray = nodes.in_service
        self.window_masks = [_window_mask(self.fleet, window.nodes) for window in snapshot.windows]
        # The short cut's view knows nothing of windows: it answers about nodes in
        # service, and a window may be open now.
        if view is None or snapshot.windows:
            view = View(
                self.fleet,
                nodes.free,
                nodes.device_free,
                shared=nodes.shared,
                usable=self.usable(NOBODY),
                presence=snapshot.presence,
            )
        self.view = view
        self.binds: list[Bind] = []
        self.bound: list[tuple[Form, Places, int]] = []  # with the expected end, for the calendar
        self.ends: tuple[tuple[int, int, bytes], Ends] | None = None  # after so many starts and releases, for a pool
        self.limits = Limits(snapshot)
        # Rule 2: who can never run changes nothing for others, and demand moves
        # entitlements and with them everybody's standing.
        self.hopeless: tuple[int, ...] = ()  # gangs that this cycle found can never run: they are no demand
        self.reclaimable: Reclaimable | None = None  # who could give something back; None if nobody is asked to
        self.taken_back = 0  # releases so far
        self.prospects: dict[int, Prospect] = {}  # of running elastic gangs, by number, once somebody has asked
        self.vacated: list[tuple[Gang, Seats]] = []  # given back, and in use until their gang's pause is over
        self.dates: KeptDates | None = None  # promised dates; None under policies that promise none
        self._row_by_number: dict[int, int] | None = None
        self._standing: Standing | None = None
        self._charges: list[tuple[int, IntArray]] = []  # of this plan, for a standing that is asked for later
        self.repaired: dict[
            int, list[tuple[Need, Seats, int]]
        ] = {}  # new seats and ends of degraded gangs, by running row

    @property
    def standing(self) -> Standing:
        """How far every queue is below its entitlement, moving with this plan. Most cycles never ask."""
        if self._standing is None:
            queues = self.snapshot.queues
            # What is in service and not what was bought: a share of nodes that are down is a share of nothing.
            capacity = self.fleet.capacity[self.in_service].sum(axis=0)
            # None where nobody has any (`half_life` is off by default), so that nothing
            # is spread over the tree and added.
            history = queues.decayed if queues.decayed.any() else None
            self._standing = Standing(queues, capacity, self._demand(), history)
            for queue, units in self._charges:
                self._standing.charge(queue, units)
        return self._standing

    def _demand(self) -> IntArray:
        """Usage and what the waiting could use at their largest, of every queue and all below it."""
        queues, pending, gangs = self.snapshot.queues, self.snapshot.pending, self.snapshot.gangs
        # Who is held or waits for another could not use anything now. Counted, a thousand held gangs would entitle
        # their queue to room that nobody of it can take.
        rows = (pending.alive & (pending.gate == 0)).nonzero()[0]
        hopeless = {*self.snapshot.judged, *self.hopeless}
        if hopeless:
            rows = rows[~np.isin(pending.gang[rows], list(hopeless))]
        waiting = np.zeros_like(queues.usage)
        forms = self.snapshot.forms
        open_size = np.array([form.open_size for form in forms], dtype=np.bool_)
        plain = open_size[pending.form[rows]] & ~pending.elastic[rows]
        vectors = np.array([find_need(self.fleet, form.roles[0].shape).vector for form in forms])
        # Rigid gangs of one role are most of a long queue: one sum by columns, and a loop over the few others.
        some = rows[plain]
        np.add.at(waiting, pending.queue[some], vectors[pending.form[some]] * pending.size[some][:, None])
        for row in rows[~plain].tolist():
            for role in gangs[int(pending.gang[row])].roles:
                # At the largest size (rule 11: usage and pending members_max): what an elastic gang could use is
                # demand, though it would start with less.
                waiting[pending.queue[row]] += find_need(self.fleet, role.shape).vector * role.sizes.most
        # Backwards in one pass: every queue has all of its children's demand before it hands its own on.
        for queue in range(len(waiting) - 1, 0, -1):  # children come after their parents
            waiting[queues.parent[queue]] += waiting[queue]
        return queues.usage + waiting

    def _pending_row(self, number: int) -> int:
        if self._row_by_number is None:
            pending = self.snapshot.pending
            rows = pending.alive.nonzero()[0]
            self._row_by_number = dict(zip(pending.gang[rows].tolist(), rows.tolist(), strict=True))
        return self._row_by_number[number]

    def owner_of(self, number: int) -> tuple[int, int]:
        """Queue and user of a pending gang."""
        row = self._pending_row(number)
        return int(self.snapshot.pending.queue[row]), int(self.snapshot.pending.user[row])

    def length_of(self, number: int) -> int:
        """Believed run time of a pending gang at its largest size."""
        return int(self.snapshot.pending.length_us[self._pending_row(number)])

    def proven(self, number: int) -> bool:
        """Whether that is more than a guess."""
        return bool(self.snapshot.pending.proven[self._pending_row(number)])

    def need_of(self, gang: Gang, role: int) -> Need:
        """What one member of a role needs."""
        return find_need(self.fleet, gang.roles[role].shape)

    @property
    def charged(self) -> int:
        """How often anything changed hands in this plan so far."""
        return len(self._charges)

    def charge(self, queue: int, user: int, units: IntArray) -> None:
        """Somebody takes, or with negative units gives back."""
        self.limits.charge(queue, user, units)
        # Kept although the standing may exist by now: one that is asked for later must
        # begin with everything of this plan.
        self._charges.append((queue, units))
        if self._standing is not None:
            self._standing.charge(queue, units)

    def usable(self, exempt: Exempt) -> BoolArray:
        """Nodes in service and not inside a window that binds the claimant now."""
        usable = self.in_service
        now = self.snapshot.now_us
        for index, window in enumerate(self.snapshot.windows):
            if index not in exempt and window.start_us <= now < window.end_us:
                usable = usable & ~self.window_masks[index]
        return usable

    def exempt_of(self, queue: int, user: int) -> Exempt:
        """Windows that were made for this owner."""
        if not self.snapshot.windows:
            return NOBODY
        queues = self.snapshot.queues
        names = set()
        while queue >= 0:
            names.add(queues.names[queue])
            # A reservation for a queue is one for everybody below it.
            queue = int(queues.parent[queue])
        who = self.snapshot.users.names[user]
        return frozenset(
            index
            for index, window in enumerate(self.snapshot.windows)
            if who in window.users or not names.isdisjoint(window.queues)
        )

    def ask_as(self, exempt: Exempt) -> None:
        """Let the view answer for claimants with this exemption too."""
        if exempt not in self.view.usable_by_exempt:
            self.view.usable_by_exempt[exempt] = self.usable(exempt)

    def is_barred(self, key: PlacementKey, size: int) -> bool:
        """Whether others would have to leave, or come, for it: with those who are where they are, room does not help.

        Nobody says when rules about others are met, so that such a gang can have no reservation and hold up nobody.
        """
        if self.view.presence is None or not any(role.shape.names_others for role in key.form.roles):
            return False
        # The cluster as it would be empty, but with everybody where they are: what still is in the way there are words.
        fleet, shared = self.fleet, self.view.shared
        empty = View(
            fleet,
            fleet.capacity,
            fleet.device_capacity,
            shared=shared,
            usable=self.in_service,
            presence=self.view.presence,
        )
        return find_ceiling(empty, key.form) < size

    def pool_of(self, key: PlacementKey) -> BoolArray:
        """Candidate nodes: in service, admitted by labels and taints, able to hold one member when empty."""
        roles = key.form.roles
        pool = could_hold_one(self.fleet, roles[0].shape) & self.in_service
        for role in roles[1:]:
            # The union over roles: a node that holds only the smallest role is one that a
            # reservation of this gang may lie on.
            pool |= could_hold_one(self.fleet, role.shape) & self.in_service
        return pool


def empty_ceiling(fleet: Fleet, form: Form, service: BoolArray | None) -> int:
    """The ceiling of a form were every node (or every node in service) empty. Remembered per fleet."""
    # By the very nodes in service, as bytes: they change with every failure, the fleet only when nodes come or go.
    key = (form, None if service is None else service.tobytes())
    found = fleet.verdicts.get(key)
    if found is None:
        # Never spares: nothing starts there, so that a gang which fits only with them can never run.
        usable = ~fleet.spare if service is None else service
        # As shared, whatever the cluster is now: with devices counted one by one the answer holds for both.
        view = View(fleet, fleet.capacity, fleet.device_capacity, shared=True, usable=usable)
        found = find_ceiling(view, form)
        if found and not form.open_size:
            placed = place(view, Wish(form, 1))
            # Undecided is not a no: whoever gave up searching may not call a gang impossible.
            found = 0 if isinstance(placed, NoPlace) and not placed.undecided else 1
        fleet.verdicts[key] = found
    return found


def could_hold_one(fleet: Fleet, shape: Shape) -> BoolArray:
    """Nodes that admit the shape and hold one member when empty, remembered per fleet."""
    found = fleet.needs.get(("holds", shape))
    if not isinstance(found, np.ndarray):
        need = find_need(fleet, shape)
        # No device of an empty node is split, so that amounts are enough.
        empty = compute_slots(need, fleet.capacity, fleet.device_capacity, fleet.device_column, shared=False)
        found = need.allowed & (empty > 0)
        fleet.needs["holds", shape] = found
    return found


def _window_mask(fleet: Fleet, names: tuple[str, ...]) -> BoolArray:
    mask = np.zeros(len(fleet), dtype=np.bool_)
    # A window may name a node that was removed, or that comes later.
    mask[[fleet.index_by_name[name] for name in names if name in fleet.index_by_name]] = True
    return mask

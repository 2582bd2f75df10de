"""Planned ends of running gangs, and the earliest start of a blocked one with nothing else ahead.

This is the calendar of a policy with one reservation per pool and no administrative windows:
only ends lie ahead, so room grows with time and the first instant with room is the start. Where
other reservations or windows lie ahead as well, `engine.calendar.timeline` answers instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phalanx.engine.ends import expected_ends
from phalanx.engine.kernels.devices import keep_devices
from phalanx.engine.kernels.release import NEVER, find_release, find_release_by_domain
from phalanx.engine.kernels.slots import Need
from phalanx.engine.reclaimable import Occupant
from phalanx.engine.room.placement import First, NoPlace, Places, Wish, find_ceiling, place
from phalanx.engine.room.seats import part_of, subtract_seats
from phalanx.engine.room.view import View, find_need
from phalanx.engine.session import Ends, PlacementKey, Session
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.form import RoleForm
from phalanx.model.plan import Guest, Seats
from phalanx.model.topology import ANYWHERE


def collect_ends(session: Session, pool: BoolArray | None = None, *, guests_leave: bool = True) -> Ends:
    """Ends of what ran before this cycle and of what it has bound so far, less what was given back.

    `guests_leave`: for the owner of a reservation, who may send them away; everybody else waits for their ends.
    `pool`: the nodes that the owner could use. A guest with its surplus only keeps its least outside, where it can.
    """
    # The pool matters only where somebody's surplus leaves and its least stays, and
    # where those are depends on who asks.
    lodging = session.reclaimable is not None and session.reclaimable.lodges_surplus
    # Starts and releases only add up within a cycle, so that two counts say whether anything changed since.
    at = (len(session.bound), session.taken_back, pool.tobytes() if lodging and pool is not None else b"")
    if guests_leave and session.ends is not None and session.ends[0] == at:
        return session.ends[1]
    ends = _collect_ends(session, pool, guests_leave=guests_leave)
    # Only the owner's answer is remembered: it is the one that every reservation asks for, again and again.
    if guests_leave:
        session.ends = (at, ends)
    return ends


def _collect_ends(session: Session, pool: BoolArray | None, *, guests_leave: bool) -> Ends:
    snapshot, table = session.snapshot, session.snapshot.allocations
    by_row = expected_ends(snapshot.running, snapshot.now_us)
    told, lodging = _list_told(session, pool, guests_leave=guests_leave)
    if lodging:
        by_row = by_row.copy()
        # The next microsecond and not now: its seats are busy at this instant, so that the owner cannot be told
        # to start at once without sending it away.
        by_row[lodging] = snapshot.now_us + 1
    alive = table.alive
    if told:
        # Their rows in the snapshot are out of date or mean something else to the owner:
        # left in, they would be counted twice.
        stale = np.zeros(len(by_row), dtype=np.bool_)
        stale[[row for row, _ in told]] = True
        alive = alive & ~stale[table.running]
    rows = alive.nonzero()[0]
    # Strangers have no end that anybody knows: a start that hangs on one would be no start.
    rows = rows[by_row[table.running[rows]] < NEVER]
    node, end = table.node[rows], by_row[table.running[rows]]
    # Nothing was started or given back yet, and nobody leaves a part: the snapshot's columns are the answer.
    if not session.bound and not told:
        return Ends(node, end, table.taken[rows], table.devices[rows])
    seated = [
        (find_need(session.fleet, gang.roles[seats.role].shape), seats, end_us)
        for form, places, end_us in session.bound
        for gang, seats_by_role in zip(form.gangs, places, strict=True)
        for seats in seats_by_role
    ]
    seated += [each for _, parts in told for each in parts]
    # Said to be integers: of nobody at all NumPy would make a column of fractions, and with it all the others.
    ends_at = np.array([at for _, _, at in seated], dtype=np.int64).repeat([len(each.nodes) for _, each, _ in seated])
    return Ends(
        np.concatenate([node, *(seats.nodes for _, seats, _ in seated)]),
        np.concatenate([end, ends_at]),
        np.concatenate([table.taken[rows], *(seats.counts[:, None] * need.vector for need, seats, _ in seated)]),
        np.concatenate([table.devices[rows], *(seats.devices for _, seats, _ in seated)]),
    )


def _list_told(
    session: Session, pool: BoolArray | None, *, guests_leave: bool
) -> tuple[list[tuple[int, list[tuple[Need, Seats, int]]]], list[int]]:
    """Running rows whose seats are not as the snapshot has them, changed in this plan or partly left; and whole guests.

    A guest's seats count as free for the reservation above it: all of them, or its surplus.
    """
    told, lodging = list(session.repaired.items()), list[int]()
    if session.reclaimable is None:
        return told, lodging
    now = session.snapshot.now_us
    for occupant in session.reclaimable.occupants:
        # To everybody but the owner a guest is somebody who runs until its end.
        guest, changed = occupant.guest if guests_leave else Guest.NO, occupant.changed
        if not changed and guest is not Guest.SURPLUS:
            if guest:
                lodging.append(occupant.row)
            continue
        seated = []
        for seats in () if occupant.gone else occupant.seats:
            need = session.need_of(occupant.gang, seats.role)
            if guest is not Guest.SURPLUS:
                seated.append((need, seats, now + 1 if guest else occupant.end_us))
                continue
            core, lent = _part_guest(session, occupant, seats, pool)
            seated += [(need, core, occupant.end_us), (need, lent, now + 1)]
        told.append((occupant.row, seated))
    return told, lodging


def _part_guest(session: Session, occupant: Occupant, seats: Seats, pool: BoolArray | None) -> tuple[Seats, Seats]:
    """What a guest with its surplus only still holds once the owner has come, and what it has given back.

    Whoever is called back is called back from where the owner needs room, not by rank: its last ranks may sit where
    the owner could never go, and a start that waits for those would be promised too late.
    """
    shape, surplus = occupant.gang.roles[seats.role].shape, occupant.surplus(seats.role)
    nodes, counts = seats.nodes.tolist(), seats.counts.tolist()
    rows = list(range(len(nodes)))[::-1]
    if pool is not None:
        # Whoever asks about no pool asks about all nodes, and then the last ranks are as good as any.
        rows.sort(key=lambda row: not pool[nodes[row]])  # stable: the last of each kind first
    leaving = dict.fromkeys(rows, 0)
    for row in rows:
        leaving[row] = min(counts[row], surplus)
        surplus -= leaving[row]
    if session.view.shared:
        gone = part_of(session.fleet, shape, seats, {nodes[row]: members for row, members in leaving.items()})
        return subtract_seats(seats, gone), gone
    # As long as no device was split nobody asks which ones end when, and to choose them costs more than all the rest.
    lent = np.array([leaving[row] for row in range(len(nodes))], dtype=np.int64)
    core = seats.counts - lent
    return Seats(seats.role, seats.nodes, core, seats.devices), Seats(seats.role, seats.nodes, lent, seats.devices)


def view_at(session: Session, ends: Ends, at_us: int) -> View:
    """What is free once everything that ends by an instant has ended."""
    gone = ends.end_us <= at_us
    # From the session's view and not from the snapshot: what this plan took and gave back is in it.
    free, device_free = session.view.free.copy(), session.fleet.device_capacity
    np.add.at(free, ends.node[gone], ends.taken[gone])
    if session.view.shared:
        device_free = session.view.device_free.copy()
        np.add.at(device_free, ends.node[gone], ends.devices[gone])
    elif session.fleet.device_column >= 0:
        # As long as no device was split any devices will do for a start to come: as many as the amounts
        # say, without looking up which ones end when.
        device_free = keep_devices(device_free, free[:, session.fleet.device_column])
    # Whatever is out of service now stays so: when a node comes back is not foreseen, and its return is an event.
    view = View(
        session.fleet,
        free,
        device_free,
        shared=session.view.shared,
        usable=session.in_service,
        presence=session.view.presence,
    )
    view.usable_by_exempt = session.view.usable_by_exempt
    return view


@dataclass(frozen=True, slots=True, eq=False)
class EarliestStart:
    """When and where a blocked gang will start, and what is free then without it."""

    at_us: int
    places: Places
    view: View  # with the places taken


def find_start(
    session: Session, key: PlacementKey, size: int, known_us: int = NEVER, *, guests_leave: bool = True
) -> EarliestStart | None:
    """The earliest whole placement once enough has ended; None if no end helps. `known_us`: the instant, if known."""
    # Ends on all nodes: what asks below looks at the pool's slots only. The pool decides which seats a guest with
    # surplus gives back, and nothing else.
    ends = collect_ends(session, session.pool_of(key), guests_leave=guests_leave)
    at_us = known_us if known_us != NEVER else _find_instant(session, ends, key, size)
    if at_us == NEVER:
        return None
    view = view_at(session, ends, at_us)
    # Rule 3: busy now before free now. What is free now and not reserved can be used by fillers until then.
    wish = Wish(key.form, size, key.exempt, first=_busy_now(session, view, key))
    places = place(view, wish)
    return None if isinstance(places, NoPlace) else EarliestStart(at_us, places, view)


def find_shadow(session: Session, key: PlacementKey, size: int) -> tuple[int, int]:
    """When the head could start by sums alone, and how many slots are left beside it; (`NEVER`, 0) if unknown."""
    role = key.form.roles[0]
    # Where places decide, sums name an instant that may be too early: enough is free then, and no place for it.
    if not key.form.open_size or role.segment_size > 1 or session.view.shared or role.require != ANYWHERE:
        return NEVER, 0
    # So do rules about others: ends give back amounts, and say nothing of who may sit there.
    if role.shape.social:
        return NEVER, 0
    ends = collect_ends(session, session.pool_of(key))
    row = session.view.slots(role.shape, key.exempt)
    rows = (ends.node, ends.end_us, ends.taken)
    return find_release(row.need, row.slots, row.mask, session.view.free, rows, size)


def _busy_now(session: Session, view: View, key: PlacementKey) -> First:
    def first(role: RoleForm) -> IntArray:
        then = view.slots(role.shape, key.exempt).slots
        now = session.view.slots(role.shape, key.exempt).slots
        busy: IntArray = np.maximum(then - now, 0)
        return busy

    return first


def _find_instant(session: Session, ends: Ends, key: PlacementKey, size: int) -> int:
    form = key.form
    role = form.roles[0]
    if form.open_size and role.segment_size <= 1 and not (session.view.shared or role.shape.social):
        row = session.view.slots(role.shape, key.exempt)
        rows = (ends.node, ends.end_us, ends.taken)
        if role.require == ANYWHERE:
            # Both kernels walk the ends once in order of time; halving asks for a
            # placement at every step, and is for the rest.
            return find_release(row.need, row.slots, row.mask, session.view.free, rows, size)[0]
        domains = session.fleet.domains[role.require]
        return find_release_by_domain(row.need, row.slots, row.mask, session.view.free, rows, size, domains)
    return _bisect_instant(session, ends, key, size)


def _bisect_instant(session: Session, ends: Ends, key: PlacementKey, size: int) -> int:
    """Room only grows, so the first instant that works is found by halving."""
    instants = np.unique(ends.end_us)
    low, high = 0, len(instants)
    while low < high:
        middle = (low + high) // 2
        # Halving needs that what fits once fits from then on. It does: nothing but ends lies ahead in this calendar. A
        # search that gives up counts as a no, and makes the start later at worst.
        if _fits_at(view_at(session, ends, int(instants[middle])), key, size):
            high = middle
        else:
            low = middle + 1
    return int(instants[low]) if low < len(instants) else NEVER


def _fits_at(view: View, key: PlacementKey, size: int) -> bool:
    if find_ceiling(view, key.form, key.exempt) < size:
        return False
    return key.form.open_size or not isinstance(place(view, Wish(key.form, size, key.exempt)), NoPlace)

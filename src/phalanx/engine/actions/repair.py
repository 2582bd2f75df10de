"""Degraded gangs first: places for the lost members, else a whole place elsewhere, else they wait on what they hold.

Spare nodes are for this and nothing else.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.reclaimable import read_seats
from phalanx.engine.room.extend import extend, whole_form
from phalanx.engine.room.placement import NoPlace, Wish, find_ceiling, place
from phalanx.engine.room.seats import add_seats, drop_tail, subtract_seats
from phalanx.engine.room.view import NOBODY, Exempt, View, find_need
from phalanx.engine.session import Session
from phalanx.model.gang import Gang
from phalanx.model.plan import Cause, Decision, Evict, Repair, Restart, Seats
from phalanx.model.snapshot import Degraded

#: Names under which a view keeps the nodes that a repair may use, beside the exemptions from windows.
ORDINARY: Exempt = frozenset({-1})
WITH_SPARES: Exempt = frozenset({-2})


def repair_degraded(session: Session) -> list[Decision]:
    """Repairs and restarts that free room allows now; the session's view is without what they take."""
    snapshot = session.snapshot
    if not snapshot.degraded:
        return []
    running = snapshot.running
    rows = {int(running.gang[row]): row for row in running.alive.nonzero()[0].tolist()}
    wanted = np.zeros(len(running.alive), dtype=np.bool_)
    wanted[[rows[number] for number in snapshot.degraded]] = True
    seats = read_seats(snapshot, wanted)
    old = session.view
    view = View(session.fleet, old.free, old.device_free, shared=old.shared, usable=session.usable(NOBODY))
    decisions: list[Decision] = []
    order = sorted(
        snapshot.degraded, key=lambda n: (-int(running.priority[rows[n]]), int(running.eligible_us[rows[n]]), n)
    )
    for number in order:
        row, gang = rows[number], snapshot.gangs[number]
        held = tuple(seats.get(row, {}).get(role) or _nothing(session, role) for role in range(len(gang.roles)))
        if _under_open_window(session, row, held):
            decisions.append(Evict(number, Cause.DRAIN))
            for each in held:
                view.take_seats(session.need_of(gang, each.role), each, sign=-1)
            session.repaired[row] = []
            continue
        _open_nodes(session, view, row, gang)
        decision = next(
            (
                found
                for nodes in (ORDINARY, WITH_SPARES)
                if (found := _repair_or_restart(session, view, row, held, snapshot.degraded[number], nodes)) is not None
            ),
            None,
        )
        if decision is not None:
            decisions.append(decision)
            _note(session, row, gang, held, decision.seats)
    fresh = View(session.fleet, view.free, view.device_free, shared=old.shared, usable=session.usable(NOBODY))
    fresh.usable_by_exempt = old.usable_by_exempt
    session.view = fresh
    return decisions


def _nothing(session: Session, role: int) -> Seats:
    none = np.zeros(0, dtype=np.int64)
    return Seats(role, none, none, np.zeros((0, session.view.device_free.shape[1]), dtype=np.int16))


def _note(session: Session, row: int, gang: Gang, held: tuple[Seats, ...], seats: tuple[Seats, ...]) -> None:
    """The calendar and the ceilings know of it."""
    snapshot = session.snapshot
    end_us = snapshot.now_us + _length(session, row, gang)
    session.repaired[row] = [(session.need_of(gang, each.role), each, end_us) for each in seats]
    for before, after in zip(held, seats, strict=True):
        more = (after.members - before.members) * session.need_of(gang, after.role).vector
        session.charge(int(snapshot.running.queue[row]), int(snapshot.running.user[row]), more)


def _length(session: Session, row: int, gang: Gang) -> int:
    """How long it is believed to go on; a gang that waits on held seats says nothing of that itself."""
    snapshot = session.snapshot
    running = snapshot.running
    if int(running.members[row]) > 0:
        return max(1, int(running.start_us[row] + running.length_us[row]) - snapshot.now_us)
    return gang.walltime_us if gang.walltime_us is not None else snapshot.default_length_us


def _open_nodes(session: Session, view: View, row: int, gang: Gang) -> None:
    """Where this gang may be repaired: in service, or a spare, and under no window before it is done."""
    snapshot = session.snapshot
    length = _length(session, row, gang)
    closed = np.zeros(len(session.fleet), dtype=np.bool_)
    exempt = session.exempt_of(int(snapshot.running.queue[row]), int(snapshot.running.user[row]))
    for index, window in enumerate(snapshot.windows):
        ahead = window.start_us < snapshot.now_us + length and window.end_us > snapshot.now_us
        if index not in exempt and ahead and not (gang.preemptible and window.start_us > snapshot.now_us):
            closed |= session.window_masks[index]
    view.forget()
    view.usable_by_exempt[ORDINARY] = snapshot.nodes.in_service & ~closed
    view.usable_by_exempt[WITH_SPARES] = snapshot.nodes.repairable & ~closed


def _repair_or_restart(
    session: Session, view: View, row: int, held: tuple[Seats, ...], degraded: Degraded, nodes: Exempt
) -> Repair | Restart | None:
    number = int(session.snapshot.running.gang[row])
    gang = session.snapshot.gangs[number]
    if _over_limit(session, row, gang, degraded):
        return None  # others of its queue or user have what it lost; it may still queue again
    if any(len(each.nodes) for each in held):
        with view.attempt() as keep:
            repaired = _repair(view, gang, held, degraded, nodes)
            if repaired is not None:
                keep()
                return Repair(number, repaired)
    if degraded.whole:
        return None  # it runs on with fewer
    with view.attempt() as keep:
        for seats in held:
            view.take_seats(session.need_of(gang, seats.role), seats, sign=-1)
        for sizes in _sizes(gang, held, degraded):
            form = whole_form(session.fleet, gang, sizes)
            found = place(view, Wish(form, 1, nodes)) if find_ceiling(view, form, nodes) else NoPlace()
            if not isinstance(found, NoPlace):
                keep()
                return Restart(number, found[0])
    return None


def _under_open_window(session: Session, row: int, held: tuple[Seats, ...]) -> bool:
    """Whether a gang that runs nothing holds seats where a window has opened: they are let go."""
    snapshot = session.snapshot
    if int(snapshot.running.members[row]) > 0:
        return False
    exempt = session.exempt_of(int(snapshot.running.queue[row]), int(snapshot.running.user[row]))
    return any(
        bool(session.window_masks[index][each.nodes].any())
        for index, window in enumerate(snapshot.windows)
        if index not in exempt and window.start_us <= snapshot.now_us < window.end_us
        for each in held
    )


def _over_limit(session: Session, row: int, gang: Gang, degraded: Degraded) -> bool:
    running = session.snapshot.running
    lost = [session.need_of(gang, index).vector * count for index, count in enumerate(degraded.lost)]
    return session.limits.check(int(running.queue[row]), int(running.user[row]), np.sum(lost, axis=0)) is not None


def _sizes(gang: Gang, held: tuple[Seats, ...], degraded: Degraded) -> list[tuple[int, ...]]:
    """Sizes to try, from what the gang had down to its least."""
    had = tuple(each.members + lost for each, lost in zip(held, degraded.lost, strict=True))
    tried = [had]
    while any(size > role.sizes.least for role, size in zip(gang.roles, tried[-1], strict=True)):
        smaller = tuple(
            max((allowed for allowed in role.sizes.allowed if allowed < size), default=size)
            for role, size in zip(gang.roles, tried[-1], strict=True)
        )
        if smaller == tried[-1]:
            break
        tried.append(smaller)
    return tried


def _repair(
    view: View, gang: Gang, held: tuple[Seats, ...], degraded: Degraded, nodes: Exempt
) -> tuple[Seats, ...] | None:
    """Seats for the lost members beside the healthy ones; all that are needed, or none."""
    seats = list(held)
    gained = False
    for index, role in enumerate(gang.roles):
        now, lost = held[index].members, degraded.lost[index]
        wanted = [size for size in reversed(role.sizes.allowed) if now < size <= now + lost]
        if not wanted:
            continue
        for size in wanted:
            more = extend(view, gang, tuple(seats), index, size - now, nodes)
            if more is not None:
                seats[index] = add_seats(seats[index], more)
                gained = True
                break
        else:
            if now < role.sizes.least:
                return None
    short = any(each.members < role.sizes.least for role, each in zip(gang.roles, seats, strict=True))
    return _close_ranks(view, gang, seats) if gained and not short else None


def _close_ranks(view: View, gang: Gang, seats: list[Seats]) -> tuple[Seats, ...]:
    """A role that found nobody for those it lost may be left between two of its sizes: the rest goes home."""
    kept = []
    for role, each in zip(gang.roles, seats, strict=True):
        size = max(allowed for allowed in role.sizes.allowed if allowed <= each.members)
        left = drop_tail(view.fleet, role.shape, each, each.members - size)
        if size < each.members:
            view.take_seats(find_need(view.fleet, role.shape), subtract_seats(each, left), sign=-1)
        kept.append(left)
    return tuple(kept)

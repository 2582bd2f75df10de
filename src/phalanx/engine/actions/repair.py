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
    # A view of its own: the masks for repairs, spares among them, stay out of the
    # session's, which answers about starts.
    view = old.look_anew(session.usable(NOBODY))
    decisions: list[Decision] = []
    # By priority, then age, then number, under every policy: there may be one spare for two gangs, and a
    # degraded gang has no turn in the policy's order.
    order = sorted(
        snapshot.degraded, key=lambda n: (-int(running.priority[rows[n]]), int(running.eligible_us[rows[n]]), n)
    )
    for number in order:
        row, gang = rows[number], snapshot.gangs[number]
        held = tuple(seats.get(row, {}).get(role) or _nothing(session, role) for role in range(len(gang.roles)))
        # Before any repair is tried: what it holds under an open window would be kept by
        # a repair, and nothing may sit there.
        if _under_open_window(session, row, held):
            decisions.append(Evict(number, Cause.DRAIN))
            for each in held:
                # At once, since it runs nothing there: whoever is repaired after it may
                # have these seats in this same plan.
                view.take_seats(session.need_of(gang, each.role), each, sign=-1)
            # An entry without seats, not a missing one: missing, the calendar would read its seats from the snapshot
            # and keep them busy until its end.
            session.repaired[row] = []
            continue
        # Per gang, because windows bind by owner and by how long the gang will stay.
        _open_nodes(session, view, row, gang)
        decision = next(
            (
                found
                # Ordinary nodes first: a spare that is used up where any node would have
                # done is missing at the next failure.
                for nodes in (ORDINARY, WITH_SPARES)
                if (found := _repair_or_restart(session, view, row, held, snapshot.degraded[number], nodes)) is not None
            ),
            None,
        )
        if decision is not None:
            decisions.append(decision)
            _note(session, row, gang, held, decision.seats)
    # The session's own view has slots cached from before and a log that knows nothing of what was taken here.
    fresh = view.look_anew(session.usable(NOBODY))
    fresh.usable_by_exempt = old.usable_by_exempt
    session.view = fresh
    return decisions


def _nothing(session: Session, role: int) -> Seats:
    none = np.zeros(0, dtype=np.int64)
    return Seats(role, none, none, np.zeros((0, session.view.device_free.shape[1]), dtype=np.int16))


def _note(session: Session, row: int, gang: Gang, held: tuple[Seats, ...], seats: tuple[Seats, ...]) -> None:
    """The calendar and the ceilings know of it."""
    snapshot = session.snapshot
    # Written down although the snapshot has the gang as running: its row there still says the seats it had when hurt.
    end_us = snapshot.now_us + _length(session, row, gang)
    session.repaired[row] = [(session.need_of(gang, each.role), each, end_us) for each in seats]
    for before, after in zip(held, seats, strict=True):
        # Only the difference: what it held was never given back, and is in the usage that the cycle began with.
        more = (after.members - before.members) * session.need_of(gang, after.role).vector
        session.charge(int(snapshot.running.queue[row]), int(snapshot.running.user[row]), more)


def _length(session: Session, row: int, gang: Gang) -> int:
    """How long it is believed to go on; a gang that waits on held seats says nothing of that itself."""
    snapshot = session.snapshot
    running = snapshot.running
    # Members running means that it closed its ranks and goes on: then its row still tells the truth about its end.
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
        # Rule 15 (maintenance): whoever can be made to leave may sit under a window
        # that is still ahead, and gets notice.
        ahead = window.start_us < snapshot.now_us + length and window.end_us > snapshot.now_us
        if index not in exempt and ahead and not (gang.preemptible and window.start_us > snapshot.now_us):
            closed |= session.window_masks[index]
    # The masks change under the same two names, and cached rows have them multiplied in.
    view.forget()
    view.usable_by_exempt[ORDINARY] = snapshot.nodes.in_service & ~closed
    view.usable_by_exempt[WITH_SPARES] = snapshot.nodes.repairable & ~closed


def _repair_or_restart(
    session: Session, view: View, row: int, held: tuple[Seats, ...], degraded: Degraded, nodes: Exempt
) -> Repair | Restart | None:
    number = int(session.snapshot.running.gang[row])
    gang = session.snapshot.gangs[number]
    # Its queue was no longer charged for what it lost, so that others may have been let in since. A repair is an
    # admission like any other: no queue is above its limit at admission.
    if _over_limit(session, row, gang, degraded):
        return None  # others of its queue or user have what it lost; it may still queue again
    # Beside the healthy ones before anywhere else: a repair goes on with the same
    # attempt (rule 12), a restart is a new one.
    if any(len(each.nodes) for each in held):
        with view.attempt() as keep:
            repaired = _repair(view, gang, held, degraded, nodes)
            if repaired is not None:
                keep()
                return Repair(number, repaired)
    # Never torn from where it runs to be whole elsewhere: that would cost work, and growing can give it members later.
    if degraded.whole:
        return None  # it runs on with fewer
    with view.attempt() as keep:
        # What it holds counts as free for its own restart: the whole may fit on its old
        # nodes in another arrangement, or smaller.
        for seats in held:
            view.take_seats(session.need_of(gang, seats.role), seats, sign=-1)
        # The largest first: what it can have at its restart it need not grow into later, at the price of a pause.
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
    # Whoever runs is for `evacuate`, which can move or shrink it; this one loses nothing by going back to the queue.
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
        # All roles step down together: the list is as long as the longest ladder of sizes, not as the product of them.
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
        # At most what it had: more would be growth, which pays a pause and yields to
        # starts, and a repair goes before both.
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
            # A role that may run with fewer is left as it is; one below its least makes the whole repair worthless,
            # since a gang is whole or absent.
            if now < role.sizes.least:
                return None
    # Nothing gained is no repair: told of it in every pass, the instant would be walked again each time.
    short = any(each.members < role.sizes.least for role, each in zip(gang.roles, seats, strict=True))
    return _close_ranks(view, gang, seats) if gained and not short else None


def _close_ranks(view: View, gang: Gang, seats: list[Seats]) -> tuple[Seats, ...]:
    """A role that found nobody for those it lost may be left between two of its sizes: the rest goes home."""
    kept = []
    for role, each in zip(gang.roles, seats, strict=True):
        # Safe to take the maximum: below the least of a role there was no repair at all.
        size = max(allowed for allowed in role.sizes.allowed if allowed <= each.members)
        left = drop_tail(view.fleet, role.shape, each, each.members - size)
        if size < each.members:
            view.take_seats(find_need(view.fleet, role.shape), subtract_seats(each, left), sign=-1)
        kept.append(left)
    return tuple(kept)

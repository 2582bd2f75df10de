"""Whose turn it is. Each order takes pending rows and returns them in the order of their turn.

Where queues take turns by their standing (`Policy.standing`), this is the order inside a queue.

Every order ends in the sequence number (rule 1, ties), so that no two rows are equal and the result does not depend on
where rows happen to lie. `np.lexsort` takes the deciding key last, which is why the lists below read backwards.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.room.view import find_need
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Gang
from phalanx.model.snapshot import Snapshot

#: Later than any laxity: sorts behind everybody who has a date to meet.
_NO_HURRY = 1 << 62


def order_by_arrival(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Priority down, then eligibility, then sequence number."""
    # Without priorities, arrivals queue up in the very order that is asked for: there is nothing to sort.
    if snapshot.hints.in_order:
        return rows
    pending = snapshot.pending
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], -pending.priority[rows]))]


def order_by_urgency(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Priority down, then laxity, then arrival. Without a deadline, or with one that is lost, there is no hurry."""
    pending = snapshot.pending
    if not snapshot.hints.has_deadlines or not (pending.deadline_us[rows] >= 0).any():
        return order_by_arrival(snapshot, rows)
    # Laxity shrinks with the clock, at the same pace for all who wait: who stands before whom changes only when one of
    # them can no longer make it.
    hurry = _hurry(snapshot, rows)
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], hurry, -pending.priority[rows]))]


def order_by_laxity(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Whoever has the least slack and can still make it, then the rest by priority and arrival."""
    pending = snapshot.pending
    hurry = _hurry(snapshot, rows)
    calm = hurry == _NO_HURRY
    # Under `deadline` a date goes before priority, so priority counts only among those without hurry.
    priority = np.where(calm, -pending.priority[rows], 0)
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], priority, hurry, calm))]


def order_by_service(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Whoever has had the least device time, then arrival."""
    pending = snapshot.pending
    # Least attained service (LAS; Tiresias for training jobs): needs no run times, and the short are done sooner.
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], pending.attained_us[rows]))]


def share_between_users(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Rows in order, dealt out inside each queue and priority: whoever uses least first, then by what each would add.

    The first gang of everybody comes in the order of what people use now, the second in the order of what
    they would use with their first, and so on: a person with many gangs waits behind a person with few.
    """
    pending, users = snapshot.pending, snapshot.users
    # What somebody uses is their dominant share (DRF): the largest fraction of any one kind. GPUs and memory can be
    # compared only so.
    capacity = np.maximum(snapshot.fleet.capacity.sum(axis=0), 1)
    used = {user: float((users.usage[user] / capacity).max(initial=0.0)) for user in set(pending.user[rows].tolist())}
    # By the first role alone, an approximation for gangs of several: it orders people and decides nothing else.
    per_member = [find_need(snapshot.fleet, form.roles[0].shape).vector / capacity for form in snapshot.forms]
    claimed: dict[tuple[int, int, int], float] = {}
    keys = []
    columns = (pending.queue, pending.priority, pending.user, pending.form, pending.size)
    for queue, priority, user, form, size in zip(*(column[rows].tolist() for column in columns), strict=True):
        # Ann uses 0.2 and asks twice for 0.1, Bob uses 0.25 and asks once: 0.2 (Ann), 0.25 (Bob), 0.3 (Ann again).
        before = claimed.get((queue, priority, user), used[user])
        keys.append(before)
        claimed[queue, priority, user] = before + float(per_member[form].max(initial=0.0)) * size
    at = np.arange(len(rows))
    # Rounded, since these are floats: equal shares that were summed differently must tie, and fall back on `at`.
    return rows[np.lexsort((at, np.round(keys, 12), -pending.priority[rows]))]


def laxity_us(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Time to spare before the deadline, if it ran at its largest from now on; without a deadline, no end of it."""
    pending = snapshot.pending
    deadline = pending.deadline_us[rows]
    # Due at 100, now 30, runs for 50 at its largest: 20 to spare. `deadline_us` is absolute here, -1 for none.
    return np.where(deadline >= 0, deadline - snapshot.now_us - pending.length_us[rows], _NO_HURRY)


def overhead_us(gang: Gang, *, ran_before: bool) -> int:
    """What a start costs before the first useful step: starting up, and restoring what an earlier attempt saved."""
    return gang.startup_us + (gang.snapshot.restore_us if gang.snapshot is not None and ran_before else 0)


def _hurry(snapshot: Snapshot, rows: IntArray) -> IntArray:
    laxity = laxity_us(snapshot, rows)
    # A lost date is no reason to go before others: it would keep somebody from a date that can still be met.
    return np.where(laxity >= 0, laxity, _NO_HURRY)

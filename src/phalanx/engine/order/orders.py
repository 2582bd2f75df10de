"""Whose turn it is. Each order takes pending rows and returns them in the order of their turn.

Where queues take turns by their standing (`Policy.standing`), this is the order inside a queue.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.room.view import find_need
from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Snapshot

_NO_HURRY = 1 << 62


def order_by_arrival(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Priority down, then eligibility, then sequence number."""
    if snapshot.hints.in_order:
        return rows
    pending = snapshot.pending
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], -pending.priority[rows]))]


def order_by_urgency(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Priority down, then laxity, then arrival. Without a deadline, or with one that is lost, there is no hurry."""
    pending = snapshot.pending
    if not snapshot.hints.has_deadlines or not (pending.deadline_us[rows] >= 0).any():
        return order_by_arrival(snapshot, rows)
    hurry = _hurry(snapshot, rows)
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], hurry, -pending.priority[rows]))]


def order_by_laxity(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Whoever has the least slack and can still make it, then the rest by priority and arrival."""
    pending = snapshot.pending
    hurry = _hurry(snapshot, rows)
    calm = hurry == _NO_HURRY
    priority = np.where(calm, -pending.priority[rows], 0)
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], priority, hurry, calm))]


def order_by_service(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Whoever has had the least device time, then arrival."""
    pending = snapshot.pending
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], pending.attained_us[rows]))]


def share_between_users(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Rows in order, dealt out inside each queue and priority: whoever uses least first, then by what each would add.

    The first gang of everybody comes in the order of what people use now, the second in the order of what
    they would use with their first, and so on: a person with many gangs waits behind a person with few.
    """
    pending, users = snapshot.pending, snapshot.users
    capacity = np.maximum(snapshot.fleet.capacity.sum(axis=0), 1)
    used = {user: float((users.usage[user] / capacity).max(initial=0.0)) for user in set(pending.user[rows].tolist())}
    per_member = [find_need(snapshot.fleet, form.roles[0].shape).vector / capacity for form in snapshot.forms]
    claimed: dict[tuple[int, int, int], float] = {}
    keys = []
    columns = (pending.queue, pending.priority, pending.user, pending.form, pending.size)
    for queue, priority, user, form, size in zip(*(column[rows].tolist() for column in columns), strict=True):
        before = claimed.get((queue, priority, user), used[user])
        keys.append(before)
        claimed[queue, priority, user] = before + float(per_member[form].max(initial=0.0)) * size
    at = np.arange(len(rows))
    return rows[np.lexsort((at, np.round(keys, 12), -pending.priority[rows]))]


def laxity_us(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Time to spare before the deadline, if it ran at its largest from now on; without a deadline, no end of it."""
    pending = snapshot.pending
    deadline = pending.deadline_us[rows]
    return np.where(deadline >= 0, deadline - snapshot.now_us - pending.length_us[rows], _NO_HURRY)


def _hurry(snapshot: Snapshot, rows: IntArray) -> IntArray:
    laxity = laxity_us(snapshot, rows)
    return np.where(laxity >= 0, laxity, _NO_HURRY)

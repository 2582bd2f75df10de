"""The cheapest question of all: is there anybody who could start?

A cost saver, never a decision: it answers yes whenever it is not sure, and then the cycle looks
properly. Tests run whole simulations with it switched off and compare the plans.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.order.orders import laxity_us
from phalanx.engine.policy import Policy
from phalanx.engine.room.placement import find_ceiling
from phalanx.engine.room.view import View
from phalanx.engine.session import empty_ceiling
from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Hints, Snapshot

#: With more forms than this the cycle's own lazy ceilings are cheaper.
FORMS_MOST = 16


def newcomers_lack_room(snapshot: Snapshot, policy: Policy) -> bool:
    """The same without looking at a single node: the last plan said how much room it left, and none was given back."""
    hints = snapshot.hints
    # Each of these could let somebody pass who is no newcomer: no count of room, somebody whose refusal is not settled,
    # gates that have opened, or an order that moved.
    if hints.room < 0 or not hints.settled_upto or hints.gated or not _refusals_stand(hints, policy):
        return False
    # `room` is a number of members of the one form.
    if len(snapshot.forms) != 1:
        return False
    sizes = [snapshot.gangs[number].roles[0].sizes.allowed[0] for number in snapshot.fresh]
    if not sizes:
        return True
    # The second half: whoever would not fit the empty cluster must be told so, and only a proper cycle tells.
    return hints.room < min(sizes) and max(sizes) <= empty_ceiling(snapshot.fleet, snapshot.forms[0], None)


def waiting_rows(snapshot: Snapshot) -> IntArray:
    """Pending rows that may have a turn."""
    pending = snapshot.pending
    return ((pending.alive & (pending.gate == 0)) if snapshot.hints.gated else pending.alive).nonzero()[0]


_NO_ROWS = np.zeros(0, dtype=np.int64)


def nobody_fits(snapshot: Snapshot, policy: Policy, view: View) -> bool:
    """True if certainly no pending gang has room in the view, and none is waiting to be told that it never will."""
    pending = snapshot.pending
    # The form of a group is not in the column of its gangs, so that sizes would be compared with the wrong ceiling.
    if len(snapshot.forms) > FORMS_MOST or snapshot.group_forms or (snapshot.hints.limited and snapshot.fresh):
        return False  # with limits, a newcomer may have to be told that it can never run
    if snapshot.hints.settled_upto and _refusals_stand(snapshot.hints, policy):
        # Rows in order of arrival: the newcomers are the last ones.
        rows = pending.alive.nonzero()[0][-len(snapshot.fresh) :] if snapshot.fresh else _NO_ROWS
        # Behind a gate nobody starts, and `judge_gated` has looked already whether it ever could.
        rows = rows[pending.gate[rows] == 0] if snapshot.hints.gated else rows
    else:
        rows = waiting_rows(snapshot)
    if not len(rows):
        return True
    if len(snapshot.forms) == 1:
        return _none_fit(snapshot, view, 0, pending.size[rows])
    forms = pending.form[rows]
    return all(_none_fit(snapshot, view, form, pending.size[rows[forms == form]]) for form in set(forms.tolist()))


def somebody_is_too_late(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether somebody may have to be told that its deadline was out of reach from the first.

    Such a gang has no time to spare at any instant, so most queues are dismissed by one comparison. How
    large an elastic one could be, which is what its length depends on, is for the cycle to find out.
    """
    if not (policy.deadlines and snapshot.hints.has_deadlines):
        return False
    rows = waiting_rows(snapshot)
    rows = rows[snapshot.pending.deadline_us[rows] >= 0]
    if not len(rows):
        return False
    pending, gangs = snapshot.pending, snapshot.gangs
    # Rule 16: it starts up first, which is no part of a length.
    before = np.array([gangs[number].startup_us for number in pending.gang[rows].tolist()])
    # The laxity of an elastic gang is at `members_max`, which may never fit: then it is slower than the column says.
    doubtful = ((laxity_us(snapshot, rows) < before) | pending.elastic[rows]).nonzero()[0]
    for number, ahead_us in zip(pending.gang[rows[doubtful]].tolist(), before[doubtful].tolist(), strict=True):
        gang = gangs[number]
        late = gang.elastic or (gang.walltime_us or 0) + ahead_us > (gang.deadline_us or 0)
        # Told once. Without this a single hopeless gang would send every later cycle down the long way.
        if late and number not in snapshot.judged:
            return True
    return False


def _none_fit(snapshot: Snapshot, view: View, number: int, sizes: IntArray) -> bool:
    form = snapshot.forms[number]
    # The smallest is enough to ask: room for any other is room for it.
    if int(sizes.min()) <= find_ceiling(view, form):
        return False
    return int(sizes.max()) <= empty_ceiling(snapshot.fleet, form, None)


def _refusals_stand(hints: Hints, policy: Policy) -> bool:
    """Whether those who were refused in the last cycle would be refused again.

    Time only tightens a refusal of the fast walk: a filler has less time before the reservation, and
    nothing has given room back since (else `settled_upto` would be 0). Two things could loosen it: a
    newcomer that goes before the others and so changes the reservation, and a gang that outlives its
    walltime, whose expected end moves.
    """
    # A date may put a newcomer before everybody, and the first of them comes after the last plan was settled.
    dated = policy.deadlines and hints.has_deadlines
    return hints.in_order and hints.on_time and not dated

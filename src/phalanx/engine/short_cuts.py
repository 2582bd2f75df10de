"""Decide at once, where a glance is enough: the same plan as the long way, for less.

Two glances. Nobody fits: then nothing starts, and whoever was refused is refused again (`engine.prefilter`). Everybody
asks one and the same thing about the whole cluster: then sums decide (`engine.actions.single_form`). Neither is used
where running gangs may be asked to change. Tests play whole worlds with and without them and compare the plans.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.actions.single_form import SingleFormWalk, is_single_form
from phalanx.engine.order.orders import order_by_arrival, order_by_urgency
from phalanx.engine.policy import Policy
from phalanx.engine.prefilter import newcomers_lack_room, nobody_fits, somebody_is_too_late
from phalanx.engine.room.view import View, find_need
from phalanx.engine.waking import find_next_wake
from phalanx.model.plan import Plan, Settled
from phalanx.model.snapshot import Snapshot


def decide_at_once(snapshot: Snapshot, policy: Policy, gated: tuple[int, ...], *, ledger: bool) -> Plan | View | None:
    """A plan, if a glance is enough; else the room it looked at, which is still as it was, if it looked at any."""
    # Both looks below ask whether anybody may start. Repairs, evacuations and growth happen though nobody may.
    if snapshot.degraded or (snapshot.hints.has_reclaimable and is_restless(snapshot, policy)):
        return None
    if somebody_is_too_late(snapshot, policy):
        return None
    if newcomers_lack_room(snapshot, policy) and not (ledger and _changes_books(snapshot)):
        # The same room goes out as came in: nobody was let in, so that the next newcomer can be turned away as cheaply.
        return Plan(settled=Settled(snapshot.hints.room))
    nodes = snapshot.nodes
    view = View(
        snapshot.fleet,
        nodes.free,
        nodes.device_free,
        shared=nodes.shared,
        usable=nodes.in_service,
        presence=snapshot.presence,
    )
    single_form = is_single_form(snapshot, policy)
    # Where sums decide, deciding is as cheap as looking whether anybody fits, unless the last refusals still stand.
    # Under kept promises everybody is looked at; whoever keeps books wants to know what is kept, if anything is left.
    looks = not policy.keep and (snapshot.hints.settled_upto > 0 or not single_form)
    if looks and not (ledger and np.count_nonzero(nodes.free)) and nobody_fits(snapshot, policy, view):
        room = view.slots(snapshot.forms[0].roles[0].shape).total if single_form else -1
        # A newcomer that stands ahead of others may take the reservation over, and then those who were refused because
        # of it may pass. Priorities and dates are for the hints to tell (`prefilter`); other orders are not known.
        sought = snapshot.presence is not None and snapshot.presence.sought
        settled = Settled(room) if not (gated or sought) and keeps_order(policy) else None
        return Plan(infeasible=gated, settled=settled, wake_at_us=find_next_wake(snapshot, policy))
    if single_form:
        # The view was asked and not written to, so that the long way may begin with what it has cached.
        return _decide_by_sums(snapshot, policy, view, gated, ledger=ledger) or view
    return view


def _changes_books(snapshot: Snapshot) -> bool:
    """Whether newcomers without room change what the rest of it is kept for, or in how many pieces it lies."""
    # The first who waits has a reservation, and what it needs of the free room is kept from then on.
    room, nodes = snapshot.hints.room, snapshot.nodes
    if room and np.count_nonzero(snapshot.pending.alive) == len(snapshot.fresh):
        return True
    need = find_need(snapshot.fleet, snapshot.forms[0].roles[0].shape)
    free = nodes.free[:, need.columns[0]]
    return int(np.add.reduce(free, where=nodes.in_service)) // need.amounts[0] > room


def _decide_by_sums(
    snapshot: Snapshot, policy: Policy, view: View, gated: tuple[int, ...], *, ledger: bool
) -> Plan | None:
    walk = SingleFormWalk(snapshot, view)
    if not walk.run(policy, ledger=ledger):
        return None
    idle = walk.measure_idle() if ledger else None
    settles = walk.settles and not gated and keeps_order(policy)
    settled = Settled(walk.room) if settles else None
    wake_us = find_next_wake(snapshot, policy)
    return Plan(tuple(walk.binds), infeasible=gated, settled=settled, idle=idle, wake_at_us=wake_us)


def is_restless(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether running gangs may be asked to change: by the policy, by a reservation's owner, or by an administrator."""
    running = snapshot.running
    return bool(
        policy.touches_running
        or snapshot.pins
        or snapshot.windows
        # Under every policy: the owner of a reservation takes its places back whatever the policy may take (rule 8).
        or (running.guest[running.alive] > 0).any()
        or snapshot.nodes.draining.any()
    )


def keeps_order(policy: Policy) -> bool:
    """Whether newcomers stand behind those who came before them, but for priorities and dates, which hints tell of.

    Nobody knows what a user's own order does.
    """
    return policy.order in (order_by_arrival, order_by_urgency) and not policy.shares_users

"""One cycle: snapshot and policy in, plan out. The one way into the engine.

The steps are numbered in the function; each is a module of its own. Asking for reasons changes
what the plan tells, never what it decides.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.actions.allocate import Walk
from phalanx.engine.actions.evacuate import evacuate, lead_of
from phalanx.engine.actions.grow import Growth
from phalanx.engine.actions.pins import grow_pinned, shrink_pinned
from phalanx.engine.actions.repair import repair_degraded
from phalanx.engine.actions.single_form import SingleFormWalk, is_single_form
from phalanx.engine.calendar.long import LongCalendar
from phalanx.engine.calendar.port import Calendar
from phalanx.engine.calendar.short import ShortCalendar
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.order.deadlines import find_too_late
from phalanx.engine.order.orders import laxity_us, order_by_arrival, order_by_urgency
from phalanx.engine.order.turns import Turns, order_turns
from phalanx.engine.policy import Policy
from phalanx.engine.prefilter import newcomers_lack_room, nobody_fits, somebody_is_too_late
from phalanx.engine.reclaimable import Reclaimable
from phalanx.engine.room.view import View
from phalanx.engine.session import Session, empty_ceiling
from phalanx.engine.telling.idle import measure_idle
from phalanx.engine.telling.reasons import judge_pending
from phalanx.engine.transaction import Transaction
from phalanx.model.fleet import BoolArray
from phalanx.model.plan import Plan, Settled
from phalanx.model.snapshot import Snapshot


def schedule(snapshot: Snapshot, policy: Policy, *, explain: bool = False, ledger: bool = False) -> Plan:
    """Decide what happens now; with `explain`, also why everything else does not; with `ledger`, what is kept idle."""
    # 0. Most passes of a busy cluster: somebody asks, or a little room appears, and nobody fits.
    calm = not snapshot.degraded and not (snapshot.hints.has_reclaimable and is_restless(snapshot, policy))
    calm = calm and not somebody_is_too_late(snapshot, policy)
    if calm and not explain and newcomers_lack_room(snapshot):
        return Plan(settled=Settled(snapshot.hints.room))
    gated = _judge_gated(snapshot) if snapshot.hints.gated and snapshot.fresh else ()
    nodes = snapshot.nodes
    view = View(snapshot.fleet, nodes.free, nodes.device_free, shared=nodes.shared, usable=nodes.in_service)
    single_form = calm and not explain and is_single_form(snapshot, policy)
    # Where sums decide, deciding is as cheap as screening, unless the last refusals still stand.
    screened = calm and not explain and not policy.keep and (snapshot.hints.settled_upto > 0 or not single_form)
    # Whoever keeps books wants to know what is kept, if anything is left.
    screened = screened and not (ledger and np.count_nonzero(nodes.free))
    if screened and nobody_fits(snapshot, view):
        room = view.slots(snapshot.forms[0].roles[0].shape).total if single_form else -1
        wake_us = _next_wake(snapshot, policy)
        settled = Settled(room) if not gated and _keeps_order(policy) else None
        return Plan(infeasible=gated, settled=settled, wake_at_us=wake_us)
    if single_form:
        quick = SingleFormWalk(snapshot, view)
        if quick.run(policy, ledger=ledger):
            idle = quick.measure_idle() if ledger else None
            # Somebody urgent may come and take the reservation, and then others may pass.
            settles = not gated and _keeps_order(policy) and not (policy.deadlines and snapshot.hints.has_deadlines)
            settled = Settled(quick.room) if settles else None
            binds, wake_us = tuple(quick.binds), _next_wake(snapshot, policy)
            return Plan(binds, infeasible=gated, settled=settled, idle=idle, wake_at_us=wake_us)
    return _decide(Session(snapshot, policy, view), gated, explain=explain, ledger=ledger)


def is_restless(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether running gangs may be asked to change: by the policy, by a reservation's owner, or by an administrator."""
    running = snapshot.running
    return bool(
        policy.touches_running
        or snapshot.pins
        or snapshot.windows
        or (running.guest[running.alive] > 0).any()
        or snapshot.nodes.draining.any()
    )


def _decide(session: Session, gated: tuple[int, ...], *, explain: bool, ledger: bool) -> Plan:
    snapshot, policy = session.snapshot, session.policy
    # 1. Degraded gangs first, then whoever has to leave its node.
    repaired = repair_degraded(session)
    if snapshot.hints.has_reclaimable and is_restless(snapshot, policy):
        session.reclaimable = Reclaimable(snapshot, session.repaired)
        evacuate(Transaction(session, session.reclaimable))
    # 2. Whose turn it is. What can never run here is told so once and has no turn: it may not hold up anybody.
    turns = order_turns(session)
    impossible, late = _find_impossible(session, turns)
    some_impossible = bool(impossible.any())
    infeasible = gated + (_newly_judged(session, turns, impossible) if some_impossible else ())
    session.hopeless = infeasible
    # 3. Down the order: start, take room, reserve, fill.
    turns_left = turns.keep(~impossible) if some_impossible else turns
    walk = Walk(session, turns_left, choose_calendar(session, turns_left))
    walk.run()
    # 4. What is left over: sizes that people want, then surplus.
    wakes = [_next_wake(snapshot, policy)]
    # Who starts now may have to make way later, if anybody can be made to.
    if snapshot.hints.has_reclaimable and session.binds and not bool(walk.started.all()):
        wakes += [snapshot.now_us + after for after in (policy.quantum_us, policy.min_runtime_us) if after]
    wakes.append(walk.calendar.wake_us)
    if session.reclaimable is not None:
        wakes += _hand_out(Transaction(session, session.reclaimable, walk.calendar), walk)
    # 5. Tell why.
    reservations = walk.list_reservations() if explain or policy.keep else ()
    verdicts = judge_pending(session, turns, impossible, late, walk) if explain else None
    told = [] if session.reclaimable is None else session.reclaimable.list_decisions()
    settles = isinstance(walk.calendar, ShortCalendar) and not told and _stays_refused(session, turns)
    return Plan(
        decisions=(*repaired, *told, *session.binds),
        reservations=reservations,
        infeasible=infeasible,
        verdicts=verdicts,
        wake_at_us=min((at for at in wakes if at is not None and at < NEVER), default=None),
        settled=Settled() if settles else None,
        settled_in=_list_settled(session, walk),
        idle=measure_idle(session, walk) if ledger else None,
    )


def _hand_out(transaction: Transaction, walk: Walk) -> list[int | None]:
    """Pinned sizes and surplus; the answer is when to look again."""
    session, reclaimable = transaction.session, transaction.reclaimable
    ahead_us = walk.calendar.next_start_us()
    if session.snapshot.pins:
        shrink_pinned(transaction)
    transaction.set_aside()
    if session.snapshot.pins:
        grow_pinned(transaction, walk.calendar)
        transaction.set_aside()
    wakes: list[int | None] = []
    if walk.finder is not None:
        wakes += [walk.finder.wake_us, walk.finder.permits.wake_us]
    # Somebody was evicted: it may find another place at this same instant, before anybody grows into it.
    if not session.policy.moldable and not any(occupant.gone for occupant in reclaimable.occupants):
        growth = Growth(transaction, walk.calendar, ahead_us)
        growth.run()
        wakes.append(growth.wake_us)
    return wakes


def _keeps_order(policy: Policy) -> bool:
    """Whether newcomers stand behind those who came before them: nobody knows what a user's own order does."""
    return policy.order in (order_by_arrival, order_by_urgency) and not policy.shares_users


def _stays_refused(session: Session, turns: Turns) -> bool:
    """Whether a newcomer could not change what those before it were refused for."""
    policy, pending = session.policy, session.snapshot.pending
    if session.reclaimable is not None or policy.quantum_us is not None or not _keeps_order(policy):
        return False
    if policy.deadlines and session.snapshot.hints.has_deadlines and bool((pending.deadline_us[turns.rows] >= 0).any()):
        return False
    one_queue = not policy.standing or len(session.snapshot.queues.names) <= 2  # the root and one below it
    return one_queue or len(np.unique(turns.queue)) <= 1


def _list_settled(session: Session, walk: Walk) -> tuple[int, ...]:
    """Guests over whose seats no reservation lies any more."""
    guests = (
        [s for s in session.reclaimable.occupants if s.guest and not s.gone] if session.reclaimable is not None else []
    )
    if not guests:
        return ()
    covered = np.zeros(len(session.fleet), dtype=np.bool_)
    for reservation in walk.list_reservations():
        for per_gang in reservation.seats:
            for seats in per_gang:
                covered[seats.nodes] = True
    return tuple(s.number for s in guests if not any(bool(covered[seats.nodes].any()) for seats in s.seats))


def choose_calendar(session: Session, turns: Turns) -> Calendar:
    """The short calendar where it is exact, the long one elsewhere."""
    policy = session.policy
    if policy.reservations <= 1 and not policy.keep and not session.snapshot.windows:
        return ShortCalendar(session, turns)
    return LongCalendar(session, turns)


def _find_impossible(session: Session, turns: Turns) -> tuple[BoolArray, BoolArray]:
    """Turns that can never run here, and of them those that only their deadline forbids."""
    ceilings = [empty_ceiling(session.fleet, key.form, None) for key in turns.keys]
    if len(ceilings) == 1:
        impossible = turns.size > ceilings[0]
    else:
        impossible = turns.size > np.array(ceilings, dtype=np.int64)[turns.key_index]
    if session.limits.any:
        impossible |= turns.size > np.minimum(*turns.limit_caps(session, empty=True))
    late = np.zeros_like(impossible)
    if session.policy.deadlines and session.snapshot.hints.has_deadlines:
        late = find_too_late(session, turns) & ~impossible
    return impossible | late, late


def _judge_gated(snapshot: Snapshot) -> tuple[int, ...]:
    """Newcomers that have no turn yet (held, waiting) and could never run: nobody should release them to find out."""
    pending, found = snapshot.pending, []
    for row in (pending.alive & (pending.gate != 0)).nonzero()[0].tolist():
        number = int(pending.gang[row])
        if number not in snapshot.fresh or number in snapshot.judged:
            continue
        if int(pending.size[row]) > empty_ceiling(snapshot.fleet, snapshot.forms[int(pending.form[row])], None):
            found.append(number)
    return tuple(found)


def _newly_judged(session: Session, turns: Turns, impossible: BoolArray) -> tuple[int, ...]:
    gangs = session.snapshot.pending.gang
    told = session.snapshot.judged
    numbers = [int(gangs[row]) for turn in np.flatnonzero(impossible).tolist() for row in turns.rows_of(turn)]
    return tuple(number for number in numbers if number not in told)


def _list_leads(snapshot: Snapshot) -> set[int]:
    """How long before a window opens elastic gangs that run, or may start now, have to begin to leave it."""
    present = [table.gang[table.alive & table.elastic] for table in (snapshot.running, snapshot.pending)]
    return {lead_of(snapshot.gangs[number]) for numbers in present for number in numbers.tolist() if number >= 0}


def _next_wake(snapshot: Snapshot, policy: Policy) -> int | None:
    """Windows open and close, and deadlines pass out of reach, without anybody telling us.

    A promised start is no reason to wake: whatever frees its places is an event. Waking then would find
    an overrun in the way, void the promise, and place the gang anew behind gangs that it was ahead of.
    """
    if not (snapshot.windows or (policy.deadlines and snapshot.hints.has_deadlines)):
        return None
    instants = [at for window in snapshot.windows for at in (window.start_us, window.end_us)]
    if snapshot.windows and snapshot.hints.has_elastic:
        instants += [window.start_us - lead_us for window in snapshot.windows for lead_us in _list_leads(snapshot)]
    ahead = [at for at in instants if at > snapshot.now_us]
    if policy.deadlines and snapshot.hints.has_deadlines:
        rows = snapshot.pending.alive.nonzero()[0]
        laxity = laxity_us(snapshot, rows)
        reachable = laxity[(laxity >= 0) & (snapshot.pending.deadline_us[rows] >= 0)]
        ahead += [snapshot.now_us + int(reachable.min()) + 1] if len(reachable) else []
    return min(ahead, default=None)

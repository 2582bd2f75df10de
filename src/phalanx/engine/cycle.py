"""One cycle: snapshot and policy in, plan out. The one way into the engine.

The steps are numbered in the function; each is a module of its own. Asking for reasons changes
what the plan tells, never what it decides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from phalanx.engine.actions.allocate import Walk
from phalanx.engine.actions.evacuate import evacuate
from phalanx.engine.actions.pins import grow_pinned, shrink_pinned
from phalanx.engine.actions.repair import repair_degraded
from phalanx.engine.calendar.long import LongCalendar
from phalanx.engine.calendar.port import Calendar
from phalanx.engine.calendar.short import ShortCalendar
from phalanx.engine.dates.promising import Dates
from phalanx.engine.dividing.division import Division
from phalanx.engine.feasibility import find_impossible, judge_gated, list_newly_judged
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.order.turns import Turns, order_turns
from phalanx.engine.policy import Policy
from phalanx.engine.reclaimable import Reclaimable
from phalanx.engine.session import Session
from phalanx.engine.short_cuts import decide_at_once, is_restless, keeps_order
from phalanx.engine.telling.idle import measure_idle
from phalanx.engine.telling.reasons import judge_pending
from phalanx.engine.transaction import Transaction
from phalanx.engine.waking import find_next_wake
from phalanx.model.plan import Plan, Settled
from phalanx.model.snapshot import Snapshot


def schedule(snapshot: Snapshot, policy: Policy, *, explain: bool = False, ledger: bool = False) -> Plan:
    """Decide what happens now; with `explain`, also why everything else does not; with `ledger`, what is kept idle."""
    # 0. Is there anything to do? Most passes of a busy cluster end here, with nobody let in.
    # Before any short cut: whoever is held and could never run is to be told in the cycle that sees it
    # first, and a short cut has no turns to look at.
    gated = judge_gated(snapshot)
    if policy.promises_dates and snapshot.hints.has_deadlines:
        # No glance: it knows what fits, and not what is kept for a date that was promised.
        dates = Dates(snapshot, policy)
        judged = dates.judge()
        session = Session(dates.show(judged), policy)
        session.dates = dates
        return replace(_decide(session, gated, dates, explain=explain, ledger=ledger), dates=judged)
    # Reasons are numbers about room and turns, which a glance has not worked out.
    answer = decide_at_once(snapshot, policy, gated, ledger=ledger) if not explain else None
    if isinstance(answer, Plan):
        return answer
    return _decide(Session(snapshot, policy, answer), gated, explain=explain, ledger=ledger)


def _decide(
    session: Session, gated: tuple[int, ...], dates: Dates | None = None, *, explain: bool, ledger: bool
) -> Plan:
    snapshot, policy = session.snapshot, session.policy
    # 1. Degraded gangs first, then whoever has to leave its node.
    repaired = repair_degraded(session)
    if snapshot.hints.has_reclaimable and is_restless(snapshot, policy):
        # After the repairs and without the repaired: one decision per gang and plan.
        session.reclaimable = Reclaimable(snapshot, session.repaired)
        if dates is not None:
            dates.protect(session.reclaimable)
        evacuate(Transaction(session, session.reclaimable))
    # 2. Whose turn it is. What can never run here is told so once and has no turn: it may not hold up anybody.
    turns = order_turns(session)
    impossible, late = find_impossible(session, turns)
    some_impossible = bool(impossible.any())
    infeasible = gated + (list_newly_judged(session, turns, impossible) if some_impossible else ())
    # Before the walk asks for a standing: demand is counted without them (rule 2).
    session.hopeless = infeasible
    # 3. Down the order: start, take room, reserve, fill.
    # Both are needed below: `turns` to tell everybody why, `turns_left` to walk.
    turns_left = turns.keep(~impossible) if some_impossible else turns
    walk = Walk(session, turns_left, choose_calendar(session, turns_left))
    walk.run()
    # 4. What is left over: sizes that people want, then surplus.
    wakes = [find_next_wake(snapshot, policy)]
    # Who starts now may have to make way later, if anybody can be made to.
    if snapshot.hints.has_reclaimable and session.binds and not bool(walk.started.all()):
        wakes += [snapshot.now_us + after for after in (policy.quantum_us, policy.min_runtime_us) if after]
    wakes.append(walk.calendar.wake_us)
    if session.reclaimable is not None:
        wakes += _hand_out(Transaction(session, session.reclaimable, walk.calendar), walk)
    # 5. Tell why.
    # Under `replan` a reservation is forgotten with the cycle, and to work out one
    # that nobody filled around costs a search.
    reservations = walk.list_reservations() if explain or policy.keep else ()
    verdicts = judge_pending(session, turns, impossible, late, walk) if explain else None
    told = [] if session.reclaimable is None else session.reclaimable.list_decisions()
    # Windows open and promises come due with time alone; whoever changes size or place frees room.
    # Each could let in somebody who was refused.
    settles = isinstance(walk.calendar, ShortCalendar) and not told and _stays_refused(session, turns)
    return Plan(
        decisions=(*repaired, *told, *session.binds),
        reservations=reservations,
        infeasible=infeasible,
        verdicts=verdicts,
        # One instant is enough: the cycle that it brings about works out the next.
        wake_at_us=min((at for at in wakes if at is not None and at < NEVER), default=None),
        settled=Settled() if settles else None,
        settled_in=_list_settled(session, walk),
        idle=measure_idle(session, walk) if ledger else None,
    )


def _hand_out(transaction: Transaction, walk: Walk) -> list[int | None]:
    """Pinned sizes and surplus; the answer is when to look again."""
    session, reclaimable = transaction.session, transaction.reclaimable
    if session.snapshot.pins:
        shrink_pinned(transaction)
    # After the starts, which may sit on seats that are being vacated; before growth, which may not (decision 6).
    transaction.set_aside()
    if session.snapshot.pins:
        walk.calendar.look_ahead()  # what is kept for somebody is not for a pin either
        grow_pinned(transaction, walk.calendar)
        transaction.set_aside()
    wakes: list[int | None] = []
    if walk.finder is not None:
        wakes += [walk.finder.wake_us, walk.finder.permits.wake_us]
    # Somebody was evicted: it may find another place at this same instant, before anybody grows into it.
    if not session.policy.moldable and not any(occupant.gone for occupant in reclaimable.occupants):
        division = Division(transaction, walk.calendar)
        division.run()
        wakes.append(division.wake_us)
    return wakes


def _stays_refused(session: Session, turns: Turns) -> bool:
    """Whether a newcomer could not change what those before it were refused for."""
    policy, pending = session.policy, session.snapshot.pending
    # A start may let in whoever wants to be beside somebody, or as many as elsewhere.
    presence = session.snapshot.presence
    if presence is not None and presence.sought:
        return False
    # Where running gangs can give something back, or turns end, time alone can let in whoever was refused.
    if session.reclaimable is not None or policy.quantum_us is not None or not keeps_order(policy):
        return False
    if policy.deadlines and session.snapshot.hints.has_deadlines and bool((pending.deadline_us[turns.rows] >= 0).any()):
        return False
    # Let in as one who stays for ever, and judged from the next instant on by a length that nobody stated (rule 7).
    if not all(session.proven(bind.gang) for bind in session.binds):
        return False
    one_queue = not (policy.standing and session.snapshot.queues.many)
    return one_queue or len(np.unique(turns.queue)) <= 1


def _list_settled(session: Session, walk: Walk) -> tuple[int, ...]:
    """Guests over whose seats no reservation lies any more."""
    guests = (
        [s for s in session.reclaimable.occupants if s.guest and not s.gone] if session.reclaimable is not None else []
    )
    if not guests:
        return ()
    # By nodes and not by seats, as a guest is told (rule 8): it stays one until no reservation covers its seats.
    covered = walk.calendar.reserved_nodes()
    return tuple(s.number for s in guests if not any(bool(covered[seats.nodes].any()) for seats in s.seats))


def choose_calendar(session: Session, turns: Turns) -> Calendar:
    """The short calendar where it is exact, the long one elsewhere."""
    policy = session.policy
    # Exact means that room only grows between now and the one start ahead. A second start, a promise or a window
    # anywhere breaks that, so that a few views can no longer answer.
    if policy.reservations <= 1 and not policy.keep and not session.snapshot.windows:
        return ShortCalendar(session, turns)
    return LongCalendar(session, turns)

"""One cycle: snapshot and policy in, plan out. The one way into the engine.

The steps are numbered in the function; each is a module of its own. Asking for reasons changes
what the plan tells, never what it decides.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.actions.allocate import Walk
from phalanx.engine.actions.by_sums import SumsWalk, sums_decide
from phalanx.engine.actions.plan_ahead import PlanAhead
from phalanx.engine.policy import Policy
from phalanx.engine.reasons import judge_pending
from phalanx.engine.screen import newcomers_lack_room, nobody_fits
from phalanx.engine.session import Session, empty_ceiling
from phalanx.engine.turns import Turns, order_turns
from phalanx.engine.view import View
from phalanx.model.fleet import BoolArray
from phalanx.model.plan import Plan
from phalanx.model.snapshot import Snapshot


def schedule(snapshot: Snapshot, policy: Policy, *, explain: bool = False) -> Plan:
    """Decide what starts now; with `explain`, also why everything else does not."""
    # 0. Most passes of a busy cluster: somebody asks, or a little room appears, and nobody fits.
    if not explain and newcomers_lack_room(snapshot):
        return Plan(settled=True, room=snapshot.room)
    gated = _judge_gated(snapshot) if snapshot.gated and snapshot.fresh else ()
    nodes = snapshot.nodes
    view = View(snapshot.fleet, nodes.free, nodes.device_free, shared=nodes.shared, usable=nodes.in_service)
    by_sums = not explain and sums_decide(snapshot, policy)
    # Where sums decide, deciding is as cheap as screening, unless the last refusals still stand.
    screened = not explain and not policy.keep and (snapshot.settled_upto > 0 or not by_sums)
    if screened and nobody_fits(snapshot, view):
        room = view.slots(snapshot.forms[0].roles[0].shape).total if by_sums else -1
        return Plan(infeasible=gated, settled=not gated, room=room, wake_at_us=_next_wake(snapshot))
    if by_sums:
        quick = SumsWalk(snapshot, view)
        if quick.run(policy):
            return Plan(decisions=tuple(quick.binds), infeasible=gated, settled=not gated, room=quick.room)
    # 1. A working copy, and whose turn it is.
    session = Session(snapshot, policy, view)
    turns = order_turns(session)
    # 2. What can never run here is told so once and has no turn: it may not hold up anybody.
    impossible = _find_impossible(session, turns)
    some_impossible = bool(impossible.any())
    infeasible = gated + (_newly_judged(session, turns, impossible) if some_impossible else ())
    # 3. Down the order: start, reserve, fill.
    walk = _walk(session, turns.keep(~impossible) if some_impossible else turns)
    walk.run()
    # 4. Tell why.
    reservations = walk.list_reservations() if explain or policy.keep else ()
    verdicts = judge_pending(session, turns, impossible, walk) if explain else None
    return Plan(
        decisions=tuple(session.binds),
        reservations=reservations,
        infeasible=infeasible,
        verdicts=verdicts,
        wake_at_us=_next_wake(snapshot),
        settled=isinstance(walk, Walk),
    )


def _walk(session: Session, turns: Turns) -> Walk | PlanAhead:
    """The fast walk where it is exact, the general one elsewhere."""
    policy = session.policy
    if policy.reservations <= 1 and not policy.keep and not session.snapshot.windows:
        return Walk(session, turns)
    return PlanAhead(session, turns)


def _find_impossible(session: Session, turns: Turns) -> BoolArray:
    ceilings = [empty_ceiling(session.fleet, question.form, None) for question in turns.questions]
    if len(ceilings) == 1:
        impossible = turns.size > ceilings[0]
    else:
        impossible = turns.size > np.array(ceilings, dtype=np.int64)[turns.question]
    if session.limits.any:
        impossible |= turns.size > np.minimum(*turns.limit_caps(session, empty=True))
    return impossible


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


def _next_wake(snapshot: Snapshot) -> int | None:
    """Windows open and close without anybody telling us.

    A promised start is no reason to wake: whatever frees its places is an event. Waking then would find
    an overrun in the way, void the promise, and place the gang anew behind gangs that it was ahead of.
    """
    ahead = [at for window in snapshot.windows for at in (window.start_us, window.end_us) if at > snapshot.now_us]
    return min(ahead, default=None)

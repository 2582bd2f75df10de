"""Everything that keeps one gang from starting, on demand.

A plan carries the dominant reason of everybody as a column. Here one gang is looked at from all
sides, and the calendar is asked when it would start if everybody ahead of it had a reservation too.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.engine.cycle import schedule
from phalanx.engine.order.turns import Offer, Turns, find_over_limit, order_turns
from phalanx.engine.policy import EVERYONE, Policy
from phalanx.engine.session import Session, empty_ceiling
from phalanx.engine.telling.reasons import find_row, measure_room
from phalanx.model.plan import Plan
from phalanx.model.reason import Code, Reason
from phalanx.model.snapshot import Snapshot


def explain(snapshot: Snapshot, policy: Policy, gang: int) -> tuple[Reason, ...]:
    """All blockers of a pending gang, the dominant one first; empty if it starts or is not pending."""
    row = find_row(snapshot, gang)
    if row < 0:
        return ()
    # By the cycle itself and not by an answer of its own: a reason that differs from
    # what was decided is worse than none.
    plan = schedule(snapshot, policy, explain=True)
    assert plan.verdicts is not None
    code = Code(int(plan.verdicts.codes[row]))
    if code is Code.NONE:
        return ()
    first = Reason(code, int(plan.verdicts.needed[row]), int(plan.verdicts.available[row]))
    # Whoever has no turn is kept by that alone; room and limits would be true and beside the point.
    if snapshot.pending.gate[row] or code is Code.INFEASIBLE:
        return (first,)
    # Also what would keep it waiting once the dominant reason is gone: else it is told of one obstacle after the other.
    others = [reason for reason in _look_around(snapshot, policy, row) if reason.code is not code]
    eta = find_eta(snapshot, policy, gang, plan)
    return tuple(replace(reason, eta_us=eta) for reason in (first, *sorted(others, key=lambda each: each.code)))


def find_eta(snapshot: Snapshot, policy: Policy, gang: int, plan: Plan | None = None) -> int | None:
    """The expected start: its reservation, or what it would get if every gang ahead had one. None if nobody knows."""
    known = plan.reservations if plan is not None else ()
    if not any(gang in reservation.gangs for reservation in known):
        # As conservative backfill would plan it: everybody ahead has a start, and nobody stops those behind.
        ahead = replace(policy, reservations=EVERYONE, keep=False, stops=False)
        known = schedule(snapshot, ahead, explain=True).reservations
    return next((each.start_us for each in known if gang in each.gangs), None)


def _look_around(snapshot: Snapshot, policy: Policy, row: int) -> list[Reason]:
    """Blockers that stand by themselves, each with its numbers, before anybody is started."""
    session = Session(snapshot, policy)
    turns = order_turns(session)
    # Always found: rows behind a gate, the only ones without a turn, were answered above.
    turn = next(at for at in range(len(turns)) if row in turns.rows_of(at))
    key, size = turns.key_of(turn), int(turns.size[turn])
    found = _limits(session, turns, turn)
    room = measure_room(session, key, {})
    needed = room.needed or size
    # One wait seen closer and closer: in total, in pieces, in one place. The widest that fails says it.
    for code, available in (
        (Code.CAPACITY, room.in_total),
        (Code.FRAGMENTATION, room.on_nodes),
        (Code.TOPOLOGY, room.in_domain),
        (Code.NEIGHBOURS, room.by_rules),
    ):
        if needed > available:
            found.append(Reason(code, needed, available))
            break
    service = empty_ceiling(session.fleet, key.form, session.in_service)
    # Beside the others and not instead: with the nodes back in service it may still lack room.
    if size > service:
        found.append(Reason(Code.NODE_CONSTRAINT, size, service))
    return found


def _limits(session: Session, turns: Turns, turn: int) -> list[Reason]:
    key = turns.key_of(turn)
    over = find_over_limit(session, turns, turn, Offer(key.form, int(turns.size[turn]), 0))
    return [] if over is None else [Reason(over.code, over.needed, over.available, over.name)]

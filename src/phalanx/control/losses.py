"""What happens when a node goes from under gangs, and everything that becomes due by time alone.

A gang that stays at or above its least closes its ranks and goes on. One that falls below holds the
seats it has left for a bounded time, so that a repair finds them; then it queues again with its age.
Losing attempt after attempt without saving anything costs a growing rest, and in the end the gang.
A node that kills gangs again and again is not trusted for a growing while.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from phalanx.control.leaving import leave, requeue
from phalanx.control.seating import attained_us, drop_nodes, past_of, reseat, vacate_due
from phalanx.control.tables import Tables
from phalanx.control.waiting import queue_up, set_gates
from phalanx.engine.lifecycle import Happening, Phase, advance
from phalanx.engine.room.seats import drop_tail
from phalanx.model.plan import Bind, Seats
from phalanx.model.snapshot import Degraded

#: How long a degraded gang keeps the seats it has left.
HOLD_FOR_US = 600_000_000
#: The first rest of a gang that fails again without progress; each further one is twice as long, up to the last.
REST_FIRST_US = 10_000_000
REST_LAST_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Loss:
    """What a lost node meant for one gang."""

    gang: int
    how: str  # whole: it goes on with fewer; hurt: it holds what is left; unclaimed: it had not begun


def lose_node(state: Tables, node: int) -> list[Loss]:
    """Take a node from under everybody on it; the node itself is marked by the caller."""
    state.thaw()
    losses = [_lose_members(state, number, node) for number in state.gangs_on(node)]
    killed = sum(loss.how == "hurt" for loss in losses)
    # Those that went on with fewer members were not killed, and do not speak against the node.
    for _ in range(killed):
        until_us = state.nodes.suspicion.note_kill(node, state.now_us)
        if until_us is not None:
            state.set_timer(until_us, "trust", node, 0)
    state.hints.unsettle()
    return losses


def _lose_members(state: Tables, number: int, node: int) -> Loss:
    record = state.records[number]
    if record.phase is Phase.STARTING:
        # It had not begun: nothing is lost but its place, and somebody may have been evicted for it (rule 10).
        state.evictions_in_vain += past_of(record).forced
        requeue(state, number)
        return Loss(number, "unclaimed")
    left = drop_nodes(record.seats, node)
    lost = tuple(before.members - after.members for before, after in zip(record.seats, left, strict=True))
    earlier = state.degraded.get(number)
    if earlier is not None:
        # A second node may fail before the first loss is repaired; a repair must give back both.
        lost = tuple(a + b for a, b in zip(lost, earlier.lost, strict=True))
    past = past_of(record)
    past.token += 1
    if record.phase is Phase.RUNNING:
        past.attained_us += attained_us(state, record)
        # Rule 12: an elastic gang that keeps its minimum pays a pause and loses no work.
        # Rigid gangs end up below: their one size is all or nothing.
        whole = _close_ranks(state, number, left)
        if whole is not None:
            reseat(state, record, whole)
            state.running.columns["attained_us"][record.row] = past.attained_us
            state.degraded[number] = Degraded(lost, whole=True)
            return Loss(number, "whole")
    record.phase = advance(record.phase, Happening.DEGRADED, record.gang.name)
    reseat(state, record, left)
    columns = state.running.columns
    # It runs nothing. Neither may anybody take what it holds, or the repair would find nothing to build on.
    columns["members"][record.row] = 0
    columns["preemptible"][record.row] = columns["elastic"][record.row] = False
    columns["guest"][record.row] = 0
    # To the calendar it ends with its hold: those who wait can be planned on its seats from then on.
    columns["start_us"][record.row], columns["length_us"][record.row] = state.now_us, HOLD_FOR_US
    state.hints.ends.note(state.now_us + HOLD_FOR_US)
    state.degraded[number] = Degraded(lost, whole=False)
    state.set_timer(state.now_us + HOLD_FOR_US, "hold", number, past.token)
    return Loss(number, "hurt")


def _close_ranks(state: Tables, number: int, left: tuple[Seats, ...]) -> tuple[Seats, ...] | None:
    """What is left, cut to sizes that the gang may have; None if it is below its least."""
    gang, kept = state.gangs[number], []
    for role, seats in zip(gang.roles, left, strict=True):
        allowed = [size for size in role.sizes.allowed if size <= seats.members]
        if not allowed:
            return None
        # 7 left where 2, 4 and 8 are allowed: four go on, and three seats that are fine are given back as well.
        kept.append(drop_tail(state.fleet, role.shape, seats, seats.members - allowed[-1]))
    return tuple(kept)


def note_failure(state: Tables, number: int, *, progressed: bool) -> bool:
    """An attempt was lost. True if the gang has used up its restarts."""
    past = past_of(state.records[number])
    # A new snapshot makes this failure the first one: the gang gets on, if slowly.
    past.failures = 1 if progressed else past.failures + 1
    # More than: so many restarts are granted, and every failure but the last is followed by one.
    return past.failures > state.gangs[number].max_restarts


def requeue_after_loss(state: Tables, number: int) -> None:
    """A gang that lost its attempt gives its seats up and waits again; after repeated failures it rests first."""
    record = state.records[number]
    past = past_of(record)
    leave(state, number, Happening.LOSE)
    # None after the first failure, then 10 s, 20 s, 40 s, up to an hour.
    rest_us = min(REST_FIRST_US << max(past.failures - 2, 0), REST_LAST_US) if past.failures > 1 else 0
    # While it rests it holds nothing and evicts nobody: the gate stops it before any question of room (decision 11).
    past.resting = rest_us > 0
    if past.resting:
        state.set_timer(state.now_us + rest_us, "rest", number, past.token)
    queue_up(state, number, record)


@dataclass(slots=True)
class Due:
    """What time alone has brought about."""

    begun: list[Bind] = field(default_factory=list)  # starts whose seats have been vacated
    requeued: list[int] = field(default_factory=list)  # degraded gangs whose hold is over


def tick(state: Tables) -> Due:
    """Everything that is due by now."""
    due = Due()
    state.thaw()
    # Before any timer: a start that is due needs its seats free.
    if vacate_due(state):
        state.hints.unsettle()
    while state.timers and state.timers[0][0] <= state.now_us:
        _, what, number, token = heapq.heappop(state.timers)
        # Node timers have no gang and no token.
        if what == "trust":
            if state.nodes.suspicion.forgive(state.now_us):
                state.nodes_changed()
            continue
        if what == "retry":
            state.hints.unsettle()  # what was refused may be asked again
            continue
        record = state.records[number]
        past = past_of(record)
        if past.token != token:
            continue  # set for a stay that is over
        if what == "start" and record.phase is Phase.STARTING:
            record.phase = advance(record.phase, Happening.BIND, record.gang.name)
            record.attempts += 1
            assert past.claim is not None
            due.begun.append(past.claim)
            past.claim = None
        elif what == "hold" and record.phase is Phase.DEGRADED:
            requeue_after_loss(state, number)
            due.requeued.append(number)
        elif what == "rest" and record.phase is Phase.PENDING:
            past.resting = False
            set_gates(state, record)
    return due

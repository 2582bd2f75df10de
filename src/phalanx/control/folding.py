"""Carry a plan out on the tables: first everything that is given back, then everything that is taken.

Seats that a shrinking gang leaves stay busy until its pause is over. A start that was planned on
such seats has them from now on, and begins when they are vacated.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from phalanx.control.leaving import requeue
from phalanx.control.records import Record
from phalanx.control.seating import attained_us, claim_or_bind, given_back, keep_busy, past_of, seat, unseat
from phalanx.control.tables import Tables
from phalanx.engine.dividing.division import COOL_LEAST_US, COOL_PAUSES
from phalanx.engine.lifecycle import Happening, Phase, advance
from phalanx.engine.room.seats import elastic_members, sizes_of
from phalanx.engine.room.view import find_need
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Bind, Cause, Evict, Move, Plan, Repair, Resize, Restart, Seats
from phalanx.perfmodel.speedup import Linear, Table, scaled_us


@dataclass(slots=True)
class Folded:
    """What came of a plan."""

    begun: list[Bind] = field(default_factory=list)  # starts for which nobody has to leave first
    cancelled: list[int] = field(default_factory=list)
    heard: bool = False  # somebody waited for an end that will not come


@dataclass(slots=True)
class _Leaving:
    """Seats that a gang gives back and still sits on until its pause is over."""

    number: int
    record: Record
    seats: tuple[Seats, ...]
    until_us: int


def fold(state: Tables, plan: Plan) -> Folded:
    """Write the decisions of a plan into the state."""
    starts = [decision for decision in plan.decisions if isinstance(decision, Bind)]
    if len(starts) == len(plan.decisions):
        # Nobody leaves, so nobody waits for seats: all that remains is to sit down.
        # The case of most plans, and of every plan of a log: no copy of the room, no search for lenders.
        for bind in starts:
            claim_or_bind(state, bind.gang, bind, state.now_us)
        return Folded(starts)
    # Everything given back first, in whatever order the plan lists it: a start may sit on what a later decision frees.
    leaving = _give_back(state, plan)
    # For whom somebody was evicted: if such a claim is lost before it begins, that eviction was in vain (rule 10).
    forced = {decision.beneficiary for decision in plan.decisions if isinstance(decision, Evict)}
    folded = Folded()
    # Before anybody sits down: it reads free room as it is after the giving back, and follows the plan in its own copy.
    lenders = _find_all_lenders(state, plan, leaving) if leaving else {}
    for decision in plan.decisions:
        if isinstance(decision, Bind):
            _bind(state, decision, lenders.get(decision.gang, {}), folded, forced=decision.gang in forced)
        elif isinstance(decision, Repair | Restart):
            _repair(state, decision)
        elif isinstance(decision, Resize | Move):
            _sit(state, decision.gang, decision.seats)
            if isinstance(decision, Resize):
                _cool(state, decision)
    for each in leaving:
        # After everybody sits: what is still free of it then is claimed by nobody.
        keep_busy(state, each.record, each.seats, each.until_us)
    # Room may have come free in this plan, so that refusals of earlier cycles no longer stand.
    state.hints.unsettle()
    return folded


def _give_back(state: Tables, plan: Plan) -> list[_Leaving]:
    leaving: list[_Leaving] = []
    for decision in plan.decisions:
        if isinstance(decision, Evict):
            _evict(state, decision)
        elif isinstance(decision, Resize):
            leaving += _make_room(state, decision)
        elif not isinstance(decision, Bind):
            unseat(state, state.records[decision.gang])
    return leaving


def _bind(state: Tables, bind: Bind, lenders: dict[int, int], folded: Folded, *, forced: bool) -> None:
    # When the last lender is gone. A gang is whole or absent, so that it cannot begin on those seats that are empty.
    start_us = max([state.now_us, *lenders.values()])
    claim_or_bind(state, bind.gang, bind, start_us)
    if start_us > state.now_us:
        past = past_of(state.records[bind.gang])
        past.forced, past.lenders = forced, lenders
    else:
        folded.begun.append(bind)


def _evict(state: Tables, decision: Evict) -> None:
    past = past_of(state.records[decision.gang])
    # A turn that is over is no eviction (rule 12 counts neither moves nor yields): counted, rotation would soon make
    # every gang immune by `max_evictions`.
    past.evictions += decision.cause is not Cause.TURN
    requeue(state, decision.gang)


def _make_room(state: Tables, decision: Resize) -> list[_Leaving]:
    record = state.records[decision.gang]
    past_of(record).attained_us += attained_us(state, record)  # at its old size until now
    _foresee(state, record, decision)
    # All of it, also what it keeps: `_sit` takes that again, so that no sum has to follow the difference.
    unseat(state, record)
    # Without a pause the seats are empty at once, and nobody has to wait for them.
    back = tuple(each for each in given_back(record.seats, decision.seats) if len(each.nodes))
    pause_us = record.gang.resize_pause_us
    return [_Leaving(decision.gang, record, back, state.now_us + pause_us)] if back and pause_us else []


def _foresee(state: Tables, record: Record, decision: Resize) -> None:
    """When it will be done at its new size, until it says so itself."""
    columns, gang = state.running.columns, record.gang
    left_us = int(columns["start_us"][record.row] + columns["length_us"][record.row]) - state.now_us
    had, has = (elastic_members(gang, sizes_of(seats)) for seats in (record.seats, decision.seats))
    # Of one that outlives its word nothing is known; of one that is degraded the row speaks of its hold.
    if had == has or left_us <= 0 or record.phase is not Phase.RUNNING:
        return
    # A pass may come before its own word does: with the old end a gang that gave half of itself would seem to be done
    # as soon as before, and to have more to spare (rule 6: by the curve, at its present size).
    points = state.curves.get(decision.gang)
    left_us = scaled_us(left_us, Table(points) if points else Linear(), had, has) + gang.resize_pause_us
    columns["length_us"][record.row] = state.now_us + left_us - columns["start_us"][record.row]
    state.hints.ends.note(state.now_us + left_us)


def _sit(state: Tables, number: int, seats: tuple[Seats, ...]) -> None:
    record = state.records[number]
    record.seats = seats
    for each in seats:
        seat(state, record, record.row, each)
    state.running.columns["members"][record.row] = sum(each.members for each in seats)


def _cool(state: Tables, decision: Resize) -> None:
    record = state.records[decision.gang]
    columns = state.running.columns
    cool_us = max(COOL_LEAST_US, COOL_PAUSES * record.gang.resize_pause_us)
    # By the constants of the engine's own growth: a rest that this end counts otherwise would be broken or never end.
    columns["cool_until_us"][record.row] = state.now_us + cool_us
    # The kind of guest only rises while a gang sits (decision 10); it falls when no
    # reservation covers it (`settled_in`).
    columns["guest"][record.row] = max(int(columns["guest"][record.row]), decision.guest)
    # Attained service counts from the last change of size.
    columns["attained_us"][record.row] = past_of(record).attained_us


def _repair(state: Tables, decision: Repair | Restart) -> None:
    record = state.records[decision.gang]
    columns = state.running.columns
    # One that ran on with fewer members keeps its start and its end: it only gets members back.
    was_degraded = record.phase is Phase.DEGRADED
    if was_degraded:
        record.phase = advance(record.phase, Happening.REPAIR, record.gang.name)
        # `losses` had cleared these, so that nobody could take what it held.
        columns["preemptible"][record.row] = record.gang.preemptible
        columns["elastic"][record.row] = record.gang.elastic
        columns["start_us"][record.row] = state.now_us
        columns["saved_us"][record.row] = state.now_us
        # From scratch, as `engine.actions.repair` plans it: what it had saved is known
        # to whoever runs it, and is told later.
        length = record.gang.walltime_us if record.gang.walltime_us is not None else state.default_walltime_us
        columns["length_us"][record.row] = length
        state.hints.ends.note(state.now_us + length)
    # Its hold is over: the timer that would send it back to the queue must not find it.
    past_of(record).token += 1
    # Rule 12: a repair is the same attempt, a restart a new one.
    if isinstance(decision, Restart):
        record.attempts += 1
    _sit(state, decision.gang, decision.seats)
    state.degraded.pop(decision.gang, None)


def _find_all_lenders(state: Tables, plan: Plan, leaving: list[_Leaving]) -> dict[int, dict[int, int]]:
    """Gangs on whose seats starts wait, by start; of gangs that start together, each waits for the lenders of all."""
    free = state.nodes.free.copy()  # as the plan fills it up
    vacated = np.zeros_like(free)  # what is free now has these amounts in it already
    for each in leaving:
        for seats in each.seats:
            need = find_need(state.fleet, each.record.gang.roles[seats.role].shape)
            vacated[seats.nodes] += seats.counts[:, None] * need.vector
    # What is free now has what is being vacated in it. Binds take what is really empty first, and who comes when that
    # is used up waits: so the order of the plan decides, as it did in the engine.
    found: dict[int, dict[int, int]] = {}
    by_group: dict[int, dict[int, int]] = {}
    for decision in plan.decisions:
        if not isinstance(decision, Bind):
            for seats in () if isinstance(decision, Evict) else decision.seats:  # nobody of them is seated yet
                need = find_need(state.fleet, state.gangs[decision.gang].roles[seats.role].shape)
                free[seats.nodes] -= seats.counts[:, None] * need.vector
            continue
        group = int(state.pending.columns["group"][state.records[decision.gang].row])
        # One dictionary for all of a group: a lender found for its last gang must hold up
        # its first, or they would start apart.
        lenders = found[decision.gang] = by_group.setdefault(group, {}) if group >= 0 else {}
        lenders.update(_find_lenders(state, decision, leaving, free, vacated))
    return found


def _find_lenders(
    state: Tables, bind: Bind, leaving: list[_Leaving], free: IntArray, vacated: IntArray
) -> dict[int, int]:
    """Gangs on whose seats a start waits, with the instant at which they are gone; what it takes goes out of `free`."""
    lenders: dict[int, int] = {}
    for seats in bind.seats:
        need = find_need(state.fleet, state.gangs[bind.gang].roles[seats.role].shape)
        asked = seats.counts[:, None] * need.vector
        # Below zero where somebody before has taken what is being vacated; that is not this one's debt.
        room = np.maximum(free[seats.nodes] - vacated[seats.nodes], 0)
        free[seats.nodes] -= asked
        if need.share or need.whole:
            asked[:, state.fleet.device_column] = 0  # devices have names: they are compared one by one
        # On a node that is short by amounts every leaver is waited for, since amounts have no names.
        short = (asked > room).any(axis=1)
        for each in leaving:
            if _sits_there(each, seats, seats.nodes[short], devices=bool(need.share or need.whole)):
                lenders[each.number] = each.until_us
    return lenders


def _sits_there(leaving: _Leaving, seats: Seats, short: IntArray, *, devices: bool) -> bool:
    """Whether a gang that is leaving still uses a device of these seats, or anything on a node that is short."""
    for other in leaving.seats:
        where = {node: row for row, node in enumerate(other.nodes.tolist())}
        # Any kind will do: a member of CPUs alone can hold up another one of CPUs on a node with free devices.
        if any(node in where for node in short.tolist()):
            return True
        # Of devices the very same one must be meant: beside it on the node the start disturbs nobody.
        at = [row for row, node in enumerate(seats.nodes.tolist()) if node in where]
        there = [where[node] for node in seats.nodes[at].tolist()]
        if devices and bool((np.minimum(seats.devices[at], other.devices[there]) > 0).any()):
            return True
    return False

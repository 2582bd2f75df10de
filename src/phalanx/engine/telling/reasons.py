"""Why pending gangs do not start, for all of them at once.

Per placement key the numbers are the same for every gang that asks it, so they are worked out once and
compared with a column of sizes. Numbers count members of the role that fits worst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from phalanx.engine.order.deadlines import find_needed_us
from phalanx.engine.order.turns import Turns
from phalanx.engine.room.placement import row_ceiling
from phalanx.engine.room.view import SlotRow
from phalanx.engine.session import PlacementKey, Session, empty_ceiling
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.plan import Verdicts
from phalanx.model.reason import Code
from phalanx.model.snapshot import Snapshot


class WalkOutcome(Protocol):
    """What a walk knows about the turns that did not start."""

    started: BoolArray
    undecided: set[int]

    def why_not(self, turn: int) -> Code:
        """Of a gang that has room now: what keeps it from starting."""
        ...


@dataclass(frozen=True, slots=True)
class RoomLeft:
    """What one placement key finds at the end of a cycle, in members of the role that fits worst."""

    needed: int  # of that role, if the form has its sizes inside; else 0: the turn's own size
    in_total: int  # that free amounts would hold, were they in one piece
    on_nodes: int  # that fit on nodes
    in_domain: int  # that fit in the best domain of the required level
    by_rules: int  # of these, as many as rules about others leave


def judge_pending(
    session: Session, turns: Turns, impossible: BoolArray, late: BoolArray, walk: WalkOutcome
) -> Verdicts:
    """A code and two numbers for every pending row; `walk` speaks of the turns that are not impossible.

    `late`: of the impossible ones those that only their deadline forbids.
    """
    pending = session.snapshot.pending
    codes = np.where(pending.alive, pending.gate, 0).astype(np.int8)
    needed, available = np.zeros(len(codes), dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    sums: dict[bytes, IntArray] = {}
    for row in np.flatnonzero(codes).tolist():  # held or waiting, but told already that it can never run
        form = session.snapshot.forms[int(pending.form[row])]
        most = empty_ceiling(session.fleet, form, None)
        # Infeasible stands before Held in the order of reasons: releasing it would change nothing.
        if int(pending.size[row]) > most:
            codes[row], needed[row], available[row] = Code.INFEASIBLE, pending.size[row], most
    # After the walk: numbers speak of what is free once everybody who starts has started.
    rooms = [measure_room(session, key, sums) for key in turns.keys]
    judged = _judge_turns(session, turns, impossible, walk, rooms)
    codes[turns.rows], needed[turns.rows], available[turns.rows] = judged
    for row in turns.rows[late].tolist():
        codes[row], needed[row], available[row] = Code.DEADLINE_UNREACHABLE, *_measure_lateness(session, row)
    for last, rows in turns.members.items():  # what is said of a group is said of every gang of it
        codes[rows], needed[rows], available[rows] = codes[last], needed[last], available[last]
    return Verdicts(codes, needed, available)


def _measure_lateness(session: Session, row: int) -> tuple[int, int]:
    """Time that a gang needs, and time that its deadline leaves it, from its submit; of a group, its last gang's."""
    snapshot, number = session.snapshot, int(session.snapshot.pending.gang[row])
    gang, verdict = snapshot.gangs[number], snapshot.dates.get(number)
    needed_us = find_needed_us(snapshot, row) or 0
    # Refused beside those to whom dates were promised: then it is what could have been promised that it needs.
    if verdict is not None and not verdict.promised and verdict.earliest_us is not None:
        needed_us = max(needed_us, verdict.earliest_us - gang.submit_us)
    return needed_us, gang.deadline_us or 0


def _judge_turns(
    session: Session, turns: Turns, impossible: BoolArray, walk: WalkOutcome, rooms: list[RoomLeft]
) -> tuple[npt.NDArray[np.int8], IntArray, IntArray]:
    key = turns.key_index
    columns = np.array([(r.needed, r.in_total, r.on_nodes, r.in_domain, r.by_rules) for r in rooms]).reshape(-1, 5)[key]
    size = np.where(columns[:, 0] > 0, columns[:, 0], turns.size)
    codes = np.full(len(turns), Code.NONE, dtype=np.int8)
    available = np.zeros(len(turns), dtype=np.int64)
    serviced = [empty_ceiling(session.fleet, q.form, session.in_service) for q in turns.keys]
    # From the least to the most dominant: each overwrites what it covers.

    service = np.array(serviced, dtype=np.int64)[key]
    for code, room in (
        # Behind all that is about room: whoever lacks that is told so, with or without rules.
        (Code.NEIGHBOURS, columns[:, 4]),
        (Code.TOPOLOGY, columns[:, 3]),
        (Code.FRAGMENTATION, columns[:, 2]),
        (Code.CAPACITY, columns[:, 1]),
    ):
        short = size > room
        codes[short], available[short] = code, room[short]
    # Stronger than Capacity, though behind it in rule 15's list: not even if these nodes were empty, so that no end of
    # anybody would help.
    short = turns.size > service
    codes[short], available[short] = Code.NODE_CONSTRAINT, service[short]
    _judge_limits(session, turns, codes, available)
    empty = np.array([empty_ceiling(session.fleet, q.form, None) for q in turns.keys])[key]
    codes[impossible], available[impossible] = Code.INFEASIBLE, empty[impossible]
    alive = np.flatnonzero(~impossible)
    codes[alive[walk.started]] = Code.NONE
    # There is room, and still it waits: only the walk knows behind whom or for which reservation.
    for index in np.flatnonzero(~walk.started & (codes[alive] == Code.NONE)).tolist():
        codes[alive[index]] = walk.why_not(index)
    for index in sorted(walk.undecided):
        codes[alive[index]] = Code.SEARCH_BUDGET
    return codes, np.where(codes == Code.NONE, 0, size), np.where(codes == Code.NONE, 0, available)


def _judge_limits(session: Session, turns: Turns, codes: npt.NDArray[np.int8], available: IntArray) -> None:
    if not session.limits.any:
        return
    # The queue's after the user's, for the same reason: the later one stands.
    by_queue, by_user = turns.limit_caps(session, empty=False)
    for code, caps in ((Code.USER_LIMIT, by_user), (Code.QUEUE_LIMIT, by_queue)):
        over = turns.size > caps
        codes[over], available[over] = code, caps[over]


def measure_room(session: Session, key: PlacementKey, sums: dict[bytes, IntArray]) -> RoomLeft:
    """What is left for a placement key, by the role furthest from fitting. `sums` remembers free amounts by pool."""
    worst: RoomLeft | None = None
    for gang in key.form.gangs:
        for role in gang.roles:
            row = session.view.slots(role.shape, key.exempt)
            free = _free_in(session, row.mask, sums)
            # Amounts poured together, as if the pool were one node: what holds more than `on_nodes` is fragmentation.
            totals = [int(free[c]) // a for c, a in zip(row.need.columns, row.need.amounts, strict=True)]
            total = 0 if row.need.missing is not None else min(totals, default=1 << 30)
            require = max(gang.require, role.require)
            left = row_ceiling(session.view, row, role, require)
            uncut, best = row.total, left
            # Room first, rules second: only who has room is told that others are in its way, and with the numbers
            # of what they leave.
            if row.need.social:
                slots = session.view.count_uncut(row.need, row.mask)
                plain = SlotRow(row.need, row.mask, slots, int(slots.sum()), row.seen)
                uncut, best = plain.total, row_ceiling(session.view, plain, role, require)
            room = RoomLeft(role.size, total, uncut, best, left)
            # One blocker is enough to explain a wait, and the role that lacks most is the one to mend.
            if worst is None or room.by_rules - room.needed < worst.by_rules - worst.needed:
                worst = room
    assert worst is not None, "a form has at least one role"
    return worst


def _free_in(session: Session, mask: BoolArray, sums: dict[bytes, IntArray]) -> IntArray:
    """Free amounts over a pool; there are many keys and few pools."""
    key = mask.tobytes()
    found = sums.get(key)
    if found is None:
        found = sums[key] = session.view.free[mask].sum(axis=0)
    return found


def find_row(snapshot: Snapshot, gang: int) -> int:
    """The pending row of a gang, or -1."""
    rows = np.flatnonzero(snapshot.pending.alive & (snapshot.pending.gang == gang))
    return int(rows[0]) if len(rows) else -1

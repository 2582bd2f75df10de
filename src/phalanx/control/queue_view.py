"""The queue as the engine sees it, for those who tell people about it: who is ahead, who matters, who may have what.

Front ends ask here and never look into a session or its turns, so that the engine may lay these out as it likes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from phalanx.control.leaving import drop_waiting
from phalanx.control.state import State
from phalanx.engine.order.queue_turns import QueueTurns
from phalanx.engine.order.turns import Turns, order_turns
from phalanx.engine.policy import Policy
from phalanx.engine.room.view import find_need
from phalanx.engine.session import Session
from phalanx.model.fleet import BoolArray, Fleet, IntArray
from phalanx.model.gang import Gang

#: Waiting gangs that a look keeps of each kind: the first in order, the shortest, those behind a gate.
KEPT_MOST: Final = 120
#: In each queue at least so many are kept, however many queues there are.
_KEPT_LEAST: Final = 20


def list_ahead(state: State, policy: Policy, number: int) -> list[int] | None:
    """Gangs that have their turn before a waiting one, the first first; None if it has no turn at all."""
    before: list[int] = []
    for turn in list_turns(state, policy):
        if number in turn:
            return before
        # Who can never run is ahead of nobody (rule 2), though it stands in the order.
        before += [gang for gang in turn if not state.is_judged(gang)]
    return None


def list_turns(state: State, policy: Policy) -> list[list[int]]:
    """Everybody who has a turn, as they are looked at just now: gangs that start together have one, at the last."""
    # Borrowed, since nothing is written before the answer is out: a snapshot would
    # make the next event copy every table.
    snapshot = state.borrow()
    session = Session(snapshot, policy)
    turns = order_turns(session)
    line, found = QueueTurns(session, turns), []
    while line.left:
        stretch = line.next_stretch()
        found.append(stretch)
        # Without a start nothing moves, so that the standing orders whole queues one after the other: what is told is
        # the order of now, which every start will change.
        line.done(len(stretch))
    gangs = snapshot.pending.gang
    return [gangs[turns.rows_of(turn)].tolist() for stretch in found for turn in stretch.tolist()]


@dataclass(frozen=True, slots=True)
class Filler:
    """How a waiting gang stands where room beside reservations is filled."""

    queue: str
    tiers: tuple[int, ...]  # of its queue, level by level: 0 below its guarantee, 1 not; smaller fills first
    length_us: int  # believed, at the size it would be given; of one tier the shortest fills first


def list_fillers(state: State, policy: Policy) -> dict[int, Filler]:
    """Everybody who has a turn, by number, with what decides who fills first (rule 1)."""
    snapshot = state.borrow()
    session = Session(snapshot, policy)
    turns = order_turns(session)
    # At the size that a filler would be given, as the walk sorts them: a moldable gang is short at its largest.
    lengths = turns.lengths_at_first_size(session)
    # Where queues do not take turns, there are no tiers either, and everybody is in one.
    by_tier = policy.standing and snapshot.queues.many
    found: dict[int, Filler] = {}
    for turn in range(len(turns)):
        queue = int(turns.queue[turn])
        tiers = session.standing.tiers(queue) if by_tier else ()
        each = Filler(snapshot.queues.names[queue], tiers, int(lengths[turn]))
        found.update((int(snapshot.pending.gang[row]), each) for row in turns.rows_of(turn))
    return found


def find_entitled(state: State, policy: Policy) -> IntArray:
    """What every queue is entitled to by those who ask now, in units by queue and kind."""
    return np.array(Session(state.borrow(), policy).standing.entitled)


def ask_least(fleet: Fleet, gang: Gang) -> IntArray:
    """Units by kind that a gang needs at its smallest."""
    amounts: IntArray = np.sum([find_need(fleet, role.shape).vector * role.sizes.least for role in gang.roles], axis=0)
    return amounts


# ---- who matters


def thin_out(
    state: State, policy: Policy, keep: Collection[int], most: int = KEPT_MOST, lines: Iterable[Sequence[int]] = ()
) -> list[int]:
    """Drop waiting gangs that do not matter for the next starts; the answer is the numbers of those who stay.

    `lines`: gangs behind a gate through which they go in this order, whatever their age.

    With ten thousand waiting, who starts next is decided among the first in order and, where the policy fills gaps
    with the shortest, among the shortest. The rest only costs time. The state must be a copy.
    """
    pending = state.pending
    alive = np.flatnonzero(pending.alive)
    numbers = pending.columns["gang"]
    # Twice, so that a queue a little longer than that is played whole, and its answer is exact.
    if len(alive) > 2 * most:
        turns = order_turns(Session(state.borrow(), policy))
        kept = np.zeros(len(pending.alive), dtype=np.bool_)
        for turn in _choose_turns(turns, policy, most).tolist():
            kept[turns.rows_of(turn)] = True
        gated = np.flatnonzero(pending.alive & (pending.columns["gate"] != 0))
        in_line = list(lines)
        # A gate may open in the time that is looked at; the oldest of them matter most. But not in a line: there the
        # oldest may be the last, and would be told the starts of those who go before them and were dropped.
        gated = gated[~np.isin(numbers[gated], [number for line in in_line for number in line])]
        kept[gated[:most]] = True
        # Of every line, as of every queue: one long line would push the others out.
        share = max(_KEPT_LEAST, most // max(1, len(in_line)))
        kept |= np.isin(numbers, [*keep, *(number for line in in_line for number in line[:share])])
        # Whole or not at all: half of a group would never be complete, and its word would hold up the other half.
        kept |= _mates(state, kept)
        drop_waiting(state, numbers[alive[~kept[alive]]].tolist())
    return state.list_waiting()


def _choose_turns(turns: Turns, policy: Policy, most: int) -> IntArray:
    """The first of every queue, and the shortest where those may fill gaps."""
    # Queues with somebody waiting only: an empty one takes no share of what is kept.
    queues = np.unique(turns.queue)
    # Of every queue: by a global order the queue with the most waiting would push the others out,
    # and the standing would have nobody to choose.
    share = max(_KEPT_LEAST, most // max(1, len(queues)))
    chosen = [np.flatnonzero(turns.queue == queue)[:share] for queue in queues.tolist()]
    if policy.fill == "shortest":
        # Stable: of equal lengths those ahead in the order, as filling takes them.
        chosen.append(np.argsort(turns.length_us, kind="stable")[:most])
    return np.unique(np.concatenate(chosen)) if chosen else np.zeros(0, dtype=np.int64)


def _mates(state: State, kept: BoolArray) -> BoolArray:
    """Rows of gangs that start together with somebody who is kept."""
    group = state.pending.columns["group"]
    wanted = np.unique(group[kept & (group >= 0)])
    found: BoolArray = state.pending.alive & np.isin(group, wanted)
    return found

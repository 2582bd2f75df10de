"""Whose queue is next: stretches of turns in the order of the standing, which moves with every start.

Inside a queue the order of turns is fixed. Between queues it is the standing, and of queues that
stand equal, the order of their gangs. Only a start moves a standing, so a walk takes a stretch of
turns at a time and asks again after the first start in it.

What Slurm does with a priority recomputed now and then (fair-share), and KAI and Volcano by picking a queue per job,
is done here exactly: the next turn is always that of the queue which stands best after everything decided so far.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.order.turns import Turns
from phalanx.engine.session import Session
from phalanx.model.fleet import IntArray


class QueueTurns:
    """The turns of a cycle that have not been dealt with yet."""

    def __init__(self, session: Session, turns: Turns) -> None:
        """One stretch if queues do not take turns, or if only one has anybody waiting."""
        self._session = session
        everyone = np.arange(len(turns))
        self._by_queue: dict[int, IntArray] = {}
        if session.policy.standing and session.snapshot.queues.many:
            queues = np.unique(turns.queue).tolist()
            if len(queues) > 1:
                first = self._count_promised(turns)
                # Turn numbers ascend in the policy's order, so that each queue's share of them is in order by itself.
                self._by_queue = {queue: everyone[first:][turns.queue[first:] == queue] for queue in queues}
                # A queue whose turns are all promised has none left here, and would be asked for a stretch of nothing.
                self._by_queue = {queue: rows for queue, rows in self._by_queue.items() if len(rows)}
        # One queue, or no standing: a single stretch, and none of the work below. Else only those before all standing.
        self._all = everyone if not self._by_queue else everyone[: self._count_promised(turns)]
        self._tied: list[int] = []
        self._stretch = self._all

    def _count_promised(self, turns: Turns) -> int:
        """Turns before which no standing counts, since a date was promised (`order_turns` has put them first)."""
        dates = self._session.dates
        return 0 if dates is None else dates.count_first(self._session.snapshot.pending.gang[turns.rows])

    @property
    def moves(self) -> bool:
        """Whether a start may change who is next."""
        return bool(self._by_queue)

    @property
    def left(self) -> bool:
        """Whether anybody has not been dealt with."""
        return bool(len(self._all)) or bool(self._by_queue)

    def next_stretch(self) -> IntArray:
        """Turns of the queues that stand best, in order."""
        if len(self._all):
            self._stretch = self._all
            return self._stretch
        standing = self._session.standing
        keys = {queue: standing.key(queue) for queue in self._by_queue}
        # Keys are compared exactly (`Standing.entitled`), so that equal really means equal.
        best = min(keys.values())
        self._tied = [queue for queue, key in keys.items() if key == best]
        rows = [self._by_queue[queue] for queue in self._tied]
        # Among queues that stand equal the order of gangs decides: sorting turn numbers merges them into it.
        self._stretch = rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows))
        return self._stretch

    def done(self, count: int) -> None:
        """The first so many of the stretch are dealt with."""
        if len(self._all):
            self._all = self._all[count:]
            return
        # Only those up to here: the rest of a tied queue comes again, after the standing has moved.
        last = self._stretch[count - 1]
        for queue in self._tied:
            rows = self._by_queue[queue]
            # By turn number and not by count: of the first turns of a stretch each tied queue has some, or none.
            rows = rows[rows.searchsorted(last, side="right") :]
            if len(rows):
                self._by_queue[queue] = rows
            else:
                del self._by_queue[queue]

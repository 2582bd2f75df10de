"""Who may take what from whom.

Surplus: gangs of equal or higher priority in its queue, or of a queue that stands better, to start.
Minimums: strictly higher priority in the same queue (preempt), another queue's guarantee (reclaim).
Guests: the owner of the reservation they live under. Turns: an equal waiter that had less service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.fairshare import leaves_guarantee, may_reclaim, may_reclaim_set, may_reclaim_share
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.loans import Pool
from phalanx.engine.roster import Gift, Roster, Sitter, units_of, vector_of
from phalanx.engine.session import Session
from phalanx.engine.turns import Turns
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Cause, Guest

#: A turn is changed only if saving and restoring cost less than this part of it.
TURN_COST_PARTS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Who:
    """The gang that asks for room."""

    queue: int
    priority: int
    asked: IntArray
    owner: bool  # no reservation is ahead of it, so that the guests of its pool are its own
    attained_us: int
    arrival: tuple[int, int]  # eligibility and number
    preemptible: bool = False  # once it runs, others may take its places back


class Permits:
    """Rights of askers over the sitters of a roster, as they stand now in this plan."""

    def __init__(self, session: Session, roster: Roster) -> None:
        """The standing is the session's, and moves with every start and gift."""
        self.session, self.roster, self.policy = session, roster, session.policy
        self.now = session.snapshot.now_us
        self.wake_us = NEVER  # a turn ends then

    def asker(self, turns: Turns, turn: int, asked: IntArray, *, owner: bool) -> Who:
        """The rights of a turn; of several gangs that start together, of the one that came last."""
        pending, row = self.session.snapshot.pending, int(turns.rows[turn])
        arrival = int(pending.eligible_us[row]), int(pending.gang[row])
        soft = self.session.snapshot.gangs[int(pending.gang[row])].preemptible
        attained_us = int(pending.attained_us[row])
        return Who(int(pending.queue[row]), int(pending.priority[row]), asked, owner, attained_us, arrival, soft)

    # ------------------------------------------------------------------ surplus

    def list_loans(self, who: Who) -> list[Pool]:
        """Surplus that may be called back, in the order in which it should be."""
        found = []
        charged: list[tuple[int, IntArray]] = []
        present = [sitter for sitter in self.roster.sitters if not (sitter.gone or sitter.moved)]
        lending = [sitter for sitter in present if self.may_borrow_from(who, sitter)]  # before anything is taken
        for sitter in sorted(lending, key=self._giving_order):
            cause = Cause.GUEST if who.owner and sitter.guest else Cause.LOAN
            for role in range(len(sitter.gang.roles)):
                members = self._within_guarantee(who, sitter, role)
                if members > 0:
                    found.append(Pool(sitter, role, members, cause))
                    given = self.session.need_of(sitter.gang, role).vector * members
                    self.session.standing.charge(sitter.queue, -given)
                    charged.append((sitter.queue, given))
        for queue, given in charged:
            self.session.standing.charge(queue, given)
        return found

    def _giving_order(self, sitter: Sitter) -> tuple[int, int, int]:
        pause = sitter.gang.resize_pause_us * units_of(sitter.gang, sitter.seats)
        return sitter.priority, pause, -sitter.number

    def may_borrow_from(self, who: Who, sitter: Sitter) -> bool:
        """Whether the surplus of a gang is on loan from this asker."""
        if who.owner and sitter.guest:
            return True
        if "shrink" not in self.policy.takes:
            return False
        if sitter.queue == who.queue:
            return who.priority >= sitter.priority
        return self.session.standing.better(who.queue, sitter.queue)

    def _within_guarantee(self, who: Who, sitter: Sitter, role: int) -> int:
        """How many members of a role may go without leaving the victim's side below its guarantee."""
        each = self.session.need_of(sitter.gang, role).vector
        members = sitter.surplus(role)
        while members > 0 and not (who.owner and sitter.guest):
            if leaves_guarantee(self.session.standing, who.queue, sitter.queue, each * members):
                break
            members -= 1
        return members

    # ------------------------------------------------------------------ whole gangs

    def list_guests(self, who: Who) -> list[tuple[Sitter, Cause]]:
        """Guests that have to leave if the owner of their places says so."""
        if not who.owner:
            return []
        guests = [s for s in self.roster.sitters if s.guest is Guest.WHOLE and not (s.gone or s.moved)]
        return [(s, Cause.GUEST) for s in guests if not (who.preemptible and self._could_take_back(who, s))]

    def _could_take_back(self, who: Who, sitter: Sitter) -> bool:
        """Whether a guest sent away could at once evict whoever took its place: then nobody gains by it."""
        if sitter.queue == who.queue:
            return "preempt" in self.policy.takes and sitter.priority > who.priority
        if "reclaim" not in self.policy.takes:
            return False
        standing, own = self.session.standing, vector_of(self.session.fleet, sitter.gang, sitter.seats)
        standing.charge(sitter.queue, -own)
        standing.charge(who.queue, who.asked)
        rule = may_reclaim_share if self.policy.reclaims_share else may_reclaim
        least = sum(
            (
                self.session.need_of(sitter.gang, at).vector * role.sizes.least
                for at, role in enumerate(sitter.gang.roles)
            ),
            start=np.zeros_like(own),
        )
        reverse = rule(standing, sitter.queue, least, who.queue, who.asked)  # it would ask again for its least
        standing.charge(who.queue, -who.asked)
        standing.charge(sitter.queue, own)
        return reverse

    def list_victims(self, who: Who) -> list[tuple[Sitter, Cause]]:
        """Gangs that may be evicted for this asker, each by itself."""
        ripe = [s for s in self.roster.sitters if s.gang.preemptible and not (s.gone or s.moved) and self._ripe(s)]
        found, below = [], []
        for sitter in ripe if "preempt" in self.policy.takes else ():
            if sitter.queue == who.queue and who.priority > sitter.priority:
                found.append((sitter, Cause.PREEMPT))
                below.append(vector_of(self.session.fleet, sitter.gang, sitter.seats))
        # Whoever makes way in the asker's own queue makes room below its guarantee: `allow_all` has the last word.
        for units in below:
            self.session.standing.charge(who.queue, -units)
        others = [s for s in ripe if s.queue != who.queue] if "reclaim" in self.policy.takes else []
        found += [(sitter, Cause.RECLAIM) for sitter in others if self._may_reclaim(who, sitter)]
        for units in below:
            self.session.standing.charge(who.queue, units)
        return found

    def _ripe(self, sitter: Sitter) -> bool:
        """Whether it has run long enough, and was not evicted too often."""
        evictions = int(self.session.snapshot.running.evictions[sitter.row])
        if evictions >= self.policy.max_evictions:
            return False
        ripe_us = sitter.start_us + self.policy.min_runtime_us
        if ripe_us > self.now:
            self.wake_us = min(self.wake_us, ripe_us)
            return False
        return True

    def _may_reclaim(self, who: Who, sitter: Sitter) -> bool:
        given = vector_of(self.session.fleet, sitter.gang, sitter.seats)
        rule = may_reclaim_share if self.policy.reclaims_share else may_reclaim
        return rule(self.session.standing, who.queue, who.asked, sitter.queue, given)

    def allow_all(self, who: Who, gifts: Sequence[Gift]) -> bool:
        """Whether these may be given together: each alone may be fine and all of them too much."""
        if not self._loans_leave_guarantees(who, gifts):
            return False
        taken = [gift for gift in gifts if gift.cause is Cause.RECLAIM]
        if not taken:
            return True
        # Surplus that goes with it counts: the victim's side must keep its guarantee after everything.
        standing = self.session.standing
        beside = [gift for gift in gifts if gift.cause is not Cause.RECLAIM]
        lent = [(gift.sitter.queue, self._given(gift)) for gift in beside]
        victims = [(gift.sitter.queue, self._given(gift)) for gift in taken]
        for queue, units in lent:
            standing.charge(queue, -units)
        fine = may_reclaim_set(standing, who.queue, who.asked, victims, share=self.policy.reclaims_share)
        for queue, units in lent:
            standing.charge(queue, units)
        return fine

    def _loans_leave_guarantees(self, who: Who, gifts: Sequence[Gift]) -> bool:
        """Whether surplus of other queues still leaves them their guarantee, with all that goes beside it."""
        lent = [gift for gift in gifts if gift.cause is Cause.LOAN and gift.sitter.queue != who.queue]
        if not lent:
            return True
        standing, nothing = self.session.standing, [0] * len(self.session.fleet.kinds)
        for gift in gifts:
            standing.charge(gift.sitter.queue, -self._given(gift))
        fine = all(
            standing.victim_keeps_guarantee(who.queue, gift.sitter.queue, self._given(gift).tolist(), nothing)
            for gift in lent
        )
        for gift in gifts:
            standing.charge(gift.sitter.queue, self._given(gift))
        return fine

    def _given(self, gift: Gift) -> IntArray:
        return vector_of(self.session.fleet, gift.sitter.gang, gift.seats)

    # ------------------------------------------------------------------ turns

    def list_turns(self, who: Who) -> list[tuple[Sitter, Cause]]:
        """Gangs whose turn is over, for a waiter that had less service."""
        quantum = self.policy.quantum_us
        if quantum is None:
            return []
        found = []
        for sitter in self.roster.sitters:
            if sitter.gone or sitter.moved or not self._takes_turns(who, sitter, quantum):
                continue
            ready_us = max(sitter.start_us + quantum, self._outserved_us(who, sitter))
            if ready_us <= self.now:
                found.append((sitter, Cause.TURN))
            else:
                self.wake_us = min(self.wake_us, ready_us)
        return found

    def _takes_turns(self, who: Who, sitter: Sitter, quantum: int) -> bool:
        habit = sitter.gang.snapshot
        if habit is None or not sitter.gang.preemptible or sitter.priority != who.priority:
            return False
        if self.policy.standing and sitter.queue != who.queue:
            return False  # across queues the standing decides, not the turn
        return (habit.stall_us + habit.restore_us) * TURN_COST_PARTS < quantum

    def _outserved_us(self, who: Who, sitter: Sitter) -> int:
        """When the sitter has had more service than the asker; equal service is enough for an earlier asker."""
        running = self.session.snapshot.running
        before = int(running.attained_us[sitter.row])
        more = who.attained_us - before
        earlier = who.arrival < (int(running.eligible_us[sitter.row]), sitter.number)
        if more < 0 or (more == 0 and earlier):
            return self.now
        units = max(1, units_of(sitter.gang, sitter.was))
        return sitter.start_us + -(-more * 1000 // units) + (0 if earlier else 1)

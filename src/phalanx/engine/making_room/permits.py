"""Who may take what from whom.

Surplus: gangs of equal or higher priority in its queue, or of a queue that stands better, to start.
Minimums: strictly higher priority in the same queue (preempt), another queue's guarantee (reclaim).
Guests: the owner of the reservation they live under. Turns: an equal waiter that had less service.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.curves import curve_of
from phalanx.engine.fairshare import leaves_guarantee, may_reclaim, may_reclaim_set, may_reclaim_share
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.loans import Loan
from phalanx.engine.order.turns import Turns
from phalanx.engine.reclaimable import Occupant, Reclaimable, Release, is_counted_on, units_of, vector_of
from phalanx.engine.room.seats import elastic_members
from phalanx.engine.session import Session
from phalanx.engine.worth import Prospect
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Gang
from phalanx.model.plan import Cause, Guest

#: A turn is changed only if saving and restoring cost less than this part of it.
TURN_COST_PARTS = 20


#: Queue, priority, and whether guests on its places leave for it: whoever has the same has the same rights.
Rights = tuple[int, int, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Claimant:
    """The gang that asks for room."""

    queue: int
    priority: int
    asked: IntArray
    owner: bool  # no reservation is ahead of it, so that guests on its places leave for it
    attained_us: int
    arrival: tuple[int, int]  # eligibility and number
    preemptible: bool = False  # once it runs, others may take its places back


def prospect_of(session: Session, occupant: Occupant) -> Prospect:
    """How a running elastic gang would fare at other sizes; worked out once a cycle."""
    found = session.prospects.get(occupant.number)
    if found is None:
        gang, now_us = occupant.gang, session.snapshot.now_us
        waits_us = max(0, occupant.start_us + gang.startup_us - now_us)
        found = session.prospects[occupant.number] = Prospect(
            gang,
            curve_of(session.snapshot, occupant.number),
            session.policy.weigh,
            elastic_members(gang, occupant.had),
            # Nothing is done before it has started up, and run times are stated without that.
            occupant.end_us - (occupant.start_us if waits_us else now_us),
            waits_us,
            gang.resize_pause_us,
        )
    return found


def _next_below(gang: Gang, members: int) -> int:
    """The next size of its elastic role that is smaller by an eighth; with several roles by one member each."""
    elastic = [role.sizes for role in gang.roles if role.sizes.elastic]
    if len(elastic) > 1:
        return max(sum(sizes.least for sizes in elastic), members - 1)
    allowed = elastic[0].allowed
    return allowed[max(0, bisect_right(allowed, members - max(1, members // 8)) - 1)]


class Permits:
    """Rights of claimants over the occupants of a reclaimable, as they stand now in this plan."""

    def __init__(self, session: Session, reclaimable: Reclaimable) -> None:
        """The standing is the session's, and moves with every start and release."""
        self.session, self.reclaimable, self.policy = session, reclaimable, session.policy
        self.now = session.snapshot.now_us
        self.wake_us = NEVER  # a turn ends then
        self._givers: tuple[tuple[int, int], list[tuple[Occupant, int, int]]] | None = None
        self._loans: dict[tuple[int, int, bool], tuple[tuple[int, int], list[Loan]]] = {}

    def claimant(self, turns: Turns, turn: int, asked: IntArray, *, owner: bool) -> Claimant:
        """The rights of a turn; of several gangs that start together, of the one that came last."""
        pending, row = self.session.snapshot.pending, int(turns.rows[turn])
        arrival = int(pending.eligible_us[row]), int(pending.gang[row])
        # Only what can be taken back can be fought over: a swap is forbidden if its reverse would be allowed (rule 9).
        soft = self.session.snapshot.gangs[int(pending.gang[row])].preemptible
        attained_us = int(pending.attained_us[row])
        return Claimant(int(pending.queue[row]), int(pending.priority[row]), asked, owner, attained_us, arrival, soft)

    # ------------------------------------------------------------------ surplus

    def list_loans(self, who: Claimant) -> list[Loan]:
        """Surplus that may be called back, in the order in which it should be."""
        # By who asks, not for what: in most passes nobody gives or starts between one claimant and the next, and
        # hundreds of them would be told the same.
        asks, stamp = (who.queue, who.priority, who.owner), (self.session.taken_back, self.session.charged)
        known = self._loans.get(asks)
        if known is None or known[0] != stamp:
            known = self._loans[asks] = (stamp, self._list_loans(who))
        return list(known[1])

    def measure_reach(self, rights: Rights, column: int, at_us: int = -1) -> int:
        """No less than all that it might be given of a kind, whatever guarantees, time and places then forbid.

        `at_us`: at a reserved start, beside what is counted on there.
        """
        takes, turn, total = self.policy.takes, self.policy.quantum_us is not None, 0
        preempts, reclaims, shrinks = "preempt" in takes, "reclaim" in takes, "shrink" in takes
        queue, priority, owner = rights
        for occupant, surplus, everything in self._list_givers(column):
            if at_us >= 0 and is_counted_on(occupant, at_us):
                continue
            same, guest = occupant.queue == queue, owner and occupant.guest
            over = (preempts and priority > occupant.priority) if same else reclaims
            if turn or guest is Guest.WHOLE or (over and occupant.gang.preemptible):
                total += everything
            elif surplus and (guest or (shrinks and self._stands_above(rights, occupant))):
                total += surplus
        return total

    def _list_givers(self, column: int) -> list[tuple[Occupant, int, int]]:
        """Everybody who is there, with what its surplus and all of it take of a kind; anew when anything changes."""
        # Starts take from what is free, and nobody grows before the walk is over: only releases change what they have.
        stamp = self.session.taken_back, column
        if self._givers is None or self._givers[0] != stamp:
            found = []
            for occupant in self.reclaimable.occupants:
                if occupant.gone or occupant.moved:
                    continue
                surplus = everything = 0
                for role, size in enumerate(occupant.sizes):
                    units = self.session.need_of(occupant.gang, role).units[column]
                    surplus += units * occupant.surplus(role)
                    everything += units * size
                found.append((occupant, surplus, everything))
            self._givers = stamp, found
        return self._givers[1]

    def _list_loans(self, who: Claimant) -> list[Loan]:
        found: list[Loan] = []
        present = [occupant for occupant in self.reclaimable.occupants if not (occupant.gone or occupant.moved)]
        lending = [occupant for occupant in present if self.may_borrow_from(who, occupant)]  # before anything is taken
        if len(lending) > 1:
            lending.sort(key=self._giving_order)
        if all(occupant.queue == who.queue for occupant in lending):
            # Inside one queue there are no sides, and no guarantee that anything could leave (rule 8).
            for occupant in lending:
                found += [loan for role in range(len(occupant.sizes)) if (loan := self._lend(who, occupant, role))]
            return found
        # Each is judged as if those before it had given: a guarantee covers all of a queue's gangs together.
        with self.session.standing.trial() as charge:
            for occupant in lending:
                for role in range(len(occupant.gang.roles)):
                    loan = self._lend(who, occupant, role)
                    if loan is not None:
                        found.append(loan)
                        # All that it may give and not what it will give, which is known later: two gangs of a queue may
                        # then offer less together than they could, and never more.
                        charge(occupant.queue, -self.session.need_of(occupant.gang, role).vector * loan.members)
        return found

    def _lend(self, who: Claimant, occupant: Occupant, role: int) -> Loan | None:
        # The cause decides which checks follow: an owner takes from its guests whatever
        # guarantees and policies say (rule 8).
        cause = Cause.GUEST if who.owner and occupant.guest else Cause.LOAN
        members = occupant.surplus(role)
        if members and occupant.queue != who.queue:
            members = self._within_guarantee(who, occupant, role)
        return Loan(occupant, role, members, cause) if members > 0 else None

    def _giving_order(self, occupant: Occupant) -> tuple[int, bool, float, int]:
        if self.policy.grows and occupant.gang.elastic:
            # Whoever would miss it least, per device (rule 16): an eighth of what it has, or its next size down.
            prospect = prospect_of(self.session, occupant)
            had = elastic_members(occupant.gang, occupant.sizes)
            less = _next_below(occupant.gang, had)
            one = len(occupant.sizes) == 1  # then what a member takes is what one takes
            weight = units_of(self.session.fleet, occupant.gang, (1,) if one else occupant.sizes) / (1 if one else had)
            lost = (prospect.worth(had) - prospect.worth(less)) / ((had - less) * weight) if less < had else 0.0
            return occupant.priority, self._would_be_late(occupant, had, less), float(f"{lost:.12e}"), -occupant.number
        pause = occupant.gang.resize_pause_us * units_of(self.session.fleet, occupant.gang, occupant.sizes)
        # Rule 9's order of victims, with the pause in device time as the cost; of equals the later one gives.
        return occupant.priority, False, pause, -occupant.number

    def _would_be_late(self, occupant: Occupant, had: int, less: int) -> bool:
        """Whether it is in time with what it has and not with less: it would call that back from the next one."""
        if occupant.gang.deadline_us is None or not self.policy.deadlines:
            return False
        left_us = occupant.gang.submit_us + occupant.gang.deadline_us - self.now
        prospect = prospect_of(self.session, occupant)
        return prospect.expected_us(had) <= left_us < prospect.expected_us(less)

    def may_borrow_from(self, who: Claimant, occupant: Occupant) -> bool:
        """Whether the surplus of a gang is on loan from this claimant."""
        # Before the policy is asked: the owner takes its seats back under policies
        # that take nothing otherwise (rule 8).
        if who.owner and occupant.guest:
            return True
        return "shrink" in self.policy.takes and self._stands_above((who.queue, who.priority, who.owner), occupant)

    def _stands_above(self, rights: Rights, occupant: Occupant) -> bool:
        queue, priority, _ = rights
        if occupant.queue == queue:
            # Equal is enough here, unlike for evictions: surplus is on loan, and its gang goes on.
            return priority >= occupant.priority
        return self.session.standing.better(queue, occupant.queue)

    def _within_guarantee(self, who: Claimant, occupant: Occupant, role: int) -> int:
        """How many members of a role may go without leaving the victim's side below its guarantee."""
        each = self.session.need_of(occupant.gang, role).vector
        members = occupant.surplus(role)
        # One by one from the top: what leaves a guarantee whole is not a multiple of
        # anything, with several kinds and levels.
        while members > 0 and not (who.owner and occupant.guest):
            if leaves_guarantee(self.session.standing, who.queue, occupant.queue, each * members):
                break
            members -= 1
        return members

    # ------------------------------------------------------------------ whole gangs

    def list_guests(self, who: Claimant) -> list[tuple[Occupant, Cause]]:
        """Guests that have to leave if the owner of their places says so."""
        # Whoever is behind a reservation has no guests of its own: they lodge under the gang ahead.
        if not who.owner:
            return []
        guests = [s for s in self.reclaimable.occupants if s.guest is Guest.WHOLE and not (s.gone or s.moved)]
        guests = [s for s in guests if not s.promised]
        # Else the owner starts by sending a guest away, and the guest, which now waits with the better right, evicts it
        # at the same instant: a swap whose reverse is allowed (rule 9).
        return [(s, Cause.GUEST) for s in guests if not (who.preemptible and self._could_take_back(who, s))]

    def _could_take_back(self, who: Claimant, occupant: Occupant) -> bool:
        """Whether a guest sent away could at once evict whoever took its place: then nobody gains by it."""
        if occupant.queue == who.queue:
            return "preempt" in self.policy.takes and occupant.priority > who.priority
        if "reclaim" not in self.policy.takes:
            return False
        standing, own = self.session.standing, vector_of(self.session.fleet, occupant.gang, occupant.seats)
        rule = may_reclaim_share if self.policy.reclaims_share else may_reclaim
        least = sum(
            (
                self.session.need_of(occupant.gang, at).vector * role.sizes.least
                for at, role in enumerate(occupant.gang.roles)
            ),
            start=np.zeros_like(own),
        )
        with standing.trial() as charge:
            # In the state that would result (rule 9, swap), not in the present one.
            charge(occupant.queue, -own)
            charge(who.queue, who.asked)
            return rule(standing, occupant.queue, least, who.queue, who.asked)  # it would ask again for its least

    def list_victims(self, who: Claimant) -> list[tuple[Occupant, Cause]]:
        """Gangs that may be evicted for this claimant, each by itself."""
        # Ripeness last: it notes when to wake, and there is nothing to wake for in a gang that can never be evicted.
        ripe = [
            s
            for s in self.reclaimable.occupants
            if s.gang.preemptible and not (s.gone or s.moved or s.promised) and self._ripe(s)
        ]
        found, below = [], []
        for occupant in ripe if "preempt" in self.policy.takes else ():
            # Strictly higher integer priority (rule 9): with age or laxity in it two
            # gangs could evict each other in turn.
            if occupant.queue == who.queue and who.priority > occupant.priority:
                found.append((occupant, Cause.PREEMPT))
                below.append(vector_of(self.session.fleet, occupant.gang, occupant.seats))
        # Whoever makes way in the claimant's own queue makes room below its guarantee: `allow_all` has the last word.
        # Across queues by guarantees only; priorities of one queue mean nothing in another.
        others = [s for s in ripe if s.queue != who.queue] if "reclaim" in self.policy.takes else []
        if others:
            with self.session.standing.trial() as charge:
                for units in below:
                    charge(who.queue, -units)
                found += [(occupant, Cause.RECLAIM) for occupant in others if self._may_reclaim(who, occupant)]
        return found

    def _ripe(self, occupant: Occupant) -> bool:
        """Whether it has run long enough, and was not evicted too often."""
        evictions = int(self.session.snapshot.running.evictions[occupant.row])
        # A gang that was evicted so often would never end, however little each eviction costs.
        # Nobody is woken for it: time does not change it.
        if evictions >= self.policy.max_evictions:
            return False
        ripe_us = occupant.start_us + self.policy.min_runtime_us
        if ripe_us > self.now:
            self.wake_us = min(self.wake_us, ripe_us)
            return False
        return True

    def _may_reclaim(self, who: Claimant, occupant: Occupant) -> bool:
        given = vector_of(self.session.fleet, occupant.gang, occupant.seats)
        rule = may_reclaim_share if self.policy.reclaims_share else may_reclaim
        return rule(self.session.standing, who.queue, who.asked, occupant.queue, given)

    def allow_all(self, who: Claimant, releases: Sequence[Release]) -> bool:
        """Whether these may be given together: each alone may be fine and all of them too much."""
        if not self._loans_leave_guarantees(who, releases):
            return False
        taken = [release for release in releases if release.cause is Cause.RECLAIM]
        if not taken:
            return True
        # Surplus that goes with it counts: the victim's side must keep its guarantee after everything.
        standing = self.session.standing
        beside = [release for release in releases if release.cause is not Cause.RECLAIM]
        lent = [(release.occupant.queue, self._given(release)) for release in beside]
        victims = [(release.occupant.queue, self._given(release)) for release in taken]
        with standing.trial() as charge:
            # Loans go first, since reclaim asks what both sides have after everything: what is called back beside it
            # may leave the victim's side below its guarantee.
            for queue, units in lent:
                charge(queue, -units)
            return may_reclaim_set(standing, who.queue, who.asked, victims, share=self.policy.reclaims_share)

    def _loans_leave_guarantees(self, who: Claimant, releases: Sequence[Release]) -> bool:
        """Whether surplus of other queues still leaves them their guarantee, with all that goes beside it."""
        # Within one queue nothing changes hands between guarantees.
        lent = [release for release in releases if release.cause is Cause.LOAN and release.occupant.queue != who.queue]
        if not lent:
            return True
        standing, nothing = self.session.standing, [0] * len(self.session.fleet.kinds)
        with standing.trial() as charge:
            for release in releases:
                charge(release.occupant.queue, -self._given(release))
            # With everything charged at once and each then asked for nothing more, so that
            # the order of the releases cannot matter.
            return all(
                standing.victim_keeps_guarantee(who.queue, each.occupant.queue, self._given(each).tolist(), nothing)
                for each in lent
            )

    def _given(self, release: Release) -> IntArray:
        return vector_of(self.session.fleet, release.occupant.gang, release.seats)

    # ------------------------------------------------------------------ turns

    def list_turns(self, who: Claimant) -> list[tuple[Occupant, Cause]]:
        """Gangs whose turn is over, for a waiter that had less service."""
        quantum = self.policy.quantum_us
        if quantum is None:
            return []
        found = []
        for occupant in self.reclaimable.occupants:
            if occupant.gone or occupant.moved or occupant.promised or not self._takes_turns(who, occupant, quantum):
                continue
            # Both: a turn is never cut short, and never given to somebody who has had more.
            # The later instant is when to look again.
            ready_us = max(occupant.start_us + quantum, self._outserved_us(who, occupant))
            if ready_us <= self.now:
                found.append((occupant, Cause.TURN))
            else:
                self.wake_us = min(self.wake_us, ready_us)
        return found

    def _takes_turns(self, who: Claimant, occupant: Occupant, quantum: int) -> bool:
        habit = occupant.gang.snapshot
        # Equal priority only: the higher one preempts, and the lower one waits.
        if habit is None or not occupant.gang.preemptible or occupant.priority != who.priority:
            return False
        if self.policy.standing and occupant.queue != who.queue:
            return False  # across queues the standing decides, not the turn
        # Rule 14: under 5 % of the quantum, as integers.
        return (habit.stall_us + habit.restore_us) * TURN_COST_PARTS < quantum

    def _outserved_us(self, who: Claimant, occupant: Occupant) -> int:
        """When the occupant has had more service than the claimant; equal service is enough for an earlier claimant."""
        running = self.session.snapshot.running
        before = int(running.attained_us[occupant.row])
        more = who.attained_us - before
        earlier = who.arrival < (int(running.eligible_us[occupant.row]), occupant.number)
        # Had more when it began this attempt: it has been ahead all along.
        if more < 0 or (more == 0 and earlier):
            return self.now
        # Service grows by its milli-devices per 1000 µs: `more` is made up after more × 1000 /
        # units, rounded up, and one microsecond later if equal service is not enough. By what it had
        # when the cycle began, as `attained_us` counts.
        units = max(1, units_of(self.session.fleet, occupant.gang, occupant.had))
        return occupant.start_us + -(-more * 1000 // units) + (0 if earlier else 1)

"""Dividing surplus (rule 16): shares first, then the rest to whoever's next step is worth most.

`date_shares` brings gangs to the sizes that their dates need. What is left goes, step by step, where `engine.worth`
says that it is worth most. Those who start in this plan get theirs at once, without a pause; those who run get more
only if the time they save is longer than the pause it costs. Room under a reservation may be lent until its owner
comes; whoever takes it is told. Then `balance` looks whether surplus is in the right hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush

from phalanx.engine.calendar.port import Calendar
from phalanx.engine.curves import curve_of
from phalanx.engine.dividing.balance import Balance, find_shift, list_groups
from phalanx.engine.dividing.date_shares import Shares
from phalanx.engine.dividing.growing import Growing
from phalanx.engine.dividing.holders import ANY_SIZE, Holder
from phalanx.engine.fairshare import StandingKey
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.permits import prospect_of
from phalanx.engine.reclaimable import Occupant
from phalanx.engine.room.seats import elastic_members, sizes_of
from phalanx.engine.transaction import Transaction
from phalanx.engine.worth import SHORTEST_US, Prospect
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Grounds, Seats
from phalanx.perfmodel.speedup import scaled_us

#: After a resize a gang does not grow for this long, or for two pauses if that is more (rule 16); shares excepted.
COOL_LEAST_US = 60_000_000
COOL_PAUSES = 2

#: (standing of its queue, worth per unit, gained so far), number, who, role, size: whoever is first gets it.
Step = tuple[tuple[StandingKey, float, int], int, Holder, int, int]


class Division:
    """Hands surplus out, after everybody had a chance to start."""

    def __init__(self, transaction: Transaction, calendar: Calendar) -> None:
        """Nothing is looked at yet."""
        self.session, self.transaction = transaction.session, transaction
        self.now = self.session.snapshot.now_us
        self.wake_us = NEVER
        self.growing = Growing(transaction, calendar)
        self._many_queues = False
        self._kept = 0  # units that shares wait for

    def run(self) -> None:
        """Shares first, then the rest, step by step; then between those who run."""
        holders = self.list_holders()
        if not holders:
            return
        coming = self.growing.count_coming()
        self.hand_out_shares(holders, coming)
        self.transaction.set_aside()
        # Rule 16 (growth pays): whoever was resized rests. Its share it had above, which rests do not hold back.
        self._hand_out([holder for holder in holders if not holder.resting])
        # Seats in transit have not found their next user yet, who may be one that would be given to here.
        # Nor where room is kept for a share: what a balance frees would be kept as well, and its givers would have paid
        # for nobody.
        if "shrink" in self.session.policy.takes and not coming and not self._kept:
            Balance(self.growing).shift(holders)
        for holder in holders:
            self._finish(holder)
        self._note_rests(holders)

    def _note_rests(self, holders: list[Holder]) -> None:
        """Nothing happens when a rest is over, so that nobody would look again: the plan has to say when (rule 5)."""
        if not any(holder.cool_us > self.now for holder in holders):
            return
        looked_us = self._next_look_us()
        resting = [holder for holder in holders if self.now < holder.cool_us <= looked_us]
        if not resting:
            return
        # Whoever could not use the end of its rest as things are now is woken by whatever changes them.
        idle = self.growing.count_idle()
        wanted = [holder for holder in resting if holder.next_units() <= idle]
        if len(wanted) < len(resting) and "shrink" in self.session.policy.takes:
            for group in list_groups(holders):
                # As if nobody rested. What is not worth moving now is looked at again with the next event: woken for
                # whatever might tempt somebody, nine passes in ten found nothing to do.
                tired = [holder for holder in group if self.now < holder.cool_us <= looked_us]
                if tired and find_shift(group) is not None:
                    wanted += tired
        self.wake_us = min([self.wake_us, *(holder.cool_us for holder in wanted)])

    def _next_look_us(self) -> int:
        """When seats that somebody is leaving are empty: that is an event, and everything is looked at anew."""
        running = self.session.snapshot.running
        # Claims begin when the last of those who leave is gone; seats that nobody claimed are free then.
        claims = running.start_us[running.alive & (running.start_us > self.now)].tolist()
        nobody = running.alive & (running.gang < 0)
        left = (running.start_us + running.length_us)[nobody].tolist()
        reclaimable = self.session.reclaimable
        givers = (
            [] if reclaimable is None else [each for each in reclaimable.occupants if each.changed and not each.gone]
        )
        # Whoever shrinks leaves after its pause; whoever grows has left nothing.
        left += [self.now + each.gang.resize_pause_us for each in givers if sum(each.sizes) < sum(each.had)]
        return min([at for at in (*claims, *left) if at > self.now], default=NEVER)

    def hand_out_shares(self, holders: list[Holder], coming: int) -> None:
        """The first part alone, which those ask for who tell people what their dates need."""
        if any(holder.date_us is not None for holder in holders):
            shares = Shares(self.growing, holders, coming)
            shares.hand_out()
            # What shares wait for is out of reach of the steps below, or it would be lent for a moment and called back.
            self._kept = shares.kept
            self._note_promised(holders, shares.promised)

    # ------------------------------------------------------------------ who

    def list_holders(self) -> list[Holder]:
        """Everybody who takes part."""
        return [*self._starters(), *self._runners()]

    def _starters(self) -> list[Holder]:
        snapshot, found = self.session.snapshot, []
        for at, bind in enumerate(self.session.binds):
            gang = snapshot.gangs[bind.gang]
            if not gang.elastic:
                continue
            queue, user = self.session.owner_of(bind.gang)
            # Rule 7: only a stated or predicted walltime proves an end. The default plans the calendar and proves
            # nothing, so such a gang grows beside reservations, or as a guest.
            gone_us = self.now + bind.length_us if self.session.proven(bind.gang) else NEVER
            prospect = partial(self._prospect_of_bind, bind)
            holder = Holder(
                bind.gang,
                gang,
                queue,
                user,
                sizes_of(bind.seats),
                partial(_seats_of, bind),
                prospect,
                gone_us,
                self.growing.weigh_role,
                at=at,
            )
            holder.guest, holder.pinned = bind.guest, snapshot.pins.get(bind.gang)
            found.append(self._with_date(holder))
        return found

    def _prospect_of_bind(self, bind: Bind) -> Prospect:
        snapshot, gang = self.session.snapshot, self.session.snapshot.gangs[bind.gang]
        members = elastic_members(gang, sizes_of(bind.seats))
        curve, weigh = curve_of(snapshot, bind.gang), self.session.policy.weigh
        return Prospect(gang, curve, weigh, members, bind.length_us, gang.startup_us)

    def _runners(self) -> list[Holder]:
        reclaimable, snapshot, found = self.session.reclaimable, self.session.snapshot, []
        if reclaimable is None or not self.session.policy.grows:
            return []
        for occupant in reclaimable.occupants:
            # A moved gang restores from its snapshot first; a pinned one has the size that somebody wants.
            if not occupant.gang.elastic or occupant.gone or occupant.moved or occupant.exact:
                continue
            cool_us = int(snapshot.running.cool_until_us[occupant.row])
            if occupant.changed:  # its rest begins with this plan
                cool_us = self.now + max(COOL_LEAST_US, COOL_PAUSES * occupant.gang.resize_pause_us)
                # Who has been told of one size in this plan is not told of another; but whoever makes room for a start
                # pays its pause already, and may give more with it.
                if occupant.cause is not Cause.LOAN:
                    self.wake_us = min(self.wake_us, cool_us)
                    continue
            holder = Holder(
                occupant.number,
                occupant.gang,
                occupant.queue,
                occupant.user,
                occupant.sizes,
                partial(_seats_of, occupant),
                partial(prospect_of, self.session, occupant),
                occupant.end_us,
                self.growing.weigh_role,
                occupant,
            )
            holder.guest, holder.resting, holder.told = occupant.guest, cool_us > self.now, occupant.changed
            holder.cool_us = cool_us
            found.append(self._with_date(holder))
        return found

    def _with_date(self, holder: Holder) -> Holder:
        gang = holder.gang
        if gang.deadline_us is not None and self.session.policy.deadlines:
            verdict = self.session.snapshot.dates.get(holder.number)
            # A date that could not be promised has no share (option `admit`).
            if not self.session.policy.promises_dates or (verdict is not None and verdict.promised):
                holder.date_us = gang.submit_us + gang.deadline_us
        return holder

    def _note_promised(self, holders: list[Holder], promised: Mapping[int, int]) -> None:
        """Who may not be given surplus for the sake of its promised date, and whether to look again at once."""
        reclaimable = self.session.reclaimable
        # For a start, and not for a share: two who need more than there is would call on each other at every moment.
        gave = reclaimable is not None and any(each.cause is Cause.LOAN for each in reclaimable.occupants)
        for holder in holders:
            if holder.number not in promised:
                continue
            holder.resting = holder.resting or self._has_no_time_to_change(holder)
            if holder.share > holder.members and gave:
                # Whoever gave for a start is not asked again in this plan. A promise cannot wait for the next event.
                self.wake_us = self.now + SHORTEST_US

    def _has_no_time_to_change(self, holder: Holder) -> bool:
        """Whether a promised date could be lost by being given surplus now and having to give it back at once."""
        assert holder.date_us is not None
        # To take what is idle and to give it back when another calls: whoever starts takes it without a pause.
        pauses = 2 if holder.occupant is not None else 1
        least_us = holder.prospect.expected_us(holder.floor)
        return self.now + least_us + pauses * holder.gang.resize_pause_us > holder.date_us

    # ------------------------------------------------------------------ the rest

    def _hand_out(self, holders: list[Holder]) -> None:
        """Whoever's next step is worth most, again and again, until nothing fits."""
        idle = self.growing.count_idle()
        # A step takes at least one member's units; most passes of a busy cluster end here.
        holders = [holder for holder in holders if holder.weight <= idle]
        steps = self.list_next_steps(holders, idle)
        heapify(steps)
        while steps:
            key, number, holder, role, size = heappop(steps)
            if self._many_queues and self._standing(holder) != key[0]:
                # The standing of its queue has moved since, and with it everybody's of that queue.
                heappush(steps, ((self._standing(holder), *key[1:]), number, holder, role, size))
                continue
            units = (size - holder.sizes[role]) * holder.weight
            if idle - units < self._kept or not self.growing.enlarge(holder, role, size):
                # Who found no room for this size may find some for less: within this loop room only shrinks.
                holder.most = size - 1
            else:
                idle = self.growing.count_idle()
            step = self._best_step(holder, idle)
            if step is not None:
                heappush(steps, step)

    def list_next_steps(self, holders: Sequence[Holder], idle: int) -> list[Step]:
        """What everybody would do with so many units, in no order; the smallest step comes first."""
        self._many_queues = len({holder.queue for holder in holders}) > 1
        return [step for holder in holders if (step := self._best_step(holder, idle)) is not None]

    def _standing(self, holder: Holder) -> StandingKey:
        # Rule 11 (growth): entitlement only orders who grows first between queues; limits and reservations bound it.
        return self.session.standing.key(holder.queue) if self._many_queues else ()

    def _best_step(self, holder: Holder, idle: int) -> Step | None:
        """The later size that is worth most per device, since curves need not be concave; None if none is worth it."""
        if holder.several:
            role, size = self._next_of_several(holder)
            more = size - holder.sizes[role]
            if more <= 0:
                return None
            worth, weight = holder.prospect.worth, self.growing.weigh_role(holder.gang, role)
            gain = (worth(holder.members + more) - worth(holder.members)) / (more * weight)
        else:
            role = holder.role
            # No further than what is idle in all: larger sizes need not be tried, one by one, to find that out.
            most = min(holder.most, holder.members + idle // holder.weight)
            # A gang that starts pinned grows up to its wish here and no further; one that runs pinned is not here.
            most = most if holder.pinned is None else min(most, holder.pinned)
            # Who starts pauses for nothing, and who has grown in this plan pauses for that already.
            pauses = holder.occupant is not None and not holder.gained
            gain, size = holder.climb(holder.members, most, pauses=pauses)
        if gain <= 0:
            return None
        gained = sum(seats.members for seats, _ in holder.gained)
        # Rounded, since gains are floats: equal gangs must tie exactly, and then take turns by who has gained least.
        key = (self._standing(holder), -float(f"{gain:.12e}"), gained)
        return key, holder.number, holder, role, size

    def _next_of_several(self, holder: Holder) -> tuple[int, int]:
        """The next size of the role furthest from its most, so that roles grow together; equal ones by index."""
        steps = []
        for index, role in enumerate(holder.gang.roles):
            now = holder.sizes[index]
            larger = next((size for size in role.sizes.allowed if size > now), ANY_SIZE)
            if role.sizes.elastic and larger <= holder.most and larger < ANY_SIZE:
                steps.append((now / role.sizes.most, index, larger))
        return min(steps)[1:] if steps and holder.pinned is None else (holder.role, 0)

    # ------------------------------------------------------------------ results

    def _finish(self, holder: Holder) -> None:
        # Nothing was gained, so nothing is told: a resize to the same size would cost a pause.
        if not holder.gained:
            return
        if holder.occupant is None:
            self._rebind(holder)
            return
        lent = any(gone_us == self.now + 1 for _, gone_us in holder.gained)
        # Judged once, by what it got in the end. One pause is paid for all its steps, so no step alone could answer.
        promised = holder.cause is Cause.SHARE and self.session.dates is not None
        if lent and not promised and not self._pays_back(holder, self.growing.ahead_us):
            self.growing.revert(holder)
            return
        occupant = holder.occupant
        occupant.seats, occupant.cause, occupant.grown_as = holder.seats, holder.cause, holder.guest
        saves = holder.prospect.expected_us(holder.prospect.members) - holder.prospect.expected_us(holder.members)
        # Of growth into idle room a date is no reason, though the gang may have one.
        needs, date_us = (holder.share, holder.date_us) if holder.cause is Cause.SHARE else (0, None)
        occupant.grounds = Grounds(needs, date_us, saves_us=round(saves))

    def _pays_back(self, holder: Holder, until_us: int) -> bool:
        """Whether room that has to go back at an instant saves more than the two pauses it costs."""
        assert holder.occupant is not None
        if until_us <= self.now + SHORTEST_US or until_us >= holder.occupant.end_us:
            return True
        before, speed = holder.prospect.speed(holder.prospect.members), holder.prospect.speed(holder.members)
        pause_us = holder.prospect.pause_us
        # Until then it works (span - pause) at the new speed, and then pays a second pause to shrink, in which it would
        # have worked at the old one. More than span at the old speed, or it stays.
        span = until_us - self.now
        return (span - pause_us) * speed - pause_us * before > span * before

    def _rebind(self, holder: Holder) -> None:
        """A start at its final size, ranks in topology order."""
        fleet, bind = self.session.fleet, self.session.binds[holder.at]
        most = elastic_members(holder.gang, tuple(role.sizes.most for role in holder.gang.roles))
        # From what was stated at the largest size (rule 6), not from the length at
        # its least: scaling twice rounds twice.
        length = scaled_us(self.session.length_of(holder.number), holder.prospect.curve, most, holder.members)
        seats = tuple(
            # Nobody has a rank yet, so neighbours may get neighbouring ones. A gang that runs
            # keeps its ranks: new members come last.
            each if _grouped(holder.gang, each.role) else _in_topology_order(fleet.walk_rank, each)
            for each in holder.seats
        )
        # In place of the bind that let it in: a starting gang binds once (rule 1), so that nobody pays a pause for
        # surplus that is there when it begins.
        self.session.binds[holder.at] = Bind(bind.gang, seats, length, holder.guest)


def _seats_of(whose: Bind | Occupant) -> tuple[Seats, ...]:
    return whose.seats


def _grouped(gang: Gang, role: int) -> bool:
    """Whether ranks stand in groups, which an order of nodes would tear apart."""
    segment = gang.roles[role].topology.segment or gang.topology.segment
    return segment is not None and segment.size > 1


def _in_topology_order(rank: IntArray, seats: Seats) -> Seats:
    order = rank[seats.nodes].argsort(kind="stable")
    return Seats(seats.role, seats.nodes[order], seats.counts[order], seats.devices[order], seats.members)

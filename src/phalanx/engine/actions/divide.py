"""Dividing surplus (rule 16): shares first, then the rest to whoever's next step is worth most.

A gang with a date that can still be met has a *share*: the smallest size that meets it. Shares are worked out anew in
every pass, the cheapest first, and may call surplus back from gangs above their own. What is left goes, step by step,
where `engine.worth` says that it is worth most. Those who start in this plan get theirs at once, without a pause;
those who run get more only if the time they save is longer than the pause it costs. Room under a reservation may be
lent until its owner comes; whoever takes it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from phalanx.engine.calendar.port import RoomAhead
from phalanx.engine.curves import curve_of
from phalanx.engine.fairshare import StandingKey
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.loans import Loan, call_back_tails
from phalanx.engine.making_room.permits import Claimant, Permits, prospect_of
from phalanx.engine.reclaimable import Occupant, Release
from phalanx.engine.room.extend import extend, whole_form
from phalanx.engine.room.seats import add_seats, drop_tail, elastic_members, sizes_of, subtract_seats
from phalanx.engine.room.view import NOBODY, View
from phalanx.engine.transaction import Transaction
from phalanx.engine.worth import SHORTEST_US, Prospect
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Guest, Seats
from phalanx.perfmodel.speedup import scaled_us

#: After a resize a gang does not grow for this long, or for two pauses if that is more (rule 16); shares excepted.
COOL_LEAST_US = 60_000_000
COOL_PAUSES = 2
#: Whoever is still leaving seats later than this is not leaving for anybody here (strangers on a machine).
COMING_US = 3_600_000_000
#: Sizes nearer to each other than this part of a gang are not told apart: a pause for one member of forty is wasted.
STEP_PARTS = 8


@dataclass(slots=True, eq=False)
class Holder:
    """An elastic gang among whom surplus is divided."""

    number: int
    gang: Gang
    queue: int
    user: int
    seats: tuple[Seats, ...]
    prospect: Prospect
    gone_us: int
    occupant: Occupant | None  # None: it starts in this plan
    at: int = -1  # its bind, if it starts
    date_us: int | None = None
    resting: bool = False  # it was resized not long ago
    guest: Guest = Guest.NO
    gained: list[tuple[Seats, int]] = field(default_factory=list)  # with the instant until which they are taken
    first: tuple[int, ...] = ()  # sizes before anything was gained
    most: int = 1 << 30  # larger sizes of its role found no room
    share: int = 0  # members that its date needs; 0: it has none, or cannot be met
    cause: Cause = Cause.GROW

    @property
    def members(self) -> int:
        """Members of its elastic roles."""
        return elastic_members(self.gang, sizes_of(self.seats))


class Division:
    """Hands surplus out, after everybody had a chance to start."""

    def __init__(self, transaction: Transaction, calendar: RoomAhead, ahead_us: int) -> None:
        """`ahead_us`: when the next reservation or window begins, which is when room lent under it goes back."""
        self.session, self.transaction = transaction.session, transaction
        self.calendar, self.ahead_us = calendar, ahead_us
        self.now = self.session.snapshot.now_us
        self.wake_us = NEVER
        # By how long the room must be good for: many growers ask the same, and a trial view is a copy of the cluster.
        self._views: dict[tuple[int, int], View] = {}
        self._many_queues = False
        self._coming = self._measure_coming()
        self._kept = 0  # units that shares wait for
        self._in_transit = bool(self._coming)

    def _measure_coming(self) -> int:
        """Units on seats that are being vacated and that nobody has claimed."""
        snapshot = self.session.snapshot
        running, table = snapshot.running, snapshot.allocations
        leaving = running.alive & (running.gang < 0) & (running.start_us + running.length_us <= self.now + COMING_US)
        if not leaving.any():
            return 0
        rows = table.alive & leaving[table.running]
        return self._count_units(table.taken[rows])

    def run(self) -> None:
        """Shares first, then the rest, step by step."""
        holders = [*self._starters(), *self._runners()]
        self._hand_out_shares(holders)
        self.transaction.set_aside()
        self._hand_out([holder for holder in holders if not holder.resting])
        if "shrink" in self.session.policy.takes and not self._in_transit and not self._kept:
            self._balance(holders)
        for holder in holders:
            self._finish(holder)

    # ------------------------------------------------------------------ who

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
            members = elastic_members(gang, sizes_of(bind.seats))
            prospect = Prospect(
                gang, curve_of(snapshot, bind.gang), self.session.policy.weigh, members, bind.length_us, gang.startup_us
            )
            holder = Holder(bind.gang, gang, queue, user, bind.seats, prospect, gone_us, None, at)
            holder.guest, holder.first = bind.guest, sizes_of(bind.seats)
            found.append(self._with_date(holder))
        return found

    def _runners(self) -> list[Holder]:
        reclaimable, snapshot, found = self.session.reclaimable, self.session.snapshot, []
        if reclaimable is None or not self.session.policy.grows:
            return []
        for occupant in reclaimable.occupants:
            # A moved gang restores from its snapshot first; a pinned one has the size that somebody wants.
            if not occupant.gang.elastic or occupant.gone or occupant.moved or occupant.exact:
                continue
            gang = occupant.gang
            holder = Holder(
                occupant.number,
                gang,
                occupant.queue,
                occupant.user,
                occupant.seats,
                prospect_of(self.session, occupant),
                occupant.end_us,
                occupant,
            )
            holder.guest, holder.first = occupant.guest, sizes_of(occupant.was)
            cool_us = int(snapshot.running.cool_until_us[occupant.row])
            if occupant.changed:  # its rest begins with this plan
                cool_us = self.now + max(COOL_LEAST_US, COOL_PAUSES * gang.resize_pause_us)
            holder.resting = cool_us > self.now
            if holder.resting:
                # Nothing happens when a rest is over, so that nobody would look again: the plan has to say when
                # (rule 5).
                self.wake_us = min(self.wake_us, cool_us)
            if not occupant.changed:  # who has been told of one size in this plan is not told of another
                found.append(self._with_date(holder))
        return found

    def _with_date(self, holder: Holder) -> Holder:
        gang = holder.gang
        if gang.deadline_us is not None and self.session.policy.deadlines:
            holder.date_us = gang.submit_us + gang.deadline_us
        return holder

    # ------------------------------------------------------------------ shares

    def _hand_out_shares(self, holders: list[Holder]) -> None:
        """Bring everybody whose date needs more to the size that it needs, the least device time first.

        Nobody owns a share: whose are granted is found anew from what all of them hold together and what is idle, and
        whoever is granted none keeps its least.
        """
        dated: list[tuple[float, int, Holder]] = []
        room = self._coming + self._idle_units()
        for holder in holders:
            holder.share = self._find_share(holder)
            role = self._role(holder)
            weight = self._weight(holder, role)
            room += (holder.seats[role].members - holder.gang.roles[role].sizes.least) * weight
            if holder.share:
                dated.append((holder.share * weight * holder.prospect.expected_us(holder.share), holder.number, holder))
        dated.sort(key=lambda each: each[:2])
        for _, _, holder in dated:
            role = self._role(holder)
            more = (holder.share - holder.gang.roles[role].sizes.least) * self._weight(holder, role)
            if more > room:
                holder.share = 0
            room -= more if holder.share else 0
        for _, _, holder in dated:
            if holder.share > holder.members:
                self._reach_share(holder, holders)
                # Still short of it: what is free and what comes free is for this one, until it has all of it.
                self._kept += max(0, holder.share - holder.members) * self._weight(holder, self._role(holder))

    def _idle_units(self) -> int:
        return self._count_units(self.session.view.free[self.session.in_service])

    def _count_units(self, amounts: IntArray) -> int:
        """Devices, where there are any; else everything together, as `_weight` counts a member."""
        column = self.session.fleet.device_column
        return int(amounts.sum() if column < 0 else amounts[:, column].sum())

    def _role(self, holder: Holder) -> int:
        return next(index for index, each in enumerate(holder.gang.roles) if each.sizes.elastic)

    def _find_share(self, holder: Holder) -> int:
        """The smallest size that meets its date from now on; 0 if it has no date, or none does."""
        if holder.date_us is None:
            return 0
        elastic = [role for role in holder.gang.roles if role.sizes.elastic]
        if len(elastic) != 1:
            return 0
        rest = sum(role.sizes.least for role in holder.gang.roles if role.sizes.elastic) - elastic[0].sizes.least
        for size in elastic[0].sizes.allowed:
            if self.now + holder.prospect.expected_us(size + rest) <= holder.date_us:
                return size + rest
        return 0

    def _reach_share(self, holder: Holder, holders: Sequence[Holder]) -> None:
        role = self._role(holder)
        if self._step(holder, role, holder.share):
            holder.cause = Cause.SHARE
            return
        self._call_in(holder, role, holders)

    def _call_in(self, holder: Holder, role: int, holders: Sequence[Holder]) -> None:
        """Surplus above everybody's own share comes back for somebody whose date needs it."""
        if "shrink" not in self.session.policy.takes:
            return
        count = holder.share - holder.seats[role].members
        # Seats that are being vacated are for whoever is next when they are free, and nobody gives twice for one thing.
        coming = min(count, self._coming // self._weight(holder, role))
        self._coming -= coming * self._weight(holder, role)
        count -= coming
        if not count:
            return
        asked = self.session.need_of(holder.gang, role).vector * count
        if self.session.limits.check(holder.queue, holder.user, asked) is not None:
            return
        assert self.session.reclaimable is not None
        permits = Permits(self.session, self.session.reclaimable)
        priority = holder.gang.priority
        who = Claimant(holder.queue, priority, asked, owner=False, attained_us=0, arrival=(0, holder.number))
        shares = {other.number: other for other in holders}
        loans = []
        for loan in permits.list_loans(who):
            other = shares.get(loan.occupant.number)
            if other is None or other is holder or loan.occupant.changed:
                continue
            members = min(loan.members, loan.occupant.seats[loan.role].members - max(other.share, 0))
            if members > 0:
                loans.append(Loan(loan.occupant, loan.role, members, Cause.SHARE))
        gone_us = self.now + 1 if holder.guest is Guest.WHOLE else holder.gone_us

        def seats_with(releases: Sequence[Release]) -> Seats | None:
            return extend(self.calendar.trial(gone_us, NOBODY, releases), holder.gang, holder.seats, role, count)

        loans.sort(key=lambda loan: self._missed(shares[loan.occupant.number], loan))
        releases = call_back_tails(self.session.fleet, loans, lambda given: seats_with(given) is not None)
        if releases is None:
            return
        for release in releases:
            self.transaction.give(release, holder.number)
            shares[release.occupant.number].resting = True
            shares[release.occupant.number].seats = release.occupant.seats
        self._views = {}
        # Whoever starts waits for its whole size where it will sit (a claim); whoever runs grows when the seats are
        # empty, and goes on with what it has until then.
        pauses = coming or any(release.occupant.gang.resize_pause_us for release in releases)
        if (holder.occupant is None or not pauses) and not coming and self._step(holder, role, holder.share):
            holder.cause = Cause.SHARE

    def _missed(self, holder: Holder, loan: Loan) -> tuple[int, float, int]:
        """How much a lender would miss what it may give, per member; of equals the later one gives."""
        had = holder.members
        lost = holder.prospect.worth(had) - holder.prospect.worth(had - loan.members)
        return loan.occupant.priority, round(lost / loan.members, 15), -holder.number

    # ------------------------------------------------------------------ between those who run

    def _balance(self, holders: Sequence[Holder]) -> None:
        """Surplus goes from whoever would miss it least to whoever gains most, where that is worth both pauses.

        Between gangs of one queue and priority, which have the same right to it.
        """
        groups: dict[tuple[int, int], list[Holder]] = {}
        for holder in holders:
            steady = holder.occupant is not None and not holder.resting and not holder.gained
            if steady and sum(role.sizes.elastic for role in holder.gang.roles) == 1:
                groups.setdefault((holder.queue, holder.gang.priority), []).append(holder)
        for group in groups.values():
            if len(group) > 1:
                self._balance_group(group)

    def _balance_group(self, group: list[Holder]) -> None:
        now = {holder.number: holder.members for holder in group}
        up = max((self._climb(holder, now[holder.number])[0] for holder in group), default=0.0)
        down = min((self._fall(holder) for holder in group if holder.members > self._floor(holder)), default=up)
        # Most passes end here: nobody gains more by a step than the one who would miss it least loses.
        if up <= down:
            return
        target = self._divide(group)
        takers = [holder for holder in group if target[holder.number] > now[holder.number]]
        givers = [holder for holder in group if target[holder.number] < now[holder.number]]
        if takers and givers and self._is_worth_it(takers, givers, target):
            self._shift(takers, givers, target)

    def _floor(self, holder: Holder) -> int:
        return max(holder.share, holder.gang.roles[self._role(holder)].sizes.least)

    def _climb(self, holder: Holder, members: int, most: int = 1 << 30) -> tuple[float, int]:
        """The step up from a size that is worth most per unit, and to which size."""
        best, worth = (0.0, members), holder.prospect.worth(members)
        weight, last = self._weight(holder, self._role(holder)), members
        allowed = [size for size in holder.gang.roles[self._role(holder)].sizes.allowed if members < size <= most]
        for size in allowed:
            if size - last < last // STEP_PARTS and size != allowed[-1]:
                continue
            last = size
            gain = (holder.prospect.worth(size) - worth) / ((size - members) * weight)
            if gain > best[0]:
                best = (gain, size)
        return best

    def _fall(self, holder: Holder) -> float:
        """What the next step down is worth, per unit."""
        had, floor = holder.members, self._floor(holder)
        below = [size for size in holder.gang.roles[self._role(holder)].sizes.allowed if floor <= size < had]
        less = next((size for size in reversed(below) if had - size >= had // STEP_PARTS), floor)
        lost = holder.prospect.worth(had) - holder.prospect.worth(less)
        return lost / ((had - less) * self._weight(holder, self._role(holder)))

    def _divide(self, group: list[Holder]) -> dict[int, int]:
        """Members of each if all that the group holds above its floors were handed out anew."""
        target = {holder.number: self._floor(holder) for holder in group}
        room = sum((h.members - target[h.number]) * self._weight(h, self._role(h)) for h in group)
        steps = []
        for holder in group:
            gain, size = self._climb(holder, target[holder.number])
            if gain > 0:
                steps.append((-gain, holder.number, holder, size))
        heapify(steps)
        while steps and room > 0:
            _, number, holder, size = heappop(steps)
            weight = self._weight(holder, self._role(holder))
            most = 1 << 30
            if (size - target[number]) * weight > room:
                most = target[number] + room // weight
            else:
                room -= (size - target[number]) * weight
                target[number] = size
            gain, size = self._climb(holder, target[number], most)
            if gain > 0:
                heappush(steps, (-gain, number, holder, size))
        return target

    def _is_worth_it(self, takers: Sequence[Holder], givers: Sequence[Holder], target: dict[int, int]) -> bool:
        """Whether what the takers save is more than twice what the givers lose, pauses included.

        A giver does not lose for ever: what it gave comes back when the takers are done, which is when they expect to
        be. Judged as if it were for good, a long gang would keep most of a cluster to its end.
        """
        saved = sum(h.prospect.expected_us(h.members) - h.prospect.expected_us(target[h.number]) for h in takers)
        weights = [target[h.number] * self._weight(h, self._role(h)) for h in takers]
        until = sum(w * h.prospect.expected_us(target[h.number]) for w, h in zip(weights, takers, strict=True))
        until /= sum(weights)
        lost = 0.0
        for giver in givers:
            prospect, less = giver.prospect, target[giver.number]
            for_good = prospect.expected_us(less) - prospect.expected_us(giver.members)
            lent = 2 * prospect.pause_us + until * (1 - prospect.speed(less) / prospect.speed(giver.members))
            lost += min(for_good, lent)
        return saved > 2 * lost

    def _shift(self, takers: list[Holder], givers: Sequence[Holder], target: dict[int, int]) -> None:
        releases = []
        for giver in givers:
            assert giver.occupant is not None
            role, seats = self._role(giver), giver.seats[self._role(giver)]
            left = drop_tail(
                self.session.fleet, giver.gang.roles[role].shape, seats, giver.members - target[giver.number]
            )
            releases.append(Release(giver.occupant, (subtract_seats(seats, left),), Cause.BALANCE, whole=False))
        view = self.calendar.trial(NEVER, NOBODY, releases)
        for taker in takers:
            count = target[taker.number] - taker.members
            if extend(view, taker.gang, taker.seats, self._role(taker), count) is None:
                return
        for giver, release in zip(givers, releases, strict=True):
            self.transaction.give(release, takers[0].number)
            assert giver.occupant is not None
            giver.seats, giver.resting = giver.occupant.seats, True
        self.transaction.set_aside()
        self._views = {}

    # ------------------------------------------------------------------ the rest

    def _hand_out(self, holders: list[Holder]) -> None:
        """Whoever's next step is worth most, again and again, until nothing fits."""
        self._many_queues = len({holder.queue for holder in holders}) > 1
        steps = [step for holder in holders if (step := self._best_step(holder)) is not None]
        heapify(steps)
        while steps:
            key, number, holder, role, size = heappop(steps)
            if self._many_queues and self._standing(holder) != key[0]:
                # The standing of its queue has moved since, and with it everybody's of that queue.
                heappush(steps, ((self._standing(holder), *key[1:]), number, holder, role, size))
                continue
            units = (size - holder.seats[role].members) * self._weight(holder, role)
            if (self._kept and self._idle_units() - units < self._kept) or not self._step(holder, role, size):
                # Who found no room for this size may find some for less: within this loop room only shrinks.
                holder.most = size - 1
            step = self._best_step(holder)
            if step is not None:
                heappush(steps, step)

    def _standing(self, holder: Holder) -> StandingKey:
        # Rule 11 (growth): entitlement only orders who grows first between queues; limits and reservations bound it.
        return self.session.standing.key(holder.queue) if self._many_queues else ()

    def _best_step(self, holder: Holder) -> tuple[tuple[StandingKey, float, int], int, Holder, int, int] | None:
        """The later size that is worth most per device, since curves need not be concave; None if none is worth it."""
        best: tuple[float, int, int] | None = None
        now = holder.prospect.worth(holder.members)
        for role, size in self._list_steps(holder):
            more = size - holder.seats[role].members
            gain = (holder.prospect.worth(holder.members + more) - now) / (more * self._weight(holder, role))
            if gain > 0 and (best is None or gain > best[0]):
                best = (gain, role, size)
        if best is None:
            return None
        gained = sum(sizes_of(holder.seats)) - sum(holder.first)
        # Rounded, since gains are floats: equal gangs must tie exactly, and then take turns by who has gained least.
        key = (self._standing(holder), -float(f"{best[0]:.12e}"), gained)
        return key, holder.number, holder, best[1], best[2]

    def _weight(self, holder: Holder, role: int) -> int:
        each = self.session.need_of(holder.gang, role).vector
        # Per device, and devices are column 0 where there are any: what is scarce is what a gain has to be worth.
        # Without devices, or for a role that asks for none, per unit of everything, or per member.
        return max(1, int(each.sum()) if self.session.fleet.device_column < 0 else int(each[0]) or 1)

    def _list_steps(self, holder: Holder) -> list[tuple[int, int]]:
        """Sizes above its present one: of one elastic role all that differ enough, of several the next of one."""
        elastic = [index for index, role in enumerate(holder.gang.roles) if role.sizes.elastic]
        pinned = self.session.snapshot.pins.get(holder.number)
        if len(elastic) > 1:
            # The role furthest from its most, so that roles grow together; equal ones by index.
            steps = []
            for index in elastic:
                sizes, now = holder.gang.roles[index].sizes, holder.seats[index].members
                larger = next((size for size in sizes.allowed if size > now), None)
                if larger is not None and larger <= holder.most:
                    steps.append((now / sizes.most, index, larger))
            return [min(steps)[1:]] if steps and pinned is None else []
        role = elastic[0]
        now = holder.seats[role].members
        # A gang that starts pinned grows up to its wish here and no further; one that runs pinned is not here at all.
        runs_on = pinned is None and holder.occupant is not None and not self.session.policy.grows
        most = min(holder.most, now if runs_on else 1 << 30)
        most = most if pinned is None else min(most, pinned)
        found: list[tuple[int, int]] = []
        last = now
        allowed = [size for size in holder.gang.roles[role].sizes.allowed if now < size <= most]
        for size in allowed:
            if size - last >= last // STEP_PARTS or size == allowed[-1]:
                found.append((role, size))
                last = size
        return found

    def _step(self, holder: Holder, role: int, size: int) -> bool:
        """To a larger size, if there is room for it."""
        count = size - holder.seats[role].members
        need = self.session.need_of(holder.gang, role)
        if count <= 0 or self.session.limits.check(holder.queue, holder.user, need.vector * count) is not None:
            return False
        # A whole guest leaves with everything when the owner comes, so what it gains may lie under the reservation too.
        gone_us = self.now + 1 if holder.guest is Guest.WHOLE else holder.gone_us
        more = self._extend(holder, role, count, gone_us)
        # Own room before lent room. Whoever is gone before anything begins asked about room that is not lent in any
        # case: to lend it some would be the same question again.
        lent = more is None and gone_us > self.ahead_us
        if lent:
            gone_us = self.now + 1
            more = self._extend(holder, role, count, gone_us)
        if more is None:
            return False
        # The kind only rises (decision 10): its minimum may stay, so that only what is above it can be called back.
        if lent and holder.guest is Guest.NO:
            holder.guest = Guest.SURPLUS
        # Taken step by step and not once at the end: the next step, of anybody, must see it gone.
        self.transaction.take(holder, more, gone_us)
        holder.gained.append((more, gone_us))
        seats = list(holder.seats)
        seats[role] = add_seats(seats[role], more)
        holder.seats = tuple(seats)
        return True

    def _extend(self, grower: Holder, role: int, count: int, gone_us: int) -> Seats | None:
        # Room lent under a window has to be left a pause before it opens: not worth entering so late.
        lead_us = grower.gang.resize_pause_us if gone_us == self.now + 1 else 0
        view = self._views.get((gone_us, lead_us))
        if view is None:
            view = self._views[gone_us, lead_us] = self.calendar.trial(gone_us, NOBODY)
            for window, mask in zip(self.session.snapshot.windows, self.session.window_masks, strict=True):
                if lead_us and window.start_us - lead_us <= self.now < window.end_us:
                    view.usable_by_exempt[NOBODY] = view.usable_by_exempt[NOBODY] & ~mask
        found = extend(view, grower.gang, grower.seats, role, count)
        if found is None:
            return None
        self._views = {}  # what others may use has changed
        form = whole_form(self.session.fleet, grower.gang, sizes_of(grower.seats))
        named = self.calendar.name_devices(form, ((found,),))
        return named[0][0]

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
        if lent and not self._pays_back(holder, self.ahead_us):
            self._revert(holder)
            return
        occupant = holder.occupant
        occupant.seats, occupant.cause, occupant.grown_as = holder.seats, holder.cause, holder.guest

    def _rebind(self, holder: Holder) -> None:
        """A start at its final size, ranks in topology order."""
        fleet, bind = self.session.fleet, self.session.binds[holder.at]
        most = elastic_members(holder.gang, tuple(role.sizes.most for role in holder.gang.roles))
        now = elastic_members(holder.gang, sizes_of(holder.seats))
        # From what was stated at the largest size (rule 6), not from the length at
        # its least: scaling twice rounds twice.
        length = scaled_us(self.session.length_of(holder.number), holder.prospect.curve, most, now)
        seats = tuple(
            # Nobody has a rank yet, so neighbours may get neighbouring ones. A gang that runs
            # keeps its ranks: new members come last.
            each if _grouped(holder.gang, each.role) else _in_topology_order(fleet.walk_rank, each)
            for each in holder.seats
        )
        self.session.binds[holder.at] = Bind(bind.gang, seats, length, holder.guest)

    def _revert(self, holder: Holder) -> None:
        """It does not pay after all."""
        # With the very instants at which each was taken: the calendar took them
        # until then, and gives back what it took.
        for seats, gone_us in holder.gained:
            self.transaction.take_back(holder, seats, gone_us)
        self._views = {}


def _grouped(gang: Gang, role: int) -> bool:
    """Whether ranks stand in groups, which an order of nodes would tear apart."""
    segment = gang.roles[role].topology.segment or gang.topology.segment
    return segment is not None and segment.size > 1


def _in_topology_order(rank: IntArray, seats: Seats) -> Seats:
    order = rank[seats.nodes].argsort(kind="stable")
    return Seats(seats.role, seats.nodes[order], seats.counts[order], seats.devices[order], seats.members)

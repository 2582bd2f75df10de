"""Shares: the sizes that dates need, before anything else is divided.

A gang with a date that can still be met has a *share*: the smallest size that meets it from now on. Nobody owns one:
whose are granted is found anew in every pass, the least device time first, from what all of them hold together and
what is idle. Whoever is below its share gets there with free room, else with surplus that running gangs hold above
their own; what is still missing then is kept for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.dividing.growing import Growing
from phalanx.engine.dividing.holders import Holder
from phalanx.engine.dividing.later import Later
from phalanx.engine.making_room.loans import Loan, call_back_tails
from phalanx.engine.making_room.permits import Claimant, Permits
from phalanx.engine.reclaimable import Release, vector_of
from phalanx.engine.room.extend import extend
from phalanx.engine.room.limits import usage_fits
from phalanx.model.fleet import IntArray
from phalanx.model.plan import Cause, Grounds, Guest


def find_share(holder: Holder, now_us: int) -> int:
    """The smallest size that meets its date from now on; 0 if it has no date, or none does."""
    # Of a gang that starts pinned a person has said how large it shall be, whatever its date needs (rule 15).
    if holder.date_us is None or holder.several or holder.pinned is not None:
        return 0
    # Every size, not only those a step apart: rule 16 says the smallest, and what a share is too large by is missing in
    # somebody else's.
    for size in holder.gang.roles[holder.role].sizes.allowed:
        if now_us + holder.prospect.expected_us(size) <= holder.date_us:
            return size
    return 0


class Shares:
    """Hands shares out."""

    def __init__(self, growing: Growing, holders: Sequence[Holder], coming: int) -> None:
        """`coming`: units on seats that are being vacated."""
        self.session, self.growing, self.holders = growing.session, growing, holders
        self.coming = coming
        self.kept = 0  # units that shares wait for
        # What promised dates need from now on, beside each other: less now and more later may be enough.
        self.promised = {} if self.session.dates is None else self.session.dates.shares()

    def hand_out(self) -> None:
        """Bring everybody whose date needs more to the size that it needs."""
        granted = self._grant()
        for holder in granted:
            # Whoever was told to give in this plan is not told to take.
            if holder.share <= holder.members or holder.told:
                continue
            if self._reach(holder):
                # Still short of it: what is free and what comes free is for this one, until it has all of it.
                self.kept += max(0, holder.share - holder.members) * holder.weight
            elif holder.share > holder.members:
                # Granted by sums, and nobody has to give it: it keeps what it has, and takes part in the rest like
                # everybody else. Held to a share that it cannot reach, it would be left out of that as well.
                holder.share = holder.members

    def _grant(self) -> list[Holder]:
        """Whose dates are met out of all that is held above minimums, is idle or comes; the least device time first."""
        dated: list[tuple[float, int, Holder]] = []
        room = self.coming + self.growing.count_idle()
        for holder in self.holders:
            known = self.promised.get(holder.number)
            holder.share = find_share(holder, self.growing.now) if known is None else known
            # Of those without a date as well, who have no share to keep. Whether anybody may call it back is not asked
            # here: rights and places are looked at when a share is reached for (decision 18).
            room += (holder.sizes[holder.role] - holder.least) * holder.weight
            if holder.share:
                # Rule 16's order, with start-up and pause in the time (decision 18): devices are held meanwhile as
                # well.
                cost = holder.share * holder.weight * holder.prospect.expected_us(holder.share)
                dated.append((cost, holder.number, holder))
        # Without the holder, which has no order; numbers break ties (rule 1).
        dated.sort(key=lambda each: each[:2])
        refused = []
        for _, _, holder in dated:
            more = (holder.share - holder.least) * holder.weight
            # Whoever is granted none keeps its least, and what it holds above that is for the others.
            # Promised ones were counted beside each other, over time: that they do not all fit now is no surprise.
            if more > room and holder.number not in self.promised:
                refused.append(holder)
                holder.share = 0
            else:
                room -= more
        if refused and not self.promised:
            Later(self.holders, room, self.growing.now).fit(refused)
        return [holder for _, _, holder in dated]

    def _reach(self, holder: Holder) -> bool:
        """Bring it to its share now, if that can be; else whether seats are on their way to it.

        Nothing may be kept where none are: no event would come, and idle room would wait until the date is lost.
        """
        if self.growing.enlarge(holder, holder.role, holder.share):
            holder.cause = Cause.SHARE
            return False
        if "shrink" not in self.session.policy.takes:
            return False
        count = holder.share - holder.sizes[holder.role]
        # Seats that are being vacated are for whoever is next when they are free, and nobody gives twice for one thing.
        # Below a ceiling only what others below it give helps: whatever were kept would stay idle until the date is
        # lost.
        limited = not self._within_limits(holder, count, ())
        coming = 0 if limited else min(count, self.coming // holder.weight)
        self.coming -= coming * holder.weight
        holder.coming = coming
        return count == coming or self._call_in(holder, count - coming, wait=bool(coming)) or bool(coming)

    def _call_in(self, holder: Holder, count: int, *, wait: bool) -> bool:
        """Surplus above everybody's own share comes back for somebody whose date needs it; whether any does."""
        asked = self.session.need_of(holder.gang, holder.role).vector * count
        by_number = {other.number: other for other in self.holders}
        releases = self._find_releases(holder, count, self._list_loans(holder, asked, by_number))
        if releases is None:
            return False
        # All of it or nothing: with a part of what is missing the date would be lost all the same, and those who gave
        # would have paid their pauses for it.
        holder.coming += count
        for release in releases:
            giver = by_number[release.occupant.number]
            # Who makes room for a start is told of that, unless it gives to one that starts: those are never late.
            whom = release.occupant.beneficiary if giver.told and holder.occupant is not None else holder.number
            self.growing.transaction.give(release, whom)
            if not giver.told:
                release.occupant.grounds = Grounds(holder.share, holder.date_us)
            # Left awake it would be handed idle room in the same pass, and a plan tells a gang of one size.
            giver.resting = True
            giver.sit(release.occupant.seats)
        self.growing.forget()
        # Whoever starts waits for its whole size where it will sit (a claim); whoever runs grows when the seats are
        # empty, and goes on with what it has until then.
        pauses = any(release.occupant.gang.resize_pause_us for release in releases)
        at_once = not wait and (holder.occupant is None or not pauses)
        if at_once and self.growing.enlarge(holder, holder.role, holder.share):
            holder.cause = Cause.SHARE
        return True

    def _list_loans(self, holder: Holder, asked: IntArray, by_number: dict[int, Holder]) -> list[Loan]:
        """What others hold above their own share, by how much they would miss it; with the rights of rule 8."""
        assert self.session.reclaimable is not None
        permits = Permits(self.session, self.session.reclaimable)
        arrival = 0, holder.number
        who = Claimant(holder.queue, holder.gang.priority, asked, owner=False, attained_us=0, arrival=arrival)
        loans = []
        for loan in permits.list_loans(who):
            other = by_number.get(loan.occupant.number)
            if other is None or other is holder:  # who was told of something else by this plan is not among the holders
                continue
            # Its own share stays with it, even if the claimant's right goes further: else two dates would call on each
            # other's in turns, pass after pass.
            members = min(loan.members, loan.occupant.sizes[loan.role] - other.share)
            if members > 0:
                loans.append(Loan(loan.occupant, loan.role, members, Cause.SHARE))
        return sorted(loans, key=lambda loan: _missed(by_number[loan.occupant.number], loan))

    def _within_limits(self, holder: Holder, count: int, releases: Sequence[Release]) -> bool:
        """Whether its ceilings allow so many more, once these releases are given."""
        limits = self.session.limits
        if not limits.any:
            return True
        queues, users = limits.no_usage()
        for release in releases:
            given = vector_of(self.session.fleet, release.occupant.gang, release.seats)
            queues[release.occupant.queue] += given
            users[release.occupant.user] += given
        asked = self.session.need_of(holder.gang, holder.role).vector * count
        return usage_fits(limits, [(holder.queue, holder.user, asked)], (queues, users))

    def _find_releases(self, holder: Holder, count: int, loans: list[Loan]) -> list[Release] | None:
        # A promised date goes before a reservation, whose owner may not start where it would break the promise: lent,
        # and called back as far as the date allows (`Occupant.floor`).
        lends = holder.guest is Guest.WHOLE or holder.number in self.promised
        gone_us = self.growing.now + 1 if lends else holder.gone_us

        def fits(releases: Sequence[Release]) -> bool:
            if not self._within_limits(holder, count, releases):
                return False
            view = self.growing.trial(gone_us, releases)
            return extend(view, holder.gang, holder.seats, holder.role, count) is not None

        return call_back_tails(self.session.fleet, loans, fits)


def _missed(holder: Holder, loan: Loan) -> tuple[int, float, int]:
    """How much a lender would miss what it may give, per device; of equals the later one gives."""
    had = holder.members
    lost = holder.prospect.worth(had) - holder.prospect.worth(had - loan.members)
    # Rounded by digits and not by places: a user's own key may be as small as it likes.
    return loan.occupant.priority, float(f"{lost / (loan.members * holder.weight):.12e}"), -holder.number

"""Surplus goes from one running gang to another, where what that saves is worth what it costs (rule 16, balance)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from phalanx.engine.dividing.growing import Growing
from phalanx.engine.dividing.holders import ANY_SIZE, Holder
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.reclaimable import Release, vector_of
from phalanx.engine.room.extend import extend
from phalanx.engine.room.limits import usage_fits
from phalanx.engine.room.seats import drop_tail, subtract_seats
from phalanx.model.plan import Cause, Grounds

#: What the takers save must be more than so many times what the givers lose: forecasts are not that good.
SAVED_PER_LOST = 2


class Balance:
    """Shifts surplus between gangs of one queue and priority, which have the same right to it."""

    def __init__(self, growing: Growing) -> None:
        """After everything else was handed out."""
        self.session, self.growing = growing.session, growing

    def shift(self, holders: Sequence[Holder]) -> None:
        """In every group at most one shift a pass."""
        steady = [holder for holder in holders if holder.occupant and not (holder.resting or holder.gained)]
        steady = [holder for holder in steady if not self._sits_on_loan(holder)]
        if steady:  # whoever starts gives nothing
            steady = [*self._list_starting(holders), *steady]
        # Inside a group nobody stands above anybody (rule 8), so that no right has to be asked gang by gang: only what
        # it is worth decides.
        for group in list_groups(steady):
            self._shift_within(group)

    def _sits_on_loan(self, holder: Holder) -> bool:
        """Whether part of it has to leave its place one day, and its least may not be left behind there.

        Whoever calls surplus back for a start looks at which seats those are; a balance takes the last ranks, and
        nobody's start hangs on it.
        """
        assert holder.occupant is not None
        if holder.gang.preemptible:
            return False
        return bool(holder.occupant.guest) or bool(self.session.snapshot.windows)

    def _list_starting(self, holders: Sequence[Holder]) -> list[Holder]:
        """Whoever starts takes part, as a taker: nothing happens after a start, so that nobody would look again."""
        assert self.session.reclaimable is not None
        # Whoever waits for seats that others are leaving begins when they are empty, which is an event.
        if any(each.changed and each.gang.resize_pause_us for each in self.session.reclaimable.occupants):
            return []
        starting = [holder for holder in holders if holder.occupant is None and holder.pinned is None]
        for holder in starting:
            holder.begin()
        return starting

    def _bound(self, group: list[Holder]) -> None:
        """Nobody is thought of with more than its user may have: a giver would give for nothing."""
        # A queue has no more afterwards than before, nor has a person to whom all of them belong.
        if not self.session.limits.any or len({holder.user for holder in group}) == 1:
            return
        for holder in group:
            each = self.session.need_of(holder.gang, holder.role).vector
            _, by_user = self.session.limits.caps(each[None, :], empty=False)
            holder.ceiling = min(ANY_SIZE, holder.members + int(by_user[holder.user, 0]))

    def _shift_within(self, group: list[Holder]) -> None:
        self._bound(group)
        found = find_shift(group)
        if found is not None:
            self._carry_out(*found)

    def _carry_out(self, takers: list[Holder], givers: Sequence[Holder], target: dict[int, int]) -> None:
        """The givers shrink; the takers grow into it once the seats are empty, as into any free room."""
        releases = []
        for giver in givers:
            assert giver.occupant is not None
            shape, seats = giver.gang.roles[giver.role].shape, giver.seats[giver.role]
            left = drop_tail(self.session.fleet, shape, seats, giver.members - target[giver.number])
            # Tails, so that those who stay keep their ranks. Where they leave from was not asked so far: sums said how
            # many, and whether anybody can sit there is seen below.
            releases.append(Release(giver.occupant, (subtract_seats(seats, left),), Cause.BALANCE, whole=False))
        # Nobody gives for somebody who then finds no place: topology may forbid what the sums allow.
        view = self.growing.trial(NEVER, releases)
        for taker in takers:
            if extend(view, taker.gang, taker.seats, taker.role, target[taker.number] - taker.members) is None:
                return
        if not self._within_limits(takers, releases, target):
            return
        saved, lost = compare(takers, givers, target)
        for giver, release, costs in zip(givers, releases, lost, strict=True):
            # One is named, since a resize names one; the seats are nobody's until they are empty (decision 18).
            self.growing.transaction.give(release, takers[0].number)
            assert giver.occupant is not None
            # By the numbers that decided it, so that nobody is told of a gift that would not have been made.
            giver.occupant.grounds = Grounds(saves_us=round(saved), costs_us=round(costs), takers=len(takers))
            giver.sit(giver.occupant.seats)
            giver.resting = True
        self.growing.forget()
        # Who leaves without a pause has left: no event would come of it, and what was given would lie idle until
        # something else happens.
        if not any(giver.gang.resize_pause_us for giver in givers):
            for taker in takers:
                self.growing.enlarge(taker, taker.role, target[taker.number])
        # What was given is still in use, and is room for nobody of the next group.
        self.growing.transaction.set_aside()

    def _within_limits(self, takers: list[Holder], releases: Sequence[Release], target: dict[int, int]) -> bool:
        """Two takers of one person may pass a ceiling that neither passes alone."""
        limits = self.session.limits
        if not limits.any:
            return True
        queues, users = limits.no_usage()
        for release in releases:
            given = vector_of(self.session.fleet, release.occupant.gang, release.seats)
            queues[release.occupant.queue] += given
            users[release.occupant.user] += given
        asked = []
        for taker in takers:
            each = self.session.need_of(taker.gang, taker.role).vector
            asked.append((taker.queue, taker.user, each * (target[taker.number] - taker.members)))
        return usage_fits(limits, asked, (queues, users))


def list_groups(holders: Sequence[Holder]) -> list[list[Holder]]:
    """Gangs of one queue and priority, where there are several."""
    groups: dict[tuple[int, int], list[Holder]] = {}
    for holder in holders:
        # Of several roles that grow together there is no one size whose worth could be weighed against another's.
        if not holder.several:
            groups.setdefault((holder.queue, holder.gang.priority), []).append(holder)
    return [group for group in groups.values() if len(group) > 1]


def find_shift(group: list[Holder]) -> tuple[list[Holder], list[Holder], dict[int, int]] | None:
    """Who would take, who would give, and everybody's size then; None if nothing is worth moving."""
    if not is_tempting(group):
        return None
    # The whole group at once and not two at a time: in pairs, one long gang beside eight short ones came to 15
    # resizes and a mean of 1,660 s, and this way to 4 and 1,610 s (decision 18).
    target = divide(group)
    takers = [holder for holder in group if target[holder.number] > holder.members]
    givers = [holder for holder in group if target[holder.number] < holder.members]
    worth_it = takers and givers and is_worth_it(takers, givers, target)
    return (takers, givers, target) if worth_it else None


def is_tempting(group: list[Holder]) -> bool:
    """Whether anybody gains more by a step than the one who would miss it least loses. In most passes nobody does."""
    givers = [holder for holder in group if holder.members > holder.floor]
    if not givers:
        return False
    # Two steps instead of a whole division: if nobody's best step up is worth more than the cheapest step down, no
    # division moves anything where worths fall with size. A bend in a curve may hide one that would, which is then
    # missed.
    down = min(holder.fall() for holder in givers)
    return any(holder.climb(holder.members)[0] > down for holder in group)


def divide(group: list[Holder]) -> dict[int, int]:
    """Members of each, if all that a group holds above its floors were handed out anew by worth."""
    # From the floors up, as if nobody had surplus yet. From the present sizes only single steps could be compared, and
    # whoever came first would keep what it got when it was alone.
    target = {holder.number: holder.floor for holder in group}
    room = sum((holder.members - target[holder.number]) * holder.weight for holder in group)
    steps = []
    for holder in group:
        gain, size = holder.climb(target[holder.number])
        if gain > 0:
            steps.append((_rounded(gain), holder.number, holder, size))
    heapify(steps)
    # Every round lowers the room or the bound of one holder's next step, so that it ends.
    while steps and room > 0:
        _, number, holder, size = heappop(steps)
        most = ANY_SIZE
        if (size - target[number]) * holder.weight > room:
            # Too large a step for what is left; perhaps a smaller one.
            most = target[number] + room // holder.weight
        else:
            room -= (size - target[number]) * holder.weight
            target[number] = size
        gain, size = holder.climb(target[number], most)
        if gain > 0:
            heappush(steps, (_rounded(gain), number, holder, size))
    return target


def _rounded(gain: float) -> float:
    """To sort by, the largest first; equal gangs must tie exactly, whatever the unit of their curves."""
    return -float(f"{gain:.12e}")


def is_worth_it(takers: Sequence[Holder], givers: Sequence[Holder], target: dict[int, int]) -> bool:
    """Whether what the takers save is enough more than what the givers lose, pauses included.

    A giver does not lose for ever: what it gave comes back when the takers are done, which is when they expect to
    be. Judged as if it were for good, a long gang would keep most of a cluster to its end.
    """
    saved, lost = compare(takers, givers, target)
    return saved > SAVED_PER_LOST * sum(lost)


def compare(takers: Sequence[Holder], givers: Sequence[Holder], target: dict[int, int]) -> tuple[float, list[float]]:
    """What the takers save together, and what each giver loses, in µs until they are done."""
    saved = sum(h.prospect.expected_us(h.members) - h.prospect.expected_us(target[h.number]) for h in takers)
    # One instant for all takers together, weighed by what each will hold: the end of the largest brings most back.
    weights = [target[h.number] * h.weight for h in takers]
    until = sum(w * h.prospect.expected_us(target[h.number]) for w, h in zip(weights, takers, strict=True))
    until /= sum(weights)
    lost = []
    for giver in givers:
        prospect, less = giver.prospect, target[giver.number]
        for_good = prospect.expected_us(less) - prospect.expected_us(giver.members)
        lent = 2 * prospect.pause_us + until * (1 - prospect.speed(less) / prospect.speed(giver.members))
        # Whichever is less: a giver that is done before the takers never gets anything back, and has lost no more than
        # its own delay.
        lost.append(min(for_good, lent))
    return saved, lost

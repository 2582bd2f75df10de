"""Surplus: idle room goes to elastic gangs, step by step, where the next step adds most.

Those who start in this plan get theirs at once, without a pause. Those who run get more only if the
time they save is longer than the pause it costs. Room under a reservation may be lent until its
owner comes; whoever takes it is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.engine.calendar.port import RoomAhead
from phalanx.engine.curves import curve_of
from phalanx.engine.fairshare import StandingKey
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.reclaimable import Occupant
from phalanx.engine.room.extend import extend, whole_form
from phalanx.engine.room.seats import add_seats, elastic_members, sizes_of
from phalanx.engine.room.view import NOBODY, View
from phalanx.engine.transaction import Transaction
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Gang
from phalanx.model.plan import Bind, Cause, Guest, Seats
from phalanx.perfmodel.speedup import Speedup, scaled_us, speedup_at

#: Nothing is planned for shorter than this.
SHORTEST_US = 1
#: After a resize a gang does not grow for this long, or for ten pauses if that is more.
COOL_LEAST_US = 60_000_000
COOL_PAUSES = 10


@dataclass(slots=True, eq=False)
class Grower:
    """An elastic gang that could use more."""

    number: int
    gang: Gang
    queue: int
    user: int
    seats: tuple[Seats, ...]
    curve: Speedup
    gone_us: int
    occupant: Occupant | None  # None: it starts in this plan
    at: int = -1  # its bind, if it starts
    guest: Guest = Guest.NO
    gained: list[tuple[Seats, int]] = field(default_factory=list)  # with the instant until which they are taken
    first: tuple[int, ...] = ()  # sizes before anything was gained

    @property
    def pause_us(self) -> int:
        """What a change of size costs it now."""
        return 0 if self.occupant is None else self.gang.resize_pause_us

    def speed(self) -> float:
        """Its speed at its present size."""
        return speedup_at(self.curve, elastic_members(self.gang, sizes_of(self.seats)))


class Growth:
    """Hands idle room out, after everybody had a chance to start."""

    def __init__(self, transaction: Transaction, calendar: RoomAhead, ahead_us: int) -> None:
        """`ahead_us`: when the next reservation or window begins, which is when room lent under it goes back."""
        self.session, self.transaction = transaction.session, transaction
        self.calendar, self.ahead_us = calendar, ahead_us
        self.now = self.session.snapshot.now_us
        self.wake_us = NEVER
        # By how long the room must be good for: many growers ask the same, and a trial view is a copy of the cluster.
        self._views: dict[tuple[int, int], View] = {}
        self._many_queues = False

    def run(self) -> None:
        """Grow whoever gains most, again and again, until nothing fits."""
        growers = [*self._starters(), *self._runners()]
        # Only who has a next step counts as a queue that competes: a standing is dear,
        # and with one queue nobody compares it.
        growers = [grower for grower in growers if self._next_step(grower) is not None]
        self._many_queues = len({grower.queue for grower in growers}) > 1
        while growers:
            # Chosen anew after each step and not in rounds: every step changes the gain of
            # the next (curves bend) and the standing.
            best = min(growers, key=self._key)
            # Who found no room is out for good: within this loop room only shrinks, but for a growth that does not pay
            # and is taken back. What that leaves is for the next cycle.
            if not self._step(best) or self._next_step(best) is None:
                growers.remove(best)
                self._finish(best)

    # ------------------------------------------------------------------ who

    def _starters(self) -> list[Grower]:
        snapshot, found = self.session.snapshot, []
        for at, bind in enumerate(self.session.binds):
            gang = snapshot.gangs[bind.gang]
            if not gang.elastic:
                continue
            queue, user = self.session.owner_of(bind.gang)
            # Rule 7: only a stated or predicted walltime proves an end. The default plans the calendar and proves
            # nothing, so such a gang grows beside reservations, or as a guest.
            gone_us = self.now + bind.length_us if self.session.proven(bind.gang) else NEVER
            grower = Grower(bind.gang, gang, queue, user, bind.seats, curve_of(snapshot, bind.gang), gone_us, None, at)
            grower.guest, grower.first = bind.guest, sizes_of(bind.seats)
            found.append(grower)
        return found

    def _runners(self) -> list[Grower]:
        reclaimable, snapshot, found = self.session.reclaimable, self.session.snapshot, []
        if reclaimable is None or not self.session.policy.grows:
            return []
        for occupant in reclaimable.occupants:
            # A moved gang restores from its snapshot first; a pinned one has the size that somebody wants.
            if not occupant.gang.elastic or occupant.gone or occupant.moved or occupant.exact:
                continue
            if occupant.changed:  # its cool-down begins with this plan
                rest_us = max(COOL_LEAST_US, COOL_PAUSES * occupant.gang.resize_pause_us)
                # Nothing happens when a rest is over, so that nobody would look again:
                # the plan has to say when (rule 5).
                self.wake_us = min(self.wake_us, self.now + rest_us)
                continue
            cool_us = int(snapshot.running.cool_until_us[occupant.row])
            if cool_us > self.now:
                self.wake_us = min(self.wake_us, cool_us)
                continue
            curve = curve_of(snapshot, occupant.number)
            grower = Grower(
                occupant.number,
                occupant.gang,
                occupant.queue,
                occupant.user,
                occupant.seats,
                curve,
                occupant.end_us,
                occupant,
            )
            grower.guest, grower.first = occupant.guest, sizes_of(occupant.seats)
            # At its largest at best: whoever would not gain its pause back even so need not be tried step
            # by step. One step may not pay where several together do, so the question is asked of the end,
            # here and in `_finish`, and not of each step.
            most = speedup_at(curve, elastic_members(occupant.gang, tuple(r.sizes.most for r in occupant.gang.roles)))
            if self._pays(grower, most, self.now + SHORTEST_US):
                found.append(grower)
        return found

    def _pays(self, grower: Grower, speed: float, until_us: int) -> bool:
        """Whether a change to this speed, which may have to be undone at an instant, saves more than it costs."""
        # Starting at more costs nothing more: it binds once, with its surplus and without a pause (rule 1).
        if grower.occupant is None:
            return True
        before = speedup_at(grower.curve, elastic_members(grower.gang, grower.first))
        left_us = grower.occupant.end_us - self.now
        # Rule 16, growth pays: remaining(n) > pause + remaining(n'), and remaining scales with the ratio of speeds.
        if left_us <= grower.pause_us + left_us * before / speed:
            return False
        if until_us <= self.now + SHORTEST_US or until_us >= grower.occupant.end_us:
            return True
        # What is lent has to go back at `until_us`. Until then it works (span - pause) at the new
        # speed, and then pays a second pause to shrink, in which it would have worked at the old one.
        # More than span at the old speed, or it stays.
        span = until_us - self.now
        return (span - grower.pause_us) * speed - grower.pause_us * before > span * before

    # ------------------------------------------------------------------ steps

    def _key(self, grower: Grower) -> tuple[StandingKey, float, int, int]:
        """Whose queue stands best, then who gains most per device, then who has gained least."""
        step = self._next_step(grower)
        assert step is not None
        role, size = step
        sizes = list(sizes_of(grower.seats))
        more = size - sizes[role]
        sizes[role] = size
        gain = speedup_at(grower.curve, elastic_members(grower.gang, tuple(sizes))) - grower.speed()
        each = self.session.need_of(grower.gang, role).vector
        # Per device, and devices are column 0 where there are any: what is scarce is what a gain has to be worth.
        # Without devices, or for a role that asks for none, per unit of everything, or per member.
        weight = max(1, int(each.sum()) if self.session.fleet.device_column < 0 else int(each[0]) or 1)
        # Rule 11 (growth): entitlement only orders who grows first between queues; limits and reservations bound it.
        standing: StandingKey = self.session.standing.key(grower.queue) if self._many_queues else ()
        gained = sum(sizes_of(grower.seats)) - sum(grower.first)
        # Rounded, since gains are floats: equal gangs must tie exactly, and then take turns by who has gained least.
        # Otherwise the first of two equal gangs would grow to its most before the second gets anything.
        return standing, -round(gain / (more * weight), 12), gained, grower.number

    def _next_step(self, grower: Grower) -> tuple[int, int] | None:
        """The next size of one role: of several elastic roles, the one that is furthest from its most."""
        steps = []
        for index, role in enumerate(grower.gang.roles):
            now = grower.seats[index].members
            larger = next((size for size in role.sizes.allowed if size > now), None)
            # A gang that starts pinned grows up to its wish here and no further; one that
            # runs pinned is not a grower at all.
            pinned = self.session.snapshot.pins.get(grower.number, larger)
            if larger is not None and pinned is not None and larger <= pinned:
                # The role furthest from its most, so that roles grow together; equal ones by index.
                steps.append((now / role.sizes.most, index, larger))
        return min(steps)[1:] if steps else None

    def _step(self, grower: Grower) -> bool:
        """One size more, if there is room for it."""
        step = self._next_step(grower)
        if step is None:
            return False
        role, size = step
        count = size - grower.seats[role].members
        need = self.session.need_of(grower.gang, role)
        if self.session.limits.check(grower.queue, grower.user, need.vector * count) is not None:
            return False
        # A whole guest leaves with everything when the owner comes, so what it gains may lie under the reservation too.
        gone_us = self.now + 1 if grower.guest is Guest.WHOLE else grower.gone_us
        more = self._extend(grower, role, count, gone_us)
        # Own room before lent room. Whoever is gone before anything begins asked about room that is not lent in any
        # case: to lend it some would be the same question again.
        lent = more is None and gone_us > self.ahead_us
        if lent:
            gone_us = self.now + 1
            more = self._extend(grower, role, count, gone_us)
        if more is None:
            return False
        # The kind only rises (decision 10): its minimum may stay, so that only what is above it can be called back.
        if lent and grower.guest is Guest.NO:
            grower.guest = Guest.SURPLUS
        # Taken step by step and not once at the end: the next step, of anybody, must see it gone.
        self.transaction.take(grower, more, gone_us)
        grower.gained.append((more, gone_us))
        seats = list(grower.seats)
        seats[role] = add_seats(seats[role], more)
        grower.seats = tuple(seats)
        return True

    def _extend(self, grower: Grower, role: int, count: int, gone_us: int) -> Seats | None:
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

    # ------------------------------------------------------------------ results

    def _finish(self, grower: Grower) -> None:
        # Nothing was gained, so nothing is told: a resize to the same size would cost a pause.
        if not grower.gained:
            return
        if grower.occupant is None:
            self._rebind(grower)
            return
        lent = any(gone_us == self.now + 1 for _, gone_us in grower.gained)
        # Judged once, by what it got in the end. One pause is paid for all its steps, so no step alone could answer.
        if not self._pays(grower, grower.speed(), self.ahead_us if lent else NEVER):
            self._revert(grower)
            return
        occupant = grower.occupant
        occupant.seats, occupant.cause, occupant.grown_as = grower.seats, Cause.GROW, grower.guest

    def _rebind(self, grower: Grower) -> None:
        """A start at its final size, ranks in topology order."""
        fleet, bind = self.session.fleet, self.session.binds[grower.at]
        most = elastic_members(grower.gang, tuple(role.sizes.most for role in grower.gang.roles))
        now = elastic_members(grower.gang, sizes_of(grower.seats))
        # From what was stated at the largest size (rule 6), not from the length at
        # its least: scaling twice rounds twice.
        length = scaled_us(self.session.length_of(grower.number), grower.curve, most, now)
        seats = tuple(
            # Nobody has a rank yet, so neighbours may get neighbouring ones. A gang that runs
            # keeps its ranks: new members come last.
            each if _grouped(grower.gang, each.role) else _in_topology_order(fleet.walk_rank, each)
            for each in grower.seats
        )
        self.session.binds[grower.at] = Bind(bind.gang, seats, length, grower.guest)

    def _revert(self, grower: Grower) -> None:
        """It does not pay after all."""
        # With the very instants at which each was taken: the calendar took them
        # until then, and gives back what it took.
        for seats, gone_us in grower.gained:
            self.transaction.take_back(grower, seats, gone_us)
        self._views = {}


def _grouped(gang: Gang, role: int) -> bool:
    """Whether ranks stand in groups, which an order of nodes would tear apart."""
    segment = gang.roles[role].topology.segment or gang.topology.segment
    return segment is not None and segment.size > 1


def _in_topology_order(rank: IntArray, seats: Seats) -> Seats:
    order = rank[seats.nodes].argsort(kind="stable")
    return Seats(seats.role, seats.nodes[order], seats.counts[order], seats.devices[order], seats.members)

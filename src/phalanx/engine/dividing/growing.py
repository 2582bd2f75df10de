"""A gang goes to a larger size, if there is room: own room first, then room lent until a reservation's owner comes."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.calendar.port import Calendar
from phalanx.engine.dividing.holders import Holder
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.reclaimable import Release
from phalanx.engine.room.extend import extend, whole_form
from phalanx.engine.room.seats import add_seats, sizes_of
from phalanx.engine.room.view import NOBODY, View
from phalanx.engine.transaction import Transaction
from phalanx.model.fleet import IntArray
from phalanx.model.gang import Gang, Shape
from phalanx.model.plan import Guest, Seats

#: Whoever is still leaving seats later than this is not leaving for anybody here (strangers on a machine).
COMING_US = 3_600_000_000


class Growing:
    """Room, as those see it who want more of it."""

    def __init__(self, transaction: Transaction, calendar: Calendar) -> None:
        """Nothing is looked at before somebody asks."""
        self.session, self.transaction, self.calendar = transaction.session, transaction, calendar
        self.now = self.session.snapshot.now_us
        # By how long the room must be good for: many growers ask the same, and a trial view is a copy of the cluster.
        self._views: dict[tuple[int, int], View] = {}
        self._ahead_us: int | None = None
        self._weights: dict[Shape, int] = {}

    @property
    def ahead_us(self) -> int:
        """When the next reservation or window begins, which is when room lent under it goes back."""
        # Asked only where somebody wants room: to find it costs a search of its own.
        return self._look_ahead()

    def trial(self, gone_us: int, releases: Sequence[Release] = ()) -> View:
        """What may be used from now until then beside every reservation, if these releases were made."""
        # A calendar keeps clear only of the starts it has looked for.
        self._look_ahead()
        return self.calendar.trial(gone_us, NOBODY, releases)

    def _look_ahead(self) -> int:
        if self._ahead_us is None:
            self._ahead_us = self.calendar.next_start_us()
        return self._ahead_us

    # ------------------------------------------------------------------ amounts

    def weigh_role(self, gang: Gang, role: int) -> int:
        """Units that a member of a role takes."""
        shape = gang.roles[role].shape
        found = self._weights.get(shape)
        if found is None:
            found = self._weights[shape] = self._weigh(self.session.need_of(gang, role).vector)
        return found

    def _weigh(self, each: IntArray) -> int:
        # Per device, and devices are column 0 where there are any: what is scarce is what a gain has to be worth.
        # Without devices, or for a role that asks for none, per unit of everything, or per member.
        return max(1, int(each.sum()) if self.session.fleet.device_column < 0 else int(each[0]) or 1)

    def count_idle(self) -> int:
        """Units that are free on nodes in service, whoever they are kept for."""
        return self._count(self.session.view.free[self.session.in_service])

    def count_coming(self) -> int:
        """Units on seats that are being vacated and that nobody has claimed."""
        snapshot = self.session.snapshot
        running, table = snapshot.running, snapshot.allocations
        leaving = running.alive & (running.gang < 0) & (running.start_us + running.length_us <= self.now + COMING_US)
        if not leaving.any():
            return 0
        return self._count(table.taken[table.alive & leaving[table.running]])

    def _count(self, amounts: IntArray) -> int:
        """Devices, where there are any; else everything together, as `weigh_role` counts a member."""
        column = self.session.fleet.device_column
        return int(amounts.sum() if column < 0 else amounts[:, column].sum())

    # ------------------------------------------------------------------ steps

    def enlarge(self, holder: Holder, role: int, size: int) -> bool:
        """To a larger size, if there is room for it."""
        count = size - holder.sizes[role]
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
        holder.sit(tuple(seats))
        return True

    def revert(self, holder: Holder) -> None:
        """It does not pay after all."""
        # With the very instants at which each was taken: the calendar took them
        # until then, and gives back what it took.
        for seats, gone_us in holder.gained:
            self.transaction.take_back(holder, seats, gone_us)
        self.forget()

    def forget(self) -> None:
        """Room has changed hands: what others may use is asked anew."""
        self._views = {}

    def _extend(self, holder: Holder, role: int, count: int, gone_us: int) -> Seats | None:
        # Room lent under a window has to be left a pause before it opens: not worth entering so late.
        lead_us = holder.gang.resize_pause_us if gone_us == self.now + 1 and self.session.snapshot.windows else 0
        # Whoever is gone before anything begins may use the room of now, and asks what everybody of that kind asks.
        until_us = self.now + 1 if gone_us <= self.ahead_us < NEVER and not lead_us else gone_us
        until_us = NEVER if self.ahead_us == NEVER and not lead_us else until_us
        view = self._views.get((until_us, lead_us))
        if view is None:
            view = self._views[until_us, lead_us] = self.trial(until_us)
            for window, mask in zip(self.session.snapshot.windows, self.session.window_masks, strict=True):
                if lead_us and window.start_us - lead_us <= self.now < window.end_us:
                    view.usable_by_exempt[NOBODY] = view.usable_by_exempt[NOBODY] & ~mask
        found = extend(view, holder.gang, holder.seats, role, count)
        if found is None:
            return None
        self.forget()
        form = whole_form(self.session.fleet, holder.gang, sizes_of(holder.seats))
        named = self.calendar.name_devices(form, ((found,),))
        return named[0][0]

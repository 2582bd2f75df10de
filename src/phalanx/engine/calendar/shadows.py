"""Room now and at every shadow: one view per reserved start, kept in step.

A shadow is when a head starts. Whoever is gone by the first shadow may use the room of now; whoever is not, the lesser
of now and then, and so on: each further view has no more room than the one before it, on any node. That is what the
levels rely on, and what every writer in here keeps up. `engine.calendar.short` decides who may use which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.calendar.releases import EarliestStart
from phalanx.engine.kernels.devices import keep_devices
from phalanx.engine.kernels.slots import Need
from phalanx.engine.reclaimable import Release, is_counted_on
from phalanx.engine.room.placement import Places, retake
from phalanx.engine.room.view import View, find_need
from phalanx.engine.session import Session
from phalanx.model.fleet import IntArray, MilliArray
from phalanx.model.form import Form
from phalanx.model.plan import Seats
from phalanx.model.rules import Presence

_NO_INSTANTS = np.zeros(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class Head:
    """A blocked turn with a reservation, or with the right to one that nobody has needed yet."""

    turn: int
    start: EarliestStart | None = None


class ShadowViews:
    """The view of now, and one for each shadow."""

    def __init__(self, session: Session) -> None:
        """No shadow yet: only now."""
        self.session = session
        self.heads: list[Head] = []  # those whose start is known, by start
        self.instants = _NO_INSTANTS  # of their starts
        self.views = [session.view]  # now; now and at the first start; now and at the first two; …

    def level_of(self, gone_us: int) -> int:
        """The view of everything that is still there when somebody who is gone by then is."""
        return int(self.instants.searchsorted(gone_us))

    def lay_out(self, heads: Iterable[Head]) -> None:
        """Make the views anew, for every head whose start is known."""
        # By start, so that a level is how many starts somebody stays past.
        known = [(head.start.at_us, head) for head in heads if head.start is not None]
        known.sort(key=lambda each: each[0])
        # Without a head whose start nobody could find: what has no instant keeps nothing free.
        self.heads = [head for _, head in known]
        self.instants = np.array([at_us for at_us, _ in known], dtype=np.int64)
        base = self.session.view
        self.views = [base]
        free, device_free = base.free, base.device_free
        for head in self.heads:
            assert head.start is not None
            # The lesser of now and then, kind by kind: whoever stays past the start must fit
            # both, and in between room only grows.
            free = np.minimum(free, head.start.view.free)
            device_free = self._devices_left(device_free, head.start.view.device_free, free)
            view = View(self.session.fleet, free, device_free, shared=base.shared, usable=self.session.in_service)
            view.know(self._known_until(self.views[-1], head.start.view))
            view.usable_by_exempt = base.usable_by_exempt
            self.views.append(view)

    def _devices_left(self, now: MilliArray, then: MilliArray, free: IntArray) -> MilliArray:
        """Devices that are free now and then. Of devices never split, any will do: as many as the amounts say."""
        if self.session.view.shared:
            return np.minimum(now, then)
        column = self.session.fleet.device_column
        return now if column < 0 else keep_devices(now, free[:, column])

    # ------------------------------------------------------------------ somebody starts, gives or takes

    def start(self, form: Form, places: Places, gone_us: int) -> None:
        """Places that have left the view of now leave every later one in which their gang is still there."""
        for head in self.heads:
            if head.start is not None and head.start.at_us < gone_us:
                retake(head.start.view, form, places)
        for seats_by_role in places:
            for seats in seats_by_role:
                self._settle_nodes(seats.nodes)

    def give(self, release: Release) -> None:
        """Seats given back are free later as well, unless that was counted on already."""
        for head in self.heads:
            assert head.start is not None
            if not is_counted_on(release.occupant, head.start.at_us):
                for seats in release.seats:
                    need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
                    head.start.view.take_seats(need, seats, sign=-1)
        for seats in release.seats:
            self._settle_nodes(seats.nodes)

    def take(self, need: Need, seats: Seats, gone_us: int, sign: int) -> None:
        """Seats taken are missing later as well, until they are given back."""
        for head in self.heads:
            assert head.start is not None
            # An end at the very start is in time.
            if head.start.at_us < gone_us:
                head.start.view.take_seats(need, seats, sign)
        self._settle_nodes(seats.nodes)

    def _settle_nodes(self, nodes: IntArray) -> None:
        """Bring the later views up to date on nodes whose room changed."""
        # These nodes only: a start touches a handful, and a view made anew costs all of them.
        free, device_free = self.session.view.free[nodes], self.session.view.device_free[nodes]
        for view, head in zip(self.views[1:], self.heads, strict=True):
            assert head.start is not None
            free = np.minimum(free, head.start.view.free[nodes])
            device_free = self._devices_left(device_free, head.start.view.device_free[nodes], free)
            view.overwrite(nodes, free, device_free)
        # All nodes, where amounts are settled node by node: a member in one place may close a whole zone.
        if self.session.view.presence is not None:
            for before, view, head in zip(self.views, self.views[1:], self.heads, strict=False):
                assert head.start is not None
                view.know(self._known_until(before, head.start.view))

    def _known_until(self, now: View, then: View) -> Presence | None:
        """Whoever stays past a start has to heed those who are there now, and those who are there then."""
        return now.presence.merge(then.presence) if now.presence and then.presence else None

    # ------------------------------------------------------------------ tried out

    def trial(self, gone_us: int, releases: Sequence[Release]) -> View:
        """What may be used from now until then, with releases; a copy of its own."""
        level = self.level_of(gone_us)
        base = self.views[level]
        # It copies nothing before it is written to: a trial without releases costs no copy.
        view = View(
            self.session.fleet,
            base.free,
            base.device_free,
            shared=base.shared,
            usable=self.session.in_service,
            presence=base.presence,
        )
        view.usable_by_exempt = base.usable_by_exempt
        if not releases:
            return view
        nodes = np.unique(np.concatenate([seats.nodes for release in releases for seats in release.seats]))
        free, devices = self._with_releases(self.session.view, nodes, releases, -1)
        # Each start that it would still be there at, worked out with the releases: what a victim frees now may have
        # been counted on at a start anyway, so that the lesser of the two cannot simply be raised.
        for head in self.heads[:level]:
            assert head.start is not None
            then, then_devices = self._with_releases(head.start.view, nodes, releases, head.start.at_us)
            free = np.minimum(free, then)
            devices = self._devices_left(devices, then_devices, free)
        view.overwrite(nodes, free, devices)
        return view

    def _with_releases(
        self, view: View, nodes: IntArray, releases: Sequence[Release], at_us: int
    ) -> tuple[IntArray, MilliArray]:
        """Room of some nodes with releases; at a later instant without those that are gone by then anyway."""
        free, devices = view.free[nodes].copy(), view.device_free[nodes].copy()
        for release in releases:
            if at_us >= 0 and is_counted_on(release.occupant, at_us):
                continue
            for seats in release.seats:
                need = find_need(self.session.fleet, release.occupant.gang.roles[seats.role].shape)
                at = nodes.searchsorted(seats.nodes)
                free[at] += seats.counts[:, None] * need.vector
                devices[at] += seats.devices
        return free, devices

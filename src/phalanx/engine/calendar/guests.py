"""Whose guest a guest is, where promises are kept.

The calendar counts the seats of a guest as free from now on, for the owner of the reservation above it.
Under kept promises everybody has one, and a guest may have come before the owner: it fills because its
own turn came first. To those who came behind it, it is no guest before the time that was promised them;
else each would be promised the guest's seats for the next moment, and start there by sending it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from phalanx.engine.calendar.timeline import Timeline
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.kernels.slots import Need
from phalanx.engine.reclaimable import Occupant, Release
from phalanx.engine.room.placement import Places, retake
from phalanx.engine.room.view import View
from phalanx.engine.session import Session
from phalanx.model.fleet import BoolArray, IntArray, MilliArray
from phalanx.model.form import Form
from phalanx.model.plan import Cause, Guest, Reservation, Seats
from phalanx.model.resources import MILLI

Rank = tuple[int, int, int]  # minus the priority, eligibility, number: who came before whom


class GuestSeats:
    """Running guests as those behind them see them, in one calendar."""

    def __init__(self, session: Session, timeline: Timeline, promised: Callable[[], Iterable[Reservation]]) -> None:
        """`promised` are the starts that are reserved or promised so far."""
        self.session, self.timeline, self.promised = session, timeline, promised
        self.now = session.snapshot.now_us
        # Rule 5 (`wake_at`): no event tells that an owner's time has come, so the plan must ask to be woken.
        self.wake_us = NEVER  # an owner's time comes, and nothing need happen then
        occupants = [] if session.reclaimable is None else session.reclaimable.occupants
        self._guests = [(self._rank(occupant), occupant) for occupant in occupants if occupant.guest is Guest.WHOLE]
        self._seated: dict[int, tuple[int, list[tuple[Need, Seats]]]] = {}  # with the time at which they leave

    def _rank(self, occupant: Occupant) -> Rank:
        eligible_us = int(self.session.snapshot.running.eligible_us[occupant.row])
        # The order of `conservative` (priority, eligibility, number): a guest and somebody who waits are compared as if
        # both still waited.
        return -occupant.priority, eligible_us, occupant.number

    def show_to(self, row: int) -> None:
        """Let the calendar answer for a pending gang: guests ahead of it sit until the time promised above them."""
        pending = self.session.snapshot.pending
        asking = -int(pending.priority[row]), int(pending.eligible_us[row]), int(pending.gang[row])
        for rank, occupant in self._guests:
            # Behind or equal: to this one the guest is a guest, and its seats are free from the next moment on.
            ahead = rank < asking and not (occupant.gone or occupant.moved)
            if ahead and occupant.number not in self._seated:
                self._seat(occupant)
            elif not ahead:
                self.lift(occupant)

    def _seat(self, occupant: Occupant) -> None:
        until_us = self.stays_until_us(occupant.seats, occupant.end_us)
        seats = [(self.session.need_of(occupant.gang, each.role), each) for each in occupant.seats]
        self._seated[occupant.number] = until_us, seats
        self._claim(until_us, seats, -1)

    def until_us(self, occupant: Occupant) -> int:
        """When it leaves, as whoever the calendar was last shown to sees it."""
        return self._seated[occupant.number][0] if occupant.number in self._seated else self.now + 1

    def lift(self, occupant: Occupant) -> None:
        """It is asked to leave, or somebody looks to whom it is a guest."""
        seated = self._seated.pop(occupant.number, None)
        if seated is not None:
            self._claim(*seated, 1)

    def _claim(self, until_us: int, seats: list[tuple[Need, Seats]], sign: int) -> None:
        # From the next moment on: the present one is on the timeline already, as for every guest.
        if until_us > self.now + 1:
            for need, each in seats:
                self.timeline.claim_seats(need, each, self.now + 1, until_us, sign)

    def choose_leaving(self, form: Form, places: Places) -> list[Release] | None:
        """Guests that leave so that a form has exactly these places now, the last of them first; None if in vain."""
        # The places are taken first, room or not; where amounts fall below zero, a guest sits too many.
        view = View(self.session.fleet, *self._room(), shared=False, usable=self.session.in_service)
        retake(view, form, places)
        releases: list[Release] = []
        # Last come, first to go: whoever stands furthest behind in the order leaves before the others do.
        for _, occupant in sorted(self._guests, key=lambda each: each[0], reverse=True):
            short: BoolArray = np.concatenate((view.free, view.device_free), axis=1).min(axis=1) < 0
            if not short.any():
                break
            if not (occupant.gone or occupant.moved) and any(bool(short[each.nodes].any()) for each in occupant.seats):
                releases.append(Release(occupant, occupant.seats, Cause.GUEST, whole=True))
                for each in occupant.seats:
                    view.take_seats(self.session.need_of(occupant.gang, each.role), each, sign=-1)
        # Somebody who is no guest may sit there (an overrun). Then nobody is sent away for nothing (rule 10).
        enough = not bool((view.free < 0).any() or (view.device_free < 0).any())
        return releases if enough else None

    def _room(self) -> tuple[IntArray, MilliArray]:
        """Free amounts now; devices only where they have been split, else any will do."""
        view = self.session.view
        return view.free, view.device_free if view.shared else np.full_like(view.device_free, MILLI)

    def stays_until_us(self, seats: Iterable[Seats], end_us: int) -> int:
        """Its end, or the first start that is promised on any of its nodes; nothing else need happen then."""
        mine = {int(node) for each in seats for node in each.nodes.tolist()}
        starts = [
            promise.start_us
            for promise in self.promised()
            if any(not mine.isdisjoint(each.nodes.tolist()) for per_gang in promise.seats for each in per_gang)
        ]
        # By nodes, not by seats: a guest on a node of the owner's counts as under it, even if both would fit.
        comes_us = max(min(starts, default=NEVER), self.now)
        if self.now + 1 < comes_us < end_us:  # the next moment stands for now, if only the guest were gone
            self.wake_us = min(self.wake_us, comes_us)
        return min(comes_us, end_us)

"""Moving somebody out of the way: no work is lost, nobody waits, and a blocked gang starts.

Worth it only if the blocked gang would otherwise wait longer than the moves cost, and only if both
whole places exist now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.engine.calendar.port import RoomAhead
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.making_room.permits import Claimant, Permits
from phalanx.engine.reclaimable import Occupant, Release
from phalanx.engine.room.placement import NoPlace, Places, Wish, find_ceiling, place
from phalanx.engine.room.seats import sizes_of
from phalanx.engine.room.view import NOBODY, Exempt
from phalanx.engine.session import Session
from phalanx.model.form import Form, form_at_sizes
from phalanx.model.plan import Cause, Seats

#: So many gangs are moved for one at the most.
MOVES_MOST = 4
#: Candidates that are looked at, the cheapest first.
CANDIDATES_MOST = 24

#: The name under which a view keeps the nodes that somebody may be moved to, beside the exemptions from windows.
MAKING_WAY: Exempt = frozenset({-4})

Moved = tuple[Places, tuple[tuple[Occupant, tuple[Seats, ...]], ...]]


def find_moves(
    permits: Permits, who: Claimant, calendar: RoomAhead, claimant: Wish, start_us: Callable[[], int]
) -> Moved | None:
    """Places for the claimant and for everybody who makes way, or None."""
    movable = [
        occupant
        for occupant in permits.reclaimable.occupants
        # Rule 9: for whoever could take its surplus. A move costs its gang a stall, so
        # that a worse claimant may not ask for it.
        if _movable(occupant) and permits.may_borrow_from(who, occupant)
    ]
    if not movable:
        return None
    # Cheap first, then small ones, which find another place more easily; of equals the one that came last makes way.
    movable.sort(key=lambda occupant: (_cost_us(occupant), sum(sizes_of(occupant.seats)), -occupant.number))
    found = _Moving(calendar, claimant, permits.session).find(movable[:CANDIDATES_MOST])
    if found is None:
        return None
    # Asked only now: the calendar has to be searched for it, and most gangs find no move at all.
    wait_us = start_us() - permits.now
    # The largest and not the sum, as for evictions (rule 9): they are moved at the same time, in wall seconds.
    return found if max(_cost_us(occupant) for occupant, _ in found[1]) < wait_us else None


def _movable(occupant: Occupant) -> bool:
    # One decision per gang and plan.
    idle = not (occupant.gone or occupant.moved or occupant.changed or occupant.promised)
    return idle and occupant.gang.preemptible and occupant.gang.snapshot is not None


def _cost_us(occupant: Occupant) -> int:
    habit = occupant.gang.snapshot
    return 0 if habit is None else habit.stall_us + habit.restore_us


class _Moving:
    """Tries sets of gangs that make way: one, then more."""

    def __init__(self, calendar: RoomAhead, claimant: Wish, session: Session) -> None:
        self.calendar, self.claimant, self.session, self.fleet = calendar, claimant, session, session.fleet

    def find(self, movable: Sequence[Occupant]) -> Moved | None:
        """The cheapest single move that works; else the fewest of the cheapest together."""
        for occupant in movable:
            # A ceiling before a search: without it each candidate would cost a placement of several gangs.
            if self._fits_without([occupant]):
                found = self._seat([occupant])
                if found is not None:
                    return found
        group: list[Occupant] = []
        for occupant in movable:
            group.append(occupant)
            # Grown from the cheapest until it fits, then trimmed: the best set would be a search over all of them, and
            # a move that is a little dearer than needed loses no work.
            if len(group) > 1 and self._fits_without(group):
                needed = self._trim(group)
                # Not the next group: whoever is added next is dearer, and would be let off
                # first, which leaves this set again.
                return self._seat(needed) if len(needed) <= MOVES_MOST else None
        return None

    def _trim(self, group: list[Occupant]) -> list[Occupant]:
        # The dearest is let off first.
        for occupant in reversed(group):
            fewer = [other for other in group if other is not occupant]
            if fewer and self._fits_without(fewer):
                group = fewer
        return group

    def _releases(self, group: Sequence[Occupant]) -> list[Release]:
        return [Release(occupant, occupant.seats, Cause.LOAN, whole=True) for occupant in group]

    def _fits_without(self, group: Sequence[Occupant]) -> bool:
        view = self.calendar.trial(NEVER, self.claimant.exempt, self._releases(group))
        # A form with its sizes inside fits or does not: its ceiling is 1 or 0.
        least = self.claimant.size if self.claimant.form.open_size else 1
        return find_ceiling(view, self.claimant.form, self.claimant.exempt) >= least

    def _seat(self, group: Sequence[Occupant]) -> Moved | None:
        """The claimant first, then everybody who made way, largest first; all or nothing."""
        # As if both stayed for ever: neither may land on what a reservation needs.
        view = self.calendar.trial(NEVER, self.claimant.exempt, self._releases(group))
        claimant = place(view, self.claimant)
        if isinstance(claimant, NoPlace):
            return None
        exempt = NOBODY
        if self.claimant.exempt:
            # Windows that are open and do not bind the claimant bind whoever makes way for it. Of those to come whoever
            # can be moved gets notice, as when it leaves a node by itself.
            exempt = MAKING_WAY
            view.usable_by_exempt[exempt] = view.usable_by_exempt[NOBODY] & self.session.usable(NOBODY)
        moved = []
        # Largest first, since a small one still fits into what is left and a large one does not.
        for occupant in sorted(group, key=lambda occupant: (-sum(sizes_of(occupant.seats)), occupant.number)):
            form = self._form(occupant)
            found = place(view, Wish(form, 1, exempt))
            if isinstance(found, NoPlace):
                return None
            moved.append((occupant, found[0]))
        return claimant, tuple(moved)

    def _form(self, occupant: Occupant) -> Form:
        return form_at_sizes(self.fleet, ((occupant.gang, sizes_of(occupant.seats)),))

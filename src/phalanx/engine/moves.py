"""Moving somebody out of the way: no work is lost, nobody waits, and a blocked gang starts.

Worth it only if the blocked gang would otherwise wait longer than the moves cost, and only if both
whole places exist now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.engine.ground import Ground
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.permits import Permits, Who
from phalanx.engine.placement import NoPlace, Places, Wish, find_ceiling, place
from phalanx.engine.roster import Gift, Sitter
from phalanx.engine.seats import sizes_of
from phalanx.model.fleet import Fleet
from phalanx.model.form import Form, form_at_sizes
from phalanx.model.plan import Cause, Seats

#: So many gangs are moved for one at the most.
MOVES_MOST = 4
#: Candidates that are looked at, the cheapest first.
CANDIDATES_MOST = 24

Moved = tuple[Places, tuple[tuple[Sitter, tuple[Seats, ...]], ...]]


def find_moves(permits: Permits, who: Who, ground: Ground, asker: Wish, start_us: Callable[[], int]) -> Moved | None:
    """Places for the asker and for everybody who makes way, or None."""
    movable = [sitter for sitter in permits.roster.sitters if _movable(sitter) and permits.may_borrow_from(who, sitter)]
    if not movable:
        return None
    movable.sort(key=lambda sitter: (_cost_us(sitter), sum(sizes_of(sitter.seats)), -sitter.number))
    found = _Moving(ground, asker, permits.session.fleet).find(movable[:CANDIDATES_MOST])
    if found is None:
        return None
    wait_us = start_us() - permits.now
    return found if max(_cost_us(sitter) for sitter, _ in found[1]) < wait_us else None


def _movable(sitter: Sitter) -> bool:
    idle = not (sitter.gone or sitter.moved or sitter.changed)
    return idle and sitter.gang.preemptible and sitter.gang.snapshot is not None


def _cost_us(sitter: Sitter) -> int:
    habit = sitter.gang.snapshot
    return 0 if habit is None else habit.stall_us + habit.restore_us


class _Moving:
    """Tries sets of gangs that make way: one, then more."""

    def __init__(self, ground: Ground, asker: Wish, fleet: Fleet) -> None:
        self.ground, self.asker, self.fleet = ground, asker, fleet

    def find(self, movable: Sequence[Sitter]) -> Moved | None:
        """The cheapest single move that works; else the fewest of the cheapest together."""
        helping = []
        for sitter in movable:
            if self._fits_without([sitter]):
                found = self._seat([sitter])
                if found is not None:
                    return found
            helping.append(sitter)
        group: list[Sitter] = []
        for sitter in helping:
            group.append(sitter)
            if len(group) > 1 and self._fits_without(group):
                needed = self._trim(group)
                return self._seat(needed) if len(needed) <= MOVES_MOST else None
        return None

    def _trim(self, group: list[Sitter]) -> list[Sitter]:
        for sitter in reversed(group):
            fewer = [other for other in group if other is not sitter]
            if fewer and self._fits_without(fewer):
                group = fewer
        return group

    def _gifts(self, group: Sequence[Sitter]) -> list[Gift]:
        return [Gift(sitter, sitter.seats, Cause.LOAN, whole=True) for sitter in group]

    def _fits_without(self, group: Sequence[Sitter]) -> bool:
        view = self.ground.trial(NEVER, self.asker.exempt, self._gifts(group))
        least = self.asker.size if self.asker.form.open_size else 1
        return find_ceiling(view, self.asker.form, self.asker.exempt) >= least

    def _seat(self, group: Sequence[Sitter]) -> Moved | None:
        """The asker first, then everybody who made way, largest first; all or nothing."""
        # As if both stayed for ever: neither may land on what a reservation needs.
        view = self.ground.trial(NEVER, self.asker.exempt, self._gifts(group))
        asker = place(view, self.asker)
        if isinstance(asker, NoPlace):
            return None
        moved = []
        for sitter in sorted(group, key=lambda sitter: (-sum(sizes_of(sitter.seats)), sitter.number)):
            form = self._form(sitter)
            found = place(view, Wish(form, 1))
            if isinstance(found, NoPlace):
                return None
            moved.append((sitter, found[0]))
        return asker, tuple(moved)

    def _form(self, sitter: Sitter) -> Form:
        return form_at_sizes(self.fleet, ((sitter.gang, sizes_of(sitter.seats)),))

"""Dates that need their share only later: less until somebody ends, and more then.

Shares are granted by what each needs if its size never changes again. When the room is too short for all of them, some
dates can still be met in two steps: whoever was refused may do with less than its share until one of the next ends. It
gets that from room that no share claims, so that rule 16's order (the least device time first) stays as it is: whose
share was granted does not wait for anybody whose was not.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.dividing.holders import Holder

#: Ends looked at, the soonest, and refused dates looked at, the cheapest. Who arrives meanwhile takes room too: what
#: lies further ahead is not to be relied on.
LOOKED_AT = 4


class Later:
    """Fits refused dates in by time."""

    def __init__(self, holders: Sequence[Holder], room: int, now_us: int) -> None:
        """`room`: units that shares have left."""
        self.holders, self.room, self.now = holders, room, now_us
        self._ends: list[tuple[float, Holder]] = []
        self._spoken = 0  # units that somebody waits for
        self._look_ahead()

    def fit(self, refused: Sequence[Holder]) -> None:
        """Give smaller shares to those of the refused whose dates can be met so, the cheapest first."""
        for holder in refused[:LOOKED_AT]:
            self._begin_with_less(holder)

    def _look_ahead(self) -> None:
        # At its floor, whatever it gets above that: an end counted on must not need surplus that nobody has a right to.
        alone = [each for each in self.holders if not each.several]
        ends = [(each.prospect.expected_us(each.floor), each.number, each) for each in alone]
        self._ends = [(end, each) for end, _, each in sorted(ends, key=lambda end: end[:2])[:LOOKED_AT]]

    def _begin_with_less(self, holder: Holder) -> None:
        found = self._find_steps(holder, self.room)
        if found is None:
            return
        holder.share = found[0]
        self.room -= _above(holder, found[0])
        # What it will grow into then. Without this two would count on the same end, and one of them would be late.
        self._spoken += _above(holder, found[1]) - _above(holder, found[0])
        self._look_ahead()

    def _find_steps(self, holder: Holder, room: int) -> tuple[int, int] | None:
        """The smallest size now, and a larger one from somebody's end on, that meet its date together."""
        best: tuple[int, int] | None = None
        # By then all who end sooner are gone, too. What somebody waits for is spoken for, whenever it comes free.
        freed = -self._spoken
        for end_us, other in self._ends:
            if other is holder:
                continue
            freed += other.floor * other.weight
            found = self._find_two(holder, end_us, room, freed)
            if found is not None and (best is None or found < best):
                best = found
        return best

    def _find_two(self, holder: Holder, end_us: float, room: int, freed: int) -> tuple[int, int] | None:
        assert holder.date_us is not None
        prospect, allowed = holder.prospect, holder.gang.roles[holder.role].sizes.allowed
        for size in allowed:
            above = _above(holder, size)
            takes_us = prospect.expected_us(size)
            # Sizes ascend: what is too large stays so, and who is done before that end has nothing to wait for.
            if above > room or takes_us <= end_us:
                return None
            # Start-up and a pause now come first in any case, and a second pause with the larger size.
            lead_us = prospect.waits_us + (prospect.pause_us if size != prospect.members else 0)
            from_us = max(end_us, lead_us)
            work = (takes_us - from_us) * prospect.speed(size)
            spare_us = holder.date_us - self.now - from_us - holder.gang.resize_pause_us
            most = size + (room - above + freed) // holder.weight
            for larger in allowed:
                if size < larger <= most and work / prospect.speed(larger) <= spare_us:
                    return size, larger
        return None


def _above(holder: Holder, members: int) -> int:
    """Units that a size takes above its least."""
    return (members - holder.least) * holder.weight

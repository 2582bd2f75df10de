"""Dates that need their share only later: less until somebody ends, and more then.

Shares are granted by what each needs if its size never changes again. When the room is too short for all of them, some
dates can still be met in two steps. Whoever was refused may do with less than its share until the next ends; and
whoever was granted one, and does not have it yet, may wait for an end, so that its room is for somebody who cannot.
Nobody gives back what it has for this: plans are made anew in every pass, and two gangs would take it from each other
in turns (ElasticFlow's first set: 4,513 resizes instead of 1,254, and 138 dates met instead of 144).
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.dividing.holders import Holder

#: Ends looked at, the soonest, and refused dates looked at, the cheapest. Who arrives meanwhile takes room too: what
#: lies further ahead is not to be relied on.
LOOKED_AT = 4


class Later:
    """Fits refused dates in by time."""

    def __init__(self, holders: Sequence[Holder], granted: Sequence[Holder], room: int, now_us: int) -> None:
        """`granted`: those with a share, the cheapest first; `room`: units that shares have left."""
        self.holders, self.granted, self.room, self.now = holders, granted, room, now_us
        self._ends: list[tuple[float, Holder]] = []
        self._spoken = 0  # units that somebody waits for
        self._look_ahead()

    def fit(self, refused: Sequence[tuple[Holder, int]]) -> None:
        """Give shares to whom it is possible, with the share that each was refused."""
        for holder, share in refused[:LOOKED_AT]:
            # Less first: that asks nothing of anybody else.
            if not self._begin_with_less(holder):
                self._go_first(holder, share)

    def _look_ahead(self) -> None:
        # At its floor, whatever it gets above that: an end counted on must not need surplus that nobody has a right to.
        alone = [each for each in self.holders if not each.several]
        ends = [(each.prospect.expected_us(each.floor), each.number, each) for each in alone]
        self._ends = [(end, each) for end, _, each in sorted(ends, key=lambda end: end[:2])[:LOOKED_AT]]

    def _begin_with_less(self, holder: Holder) -> bool:
        found = self._find_steps(holder, self.room)
        if found is None:
            return False
        holder.share = found[0]
        self.room -= _above(holder, found[0])
        self._spoken += _above(holder, found[1]) - _above(holder, found[0])
        self._look_ahead()
        return True

    def _go_first(self, holder: Holder, share: int) -> None:
        """Let others wait whose dates allow it, the dearest first, until its share fits."""
        room, spoken, late = self.room, self._spoken, []
        holder.share = share
        self.room -= _above(holder, share)
        self._look_ahead()
        for other in reversed(self.granted):
            if self.room >= 0:
                break
            had = other.share
            # Who starts now, or is still short of its share, has not got used to it.
            if other is holder or other.members >= had:
                continue
            found = self._find_steps(other, _above(other, had))
            if found is not None and found[0] < had:
                late.append((other, had))
                other.share = found[0]
                self.room += _above(other, had) - _above(other, found[0])
                self._spoken += max(0, _above(other, found[1]) - _above(other, had))
        # All or nothing: a date for which too little was freed has made others wait in vain.
        fits = self.room >= 0
        if not fits:
            self.room, self._spoken, holder.share = room, spoken, 0
        for other, had in late:
            more = _above(other, had) - _above(other, other.share)
            # Whoever need not have waited, since another made room enough, does not.
            if not fits or more <= self.room:
                self.room -= more if fits else 0
                other.share = had
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

"""Turns that are known to fail, so that nobody looks at them: most of a long queue, in most passes.

Room only shrinks within a walk, so a size that did not fit once does not fit later, unless somebody gives room back
(`forget`). Where head and filler ask for the same, sums tell whether a filler would delay the head. All of this may err
by a needless look, never by a missed start: what is decided is decided by places.

Only `engine.calendar.short` can promise that; on a long calendar room may even grow, when a turn opens and its promise
is lifted, and nobody is ever dismissed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.engine.calendar.releases import find_shadow
from phalanx.engine.calendar.shadows import Head, ShadowViews
from phalanx.engine.kernels.release import NEVER
from phalanx.engine.order.turns import Turns
from phalanx.engine.session import Session
from phalanx.model.fleet import BoolArray, IntArray

BIG = 1 << 40


@dataclass(frozen=True, slots=True)
class Sums:
    """What sums tell of the one head: when it starts, and how many slots of its placement key it leaves then."""

    index: int  # of that key
    at_us: int  # NEVER: sums do not tell
    extra: int


class Dismissals:
    """Which turns of one walk need no look."""

    def __init__(self, session: Session, turns: Turns, ahead: ShadowViews, heads: Sequence[Head]) -> None:
        """Nothing is known yet: every placement key has an unknown ceiling. `heads` grows as turns are blocked."""
        self.session, self.turns, self.ahead, self.heads = session, turns, ahead, heads
        # The largest size of each key that may still fit in each view.
        self.ceilings = np.full((1, len(turns.keys)), BIG, dtype=np.int64)
        self._sums: Sums | None = None
        self._gone: IntArray | None = None

    @property
    def gone(self) -> IntArray:
        """When each turn is provably gone; without a stated walltime never: no reservation may count on it."""
        if self._gone is None:
            self._gone = np.where(self.turns.proven, self.session.snapshot.now_us + self.turns.length_us, NEVER)
        return self._gone

    # ------------------------------------------------------------------ who is worth a look

    def worth_a_look(self, block: IntArray) -> BoolArray:
        """Of turns that fill around reservations, those that neither a ceiling nor sums refuse."""
        index, size = self.turns.key_index[block], self.turns.size[block]
        # Whoever can be made to leave may start as a guest where it may not stay, so that only room now can dismiss it.
        reclaimable, ahead = self.session.snapshot.hints.has_reclaimable, self.ahead
        level = ahead.instants.searchsorted(self.gone[block]) if ahead.heads and not reclaimable else 0
        look: BoolArray = size <= self.ceilings[level, index]
        if self._sums is not None and not ahead.heads and not reclaimable:
            sums = self._sums
            # The EASY rule in one line, for those who ask what the head asks: gone by the
            # shadow time, or within the extra slots.
            look &= (self.gone[block] <= sums.at_us) | (size <= sums.extra) | (index != sums.index)
        return look

    def ceiling(self, turn: int) -> int:
        """A turn that is larger is known to fail: that of the view it may use; of a possible guest, the widest."""
        level = 0
        if self.ahead.heads and not self.session.snapshot.hints.has_reclaimable:
            level = int(self.ahead.instants.searchsorted(self.gone[turn]))
        return int(self.ceilings[level, self.turns.key_index[turn]])

    def delays_surely(self, turn: int) -> bool:
        """Whether sums alone show that a filler would delay the one reservation there is.

        Where head and filler ask for the same about the whole cluster, places do not matter: it may start if it
        is gone by the head's start, or if it fits beside the head then. Most fillers fail this, and failing it
        costs no view of the future.
        """
        # With a second head the sums of the first do not tell what the second keeps; with
        # views at hand they tell nothing new.
        if self.ahead.heads or len(self.heads) != 1:
            return False
        index, head = int(self.turns.key_index[turn]), self.heads[0].turn
        if int(self.turns.key_index[head]) != index:
            return False
        if self._sums is None:
            self._sums = Sums(index, *find_shadow(self.session, self.turns.keys[index], int(self.turns.size[head])))
        sums = self._sums
        # NEVER: no end helps the head, so that nobody can delay it.
        late = sums.at_us != NEVER and int(self.gone[turn]) > sums.at_us
        return late and int(self.turns.size[turn]) > sums.extra

    def list_starts(self, gone_us: int) -> list[tuple[int, IntArray]]:
        """Reserved starts that somebody who stays until then would see, each with what is free of every node at it."""
        heads = self.ahead.heads[: self.ahead.level_of(gone_us)]
        return [(head.start.at_us, head.start.view.free) for head in heads if head.start is not None]

    # ------------------------------------------------------------------ what was found out

    def known_start_us(self) -> int:
        """When the one head starts, if sums have told; else NEVER."""
        # What sums have found is the instant for places as well: they were asked only where places do not matter.
        return self._sums.at_us if self._sums is not None and len(self.heads) == 1 else NEVER

    def note_ceiling(self, level: int, index: int, ceiling: int) -> None:
        """So many of a key fit in a view at most."""
        if ceiling < self.ceilings[level, index] and not self._may_rise(index):
            self.ceilings[level, index] = ceiling

    def note_ceiling_onwards(self, level: int, index: int, ceiling: int) -> None:
        """The same for the views of further starts: less room later, so what does not fit now does not fit then."""
        if not self._may_rise(index):
            np.minimum(self.ceilings[level:, index], ceiling, out=self.ceilings[level:, index])

    def _may_rise(self, index: int) -> bool:
        """Whether somebody's start may let it in: who wants to be beside others, or as many as elsewhere."""
        # Everybody else only loses by the starts of others, as with room.
        roles = self.turns.keys[index].form.roles
        return any(role.shape.seeks_others for role in roles)

    def add_levels(self) -> None:
        """Views were made for shadows."""
        # Less room later: what did not fit now does not fit then.
        self.ceilings = np.repeat(self.ceilings[:1], len(self.ahead.views), axis=0)

    def forget(self) -> None:
        """Room was given back: whoever was known to fail may fit now."""
        self.ceilings[:] = BIG
        # Room given back lets the head start earlier, and may leave more beside it.
        self._sums = None

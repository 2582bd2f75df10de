"""How much wider than drawn a range must be, learned from what became of earlier ones.

Draws know what is likely of those who run and wait. Who will come meanwhile, crash or be cancelled they do not know,
and how much that matters differs from machine to machine. So each side of a range is stretched a little more whenever
a start was missed on that side and a little less whenever it was not, in such a proportion that in the long run one in
five is missed. Pure.
"""

from __future__ import annotations

import math
from typing import Final

#: The part of starts that may be missed, on both sides together, and the part of those that come late.
MISSED: Final = 0.2
_MISSED_LATE: Final = 0.1
#: How much one start teaches of the stretch, and of how many come late.
_STEP: Final = 0.2
_MEMORY: Final = 0.02
_STRETCH_LEAST: Final = 0.4
_STRETCH_MOST: Final = 10.0
#: Before anything is known: people who come later make others later, and few make them earlier.
_EARLY: Final = 1.1
_LATE: Final = 1.4


class Calibration:
    """The stretch of each side."""

    def __init__(self) -> None:
        """Nothing was judged yet."""
        self.early, self.late = _EARLY, _LATE
        self._came_late = _MISSED_LATE  # of late, so many

    def stretch(self, now_us: int, at_us: int, low_us: int, high_us: int) -> tuple[int, int]:
        """A range as it is told; nobody starts before now."""
        low = at_us - round((at_us - low_us) * self.early)
        return max(min(now_us, at_us), low), at_us + round((high_us - at_us) * self.late)

    def judge(self, low_us: int, high_us: int, actual_us: int) -> None:
        """A job has started of which this range was told."""
        late = actual_us > high_us
        self._came_late += _MEMORY * (late - self._came_late)
        # Where people state more than they need nobody is late, since what is told holds the stated time: then the
        # other side has all there is to miss.
        self.early = _move(self.early, actual_us < low_us, max(0.0, MISSED - self._came_late))
        self.late = _move(self.late, late, _MISSED_LATE)


def _move(stretch: float, missed: bool, wanted: float) -> float:  # noqa: FBT001 - what is wanted of it
    return min(max(stretch * math.exp(_STEP * (missed - wanted)), _STRETCH_LEAST), _STRETCH_MOST)

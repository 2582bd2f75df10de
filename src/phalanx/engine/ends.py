"""When running gangs are expected to end (rule 7, unknown and overrun).

A walltime is a belief here and kills nobody, so a gang may outlive it. Then its end is moved ahead of the clock in
every pass; were it left in the past, the calendar would promise its seats for now, to everybody, again and again.
"""

from __future__ import annotations

import numpy as np

from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import RunningColumns

#: A gang past its walltime is expected to go on for this long, or a tenth of its age if that is more.
OVERRUN_LEAST_US = 60_000_000


def expected_ends(running: RunningColumns, now_us: int) -> IntArray:
    """Expected end of every running row; rows that are not alive hold rubbish."""
    end: IntArray = running.start_us + running.length_us
    # Mostly nobody is late, and then this is one sum.
    if not ((end <= now_us) & running.alive).any():
        return end
    age = now_us - running.start_us
    return np.where(end > now_us, end, now_us + np.maximum(OVERRUN_LEAST_US, age // 10))

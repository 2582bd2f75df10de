"""What planning may believe of a run time that a log knows exactly.

Three beliefs, the same for every log: what the user asked for, the truth, and what people type
when asked how long it will take. The last hides the truth without inventing noise.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, Literal

from phalanx.control.spec.quantity import SECOND_US

Estimate = Literal["requested", "actual", "rounded"]

_HOUR_US: Final = 3_600 * SECOND_US

#: 1 h, 4 h, 12 h, 1 d, 2 d, 1 w.
_USUAL_US: Final = tuple(hours * _HOUR_US for hours in (1, 4, 12, 24, 48, 168))


def round_up_us(run_us: int) -> int:
    """The least usual value that is enough; the run itself beyond the last of them."""
    at = bisect_left(_USUAL_US, run_us)
    return _USUAL_US[at] if at < len(_USUAL_US) else run_us


def believe_us(estimate: Estimate, run_us: int, requested_us: int) -> int:
    """The walltime of a job; `requested_us` is 0 where the log does not know it, and then the run stands in."""
    if estimate == "rounded":
        return round_up_us(run_us)
    if estimate == "requested" and requested_us > 0:
        return requested_us
    return run_us

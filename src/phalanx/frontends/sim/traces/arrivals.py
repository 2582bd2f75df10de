"""When jobs come: a daily cycle, and gaps that a model draws.

Gaps are drawn in a time in which every hour is as busy as any other, and then laid over the day: a
busy half-hour takes more of that time than a quiet one. Scaling the load scales that time and
leaves the cycle where it is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

#: Half hours of a day.
_BUCKETS: Final = 48
_DAY_S: Final = 86_400
_BUCKET_S: Final = _DAY_S // _BUCKETS
_DAY_STARTS: Final = 11  # the curve is fitted to a day from half past five to half past five
_STEPS: Final = 64  # of the sum that stands for an integral; its error is far below a job a year


def daily_weights(alpha: float, beta: float) -> tuple[float, ...]:
    """How busy each half hour from midnight on is, 1 on average: a gamma density over the day, wrapped around."""
    weights = [0.0] * _BUCKETS
    for bucket in range(_DAY_STARTS, _DAY_STARTS + _BUCKETS):
        points = (bucket - 0.5 + (step + 0.5) / _STEPS for step in range(_STEPS))
        weights[(bucket - 1) % _BUCKETS] = math.fsum(_gamma_density(point, alpha, beta) for point in points)
    mean = math.fsum(weights) / _BUCKETS
    return tuple(weight / mean for weight in weights)


def lay_over_days(even_s: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Instants of the even time as seconds of a clock that starts at midnight. A day is a day in both."""
    begins = [0.0, *accumulate(weight * _BUCKET_S for weight in weights[:-1])]
    found = []
    for at_s in even_s:
        day, inside_s = divmod(at_s, _DAY_S)
        bucket = bisect_right(begins, inside_s) - 1
        part = min(1.0, (inside_s - begins[bucket]) / (weights[bucket] * _BUCKET_S))
        found.append(day * _DAY_S + (bucket + part) * _BUCKET_S)
    return found


def _gamma_density(x: float, alpha: float, beta: float) -> float:
    """Without the constant factor, which the mean takes out again."""
    return math.exp((alpha - 1) * math.log(x) - x / beta)

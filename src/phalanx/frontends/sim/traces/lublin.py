"""Jobs after Lublin and Feitelson (J. Parallel and Distributed Computing 63(11), 2003).

Sizes: a share is serial; of the others the logarithm of the size is uniform in two stages, and
many are powers of two. Run times: the logarithm is a mixture of two gammas, and the larger the
job, the likelier the longer one. Gaps: the logarithm is a gamma, over a daily cycle. The numbers
are those of the authors' own program, for batch jobs and for all jobs of their five logs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Final

from phalanx.frontends.sim.traces.arrivals import daily_weights

_LOG_RUN_MAX: Final = 12.0  # nearly two days
_LOG_GAP_MAX: Final = 13.0  # five days
_STAGE: Final = 2.5  # the second stage of sizes begins this far below the logarithm of the machine


@dataclass(frozen=True, slots=True)
class Lublin:
    """The fitted numbers. Pairs are the shape and scale of a gamma."""

    serial: float  # share of jobs of size 1
    power_of_two: float  # share of jobs whose size is rounded to one
    low: float  # logarithm of the least parallel size
    first_stage: float  # share of parallel jobs in the lower stage
    short: tuple[float, float]
    long: tuple[float, float]
    short_share: tuple[float, float]  # slope by size, and at size 0
    gap: tuple[float, float]
    day: tuple[float, float]

    def draw_size(self, rng: Random, machine: int) -> int:
        """How many processors a job asks for, at most the machine."""
        if machine == 1:
            return 1
        kind = rng.random()
        if kind <= self.serial:
            return 1
        high = math.log2(machine)
        middle = max(self.low, high - _STAGE)
        exponent = _two_stages(rng, min(self.low, high), middle, high, self.first_stage)
        if kind <= self.serial + self.power_of_two:
            exponent = math.floor(exponent + 0.5)
        return min(machine, max(1, math.floor(math.pow(2.0, exponent) + 0.5)))

    def draw_run_s(self, rng: Random, size: int) -> float:
        """How long a job of this size runs."""
        share = min(1.0, max(0.0, self.short_share[0] * size + self.short_share[1]))
        while True:
            log_run = rng.gammavariate(*(self.short if rng.random() <= share else self.long))
            if log_run <= _LOG_RUN_MAX:
                return math.floor(math.exp(log_run))  # whole seconds, as a log has them

    def draw_gap_s(self, rng: Random) -> float:
        """Even time until the next job."""
        while True:
            log_gap = rng.gammavariate(*self.gap)
            if log_gap <= _LOG_GAP_MAX:
                return math.exp(log_gap)

    def weights(self) -> tuple[float, ...]:
        """How busy each half hour of the day is."""
        return daily_weights(*self.day)


BATCH: Final = Lublin(
    serial=0.2927,
    power_of_two=0.6686,
    low=1.2,
    first_stage=0.875,
    short=(6.57, 0.823),
    long=(639.1, 0.0156),
    short_share=(-0.003, 0.6986),
    gap=(6.0415 * 1.0519, 0.8531),
    day=(6.1271, 5.2740),
)
ALL: Final = Lublin(
    serial=0.244,
    power_of_two=0.576,
    low=0.8,
    first_stage=0.86,
    short=(4.2, 0.94),
    long=(312.0, 0.03),
    short_share=(-0.0054, 0.78),
    gap=(10.2303 * 1.0225, 0.4871),
    day=(8.1737, 3.9631),
)


def _two_stages(rng: Random, low: float, middle: float, high: float, first: float) -> float:
    """Uniform between low and middle with this probability, else between middle and high."""
    low, high = (low, middle) if rng.random() <= first else (middle, high)
    return rng.uniform(low, high)

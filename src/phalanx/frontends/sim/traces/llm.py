"""Jobs of a cluster on which language models are made, after the published summary of Kalos.

Kalos (NSDI'24, "Characterization of Large Language Model Development in the Datacenter") ran 19,907
GPU jobs on 2,416 GPUs: half of them use one GPU and end within 124 s, the mean is 26.8 GPUs and
1,260 s, the largest 1,024 GPUs and a week. Evaluation is most of the jobs and 0.8 % of the GPU
time; pre-training 3.2 % of the jobs and 94 % of the time. Two in five jobs fail, and most of the
time goes to jobs that are cancelled. Three kinds of jobs with sizes relative to the cluster and
log-normal run times reproduce that; the numbers below were fitted to those lines and to no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final

_RUN_S_MAX: Final = 7 * 86_400.0
_BELIEVED_S_MAX: Final = 14 * 86_400.0

#: A job that fails or is cancelled would have run this many times as long, and its user believed so.
_CUT_SHORT: Final = (1.5, 8.0)


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one purpose."""

    share: float  # of all jobs
    sizes: tuple[tuple[float, float], ...]  # (GPUs, or below 1 a fraction of the cluster; probability)
    run_s_median: float
    sigma: float  # of the logarithm of the run time
    finish: float  # share that runs to its end


EVALUATION: Final = Kind(0.90, ((1, 0.72), (2, 0.13), (4, 0.05), (8, 0.10)), 105.0, 1.9, 0.56)
TUNING: Final = Kind(0.068, ((8, 0.40), (16, 0.25), (32, 0.25), (64, 0.10)), 1_100.0, 1.8, 0.5)
PRETRAINING: Final = Kind(0.032, ((0.125, 0.20), (0.25, 0.45), (0.42, 0.35)), 1_800.0, 1.9, 0.3)
KINDS: Final = (EVALUATION, TUNING, PRETRAINING)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One job as drawn: its size, the truth, and what its user believes."""

    kind: Kind
    size: int
    run_s: float
    believed_s: float


def draw_job(rng: Random, machine: int, per_node: int) -> Drawn:
    """A job for a cluster of so many GPUs."""
    kind = rng.choices(KINDS, cum_weights=_SHARES)[0]
    size = _draw_size(rng, kind, machine, per_node)
    run_s = min(_RUN_S_MAX, max(1.0, math.floor(rng.lognormvariate(math.log(kind.run_s_median), kind.sigma))))
    finishes = rng.random() < kind.finish
    factor = rng.uniform(*_CUT_SHORT)
    return Drawn(kind, size, run_s, run_s if finishes else min(_BELIEVED_S_MAX, math.ceil(run_s * factor)))


def draw_gap_s(rng: Random) -> float:
    """Even time until the next job, 1 on average: users do not know of each other."""
    return rng.expovariate(1.0)


def _draw_size(rng: Random, kind: Kind, machine: int, per_node: int) -> int:
    """GPUs; what is more than a node takes whole nodes, as such jobs do."""
    sizes, weights = zip(*kind.sizes, strict=True)
    chosen = float(rng.choices(sizes, weights)[0])
    size = min(machine, max(1, math.floor(chosen * machine if chosen < 1 else chosen)))
    return size - size % per_node if size > per_node else size


_SHARES: Final = tuple(accumulate(kind.share for kind in KINDS))

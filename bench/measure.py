"""What a row of the table is, and how CPU time is taken."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: what came out, what was aimed at, and whether that was reached."""

    value: str
    target: str
    met: bool
    note: str = ""


class Disagreement(Exception):  # noqa: N818 - a finding, told by its own line
    """A fast path and its plain reference gave different answers."""


def cpu_times(work: Callable[[], object], repeat: int, warm_up: int = 1) -> list[float]:
    """CPU seconds of this process for each of `repeat` calls; wall time would count the neighbours' work."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeat):
        gc.collect()
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return times


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def nearest_rank(values: Sequence[float], percent: int) -> float:
    """The percentile that is one of the values: of few values the 99th is the worst."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

"""Sums over time: exact steps, and fewer of them with the same area under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """A level between each two instants; one more instant than levels."""

    at_us: FloatArray
    levels: FloatArray

    @property
    def area(self) -> float:
        """Level × µs over all of it."""
        return float(np.dot(self.levels, np.diff(self.at_us)))

    def level_at(self, at_us: IntArray) -> FloatArray:
        """The level from each instant on; outside of the steps it is 0."""
        found = np.searchsorted(self.at_us, at_us, side="right") - 1
        inside = (found >= 0) & (found < len(self.levels))
        levels = np.zeros(len(at_us))
        levels[inside] = self.levels[found[inside]]
        return levels


def sum_spans(spans: Sequence[tuple[int, int, int]], horizon: tuple[int, int]) -> Steps:
    """How much is held at every instant by spans of (from, to, units), cut to the horizon."""
    first, last = horizon
    if last <= first:
        return Steps(np.array([first], dtype=float), np.zeros(0))
    table = np.array(spans, dtype=np.int64).reshape(-1, 3)
    start, end = np.clip(table[:, 0], first, last), np.clip(table[:, 1], first, last)
    kept = end > start
    at = np.concatenate((start[kept], end[kept], [first, last]))
    change = np.concatenate((table[kept, 2], -table[kept, 2], [0, 0]))
    instants, which = np.unique(at, return_inverse=True)
    changes = np.zeros(len(instants), dtype=np.int64)
    np.add.at(changes, which, change)
    levels = np.cumsum(changes)[:-1]
    return Steps(instants.astype(float), levels.astype(float))


def mean_steps(steps: Steps, at_us: FloatArray) -> Steps:
    """Mean levels between other instants. The area stays, because it is read off its running sum."""
    area = np.concatenate(([0.0], np.cumsum(steps.levels * np.diff(steps.at_us))))
    read = np.interp(at_us, steps.at_us, area)
    return Steps(at_us, np.diff(read) / np.diff(at_us))


def common_instants(several: Sequence[Steps], most: int) -> FloatArray:
    """Instants at which curves that are drawn together change, or equal lengths if those are too many."""
    instants = np.unique(np.concatenate([steps.at_us for steps in several]))
    if len(instants) - 1 <= most:
        return instants
    return np.linspace(instants[0], instants[-1], most + 1)

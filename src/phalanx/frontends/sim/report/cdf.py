"""Distributions as few enough points to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Curve:
    """Points to draw: what lies at x or below, as a share."""

    x: list[float]
    y: list[float]


def find_shares(values: Sequence[float], of: int, most: int) -> Curve:
    """Which share of `of` things has at most each value. Every point is exact; with many, not every step is a point.

    Points are picked evenly by rank and evenly on a log scale, so that neither the bulk nor the tails lose shape.
    """
    if not values or not of:
        return Curve([], [])
    ordered = np.sort(np.asarray(values, dtype=float))
    x, last = np.unique(ordered, return_index=True)
    counts = np.concatenate((last[1:], [len(ordered)]))
    if len(x) > most:
        ranks = np.linspace(0, len(x) - 1, most // 2).round().astype(np.int64)
        least = x[x > 0][0]
        grid = np.searchsorted(x, np.geomspace(least, x[-1], most // 2))
        which = np.unique(np.concatenate((ranks, np.minimum(grid, len(x) - 1))))
        x, counts = x[which], counts[which]
    return Curve(x.tolist(), (counts / of).tolist())

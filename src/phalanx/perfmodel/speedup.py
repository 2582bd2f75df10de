"""How much faster a gang runs with more members.

A curve gives S(n), the speed relative to one member; only ratios of it are ever used, so its
scale is free. Run times are stated at the largest allowed size and stretched by S(most)/S(n).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

#: A stretched run time stops here (36,000 years), so that adding it to a clock stays inside 64 bits.
FOREVER_US: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Linear:
    """Twice the members, twice the speed."""


@dataclass(frozen=True, slots=True)
class Amdahl:
    """A fraction `serial` of the work (0 to 1) gains nothing from more members."""

    serial: float


@dataclass(frozen=True, slots=True)
class Table:
    """Measured points (members, speed), ascending in members; straight lines between them."""

    points: tuple[tuple[int, float], ...]


Speedup = Linear | Amdahl | Table


def speedup_at(curve: Speedup, members: int) -> float:
    """The speed with this many members, relative to the curve's own scale."""
    match curve:
        case Linear():
            return float(members)
        case Amdahl(serial):
            return 1.0 / (serial + (1.0 - serial) / members)
        case Table(points):
            return _interpolate(points, members)


def scaled_us(length_us: int, curve: Speedup, members_most: int, members: int) -> int:
    """The run time with `members`, given the one with `members_most`; rounded half up."""
    if members == members_most:
        return length_us
    if isinstance(curve, Linear):
        # In integers: a linear gang at half its size takes exactly twice as long, however long that is.
        return min((2 * length_us * members_most + members) // (2 * members), FOREVER_US)
    stretched = length_us * (speedup_at(curve, members_most) / speedup_at(curve, members))
    return int(min(stretched + 0.5, float(FOREVER_US)))


def _interpolate(points: tuple[tuple[int, float], ...], members: int) -> float:
    """Linear between points; outside them the nearest end value holds, since nothing was measured there."""
    at = bisect_left(points, (members,))
    if at == 0:
        return points[0][1]
    if at == len(points):
        return points[-1][1]
    (below_members, below_speed), (at_members, at_speed) = points[at - 1], points[at]
    if members == at_members:  # as measured, without the rounding of a straight line
        return at_speed
    share = (members - below_members) / (at_members - below_members)
    return below_speed + share * (at_speed - below_speed)

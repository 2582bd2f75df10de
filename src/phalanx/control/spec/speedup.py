"""`speedup:` into a curve: linear, {amdahl: 0.02}, or {table: {1: 1, 8: 6.5}}."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from phalanx.control.spec.errors import show, suggest
from phalanx.control.spec.quantity import number
from phalanx.control.spec.sizes import MEMBERS_MAX
from phalanx.control.spec.spot import Spot
from phalanx.perfmodel.speedup import Amdahl, Linear, Speedup, Table

SPEEDUP_KEYS: Final = ("linear", "amdahl", "table")

_EXAMPLES: Final = ("linear", "{amdahl: 0.02}", "{table: {1: 1, 8: 6.5}}")

#: Only ratios of a curve matter; outside these bounds they would leave the range of run times.
_SPEED_MIN: Final = Fraction(1, 10**6)
_SPEED_MAX: Final = 10**9


def parse_speedup(spot: Spot | None) -> Speedup:
    """The curve; linear if nothing is said."""
    if spot is None:
        return Linear()
    if not isinstance(spot.value, dict):
        word = spot.text()
        if word != "linear":
            spot.refuse(f"is no curve (got {show(word)}); {suggest(word, _EXAMPLES)}")
        return Linear()
    fields = spot.fields(SPEEDUP_KEYS)
    if not fields.inner:
        return Linear()
    chosen = [key for key in SPEEDUP_KEYS if key in fields.inner]
    if len(chosen) > 1:
        spot.refuse(f"needs exactly one of linear, amdahl, table (got {' and '.join(chosen)})")
    amdahl, table = fields.get("amdahl"), fields.get("table")
    if amdahl is not None:
        return _parse_amdahl(amdahl)
    # `linear:` with nothing behind it, as a template leaves it.
    return _parse_table(table) if table is not None else Linear()


def _parse_amdahl(spot: Spot) -> Amdahl:
    serial = spot.parsed(number)
    # 0 is linear and 1 no speed-up at all; both are curves that somebody may mean.
    if not 0 <= serial <= 1:
        spot.refuse(f"must be a fraction from 0 to 1 (got {show(spot.value)})")
    return Amdahl(float(serial))


def _parse_table(spot: Spot) -> Table:
    """Points as a mapping {members: speed} or a list of pairs."""
    if isinstance(spot.value, dict):
        # Keys of a mapping are texts whatever the format, hence read as numbers here; TOML and JSON know no others.
        pairs = [(_table_members(key, inner), inner) for key, inner in spot.pairs()]
    else:
        pairs = []
        for item in spot.items():
            two = item.items()
            if len(two) != 2:
                item.refuse("must be a pair [members, speed]")
            pairs.append((two[0].integer(1, MEMBERS_MAX), two[1]))
    # Sorted, as people write it in any order; not made monotone, since a gang may well be slower with more members.
    points = sorted((members, _speed(inner)) for members, inner in pairs)
    # An empty table has no end values to keep outside its range (rule 6).
    if not points:
        spot.refuse("must not be empty; write {1: 1, 8: 6.5}")
    if len({members for members, _ in points}) != len(points):
        spot.refuse("names a number of members twice")
    return Table(tuple(points))


def _table_members(key: str, inner: Spot) -> int:
    # Digits alone: `int` would also take "+8", " 8" and "1_000".
    if not re.fullmatch("[0-9]{1,7}", key) or not 1 <= int(key) <= MEMBERS_MAX:
        inner.refuse(f"stands at {show(key)}, which is no number of members")
    return int(key)


def _speed(spot: Spot) -> float:
    speed = spot.parsed(number)
    if not _SPEED_MIN <= speed <= _SPEED_MAX:
        spot.refuse(f"must be a speed above 0 (got {show(spot.value)})")
    return float(speed)

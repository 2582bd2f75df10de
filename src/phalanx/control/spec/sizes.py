"""`members:` into the sizes a role may have."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from phalanx.control.spec.spot import Spot
from phalanx.model.gang import Sizes

MEMBERS_KEYS: Final = ("min", "max", "step", "sizes")

#: More members than any machine on earth has devices.
MEMBERS_MAX: Final = 1_000_000


def parse_sizes(spot: Spot) -> Sizes:
    """A number (rigid), a range {min, max, step}, or a list {sizes: [2, 4, 8]}."""
    if not isinstance(spot.value, dict):
        return sizes_between(*2 * (spot.integer(1, MEMBERS_MAX),), 1)
    fields = spot.fields(MEMBERS_KEYS)
    listed = fields.get("sizes")
    if listed is not None:
        # `min` beside `sizes` could mean a bound or an oversight.
        if len(fields.inner) > 1:
            spot.refuse("must have either sizes or min, max and step, not both")
        return _parse_listed(listed)
    least = fields.need("min", "{min: 2, max: 8}, or a plain number").integer(1, MEMBERS_MAX)
    most = fields.need("max", "{min: 2, max: 8}, or a plain number").integer(1, MEMBERS_MAX)
    step = fields.get("step")
    if least > most:
        spot.refuse(f"has min {least} above max {most}; swap them")
    return sizes_between(least, most, step.integer(1, MEMBERS_MAX) if step else 1)


# One object per range: sizes are compared and hashed with every form, and a log has a handful of them.
@lru_cache(maxsize=1024)
def sizes_between(least: int, most: int, step: int) -> Sizes:
    """min, min + step, … up to max; the last step may fall short of max. One object per range."""
    return Sizes(tuple(range(least, most + 1, step)))


def _parse_listed(listed: Spot) -> Sizes:
    found = [item.integer(1, MEMBERS_MAX) for item in listed.items()]
    if not found:
        listed.refuse("must not be empty; write the allowed sizes, as [2, 4, 8]")
    if len(set(found)) != len(found):
        listed.refuse("names a size twice")
    # Ascending, as everybody relies on: the first is the least, the last the most.
    return Sizes(tuple(sorted(found)))

"""Numbers as files hold them: seconds and amounts without an exponent and without a rounding error."""

from __future__ import annotations

from phalanx.control.spec.quantity import SECOND_US
from phalanx.model.resources import units_per_whole


def show_seconds(us: int) -> str:
    """Microseconds as seconds, exactly: 1500000 is 1.5."""
    whole, part = divmod(us, SECOND_US)
    return str(whole) if not part else f"{whole}.{part:06d}".rstrip("0")


def show_amount(units: int, kind: str) -> str:
    """Engine units as people write them, exactly: 500 of a GPU is 0.5."""
    scale = units_per_whole(kind)
    whole, part = divmod(units, scale)
    return str(whole) if not part else f"{whole}.{part:03d}".rstrip("0")

"""How fast a gang is at a size, as the in-job library reports it, and how long it then still takes."""

from __future__ import annotations

from phalanx.model.snapshot import Snapshot
from phalanx.perfmodel.speedup import Linear, Speedup, Table


def curve_of(snapshot: Snapshot, number: int) -> Speedup:
    """What a gang reports of its speed-up; linear if it says nothing."""
    curve = snapshot.curves.get(number)
    return Table(curve) if curve else Linear()

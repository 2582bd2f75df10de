"""Whose turn it is. Each order takes pending rows and returns them in the order of their turn."""

from __future__ import annotations

import numpy as np

from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Snapshot


def order_by_arrival(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Priority down, then eligibility, then sequence number."""
    if snapshot.in_order:
        return rows
    pending = snapshot.pending
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], -pending.priority[rows]))]

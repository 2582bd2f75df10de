"""Whose turn it is. Each order takes pending rows and returns them in the order of their turn."""

from __future__ import annotations

import numpy as np

from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Snapshot


def order_by_arrival(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Priority down, then eligibility, then sequence number."""
    if len(rows) < 2:
        return rows
    pending = snapshot.pending
    eligible, gang, priority = pending.eligible_us[rows], pending.gang[rows], pending.priority[rows]
    # Rows are appended as gangs arrive, so they are in order already unless somebody came back or has
    # another priority: a few comparisons instead of a sort, on every pass of a long simulation.
    later = (eligible[1:] >= eligible[:-1]) & (gang[1:] > gang[:-1]) & (priority[1:] <= priority[:-1])
    if later.all():
        return rows
    return rows[np.lexsort((gang, eligible, -priority))]

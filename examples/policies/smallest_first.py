"""Within a priority, whoever asks for the fewest members goes first; everything else is as in `easy`.

phalanx sim examples/backfill.yaml --policy easy,examples/policies/smallest_first.py:SMALLEST
"""  # noqa: INP001 - a file on its own

from dataclasses import replace

import numpy as np

from phalanx.model.fleet import IntArray
from phalanx.model.snapshot import Snapshot
from phalanx.policy import POLICIES


def order_by_size(snapshot: Snapshot, rows: IntArray) -> IntArray:
    """Pending rows in, the same rows in the order of their turn out. `np.lexsort` sorts by its last key first."""
    pending = snapshot.pending
    members = np.array([snapshot.gangs[number].members_min for number in pending.gang[rows].tolist()], dtype=np.int64)
    return rows[np.lexsort((pending.gang[rows], pending.eligible_us[rows], members, -pending.priority[rows]))]


SMALLEST = replace(POLICIES["easy"], name="smallest-first", order=order_by_size)

"""When enough room is free for long enough, with ends and reservations ahead.

A node that can hold s members of a shape has s lanes, nested: lane j is free while the node could
hold at least j. The least room over a stretch of time equals the number of lanes free throughout
it, so shared nodes and whole nodes are one exact method. Lanes that open and close together are one
entry with a weight.

A stretch of length d may begin at t in a lane free from a to b if a <= t <= b - d. Sorting all a and
all b - d turns "how many lanes at t" into two sorted lookups, for all candidate instants at once.

This is what the literature on conservative backfill calls the profile, kept per node because places
matter. Asked by `engine.calendar.timeline`, which knows what is free when; nothing is placed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phalanx.engine.kernels.release import NEVER
from phalanx.model.fleet import IntArray

Lane = tuple[int, int, int]  # free from, until, how many lanes


def trace_lanes(times: Sequence[int], slots: Sequence[int]) -> list[Lane]:
    """Lanes of one node whose slots from `times[i]` on are `slots[i]`; the last ones stay for ever."""
    # Room 1 from 0 on, 3 from 10 on, 2 from 20 on gives the lanes (0, for ever, 1), (10, 20, 1) and (10, for ever, 1).
    lanes: list[Lane] = []
    opened: list[tuple[int, int]] = []  # innermost lanes last: they close first
    height = 0
    for at, room in zip(times, slots, strict=True):
        # The lane opened last closes first. Otherwise a long lane would be cut short while a short one lives on, and
        # fewer lanes would be free throughout a stretch than the least room over it.
        while room < height:
            start, weight = opened.pop()
            closing = min(weight, height - room)
            lanes.append((start, at, closing))
            height -= closing
            if weight > closing:
                opened.append((start, weight - closing))
        if room > height:
            opened.append((at, room - height))
            height = room
    lanes += [(start, NEVER, weight) for start, weight in opened]
    return lanes


def cut_lanes(lanes: list[Lane], start_us: int, end_us: int) -> list[Lane]:
    """The same lanes with a stretch taken out of all of them."""
    left: list[Lane] = []
    for begin, until, weight in lanes:
        if until <= start_us or begin >= end_us:
            left.append((begin, until, weight))
            continue
        # A window in the middle of a lane leaves two, and no stretch may run across it.
        if begin < start_us:
            left.append((begin, start_us, weight))
        if until > end_us:
            left.append((end_us, until, weight))
    return left


class LaneTable:
    """Lanes of one shape over all nodes, kept in order of opening and of closing."""

    def __init__(self) -> None:
        """No lanes yet."""
        empty = np.zeros(0, dtype=np.int64)
        self.begin, self.until, self.weight, self.node = empty, empty, empty, empty
        self._by_until = empty

    def replace(self, dirty: np.ndarray, lanes_by_node: dict[int, list[Lane]]) -> None:
        """Forget the lanes of the nodes flagged in `dirty` and take these instead."""
        kept = ~dirty[self.node] if len(self.node) else np.zeros(0, dtype=np.bool_)
        rows = [(*lane, node) for node, lanes in lanes_by_node.items() for lane in lanes]
        fresh = np.array(rows, dtype=np.int64).reshape(-1, 4)
        begin = np.concatenate((self.begin[kept], fresh[:, 0]))
        # The kept part is in order already: a stable sort only merges the few new ones in.
        order = np.argsort(begin, kind="stable")
        self.begin = begin[order]
        self.until = np.concatenate((self.until[kept], fresh[:, 1]))[order]
        self.weight = np.concatenate((self.weight[kept], fresh[:, 2]))[order]
        self.node = np.concatenate((self.node[kept], fresh[:, 3]))[order]
        self._by_until = np.argsort(self.until, kind="stable")

    def find_earliest(self, size: int, length_us: int, nodes: np.ndarray | None = None) -> int:
        """First instant from which `size` lanes are free for `length_us`, or `NEVER`; of some nodes only, if given."""
        # Shorter lanes must go first: one with b - d < a would be taken off the sum before it was ever added.
        long = self.until - self.begin >= length_us
        if nodes is not None:
            long &= nodes[self.node]
        opening = self.begin[long]
        if not len(opening):
            return NEVER
        order = self._by_until[long[self._by_until]]
        # At an opening: every lane that has opened by then, less every lane in which it is too late to begin by then.
        # Openings are the only candidates, since between two of them the sum can only fall.
        closed_by = np.concatenate(([0], np.cumsum(self.weight[order])))
        last_begin = self.until[order] - length_us
        available = np.cumsum(self.weight[long]) - closed_by[np.searchsorted(last_begin, opening)]
        # Of lanes that open at one instant only the last sees the whole sum; `argmax` moves on to it, and the instant
        # is the same.
        enough = available >= size
        at = int(np.argmax(enough))
        return int(opening[at]) if enough[at] else NEVER

    def slots_over(self, at_us: int, length_us: int, nodes: int) -> IntArray:
        """Per node: lanes free from an instant for a length."""
        usable = (self.begin <= at_us) & (self.until - length_us >= at_us)
        slots = np.zeros(nodes, dtype=np.int64)
        np.add.at(slots, self.node[usable], self.weight[usable])
        return slots


def find_earliest_reference(lanes: Sequence[tuple[int, int, int]], size: int, length_us: int) -> int:
    """The plain reading of `LaneTable.find_earliest`: try every opening."""
    for at in sorted({begin for begin, _, _ in lanes}):
        if sum(weight for begin, until, weight in lanes if begin <= at and until - at >= length_us) >= size:
            return at
    return NEVER

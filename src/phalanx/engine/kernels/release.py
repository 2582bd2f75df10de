"""When running gangs have given back enough for a gang to start.

With nothing but ends ahead, room only grows, so the first instant with enough slots is the start.
Each end gives a node some units back; what counts is how many whole slots that adds, which is a
running sum per node and a floor. Sorted by time and summed per domain, the first sum that covers
what is missing names the instant. No placement is tried on the way.

These are the two numbers of EASY backfill (Lifka 1995; the words are those of Mu'alem and Feitelson 2001): the *shadow
time*, at which the blocked head of the queue can start, and the *extra nodes*, which it leaves free then. A filler may
pass if it ends by the one or fits into the other. `engine.calendar.releases` asks, and decides whether places matter.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.kernels.slots import Need
from phalanx.model.fleet import BoolArray, IntArray

#: Beyond any clock, and inside 64 bits with a length of time added.
NEVER = 1 << 62
#: Up to so many ends a plain loop is quicker than arrays.
SHORT = 48


def find_release(
    need: Need, slots: IntArray, mask: BoolArray, free: IntArray, ends: tuple[IntArray, IntArray, IntArray], size: int
) -> tuple[int, int]:
    """First instant at which `size` slots are free over all nodes of `mask`, and how many more are; or `NEVER`.

    With 3 slots free, 10 wanted, and ends that add 4 at t = 50 and 5 at t = 80: the answer is (80, 2).
    `ends` is (node, end, taken) of everything that runs; `slots` is what is free now.
    """
    if len(ends[0]) <= SHORT and len(need.columns) == 1:
        return _find_release_short(need, slots, mask, free, ends, size)
    gained = _gains(need, slots, mask, free, ends)
    if gained is None:
        return NEVER, 0
    _, end, gain = gained
    order = end.argsort(kind="stable")
    end, missing, total = end[order], size - int(slots.sum()), gain[order].cumsum()
    at = int(total.searchsorted(missing))
    if at == len(end):
        return NEVER, 0
    # Everything that ends at that same instant counts for the extra room, not only the end that was enough.
    at_us = int(end[at])
    return at_us, int(total[int(end.searchsorted(at_us, side="right")) - 1]) - missing


def _find_release_short(
    need: Need, slots: IntArray, mask: BoolArray, free: IntArray, ends: tuple[IntArray, IntArray, IntArray], size: int
) -> tuple[int, int]:
    """The same for one kind and few ends, end by end: arrays of a dozen entries cost more than they save."""
    column, amount = need.columns[0], need.amounts[0]
    order = ends[1].argsort(kind="stable")
    taken, at, useful = ends[2][order, column].tolist(), ends[1][order].tolist(), mask.tolist()
    room: dict[int, int] = {}
    missing = size - int(slots.sum())
    reached = NEVER
    for node, end, units in zip(ends[0][order].tolist(), at, taken, strict=True):
        if end > reached:
            # Later ends cannot make the start earlier, nor count for what is extra at it.
            break
        if not useful[node]:
            continue
        before = room[node] if node in room else int(free[node, column])
        room[node] = before + units
        # Whole slots gained: from 5 units to 7 none of four units each, from 7 to 9 one.
        missing -= room[node] // amount - before // amount
        if missing <= 0:
            reached = end  # everything else that ends at this instant still counts
    return (reached, -missing) if reached != NEVER else (NEVER, 0)


def find_release_by_domain(
    need: Need,
    slots: IntArray,
    mask: BoolArray,
    free: IntArray,
    ends: tuple[IntArray, IntArray, IntArray],
    size: int,
    domains: IntArray,
) -> int:
    """As `find_release`, but all slots inside one domain; the earliest over the domains."""
    gained = _gains(need, slots, mask, free, ends)
    if gained is None:
        return NEVER
    node, end, gain = gained
    # One running sum over all ends, domain after domain; what it was before a domain's first end is taken off again.
    # That is one pass for all domains where a loop would be one per domain.
    missing = size - np.bincount(domains, weights=slots, minlength=int(domains.max()) + 1).astype(np.int64)
    domain = domains[node]
    order = np.lexsort((end, domain))
    domain, end, total = domain[order], end[order], np.cumsum(gain[order])
    first = np.flatnonzero(np.concatenate(([True], domain[1:] != domain[:-1])))
    before = np.concatenate(([0], total[first[1:] - 1]))
    run = np.cumsum(np.concatenate(([True], domain[1:] != domain[:-1]))) - 1
    # Whoever reaches it first wins, whichever domain that is: a start is the earliest instant, then the best place.
    reached = total - before[run] >= missing[domain]
    return int(np.where(reached, end, NEVER).min())


def _gains(
    need: Need, slots: IntArray, mask: BoolArray, free: IntArray, ends: tuple[IntArray, IntArray, IntArray]
) -> tuple[IntArray, IntArray, IntArray] | None:
    """Per end on a useful node: the node, the instant, and how many slots it adds there."""
    node, end, taken = ends
    # Ends elsewhere add nothing: wrong labels, taints, or a node that is out of service.
    useful = mask[node].nonzero()[0]
    if not len(useful) or not need.columns:
        return None
    # Node by node, in the order of time, so that a running sum tells what each node has after each of its ends.
    if len(mask) == 1:
        order = useful[end[useful].argsort(kind="stable")]
    else:
        order = useful[np.lexsort((end[useful], node[useful]))]
    node, end = node[order], end[order]
    fresh = np.concatenate(([True], node[1:] != node[:-1]))
    first = fresh.nonzero()[0]
    run = fresh.cumsum() - 1
    room: IntArray | None = None
    for column, amount in zip(need.columns, need.amounts, strict=True):
        given = taken[order, column]
        total = given.cumsum()
        # The running sum over all rows, less what it was before the first row of this node.
        level = free[node, column] + total - (total[first] - given[first])[run]
        here = level // amount
        # Of several kinds the scarcest decides, at every instant anew: GPUs may be short first and memory later.
        room = here if room is None else np.minimum(room, here)
    assert room is not None
    before = np.concatenate(([0], room[:-1]))
    # The first end of a node is compared with what the node holds now, the others with the end before.
    before[first] = slots[node[first]]
    return node, end, room - before

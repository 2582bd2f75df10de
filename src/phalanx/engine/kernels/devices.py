"""Which devices of a node its new members get.

Whole devices: from one island where they fit, from the smallest such island, lowest index first.
Shares: best fit, that is onto the device with the least room that still holds one, so that whole
devices stay whole; members of one gang may share one.
"""

from __future__ import annotations

import numpy as np

from phalanx.engine.kernels.slots import Need
from phalanx.model.fleet import Fleet, IntArray, MilliArray
from phalanx.model.resources import MILLI


def choose_devices(fleet: Fleet, need: Need, nodes: IntArray, counts: IntArray, device_free: MilliArray) -> MilliArray:
    """Thousandths taken of each device of each of `nodes`, of which `device_free` holds the rows."""
    taken = np.zeros_like(device_free)
    if need.share:
        for row in range(len(nodes)):
            _share_devices(device_free[row], need.share, int(counts[row]), taken[row])
    elif need.whole:
        whole = device_free == MILLI
        # `rank` numbers the whole devices of each node from 1. Three members of two devices take ranks 1 to 6:
        # the lowest indices, for all nodes in one step.
        rank = np.cumsum(whole, axis=1)
        taken[whole & (rank <= (counts * need.whole)[:, None])] = MILLI
        # Islands (NVLink, NUMA) only matter to members that talk to each other inside the node: a single device has no
        # neighbour to be near to. Node by node, since no two nodes need be wired alike.
        if fleet.islands and bool((counts * need.whole > 1).any()):
            for row, node in enumerate(nodes.tolist()):
                if node in fleet.islands:
                    taken[row] = _island_devices(whole[row], fleet.islands[node], need.whole, int(counts[row]))
    return taken


def keep_devices(devices: MilliArray, amounts: IntArray) -> MilliArray:
    """The same devices with only as many left free as the amounts say; for nodes whose devices were never split."""
    # Which ones stay does not matter: without splits only their number is ever compared with what members ask for.
    rank = (devices == MILLI).cumsum(axis=1, dtype=np.int32)
    kept: MilliArray = devices * (rank <= (amounts // MILLI)[:, None])
    return kept


def _share_devices(room: MilliArray, share: int, count: int, taken: MilliArray) -> None:
    left = room.astype(np.int64)
    for _ in range(count):
        # Best fit is exact here, since all shares are equal: `compute_slots` has counted them device by device, so
        # that one always fits. The first of equally full devices is the one with the lowest index.
        fitting = np.where(left >= share, left, np.iinfo(np.int64).max)
        device = int(np.argmin(fitting))
        left[device] -= share
        taken[device] += share


def _island_devices(whole: np.ndarray, islands: tuple[tuple[int, ...], ...], each: int, count: int) -> MilliArray:
    """Member by member: the island with the least room that holds it; across islands only if none does."""
    free = [[device for device in island if whole[device]] for island in islands]
    # Devices in no island form one more, last: they are near to nobody, but they can be used.
    named = {device for island in islands for device in island}
    free.append([int(device) for device in np.flatnonzero(whole) if int(device) not in named])
    taken = np.zeros(len(whole), dtype=np.int16)
    # All of them in one island before each in one: members of a gang on one node talk to each other as well. Then the
    # least room that holds it: with 3 and 4 devices left, three are taken from the 3, and a 4 stays for somebody.
    if any(len(island) >= each * count for island in free):
        each, count = each * count, 1
    for _ in range(count):
        holding = [island for island in free if len(island) >= each]
        pool = min(holding, key=len) if holding else sorted(device for island in free for device in island)
        for device in pool[:each]:
            taken[device] = MILLI
        free = [[device for device in island if not taken[device]] for island in free]
    return taken

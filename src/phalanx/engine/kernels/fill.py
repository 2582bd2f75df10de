"""Choose nodes for identical members: the tightest domain, then the least fragmentation.

Every domain is a contiguous run of the fleet's walk order, so the search descends through runs.
At each level, if one run holds all members, the best fitting one is entered: least of what the
gang does not ask for (devices before the rest), then least room left, then the lowest node index.
Between nodes, before room left: the fewest devices stranded (`Company`).
If none does, the members are split over as few runs as possible, the fullest first, and what is
left over goes into the run it fits best.

Groups of consecutive ranks (`segment`) are split whole: a run of the segment's level gives as many
groups as it holds, and the last, smaller group goes where it fits best.

This is rule 15 (topology, least fragmentation); what Kueue and KAI call topology-aware placement and Slurm's block
plugin does with `--segment`. For members of one shape greedy is exact: a run holds the sum of its nodes, whatever is
chosen inside it. Called through `engine.room.placement`, which has other means for several shapes at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from phalanx.model.fleet import Fleet, IntArray
from phalanx.model.form import RoleForm
from phalanx.model.topology import ANYWHERE

#: Stranded devices are compared in tenths: finer differences are noise of the moment, and letting
#: them decide before best fit packs worse (openb: 95.6 % of GPUs against 95.9 %).
STRANDED_STEP = 100


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """What members ask beside devices: who takes the last cores of a node strands its free devices.

    A member that takes the fraction f of a node's free cores uses up the same fraction of what its
    free devices can serve: of G free devices f x G. What that is above the devices it asks for is
    lost to everybody, though nobody holds it.
    """

    devices: int  # thousandths of one member
    column: int
    beside: tuple[tuple[int, int], ...]  # (column, units of one member) of the other kinds it asks for
    free: IntArray  # [node, kind]

    def stranded(self, nodes: IntArray, members: int) -> IntArray:
        """Tenths of devices that so many members would strand on each of `nodes`, all of which hold them."""
        devices = self.free[nodes, self.column]
        used = np.zeros(len(nodes), dtype=np.int64)
        for column, amount in self.beside:
            # Bytes times devices could pass 64 bits; a kibibyte either way strands nothing.
            shift = 10 if amount >= 1 << 20 else 0
            used = np.maximum(used, (members * amount >> shift) * devices // (self.free[nodes, column] >> shift))
        return np.maximum(used - members * self.devices, 0) // STRANDED_STEP


@dataclass(slots=True, eq=False)
class SlotRoom:
    """Slots of one shape over the walk order, with what breaks ties between equal places."""

    fleet: Fleet
    slots: IntArray  # in walk order
    unasked: list[IntArray]  # free amounts of kinds not asked for, in walk order, devices first
    asked: list[IntArray]  # free amounts of kinds asked for, in walk order, devices first: the room left
    first: IntArray | None = None  # how many of the slots to use before any other, in walk order
    company: Company | None = None  # only if members ask for devices and for something beside them
    sums: dict[int, IntArray] = field(default_factory=dict)

    def run_sums(self, level: int) -> IntArray:
        """Slots per run of a level."""
        if level not in self.sums:
            self.sums[level] = _reduce(self.fleet, self.slots, level)
        return self.sums[level]

    def with_slots(self, slots: IntArray) -> SlotRoom:
        """The same places with other slots and no preference among them."""
        return SlotRoom(self.fleet, slots, self.unasked, self.asked, company=self.company)


def _reduce(fleet: Fleet, walked: IntArray, level: int) -> IntArray:
    if level == len(fleet.levels) - 1:
        return walked
    return np.add.reduceat(walked, fleet.run_starts[level])


def compute_capability(fleet: Fleet, sums: dict[int, IntArray] | SlotRoom, role: RoleForm, level: int) -> IntArray:
    """The most members each run of a level holds, groups kept whole. One entry for the whole cluster."""
    get = sums.run_sums if isinstance(sums, SlotRoom) else sums.__getitem__
    # A run of the segment's level, or of a tighter one, keeps every group together by being what it is.
    if role.segment_size <= 1 or role.segment_level <= level:
        if level == ANYWHERE:
            return np.array([get(len(fleet.levels) - 1).sum()])
        return get(level)
    # Groups of 4 over racks with 6, 5 and 3 slots: 1 + 1 + 0 whole groups, and 2, 1 and 3 slots beside them. Only one
    # group may be smaller, and it sits in one rack: 2 x 4 + 3 = 11 members, of 14 slots.
    groups, rest = np.divmod(get(role.segment_level), role.segment_size)
    if level == ANYWHERE:
        return np.array([groups.sum() * role.segment_size + rest.max(initial=0)])
    at = np.searchsorted(fleet.run_starts[role.segment_level], fleet.run_starts[level])
    return np.add.reduceat(groups, at) * role.segment_size + np.maximum.reduceat(rest, at)


def choose_nodes(room: SlotRoom, role: RoleForm, size: int) -> tuple[IntArray, IntArray] | None:
    """Nodes and member counts for `size` members, in rank order; None if no domain holds them."""
    fleet = room.fleet
    if len(room.slots) == 1:  # the cluster is one node, as for a log without places: nothing to choose
        return (np.zeros(1, dtype=np.int64), np.array([size])) if room.slots[0] >= size else None
    found = _choose_run(room, role, size)
    if found is None:
        return None
    low, high, level = found
    counts = np.zeros(len(room.slots), dtype=np.int64)
    last_run = -1
    if role.segment_size > 1 and role.segment_level > level:
        last_run = _place_groups(room, role, (low, high, level), size, counts)
    else:
        # If no domain of the preferred level holds all, the fewest of it do, whatever lies between.
        _place_preferred(room, (low, high, max(level, role.prefer - 1)), size, counts)
    walked = counts.nonzero()[0]
    if last_run >= 0:
        # The smaller last group must hold the last ranks, or it would shift every later group.
        run = np.searchsorted(fleet.run_starts[role.segment_level], walked, side="right") - 1
        walked = np.concatenate((walked[run != last_run], walked[run == last_run]))
    return fleet.walk[walked], counts[walked]


def choose_lowest(slots: IntArray, first: IntArray | None, size: int) -> tuple[IntArray, IntArray]:
    """The same where every node has one slot or none and nothing else tells nodes apart: the lowest numbers.

    There must be as many; of the `first` ones all that are needed. On such nodes a member fits as well here as
    there, so ties decide everything.
    """
    counts = _ONES[:size] if size <= len(_ONES) else np.ones(size, dtype=np.int64)
    if first is None:
        return slots.nonzero()[0][:size], counts
    wanted = np.minimum(first, slots)
    nodes = wanted.nonzero()[0][:size]
    if len(nodes) < size:
        others = (slots - wanted).nonzero()[0][: size - len(nodes)]
        nodes = np.concatenate((nodes, others))
        nodes.sort()
    return nodes, counts


#: A member on each node, again and again; seats are values, so that one array serves all of them.
_ONES = np.ones(1024, dtype=np.int64)
_ONES.setflags(write=False)

Run = tuple[int, int, int]  # first and past-the-last position in walk order, and the level of the run


def _choose_run(room: SlotRoom, role: RoleForm, size: int) -> Run | None:
    """The run to place in: of the preferred level if one holds all, else of the next wider one, and so on."""
    fleet, level = room.fleet, max(role.prefer, role.require)
    if level == ANYWHERE and role.segment_size <= 1:  # nothing to compare: the whole cluster, if it holds them
        return (0, len(room.slots), ANYWHERE) if int(np.add.reduce(room.slots)) >= size else None
    # From the tightest level outwards. `prefer` gives way level by level; where `require` stands, the loop ends.
    while level > ANYWHERE and level >= role.require:
        capability = compute_capability(fleet, room, role, level)
        holding = np.flatnonzero(capability >= size)
        if len(holding):
            if level < role.prefer and len(holding) > 1:
                holding = _fewest_parts(room, level, holding, role.prefer, size)
            return _run_at(fleet, level, _best_run(room, level, holding, size))
        level -= 1
    if role.require > ANYWHERE:
        return None
    whole = compute_capability(fleet, room, role, ANYWHERE)
    return (0, len(room.slots), ANYWHERE) if whole[0] >= size else None


def _fewest_parts(room: SlotRoom, level: int, candidates: IntArray, part_level: int, size: int) -> IntArray:
    """Of runs that all hold the members, those that need the fewest runs of a tighter level for them."""
    starts, sums = room.fleet.run_starts[part_level], room.run_sums(part_level)
    needed = []
    for index in candidates.tolist():
        low, high, _ = _run_at(room.fleet, level, index)
        inside = sums[starts.searchsorted(low) : starts.searchsorted(high)]
        # Fullest first: parts of 4, 3 and 1 hold 4, 7, 8 in all; six members reach into the second (index 1).
        needed.append(int(np.sort(inside)[::-1].cumsum().searchsorted(size)))
    parts = np.array(needed)
    fewest: IntArray = candidates[parts == parts.min()]
    return fewest


def _run_at(fleet: Fleet, level: int, index: int) -> Run:
    starts = fleet.run_starts[level]
    high = starts[index + 1] if index + 1 < len(starts) else len(fleet)
    return int(starts[index]), int(high), level


def _best_run(room: SlotRoom, level: int, candidates: IntArray, size: int) -> int:
    """Of runs that all hold the members: the one whose use leaves the least fragmentation."""
    # Rule 3 (choice of places): busy now before free now, or reserved-but-idle before the rest. Who calls says which.
    if len(candidates) > 1 and room.first is not None:
        wanted = np.minimum(_reduce(room.fleet, room.first, level)[candidates], size)
        candidates = candidates[wanted == wanted.max()]
    # What the gang does not ask for: a job without GPUs should not sit on the cores beside idle GPUs.
    for amount in room.unasked:
        if len(candidates) == 1:
            break
        candidates = _least(_reduce(room.fleet, amount, level), candidates)
    # Devices are stranded by the cores of their own node; sums over a rack would hide which.
    if len(candidates) > 1 and room.company is not None and level == len(room.fleet.levels) - 1:
        stranded = room.company.stranded(room.fleet.walk[candidates], size)
        candidates = candidates[stranded == stranded.min()]
    # Best fit: the run with the least room is used up, and large runs stay large for large gangs.
    for amount in room.asked:
        if len(candidates) == 1:
            break
        candidates = _least(_reduce(room.fleet, amount, level), candidates)
    if len(candidates) > 1:
        # Domain numbers follow the lowest node index in each domain.
        candidates = _least(room.fleet.domain_by_run[level], candidates)
    return int(candidates[0])


def _least(values: IntArray, candidates: IntArray) -> IntArray:
    among = values[candidates]
    least: IntArray = candidates[among == among.min()]
    return least


def _place_preferred(room: SlotRoom, run: Run, size: int, counts: IntArray) -> None:
    """Place members in a run, using the preferred slots before any other."""
    if room.first is None:
        _place(room, run, size, counts)
        return
    low, high, _ = run
    # First (2, 0, 1) of slots (4, 4, 4): five members take all three of those, and two go where (2, 4, 3) are left.
    wanted = np.minimum(room.first, room.slots)
    total = int(np.add.reduce(wanted[low:high]))
    if total >= size:
        _place(room.with_slots(wanted), run, size, counts)
        return
    counts[low:high] += wanted[low:high]
    _place(room.with_slots(room.slots - wanted), run, size - total, counts)


def _place(room: SlotRoom, run: Run, size: int, counts: IntArray) -> None:
    """Descend from a run that holds `size` members to the nodes, adding to `counts`."""
    # Ten members, racks with 16, 12 and 8 slots: 12 is entered, as the least that holds them. Its nodes have 4 each and
    # none holds ten: two are taken whole, and the rest of two goes into one more node.
    low, high, level = run
    innermost = len(room.fleet.levels) - 1
    while size and level < innermost:
        level += 1
        starts = room.fleet.run_starts[level]
        offset = int(np.searchsorted(starts, low)) if low else 0
        until = int(np.searchsorted(starts, high)) if high < len(room.slots) else len(starts)
        sums = room.run_sums(level)[offset:until]
        holding = (sums >= size).nonzero()[0]
        if not len(holding):
            full, last, size = _split(room, level, offset, sums, size)
            for index in full.tolist() if level < innermost else ():
                at = _run_at(room.fleet, level, index)
                counts[at[0] : at[1]] += room.slots[at[0] : at[1]]
            if level == innermost:
                counts[full] += room.slots[full]
            if last < 0:
                return
        else:
            last = _best_run(room, level, holding + offset, size)
        low, high, level = _run_at(room.fleet, level, last)
    if size:
        counts[low] += size


def _split(room: SlotRoom, level: int, offset: int, sums: IntArray, size: int) -> tuple[IntArray, int, int]:
    """Fewest runs, fullest first: those taken whole, the one for the rest (-1: none), and the rest.

    Eight members over runs of 5, 4 and 3: the 5 is taken whole. The rest of three fits the 3 exactly; the 4, though
    next in order, would be broken into.
    """
    runs = sums.nonzero()[0]
    if room.unasked or not room.fleet.walk_trivial:
        keys = [room.fleet.domain_by_run[level][runs + offset]]
        keys += [_reduce(room.fleet, amount, level)[runs + offset] for amount in reversed(room.unasked)]
        order = runs[np.lexsort([*keys, -sums[runs]])]
    else:
        # Nodes stand in the file as in the network, so runs are in the order of their domains: a stable sort
        # breaks ties as the key would.
        order = runs[(-sums[runs]).argsort(kind="stable")]
    filled = sums[order].cumsum()
    whole = int(filled.searchsorted(size, side="right"))
    rest = size - (int(filled[whole - 1]) if whole else 0)
    if not rest:
        return order[:whole] + offset, -1, 0
    left = order[whole:]
    # Never empty: the next run in order would have filled up beyond the size.
    holding = left[sums[left] >= rest]
    return order[:whole] + offset, _best_run(room, level, holding + offset, rest), rest


def _place_groups(room: SlotRoom, role: RoleForm, run: Run, size: int, counts: IntArray) -> int:
    """Place whole groups over the runs of the segment's level; the answer is the run of a smaller last group."""
    fleet, level = room.fleet, role.segment_level
    run = _narrow_for_groups(room, role, run, size)
    starts = fleet.run_starts[level]
    offset, until = np.searchsorted(starts, run[0]), np.searchsorted(starts, run[1])
    sums = room.run_sums(level)[offset:until].copy()
    groups, rest = divmod(size, role.segment_size)
    # Best fit by the first kind that is asked for, which is devices if any; without one, by slots.
    left_over = _reduce(fleet, room.asked[0], level)[offset:until] if room.asked else sums
    given = _split_groups(sums // role.segment_size, left_over, groups)
    left = sums - given * role.segment_size
    last = -1
    if rest:
        holding = np.flatnonzero(left >= rest)
        # The smaller group joins a domain that is in use anyway, if one has room: that is one domain less to share.
        used = holding[given[holding] > 0]
        holding = used if len(used) else holding
        last = int(holding[np.argmin(left[holding])])
    for index in np.flatnonzero((given > 0) | (np.arange(len(given)) == last)).tolist():
        members = int(given[index]) * role.segment_size + (rest if index == last else 0)
        _place_preferred(room, _run_at(fleet, level, int(offset) + index), members, counts)
    return int(offset) + last if last >= 0 else -1


def _narrow_for_groups(room: SlotRoom, role: RoleForm, run: Run, size: int) -> Run:
    """Go down while one run of the next level holds all groups."""
    # Tighter is better as long as nobody is split; below the segment's own level the groups take care of themselves.
    while run[2] + 1 <= role.segment_level:
        level = run[2] + 1
        capability = compute_capability(room.fleet, room, role, level)
        starts = room.fleet.run_starts[level]
        inside = np.flatnonzero((starts >= run[0]) & (starts < run[1]) & (capability >= size))
        if not len(inside):
            break
        run = _run_at(room.fleet, level, _best_run(room, level, inside, size))
    return run


def _split_groups(capacity: IntArray, room: IntArray, groups: int) -> IntArray:
    """Fewest runs, fullest first, the rest where the least room is left."""
    given = np.zeros_like(capacity)
    order = np.argsort(-capacity, kind="stable")
    filled = np.cumsum(capacity[order])
    whole = int(np.searchsorted(filled, groups, side="right"))
    given[order[:whole]] = capacity[order[:whole]]
    rest = groups - int(given.sum())
    if rest:
        left = order[whole:]
        holding = left[capacity[left] >= rest]
        # Not the next in order but the one with the least room, as in `_split`.
        given[holding[np.argmin(room[holding])]] = rest
    return given

"""Vectorised arithmetic against plain readings of the same sentence."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.engine.kernels.devices import choose_devices
from phalanx.engine.kernels.fill import SlotRoom, choose_nodes, compute_capability
from phalanx.engine.kernels.lanes import LaneTable, cut_lanes, find_earliest_reference, trace_lanes
from phalanx.engine.kernels.release import NEVER, find_release, find_release_by_domain
from phalanx.engine.kernels.slots import compile_need, compute_slots, count_slots_reference
from phalanx.engine.room.packing import BudgetSpent, PackingProblem, Part, Search, node_holds, pack_devices
from phalanx.model.fleet import Fleet, Node
from phalanx.model.form import RoleForm
from phalanx.model.gang import Shape

ROOMS = st.sampled_from([0, 250, 300, 500, 700, 1000, 1000])
SHAPES = st.sampled_from(
    [
        (("gpu", 1000),),
        (("gpu", 2000),),
        (("gpu", 3000),),
        (("gpu", 250),),
        (("gpu", 300),),
        (("gpu", 500),),
        (("cpu", 2000),),
        (("cpu", 1000), ("gpu", 1000)),
        (("cpu", 3000), ("gpu", 500)),
        (("cpu", 1500), ("memory", 7)),
        (("gpu", 1000), ("nic", 1000)),
    ]
)


def make_fleet(count, devices=4, levels=()):
    nodes = [Node(f"n{i}", {"gpu": devices * 1000, "cpu": 8000, "memory": 64}) for i in range(count)]
    return Fleet(nodes, levels)


# ---------------------------------------------------------------------- slots and devices


@st.composite
def rooms(draw):
    """Free amounts and free devices of a few nodes, in agreement with each other."""
    count = draw(st.integers(1, 4))
    devices = np.array([draw(st.lists(ROOMS, min_size=4, max_size=4)) for _ in range(count)], dtype=np.int16)
    fleet = make_fleet(count)
    free = np.zeros((count, len(fleet.kinds)), dtype=np.int64)
    free[:, fleet.kind_index["gpu"]] = devices.sum(axis=1, dtype=np.int64)
    free[:, fleet.kind_index["cpu"]] = [draw(st.integers(0, 8)) * 1000 for _ in range(count)]
    free[:, fleet.kind_index["memory"]] = [draw(st.integers(0, 64)) for _ in range(count)]
    return fleet, free, devices


@given(room=rooms(), shape=SHAPES)
def test_slots_are_members_put_in_one_by_one(room, shape):
    fleet, free, devices = room
    need = compile_need(fleet, Shape(shape))
    slots = compute_slots(need, free, devices, fleet.device_column, shared=True)
    for node in range(len(fleet)):
        plain = count_slots_reference(need, free[node].tolist(), devices[node].tolist(), fleet.device_column)
        assert slots[node] == plain
    if not need.share and set(devices.ravel().tolist()) <= {0, 1000}:
        assert slots.tolist() == compute_slots(need, free, devices, fleet.device_column, shared=False).tolist()


@given(room=rooms(), shape=SHAPES, rng=st.randoms(use_true_random=False))
def test_devices_are_given_whole_or_as_shares_of_one(room, shape, rng):
    fleet, free, devices = room
    need = compile_need(fleet, Shape(shape))
    slots = compute_slots(need, free, devices, fleet.device_column, shared=True)
    nodes = np.flatnonzero(slots)
    counts = np.array([rng.randint(1, int(slots[node])) for node in nodes], dtype=np.int64)
    taken = choose_devices(fleet, need, nodes, counts, devices[nodes])
    each = need.share or need.whole * 1000
    assert taken.sum(axis=1).tolist() == (counts * each).tolist()
    assert (taken <= devices[nodes]).all()
    assert (taken % (need.share or 1000) == 0).all()
    if need.whole:
        assert (devices[nodes][taken > 0] == 1000).all()


@given(
    whole=st.lists(st.booleans(), min_size=8, max_size=8),
    each=st.integers(1, 4),
    count=st.integers(1, 3),
    islands=st.sampled_from([((0, 1, 2, 3), (4, 5, 6, 7)), ((0, 4), (1, 5), (2, 6), (3, 7)), ((0, 1, 2),)]),
)
def test_a_members_devices_come_from_one_island_where_they_fit(whole, each, count, islands):
    fleet = Fleet([Node("n0", {"gpu": 8000}, islands=islands)], ())
    need = compile_need(fleet, Shape((("gpu", each * 1000),)))
    devices = np.array([[1000 if free else 0 for free in whole]], dtype=np.int16)
    if sum(whole) < each * count:
        return
    taken = choose_devices(fleet, need, np.array([0]), np.array([count]), devices)[0]
    assert int(taken.sum()) == each * count * 1000
    assert (taken <= devices[0]).all()
    rest = [device for device in range(8) if not any(device in island for island in islands)]
    room = [sum(whole[device] for device in island) for island in (*islands, rest)]
    if count == 1 and max(room) >= each:
        used = {int(device) for device in np.flatnonzero(taken)}
        assert any(used <= set(island) for island in (*islands, tuple(rest)))


# ---------------------------------------------------------------------- nodes


@st.composite
def fills(draw):
    """A fleet with levels, slots on its nodes, and one role to place."""
    levels = draw(st.sampled_from([(), ("rack",), ("block", "rack")]))
    count = draw(st.integers(1, 7))
    nodes = []
    for index in range(count):
        labels = {level: draw(st.sampled_from("xyz")) for level in levels}
        nodes.append(Node(f"n{index}", {"gpu": 8000}, labels))
    fleet = Fleet(nodes, levels)
    slots = np.array([draw(st.integers(0, 4)) for _ in range(count)], dtype=np.int64)
    level = st.integers(-1, len(levels))
    size, segment = draw(st.integers(1, 10)), draw(st.sampled_from([0, 0, 1, 2, 3]))
    role = RoleForm(Shape((("gpu", 1000),)), draw(level), draw(level), segment, draw(level) if segment else -1, 0)
    if segment and role.segment_level < 0:
        role = RoleForm(role.shape, role.require, role.prefer, segment, len(levels), 0)
    return fleet, slots, role, size


def list_fillings(slots, size):
    """Every way to spread `size` equal members over nodes with these slots."""
    ranges = [range(int(room) + 1) for room in slots]
    return (way for way in itertools.product(*ranges) if sum(way) == size)


def holds(fleet, role, size, way):
    """The role's hard wishes, read plainly: one required domain, and groups that can be cut out of each domain."""
    nodes = [node for node, members in enumerate(way) if members]
    if role.require >= 0 and len({int(fleet.domains[role.require][node]) for node in nodes}) > 1:
        return False
    if role.segment_size <= 1:
        return True
    by_domain: dict[int, int] = {}
    for node in nodes:
        domain = int(fleet.domains[role.segment_level][node])
        by_domain[domain] = by_domain.get(domain, 0) + way[node]
    rest = size % role.segment_size
    odd = [members % role.segment_size for members in by_domain.values() if members % role.segment_size]
    return odd in ([], [rest]) and sum(odd) % role.segment_size == rest % role.segment_size


@given(case=fills())
def test_nodes_are_chosen_exactly_when_some_choice_exists(case):
    fleet, slots, role, size = case
    ways = [way for way in list_fillings(slots, size) if holds(fleet, role, size, way)]
    chosen = choose_nodes(SlotRoom(fleet, slots[fleet.walk], [], [slots[fleet.walk]]), role, size)
    assert (chosen is not None) == bool(ways)
    capability = compute_capability(
        fleet, SlotRoom(fleet, slots[fleet.walk], [], [slots[fleet.walk]]), role, role.require
    )
    assert (int(capability.max(initial=0)) >= size) == bool(ways)
    if chosen is None:
        return
    nodes, counts = (column.tolist() for column in chosen)
    assert sum(counts) == size
    assert min(counts) > 0
    way = [0] * len(fleet)
    for node, members in zip(nodes, counts, strict=True):
        way[node] += members
    assert all(members <= room for members, room in zip(way, slots.tolist(), strict=True))
    assert holds(fleet, role, size, way)


@given(case=fills())
def test_one_domain_of_the_preferred_level_is_used_if_one_holds_everybody(case):
    fleet, slots, role, size = case
    level = max(role.require, role.prefer)
    chosen = choose_nodes(SlotRoom(fleet, slots[fleet.walk], [], [slots[fleet.walk]]), role, size)
    if chosen is None or level < 0 or role.segment_size > 1:
        return
    sums = np.bincount(fleet.domains[level], weights=slots)
    if sums.max() >= size:
        assert len(set(fleet.domains[level][chosen[0]].tolist())) == 1


@given(case=fills(), rng=st.randoms(use_true_random=False))
def test_preferred_slots_are_used_before_any_other(case, rng):
    """What is reserved but idle, or busy now, comes first inside the domain that was chosen."""
    fleet, slots, role, size = case
    first = np.array([rng.randint(0, int(room)) for room in slots], dtype=np.int64)
    plain = choose_nodes(SlotRoom(fleet, slots[fleet.walk], [], [slots[fleet.walk]]), role, size)
    chosen = choose_nodes(SlotRoom(fleet, slots[fleet.walk], [], [slots[fleet.walk]], first[fleet.walk]), role, size)
    assert (plain is None) == (chosen is None)
    if chosen is None or role.segment_size > 1 or max(role.require, role.prefer) >= 0:
        return
    counts = np.zeros(len(fleet), dtype=np.int64)
    counts[chosen[0]] = chosen[1]
    assert int(np.minimum(counts, first).sum()) == min(size, int(first.sum()))


# ---------------------------------------------------------------------- instants


@st.composite
def futures(draw):
    """Nodes with something running on them, and what is asked for."""
    levels = ("rack",)
    count = draw(st.integers(1, 4))
    nodes = [Node(f"n{i}", {"gpu": 4000, "cpu": 8000}, {"rack": draw(st.sampled_from("xy"))}) for i in range(count)]
    fleet = Fleet(nodes, levels)
    free = fleet.capacity.copy()
    ends = []
    for _ in range(draw(st.integers(0, 8))):
        node = draw(st.integers(0, count - 1))
        taken = [draw(st.integers(0, 2)) * 1000, draw(st.integers(0, 3)) * 1000]
        if all(units <= room for units, room in zip(taken, free[node].tolist(), strict=True)):
            free[node] -= taken
            ends.append((node, draw(st.integers(1, 5)) * 10, taken))
    shape = draw(
        st.sampled_from([(("gpu", 1000),), (("gpu", 2000),), (("cpu", 2000), ("gpu", 1000)), (("cpu", 3000),)])
    )
    mask = np.array([draw(st.booleans()) or index == 0 for index in range(count)])
    return fleet, free, ends, Shape(shape), mask, draw(st.integers(1, 8))


def scan(fleet, free, ends, need, mask, at):
    """Slots per node once everything that ends by an instant is gone."""
    room = free.copy()
    for node, end, taken in ends:
        if end <= at:
            room[node] += taken
    return compute_slots(need, room, fleet.device_capacity, fleet.device_column, shared=False) * mask


@given(future=futures())
def test_the_release_is_the_first_instant_of_a_plain_scan(future):
    fleet, free, ends, shape, mask, size = future
    need = compile_need(fleet, shape)
    slots = scan(fleet, free, (), need, mask, 0)
    columns = (
        np.array([node for node, _, _ in ends], dtype=np.int64),
        np.array([end for _, end, _ in ends], dtype=np.int64),
        np.array([taken for _, _, taken in ends], dtype=np.int64).reshape(-1, len(fleet.kinds)),
    )
    instants = sorted({end for _, end, _ in ends})
    if int(slots.sum()) < size:
        fits = [at for at in instants if int(scan(fleet, free, ends, need, mask, at).sum()) >= size]
        found, extra = find_release(need, slots, mask, free, columns, size)
        assert found == min(fits, default=NEVER)
        if fits:
            assert extra == int(scan(fleet, free, ends, need, mask, found).sum()) - size
    domains = fleet.domains[0]
    if max(np.bincount(domains, weights=slots)) < size:
        fits = [
            at for at in instants if max(np.bincount(domains, weights=scan(fleet, free, ends, need, mask, at))) >= size
        ]
        assert find_release_by_domain(need, slots, mask, free, columns, size, domains) == min(fits, default=NEVER)


@given(
    steps=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    cut=st.tuples(st.integers(0, 6), st.integers(1, 4)),
    size=st.integers(1, 5),
    length=st.integers(1, 4),
)
def test_lanes_say_how_much_is_free_throughout(steps, cut, size, length):
    """Slots that change at 0, 1, 2, …; a window cut out of them; and the first start that lasts."""
    times = list(range(len(steps)))
    window = (cut[0], cut[0] + cut[1])
    lanes = cut_lanes(trace_lanes(times, steps), *window)

    def least(at, until):
        spoilt = at < window[1] and window[0] < until
        return 0 if spoilt else min(steps[min(t, len(steps) - 1)] for t in range(at, until))

    table = LaneTable()
    table.replace(np.ones(1, dtype=np.bool_), {0: lanes})
    for at in range(12):
        assert int(table.slots_over(at, length, 1)[0]) == least(at, at + length), (lanes, at)
    starts = [at for at in range(20) if least(at, at + length) >= size]
    found = table.find_earliest(size, length)
    assert found == (starts[0] if starts else NEVER)
    assert found == find_earliest_reference(lanes, size, length)


# ---------------------------------------------------------------------- exact search


def test_devices_are_packed_exactly_when_they_fit():
    """Every multiset of rooms and shares on three devices, against every assignment."""
    rooms_ = list(itertools.combinations_with_replacement((0, 300, 500, 1000), 3))
    asked = [s for n in range(4) for s in itertools.combinations_with_replacement((700, 500, 300), n)]
    for devices, shares, whole in itertools.product(rooms_, asked, (0, 1)):
        packed = pack_devices(devices, whole, shares)
        assert (packed is not None) == packs(devices, shares, whole), (devices, shares, whole)
        if packed is not None:
            left = list(devices)
            for device in packed[0]:
                assert left[device] == 1000
                left[device] = 0
            for share, device in zip(shares, packed[1], strict=True):
                left[device] -= share
            assert min(left) >= 0


def packs(devices, shares, whole):
    for given_whole in itertools.permutations([d for d, room in enumerate(devices) if room == 1000], whole):
        for homes in itertools.product(range(len(devices)), repeat=len(shares)):
            left = [0 if d in given_whole else room for d, room in enumerate(devices)]
            for share, device in zip(shares, homes, strict=True):
                left[device] -= share
            if min(left) >= 0:
                return True
    return False


def draw_question(rng):
    fleet = make_fleet(rng.randint(1, 3), devices=2)
    count = len(fleet)
    parts = []
    for _ in range(rng.randint(1, 3)):
        need = compile_need(
            fleet, Shape(rng.choice([(("gpu", 1000),), (("gpu", 500),), (("gpu", 300),), (("cpu", 3000),)]))
        )
        grouped = rng.randint(1, 3) == 1
        domain = tuple(sorted(rng.randint(0, 1) for _ in range(count))) if grouped else tuple(range(count))
        nodes = frozenset(at for at in range(count) if rng.randint(1, 5) > 1)
        parts.append(Part(need, rng.randint(1, 3), rng.randint(2, 3) if grouped else 1, nodes, domain))
    devices = [tuple(rng.choice([0, 500, 1000, 1000]) for _ in range(2)) for _ in range(count)]
    free = [(sum(row), rng.randint(0, 8) * 1000, 64) for row in devices]
    return PackingProblem(free, devices, fleet.device_column, tuple(parts))


def solvable(question):
    """Every table of members by part and node, with groups cut out of each domain."""
    count = len(question.free)
    options = []
    for part in question.parts:
        ranges = [range(part.size + 1) if at in part.nodes else range(1) for at in range(count)]
        options.append([row for row in itertools.product(*ranges) if sum(row) == part.size and groups_hold(part, row)])
    for rows in itertools.product(*options):
        if all(node_holds(question, at, tuple(row[at] for row in rows)) for at in range(count)):
            return True
    return False


def groups_hold(part, row):
    held: dict[int, int] = {}
    for at, members in enumerate(row):
        held[part.domain[at]] = held.get(part.domain[at], 0) + members
    odd = [members % part.group for members in held.values() if members % part.group]
    return odd in ([], [part.size % part.group]) and sum(odd) % part.group == part.size % part.group


@pytest.mark.parametrize("batch", range(4))
def test_the_search_finds_a_way_exactly_when_there_is_one(batch):
    for case in range(100):
        question = draw_question(random.Random(f"search {batch} {case}"))
        found = Search(question, 100_000).solve()
        assert (found is not None) == solvable(question), (batch, case)
        for at, counts in enumerate(found or ()):
            assert node_holds(question, at, counts)


def test_a_search_without_steps_says_that_it_does_not_know():
    question = draw_question(random.Random("search 0 3"))
    with pytest.raises(BudgetSpent):
        Search(question, 1).solve()

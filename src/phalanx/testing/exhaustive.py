"""Where gangs could go, by trying everything: member by member, node by node, device by device.

Plain Python over plain values, and nothing of the engine: this is the judge of "we place a gang exactly
when a placement exists". Two members that nobody could tell apart are tried in one order only, and a
situation that was found hopeless is not tried again; no other cleverness. For clusters of a few nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phalanx.control.state import State
from phalanx.model.fleet import Fleet, Node
from phalanx.model.gang import Gang, Role, Shape
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.topology import NODE_LEVEL, Topology

Tray = tuple[tuple[tuple[str, int], ...], tuple[int, ...]]  # free amounts of other kinds, free thousandths of devices


@dataclass(frozen=True, slots=True)
class Board:
    """The nodes that may be used, with what is free on them."""

    nodes: tuple[Node, ...]
    levels: tuple[str, ...]
    trays: tuple[Tray, ...]

    def domain(self, level: str, node: int) -> tuple[object, ...]:
        """A domain by its whole path; a node without the label is alone."""
        path: list[object] = []
        for name in self.levels:
            path.append(self.nodes[node].labels.get(name, ("alone", node)))
            if name == level:
                return tuple(path)
        return (*path, node)


def read_board(state: State) -> Board:
    """What is free now on the nodes in service."""
    usable = state.nodes.up & state.nodes.open & ~state.fleet.spare
    return board_of(state.fleet, state.nodes.free.tolist(), state.nodes.device_free.tolist(), usable.tolist())


def empty_board(fleet: Fleet) -> Board:
    """Every node, empty."""
    rows = zip(fleet.capacity.tolist(), fleet.device_capacity.tolist(), strict=True)
    return Board(
        fleet.nodes, fleet.levels[:-1], tuple(_tray(fleet, free, devices, usable=True) for free, devices in rows)
    )


def board_of(fleet: Fleet, free: Sequence[list[int]], devices: Sequence[list[int]], usable: Sequence[bool]) -> Board:
    """Nodes with so much free on them; those that are not usable offer nothing."""
    rows = zip(free, devices, usable, strict=True)
    trays = tuple(_tray(fleet, amounts, room, usable=here) for amounts, room, here in rows)
    return Board(fleet.nodes, fleet.levels[:-1], trays)


def _tray(fleet: Fleet, free: list[int], devices: list[int], *, usable: bool) -> Tray:
    amounts = tuple((kind, units) for kind, units in zip(fleet.kinds, free, strict=True) if kind != DEVICE_KIND)
    # Which device is which makes no difference to what fits, so devices are kept in order of their room.
    return (amounts, tuple(sorted(devices))) if usable else ((), ())


@dataclass(frozen=True, slots=True)
class _Seat:
    """One member to be seated, with what ties it to others."""

    shape: Shape
    scopes: tuple[tuple[str, tuple[object, ...]], ...]  # (level, who): all with this name inside one domain of it
    twin: bool  # interchangeable with the member before it


def find_any(board: Board, gangs: Sequence[Gang], sizes: Sequence[Sequence[int]] | None = None) -> list[int] | None:
    """Nodes of all members in order, for gangs that start at once; None if there is no way.

    Every role is at its least unless sizes are given.
    """
    if sizes is None:
        sizes = [[role.sizes.least for role in gang.roles] for gang in gangs]
    seats = [seat for g, gang in enumerate(gangs) for seat in _seats_of(g, gang, sizes[g])]
    return _Trial(board, seats).solve()


def _seats_of(g: int, gang: Gang, sizes: Sequence[int]) -> Iterator[_Seat]:
    for r, (role, size) in enumerate(zip(gang.roles, sizes, strict=True)):
        for rank in range(size):
            yield _Seat(role.shape, tuple(_scopes(g, gang, r, role, rank)), twin=_is_twin(gang, role, rank))


def _scopes(g: int, gang: Gang, r: int, role: Role, rank: int) -> Iterator[tuple[str, tuple[object, ...]]]:
    if gang.topology.require:
        yield gang.topology.require, ("gang", g)
    if role.topology.require:
        yield role.topology.require, ("role", g, r)
    segment = role.topology.segment or gang.topology.segment
    if segment:
        yield segment.level, ("segment", g, r, rank // segment.size)


def _is_twin(gang: Gang, role: Role, rank: int) -> bool:
    segment = role.topology.segment or gang.topology.segment
    return rank > 0 and (segment is None or rank % segment.size > 0)


class _Trial:
    """One question."""

    def __init__(self, board: Board, seats: Sequence[_Seat]) -> None:
        self.board, self.seats = board, seats
        self._hopeless: set[tuple[object, ...]] = set()
        self._nodes: list[int] = []

    def solve(self) -> list[int] | None:
        return self._nodes if self._seat(0, self.board.trays, {}) else None

    def _seat(self, index: int, trays: tuple[Tray, ...], scopes: dict[tuple[object, ...], tuple[object, ...]]) -> bool:
        if index == len(self.seats):
            return True
        seat = self.seats[index]
        key = (index, trays, tuple(scopes.items()), self._nodes[-1] if seat.twin else -1)
        if key in self._hopeless:
            return False
        first = self._nodes[-1] if seat.twin else 0
        for node in range(first, len(trays)):
            bound = self._enter(seat, node, scopes)
            if bound is None:
                continue
            for tray in _put(trays[node], seat.shape):
                self._nodes.append(node)
                if self._seat(index + 1, (*trays[:node], tray, *trays[node + 1 :]), bound):
                    return True
                self._nodes.pop()
        self._hopeless.add(key)
        return False

    def _enter(
        self, seat: _Seat, node: int, scopes: dict[tuple[object, ...], tuple[object, ...]]
    ) -> dict[tuple[object, ...], tuple[object, ...]] | None:
        """The domains that are settled once this member sits there; None if it may not."""
        if not _welcome(self.board.nodes[node], seat.shape):
            return None
        bound = dict(scopes)
        for level, who in seat.scopes:
            domain = self.board.domain(level, node)
            if bound.setdefault(who, domain) != domain:
                return None
        return bound


def _welcome(node: Node, shape: Shape) -> bool:
    labels = {NODE_LEVEL: node.name, **node.labels}
    tolerated = all(taint in shape.tolerate for taint in node.taints)
    return tolerated and all(labels.get(label) in values for label, values in shape.select)


def _put(tray: Tray, shape: Shape) -> Iterator[Tray]:
    """Every way to put one member on a node: one per device that could carry its share."""
    amounts, devices = dict(tray[0]), list(tray[1])
    for kind, units in shape.need:
        if kind != DEVICE_KIND:
            if amounts.get(kind, 0) < units:
                return
            amounts[kind] -= units
    left, each = tuple(amounts.items()), shape.amount(DEVICE_KIND)
    if each == 0:
        yield left, tray[1]
    elif each < MILLI:
        for room in sorted({room for room in devices if room >= each}):
            rest = list(devices)
            rest[rest.index(room)] -= each
            yield left, tuple(sorted(rest))
    elif devices.count(MILLI) >= each // MILLI:
        # Untouched devices are all alike, and sorted to the end.
        yield left, tuple(sorted([*devices[: len(devices) - each // MILLI], *[0] * (each // MILLI)]))


# ---------------------------------------------------------------------- distance


def measure_distance(board: Board, level: str, nodes: Sequence[int]) -> tuple[int, int]:
    """How far apart members sit: domains of the preferred level, then nodes."""
    return len({board.domain(level, node) for node in nodes}), len(set(nodes))


def find_nearest(board: Board, role: Role, topology: Topology, size: int) -> tuple[int, int] | None:
    """The least distance at which one role of whole devices or plain amounts can sit, over all sets of nodes."""
    slots = [_count(board, node, role.shape) for node in range(len(board.nodes))]
    best: tuple[int, int] | None = None
    for mask in range(1, 1 << len(slots)):
        nodes = [node for node in range(len(slots)) if mask >> node & 1]
        if sum(slots[node] for node in nodes) < size or min(slots[node] for node in nodes) == 0:
            continue
        if topology.require and len({board.domain(topology.require, node) for node in nodes}) > 1:
            continue
        distance = measure_distance(board, topology.prefer or NODE_LEVEL, nodes)
        best = distance if best is None else min(best, distance)
    return best


def _count(board: Board, node: int, shape: Shape) -> int:
    if not _welcome(board.nodes[node], shape):
        return 0
    tray, count = board.trays[node], 0
    while count < 64:
        ways = list(_put(tray, shape))
        if not ways:
            return count
        tray, count = ways[0], count + 1
    return count

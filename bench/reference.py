"""Placement of one role in plain Python: lists, dictionaries and loops, as one would explain it.

The rule is that of `engine.kernels.fill`, and none of its code is used. It covers gangs of one role
without groups, whole devices and shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from phalanx.model.fleet import Fleet
from phalanx.model.gang import Shape

WHOLE = 1000
TENTH = 100


@dataclass(frozen=True, slots=True)
class Ask:
    """Members of one shape; levels by index, -1 for none."""

    shape: Shape
    size: int
    require: int
    prefer: int


class Plain:
    """A cluster as lists, with the slots of one shape counted."""

    def __init__(
        self, fleet: Fleet, free: Sequence[Sequence[int]], devices: Sequence[Sequence[int]], shape: Shape
    ) -> None:
        """`free` by node and kind, `devices` by node and device."""
        self.path = list(zip(*(column.tolist() for column in fleet.domains), strict=True))
        self.labels = [node.labels for node in fleet.nodes]
        self.free = [dict(zip(fleet.kinds, row, strict=True)) for row in free]
        self.devices = devices
        self.asked = dict(shape.need)
        self.kinds = fleet.kinds
        self.unasked = sorted((kind for kind in fleet.kinds if kind not in self.asked), key=lambda kind: kind != "gpu")
        self.slots = [self._count(shape, node) for node in range(len(self.path))]
        self._domains: dict[int, dict[int, list[int]]] = {}

    def _count(self, shape: Shape, node: int) -> int:
        if any(self.labels[node].get(label) not in values for label, values in shape.select):
            return 0
        room = []
        for kind, units in shape.need:
            if kind != "gpu":
                room.append(self.free[node][kind] // units)
            elif units < WHOLE:
                room.append(sum(milli // units for milli in self.devices[node]))
            else:
                room.append(sum(milli == WHOLE for milli in self.devices[node]) // (units // WHOLE))
        return min(room)

    def domains(self, level: int) -> dict[int, list[int]]:
        """Nodes by domain of a level."""
        if level not in self._domains:
            found: dict[int, list[int]] = {}
            for node, path in enumerate(self.path):
                found.setdefault(path[level], []).append(node)
            self._domains[level] = found
        return self._domains[level]

    def room(self, nodes: Iterable[int]) -> int:
        """Members that these nodes hold together."""
        return sum(self.slots[node] for node in nodes)

    def rest(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """What these nodes have free of kinds that are not asked for, devices first."""
        return tuple(sum(self.free[node][kind] for node in nodes) for kind in self.unasked)

    def left(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """What these nodes have free of kinds that are asked for; of a share, first what its device has left."""
        amounts = [sum(self.free[node][kind] for node in nodes) for kind in self.kinds if kind in self.asked]
        share = self.asked.get("gpu", WHOLE)
        if share < WHOLE:
            tightest = (min((m for m in self.devices[node] if m >= share), default=WHOLE + 1) for node in nodes)
            amounts.insert(0, sum(tightest))
        return tuple(amounts)

    def stranded(self, node: int, members: int) -> int:
        """Tenths of devices that these members would leave without cores or memory on a node."""
        if "gpu" not in self.asked:
            return 0
        has, wanted = self.free[node], members * self.asked["gpu"]
        used = [members * units * has["gpu"] // has[kind] for kind, units in self.asked.items() if kind != "gpu"]
        return max(0, *(gpu - wanted for gpu in used)) // TENTH if used else 0


def place_plainly(plain: Plain, ask: Ask) -> list[tuple[int, int]] | None:
    """(node, members) in rank order, or None if no domain of the required level holds them."""
    level = max(ask.require, ask.prefer)
    while level >= max(ask.require, 0):
        holding = [domain for domain, nodes in plain.domains(level).items() if plain.room(nodes) >= ask.size]
        if holding:
            parts = {domain: _parts(plain, plain.domains(level)[domain], ask) for domain in holding}
            holding = [domain for domain in holding if parts[domain] == min(parts.values())]
            best = _best(plain, level, holding, ask.size)
            nodes = plain.domains(level)[best]
            return _in_rank_order(plain, _descend(plain, max(level, ask.prefer - 1), nodes, ask.size))
        level -= 1
    everywhere = range(len(plain.path))
    if ask.require >= 0 or plain.room(everywhere) < ask.size:
        return None
    return _in_rank_order(plain, _descend(plain, max(-1, ask.prefer - 1), everywhere, ask.size))


def _parts(plain: Plain, nodes: Sequence[int], ask: Ask) -> int:
    """How many domains of the preferred level the members need inside these nodes, fullest first."""
    if ask.prefer < 0:
        return 0
    rooms: dict[int, int] = {}
    for node in nodes:
        rooms[plain.path[node][ask.prefer]] = rooms.get(plain.path[node][ask.prefer], 0) + plain.slots[node]
    used, left = 0, ask.size
    for room in sorted(rooms.values(), reverse=True):
        if left <= 0:
            break
        used, left = used + 1, left - room
    return used


def _best(plain: Plain, level: int, domains: Sequence[int], size: int) -> int:
    """Least of what is not asked for, between nodes then fewest devices stranded, least room, lowest domain."""
    inside = plain.domains(level)
    innermost = level == len(plain.path[0]) - 1

    def order(domain: int) -> tuple[object, ...]:
        stranded = plain.stranded(domain, size) if innermost else 0
        return plain.rest(inside[domain]), stranded, plain.left(inside[domain]), domain

    return min(domains, key=order)


def _descend(plain: Plain, level: int, nodes: Sequence[int], size: int) -> dict[int, int]:
    """Members by node: into one domain of the next level if one holds all, else over as few as possible."""
    if level == len(plain.path[0]) - 1:
        return {nodes[0]: size}
    level += 1
    inside = plain.domains(level)
    rooms = {domain: plain.room(inside[domain]) for domain in {plain.path[node][level] for node in nodes}}
    holding = [domain for domain, room in rooms.items() if room >= size]
    if holding:
        return _descend(plain, level, inside[_best(plain, level, holding, size)], size)
    placed: dict[int, int] = {}
    fullest = sorted(
        (domain for domain in rooms if rooms[domain]),
        key=lambda domain: (-rooms[domain], plain.rest(inside[domain]), domain),
    )
    while fullest and rooms[fullest[0]] <= size:
        domain = fullest.pop(0)
        placed.update({node: plain.slots[node] for node in inside[domain] if plain.slots[node]})
        size -= rooms[domain]
    if size:
        last = _best(plain, level, [domain for domain in fullest if rooms[domain] >= size], size)
        placed.update(_descend(plain, level, inside[last], size))
    return placed


def _in_rank_order(plain: Plain, placed: dict[int, int]) -> list[tuple[int, int]]:
    """Neighbours in rank are neighbours in the network."""
    return sorted(placed.items(), key=lambda item: (plain.path[item[0]], item[0]))

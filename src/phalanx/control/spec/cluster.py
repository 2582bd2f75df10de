"""The `cluster:` part: levels of the network and nodes."""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.control.spec.errors import show
from phalanx.control.spec.quantity import device_amount
from phalanx.control.spec.spot import Fields, Spot
from phalanx.model.fleet import Node
from phalanx.model.resources import DEVICE_KIND, MILLI
from phalanx.model.topology import NODE_LEVEL

CLUSTER_KEYS: Final = ("topology", "nodes")
NODE_KEYS: Final = ("name", "resources", "labels", "taints", "islands", "spare")

#: Devices are columns of the state, one per device of the largest node.
DEVICES_PER_NODE_MAX: Final = 10_000
NODES_MAX: Final = 200_000

#: Of one kind over all nodes, so that every sum the engine makes stays inside 64 bits.
TOTAL_MAX: Final = 1 << 62


def parse_cluster(spot: Spot) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """All nodes in the order written, and the levels above them, outermost first."""
    fields = spot.fields(CLUSTER_KEYS)
    levels = _parse_levels(fields.get("topology"))
    nodes: list[Node] = []
    where = fields.need("nodes", "a list of {name: a0, resources: {gpu: 8}}")
    seen: set[str] = set()
    for entry in where.items():
        # Expanded entry by entry and counted at once, so that one host list too many stops before it fills the memory.
        made = parse_nodes(entry.titled())
        for node in made:
            if node.name in seen:
                entry.titled().refuse(f"there is already a node {show(node.name)}; names are unique")
            seen.add(node.name)
        nodes += made
        if len(nodes) > NODES_MAX:
            where.refuse(f"must be at most {NODES_MAX:,} in all")
    if not nodes:
        where.refuse("must not be empty; a cluster has at least one node")
    _check_totals(nodes, where)
    return tuple(nodes), levels


def parse_nodes(entry: Spot) -> list[Node]:
    """The nodes of one entry: as many as its host list names, all alike."""
    fields = entry.fields(NODE_KEYS)
    # One entry for a thousand equal nodes: the file stays readable, and a typo in one of them cannot hide.
    names = fields.need("name", "name: a0, or a host list such as a[0-3]").hosts()
    resources = _parse_resources(fields.need("resources", "resources: {gpu: 8}"))
    labels = fields.get("labels")
    taints = fields.get("taints")
    islands = _parse_islands(fields, resources)
    label_texts = {key: value.text() for key, value in labels.pairs()} if labels else {}
    # Sorted, so that nodes with the same taints are equal however they were written.
    taint_texts = tuple(sorted({taint.text() for taint in taints.items_or_one()})) if taints else ()
    # The mappings are shared by all nodes of the entry: nobody changes a node in place.
    spare = fields.get("spare")
    is_spare = spare.boolean() if spare else False
    return [Node(name, resources, label_texts, taint_texts, islands, is_spare) for name in names]


def _parse_levels(spot: Spot | None) -> tuple[str, ...]:
    if spot is None:
        return ()
    words = [(item, item.text()) for item in spot.items_or_one()]
    # Only at the end: elsewhere it would put levels inside a node.
    if words and words[-1][1] == NODE_LEVEL:
        words.pop()  # it is always there, innermost; saying so does no harm
    for item, word in words:
        if word == NODE_LEVEL:
            item.refuse(f"{NODE_LEVEL} is always the innermost level; leave it out")
    twice = [word for word, count in Counter(word for _, word in words).items() if count > 1]
    if twice:
        spot.refuse(f"names the level {twice[0]} twice")
    return tuple(word for _, word in words)


def _parse_resources(spot: Spot) -> dict[str, int]:
    # Whole devices: half a GPU on a node is no device, though a member may ask for half of one.
    found = spot.amounts(device_amount)
    if found.get(DEVICE_KIND, 0) > DEVICES_PER_NODE_MAX * MILLI:
        spot.refuse(f"has more than {DEVICES_PER_NODE_MAX:,} devices on one node; describe several nodes")
    return found


def _parse_islands(fields: Fields, resources: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    spot = fields.get("islands")
    if spot is None:
        return ()
    count = resources.get(DEVICE_KIND, 0) // MILLI
    islands, seen = [], set()
    for island in spot.items():
        devices = []
        for item in island.items():
            device = item.integer(0, DEVICES_PER_NODE_MAX)
            if device >= count:
                item.refuse(f"names device {device}, and the node has {count} (0 to {count - 1})" if count else
                            f"names device {device}, and the node has none")  # fmt: skip
            # A device in two islands would be counted twice where members are packed into one.
            if device in seen:
                item.refuse(f"names device {device} twice; a device is in one island")
            seen.add(device)
            devices.append(device)
        islands.append(tuple(devices))
    return tuple(islands)


def _check_totals(nodes: list[Node], where: Spot) -> None:
    totals: Counter[str] = Counter()
    for node in nodes:
        # Over all nodes: each may be fine by itself, and sums over domains must not wrap around.
        totals.update(node.resources)
    for kind, total in totals.items():
        if total > TOTAL_MAX:
            where.refuse(f"have more {kind} in all than can be counted")

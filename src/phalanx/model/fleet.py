"""The machines: what each node is, as columns.

`Fleet` holds everything about the nodes that changes only when machines join, leave or are
relabelled, so it is built rarely and shared by every snapshot. What changes all the time
(free amounts, cordons, health) is in `model.snapshot`. Node index is the order of arrival and
the last tie-break everywhere; a removed node keeps its index and has no capacity.

Domains are identified by their whole path: rack `r0` of block `b0` is not rack `r0` of `b1`.
A node that lacks the label of a level is alone in a domain of its own there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from phalanx.model.resources import DEVICE_KIND, MILLI, units_per_whole
from phalanx.model.topology import ANYWHERE, NODE_LEVEL

# 64 bits for amounts and times, 16 for thousandths of a device: the device table has a column for every device of a
# node.
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
MilliArray = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Node:
    """One machine as the administrator describes it. Amounts are in engine units."""

    name: str
    resources: Mapping[str, int]  # engine units by kind
    labels: Mapping[str, str] = field(default_factory=dict)  # topology levels are labels too
    taints: tuple[str, ...] = ()  # whoever does not tolerate every one of them stays away
    islands: tuple[tuple[int, ...], ...] = ()  # devices that are close to each other
    spare: bool = False  # kept for repairs: nothing starts there


def list_labels(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Labels that any of them has."""
    return tuple(sorted({label for node in nodes for label in node.labels}))


@dataclass(frozen=True, slots=True, eq=False)
class Domains:
    """What nodes with one value of a label, or of a level, make up: a number for each node, -1 for those without."""

    codes: IntArray
    count: int
    single: bool  # whether no two nodes are in one

    def sum(self, amounts: IntArray | BoolArray) -> IntArray:
        """The sum over each domain."""
        inside = self.codes >= 0
        # Counts of members are far below what a float holds exactly.
        summed = np.bincount(self.codes[inside], weights=amounts[inside], minlength=self.count)
        return summed.astype(np.int64)

    def spread_to_nodes(self, flags: BoolArray) -> BoolArray:
        """What is true of each domain, said of its nodes; of nodes in none it is false."""
        said: BoolArray = np.append(flags, False)[self.codes]
        return said


class Fleet:
    """All nodes as columns. Immutable: `with_nodes` and `without_nodes` return a new one."""

    def __init__(self, nodes: Sequence[Node], levels: Sequence[str]) -> None:
        """Build the columns; kinds come out with devices first, then in order of appearance."""
        self.nodes = tuple(nodes)
        self.names = tuple(node.name for node in nodes)
        self.index_by_name = {name: index for index, name in enumerate(self.names)}
        self.levels = (*levels, NODE_LEVEL)
        # Devices first: ties between places are broken kind by kind in this order (rule 15, least fragmentation).
        self.kinds = _order_kinds(nodes)
        self.kind_index = {kind: column for column, kind in enumerate(self.kinds)}
        # Whose time is counted, in service and in costs: the devices where there are any (rule 13), else the first
        # kind that is counted in pieces. What the kind is called must not matter, only that it is the same one.
        pieces = [kind for kind in self.kinds if units_per_whole(kind) == MILLI]
        self.counted_kind = pieces[0] if pieces else DEVICE_KIND
        self.capacity = _capacity_columns(nodes, self.kinds)
        self.device_column = self.kind_index.get(DEVICE_KIND, -1)
        self.device_capacity = _device_columns(self.capacity, self.device_column)
        self.islands = {i: node.islands for i, node in enumerate(nodes) if node.islands}
        self.taints = tuple(sorted({taint for node in nodes for taint in node.taints}))  # of all of them
        self.spare = np.array([node.spare for node in nodes], dtype=np.bool_)
        self.domains = _domain_columns(nodes, levels)
        # Nodes sorted so that every domain of every level is one contiguous run: neighbours in
        # this order are neighbours in the network, and a sum per domain is one `reduceat`.
        keys = [np.arange(len(nodes)), *self.domains[::-1]]
        self.walk = np.lexsort(keys) if nodes else np.zeros(0, dtype=np.int64)
        self.walk_rank = np.empty_like(self.walk)
        self.walk_rank[self.walk] = np.arange(len(nodes))
        # Often the administrator lists nodes as they stand in the racks; then nothing has to be permuted.
        self.walk_trivial = bool((self.walk[1:] > self.walk[:-1]).all())
        self.run_starts = [_run_starts(column[self.walk]) for column in self.domains]
        self.domain_by_run = [
            column[self.walk][starts] for column, starts in zip(self.domains, self.run_starts, strict=True)
        ]
        self._labels: dict[str, tuple[IntArray, dict[str, int]]] = {}
        self._allowed: dict[tuple[object, ...], BoolArray] = {}
        self._domains_by: dict[str, Domains] = {}
        # Room for the engine to keep what it worked out about this fleet; never part of a plan.
        self.needs: dict[object, object] = {}
        self.verdicts: dict[object, int] = {}

    def __len__(self) -> int:
        """How many node indices there are, removed ones included."""
        return len(self.nodes)

    def level_index(self, level: str | None) -> int:
        """Index of a level by name, outermost 0; `ANYWHERE` for none."""
        return ANYWHERE if level is None else self.levels.index(level)

    def with_nodes(self, joining: Sequence[Node]) -> Fleet:
        """The fleet with more machines, or with some of it, removed or failed ones perhaps, described anew."""
        nodes = {node.name: node for node in self.nodes}
        # Known ones keep their place, and with it their index.
        nodes.update((node.name, node) for node in joining)
        return Fleet([*nodes.values()], self.levels[:-1])

    def without_nodes(self, gone: Iterable[int]) -> Fleet:
        """The fleet in which these machines have nothing to give, for good."""
        nodes = list(self.nodes)
        for index in gone:
            old = nodes[index]
            # It keeps its index, which seats, promises and ties speak of; without capacity nobody is ever placed there.
            nodes[index] = Node(old.name, {}, old.labels, old.taints)
        return Fleet(nodes, self.levels[:-1])

    def domains_by(self, by: str) -> Domains:
        """The domains of a level, by their whole path, or of any label."""
        found = self._domains_by.get(by)
        if found is None:
            codes = self.domains[self.levels.index(by)] if by in self.levels else self._label_column(by)[0]
            sizes = np.bincount(codes[codes >= 0])
            found = self._domains_by[by] = Domains(codes, len(sizes), bool((sizes <= 1).all()))
        return found

    def allowed(self, select: tuple[tuple[str, tuple[str, ...]], ...], tolerate: tuple[str, ...]) -> BoolArray:
        """Nodes whose labels and taints admit such a member, whatever their room."""
        key = (select, tolerate)
        found = self._allowed.get(key)
        if found is None:
            found = self._compute_allowed(select, tolerate)
            # Shared by every shape that selects the same: whoever wrote to it would change the answer for all.
            found.flags.writeable = False
            self._allowed[key] = found
        return found

    def _compute_allowed(self, select: tuple[tuple[str, tuple[str, ...]], ...], tolerate: tuple[str, ...]) -> BoolArray:
        accepted = frozenset(tolerate)
        mask = np.fromiter((accepted.issuperset(node.taints) for node in self.nodes), dtype=np.bool_, count=len(self))
        for label, values in select:
            codes, by_value = self._label_column(label)
            # Any of the values (rule 15, select); a value that no node has admits nobody.
            wanted = [by_value[value] for value in values if value in by_value]
            mask &= np.isin(codes, wanted)
        return mask

    def _label_column(self, label: str) -> tuple[IntArray, dict[str, int]]:
        """One label of all nodes as integer codes, -1 where absent. Built once per label."""
        if label not in self._labels:
            by_value: dict[str, int] = {}
            codes = np.full(len(self), -1, dtype=np.int64)
            for index, node in enumerate(self.nodes):
                # The node's name can be selected by, as if it were a label.
                value = node.name if label == NODE_LEVEL and label not in node.labels else node.labels.get(label)
                if value is not None:
                    codes[index] = by_value.setdefault(value, len(by_value))
            self._labels[label] = (codes, by_value)
        return self._labels[label]


def _order_kinds(nodes: Sequence[Node]) -> tuple[str, ...]:
    kinds = dict.fromkeys(kind for node in nodes for kind in node.resources)
    # A stable sort: everything but devices stays in order of appearance.
    return tuple(sorted(kinds, key=lambda kind: kind != DEVICE_KIND))


def _capacity_columns(nodes: Sequence[Node], kinds: Sequence[str]) -> IntArray:
    table = np.zeros((len(nodes), len(kinds)), dtype=np.int64)
    for row, node in enumerate(nodes):
        for column, kind in enumerate(kinds):
            table[row, column] = node.resources.get(kind, 0)
    return table


def _device_columns(capacity: IntArray, device_column: int) -> MilliArray:
    """One column per device slot: 1000 where the device exists, 0 where the node has fewer."""
    if device_column < 0 or not len(capacity):
        return np.zeros((len(capacity), 0), dtype=np.int16)
    count = capacity[:, device_column] // MILLI
    exists = np.arange(int(count.max()))[None, :] < count[:, None]
    return exists.astype(np.int16) * np.int16(MILLI)


def _domain_columns(nodes: Sequence[Node], levels: Sequence[str]) -> list[IntArray]:
    """Domain number of every node at every level, outermost first; the node itself last."""
    columns = []
    paths: list[tuple[str, ...]] = [() for _ in nodes]
    for level in levels:
        # Numbered as they appear, so that a domain's number follows its lowest node index, which ties break by.
        numbers: dict[tuple[str, ...], int] = {}
        # "\0" cannot stand in a label, so an unlabelled node's own domain meets no named one.
        paths = [
            (*path, node.labels.get(level, f"\0{index}"))
            for index, (path, node) in enumerate(zip(paths, nodes, strict=True))
        ]
        columns.append(np.array([numbers.setdefault(path, len(numbers)) for path in paths], dtype=np.int64))
    columns.append(np.arange(len(nodes), dtype=np.int64))
    return columns


def _run_starts(sorted_domains: IntArray) -> IntArray:
    if not len(sorted_domains):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.concatenate(([True], sorted_domains[1:] != sorted_domains[:-1])))

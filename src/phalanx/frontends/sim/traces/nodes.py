"""Tables of nodes for `--cluster`: a plain one of our own, and those that come with three published logs.

The plain one has a node, or a host list of equal nodes, in every row. `name` is needed; `gpu`,
`cpu`, `memory` and `slot` are amounts, and so is `resource:KIND` for any other kind; `taints` are
words with spaces between them; `level:NAME` is a label and a level of the network, the first such
column the outermost; `spare` is true for nodes kept for repairs. Every other column is a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from phalanx.control.spec.cluster import DEVICES_PER_NODE_MAX, NODES_MAX, TOTAL_MAX
from phalanx.control.spec.errors import BadInput, BadText, show
from phalanx.control.spec.hostlist import expand_hosts
from phalanx.control.spec.quantity import device_amount
from phalanx.frontends.sim.traces import openb
from phalanx.frontends.sim.traces.files import decode, read_bytes
from phalanx.frontends.sim.traces.table import CsvTable, check_word, parse_truth, parse_whole, read_rows
from phalanx.model.fleet import Node
from phalanx.model.resources import DEVICE_KIND, SLOT_KIND
from phalanx.model.topology import NODE_LEVEL

TIRESIAS: Final = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
SPOT: Final = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")

_AMOUNTS: Final = (DEVICE_KIND, "cpu", "memory", SLOT_KIND)
_RESOURCE, _LEVEL = "resource:", "level:"
_SWITCH: Final = "switch"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, and the levels of the network above them, outermost first."""

    nodes: tuple[Node, ...]
    levels: tuple[str, ...] = ()


def read_nodes(path: Path) -> Cluster:
    """The cluster that a table describes."""
    table = CsvTable(decode(read_bytes(path), str(path)), str(path))
    if not table.columns:
        raise BadInput("is empty; a table of nodes has a header such as name,gpu,cpu,memory", file=str(path))
    found = _find_reader(table.columns)(table)
    if not found.nodes:
        raise BadInput("holds no node below its header", file=str(path))
    _check_totals(found.nodes, str(path))
    return found


def is_table_of_nodes(columns: Sequence[str]) -> bool:
    """Whether a header is that of a table of nodes and of nothing else."""
    return any(set(names) <= set(columns) for names in (openb.NODES, TIRESIAS, SPOT))


def _find_reader(columns: Sequence[str]) -> Callable[[CsvTable], Cluster]:
    have = set(columns)
    if set(openb.NODES) <= have:
        return _read_openb
    if set(TIRESIAS) <= have:
        return _read_tiresias
    return _read_spot if set(SPOT) <= have else _read_plain


def _read_plain(table: CsvTable) -> Cluster:
    table.need(("name",))
    levels = tuple(column.removeprefix(_LEVEL) for column in table.columns if column.startswith(_LEVEL))
    if NODE_LEVEL in levels or "" in levels:
        raise table.fail(f"names the level {show(NODE_LEVEL if NODE_LEVEL in levels else '')}; {NODE_LEVEL} is implied")
    nodes: dict[str, Node] = {}
    with table.placing():
        for row in table.rows():
            _add(nodes, _plain_nodes(dict(zip(table.columns, row, strict=True))))
    return Cluster(tuple(nodes.values()), levels)


def _plain_nodes(row: dict[str, str]) -> list[Node]:
    """The nodes of one row; an empty cell says nothing."""
    resources: dict[str, int] = {}
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    spare = False
    for column, text in row.items():
        word = check_word(text, column)
        if column == "name" or not word:
            continue
        if column in _AMOUNTS or column.startswith(_RESOURCE):
            kind = column.removeprefix(_RESOURCE)
            resources[kind] = _amount(word, kind)
        elif column == "taints":
            taints = tuple(sorted(set(word.split())))
        elif column == "spare":
            spare = parse_truth("spare", word)
        else:
            labels[column.removeprefix(_LEVEL)] = word
    return [Node(name, resources, labels, taints, spare=spare) for name in _hosts(row["name"])]


def _read_tiresias(table: CsvTable) -> Cluster:
    """Switches times nodes, all alike; memory is in gibibytes."""
    nodes: list[Node] = []
    with table.placing():
        for row in read_rows(table, TIRESIAS):
            switches, per_switch, gpus, cores, memory = (parse_whole(cell, NODES_MAX * 100) for cell in row)
            if not 1 <= switches * per_switch <= NODES_MAX:
                raise BadText(f"must have 1 to {NODES_MAX:,} nodes (got {switches} switches of {per_switch})")
            resources = {
                DEVICE_KIND: _amount(str(gpus), DEVICE_KIND),
                "cpu": _amount(str(cores), "cpu"),
                "memory": _amount(f"{memory}Gi", "memory"),
            }
            nodes = [
                Node(f"n{index}", resources, {_SWITCH: f"s{index // per_switch}"})
                for index in range(switches * per_switch)
            ]
    return Cluster(tuple(nodes), (_SWITCH,))


def _read_openb(table: CsvTable) -> Cluster:
    nodes: dict[str, Node] = {}
    with table.placing():
        for node in openb.parse_nodes(table):
            _add(nodes, [Node(_host(node.name), node.resources, node.labels)])
    return Cluster(tuple(nodes.values()))


def _read_spot(table: CsvTable) -> Cluster:
    """Alibaba's spot cluster: model, devices and cores of every node."""
    nodes: dict[str, Node] = {}
    with table.placing():
        for name, model, gpus, cores in read_rows(table, SPOT):
            resources = {DEVICE_KIND: _amount(gpus, DEVICE_KIND), "cpu": _amount(cores, "cpu")}
            word = check_word(model, "gpu_model")
            _add(nodes, [Node(_host(f"n{name.strip()}"), resources, {openb.MODEL_LABEL: word} if word else {})])
    return Cluster(tuple(nodes.values()))


def _amount(text: str, kind: str) -> int:
    try:
        units = device_amount(text, kind)
    except BadText as bad:
        raise BadText(f"{kind} {bad}") from None
    if kind == DEVICE_KIND and units > device_amount(DEVICES_PER_NODE_MAX, kind):
        raise BadText(f"{kind} is more than {DEVICES_PER_NODE_MAX:,} on one node; describe several nodes")
    return units


def _hosts(text: str) -> list[str]:
    word = check_word(text, "name")
    if not word:
        raise BadText("name is empty; write a name, or a host list such as a[0-3]")
    try:
        return expand_hosts(word)
    except BadText as bad:
        raise BadText(f"name {bad}") from None


def _host(text: str) -> str:
    """The name of a single node; a host list would be another one in a scenario file."""
    names = _hosts(text)
    if names != [text]:
        raise BadText(f"name must be that of one node (got {show(text)})")
    return text


def _add(nodes: dict[str, Node], more: Sequence[Node]) -> None:
    for node in more:
        if node.name in nodes:
            raise BadText(f"there is already a node {show(node.name)}; names are unique")
        nodes[node.name] = node
    if len(nodes) > NODES_MAX:
        raise BadText(f"is one too many: there may be {NODES_MAX:,} nodes in all")


def _check_totals(nodes: Sequence[Node], file: str) -> None:
    """There is something to give, and sums stay inside 64 bits."""
    totals: Counter[str] = Counter()
    for node in nodes:
        totals.update(node.resources)
    for kind, total in totals.items():
        if total > TOTAL_MAX:
            raise BadInput(f"the nodes have more {kind} in all than can be counted", file=file)
    if not any(totals.values()):
        raise BadInput("gives no node anything; add a column such as gpu", file=file)

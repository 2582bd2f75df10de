"""Where one member could be: of all nodes, how many are out for which reason. Counted in columns, not node by node."""

from __future__ import annotations

from typing import Final

import numpy as np

from phalanx.control.amounts import amount
from phalanx.control.state import State
from phalanx.frontends.kube.answers.kube_replies import NodeFunnel
from phalanx.model.fleet import BoolArray, IntArray
from phalanx.model.gang import Gang, Shape
from phalanx.words import listing

#: Taints that say how a node is; the others say for whom it is.
_CLOSING: Final = tuple(f"node.kubernetes.io/{word}=" for word in ("unschedulable", "not-ready", "unreachable"))
_NAMED_MOST: Final = 2


def list_funnels(state: State, gang: Gang) -> list[NodeFunnel]:
    """One for each shape of its members."""
    return [find_funnel(state, shape) for shape in dict.fromkeys(role.shape for role in gang.roles)]


def find_funnel(state: State, shape: Shape) -> NodeFunnel:
    """Of each node the plainest reason: it is closed, has not the labels, is tainted, too small, or full."""
    fleet, nodes = state.fleet, state.show_nodes()
    need = np.array([shape.amount(kind) for kind in fleet.kinds], dtype=np.int64)
    left = fleet.capacity.any(axis=1)  # nodes that were removed keep their row
    total = int(left.sum())
    every_taint = tuple(sorted({taint for node in fleet.nodes for taint in node.taints}))
    counts = []
    repelling = [sorted(set(node.taints) - set(shape.tolerate)) for node in fleet.nodes]
    healthy = np.array([not any(taint.startswith(_CLOSING) for taint in some) for some in repelling], dtype=np.bool_)
    for stays in (
        nodes.up & nodes.open & healthy,
        fleet.allowed(shape.select, every_taint),
        fleet.allowed((), shape.tolerate),
        _holds(fleet.capacity, need),
        _holds(nodes.free, need),
    ):
        counts.append(int((left & ~stays).sum()))
        left = left & stays
    # A kind that no node has is in no column.
    missing = sorted(kind for kind, units in shape.need if units and kind not in fleet.kind_index)
    roomy = 0 if missing else int(left.sum())
    named = sorted({taint for some in repelling for taint in some if not taint.startswith(_CLOSING)})
    words = _say(state, need, total, counts, roomy, missing, named)
    closed, unselected, tainted, too_small, full = counts
    return NodeFunnel(total, closed, unselected, tainted, too_small, full, roomy, words)


def _holds(amounts: IntArray, need: IntArray) -> BoolArray:
    return np.asarray((amounts >= need).all(axis=1), dtype=np.bool_)


def _say(
    state: State, need: IntArray, total: int, counts: list[int], roomy: int, missing: list[str], named: list[str]
) -> str:
    if missing:
        return f"no node has any {listing(missing)}"
    closed, unselected, tainted, too_small, full = counts
    fleet, free = state.fleet, state.show_nodes().free
    short = [
        amount(kind, need[at])
        for kind, at in fleet.kind_index.items()
        if need[at] and need[at] > free[:, at].max(initial=0)
    ]
    parts = [
        (closed, "cordoned or not ready"),
        (unselected, "without the labels that it selects"),
        (tainted, f"with taints that it does not tolerate ({listing(named, _NAMED_MOST)})"),
        (too_small, "too small even when empty"),
        (full, f"with less than {listing(short)} free" if short else "full"),
        (roomy, "with room for a member just now"),
    ]
    told = ", ".join(f"{count} {words}" for count, words in parts if count)
    return f"of {total} node{'' if total == 1 else 's'}: {told}" if total else "there are no nodes"

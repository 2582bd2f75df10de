"""What the scheduler sees, as `phalanx what-if` loads it: schema `phalanx.state/1`, as of one machine."""

from __future__ import annotations

from dataclasses import replace

from phalanx.control.dump import dump_state, format_state
from phalanx.control.forecasting.lengths import UNSAID_US
from phalanx.control.state import State
from phalanx.frontends.kube.answers.cluster_view import ClusterView
from phalanx.frontends.kube.answers.looking import measure
from phalanx.model.fleet import Node


def dump_picture(picture: ClusterView) -> str:
    """The text."""
    state = picture.state  # taken for this answer alone
    _take_from_nodes(state, picture)
    # What `why` goes by goes with it, or a what-if would tell another start.
    runs = replace(measure(state, state.list_waiting()).middle(), default_us=UNSAID_US)
    return format_state(dump_state(state, (picture.policy_name, {}), runs=runs))


def _take_from_nodes(state: State, picture: ClusterView) -> None:
    """Pods of others are no gangs, and a dump knows nobody else: the room that they take is not there at all."""
    index, nodes = state.fleet.index_by_name, []
    for name, amounts in picture.others.items():
        if name not in index or not amounts:
            continue
        state.crowd(index[name], {})
        at, node = index[name], state.fleet.nodes[index[name]]
        free = state.show_nodes().free[at]
        kinds = state.fleet.kind_index
        # Never below what gangs hold there, however much others say that they take.
        taken = {kind: min(units, max(0, int(free[kinds[kind]]))) for kind, units in amounts.items() if kind in kinds}
        left = {kind: units - taken.get(kind, 0) for kind, units in node.resources.items()}
        nodes.append(Node(name, left, node.labels, node.taints, node.islands, node.spare))
    if nodes:
        closed = [node.name for node in nodes if not state.show_nodes().open[index[node.name]]]
        state.add_nodes(nodes)
        for name in closed:
            state.set_open(index[name], open_=False)

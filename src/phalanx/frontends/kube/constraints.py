"""Where a pod may go: everything that it states beside amounts, as one value that equal pods share.

Nothing is left out silently: what cannot be honoured comes back as `Unsupported`, what somebody else has to do first as
`NotYet`, what makes no sense as `Invalid`. Which field of a pod is treated how stands in `pod_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from phalanx.frontends.kube.neighbours import Neighbours, find_neighbours
from phalanx.frontends.kube.node_rules import NodeRules, find_node_rules
from phalanx.frontends.kube.objects.node import NodeObject, Taint
from phalanx.frontends.kube.objects.pod import Pod, PodSpec, Toleration
from phalanx.frontends.kube.remarks import NotYet, Remark, Unsupported, quote
from phalanx.frontends.kube.requests import PodDemand, find_demand
from phalanx.frontends.kube.taints import check_tolerations, find_repelling, find_taints
from phalanx.frontends.kube.volume_rules import Storage, find_volume_rules


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where one pod may go."""

    nodes: NodeRules = field(default_factory=NodeRules)
    tolerations: tuple[Toleration, ...] = ()
    neighbours: Neighbours = field(default_factory=Neighbours)


@dataclass(frozen=True, slots=True)
class PodShape:
    """What one pod takes and where it may go. Pods of one shape are one question to the engine."""

    demand: PodDemand
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What a pod's constraints refer to, beside nodes and other pods."""

    storage: Storage = field(default_factory=Storage)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by namespace
    namespaces_going: frozenset[str] = frozenset()  # those that are being deleted


def find_shape(pod: Pod, surrounding: Surrounding) -> tuple[PodShape | None, tuple[Remark, ...]]:
    """The shape of a pod and what is to be said about it; without a shape if its amounts cannot be read."""
    remarks: list[Remark] = []
    if pod.metadata.namespace in surrounding.namespaces_going:
        # No binding would be taken, and its pods go one after the other.
        remarks.append(NotYet("metadata.namespace", "is being deleted", "create it in another one"))
    demand = find_demand(pod)
    constraints = find_constraints(pod, surrounding, remarks)
    if not isinstance(demand, PodDemand):
        return None, (*demand, *remarks)
    return share_shape(demand, constraints), tuple(remarks)


def find_constraints(pod: Pod, surrounding: Surrounding, remarks: list[Remark]) -> Constraints:
    """Where it may go, and what is to be said about that."""
    spec = pod.spec
    rules = find_node_rules(spec, remarks)
    if spec.volumes:
        rules = rules.also(find_volume_rules(pod, surrounding.storage, remarks))
    check_tolerations(spec.tolerations or (), remarks)
    _tell_refused(spec, remarks)
    neighbours = Neighbours()
    if spec.affinity is not None or spec.topology_spread_constraints:
        labels = surrounding.namespace_labels.get(pod.metadata.namespace)
        neighbours = find_neighbours(pod, labels, remarks)
    return Constraints(rules, spec.tolerations or (), neighbours)


@lru_cache(maxsize=16_384)
def share_shape(demand: PodDemand, constraints: Constraints) -> PodShape:
    """One object for what is equal: shapes are compared whenever a gang is put together."""
    return PodShape(demand, constraints)


def find_taint_or_rule(constraints: Constraints, node: NodeObject) -> Taint | str | None:
    """Why a pod may not go to a node whatever its room: the taint, or "rules"; None if it may."""
    taint = find_repelling(constraints.tolerations, find_taints(node))
    if taint is not None:
        return taint
    return None if constraints.nodes.admits(node.metadata.name, node.metadata.labels or {}) else "rules"


def _tell_refused(spec: PodSpec, remarks: list[Remark]) -> None:
    if spec.scheduling_gates:
        names = ", ".join(quote(gate.name) for gate in spec.scheduling_gates[:4])
        remarks.append(NotYet("spec.schedulingGates", f"holds it back ({names})", "whoever set the gate takes it away"))
    if spec.resource_claims:
        do = "ask for the devices as an extended resource, or leave the pod to another scheduler"
        remarks.append(Unsupported("spec.resourceClaims", "asks for devices by claim (DRA)", do))
    if spec.workload_ref is not None:
        do = "use spec.schedulingGroup, which took its place in 1.36"
        remarks.append(Unsupported("spec.workloadRef", "is of an API that was removed", do))

"""A pod: what of it a scheduler must read, honoured or not. `pod_fields` says what is done with each field."""

from __future__ import annotations

import msgspec

from phalanx.frontends.kube.objects.metadata import (
    Condition,
    Int32,
    LabelSelector,
    LocalReference,
    MatchExpression,
    Metadata,
    Narrow,
)

#: Numbers are legal in manifests (`cpu: 2`); the API server gives them back as text, a dry run from a file does not.
Quantities = dict[str, str | int | float]


class Opaque(Narrow, frozen=True):
    """An object of which only the presence counts: it is a reason to refuse, or a word of a choice."""


class ContainerPort(Narrow, frozen=True):
    """A port of a container; only what it takes of the node matters."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class ContainerResources(Narrow, frozen=True):
    """Requests and limits."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(Narrow, frozen=True):
    """A container, main or init; `restart_policy: Always` makes an init container a sidecar."""

    name: str = ""
    resources: ContainerResources | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None


class NodeTerm(Narrow, frozen=True):
    """Expressions that must all hold of a node."""

    match_expressions: tuple[MatchExpression, ...] | None = None
    match_fields: tuple[MatchExpression, ...] | None = None


class NodeTerms(Narrow, frozen=True):
    """Terms any of which will do."""

    node_selector_terms: tuple[NodeTerm, ...] | None = None


class PreferredNodeTerm(Narrow, frozen=True):
    """A term and what it is worth."""

    weight: int = 0
    preference: NodeTerm = NodeTerm()


class NodeAffinity(Narrow, frozen=True):
    """Which nodes, and which rather."""

    required: NodeTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodeTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(Narrow, frozen=True):
    """Which other pods, and how far around them."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodTerm(Narrow, frozen=True):
    """A term and what it is worth."""

    weight: int = 0
    pod_affinity_term: PodTerm = PodTerm()


class PodAffinity(Narrow, frozen=True):
    """Near which pods, or (as anti-affinity) away from which."""

    required: tuple[PodTerm, ...] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodTerm, ...] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Narrow, frozen=True):
    """All that a pod says of where it would be."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Narrow, frozen=True):
    """Which taints do not keep it away."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Narrow, frozen=True):
    """How evenly pods are to be spread over domains."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class ClaimSource(Narrow, frozen=True):
    """A volume that is a claim."""

    claim_name: str = ""


class PodVolume(Narrow, frozen=True):
    """A volume of a pod; only kinds that bear on where it can run are read."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Opaque | None = None  # a claim named after pod and volume
    # Disks that one node may use at a time, by rules of their own.
    gce_persistent_disk: Opaque | None = None
    aws_elastic_block_store: Opaque | None = None
    iscsi: Opaque | None = None
    rbd: Opaque | None = None
    # In-tree disks that live in a zone; without a claim nobody says in which.
    azure_disk: Opaque | None = None
    cinder: Opaque | None = None
    vsphere_volume: Opaque | None = None
    portworx_volume: Opaque | None = None


class SchedulingGroup(Narrow, frozen=True):
    """The native gang that it belongs to."""

    pod_group_name: str = ""


class PodSpec(Narrow, frozen=True):
    """What it asks for. Every field of 1.37 that is not here is in `pod_fields`, with the reason."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: ContainerResources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] | None = None
    host_network: bool = False
    volumes: tuple[PodVolume, ...] | None = None
    scheduling_gates: tuple[LocalReference, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    active_deadline_seconds: Int32 | None = None
    resource_claims: tuple[LocalReference, ...] | None = None
    workload_ref: Opaque | None = None  # 1.35 only
    runtime_class_name: str | None = None


class ContainerStatus(Narrow, frozen=True):
    """What a container really holds, where it was resized in place."""

    name: str = ""
    allocated_resources: Quantities | None = None
    resources: ContainerResources | None = None


class PodStatus(Narrow, frozen=True):
    """What has become of it."""

    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] | None = None
    resources: ContainerResources | None = None  # of the pod as a whole, where it was resized
    allocated_resources: Quantities | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Narrow, frozen=True):
    """One pod."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

"""A node, and the objects of a cluster that bear on which of them will do."""

from __future__ import annotations

from phalanx.frontends.kube.objects.metadata import Condition, Int32, Metadata, Narrow
from phalanx.frontends.kube.objects.pod import NodeTerms, Quantities


class Taint(Narrow, frozen=True):
    """What keeps pods away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Narrow, frozen=True):
    """What its administrator says."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Narrow, frozen=True):
    """What it offers, and how it is."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None


class NodeObject(Narrow, frozen=True):
    """One node."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PriorityClass(Narrow, frozen=True):
    """A priority by name."""

    metadata: Metadata = Metadata()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None


class StorageClass(Narrow, frozen=True):
    """When claims of it are bound."""

    metadata: Metadata = Metadata()
    volume_binding_mode: str | None = None


class ClaimSpec(Narrow, frozen=True):
    """What is claimed, and what it was given."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None


class VolumeClaim(Narrow, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()


class VolumeNodeAffinity(Narrow, frozen=True):
    """Nodes that can reach it."""

    required: NodeTerms | None = None


class VolumeSpec(Narrow, frozen=True):
    """Where it is."""

    node_affinity: VolumeNodeAffinity | None = None


class Volume(Narrow, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata = Metadata()
    spec: VolumeSpec = VolumeSpec()


class Namespace(Narrow, frozen=True):
    """A namespace: its labels are what `namespaceSelector` selects by."""

    metadata: Metadata = Metadata()

"""The gang objects of the dialects, and one adapter: native v1alpha2 is read as v1beta1."""

from __future__ import annotations

from phalanx.frontends.kube.objects.metadata import Condition, Int32, Metadata, Narrow
from phalanx.frontends.kube.objects.pod import Opaque

# ---- Kubernetes' own: scheduling.k8s.io


class GangPolicy(Narrow, frozen=True):
    """All or nothing, from so many on."""

    min_count: int = 0


class SchedulingPolicy(Narrow, frozen=True):
    """One of two."""

    basic: Opaque | None = None
    gang: GangPolicy | None = None


class TopologyKey(Narrow, frozen=True):
    """One level, by the label of its nodes; required."""

    key: str = ""


class SchedulingConstraints(Narrow, frozen=True):
    """Where all members must be."""

    topology: tuple[TopologyKey, ...] | None = None


class DisruptionMode(Narrow, frozen=True):
    """Whether members can be evicted one by one."""

    single: Opaque | None = None
    all: Opaque | None = None


class NativeSpec(Narrow, frozen=True):
    """What a native PodGroup says in v1beta1."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | str | None = None  # a word in v1alpha2
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None
    resource_claims: tuple[Opaque, ...] | None = None


class ConditionsStatus(Narrow, frozen=True):
    """A status that is conditions."""

    conditions: tuple[Condition, ...] | None = None


class NativePodGroup(Narrow, frozen=True):
    """A PodGroup of scheduling.k8s.io. v1alpha2 differs in `disruptionMode` and in the name of its condition."""

    api_version: str = "scheduling.k8s.io/v1beta1"
    metadata: Metadata = Metadata()
    spec: NativeSpec = NativeSpec()
    status: ConditionsStatus = ConditionsStatus()


# ---- scheduler-plugins: scheduling.x-k8s.io, and Koordinator's fork of it: scheduling.sigs.k8s.io


class PluginsSpec(Narrow, frozen=True):
    """What it says."""

    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class CountsStatus(Narrow, frozen=True):
    """A phase and how many members are how far."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PluginsPodGroup(Narrow, frozen=True):
    """A PodGroup of scheduling.x-k8s.io/v1alpha1, or of scheduling.sigs.k8s.io/v1alpha1."""

    api_version: str = "scheduling.x-k8s.io/v1alpha1"
    metadata: Metadata = Metadata()
    spec: PluginsSpec = PluginsSpec()
    status: CountsStatus = CountsStatus()


# ---- Volcano: scheduling.volcano.sh


class NetworkTopology(Narrow, frozen=True):
    """Inside which tier of the network, hard or soft."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class VolcanoSpec(Narrow, frozen=True):
    """What it says. `minResources` is not read: places decide here, not sums over the cluster."""

    min_member: int = 0
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[Opaque, ...] | None = None


class VolcanoStatus(Narrow, frozen=True):
    """A phase, conditions and counts."""

    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class VolcanoPodGroup(Narrow, frozen=True):
    """A PodGroup of scheduling.volcano.sh/v1beta1."""

    api_version: str = "scheduling.volcano.sh/v1beta1"
    metadata: Metadata = Metadata()
    spec: VolcanoSpec = VolcanoSpec()
    status: VolcanoStatus = VolcanoStatus()


GroupObject = NativePodGroup | PluginsPodGroup | VolcanoPodGroup

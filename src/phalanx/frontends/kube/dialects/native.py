"""Kubernetes' own: `spec.schedulingGroup` of pods, PodGroup of scheduling.k8s.io v1beta1 (1.37) or v1alpha2 (1.36)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.frontends.kube.gang_view import Disruption, GangKey, MatchPolicy, Statement
from phalanx.frontends.kube.label_words import check_least, tell_missing_group
from phalanx.frontends.kube.objects.groups import DisruptionMode, NativePodGroup, NativeSpec
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.remarks import Invalid, Notice, Remark, Unsupported, quote
from phalanx.frontends.kube.topology_wishes import NamedBy, NamedLevel, TopologyWish

KIND: Final = "PodGroup (scheduling.k8s.io)"
FIELD: Final = "spec.schedulingGroup.podGroupName"

#: The condition that says it was whole once: renamed between the versions, never taken back in either.
WHOLE_ONCE: Final = frozenset({"PodGroupInitiallyScheduled", "PodGroupScheduled"})

#: How v1alpha2 spelt the two modes.
_ALPHA_MODES: Final = {"Pod": Disruption.SINGLE, "PodGroup": Disruption.ALL}


def find_group_name(pod: Pod) -> tuple[str, str] | None:
    """The group that a pod names, and in which field."""
    group = pod.spec.scheduling_group
    return (group.pod_group_name, FIELD) if group is not None and group.pod_group_name else None


def find_statement(
    key: GangKey, group: NativePodGroup | None, pods: Sequence[Pod], priority_by_class: Mapping[str, int]
) -> Statement:
    """What the PodGroup says."""
    del pods  # they say nothing beside its name
    if group is None:
        return Statement(remarks=(tell_missing_group(KIND, key.name),))
    remarks: list[Remark] = []
    spec, metadata = group.spec, group.metadata
    priority = spec.priority
    if priority is None and spec.priority_class_name:
        # Admission writes the number in; a dry run from a file has only the name.
        priority = priority_by_class.get(spec.priority_class_name)
    _tell_refused(spec, remarks)
    return Statement(
        members_min=_find_least(spec, remarks),
        # A replacement must again see the minimum, together with those that run.
        match=MatchPolicy.WAITING_AND_RUNNING,
        satisfied=any(each.type in WHOLE_ONCE and each.status == "True" for each in group.status.conditions or ()),
        priority=priority,
        preemption_policy=spec.preemption_policy,
        topology=_find_topology(spec, remarks),
        disruption=_find_disruption(spec, remarks),
        uid=metadata.uid,
        generation=metadata.generation,
        created=metadata.creation_timestamp or "",
        remarks=tuple(remarks),
    )


def _find_least(spec: NativeSpec, remarks: list[Remark]) -> int:
    policy = spec.scheduling_policy
    if (policy.basic is None) == (policy.gang is None):
        says = "names neither basic nor gang" if policy.gang is None else "names both basic and gang"
        remarks.append(Invalid("spec.schedulingPolicy", says, "write gang: {minCount: N}, or basic: {}"))
    # Basic: its pods start whenever there is room for any of them, which is a gang of at least one.
    return check_least(policy.gang.min_count, "spec.schedulingPolicy.gang.minCount", remarks) if policy.gang else 1


def _find_topology(spec: NativeSpec, remarks: list[Remark]) -> TopologyWish:
    wanted = (spec.scheduling_constraints.topology or ()) if spec.scheduling_constraints else ()
    field = "spec.schedulingConstraints.topology"
    if len(wanted) > 1 or any(not each.key for each in wanted):
        remarks.append(Invalid(field, "needs one key, and no more", "name the label of one level"))
        return TopologyWish()
    return TopologyWish(require=tuple(NamedLevel(NamedBy.LABEL.value, each.key) for each in wanted), field=field)


def _find_disruption(spec: NativeSpec, remarks: list[Remark]) -> Disruption:
    mode = spec.disruption_mode
    if isinstance(mode, DisruptionMode):
        return Disruption.ALL if mode.all is not None else Disruption.SINGLE
    if mode is not None and mode not in _ALPHA_MODES:
        says = f"is {quote(mode)}; taken as Pod"
        remarks.append(Notice("spec.disruptionMode", says, "write Pod or PodGroup"))
    return _ALPHA_MODES.get(mode or "", Disruption.SINGLE)


def _tell_refused(spec: NativeSpec, remarks: list[Remark]) -> None:
    if spec.resource_claims:
        do = "ask for the devices as an extended resource in the pods"
        remarks.append(Unsupported("spec.resourceClaims", "asks for devices by claim (DRA)", do))
    if spec.parent_composite_pod_group_name:
        says = f"makes it part of the composite {quote(spec.parent_composite_pod_group_name)}"
        remarks.append(Unsupported("spec.parentCompositePodGroupName", says, "use groups without a parent"))

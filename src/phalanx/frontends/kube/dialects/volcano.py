"""Volcano: annotation `scheduling.k8s.io/group-name`, PodGroup of scheduling.volcano.sh/v1beta1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.frontends.kube.gang_view import GangKey, MatchPolicy, Statement
from phalanx.frontends.kube.label_words import MEMBERS_MAX, check_least, tell_missing_group
from phalanx.frontends.kube.objects.groups import VolcanoPodGroup, VolcanoSpec
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.remarks import Invalid, Notice, Remark, Unsupported, quote
from phalanx.frontends.kube.topology_wishes import NamedBy, NamedLevel, TopologyWish

KIND: Final = "PodGroup (scheduling.volcano.sh)"
ANNOTATIONS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

_DEFAULT_QUEUE: Final = "default"
_WAS_WHOLE: Final = frozenset({"Running", "Completed", "Unknown"})
#: What admission would resolve without looking at objects.
_SYSTEM_PRIORITIES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def find_group_name(pod: Pod) -> tuple[str, str] | None:
    """The group that a pod names, and in which field."""
    for annotation in ANNOTATIONS:
        if name := pod.metadata.annotation(annotation):
            return name, f"metadata.annotations[{annotation}]"
    return None


def find_statement(
    key: GangKey, group: VolcanoPodGroup | None, pods: Sequence[Pod], priority_by_class: Mapping[str, int]
) -> Statement:
    """What the PodGroup says."""
    del pods  # they say nothing beside its name, and their task, which is read with the pod
    if group is None:
        return Statement(remarks=(tell_missing_group(KIND, key.name),))
    remarks: list[Remark] = []
    spec, metadata = group.spec, group.metadata
    # Unset is 0: any of its pods may start by itself.
    least = check_least(spec.min_member, "spec.minMember", remarks) if spec.min_member else 1
    if spec.sub_group_policy:
        do = "use one PodGroup for each part"
        remarks.append(Unsupported("spec.subGroupPolicy", "divides the gang into parts", do))
    return Statement(
        members_min=least,
        task_minimums=_find_task_minimums(spec, least, remarks),
        match=MatchPolicy.WAITING_AND_RUNNING,
        satisfied=group.status.phase in _WAS_WHOLE,
        priority=_find_priority(spec, priority_by_class, remarks),
        # Tasks of one job may have classes of their own; the job's place in the queue is the group's.
        priority_decides=True,
        queue=spec.queue or _DEFAULT_QUEUE,
        topology=_find_topology(spec, remarks),
        uid=metadata.uid,
        generation=metadata.generation,
        created=metadata.creation_timestamp or "",
        remarks=tuple(remarks),
    )


def _find_task_minimums(spec: VolcanoSpec, least: int, remarks: list[Remark]) -> tuple[tuple[str, int], ...]:
    found = sorted((spec.min_task_member or {}).items())
    for task, minimum in found:
        if not 0 <= minimum <= MEMBERS_MAX:
            field = f"spec.minTaskMember[{quote(task)}]"
            remarks.append(Invalid(field, f"is {quote(minimum)}", f"write 0 to {MEMBERS_MAX:,}"))
            return ()
    total = sum(minimum for _, minimum in found)
    if least < total:
        # Volcano fills the minimum of each task in as its number of replicas, whatever is said of the job; so whoever
        # asks for less in all means that, and the minimums of tasks are nobody's wish. It does not look at them then.
        says = f"adds up to {total}, more than spec.minMember ({least}); as in Volcano only that counts"
        remarks.append(Notice("spec.minTaskMember", says, "raise spec.minMember for the tasks to count"))
        return ()
    return tuple((task, minimum) for task, minimum in found if minimum)


def _find_priority(spec: VolcanoSpec, priority_by_class: Mapping[str, int], remarks: list[Remark]) -> int | None:
    name = spec.priority_class_name
    if not name:
        return None
    known = priority_by_class.get(name, _SYSTEM_PRIORITIES.get(name))
    if known is None:
        says = f"names {quote(name)}, which does not exist; the pods' own priority counts"
        remarks.append(Notice("spec.priorityClassName", says, "create the class, or name another"))
    return known


def _find_topology(spec: VolcanoSpec, remarks: list[Remark]) -> TopologyWish:
    wish, field = spec.network_topology, "spec.networkTopology"
    if wish is None:
        return TopologyWish()
    if wish.mode not in ("", "hard", "soft"):
        remarks.append(Invalid(f"{field}.mode", f"is {quote(wish.mode)}", "write hard or soft"))
    tier = wish.highest_tier_allowed
    if wish.highest_tier_name:
        level = NamedLevel(NamedBy.TIER_NAME.value, wish.highest_tier_name)
    elif tier is not None and not 1 <= tier <= 1_000:
        remarks.append(Invalid(f"{field}.highestTierAllowed", f"is {quote(tier)}", "write a tier, from 1 on"))
        return TopologyWish()
    else:
        # Unset means the innermost, as its own default does.
        level = NamedLevel(NamedBy.TIER.value, str(1 if tier is None else tier))
    if wish.mode == "soft":
        return TopologyWish(prefer=(level,), field=field)
    return TopologyWish(require=(level,), field=field)

"""scheduler-plugins: label `scheduling.x-k8s.io/pod-group`, PodGroup of scheduling.x-k8s.io/v1alpha1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from phalanx.frontends.kube.gang_view import GangKey, MatchPolicy, Statement
from phalanx.frontends.kube.label_words import check_least, check_timeout, tell_missing_group
from phalanx.frontends.kube.objects.groups import PluginsPodGroup
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.remarks import Remark

KIND: Final = "PodGroup (scheduling.x-k8s.io)"
LABEL: Final = "scheduling.x-k8s.io/pod-group"

_WAS_WHOLE: Final = frozenset({"Running", "Finished"})


def find_group_name(pod: Pod) -> tuple[str, str] | None:
    """The group that a pod names, and in which field."""
    name = pod.metadata.label(LABEL)
    return (name, f"metadata.labels[{LABEL}]") if name else None


def find_statement(
    key: GangKey, group: PluginsPodGroup | None, pods: Sequence[Pod], priority_by_class: Mapping[str, int]
) -> Statement:
    """What the PodGroup says."""
    del pods, priority_by_class  # neither pods nor classes say anything of such a group
    if group is None:
        return Statement(remarks=(tell_missing_group(KIND, key.name),))
    remarks: list[Remark] = []
    return Statement(
        members_min=check_least(group.spec.min_member, "spec.minMember", remarks),
        # A lone replacement counts together with those that run (its own issues #358 and #364).
        match=MatchPolicy.WAITING_AND_RUNNING,
        satisfied=group.status.phase in _WAS_WHOLE,
        timeout_s=check_timeout(group.spec.schedule_timeout_seconds, "spec.scheduleTimeoutSeconds", remarks),
        uid=group.metadata.uid,
        generation=group.metadata.generation,
        created=group.metadata.creation_timestamp or "",
        remarks=tuple(remarks),
    )

"""One pod as a member of whatever gang it is in. Done once per change of the pod: gangs are put together from these."""

from __future__ import annotations

import re
from typing import Final

from phalanx.frontends.kube.constraints import Surrounding, find_shape
from phalanx.frontends.kube.gang_view import MemberPhase, PodMember
from phalanx.frontends.kube.objects.metadata import Metadata
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.remarks import blocks

#: By which word frameworks tell kinds of members apart, as label or annotation; the first that is there.
_TASK_KEYS: Final = (
    "volcano.sh/task-spec",
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "ray.io/group",
)
#: Where they write a member's number.
_INDEX_KEYS: Final = (
    "gang.scheduling.koordinator.sh/network-topology-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "volcano.sh/task-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "apps.kubernetes.io/pod-index",
)
#: Which of several jobs of one set, above the number inside that job.
_OUTER_INDEX_KEY: Final = "jobset.sigs.k8s.io/job-global-index"
_OUTER_STEP: Final = 1_000_000
_INDEX: Final = re.compile(r"[0-9]{1,6}")
_DIGITS: Final = re.compile(r"([0-9]+)")


def make_member(pod: Pod, surrounding: Surrounding) -> PodMember:
    """The pod as a member: how it counts, its rank, what it takes and where it may go."""
    shape, remarks = find_shape(pod, surrounding)
    metadata = pod.metadata
    remarks = tuple(remark.of(f"Pod {metadata.name}") for remark in remarks)
    return PodMember(
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        phase=_find_phase(pod, held=bool(blocks(remarks))),
        task=find_task(metadata),
        node=pod.spec.node_name,
        index=find_index(metadata),
        created=metadata.creation_timestamp or "",
        running=pod.status.phase == "Running",
        shape=shape,
        remarks=remarks,
    )


def order_members(members: tuple[PodMember, ...]) -> tuple[PodMember, ...]:
    """In rank order: by number where there is one, then by name, in which a 10 comes after a 9."""
    return tuple(sorted(members, key=lambda each: (each.index < 0, each.index, _natural(each.name), each.uid)))


def find_task(metadata: Metadata) -> str:
    """What kind of member it says it is; empty if nothing is said."""
    return next((found for key in _TASK_KEYS if (found := _say(metadata, key))), "")


def find_index(metadata: Metadata) -> int:
    """Its number, -1 if nobody gave it one that can be read."""
    for key in _INDEX_KEYS:
        written = _say(metadata, key)
        if _INDEX.fullmatch(written):
            outer = metadata.label(_OUTER_INDEX_KEY)
            return int(written) + (_OUTER_STEP * int(outer) if _INDEX.fullmatch(outer) else 0)
    return -1


def _find_phase(pod: Pod, *, held: bool) -> MemberPhase:
    # What has ended gives its seat back at once, whatever else becomes of the object.
    if pod.status.phase == "Succeeded":
        return MemberPhase.SUCCEEDED
    if pod.status.phase == "Failed":
        return MemberPhase.FAILED
    if pod.metadata.deletion_timestamp is not None:
        return MemberPhase.LEAVING if pod.spec.node_name else MemberPhase.GONE
    if pod.spec.node_name:
        return MemberPhase.SEATED
    return MemberPhase.HELD if held else MemberPhase.WAITING


def _say(metadata: Metadata, key: str) -> str:
    return metadata.annotation(key) or metadata.label(key)


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    parts = _DIGITS.split(name)
    # Digits stand at odd places. Names are at most 253 characters, so the numbers are bounded too.
    return tuple(
        (text, int(digits[:18]) if digits else -1) for text, digits in zip(parts[::2], [*parts[1::2], ""], strict=True)
    )

"""What was read of pods, kept for as long as it holds: a pod is read once, and not once for each of its versions.

Of all changes of a cluster most are bindings, each of which is told twice: as we assume it, and as the watch says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from phalanx.frontends.kube.flights import EPOCH, RANK
from phalanx.frontends.kube.gang_view import MemberPhase, PodMember
from phalanx.frontends.kube.objects.pod import Pod
from phalanx.frontends.kube.quantities import engine_amount
from phalanx.frontends.kube.requests import PodDemand, find_demand

#: Of a pod's conditions the one that bears on what a bound pod takes.
_RESIZING: Final = "PodResizePending"


class PodReadings:
    """Members and amounts by uid, each with the version that was read."""

    def __init__(self, make: Callable[[Pod], PodMember]) -> None:
        """`make` reads a pod."""
        self._make = make
        self._members: dict[str, tuple[str, PodMember]] = {}
        self._amounts: dict[str, tuple[str, dict[str, int]]] = {}

    def read(self, pod: Pod) -> PodMember:
        """The pod as a member."""
        known = self._members.get(pod.metadata.uid)
        if known is None or known[0] != _version(pod):
            known = self._members[pod.metadata.uid] = (_version(pod), self._make(pod))
        return known[1]

    def find_amounts(self, pod: Pod) -> dict[str, int]:
        """What it takes of a node."""
        known = self._amounts.get(pod.metadata.uid)
        if known is None or known[0] != pod.metadata.resource_version:
            known = self._amounts[pod.metadata.uid] = (pod.metadata.resource_version, amounts_of(pod))
        return known[1]

    def forget(self, uid: str) -> None:
        """It is gone, or what it refers to has changed."""
        self._members.pop(uid, None)
        self._amounts.pop(uid, None)

    def carry_over(self, old: Pod, new: Pod) -> None:
        """A pod that has a node now, and nothing of it but that or its version is new: what was read holds."""
        uid = new.metadata.uid
        version, member = self._members.get(uid, ("", None))
        # One that was held and has a node all the same is read anew: its phase is another one.
        if member is None or version != _version(old) or member.phase is MemberPhase.HELD:
            return
        phase = MemberPhase.SEATED if member.phase is MemberPhase.WAITING else member.phase
        node, newest = new.spec.node_name, new.metadata.resource_version
        self._members[uid] = _version(new), replace(member, phase=phase, node=node, resource_version=newest)


def amounts_of(pod: Pod) -> dict[str, int]:
    """What a bound pod takes, in the engine's units; what cannot be read counts for nothing."""
    demand = find_demand(pod)
    if not isinstance(demand, PodDemand):
        return {}
    return {resource: engine_amount(units, resource) for resource, units in demand.amounts}


def says_the_same(old: Pod, new: Pod) -> bool:
    """Whether a bound pod says the same as before, as it does when a binding that we assumed comes by the watch.

    Only of bound ones: of a pod that waits the newest version is needed to bind it.
    """
    if not new.spec.node_name or old.spec != new.spec or old.status.phase != new.status.phase:
        return False
    return _lasting(old) == _lasting(new)


def _lasting(pod: Pod) -> tuple[object, ...]:
    """What is read of a bound pod, beside spec and phase."""
    metadata, status = pod.metadata, pod.status
    ours = (EPOCH, RANK)
    written = {key: value for key, value in (metadata.annotations or {}).items() if key not in ours}
    resizing = tuple(each.reason for each in status.conditions or () if each.type == _RESIZING)
    sizes = status.resources, status.allocated_resources, status.container_statuses, status.init_container_statuses
    return metadata.uid, metadata.deletion_timestamp, metadata.labels or {}, written, resizing, sizes


def _version(pod: Pod) -> str:
    return f"{pod.metadata.resource_version}@{pod.spec.node_name}@{pod.metadata.deletion_timestamp or ''}"

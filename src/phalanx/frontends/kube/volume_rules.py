"""What the volumes of a pod say of nodes, and which of them cannot be honoured.

A claim that is bound says where its volume can be reached. One that is not: either somebody will bind it (then the pod
waits), or the class wants the scheduler to choose a node first, which this one does not do, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from phalanx.frontends.kube.node_rules import AllOf, AnyOf, find_any_of
from phalanx.frontends.kube.objects.node import StorageClass, Volume, VolumeClaim
from phalanx.frontends.kube.objects.pod import Pod, PodVolume
from phalanx.frontends.kube.remarks import NotYet, Remark, Unsupported, quote
from phalanx.frontends.kube.selectors import ABSENT, IN, Expression

#: Labels by which old volumes say where they are, with what nodes call the same thing today.
_PLACE_LABELS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
#: A volume that is in several zones has them in one label, with this between.
_BETWEEN: Final = "__"

#: Disks without a claim: some may be used by one node at a time, of others nobody says in which zone they are.
_UNCLAIMED_DISKS: Final = (
    *("gce_persistent_disk", "aws_elastic_block_store", "iscsi", "rbd"),
    *("azure_disk", "cinder", "vsphere_volume", "portworx_volume"),
)


@dataclass(frozen=True, slots=True)
class Storage:
    """What is known of claims and volumes; kept by whoever watches them."""

    claims: Mapping[tuple[str, str], VolumeClaim] = field(default_factory=dict)  # by namespace and name
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)


def find_volume_rules(pod: Pod, storage: Storage, remarks: list[Remark]) -> tuple[AnyOf, ...]:
    """What must hold of a node for all volumes of a pod to be reached from it."""
    rules: list[AnyOf] = []
    for index, volume in enumerate(pod.spec.volumes or ()):
        path = f"spec.volumes[{index}]"
        for disk in _UNCLAIMED_DISKS:
            if getattr(volume, disk) is not None:
                do = "use a PersistentVolumeClaim for it"
                remarks.append(Unsupported(f"{path}.{_camel(disk)}", "is a disk without a claim", do))
        claim_name = _claim_name(pod, volume)
        if claim_name is not None:
            rules += _find_claim_rules(pod, claim_name, path, storage, remarks)
    return tuple(rules)


def _claim_name(pod: Pod, volume: PodVolume) -> str | None:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    # The controller of ephemeral volumes makes the claim, under this name.
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else None


def _find_claim_rules(pod: Pod, name: str, path: str, storage: Storage, remarks: list[Remark]) -> tuple[AnyOf, ...]:
    field_path = f"{path}.persistentVolumeClaim.claimName"
    claim = storage.claims.get((pod.metadata.namespace, name))
    if claim is None:
        remarks.append(NotYet(field_path, f"names the claim {quote(name)}, which is not there", "create the claim"))
        return ()
    if claim.metadata.deletion_timestamp is not None:
        remarks.append(NotYet(field_path, f"names the claim {quote(name)}, which is being deleted", "name another"))
        return ()
    if "ReadWriteOncePod" in (claim.spec.access_modes or ()):
        says = f"names the claim {quote(name)}, which one pod in all may use (ReadWriteOncePod)"
        remarks.append(Unsupported(field_path, says, "use ReadWriteOnce"))
        return ()
    if not claim.spec.volume_name:
        remarks.append(_tell_unbound(claim, field_path, storage))
        return ()
    volume = storage.volumes.get(claim.spec.volume_name)
    if volume is None:
        says = f"is bound to the volume {quote(claim.spec.volume_name)}, which is not there"
        remarks.append(NotYet(field_path, says, "look at the volume"))
        return ()
    return _find_volume_places(volume, remarks)


def _tell_unbound(claim: VolumeClaim, path: str, storage: Storage) -> Remark:
    name = claim.spec.storage_class_name
    known = storage.classes.get(name) if name else None
    says = f"names the claim {quote(claim.metadata.name)}, which is not bound"
    if known is not None and known.volume_binding_mode == "WaitForFirstConsumer":
        do = "use a class that binds at once (volumeBindingMode: Immediate), or bind the claim to a volume beforehand"
        return Unsupported(path, f"{says}; its class {quote(name)} waits for the first pod that uses it", do)
    return NotYet(path, says, "see kubectl describe pvc for what it waits for")


def _find_volume_places(volume: Volume, remarks: list[Remark]) -> tuple[AnyOf, ...]:
    rules: list[AnyOf] = []
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        path = f"PersistentVolume {quote(volume.metadata.name)} spec.nodeAffinity.required"
        rules.append(find_any_of(affinity.required, path, remarks))
    for label, modern in _PLACE_LABELS.items():
        value = volume.metadata.label(label)
        if value:
            rules.append(_in_place(label, modern, tuple(sorted(set(value.split(_BETWEEN))))))
    return tuple(rules)


def _in_place(label: str, modern: str, values: tuple[str, ...]) -> AnyOf:
    """There by the label, or by its modern name where a node lacks the old one; or on nodes that say nothing at all."""
    there: list[AllOf] = [(Expression(label, IN, values),)]
    if modern != label:
        there.append(tuple(sorted((Expression(label, ABSENT), Expression(modern, IN, values)))))
    # Clusters in one zone often do not label their nodes; there any node will do.
    there.append(tuple(sorted(Expression(each, ABSENT) for each in _PLACE_LABELS)))
    return tuple(there)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

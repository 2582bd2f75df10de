"""Which kinds a fake API server has, where they are found, and how each differs from the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NATIVE_GROUPS: Final = "podgroups.scheduling.k8s.io"


@dataclass(frozen=True, slots=True)
class ApiKind:
    """One of them."""

    plural: str
    kind: str
    api: str = "v1"  # group and version, as objects say it
    namespaced: bool = True
    has_status: bool = False  # as a subresource
    is_built_in: bool = True  # custom resources take no strategic patches
    #: Whether a PUT may say nothing of the version that it replaces.
    unconditional: bool = True
    finalizer: str = ""  # put on every new one by admission

    @property
    def id(self) -> str:
        """Unlike any other's."""
        group = self.api.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural


def _custom(group: str, version: str, *, has_status: bool) -> ApiKind:
    api = f"{group}/{version}"
    return ApiKind("podgroups", "PodGroup", api, has_status=has_status, is_built_in=False, unconditional=False)


KINDS: Final = (
    ApiKind("pods", "Pod", has_status=True),
    ApiKind("nodes", "Node", namespaced=False, has_status=True),
    ApiKind("namespaces", "Namespace", namespaced=False, has_status=True),
    ApiKind("configmaps", "ConfigMap"),
    ApiKind("persistentvolumeclaims", "PersistentVolumeClaim", has_status=True),
    ApiKind("persistentvolumes", "PersistentVolume", namespaced=False, has_status=True),
    ApiKind("storageclasses", "StorageClass", "storage.k8s.io/v1", namespaced=False),
    ApiKind("priorityclasses", "PriorityClass", "scheduling.k8s.io/v1", namespaced=False),
    ApiKind("leases", "Lease", "coordination.k8s.io/v1", unconditional=False),
    ApiKind("events", "Event", "events.k8s.io/v1"),
    ApiKind(
        "podgroups",
        "PodGroup",
        "scheduling.k8s.io/v1beta1",
        has_status=True,
        unconditional=False,
        finalizer="scheduling.k8s.io/podgroup-protection",
    ),
    _custom("scheduling.x-k8s.io", "v1alpha1", has_status=True),
    _custom("scheduling.sigs.k8s.io", "v1alpha1", has_status=False),
    _custom("scheduling.volcano.sh", "v1beta1", has_status=False),
)
KIND_BY_PLACE: Final = {(each.api, each.plural): each for each in KINDS}


@dataclass(frozen=True, slots=True)
class ApiPlace:
    """What a path names."""

    kind: ApiKind
    namespace: str = ""
    name: str = ""
    part: str = ""  # the subresource

    @property
    def key(self) -> tuple[str, str, str]:
        """In the store."""
        return self.kind.id, self.namespace, self.name


def find_place(path: str) -> ApiPlace | None:
    """By its path; None if nothing is served there."""
    steps = path.strip("/").split("/")
    if steps[0] == "api":
        api, steps = steps[1], steps[2:]
    elif steps[0] == "apis":
        api, steps = "/".join(steps[1:3]), steps[3:]
    else:
        return None
    namespace = ""
    if steps[:1] == ["namespaces"] and len(steps) > 2:
        namespace, steps = steps[1], steps[2:]
    kind = KIND_BY_PLACE.get((api, steps[0])) if steps else None
    if kind is None:
        return None
    name, part = (*steps[1:3], "", "")[:2]
    return ApiPlace(kind, namespace, name, part)

"""Machines that are objects only, and pods to put on them: manifests, to be created by whoever asks.

plane.api.create_all("/api/v1/nodes", make_nodes("16x8", levels={"example.com/rack": 4}))
plane.api.create_all("/api/v1/namespaces/default/pods", make_pods("a", 8, scheduler="phalanx"))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

GPU: Final = "nvidia.com/gpu"
#: Of one machine with eight devices; enough that only the devices are ever short unless a test says otherwise.
ROOM: Final[Mapping[str, str]] = {"cpu": "96", "memory": "1Ti", "pods": "110"}


def make_nodes(
    shape: str,
    *,
    prefix: str = "node",
    levels: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    room: Mapping[str, str] = ROOM,
) -> list[dict[str, Any]]:
    """Nodes of a shape as 16x8 (nodes x devices), ready and complete with status: one POST makes one.

    `levels` names labels of the topology and how many nodes in a row share one of its domains.
    """
    match = re.fullmatch(r"(\d+)x(\d+)", shape)
    if match is None:
        raise ValueError(f"{shape!r} is no cluster; write nodes x devices per node, as 16x8")
    count, devices = map(int, match.groups())
    width = len(str(count - 1))
    return [
        _make_node(
            f"{prefix}-{at:0{width}d}",
            {
                **{key: f"{key.rpartition('/')[2]}-{at // size}" for key, size in (levels or {}).items()},
                **(labels or {}),
            },
            {**room, GPU: str(devices)},
        )
        for at in range(count)
    ]


def _make_node(name: str, labels: Mapping[str, str], room: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}},
        "status": {
            "capacity": dict(room),
            "allocatable": dict(room),
            "conditions": [{"type": "Ready", "status": "True", "reason": "Fake", "message": "an object only"}],
        },
    }


def make_pods(
    prefix: str,
    count: int,
    *,
    gpus: int = 1,
    scheduler: str = "default-scheduler",
    native_gang: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: object,
) -> list[dict[str, Any]]:
    """Pods `prefix`-0, -1, ... that ask for devices; `native_gang` names a native PodGroup, `spec` has the rest."""
    request = {"limits": {GPU: str(gpus)}} if gpus else {}
    group = {"schedulingGroup": {"podGroupName": native_gang}} if native_gang else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{prefix}-{at}",
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "schedulerName": scheduler,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "none", "resources": request}],
                **group,
                **spec,
            },
        }
        for at in range(count)
    ]


def make_native_gang(name: str, members_min: int, **spec: object) -> dict[str, Any]:
    """Kubernetes' own PodGroup, at v1beta1."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members_min}}, **spec},
    }

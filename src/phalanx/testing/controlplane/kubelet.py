"""What kubelets would do to bound pods, on request: nothing moves unless a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from phalanx.testing.controlplane.rest import KubeRest

STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
PODS: Final = "/api/v1/pods"
GROUPS: Final = "/apis/scheduling.k8s.io/v1beta1/podgroups"
#: A pod goes on from these to the phase asked for; from an end nothing goes on.
BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "Running": ("Pending",),
    "Succeeded": ("Pending", "Running"),
    "Failed": ("Pending", "Running"),
}


class FakeKubelet:
    """All kubelets of a cluster."""

    def __init__(self, api: KubeRest) -> None:
        self._api = api

    def list_bound(self, **query: object) -> list[dict[str, Any]]:
        """Pods that have a node; `labelSelector` and `fieldSelector` narrow them down."""
        return [pod for pod in self._api.get(PODS, **query)["items"] if pod["spec"].get("nodeName")]

    def move(self, phase: str, is_meant: Callable[[dict[str, Any]], bool] = lambda _: True, **query: object) -> int:
        """Move bound pods to Running, Succeeded or Failed, one status patch each; how many it moved."""
        # Those being deleted are moved too: a program may end while it is asked to.
        meant = [pod for pod in self.list_bound(**query) if pod["status"]["phase"] in BEFORE[phase] and is_meant(pod)]
        for pod in meant:
            status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(phase == "Running")}]}
            self._api.patch(f"{_path(pod)}/status", {"status": status}, STRATEGIC_PATCH)
        return len(meant)

    def end_deleted(self) -> int:
        """Finish what was asked to go: a bound pod stays until its kubelet says that its processes have ended."""
        going = [pod for pod in self.list_bound() if "deletionTimestamp" in pod["metadata"]]
        for pod in going:
            self._api.delete(_path(pod), gracePeriodSeconds=0)
        return len(going)

    def release_groups(self) -> int:
        """Let native groups go that were deleted: taking off their finalizer is the controller-manager's task."""
        going = [group for group in self._api.get(GROUPS)["items"] if "deletionTimestamp" in group["metadata"]]
        for group in going:
            meta = group["metadata"]
            path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{meta['namespace']}/podgroups/{meta['name']}"
            self._api.patch(path, {"metadata": {"finalizers": None}})
        return len(going)


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

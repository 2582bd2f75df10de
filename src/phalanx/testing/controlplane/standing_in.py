"""A program of this machine in the place of a pod, so that the API server's proxy of a Service reaches it.

Nobody runs pods here. The API server sends what it proxies to endpoints that are pods of the Service's namespace with
that address, and to no others; loopback is none of them.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from phalanx.testing.controlplane.rest import KubeRefusedError, KubeRest


def find_address() -> str | None:
    """An address of this machine that is not loopback, None if it has none; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # of a net that is kept for documents
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


def stand_in(api: KubeRest, namespace: str, service: str, address: str, port: int, *, name: str = "") -> str:
    """A pod that looks as if it ran there and served; the answer is its name. `port`: of the first of the Service's."""
    name = name or f"{service}-0"
    found = api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, _make_pod(name, found["spec"].get("selector") or {}))
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    api.patch(f"{pods}/{name}/status", {"status": status})
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": name},
            }
        ],
        "ports": [{"name": found["spec"]["ports"][0].get("name", ""), "port": port}],
    }
    api.create(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", slice_)
    return name


def stand_down(api: KubeRest, namespace: str, name: str) -> None:
    """It serves no more, and nothing is sent there; of one that never stood in there is nothing to do."""
    with contextlib.suppress(KubeRefusedError):
        api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}")
        api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def _make_pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        # With a node, or schedulers would look for one.
        "spec": {"nodeName": "somewhere", "containers": [{"name": "main", "image": "none"}]},
    }

"""`python -m bench.kube_binder KUBECONFIG`: binds every pod that waits, and decides nothing: what a bind costs."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from bench.kube_posts import post_all
from phalanx.frontends.kube.api.api_client import ApiClient
from phalanx.frontends.kube.api.kubeconfig import find_access
from phalanx.frontends.kube.objects.decode import decode_list
from phalanx.frontends.kube.objects.node import NodeObject
from phalanx.frontends.kube.objects.pod import Pod

#: Of a node; the pods of these benchmarks ask for one of them each.
DEVICES = 8


async def bind_all(kubeconfig: str) -> None:
    """Eight to a node, in the order of their names."""
    access = find_access(kubeconfig)
    api = ApiClient(access)
    pods = decode_list(await api.get("/api/v1/pods"), Pod).items
    nodes = decode_list(await api.get("/api/v1/nodes"), NodeObject).items
    waiting = [pod.metadata.name for pod in pods if not pod.spec.node_name]
    await post_all(
        access,
        (_binding(name, nodes[at // DEVICES % len(nodes)].metadata.name) for at, name in enumerate(waiting)),
    )
    api.close()


def _binding(pod: str, node: str) -> tuple[str, bytes]:
    tree = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    return f"/api/v1/namespaces/default/pods/{pod}/binding", msgspec.json.encode(tree)


if __name__ == "__main__":
    asyncio.run(bind_all(sys.argv[1]))

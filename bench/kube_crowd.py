"""5,000 nodes that are nearly full, 10,000 pods that wait, and pods that come meanwhile and fit beside all that.

0 .. 4,499      8 devices each, all of them taken by one pod
4,500 .. 4,999  4 of 8 taken: room for newcomers of one device, and for nobody who waits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kube_plane import make_gang, save_world
from phalanx.testing.controlplane.fake_nodes import make_nodes, make_pods

GANG = 8


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many of each."""

    nodes: int = 5_000
    waiting: int = 10_000

    @property
    def room(self) -> int:
        """How many newcomers fit."""
        return self.nodes // 10 * 4


SMALL = Crowd(nodes=200, waiting=400)


def save_crowd(folder: Path, crowd: Crowd) -> Path:
    """All of it."""
    gangs = [make_gang(f"waits-{at:04}", GANG, gpus=8) for at in range(crowd.waiting // GANG)]
    pods = [*list_tenants(crowd), *(pod for _, some in gangs for pod in some)]
    return save_world(folder, make_nodes(f"{crowd.nodes}x8"), [group for group, _ in gangs], pods)


def list_tenants(crowd: Crowd) -> Sequence[Any]:
    """One pod for each node, there already."""
    width, half = len(str(crowd.nodes - 1)), crowd.nodes // 10
    found = []
    for at in range(crowd.nodes):
        (pod,) = make_pods(f"sits-{at}", 1, gpus=4 if at >= crowd.nodes - half else 8)
        pod["spec"]["nodeName"] = f"node-{at:0{width}d}"
        found.append(pod)
    return found

"""Kubelets of a cluster in virtual time, and the controllers that clear up after them: how bound pods go on.

A kubelet counts for itself: whoever comes to a node that is full already is turned away, which is what stands between
two replicas that gave one seat twice and a device that is used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from phalanx.testing.controlplane.fake_nodes import GPU
from phalanx.testing.kube.api_kinds import NATIVE_GROUPS
from phalanx.testing.kube.fake_api import STRATEGIC_PATCH
from phalanx.testing.kube.fake_etcd import StoredChange, Tree
from phalanx.testing.kube.kube_world import KubeWorld

#: How long a pod runs, in seconds, as an annotation; without it: for ever.
RUN_S: Final = "trial.example/run-s"
_ENDED: Final = ("Succeeded", "Failed")
_START_US: Final = (10_000, 300_000, 2_000_000)
_END_US: Final = (10_000, 500_000, 3_000_000)
_S: Final = 1_000_000


class Kubelets:
    """All of them."""

    def __init__(self, world: KubeWorld, dice: Random) -> None:
        """They listen from now on."""
        self.world, self.dice = world, dice
        self.turned_away = 0
        self._hurry = False
        world.listen(self._on_change)

    def end_everything(self) -> None:
        """From now on nothing runs for long."""
        self._hurry = True
        for pod in self.world.list("pods"):
            if pod["status"]["phase"] == "Running":
                self.world.later(_S, self._end, path_of(pod), pod["metadata"]["uid"])

    def fail(self, pod: Tree) -> None:
        """Its program has crashed."""
        self._say(path_of(pod), pod["metadata"]["uid"], "Failed", ("Running",))

    # ---- what happens by itself

    def _on_change(self, change: StoredChange) -> None:
        kind, old = change.key[0], None if change.old is None else change.old.tree
        new = None if change.new is None else change.new.tree
        if kind == "pods" and new is not None:
            path, uid = path_of(new), new["metadata"]["uid"]
            if has_node(new) and (old is None or not has_node(old)):
                self.world.later(self.dice.choice(_START_US), self._start, path, uid)
            if new["metadata"].get("deletionTimestamp") and not (old or {}).get("metadata", {}).get(
                "deletionTimestamp"
            ):
                self.world.later(self.dice.choice(_END_US), self._let_go, path, uid)
        elif kind == NATIVE_GROUPS and new is not None and new["metadata"].get("deletionTimestamp"):
            path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{change.key[1]}/podgroups/{change.key[2]}"
            self.world.later(_S, self.world.ask, "PATCH", path, {"metadata": {"finalizers": None}})
        elif kind == "nodes" and new is None:
            self.world.later(3 * _S, self._collect, change.key[2])

    def _start(self, path: str, uid: str) -> None:
        pod = self.world.ask("GET", path)
        if pod is None or pod["metadata"]["uid"] != uid or pod["metadata"].get("deletionTimestamp"):
            return
        node = self.world.ask("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")
        if node is None:
            self.world.later(_S, self._start, path, uid)  # perhaps it comes back before its pods are taken away
            return
        there = list_on(self.world.list("pods"), pod["spec"]["nodeName"])
        if sum(map(gpus_of, there)) > room_of(node):
            self.turned_away += 1
            self._say(path, uid, "Failed", ("Pending",))
            return
        self._say(path, uid, "Running", ("Pending",))
        run_s = "1" if self._hurry else (pod["metadata"].get("annotations") or {}).get(RUN_S)
        if run_s:
            self.world.later(int(float(run_s) * _S), self._end, path, uid)

    def _end(self, path: str, uid: str) -> None:
        self._say(path, uid, "Succeeded", ("Running",))

    def _say(self, path: str, uid: str, phase: str, before: Iterable[str]) -> None:
        pod = self.world.ask("GET", path)
        if pod is None or pod["metadata"]["uid"] != uid or pod["metadata"].get("deletionTimestamp"):
            return
        if pod["status"]["phase"] in before:
            conditions = [{"type": "Ready", "status": str(phase == "Running")}]
            tree = {"status": {"phase": phase, "conditions": conditions}}
            self.world.ask("PATCH", f"{path}/status", tree, kind=STRATEGIC_PATCH, user="kubelet")

    def _let_go(self, path: str, uid: str) -> None:
        options: dict[str, Any] = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self.world.ask("DELETE", path, options, user="kubelet")

    def _collect(self, node: str) -> None:
        """Pods of a node that is gone are taken away by a controller."""
        if self.world.ask("GET", f"/api/v1/nodes/{node}") is None:
            for pod in list_on(self.world.list("pods"), node):
                self._let_go(path_of(pod), pod["metadata"]["uid"])


def path_of(pod: Tree) -> str:
    """Where it is."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def has_node(pod: Tree) -> bool:
    """Whether it is bound."""
    return bool(pod["spec"].get("nodeName"))


def list_on(pods: Iterable[Tree], node: str) -> list[Tree]:
    """Who takes room of a node."""
    return [pod for pod in pods if pod["spec"].get("nodeName") == node and pod["status"]["phase"] not in _ENDED]


def gpus_of(pod: Tree) -> int:
    """What it takes, of the one kind that is ever short here."""
    asked = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return int(asked.get(GPU, 0))


def room_of(node: Tree) -> int:
    """What a node has."""
    return int(node["status"]["allocatable"].get(GPU, 0))

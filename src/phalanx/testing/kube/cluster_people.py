"""Those who make gangs and take them away, controllers that make lost pods anew, and somebody else who schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_pods
from phalanx.testing.kube.fake_etcd import StoredChange, Tree
from phalanx.testing.kube.kube_world import PODS, KubeWorld
from phalanx.testing.kube.kubelets import RUN_S, gpus_of, has_node, list_on, path_of, room_of

#: Which gang a pod is in, for the rules: they do not ask the code under test.
GANG: Final = "trial.example/gang"
_API: Final = {
    "native": "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups",
    "plugins": "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
    "volcano": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
}
_MS: Final = 1_000


@dataclass(slots=True)
class WantedGang:
    """What somebody wants to run together."""

    name: str
    dialect: str  # native, plugins, volcano, koordinator, plain
    size: int
    least: int
    gpus: int = 1
    run_s: float = 0.0  # 0: for ever
    together: tuple[str, ...] = ()  # Koordinator: gangs that start at one instant
    numbered: bool = False  # a lost pod comes back under another name, as of a Job
    is_wanted: bool = True
    done: int = 0  # pods that have done their work and are gone: nobody makes those anew
    pods: list[Tree] = field(default_factory=list)  # as they are made

    @property
    def group(self) -> Tree | None:
        """Its object, if its dialect has one."""
        if self.dialect == "native":
            return make_native_gang(self.name, self.least)
        if self.dialect in ("plugins", "volcano"):
            return {"metadata": {"name": self.name}, "spec": {"minMember": self.least}}
        return None

    def make_pods(self) -> list[Tree]:
        """All of them, as manifests."""
        labels: dict[str, str] = {}
        annotations = {GANG: self.name, **({RUN_S: str(self.run_s)} if self.run_s else {})}
        native = None
        if self.dialect == "native":
            native = self.name
        elif self.dialect == "plugins":
            labels["scheduling.x-k8s.io/pod-group"] = self.name
        elif self.dialect == "volcano":
            annotations["scheduling.k8s.io/group-name"] = self.name
        elif self.dialect == "koordinator":
            prefix = "gang.scheduling.koordinator.sh/"
            annotations |= {f"{prefix}name": self.name, f"{prefix}min-available": str(self.least)}
            if self.together:
                annotations[f"{prefix}groups"] = "[" + ",".join(f'"default/{each}"' for each in self.together) + "]"
        return make_pods(
            self.name,
            self.size,
            gpus=self.gpus,
            scheduler="phalanx",
            native_gang=native,
            labels=labels,
            annotations=annotations,
        )


class ClusterPeople:
    """All of them."""

    def __init__(self, world: KubeWorld, dice: Random) -> None:
        """They listen from now on."""
        self.world, self.dice = world, dice
        self.gangs: dict[str, WantedGang] = {}
        self._again = 0
        world.listen(self._on_change)

    # ---- gangs

    def submit(self, gang: WantedGang, spread_us: int = 0) -> None:
        """Its object and its pods, in whatever order."""
        self.gangs[gang.name] = gang
        gang.pods = gang.make_pods()
        if gang.group is not None:
            self.world.later(self.dice.randint(0, spread_us), self.world.ask, "POST", _API[gang.dialect], gang.group)
        for pod in gang.pods:
            self.world.later(self.dice.randint(0, spread_us), self._make, gang, pod)

    def withdraw(self, gang: WantedGang) -> None:
        """Nobody wants it any more."""
        gang.is_wanted = False
        self.drop_group(gang)
        for pod in self.list_pods(gang.name):
            self.world.ask("DELETE", path_of(pod))

    def drop_group(self, gang: WantedGang) -> None:
        """Its object alone."""
        if gang.dialect in _API:
            self.world.ask("DELETE", f"{_API[gang.dialect]}/{gang.name}")

    def renew_group(self, gang: WantedGang) -> None:
        """Its object is made, if it is not there."""
        if gang.is_wanted and gang.group is not None:
            self.world.ask("POST", _API[gang.dialect], gang.group)

    def list_pods(self, gang: str) -> list[Tree]:
        """Those that are there."""
        return [pod for pod in self.world.list("pods") if name_gang(pod) == gang]

    def _make(self, gang: WantedGang, pod: Tree) -> None:
        if gang.is_wanted:
            self.world.ask("POST", PODS, pod)

    def _on_change(self, change: StoredChange) -> None:
        """A controller makes pods anew that are lost, and takes away those that failed."""
        if change.key[0] != "pods":
            return
        there = change.new or change.old
        gang = self.gangs.get(name_gang(there.tree)) if there is not None else None
        if gang is None or there is None or not gang.is_wanted:
            return
        if change.new is None and there.tree["status"]["phase"] != "Succeeded":
            self.world.later(self.dice.choice((50, 500, 2_000)) * _MS, self._replace, gang, change.key[2])
        elif change.new is None:
            gang.done += 1
        elif there.tree["status"]["phase"] == "Failed" and not there.tree["metadata"].get("deletionTimestamp"):
            self.world.later(self.dice.choice((50, 500)) * _MS, self.world.ask, "DELETE", path_of(there.tree))

    def _replace(self, gang: WantedGang, name: str) -> None:
        index = next((at for at, pod in enumerate(gang.pods) if pod["metadata"]["name"] == name), None)
        if index is None or not gang.is_wanted or self.world.ask("GET", f"{PODS}/{name}") is not None:
            return
        pod = gang.pods[index]
        if gang.numbered:
            self._again += 1
            metadata = {**pod["metadata"], "name": f"{gang.name}-{index}x{self._again}"}
            pod = gang.pods[index] = {**pod, "metadata": metadata}
        self._make(gang, pod)

    # ---- whoever else schedules

    def bind_foreign(self, name: str, gpus: int) -> None:
        """Another scheduler finds a seat for a pod of its own, by what is bound now."""
        pods = self.world.list("pods")
        for node in sorted(self.world.list("nodes"), key=lambda each: str(each["metadata"]["name"])):
            there = node["metadata"]["name"]
            if sum(map(gpus_of, list_on(pods, there))) + gpus <= room_of(node):
                (pod,) = make_pods(name, 1, gpus=gpus, scheduler="somebody")
                self.world.ask("POST", PODS, pod, user="others")
                target = {"metadata": {"name": f"{name}-0"}, "target": {"kind": "Node", "name": there}}
                self.world.ask("POST", f"{PODS}/{name}-0/binding", target, user="others")
                return


def name_gang(pod: Tree) -> str:
    """Which gang it is in; empty for pods of others."""
    found: str = (pod["metadata"].get("annotations") or {}).get(GANG, "")
    return found


def holds_seat(pod: Tree) -> bool:
    """Whether it counts as bound: also one that is done, not one that failed."""
    return has_node(pod) and pod["status"]["phase"] != "Failed"

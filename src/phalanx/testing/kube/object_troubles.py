"""What becomes of pods, gangs and nodes while they are looked at: deleted, made anew, failed, full, tainted, gone."""

from __future__ import annotations

from typing import Final

from phalanx.testing.controlplane.fake_nodes import GPU
from phalanx.testing.kube.cluster_people import ClusterPeople, WantedGang, name_gang
from phalanx.testing.kube.cluster_rules import ClusterRules
from phalanx.testing.kube.fake_etcd import Tree
from phalanx.testing.kube.kube_world import NODES, PODS, KubeWorld
from phalanx.testing.kube.kubelets import Kubelets, path_of

_S: Final = 1_000_000


class ObjectTroubles:
    """Everything that people, kubelets and other schedulers do at the worst moment."""

    def __init__(self, world: KubeWorld, rules: ClusterRules, people: ClusterPeople, kubelets: Kubelets) -> None:
        """Nothing has happened yet."""
        self.world, self.rules, self.people, self.kubelets = world, rules, people, kubelets
        self.dice = world.dice
        self._shapes: dict[str, Tree] = {}  # nodes as they were made
        self._foreigners = 0

    def heal(self) -> None:
        """Nodes are as they were, and gangs have their objects."""
        for name, shape in self._shapes.items():
            self._restore(name, shape)
        for gang in self.people.gangs.values():
            self.people.renew_group(gang)

    def _restore(self, name: str, shape: Tree) -> None:
        if self.world.ask("GET", f"{NODES}/{name}") is None:
            self.world.create(NODES, [shape])
        self.world.ask("PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": None, "taints": None}})
        self.world.ask("PATCH", f"{NODES}/{name}/status", {"status": shape["status"]})

    # ------------------------------------------------------------------ pods and gangs

    def _draw_pod(self) -> Tree | None:
        # What has succeeded is not made anew, and its gang would be short of it for ever.
        found = [pod for pod in self.world.list("pods") if name_gang(pod) and pod["status"]["phase"] != "Succeeded"]
        return self.dice.choice(found) if found else None

    def delete_pod(self) -> None:
        """Somebody deletes one."""
        pod = self._draw_pod()
        if pod is not None:
            self.rules.note_trouble("pods", pod["metadata"]["uid"])
            self.world.ask("DELETE", path_of(pod))

    def force_pod(self) -> None:
        """At once, whatever its kubelet says; and another one of its name is there in the same instant."""
        self.renew(self._draw_pod())

    def renew(self, pod: Tree | None) -> None:
        """That one is gone, and another one of its name is there."""
        if pod is not None and name_gang(pod):
            self.rules.note_trouble("forced", pod["metadata"]["uid"])
            self.world.ask("DELETE", path_of(pod), {"gracePeriodSeconds": 0})
            gang = self.people.gangs[name_gang(pod)]
            for manifest in gang.pods:
                if manifest["metadata"]["name"] == pod["metadata"]["name"] and gang.is_wanted:
                    self.world.ask("POST", PODS, manifest)

    def fail_pod(self) -> None:
        """A program crashes."""
        pod = self._draw_pod()
        if pod is not None:
            self.rules.note_trouble("fails", pod["metadata"]["uid"])
            self.kubelets.fail(pod)

    def _draw_gang(self) -> WantedGang | None:
        there = [gang for gang in self.people.gangs.values() if gang.is_wanted]
        return self.dice.choice(there) if there else None

    def delete_group(self) -> None:
        """The object of a gang is gone for a while."""
        gang = self._draw_gang()
        if gang is not None:
            self.rules.note_trouble("groups", gang.name)
            self.people.drop_group(gang)
            self.world.later(3 * _S, self.people.renew_group, gang)

    def withdraw(self) -> None:
        """Nobody wants a gang any more."""
        gang = self._draw_gang()
        if gang is not None and not gang.together:
            self.rules.note_trouble("withdraws", gang.name)
            self.people.withdraw(gang)

    def seat_foreigner(self) -> None:
        """Another scheduler takes a seat."""
        self._foreigners += 1
        self.rules.note_trouble("foreign")
        self.people.bind_foreign(f"foreign-{self._foreigners}", self.dice.randint(1, 2))

    # ------------------------------------------------------------------ nodes

    def _draw_node(self) -> str:
        names = sorted(tree["metadata"]["name"] for tree in self.world.list("nodes"))
        name = self.dice.choice(names) if names else ""
        if name:
            self._shapes.setdefault(name, self._strip(self.world.ask("GET", f"{NODES}/{name}")))
        return name

    def _strip(self, tree: Tree) -> Tree:
        metadata = {"name": tree["metadata"]["name"], "labels": tree["metadata"].get("labels", {})}
        return {"metadata": metadata, "status": tree["status"]}

    def cordon(self) -> None:
        """A node takes no more pods for a while."""
        if name := self._draw_node():
            self.rules.note_trouble("cordons", name)
            self.world.ask("PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": True}})
            self.world.later(10 * _S, self.world.ask, "PATCH", f"{NODES}/{name}", {"spec": {"unschedulable": None}})

    def taint(self) -> None:
        """The same, by a taint."""
        if name := self._draw_node():
            self.rules.note_trouble("taints", name)
            taints = [{"key": "trial.example/broken", "effect": self.dice.choice(("NoSchedule", "NoExecute"))}]
            self.world.ask("PATCH", f"{NODES}/{name}", {"spec": {"taints": taints}})
            self.world.later(10 * _S, self.world.ask, "PATCH", f"{NODES}/{name}", {"spec": {"taints": None}})

    def shrink(self) -> None:
        """A device falls off the bus."""
        if name := self._draw_node():
            left = {GPU: str(self.dice.randint(0, 3))}
            self.rules.note_trouble("shrinks", f"{name} to {left[GPU]}")
            self.world.ask("PATCH", f"{NODES}/{name}/status", {"status": {"allocatable": left}})

    def drop_node(self) -> None:
        """A node is gone, and comes back."""
        if name := self._draw_node():
            self.rules.note_trouble("gone", name)
            shape = self._shapes[name]
            self.world.ask("DELETE", f"{NODES}/{name}")
            self.world.later(self.dice.choice((_S, 15 * _S)), self.world.create, NODES, [shape])

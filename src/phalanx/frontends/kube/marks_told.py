"""Who is what to rules about others, node by node, beside what the engine knows of gangs that it started.

A word comes up when the first rule speaks of it, and by then those of whom it speaks may have started long ago. So what
pods are now is told, less what they were to the engine when they started, which counts for as long as they hold seats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from phalanx.frontends.kube.companies import Name
from phalanx.frontends.kube.expressing import Terrain, express_marks
from phalanx.frontends.kube.kube_planner import KubePlanner, Stage
from phalanx.frontends.kube.mirror import Mirror, Sightings, find_asking
from phalanx.model.rules import Mark


class MarksTold:
    """What was told of each node."""

    def __init__(self, mirror: Mirror, planner: KubePlanner) -> None:
        """Nothing yet."""
        self._mirror, self._planner = mirror, planner
        self._told: dict[str, Mapping[Mark, int]] = {}

    def tell_changes(self, terrain: Terrain, changes: Sightings) -> None:
        """Of all nodes that may have changed in that."""
        pods = [pod for name in changes.worded if (pod := self._mirror.find_pod(name)) is not None]
        nodes = {pod.spec.node_name for pod in pods}
        for pod in pods:
            party = self._planner.find_party(pod.metadata.uid)
            if party is not None:
                nodes.add(party.seats[pod.metadata.uid][1])
        self.tell(terrain, (nodes | changes.tenants | changes.nodes) - {""})

    def tell(self, terrain: Terrain, nodes: Iterable[str]) -> None:
        """Of these nodes."""
        # Nobody asks, and nobody did: what the last one said has to be taken back when it goes.
        if self._mirror.companies.is_idle and not self._told:
            return
        flying, index = self._list_flying(), self._planner.state.fleet.index_by_name
        for node in sorted(nodes):
            marks = self._count(terrain, {**self._mirror.find_tenants(node), **flying.get(node, {})})
            if node not in index or self._told.get(node, {}) == marks:
                continue
            self._planner.state.note_marks(index[node], marks)
            if marks:
                self._told[node] = marks
            else:
                del self._told[node]

    def _count(self, terrain: Terrain, there: Mapping[str, Name]) -> dict[Mark, int]:
        total = Counter[Mark]()
        for uid, name in there.items():
            pod, party = self._mirror.find_pod(name), self._planner.find_party(uid)
            if pod is None:
                continue
            total.update(express_marks(find_asking(self._mirror, pod), terrain, name))
            if party is not None:
                total.subtract(party.venture.gang.roles[party.seats[uid][0]].shape.list_marks())
        return {mark: count for mark, count in total.items() if count}

    def _list_flying(self) -> dict[str, dict[str, Name]]:
        """Pods on their way, by node and uid: nobody has told us yet that they are there."""
        found: dict[str, dict[str, Name]] = {}
        for party in self._planner.parties.values():
            if party.stage is Stage.FLYING:
                members = chain.from_iterable(party.venture.members)
                names = {member.uid: (party.key.namespace, member.name) for member in members}
                for uid in party.seats.keys() & names.keys():
                    found.setdefault(party.seats[uid][1], {})[uid] = names[uid]
        return found

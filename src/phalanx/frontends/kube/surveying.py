"""What binding has to know beside the answers it gets: what is left of nodes, whether we still lead, how late it is."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.frontends.kube.expressing import express_node
from phalanx.frontends.kube.flights import Berth, find_short
from phalanx.frontends.kube.kube_clock import KubeClock
from phalanx.frontends.kube.leadership import Leadership
from phalanx.frontends.kube.mirror import Mirror, has_ended
from phalanx.frontends.kube.topology_wishes import LevelNames


class MirrorSurveyor:
    """By what the API server has told us."""

    def __init__(self, mirror: Mirror, levels: LevelNames, clock: KubeClock, leadership: Leadership | None) -> None:
        """Without a leadership nobody else may run."""
        self._mirror, self._levels, self._clock, self._leadership = mirror, levels, clock, leadership

    def find_short(self, open_: Sequence[Berth]) -> str:
        """What the rest of a flight has no room for any more, counting every pod that is bound."""
        mirror = self._mirror
        room: dict[str, dict[str, int]] = {}
        nodes = mirror.list_nodes()
        for name in {berth.node for berth in open_}:
            node = nodes.get(name)
            if node is None or node.spec.unschedulable:
                continue
            room[name] = dict(express_node(node, self._levels).resources)
            for kind, units in mirror.sum_tenants(name, lambda _: True).items():
                room[name][kind] = room[name].get(kind, 0) - units
        need = {}
        for berth in open_:
            pod = mirror.find_pod((berth.namespace, berth.name))
            # One that is bound by now is among those who are there.
            if pod is not None and pod.metadata.uid == berth.uid and not pod.spec.node_name:
                need[berth.uid] = mirror.find_amounts(pod)
        return find_short(open_, room, need)

    def note_bound(self, berth: Berth, node: str) -> None:
        """It is bound, for sure."""
        self._mirror.assume((berth.namespace, berth.name), berth.uid, node)

    def note_evicted(self, berth: Berth) -> None:
        """It is on its way out, for sure."""
        self._mirror.assume_leaving((berth.namespace, berth.name), berth.uid)

    def has_ended(self, berth: Berth) -> bool:
        """Whether it is done, and holds no seat any more."""
        pod = self._mirror.find_pod((berth.namespace, berth.name))
        return pod is not None and pod.metadata.uid == berth.uid and has_ended(pod)

    def may_write(self) -> bool:
        """Whether we lead, for sure, for as long as a call takes."""
        return self._leadership is None or self._leadership.is_good()

    def now_s(self) -> float:
        """By the wall clock."""
        return self._clock.wall_s()

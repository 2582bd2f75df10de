"""A replica that leads, without an API server: objects go into its mirror, and questions to its desk."""

from __future__ import annotations

import json
from dataclasses import replace

from kube_objects import node, pod

from phalanx.frontends.kube.answers.cluster_view import take_picture
from phalanx.frontends.kube.answers.desk import Desk
from phalanx.frontends.kube.expressing import Terrain, express_node, express_ventures, find_cluster_taints
from phalanx.frontends.kube.kube_door import DoorRequest
from phalanx.frontends.kube.kube_planner import KubePlanner
from phalanx.frontends.kube.mirror import Mirror
from phalanx.policy import POLICIES

GPU = "nvidia.com/gpu"
#: Thursday, 19 November 2026, noon.
NOW_US = 1_795_089_600_000_000


class World:
    """Its parts, put together as the controller does."""

    def __init__(self, nodes=4, devices=8, **node_options):
        self.mirror = Mirror("phalanx", lambda: None)
        self.views, self.events = {}, []
        room = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(devices)}
        for at in range(nodes):
            self.mirror.nodes.note(node(f"n{at}", status={"allocatable": room}, **node_options), deleted=False)
        there = self.mirror.list_nodes()
        self.terrain = Terrain(there, find_cluster_taints(there.values()))
        fleet = [express_node(each, self.terrain.levels) for each in there.values()]
        self.planner = KubePlanner(fleet, (), POLICIES["easy"], NOW_US)
        self.desk = Desk(self, lambda word, **more: self.events.append((word, more)), meter=lambda: 0.0)
        self.questions = 0

    def take_picture(self):
        self.questions += 1
        return take_picture(self.planner, "easy", self.views, self.terrain, self.mirror)

    def put_node(self, manifest):
        """A node, described anew."""
        self.mirror.nodes.note(manifest, deleted=False)
        there = self.mirror.list_nodes()
        self.terrain = Terrain(there, find_cluster_taints(there.values()))
        self.planner.put_nodes([express_node(manifest, self.terrain.levels)])

    def add(self, *objects, dialect=None):
        """Pods, and groups of a dialect; everybody is looked at anew, and starts who can."""
        for each in objects:
            sight = self.mirror.pods if dialect is None else self.mirror.groups[dialect]
            sight.note(each, deleted=False)
        for key in sorted(self.mirror.hand_over().gangs, key=lambda key: key.unique):
            view = self.mirror.look_at(key)
            if view is not None:
                ventures, unsaid = express_ventures(view, self.terrain)
                self.views[key] = replace(view, remarks=(*view.remarks, *unsaid))
                self.planner.settle(key, ventures, None)
        for departure in self.planner.plan():
            self._land(departure)

    def _land(self, departure):
        """Bound at once, and told so."""
        for number in departure.numbers:
            self.planner.land(number)
        for berth in departure.berths:
            self.mirror.assume((berth.namespace, berth.name), berth.uid, berth.node)
        for key in departure.keys:
            self.views[key] = self.mirror.look_at(key)

    async def ask(self, path, method="GET", body=b"", **query):
        reply = await self.desk.answer(
            DoorRequest(method, path, {key: str(value) for key, value in query.items()}, body)
        )
        return reply.status, json.loads(reply.body)


def gpu_pod(name, gpus=8, **more):
    containers = [{"name": "main", "resources": {"limits": {GPU: str(gpus)}}}]
    return pod(name, containers=containers, **more)

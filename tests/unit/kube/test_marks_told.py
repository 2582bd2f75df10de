"""What the engine is told of pods that sit, and of those on their way, beside what it knows itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from kube_objects import node, pod

from phalanx.frontends.kube.expressing import Terrain, express_node, express_ventures
from phalanx.frontends.kube.kube_planner import KubePlanner, Stage
from phalanx.frontends.kube.marks_told import MarksTold
from phalanx.frontends.kube.mirror import Mirror
from phalanx.policy import POLICIES

ROOM = {"allocatable": {"cpu": "8", "pods": "10"}}
WEB = "team: app=web"


def apart(app):
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@dataclass
class Cluster:
    """Two nodes in two zones, one pass after the other."""

    mirror: Mirror = field(default_factory=lambda: Mirror("phalanx", lambda: None))

    def __post_init__(self):
        nodes = [node(f"n{at}", labels={"zone": "ab"[at]}, status=ROOM) for at in range(2)]
        self.terrain = Terrain({each.metadata.name: each for each in nodes}, companies=self.mirror.companies)
        self.planner = KubePlanner([express_node(each, self.terrain.levels) for each in nodes], (), POLICIES["easy"], 0)
        self.told = MarksTold(self.mirror, self.planner)

    def put(self, name, version="1", **more):
        found = pod(name, **more)
        metadata = msgspec.structs.replace(found.metadata, resource_version=version)
        self.mirror.pods.note(msgspec.structs.replace(found, metadata=metadata), deleted=False)

    def drop(self, name, **more):
        self.mirror.pods.note(pod(name, **more), deleted=True)

    def look(self):
        """As the controller does: first who is there, then who waits."""
        changes = self.mirror.hand_over()
        for uid in changes.gone:
            self.planner.lose_pod(uid)
        self.told.tell_changes(self.terrain, changes)
        for key in changes.gangs:
            if any(each.key == key and each.stage is Stage.FLYING for each in self.planner.parties.values()):
                continue
            view = self.mirror.look_at(key)
            self.planner.settle(key, express_ventures(view, self.terrain)[0] if view else (), None)
        return self.planner.plan()

    def bearing(self, word=WEB):
        presence = self.planner.state.snapshot().presence
        return None if presence is None else presence.bearing(word).tolist()


@pytest.fixture
def cluster():
    return Cluster()


def test_nothing_is_told_until_somebody_asks_and_then_of_those_who_were_there(cluster):
    cluster.put("old", node="n0", labels={"app": "web"}, schedulerName="other")
    cluster.look()
    assert cluster.bearing() is None
    cluster.put("new", **apart("web"))
    ((berth,),) = [departure.berths for departure in cluster.look()]
    assert cluster.bearing() == [1, 0]
    assert berth.node == "n1"


def test_who_runs_and_keeps_others_away_does_so_until_it_is_gone(cluster):
    cluster.put("theirs", node="n0", schedulerName="other", **apart("web"))
    cluster.put("theirs-too", node="n1", schedulerName="other", **apart("web"))
    cluster.put("web", labels={"app": "web"})
    assert cluster.look() == []
    cluster.drop("theirs-too", node="n1", schedulerName="other", **apart("web"))
    ((berth,),) = [departure.berths for departure in cluster.look()]
    assert berth.node == "n1"
    cluster.drop("theirs", node="n0", schedulerName="other", **apart("web"))
    cluster.look()
    assert cluster.planner.state.snapshot().presence.away["team: app=web"]["zone"].tolist() == [0, 0]


def test_who_is_on_its_way_when_a_word_comes_up_is_counted_where_it_goes(cluster):
    cluster.put("first", labels={"app": "web"}, nodeSelector={"zone": "b"})
    ((berth,),) = [departure.berths for departure in cluster.look()]
    assert berth.node == "n1"
    cluster.put("second", **apart("web"))
    ((berth,),) = [departure.berths for departure in cluster.look()]
    assert (berth.name, berth.node) == ("second", "n0")
    assert cluster.bearing() == [0, 1]
    # Bound and told: it is the same one, and counts once.
    cluster.mirror.assume(("team", "first"), "uid-first", "n1")
    cluster.planner.land(0)
    cluster.look()
    assert cluster.bearing() == [0, 1]


def test_who_bears_a_word_from_the_start_counts_once_and_no_more_when_it_is_relabelled(cluster):
    labels = {"app": "web"}
    cluster.put("web", labels=labels, **apart("web"))
    ((berth,),) = [departure.berths for departure in cluster.look()]
    cluster.mirror.assume(("team", "web"), "uid-web", berth.node)
    cluster.planner.land(0)
    cluster.look()
    assert cluster.bearing() == [1, 0]
    cluster.put("web", "2", node="n0", labels={"app": "other"}, **apart("web"))
    cluster.look()
    assert cluster.bearing() == [0, 0]
    cluster.drop("web")
    cluster.look()
    assert cluster.bearing() == [0, 0]

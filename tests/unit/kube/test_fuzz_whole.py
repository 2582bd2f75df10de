"""The same from the watch to the plan: whatever an object says, everybody else is still looked at, planned and told."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kube_fuzz import EVERYTHING, GROUP_OBJECTS, HONOURED, OBJECTS, changes, put, values, words
from kube_objects import NATIVE, gang, key_of, manifest, members, metadata, node, pod

from phalanx.frontends.kube.expressing import Terrain, express_node, express_ventures, find_cluster_taints
from phalanx.frontends.kube.flights import read_intent
from phalanx.frontends.kube.gang_groups import check_groups
from phalanx.frontends.kube.gang_view import Dialect
from phalanx.frontends.kube.kube_planner import KubePlanner
from phalanx.frontends.kube.mirror import GROUPS, Mirror
from phalanx.frontends.kube.objects.decode import decode_line
from phalanx.frontends.kube.topology_wishes import LevelNames
from phalanx.policy import POLICIES

LEVELS = LevelNames(
    ("block", "rack"), {"example.com/rack": "rack", "example.com/block": "block"}, {"rackLayer": "rack"}
)
ROOM = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}}
LABELS = {"disk": "ssd", "size": "7", "example.com/rack": "r1"}
GOOD = members(NATIVE, 2, "good")
#: The kinds of which a wrong one is another case than the ones in `test_fuzz`.
MORE = {
    "namespaces": {"metadata": {"name": "team", "labels": {"tier": "one"}}},
    "priorities": {"metadata": {"name": "high"}, "value": 5, "globalDefault": True, "preemptionPolicy": "Never"},
    "storage": {"metadata": {"name": "ssd"}, "volumeBindingMode": "WaitForFirstConsumer"},
    "claims": OBJECTS["PersistentVolumeClaim"],
    "volumes": OBJECTS["PersistentVolume"],
}


def see(sight, kind, tree):
    """As a line of a watch, and then deleted and made again."""
    for type_ in ("ADDED", "MODIFIED", "DELETED", "ADDED"):
        line = decode_line(json.dumps({"type": type_, "object": tree}).encode(), kind.decoded_as)
        if line.object is not None:
            sight.note(line.object, deleted=type_ == "DELETED")


def go_on(mirror):
    """What the controller does with it; the good gang starts whatever else is there."""
    for each in GOOD:
        mirror.pods.note(each, deleted=False)
    mirror.groups[Dialect.NATIVE].note(gang(NATIVE, 2, "good"), deleted=False)
    mirror.nodes.note(node("roomy", labels=LABELS, status=ROOM), deleted=False)
    nodes = mirror.list_nodes()
    terrain = Terrain(nodes, find_cluster_taints(nodes.values()), LEVELS)
    planner = KubePlanner([express_node(each, LEVELS) for each in nodes.values()], LEVELS.levels, POLICIES["easy"], 0)
    for name in nodes:
        planner.set_others(name, mirror.sum_tenants(name, lambda _: True))
    views = [view for key in sorted(mirror.list_gangs(), key=str) if (view := mirror.look_at(key)) is not None]
    check_groups(views)
    for view in views:
        planner.settle(view.key, express_ventures(view, terrain)[0], None)
    departed = {key for departure in planner.plan() for key in departure.keys}
    assert key_of(NATIVE, "good") in departed
    planner.explain()
    return departed


def go_through_pod(changed):
    mirror = Mirror("phalanx", lambda: None)
    pods = next(kind for kind, sight in mirror.sights.items() if sight is mirror.pods)
    see(mirror.pods, pods, changed)
    return go_on(mirror)


@given(changes(EVERYTHING, spared=[("metadata", "namespace")]))
def test_any_value_at_any_place_of_a_pod(changed):
    go_through_pod(changed)


@given(changes(HONOURED))
@example(put(HONOURED, ("spec", "priority"), 2**31))
@example(put(HONOURED, ("spec", "activeDeadlineSeconds"), 2**62))
def test_any_value_at_any_place_of_a_pod_that_comes_as_far_as_the_engine(changed):
    go_through_pod(changed)


def test_that_pod_does_come_as_far_as_the_engine():
    assert len(go_through_pod(HONOURED)) == 2


@given(changes({"kind": "Node", **OBJECTS["Node"]}))
def test_any_value_at_any_place_of_a_node(changed):
    mirror = Mirror("phalanx", lambda: None)
    nodes = next(kind for kind, sight in mirror.sights.items() if sight is mirror.nodes)
    see(mirror.nodes, nodes, changed)
    mirror.pods.note(pod("there", node="n", cpu="7"), deleted=False)
    go_on(mirror)


@given(st.data())
def test_any_value_at_any_place_of_what_pods_refer_to(data):
    name = data.draw(st.sampled_from(sorted(MORE)))
    mirror = Mirror("phalanx", lambda: None)
    sight = getattr(mirror.referred, name)
    kind = next(kind for kind, each in mirror.sights.items() if each is sight)
    see(sight, kind, data.draw(changes(MORE[name])))
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    mirror.pods.note(pod("user", volumes=volumes, priorityClassName="high"), deleted=False)
    go_on(mirror)


@given(st.data())
def test_any_value_at_any_place_of_a_group(data):
    api = data.draw(st.sampled_from(sorted(GROUP_OBJECTS)))
    whole = {"apiVersion": api, "metadata": metadata("g"), "spec": GROUP_OBJECTS[api]}
    mirror = Mirror("phalanx", lambda: None)
    dialect = key_of(api).dialect
    changed = data.draw(changes(whole, spared=[("metadata", "name"), ("metadata", "namespace"), ("apiVersion",)]))
    see(mirror.groups[dialect], GROUPS[dialect], changed)
    for each in members(api, 2):
        mirror.pods.note(each, deleted=False)
    go_on(mirror)


AMOUNTS = [
    "9223372036854775807",
    "9223372036854775",
    "1e18",
    "1E",
    "16Ei",
    "1e-9",
    "0",
    "1n",
    "-1",
    "9" * 400,
    "0.0000001m",
]


@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu", "pods", "ephemeral-storage", "hugepages-2Mi"])
def test_amounts_at_the_edge_of_what_can_be_counted(resource):
    """One by one, of pods that wait, pods that are there and nodes that offer it: sums must not run over either."""
    for amount in AMOUNTS:
        mirror = Mirror("phalanx", lambda: None)
        pods = next(kind for kind, sight in mirror.sights.items() if sight is mirror.pods)
        containers = [{"name": "c", "resources": {"requests": {resource: amount}, "limits": {resource: amount}}}]
        for at in range(3):
            see(mirror.pods, pods, manifest(f"wait-{at}", containers=containers))
            see(mirror.pods, pods, manifest(f"there-{at}", node="vast", containers=containers))
        mirror.nodes.note(
            node("vast", status={"allocatable": {**ROOM["allocatable"], resource: amount}}), deleted=False
        )
        go_on(mirror)


@given(st.one_of(words, values.map(json.dumps), words.map("zlib:{}".format)))
def test_any_text_where_a_plan_is_written_down(text):
    read_intent(text)

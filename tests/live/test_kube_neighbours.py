"""What pods ask about others, on a real control plane: one per host, apart by label, host ports, even spread, beside."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from kube_schedulers import NATIVE, NODES, PODS, bound, clear, running, spread, wait_bound

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import wait_until

pytestmark = pytest.mark.live

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def plane(shared):
    kubelet = FakeKubelet(shared.api)
    clear(shared, kubelet)  # what others left
    yield shared
    clear(shared, kubelet)


def create_zones(plane, *shapes):
    for zone, shape in zip("abc", shapes, strict=False):
        plane.api.create_all(NODES, make_nodes(shape, prefix=f"node-{zone}", labels={ZONE: zone}))


def create_gang(plane, name, members, **options):
    plane.api.create(NATIVE, make_native_gang(name, members))
    plane.api.create_all(
        PODS, make_pods(name, members, scheduler="phalanx", native_gang=name, labels={"app": name}, **options)
    )


def create_foreign(plane, name, node, **options):
    """Bound by somebody else: it names its node itself."""
    plane.api.create_all(PODS, make_pods(name, 1, scheduler="other", labels={"app": name}, nodeName=node, **options))


def apart(app, key):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}


def beside(app, key):
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {_REQUIRED: [term]}}}


def zones(plane, prefix):
    return Counter(node.split("-")[1] for node in bound(plane, prefix).values())


def why(plane, name):
    for each in plane.api.get(f"{NATIVE}/{name}").get("status", {}).get("conditions") or ():
        if each["status"] == "False":
            return each["message"]
    return ""


def delete(plane, *names):
    for name in names:
        plane.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)


def test_one_pod_per_host_and_no_room_beside_siblings(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("4x8"))
    with running(plane, tmp_path):
        create_gang(plane, "a", 4, **apart("a", HOST))
        wait_bound(plane, 4, "a")
        assert set(spread(plane, "a").values()) == {1}
        # Whoever comes for one that was lost finds the only host without a sibling.
        lost = bound(plane, "a-2")["a-2"]
        delete(plane, "a-2")
        (another,) = make_pods(
            "a-new", 1, scheduler="phalanx", native_gang="a", labels={"app": "a"}, **apart("a", HOST)
        )
        plane.api.create_all(PODS, [another])
        assert wait_bound(plane, 1, "a-new") == {"a-new-0": lost}
        create_gang(plane, "b", 5, **apart("b", HOST))
        wait_until(lambda: why(plane, "b"), "its reason")
        assert why(plane, "b").startswith("Infeasible")
        assert bound(plane, "b") == {}
        create_gang(plane, "c", 4)
        wait_bound(plane, 4, "c")


def test_two_gangs_keep_apart_by_zones_whoever_of_them_asks(plane, tmp_path):
    create_zones(plane, "2x4", "2x4")
    with running(plane, tmp_path):
        create_gang(plane, "quiet", 4)
        wait_bound(plane, 4, "quiet")
        (taken,) = zones(plane, "quiet")
    # Another one, that has only what it finds; nobody had asked before.
    with running(plane, tmp_path):
        # It keeps away from those who ask for nothing, and they from it when they come later.
        create_gang(plane, "loud", 4, **apart("quiet", ZONE))
        wait_bound(plane, 4, "loud")
        assert taken not in zones(plane, "loud")
        plane.api.create_all(PODS, make_pods("quiet-late", 1, scheduler="phalanx", labels={"app": "quiet"}))
        wait_bound(plane, 1, "quiet-late")
        assert set(zones(plane, "quiet-late")) == {taken}


def test_who_waits_for_others_to_leave_says_so_holds_up_nobody_and_starts_when_they_go(plane, tmp_path):
    create_zones(plane, "1x8")
    with running(plane, tmp_path):
        create_foreign(plane, "theirs", "node-a-0", **apart("mine", ZONE))
        create_gang(plane, "mine", 2)
        wait_until(lambda: why(plane, "mine"), "its reason")
        assert why(plane, "mine").startswith("Neighbours"), why(plane, "mine")
        create_gang(plane, "others", 4)
        wait_bound(plane, 4, "others")
        assert bound(plane, "mine") == {}
        began = time.monotonic()
        delete(plane, "theirs-0")
        wait_bound(plane, 2, "mine")
        print(f"holder of the rule gone to bound: {time.monotonic() - began:.2f} s")


def test_a_host_port_is_taken_by_one_pod_also_by_a_foreign_one(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("3x8"))
    ports = {"containers": [{"name": "main", "image": "none", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
    with running(plane, tmp_path):
        create_foreign(plane, "theirs", "node-0", **ports)
        create_gang(plane, "a", 2, **ports)
        wait_bound(plane, 2, "a")
        assert spread(plane, "a") == {"node-1": 1, "node-2": 1}
        create_gang(plane, "b", 1, **ports)
        wait_until(lambda: why(plane, "b").startswith("Neighbours"), lambda: why(plane, "b"))
        delete(plane, "a-1")
        wait_bound(plane, 1, "b")


def test_a_gang_is_spread_over_zones(plane, tmp_path):
    create_zones(plane, "1x8", "1x8", "1x2")
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "s"}},
    }
    with running(plane, tmp_path):
        create_gang(plane, "s", 7, topologySpreadConstraints=[constraint])
        wait_bound(plane, 7, "s")
        # Two fit into c, so that the others have three each at most: eight in all.
        assert sorted(zones(plane, "s").values()) == [2, 2, 3]
        create_gang(plane, "t", 9, topologySpreadConstraints=[
            {**constraint, "labelSelector": {"matchLabels": {"app": "t"}}}])  # fmt: skip
        wait_until(lambda: why(plane, "t"), "its reason")
        assert bound(plane, "t") == {}


def test_wishes_are_met_where_all_of_a_gang_can_have_them(plane, tmp_path):
    create_zones(plane, "2x4", "1x8")
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
    prefers_b = {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": term}]}}
    away = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "loose"}}}
    alone = {"podAntiAffinity": {_PREFERRED: [{"weight": 1, "podAffinityTerm": away}]}}
    with running(plane, tmp_path):
        create_gang(plane, "b", 4, affinity=prefers_b)
        wait_bound(plane, 4, "b")
        assert zones(plane, "b") == {"b": 4}
        create_gang(plane, "loose", 5, affinity=alone)
        wait_bound(plane, 5, "loose")
        assert sorted(spread(plane, "loose").values()) == [1, 2, 2]


def test_beside_those_who_are_there(plane, tmp_path):
    create_zones(plane, "2x4", "2x4")
    with running(plane, tmp_path):
        create_gang(plane, "user", 2, **beside("cache", HOST))
        wait_until(lambda: why(plane, "user").startswith("Neighbours"), lambda: why(plane, "user"))
        create_foreign(plane, "cache", "node-b-1")
        wait_bound(plane, 2, "user")
        assert spread(plane, "user") == {"node-b-1": 2}

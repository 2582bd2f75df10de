"""Gangs on a real control plane: whole or not at all, and at once when there is room."""

from __future__ import annotations

import time

import pytest
from kube_peers import note
from kube_schedulers import NATIVE, NODES, PODS, bound, clear, running, spread, wait_bound

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def plane(installed):
    kubelet = FakeKubelet(installed.api)
    clear(installed, kubelet)  # what others left
    yield installed
    clear(installed, kubelet)


def create_gang(plane, name, members, members_min=None, **options):
    plane.api.create(NATIVE, make_native_gang(name, members_min or members))
    plane.api.create_all(PODS, make_pods(name, members, scheduler="phalanx", native_gang=name, **options))


def conditions(plane, path):
    return {each["type"]: each for each in plane.api.get(path).get("status", {}).get("conditions") or ()}


def test_a_gang_of_eight_binds_whole_and_is_told_so(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("2x4"))
    with running(plane, tmp_path) as scheduler:
        create_gang(plane, "a", 8)
        wait_bound(plane, 8)
        assert spread(plane) == {"node-0": 4, "node-1": 4}
        wait_until(lambda: conditions(plane, f"{NATIVE}/a"), "its condition")
        told = conditions(plane, f"{NATIVE}/a")["PodGroupInitiallyScheduled"]
        assert (told["status"], told["reason"]) == ("True", "Scheduled")
        (line,) = scheduler.wait_for("bound")
        assert line["members"] == 8
        # In rank order: neighbours in rank are neighbours on nodes.
        ranks = {
            pod["metadata"]["name"]: pod["metadata"]["annotations"]["phalanx.dev/rank"]
            for pod in plane.api.get(PODS)["items"]
        }
        assert ranks == {f"a-{at}": str(at) for at in range(8)}
        assert scheduler.kill(15) == 0
        assert scheduler.events("stop")


def test_one_member_that_cannot_be_placed_and_nothing_is_bound_until_there_is_room(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("1x7"))
    with running(plane, tmp_path):
        create_gang(plane, "a", 8)
        wait_until(lambda: conditions(plane, f"{NATIVE}/a"), "its condition")
        told = conditions(plane, f"{NATIVE}/a")["PodGroupInitiallyScheduled"]
        assert told["status"] == "False"
        assert told["message"].startswith("Infeasible")
        assert bound(plane) == {}
        # Its pods are told after it.
        (condition,) = wait_until(lambda: plane.api.get(f"{PODS}/a-0")["status"].get("conditions"), "that of a pod")
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        # An eighth device on a new node.
        plane.api.create_all(NODES, make_nodes("1x1", prefix="new"))
        began = time.monotonic()
        wait_bound(plane, 8)
        note("T1", f"{time.monotonic() - began:.2f}")
        assert time.monotonic() - began < 2


@pytest.mark.long
def test_one_member_that_fits_nowhere_and_nothing_of_its_gang_is_bound(plane, tmp_path):
    """There is room for all eight; one of them asks for a node that is not there."""
    plane.api.create_all(NODES, make_nodes("2x8"))
    pods = make_pods("a", 8, scheduler="phalanx", native_gang="a")
    pods[5]["spec"]["nodeSelector"] = {"disk": "none-has-it"}
    with running(plane, tmp_path):
        plane.api.create(NATIVE, make_native_gang("a", 8))
        plane.api.create_all(PODS, pods)
        create_gang(plane, "b", 8)
        wait_bound(plane, 8, "b")
        wait_until(lambda: conditions(plane, f"{NATIVE}/a"), "its condition")
        assert bound(plane, "a") == {}
        node = plane.api.get(f"{NODES}/node-0")
        plane.api.patch(f"{NODES}/{node['metadata']['name']}", {"metadata": {"labels": {"disk": "none-has-it"}}})
        FakeKubelet(plane.api).move("Succeeded")
        there = wait_bound(plane, 8, "a")
        assert there["a-5"] == "node-0"


def test_of_two_gangs_that_fit_only_one_starts_and_the_other_when_it_is_gone(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("4x1"))
    kubelet = FakeKubelet(plane.api)
    for name in "ab":
        create_gang(plane, name, 4)
    with running(plane, tmp_path):
        wait_until(lambda: len(bound(plane)) == 4, "one of them")
        winner = next(iter(bound(plane)))[0]
        loser = "ba"["ab".index(winner)]
        assert len(bound(plane, winner)) == 4
        time.sleep(0.5)
        assert bound(plane, loser) == {}
        kubelet.move("Succeeded", lambda pod: pod["metadata"]["name"].startswith(winner))
        began = time.monotonic()
        wait_bound(plane, 8)
        note("T2", f"{time.monotonic() - began:.2f}")
        assert len(bound(plane, loser)) == 4


def test_single_pods_start_one_by_one_and_pods_of_others_are_left_alone(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("1x4"))
    plane.api.create_all(PODS, make_pods("other", 1, scheduler="somebody"))
    with running(plane, tmp_path):
        plane.api.create_all(PODS, make_pods("single", 5, scheduler="phalanx"))
        wait_bound(plane, 4, "single")
        assert bound(plane, "other") == {}
        # Somebody else takes what becomes free: it counts.
        kubelet = FakeKubelet(plane.api)
        first = min(bound(plane, "single"))
        plane.api.bind("other-0", "node-0")
        kubelet.move("Succeeded", lambda pod: pod["metadata"]["name"] == first)
        time.sleep(0.5)
        assert len(bound(plane, "single")) == 4
        kubelet.move("Succeeded", lambda pod: pod["metadata"]["name"] == "other-0")
        wait_bound(plane, 5, "single")

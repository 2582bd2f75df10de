"""What nobody can make sense of: it is told where people look, and nobody else waits for it."""

from __future__ import annotations

import json
import time

import pytest
from kube_schedulers import NATIVE, NODES, PODS, bound, clear, ensure_kinds, running, wait_bound

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
KOORDINATOR = "gang.scheduling.koordinator.sh"


def volcano(name, **spec):
    """A group of Volcano's with two pods."""
    return spec, make_pods(name, 2, scheduler="phalanx", annotations={"scheduling.k8s.io/group-name": name})


def koordinator(name, *groups):
    """Pods that name a gang and those that it starts with."""
    said = {
        f"{KOORDINATOR}/name": name,
        f"{KOORDINATOR}/min-available": "2",
        f"{KOORDINATOR}/groups": json.dumps(groups),
    }
    return None, make_pods(name, 2, scheduler="phalanx", annotations=said)


def native(name, *others):
    """A native gang, some of whose pods differ."""
    pods = make_pods(name, 2, scheduler="phalanx", native_gang=name)
    for pod, other in zip(pods, others, strict=False):
        pod["spec"].update(other)
    return {}, pods


#: What is created, and words of the sentence that says what is wrong with it.
CASES = {
    "malformed": (volcano("malformed", minMember="many"), "cannot be read"),
    "absurd": (volcano("absurd", minMember=10**12), "spec.minMember is 1000000000000"),
    "negative": (volcano("negative", minMember=-5), "spec.minMember is -5"),
    "tasks": (volcano("tasks", minMember=2, minTaskMember={"w": -1}), "spec.minTaskMember['w'] is -1"),
    "nowhere": (
        volcano("nowhere", minMember=2, networkTopology={"mode": "hard", "highestTierAllowed": 7}),
        "spec.networkTopology names the tier '7', which is no level of this cluster",
    ),
    "circle-a": (koordinator("circle-a", "default/circle-a", "default/circle-b"), "goes round in a circle"),
    "circle-b": (koordinator("circle-b", "default/circle-b", "default/circle-c"), "goes round in a circle"),
    "circle-c": (koordinator("circle-c", "default/circle-c", "default/circle-a"), "goes round in a circle"),
    "foreign": (koordinator("foreign", "default/foreign", "elsewhere/gang"), "of another namespace"),
    "schedulers": (native("schedulers", {"schedulerName": "somebody"}), "spec.schedulerName differs between members"),
    "priorities": (native("priorities", {"priorityClassName": "high"}), "spec.priority differs between members"),
}  # fmt: skip


@pytest.fixture(scope="module")
def told(installed, tmp_path_factory):
    """All of it at once, and then a gang with nothing wrong; afterwards what the cluster was told."""
    plane, kubelet = installed, FakeKubelet(installed.api)
    clear(plane, kubelet)
    plane.api.delete(EVENTS)
    (kind,) = ensure_kinds(plane, "volcano")
    plane.api.create(CLASSES, {"metadata": {"name": "high"}, "value": 100})
    plane.api.create_all(NODES, make_nodes("8x8"))
    try:
        with running(plane, tmp_path_factory.mktemp("bad")) as scheduler:
            for name, ((spec, pods), _) in CASES.items():
                if "schedulingGroup" in pods[0]["spec"]:
                    plane.api.create(NATIVE, make_native_gang(name, 2))
                elif spec is not None:
                    of = {"apiVersion": f"{kind.group}/{kind.version}", "kind": "PodGroup", "metadata": {"name": name}}
                    plane.api.create(kind.place(), {**of, "spec": spec})
                plane.api.create_all(PODS, pods)
            plane.api.create(NATIVE, make_native_gang("good", 8))
            plane.api.create_all(PODS, make_pods("good", 8, scheduler="phalanx", native_gang="good"))
            began = time.monotonic()
            wait_bound(plane, 8, "good")
            took_s = time.monotonic() - began
            wait_until(lambda: len(list_events(plane)) >= len(CASES), lambda: list_events(plane).keys())
            time.sleep(1)  # nothing of it is told twice
            found = {
                "took_s": took_s,
                "bound": bound(plane),
                "events": list_events(plane),
                "pods": {pod["metadata"]["name"]: pod for pod in plane.api.get(PODS)["items"]},
                "groups": {each["metadata"]["name"]: each for each in plane.api.get(kind.place())["items"]},
                "native": {each["metadata"]["name"]: each for each in plane.api.get(NATIVE)["items"]},
            }
            assert scheduler.process.poll() is None
        yield found
    finally:
        plane.api.delete(f"{CLASSES}/high")
        clear(plane, kubelet)


def list_events(plane):
    """Warnings by gang: they are on its object, or on one of its pods."""
    found = {}
    for each in plane.api.get(EVENTS)["items"]:
        name = each["regarding"]["name"]
        gang = name if each["regarding"]["kind"] == "PodGroup" else name.rpartition("-")[0]
        if each["type"] == "Warning":
            found.setdefault(gang, []).append(each)
    return found


def test_nobody_else_waits_for_it(told):
    print(f"a good gang of 8 beside all of it: {told['took_s']:.2f} s")
    assert told["took_s"] < 2
    assert set(told["bound"]) == {f"good-{at}" for at in range(8)}


@pytest.mark.parametrize("name", CASES)
def test_an_event_and_a_condition_say_what_is_wrong(told, name):
    (_, pods), words = CASES[name]
    (event,) = told["events"][name]
    assert event["reason"] == "InvalidSpec"
    assert words in event["note"]
    ours = [pod["metadata"]["name"] for pod in pods if pod["spec"]["schedulerName"] == "phalanx"]
    for each in ours:
        (condition,) = told["pods"][each]["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "InvalidSpec")
        assert words in condition["message"]
    group = told["groups"].get(name) or told["native"].get(name)
    # To one that cannot be read nothing can be written that would be sure to keep what is in it.
    if group is not None and name != "malformed":
        (condition,) = group["status"]["conditions"]
        assert words in condition["message"]


def test_pods_of_others_are_told_nothing(told):
    assert "conditions" not in told["pods"]["schedulers-0"]["status"]

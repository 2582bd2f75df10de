"""What happens around a gang while it starts: budgets, deadlines, groups that go, kinds that go, somebody else who binds."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from kube_proxy import BindProxy
from kube_schedulers import NATIVE, NODES, PODS, OurScheduler, bound, clear, ensure_kinds, running, wait_bound

from phalanx.testing.controlplane.crds import CRDS, install_kinds
from phalanx.testing.controlplane.fake_nodes import GPU, make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.flags import SCHEDULER
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def plane(installed):
    kubelet = FakeKubelet(installed.api)
    clear(installed, kubelet)  # what others left
    yield installed
    installed.api.delete(BUDGETS)
    clear(installed, kubelet)


def create_gang(plane, name, members, **options):
    plane.api.create(NATIVE, make_native_gang(name, members))
    plane.api.create_all(PODS, make_pods(name, members, scheduler="phalanx", native_gang=name, **options))


def stop_after(plane, tmp_path, count, *options, **pods):
    """A gang of 8 of which so many are bound when the scheduler dies."""
    plane.api.create_all(NODES, make_nodes("1x8"))
    with BindProxy(plane, count) as proxy:
        config = proxy.kubeconfig(tmp_path)
        scheduler = OurScheduler(plane, tmp_path, "--no-leader-election", *options, kubeconfig=config)
        proxy.action = scheduler.process.kill
        try:
            create_gang(plane, "a", 8, **pods)
            assert proxy.tripped.wait(20), scheduler.log
            scheduler.process.wait(10)
        finally:
            scheduler.close()
    assert len(bound(plane)) == count


def settings(tmp_path, text):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return "--config", str(path)


def test_a_budget_does_not_keep_a_part_of_a_gang(plane, tmp_path):
    """What runs of it cannot be evicted then, and would hold its devices for ever."""
    stop_after(plane, tmp_path, 3, labels={"app": "train"})
    FakeKubelet(plane.api).move("Running")
    selector = {"matchLabels": {"app": "train"}}
    plane.api.create(BUDGETS, {"metadata": {"name": "all"}, "spec": {"minAvailable": 8, "selector": selector}})
    plane.api.create_all(PODS, make_pods("thief", 1, scheduler="somebody", nodeName="node-0"))
    with running(plane, tmp_path) as scheduler:
        wait_until(lambda: not bound(plane, "a"), lambda: (bound(plane), scheduler.log), 15)
        scheduler.wait_for("undone")


def test_a_gang_whose_deadline_is_over_when_the_next_one_comes_is_undone(plane, tmp_path):
    options = settings(tmp_path, "bind_deadline_s: 0.5")
    stop_after(plane, tmp_path, 3, *options)
    time.sleep(0.6)
    with running(plane, tmp_path, *options) as scheduler:
        (line,) = scheduler.wait_for("undone")
        assert "not bound in time" in line["says"]
        wait_until(lambda: not bound(plane), lambda: bound(plane))


def test_a_gang_that_cannot_be_bound_before_its_deadline_is_undone(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("1x8"))
    with (
        BindProxy(plane, 3, busy=True) as proxy,
        running(
            plane, tmp_path, *settings(tmp_path, "bind_deadline_s: 1.5"), kubeconfig=proxy.kubeconfig(tmp_path)
        ) as scheduler,
    ):
        create_gang(plane, "a", 8)
        assert proxy.tripped.wait(20)
        began = time.monotonic()
        (line,) = scheduler.wait_for("undone")
        assert "5 of 8 members not bound in time: the API server is busy" in line["says"]
        wait_until(lambda: not bound(plane), lambda: bound(plane))
        assert time.monotonic() - began < 6


def test_a_group_deleted_in_the_middle_and_its_gang_is_whole_all_the_same(plane, tmp_path):
    """It was decided when the group was there, and half a gang is nobody's wish."""
    plane.api.create_all(NODES, make_nodes("2x4"))

    def delete_group():
        plane.api.delete(f"{NATIVE}/a")
        FakeKubelet(plane.api).release_groups()
        time.sleep(0.3)  # for the watch to tell

    with (
        BindProxy(plane, 3, delete_group, goes_on=True) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        wait_bound(plane, 8)
        scheduler.wait_for("bound")
        # Whoever comes later has no group to be in.
        plane.api.create_all(NODES, make_nodes("1x1", prefix="more"))
        plane.api.create(PODS, make_pods("late", 1, scheduler="phalanx", native_gang="a")[0])
        time.sleep(1)
        assert bound(plane, "late") == {}


def test_a_kind_that_is_taken_away_and_comes_back(plane, tmp_path):
    (kind,) = ensure_kinds(plane, "scheduler-plugins")
    name = f"{kind.plural}.{kind.group}"
    plane.api.create_all(NODES, make_nodes("2x4"))
    group = {"apiVersion": f"{kind.group}/{kind.version}", "kind": "PodGroup", "metadata": {"name": "g"}}

    def pods(prefix, count):
        return make_pods(prefix, count, scheduler="phalanx", labels={"scheduling.x-k8s.io/pod-group": "g"})

    with running(plane, tmp_path) as scheduler:
        before = len(scheduler.events("watch-absent"))
        plane.api.create(kind.place(), {**group, "spec": {"minMember": 4}})
        plane.api.create_all(PODS, pods("g", 4))
        wait_bound(plane, 4, "g")
        plane.api.delete(f"{CRDS}/{name}")
        wait_until(lambda: len(scheduler.events("watch-absent")) > before, lambda: scheduler.log)
        assert len(bound(plane, "g")) == 4, "nobody who runs is touched"
        plane.api.create_all(PODS, pods("late", 4))
        create_gang(plane, "n", 4)
        wait_bound(plane, 4, "n")
        assert bound(plane, "late") == {}, "they are no singles"
        FakeKubelet(plane.api).move("Succeeded")
        install_kinds(plane.api, ["scheduler-plugins"])
        plane.api.create(kind.place(), {**group, "spec": {"minMember": 4}})
        wait_bound(plane, 4, "late", 25)


def test_pods_of_a_namespace_that_is_being_deleted_are_not_started(plane, tmp_path):
    spaces = "/api/v1/namespaces"
    plane.api.create(spaces, {"metadata": {"name": "going"}})
    pods = f"{spaces}/going/pods"
    plane.api.create_all(pods, make_pods("g", 2, gpus=4, scheduler="phalanx"))
    plane.api.delete(f"{spaces}/going")
    assert plane.api.get(f"{spaces}/going")["status"]["phase"] == "Terminating"
    plane.api.create_all(NODES, make_nodes("1x8"))
    with running(plane, tmp_path) as scheduler:
        create_gang(plane, "a", 8)
        wait_bound(plane, 8, "a")
        assert bound(plane, path=pods) == {}
        assert not scheduler.events("undone")
    plane.api.delete(pods, gracePeriodSeconds=0)


def test_a_namespace_deleted_in_the_middle_and_nothing_of_its_gang_stays(plane, tmp_path):
    plane.api.create_all(NODES, make_nodes("1x8"))
    space = "/api/v1/namespaces/leaving"
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    groups = NATIVE.replace("default", "leaving")

    def delete_space():
        plane.api.delete(space)
        time.sleep(0.2)  # for the server to know it everywhere

    with (
        BindProxy(plane, 3, delete_space, goes_on=True) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        plane.api.create(groups, make_native_gang("a", 8))
        plane.api.create_all(f"{space}/pods", make_pods("a", 8, scheduler="phalanx", native_gang="a"))
        (line,) = scheduler.wait_for("undone")
        assert "because it is being terminated" in line["says"]
        wait_until(lambda: not bound(plane, path=f"{space}/pods"), lambda: scheduler.log)
    plane.api.delete(f"{space}/pods", gracePeriodSeconds=0)


def test_beside_the_stock_scheduler_gangs_are_whole_or_absent(plane, tmp_path, needs):
    """Both bind onto the same nodes at the same time, and neither knows what the other is about to do."""
    needs("kube-scheduler")
    plane.api.create_all(NODES, make_nodes("8x4"))
    plane.start(SCHEDULER)
    try:
        with running(plane, tmp_path) as scheduler:
            for name in "abcdef":
                create_gang(plane, name, 4)
                plane.api.create_all(PODS, make_pods(f"stock-{name}", 3))
            wait_until(lambda: len(bound(plane)) >= 30, lambda: (Counter(bound(plane).values()), scheduler.log[-3:]))
            time.sleep(1)
            there = bound(plane)
            sizes = {name: sum(pod.startswith(f"{name}-") for pod in there) for name in "abcdef"}
            assert set(sizes.values()) <= {0, 4}, sizes
            print("members bound:", sizes, "fullest node:", max(Counter(there.values()).values()), f"of 4 {GPU}")
            # Where others go, gangs that wait start at once.
            FakeKubelet(plane.api).move("Succeeded", lambda pod: pod["metadata"]["name"].startswith("stock"))
            wait_until(lambda: sum(not pod.startswith("stock") for pod in bound(plane)) == 24, lambda: bound(plane))
    finally:
        plane.kill(SCHEDULER)

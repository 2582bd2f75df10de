"""Each right taken away in turn: the log names it, the process lives, and all is well when it is given back."""

from __future__ import annotations

import contextlib
import time

import pytest
from kube_proxy import BindProxy
from kube_schedulers import (
    NATIVE,
    NODES,
    PODS,
    RBAC,
    SYSTEM,
    OurScheduler,
    bound,
    clear,
    ensure_kinds,
    running,
    wait_bound,
)

from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.rest import KubeRefusedError, wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]

CLUSTER = f"{RBAC}/clusterroles/phalanx"
OWN = f"{RBAC}/namespaces/{SYSTEM}/roles/phalanx"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/phalanx"


@pytest.fixture
def plane(installed):
    kubelet = FakeKubelet(installed.api)
    clear(installed, kubelet)
    installed.api.create_all(NODES, make_nodes("2x4"))
    yield installed
    clear(installed, kubelet)


@pytest.fixture
def without(plane):
    """Take a right away for as long as the block lasts."""

    @contextlib.contextmanager
    def take(role, resource, verb):
        before = plane.api.get(role)["rules"]
        rules = []
        for rule in before:
            if resource not in rule["resources"] or verb not in rule["verbs"]:
                rules.append(rule)
                continue
            others = [each for each in rule["resources"] if each != resource]
            left = [each for each in rule["verbs"] if each != verb]
            rules += [{**rule, "resources": others}] if others else []
            rules += [{**rule, "resources": [resource], "verbs": left}] if left else []
        assert rules != before, f"there is no right to {verb} {resource} to take away"
        plane.api.patch(role, {"rules": rules})
        # Told to the server's own judge by a watch of its own.
        time.sleep(0.3)
        try:
            yield
        finally:
            plane.api.patch(role, {"rules": before})
            time.sleep(0.3)

    return take


def create_gang(plane, name, members, **options):
    plane.api.create(NATIVE, make_native_gang(name, members))
    plane.api.create_all(PODS, make_pods(name, members, scheduler="phalanx", native_gang=name, **options))


def wait_told(scheduler, word, *fragments):
    def find():
        return [line for line in scheduler.events(word) if all(each in line["says"] for each in fragments)]

    return wait_until(find, lambda: f"{word} with {fragments} in {scheduler.log[-8:]}", 15)


def finish(plane, prefix):
    FakeKubelet(plane.api).move("Succeeded", lambda pod: pod["metadata"]["name"].startswith(prefix))


def test_without_a_right_to_look_it_says_which_and_is_ready_when_it_is_given(plane, tmp_path):
    ensure_kinds(plane, "volcano", "koordinator", "scheduler-plugins")
    before = plane.api.get(CLUSTER)["rules"]
    plane.api.patch(CLUSTER, {"rules": [rule for rule in before if "list" not in rule["verbs"]]})
    time.sleep(0.3)
    scheduler = OurScheduler(plane, tmp_path, "--no-leader-election")
    try:
        kinds = [f'"{resource}"' for rule in before if "list" in rule["verbs"] for resource in rule["resources"]]
        wait_until(lambda: len(scheduler.events("watch-forbidden")) == len(kinds), lambda: scheduler.log)
        said = [line["says"] for line in scheduler.events("watch-forbidden")]
        assert all("cannot list resource" in each for each in said)
        for kind in kinds:
            assert any(f"cannot list resource {kind}" in each for each in said), kind
        assert not scheduler.events("ready")
        plane.api.patch(CLUSTER, {"rules": before})
        scheduler.wait_for("ready", 15)
        create_gang(plane, "a", 8)
        wait_bound(plane, 8)
    finally:
        plane.api.patch(CLUSTER, {"rules": before})
        scheduler.close()


def test_without_a_right_to_act_it_says_which_and_goes_on_when_it_is_given(plane, tmp_path, without):
    (volcano,) = ensure_kinds(plane, "volcano")
    with running(plane, tmp_path) as scheduler:
        with without(CLUSTER, "pods/binding", "create"):
            create_gang(plane, "a", 8)
            wait_told(scheduler, "undone", "cannot create resource", "pods/binding")
            assert bound(plane) == {}
        wait_bound(plane, 8, "a", 20)
        finish(plane, "a")

        with without(OWN, "configmaps", "update"):
            create_gang(plane, "b", 8)
            wait_told(scheduler, "undone", "its plan could not be written down", "cannot update resource", "configmaps")
            assert bound(plane, "b") == {}, "nothing is bound of which nothing is on record"
        wait_bound(plane, 8, "b", 20)

        with without(CLUSTER, "events", "create"), without(CLUSTER, "pods/status", "patch"):
            plane.api.create_all(PODS, make_pods("never", 1, gpus=9, scheduler="phalanx"))
            wait_told(scheduler, "event-refused", "cannot create resource", '"events"')
            wait_told(scheduler, "status-refused", "cannot patch resource", '"pods/status"')

        with without(CLUSTER, "podgroups/status", "patch"):
            create_gang(plane, "c", 9)
            wait_told(scheduler, "status-refused", "cannot patch resource", '"podgroups/status"', '"scheduling.k8s.io"')
        version = f"{volcano.group}/{volcano.version}"
        group = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "v"}, "spec": {"minMember": 9}}
        plane.api.create(volcano.place(), group)
        named = {"scheduling.k8s.io/group-name": "v"}
        plane.api.create_all(PODS, make_pods("v", 9, scheduler="phalanx", annotations=named))
        path = f"{volcano.place()}/v"
        wait_until(lambda: plane.api.get(path).get("status", {}).get("phase") == "Inqueue", "all is told again")
        assert scheduler.process.poll() is None


def test_without_the_rights_to_undo_it_says_which_and_undoes_when_they_are_given(plane, tmp_path, without):
    def take():
        plane.api.create_all(PODS, make_pods("thief", 2, gpus=3, scheduler="somebody", nodeName="node-1"))
        plane.api.create_all(PODS, make_pods("thief0", 1, gpus=1, scheduler="somebody", nodeName="node-0"))

    with (
        without(CLUSTER, "pods/eviction", "create"),
        BindProxy(plane, 3, take) as proxy,
        running(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path)) as scheduler,
    ):
        create_gang(plane, "a", 8)
        wait_told(scheduler, "eviction-refused", "cannot create resource", "pods/eviction")
        scheduler.kill()
    # Nothing is known of what another one left before a mark was put on it.
    rules = plane.api.get(CLUSTER)["rules"]
    with without(CLUSTER, "pods", "patch"):
        scheduler = OurScheduler(plane, tmp_path, "--no-leader-election")
        try:
            wait_told(scheduler, "fence-refused", "cannot patch resource", '"pods"')
            plane.api.patch(CLUSTER, {"rules": rules})
            wait_until(lambda: not bound(plane, "a"), lambda: (bound(plane), scheduler.log), 15)
            scheduler.wait_for("undone")
        finally:
            scheduler.close()


def test_what_lies_about_is_left_lying_without_the_right_to_clear_it_and_nobody_waits_for_that(
    plane, tmp_path, without
):
    with running(plane, tmp_path) as scheduler:
        create_gang(plane, "a", 8)
        wait_bound(plane, 8, "a")
        with without(OWN, "configmaps", "update"):
            wait_told(scheduler, "clear-refused", "cannot update resource", '"configmaps"')
            finish(plane, "a")
            plane.api.create_all(PODS, make_pods("single", 1, scheduler="phalanx"))
            wait_bound(plane, 1, "single")
        create_gang(plane, "b", 7)
        wait_bound(plane, 7, "b", 20)


@pytest.mark.parametrize("verb", ["get", "create", "update"])
def test_without_a_right_to_the_lease_it_says_so_and_leads_when_it_is_given(plane, tmp_path, without, verb):
    with contextlib.suppress(KubeRefusedError):
        plane.api.delete(LEASE)
    if verb == "update":
        plane.api.create(LEASE.rpartition("/")[0], {"metadata": {"name": "phalanx"}, "spec": {"leaseTransitions": 7}})
    rules = plane.api.get(OWN)["rules"]
    with without(OWN, "leases", verb):
        scheduler = OurScheduler(plane, tmp_path)
        try:
            wait_told(scheduler, "lease-trouble", f"cannot {verb} resource", '"leases"')
            plane.api.patch(OWN, {"rules": rules})
            scheduler.wait_for("ready", 10)
            assert scheduler.kill(15) == 0
        finally:
            scheduler.close()

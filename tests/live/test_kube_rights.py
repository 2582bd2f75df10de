"""With the rights that `phalanx kube install` gives and no others: each dialect, each way back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from kube_proxy import BindProxy
from kube_schedulers import NATIVE, PODS, SYSTEM, OurScheduler, bound, wait_bound

from phalanx.testing.controlplane.binaries import find_program
from phalanx.testing.controlplane.crds import CRDS, find_kind, install_kinds
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.plane import ControlPlane, find_ports
from phalanx.testing.controlplane.rest import wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]


def phalanx(*words):
    return subprocess.run([sys.executable, "-m", "phalanx", *words], capture_output=True, check=True, text=True).stdout


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """As an administrator sets it up, with kubectl."""
    with ControlPlane(folder=tmp_path_factory.mktemp("rights") / "plane") as plane:
        kubectl = [str(find_program("kubectl")), "--kubeconfig", str(plane.kubeconfig("admin"))]
        subprocess.run([*kubectl, "apply", "-f", "-"], input=phalanx("kube", "install"), text=True, check=True)
        nodes = phalanx("kube", "fake-nodes", "4x8")
        subprocess.run([*kubectl, "create", "-f", "-"], input=nodes, text=True, check=True)
        plane.add_account(SYSTEM, "phalanx")
        yield plane


@pytest.fixture
def scheduler(plane, tmp_path):
    (port,) = find_ports(1)
    found = OurScheduler(plane, tmp_path, "--listen", f"127.0.0.1:{port}")
    found.port = port
    found.wait_for("ready")
    yield found
    assert found.kill(signal.SIGTERM) == 0
    refused = [line for line in found.log if line["event"].endswith(("refused", "forbidden"))]
    assert refused == [], "\n".join(line["says"] for line in refused)
    plane.api.delete(PODS, gracePeriodSeconds=0)
    FakeKubelet(plane.api).end_deleted()


@pytest.fixture
def kinds(plane):
    """Those of the other projects, installed once."""
    if not plane.api.get(CRDS)["items"]:
        install_kinds(plane.api)


def count_writes(scheduler):
    """As it counts them itself since it began to lead; those for the lease are not among them."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{scheduler.port}/metrics", timeout=5).read().decode()
    found = re.findall(r'api_writes_total{method="(\w+)",to="([\w-]+)"} (\d+)', text)
    names = {"PUT": lambda to: "flight" if to == "configmaps" else to}
    return {
        f"{method} {names.get(method, str)(to)}": int(count)
        for method, to, count in found
        if not (method == "POST" and to == "configmaps")
    }


def make_group(project, name, members, **spec):
    kind = find_kind(project, "PodGroup")
    version = f"{kind.group}/{kind.version}"
    spec = {"minMember": members, **spec}
    return kind, {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def status_of(plane, path, name):
    return plane.api.get(f"{path}/{name}").get("status", {})


def test_kinds_that_are_not_installed_are_waited_for_and_their_pods_are_not_singles(plane, scheduler):
    pods = make_pods("early", 4, scheduler="phalanx", annotations={"scheduling.k8s.io/group-name": "early"})
    plane.api.create_all(PODS, pods)
    plane.api.create(NATIVE, make_native_gang("n", 8))
    plane.api.create_all(PODS, make_pods("n", 8, scheduler="phalanx", native_gang="n"))
    wait_bound(plane, 8, "n")
    assert bound(plane, "early") == {}
    assert len(scheduler.events("watch-absent")) == 3, "told once each"
    install_kinds(plane.api)
    kind, group = make_group("volcano", "early", 4)
    plane.api.create(kind.place(), group)
    wait_bound(plane, 4, "early", 30)


def test_scheduler_plugins(plane, kinds, scheduler):
    kind, group = make_group("scheduler-plugins", "sp", 8)
    plane.api.create(kind.place(), group)
    plane.api.create_all(PODS, make_pods("sp", 8, scheduler="phalanx", labels={"scheduling.x-k8s.io/pod-group": "sp"}))
    wait_bound(plane, 8, "sp")
    wait_until(lambda: status_of(plane, kind.place(), "sp").get("phase") == "Scheduling", "its phase")
    FakeKubelet(plane.api).move("Running")
    wait_until(lambda: status_of(plane, kind.place(), "sp").get("phase") == "Running", "its phase")


def test_volcano_says_inqueue_and_running(plane, kinds, scheduler):
    kind, group = make_group("volcano", "vc", 8)
    plane.api.create_all(
        PODS, make_pods("vc", 7, scheduler="phalanx", annotations={"scheduling.k8s.io/group-name": "vc"})
    )
    plane.api.create(kind.place(), group)
    wait_until(lambda: status_of(plane, kind.place(), "vc").get("phase") == "Inqueue", "Inqueue")
    assert bound(plane, "vc") == {}
    last = make_pods("vc", 8, scheduler="phalanx", annotations={"scheduling.k8s.io/group-name": "vc"})[7]
    plane.api.create(PODS, last)
    wait_bound(plane, 8, "vc")
    wait_until(lambda: status_of(plane, kind.place(), "vc").get("phase") == "Running", "Running")


def test_koordinator_gangs_by_annotations_start_together(plane, scheduler):
    prefix = "gang.scheduling.koordinator.sh"

    def pods(name):
        groups = '["default/ka", "default/kb"]'
        said = {f"{prefix}/name": name, f"{prefix}/min-available": "4", f"{prefix}/groups": groups}
        return make_pods(name, 4, scheduler="phalanx", annotations=said)

    plane.api.create_all(PODS, pods("ka"))
    time.sleep(1)
    assert bound(plane, "ka") == {}
    plane.api.create_all(PODS, pods("kb"))
    wait_bound(plane, 8, "k")


def test_gangs_of_one_group_that_are_first_seen_together_start_together(plane, tmp_path):
    """All of it is in one look: whoever is looked at first must not miss the other."""
    prefix = "gang.scheduling.koordinator.sh"
    for name in ("ga", "gb"):
        said = {
            f"{prefix}/name": name,
            f"{prefix}/min-available": "2",
            f"{prefix}/groups": '["default/ga", "default/gb"]',
        }
        plane.api.create_all(PODS, make_pods(name, 2, scheduler="phalanx", annotations=said))
    found = OurScheduler(plane, tmp_path)
    try:
        wait_bound(plane, 4, "g")
    finally:
        found.kill(signal.SIGTERM)
        plane.api.delete(PODS, gracePeriodSeconds=0)
        FakeKubelet(plane.api).end_deleted()


def test_koordinator_groups(plane, kinds, scheduler):
    kind, group = make_group("koordinator", "kg", 8)
    plane.api.create(kind.place(), group)
    labels = {"pod-group.scheduling.sigs.k8s.io": "kg"}
    plane.api.create_all(PODS, make_pods("kg", 8, scheduler="phalanx", labels=labels))
    wait_bound(plane, 8, "kg")
    wait_until(lambda: status_of(plane, kind.place(), "kg").get("phase") == "Scheduled", "its phase")


def test_what_cannot_be_honoured_is_refused_by_name(plane, scheduler):
    selects = {"labelSelector": {"matchLabels": {"app": "x"}}, "namespaceSelector": {"matchLabels": {"tier": "ml"}}}
    term = {**selects, "topologyKey": "kubernetes.io/hostname"}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    plane.api.create_all(PODS, make_pods("away", 1, scheduler="phalanx", labels={"app": "x"}, affinity=away))
    plane.api.create_all(PODS, make_pods("bad", 1, scheduler="phalanx", nodeSelector={"no": "where"}))

    def told(name):
        return (plane.api.get(f"{PODS}/{name}")["status"].get("conditions") or [{}])[0]

    wait_until(lambda: told("away-0").get("reason") == "Unsupported", lambda: told("away-0"))
    assert "spec.affinity.podAntiAffinity" in told("away-0")["message"]
    wait_until(lambda: told("bad-0").get("reason") == "Unschedulable", lambda: told("bad-0"))
    events = plane.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    assert [event["reason"] for event in events if event["regarding"]["name"] == "away-0"] == ["Unsupported"]


def test_a_gang_of_eight_costs_ten_writes(plane, scheduler):
    plane.api.create(NATIVE, make_native_gang("w", 8))
    plane.api.create_all(PODS, make_pods("w", 8, scheduler="phalanx", native_gang="w"))
    wait_bound(plane, 8, "w")
    path = f"{NATIVE}/w"
    wait_until(lambda: plane.api.get(path).get("status", {}).get("conditions"), "its condition")
    counted = count_writes(scheduler)
    assert counted == {"POST binding": 8, "PUT flight": 1, "PATCH status": 1}, "1.25 a pod"


def test_a_leader_that_slept_through_its_lease_binds_nothing_any_more(plane, tmp_path):
    with BindProxy(plane, 3) as proxy:
        first = OurScheduler(plane, tmp_path, kubeconfig=proxy.kubeconfig(tmp_path))
        proxy.action = lambda: os.kill(first.process.pid, signal.SIGSTOP)
        second = None
        try:
            first.wait_for("ready")
            second = OurScheduler(plane, tmp_path)
            second.wait_for("follow")
            plane.api.create(NATIVE, make_native_gang("z", 8))
            plane.api.create_all(PODS, make_pods("z", 8, scheduler="phalanx", native_gang="z"))
            assert proxy.tripped.wait(20)
            second.wait_for("lead", 40)
            second.wait_for("bound")
            assert len(bound(plane, "z")) == 8
            os.kill(first.process.pid, signal.SIGCONT)
            first.wait_for("fenced")
            assert first.process.wait(10) == 3
            assert len(bound(plane, "z")) == 8
            assert second.events("lead")[0]["epoch"] > first.events("lead")[0]["epoch"]
        finally:
            first.close()
            if second is not None:
                second.close()

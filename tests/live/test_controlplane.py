"""The control plane itself: what tests of the scheduler take for granted."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from phalanx.testing.controlplane.binaries import ETCD, KUBERNETES, find_program
from phalanx.testing.controlplane.crds import KINDS, install_kinds
from phalanx.testing.controlplane.credentials import KubeUser
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.flags import API_SERVER, ETCD_SERVER, PlaneSettings
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.plane import ComponentError, ControlPlane
from phalanx.testing.controlplane.rest import KubeRefusedError, KubeUnreachableError, wait_until
from phalanx.testing.controlplane.tether import WardenLostError

pytestmark = pytest.mark.live

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
GANGS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def listed(plane, path):
    return {each["metadata"]["name"] for each in plane.api.get(path)["items"]}


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def runs(pid):
    """A zombie does not: it waits for its parent, who may be a test that was told to go on."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_nothing_left(pids, ports, folder):
    assert not any(map(runs, pids))
    assert not any(map(listens, ports))
    assert not folder.exists()


# --- what is in `make test` too ------------------------------------------------------------------


def test_it_is_the_version_that_is_asked_for(shared):
    assert shared.api.get("/version")["gitVersion"] == f"v{KUBERNETES}"
    etcd = subprocess.run([find_program("etcd"), "--version"], capture_output=True, text=True, check=True)
    assert f"etcd Version: {ETCD}\n" in etcd.stdout


def test_a_native_gang_is_kept_with_its_fields(shared):
    made = shared.api.create(GANGS, make_native_gang("kept", 8))
    assert made["spec"]["schedulingPolicy"] == {"gang": {"minCount": 8}}
    assert shared.api.get(f"{GANGS}/kept")["metadata"]["uid"] == made["metadata"]["uid"]
    pod = shared.api.create(PODS, make_pods("kept", 1, native_gang="kept")[0])
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": "kept"}


def test_fake_nodes_are_ready_for_pods_and_pods_run_on_request(shared):
    shared.api.create_all(NODES, make_nodes("2x4", prefix="fake", levels={"example.com/rack": 1}))
    node = shared.api.get(f"{NODES}/fake-1")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["example.com/rack"] == "rack-1"
    assert "taints" not in node["spec"]
    shared.api.create_all(PODS, make_pods("run", 3, scheduler="nobody"))
    for name in ("run-0", "run-1"):
        assert shared.api.bind(name, "fake-1")["status"] == "Success"
    kubelet = FakeKubelet(shared.api)
    assert kubelet.move("Running") == 2
    assert kubelet.move("Succeeded", lambda pod: pod["metadata"]["name"] == "run-0") == 1
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in shared.api.get(PODS)["items"]}
    assert [phases[f"run-{at}"] for at in range(3)] == ["Succeeded", "Running", "Pending"]
    shared.api.delete(f"{PODS}/run-1")
    assert "run-1" in listed(shared, PODS), "a bound pod waits for its kubelet"
    assert kubelet.end_deleted() == 1
    assert "run-1" not in listed(shared, PODS)


# --- the rest ------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_user_may_do_what_a_binding_allows_and_no_more():
    user = KubeUser("phalanx", "system:serviceaccount:phalanx:phalanx")
    with ControlPlane(users=[user]) as plane:
        mine = plane.client("phalanx")
        with pytest.raises(KubeRefusedError) as refused:
            mine.get(NODES)
        assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
        rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}
        plane.api.create(f"{ROLES}/clusterroles", {"metadata": {"name": "reader"}, "rules": [rule]})
        subject = {"kind": "ServiceAccount", "namespace": "phalanx", "name": "phalanx"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        bound = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
        plane.api.create(f"{ROLES}/clusterrolebindings", bound)
        wait_until(lambda: can(mine, NODES), "the binding to count")
        with pytest.raises(KubeRefusedError, match="403"):
            mine.delete(f"{NODES}/some")
        # The same account with a token of the server's own making.
        plane.api.create("/api/v1/namespaces", {"metadata": {"name": "phalanx"}})
        plane.api.create("/api/v1/namespaces/phalanx/serviceaccounts", {"metadata": {"name": "phalanx"}})
        kubeconfig = plane.add_account("phalanx", "phalanx")
        assert plane.client("phalanx").get(NODES)["items"] == []
        kubectl = [find_program("kubectl"), "--kubeconfig", kubeconfig, "auth", "whoami", "-o", "json"]
        told = json.loads(subprocess.run(kubectl, capture_output=True, check=True).stdout)
        assert told["status"]["userInfo"]["username"] == user.username


def can(client, path):
    try:
        return client.get(path)
    except KubeRefusedError:
        return None


@pytest.mark.long
def test_the_kinds_of_other_schedulers_can_be_written_and_watched(shared):
    install_kinds(shared.api)
    for kind in KINDS:
        place = kind.place() if kind.is_namespaced else kind.path
        tree = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": {"name": "one"}}
        version = shared.api.create(place, {**tree, "spec": {"minMember": 3}})["metadata"]["resourceVersion"]
        shared.api.patch(f"{place}/one/status", {"status": {"phase": "Inqueue"}})
        event = next(shared.api.watch(place, version, 5.0))
        assert event["object"]["spec"] == {"minMember": 3}
        assert event["object"]["status"] == {"phase": "Inqueue"}


@pytest.mark.long
def test_an_api_server_that_was_killed_comes_back_with_what_it_had():
    with ControlPlane() as plane:
        plane.api.create_all(NODES, make_nodes("4x8"))
        before = plane.find_pids()
        plane.kill(API_SERVER)
        assert not listens(plane.places.api_port)
        with pytest.raises(KubeUnreachableError):
            plane.api.get(NODES)
        plane.start(API_SERVER)
        assert listed(plane, NODES) == {f"node-{at}" for at in range(4)}
        after = plane.find_pids()
        assert after[ETCD_SERVER] == before[ETCD_SERVER]
        assert after[API_SERVER] != before[API_SERVER]


@pytest.mark.long
def test_a_watch_from_before_a_compaction_is_told_to_list_again():
    with ControlPlane() as plane:
        version = plane.api.get(PODS)["metadata"]["resourceVersion"]
        plane.api.create_all(PODS, make_pods("some", 3))
        assert next(plane.api.watch(PODS, version, 5.0))["type"] == "ADDED"
        page = plane.api.get(PODS, limit=1)["metadata"]["continue"]
        plane.restart(API_SERVER)
        assert plane.api.get(PODS, **{"continue": page})["items"], "what etcd still knows is told"
        plane.compact()
        plane.restart(API_SERVER)
        with pytest.raises(KubeRefusedError, match="410 Expired"):
            plane.api.get(PODS, **{"continue": page})
        with pytest.raises(KubeRefusedError) as refused:
            next(plane.api.watch(PODS, version, 5.0))
        assert refused.value.code == 410
        version = plane.api.get(PODS)["metadata"]["resourceVersion"]
        plane.api.delete(f"{PODS}/some-0")
        events = (event for event in plane.api.watch(PODS, version, 5.0) if event["type"] == "DELETED")
        assert next(events)["object"]["metadata"]["name"] == "some-0"


@pytest.mark.long
def test_the_stock_scheduler_binds_a_native_gang_whole(needs):
    needs("kube-scheduler", "kube-controller-manager")
    with ControlPlane(PlaneSettings(controllers=True, scheduler=True)) as plane:
        plane.api.create_all(NODES, make_nodes("2x4"))
        plane.api.create(GANGS, make_native_gang("a", 8))
        plane.api.create_all(PODS, make_pods("a", 8, native_gang="a"))
        kubelet = FakeKubelet(plane.api)
        wait_until(lambda: len(kubelet.list_bound()) == 8, "the gang to be bound")
        assert Counter(pod["spec"]["nodeName"] for pod in kubelet.list_bound()) == {"node-0": 4, "node-1": 4}
        conditions = wait_until(
            lambda: plane.api.get(f"{GANGS}/a").get("status", {}).get("conditions"), "its condition"
        )
        assert [(each["type"], each["status"]) for each in conditions] == [("PodGroupInitiallyScheduled", "True")]
        # What controllers make is scheduled too.
        plane.api.create("/apis/apps/v1/namespaces/default/deployments", make_deployment("web", 2))
        wait_until(lambda: len(kubelet.list_bound(labelSelector="app=web")) == 2, "the deployment to be bound")
        # No room for all of the next: none of it is bound.
        plane.api.create(GANGS, make_native_gang("b", 2))
        plane.api.create_all(PODS, make_pods("b", 2, native_gang="b"))
        wait_until(lambda: plane.api.get(f"{GANGS}/b").get("status", {}).get("conditions"), "b's condition")
        assert not [pod for pod in kubelet.list_bound() if pod["metadata"]["name"].startswith("b-")]
        # With the controller-manager a deleted group goes when its pods are done.
        assert kubelet.move("Succeeded", lambda pod: pod["metadata"]["name"].startswith("a-")) == 8
        plane.api.delete(f"{GANGS}/a")
        wait_until(lambda: "a" not in listed(plane, GANGS), "group a to go")


def make_deployment(name, replicas):
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.long
def test_a_copy_of_a_template_starts_with_what_is_in_it(tmp_path):
    with ControlPlane() as plane:
        plane.api.create_all(NODES, make_nodes("8x8"))
        plane.save_template(tmp_path / "template")
        assert len(listed(plane, NODES)) == 8, "and goes on itself"
    for _ in range(2):
        with ControlPlane(template=tmp_path / "template") as copy:
            assert len(listed(copy, NODES)) == 8
            copy.api.delete(f"{NODES}/node-0")


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.long
def test_nothing_is_left_after_the_end():
    with ControlPlane() as plane:
        pids = [*plane.find_pids().values()]
        assert len(pids) == 2
        ports = [plane.places.api_port, plane.places.etcd_port, plane.places.peer_port]
        assert all(map(listens, ports))
        folder = plane.places.folder
        assert all(str(folder) in " ".join(psutil.Process(pid).cmdline()) for pid in pids)
    assert_nothing_left(pids, ports, folder)


@pytest.mark.long
def test_nothing_is_left_when_somebody_killed_the_warden():
    with ControlPlane() as plane:
        folder, pids = plane.places.folder, [*plane.find_pids().values()]
        os.kill(plane._tether.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(runs, pids)), "the programs to die with it")
        with pytest.raises(WardenLostError):
            plane.start(API_SERVER)
    assert not folder.exists()


CRASHING = """
import os, signal, sys
from phalanx.testing.controlplane.plane import ControlPlane
plane = ControlPlane().__enter__()
places = plane.places
print(*plane.find_pids().values(), plane._tether.pid, places.api_port, places.etcd_port, places.folder, flush=True)
if sys.argv[1] == "fork" and not os.fork():
    signal.pause()  # holds everything open that its parent held
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "fork", "warden"])
def test_nothing_is_left_after_a_test_that_was_killed(how):
    crashing = subprocess.Popen(
        [sys.executable, "-c", CRASHING, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        *numbers, folder = crashing.stdout.readline().split()
        *pids, api_port, etcd_port = map(int, numbers)
        if how == "warden":
            os.kill(pids[-1], signal.SIGTERM)
        else:
            crashing.kill()
        wait_until(lambda: not any(map(runs, pids)), lambda: f"the end of {pids}", 10.0)
        wait_until(lambda: not Path(folder).exists(), f"the end of {folder}", 10.0)
        assert not listens(api_port)
        assert not listens(etcd_port)
    finally:
        os.killpg(crashing.pid, signal.SIGKILL)
        crashing.communicate()


@pytest.mark.long
def test_a_program_that_does_not_start_says_what_it_said(tmp_path):
    settings = PlaneSettings(gates={"NoSuchGate": True})
    with pytest.raises(ComponentError, match=r"kube-apiserver ended with code 1(?s:.*)NoSuchGate") as failed:
        ControlPlane(settings, folder=tmp_path / "plane").__enter__()
    log = tmp_path / "plane" / "logs" / "kube-apiserver.log"
    assert str(log) in str(failed.value)
    assert log.exists(), "it stays for whoever looks for the reason"
    assert not (tmp_path / "plane" / "state").exists()

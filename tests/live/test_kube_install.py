"""From nothing to a scheduler that has worked, and back to nothing: with kubectl, as people do it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kube_schedulers import NATIVE, NODES, PODS, SYSTEM, OurScheduler, wait_bound

from phalanx.testing.controlplane.binaries import find_program
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_nodes, make_pods
from phalanx.testing.controlplane.flags import PlaneSettings
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.plane import ControlPlane
from phalanx.testing.controlplane.rest import KubeRefusedError, wait_until

pytestmark = [pytest.mark.live, pytest.mark.long]

#: Of these there are others every few seconds, whatever anybody does.
_FLEETING = ("events", "leases", "componentstatuses", "ipaddresses")


def list_everything(api):
    """Path of each object that there is, of every kind that the server lists."""
    roots = ["/api/v1"]
    for group in api.get("/apis")["groups"]:
        roots += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
    found = set()
    for root in roots:
        for kind in api.get(root)["resources"]:
            if "list" not in kind["verbs"] or kind["name"] in _FLEETING:
                continue
            for item in api.get(f"{root}/{kind['name']}")["items"]:
                metadata = item["metadata"]
                found.add(f"{root}/{kind['name']} {metadata.get('namespace', '')}/{metadata['name']}")
    return found


def phalanx(*words):
    return subprocess.run([sys.executable, "-m", "phalanx", *words], capture_output=True, check=True, text=True).stdout


def kubectl(plane, manifests, *words):
    command = [str(find_program("kubectl")), "--kubeconfig", str(plane.kubeconfig("admin")), *words]
    done = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_used_and_deleted_and_nothing_is_left_behind(tmp_path, needs):
    needs("kube-controller-manager")
    settings = tmp_path / "settings.yaml"
    settings.write_text("topology: [{name: rack, label: example.com/rack}]\n")
    manifests = phalanx("kube", "install", "--image", "registry.example/phalanx:1", "--config", str(settings))
    # With the controllers: it is they who empty a namespace, and who make and take away the replicas.
    with ControlPlane(PlaneSettings(controllers=True)) as plane:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until(lambda: exists(plane.api, account), "the namespace to be filled")
        plane.api.create_all(NODES, make_nodes("1x8"))
        before = wait_until(lambda: settle(plane.api), "the cluster to be quiet")
        kubectl(plane, manifests, "apply", "-f", "-")
        again = kubectl(plane, manifests, "apply", "-f", "-")
        # Of a budget kubectl says so each time: its selector is a field that is replaced and not merged.
        others = [line for line in again.splitlines() if not line.startswith("poddisruptionbudget")]
        assert {line.rpartition(" ")[2] for line in others} == {"unchanged"}, again
        path = f"/api/v1/namespaces/{SYSTEM}/pods"
        replicas = wait_until(lambda: plane.api.get(path)["items"], "replicas")
        (container,) = replicas[0]["spec"]["containers"]
        assert container["image"] == "registry.example/phalanx:1"
        # What would run in them, from here; it makes objects of its own.
        plane.add_account(SYSTEM, "phalanx")
        scheduler = OurScheduler(plane, tmp_path, "--config", str(settings))
        try:
            scheduler.wait_for("ready")
            plane.api.create(NATIVE, make_native_gang("a", 8))
            plane.api.create_all(PODS, make_pods("a", 8, scheduler="phalanx", native_gang="a"))
            wait_bound(plane, 8)
            assert scheduler.kill(15) == 0
        finally:
            scheduler.close()
        plane.api.delete(PODS, gracePeriodSeconds=0)
        FakeKubelet(plane.api).end_deleted()
        plane.api.delete(NATIVE)
        between = list_everything(plane.api)
        assert any("phalanx-intent-00" in each for each in between), "there is something to leave behind"
        kubectl(plane, manifests, "delete", "--timeout=60s", "-f", "-")
        wait_until(lambda: list_everything(plane.api) == before, lambda: list_everything(plane.api) ^ before)


def exists(api, path):
    try:
        return api.get(path)
    except KubeRefusedError:
        return None


def settle(api):
    """Everything, once two looks in a row see the same."""
    first = list_everything(api)
    return first if first == list_everything(api) else None

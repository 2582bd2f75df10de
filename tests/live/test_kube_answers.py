"""`kubectl phalanx` as people type it, through a real API server's proxy, with the rights that were installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kube_schedulers import NATIVE, PODS, OurScheduler, wait_bound

from phalanx.testing.controlplane.binaries import find_program
from phalanx.testing.controlplane.credentials import KubeUser
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_pods
from phalanx.testing.controlplane.plane import ControlPlane, find_ports
from phalanx.testing.controlplane.rest import wait_until
from phalanx.testing.controlplane.standing_in import find_address, stand_down, stand_in

pytestmark = [pytest.mark.live, pytest.mark.long]

SYSTEM = "phalanx-system"
ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings"


class Cluster:
    """Two replicas behind the installed Service, and kubectl with our plugin on its path."""

    def __init__(self, plane, folder, address):
        self.plane, self.folder, self.address = plane, folder, address
        self.replicas = []

    def kubectl(self, *words, user="admin", text=None):
        kubectl = find_program("kubectl")
        path = os.pathsep.join([str(Path(sys.executable).parent), str(kubectl.parent), os.environ["PATH"]])
        env = {**os.environ, "PATH": path, "KUBECONFIG": str(self.plane.kubeconfig(user))}
        return subprocess.run(
            [str(kubectl), *words], check=False, input=text, capture_output=True, text=True, env=env, timeout=60
        )

    def ask(self, *words, **more):
        return self.kubectl("phalanx", *words, **more)

    def add_replica(self):
        (port,) = find_ports(1)
        options = ("--namespace", SYSTEM, "--listen", f"{self.address}:{port}")
        replica = OurScheduler(self.plane, self.folder, *options, user="phalanx")
        replica.url = f"http://{self.address}:{port}"
        replica.name = f"phalanx-{len(self.replicas)}"
        self.replicas.append(replica)
        stand_in(self.plane.api, SYSTEM, "phalanx", self.address, port, name=replica.name)
        return replica


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    address = find_address()
    if address is None:
        pytest.skip("this machine has no address but loopback, to which the API server's proxy sends nothing")
    folder = tmp_path_factory.mktemp("answers")
    users = [KubeUser("reader", "reader"), KubeUser("stranger", "stranger")]
    with ControlPlane(folder=folder / "plane", users=users) as plane:
        cluster = Cluster(plane, folder, address)
        for made in (("kube", "install"), ("kube", "fake-nodes", "4x8")):
            text = subprocess.run([sys.executable, "-m", "phalanx", *made], capture_output=True, text=True, check=True)
            done = cluster.kubectl("create", "-f", "-", text=text.stdout)
            assert done.returncode == 0, done.stderr
        plane.add_account(SYSTEM, "phalanx")
        try:
            cluster.add_replica().wait_for("ready")
            cluster.add_replica().wait_for("follow")
            for name, members in (("a", 3), ("b", 2)):
                plane.api.create(NATIVE, make_native_gang(name, members))
                plane.api.create_all(PODS, make_pods(name, members, gpus=8, scheduler="phalanx", native_gang=name))
                wait_bound(plane, 3, "a")
            yield cluster
        finally:
            for replica in cluster.replicas:
                replica.close()


def test_ps_and_why_through_the_proxy_whichever_replica_it_takes(cluster):
    for _ in range(5):
        done = cluster.ask("ps", "-o", "json")
        assert done.returncode == 0, done.stderr
        rows = {row["name"]: row for row in json.loads(done.stdout)}
        assert (rows["a"]["state"], rows["b"]["state"]) == ("bound", "pending")
    text = cluster.ask("why", "b-1").stdout
    assert "default/b  PENDING" in text
    assert "needs 16 GPUs at once, 8 of 32 free: default/a holds 24" in text


def test_a_namespace_is_that_of_the_context_or_the_one_that_is_named(cluster):
    assert cluster.ask("ps").stdout.splitlines()[0].split()[0] == "NAME"
    assert cluster.ask("ps", "-A").stdout.splitlines()[0].split()[0] == "NAMESPACE"
    elsewhere = cluster.ask("ps", "-n", "kube-system")
    assert "no gangs in namespace kube-system; kubectl phalanx ps -A lists those of all" in elsewhere.stderr


def test_a_file_is_tried_and_nothing_is_created(cluster):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"parallelism": 1, "template": {"spec": make_pods("x", 1, gpus=8, scheduler="phalanx")[0]["spec"]}},
    }
    before = len(cluster.plane.api.get(PODS)["items"])
    done = cluster.ask("fit", "-f", "-", text=json.dumps(job))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("default/j-0  ")
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "9"
    never = cluster.ask("fit", "-f", "-", text=json.dumps(job))
    assert (never.returncode, "CAN NEVER RUN HERE" in never.stdout) == (4, True)
    assert len(cluster.plane.api.get(PODS)["items"]) == before
    wrong = cluster.ask("fit", "-f", "-", text="a: [")
    assert (wrong.returncode, "the file cannot be read" in wrong.stderr) == (2, True)


def test_the_dump_is_what_what_if_loads(cluster, tmp_path):
    state = tmp_path / "state.json"
    state.write_text(cluster.ask("dump").stdout)
    command = [sys.executable, "-m", "phalanx", "what-if", str(state), "--add-nodes", "1x8"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "now: native:default/b starts with 2 members" in done.stdout


def test_the_picture_has_everybody(cluster):
    text = cluster.ask("gantt").stdout
    assert "default/a" in text
    assert "default/b" in text


def test_whoever_may_not_ask_is_told_which_right_it_takes(cluster):
    refused = cluster.ask("ps", user="stranger")
    assert refused.returncode == 1
    assert "get and create of services/proxy in namespace phalanx-system" in refused.stderr
    hint = "kubectl -n phalanx-system create rolebinding phalanx-readers --role phalanx-reader --user USER"
    assert hint in refused.stderr
    # The command that it names is all it takes.
    done = cluster.kubectl(*hint.replace("USER", "reader").split()[1:])
    assert done.returncode == 0, done.stderr
    wait_until(lambda: cluster.ask("ps", user="reader").returncode == 0, "the right to be known")
    assert cluster.ask("fit", "-f", "-", user="reader", text="a: [").returncode == 2
    assert cluster.ask("ps", user="stranger").returncode == 1


def test_a_kubeconfig_that_only_kubectl_understands(cluster, tmp_path):
    tree = json.loads(cluster.plane.kubeconfig("admin").read_text())
    token = tree["users"][0]["user"]["token"]
    api = "client.authentication.k8s.io/v1"
    credential = tmp_path / "credential.json"
    credential.write_text(json.dumps({"apiVersion": api, "kind": "ExecCredential", "status": {"token": token}}))
    way = {"apiVersion": api, "command": "cat", "args": [str(credential)], "interactiveMode": "Never"}
    tree["users"][0]["user"] = {"exec": way}
    (tmp_path / "config").write_text(json.dumps(tree))
    done = cluster.ask("ps", "--kubeconfig", str(tmp_path / "config"))
    assert done.returncode == 0, done.stderr
    assert "default" not in done.stdout.splitlines()[0]
    credential.unlink()
    gone = cluster.ask("ps", "--kubeconfig", str(tmp_path / "config"))
    assert (gone.returncode, "getting credentials" in gone.stderr) == (5, True)


def test_a_replica_that_follows_says_who_leads(cluster):
    leader, follower = cluster.replicas[:2]
    assert cluster.ask("ps", "--server", leader.url).returncode == 0
    follows = cluster.ask("ps", "--server", follower.url, "-o", "json")
    error = json.loads(follows.stderr)["error"]
    assert follows.returncode == 1
    assert error["details"]["follows"]
    assert error["message"].startswith("this replica follows; ")
    assert error["details"]["leader"]


def test_nobody_there_and_nothing_installed(cluster):
    gone = cluster.ask("ps", "--scheduler", "kube-system/phalanx")
    assert gone.returncode == 5
    assert "there is no Service phalanx in namespace kube-system, or no replica" in gone.stderr
    assert cluster.ask("ps", "--scheduler", "phalanx").returncode == 2
    wrong = cluster.ask("ps", "--context", "nosuch")
    assert (wrong.returncode, "has no context 'nosuch'; it has" in wrong.stderr) == (2, True)


def test_when_the_leader_is_gone_the_next_one_answers(cluster):
    leader = cluster.replicas[0]
    leader.kill()
    cluster.replicas[1].wait_for("ready", 40.0)
    # Its endpoint is still there for a while, as in a real cluster.
    assert cluster.ask("why", "b").returncode == 0
    stand_down(cluster.plane.api, SYSTEM, leader.name)

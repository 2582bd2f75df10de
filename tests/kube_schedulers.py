"""A scheduler of ours as a process, against a control plane; and what a test asks of its cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

from phalanx.frontends.kube.manifests import KubeInstallation, list_rights
from phalanx.frontends.kube.running import REPLICA
from phalanx.testing.controlplane.crds import CRDS, find_kind, install_kinds
from phalanx.testing.controlplane.rest import wait_until

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
NATIVE = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
#: Where the scheduler's own objects are, as `phalanx kube install` has it.
SYSTEM = "phalanx-system"
ACCOUNT = "phalanx"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def install_account(plane):
    """The namespace and the account with exactly the rights that `phalanx kube install` prints."""
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    plane.api.create(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    for tree in list_rights(KubeInstallation()):
        inside = f"namespaces/{SYSTEM}/" if "namespace" in tree["metadata"] else ""
        plane.api.create(f"{RBAC}/{inside}{tree['kind'].lower()}s", tree)
    plane.add_account(SYSTEM, ACCOUNT)


def ensure_kinds(plane, *projects):
    """Kinds of other schedulers, installed if they are not there; the PodGroups of each project, in that order."""
    served = {each["spec"]["group"] for each in plane.api.get(CRDS)["items"]}
    found = [find_kind(project, "PodGroup") for project in projects]
    install_kinds(plane.api, [kind.project for kind in found if kind.group not in served])
    return found


class OurScheduler:
    """`phalanx kube run` with its log; killed at the end if it still runs."""

    def __init__(self, plane, folder, *options, user=ACCOUNT, kubeconfig=None, replica=""):
        self.log_path = folder / f"scheduler-{time.monotonic_ns()}.log"
        config = kubeconfig or plane.kubeconfig(user)
        command = [sys.executable, "-m", "phalanx", "kube", "run", "--kubeconfig", str(config)]
        command += ["--namespace", SYSTEM, *options]
        environment = {**os.environ, **({REPLICA: replica} if replica else {})}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )

    @property
    def log(self):
        found = []
        for line in self.log_path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def events(self, word):
        return [line for line in self.log if line["event"] == word]

    def wait_for(self, word, limit_s=20.0):
        return wait_until(lambda: self.events(word), lambda: f"{word} in {self.log_path.read_text()[-3000:]}", limit_s)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(10)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()


@contextlib.contextmanager
def running(plane, folder, *options, **named):
    """One without an election, ready when this returns."""
    scheduler = OurScheduler(plane, folder, "--no-leader-election", *options, **named)
    try:
        scheduler.wait_for("ready")
        yield scheduler
    finally:
        scheduler.close()


def bound(plane, prefix="", path=PODS):
    """Node by pod, of those that hold one and are not on their way out."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in plane.api.get(path)["items"]
        if pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
        and pod["metadata"]["name"].startswith(prefix)
    }


def wait_bound(plane, count, prefix="", limit_s=15.0, path=PODS):
    wait_until(lambda: len(bound(plane, prefix, path)) == count, lambda: f"{count}: {bound(plane, prefix)}", limit_s)
    return bound(plane, prefix, path)


def spread(plane, prefix=""):
    return Counter(bound(plane, prefix).values())


def clear(plane, kubelet):
    """Everything goes, for the next test on the same plane."""
    for crd in plane.api.get(CRDS)["items"]:
        if crd["spec"]["scope"] == "Namespaced":
            version = crd["spec"]["versions"][0]["name"]
            plane.api.delete(
                f"/apis/{crd['spec']['group']}/{version}/namespaces/default/{crd['spec']['names']['plural']}"
            )
    plane.api.delete(PODS, gracePeriodSeconds=0)
    kubelet.end_deleted()
    wait_until(lambda: not plane.api.get(PODS)["items"], "pods to go")
    for group in plane.api.get(NATIVE)["items"]:
        plane.api.patch(f"{NATIVE}/{group['metadata']['name']}", {"metadata": {"finalizers": None}})
    plane.api.delete(NATIVE)
    kubelet.release_groups()
    plane.api.delete(NODES)

"""A control plane to measure schedulers on: worlds kept as templates, who was bound when, and what everybody used.

Two cores for scheduler, API server, etcd and whoever watches: a rate is a share of that, and compares only with rates
of the same run. So each run begins from a copy of one state, the servers are warm, and processor time stands beside.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.host import cpu_s
from bench.kube_posts import post_all
from bench.measure import Skipped
from phalanx.frontends.kube.api.kubeconfig import find_access
from phalanx.testing.controlplane.binaries import find_missing, find_program
from phalanx.testing.controlplane.fake_nodes import make_native_gang, make_pods
from phalanx.testing.controlplane.flags import API_SERVER, ETCD_SERVER, SCHEDULER, list_flags
from phalanx.testing.controlplane.plane import ControlPlane
from phalanx.testing.controlplane.rest import wait_until

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
#: Every scheduler speaks as this one, so that the server's own queues treat them alike.
USER = "kube-scheduler"
#: What the bench's pods name: any of the schedulers can take them then, and all find the very same objects.
SCHEDULER_NAME = "default-scheduler"
#: After a start the server is busy with itself, and after the last bind a scheduler may be behind with its writing.
SETTLE_S = 3.0
LIMIT_S = 180.0
_CHANGING = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
_WRITES = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def find_hindrance() -> Skipped | None:
    """Why nothing can be measured here."""
    missing = find_missing((ETCD_SERVER, API_SERVER, SCHEDULER))
    return Skipped(f"needs {', '.join(missing)}: make controlplane") if missing else None


# ---- worlds


def save_world(folder: Path, nodes: Sequence[Any], groups: Sequence[Any], pods: Sequence[Any]) -> Path:
    """A template with these objects in it, and one account that may do everything."""
    with ControlPlane() as plane:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-scheduler"}
        binding = {"metadata": {"name": "bench"}, "roleRef": role, "subjects": [subject]}
        plane.api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        for path, trees in ((NODES, nodes), (GROUPS, groups), (PODS, pods)):
            create_all(plane, path, trees)
        plane.save_template(folder)
    return folder


def create_all(plane: ControlPlane, path: str, trees: Sequence[Any]) -> None:
    """Faster than the plane's own client."""
    calls = ((path, msgspec.json.encode(tree)) for tree in trees)
    asyncio.run(post_all(find_access(str(plane.kubeconfig("admin"))), calls, 8))


def make_gang(name: str, members: int, gpus: int = 1) -> tuple[Any, list[Any]]:
    """Kubernetes' own group and its pods."""
    return make_native_gang(name, members), make_pods(name, members, gpus=gpus, native_gang=name)


# ---- who is bound when


class BindWatch:
    """Sees pods as they are bound, by a watch of their names alone: what it costs the server is the same for all."""

    def __init__(self, plane: ControlPlane) -> None:
        self.at: dict[str, float] = {}  # by pod, on the clock of `time.monotonic`
        self._access = find_access(str(plane.kubeconfig("admin")))
        plane.api.close()  # the server has let go of a connection that was not used for long
        self._version = plane.api.get(PODS, limit=1)["metadata"]["resourceVersion"]
        self._closed = False
        self._connection = self._connect()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(self._access.host, self._access.port, context=self._access.tls)
        path = f"{PODS}?watch=1&fieldSelector=spec.nodeName!%3D&resourceVersion={self._version}&timeoutSeconds=3600"
        accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        connection.request(
            "GET", path, headers={"Authorization": f"Bearer {self._access.find_token()}", "Accept": accept}
        )
        return connection

    def _read(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
                for line in self._connection.getresponse():
                    self._note(msgspec.json.decode(line), time.monotonic())
            # A server under load ends watches before their time, and says nothing.
            if not self._closed:
                self._connection.close()
                self._connection = self._connect()

    def _note(self, event: Any, now: float) -> None:
        if event["type"] == "ERROR":
            raise RuntimeError(f"the bench has lost sight of pods: {event['object']}")
        metadata = event["object"]["metadata"]
        self._version = metadata["resourceVersion"]
        if event["type"] == "ADDED":
            self.at.setdefault(metadata["name"], now)

    def wait(self, count: int, process: Program) -> None:
        """Until so many have been bound; a scheduler that is not there any more binds nobody."""
        limit_s = time.monotonic() + LIMIT_S
        while len(self.at) < count:
            if time.monotonic() > limit_s or not (self._thread.is_alive() and process.lives()):
                raise RuntimeError(f"{len(self.at)} of {count} pods are bound; {process.tell()}")
            time.sleep(0.005)

    def close(self) -> None:
        """While the server still listens."""
        self._closed = True
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._connection.close()


# ---- what is used


@dataclass(slots=True)
class Used:
    """Processor seconds of the servers."""

    api: float = 0.0
    etcd: float = 0.0


@contextmanager
def servers_of(plane: ControlPlane) -> Iterator[Used]:
    """What the servers use inside the block; known after it."""
    pids = plane.find_pids()
    api, etcd = cpu_s(pids[API_SERVER]), cpu_s(pids[ETCD_SERVER])
    found = Used()
    yield found
    found.api, found.etcd = cpu_s(pids[API_SERVER]) - api, cpu_s(pids[ETCD_SERVER]) - etcd


def count_writes(plane: ControlPlane) -> Counter[str]:
    """Requests that changed something, by resource, as the API server counts them."""
    found: Counter[str] = Counter()
    for labels, count in _WRITES.findall(plane.api.get("/metrics")):
        said = dict(_LABEL.findall(labels))
        if said["verb"] in _CHANGING and said["resource"] != "leases":
            name = f"{said['resource']}/{said['subresource']}" if said["subresource"] else said["resource"]
            found[name] += int(float(count))
    return found


def peak_mb(pid: int) -> float:
    """The most resident memory that a process has had; 0 of one that has ended."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


# ---- schedulers


@dataclass(slots=True)
class Program:
    """A scheduler as a process, and its log."""

    pid: int
    log: Path
    began_s: float  # on the clock of `time.monotonic`
    began_wall_s: float
    cpu_s: float = 0.0  # known when it has ended

    def lives(self) -> bool:
        """Whether it still runs, or has done what it had to."""
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is None or ended.si_status == 0

    def tell(self) -> str:
        """The end of its log."""
        return f"the end of its log:\n{self.log.read_text(errors='replace')[-2000:]}"

    def events(self, word: str) -> list[dict[str, Any]]:
        """Lines of ours of that kind; one that is being written is left out."""
        text = self.log.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line) for line in lines if f'"event":"{word}"' in line]

    def wait_for(self, word: str) -> dict[str, Any]:
        """The first of these, when it is there."""
        found = wait_until(lambda: self.events(word), lambda: f"{word}; {self.tell()}", LIMIT_S, 0.01)
        return found[0]


@contextmanager
def program(command: Sequence[str], folder: Path) -> Iterator[Program]:
    """Any program, killed with the block."""
    log = folder / f"log-{time.monotonic_ns()}"
    with log.open("wb") as output:
        began = time.monotonic(), time.time()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    found = Program(process.pid, log, *began)
    try:
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        # By the kernel's own sum, which knows also of one that has ended by itself.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        found.cpu_s = usage.ru_utime + usage.ru_stime


def phalanx_command(plane: ControlPlane) -> list[str]:
    """Ours, without an election, as the others."""
    command = [sys.executable, "-m", "phalanx", "kube", "run", "--kubeconfig", str(plane.kubeconfig(USER))]
    return [*command, "--no-leader-election", "--scheduler-name", SCHEDULER_NAME]


def stock_command(plane: ControlPlane) -> list[str]:
    """The one that comes with Kubernetes."""
    return [str(find_program(SCHEDULER)), *list_flags(SCHEDULER, plane.places, plane.settings)]


def binder_command(plane: ControlPlane) -> list[str]:
    """Who only binds."""
    return [sys.executable, "-m", "bench.kube_binder", str(plane.kubeconfig(USER))]


def wall_of(event: dict[str, Any]) -> float:
    """The instant of a line of our log, by the wall clock."""
    return datetime.fromisoformat(event["at"]).timestamp()

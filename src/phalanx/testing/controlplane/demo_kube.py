"""`make demo-kube`: a throw-away control plane, gangs in four dialects, questions, and a scheduler killed mid-gang.

Everything it prints has happened, and it fails if something did not: it is a test that people can read. Nothing stays
behind, whatever ends it: the control plane has its warden, the schedulers have another.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from phalanx.testing.controlplane.binaries import ControlPlaneMissingError, find_program
from phalanx.testing.controlplane.crds import find_kind, install_kinds
from phalanx.testing.controlplane.fake_nodes import GPU, make_native_gang, make_pods
from phalanx.testing.controlplane.kubelet import FakeKubelet
from phalanx.testing.controlplane.plane import ControlPlane, find_ports
from phalanx.testing.controlplane.rest import KubeRest, wait_until
from phalanx.testing.controlplane.standing_in import find_address, stand_down, stand_in
from phalanx.testing.controlplane.tether import Tether

#: The whole show; whatever goes wrong, nobody waits longer.
LONGEST_S: Final = 115
SYSTEM: Final = "phalanx-system"
PODS: Final = "/api/v1/namespaces/default/pods"
NATIVE: Final = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
#: So many bindings come through before the scheduler is killed.
_KILL_AT: Final = 5
#: A gang of 64 is bound in a tenth of a second: a kill may come too late, and then there is another one.
_TRIES: Final = 3
_BIG: Final = 64


class DemoError(Exception):
    """Something that was promised did not happen."""


@dataclass(frozen=True, slots=True)
class DialectShow:
    """One gang in one dialect."""

    dialect: str
    name: str
    members: int
    gpus: int
    make: Callable[[KubeRest, DialectShow], None]


def _make_native(api: KubeRest, show: DialectShow) -> None:
    api.create(NATIVE, make_native_gang(show.name, show.members))
    _make_pods(api, show, native_gang=show.name)


def _make_plugins(api: KubeRest, show: DialectShow) -> None:
    _make_group(api, "scheduler-plugins", show)
    _make_pods(api, show, labels={"scheduling.x-k8s.io/pod-group": show.name})


def _make_koordinator(api: KubeRest, show: DialectShow) -> None:
    # Without any object: annotations of the pods make the gang.
    prefix = "gang.scheduling.koordinator.sh"
    _make_pods(api, show, annotations={f"{prefix}/name": show.name, f"{prefix}/min-available": str(show.members)})


def _make_volcano(api: KubeRest, show: DialectShow) -> None:
    _make_group(api, "volcano", show)
    _make_pods(api, show, annotations={"scheduling.k8s.io/group-name": show.name})


def _make_group(api: KubeRest, project: str, show: DialectShow) -> None:
    kind = find_kind(project, "PodGroup")
    tree = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": {"name": show.name}}
    api.create(kind.place(), {**tree, "spec": {"minMember": show.members}})


def _make_pods(api: KubeRest, show: DialectShow, **more: Any) -> None:
    api.create_all(PODS, make_pods(show.name, show.members, gpus=show.gpus, scheduler="phalanx", **more))


SHOWS: Final = (
    DialectShow("native", "pretrain", 4, 8, _make_native),
    DialectShow("scheduler-plugins", "eval", 2, 8, _make_plugins),
    DialectShow("koordinator", "tune", 2, 8, _make_koordinator),
    DialectShow("volcano", "sweep", 2, 8, _make_volcano),
)

_JOB: Final = f"""\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: next}}
spec: {{schedulingPolicy: {{gang: {{minCount: 2}}}}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: next}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      schedulerName: phalanx
      schedulingGroup: {{podGroupName: next}}
      restartPolicy: Never
      containers:
      - {{name: main, image: none, resources: {{limits: {{{GPU}: 8}}}}}}
"""


@click.command()
def main() -> None:
    """Show gangs on a real control plane; leaves nothing behind."""
    signal.signal(signal.SIGALRM, _too_long)
    # A shell that starts something in the background has it ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.alarm(LONGEST_S)
    folder = Path(tempfile.mkdtemp(prefix="phalanx-demo-kube-"))
    tether = Tether([folder])
    try:
        with ControlPlane(folder=folder / "plane") as plane:
            _KubeShow(plane, tether, folder).run()
    except (DemoError, TimeoutError, ControlPlaneMissingError) as bad:
        click.echo(f"demo-kube: error: {bad}", err=True)
        raise SystemExit(1) from None
    finally:
        signal.alarm(0)
        tether.end()


def _too_long(number: int, frame: object) -> None:
    raise DemoError(f"the demo was not over after {LONGEST_S} s; this machine is busy: try it again")


@dataclass(slots=True)
class _KubeShow:
    plane: ControlPlane
    tether: Tether
    folder: Path
    began: float = field(default_factory=time.monotonic)
    replicas: dict[str, str] = field(default_factory=dict)  # address by name, of those that run
    made: int = 0
    ask_options: tuple[str, ...] = ()

    def run(self) -> None:
        """From an empty cluster to a gang that outlives its scheduler."""
        click.echo("A control plane of our own, 16 machines with 8 GPUs that are objects only. The rest is real.\n")
        self._prepare()
        for show in SHOWS:
            show.make(self.plane.api, show)
            self._say(show.name, f"submitted: {show.members} x {show.gpus} GPUs, in the words of {show.dialect}")
        for show in SHOWS:
            self._await(lambda show=show: self._count(show.name) == show.members, f"{show.name} to be whole")  # type: ignore[misc]
            self._say(show.name, f"is bound, {show.members} of {show.members} at one instant")
        self._make_big("big")
        self._ask("ps")
        self._expect("why", self._ask("why", "big"), "BLOCKED BY", "48 of 128 free")
        job = self.folder / "job.yaml"
        job.write_text(_JOB)
        self._expect("fit", self._ask("fit", "-f", str(job)), "default/next  FITS NOW")
        click.echo("")
        self._lose_a_scheduler()
        self._expect("ps", self._ask("ps"), "big", f"{_BIG}/{_BIG}")
        click.echo(f"\nDone in {time.monotonic() - self.began:.0f} s; nothing of it stays.")

    # ------------------------------------------------------------------ what is there

    def _prepare(self) -> None:
        api = self.plane.api
        self._say("", f"kube-apiserver and etcd serve on 127.0.0.1:{self.plane.places.api_port}")
        install_kinds(api)
        self._say("", "scheduler-plugins', Koordinator's and Volcano's kinds are installed")
        self._kubectl("apply", "-f", "-", text=self._phalanx("kube", "install"))
        self._kubectl("create", "-f", "-", text=self._phalanx("kube", "fake-nodes", "16x8"))
        self._say("", "phalanx kube install | kubectl apply -f -; phalanx kube fake-nodes 16x8 | kubectl create -f -")
        self.plane.add_account(SYSTEM, "phalanx")
        leader = self._start_replica()
        self._await(lambda: self._tells(leader, "ready"), "the first replica to lead")
        self._start_replica()
        self._say("", "two replicas run, with the rights that were installed and no others; one leads")

    def _start_replica(self) -> str:
        name = f"phalanx-{self.made}"
        self.made += 1
        # Of loopback the API server's proxy wants to know nothing.
        address = find_address()
        (port,) = find_ports(1)
        listen = f"{address or '127.0.0.1'}:{port}"
        command = [
            sys.executable,
            "-m",
            "phalanx",
            "kube",
            "run",
            "--kubeconfig",
            str(self.plane.kubeconfig("phalanx")),
        ]
        command += ["--namespace", SYSTEM, "--listen", listen]
        self.tether.ask(do="start", name=name, command=command, log=str(self._log(name)))
        self.replicas[name] = listen
        self._await(lambda: self._tells(name, "start"), f"{name} to start")
        if address is not None:
            stand_in(self.plane.api, SYSTEM, "phalanx", address, port, name=name)
        else:
            self.ask_options = ("--server", f"http://{next(iter(self.replicas.values()))}")
        return name

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _tells(self, name: str, word: str) -> bool:
        return any(line["event"] == word for line in self._read_log(name))

    def _read_log(self, name: str) -> Iterator[dict[str, Any]]:
        for line in self._log(name).read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)

    # ------------------------------------------------------------------ the crash

    def _make_big(self, name: str) -> None:
        show = DialectShow("native", name, _BIG, 1, _make_native)
        show.make(self.plane.api, show)
        self._say(name, f"submitted: {_BIG} x 1 GPU, and 48 are free: it waits, and takes none of them")
        time.sleep(1.5)
        if self._count(name):
            raise DemoError(f"{name} was to wait whole, and {self._count(name)} of it are bound")

    def _lose_a_scheduler(self) -> None:
        """Kill the one that leads while it binds; the other one takes up what was written down."""
        for attempt in range(_TRIES):
            name = "big" if not attempt else f"big-{attempt}"
            if attempt:
                self._say(name, "all of it was bound before the kill; once more, with another one")
                FakeKubelet(self.plane.api).move("Succeeded", lambda pod: pod["metadata"]["name"].startswith("big"))
                show = DialectShow("native", name, _BIG, 1, _make_native)
                there = self._kill_at_first_binds(lambda show=show: show.make(self.plane.api, show), name)  # type: ignore[misc]
            else:
                there = self._kill_at_first_binds(self._end_pretrain, name)
            self._say(name, f"the scheduler is killed with SIGKILL: {there} of {_BIG} are bound")
            began = time.monotonic()
            self._await(lambda name=name: self._count(name) == _BIG, f"{name} to be whole", 40.0)  # type: ignore[misc]
            waited = time.monotonic() - began
            self._say(name, f"is whole {waited:.0f} s later: the other replica took the lease, read the plan, went on")
            self._start_replica()
            if there < _BIG:
                return
        raise DemoError(f"{_TRIES} times the whole gang was bound before the scheduler could be killed; try it again")

    def _end_pretrain(self) -> None:
        self._say("pretrain", "ends")
        FakeKubelet(self.plane.api).move("Succeeded", lambda pod: pod["metadata"]["name"].startswith("pretrain"))

    def _kill_at_first_binds(self, begin: Callable[[], None], name: str) -> int:
        """How many of the gang are bound when nobody is left to bind the rest."""
        leader = next(iter(self.replicas))
        version = self.plane.api.get(PODS)["metadata"]["resourceVersion"]
        begin()
        bound: set[str] = set()
        for event in self.plane.api.watch(PODS, version, 20.0):
            pod = event["object"]
            if pod["metadata"]["name"].startswith(f"{name}-") and pod["spec"].get("nodeName"):
                bound.add(pod["metadata"]["name"])
            if len(bound) >= _KILL_AT:
                break
        self.tether.ask(do="signal", name=leader, number=int(signal.SIGKILL), wait_s=5.0)
        stand_down(self.plane.api, SYSTEM, leader)
        del self.replicas[leader]
        if self.ask_options:
            self.ask_options = ("--server", f"http://{next(iter(self.replicas.values()))}")
        if len(bound) < _KILL_AT:
            raise DemoError(f"{name} was to start, and {len(bound)} of it are bound after 20 s")
        return self._count(name)

    # ------------------------------------------------------------------ asking and telling

    def _count(self, name: str) -> int:
        pods = self.plane.api.get(PODS)["items"]
        return sum(pod["metadata"]["name"].startswith(f"{name}-") and bool(pod["spec"].get("nodeName")) for pod in pods)

    def _await(self, look: Callable[[], object], what: str, limit_s: float = 20.0) -> None:
        def tell() -> str:
            logs = [f"{name}: {self._log(name).read_text()[-1_000:]}" for name in self.replicas]
            return "\n".join([what, *logs])

        wait_until(look, tell, limit_s)

    def _ask(self, *words: str) -> str:
        """A question as people type it, with its answer."""
        shown = shlex.join(["kubectl", "phalanx", *words]).replace(f"{self.folder}/", "")
        text = self._kubectl("phalanx", *words, *self.ask_options)
        click.echo(f"\n$ {shown}\n{text.rstrip()}")
        return text

    def _expect(self, what: str, text: str, *parts: str) -> None:
        missing = [part for part in parts if part not in text]
        if missing:
            raise DemoError(f"{what}: {', '.join(map(repr, missing))} is not in the answer")

    def _kubectl(self, *words: str, text: str | None = None) -> str:
        kubectl = find_program("kubectl")
        # Plugins are found on the PATH; ours is installed beside this Python.
        path = os.pathsep.join([str(Path(sys.executable).parent), str(kubectl.parent), os.environ.get("PATH", "")])
        env = {**os.environ, "PATH": path, "KUBECONFIG": str(self.plane.kubeconfig("admin"))}
        return self._call([str(kubectl), *words], env, text)

    def _phalanx(self, *words: str) -> str:
        return self._call([sys.executable, "-m", "phalanx", *words], dict(os.environ), None)

    def _call(self, command: list[str], env: dict[str, str], text: str | None) -> str:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=env, timeout=60)
        if done.returncode:
            raise DemoError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _say(self, name: str, text: str) -> None:
        click.echo(f"{time.monotonic() - self.began:5.1f} s  {name:<8} {text}")


if __name__ == "__main__":
    main()

"""The command line of each program: everything on loopback, as little as works, nothing that a test would wait for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: Without kubelets nobody makes an account's token or takes the not-ready taint off a new node.
ADMISSION_OFF: Final = ("ServiceAccount", "TaintNodesByCondition")
#: Far above what two cores can serve: a test measures the server or the scheduler, never a client's own brake.
QPS, BURST = 5_000, 10_000

API_SERVER, ETCD_SERVER = "kube-apiserver", "etcd"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """What a control plane is made of, decided before it starts."""

    controllers: bool = False
    scheduler: bool = False
    #: Kubernetes' own groups of pods: takes the gate everywhere and the version in the API server. Either alone
    #: serves nothing, and nobody says so.
    native_gangs: bool = True
    #: More gates by name, for all programs.
    gates: Mapping[str, bool] = field(default_factory=dict)
    #: More versions to serve, as `scheduling.k8s.io/v1alpha3`.
    versions: tuple[str, ...] = ()
    #: More flags by program, as {"kube-apiserver": ("--watch-cache=false",)}; of two equal ones the last counts.
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Top-level fields of KubeSchedulerConfiguration, as {"podMaxBackoffSeconds": 1}.
    scheduler_config: Mapping[str, object] = field(default_factory=dict)

    @property
    def gate_flag(self) -> str:
        """`--feature-gates` for every program; those unknown to one are refused by it, so all are common ones."""
        gates = {"GenericWorkload": self.native_gangs, **self.gates}
        return "--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())

    @property
    def versions_flag(self) -> str:
        """`--runtime-config` for the API server."""
        native = ("scheduling.k8s.io/v1beta1",) if self.native_gangs else ()
        return "--runtime-config=" + ",".join(f"{version}=true" for version in (*native, *self.versions))


@dataclass(frozen=True, slots=True)
class PlaneLayout:
    """Files and ports of one control plane."""

    folder: Path
    api_port: int
    etcd_port: int
    peer_port: int

    @property
    def url(self) -> str:
        """Of the API server."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def etcd_url(self) -> str:
        """Of etcd, for clients."""
        return f"http://127.0.0.1:{self.etcd_port}"

    @property
    def state(self) -> Path:
        """What a template keeps: etcd's directory, the server's certificate and the key of the accounts' tokens."""
        return self.folder / "state"

    @property
    def certificate(self) -> Path:
        """The API server's own, with the authority that signed it."""
        return self.state / "certs" / "apiserver.crt"

    @property
    def signing_key(self) -> Path:
        """Of service account tokens."""
        return self.state / "accounts.key"

    @property
    def token_file(self) -> Path:
        """Static tokens."""
        return self.folder / "tokens.csv"

    def log(self, name: str) -> Path:
        """Of a program."""
        return self.folder / "logs" / f"{name}.log"

    def kubeconfig(self, name: str) -> Path:
        """Of a user."""
        return self.folder / "kubeconfigs" / name


def list_flags(name: str, places: PlaneLayout, settings: PlaneSettings) -> list[str]:
    """All flags of a program."""
    make = {
        ETCD_SERVER: _etcd,
        API_SERVER: _api_server,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
    }[name]
    return [*make(places, settings), *settings.flags.get(name, ())]


def _etcd(places: PlaneLayout, _settings: PlaneSettings) -> list[str]:
    peer = f"http://127.0.0.1:{places.peer_port}"
    return [
        f"--data-dir={places.state / 'etcd'}",
        f"--listen-client-urls={places.etcd_url}",
        f"--advertise-client-urls={places.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # What a process wrote outlives its kill without this; only a power cut would lose it.
        "--unsafe-no-fsync",
        # A cluster of one elects itself as soon as it may.
        "--heartbeat-interval=10",
        "--election-timeout=100",
        "--log-level=warn",
    ]


def _api_server(places: PlaneLayout, settings: PlaneSettings) -> list[str]:
    return [
        f"--etcd-servers={places.etcd_url}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={places.api_port}",
        f"--cert-dir={places.certificate.parent}",
        f"--token-auth-file={places.token_file}",
        # So that /readyz answers only to a token of ours: another control plane on this port would refuse it.
        "--anonymous-auth=false",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={places.signing_key}",
        f"--service-account-signing-key-file={places.signing_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        # The address of this server is loopback, which no Endpoints may hold.
        "--endpoint-reconciler-type=none",
        f"--disable-admission-plugins={','.join(ADMISSION_OFF)}",
        settings.gate_flag,
        settings.versions_flag,
    ]


def _controller_manager(places: PlaneLayout, settings: PlaneSettings) -> list[str]:
    kubeconfig = places.kubeconfig(CONTROLLER_MANAGER)
    return [
        f"--kubeconfig={kubeconfig}",
        # Nobody renews the leases of machines that are objects only: it would taint and empty them after 50 s.
        "--controllers=*,-node-lifecycle-controller",
        f"--service-account-private-key-file={places.signing_key}",
        f"--root-ca-file={places.certificate}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        f"--kube-api-qps={QPS}",
        f"--kube-api-burst={BURST}",
        settings.gate_flag,
    ]


def _scheduler(places: PlaneLayout, settings: PlaneSettings) -> list[str]:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(places.kubeconfig(SCHEDULER)), "qps": QPS, "burst": BURST},
        "leaderElection": {"leaderElect": False},
        **settings.scheduler_config,
    }
    path = places.folder / "kube-scheduler.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return [f"--config={path}", "--secure-port=0", settings.gate_flag]

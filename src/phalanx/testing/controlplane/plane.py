"""A control plane of one's own: started in seconds, hurt on purpose, and gone without a trace.

    with ControlPlane() as plane:
        plane.api.create_all("/api/v1/nodes", make_nodes("16x8"))
        plane.kill(API_SERVER)
        plane.start(API_SERVER)       # the same port, the same data

Its folder holds everything: etcd's data, kubeconfig files, a log for each program. It is a temporary one that
goes with the plane, unless one is given: then the logs stay. The programs belong to a warden (see there).
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from phalanx.testing.controlplane.binaries import (
    NEEDED,
    ControlPlaneMissingError,
    explain_missing,
    find_missing,
    find_program,
)
from phalanx.testing.controlplane.credentials import (
    STANDARD,
    KubeUser,
    format_token_file,
    make_signing_key,
    make_tokens,
    write_kubeconfig,
    write_private,
)
from phalanx.testing.controlplane.flags import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD_SERVER,
    SCHEDULER,
    PlaneLayout,
    PlaneSettings,
    list_flags,
)
from phalanx.testing.controlplane.rest import KubeRefusedError, KubeRest, KubeUnreachableError
from phalanx.testing.controlplane.tether import Tether

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 10.0
NAP_S: Final = 0.02
#: Below the range from which the kernel takes the near ends of connections, so that none of those is in the way.
PORTS: Final = range(21_000, 32_000)
LOG_LINES: Final = 15


class ComponentError(Exception):
    """A program of the control plane ended, or never became ready; the text has the end of its log."""


class ControlPlane:
    """etcd and an API server, and the other programs as wanted; a context manager."""

    def __init__(
        self,
        settings: PlaneSettings | None = None,
        *,
        users: Iterable[KubeUser] = (),
        folder: Path | None = None,
        template: Path | None = None,
    ) -> None:
        """`folder`: made if need be, and its logs stay. `template`: from `save_template`, to start on a copy of it."""
        self.settings = settings or PlaneSettings()
        self.users = (*STANDARD, *users)
        self.tokens = make_tokens(self.users)
        self._folder = folder
        self._template = template
        self._tether: Tether | None = None
        self._clients: dict[str, KubeRest] = {}
        self._pids: dict[str, int] = {}

    # --- beginning and end -----------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start everything that the settings name; ready when this returns."""
        wanted = {CONTROLLER_MANAGER: self.settings.controllers, SCHEDULER: self.settings.scheduler}
        more = [name for name, is_wanted in wanted.items() if is_wanted]
        if missing := find_missing([*NEEDED, *more]):
            raise ControlPlaneMissingError(explain_missing(missing))
        try:
            self._lay_out()
            for name in (ETCD_SERVER, API_SERVER, *more):
                self.start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _lay_out(self) -> None:
        ports = find_ports(3)
        if self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix="phalanx-controlplane-"))
        else:
            (folder := self._folder).mkdir(parents=True, exist_ok=True)
        self.places = PlaneLayout(folder, *ports)
        self._tether = Tether([folder] if self._folder is None else [self.places.state])
        for each in ("logs", "kubeconfigs"):
            (folder / each).mkdir(mode=0o700, exist_ok=True)
        if self._template is None:
            self.places.state.mkdir(mode=0o700)
            write_private(self.places.signing_key, make_signing_key())
        else:
            shutil.copytree(self._template, self.places.state)
        write_private(self.places.token_file, format_token_file(self.users, self.tokens))

    def stop(self) -> None:
        """Kill the programs and remove what they wrote."""
        for client in self._clients.values():
            client.close_all()
        self._clients.clear()
        if self._tether is not None:
            self._tether.end()
            self._tether = None

    # --- the programs ----------------------------------------------------------------------------

    def start(self, name: str) -> int:
        """Start a program, for the first time or again with the same ports and data, and wait until it serves.

        Returns its process id. Scheduler and controller-manager serve nobody: they have been started, no more.
        """
        if name in self.find_pids():
            raise ValueError(f"{name} is running; kill it first")
        command = [str(find_program(name)), *list_flags(name, self.places, self.settings)]
        pid = self._ask(do="start", name=name, command=command, log=str(self.places.log(name)))["pid"]
        self._pids[name] = int(pid)
        if name == ETCD_SERVER:
            self._await(name, self._etcd_serves)
        elif name == API_SERVER:
            self._await(name, self._api_serves)
            for user in self.tokens:
                self._write_kubeconfig(user)
        return int(pid)

    def kill(self, name: str, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end of the program if it is one that ends it."""
        ends = signal_number in (signal.SIGKILL, signal.SIGTERM)
        wait_s = STOP_LIMIT_S if ends else 0
        answer = self._ask(do="signal", name=name, number=int(signal_number), wait_s=wait_s)
        if ends and not answer["ended"]:
            raise ComponentError(f"{name} goes on {wait_s:g} s after signal {signal_number}; {self._tell_log(name)}")
        if name == API_SERVER:
            for client in self._clients.values():
                client.close()

    def restart(self, name: str) -> int:
        """Kill and start again."""
        self.kill(name)
        return self.start(name)

    def find_pids(self) -> dict[str, int]:
        """Process ids of the programs that run, by name."""
        return {name: self._pids[name] for name, code in self._ask(do="look").items() if code is None}

    # --- ways in ---------------------------------------------------------------------------------

    @property
    def api(self) -> KubeRest:
        """The admin's client."""
        return self.client("admin")

    def client(self, user: str) -> KubeRest:
        """The client of a user, who may be one added later."""
        if user not in self._clients:
            self._clients[user] = KubeRest(self.places.api_port, self.places.certificate, self.tokens[user])
        return self._clients[user]

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig file of a user."""
        return self.places.kubeconfig(user)

    def add_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig file of a service account that exists, with a real token of an hour."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        made = self.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        self.tokens[name] = made["status"]["token"]
        if (old := self._clients.pop(name, None)) is not None:
            old.close_all()
        return self._write_kubeconfig(name)

    # --- what is kept ----------------------------------------------------------------------------

    def compact(self) -> int:
        """Make etcd forget everything before now, and return that revision.

        The API server answers from events that it remembers itself: `restart(API_SERVER)` makes it forget those too,
        and a watch from before gets 410.
        """
        revision = int(self._call_etcd("kv/range", {"key": "AA=="})["header"]["revision"])
        self._call_etcd("kv/compaction", {"revision": revision, "physical": True})
        return revision

    def save_template(self, folder: Path) -> None:
        """Copy the state for others to start from; stops API server and etcd for it and starts them again."""
        self.kill(API_SERVER)
        self.kill(ETCD_SERVER, signal.SIGTERM)
        shutil.copytree(self.places.state, folder)
        self.start(ETCD_SERVER)
        self.start(API_SERVER)

    # --- behind ----------------------------------------------------------------------------------

    def _ask(self, **request: object) -> Any:
        if self._tether is None:
            raise ComponentError("the control plane is not running: use it inside its `with` block")
        return self._tether.ask(**request)

    def _await(self, name: str, serves: Callable[[], bool]) -> None:
        limit = time.monotonic() + START_LIMIT_S
        while not serves():
            if (code := self._ask(do="look")[name]) is not None:
                raise ComponentError(f"{name} ended with code {code}; {self._tell_log(name)}")
            if time.monotonic() > limit:
                raise ComponentError(f"{name} not ready within {START_LIMIT_S:g} s; {self._tell_log(name)}")
            time.sleep(NAP_S)

    def _etcd_serves(self) -> bool:
        try:
            self._call_etcd("kv/range", {"key": "AA=="})
        except OSError:  # which urllib's errors are
            return False
        return True

    def _api_serves(self) -> bool:
        # Only a token of ours gets an answer, so it is our server. The namespace comes a moment after /readyz, and a
        # test begins with a pod in it.
        try:
            return bool(self.api.get("/readyz") == "ok" and self.api.get("/api/v1/namespaces/default"))
        except (KubeUnreachableError, KubeRefusedError):
            return False

    def _call_etcd(self, path: str, tree: object) -> Any:
        request = urllib.request.Request(f"{self.places.etcd_url}/v3/{path}", json.dumps(tree).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=STOP_LIMIT_S) as answer:  # noqa: S310 - ours, on loopback
            return json.load(answer)

    def _write_kubeconfig(self, name: str) -> Path:
        authority = self.places.certificate.read_bytes()
        return write_kubeconfig(self.kubeconfig(name), self.places.url, authority, self.tokens[name])

    def _tell_log(self, name: str) -> str:
        log = self.places.log(name)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
        return "\n".join([f"the end of {log}:", *lines])


def find_ports(count: int) -> list[int]:
    """Ports of loopback on which nobody listens now. Somebody may a moment later; then the start fails and says so."""
    found: list[int] = []
    # Not from a seed: tests that run beside this one must not all begin with the same port.
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports among {PORTS.start} to {PORTS.stop}")

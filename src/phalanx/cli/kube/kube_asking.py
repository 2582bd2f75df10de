"""How `kubectl phalanx` reaches the scheduler: through the API server's proxy of its Service, or directly.

The first needs no port that is open to people, and is let in by Kubernetes' own rights; the second is for a scheduler
that runs here, or behind a port-forward.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import click

from phalanx.cli.host.talking import failing
from phalanx.cli.kube.kubectl_way import SocketConnection, serve_cluster
from phalanx.client.daemon_errors import ClientError, RefusedError, UnreachableError, UsageError

_TIMEOUT_S: Final = 60.0
#: The proxy takes any replica, and only the one that leads answers: of two it is missed ten times in a row by one
#: command in a thousand.
_TRIES: Final = 10
SCHEDULER: Final = "phalanx-system/phalanx"
#: What a replica says that follows, and the proxy of one that has just gone.
_PASSING: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
_PORT: Final = "metrics"
_SCHEMAS: Final = "phalanx.kube."
_RIGHTS: Final = "services/proxy"


@dataclass(frozen=True, slots=True)
class Asker:
    """One way to the scheduler."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str
    where: str  # as errors name it
    namespace: str | None  # of the context; None: nobody said
    find_token: Callable[[], str] = lambda: ""
    service: tuple[str, str] | None = None  # through the proxy: its namespace and name
    socket_path: Path | None = None  # where kubectl serves the API server

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """An answer."""
        return self._read(self.raw("GET", path, query))

    def post(self, path: str, body: bytes, query: Mapping[str, object] | None = None) -> Any:
        """An answer about something that is sent along; nothing is changed by it."""
        return self._read(self.raw("POST", path, query, body))

    def _read(self, answer: bytes) -> Any:
        """What it says, if it is one of ours: on any port somebody may answer."""
        try:
            told = json.loads(answer)
        except ValueError:
            told = None
        if not isinstance(told, dict) or not str(told.get("schema", "")).startswith(_SCHEMAS):
            hint = "--server names what phalanx kube run --listen listens on"
            raise ClientError(f"what answers at {self.where} is no scheduler of ours", hint)
        return told

    def raw(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: bytes | None = None
    ) -> bytes:
        """The answer as it came."""
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{self.prefix}{path}{f'?{urlencode(asked)}' if asked else ''}"
        bad: ClientError = UnreachableError(f"nobody answers at {self.where}")
        for _ in range(_TRIES):
            status, answer = self._send(method, target, body)
            if status < HTTPStatus.BAD_REQUEST:
                return answer
            bad = self._explain(status, answer)
            # Directly it is always the same replica; through the proxy another one may lead, or live.
            if self.service is None or status not in _PASSING:
                break
        raise bad

    def _send(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connect()
        headers = {"Accept": "application/json", "User-Agent": "kubectl-phalanx"}
        if token := self.find_token():
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/yaml"
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as lost:
            hint = "is the cluster up? kubectl version" if self.service else "is it running? phalanx kube run --listen"
            raise UnreachableError(f"nobody answers at {self.where}: {lost}", hint) from None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self.socket_path is not None:
            return SocketConnection(self.socket_path, _TIMEOUT_S)
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(self.host, self.port, timeout=_TIMEOUT_S, context=self.tls)

    # ---- what is said no with

    def _explain(self, status: int, answer: bytes) -> ClientError:
        """The scheduler's own words, or what the proxy in front of it means."""
        try:
            told = json.loads(answer)
        except ValueError:
            told = {}
        error = told.get("error") if isinstance(told, dict) else None
        if isinstance(error, dict):
            details = error.get("details") or {}
            return RefusedError(error["message"], error.get("hint", ""), code=error["code"], details=details)
        words = str(told.get("message", "")) if isinstance(told, dict) else ""
        return self._explain_proxy(status, words or answer[:200].decode("utf-8", "replace").strip())

    def _explain_proxy(self, status: int, words: str) -> ClientError:
        if self.service is None:
            hint = "--server names what phalanx kube run --listen listens on"
            return ClientError(f"{self.where} is no scheduler of ours: {status} {words}", hint)
        namespace, name = self.service
        if status == HTTPStatus.FORBIDDEN:
            hint = f"bind the role {name}-reader of namespace {namespace} to them: {say_binding(namespace, name)}"
            says = f"you may not ask the scheduler: that takes get and create of {_RIGHTS} in namespace {namespace}"
            return ClientError(f"{says} ({words})", hint, code="forbidden")
        if status == HTTPStatus.UNAUTHORIZED:
            return ClientError(f"{self.where}: {words}", "kubectl auth whoami", code="unauthorised")
        if status == HTTPStatus.NOT_FOUND or "no endpoints available" in words:
            # Of a Service that is not there the API server says the same as of one without replicas that are ready.
            says = f"there is no Service {name} in namespace {namespace}, or no replica behind it is ready"
            hint = (
                f"kubectl -n {namespace} get service,pods shows which; phalanx kube install | kubectl apply -f - "
                "installs it; --scheduler NAMESPACE/NAME names another, --server URL one that runs with --listen"
            )
            return UnreachableError(says, hint)
        hint = f"kubectl -n {namespace} get pods; --server URL asks one that runs elsewhere"
        return UnreachableError(f"no replica of {namespace}/{name} answers: {words}", hint)


def say_binding(namespace: str, name: str) -> str:
    """The command that lets somebody ask."""
    return f"kubectl -n {namespace} create rolebinding {name}-readers --role {name}-reader --user USER"


@dataclass(frozen=True, slots=True)
class WhichScheduler:
    """Which scheduler, as somebody typed it."""

    kubeconfig: str | None
    context_name: str | None
    namespace: str | None
    scheduler: str
    server: str | None


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the cluster and the scheduler are, as `place`; named as plugins of kubectl name it."""

    @wraps(function)
    def gather(
        *,
        kubeconfig: str | None,
        context_name: str | None,
        namespace: str | None,
        scheduler: str,
        server: str | None,
        **more: Any,
    ) -> Any:
        return function(place=WhichScheduler(kubeconfig, context_name, namespace, scheduler, server), **more)

    options = (
        click.option("--kubeconfig", metavar="FILE", help="Which cluster, and as whom."),
        click.option("--context", "context_name", metavar="NAME", help="Which context of it."),
        click.option("-n", "--namespace", metavar="NAME", help="Of the gangs [that of the context]."),
        click.option("--scheduler", default=SCHEDULER, show_default=True, metavar="NS/NAME", help="Its Service."),
        click.option("--server", metavar="URL", help="Ask it directly: what it listens on."),
    )
    found: Callable[..., Any] = gather
    for option in reversed(options):
        found = option(found)
    return found


@contextmanager
def asking(place: WhichScheduler) -> Iterator[Asker]:
    """The scheduler, for the length of a command; what goes wrong ends it with an exit code."""
    with failing(), ExitStack() as stack:
        if place.server is not None:
            yield _ask_directly(place.server, place.namespace)
        else:
            yield _ask_through(place, stack)


def _ask_through(place: WhichScheduler, stack: ExitStack) -> Asker:
    """By the API server's proxy."""
    from phalanx.frontends.kube.api.kubeconfig import KubeconfigError, UnknownWayError, find_access

    service_space, slash, service = place.scheduler.partition("/")
    if not (service_space and slash and service) or "/" in service:
        raise UsageError(f"--scheduler {place.scheduler!r} names no service", f"write NAMESPACE/NAME, as {SCHEDULER}")
    path = f"/api/v1/namespaces/{service_space}/services/{service}:{_PORT}/proxy"
    try:
        # Several files are one to kubectl, by rules of its own.
        is_one = place.kubeconfig is not None or os.pathsep not in os.environ.get("KUBECONFIG", "")
        access = find_access(place.kubeconfig, context=place.context_name) if is_one else None
    except UnknownWayError:
        access = None
    except KubeconfigError as bad:
        raise UsageError(str(bad), "--kubeconfig FILE, or --server URL") from None
    to = (service_space, service)
    if access is None:
        socket_path, space = stack.enter_context(serve_cluster(place.kubeconfig, place.context_name))
        where = "the API server, by way of kubectl"
        return Asker("localhost", 0, None, path, where, place.namespace or space, service=to, socket_path=socket_path)
    where, space = f"https://{access.host}:{access.port}", place.namespace or access.namespace
    path = f"{access.prefix}{path}"
    return Asker(access.host, access.port, access.tls, path, where, space, access.find_token, to)


def _ask_directly(server: str, namespace: str | None) -> Asker:
    parts = urlsplit(server if "://" in server else f"http://{server}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise UsageError(f"--server {server!r} is no address with a port", "write it as http://127.0.0.1:8080")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Asker(parts.hostname, port, tls, parts.path.rstrip("/"), server, namespace)

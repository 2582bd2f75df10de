"""Where the API server is and who we are: a kubeconfig file, or the account of the pod that this runs in."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

#: What every pod finds, by the contract of Kubernetes.
ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80


class KubeconfigError(Exception):
    """We do not know where the API server is or who we are; the text says what to do."""


class UnknownWayError(KubeconfigError):
    """The file is good, and asks for a way in that is not known here; kubectl knows all of them."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """One server, and how to prove who we are."""

    host: str
    port: int
    tls: ssl.SSLContext | None  # None: plain HTTP, as through a proxy of kubectl's
    prefix: str = ""  # of every path, where the server is behind another
    #: Asked for every call: tokens of accounts are replaced on disk every hour.
    find_token: Callable[[], str] = lambda: ""
    namespace: str = "default"


def find_access(
    kubeconfig: str | None, environment: Mapping[str, str] = os.environ, context: str | None = None
) -> ApiAccess:
    """By the file that is named, by $KUBECONFIG, or as the pod that this is; `context`: not the current one."""
    is_pod = "KUBERNETES_SERVICE_HOST" in environment and (ACCOUNT_FOLDER / "token").exists()
    if is_pod and kubeconfig is None and context is None:
        return read_account(environment)
    named = kubeconfig or environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = Path(named) if named else Path.home() / ".kube" / "config"
    if not path.is_file():
        raise KubeconfigError(f"there is no kubeconfig file {path}; name one with --kubeconfig")
    return read_kubeconfig(path, context)


def read_account(environment: Mapping[str, str], folder: Path = ACCOUNT_FOLDER) -> ApiAccess:
    """The account of this pod."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment.get("KUBERNETES_SERVICE_PORT", _HTTPS_PORT))
    tls = _make_context((folder / "ca.crt").read_text(encoding="ascii"))
    namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    return ApiAccess(host, port, tls, find_token=_file_token(folder / "token"), namespace=namespace)


def read_kubeconfig(path: Path, context: str | None = None) -> ApiAccess:
    """A context of a file, by itself the current one."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _read_tree(tree, path, context)
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError, binascii.Error) as bad:
        raise KubeconfigError(f"{path} is no kubeconfig file: {_tell(bad)}") from bad
    except (OSError, ValueError) as bad:  # which TLS errors are
        raise KubeconfigError(f"{path} cannot be used: {bad}") from bad


def _read_tree(tree: Mapping[str, Any], path: Path, named: str | None) -> ApiAccess:
    if named is not None and named not in (known := [str(each["name"]) for each in tree["contexts"]]):
        raise KubeconfigError(f"{path} has no context {named!r}; it has {', '.join(known)}")
    context = _pick(tree, "contexts", named or str(tree["current-context"]))["context"]
    cluster = _pick(tree, "clusters", context["cluster"])["cluster"]
    user = _pick(tree, "users", context["user"])["user"] or {}
    for unknown in ("exec", "auth-provider", "username"):
        if unknown in user:
            do = "use a token or a client certificate, or run in the cluster"
            raise UnknownWayError(f"{path} asks for the way in {unknown!r}, which is not supported; {do}")
    parts = urlsplit(str(cluster["server"]))
    if not parts.hostname:
        raise KubeconfigError(f"{path} names no server: {cluster['server']!r}")
    tls = None
    if parts.scheme != "http":
        authority = _read_data(cluster, "certificate-authority", path)
        tls = _make_context(authority, insecure=bool(cluster.get("insecure-skip-tls-verify")))
        _add_certificate(tls, _read_data(user, "client-certificate", path), _read_data(user, "client-key", path))
    token = str(user.get("token", ""))
    find_token = _file_token(path.parent / user["tokenFile"]) if not token and "tokenFile" in user else lambda: token
    port = parts.port or (_HTTP_PORT if tls is None else _HTTPS_PORT)
    namespace = str(context.get("namespace") or "default")
    return ApiAccess(parts.hostname, port, tls, parts.path.rstrip("/"), find_token, namespace)


def _pick(tree: Mapping[str, Any], list_: str, name: str) -> Mapping[str, Any]:
    for each in tree[list_]:
        if each["name"] == name:
            found: Mapping[str, Any] = each
            return found
    raise KeyError(f"{list_} has no {name!r}")


def _read_data(part: Mapping[str, Any], key: str, path: Path) -> str:
    """PEM text, in the file itself or in one beside it; empty if there is none."""
    if data := part.get(f"{key}-data"):
        return base64.b64decode(data, validate=True).decode("ascii")
    return (path.parent / part[key]).read_text(encoding="ascii") if part.get(key) else ""


def _make_context(authority: str, *, insecure: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority or None)
    # Python 3.13 asks for extensions that certificates which a server made for itself do not have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _add_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    if not (certificate and key):
        return
    # The library reads them from files only.
    with _private_file(certificate) as one, _private_file(key) as other:
        context.load_cert_chain(one, other)


@contextlib.contextmanager
def _private_file(text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        yield file.name


def _file_token(path: Path) -> Callable[[], str]:
    return lambda: path.read_text(encoding="ascii").strip()


def _tell(bad: BaseException) -> str:
    return f"{bad.args[0]}" if isinstance(bad, KeyError) else str(bad).splitlines()[0]

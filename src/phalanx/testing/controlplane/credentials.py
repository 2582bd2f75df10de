"""Who may speak to the API server: bearer tokens by user, and a kubeconfig file for each.

Tokens are static, from a file that the API server reads once, so users are named before it starts. An account that is
installed later gets a token of the API server's own making (`ControlPlane.add_account`). The server makes its own
certificate, which is also the authority that clients trust. So neither openssl nor a library is needed.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONTROLLERS: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"


@dataclass(frozen=True, slots=True)
class KubeUser:
    """Somebody with a token. What he may do is said by role bindings; the API server makes none for unknown names."""

    #: The name of his kubeconfig file.
    name: str
    #: The name in role bindings; `system:serviceaccount:NAMESPACE:NAME` is as good as that account.
    username: str
    groups: tuple[str, ...] = ()


ADMIN: Final = KubeUser("admin", "admin", ("system:masters",))
#: Always there: the admin, and the programs of the control plane under the names that Kubernetes' own bindings know.
STANDARD: Final = (ADMIN, KubeUser("kube-controller-manager", CONTROLLERS), KubeUser("kube-scheduler", SCHEDULER))


def make_tokens(users: Iterable[KubeUser]) -> dict[str, str]:
    """A new token for each user, by name."""
    return {user.name: secrets.token_urlsafe(24) for user in users}


def format_token_file(users: Iterable[KubeUser], tokens: dict[str, str]) -> str:
    """The file for `--token-auth-file`: token, user name, unique id, groups."""
    return "".join(f'{tokens[u.name]},{u.username},{u.name},"{",".join(u.groups)}"\n' for u in users)


def make_signing_key() -> str:
    """A private key (PEM, P-256) to sign the tokens of service accounts with.

    RFC 5915 leaves the public half optional, and Go computes it: what remains is 32 random bytes in a fixed frame.
    """
    # SEQUENCE { INTEGER 1, OCTET STRING (32), [0] { OID 1.2.840.10045.3.1.7 } }. The first byte is below 0xff,
    # so that the number is below the order of the curve.
    secret = bytes([secrets.randbelow(0xFF)]) + secrets.token_bytes(31)
    frame = bytes.fromhex("30310201010420") + secret + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.encodebytes(frame).decode()}-----END EC PRIVATE KEY-----\n"


def write_private(path: Path, text: str) -> Path:
    """A file that only its owner reads, from its first byte on."""
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def write_kubeconfig(path: Path, url: str, authority: bytes, token: str) -> Path:
    """One cluster, one user, one context. JSON, which every reader of YAML reads."""
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "current-context": "test",
    }
    return write_private(path, json.dumps(tree, indent=1))
